//! One table from a location to its commit.
//!
//! Pin a snapshot, plan it, adopt what an earlier run has verified already, let a [`Workforce`] run the other jobs,
//! commit, check. Each step can be killed; the same compaction again goes on from what the destination holds, and, where
//! the state store still knows the run and the plan is the same, from its job records: then running attempts go on too.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::audit::AuditTrail;
use crate::commit::{CommitFailure, CommitRequest, Committed, Milestone, commit};
use crate::driver::{Begun, Coordinator, Evidence, Settings, Settled};
use crate::lifecycle::run::RunState;
use crate::plan::{Plan, PlanOptions, PublishMode, TableSnapshot, runs};
use crate::receipts::{TableReceipts, adopt};
use crate::state::leadership::Leadership;
use crate::state::records::{self, Stop};
use crate::state::{StateError, runs as state_runs};
use crate::table::directory::generation;
use crate::table::directory::lists::{self, Stage};
use crate::table::directory::publish::{self, VerifiedJob};
use crate::table::directory::snapshot::{ScanOptions, scan};
use crate::table::directory::{CONTROL, DirectoryTable, checks, footers, prepared, swap};
use async_trait::async_trait;
use baler_common::model::error::{Failure, FailureClass};
use baler_common::model::id::{CompactionId, JobId};
use baler_common::model::job::JobSpec;
use baler_common::model::object::ObjectRef;
use baler_common::model::outcome::Receipt;
use baler_common::runtime::storage::{Store, Stores};
use baler_proto::convert::job_digest;
use sha2::{Digest, Sha256};

use baler_common::runtime::random::random_u64;

/// A name for a compaction that sorts by time.
pub fn new_compaction() -> CompactionId {
    CompactionId(format!("{:012x}-{:08x}", now_ms(), random_u64() as u32))
}

/// Milliseconds since the epoch.
pub fn now_ms() -> i64 {
    let elapsed = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    elapsed.map_or(0, |elapsed| i64::try_from(elapsed.as_millis()).unwrap_or(i64::MAX))
}

/// Who runs the jobs of a compaction.
#[async_trait]
pub trait Workforce: Send + Sync {
    /// Returns when no job is left that could be run.
    ///
    /// # Errors
    /// The workers cannot go on at all.
    async fn run(&self, coordinator: Arc<Coordinator>, stores: Arc<Stores>) -> Result<Settled, Failure>;

    /// Whether its workers go on when the coordinator dies, so that attempts of an earlier one may still end. Workers of
    /// the coordinator's own process are gone with it, and nothing is gained by waiting for them.
    fn outlives_the_coordinator(&self) -> bool {
        false
    }
}

/// Why a table could not be compacted at all.
#[derive(Debug, thiserror::Error)]
pub enum CompactError {
    #[error(transparent)]
    Failed(#[from] Failure),
    #[error(transparent)]
    State(#[from] StateError),
    #[error(transparent)]
    Commit(#[from] CommitFailure),
    #[error("the table is stopped since a check did not hold: {reason}; look into it, then `baler release` it")]
    Stopped { reason: String },
}

/// Where tables come from and go to.
pub struct Places {
    pub source: Store,
    pub target: Store,
    pub publish: PublishMode,
}

impl Places {
    /// Opens both places. Without `out` they are the same.
    ///
    /// # Errors
    /// One lies inside the other, or cannot be opened.
    pub fn open(source: &str, out: Option<&str>, torn_reads: bool, create: bool) -> Result<Self, Failure> {
        let opened = Store::open("source", source, false)?;
        let Some(out) = out else {
            let publish = if torn_reads { PublishMode::TornReads } else { PublishMode::InPlace };
            return Ok(Self { target: Store::open("target", source, false)?, source: opened, publish });
        };
        let exists = create || out.contains("://") || std::path::Path::new(out).is_dir();
        let inside = |inner: &str, outer: &str| {
            let slashed = |text: &str| format!("{}/", text.trim_end_matches('/'));
            slashed(inner).starts_with(&slashed(outer))
        };
        let absolute = |location: &str| match location.split_once("://") {
            None => std::fs::canonicalize(location)
                .or_else(|_| std::path::absolute(location))
                .map_or_else(|_| location.to_owned(), |path| path.display().to_string()),
            Some(_) => location.to_owned(),
        };
        let (from, to) = (absolute(source), absolute(out));
        if inside(&to, &from) || inside(&from, &to) {
            let message =
                format!("the destination {to} and the source {from} lie inside each other: choose another destination");
            return Err(Failure::new(FailureClass::Policy, message));
        }
        let target = if exists { Store::open("target", out, create)? } else { Store::open("target", source, false)? };
        Ok(Self { source: opened, target, publish: PublishMode::Destination })
    }

    pub fn source_table(&self, snapshot: &TableSnapshot) -> DirectoryTable {
        DirectoryTable::new(self.source.clone(), &snapshot.folder)
    }

    pub fn target_table(&self, snapshot: &TableSnapshot) -> DirectoryTable {
        DirectoryTable::new(self.target.clone(), &snapshot.folder)
    }

    /// Pins all tables.
    pub fn scan(&self, root_as: crate::table::directory::layout::RootAs) -> Result<Vec<TableSnapshot>, Failure> {
        scan(&self.source, ScanOptions { root_as, live: self.publish != PublishMode::Destination })
    }
}

/// Plans one table against the newest generation of its destination.
pub fn plan_table(places: &Places, snapshot: &TableSnapshot, options: &PlanOptions) -> Result<Plan, Failure> {
    let target = places.target_table(snapshot);
    if let Some(root) = places.target.local_path() {
        swap::check_whole(&root.join(target.absolute("")))?;
    }
    // A commit that was cut short is finished first, so that the plan sees its generation.
    prepared::finish(&target)?;
    let mut options = options.clone();
    options.compaction = new_compaction();
    options.staging = ObjectRef::new(places.target.alias(), target.absolute(&format!("{CONTROL}/staging")));
    options.base_generation = generation::newest(&target)?.map_or(0, |newest| newest.generation);
    Ok(runs::plan(snapshot, &options, &|root| footers::schema_bytes(root)))
}

/// What a table's compaction came to.
pub struct TableResult {
    pub plan: Plan,
    pub committed: Committed,
    pub failed: BTreeMap<JobId, Failure>,
    pub untouched: usize,
    pub adopted: usize,
    pub ran: usize,
    pub elapsed: std::time::Duration,
}

impl TableResult {
    /// Whether all of the table was done and the checks hold.
    pub fn is_complete(&self) -> bool {
        self.failed.is_empty()
            && self.plan.refusals.is_empty()
            && self.committed.kept.is_empty()
            && self.committed.stop_reason().is_none()
    }
}

/// Stores receipts, and lists each checked output for scripts.
struct CheckedOutputs {
    receipts: TableReceipts,
    target: DirectoryTable,
}

impl Evidence for CheckedOutputs {
    fn record(&self, spec: &JobSpec, receipt: &Receipt) -> Result<(), Failure> {
        self.receipts.record(spec, receipt)?;
        lists::record_checked(&self.target, &job_digest(spec), receipt)
    }
}

/// Runs a plan of one table to its commit. `leadership` is over the table's own state.
pub async fn compact_table(
    places: &Places,
    snapshot: &TableSnapshot,
    plan: Plan,
    leadership: Leadership,
    workforce: &dyn Workforce,
    settings: Settings,
) -> Result<TableResult, CompactError> {
    let started = std::time::Instant::now();
    let (source, target) = (places.source_table(snapshot), places.target_table(snapshot));
    if let Some(stop) = state_runs::stop(leadership.store().as_ref()).await? {
        return Err(CompactError::Stopped { reason: stop.reason });
    }
    let earlier = if workforce.outlives_the_coordinator() { resumed(&leadership, &plan).await? } else { None };
    let (plan, is_resumed) = match earlier {
        Some(plan) => (plan, true),
        None => (plan, false),
    };
    let encoded = records::encode_plan(&plan);
    let plan_digest: [u8; 32] = Sha256::digest(&encoded).into();
    let plan_path = format!("{CONTROL}/plan/{}.plan", plan.compaction);
    let (plan, adopted) = {
        let (target, plan_path) = (target.clone(), plan_path.clone());
        blocking(move || {
            // The job records of a run that goes on say what is done.
            let adopted = if is_resumed { Vec::new() } else { adopt(&plan, &target)? };
            if !is_resumed && adopted.len() < plan.jobs.len() {
                target.put_new(&plan_path, &encoded)?;
                lists::record_stage(&target, &plan.table, &plan.compaction.0, Stage::Planned, figures(&plan))?;
            }
            Ok((Arc::new(plan), adopted))
        })
        .await?
    };
    let adopted_count = adopted.len();
    let evidence = Arc::new(CheckedOutputs { receipts: TableReceipts::new(target.clone()), target: target.clone() });
    let adopted_jobs: Vec<JobId> = adopted.iter().map(|(job, _)| *job).collect();
    let begun = if is_resumed { Begun::Before } else { Begun::Now(adopted) };
    let coordinator = Arc::new(
        Coordinator::start(leadership, plan.clone(), plan_path, plan_digest, begun, evidence, settings).await?,
    );
    let stores = Arc::new(Stores::new([places.source.clone(), places.target.clone()]));
    let mut audit = AuditTrail::new(plan.clone(), target.clone(), coordinator.events(), adopted_jobs);
    let settled = workforce.run(coordinator.clone(), stores).await?;
    if let Some(stopped) = settled.stopped {
        return Err(stopped.into());
    }
    blocking(move || audit.write(now_ms())).await?;

    coordinator.move_run(RunState::Verifying, None, "").await?;
    let digests: BTreeMap<JobId, [u8; 32]> = plan.jobs.iter().map(|spec| (spec.job, job_digest(spec))).collect();
    let verified: BTreeMap<JobId, VerifiedJob> = settled
        .verified
        .into_iter()
        .filter_map(|(job, receipt)| Some((job, VerifiedJob { digest: *digests.get(&job)?, receipt })))
        .collect();
    let ran = verified.len() - adopted_count.min(verified.len());
    let failed: BTreeMap<JobId, Failure> = settled.failed.into_iter().collect();
    let untouched = settled.untouched.len();
    let files = publish::planned_files(&source, snapshot)?;
    let runtime = tokio::runtime::Handle::current();
    let committed = {
        let (plan, coordinator, failed, target) = (plan.clone(), coordinator.clone(), failed.clone(), target.clone());
        tokio::task::spawn_blocking(move || {
            if ran > 0 {
                lists::record_stage(&target, &plan.table, &plan.compaction.0, Stage::Written, figures(&plan))?;
            }
            let mut record = |milestone: &Milestone| {
                let moved = match milestone {
                    Milestone::Prepared { token, .. } => {
                        runtime.block_on(coordinator.move_run(RunState::Prepared, Some(&token.plan), ""))
                    }
                    Milestone::Committed { token, .. } => runtime.block_on(async {
                        coordinator.move_run(RunState::Prepared, Some(&token.plan), "").await?;
                        coordinator.move_run(RunState::Committed, None, "").await
                    }),
                };
                moved.map_err(|error| Failure::new(FailureClass::Policy, error.to_string()))
            };
            let committed = commit(CommitRequest {
                plan: &plan,
                plan_digest,
                files: &files,
                verified: &verified,
                failed: &failed,
                source: &source,
                target: &target,
                now_ms: now_ms(),
                count_rows: &checks::rows_in_footer,
                record: &mut record,
            })?;
            if committed.created && ran > 0 {
                lists::record_stage(&target, &plan.table, &plan.compaction.0, Stage::Done, figures(&plan))?;
            }
            Ok::<_, CommitFailure>(committed)
        })
        .await
        .map_err(|error| Failure::new(FailureClass::WorkerLost, format!("the commit was cut short: {error}")))??
    };
    if let Some(reason) = committed.stop_reason() {
        let stop = Stop { reason, compaction: plan.compaction.clone(), since_ms: now_ms() };
        coordinator.store_stop(&stop).await?;
    }
    if committed.generation.is_some() {
        coordinator.move_run(RunState::Cleaning, None, "").await?;
        coordinator.move_run(RunState::Closed, None, "").await?;
    } else {
        coordinator.move_run(RunState::Failed, None, "nothing could be committed").await?;
    }
    coordinator.forget_jobs().await?;
    let plan = Arc::unwrap_or_clone(plan);
    Ok(TableResult { plan, committed, failed, untouched, adopted: adopted_count, ran, elapsed: started.elapsed() })
}

/// The plan under the name of the compaction that the state store still holds open for this table, if it is the same
/// plan, byte for byte.
async fn resumed(leadership: &Leadership, plan: &Plan) -> Result<Option<Plan>, CompactError> {
    let Some((compaction, run)) = state_runs::active(leadership.store().as_ref()).await? else { return Ok(None) };
    let renamed = Plan { compaction, ..plan.clone() };
    let digest: [u8; 32] = Sha256::digest(records::encode_plan(&renamed)).into();
    Ok((run.state == RunState::Running && digest == run.plan_sha256).then_some(renamed))
}

fn figures(plan: &Plan) -> generation::Figures {
    let mut sum = generation::Figures::default();
    for key in &plan.keys {
        sum.files += key.files;
        sum.bytes += key.bytes;
        sum.rows += key.rows;
    }
    sum
}

/// Runs blocking work off the runtime's threads.
pub async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, Failure> + Send + 'static,
) -> Result<T, Failure> {
    tokio::task::spawn_blocking(work)
        .await
        .unwrap_or_else(|error| Err(Failure::new(FailureClass::WorkerLost, format!("a step was cut short: {error}"))))
}
