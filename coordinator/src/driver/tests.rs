use std::collections::BTreeMap;

use baler_common::model::fingerprint::Fingerprint;
use baler_common::model::id::CompactionId;
use baler_common::model::job::{ColumnMap, InputFile, RowMode};
use baler_common::model::object::{Identity, ObjectRef};
use baler_common::model::options::WriteOptions;
use baler_common::model::outcome::OutputFile;

use super::*;
use crate::plan::PublishMode;
use crate::state::simulated::SimulatedStore;
use crate::state::{StateStore, range_all};

fn spec(n: u32) -> JobSpec {
    JobSpec {
        job: JobId(n),
        table: "t".into(),
        key: format!("k{}", n / 2),
        mode: RowMode::Copy,
        inputs: vec![InputFile {
            object: ObjectRef::new("source", format!("{n}")),
            bytes: u64::from(n % 3) + 1,
            rows: 10,
            identity: Identity::Unknown,
            first_chunk: 0,
            last_chunk: 0,
            columns: ColumnMap::Same,
        }],
        output_path: format!("out/{n}"),
        staging: ObjectRef::new("target", "staging"),
        schema: Vec::new(),
        options: WriteOptions::default(),
        memory_millibytes_per_row: 1,
        target_bytes: 1,
        key_values: Vec::new(),
    }
}

fn plan(jobs: u32) -> Arc<Plan> {
    Arc::new(Plan {
        compaction: CompactionId("run".into()),
        table: "t".into(),
        source_location: "/".into(),
        base_generation: 0,
        publish: PublishMode::Destination,
        jobs: (0..jobs).map(spec).collect(),
        skips: Vec::new(),
        refusals: Vec::new(),
        keys: Vec::new(),
        notes: Vec::new(),
    })
}

fn receipt(job: JobId, attempt: AttemptId, right: bool) -> Receipt {
    let fingerprint = |value| Fingerprint { rows: 10, ordered: [value; 2], multiset: [value; 2] };
    Receipt {
        outputs: vec![OutputFile {
            object: ObjectRef::new("target", format!("staging/{attempt}")),
            path: format!("out/{job}"),
            bytes: 1,
            rows: 10,
            row_groups: 1,
            sha256: [0; 32],
            identity: Identity::Unknown,
            first_chunk: 0,
            last_chunk: 0,
            fingerprint: fingerprint(1),
        }],
        expected: fingerprint(1),
        stored: fingerprint(if right { 1 } else { 2 }),
        verified_by: "test".into(),
        input_rows: 10,
        elapsed_ms: 0,
    }
}

/// Remembers the last receipt of each job; every n-th answer is a passing fault.
#[derive(Default)]
struct Remembered {
    receipts: std::sync::Mutex<BTreeMap<JobId, Receipt>>,
    asked: std::sync::atomic::AtomicU64,
    fail_every: u64,
}

impl Evidence for Remembered {
    fn record(&self, spec: &JobSpec, receipt: &Receipt) -> Result<(), Failure> {
        let asked = self.asked.fetch_add(1, Ordering::SeqCst) + 1;
        if self.fail_every != 0 && asked.is_multiple_of(self.fail_every) {
            return Err(Failure::new(FailureClass::Transient, "the store is busy"));
        }
        self.receipts.lock().unwrap().insert(spec.job, receipt.clone());
        Ok(())
    }
}

/// What a simulated worker holds.
#[derive(Default)]
struct Puppet {
    sequence: u64,
    running: Vec<Assignment>,
    ended: Vec<Outcome>,
}

struct Chance(u64);

impl Chance {
    fn draw(&mut self, bound: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % bound
    }
}

/// - D1 every job keeps J1–J3;
/// - D2 a held attempt is an attempt of its job, and a leased job's attempts are held;
/// - D3 the queue holds every pending job once and no other, but those of failed keys;
/// - D4 what the store holds is what the coordinator believes: it was durable before it was true;
/// - D5 a verified job has its receipt as evidence.
async fn check(coordinator: &Coordinator, store: &dyn StateStore, evidence: &Remembered) -> Result<(), String> {
    let state = coordinator.state.lock().await;
    let records = range_all(store, &keys::jobs(&coordinator.plan.compaction)).await.unwrap();
    let mut stored: BTreeMap<String, Job> = BTreeMap::new();
    for entry in records {
        let job = records::decode_job(&entry.key, &entry.value).unwrap();
        stored.insert(entry.key, job);
    }
    for (place, job) in state.jobs.iter().enumerate() {
        let id = JobId(place as u32);
        job::check(job).map_err(|broken| format!("{broken} of job {id}"))?;
        for attempt in &job.attempts {
            if state.held.get(&attempt.id).is_none_or(|held| held.job != id) {
                return Err(format!("D2: attempt {} of job {id} is held by nobody", attempt.id));
            }
        }
        let queued = state.queue.iter().filter(|queued| **queued == id).count();
        let failed_key = state.failed_keys.contains(&coordinator.plan.jobs[place].key);
        let wanted = usize::from(job.state == JobState::Pending);
        if queued != wanted && !(failed_key && queued == 0) {
            return Err(format!("D3: job {id} is {:?} and {queued} times in the queue", job.state));
        }
        let record = stored.get(&keys::job(&coordinator.plan.compaction, id)).cloned().unwrap_or_else(Job::pending);
        if record != *job {
            return Err(format!("D4: job {id} is {job:?}, the store has {record:?}"));
        }
        if job.state == JobState::Verified && evidence.receipts.lock().unwrap().get(&id) != job.receipt.as_ref() {
            return Err(format!("D5: job {id}"));
        }
    }
    for (attempt, held) in &state.held {
        if !state.jobs[held.job.0 as usize].attempts.iter().any(|listed| listed.id == *attempt) {
            return Err(format!("D2: attempt {attempt} is not one of job {}", held.job));
        }
    }
    Ok(())
}

/// One report of one puppet: something ends, something may be lost on the way.
async fn turn(coordinator: &Coordinator, name: &str, puppet: &mut Puppet, chance: &mut Chance, calm: bool) {
    if !puppet.running.is_empty() && (calm || chance.draw(2) == 0) {
        let place = chance.draw(puppet.running.len() as u64) as usize;
        let Assignment { compaction, epoch, attempt, spec } = puppet.running.swap_remove(place);
        let fail = |class| Err(Failure::new(class, "as drawn"));
        let result = match if calm { 9 } else { chance.draw(24) } {
            0 | 1 => fail(FailureClass::Transient),
            2 => fail(FailureClass::WorkerLost),
            3 => fail(FailureClass::InputCorrupt),
            4 => fail(FailureClass::Cancelled),
            5 => Ok(receipt(spec.job, attempt, false)),
            _ => Ok(receipt(spec.job, attempt, true)),
        };
        puppet.ended.push(Outcome { compaction, epoch, attempt, job: spec.job, result });
    }
    // A restarted worker forgets what it held.
    if !calm && chance.draw(20) == 0 {
        puppet.running.clear();
        puppet.ended.clear();
    }
    puppet.sequence += 1;
    let running = |assignment: &Assignment| v1::RunningAttempt {
        compaction: assignment.compaction.0.clone(),
        epoch: assignment.epoch.0,
        attempt: assignment.attempt.0.to_vec().into(),
        job: assignment.spec.job.0,
        progress: None,
    };
    let request = v1::ReportRequest {
        worker: name.to_owned(),
        free_slots: 2u32.saturating_sub(puppet.running.len() as u32),
        running: puppet.running.iter().map(running).collect(),
        outcomes: puppet.ended.iter().map(Into::into).collect(),
        draining: false,
        sequence: puppet.sequence,
    };
    let lost = if calm { 9 } else { chance.draw(10) };
    if lost == 0 {
        return;
    }
    let reply = coordinator.report(request).await.expect("the store answers in the end");
    if lost == 1 {
        return;
    }
    puppet.ended.retain(|outcome| !reply.acknowledged.iter().any(|attempt| attempt[..] == outcome.attempt.0));
    puppet.running.retain(|assignment| !reply.stops.iter().any(|attempt| attempt[..] == assignment.attempt.0));
    let assigned = reply.assignments.into_iter().map(|assignment| Assignment::try_from(assignment).unwrap());
    puppet.running.extend(assigned);
}

#[tokio::test]
async fn the_invariants_hold_over_random_reports_and_lost_answers_of_the_store() {
    let mut tried_twice = 0;
    for seed in 1..=300u64 {
        let mut chance = Chance(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1);
        // The first write, the record of the run, and the epoch may be lost as well.
        let store = Arc::new(SimulatedStore::losing_every([0, 2, 3, 5, 7][chance.draw(5) as usize]));
        let evidence = Arc::new(Remembered { fail_every: [0, 2, 3][chance.draw(3) as usize], ..Remembered::default() });
        let settings = Settings {
            lease: if chance.draw(2) == 0 { Duration::ZERO } else { Duration::from_secs(3_600) },
            poll: Duration::ZERO,
            retry_after: Duration::ZERO,
            second_after: if chance.draw(2) == 0 { Duration::ZERO } else { Duration::from_secs(3_600) },
            ..Settings::default()
        };
        let leadership = Leadership::take(store.clone(), "test", seed).await.unwrap();
        let coordinator = Coordinator::start(
            leadership,
            plan(9),
            "p".into(),
            [0; 32],
            Begun::Now(vec![]),
            evidence.clone(),
            settings,
        )
        .await
        .unwrap();
        let mut puppets: [Puppet; 3] = Default::default();
        let mut proved: BTreeMap<JobId, Receipt> = BTreeMap::new();
        let mut turns = 0;
        loop {
            turns += 1;
            let which = chance.draw(3) as usize;
            let calm = turns > 60;
            turn(&coordinator, &format!("w{which}"), &mut puppets[which], &mut chance, calm).await;
            if let Err(broken) = check(&coordinator, store.as_ref(), &evidence).await {
                panic!("seed {seed} turn {turns}: {broken}");
            }
            let state = coordinator.state.lock().await;
            for (id, receipt) in settled(&state).verified {
                let kept = proved.entry(id).or_insert_with(|| receipt.clone());
                assert_eq!(*kept, receipt, "seed {seed} turn {turns}: verified job {id} changed");
            }
            tried_twice += usize::from(state.jobs.iter().any(|job| job.attempts.len() > 1));
            if coordinator.is_settled(&state) {
                break;
            }
            assert!(turns < 3_000, "seed {seed}: the run does not end");
        }
        let ended = coordinator.wait_settled().await;
        let all = ended.verified.len() + ended.failed.len() + ended.untouched.len();
        assert_eq!((all, ended.stopped), (9, None), "seed {seed}");
        if ended.failed.is_empty() {
            assert_eq!(ended.verified.len(), 9, "seed {seed}: nothing failed, so everything was done");
        }
    }
    assert!(tried_twice > 0, "no job was ever given to a second worker");
}
