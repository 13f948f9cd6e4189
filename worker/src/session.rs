//! The worker's side of the conversation: report, receive, run, repeat.
//!
//! One loop, woken by an attempt that ends, by the coordinator's answer, or by a request to drain. Every report is the
//! whole truth: what runs and how far it is, and every outcome that was not acknowledged yet. Attempts run on threads of
//! their own, so that a report is never late because of them. An attempt that the coordinator does not know any more is
//! stopped; what a stopped or panicking attempt leaves behind is an unpublished object under its own name.

use std::collections::HashMap;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::{Duration, Instant};

use async_trait::async_trait;
use baler_common::model::error::{Failure, FailureClass};
use baler_common::model::id::{AttemptId, CompactionId, Epoch, JobId};
use baler_common::model::job::Assignment;
use baler_common::model::outcome::{Outcome, Receipt};
use baler_common::runtime::killpoint::killpoint;
use baler_common::runtime::random::random_u64;
use baler_proto::{convert, v1};
use tokio::sync::{mpsc, watch};

use crate::context::Context;
use crate::slots::Slots;

/// Longest pause after a report that failed.
const RETRY_MAX: Duration = Duration::from_secs(10);
/// How long attempts go on without an answer from any coordinator.
const ORPHANED_AFTER: Duration = Duration::from_secs(600);
/// How long a draining worker lets its attempts go on before it gives them up.
const DRAIN_MAX: Duration = Duration::from_secs(20);
/// How often running attempts are reported while nothing else happens.
const REPORT_EVERY: Duration = Duration::from_millis(500);

/// Whoever answers reports: a coordinator in this process, or one behind a connection.
#[async_trait]
pub trait Reporter: Send + Sync {
    async fn report(&self, request: v1::ReportRequest) -> Result<v1::ReportReply, Failure>;
}

/// What runs one attempt to its end. Blocks.
pub type RunAttempt = Arc<dyn Fn(&Assignment, &Context) -> Result<Receipt, Failure> + Send + Sync>;

/// One worker.
pub struct Session {
    reporter: Arc<dyn Reporter>,
    run_attempt: RunAttempt,
    slots: Slots,
    worker: String,
    epoch: Epoch,
    /// Reports sent so far.
    sequence: u64,
    running: HashMap<AttemptId, Running>,
    /// Ended attempts whose outcome was not acknowledged yet.
    ended: Vec<Outcome>,
    /// The coordinator wants this worker to end.
    dismissed: bool,
    /// Whether a worker that drains gives up what takes long.
    impatient: bool,
}

struct Running {
    assignment: Assignment,
    context: Context,
}

impl Session {
    pub fn new(reporter: Arc<dyn Reporter>, run_attempt: RunAttempt, slots: Slots) -> Self {
        Self {
            reporter,
            run_attempt,
            slots,
            worker: format!("w-{:016x}", random_u64()),
            epoch: Epoch(0),
            sequence: 0,
            running: HashMap::new(),
            ended: Vec::new(),
            dismissed: false,
            impatient: false,
        }
    }

    /// What this worker calls itself.
    pub fn name(&self) -> &str {
        &self.worker
    }

    /// Under this name instead of a drawn one; it must be new at every start.
    #[must_use]
    pub fn named(mut self, worker: String) -> Self {
        self.worker = worker;
        self
    }

    /// Gives attempts up that do not end soon after the worker was asked to drain: they cost another worker less than a
    /// process that is killed.
    #[must_use]
    pub fn impatient(mut self) -> Self {
        self.impatient = true;
        self
    }

    /// Works until the coordinator has nothing left, or until `draining` turns true and the running attempts have ended.
    ///
    /// # Errors
    /// The coordinator's refusal; connection trouble is waited out.
    pub async fn run(mut self, mut draining: watch::Receiver<bool>) -> Result<(), Failure> {
        let (sender, mut finished) = mpsc::unbounded_channel::<Outcome>();
        let mut pause = Duration::ZERO;
        let mut answered_at = Instant::now();
        let mut drained_at: Option<Instant> = None;
        loop {
            let drained = *draining.borrow() || self.dismissed;
            if drained {
                let since = drained_at.get_or_insert_with(Instant::now);
                if self.impatient && since.elapsed() > DRAIN_MAX {
                    self.running.values().for_each(|running| running.context.cancel());
                }
            }
            if drained && self.running.is_empty() && self.ended.is_empty() {
                return Ok(());
            }
            let request = self.request(drained);
            let answered = {
                let reporter = self.reporter.clone();
                let report = reporter.report(request);
                tokio::pin!(report);
                tokio::select! {
                    answer = &mut report => Some(answer),
                    Some(outcome) = finished.recv() => {
                        // An answer held back by the coordinator is given up for a report that says more.
                        self.finish(outcome);
                        None
                    }
                    Ok(()) = draining.changed(), if !drained => None,
                }
            };
            let Some(answer) = answered else { continue };
            match answer {
                Ok(reply) => {
                    pause = Duration::ZERO;
                    answered_at = Instant::now();
                    self.dismissed |= reply.drain;
                    let settled = reply.settled;
                    self.take(reply, &sender)?;
                    if settled && self.running.is_empty() && self.ended.is_empty() {
                        return Ok(());
                    }
                }
                Err(failure) if failure.class == FailureClass::Transient => {
                    pause = jittered((pause * 2).clamp(Duration::from_millis(200), RETRY_MAX));
                    tracing::warn!(%failure, "report failed, trying again");
                    if answered_at.elapsed() > ORPHANED_AFTER {
                        self.running.values().for_each(|running| running.context.cancel());
                    }
                    // A worker that is to end does not wait for a coordinator that may never come back.
                    if drained && self.running.is_empty() && answered_at.elapsed() > DRAIN_MAX {
                        return Ok(());
                    }
                }
                Err(failure) => {
                    self.running.values().for_each(|running| running.context.cancel());
                    return Err(failure);
                }
            }
            // With free slots the coordinator holds its answer back; with none, this side waits.
            let drained = drained || self.dismissed;
            let wait = if self.free_slots(drained) == 0 || drained { REPORT_EVERY.max(pause) } else { pause };
            if !wait.is_zero() {
                tokio::select! {
                    Some(outcome) = finished.recv() => self.finish(outcome),
                    () = tokio::time::sleep(wait) => {}
                    Ok(()) = draining.changed(), if !drained => {}
                }
            }
            while let Ok(outcome) = finished.try_recv() {
                self.finish(outcome);
            }
        }
    }

    fn free_slots(&self, drained: bool) -> usize {
        if drained { 0 } else { self.slots.count.saturating_sub(self.running.len()) }
    }

    fn request(&mut self, drained: bool) -> v1::ReportRequest {
        self.sequence += 1;
        let running = |(attempt, running): (&AttemptId, &Running)| v1::RunningAttempt {
            compaction: running.assignment.compaction.0.clone(),
            epoch: running.assignment.epoch.0,
            attempt: attempt.0.to_vec().into(),
            job: running.assignment.spec.job.0,
            progress: Some((&running.context.progress()).into()),
        };
        v1::ReportRequest {
            worker: self.worker.clone(),
            free_slots: u32::try_from(self.free_slots(drained)).unwrap_or(u32::MAX),
            running: self.running.iter().map(running).collect(),
            outcomes: self.ended.iter().map(Into::into).collect(),
            draining: drained,
            sequence: self.sequence,
        }
    }

    fn finish(&mut self, outcome: Outcome) {
        self.running.remove(&outcome.attempt);
        self.ended.push(outcome);
    }

    fn take(&mut self, reply: v1::ReportReply, sender: &mpsc::UnboundedSender<Outcome>) -> Result<(), Failure> {
        if Epoch(reply.epoch) < self.epoch {
            // A leader that was replaced: nothing it says counts.
            return Ok(());
        }
        self.epoch = Epoch(reply.epoch);
        for attempt in &reply.acknowledged {
            let attempt = convert::attempt_from_wire(attempt)?;
            self.ended.retain(|outcome| outcome.attempt != attempt);
        }
        for attempt in &reply.stops {
            if let Some(running) = self.running.get(&convert::attempt_from_wire(attempt)?) {
                running.context.cancel();
            }
        }
        for assignment in reply.assignments {
            let (compaction, epoch, job) = (
                CompactionId(assignment.compaction.clone()),
                Epoch(assignment.epoch),
                JobId(assignment.spec.as_ref().map_or(0, |spec| spec.job)),
            );
            let attempt = convert::attempt_from_wire(&assignment.attempt)?;
            let assignment = match Assignment::try_from(assignment) {
                Ok(assignment) => assignment,
                // A job that says something wrong costs itself, not the worker.
                Err(failure) => {
                    self.ended.push(Outcome { compaction, epoch, attempt, job, result: Err(failure) });
                    continue;
                }
            };
            if !self.running.contains_key(&assignment.attempt) {
                self.start(assignment, sender.clone());
            }
        }
        Ok(())
    }

    fn start(&mut self, assignment: Assignment, sender: mpsc::UnboundedSender<Outcome>) {
        let context = self.slots.context(self.running.len() + 1);
        let attempt = assignment.attempt;
        self.running.insert(attempt, Running { assignment: assignment.clone(), context: context.clone() });
        let run_attempt = self.run_attempt.clone();
        let work = move || {
            killpoint("attempt-start");
            let result = std::panic::catch_unwind(AssertUnwindSafe(|| run_attempt(&assignment, &context)));
            let result = result.unwrap_or_else(|panic| Err(panicked(panic.as_ref())));
            killpoint("attempt-end");
            let Assignment { compaction, epoch, attempt, spec } = assignment;
            // The session may be gone: then nobody waits for the outcome.
            let _ = sender.send(Outcome { compaction, epoch, attempt, job: spec.job, result });
        };
        let spawned = std::thread::Builder::new().name(format!("attempt-{attempt}")).spawn(work);
        if let Err(error) = spawned
            && let Some(running) = self.running.remove(&attempt)
        {
            let failure = Failure::new(FailureClass::Transient, format!("start a thread: {error}"));
            let Assignment { compaction, epoch, attempt, spec } = running.assignment;
            self.ended.push(Outcome { compaction, epoch, attempt, job: spec.job, result: Err(failure) });
        }
    }
}

/// Three quarters to all of a pause, so that many workers do not come back at the same moment.
fn jittered(pause: Duration) -> Duration {
    pause.mul_f64(0.75 + 0.25 * (random_u64() as f64 / u64::MAX as f64))
}

fn panicked(panic: &(dyn std::any::Any + Send)) -> Failure {
    let said = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
    let said = said.or_else(|| panic.downcast_ref::<String>().cloned()).unwrap_or_default();
    Failure::new(FailureClass::WorkerLost, format!("the attempt stopped at a broken assumption: {said}"))
}
