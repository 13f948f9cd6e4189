//! All workers of a cluster, and all runs that they work for.
//!
//! A worker knows no runs: it makes one report about everything it does. The report is shown to each run
//! ([`Coordinator::look`]), the answers are put together, and free slots are shared out in turn, so that every table goes
//! on. What a worker runs for nobody is stopped, unless it may belong to a run that this leader has yet to take up.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use baler_common::model::error::Failure;
use baler_common::model::id::{CompactionId, Epoch};
use baler_common::runtime::storage::Stores;
use baler_proto::v1;
use tokio::sync::Notify;
use tokio::time::Instant;

use crate::compaction::Workforce;
use crate::driver::{Coordinator, Looked, Settings, Settled, says_something};

/// A worker that was silent for this many leases is forgotten.
const FORGOTTEN_AFTER: u32 = 10;

/// The workers of a cluster and their work.
pub struct Fleet {
    epoch: Epoch,
    settings: Settings,
    inner: Mutex<Inner>,
    changed: Arc<Notify>,
}

#[derive(Default)]
struct Inner {
    runs: BTreeMap<CompactionId, Arc<Enlisted>>,
    /// Runs of an earlier leader that are not taken up yet.
    expected: HashSet<CompactionId>,
    workers: BTreeMap<String, Known>,
    /// Which run is asked first next time.
    turn: usize,
}

struct Enlisted {
    coordinator: Arc<Coordinator>,
    paused: Arc<AtomicBool>,
}

struct Known {
    heard: Instant,
    free_slots: u32,
    running: u32,
    draining: bool,
    /// A person wants it to end.
    dismissed: bool,
}

/// A worker as it is seen from here.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WorkerState {
    pub worker: String,
    pub free_slots: u32,
    pub running: u32,
    pub draining: bool,
    pub silent: Duration,
}

impl Fleet {
    /// `expected` are the runs that an earlier leader left open: their attempts are not stopped before [`Self::resolve`].
    pub fn new(epoch: Epoch, settings: Settings, expected: HashSet<CompactionId>) -> Self {
        let inner = Inner { expected, ..Inner::default() };
        Self { epoch, settings, inner: Mutex::new(inner), changed: Arc::new(Notify::new()) }
    }

    fn inner(&self) -> std::sync::MutexGuard<'_, Inner> {
        self.inner.lock().expect("no holder of the lock panics")
    }

    pub fn epoch(&self) -> Epoch {
        self.epoch
    }

    /// The run was taken up, or will not be.
    pub fn resolve(&self, compaction: &CompactionId) {
        self.inner().expected.remove(compaction);
    }

    /// All runs that will be taken up were: what workers do for others is stopped.
    pub fn resolve_all(&self) {
        self.inner().expected.clear();
        self.wake();
    }

    /// Wakes workers that wait for something to do.
    pub fn wake(&self) {
        self.changed.notify_waiters();
    }

    pub fn workers(&self) -> Vec<WorkerState> {
        let state = |(worker, known): (&String, &Known)| WorkerState {
            worker: worker.clone(),
            free_slots: known.free_slots,
            running: known.running,
            draining: known.draining || known.dismissed,
            silent: known.heard.elapsed(),
        };
        self.inner().workers.iter().map(state).collect()
    }

    /// Lets a worker end. False when there is no such worker.
    pub fn dismiss(&self, worker: &str) -> bool {
        let known = self.inner().workers.get_mut(worker).map(|known| known.dismissed = true).is_some();
        self.wake();
        known
    }

    /// Answers one worker, at once when there is something to say, else a little later.
    ///
    /// # Errors
    /// A message with a wrong field is refused; trouble of one run does not keep the others from being answered.
    pub async fn report(&self, request: v1::ReportRequest) -> Result<v1::ReportReply, Failure> {
        let answer_by = Instant::now() + self.settings.poll;
        loop {
            let changed = self.changed.notified();
            tokio::pin!(changed);
            changed.as_mut().enable();
            let (reply, ready_at) = self.look(&request).await?;
            if says_something(&reply) || reply.drain || request.free_slots == 0 {
                return Ok(reply);
            }
            let wake_at = ready_at.map_or(answer_by, |ready| answer_by.min(ready));
            let woken = tokio::time::timeout_at(wake_at, changed).await.is_ok();
            if !woken && wake_at == answer_by {
                return Ok(reply);
            }
        }
    }

    async fn look(&self, request: &v1::ReportRequest) -> Result<(v1::ReportReply, Option<Instant>), Failure> {
        let (runs, expected, drain) = self.enter(request);
        let mut reply = v1::ReportReply {
            epoch: self.epoch.0,
            lease_ms: u32::try_from(self.settings.lease.as_millis()).unwrap_or(u32::MAX),
            drain,
            ..Default::default()
        };
        let mut free = if drain || request.draining { 0 } else { request.free_slots };
        let mut ready_at: Option<Instant> = None;
        let mut overtaken = false;
        // The first round gives each run its share, the second what is left over.
        for round in 0..2 {
            let count = u32::try_from(runs.len()).unwrap_or(u32::MAX).max(1);
            let share = if round == 0 { free.div_ceil(count) } else { free };
            if round > 0 && (free == 0 || overtaken) {
                break;
            }
            for (compaction, run) in &runs {
                let own = v1::ReportRequest {
                    worker: request.worker.clone(),
                    free_slots: if run.paused.load(Ordering::Relaxed) { 0 } else { share.min(free) },
                    running: request.running.iter().filter(|one| one.compaction == compaction.0).cloned().collect(),
                    outcomes: request.outcomes.iter().filter(|one| one.compaction == compaction.0).cloned().collect(),
                    draining: request.draining || drain,
                    sequence: request.sequence,
                };
                let Looked { reply: said, ready_at: ready, is_latest } = match run.coordinator.look(own).await {
                    Ok(looked) => looked,
                    // The run ends with what stopped it; its attempts are told to stop once it is gone.
                    Err(failure) => {
                        tracing::warn!(%compaction, %failure, "a run cannot take a report in");
                        continue;
                    }
                };
                overtaken |= !is_latest;
                free = free.saturating_sub(u32::try_from(said.assignments.len()).unwrap_or(u32::MAX));
                reply.assignments.extend(said.assignments);
                if round == 0 {
                    reply.acknowledged.extend(said.acknowledged);
                    reply.stops.extend(said.stops);
                }
                ready_at = [ready_at, ready].into_iter().flatten().min();
            }
        }
        let nobodys = |compaction: &str| {
            let compaction = CompactionId(compaction.to_owned());
            !expected.contains(&compaction) && runs.iter().all(|(run, _)| *run != compaction)
        };
        let stray = request.running.iter().filter(|one| nobodys(&one.compaction));
        reply.stops.extend(stray.map(|one| one.attempt.clone()));
        let unwanted = request.outcomes.iter().filter(|one| nobodys(&one.compaction));
        reply.acknowledged.extend(unwanted.map(|one| one.attempt.clone()));
        Ok((reply, ready_at))
    }

    /// Notes the worker, and gives the runs in the order of their turn.
    fn enter(&self, request: &v1::ReportRequest) -> (Vec<(CompactionId, Arc<Enlisted>)>, HashSet<CompactionId>, bool) {
        let mut inner = self.inner();
        let forgotten = self.settings.lease * FORGOTTEN_AFTER;
        inner.workers.retain(|_, known| known.heard.elapsed() < forgotten);
        let known = inner.workers.entry(request.worker.clone()).or_insert_with(|| Known {
            heard: Instant::now(),
            free_slots: 0,
            running: 0,
            draining: false,
            dismissed: false,
        });
        known.heard = Instant::now();
        known.free_slots = request.free_slots;
        known.running = u32::try_from(request.running.len()).unwrap_or(u32::MAX);
        known.draining = request.draining;
        let drain = known.dismissed;
        let mut runs: Vec<_> = inner.runs.iter().map(|(name, run)| (name.clone(), run.clone())).collect();
        if !runs.is_empty() {
            inner.turn = (inner.turn + 1) % runs.len();
            runs.rotate_left(inner.turn);
        }
        (runs, inner.expected.clone(), drain)
    }
}

/// Lets the fleet's workers run a compaction.
pub struct FleetWork {
    pub fleet: Arc<Fleet>,
    /// While true, no job is handed out.
    pub paused: Arc<AtomicBool>,
    /// Set before the runs in `watched` are withdrawn.
    pub cancelled: Arc<AtomicBool>,
    /// The run while it goes on, so that it can be watched and withdrawn.
    pub watched: Arc<Mutex<HashMap<CompactionId, Arc<Coordinator>>>>,
}

#[async_trait]
impl Workforce for FleetWork {
    fn outlives_the_coordinator(&self) -> bool {
        true
    }

    async fn run(&self, coordinator: Arc<Coordinator>, _stores: Arc<Stores>) -> Result<Settled, Failure> {
        let compaction = coordinator.plan().compaction.clone();
        coordinator.also_wake(self.fleet.changed.clone());
        let enlisted = Arc::new(Enlisted { coordinator: coordinator.clone(), paused: self.paused.clone() });
        {
            let mut inner = self.fleet.inner();
            inner.expected.remove(&compaction);
            inner.runs.insert(compaction.clone(), enlisted);
        }
        self.watched.lock().expect("no holder of the lock panics").insert(compaction.clone(), coordinator.clone());
        // A cancellation that came before this run could be found.
        if self.cancelled.load(Ordering::SeqCst) {
            coordinator.withdraw("the submission was cancelled");
        }
        self.fleet.wake();
        let settled = coordinator.wait_settled().await;
        self.fleet.inner().runs.remove(&compaction);
        self.fleet.wake();
        Ok(settled)
    }
}
