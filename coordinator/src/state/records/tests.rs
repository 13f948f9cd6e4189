use baler_common::model::fingerprint::Fingerprint;
use baler_common::model::id::JobId;
use baler_common::model::job::{ColumnMap, InputFile, JobSpec, RowMode};
use baler_common::model::object::{Identity, ObjectRef};
use baler_common::model::options::WriteOptions;
use baler_common::model::outcome::OutputFile;

use super::*;

fn plan() -> Plan {
    let job = |n: u32| JobSpec {
        job: JobId(n),
        table: "t".into(),
        key: "k".into(),
        mode: RowMode::Copy,
        inputs: vec![InputFile {
            object: ObjectRef::new("source", format!("t/k/{n}.parquet")),
            bytes: 1,
            rows: 1,
            identity: Identity::Unknown,
            first_chunk: 0,
            last_chunk: 0,
            columns: ColumnMap::Same,
        }],
        output_path: format!("k/chunks-{n:04}-{n:04}.parquet"),
        staging: ObjectRef::new("target", "t/_baler/staging"),
        schema: vec![1],
        options: WriteOptions::default(),
        memory_millibytes_per_row: 1,
        target_bytes: 1,
        key_values: Vec::new(),
    };
    let skip = |reason| Skip { key: "k".into(), file: "k/x.parquet".into(), bytes: 1, rows: 2, reason };
    Plan {
        compaction: CompactionId("01J".into()),
        table: "t".into(),
        source_location: "/data".into(),
        base_generation: 3,
        publish: PublishMode::InPlace,
        jobs: vec![job(0), job(1)],
        skips: vec![
            skip(SkipReason::AlreadyRight),
            skip(SkipReason::TooFewFiles { files: 1, min: 2 }),
            skip(SkipReason::OverBudget),
            skip(SkipReason::NotSelected),
        ],
        refusals: vec![Refusal { key: "bad".into(), failure: Failure::new(FailureClass::SchemaMismatch, "differs") }],
        keys: vec![KeyFigures { key: "k".into(), files: 2, bytes: 2, rows: 2 }],
        notes: vec!["keys are folders".into()],
    }
}

#[test]
fn a_plan_comes_back_as_it_was_stored() {
    assert_eq!(decode_plan(&encode_plan(&plan())), Ok(plan()));
}

#[test]
fn a_plan_that_contradicts_itself_is_refused_with_the_reason() {
    let why = |change: fn(&mut v1::Plan)| {
        let mut wire = v1::Plan::from(&plan());
        change(&mut wire);
        decode_plan(&framed::encode(Kind::Plan, &wire)).expect_err("the plan is wrong").message
    };
    assert_eq!(why(|plan| plan.jobs[1].job = 0), "job 0 stands at place 1");
    assert_eq!(why(|plan| plan.jobs.swap(0, 1)), "job 1 stands at place 0");
    assert_eq!(why(|plan| plan.publish = 9), "publish mode 9 is unknown");
    assert_eq!(why(|plan| plan.skips[0].reason = None), "a skip has no reason");
    assert_eq!(why(|plan| plan.refusals[0].failure = None), "a refusal has no failure");
    assert_eq!(why(|plan| plan.compaction = "a/j/b".into()), "\"a/j/b\" is not the name of a compaction");
    assert_eq!(why(|plan| plan.compaction.clear()), "message field compaction: is empty");
    assert_eq!(
        why(|plan| plan.jobs[1].output_path = "../x".into()),
        "message field jobs[1].output_path: \"../x\" has an empty, \".\" or \"..\" segment"
    );
}

#[test]
fn every_state_of_a_job_and_of_a_run_comes_back() {
    let attempt = Attempt { id: AttemptId([3; 8]), epoch: Epoch(2), worker: WorkerId("w".into()) };
    let fingerprint = Fingerprint { rows: 1, ordered: [1, 2], multiset: [3, 4] };
    let receipt = Receipt {
        outputs: vec![OutputFile {
            object: ObjectRef::new("target", "x.part"),
            path: "x.parquet".into(),
            bytes: 1,
            rows: 1,
            row_groups: 1,
            sha256: [1; 32],
            identity: Identity::Unknown,
            first_chunk: 0,
            last_chunk: 0,
            fingerprint,
        }],
        expected: fingerprint,
        stored: fingerprint,
        verified_by: "d".into(),
        input_rows: 1,
        elapsed_ms: 1,
    };
    let failure = Failure::new(FailureClass::Transient, "slow down").in_file("f");
    let jobs = [
        Job::pending(),
        Job { state: JobState::Leased, attempts: vec![attempt], failures: 1, ..Job::pending() },
        Job { state: JobState::Verified, receipt: Some(receipt), ..Job::pending() },
        Job { state: JobState::Quarantined, refutations: 2, failure: Some(failure), ..Job::pending() },
    ];
    for job in jobs {
        assert_eq!(decode_job("k", &encode_job(&job, 9)).unwrap(), job);
    }
    use RunState::*;
    for state in [Submitted, Planning, Running, Verifying, Prepared, Committed, Cleaning, Closed, Failed, Cancelled] {
        let run = Run {
            state,
            table: "t".into(),
            plan_path: "p".into(),
            plan_sha256: [7; 32],
            jobs: 4,
            commit_token: "c".into(),
            reason: "r".into(),
        };
        assert_eq!(decode_run("k", &encode_run(&run, 9)).unwrap(), run);
    }
}

#[test]
fn an_unknown_state_is_refused_and_never_taken_for_pending() {
    let unknown = state::JobRecord { state: 99, ..Default::default() }.encode_to_vec();
    let error = decode_job("1/r/x/j/00000000", &unknown).unwrap_err().to_string();
    assert_eq!(error, "state record 1/r/x/j/00000000 is not readable: state 99 is unknown");
    assert!(decode_job("k", &[]).is_err(), "an empty record has no state");
    assert!(decode_run("k", &[]).is_err());
}
