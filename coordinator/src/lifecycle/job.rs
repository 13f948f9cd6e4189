//! The states of one job.
//!
//! ```text
//! Pending ─► Leased(attempts) ─► Verified
//!    ▲            │
//!    ├────────────┤ lease lost, retryable failure, refuted once
//!    └            └─► Quarantined: terminal failure, refuted twice, or attempts at their limit
//! ```
//! The driver feeds events in and persists what comes out before it answers anyone. A completion is judged here: the
//! job is verified only when what the independent decoder found in the stored output is what it found in the inputs.
//!
//! Invariants ([`check`] holds them as code; the tests call it after every step):
//! - J1 a verified job has a receipt whose two fingerprints are equal, and never changes again;
//! - J2 a leased job lists at least one attempt, every other state lists none;
//! - J3 a quarantined job says why.

use baler_common::model::error::{Failure, FailureClass};
use baler_common::model::id::{AttemptId, Epoch, WorkerId};
use baler_common::model::job::{JobSpec, RowMode};
use baler_common::model::outcome::Receipt;

/// Where a job is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum JobState {
    Pending,
    Leased,
    Verified,
    Quarantined,
}

/// One execution that may still report.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Attempt {
    pub id: AttemptId,
    pub epoch: Epoch,
    pub worker: WorkerId,
}

/// What is known of a job.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Job {
    pub state: JobState,
    pub attempts: Vec<Attempt>,
    /// Attempts that failed or were lost.
    pub failures: u32,
    /// Attempts whose output was not what went in.
    pub refutations: u32,
    pub receipt: Option<Receipt>,
    /// The last failure; the final one when quarantined.
    pub failure: Option<Failure>,
}

/// Something that happened to a job.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum JobEvent {
    /// It was given to a worker.
    Lease(Attempt),
    /// An attempt says it is finished.
    Complete(AttemptId, Receipt),
    /// An attempt says it failed.
    Fail(AttemptId, Failure),
    /// Nothing was heard of an attempt for longer than its lease.
    LeaseLost(AttemptId),
    /// A verified output of the same job was found where an earlier run left it.
    Adopt(Receipt),
}

/// How often a job is tried.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Failed attempts after which a job is given up.
    pub failures_max: u32,
    /// Refuted attempts after which a job is given up.
    pub refutations_max: u32,
}

impl Default for Limits {
    fn default() -> Self {
        Self { failures_max: 4, refutations_max: 2 }
    }
}

/// Why an event changes nothing.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Rejected {
    #[error("attempt {0} is not one of the job's: it was lost, refuted or never handed out")]
    UnknownAttempt(AttemptId),
    #[error("the job is {0:?} already")]
    Settled(JobState),
}

impl Job {
    /// A job nobody has touched.
    pub const fn pending() -> Self {
        Self {
            state: JobState::Pending,
            attempts: Vec::new(),
            failures: 0,
            refutations: 0,
            receipt: None,
            failure: None,
        }
    }

    /// Whether nothing more will happen to it.
    pub fn is_settled(&self) -> bool {
        matches!(self.state, JobState::Verified | JobState::Quarantined)
    }
}

/// What `event` makes of the job.
///
/// # Errors
/// [`Rejected`] when the event is late or not the job's; the job stays as it is.
pub fn step(spec: &JobSpec, job: &Job, event: &JobEvent, limits: Limits) -> Result<Job, Rejected> {
    match job.state {
        JobState::Verified | JobState::Quarantined => return Err(Rejected::Settled(job.state)),
        JobState::Pending | JobState::Leased => {}
    }
    match event {
        JobEvent::Lease(attempt) => {
            let mut next = job.clone();
            next.state = JobState::Leased;
            next.attempts.push(attempt.clone());
            Ok(next)
        }
        JobEvent::Complete(id, receipt) => {
            let next = without(job, *id)?;
            match judge(spec, receipt) {
                Ok(()) => Ok(verified(&next, receipt)),
                Err(failure) => Ok(refuted(next, failure, limits)),
            }
        }
        JobEvent::Fail(id, failure) => {
            let next = without(job, *id)?;
            match failure.class {
                FailureClass::FingerprintMismatch => Ok(refuted(next, failure.clone(), limits)),
                // Stopped on request: not the job's fault.
                FailureClass::Cancelled => Ok(next),
                class => Ok(failed(next, failure.clone(), class.is_retryable(), limits)),
            }
        }
        JobEvent::LeaseLost(id) => {
            let failure = Failure::new(FailureClass::WorkerLost, "nothing was heard of the attempt within its lease");
            Ok(failed(without(job, *id)?, failure, true, limits))
        }
        JobEvent::Adopt(receipt) => match judge(spec, receipt) {
            Ok(()) => Ok(verified(job, receipt)),
            Err(_) => Err(Rejected::Settled(job.state)),
        },
    }
}

/// Whether the receipt proves the job: equal fingerprints and the rows the plan knows of.
///
/// # Errors
/// [`FailureClass::FingerprintMismatch`] with both values.
pub fn judge(spec: &JobSpec, receipt: &Receipt) -> Result<(), Failure> {
    let refuse = |message: String| {
        Err(Failure::new(FailureClass::FingerprintMismatch, message).in_file(spec.output_path.clone()))
    };
    if receipt.expected != receipt.stored {
        return refuse(format!("the inputs are {}, the stored output is {}", receipt.expected, receipt.stored));
    }
    let (planned, stored) = (spec.input_rows(), receipt.stored.rows);
    let rows: u64 = receipt.outputs.iter().map(|output| output.rows).sum();
    let as_planned = match spec.mode {
        RowMode::Copy | RowMode::Verbatim => stored == planned && receipt.outputs.len() == 1,
        RowMode::Distinct => stored <= planned,
    };
    if !as_planned || rows != stored || receipt.input_rows != planned {
        return refuse(format!(
            "{planned} rows were planned, {} read, {stored} stored in {} files",
            receipt.input_rows,
            receipt.outputs.len()
        ));
    }
    Ok(())
}

fn without(job: &Job, id: AttemptId) -> Result<Job, Rejected> {
    let mut next = job.clone();
    next.attempts.retain(|attempt| attempt.id != id);
    if next.attempts.len() == job.attempts.len() {
        return Err(Rejected::UnknownAttempt(id));
    }
    next.state = if next.attempts.is_empty() { JobState::Pending } else { JobState::Leased };
    Ok(next)
}

fn verified(job: &Job, receipt: &Receipt) -> Job {
    Job {
        state: JobState::Verified,
        attempts: Vec::new(),
        receipt: Some(receipt.clone()),
        failure: None,
        ..job.clone()
    }
}

fn refuted(mut job: Job, failure: Failure, limits: Limits) -> Job {
    job.refutations += 1;
    let again = job.refutations < limits.refutations_max;
    settle(job, failure, again)
}

fn failed(mut job: Job, failure: Failure, retryable: bool, limits: Limits) -> Job {
    job.failures += 1;
    let again = retryable && job.failures < limits.failures_max;
    settle(job, failure, again)
}

fn settle(mut job: Job, failure: Failure, again: bool) -> Job {
    job.failure = Some(failure);
    if !again {
        job.state = JobState::Quarantined;
        job.attempts.clear();
    }
    job
}

/// Checks the invariants J1–J3.
///
/// # Errors
/// The number of the broken one.
pub fn check(job: &Job) -> Result<(), &'static str> {
    let proved = job.receipt.as_ref().is_some_and(|receipt| receipt.expected == receipt.stored);
    if (job.state == JobState::Verified) != proved {
        return Err("J1");
    }
    if (job.state == JobState::Leased) == job.attempts.is_empty() {
        return Err("J2");
    }
    if job.state == JobState::Quarantined && job.failure.is_none() {
        return Err("J3");
    }
    Ok(())
}

#[cfg(test)]
mod tests;
