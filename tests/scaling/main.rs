//! How a cluster scales: real coordinator code, real gRPC, a real store of state; only the work waits instead of computing.
//!
//! ```text
//! cargo run --release --workspace --example scaling -- [--etcd URL] [--job-ms 200] [--workers 1,2,4,8,16,32,64]
//! ```
//!
//! For each number of workers one run of `40 * workers` jobs (one slot a worker) is timed, against the time that the jobs take
//! if they never wait. Then jobs that take no time show what the coordinator can do a second. Without `--etcd` the state is
//! a file.

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

use async_trait::async_trait;
use baler_common::model::error::Failure;
use baler_common::model::fingerprint::Fingerprint;
use baler_common::model::id::{CompactionId, JobId};
use baler_common::model::job::{ColumnMap, InputFile, JobSpec, RowMode};
use baler_common::model::object::{Identity, ObjectRef};
use baler_common::model::options::WriteOptions;
use baler_common::model::outcome::{OutputFile, Receipt};
use baler_common::runtime::random::random_u64;
use baler_common::runtime::storage::Stores;
use baler_coordinator::compaction::Workforce;
use baler_coordinator::driver::{Begun, Coordinator, Evidence, Settings};
use baler_coordinator::fleet::{Fleet, FleetWork};
use baler_coordinator::plan::{Plan, PublishMode};
use baler_coordinator::service::worker::{Reports, WorkerService};
use baler_coordinator::state::StateStore;
use baler_coordinator::state::embedded::EmbeddedStore;
use baler_coordinator::state::etcd::{EtcdOptions, EtcdStore};
use baler_coordinator::state::leadership::Leadership;
use baler_proto::v1;
use baler_worker::connection::Connection;
use baler_worker::session::{RunAttempt, Session};
use baler_worker::slots::Slots;
use tokio::sync::watch;
use tonic::Status;

const JOBS_PER_WORKER: usize = 40;
const CEILING_JOBS: usize = 20_000;
const CEILING_WORKERS: usize = 16;
const CEILING_SLOTS: usize = 8;

type Fallible<T> = Result<T, Box<dyn std::error::Error>>;

struct Served(Arc<Fleet>);

#[async_trait]
impl Reports for Served {
    async fn report(&self, request: v1::ReportRequest) -> Result<v1::ReportReply, Status> {
        self.0.report(request).await.map_err(|failure| Status::unavailable(failure.to_string()))
    }
}

/// Receipts are not stored: the store of state is what is measured.
struct Unwritten;

impl Evidence for Unwritten {
    fn record(&self, _: &JobSpec, _: &Receipt) -> Result<(), Failure> {
        Ok(())
    }
}

fn job(number: usize, seed: u64) -> JobSpec {
    JobSpec {
        job: JobId(number as u32),
        table: "scaling".into(),
        key: format!("key-{number}"),
        mode: RowMode::Copy,
        inputs: vec![InputFile {
            object: ObjectRef::new("data", format!("in/{seed:016x}/{number}.parquet")),
            bytes: 1 << 20,
            rows: 1000,
            identity: Identity::Unknown,
            first_chunk: 0,
            last_chunk: 0,
            columns: ColumnMap::Same,
        }],
        output_path: format!("key-{number}/chunks-0000-0000.parquet"),
        staging: ObjectRef::new("data", "out/_baler/staging"),
        schema: b"a schema".to_vec(),
        options: WriteOptions::default(),
        memory_millibytes_per_row: 1000,
        target_bytes: 500 << 20,
        key_values: Vec::new(),
    }
}

/// Runs `jobs` jobs of `each` on so many workers; gives the time that it took.
async fn run(
    store: &Arc<dyn StateStore>,
    workers: usize,
    slots: usize,
    jobs: usize,
    each: Duration,
) -> Fallible<Duration> {
    let leadership = Leadership::take(store.clone(), "scaling", random_u64()).await?;
    let settings = Settings::default();
    let fleet = Arc::new(Fleet::new(leadership.epoch(), settings, HashSet::new()));
    let seed = random_u64();
    let plan = Plan {
        compaction: CompactionId(format!("scaling-{seed:016x}")),
        table: "scaling".into(),
        source_location: "none".into(),
        base_generation: 0,
        publish: PublishMode::Destination,
        jobs: (0..jobs).map(|number| job(number, seed)).collect(),
        skips: Vec::new(),
        refusals: Vec::new(),
        keys: Vec::new(),
        notes: Vec::new(),
    };
    let begun = Begun::Now(Vec::new());
    let coordinator = Arc::new(
        Coordinator::start(leadership, Arc::new(plan), "none".into(), [0; 32], begun, Arc::new(Unwritten), settings)
            .await?,
    );
    let incoming = tonic::transport::server::TcpIncoming::bind("127.0.0.1:0".parse()?)?;
    let address = format!("http://{}", incoming.local_addr()?);
    let service = WorkerService::server(Arc::new(Served(fleet.clone())));
    let server = tokio::spawn(tonic::transport::Server::builder().serve_with_incoming(service, incoming));

    let attempt: RunAttempt = Arc::new(move |assignment, _| {
        if !each.is_zero() {
            // The attempt has a thread of its own, and this is its work.
            #[allow(clippy::disallowed_methods, reason = "this work is waiting")]
            std::thread::sleep(each);
        }
        let rows = assignment.spec.input_rows();
        let fingerprint = Fingerprint { rows, ..Fingerprint::default() };
        let output = OutputFile {
            object: assignment.staging_object(0),
            path: assignment.spec.output_path.clone(),
            bytes: 1 << 20,
            rows,
            row_groups: 1,
            sha256: [7; 32],
            identity: Identity::Unknown,
            first_chunk: 0,
            last_chunk: 0,
            fingerprint,
        };
        let verified_by = "nothing".to_owned();
        Ok(Receipt {
            outputs: vec![output],
            expected: fingerprint,
            stored: fingerprint,
            verified_by,
            input_rows: rows,
            elapsed_ms: 1,
        })
    });
    let (drain, draining) = watch::channel(false);
    let mut sessions = Vec::new();
    for _ in 0..workers {
        let slots = Slots::new(slots, slots, 1 << 40, std::env::temp_dir());
        let session = Session::new(Arc::new(Connection::new(&[&address], None)?), attempt.clone(), slots);
        sessions.push(tokio::spawn(session.run(draining.clone())));
    }
    // Every worker waits for work when the clock starts.
    tokio::time::sleep(Duration::from_millis(300)).await;
    let work = FleetWork {
        fleet,
        paused: Arc::new(AtomicBool::new(false)),
        watched: Arc::default(),
        cancelled: Arc::default(),
    };
    let started = Instant::now();
    let settled = work.run(coordinator.clone(), Arc::new(Stores::default())).await?;
    let took = started.elapsed();
    assert_eq!(settled.verified.len(), jobs, "{:?} {:?}", settled.stopped, settled.failed.first());
    drain.send(true)?;
    for session in sessions {
        session.await??;
    }
    server.abort();
    coordinator.forget_jobs().await?;
    Ok(took)
}

fn argument(name: &str) -> Option<String> {
    let mut arguments = std::env::args();
    arguments.find(|argument| argument == name)?;
    arguments.next()
}

#[tokio::main]
async fn main() -> Fallible<()> {
    let each = Duration::from_millis(argument("--job-ms").map_or(Ok(200), |text| text.parse())?);
    let counts = argument("--workers").unwrap_or_else(|| "1,2,4,8,16,32,64".into());
    let folder = tempfile::tempdir()?;
    let (store, kind): (Arc<dyn StateStore>, _) = match argument("--etcd") {
        Some(url) => (Arc::new(EtcdStore::connect(EtcdOptions::new(vec![url])).await?), "etcd"),
        None => (Arc::new(EmbeddedStore::open(&folder.path().join("state.redb"))?), "a file"),
    };
    println!("state in {kind}; jobs of {} ms, {JOBS_PER_WORKER} a worker", each.as_millis());
    println!("| workers | jobs | seconds | jobs a second | efficiency |\n|---|---|---|---|---|");
    for count in counts.split(',') {
        let workers: usize = count.parse()?;
        let jobs = JOBS_PER_WORKER * workers;
        let took = run(&store, workers, 1, jobs, each).await?.as_secs_f64();
        let ideal = each.as_secs_f64() * JOBS_PER_WORKER as f64;
        println!("| {workers} | {jobs} | {took:.2} | {:.0} | {:.1} % |", jobs as f64 / took, 100.0 * ideal / took);
    }
    let took = run(&store, CEILING_WORKERS, CEILING_SLOTS, CEILING_JOBS, Duration::ZERO).await?.as_secs_f64();
    println!(
        "ceiling: {CEILING_JOBS} jobs that take no time, {CEILING_WORKERS} workers of {CEILING_SLOTS} slots: {took:.1} s, {:.0} jobs a second",
        CEILING_JOBS as f64 / took
    );
    Ok(())
}
