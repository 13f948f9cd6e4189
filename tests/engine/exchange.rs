//! What the two sides do when nothing is lost.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use baler_common::model::error::{Failure, FailureClass};
use baler_common::model::id::JobId;
use baler_coordinator::driver::{Event, Settled};
use baler_coordinator::lifecycle::run::RunState;
use baler_coordinator::service::worker::WorkerService;
use baler_coordinator::state::leadership::Leadership;
use baler_proto::v1;
use baler_worker::connection::Connection;
use baler_worker::session::{Reporter, RunAttempt, Session};
use tokio::sync::watch;

use crate::bench::{Bench, Direct, fast, join, work};

fn verified(settled: &Settled) -> Vec<u32> {
    settled.verified.iter().map(|(job, _)| job.0).collect()
}

fn failed(settled: &Settled) -> Vec<(u32, FailureClass)> {
    settled.failed.iter().map(|(job, failure)| (job.0, failure.class)).collect()
}

#[tokio::test]
async fn every_job_ends_verified_with_its_receipt_and_its_rows() {
    let bench = Bench::new(&["a", "b", "c", "d", "e"]);
    let coordinator = bench.coordinator(fast()).await;
    let (direct, ran) = (Direct::new(&coordinator), Arc::default());
    work(direct.clone(), bench.join(&ran), bench.slots(2)).await.unwrap();
    let settled = coordinator.wait_settled().await;
    assert_eq!(verified(&settled), [0, 1, 2, 3, 4]);
    assert_eq!((settled.failed.len(), settled.untouched.len(), settled.stopped), (0, 0, None));
    assert_eq!((ran.load(Ordering::SeqCst), bench.receipts()), (5, 5));
    for (job, receipt) in &settled.verified {
        let stored = bench.target.read(&receipt.outputs[0].object.path).unwrap().unwrap();
        assert_eq!(stored, bench.expected(job.0 as usize), "job {job}");
    }
    assert_eq!(direct.order.lock().unwrap()[..2], [4, 3], "the largest first");
    let progress = coordinator.progress().await;
    assert_eq!((progress.verified, progress.running, progress.bytes_done), (5, 0, progress.bytes));
}

#[tokio::test]
async fn what_an_earlier_run_verified_is_not_run_again() {
    let bench = Bench::new(&["a", "b"]);
    let coordinator = bench.coordinator(fast()).await;
    let ran = Arc::default();
    work(Direct::new(&coordinator), bench.join(&ran), bench.slots(1)).await.unwrap();
    let first = coordinator.wait_settled().await;
    let adopted = vec![first.verified[1].clone()];
    let again = bench.adopting(fast(), adopted).await;
    work(Direct::new(&again), bench.join(&ran), bench.slots(1)).await.unwrap();
    let second = again.wait_settled().await;
    assert_eq!(ran.load(Ordering::SeqCst), 3);
    assert_eq!(verified(&second), [0, 1]);
    assert_eq!(second.verified[1], first.verified[1]);
}

#[tokio::test]
async fn a_receipt_that_does_not_prove_its_job_is_not_adopted() {
    let bench = Bench::new(&["a", "b"]);
    let coordinator = bench.coordinator(fast()).await;
    let ran = Arc::default();
    work(Direct::new(&coordinator), bench.join(&ran), bench.slots(1)).await.unwrap();
    let first = coordinator.wait_settled().await;
    // The receipt of the other job: its rows are not the planned ones.
    let swapped = vec![(JobId(0), first.verified[1].1.clone()), (JobId(77), first.verified[1].1.clone())];
    let again = bench.adopting(fast(), swapped).await;
    work(Direct::new(&again), bench.join(&ran), bench.slots(1)).await.unwrap();
    assert_eq!((verified(&again.wait_settled().await), ran.load(Ordering::SeqCst)), (vec![0, 1], 4));
}

/// An attempt that fails for key `b` as `fail` says, by the number of its try from 1.
fn failing(bench: &Bench, fail: impl Fn(usize) -> Option<FailureClass> + Send + Sync + 'static) -> RunAttempt {
    let (source, target, tries) = (bench.source.clone(), bench.target.clone(), AtomicUsize::new(0));
    Arc::new(move |assignment, context| {
        if assignment.spec.key == "b" {
            let class = fail(tries.fetch_add(1, Ordering::SeqCst) + 1);
            if let Some(class) = class {
                return Err(Failure::new(class, "as asked").in_file("b/chunks-0000.txt"));
            }
        }
        join(&source, &target, assignment, context)
    })
}

#[tokio::test]
async fn a_passing_fault_is_tried_again_and_the_wait_grows() {
    let bench = Bench::new(&["a", "b"]);
    let coordinator = bench.coordinator(fast()).await;
    let direct = Direct::new(&coordinator);
    let attempt = failing(&bench, |n| (n < 4).then_some(FailureClass::Transient));
    let started = std::time::Instant::now();
    work(direct.clone(), attempt, bench.slots(1)).await.unwrap();
    assert_eq!(verified(&coordinator.wait_settled().await), [0, 1]);
    assert_eq!(direct.handed_out.lock().unwrap()[&1], 4);
    assert!(started.elapsed() >= Duration::from_millis(5 + 10 + 20), "{:?}", started.elapsed());
}

#[tokio::test]
async fn a_fault_that_does_not_pass_fails_the_job_at_the_fourth_try() {
    let bench = Bench::new(&["a", "b"]);
    let coordinator = bench.coordinator(fast()).await;
    let direct = Direct::new(&coordinator);
    work(direct.clone(), failing(&bench, |_| Some(FailureClass::Transient)), bench.slots(2)).await.unwrap();
    let settled = coordinator.wait_settled().await;
    assert_eq!((verified(&settled), failed(&settled)), (vec![0], vec![(1, FailureClass::Transient)]));
    assert_eq!(direct.handed_out.lock().unwrap()[&1], 4);
}

#[tokio::test]
async fn a_terminal_failure_is_not_retried_and_other_keys_go_on() {
    let bench = Bench::new(&["a", "b", "c"]);
    let coordinator = bench.coordinator(fast()).await;
    let mut events = coordinator.events();
    let direct = Direct::new(&coordinator);
    work(direct.clone(), failing(&bench, |_| Some(FailureClass::InputCorrupt)), bench.slots(1)).await.unwrap();
    let settled = coordinator.wait_settled().await;
    assert_eq!((verified(&settled), failed(&settled)), (vec![0, 2], vec![(1, FailureClass::InputCorrupt)]));
    assert_eq!(direct.handed_out.lock().unwrap()[&1], 1);
    assert_eq!(settled.failed[0].1.to_string(), "INPUT_CORRUPT: b/chunks-0000.txt: as asked");
    let mut told = Vec::new();
    while let Ok(event) = events.try_recv() {
        told.push(event);
    }
    assert!(matches!(&told[..2], [Event::Leased { job: JobId(2), .. }, Event::Verified { job: JobId(2), .. }]));
    let quarantined = told.iter().filter(|event| matches!(event, Event::Quarantined { job: JobId(1), .. })).count();
    assert_eq!(quarantined, 1);
}

#[tokio::test]
async fn a_panic_costs_one_attempt() {
    let bench = Bench::new(&["a", "b"]);
    let coordinator = bench.coordinator(fast()).await;
    let mut events = coordinator.events();
    let inner = failing(&bench, |_| None);
    let panicked = AtomicUsize::new(0);
    let attempt: RunAttempt = Arc::new(move |assignment, context| {
        assert!(panicked.fetch_add(1, Ordering::SeqCst) > 0, "the first attempt panics");
        inner(assignment, context)
    });
    work(Direct::new(&coordinator), attempt, bench.slots(1)).await.unwrap();
    assert_eq!(verified(&coordinator.wait_settled().await), [0, 1]);
    let mut failures = Vec::new();
    while let Ok(event) = events.try_recv() {
        if let Event::Retried { failure, .. } = event {
            failures.push(failure);
        }
    }
    assert_eq!(failures.len(), 1);
    assert_eq!(failures[0].class, FailureClass::WorkerLost);
    assert!(failures[0].message.contains("the first attempt panics"), "{}", failures[0].message);
}

#[tokio::test]
async fn an_output_that_differs_is_retried_once_and_then_stops_the_run() {
    let bench = Bench::new(&["a", "b", "c"]);
    let coordinator = bench.coordinator(fast()).await;
    let (source, target) = (bench.source.clone(), bench.target.clone());
    let attempt: RunAttempt = Arc::new(move |assignment, context| {
        let mut receipt = join(&source, &target, assignment, context)?;
        if assignment.spec.key == "c" {
            receipt.stored.ordered[0] ^= 1;
        }
        Ok(receipt)
    });
    let direct = Direct::new(&coordinator);
    work(direct.clone(), attempt, bench.slots(1)).await.unwrap();
    let settled = coordinator.wait_settled().await;
    // Key c is the largest and comes first; while it waits for its second try, the others are handed out.
    assert_eq!(failed(&settled), [(2, FailureClass::FingerprintMismatch)]);
    assert_eq!(direct.handed_out.lock().unwrap()[&2], 2);
    assert_eq!(settled.verified.len() + settled.untouched.len(), 2);
    assert_eq!(bench.receipts(), settled.verified.len(), "a refuted output leaves no receipt");
}

#[tokio::test]
async fn an_output_that_is_not_where_it_was_reported_is_no_output() {
    let bench = Bench::new(&["a"]);
    let coordinator = bench.coordinator(fast()).await;
    let (source, target, tries) = (bench.source.clone(), bench.target.clone(), AtomicUsize::new(0));
    let attempt: RunAttempt = Arc::new(move |assignment, context| {
        let mut receipt = join(&source, &target, assignment, context)?;
        if tries.fetch_add(1, Ordering::SeqCst) == 0 {
            receipt.outputs[0].object.path = "staging/nothing.part".into();
        }
        Ok(receipt)
    });
    let direct = Direct::new(&coordinator);
    work(direct.clone(), attempt, bench.slots(1)).await.unwrap();
    assert_eq!(verified(&coordinator.wait_settled().await), [0]);
    assert_eq!(direct.handed_out.lock().unwrap()[&0], 2);
}

#[tokio::test]
async fn draining_ends_what_runs_and_starts_nothing_more() {
    let bench = Bench::new(&["a", "b", "c"]);
    let coordinator = bench.coordinator(fast()).await;
    let (drain, draining) = watch::channel(false);
    let (source, target) = (bench.source.clone(), bench.target.clone());
    let (drained, runs) = (coordinator.clone(), Arc::new(AtomicUsize::new(0)));
    let counted = runs.clone();
    let attempt: RunAttempt = Arc::new(move |assignment, context| {
        counted.fetch_add(1, Ordering::SeqCst);
        drained.drain();
        drain.send_replace(true);
        join(&source, &target, assignment, context)
    });
    let session = Session::new(Direct::new(&coordinator), attempt, bench.slots(1)).run(draining);
    tokio::time::timeout(Duration::from_secs(20), session).await.unwrap().unwrap();
    let settled = coordinator.wait_settled().await;
    assert_eq!((verified(&settled), settled.untouched), (vec![2], vec![JobId(0), JobId(1)]));
    assert_eq!(runs.load(Ordering::SeqCst), 1);
}

#[tokio::test]
async fn a_replaced_coordinator_stops_with_the_reason() {
    let bench = Bench::new(&["a", "b"]);
    let coordinator = bench.coordinator(fast()).await;
    let next = Leadership::take(bench.store.clone(), "another", 2).await.unwrap();
    assert_eq!(next.epoch().0, coordinator.epoch().0 + 1);
    let ran = Arc::default();
    let refused = work(Direct::new(&coordinator), bench.join(&ran), bench.slots(1)).await.unwrap_err();
    assert_eq!(refused.message, "another coordinator leads (epoch conflict): this one stops");
    let settled = coordinator.wait_settled().await;
    assert_eq!((settled.stopped, settled.untouched.len()), (Some(refused), 2));
    assert_eq!(ran.load(Ordering::SeqCst), 0, "no job went out that was not recorded");
}

#[tokio::test]
async fn a_run_moves_only_as_its_states_allow() {
    let bench = Bench::new(&["a"]);
    let coordinator = bench.coordinator(fast()).await;
    let refused = coordinator.move_run(RunState::Committed, None, "").await.unwrap_err();
    assert!(refused.to_string().contains("a run cannot go from Running to Committed"), "{refused}");
    coordinator.move_run(RunState::Verifying, None, "").await.unwrap();
    coordinator.move_run(RunState::Prepared, Some("token"), "").await.unwrap();
    assert!(coordinator.move_run(RunState::Cancelled, None, "").await.is_err());
    coordinator.move_run(RunState::Committed, None, "").await.unwrap();
}

#[tokio::test]
async fn a_message_with_a_wrong_field_is_refused_by_name() {
    let bench = Bench::new(&["a"]);
    let coordinator = bench.coordinator(fast()).await;
    let running = v1::RunningAttempt { attempt: vec![1; 7].into(), ..Default::default() };
    let cases = [
        (v1::ReportRequest::default(), "message field worker: is empty"),
        (
            v1::ReportRequest { worker: "w".into(), running: vec![running], ..Default::default() },
            "message field running[0].attempt: is not eight bytes",
        ),
        (
            v1::ReportRequest {
                worker: "w".into(),
                outcomes: vec![v1::Outcome { attempt: vec![1; 8].into(), ..Default::default() }],
                ..Default::default()
            },
            "message field outcomes[0].result: is missing",
        ),
    ];
    for (request, message) in cases {
        assert_eq!(coordinator.report(request).await.unwrap_err().message, message);
    }
}

/// A coordinator behind a real connection on this machine.
async fn served(coordinator: &Arc<baler_coordinator::driver::Coordinator>) -> (String, tokio::task::JoinHandle<()>) {
    let incoming = tonic::transport::server::TcpIncoming::bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let address = format!("http://{}", incoming.local_addr().unwrap());
    let service = WorkerService::server(coordinator.clone());
    let serving = async move { tonic::transport::Server::builder().serve_with_incoming(service, incoming).await };
    (address, tokio::spawn(async move { serving.await.unwrap() }))
}

#[tokio::test]
async fn the_same_exchange_goes_over_a_connection() {
    let bench = Bench::new(&["a", "b", "c"]);
    let coordinator = bench.coordinator(fast()).await;
    let (address, server) = served(&coordinator).await;
    let ran = Arc::default();
    let workers = (0..2).map(|_| {
        let connection = Arc::new(Connection::new(&[&address], None).unwrap());
        work(connection, bench.join(&ran), bench.slots(1))
    });
    for ended in futures::future::join_all(workers).await {
        ended.unwrap();
    }
    assert_eq!(verified(&coordinator.wait_settled().await), [0, 1, 2]);
    assert_eq!((ran.load(Ordering::SeqCst), bench.receipts()), (3, 3));
    server.abort();
}

#[tokio::test]
async fn a_failure_crosses_the_connection_whole_and_a_lost_one_passes() {
    let bench = Bench::new(&["a"]);
    let coordinator = bench.coordinator(fast()).await;
    let (address, server) = served(&coordinator).await;
    let connection = Connection::new(&[&address], None).unwrap();
    let refused = connection.report(v1::ReportRequest::default()).await.unwrap_err();
    assert_eq!(refused, Failure::new(FailureClass::Policy, "message field worker: is empty"));
    server.abort();
    let _ = server.await;
    let nobody = Connection::new(&["http://127.0.0.1:1"], None).unwrap();
    let lost = nobody.report(v1::ReportRequest::default()).await.unwrap_err();
    assert_eq!(lost.class, FailureClass::Transient, "{lost}");
    assert_eq!(Connection::new(&["not an address"], None).unwrap_err().class, FailureClass::Policy);
}
