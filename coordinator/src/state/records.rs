//! The records of the state store, and a plan as an object: model to bytes and back.

use baler_common::model::error::{Failure, FailureClass};
use baler_common::model::id::{AttemptId, CompactionId, Epoch, WorkerId};
use baler_common::model::outcome::Receipt;
use baler_proto::framed::{self, Kind};
use baler_proto::{convert, state, v1};
use prost::Message;

use super::StateError;
use crate::lifecycle::job::{Attempt, Job, JobState};
use crate::lifecycle::run::{Run, RunState};
use crate::plan::{KeyFigures, Plan, PublishMode, Refusal, Skip, SkipReason};

/// Jobs of one plan at most.
const JOBS_MAX: usize = 10_000_000;

fn unreadable(key: &str, message: impl std::fmt::Display) -> StateError {
    StateError::Record { key: key.to_owned(), message: message.to_string() }
}

/// A job record. `op` tells this write from any other.
pub fn encode_job(job: &Job, op: u64) -> Vec<u8> {
    let kind = match job.state {
        JobState::Pending => state::JobState::Pending,
        JobState::Leased => state::JobState::Leased,
        JobState::Verified => state::JobState::Verified,
        JobState::Quarantined => state::JobState::Quarantined,
    };
    let attempt = |attempt: &Attempt| state::AttemptRecord {
        attempt: attempt.id.0.to_vec().into(),
        epoch: attempt.epoch.0,
        worker: attempt.worker.0.clone(),
    };
    state::JobRecord {
        state: kind.into(),
        attempts: job.attempts.iter().map(attempt).collect(),
        failures: job.failures,
        refutations: job.refutations,
        receipt: job
            .receipt
            .as_ref()
            .map(|receipt| v1::Receipt::from(receipt).encode_to_vec())
            .unwrap_or_default()
            .into(),
        failure: job
            .failure
            .as_ref()
            .map(|failure| v1::Failure::from(failure).encode_to_vec())
            .unwrap_or_default()
            .into(),
        op,
    }
    .encode_to_vec()
}

/// A job record read back.
pub fn decode_job(key: &str, value: &[u8]) -> Result<Job, StateError> {
    let record = state::JobRecord::decode(value).map_err(|error| unreadable(key, error))?;
    let state = match record.state() {
        state::JobState::Pending => JobState::Pending,
        state::JobState::Leased => JobState::Leased,
        state::JobState::Verified => JobState::Verified,
        state::JobState::Quarantined => JobState::Quarantined,
        state::JobState::Done | state::JobState::Unspecified => {
            return Err(unreadable(key, format_args!("state {} is unknown", record.state)));
        }
    };
    let mut attempts = Vec::with_capacity(record.attempts.len());
    for attempt in record.attempts {
        let id =
            AttemptId(attempt.attempt[..].try_into().map_err(|_| unreadable(key, "an attempt id is not eight bytes"))?);
        attempts.push(Attempt { id, epoch: Epoch(attempt.epoch), worker: WorkerId(attempt.worker) });
    }
    let receipt = match record.receipt.is_empty() {
        true => None,
        false => {
            let wire = v1::Receipt::decode(record.receipt).map_err(|error| unreadable(key, error))?;
            Some(Receipt::try_from(wire).map_err(|failure| unreadable(key, failure))?)
        }
    };
    let failure = match record.failure.is_empty() {
        true => None,
        false => {
            let wire = v1::Failure::decode(record.failure).map_err(|error| unreadable(key, error))?;
            Some(convert::failure_from_wire(wire).map_err(|failure| unreadable(key, failure))?)
        }
    };
    let (failures, refutations) = (record.failures, record.refutations);
    Ok(Job { state, attempts, failures, refutations, receipt, failure })
}

/// The head of a run.
pub fn encode_run(run: &Run, op: u64) -> Vec<u8> {
    let kind = match run.state {
        RunState::Submitted => state::RunState::Submitted,
        RunState::Planning => state::RunState::Planning,
        RunState::Running => state::RunState::Running,
        RunState::Verifying => state::RunState::Verifying,
        RunState::Prepared => state::RunState::Prepared,
        RunState::Committed => state::RunState::Committed,
        RunState::Cleaning => state::RunState::Cleaning,
        RunState::Closed => state::RunState::Closed,
        RunState::Failed => state::RunState::Failed,
        RunState::Cancelled => state::RunState::Cancelled,
    };
    state::RunRecord {
        state: kind.into(),
        table: run.table.clone(),
        plan_path: run.plan_path.clone(),
        plan_sha256: run.plan_sha256.to_vec().into(),
        jobs: run.jobs,
        commit_token: run.commit_token.clone(),
        reason: run.reason.clone(),
        op,
    }
    .encode_to_vec()
}

/// The head of a run read back.
pub fn decode_run(key: &str, value: &[u8]) -> Result<Run, StateError> {
    let record = state::RunRecord::decode(value).map_err(|error| unreadable(key, error))?;
    let state = match record.state() {
        state::RunState::Submitted => RunState::Submitted,
        state::RunState::Planning => RunState::Planning,
        state::RunState::Running => RunState::Running,
        state::RunState::Verifying => RunState::Verifying,
        state::RunState::Prepared => RunState::Prepared,
        state::RunState::Committed => RunState::Committed,
        state::RunState::Cleaning => RunState::Cleaning,
        state::RunState::Closed => RunState::Closed,
        state::RunState::Failed => RunState::Failed,
        state::RunState::Cancelled => RunState::Cancelled,
        state::RunState::Unspecified => return Err(unreadable(key, format_args!("state {} is unknown", record.state))),
    };
    let plan_sha256 =
        record.plan_sha256[..].try_into().map_err(|_| unreadable(key, "the plan's digest is not 32 bytes"))?;
    Ok(Run {
        state,
        table: record.table,
        plan_path: record.plan_path,
        plan_sha256,
        jobs: record.jobs,
        commit_token: record.commit_token,
        reason: record.reason,
    })
}

/// The stop of a table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Stop {
    pub reason: String,
    pub compaction: CompactionId,
    /// When it was stored, in milliseconds since the epoch.
    pub since_ms: i64,
}

/// The stop record.
pub fn encode_stop(stop: &Stop) -> Vec<u8> {
    let Stop { reason, compaction, since_ms } = stop.clone();
    state::StopRecord { reason, compaction: compaction.0, since_ms }.encode_to_vec()
}

/// The stop record read back.
pub fn decode_stop(key: &str, value: &[u8]) -> Result<Stop, StateError> {
    let record = state::StopRecord::decode(value).map_err(|error| unreadable(key, error))?;
    Ok(Stop { reason: record.reason, compaction: CompactionId(record.compaction), since_ms: record.since_ms })
}

/// A receipt as an object.
pub fn encode_receipt(receipt: &Receipt) -> Vec<u8> {
    framed::encode(Kind::Receipt, &v1::Receipt::from(receipt))
}

/// A receipt object read back; half or foreign ones are refused.
pub fn decode_receipt(content: &[u8]) -> Result<Receipt, Failure> {
    framed::decode::<v1::Receipt>(Kind::Receipt, content)?.try_into()
}

/// A plan as an object.
pub fn encode_plan(plan: &Plan) -> Vec<u8> {
    framed::encode(Kind::Plan, &v1::Plan::from(plan))
}

/// A plan object read back; half or foreign ones are refused, and so are plans that contradict themselves.
pub fn decode_plan(content: &[u8]) -> Result<Plan, Failure> {
    framed::decode::<v1::Plan>(Kind::Plan, content)?.try_into()
}

impl From<&Plan> for v1::Plan {
    fn from(plan: &Plan) -> Self {
        let publish = match plan.publish {
            PublishMode::Destination => v1::PublishMode::Destination,
            PublishMode::InPlace => v1::PublishMode::InPlace,
            PublishMode::TornReads => v1::PublishMode::TornReads,
        };
        let refusal =
            |refusal: &Refusal| v1::Refusal { key: refusal.key.clone(), failure: Some((&refusal.failure).into()) };
        let figures = |figures: &KeyFigures| {
            let KeyFigures { key, files, bytes, rows } = figures.clone();
            v1::KeyFigures { key, files, bytes, rows }
        };
        Self {
            compaction: plan.compaction.0.clone(),
            table: plan.table.clone(),
            source_location: plan.source_location.clone(),
            base_generation: plan.base_generation,
            publish: publish.into(),
            jobs: plan.jobs.iter().map(Into::into).collect(),
            skips: plan.skips.iter().map(skip_to_wire).collect(),
            refusals: plan.refusals.iter().map(refusal).collect(),
            keys: plan.keys.iter().map(figures).collect(),
            notes: plan.notes.clone(),
        }
    }
}

fn skip_to_wire(skip: &Skip) -> v1::Skip {
    use v1::skip::Reason;
    let reason = match skip.reason {
        SkipReason::AlreadyRight => Reason::AlreadyRight(v1::AlreadyRight {}),
        SkipReason::TooFewFiles { files, min } => Reason::TooFewFiles(v1::TooFewFiles { files, min }),
        SkipReason::OverBudget => Reason::OverBudget(v1::OverBudget {}),
        SkipReason::NotSelected => Reason::NotSelected(v1::NotSelected {}),
    };
    let Skip { key, file, bytes, rows, .. } = skip.clone();
    v1::Skip { key, file, bytes, rows, reason: Some(reason) }
}

fn skip_from_wire(skip: v1::Skip) -> Result<Skip, Failure> {
    use v1::skip::Reason;
    let reason = match skip.reason.ok_or_else(|| refused("a skip has no reason"))? {
        Reason::AlreadyRight(_) => SkipReason::AlreadyRight,
        Reason::TooFewFiles(v1::TooFewFiles { files, min }) => SkipReason::TooFewFiles { files, min },
        Reason::OverBudget(_) => SkipReason::OverBudget,
        Reason::NotSelected(_) => SkipReason::NotSelected,
    };
    Ok(Skip { key: skip.key, file: skip.file, bytes: skip.bytes, rows: skip.rows, reason })
}

fn refused(message: impl Into<String>) -> Failure {
    Failure::new(FailureClass::InputCorrupt, message.into()).in_file("plan")
}

impl TryFrom<v1::Plan> for Plan {
    type Error = Failure;

    fn try_from(plan: v1::Plan) -> Result<Self, Failure> {
        let publish = match plan.publish() {
            v1::PublishMode::Destination => PublishMode::Destination,
            v1::PublishMode::InPlace => PublishMode::InPlace,
            v1::PublishMode::TornReads => PublishMode::TornReads,
            v1::PublishMode::Unspecified => return Err(refused(format!("publish mode {} is unknown", plan.publish))),
        };
        // The compaction names records and objects.
        convert::check_path("compaction", &plan.compaction)?;
        if plan.compaction.contains('/') {
            return Err(refused(format!("{:?} is not the name of a compaction", plan.compaction)));
        }
        if plan.jobs.len() > JOBS_MAX {
            return Err(refused(format!("{} jobs are more than {JOBS_MAX}", plan.jobs.len())));
        }
        if let Some((place, job)) = plan.jobs.iter().enumerate().find(|(place, job)| job.job as usize != *place) {
            return Err(refused(format!("job {} stands at place {place}", job.job)));
        }
        let mut refusals = Vec::with_capacity(plan.refusals.len());
        for v1::Refusal { key, failure } in plan.refusals {
            let failure = convert::failure_from_wire(failure.ok_or_else(|| refused("a refusal has no failure"))?)?;
            refusals.push(Refusal { key, failure });
        }
        let figures = |v1::KeyFigures { key, files, bytes, rows }| KeyFigures { key, files, bytes, rows };
        Ok(Self {
            compaction: CompactionId(plan.compaction),
            table: plan.table,
            source_location: plan.source_location,
            base_generation: plan.base_generation,
            publish,
            jobs: convert::each("jobs", plan.jobs)?,
            skips: plan.skips.into_iter().map(skip_from_wire).collect::<Result<_, _>>()?,
            refusals,
            keys: plan.keys.into_iter().map(figures).collect(),
            notes: plan.notes,
        })
    }
}

#[cfg(test)]
mod tests;
