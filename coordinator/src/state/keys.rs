//! The keys of the state store. The leading number is the version of the layout.

use baler_common::model::id::{CompactionId, JobId};

/// The fencing token of the leader.
pub const EPOCH: &str = "1/epoch";
/// Who leads and where; absent when nobody does. It goes with its lease.
pub const LEADER: &str = "1/leader";
/// Why later runs refuse the table; absent when they do not.
pub const STOP: &str = "1/stop";
/// The compaction that is not closed yet; absent when there is none.
pub const ACTIVE: &str = "1/active";

/// Everything of all runs, as a prefix.
pub const RUNS: &str = "1/r/";

/// Whether a key is that of a job record.
pub fn is_job(key: &str) -> bool {
    key.strip_prefix(RUNS).is_some_and(|rest| rest.contains("/j/"))
}

/// The head of a run.
pub fn run(compaction: &CompactionId) -> String {
    format!("1/r/{compaction}")
}

/// The job records of a run, as a prefix.
pub fn jobs(compaction: &CompactionId) -> String {
    format!("1/r/{compaction}/j/")
}

/// One job of a run.
pub fn job(compaction: &CompactionId, job: JobId) -> String {
    format!("1/r/{compaction}/j/{:08x}", job.0)
}

/// What users asked for, as a prefix.
pub const SUBMISSIONS: &str = "1/c/";

/// A submission.
pub fn submission(name: &str) -> String {
    format!("{SUBMISSIONS}{name}")
}

/// What came of the tables of a submission, as a prefix.
pub fn outcomes(name: &str) -> String {
    format!("1/o/{name}/")
}

/// The submission of an idempotency key, by its digest in hex.
pub fn idempotency(digest: &str) -> String {
    format!("1/i/{digest}")
}

/// The states of all tables of a cluster, as a prefix.
pub const TABLES: &str = "1/t/";

/// The part of the store that holds the state of one table, by the digest of its location in hex.
pub fn table(digest: &str) -> String {
    format!("{TABLES}{digest}/")
}
