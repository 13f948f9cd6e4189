use std::time::Duration;

use super::*;
use crate::commit::tests::{Bench, run_of};
use crate::plan::PublishMode;

const DAY_MS: i64 = 24 * 3_600_000;
const EN: &[&str] = &["en/chunks-0000.parquet", "en/chunks-0001.parquet"];
const EN_OUT: &str = "en/chunks-0000-0001.parquet";

fn now_ms() -> i64 {
    std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().as_millis() as i64
}

/// A report by a caller's clock that is `days` ahead.
fn after(days: i64) -> SweepOptions {
    SweepOptions::new(now_ms() + days * DAY_MS)
}

/// Deletes at once, as far as anything but time allows it.
fn at_once() -> SweepOptions {
    SweepOptions { retention: Duration::ZERO, delete: true, ..SweepOptions::new(now_ms()) }
}

fn compacted(publish: PublishMode) -> Bench {
    let mut bench = Bench::new(publish);
    bench.write(&bench.source, EN[0], 3, "e0");
    bench.write(&bench.source, EN[1], 4, "e1");
    let prepared = bench.plan(&[run_of("en", EN, EN_OUT)]);
    bench.commit(&prepared).unwrap();
    bench
}

/// Two more generations, each by an appended file.
fn two_more(bench: &mut Bench) {
    for n in 2..4 {
        bench.write(&bench.source, &format!("en/chunks-{n:04}.parquet"), 1, "more");
        let prepared = bench.plan(&[]);
        bench.commit(&prepared).unwrap();
    }
}

fn paths(swept: &[Swept]) -> Vec<&str> {
    swept.iter().map(|swept| swept.path.as_str()).collect()
}

#[test]
fn superseded_sources_go_after_retention_and_two_generations_and_not_before() {
    let mut bench = compacted(PublishMode::InPlace);
    assert_eq!(paths(&sweep(&bench.target, &after(8)).unwrap().swept), Vec::<&str>::new());
    two_more(&mut bench);
    assert_eq!(paths(&sweep(&bench.target, &after(6)).unwrap().swept), Vec::<&str>::new());
    let report = sweep(&bench.target, &after(8)).unwrap();
    assert_eq!((paths(&report.swept), report.deleted), (EN.to_vec(), false));
    assert!(bench.target.head(EN[0]).unwrap().is_some());
    let report = sweep(&bench.target, &at_once()).unwrap();
    assert_eq!((paths(&report.swept), report.deleted), (EN.to_vec(), true));
    assert!(bench.target.head(EN[0]).unwrap().is_none());
    assert_eq!(bench.live().len(), 3);
    // The next compaction and its checks go on without them.
    let prepared = bench.plan(&[run_of("en", &[EN_OUT, "en/chunks-0002.parquet"], "en/chunks-0000-0002.parquet")]);
    assert_eq!(bench.commit(&prepared).unwrap().checks.unwrap().mismatches, Vec::<String>::new());
}

#[test]
fn a_new_object_under_a_superseded_name_is_left_alone() {
    let mut bench = compacted(PublishMode::InPlace);
    two_more(&mut bench);
    bench.write(&bench.source, EN[0], 9, "written anew");
    let report = sweep(&bench.target, &at_once()).unwrap();
    assert_eq!(paths(&report.swept), [EN[1]]);
    assert_eq!(bench.text(&bench.source, EN[0]).unwrap(), "rows=9;written anew");
}

#[test]
fn staging_of_the_last_day_and_names_that_are_not_ours_stay() {
    let bench = compacted(PublishMode::InPlace);
    let ours = "_baler/staging/00000001-000002-0123456789abcdef-0.part";
    bench.target.put(ours, b"attempt").unwrap();
    bench.target.put("_baler/staging/mine.part", b"not ours").unwrap();
    assert_eq!(paths(&sweep(&bench.target, &after(0)).unwrap().swept), Vec::<&str>::new());
    let report = sweep(&bench.target, &after(2)).unwrap();
    assert_eq!(paths(&report.swept), [ours]);
    assert!(report.left.iter().any(|left| left.path == "_baler/staging/mine.part"));
}

#[test]
fn a_table_whose_checks_were_not_finished_is_not_swept() {
    let bench = compacted(PublishMode::InPlace);
    std::fs::remove_file(bench.path(&bench.target, "_baler/checks/00000000000000000001.json")).unwrap();
    let failure = sweep(&bench.target, &at_once()).unwrap_err();
    assert!(failure.message.starts_with("the checks of generation 1 were not finished"), "{failure}");
}

#[test]
fn replaced_sources_go_and_their_outputs_stay_when_new_files_come() {
    let mut bench = compacted(PublishMode::Destination);
    assert_eq!(sweep_replaced(&bench.source, &bench.target, &after(6)).unwrap().swept, []);
    let report = sweep_replaced(&bench.source, &bench.target, &at_once()).unwrap();
    assert_eq!((paths(&report.swept), report.deleted), (EN.to_vec(), true));
    assert_eq!(bench.source.list("").unwrap(), []);
    bench.write(&bench.source, "en/chunks-0002.parquet", 1, "e2");
    let new = "en/chunks-0002-0002.parquet";
    let prepared = bench.plan(&[run_of("en", &["en/chunks-0002.parquet"], new)]);
    let committed = bench.commit(&prepared).unwrap();
    assert_eq!(committed.checks.unwrap().mismatches, Vec::<String>::new());
    assert_eq!(bench.glob(), [EN_OUT, new]);
}

#[test]
fn a_source_that_was_written_anew_or_whose_output_is_gone_is_not_replaced() {
    let bench = compacted(PublishMode::Destination);
    bench.write(&bench.source, EN[0], 9, "written anew");
    let report = sweep_replaced(&bench.source, &bench.target, &after(8)).unwrap();
    assert_eq!((paths(&report.swept), paths(&report.left)), (vec![EN[1]], vec![EN[0]]));
    std::fs::remove_file(bench.path(&bench.target, EN_OUT)).unwrap();
    let report = sweep_replaced(&bench.source, &bench.target, &after(8)).unwrap();
    assert_eq!(paths(&report.swept), Vec::<&str>::new());
}

#[test]
fn old_manifests_go_from_the_oldest_on_and_the_boundary_says_so() {
    let mut bench = compacted(PublishMode::InPlace);
    for n in 2..15 {
        bench.write(&bench.source, &format!("en/chunks-{n:04}.parquet"), 1, "more");
        let prepared = bench.plan(&[]);
        bench.commit(&prepared).unwrap();
    }
    assert_eq!(generation::numbers(&bench.target).unwrap().len(), 14);
    sweep(&bench.target, &at_once()).unwrap();
    assert_eq!(generation::numbers(&bench.target).unwrap().first(), Some(&4));
    assert_eq!(generation::boundary(&bench.target).unwrap(), 3);
}

#[test]
fn only_names_of_attempts_are_taken_for_attempts() {
    assert!(is_attempt("_baler/staging/x/00000001-000002-0123456789abcdef-12.part"));
    for name in
        ["a.part", "00000001-000002-0123456789abcdef-0.parquet", "0-0-0-0.part", "00000001-000002-012345678-0.part"]
    {
        assert!(!is_attempt(name), "{name}");
    }
}
