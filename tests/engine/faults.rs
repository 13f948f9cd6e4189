//! Lost, repeated, late and overtaken messages. The chances are drawn from a seed that every failure names.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use async_trait::async_trait;
use baler_common::model::error::{Failure, FailureClass};
use baler_common::model::job::Assignment;
use baler_common::model::outcome::Outcome;
use baler_coordinator::driver::{Coordinator, Settings};
use baler_proto::v1;
use baler_worker::context::Context;
use baler_worker::session::{Reporter, RunAttempt};

use crate::bench::{Bench, Direct, fast, join, work};

/// Loses requests and answers, and says some requests twice.
struct Lossy {
    inner: Arc<Direct>,
    state: AtomicU64,
}

impl Lossy {
    fn draw(&self, bound: u64) -> u64 {
        let mut state = self.state.load(Ordering::SeqCst);
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        self.state.store(state, Ordering::SeqCst);
        state % bound
    }
}

#[async_trait]
impl Reporter for Lossy {
    async fn report(&self, request: v1::ReportRequest) -> Result<v1::ReportReply, Failure> {
        let lost = || Failure::new(FailureClass::Transient, "lost");
        match self.draw(5) {
            0 => Err(lost()),
            1 => {
                let _ = self.inner.report(request).await?;
                Err(lost())
            }
            2 => {
                let _ = self.inner.report(request.clone()).await?;
                self.inner.report(request).await
            }
            _ => self.inner.report(request).await,
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn lost_and_repeated_messages_change_nothing() {
    let runs = (1..=8u64).map(|seed| {
        tokio::spawn(async move {
            let bench = Bench::new(&["a", "b", "c", "d", "e", "f"]);
            let coordinator = bench.coordinator(Settings { poll: Duration::from_millis(50), ..fast() }).await;
            let state = AtomicU64::new(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1);
            let lossy = Arc::new(Lossy { inner: Direct::new(&coordinator), state });
            // The end of the conversation may be lost as well: then the session goes on asking, which is fine.
            let session = work(lossy.clone(), bench.join(&Arc::default()), bench.slots(2));
            session.await.unwrap_or_else(|failure| panic!("seed {seed}: {failure}"));
            let settled = coordinator.wait_settled().await;
            assert_eq!((settled.verified.len(), settled.failed), (6, vec![]), "seed {seed}");
            for (job, receipt) in &settled.verified {
                let stored = bench.target.read(&receipt.outputs[0].object.path).unwrap().unwrap();
                assert_eq!(stored, bench.expected(job.0 as usize), "seed {seed} job {job}");
            }
            assert_eq!(bench.receipts(), 6, "seed {seed}");
        })
    });
    for run in runs.collect::<Vec<_>>() {
        run.await.unwrap();
    }
}

fn request(worker: &str, sequence: u64, free_slots: u32) -> v1::ReportRequest {
    v1::ReportRequest { worker: worker.into(), sequence, free_slots, ..Default::default() }
}

fn only(reply: v1::ReportReply) -> Assignment {
    assert_eq!(reply.assignments.len(), 1);
    Assignment::try_from(reply.assignments.into_iter().next().unwrap()).unwrap()
}

/// The outcome of the assignment, run here and now.
fn outcome(bench: &Bench, assignment: &Assignment) -> Outcome {
    let context = Context::new(1 << 20, 1, bench.folder().join("spill"));
    Outcome {
        compaction: assignment.compaction.clone(),
        epoch: assignment.epoch,
        attempt: assignment.attempt,
        job: assignment.spec.job,
        result: join(&bench.source, &bench.target, assignment, &context),
    }
}

fn with_outcome(mut request: v1::ReportRequest, outcome: &Outcome) -> v1::ReportRequest {
    request.outcomes.push(outcome.into());
    request
}

fn with_running(mut request: v1::ReportRequest, assignment: &Assignment) -> v1::ReportRequest {
    request.running.push(v1::RunningAttempt {
        compaction: assignment.compaction.0.clone(),
        epoch: assignment.epoch.0,
        attempt: assignment.attempt.0.to_vec().into(),
        job: assignment.spec.job.0,
        progress: None,
    });
    request
}

#[tokio::test]
async fn a_late_attempt_is_refused_and_its_output_does_not_become_the_jobs() {
    let bench = Bench::new(&["a"]);
    let lease = Duration::from_millis(60);
    let coordinator = bench.coordinator(Settings { lease, ..fast() }).await;
    let slow = only(coordinator.report(request("slow", 1, 1)).await.unwrap());
    tokio::time::sleep(3 * lease).await;
    let quick = only(coordinator.report(request("quick", 1, 1)).await.unwrap());
    assert_eq!((quick.spec.job, quick.attempt != slow.attempt), (slow.spec.job, true));
    let late = outcome(&bench, &slow);
    let answer = coordinator.report(with_outcome(request("slow", 2, 0), &late)).await.unwrap();
    assert_eq!(answer.acknowledged, [slow.attempt.0.to_vec()], "refused for good, so not to be said again");
    assert_eq!((coordinator.progress().await.verified, bench.receipts()), (0, 0));
    let told = coordinator.report(with_running(request("slow", 3, 0), &slow)).await.unwrap();
    assert_eq!(told.stops, [slow.attempt.0.to_vec()]);
    let done = outcome(&bench, &quick);
    coordinator.report(with_outcome(request("quick", 2, 0), &done)).await.unwrap();
    let settled = coordinator.wait_settled().await;
    assert_eq!(settled.verified[0].1, done.result.unwrap());
}

#[tokio::test]
async fn a_reported_attempt_keeps_its_lease_and_a_silent_one_loses_it() {
    let bench = Bench::new(&["a", "b"]);
    let lease = Duration::from_millis(150);
    let coordinator = bench.coordinator(Settings { lease, poll: Duration::from_millis(20), ..fast() }).await;
    let heard = only(coordinator.report(request("heard", 1, 1)).await.unwrap());
    let silent = only(coordinator.report(request("silent", 1, 1)).await.unwrap());
    let started = Instant::now();
    let mut sequence = 1;
    while started.elapsed() < 3 * lease {
        sequence += 1;
        let report = with_running(request("heard", sequence, 0), &heard);
        assert_eq!(coordinator.report(report).await.unwrap().stops.len(), 0);
        tokio::time::sleep(lease / 5).await;
    }
    let again = only(coordinator.report(request("third", 1, 2)).await.unwrap());
    assert_eq!(again.spec.job, silent.spec.job);
}

#[tokio::test]
async fn an_outcome_said_twice_counts_once() {
    let bench = Bench::new(&["a"]);
    let coordinator = bench.coordinator(fast()).await;
    let assignment = only(coordinator.report(request("w", 1, 1)).await.unwrap());
    let done = outcome(&bench, &assignment);
    for sequence in 2..4 {
        let answer = coordinator.report(with_outcome(request("w", sequence, 0), &done)).await.unwrap();
        assert_eq!(answer.acknowledged, [assignment.attempt.0.to_vec()]);
    }
    assert_eq!(coordinator.progress().await.verified, 1);
}

#[tokio::test]
async fn an_assignment_that_never_arrived_is_handed_out_again_at_once() {
    let bench = Bench::new(&["a"]);
    let coordinator = bench.coordinator(fast()).await;
    let lost = only(coordinator.report(request("w", 1, 1)).await.unwrap());
    let again = only(coordinator.report(request("w", 2, 1)).await.unwrap());
    assert_eq!(again.spec.job, lost.spec.job);
    assert_ne!(again.attempt, lost.attempt);
}

#[tokio::test]
async fn an_overtaken_report_gets_no_jobs_and_frees_none() {
    let bench = Bench::new(&["a", "b"]);
    let coordinator = bench.coordinator(fast()).await;
    let held = only(coordinator.report(request("w", 2, 1)).await.unwrap());
    let late = coordinator.report(request("w", 1, 1)).await.unwrap();
    assert_eq!(late.assignments.len(), 0);
    let running = coordinator.report(with_running(request("w", 3, 0), &held)).await.unwrap();
    assert_eq!(running.stops.len(), 0, "the attempt is still the worker's");
}

#[tokio::test]
async fn an_idle_worker_hears_of_a_free_job_at_once() {
    let bench = Bench::new(&["a"]);
    let coordinator = bench.coordinator(Settings { poll: Duration::from_secs(30), ..fast() }).await;
    let held = only(coordinator.report(request("busy", 1, 1)).await.unwrap());
    let waiting = tokio::spawn({
        let coordinator: Arc<Coordinator> = coordinator.clone();
        async move { coordinator.report(request("idle", 1, 1)).await.unwrap() }
    });
    tokio::time::sleep(Duration::from_millis(30)).await;
    assert!(!waiting.is_finished(), "there is nothing to say yet");
    let failure = Failure::new(FailureClass::Transient, "as asked");
    let failed = Outcome { result: Err(failure), ..outcome(&bench, &held) };
    coordinator.report(with_outcome(request("busy", 2, 0), &failed)).await.unwrap();
    let reply = tokio::time::timeout(Duration::from_secs(5), waiting).await.expect("woken").unwrap();
    assert_eq!(only(reply).spec.job, held.spec.job);
}

/// Answers from a script; the last answer stays.
struct Script(Mutex<Vec<v1::ReportReply>>);

#[async_trait]
impl Reporter for Script {
    async fn report(&self, request: v1::ReportRequest) -> Result<v1::ReportReply, Failure> {
        let mut script = self.0.lock().unwrap();
        let mut reply = if script.len() > 1 { script.remove(0) } else { script[0].clone() };
        reply.acknowledged = request.outcomes.iter().map(|outcome| outcome.attempt.clone()).collect();
        Ok(reply)
    }
}

#[tokio::test]
async fn a_worker_does_not_obey_a_leader_that_was_replaced() {
    let bench = Bench::new(&["a", "b"]);
    let assignment = |epoch: u32, n: usize, attempt: u8| v1::Assignment {
        compaction: "run-1".into(),
        epoch,
        attempt: vec![attempt; 8].into(),
        spec: Some((&bench.plan.jobs[n]).into()),
    };
    let reply = |epoch: u32, assignments| v1::ReportReply { epoch, assignments, ..Default::default() };
    let script = vec![
        reply(5, vec![assignment(5, 0, 1)]),
        reply(4, vec![assignment(4, 1, 2)]),
        v1::ReportReply { settled: true, ..reply(4, vec![]) },
        v1::ReportReply { settled: true, ..reply(5, vec![]) },
    ];
    let ran = Arc::new(Mutex::new(Vec::new()));
    let seen = ran.clone();
    let (source, target) = (bench.source.clone(), bench.target.clone());
    let attempt: RunAttempt = Arc::new(move |assignment, context| {
        seen.lock().unwrap().push(assignment.epoch.0);
        join(&source, &target, assignment, context)
    });
    work(Arc::new(Script(Mutex::new(script))), attempt, bench.slots(2)).await.unwrap();
    assert_eq!(*ran.lock().unwrap(), [5], "the job of epoch 4 was not started");
}
