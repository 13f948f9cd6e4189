use std::path::PathBuf;

use baler_common::model::fingerprint::Fingerprint;
use baler_common::model::id::CompactionId;
use baler_common::model::job::{ColumnMap, InputFile};
use baler_common::model::object::ObjectRef;
use baler_common::model::options::WriteOptions;
use baler_common::model::outcome::{OutputFile, Receipt};
use baler_common::runtime::storage::{Source, Store};
use sha2::{Digest, Sha256};

use super::*;
use crate::plan::{KeyFigures, Refusal, Skip};
use crate::table::directory::files;
use crate::table::directory::generation::Why;
use crate::table::directory::revert::revert;

/// A source and a destination; in place they are the same folder. Files hold `rows=N` and anything.
pub(crate) struct Bench {
    _dir: tempfile::TempDir,
    pub(crate) source: DirectoryTable,
    pub(crate) target: DirectoryTable,
    publish: PublishMode,
    runs: u32,
}

/// A run of consecutive files and the output that it becomes.
pub(crate) struct RunOf<'a> {
    pub(crate) key: &'a str,
    pub(crate) files: &'a [&'a str],
    pub(crate) output: &'a str,
}

pub(crate) fn run_of<'a>(key: &'a str, files: &'a [&'a str], output: &'a str) -> RunOf<'a> {
    RunOf { key, files, output }
}

/// What one compaction is made of, to be changed by a test before it is committed.
pub(crate) struct Prepared {
    pub(crate) plan: Plan,
    pub(crate) files: Vec<PlannedFile>,
    pub(crate) verified: BTreeMap<JobId, VerifiedJob>,
    pub(crate) failed: BTreeMap<JobId, Failure>,
}

impl Bench {
    pub(crate) fn new(publish: PublishMode) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().to_str().unwrap();
        let source_root = Store::open("source", &format!("{root}/src"), true).unwrap();
        let target_root = match publish {
            PublishMode::Destination => Store::open("target", &format!("{root}/dst"), true).unwrap(),
            _ => Store::open("target", &format!("{root}/src"), true).unwrap(),
        };
        Self {
            source: DirectoryTable::new(source_root, "claims"),
            target: DirectoryTable::new(target_root, "claims"),
            _dir: dir,
            publish,
            runs: 0,
        }
    }

    pub(crate) fn path(&self, table: &DirectoryTable, path: &str) -> PathBuf {
        table.store().local_path().unwrap().join(table.absolute(path))
    }

    pub(crate) fn write(&self, table: &DirectoryTable, path: &str, rows: u64, tag: &str) {
        let at = self.path(table, path);
        std::fs::create_dir_all(at.parent().unwrap()).unwrap();
        std::fs::write(at, format!("rows={rows};{tag}")).unwrap();
    }

    pub(crate) fn text(&self, table: &DirectoryTable, path: &str) -> Option<String> {
        table.read(path).unwrap().map(|bytes| String::from_utf8(bytes.to_vec()).unwrap())
    }

    /// Data files that a recursive glob for Parquet finds in the destination.
    pub(crate) fn glob(&self) -> Vec<String> {
        let found = self.target.list("").unwrap().into_iter().map(|info| info.path);
        found.filter(|path| path.ends_with(".parquet")).collect()
    }

    /// Plans these runs over what the table holds now, as the planner would, and writes the outputs to staging.
    pub(crate) fn plan(&mut self, runs: &[RunOf<'_>]) -> Prepared {
        self.runs += 1;
        let newest = generation::newest(&self.target).unwrap();
        let files = self.planned_files(newest.as_ref());
        let mut jobs = Vec::new();
        let mut verified = BTreeMap::new();
        for (at, run) in runs.iter().enumerate() {
            let job = JobId(at as u32);
            let inputs: Vec<&PlannedFile> = run
                .files
                .iter()
                .map(|path| files.iter().find(|file| file.path == *path).unwrap_or_else(|| panic!("{path}")))
                .collect();
            let rows = inputs.iter().map(|file| file.rows).sum();
            let spec = self.spec(job, run, &inputs);
            verified.insert(job, self.staged(&spec, rows));
            jobs.push(spec);
        }
        let keys: BTreeSet<&str> = files.iter().map(|file| file.key.as_str()).collect();
        let plan = Plan {
            compaction: CompactionId(format!("compaction-{}", self.runs)),
            table: "claims".to_owned(),
            source_location: self.source.describe(""),
            base_generation: newest.map_or(0, |newest| newest.generation),
            publish: self.publish,
            jobs,
            skips: Vec::new(),
            refusals: Vec::new(),
            keys: keys.iter().map(|key| figures(key, &files)).collect(),
            notes: Vec::new(),
        };
        Prepared { plan, files, verified, failed: BTreeMap::new() }
    }

    fn planned_files(&self, newest: Option<&Generation>) -> Vec<PlannedFile> {
        if self.publish == PublishMode::Destination {
            return self.source.list("").unwrap().iter().map(|info| self.planned(&info.path, &info.path)).collect();
        }
        let Some(newest) = newest else {
            return self.glob().iter().map(|path| self.planned(path, path)).collect();
        };
        let mut found: Vec<PlannedFile> =
            newest.live.iter().map(|file| self.planned(&file.path, &file.object)).collect();
        for path in files::appended(&self.target, newest).unwrap() {
            found.push(self.planned(&path.path, &path.path));
        }
        found
    }

    fn planned(&self, path: &str, object: &str) -> PlannedFile {
        let info = self.source.head(object).unwrap().unwrap();
        let (key, name) = path.rsplit_once('/').unwrap_or(("all", path));
        let digits: Vec<u64> =
            name.trim_end_matches(".parquet").split('-').filter_map(|part| part.parse().ok()).collect();
        PlannedFile {
            key: key.to_owned(),
            path: path.to_owned(),
            object: object.to_owned(),
            bytes: info.bytes,
            rows: rows_of(&self.source.read(object).unwrap().unwrap()),
            identity: info.identity,
            first_chunk: *digits.first().unwrap(),
            last_chunk: *digits.last().unwrap(),
            settled: false,
        }
    }

    fn spec(&self, job: JobId, run: &RunOf<'_>, inputs: &[&PlannedFile]) -> JobSpec {
        JobSpec {
            job,
            table: "claims".to_owned(),
            key: run.key.to_owned(),
            mode: RowMode::Copy,
            inputs: inputs
                .iter()
                .map(|file| InputFile {
                    object: ObjectRef::new("source", self.source.absolute(&file.object)),
                    bytes: file.bytes,
                    rows: file.rows,
                    identity: file.identity.clone(),
                    first_chunk: file.first_chunk,
                    last_chunk: file.last_chunk,
                    columns: ColumnMap::Same,
                })
                .collect(),
            output_path: run.output.to_owned(),
            staging: ObjectRef::new("target", self.target.absolute("_baler/staging")),
            schema: Vec::new(),
            options: WriteOptions::default(),
            memory_millibytes_per_row: 1,
            target_bytes: 1 << 30,
            key_values: Vec::new(),
        }
    }

    /// The output as an attempt leaves it: the inputs' texts joined, under a name that no other run has.
    fn staged(&self, spec: &JobSpec, rows: u64) -> VerifiedJob {
        let tags: Vec<String> = spec
            .inputs
            .iter()
            .map(|input| {
                let path = self.source.relative(&input.object.path).unwrap();
                self.text(&self.source, path).unwrap().split_once(';').unwrap().1.to_owned()
            })
            .collect();
        let content = format!("rows={rows};{}", tags.join("+"));
        let digest: [u8; 32] = Sha256::digest(format!("{:?}", spec.inputs)).into();
        let staged = format!("_baler/staging/{:02}-{}.part", self.runs, spec.job);
        self.target.put(&staged, content.as_bytes()).unwrap();
        let info = self.target.head(&staged).unwrap().unwrap();
        let fingerprint = Fingerprint { rows, ordered: [rows, 1], multiset: [2, 3] };
        let output = OutputFile {
            object: ObjectRef::new("target", self.target.absolute(&staged)),
            path: spec.output_path.clone(),
            bytes: info.bytes,
            rows,
            row_groups: 1,
            sha256: Sha256::digest(content.as_bytes()).into(),
            identity: info.identity,
            first_chunk: spec.inputs.first().unwrap().first_chunk,
            last_chunk: spec.inputs.last().unwrap().last_chunk,
            fingerprint,
        };
        let receipt = Receipt {
            outputs: vec![output],
            expected: fingerprint,
            stored: fingerprint,
            verified_by: "polars-parquet 0.55.2".to_owned(),
            input_rows: rows,
            elapsed_ms: 1,
        };
        VerifiedJob { digest, receipt }
    }

    pub(crate) fn commit(&self, prepared: &Prepared) -> Result<Committed, CommitFailure> {
        self.commit_until(prepared, &mut |_| Ok(()))
    }

    fn commit_until(
        &self,
        prepared: &Prepared,
        record: &mut dyn FnMut(&Milestone) -> Result<(), Failure>,
    ) -> Result<Committed, CommitFailure> {
        commit(CommitRequest {
            plan: &prepared.plan,
            plan_digest: Sha256::digest(prepared.plan.compaction.0.as_bytes()).into(),
            files: &prepared.files,
            verified: &prepared.verified,
            failed: &prepared.failed,
            source: &self.source,
            target: &self.target,
            now_ms: 1_000,
            count_rows: &count_rows,
            record,
        })
    }

    /// Live paths of the newest generation with what the objects hold.
    pub(crate) fn live(&self) -> Vec<(String, String)> {
        let newest = generation::newest(&self.target).unwrap().unwrap();
        newest.live.iter().map(|file| (file.path.clone(), self.text(&self.target, &file.object).unwrap())).collect()
    }
}

fn figures(key: &str, files: &[PlannedFile]) -> KeyFigures {
    let of_key = || files.iter().filter(|file| file.key == key);
    KeyFigures {
        key: key.to_owned(),
        files: of_key().count() as u64,
        bytes: of_key().map(|file| file.bytes).sum(),
        rows: of_key().map(|file| file.rows).sum(),
    }
}

fn rows_of(content: &[u8]) -> u64 {
    let text = std::str::from_utf8(content).unwrap();
    text.strip_prefix("rows=").unwrap().split(';').next().unwrap().parse().unwrap()
}

pub(crate) fn count_rows(source: &Source) -> Result<u64, Failure> {
    Ok(rows_of(&source.read(0..source.bytes())?))
}

fn pair(path: &str, text: &str) -> (String, String) {
    (path.to_owned(), text.to_owned())
}

/// Four files of `all` and two of `en`.
fn two_keys(bench: &Bench) {
    for n in 0..4 {
        bench.write(&bench.source, &format!("all/chunks-{n:04}.parquet"), 5, &format!("a{n}"));
    }
    for n in 0..2 {
        bench.write(&bench.source, &format!("en/chunks-{n:04}.parquet"), 3, &format!("e{n}"));
    }
}

const ALL: &[&str] =
    &["all/chunks-0000.parquet", "all/chunks-0001.parquet", "all/chunks-0002.parquet", "all/chunks-0003.parquet"];
const EN: &[&str] = &["en/chunks-0000.parquet", "en/chunks-0001.parquet"];
const ALL_OUT: &str = "all/chunks-0000-0003.parquet";
const EN_OUT: &str = "en/chunks-0000-0001.parquet";

fn two_runs<'a>() -> [RunOf<'a>; 2] {
    [run_of("all", ALL, ALL_OUT), run_of("en", EN, EN_OUT)]
}

#[test]
fn a_destination_holds_the_outputs_and_nothing_else_and_all_checks_pass() {
    let mut bench = Bench::new(PublishMode::Destination);
    two_keys(&bench);
    let prepared = bench.plan(&two_runs());
    let committed = bench.commit(&prepared).unwrap();
    assert!(committed.created);
    assert_eq!(bench.glob(), [ALL_OUT, EN_OUT]);
    assert_eq!(bench.live(), [pair(ALL_OUT, "rows=20;a0+a1+a2+a3"), pair(EN_OUT, "rows=6;e0+e1")]);
    let checks = committed.checks.unwrap();
    assert_eq!(
        checks.to_string(),
        "1. listed files: 0 before, 0 removed, 2 added, 2 now\n\
         2. rows: 26 before, 26 now\n\
         3. rows of the version before: 26 recorded, 26 read from 6 files\n\
         4. Parquet files on disk: 2 = 2 listed + 0 awaiting cleanup"
    );
}

#[test]
fn what_a_killed_foreign_run_left_is_set_aside() {
    let mut bench = Bench::new(PublishMode::Destination);
    two_keys(&bench);
    for (path, text) in [
        ("all/chunks-0000-0001.parquet", "foreign whole"),
        (ALL_OUT, "half"),
        ("all/chunks-0002-0003.parquet.tmp", "tmp"),
        ("en/chunks-0000-0001.parquet", ""),
        ("gone/chunks-0000-0000.parquet", "gone"),
    ] {
        bench.target.put(path, text.as_bytes()).unwrap();
    }
    bench.target.put("all/notes.txt", b"mine").unwrap();
    let prepared = bench.plan(&two_runs());
    let committed = bench.commit(&prepared).unwrap();
    assert_eq!(bench.glob(), [ALL_OUT, EN_OUT]);
    assert_eq!(committed.checks.clone().unwrap().mismatches, Vec::<String>::new());
    assert_eq!(committed.checks.unwrap().files_awaiting, 5);
    let superseded = committed.generation.unwrap().superseded;
    assert!(superseded.iter().all(|entry| entry.why == Why::Foreign));
    let half = superseded.iter().find(|entry| entry.file.path == ALL_OUT).unwrap();
    assert_eq!(bench.text(&bench.target, &half.file.object).unwrap(), "half");
    assert_eq!(bench.text(&bench.target, "all/notes.txt").unwrap(), "mine");
    assert!(bench.target.head("all/chunks-0002-0003.parquet.tmp").unwrap().is_none());
}

#[test]
fn the_same_commit_again_makes_no_second_generation() {
    for publish in [PublishMode::Destination, PublishMode::InPlace, PublishMode::TornReads] {
        let mut bench = Bench::new(publish);
        two_keys(&bench);
        let prepared = bench.plan(&two_runs());
        let first = bench.commit(&prepared).unwrap();
        let again = bench.commit(&prepared).unwrap();
        assert_eq!(first.generation, again.generation, "{publish:?}");
        assert_eq!(generation::numbers(&bench.target).unwrap(), [1]);
        assert_eq!(again.checks.unwrap().mismatches, Vec::<String>::new());
    }
}

#[test]
fn a_later_run_that_adopts_every_output_makes_no_generation() {
    let mut bench = Bench::new(PublishMode::Destination);
    two_keys(&bench);
    let first = bench.plan(&two_runs());
    bench.commit(&first).unwrap();
    let second = bench.plan(&two_runs());
    let committed = bench.commit(&second).unwrap();
    assert!(!committed.created);
    assert_eq!(generation::numbers(&bench.target).unwrap(), [1]);
}

#[test]
fn a_commit_that_was_cut_short_after_any_move_is_finished_by_the_next_call() {
    for publish in [PublishMode::Destination, PublishMode::InPlace, PublishMode::TornReads] {
        for moves in 0..20 {
            let mut bench = Bench::new(publish);
            two_keys(&bench);
            if publish == PublishMode::Destination {
                bench.target.put(ALL_OUT, b"half").unwrap();
                bench.target.put("gone/chunks-0000-0000.parquet", b"gone").unwrap();
            }
            let prepared = bench.plan(&two_runs());
            // Up to the stored intention, then some of its moves.
            let stop = Failure::new(FailureClass::Cancelled, "cut short");
            let cut = bench.commit_until(&prepared, &mut |milestone| match milestone {
                Milestone::Prepared { .. } => Err(stop.clone()),
                Milestone::Committed { .. } => Ok(()),
            });
            assert_eq!(cut, Err(CommitFailure::Failed(stop.clone())));
            let mut publication = prepared::pending(&bench.target).unwrap().unwrap();
            let all = publication.steps.len();
            publication.steps.truncate(moves);
            // The moved files cannot be looked at before all moves are made; the moves count.
            let _ = publish::carry_out(&bench.target, &publication);
            let committed = bench.commit(&prepared).unwrap();
            assert_eq!(committed.checks.unwrap().mismatches, Vec::<String>::new(), "{publish:?} after {moves} moves");
            assert_eq!(bench.live(), [pair(ALL_OUT, "rows=20;a0+a1+a2+a3"), pair(EN_OUT, "rows=6;e0+e1")]);
            assert_eq!(generation::numbers(&bench.target).unwrap(), [1]);
            if moves > all {
                break;
            }
        }
    }
}

#[test]
fn in_place_no_glob_sees_a_row_twice_and_the_sources_stay() {
    let mut bench = Bench::new(PublishMode::InPlace);
    two_keys(&bench);
    let prepared = bench.plan(&two_runs()[..1]);
    let committed = bench.commit(&prepared).unwrap();
    assert_eq!(bench.glob(), [ALL, EN].concat());
    assert_eq!(
        bench.live(),
        [
            pair(ALL_OUT, "rows=20;a0+a1+a2+a3"),
            pair("en/chunks-0000.parquet", "rows=3;e0"),
            pair("en/chunks-0001.parquet", "rows=3;e1")
        ]
    );
    assert_eq!(
        committed.checks.unwrap().to_string(),
        "1. listed files: 6 before, 4 removed, 1 added, 3 now\n\
         2. rows: 26 before, 26 now\n\
         3. rows of the version before: 26 recorded, 26 read from 4 files\n\
         4. Parquet files on disk: 7 = 3 listed + 4 awaiting cleanup"
    );
}

#[test]
fn a_second_and_third_compaction_in_place_adopt_what_was_appended() {
    let mut bench = Bench::new(PublishMode::InPlace);
    two_keys(&bench);
    let first = bench.plan(&two_runs());
    bench.commit(&first).unwrap();
    bench.write(&bench.source, "en/chunks-0002.parquet", 7, "e2");
    let second = bench.plan(&[run_of("en", &[EN_OUT, "en/chunks-0002.parquet"], "en/chunks-0000-0002.parquet")]);
    let committed = bench.commit(&second).unwrap();
    assert_eq!(committed.checks.unwrap().mismatches, Vec::<String>::new());
    bench.write(&bench.source, "en/chunks-0003.parquet", 1, "e3");
    let third = bench.plan(&[]);
    let committed = bench.commit(&third).unwrap();
    assert!(committed.created);
    assert_eq!(committed.checks.unwrap().mismatches, Vec::<String>::new());
    assert_eq!(
        bench.live(),
        [
            pair(ALL_OUT, "rows=20;a0+a1+a2+a3"),
            pair("en/chunks-0000-0002.parquet", "rows=13;e0+e1+e2"),
            pair("en/chunks-0003.parquet", "rows=1;e3")
        ]
    );
}

#[test]
fn a_file_that_is_appended_during_the_compaction_is_no_mismatch_and_is_adopted_later() {
    let mut bench = Bench::new(PublishMode::InPlace);
    two_keys(&bench);
    let prepared = bench.plan(&two_runs());
    bench.write(&bench.source, "en/chunks-0002.parquet", 7, "e2");
    let checks = bench.commit(&prepared).unwrap().checks.unwrap();
    assert_eq!((checks.files_appended, checks.mismatches), (1, Vec::new()));
    let newest = generation::newest(&bench.target).unwrap().unwrap();
    let appended = files::appended(&bench.target, &newest).unwrap();
    assert_eq!(appended.iter().map(|file| file.path.as_str()).collect::<Vec<_>>(), ["en/chunks-0002.parquet"]);
}

#[test]
fn torn_reads_leave_the_outputs_under_plain_names_and_set_the_sources_aside() {
    let mut bench = Bench::new(PublishMode::TornReads);
    two_keys(&bench);
    let prepared = bench.plan(&two_runs());
    let committed = bench.commit(&prepared).unwrap();
    assert_eq!(bench.glob(), [ALL_OUT, EN_OUT]);
    let checks = committed.checks.unwrap();
    assert_eq!((checks.files_awaiting, checks.mismatches), (6, Vec::new()));
}

#[test]
fn a_key_whose_input_changed_is_left_as_it_was_and_the_others_are_committed() {
    for publish in [PublishMode::Destination, PublishMode::InPlace, PublishMode::TornReads] {
        let mut bench = Bench::new(publish);
        two_keys(&bench);
        let prepared = bench.plan(&two_runs());
        bench.write(&bench.source, "en/chunks-0001.parquet", 3, "another");
        let committed = bench.commit(&prepared).unwrap();
        assert_eq!(committed.kept.len(), 1, "{publish:?}");
        assert_eq!(committed.kept[0].key, "en");
        assert!(committed.kept[0].reason.starts_with("INPUT_CHANGED: "), "{}", committed.kept[0].reason);
        let newest = committed.generation.unwrap();
        assert_eq!(newest.of_key("all").count(), 1);
        assert!(newest.of_key("en").all(|file| file.proof.is_none()));
        assert!(bench.target.head(EN_OUT).unwrap().is_none());
    }
}

#[test]
fn a_key_with_a_failed_job_keeps_what_an_earlier_generation_had() {
    let mut bench = Bench::new(PublishMode::Destination);
    two_keys(&bench);
    let first = bench.plan(&two_runs());
    bench.commit(&first).unwrap();
    bench.write(&bench.source, "en/chunks-0002.parquet", 7, "e2");
    bench.write(&bench.source, "all/chunks-0004.parquet", 7, "a4");
    let en: Vec<&str> = EN.iter().copied().chain(["en/chunks-0002.parquet"]).collect();
    let all: Vec<&str> = ALL.iter().copied().chain(["all/chunks-0004.parquet"]).collect();
    let mut second = bench
        .plan(&[run_of("all", &all, "all/chunks-0000-0004.parquet"), run_of("en", &en, "en/chunks-0000-0002.parquet")]);
    second.verified.remove(&JobId(1));
    second.failed.insert(JobId(1), Failure::new(FailureClass::InputCorrupt, "page 3 is cut short"));
    let committed = bench.commit(&second).unwrap();
    assert_eq!(committed.kept[0].reason, "INPUT_CORRUPT: page 3 is cut short");
    assert_eq!(bench.glob(), ["all/chunks-0000-0004.parquet", EN_OUT]);
    assert_eq!(committed.checks.unwrap().mismatches, Vec::<String>::new());
    let set_aside = &committed.generation.unwrap().superseded;
    assert_eq!(set_aside.len(), 1);
    assert_eq!((set_aside[0].file.path.as_str(), set_aside[0].why), (ALL_OUT, Why::Replaced));
}

#[test]
fn a_refused_key_is_not_published_and_is_said() {
    let mut bench = Bench::new(PublishMode::Destination);
    two_keys(&bench);
    let mut prepared = bench.plan(&two_runs()[..1]);
    let failure = Failure::new(FailureClass::SchemaMismatch, "two schemas");
    prepared.plan.refusals.push(Refusal { key: "en".to_owned(), failure });
    let committed = bench.commit(&prepared).unwrap();
    assert_eq!(committed.kept, [KeptKey { key: "en".into(), reason: "SCHEMA_MISMATCH: two schemas".into() }]);
    assert_eq!(bench.glob(), [ALL_OUT]);
    assert_eq!(committed.checks.unwrap().mismatches, Vec::<String>::new());
}

#[test]
fn a_key_of_which_only_a_part_was_planned_is_not_published_to_a_destination() {
    let mut bench = Bench::new(PublishMode::Destination);
    two_keys(&bench);
    let mut prepared = bench.plan(&two_runs());
    let skip = |file: &str| Skip {
        key: "en".to_owned(),
        file: file.to_owned(),
        bytes: 1,
        rows: 3,
        reason: SkipReason::OverBudget,
    };
    prepared.plan.skips.push(skip(EN[1]));
    let committed = bench.commit(&prepared).unwrap();
    assert_eq!(committed.kept[0].key, "en");
    assert_eq!(bench.glob(), [ALL_OUT]);
}

#[test]
fn a_key_that_is_gone_from_the_source_leaves_the_destination() {
    let mut bench = Bench::new(PublishMode::Destination);
    two_keys(&bench);
    let first = bench.plan(&two_runs());
    bench.commit(&first).unwrap();
    for path in EN {
        std::fs::remove_file(bench.path(&bench.source, path)).unwrap();
    }
    let second = bench.plan(&two_runs()[..1]);
    let committed = bench.commit(&second).unwrap();
    assert_eq!(bench.glob(), [ALL_OUT]);
    let checks = committed.checks.unwrap();
    assert_eq!((checks.files_before, checks.files_removed, checks.files_added, checks.files_after), (2, 1, 0, 1));
    assert_eq!(checks.mismatches, Vec::<String>::new());
}

#[test]
fn an_empty_source_sets_nothing_aside() {
    let mut bench = Bench::new(PublishMode::Destination);
    two_keys(&bench);
    let first = bench.plan(&two_runs());
    bench.commit(&first).unwrap();
    for path in EN.iter().chain(ALL) {
        std::fs::remove_file(bench.path(&bench.source, path)).unwrap();
    }
    let second = bench.plan(&[]);
    let CommitFailure::Failed(failure) = bench.commit(&second).unwrap_err() else { panic!("moved") };
    assert!(failure.message.starts_with("the source holds no file any more"), "{failure}");
    assert_eq!(bench.glob(), [ALL_OUT, EN_OUT]);
}

#[test]
fn a_receipt_that_does_not_prove_its_rows_is_not_published() {
    let mut bench = Bench::new(PublishMode::Destination);
    two_keys(&bench);
    let mut prepared = bench.plan(&two_runs());
    prepared.verified.get_mut(&JobId(0)).unwrap().receipt.stored.ordered[0] ^= 1;
    let committed = bench.commit(&prepared).unwrap();
    assert_eq!(committed.kept[0].key, "all");
    assert!(committed.kept[0].reason.starts_with("FINGERPRINT_MISMATCH: "));
    assert_eq!(bench.glob(), [EN_OUT]);
}

#[test]
fn a_plan_of_an_older_generation_is_refused() {
    let mut bench = Bench::new(PublishMode::InPlace);
    two_keys(&bench);
    let first = bench.plan(&two_runs());
    let second = bench.plan(&two_runs());
    bench.commit(&first).unwrap();
    assert_eq!(bench.commit(&second), Err(CommitFailure::Moved { planned: 0, found: 1 }));
}

#[test]
fn a_wrong_row_count_fails_the_checks_and_names_the_file() {
    let mut bench = Bench::new(PublishMode::Destination);
    two_keys(&bench);
    let prepared = bench.plan(&two_runs());
    let committed = commit(CommitRequest {
        plan: &prepared.plan,
        plan_digest: [7; 32],
        files: &prepared.files,
        verified: &prepared.verified,
        failed: &prepared.failed,
        source: &bench.source,
        target: &bench.target,
        now_ms: 1_000,
        count_rows: &|source| Ok(count_rows(source)? - u64::from(source.name().ends_with(ALL_OUT))),
        record: &mut |_| Ok(()),
    })
    .unwrap();
    let reason = committed.stop_reason().unwrap();
    assert!(reason.contains("all/chunks-0000-0003.parquet has 19 rows, 20 recorded"), "{reason}");
    assert!(reason.contains("6 rows now, 26 before"), "{reason}");
}

#[test]
fn a_lost_output_before_the_commit_leaves_the_table_as_it_was() {
    for publish in [PublishMode::Destination, PublishMode::InPlace, PublishMode::TornReads] {
        let mut bench = Bench::new(publish);
        two_keys(&bench);
        let before = bench.glob();
        let prepared = bench.plan(&two_runs());
        for n in 0..2 {
            std::fs::remove_file(bench.path(&bench.target, &format!("_baler/staging/01-{n}.part"))).unwrap();
        }
        assert!(bench.commit(&prepared).is_err());
        assert_eq!(bench.glob(), before, "{publish:?}");
        assert_eq!(generation::newest(&bench.target).unwrap(), None);
    }
}

#[test]
fn revert_brings_back_the_generation_before_and_revert_again_the_one_after() {
    for publish in [PublishMode::Destination, PublishMode::InPlace, PublishMode::TornReads] {
        let mut bench = Bench::new(publish);
        two_keys(&bench);
        let first = bench.plan(&two_runs());
        bench.commit(&first).unwrap();
        let before = bench.live();
        bench.write(&bench.source, "en/chunks-0002.parquet", 7, "e2");
        let runs = match publish {
            PublishMode::Destination => [EN[0], EN[1], "en/chunks-0002.parquet"].to_vec(),
            _ => [EN_OUT, "en/chunks-0002.parquet"].to_vec(),
        };
        let mut second_runs = vec![run_of("en", &runs, "en/chunks-0000-0002.parquet")];
        if publish == PublishMode::Destination {
            second_runs.insert(0, run_of("all", ALL, ALL_OUT));
        }
        let second = bench.plan(&second_runs);
        bench.commit(&second).unwrap();
        let after = bench.live();
        assert_ne!(before, after);
        let reverted = revert(&bench.target, 2_000, &count_rows).unwrap();
        assert_eq!(reverted.checks.mismatches, Vec::<String>::new(), "{publish:?}");
        assert_eq!(reverted.generation.generation, 3);
        let mut expected = before.clone();
        if publish != PublishMode::Destination {
            // The appended file was adopted by the generation that was undone: it is its own file again.
            expected.push(pair("en/chunks-0002.parquet", "rows=7;e2"));
        }
        assert_eq!(bench.live(), expected, "{publish:?}");
        let again = revert(&bench.target, 3_000, &count_rows).unwrap();
        assert_eq!(again.checks.mismatches, Vec::<String>::new(), "{publish:?}");
        assert_eq!(bench.live(), after, "{publish:?}");
    }
}
