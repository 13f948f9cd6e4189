use baler_common::model::error::FailureClass;

use super::*;
use crate::commit::tests::{Bench, count_rows, run_of};
use crate::plan::PublishMode;
use crate::table::directory::files::{self, ListFormat};
use crate::table::directory::generation::{Figures, MadeBy};
use crate::table::directory::status::status;

const EN: &[&str] = &["en/chunks-0000.parquet", "en/chunks-0001.parquet"];
const EN_OUT: &str = "en/chunks-0000-0001.parquet";

fn compacted(publish: PublishMode) -> Bench {
    let mut bench = Bench::new(publish);
    bench.write(&bench.source, EN[0], 3, "e0");
    bench.write(&bench.source, EN[1], 4, "it's");
    let prepared = bench.plan(&[run_of("en", EN, EN_OUT)]);
    bench.commit(&prepared).unwrap();
    bench
}

#[test]
fn a_whole_table_has_no_fault() {
    let bench = compacted(PublishMode::Destination);
    let found = fsck(&bench.target, true, &count_rows).unwrap();
    assert_eq!((found.generations, found.files, found.faults, found.notes), (1, 1, vec![], vec![]));
}

#[test]
fn damage_that_keeps_the_size_is_found_by_the_digest_and_a_missing_file_by_its_name() {
    let bench = compacted(PublishMode::Destination);
    let at = bench.path(&bench.target, EN_OUT);
    let text = std::fs::read_to_string(&at).unwrap();
    std::fs::write(&at, text.replace("e0", "e1")).unwrap();
    let found = fsck(&bench.target, true, &count_rows).unwrap();
    assert!(found.faults.iter().any(|fault| fault.contains("has SHA-256")), "{:?}", found.faults);
    std::fs::remove_file(&at).unwrap();
    let found = fsck(&bench.target, false, &count_rows).unwrap();
    assert!(found.faults.contains(&format!("{} is gone", at.display())), "{:?}", found.faults);
}

#[test]
fn a_damaged_manifest_is_a_fault_and_no_error() {
    let bench = compacted(PublishMode::InPlace);
    bench.target.put(&generation::path_of(1), b"{}").unwrap();
    let found = fsck(&bench.target, true, &count_rows).unwrap();
    assert_eq!((found.generations, found.faults.len()), (0, 1));
    assert!(found.faults[0].contains("it has no body"), "{}", found.faults[0]);
}

#[test]
fn verify_compares_the_rows_and_the_bytes_with_what_was_proved() {
    let bench = compacted(PublishMode::InPlace);
    let right = Fingerprint { rows: 7, ordered: [7, 1], multiset: [2, 3] };
    let verified = verify(&bench.target, &|_| Ok(right), &mut |_| {}).unwrap();
    assert_eq!((verified.len(), verified[0].on_record, verified[0].faults.len()), (1, true, 0));
    let wrong = Fingerprint { multiset: [2, 4], ..right };
    let verified = verify(&bench.target, &|_| Ok(wrong), &mut |_| {}).unwrap();
    assert_eq!(verified[0].faults, [format!("its rows are {wrong}, {right} recorded")]);
    let corrupt = Failure::new(FailureClass::InputCorrupt, "page 1 is cut short");
    let verified = verify(&bench.target, &|_| Err(corrupt.clone()), &mut |_| {}).unwrap();
    assert_eq!(verified[0].faults, ["INPUT_CORRUPT: page 1 is cut short"]);
}

#[test]
fn status_counts_what_is_live_small_waiting_and_new() {
    let bench = compacted(PublishMode::InPlace);
    bench.write(&bench.source, "en/chunks-0002.parquet", 1, "new");
    let now = bench.target.head("en/chunks-0002.parquet").unwrap().unwrap().modified_ms;
    let found = status(&bench.target, 1_000, now).unwrap();
    assert_eq!((found.generation, found.live.files, found.live.rows), (1, 1, 7));
    assert_eq!((found.small_files, found.awaiting_files, found.appended_files), (2, 2, 1));
    assert_eq!((found.arrived_last_day, found.checked, found.commit_pending), (3, Some(true), false));
    let later = status(&bench.target, 1_000, now + 8 * 24 * 3_600_000).unwrap();
    assert_eq!(later.arrived_last_week, 0);
}

#[test]
fn the_live_list_is_printed_for_people_machines_and_queries() {
    let bench = compacted(PublishMode::Destination);
    let newest = files::live(&bench.target, None).unwrap().unwrap();
    let location = bench.target.describe(EN_OUT);
    assert_eq!(files::render(&bench.target, &newest, ListFormat::List), format!("{location}\n"));
    assert_eq!(
        files::render(&bench.target, &newest, ListFormat::Sql),
        format!("SELECT * FROM read_parquet(['{location}']);\n")
    );
    let json: serde_json::Value =
        serde_json::from_str(&files::render(&bench.target, &newest, ListFormat::Json)).unwrap();
    assert_eq!((&json["generation"], &json["files"][0]["rows"]), (&1.into(), &7.into()));
}

#[test]
fn history_has_a_line_per_generation() {
    let mut bench = compacted(PublishMode::InPlace);
    bench.write(&bench.source, "en/chunks-0002.parquet", 1, "new");
    let prepared = bench.plan(&[]);
    bench.commit(&prepared).unwrap();
    let lines = files::history(&bench.target).unwrap();
    let shown: Vec<(u64, MadeBy, u64, u64)> =
        lines.iter().map(|line| (line.generation, line.made_by, line.figures.files, line.figures.rows)).collect();
    assert_eq!(shown, [(1, MadeBy::Compaction, 1, 7), (2, MadeBy::Compaction, 2, 8)]);
    assert_eq!(lines[1].figures, Figures { files: 2, bytes: lines[1].figures.bytes, rows: 8 });
}
