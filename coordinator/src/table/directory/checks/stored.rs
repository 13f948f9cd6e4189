//! The result of the checks of a generation, kept at `_baler/checks/{generation:020}.json`, so that a commit that was
//! cut short before them is seen to lack them.

use baler_common::model::error::{Failure, FailureClass};
use serde::{Deserialize, Serialize};

use super::Checks;
use crate::table::directory::DirectoryTable;

#[derive(Serialize, Deserialize)]
struct Stored {
    format: String,
    version: u32,
    passed: bool,
    generation: u64,
    files_before: u64,
    files_added: u64,
    files_removed: u64,
    files_after: u64,
    rows_before: u64,
    rows_duplicate: u64,
    rows_after: u64,
    rows_previous: u64,
    rows_previous_read: u64,
    files_previous_read: u64,
    files_on_disk: u64,
    files_listed: u64,
    files_awaiting: u64,
    files_appended: u64,
    mismatches: Vec<String>,
}

fn path_of(generation: u64) -> String {
    format!("_baler/checks/{generation:020}.json")
}

/// Keeps the result, replacing an earlier one of the same generation.
pub fn write(table: &DirectoryTable, checks: &Checks) -> Result<(), Failure> {
    let Checks { generation, mismatches, .. } = checks.clone();
    let stored = Stored {
        format: "baler.checks".to_owned(),
        version: 1,
        passed: checks.passed(),
        generation,
        files_before: checks.files_before,
        files_added: checks.files_added,
        files_removed: checks.files_removed,
        files_after: checks.files_after,
        rows_before: checks.rows_before,
        rows_duplicate: checks.rows_duplicate,
        rows_after: checks.rows_after,
        rows_previous: checks.rows_previous,
        rows_previous_read: checks.rows_previous_read,
        files_previous_read: checks.files_previous_read,
        files_on_disk: checks.files_on_disk,
        files_listed: checks.files_listed,
        files_awaiting: checks.files_awaiting,
        files_appended: checks.files_appended,
        mismatches,
    };
    let mut content = serde_json::to_vec(&stored)
        .map_err(|error| Failure::new(FailureClass::Transient, format!("write checks: {error}")))?;
    content.push(b'\n');
    table.put(&path_of(generation), &content)
}

/// The kept result, or `None` when the checks of this generation were never finished.
pub fn read(table: &DirectoryTable, generation: u64) -> Result<Option<Checks>, Failure> {
    let path = path_of(generation);
    let Some(content) = table.read(&path)? else { return Ok(None) };
    let bad = |message: String| Failure::new(FailureClass::InputCorrupt, message).in_file(table.describe(&path));
    let stored: Stored = serde_json::from_slice(&content).map_err(|error| bad(format!("checks: {error}")))?;
    if stored.format != "baler.checks" || stored.version != 1 {
        return Err(bad(format!("checks of version {} are not known to this Baler", stored.version)));
    }
    Ok(Some(Checks {
        generation: stored.generation,
        files_before: stored.files_before,
        files_added: stored.files_added,
        files_removed: stored.files_removed,
        files_after: stored.files_after,
        rows_before: stored.rows_before,
        rows_duplicate: stored.rows_duplicate,
        rows_after: stored.rows_after,
        rows_previous: stored.rows_previous,
        rows_previous_read: stored.rows_previous_read,
        files_previous_read: stored.files_previous_read,
        files_on_disk: stored.files_on_disk,
        files_listed: stored.files_listed,
        files_awaiting: stored.files_awaiting,
        files_appended: stored.files_appended,
        mismatches: stored.mismatches,
    }))
}
