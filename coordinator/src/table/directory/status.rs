//! How a table is: its files, how many are small, what waits for cleanup, and how fast files arrive.

use baler_common::model::error::Failure;

use super::generation::{self, Figures};
use super::publish::is_plain_data;
use super::{DirectoryTable, files, prepared};

const HOUR_MS: i64 = 3_600_000;

/// What `baler status` prints of a table.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Status {
    /// 0 where Baler never committed.
    pub generation: u64,
    /// Listed files; without a generation the Parquet files, with 0 rows.
    pub live: Figures,
    /// Live or appended files smaller than a quarter of the target.
    pub small_files: u64,
    pub small_bytes: u64,
    /// Superseded files that the sweep has not taken yet.
    pub awaiting_files: u64,
    pub awaiting_bytes: u64,
    /// Files that others put there since the newest generation.
    pub appended_files: u64,
    pub appended_bytes: u64,
    /// Files of others by modification time: in the last day and the last week, by the store's clock.
    pub arrived_last_day: u64,
    pub arrived_last_week: u64,
    /// Whether the newest generation's checks passed; `None` when they were never finished.
    pub checked: Option<bool>,
    /// A commit was begun and not finished: the next command finishes it.
    pub commit_pending: bool,
}

impl Status {
    /// Files an hour over the last week.
    pub fn arrivals_per_hour(&self) -> f64 {
        self.arrived_last_week as f64 / (7.0 * 24.0)
    }
}

/// Looks at a table. `now_ms` is milliseconds since the epoch, `target_bytes` the size of an output.
pub fn status(table: &DirectoryTable, target_bytes: u64, now_ms: i64) -> Result<Status, Failure> {
    let mut status = Status { commit_pending: prepared::pending(table)?.is_some(), ..Status::default() };
    let newest = generation::newest(table)?;
    let plain: Vec<_> = table.list("")?.into_iter().filter(|info| is_plain_data(&info.path, true)).collect();
    let mut sizes: Vec<u64> = Vec::new();
    match &newest {
        Some(newest) => {
            status.generation = newest.generation;
            status.live = newest.figures();
            status.awaiting_files = newest.superseded.len() as u64;
            status.awaiting_bytes = newest.awaiting_bytes();
            status.checked = super::checks::read(table, newest.generation)?.map(|checks| checks.passed());
            let appended = files::appended(table, newest)?;
            status.appended_files = appended.len() as u64;
            status.appended_bytes = appended.iter().map(|info| info.bytes).fold(0, u64::saturating_add);
            sizes.extend(newest.live.iter().map(|file| file.bytes).chain(appended.iter().map(|info| info.bytes)));
        }
        None => {
            status.live = plain.iter().fold(Figures::default(), |sum, info| sum.plus(info.bytes, 0));
            sizes.extend(plain.iter().map(|info| info.bytes));
        }
    }
    for bytes in sizes.into_iter().filter(|bytes| *bytes < target_bytes / 4) {
        status.small_files += 1;
        status.small_bytes = status.small_bytes.saturating_add(bytes);
    }
    let ours = |path: &str| {
        newest.as_ref().is_some_and(|newest| newest.live.iter().any(|file| file.since > 0 && file.object == path))
    };
    let within = |hours: i64| {
        let is_recent = |modified_ms: i64| now_ms.saturating_sub(modified_ms) <= hours * HOUR_MS;
        plain.iter().filter(|info| is_recent(info.modified_ms) && !ours(&info.path)).count() as u64
    };
    status.arrived_last_day = within(24);
    status.arrived_last_week = within(24 * 7);
    Ok(status)
}
