//! What came of a compaction: for a person and for machines.

use std::fmt::Write;

use baler_coordinator::table::directory::checks::Checks;
use serde_json::{Value, json};

use super::{Style, count, counted, failure_json};
use crate::args::sizes::show_size;
use baler_coordinator::compaction::TableResult;

/// The result of a table in plain words.
pub fn text(result: &TableResult, style: Style) -> String {
    let TableResult { plan, committed, failed, untouched, adopted, ran, elapsed } = result;
    let mut out = String::new();
    let _ = writeln!(out, "{} ({})", style.strong(format!("table {}", plan.table)), plan.source_location);
    for note in &plan.notes {
        let _ = writeln!(out, "  note: {note}");
    }
    let read: u64 = plan.jobs.iter().map(|job| job.input_bytes()).fold(0, u64::saturating_add);
    let seconds = elapsed.as_secs_f64();
    let rate = if *ran > 0 && seconds > 0.0 && *adopted == 0 {
        format!(", {}/s", show_size((read as f64 / seconds) as u64))
    } else {
        String::new()
    };
    let _ = writeln!(
        out,
        "  jobs: {ran} done, {adopted} taken over from an earlier run, {} failed, {untouched} left; {seconds:.1} s{rate}",
        failed.len()
    );
    for refusal in &plan.refusals {
        let _ = writeln!(out, "  {}", style.bad(format!("refused: key {}: {}", refusal.key, refusal.failure)));
    }
    for (job, failure) in failed {
        let key = plan.jobs.get(job.0 as usize).map_or("?", |spec| spec.key.as_str());
        let _ = writeln!(out, "  {}", style.bad(format!("failed: key {key}: {failure}")));
    }
    for kept in &committed.kept {
        if plan.refusals.iter().all(|refusal| refusal.key != kept.key) {
            let _ = writeln!(out, "  key {} is left as it was: {}", kept.key, kept.reason);
        }
    }
    match &committed.generation {
        Some(generation) => {
            let (before, now) = (generation.before, generation.figures());
            let done = if committed.created { "generation" } else { "nothing to do: still generation" };
            let _ = writeln!(
                out,
                "  {done} {}: {} of {} became {} of {}, {}",
                generation.generation,
                counted(before.files, "file", "files"),
                show_size(before.bytes),
                counted(now.files, "file", "files"),
                show_size(now.bytes),
                counted(now.rows, "row", "rows"),
            );
        }
        None => {
            let _ = writeln!(out, "  nothing was committed, the table is as it was");
        }
    }
    if let Some(checks) = &committed.checks {
        for line in checks.to_string().lines() {
            let _ = writeln!(out, "  {line}");
        }
        let verdict = if checks.passed() {
            style.good("all four checks hold")
        } else {
            style.bad("A CHECK DOES NOT HOLD: the table is stopped; look at `baler history` and `baler fsck`")
        };
        let _ = writeln!(out, "  {verdict}");
    }
    out
}

/// The result of a table for machines.
pub fn table_json(result: &TableResult) -> Value {
    let TableResult { plan, committed, failed, untouched, adopted, ran, elapsed } = result;
    let figures = |figures: baler_coordinator::table::directory::generation::Figures| json!({"files": figures.files, "bytes": figures.bytes, "rows": figures.rows});
    json!({
        "table": plan.table,
        "source": plan.source_location,
        "complete": result.is_complete(),
        "jobs": {"done": ran, "taken_over": adopted, "failed": failed.len(), "left": untouched},
        "seconds": elapsed.as_secs_f64(),
        "generation": committed.generation.as_ref().map(|generation| generation.generation),
        "changed": committed.created,
        "before": committed.generation.as_ref().map(|generation| figures(generation.before)),
        "after": committed.generation.as_ref().map(|generation| figures(generation.figures())),
        "checks": committed.checks.as_ref().map(checks_json),
        "refused": plan.refusals.iter()
            .map(|refusal| json!({"key": refusal.key, "failure": failure_json(&refusal.failure)}))
            .collect::<Vec<_>>(),
        "failed": failed.iter()
            .map(|(job, failure)| json!({
                "key": plan.jobs.get(job.0 as usize).map(|spec| spec.key.as_str()),
                "failure": failure_json(failure),
            }))
            .collect::<Vec<_>>(),
        "kept": committed.kept.iter()
            .map(|kept| json!({"key": kept.key, "reason": kept.reason}))
            .collect::<Vec<_>>(),
        "notes": plan.notes,
    })
}

/// The four checks for machines.
pub fn checks_json(checks: &Checks) -> Value {
    json!({
        "generation": checks.generation,
        "passed": checks.passed(),
        "files": {
            "before": checks.files_before, "added": checks.files_added,
            "removed": checks.files_removed, "after": checks.files_after,
        },
        "rows": {"before": checks.rows_before, "duplicate": checks.rows_duplicate, "after": checks.rows_after},
        "previous": {
            "rows": checks.rows_previous, "rows_read": checks.rows_previous_read,
            "files_read": checks.files_previous_read,
        },
        "disk": {
            "files": checks.files_on_disk, "listed": checks.files_listed,
            "awaiting": checks.files_awaiting, "appended": checks.files_appended,
        },
        "mismatches": checks.mismatches,
    })
}

/// All tables in one line.
pub fn total(results: &[TableResult], style: Style) -> String {
    let (mut before, mut after, mut rows) = ((0u64, 0u64), (0u64, 0u64), 0u64);
    for generation in results.iter().filter_map(|result| result.committed.generation.as_ref()) {
        let now = generation.figures();
        before = (before.0 + generation.before.files, before.1.saturating_add(generation.before.bytes));
        after = (after.0 + now.files, after.1.saturating_add(now.bytes));
        rows = rows.saturating_add(now.rows);
    }
    style.strong(format!(
        "{}: {} files of {} -> {} files of {}, {} rows",
        counted(results.len() as u64, "table", "tables"),
        count(before.0),
        show_size(before.1),
        count(after.0),
        show_size(after.1),
        count(rows)
    ))
}
