//! The one place that deletes, and only what a manifest says nobody needs any more.
//!
//! | what | when |
//! |---|---|
//! | superseded and set-aside files | the newest generation lists them as superseded, at least two generations ago and longer than the retention, and they are still the recorded objects |
//! | files that were foreign, or a given-up commit's | the same, without waiting for generations |
//! | attempts in staging | older than a day, named as ours, in no pending commit; verified ones older than the retention too |
//! | sources that live on in a destination (`--replaced-by`) | the destination's newest generation lists every output of their job, they passed their checks longer ago than the retention, and the sources are still the recorded objects |
//! | old manifests | below the gc boundary, which is raised first |
//!
//! Age is the store's: modification time against the time of an object that the sweep has just written. A dry run takes
//! the caller's clock. What does not parse as ours is reported and left alone. A table with an unfinished commit, or whose
//! newest generation did not pass its checks, is not swept at all.

mod replaced;
mod swapped;

use std::collections::BTreeSet;
use std::time::Duration;

use baler_common::model::error::{Failure, FailureClass};

use crate::state::records::decode_receipt;
use crate::table::directory::generation::{self, Generation, SupersededFile, Why};
use crate::table::directory::publish::Step;
use crate::table::directory::{DirectoryTable, checks, in_parallel, is_pinned, prepared};

pub use replaced::sweep_replaced;
pub use swapped::remove_old_tree;

/// How long an attempt's object in staging is left alone.
const STAGING_AGE: Duration = Duration::from_secs(24 * 3600);
/// Manifests that are kept whatever their age.
const MANIFESTS_KEPT: u64 = 10;
/// Its modification time is the store's clock.
const MARK: &str = "_baler/gc.json";

/// What the user wants.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SweepOptions {
    /// How long a file that is no longer listed is kept.
    pub retention: Duration,
    /// Generations that must have followed the one that stopped listing a file.
    pub generations: u64,
    /// Delete, rather than report.
    pub delete: bool,
    /// The caller's clock in milliseconds since the epoch; for dry runs.
    pub now_ms: i64,
}

impl SweepOptions {
    /// Seven days, two generations, and a report only.
    pub fn new(now_ms: i64) -> Self {
        Self { retention: Duration::from_secs(7 * 24 * 3600), generations: 2, delete: false, now_ms }
    }
}

/// What a pass found.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SweepReport {
    /// Deleted, or with a dry run to be deleted: path below the table, bytes, and why.
    pub swept: Vec<Swept>,
    /// Not yet, or not at all, and why.
    pub left: Vec<Swept>,
    /// Whether `swept` is gone.
    pub deleted: bool,
}

/// One object and a reason.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Swept {
    /// Path below the table.
    pub path: String,
    pub bytes: u64,
    pub reason: String,
}

impl SweepReport {
    pub fn swept_bytes(&self) -> u64 {
        self.swept.iter().map(|swept| swept.bytes).fold(0, u64::saturating_add)
    }

    fn sweep(&mut self, path: &str, bytes: u64, reason: impl Into<String>) {
        self.swept.push(Swept { path: path.to_owned(), bytes, reason: reason.into() });
    }

    fn leave(&mut self, path: &str, bytes: u64, reason: impl Into<String>) {
        self.left.push(Swept { path: path.to_owned(), bytes, reason: reason.into() });
    }
}

/// Sweeps a table: reports what may go, and with `delete` deletes it.
pub fn sweep(table: &DirectoryTable, options: &SweepOptions) -> Result<SweepReport, Failure> {
    let mut report = SweepReport::default();
    let Some(newest) = generation::newest(table)? else { return Ok(report) };
    refuse_unsettled(table, &newest)?;
    let now_ms = store_time(table, options)?;
    superseded(&mut report, table, &newest, options, now_ms)?;
    staging(&mut report, table, &newest, options, now_ms)?;
    let boundary = manifests(&mut report, table, &newest, options, now_ms)?;
    if options.delete {
        if let Some(boundary) = boundary {
            generation::raise_boundary(table, boundary)?;
        }
        delete_all(&mut report, table)?;
    }
    Ok(report)
}

/// Fails for a table whose state is not certain.
fn refuse_unsettled(table: &DirectoryTable, newest: &Generation) -> Result<(), Failure> {
    let refuse =
        |why: String| Err(Failure::new(FailureClass::Policy, why).in_file(table.describe("").trim_end_matches('/')));
    if prepared::pending(table)?.is_some() {
        return refuse("a commit was begun and not finished: compact again first, nothing was deleted".to_owned());
    }
    match checks::read(table, newest.generation)? {
        Some(checks) if checks.passed() => Ok(()),
        Some(_) => refuse(format!("the checks of generation {} failed: nothing was deleted", newest.generation)),
        None => refuse(format!(
            "the checks of generation {} were not finished: compact again first, nothing was deleted",
            newest.generation
        )),
    }
}

/// The store's time: of an object written just now. Dry runs write nothing and take the caller's.
fn store_time(table: &DirectoryTable, options: &SweepOptions) -> Result<i64, Failure> {
    if !options.delete {
        return Ok(options.now_ms);
    }
    table.put(MARK, format!("{{\"format\":\"baler.gc\",\"asked_ms\":{}}}\n", options.now_ms).as_bytes())?;
    let message = "the sweep's mark vanished at once: something else deletes here";
    table
        .head(MARK)?
        .map(|info| info.modified_ms)
        .ok_or_else(|| Failure::new(FailureClass::Transient, message).in_file(table.describe(MARK)))
}

/// Whether something of `since_ms` is older than `age`; a time in the future never is.
fn is_older(since_ms: i64, age: Duration, now_ms: i64) -> bool {
    let age_ms = i64::try_from(age.as_millis()).unwrap_or(i64::MAX);
    now_ms.checked_sub(since_ms).is_some_and(|passed| passed >= age_ms)
}

/// When a generation was made, by the store's clock.
fn made_at(table: &DirectoryTable, number: u64) -> Result<Option<i64>, Failure> {
    Ok(table.head(&generation::path_of(number))?.map(|info| info.modified_ms))
}

fn superseded(
    report: &mut SweepReport,
    table: &DirectoryTable,
    newest: &Generation,
    options: &SweepOptions,
    now_ms: i64,
) -> Result<(), Failure> {
    let live: BTreeSet<&str> = newest.live.iter().map(|file| file.object.as_str()).collect();
    let found = in_parallel(&newest.superseded, |entry| table.head(&entry.file.object));
    let mut times = std::collections::BTreeMap::new();
    for (entry, found) in newest.superseded.iter().zip(found) {
        let SupersededFile { file, why, superseded_in } = entry;
        let Some(found) = found? else { continue };
        if !is_pinned(&found, file.bytes, &file.identity) || live.contains(file.object.as_str()) {
            report.leave(&file.object, found.bytes, "it is not the recorded object any more");
            continue;
        }
        let followed = newest.generation.saturating_sub(*superseded_in);
        if *why != Why::Foreign && followed < options.generations {
            let message = format!("{followed} of {} generations have followed", options.generations);
            report.leave(&file.object, file.bytes, message);
            continue;
        }
        let made = match times.get(superseded_in) {
            Some(made) => *made,
            None => {
                let made = made_at(table, *superseded_in)?;
                times.insert(*superseded_in, made);
                made
            }
        };
        match made {
            Some(made) if is_older(made, options.retention, now_ms) => {
                report.sweep(&file.object, file.bytes, format!("not listed since generation {superseded_in}"));
            }
            Some(_) => report.leave(&file.object, file.bytes, "younger than the retention"),
            // Its manifest was swept, so it is older than that; only a missing one that should be there is a riddle.
            None if generation::boundary(table)? >= *superseded_in => {
                report.sweep(&file.object, file.bytes, format!("not listed since generation {superseded_in}"));
            }
            None => report.leave(&file.object, file.bytes, format!("generation {superseded_in} is missing")),
        }
    }
    Ok(())
}

fn staging(
    report: &mut SweepReport,
    table: &DirectoryTable,
    newest: &Generation,
    options: &SweepOptions,
    now_ms: i64,
) -> Result<(), Failure> {
    let verified = verified_attempts(table, newest)?;
    let pending: BTreeSet<String> = prepared::pending(table)?
        .map(|publication| publication.steps)
        .unwrap_or_default()
        .into_iter()
        .map(|step| match step {
            Step::Publish { from, .. } | Step::Move { from, .. } => from,
        })
        .collect();
    for info in table.list("_baler/staging")? {
        if !is_attempt(&info.path) {
            report.leave(&info.path, info.bytes, "not a name that Baler gives");
        } else if pending.contains(&info.path) {
            report.leave(&info.path, info.bytes, "a commit needs it");
        } else if !is_older(info.modified_ms, STAGING_AGE, now_ms) {
            report.leave(&info.path, info.bytes, "an attempt of the last day");
        } else if verified.contains(&info.path) && !is_older(info.modified_ms, options.retention, now_ms) {
            report.leave(&info.path, info.bytes, "verified, and to be published by the next run");
        } else {
            report.sweep(&info.path, info.bytes, "left over from an attempt");
        }
    }
    Ok(())
}

/// Objects in staging that a receipt proves and that are not live under another name (a store that copies keeps both).
/// A receipt that cannot be read proves nothing.
fn verified_attempts(table: &DirectoryTable, newest: &Generation) -> Result<BTreeSet<String>, Failure> {
    let receipts = table.list("_baler/receipts")?;
    let live: BTreeSet<[u8; 32]> = newest.live.iter().filter_map(|file| file.sha256).collect();
    let mut verified = BTreeSet::new();
    for content in in_parallel(&receipts, |info| table.read(&info.path)) {
        let outputs = content?.and_then(|content| decode_receipt(&content).ok()).map(|receipt| receipt.outputs);
        let waiting = outputs.iter().flatten().filter(|output| !live.contains(&output.sha256));
        let paths = waiting.filter_map(|output| table.relative(&output.object.path));
        verified.extend(paths.map(str::to_owned));
    }
    Ok(verified)
}

/// Whether the name is `{job:8}-{epoch:6}-{attempt:16}-{output}.part`, the numbers hexadecimal but the last.
fn is_attempt(path: &str) -> bool {
    let name = path.rsplit('/').next().unwrap_or(path);
    let Some(name) = name.strip_suffix(".part") else { return false };
    let parts: Vec<&str> = name.split('-').collect();
    let is_hex = |text: &str, digits: usize| text.len() >= digits && text.bytes().all(|byte| byte.is_ascii_hexdigit());
    matches!(parts[..], [job, epoch, attempt, output]
        if is_hex(job, 8) && is_hex(epoch, 6) && is_hex(attempt, 16)
            && !output.is_empty() && output.bytes().all(|byte| byte.is_ascii_digit()))
}

/// Manifests that may go; gives the boundary to raise before they do.
fn manifests(
    report: &mut SweepReport,
    table: &DirectoryTable,
    newest: &Generation,
    options: &SweepOptions,
    now_ms: i64,
) -> Result<Option<u64>, Failure> {
    let oldest_kept = newest.generation.saturating_sub(MANIFESTS_KEPT.max(options.generations));
    let mut boundary = None;
    for number in generation::numbers(table)?.into_iter().filter(|number| *number < oldest_kept) {
        let path = generation::path_of(number);
        match table.head(&path)? {
            // From the oldest on, so that no gap arises.
            Some(info) if is_older(info.modified_ms, options.retention, now_ms) => {
                report.sweep(&path, info.bytes, "an old generation");
                boundary = Some(number);
            }
            _ => break,
        }
    }
    Ok(boundary)
}

fn delete_all(report: &mut SweepReport, table: &DirectoryTable) -> Result<(), Failure> {
    let results = in_parallel(&report.swept, |swept| table.store().delete(&table.absolute(&swept.path)));
    for result in results {
        result?;
    }
    report.deleted = true;
    Ok(())
}

#[cfg(test)]
mod tests;
