//! What a run tells: events, progress, and what became of the jobs.

use baler_common::model::error::Failure;
use baler_common::model::id::{AttemptId, JobId};
use baler_common::model::outcome::Receipt;

/// Something a person or a list may want to know.
#[derive(Debug, Clone, PartialEq)]
pub enum Event {
    Leased { job: JobId, attempt: AttemptId },
    Adopted { job: JobId },
    Verified { job: JobId, attempt: AttemptId },
    Retried { job: JobId, attempt: AttemptId, failure: Failure },
    Quarantined { job: JobId, failure: Failure },
}

/// How far a run is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct RunProgress {
    pub jobs: u32,
    pub verified: u32,
    pub quarantined: u32,
    pub running: u32,
    /// Input bytes and rows of all jobs.
    pub bytes: u64,
    pub rows: u64,
    /// Input bytes and rows of verified jobs and of what running attempts have written.
    pub bytes_done: u64,
    pub rows_done: u64,
}

/// What became of the jobs, in plan order.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Settled {
    pub verified: Vec<(JobId, Receipt)>,
    pub failed: Vec<(JobId, Failure)>,
    /// Jobs that were not run: the run was drained, or another job of their key failed.
    pub untouched: Vec<JobId>,
    /// Why the run ended before its jobs did: the state store refused a write, or another process leads.
    pub stopped: Option<Failure>,
}
