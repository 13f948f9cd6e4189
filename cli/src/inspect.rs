//! Commands that only look: `status`, `history`, `files`, `fsck`.

use baler_coordinator::table::directory::checks;
use baler_coordinator::table::directory::files::{self, HistoryLine, ListFormat};
use baler_coordinator::table::directory::fsck::{Findings, fsck as look_for_faults};
use baler_coordinator::table::directory::generation::{Figures, MadeBy};
use baler_coordinator::table::directory::status::{Status, status as table_status};
use serde_json::{Value, json};

use crate::args::sizes::show_size;
use crate::args::{FilesArgs, FilesFormat, FsckArgs, LocationArgs, StatusArgs};
use crate::cluster;
use crate::compaction::runtime;
use crate::show::{Style, count, counted, moment};
use crate::tables::{TableState, look, open_tables};
use baler_coordinator::compaction::CompactError;
use baler_coordinator::compaction::now_ms;

/// Size of an output that small files are measured by.
const TARGET_BYTES: u64 = 500 << 20;

/// `baler status`. True unless a table is stopped.
pub fn status(args: &StatusArgs) -> Result<bool, CompactError> {
    let Some(location) = &args.location else { return cluster::list(&args.cluster, args.json) };
    let runtime = runtime()?;
    let mut well = true;
    let mut values = Vec::new();
    for named in open_tables(location)? {
        let found = table_status(&named.table, TARGET_BYTES, now_ms())?;
        let state = runtime.block_on(look(&named.table))?;
        well &= !matches!(state, TableState::Stopped(_));
        if args.json {
            values.push(status_json(&named.name, &found, &state));
        } else {
            print!("{}", status_text(&named.name, &found, &state, Style::of_standard_output()));
        }
    }
    if args.json {
        println!("{}", json!({ "tables": values }));
    }
    Ok(well)
}

fn status_text(name: &str, status: &Status, state: &TableState, style: Style) -> String {
    let Figures { files, bytes, rows } = status.live;
    let mut lines = vec![style.strong(format!("table {name}"))];
    match status.generation {
        0 => lines.push(format!("not compacted yet: {} of {}", counted(files, "file", "files"), show_size(bytes))),
        number => lines.push(format!(
            "generation {number}: {} of {}, {}",
            counted(files, "file", "files"),
            show_size(bytes),
            counted(rows, "row", "rows")
        )),
    }
    lines.push(format!(
        "small files: {} of {} (below {})",
        count(status.small_files),
        show_size(status.small_bytes),
        show_size(TARGET_BYTES / 4)
    ));
    lines.push(format!(
        "awaiting cleanup: {} of {}",
        counted(status.awaiting_files, "file", "files"),
        show_size(status.awaiting_bytes)
    ));
    lines.push(format!(
        "arrived: {} in the last day, {} in the last week ({:.2} files an hour); {} of {} not in the newest generation",
        count(status.arrived_last_day),
        count(status.arrived_last_week),
        status.arrivals_per_hour(),
        count(status.appended_files),
        show_size(status.appended_bytes)
    ));
    match (status.generation, status.checked) {
        (0, _) => {}
        (_, Some(true)) => lines.push(style.good("the four checks of the newest generation hold")),
        (_, Some(false)) => lines.push(style.bad("A CHECK OF THE NEWEST GENERATION DOES NOT HOLD")),
        (_, None) => lines.push("the checks of the newest generation were not finished: compact again".to_owned()),
    }
    if status.commit_pending {
        lines.push("a commit was begun and not finished: the next compaction finishes it".to_owned());
    }
    match state {
        TableState::Idle => {}
        TableState::Held => lines.push("another process is working on it now".to_owned()),
        TableState::Stopped(reason) => {
            lines.push(style.bad(format!("STOPPED: {reason}; lift it with `baler release --reason …`")));
        }
    }
    lines.join("\n  ") + "\n"
}

fn status_json(name: &str, status: &Status, state: &TableState) -> Value {
    let (held, stopped) = match state {
        TableState::Idle => (false, None),
        TableState::Held => (true, None),
        TableState::Stopped(reason) => (false, Some(reason)),
    };
    json!({
        "table": name,
        "generation": status.generation,
        "files": status.live.files,
        "bytes": status.live.bytes,
        "rows": status.live.rows,
        "small": {"files": status.small_files, "bytes": status.small_bytes},
        "awaiting_cleanup": {"files": status.awaiting_files, "bytes": status.awaiting_bytes},
        "appended": {"files": status.appended_files, "bytes": status.appended_bytes},
        "arrived": {
            "last_day": status.arrived_last_day, "last_week": status.arrived_last_week,
            "per_hour": status.arrivals_per_hour(),
        },
        "checked": status.checked,
        "commit_pending": status.commit_pending,
        "held": held,
        "stopped": stopped,
    })
}

/// `baler history`.
pub fn history(args: &LocationArgs) -> Result<bool, CompactError> {
    let mut values = Vec::new();
    for named in open_tables(&args.location)? {
        let lines = files::history(&named.table)?;
        if args.json {
            values.push(json!({
                "table": named.name,
                "generations": lines.iter().map(history_json).collect::<Vec<_>>(),
            }));
            continue;
        }
        println!("{}", Style::of_standard_output().strong(format!("table {}", named.name)));
        if lines.is_empty() {
            println!("  no generation: Baler has committed nothing here");
        }
        lines.iter().for_each(|line| println!("  {}", history_text(line)));
    }
    if args.json {
        println!("{}", json!({ "tables": values }));
    }
    Ok(true)
}

fn made_by(made_by: MadeBy) -> String {
    match made_by {
        MadeBy::Compaction => "compaction".to_owned(),
        MadeBy::Revert { undone } => format!("revert of {undone}"),
        MadeBy::Swap => "swap".to_owned(),
    }
}

fn history_text(line: &HistoryLine) -> String {
    let checked = match line.checked {
        Some(true) => "checks hold",
        Some(false) => "A CHECK DOES NOT HOLD",
        None => "checks not finished",
    };
    let Figures { files, bytes, rows } = line.figures;
    format!(
        "{:>6}  {}  {:<12}  {} (+{} -{}), {}, {}, {checked}",
        line.generation,
        moment(line.created_ms),
        made_by(line.made_by),
        counted(files, "file", "files"),
        line.added,
        line.removed,
        counted(rows, "row", "rows"),
        show_size(bytes),
    )
}

fn history_json(line: &HistoryLine) -> Value {
    json!({
        "generation": line.generation,
        "made_by": made_by(line.made_by),
        "compaction": line.compaction,
        "created_ms": line.created_ms,
        "files": line.figures.files,
        "bytes": line.figures.bytes,
        "rows": line.figures.rows,
        "added": line.added,
        "removed": line.removed,
        "checks_hold": line.checked,
    })
}

/// `baler files`. A table without a generation has no list: its files are what a listing shows.
pub fn files_of(args: &FilesArgs) -> Result<bool, CompactError> {
    let format = match args.format {
        FilesFormat::List => ListFormat::List,
        FilesFormat::Json => ListFormat::Json,
        FilesFormat::Sql => ListFormat::Sql,
    };
    let mut all = true;
    for named in open_tables(&args.location)? {
        match files::live(&named.table, args.generation)? {
            Some(generation) => print!("{}", files::render(&named.table, &generation, format)),
            None => {
                all = false;
                eprintln!("error: table {}: it has no generation: compact it first", named.name);
            }
        }
    }
    Ok(all)
}

/// `baler fsck`. True when nothing is wrong.
pub fn fsck(args: &FsckArgs) -> Result<bool, CompactError> {
    let Some(location) = &args.location else { return cluster::check(&args.cluster, args.json) };
    let mut well = true;
    let mut values = Vec::new();
    for named in open_tables(location)? {
        let found = look_for_faults(&named.table, args.full, &checks::rows_in_footer)?;
        well &= found.faults.is_empty();
        if args.json {
            values.push(json!({
                "table": named.name,
                "generations": found.generations,
                "files": found.files,
                "staged": {"files": found.staged_objects, "bytes": found.staged_bytes},
                "notes": found.notes,
                "faults": found.faults,
            }));
        } else {
            print!("{}", fsck_text(&named.name, &found, Style::of_standard_output()));
        }
    }
    if args.json {
        println!("{}", json!({"clean": well, "tables": values}));
    }
    Ok(well)
}

fn fsck_text(name: &str, found: &Findings, style: Style) -> String {
    let mut lines = vec![
        style.strong(format!("table {name}")),
        format!(
            "{}, {}, {} in staging ({})",
            counted(found.generations, "generation", "generations"),
            counted(found.files, "live file", "live files"),
            counted(found.staged_objects, "object", "objects"),
            show_size(found.staged_bytes)
        ),
    ];
    lines.extend(found.notes.iter().map(|note| format!("note: {note}")));
    lines.extend(found.faults.iter().map(|fault| style.bad(format!("fault: {fault}"))));
    if found.faults.is_empty() {
        lines.push(style.good("no fault was found"));
    }
    lines.join("\n  ") + "\n"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_status_says_what_a_person_wants_to_know() {
        let status = Status {
            generation: 3,
            live: Figures { files: 2, bytes: 600 << 20, rows: 2_999 },
            small_files: 1,
            small_bytes: 100 << 20,
            awaiting_files: 6,
            awaiting_bytes: 90 << 20,
            arrived_last_day: 24,
            arrived_last_week: 168,
            checked: Some(true),
            ..Status::default()
        };
        let expected = "\
table pageviews
  generation 3: 2 files of 600 MiB, 2,999 rows
  small files: 1 of 100 MiB (below 125 MiB)
  awaiting cleanup: 6 files of 90.0 MiB
  arrived: 24 in the last day, 168 in the last week (1.00 files an hour); 0 of 0 B not in the newest generation
  the four checks of the newest generation hold
  STOPPED: rows differ; lift it with `baler release --reason …`
";
        let state = TableState::Stopped("rows differ".into());
        assert_eq!(status_text("pageviews", &status, &state, Style::plain()), expected);
        assert_eq!(status_json("pageviews", &status, &state)["stopped"], "rows differ");
    }

    #[test]
    fn a_generation_is_one_line() {
        let line = HistoryLine {
            generation: 2,
            made_by: MadeBy::Revert { undone: 1 },
            compaction: "c".into(),
            created_ms: 0,
            figures: Figures { files: 1, bytes: 1_024, rows: 2_999 },
            added: 6,
            removed: 1,
            checked: Some(false),
        };
        assert_eq!(
            history_text(&line),
            "     2  1970-01-01 00:00:00Z  revert of 1   1 file (+6 -1), 2,999 rows, 1.00 KiB, A CHECK DOES NOT HOLD"
        );
    }
}
