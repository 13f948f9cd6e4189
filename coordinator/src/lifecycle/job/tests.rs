use baler_common::model::fingerprint::Fingerprint;
use baler_common::model::id::JobId;
use baler_common::model::job::{ColumnMap, InputFile};
use baler_common::model::object::{Identity, ObjectRef};
use baler_common::model::options::WriteOptions;
use baler_common::model::outcome::OutputFile;

use super::*;

fn spec() -> JobSpec {
    JobSpec {
        job: JobId(0),
        table: "t".into(),
        key: "k".into(),
        mode: RowMode::Copy,
        inputs: vec![InputFile {
            object: ObjectRef::new("source", "k/chunks-0000.parquet"),
            bytes: 1,
            rows: 10,
            identity: Identity::Unknown,
            first_chunk: 0,
            last_chunk: 0,
            columns: ColumnMap::Same,
        }],
        output_path: "k/chunks-0000-0000.parquet".into(),
        staging: ObjectRef::new("target", "_baler/staging"),
        schema: Vec::new(),
        options: WriteOptions::default(),
        memory_millibytes_per_row: 1,
        target_bytes: 1,
        key_values: Vec::new(),
    }
}

fn receipt(rows: u64, stored: u64) -> Receipt {
    let fingerprint = |value| Fingerprint { rows, ordered: [value; 2], multiset: [value; 2] };
    Receipt {
        outputs: vec![OutputFile {
            object: ObjectRef::new("target", "_baler/staging/x.part"),
            path: "k/chunks-0000-0000.parquet".into(),
            bytes: 1,
            rows,
            row_groups: 1,
            sha256: [0; 32],
            identity: Identity::Unknown,
            first_chunk: 0,
            last_chunk: 0,
            fingerprint: fingerprint(stored),
        }],
        expected: fingerprint(1),
        stored: fingerprint(stored),
        verified_by: "test".into(),
        input_rows: 10,
        elapsed_ms: 0,
    }
}

fn attempt(id: u8) -> Attempt {
    Attempt { id: AttemptId([id; 8]), epoch: Epoch(1), worker: WorkerId("w".into()) }
}

fn lease(id: u8) -> JobEvent {
    JobEvent::Lease(attempt(id))
}

fn fail(id: u8, class: FailureClass) -> JobEvent {
    JobEvent::Fail(AttemptId([id; 8]), Failure::new(class, "x"))
}

fn complete(id: u8, rows: u64, stored: u64) -> JobEvent {
    JobEvent::Complete(AttemptId([id; 8]), receipt(rows, stored))
}

/// Plays the events; a rejected one leaves the job as it was.
fn play(events: &[JobEvent]) -> Job {
    events.iter().fold(Job::pending(), |job, event| {
        let next = step(&spec(), &job, event, Limits::default()).unwrap_or(job);
        check(&next).expect("the invariants hold after every step");
        next
    })
}

#[test]
fn equal_fingerprints_and_planned_rows_verify() {
    assert_eq!(play(&[lease(1), complete(1, 10, 1)]).state, JobState::Verified);
}

#[test]
fn a_refuted_job_is_tried_once_more_and_then_quarantined() {
    let once = play(&[lease(1), complete(1, 10, 2)]);
    assert_eq!((once.state, once.refutations), (JobState::Pending, 1));
    let twice = play(&[lease(1), complete(1, 10, 2), lease(2), complete(2, 10, 3)]);
    assert_eq!(twice.state, JobState::Quarantined);
    assert_eq!(twice.failure.unwrap().class, FailureClass::FingerprintMismatch);
}

#[test]
fn rows_that_the_plan_does_not_know_refute_even_equal_fingerprints() {
    assert_eq!(play(&[lease(1), complete(1, 9, 1)]).refutations, 1);
}

#[test]
fn a_late_report_from_a_lost_worker_is_refused() {
    let lost = play(&[lease(1), JobEvent::LeaseLost(AttemptId([1; 8])), lease(2)]);
    let late = step(&spec(), &lost, &complete(1, 10, 1), Limits::default());
    assert_eq!(late, Err(Rejected::UnknownAttempt(AttemptId([1; 8]))));
}

#[test]
fn a_terminal_failure_is_not_retried_and_a_transient_one_is_four_times() {
    assert_eq!(play(&[lease(1), fail(1, FailureClass::InputCorrupt)]).state, JobState::Quarantined);
    let mut events = Vec::new();
    for id in 1..=3 {
        events.extend([lease(id), fail(id, FailureClass::Transient)]);
    }
    assert_eq!(play(&events).state, JobState::Pending);
    events.extend([lease(4), fail(4, FailureClass::Transient)]);
    assert_eq!(play(&events).state, JobState::Quarantined);
}

#[test]
fn a_stopped_attempt_is_no_failure() {
    let job = play(&[lease(1), fail(1, FailureClass::Cancelled)]);
    assert_eq!((job.state, job.failures), (JobState::Pending, 0));
}

#[test]
fn a_verified_job_never_changes() {
    let verified = play(&[lease(1), lease(2), complete(2, 10, 1)]);
    for event in [lease(3), complete(1, 10, 1), fail(1, FailureClass::InputCorrupt), JobEvent::Adopt(receipt(10, 1))] {
        assert_eq!(step(&spec(), &verified, &event, Limits::default()), Err(Rejected::Settled(JobState::Verified)));
    }
}

#[test]
fn the_invariants_hold_over_random_interleavings() {
    for seed in 0..2_000u64 {
        let mut state = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
        let mut draw = |bound: u64| {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            state % bound
        };
        let mut job = Job::pending();
        for turn in 0..40 {
            let id = draw(4) as u8;
            let event = match draw(7) {
                0 | 1 => lease(id),
                2 => complete(id, 10, 1 + draw(2)),
                3 => complete(id, 9 + draw(2), 1),
                4 => fail(
                    id,
                    [FailureClass::Transient, FailureClass::InputChanged, FailureClass::Cancelled][draw(3) as usize],
                ),
                5 => JobEvent::LeaseLost(AttemptId([id; 8])),
                _ => JobEvent::Adopt(receipt(10, 1 + draw(2))),
            };
            let settled = job.is_settled();
            match step(&spec(), &job, &event, Limits::default()) {
                Ok(next) => {
                    assert!(!settled, "seed {seed} turn {turn}: a settled job moved");
                    job = next;
                }
                Err(_) => continue,
            }
            check(&job).unwrap_or_else(|broken| panic!("seed {seed} turn {turn}: {broken}"));
        }
    }
}
