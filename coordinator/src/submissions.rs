//! What users asked a cluster for: stored first, then done, by whichever coordinator leads.
//!
//! A submission is a record that outlives every coordinator. Each of its tables is compacted as on one machine
//! ([`compact_table`]), with the state of the table in a part of the cluster's store and the fleet's workers doing the
//! jobs. A new leader takes up every submission that has not ended: tables that have ended are not touched again, a run
//! whose plan is still the same goes on from its job records, any other one from the receipts beside the data.
//!
//! One table has one run at a time: a second submission of it waits for the first.

mod check;
pub mod spec;

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use baler_common::model::error::{Failure, FailureClass};
use baler_common::model::id::CompactionId;
use baler_common::runtime::killpoint::killpoint;
use baler_common::runtime::random::random_u64;
use baler_common::runtime::storage::Stores;
use baler_proto::{state as stored, v1};
use futures::StreamExt;
use prost::Message;
use sha2::{Digest, Sha256};
use tokio::sync::watch;

use crate::compaction::{
    CompactError, Places, TableResult, blocking, compact_table, new_compaction, now_ms, plan_table,
};
use crate::driver::{Coordinator, RunProgress, Settings};
use crate::fleet::{Fleet, FleetWork};
use crate::plan::{PlanOptions, PublishMode, TableSnapshot};
use crate::state::leadership::Leadership;
use crate::state::{Change, Compare, StateError, StateStore, keys, range_all, runs};
use crate::table::directory::generation::hex;
use crate::table::directory::{DirectoryTable, prepared};
use spec::{open_places, place_in, plan_options, root_as};

/// Tables of one submission that are worked on at once.
const TABLES_AT_ONCE: usize = 4;
/// Longest idempotency key, in bytes.
const KEY_BYTES_MAX: usize = 128;

/// How a table's result is told: for a person, and for machines.
pub type Render = Arc<dyn Fn(&TableResult) -> (String, String) + Send + Sync>;

/// Why a request was not taken.
#[derive(Debug, thiserror::Error)]
pub enum SubmitError {
    #[error("field {field}: {message}")]
    Field { field: &'static str, message: String },
    #[error("the idempotency key was used for another compaction (submission {submission})")]
    OtherSpec { submission: String },
    #[error("there is no submission {0}")]
    Unknown(String),
    #[error("the submission has ended")]
    Ended,
    #[error(transparent)]
    State(#[from] StateError),
}

/// The leader's work.
pub struct Submissions {
    leadership: Leadership,
    fleet: Arc<Fleet>,
    stores: Arc<Stores>,
    settings: Settings,
    render: Render,
    live: Mutex<BTreeMap<String, Arc<Live>>>,
    /// One for each table that is or was worked on, by its location.
    tables: Mutex<HashMap<String, Arc<tokio::sync::Mutex<()>>>>,
}

/// A submission as the leader holds it.
struct Live {
    name: String,
    record: tokio::sync::Mutex<stored::SubmissionRecord>,
    /// What came of tables that have ended, by table.
    outcomes: Mutex<BTreeMap<String, v1::TableOutcome>>,
    changed: watch::Sender<u64>,
    paused: Arc<AtomicBool>,
    cancelled: Arc<AtomicBool>,
    runs: Arc<Mutex<HashMap<CompactionId, Arc<Coordinator>>>>,
}

impl Submissions {
    /// Takes up what is stored. To be called once the leadership was won.
    ///
    /// # Errors
    /// The store cannot be read.
    pub async fn load(
        leadership: Leadership,
        stores: Arc<Stores>,
        settings: Settings,
        render: Render,
    ) -> Result<Arc<Self>, StateError> {
        let store = leadership.store().clone();
        let mut expected = HashSet::new();
        for prefix in table_prefixes(store.as_ref()).await? {
            let scoped = leadership.scoped(prefix);
            if let Some((compaction, _)) = runs::active(scoped.store().as_ref()).await? {
                expected.insert(compaction);
            }
        }
        let fleet = Arc::new(Fleet::new(leadership.epoch(), settings, expected));
        let mut live = BTreeMap::new();
        for entry in range_all(store.as_ref(), keys::SUBMISSIONS).await? {
            let name = entry.key.trim_start_matches(keys::SUBMISSIONS).to_owned();
            let record = entry.decode::<stored::SubmissionRecord>()?;
            let mut outcomes = BTreeMap::new();
            for entry in range_all(store.as_ref(), &keys::outcomes(&name)).await? {
                let outcome = entry.decode::<v1::TableOutcome>()?;
                outcomes.insert(outcome.table.clone(), outcome);
            }
            live.insert(name.clone(), Arc::new(Live::new(name, record, outcomes)));
        }
        let found = Arc::new(Self {
            leadership,
            fleet,
            stores,
            settings,
            render,
            live: Mutex::new(live.clone()),
            tables: Mutex::default(),
        });
        let mut taken_up = Vec::new();
        for submission in live.into_values() {
            if !submission.has_ended().await {
                taken_up.push(tokio::spawn(found.clone().carry_out(submission)));
            }
        }
        let fleet = found.fleet.clone();
        tokio::spawn(async move {
            futures::future::join_all(taken_up).await;
            fleet.resolve_all();
        });
        Ok(found)
    }

    pub fn fleet(&self) -> &Arc<Fleet> {
        &self.fleet
    }

    /// Turns true when nothing can be made durable any more: another coordinator leads, or the store is gone.
    pub fn lost(&self) -> watch::Receiver<bool> {
        self.leadership.lost()
    }

    /// Stores a submission and begins it; gives its name.
    ///
    /// # Errors
    /// See [`SubmitError`].
    pub async fn submit(self: &Arc<Self>, spec: v1::CompactSpec, key: &str) -> Result<String, SubmitError> {
        let field = |field, failure: Failure| SubmitError::Field { field, message: failure.to_string() };
        if key.is_empty() || key.len() > KEY_BYTES_MAX {
            let message = format!("it must have 1 to {KEY_BYTES_MAX} bytes");
            return Err(SubmitError::Field { field: "idempotency_key", message });
        }
        place_in(&self.stores, &spec.source).map_err(|failure| field("spec.source", failure))?;
        if let Some(out) = &spec.out {
            place_in(&self.stores, out).map_err(|failure| field("spec.out", failure))?;
        }
        plan_options(&spec, PublishMode::Destination).map_err(|failure| field("spec", failure))?;
        let encoded = spec.encode_to_vec();
        let digest = Sha256::digest(&encoded).to_vec();
        let index = keys::idempotency(&hex(&Sha256::digest(key.as_bytes()).into()));
        let known = |record: &stored::IdempotencyRecord| match record.spec_sha256[..] == digest[..] {
            true => Ok(record.submission.clone()),
            false => Err(SubmitError::OtherSpec { submission: record.submission.clone() }),
        };
        let store = self.leadership.store();
        let read = |entry: crate::state::Entry| entry.decode::<stored::IdempotencyRecord>();
        if let Some(entry) = store.get(&index).await? {
            return known(&read(entry)?);
        }
        let name = new_compaction().0;
        let record = stored::SubmissionRecord {
            state: stored::SubmissionState::Running.into(),
            spec: encoded.into(),
            submitted_ms: now_ms(),
            idempotency_key: key.to_owned(),
            op: random_u64(),
            ..Default::default()
        };
        let pointer = stored::IdempotencyRecord {
            submission: name.clone(),
            spec_sha256: digest.clone().into(),
            op: random_u64(),
        };
        killpoint("submit-before");
        let written = self
            .leadership
            .write(
                &[Compare::Absent(index.clone())],
                &[
                    Change::Put(index.clone(), pointer.encode_to_vec()),
                    Change::Put(keys::submission(&name), record.encode_to_vec()),
                ],
            )
            .await;
        killpoint("submit-after");
        if let Err(error) = written {
            // The same request may have come twice at once.
            if let Some(entry) = store.get(&index).await? {
                return known(&read(entry)?);
            }
            return Err(self.failed(error).into());
        }
        let submission = Arc::new(Live::new(name.clone(), record, BTreeMap::new()));
        self.live().insert(name.clone(), submission.clone());
        tokio::spawn(self.clone().carry_out(submission));
        Ok(name)
    }

    /// A submission as it is now, and a signal for each change of it.
    ///
    /// # Errors
    /// [`SubmitError::Unknown`].
    pub async fn watch(&self, name: &str) -> Result<(v1::Submission, watch::Receiver<u64>), SubmitError> {
        let submission = self.find(name)?;
        let changes = submission.changed.subscribe();
        Ok((submission.view().await, changes))
    }

    pub async fn list(&self) -> Vec<v1::Submission> {
        let all: Vec<Arc<Live>> = self.live().values().cloned().collect();
        let mut found = Vec::with_capacity(all.len());
        for submission in all {
            found.push(submission.view().await);
        }
        found
    }

    /// Cancels, pauses or resumes a submission.
    ///
    /// # Errors
    /// It is unknown, or has ended. A table whose commit has begun is committed all the same.
    pub async fn control(&self, name: &str, control: v1::Control) -> Result<v1::Submission, SubmitError> {
        let submission = self.find(name)?;
        {
            let mut record = submission.record.lock().await;
            if is_over(record.state()) {
                return Err(SubmitError::Ended);
            }
            let mut next = record.clone();
            match control {
                v1::Control::Pause => next.set_state(stored::SubmissionState::Paused),
                v1::Control::Resume => next.set_state(stored::SubmissionState::Running),
                v1::Control::Cancel => {
                    next.set_state(stored::SubmissionState::Cancelled);
                    next.ended_ms = now_ms();
                    "it was cancelled".clone_into(&mut next.reason);
                }
                v1::Control::Unspecified => {
                    let message = "says nothing: cancel, pause or resume".to_owned();
                    return Err(SubmitError::Field { field: "control", message });
                }
            }
            self.store(&submission.name, &mut next).await?;
            *record = next;
            if control == v1::Control::Cancel {
                submission.cancelled.store(true, Ordering::SeqCst);
            }
        }
        match control {
            v1::Control::Cancel => {
                submission.runs().values().for_each(|run| run.withdraw("the submission was cancelled"));
            }
            _ => submission.paused.store(control == v1::Control::Pause, Ordering::Relaxed),
        }
        self.fleet.wake();
        submission.tell();
        Ok(submission.view().await)
    }

    fn find(&self, name: &str) -> Result<Arc<Live>, SubmitError> {
        self.live().get(name).cloned().ok_or_else(|| SubmitError::Unknown(name.to_owned()))
    }

    fn live(&self) -> std::sync::MutexGuard<'_, BTreeMap<String, Arc<Live>>> {
        self.live.lock().expect("no holder of the lock panics")
    }

    /// Writes a submission's record.
    async fn store(&self, name: &str, record: &mut stored::SubmissionRecord) -> Result<(), StateError> {
        record.op = random_u64();
        let put = Change::Put(keys::submission(name), record.encode_to_vec());
        killpoint("submission-before");
        let written = self.leadership.write(&[], &[put]).await.map(|_| ()).map_err(|error| self.failed(error));
        killpoint("submission-after");
        written
    }

    /// Notes that this coordinator cannot write any more.
    fn failed(&self, error: StateError) -> StateError {
        if matches!(error, StateError::Fenced | StateError::Io(_) | StateError::Etcd { .. }) {
            self.leadership.lose();
        }
        error
    }

    /// Does a submission to its end.
    async fn carry_out(self: Arc<Self>, submission: Arc<Live>) {
        let done = self.tables_of(&submission).await;
        let mut record = submission.record.lock().await;
        // Looked at under the lock: a cancellation that was answered stands.
        if self.is_lost() || is_over(record.state()) {
            return;
        }
        let mut next = record.clone();
        next.set_state(stored::SubmissionState::Done);
        next.ended_ms = now_ms();
        match done {
            Ok(()) => next.complete = submission.outcomes().values().all(|table| table.complete),
            Err(error) => next.reason = error.to_string(),
        }
        if self.store(&submission.name, &mut next).await.is_ok() {
            *record = next;
        }
        drop(record);
        submission.tell();
    }

    fn is_lost(&self) -> bool {
        self.leadership.is_lost()
    }

    /// Compacts every table of a submission that has not ended yet.
    async fn tables_of(self: &Arc<Self>, submission: &Arc<Live>) -> Result<(), CompactError> {
        let (spec, ended) = {
            let record = submission.record.lock().await;
            let ended: HashSet<String> = submission.outcomes().keys().cloned().collect();
            (decode_spec(&record)?, ended)
        };
        let places = {
            let (stores, spec) = (self.stores.clone(), spec.clone());
            Arc::new(blocking(move || open_places(&stores, &spec)).await?)
        };
        self.finish_commits(&places).await?;
        let snapshots = {
            let (places, root_as) = (places.clone(), root_as(&spec));
            blocking(move || places.scan(root_as)).await?
        };
        let options = Arc::new(plan_options(&spec, places.publish)?);
        let waiting = snapshots.into_iter().filter(|snapshot| !ended.contains(&snapshot.table));
        let mut results = futures::stream::iter(waiting)
            .map(|snapshot| {
                let (this, submission) = (self.clone(), submission.clone());
                let (places, options) = (places.clone(), options.clone());
                tokio::spawn(async move { this.table(&submission, &places, &snapshot, &options).await })
            })
            .buffer_unordered(TABLES_AT_ONCE);
        let mut trouble = None;
        while let Some(result) = results.next().await {
            let result = result.unwrap_or_else(|error| {
                Err(Failure::new(FailureClass::WorkerLost, format!("a table's compaction was cut short: {error}"))
                    .into())
            });
            trouble = trouble.or(result.err());
        }
        trouble.map_or(Ok(()), Err)
    }

    /// Compacts one table and stores what came of it.
    async fn table(
        self: &Arc<Self>,
        submission: &Arc<Live>,
        places: &Arc<Places>,
        snapshot: &TableSnapshot,
        options: &Arc<PlanOptions>,
    ) -> Result<(), CompactError> {
        let target = places.target_table(snapshot);
        let turn = self.turn(&target).lock_owned().await;
        let leadership = self.table_leadership(&target).await?;
        let before = runs::active(leadership.store().as_ref()).await?;
        let planned = {
            let (places, snapshot, options) = (places.clone(), snapshot.clone(), options.clone());
            tokio::task::spawn_blocking(move || plan_table(&places, &snapshot, &options))
                .await
                .map_err(|error| Failure::new(FailureClass::WorkerLost, format!("the plan was cut short: {error}")))?
        };
        let work = FleetWork {
            fleet: self.fleet.clone(),
            paused: submission.paused.clone(),
            cancelled: submission.cancelled.clone(),
            watched: submission.runs.clone(),
        };
        let settings = self.settings;
        let done = match planned {
            Ok(plan) if !submission.cancelled.load(Ordering::Relaxed) => {
                compact_table(places, snapshot, plan, leadership, &work, settings).await
            }
            Ok(_) => return Ok(()),
            Err(failure) => Err(failure.into()),
        };
        drop(turn);
        if let Some((compaction, _)) = before {
            self.fleet.resolve(&compaction);
        }
        // Without the right to write, a failure is that of this coordinator, not of the table: the next one takes it up.
        if submission.cancelled.load(Ordering::Relaxed) || self.is_lost() {
            return Ok(());
        }
        let told = match &done {
            Ok(result) => {
                let (text, json) = (self.render)(result);
                v1::TableOutcome { table: snapshot.table.clone(), complete: result.is_complete(), text, json }
            }
            Err(CompactError::State(error)) => {
                // The next leader, or this one when it can write again, takes the table up.
                self.leadership.lose();
                return Err(Failure::new(FailureClass::Transient, error.to_string()).into());
            }
            Err(error) => v1::TableOutcome {
                table: snapshot.table.clone(),
                complete: false,
                text: format!("table {}\n  error: {error}\n", snapshot.table),
                json: serde_json::json!({"table": snapshot.table, "error": error.to_string()}).to_string(),
            },
        };
        let key = format!("{}{}", keys::outcomes(&submission.name), hex(&Sha256::digest(&told.table).into()));
        let put = Change::Put(key, told.encode_to_vec());
        self.leadership.write(&[], &[put]).await.map_err(|error| self.failed(error))?;
        submission.outcomes().insert(told.table.clone(), told);
        submission.tell();
        Ok(())
    }

    /// The right to write the state of a table. Its location is stored beside it, for people and for `fsck`.
    async fn table_leadership(&self, target: &DirectoryTable) -> Result<Leadership, StateError> {
        let location = target.describe("");
        let scope = keys::table(&hex(&Sha256::digest(location.as_bytes()).into()));
        let at = format!("{scope}at");
        if self.leadership.store().get(&at).await?.is_none() {
            let store = target.store().alias().to_owned();
            let record = stored::TableRecord { location, op: random_u64(), store, folder: target.folder().to_owned() };
            self.leadership.write(&[], &[Change::Put(at, record.encode_to_vec())]).await?;
        }
        Ok(self.leadership.scoped(scope))
    }

    fn turn(&self, target: &DirectoryTable) -> Arc<tokio::sync::Mutex<()>> {
        let mut tables = self.tables.lock().expect("no holder of the lock panics");
        tables.entry(target.describe("")).or_default().clone()
    }

    /// Finishes commits that were cut short, before the location is scanned.
    async fn finish_commits(&self, places: &Arc<Places>) -> Result<(), CompactError> {
        let target = places.target.clone();
        let pending = blocking(move || prepared::all_pending(&target)).await?;
        for table in pending {
            let _turn = self.turn(&table).lock_owned().await;
            blocking(move || prepared::finish(&table).map(|_| ())).await?;
        }
        Ok(())
    }
}

/// The parts of the store that hold the state of a table.
async fn table_prefixes(store: &dyn StateStore) -> Result<Vec<String>, StateError> {
    let entries = range_all(store, keys::TABLES).await?;
    let mut found: Vec<String> = Vec::new();
    for entry in entries {
        let Some(digest) = entry.key.strip_prefix(keys::TABLES).and_then(|rest| rest.split('/').next()) else {
            continue;
        };
        let prefix = keys::table(digest);
        if found.last() != Some(&prefix) {
            found.push(prefix);
        }
    }
    Ok(found)
}

impl Live {
    fn new(name: String, record: stored::SubmissionRecord, outcomes: BTreeMap<String, v1::TableOutcome>) -> Self {
        let (changed, _) = watch::channel(0);
        let paused = record.state() == stored::SubmissionState::Paused;
        Self {
            name,
            record: tokio::sync::Mutex::new(record),
            outcomes: Mutex::new(outcomes),
            changed,
            paused: Arc::new(AtomicBool::new(paused)),
            cancelled: Arc::default(),
            runs: Arc::default(),
        }
    }

    fn runs(&self) -> std::sync::MutexGuard<'_, HashMap<CompactionId, Arc<Coordinator>>> {
        self.runs.lock().expect("no holder of the lock panics")
    }

    fn outcomes(&self) -> std::sync::MutexGuard<'_, BTreeMap<String, v1::TableOutcome>> {
        self.outcomes.lock().expect("no holder of the lock panics")
    }

    async fn has_ended(&self) -> bool {
        is_over(self.record.lock().await.state())
    }

    fn tell(&self) {
        self.changed.send_modify(|count| *count += 1);
    }

    async fn view(&self) -> v1::Submission {
        let runs: Vec<Arc<Coordinator>> = self.runs().values().cloned().collect();
        let mut sum = RunProgress::default();
        for run in runs {
            let one = run.progress().await;
            sum.jobs += one.jobs;
            sum.verified += one.verified;
            sum.quarantined += one.quarantined;
            sum.running += one.running;
            sum.bytes += one.bytes;
            sum.rows += one.rows;
            sum.bytes_done += one.bytes_done;
            sum.rows_done += one.rows_done;
        }
        let record = self.record.lock().await;
        let state = match record.state() {
            stored::SubmissionState::Unspecified => v1::SubmissionState::Unspecified,
            stored::SubmissionState::Running => v1::SubmissionState::Running,
            stored::SubmissionState::Paused => v1::SubmissionState::Paused,
            stored::SubmissionState::Done => v1::SubmissionState::Done,
            stored::SubmissionState::Cancelled => v1::SubmissionState::Cancelled,
        };
        v1::Submission {
            submission: self.name.clone(),
            state: state.into(),
            spec: decode_spec(&record).ok(),
            submitted_ms: record.submitted_ms,
            figures: Some(v1::RunFigures {
                jobs: sum.jobs,
                verified: sum.verified,
                quarantined: sum.quarantined,
                running: sum.running,
                bytes: sum.bytes,
                rows: sum.rows,
                bytes_done: sum.bytes_done,
                rows_done: sum.rows_done,
            }),
            tables: self.outcomes().values().cloned().collect(),
            complete: record.complete,
            reason: record.reason.clone(),
        }
    }
}

fn is_over(state: stored::SubmissionState) -> bool {
    matches!(state, stored::SubmissionState::Done | stored::SubmissionState::Cancelled)
}

fn decode_spec(record: &stored::SubmissionRecord) -> Result<v1::CompactSpec, Failure> {
    v1::CompactSpec::decode(record.spec.clone())
        .map_err(|error| Failure::new(FailureClass::Unsupported, format!("the submission is not readable: {error}")))
}
