//! Runs the jobs of one plan in this process: a coordinator and a worker that speak as if they were apart.

use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use baler_common::model::error::Failure;
use baler_common::runtime::storage::Stores;
use baler_coordinator::compaction::Workforce;
use baler_coordinator::driver::{Coordinator, RunProgress, Settled};
use baler_proto::v1;
use baler_worker::attempt::run_attempt;
use baler_worker::session::{Reporter, RunAttempt, Session};
use baler_worker::slots::Slots;
use tokio::sync::watch;

use crate::isolation::run_in_child;

/// How often progress is shown.
const SHOW_EVERY: Duration = Duration::from_millis(250);

/// What the jobs may use.
#[derive(Debug, Clone)]
pub struct Resources {
    /// Jobs at once.
    pub jobs: usize,
    pub cores: usize,
    /// For all jobs together, in bytes.
    pub memory_bytes: u64,
    pub spill_folder: PathBuf,
    /// Run each attempt in a child process.
    pub isolate: bool,
    /// Start no more jobs after this long.
    pub until: Option<Duration>,
}

struct InProcess(Arc<Coordinator>);

#[async_trait]
impl Reporter for InProcess {
    async fn report(&self, request: v1::ReportRequest) -> Result<v1::ReportReply, Failure> {
        self.0.report(request).await
    }
}

/// The workers of this process.
pub struct LocalWorkers<'a, F> {
    pub resources: &'a Resources,
    /// Shows how far the run is.
    pub show: Mutex<F>,
}

#[async_trait]
impl<F: FnMut(RunProgress) + Send> Workforce for LocalWorkers<'_, F> {
    async fn run(&self, coordinator: Arc<Coordinator>, stores: Arc<Stores>) -> Result<Settled, Failure> {
        run_jobs(coordinator, stores, self.resources, |progress| {
            if let Ok(mut show) = self.show.lock() {
                show(progress);
            }
        })
        .await
    }
}

/// Runs the jobs until none is left, or until the run is drained: by Ctrl-C, SIGTERM or the time limit.
async fn run_jobs(
    coordinator: Arc<Coordinator>,
    stores: Arc<Stores>,
    resources: &Resources,
    mut show: impl FnMut(RunProgress),
) -> Result<Settled, Failure> {
    let isolate = resources.isolate;
    let run: RunAttempt = Arc::new(move |assignment, context| match isolate {
        true => run_in_child(&stores, assignment, context),
        false => run_attempt(&stores, assignment, context),
    });
    let slots = Slots::new(resources.jobs, resources.cores, resources.memory_bytes, resources.spill_folder.clone());
    let session = Session::new(Arc::new(InProcess(coordinator.clone())), run, slots);
    let (drain, draining) = watch::channel(false);
    let mut worker = tokio::spawn(session.run(draining));
    let mut ticks = tokio::time::interval(SHOW_EVERY);
    let mut interrupted = std::pin::pin!(interrupted());
    let mut interruptible = true;
    let out_of_time = async {
        match resources.until {
            Some(until) => tokio::time::sleep(until).await,
            None => std::future::pending().await,
        }
    };
    let mut out_of_time = std::pin::pin!(out_of_time);
    let mut timed = true;
    let ended = loop {
        tokio::select! {
            ended = &mut worker => break ended,
            _ = ticks.tick() => show(coordinator.progress().await),
            () = &mut interrupted, if interruptible => {
                interruptible = false;
                eprintln!("draining: running jobs end, the next run takes up the rest (press again to stop at once)");
                coordinator.drain();
                let _ = drain.send(true);
                tokio::spawn(async {
                    // The second signal stops at once; what was verified is kept.
                    interrupted_again().await;
                    std::process::exit(130);
                });
            }
            () = &mut out_of_time, if timed => {
                timed = false;
                coordinator.drain();
                let _ = drain.send(true);
            }
        }
    };
    show(coordinator.progress().await);
    match ended {
        Ok(Ok(())) => Ok(coordinator.wait_settled().await),
        Ok(Err(failure)) => Err(failure),
        Err(error) => Err(Failure::new(
            baler_common::model::error::FailureClass::WorkerLost,
            format!("the worker's session ended: {error}"),
        )),
    }
}

/// Resolves when this process is asked to end.
pub async fn interrupted() {
    use tokio::signal::unix::{SignalKind, signal};
    match signal(SignalKind::terminate()) {
        Ok(mut terminate) => {
            tokio::select! {
                _ = tokio::signal::ctrl_c() => {}
                _ = terminate.recv() => {}
            }
        }
        Err(_) => {
            let _ = tokio::signal::ctrl_c().await;
        }
    }
}

async fn interrupted_again() {
    interrupted().await;
}
