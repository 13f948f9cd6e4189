//! From verified jobs to a committed generation, once, whatever happens in between.
//!
//! ```text
//! finish what an earlier commit began ─► re-check inputs and outputs ─► PREPARED (the moves and the draft are stored)
//!   ─► moves ─► generation created ─► four checks ─► lists ─► COMMITTED
//! ```
//! Every step may be cut short and the whole called again with the same request: the stored intention is finished first,
//! moves are create-only, and a generation that has our token is ours. A key with a failed job, or with an input that
//! is not the planned one any more, is left as it was; the others are committed.
//!
//! Deliberately absent: deleting anything, and retrying (the caller's).

use std::collections::{BTreeMap, BTreeSet};

use baler_common::model::error::{Failure, FailureClass};
use baler_common::model::id::JobId;
use baler_common::model::job::{JobSpec, RowMode};
use baler_common::runtime::killpoint::killpoint;

use crate::plan::{Plan, PublishMode, SkipReason};
use crate::table::directory::checks::{self, Checks, RowCounter};
use crate::table::directory::format::DirectoryFormat;
use crate::table::directory::generation::{self, Generation, KeptKey, hex};
use crate::table::directory::publish::{self, PlannedFile, Settled, VerifiedJob};
use crate::table::directory::{DirectoryTable, in_parallel, is_pinned, lists, prepared};
use crate::table::{CommitToken, TableFormat};

/// What to commit, and where.
pub struct CommitRequest<'a> {
    pub plan: &'a Plan,
    /// SHA-256 of the stored plan.
    pub plan_digest: [u8; 32],
    /// Every file of the snapshot that the plan was made of, those of refused keys included.
    pub files: &'a [PlannedFile],
    /// Jobs whose receipts were judged to be right.
    pub verified: &'a BTreeMap<JobId, VerifiedJob>,
    /// Jobs that failed for good.
    pub failed: &'a BTreeMap<JobId, Failure>,
    /// Where the inputs lie; in place the same as `target`.
    pub source: &'a DirectoryTable,
    pub target: &'a DirectoryTable,
    /// Milliseconds since the epoch.
    pub now_ms: i64,
    /// Reads a footer's row count: [`checks::rows_in_footer`] but in tests.
    pub count_rows: &'a RowCounter<'a>,
    /// Told of each milestone before it counts; an error stops the commit there.
    pub record: &'a mut dyn FnMut(&Milestone) -> Result<(), Failure>,
}

/// What the caller has to keep.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Milestone {
    /// The moves may begin: from here the commit is finished, never taken back.
    Prepared { token: CommitToken, generation: u64 },
    /// The generation is there and was checked.
    Committed { token: CommitToken, generation: u64 },
}

/// A finished commit.
#[derive(Debug, Clone, PartialEq)]
pub struct Committed {
    /// The newest generation; `None` when nothing could be committed and there was none.
    pub generation: Option<Generation>,
    /// Whether this call or an interrupted one before made it; false when the table was already so.
    pub created: bool,
    /// `None` without a generation. When they did not pass, the caller stops the table with their mismatches.
    pub checks: Option<Checks>,
    /// Keys for which nothing new was committed, with the reason.
    pub kept: Vec<KeptKey>,
}

impl Committed {
    /// Why the table must be stopped; `None` when all is well.
    pub fn stop_reason(&self) -> Option<String> {
        let checks = self.checks.as_ref().filter(|checks| !checks.passed())?;
        Some(format!("the checks of generation {} failed: {}", checks.generation, checks.mismatches.join("; ")))
    }
}

/// Why there is no commit. The table is as it was, or as a later call with the same request will finish it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CommitFailure {
    /// The table is at another generation than the one that was planned on: plan again.
    #[error("the table is at generation {found}, it was planned at {planned}: plan again")]
    Moved { planned: u64, found: u64 },
    /// Try again with the same request, or see what the failure says.
    #[error(transparent)]
    Failed(#[from] Failure),
}

/// Commits what can be committed.
pub fn commit(mut request: CommitRequest<'_>) -> Result<Committed, CommitFailure> {
    let target = request.target;
    let token = CommitToken { compaction: request.plan.compaction.0.clone(), plan: hex(&request.plan_digest) };
    killpoint("commit-start");
    let finished = prepared::finish(target)?;
    let newest = generation::newest(target)?;
    let (mut generation, mut created, kept) = (newest, false, settle(&request)?);
    let landed = generation.as_ref().is_some_and(|newest| newest.token == token);
    if landed || finished.as_ref().is_some_and(|finished| finished.token == token) {
        created = true;
    } else {
        let found = generation.as_ref().map_or(0, |newest| newest.generation);
        if found != request.plan.base_generation {
            return Err(CommitFailure::Moved { planned: request.plan.base_generation, found });
        }
        if let Some(new) = make(&mut request, &token, &kept, generation.as_ref())? {
            generation = Some(new);
            created = true;
        }
    }
    let Some(newest) = generation else {
        return Ok(Committed { generation: None, created: false, checks: None, kept: kept.keys });
    };
    killpoint("commit-checks-before");
    let checks = checked(&request, &newest)?;
    killpoint("commit-checks-after");
    lists::write_all(target, &newest)?;
    killpoint("commit-lists-after");
    (request.record)(&Milestone::Committed { token, generation: newest.generation })?;
    killpoint("commit-committed");
    Ok(Committed { generation: Some(newest), created, checks: Some(checks), kept: kept.keys })
}

/// Makes the next generation, or finds that there is nothing to make.
fn make(
    request: &mut CommitRequest<'_>,
    token: &CommitToken,
    kept: &Kept,
    newest: Option<&Generation>,
) -> Result<Option<Generation>, Failure> {
    let target = request.target;
    let committed: BTreeMap<JobId, VerifiedJob> = request
        .plan
        .jobs
        .iter()
        .filter(|job| !kept.has(&job.key))
        .filter_map(|job| Some((job.job, request.verified.get(&job.job)?.clone())))
        .collect();
    if committed.is_empty() && newest.is_none() {
        return Ok(None);
    }
    let settled = Settled {
        plan: request.plan,
        token: token.clone(),
        files: request.files,
        committed,
        kept: kept.keys.clone(),
        now_ms: request.now_ms,
    };
    let publication = publish::decide(request.source, target, &settled, newest)?;
    if publication.changes_nothing(newest) {
        return Ok(None);
    }
    killpoint("commit-prepared-before");
    prepared::store(target, &publication)?;
    let number = publication.generation.generation;
    (request.record)(&Milestone::Prepared { token: token.clone(), generation: number })?;
    killpoint("commit-prepared-after");
    let number = format(request).commit(&publication)?;
    generation::read(target, number).map(Some)
}

/// The destination as a format.
fn format<'a>(request: &CommitRequest<'a>) -> DirectoryFormat<'a> {
    DirectoryFormat { source: request.source, target: request.target, count_rows: request.count_rows }
}

/// The checks of the newest generation: those kept from an earlier run, or run now.
fn checked(request: &CommitRequest<'_>, newest: &Generation) -> Result<Checks, Failure> {
    if let Some(kept) = checks::read(request.target, newest.generation)?.filter(Checks::passed) {
        return Ok(kept);
    }
    let checks = format(request).check(newest.generation)?;
    checks::write(request.target, &checks)?;
    Ok(checks)
}

/// Keys for which nothing new is committed.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Kept {
    keys: Vec<KeptKey>,
    names: BTreeSet<String>,
}

impl Kept {
    fn has(&self, key: &str) -> bool {
        self.names.contains(key)
    }
}

/// Decides key by key: everything of it, or nothing.
fn settle(request: &CommitRequest<'_>) -> Result<Kept, Failure> {
    let mut reasons: BTreeMap<&str, String> = BTreeMap::new();
    for refusal in &request.plan.refusals {
        reasons.entry(&refusal.key).or_insert_with(|| refusal.failure.to_string());
    }
    for job in &request.plan.jobs {
        if let Some(reason) = unproved(request, job) {
            reasons.entry(&job.key).or_insert(reason);
        }
    }
    if request.plan.publish == PublishMode::Destination {
        for skip in &request.plan.skips {
            if let Some(reason) = left_out(&skip.reason) {
                reasons.entry(&skip.key).or_insert(reason);
            }
        }
    }
    for (key, failure) in changed_inputs(request, &reasons)? {
        reasons.entry(key).or_insert_with(|| failure.to_string());
    }
    Ok(Kept {
        names: reasons.keys().map(|key| (*key).to_owned()).collect(),
        keys: reasons.into_iter().map(|(key, reason)| KeptKey { key: key.to_owned(), reason }).collect(),
    })
}

/// Why a destination cannot have a key of which the plan left a file out.
fn left_out(reason: &SkipReason) -> Option<String> {
    match reason {
        SkipReason::OverBudget => {
            Some("only a part of it was planned (--max-bytes): run again for the rest".to_owned())
        }
        SkipReason::NotSelected => Some("it was not selected (--where)".to_owned()),
        SkipReason::AlreadyRight | SkipReason::TooFewFiles { .. } => {
            Some("the plan left a file of it out, and a destination needs all of them".to_owned())
        }
    }
}

/// Why a job's outputs must not be published; `None` when they may. The judge's word is looked at once more.
fn unproved(request: &CommitRequest<'_>, job: &JobSpec) -> Option<String> {
    if let Some(failure) = request.failed.get(&job.job) {
        return Some(failure.to_string());
    }
    let Some(VerifiedJob { receipt, .. }) = request.verified.get(&job.job) else {
        return Some(format!("job {} is not finished", job.job));
    };
    let rows: Option<u64> = receipt.outputs.iter().try_fold(0u64, |sum, output| sum.checked_add(output.rows));
    let wrong = receipt.expected != receipt.stored
        || rows != Some(receipt.stored.rows)
        || receipt.outputs.is_empty()
        || (job.mode != RowMode::Distinct && receipt.stored.rows != job.input_rows())
        || (job.mode == RowMode::Distinct && receipt.stored.rows > job.input_rows());
    wrong.then(|| {
        let message = format!(
            "the receipt proves {} rows as {}, the stored outputs have {rows:?} rows as {}",
            receipt.expected.rows, receipt.expected, receipt.stored
        );
        Failure::new(FailureClass::FingerprintMismatch, message).in_file(job.output_path.clone()).to_string()
    })
}

/// Keys with an input that is not the planned object any more. In place every file of a key with jobs counts, since the
/// generation lists the untouched ones too.
fn changed_inputs<'a>(
    request: &CommitRequest<'a>,
    kept: &BTreeMap<&str, String>,
) -> Result<Vec<(&'a str, Failure)>, Failure> {
    let plan = request.plan;
    let keys: BTreeSet<&str> =
        plan.jobs.iter().map(|job| job.key.as_str()).filter(|key| !kept.contains_key(key)).collect();
    let files: Vec<&PlannedFile> = request.files.iter().filter(|file| keys.contains(file.key.as_str())).collect();
    let mut changed = Vec::new();
    for (file, found) in files.iter().zip(in_parallel(&files, |file| request.source.head(&file.object))) {
        let failure = match found? {
            Some(found) if is_pinned(&found, file.bytes, &file.identity) => continue,
            Some(_) => Failure::new(
                FailureClass::InputChanged,
                "the file was changed while the compaction ran: its key is left as it was, run again",
            ),
            None => Failure::new(
                FailureClass::InputMissing,
                "the file vanished while the compaction ran: its key is left as it was, run again",
            ),
        };
        changed.push((file.key.as_str(), failure.in_file(request.source.describe(&file.object))));
    }
    Ok(changed)
}

#[cfg(test)]
pub(crate) mod tests;
