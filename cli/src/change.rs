//! Commands that change a table without compacting it: `revert`, `release`, `gc`.
//!
//! Each holds the table while it works, so that none meets a compaction.

use baler_common::model::error::{Failure, FailureClass};
use baler_common::model::id::CompactionId;
use baler_coordinator::state::records::Stop;
use baler_coordinator::state::runs;
use baler_coordinator::sweep::{SweepOptions, SweepReport, sweep, sweep_replaced};
use baler_coordinator::table::directory::{checks, lists, revert as table_revert};
use serde_json::{Value, json};

use crate::args::sizes::show_size;
use crate::args::{GcArgs, LocationArgs, ReleaseArgs};
use crate::compaction::runtime;
use crate::show::compaction::checks_json;
use crate::show::{Style, counted};
use crate::tables::{NamedTable, finish_swaps, hold, open_tables};
use baler_coordinator::compaction::CompactError;
use baler_coordinator::compaction::now_ms;

/// `baler revert`. True when the checks of what came back hold.
pub fn revert(args: &LocationArgs) -> Result<bool, CompactError> {
    let runtime = runtime()?;
    runtime.block_on(finish_swaps(&args.location, args.state.as_ref()))?;
    let mut well = true;
    let mut values = Vec::new();
    for NamedTable { name, table, .. } in open_tables(&args.location)? {
        let leadership = runtime.block_on(hold(&table, args.state.as_ref()))?;
        let done = table_revert::revert(&table, now_ms(), &checks::rows_in_footer)?;
        let number = done.generation.generation;
        if !done.checks.passed() {
            well = false;
            let reason = format!("the checks of generation {number} failed: {}", done.checks.mismatches.join("; "));
            let compaction = CompactionId(done.generation.token.compaction.clone());
            runtime.block_on(runs::set_stop(&leadership, &Stop { reason, compaction, since_ms: now_ms() }))?;
        }
        if args.json {
            values.push(json!({"table": name, "generation": number, "checks": checks_json(&done.checks)}));
            continue;
        }
        let now = done.generation.figures();
        println!("table {name}");
        println!(
            "  generation {number}: {} of {}, {}",
            counted(now.files, "file", "files"),
            show_size(now.bytes),
            counted(now.rows, "row", "rows")
        );
        done.checks.to_string().lines().for_each(|line| println!("  {line}"));
    }
    if args.json {
        println!("{}", json!({ "tables": values }));
    }
    Ok(well)
}

/// `baler release`.
pub fn release(args: &ReleaseArgs) -> Result<bool, CompactError> {
    if args.reason.trim().is_empty() {
        return Err(
            Failure::new(FailureClass::Policy, "--reason is empty: say why the table may be touched again").into()
        );
    }
    let runtime = runtime()?;
    let tables = open_tables(&args.location)?;
    let [NamedTable { name, table, .. }] = &tables[..] else {
        let message = format!("{} tables are here: release them one at a time", tables.len());
        return Err(Failure::new(FailureClass::Policy, message).in_file(&args.location).into());
    };
    let leadership = runtime.block_on(hold(table, args.state.as_ref()))?;
    match runtime.block_on(runs::clear_stop(&leadership))? {
        None => println!("table {name} was not stopped"),
        Some(stop) => {
            let detail = format!("{}; it was stopped because: {}", args.reason.trim(), stop.reason);
            let line = lists::audit_line(now_ms(), &stop.compaction.0, "", "stopped", "released", &detail);
            lists::record_audit(table, &[line])?;
            println!("table {name} may be compacted again; it was stopped because: {}", stop.reason);
        }
    }
    Ok(true)
}

/// `baler gc`. True when nothing was refused.
pub fn gc(args: &GcArgs) -> Result<bool, CompactError> {
    let runtime = runtime()?;
    if args.delete {
        runtime.block_on(finish_swaps(&args.location, args.state.as_ref()))?;
    }
    let options = SweepOptions { retention: args.retention, delete: args.delete, ..SweepOptions::new(now_ms()) };
    let mut well = true;
    let mut values = Vec::new();
    let sources = open_tables(&args.location)?;
    let destinations = args.replaced_by.as_deref().map(open_tables).transpose()?;
    for source in &sources {
        let held = match &destinations {
            None => &source.table,
            Some(destinations) => match destinations.iter().find(|destination| destination.folder == source.folder) {
                Some(destination) => &destination.table,
                None => {
                    eprintln!("table {}: the destination has no such table, so nothing of it may go", source.name);
                    continue;
                }
            },
        };
        // A report changes nothing, so it may be made beside a compaction.
        let _leadership = match args.delete {
            true => Some(runtime.block_on(hold(held, args.state.as_ref()))?),
            false => None,
        };
        let report = match &destinations {
            None => sweep(&source.table, &options),
            Some(_) => sweep_replaced(&source.table, held, &options),
        };
        match report {
            Ok(report) if args.json => values.push(report_json(&source.name, &report)),
            Ok(report) => print!("{}", report_text(&source.name, &report, Style::of_standard_output())),
            Err(failure) => {
                well = false;
                eprintln!("error: table {}: {failure}", source.name);
            }
        }
    }
    if args.json {
        println!("{}", json!({ "tables": values }));
    }
    Ok(well)
}

fn report_text(name: &str, report: &SweepReport, style: Style) -> String {
    let mut lines = vec![style.strong(format!("table {name}"))];
    let done = if report.deleted { "deleted" } else { "may go" };
    lines.extend(
        report.swept.iter().map(|it| format!("{done}  {:>10}  {}  ({})", show_size(it.bytes), it.path, it.reason)),
    );
    lines.extend(
        report.left.iter().map(|it| format!("stays   {:>10}  {}  ({})", show_size(it.bytes), it.path, it.reason)),
    );
    let objects = counted(report.swept.len() as u64, "object", "objects");
    lines.push(match (report.deleted, report.swept.is_empty()) {
        (_, true) => format!("nothing to delete; {} must wait", counted(report.left.len() as u64, "object", "objects")),
        (true, false) => format!("{objects} of {} deleted", show_size(report.swept_bytes())),
        (false, false) => {
            format!("{objects} of {} may go: run again with --delete", show_size(report.swept_bytes()))
        }
    });
    lines.join("\n  ") + "\n"
}

fn report_json(name: &str, report: &SweepReport) -> Value {
    let list = |list: &[baler_coordinator::sweep::Swept]| -> Vec<Value> {
        list.iter().map(|it| json!({"path": it.path, "bytes": it.bytes, "reason": it.reason})).collect()
    };
    json!({
        "table": name,
        "deleted": report.deleted,
        "swept": list(&report.swept),
        "swept_bytes": report.swept_bytes(),
        "left": list(&report.left),
    })
}

#[cfg(test)]
mod tests {
    use baler_coordinator::sweep::Swept;

    use super::*;

    #[test]
    fn a_report_says_what_may_go_and_what_must_wait() {
        let swept = |path: &str, reason: &str| Swept { path: path.into(), bytes: 2_048, reason: reason.into() };
        let report = SweepReport {
            swept: vec![swept("a.parquet", "not listed since generation 1")],
            left: vec![swept("b.parquet", "younger than the retention")],
            deleted: false,
        };
        let expected = "\
table t
  may go    2.00 KiB  a.parquet  (not listed since generation 1)
  stays     2.00 KiB  b.parquet  (younger than the retention)
  1 object of 2.00 KiB may go: run again with --delete
";
        assert_eq!(report_text("t", &report, Style::plain()), expected);
    }
}
