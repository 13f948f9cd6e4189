//! One run of one plan: reports come in, transitions are persisted, answers go out.
//!
//! Workers speak to a run through [`Coordinator::report`] alone. A report is the whole truth of a worker: what it runs,
//! what it finished, how many jobs it could start. The answer is what to change, and leaves only after the store has
//! accepted every transition that it tells of. An answer with nothing in it is held back for a while, so that an idle
//! worker hears of a job at once.
//!
//! Reports of a worker are numbered. One that was overtaken by a later report of the same worker is answered without
//! jobs, because nobody waits for that answer any more; and an attempt that went out with an answer to an earlier report
//! but is not named in a later one never arrived, so its job is free again at once.
//!
//! A job that failed and may be tried again waits a little longer each time, so that a store that is down for a minute
//! does not use up its attempts. A write that the state store refuses ends the run: nothing that happens later could be
//! made durable.
//!
//! Receipts are judged by [`lifecycle::job`](crate::lifecycle::job); a verified one is written as an object (see
//! [`Evidence`]) before its job is recorded as verified, so that a later run, here or elsewhere, can adopt the output.
//! Times are monotonic and only decide when to try again.

mod request;
mod settings;
mod stragglers;
mod told;

use std::collections::{BTreeSet, HashMap, HashSet};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use baler_common::model::error::{Failure, FailureClass};
use baler_common::model::id::{AttemptId, Epoch, JobId, WorkerId};
use baler_common::model::job::{Assignment, JobSpec};
use baler_common::model::outcome::{Outcome, Progress, Receipt};
use baler_common::runtime::killpoint::killpoint;
use baler_common::runtime::random::random_u64;
use baler_proto::v1;
use tokio::sync::{Mutex, Notify, broadcast};
use tokio::time::Instant;

use crate::lifecycle::job::{self, Attempt, Job, JobEvent, JobState};
use crate::lifecycle::run::{Run, RunState};
use crate::plan::Plan;
use crate::state::leadership::Leadership;
use crate::state::{Change, StateError, keys, records, runs};
use request::Request;
pub use settings::{RETRY_AFTER_MAX, Settings};
use stragglers::{Pace, Running, straggler};
pub use told::{Event, RunProgress, Settled};

/// What the run asks of the objects beside the data. Blocks.
pub trait Evidence: Send + Sync {
    /// Looks whether the outputs of the receipt are there with their sizes, and stores the receipt.
    ///
    /// # Errors
    /// A retryable failure leaves the attempt unacknowledged; any other one counts as the attempt's.
    fn record(&self, spec: &JobSpec, receipt: &Receipt) -> Result<(), Failure>;
}

/// The coordinator of one run.
pub struct Coordinator {
    plan: Arc<Plan>,
    leadership: Leadership,
    evidence: Arc<dyn Evidence>,
    settings: Settings,
    state: Mutex<State>,
    draining: AtomicBool,
    changed: Notify,
    /// Somebody else who waits for changes.
    also: OnceLock<Arc<Notify>>,
    events: broadcast::Sender<Event>,
    /// Why nothing can be made durable any more.
    stopped: OnceLock<Failure>,
    /// One for each residue of a job's number: a repeated outcome waits until the first is recorded, also when nobody
    /// waits for the first any more.
    recording: [Arc<Mutex<()>>; 16],
}

struct State {
    run: Run,
    jobs: Vec<Job>,
    /// Pending jobs, the largest last.
    queue: Vec<JobId>,
    /// When a job that failed may be tried again.
    not_before: HashMap<JobId, Instant>,
    /// The latest report of each worker.
    latest: HashMap<WorkerId, u64>,
    /// Attempts that workers hold.
    held: HashMap<AttemptId, Held>,
    /// Keys with a quarantined job: nothing of theirs will be published, so nothing of theirs is started.
    failed_keys: BTreeSet<String>,
    /// A refuted job was quarantined: what else may be wrong is for a person to say.
    corrupt: bool,
    /// Seconds a byte of jobs that were verified here.
    seconds_per_byte: Vec<f64>,
}

struct Held {
    job: JobId,
    worker: WorkerId,
    /// The report whose answer handed it out.
    sequence: u64,
    lease_expires_at: Instant,
    progress: Progress,
    started: Instant,
    /// When the progress last changed.
    moved: Instant,
}

impl Held {
    fn new(job: JobId, worker: WorkerId, sequence: u64, lease: Duration) -> Self {
        let now = Instant::now();
        let (lease_expires_at, progress) = (now + lease, Progress::default());
        Self { job, worker, sequence, lease_expires_at, progress, started: now, moved: now }
    }
}

/// What one look at a run gave.
#[derive(Debug)]
pub struct Looked {
    pub reply: v1::ReportReply,
    /// When a job that waits may be tried again.
    pub ready_at: Option<Instant>,
    /// False for a report that was overtaken.
    pub is_latest: bool,
}

/// Whether a worker that waits should hear of it.
pub fn says_something(reply: &v1::ReportReply) -> bool {
    !(reply.assignments.is_empty() && reply.acknowledged.is_empty() && reply.stops.is_empty())
}

/// How a run is taken up.
#[derive(Debug, Clone, PartialEq)]
pub enum Begun {
    /// Anew; these jobs are done, as receipts beside the data prove.
    Now(Vec<(JobId, Receipt)>),
    /// By an earlier leader: the job records say what is done, and who may still work on what.
    Before,
}

impl Coordinator {
    /// Takes up a run. One that is begun now is recorded first. The attempts of one that was begun before stay their
    /// workers', for as long as a lease takes.
    ///
    /// # Errors
    /// [`StateError::Fenced`] when another process leads by now.
    pub async fn start(
        leadership: Leadership,
        plan: Arc<Plan>,
        plan_path: String,
        plan_sha256: [u8; 32],
        begun: Begun,
        evidence: Arc<dyn Evidence>,
        settings: Settings,
    ) -> Result<Self, StateError> {
        let run = Run {
            state: RunState::Running,
            table: plan.table.clone(),
            plan_path,
            plan_sha256,
            jobs: u32::try_from(plan.jobs.len()).unwrap_or(u32::MAX),
            commit_token: String::new(),
            reason: String::new(),
        };
        let mut jobs = vec![Job::pending(); plan.jobs.len()];
        match begun {
            Begun::Before => {
                for (id, job) in runs::jobs(leadership.store().as_ref(), &plan.compaction).await? {
                    let place = jobs.get_mut(id.0 as usize).ok_or_else(|| StateError::Record {
                        key: keys::job(&plan.compaction, id),
                        message: "the plan has no such job".to_owned(),
                    })?;
                    *place = job;
                }
            }
            Begun::Now(adopted) => {
                let head = Change::Put(keys::run(&plan.compaction), records::encode_run(&run, random_u64()));
                let active = Change::Put(keys::ACTIVE.to_owned(), plan.compaction.0.clone().into_bytes());
                runs::forget_jobs(&leadership).await?;
                killpoint("run-record-before");
                leadership.write(&[], &[head, active]).await?;
                killpoint("run-record-after");
                for (id, receipt) in adopted {
                    let place = id.0 as usize;
                    if let Some(spec) = plan.jobs.get(place)
                        && let Ok(next) = job::step(spec, &jobs[place], &JobEvent::Adopt(receipt), settings.limits)
                    {
                        jobs[place] = next;
                    }
                }
            }
        }
        let mut held = HashMap::new();
        let (mut failed_keys, mut corrupt) = (BTreeSet::new(), false);
        for (spec, job) in plan.jobs.iter().zip(&jobs) {
            for attempt in &job.attempts {
                // Of no report of this leader: only the lease, or the worker's own word, ends it.
                let kept = Held::new(spec.job, attempt.worker.clone(), u64::MAX, settings.lease);
                held.insert(attempt.id, kept);
            }
            if job.state == JobState::Quarantined {
                failed_keys.insert(spec.key.clone());
                let class = job.failure.as_ref().map(|failure| failure.class);
                corrupt |= class == Some(FailureClass::FingerprintMismatch);
            }
        }
        let mut queue: Vec<JobId> = plan.jobs.iter().map(|spec| spec.job).collect();
        queue.retain(|id| jobs[id.0 as usize].state == JobState::Pending);
        queue.sort_by_key(|id| (plan.jobs[id.0 as usize].input_bytes(), std::cmp::Reverse(*id)));
        let state = State {
            run,
            jobs,
            queue,
            not_before: HashMap::new(),
            latest: HashMap::new(),
            held,
            failed_keys,
            corrupt,
            seconds_per_byte: Vec::new(),
        };
        let (events, _) = broadcast::channel(8192);
        Ok(Self {
            plan,
            leadership,
            evidence,
            settings,
            state: Mutex::new(state),
            draining: AtomicBool::new(false),
            changed: Notify::new(),
            also: OnceLock::new(),
            events,
            stopped: OnceLock::new(),
            recording: Default::default(),
        })
    }

    pub fn epoch(&self) -> Epoch {
        self.leadership.epoch()
    }

    pub fn plan(&self) -> &Arc<Plan> {
        &self.plan
    }

    /// What happens from now on. A slow listener misses events; the records do not.
    pub fn events(&self) -> broadcast::Receiver<Event> {
        self.events.subscribe()
    }

    /// Hands out no more jobs; running attempts end as they do.
    pub fn drain(&self) {
        self.draining.store(true, Ordering::Relaxed);
        self.wake();
    }

    /// Answers one worker. See the module document.
    ///
    /// # Errors
    /// A message with a wrong field is refused; a store that cannot be written, or another leader, ends the run.
    pub async fn report(&self, request: v1::ReportRequest) -> Result<v1::ReportReply, Failure> {
        let free = request.free_slots;
        let answer_by = Instant::now() + self.settings.poll;
        loop {
            let changed = self.changed.notified();
            tokio::pin!(changed);
            changed.as_mut().enable();
            let Looked { reply, ready_at, is_latest } = self.look(request.clone()).await?;
            let wake_at = ready_at.map_or(answer_by, |ready| answer_by.min(ready));
            if !is_latest || reply.settled || says_something(&reply) || free == 0 {
                return Ok(reply);
            }
            let woken = tokio::time::timeout_at(wake_at, changed).await.is_ok();
            if !woken && wake_at == answer_by {
                return Ok(reply);
            }
        }
    }

    /// Takes a report in and answers it at once, whether or not there is something to say.
    ///
    /// # Errors
    /// See [`Self::report`].
    pub async fn look(&self, request: v1::ReportRequest) -> Result<Looked, Failure> {
        let request = Request::checked(request)?;
        let mut reply = v1::ReportReply {
            epoch: self.epoch().0,
            lease_ms: u32::try_from(self.settings.lease.as_millis()).unwrap_or(u32::MAX),
            ..Default::default()
        };
        for outcome in &request.outcomes {
            if self.settle(outcome).await? {
                reply.acknowledged.push(outcome.attempt.0.to_vec().into());
            }
        }
        let mut state = self.state.lock().await;
        if !state.is_latest(&request) {
            return Ok(Looked { reply, ready_at: None, is_latest: false });
        }
        self.take_back(&mut state, &request).await?;
        self.renew(&mut state, &request, &mut reply);
        self.expire(&mut state).await?;
        self.assign(&mut state, &request, &mut reply).await?;
        reply.settled = self.is_settled(&state);
        let ready_at = state.not_before.values().min().copied();
        Ok(Looked { reply, ready_at, is_latest: true })
    }

    /// Wakes `other` too whenever something changes.
    pub fn also_wake(&self, other: Arc<Notify>) {
        let _ = self.also.set(other);
    }

    fn wake(&self) {
        self.changed.notify_waiters();
        if let Some(other) = self.also.get() {
            other.notify_waiters();
        }
    }

    /// Ends the run: attempts are told to stop, and nothing of it will be committed.
    pub fn withdraw(&self, reason: &str) {
        let _ = self.stopped.set(Failure::new(FailureClass::Cancelled, reason));
        self.drain();
    }

    /// Takes an outcome in. True when the worker need not repeat it.
    async fn settle(&self, outcome: &Outcome) -> Result<bool, Failure> {
        let Outcome { compaction, attempt, job: id, result, .. } = outcome;
        let Some(spec) = self.plan.jobs.get(id.0 as usize).filter(|_| *compaction == self.plan.compaction) else {
            // Of another run: nobody waits for it.
            return Ok(true);
        };
        {
            let mut state = self.state.lock().await;
            match state.held.get_mut(attempt) {
                // Looking at the outputs may take a while, in which the attempt must not be taken for lost.
                Some(held) if held.job == *id => held.lease_expires_at = Instant::now() + self.settings.lease,
                // Lost, refuted or settled before: what it wrote must not become the job's receipt.
                _ => return Ok(true),
            }
        }
        let event = match result {
            Ok(receipt) if job::judge(spec, receipt).is_ok() => match self.record(spec, receipt).await {
                Ok(()) => JobEvent::Complete(*attempt, receipt.clone()),
                Err(failure) if failure.class == FailureClass::Transient => return Ok(false),
                Err(failure) => JobEvent::Fail(*attempt, failure),
            },
            Ok(refuted) => JobEvent::Complete(*attempt, refuted.clone()),
            Err(failure) => JobEvent::Fail(*attempt, failure.clone()),
        };
        let mut state = self.state.lock().await;
        self.apply(&mut state, *id, *attempt, &event).await?;
        Ok(true)
    }

    async fn record(&self, spec: &JobSpec, receipt: &Receipt) -> Result<(), Failure> {
        let turn = self.recording[spec.job.0 as usize % self.recording.len()].clone().lock_owned().await;
        let (evidence, spec, receipt) = (self.evidence.clone(), spec.clone(), receipt.clone());
        let record = move || {
            let _turn = turn;
            killpoint("receipt-before");
            let recorded = evidence.record(&spec, &receipt);
            killpoint("receipt-after");
            recorded
        };
        tokio::task::spawn_blocking(record)
            .await
            .unwrap_or_else(|error| Err(Failure::new(FailureClass::WorkerLost, format!("store the receipt: {error}"))))
    }

    /// Makes one transition durable and then true. A late event changes nothing.
    async fn apply(&self, state: &mut State, id: JobId, attempt: AttemptId, event: &JobEvent) -> Result<(), Failure> {
        let place = id.0 as usize;
        let spec = &self.plan.jobs[place];
        let Ok(next) = job::step(spec, &state.jobs[place], event, self.settings.limits) else {
            state.held.remove(&attempt);
            return Ok(());
        };
        killpoint("outcome-before");
        self.persist(id, &next).await?;
        killpoint("outcome-after");
        let ended = state.held.remove(&attempt);
        let failure = next.failure.clone();
        match next.state {
            JobState::Verified => {
                if let Some(held) = ended {
                    let bytes = spec.input_bytes().max(1) as f64;
                    state.seconds_per_byte.push(held.started.elapsed().as_secs_f64() / bytes);
                }
                state.held.retain(|_, held| held.job != id);
                self.tell(Event::Verified { job: id, attempt });
            }
            JobState::Quarantined => {
                let failure = failure.unwrap_or_else(|| Failure::new(FailureClass::WorkerLost, "the job was given up"));
                state.corrupt |= failure.class == FailureClass::FingerprintMismatch;
                state.failed_keys.insert(spec.key.clone());
                state.held.retain(|_, held| held.job != id);
                self.tell(Event::Quarantined { job: id, failure });
            }
            JobState::Pending => {
                state.queue.push(id);
                if next.failures + next.refutations > state.jobs[place].failures + state.jobs[place].refutations {
                    let doubled = self.settings.retry_after * 2u32.saturating_pow(next.failures.saturating_sub(1));
                    state.not_before.insert(id, Instant::now() + doubled.min(RETRY_AFTER_MAX));
                }
                if let Some(failure) = failure {
                    self.tell(Event::Retried { job: id, attempt, failure });
                }
            }
            JobState::Leased => {}
        }
        state.jobs[place] = next;
        self.wake();
        Ok(())
    }

    async fn persist(&self, id: JobId, job: &Job) -> Result<(), Failure> {
        let value = records::encode_job(job, random_u64());
        let change = Change::Put(keys::job(&self.plan.compaction, id), value);
        match self.leadership.write(&[], &[change]).await {
            Ok(_) => Ok(()),
            Err(error) => {
                let failure = Failure::new(FailureClass::Policy, error.to_string());
                let stopped = self.stopped.get_or_init(|| failure).clone();
                self.wake();
                Err(stopped)
            }
        }
    }

    fn tell(&self, event: Event) {
        // Nobody listening is fine.
        let _ = self.events.send(event);
    }

    /// Frees the jobs of attempts that this worker should know of and does not.
    async fn take_back(&self, state: &mut State, request: &Request) -> Result<(), Failure> {
        let running = request.running.iter().map(|(id, _)| *id);
        let named: HashSet<AttemptId> = running.chain(request.outcomes.iter().map(|outcome| outcome.attempt)).collect();
        let missing = |(id, held): (&AttemptId, &Held)| {
            let mine = held.worker == request.worker && held.sequence < request.sequence;
            (mine && !named.contains(id)).then_some((*id, held.job))
        };
        let missing: Vec<_> = state.held.iter().filter_map(missing).collect();
        for (attempt, id) in missing {
            // Not the job's fault, so not counted as a failure.
            let never = Failure::new(FailureClass::Cancelled, "the assignment did not reach its worker");
            self.apply(state, id, attempt, &JobEvent::Fail(attempt, never)).await?;
        }
        Ok(())
    }

    /// Renews the leases of what the worker runs, and tells it to stop what is not its own any more.
    fn renew(&self, state: &mut State, request: &Request, reply: &mut v1::ReportReply) {
        let expires_at = Instant::now() + self.settings.lease;
        reply.stops.clear();
        for (id, progress) in &request.running {
            match state.held.get_mut(id) {
                Some(held) if held.worker == request.worker => {
                    held.lease_expires_at = expires_at;
                    held.sequence = held.sequence.min(request.sequence);
                    if held.progress != *progress {
                        (held.progress, held.moved) = (*progress, Instant::now());
                    }
                }
                _ => reply.stops.push(id.0.to_vec().into()),
            }
        }
    }

    /// Takes back what was not heard of for a lease, and what gets no further.
    async fn expire(&self, state: &mut State) -> Result<(), Failure> {
        let now = Instant::now();
        let lost = |(id, held): (&AttemptId, &Held)| {
            let event = if held.lease_expires_at < now {
                JobEvent::LeaseLost(*id)
            } else if now.duration_since(held.moved) > self.settings.stall {
                let silent = format!("the attempt hangs: it got no further for {} s", self.settings.stall.as_secs());
                JobEvent::Fail(*id, Failure::new(FailureClass::WorkerLost, silent))
            } else {
                return None;
            };
            Some((*id, held.job, event))
        };
        let lost: Vec<_> = state.held.iter().filter_map(lost).collect();
        for (attempt, id, event) in lost {
            self.apply(state, id, attempt, &event).await?;
        }
        Ok(())
    }

    /// The job of another worker that is so slow that this one had better try it too.
    fn straggler(&self, state: &State, worker: &WorkerId) -> Option<JobId> {
        let attempts = |job: JobId| state.held.values().filter(move |held| held.job == job);
        let running: Vec<Running> = state
            .held
            .values()
            .map(|held| Running {
                job: held.job,
                bytes: self.plan.jobs[held.job.0 as usize].input_bytes(),
                ran: held.started.elapsed(),
                is_taken: held.worker == *worker || attempts(held.job).count() > 1,
            })
            .collect();
        let jobs: HashSet<JobId> = running.iter().map(|one| one.job).collect();
        let pace = Pace {
            jobs: state.jobs.len(),
            ended: state.jobs.iter().filter(|job| job.is_settled()).count(),
            second: running.len() - jobs.len(),
            seconds_per_byte: &state.seconds_per_byte,
            least: self.settings.second_after,
        };
        straggler(&running, &pace)
    }

    /// Leases the largest pending jobs to the worker.
    async fn assign(&self, state: &mut State, request: &Request, reply: &mut v1::ReportReply) -> Result<(), Failure> {
        let Request { worker, free_slots, .. } = request;
        let now = Instant::now();
        state.not_before.retain(|_, ready| *ready > now);
        while reply.assignments.len() < *free_slots && !self.draining.load(Ordering::Relaxed) && !state.corrupt {
            let place = state.queue.iter().rposition(|id| !state.not_before.contains_key(id));
            let Some(id) = place.map(|place| state.queue[place]).or_else(|| self.straggler(state, worker)) else {
                return Ok(());
            };
            let second = place.is_none();
            let spec = &self.plan.jobs[id.0 as usize];
            let is_open = state.jobs[id.0 as usize].state == if second { JobState::Leased } else { JobState::Pending };
            if state.failed_keys.contains(&spec.key) || !is_open {
                let Some(place) = place else { return Ok(()) };
                state.queue.remove(place);
                continue;
            }
            let attempt =
                Attempt { id: AttemptId(random_u64().to_le_bytes()), epoch: self.epoch(), worker: worker.clone() };
            let lease = JobEvent::Lease(attempt.clone());
            let Ok(next) = job::step(spec, &state.jobs[id.0 as usize], &lease, self.settings.limits) else {
                let Some(place) = place else { return Ok(()) };
                state.queue.remove(place);
                continue;
            };
            // The job stays in the queue until the lease is durable: this call may be given up while it waits.
            killpoint("lease-before");
            self.persist(id, &next).await?;
            killpoint("lease-after");
            if let Some(place) = place {
                state.queue.remove(place);
            }
            state.jobs[id.0 as usize] = next;
            let held = Held::new(id, worker.clone(), request.sequence, self.settings.lease);
            state.held.insert(attempt.id, held);
            let assignment = Assignment {
                compaction: self.plan.compaction.clone(),
                epoch: attempt.epoch,
                attempt: attempt.id,
                spec: spec.clone(),
            };
            reply.assignments.push((&assignment).into());
            self.tell(Event::Leased { job: id, attempt: attempt.id });
        }
        Ok(())
    }

    fn is_settled(&self, state: &State) -> bool {
        if self.stopped.get().is_some() {
            return true;
        }
        let stopped = self.draining.load(Ordering::Relaxed) || state.corrupt;
        let waits = |id: &JobId| {
            let place = id.0 as usize;
            state.jobs[place].state == JobState::Pending && !state.failed_keys.contains(&self.plan.jobs[place].key)
        };
        state.held.is_empty() && (stopped || !state.queue.iter().any(waits))
    }

    /// Waits until nothing runs and nothing can be started any more.
    pub async fn wait_settled(&self) -> Settled {
        loop {
            let changed = self.changed.notified();
            tokio::pin!(changed);
            changed.as_mut().enable();
            {
                let state = self.state.lock().await;
                if self.is_settled(&state) {
                    return Settled { stopped: self.stopped.get().cloned(), ..settled(&state) };
                }
            }
            // The timeout covers a lease that runs out without any report.
            if tokio::time::timeout(self.settings.poll, changed).await.is_err() {
                let mut state = self.state.lock().await;
                // A failure is remembered in `stopped`, which the next look sees.
                let _ = self.expire(&mut state).await;
            }
        }
    }

    pub async fn progress(&self) -> RunProgress {
        let state = self.state.lock().await;
        let mut progress = RunProgress { jobs: state.run.jobs, running: state.held.len() as u32, ..Default::default() };
        for (spec, job) in self.plan.jobs.iter().zip(&state.jobs) {
            progress.bytes += spec.input_bytes();
            progress.rows += spec.input_rows();
            match job.state {
                JobState::Verified => {
                    progress.verified += 1;
                    progress.bytes_done += spec.input_bytes();
                    progress.rows_done += spec.input_rows();
                }
                JobState::Quarantined => progress.quarantined += 1,
                JobState::Pending | JobState::Leased => {}
            }
        }
        for held in state.held.values() {
            progress.bytes_done += held.progress.read_bytes;
            progress.rows_done += held.progress.written_rows;
        }
        progress
    }

    /// Moves the run and makes that durable before returning.
    ///
    /// # Errors
    /// [`StateError::Fenced`] when another process leads by now; an illegal move is a [`StateError::Record`].
    pub async fn move_run(&self, to: RunState, commit_token: Option<&str>, reason: &str) -> Result<(), StateError> {
        let mut state = self.state.lock().await;
        if !state.run.state.may_become(to) {
            let message = format!("a run cannot go from {:?} to {to:?}", state.run.state);
            return Err(StateError::Record { key: keys::run(&self.plan.compaction), message });
        }
        let mut next = state.run.clone();
        next.state = to;
        next.reason = reason.to_owned();
        if let Some(token) = commit_token {
            next.commit_token = token.to_owned();
        }
        let mut changes = vec![Change::Put(keys::run(&self.plan.compaction), records::encode_run(&next, random_u64()))];
        if to.is_final() {
            changes.push(Change::Delete(keys::ACTIVE.to_owned()));
        }
        killpoint("run-move-before");
        self.leadership.write(&[], &changes).await?;
        killpoint("run-move-after");
        state.run = next;
        Ok(())
    }

    /// Removes the job records of a run that is over; its receipts lie beside the data.
    pub async fn forget_jobs(&self) -> Result<(), StateError> {
        runs::forget_jobs(&self.leadership).await
    }

    /// Stores why the table must not be touched until a person releases it.
    pub async fn store_stop(&self, stop: &records::Stop) -> Result<(), StateError> {
        runs::set_stop(&self.leadership, stop).await
    }
}

fn settled(state: &State) -> Settled {
    let mut found = Settled::default();
    for (place, job) in state.jobs.iter().enumerate() {
        let id = JobId(place as u32);
        match (&job.state, &job.receipt, &job.failure) {
            (JobState::Verified, Some(receipt), _) => found.verified.push((id, receipt.clone())),
            (JobState::Quarantined, _, Some(failure)) => found.failed.push((id, failure.clone())),
            _ => found.untouched.push(id),
        }
    }
    found
}

impl State {
    /// Whether this is the worker's latest report; remembers it.
    fn is_latest(&mut self, request: &Request) -> bool {
        let latest = self.latest.entry(request.worker.clone()).or_default();
        *latest = request.sequence.max(*latest);
        *latest == request.sequence
    }
}

#[cfg(test)]
mod tests;
