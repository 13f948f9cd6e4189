//! A table of text files, a run over it, and an attempt that joins them.

use std::collections::BTreeMap;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use baler_common::model::error::{Failure, FailureClass};
use baler_common::model::fingerprint::Fingerprint;
use baler_common::model::id::{CompactionId, JobId};
use baler_common::model::job::{Assignment, ColumnMap, InputFile, JobSpec, RowMode};
use baler_common::model::object::ObjectRef;
use baler_common::model::options::WriteOptions;
use baler_common::model::outcome::{OutputFile, Receipt};
use baler_common::runtime::storage::Store;
use baler_coordinator::driver::{Begun, Coordinator, Evidence, Settings};
use baler_coordinator::plan::{Plan, PublishMode};
use baler_coordinator::state::StateStore;
use baler_coordinator::state::embedded::EmbeddedStore;
use baler_coordinator::state::leadership::Leadership;
use baler_coordinator::state::records::{decode_receipt, encode_receipt};
use baler_proto::convert::job_digest;
use baler_proto::v1;
use baler_worker::context::Context;
use baler_worker::session::{Reporter, RunAttempt, Session};
use baler_worker::slots::Slots;
use sha2::{Digest, Sha256};
use tempfile::TempDir;
use tokio::sync::watch;

/// A folder with a table of `keys`, each of two files, and the plan that joins each key's files.
pub struct Bench {
    folder: PathBuf,
    /// Removes the folder at the end.
    _owned: Option<TempDir>,
    pub source: Store,
    pub target: Store,
    pub plan: Arc<Plan>,
    pub store: Arc<dyn StateStore>,
}

impl Bench {
    pub fn new(keys: &[&str]) -> Self {
        let owned = tempfile::tempdir().unwrap();
        let bench = Self::within(owned.path(), keys, 1);
        Self { _owned: Some(owned), ..bench }
    }

    /// The bench in a folder that may hold one already; `run` numbers its compactions.
    pub fn within(folder: &Path, keys: &[&str], run: u32) -> Self {
        let open = |name: &str| Store::open(name, folder.join(name).to_str().unwrap(), true).unwrap();
        let (source, target) = (open("source"), open("target"));
        let jobs = keys.iter().enumerate().map(|(n, key)| job(&source, n, key)).collect();
        let plan = Plan {
            compaction: CompactionId(format!("run-{run}")),
            table: "t".into(),
            source_location: source.location(),
            base_generation: 0,
            publish: PublishMode::Destination,
            jobs,
            skips: Vec::new(),
            refusals: Vec::new(),
            keys: Vec::new(),
            notes: Vec::new(),
        };
        let state = folder.join(if run == 1 { "state.redb".to_owned() } else { format!("state-{run}.redb") });
        let store = EmbeddedStore::open(&state).unwrap();
        let folder = folder.to_owned();
        Self { folder, _owned: None, source, target, plan: Arc::new(plan), store: Arc::new(store) }
    }

    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// The receipts that an earlier run left for the jobs of this plan, whose outputs are still what they say.
    pub fn found_receipts(&self) -> Vec<(JobId, Receipt)> {
        let found = |spec: &JobSpec| {
            let content = self.target.read(&receipt_path(spec)).unwrap()?;
            let receipt = decode_receipt(&content).unwrap();
            let output = &receipt.outputs[0];
            let stored = self.target.read(&output.object.path).unwrap()?;
            (Sha256::digest(&stored)[..] == output.sha256).then_some((spec.job, receipt))
        };
        self.plan.jobs.iter().filter_map(found).collect()
    }

    pub async fn coordinator(&self, settings: Settings) -> Arc<Coordinator> {
        self.adopting(settings, Vec::new()).await
    }

    pub async fn adopting(&self, settings: Settings, adopted: Vec<(JobId, Receipt)>) -> Arc<Coordinator> {
        let leadership = Leadership::take(self.store.clone(), "test", 1).await.unwrap();
        let evidence = Arc::new(Receipts(self.target.clone()));
        let plan = self.plan.clone();
        let started =
            Coordinator::start(leadership, plan, "plan".into(), [0; 32], Begun::Now(adopted), evidence, settings)
                .await
                .unwrap();
        Arc::new(started)
    }

    /// An attempt that joins the files, and counts how often it ran.
    pub fn join(&self, ran: &Arc<AtomicUsize>) -> RunAttempt {
        let (source, target, ran) = (self.source.clone(), self.target.clone(), ran.clone());
        Arc::new(move |assignment, context| {
            ran.fetch_add(1, Ordering::SeqCst);
            join(&source, &target, assignment, context)
        })
    }

    /// The content that the output of job `n` must have.
    pub fn expected(&self, n: usize) -> Vec<u8> {
        let inputs = &self.plan.jobs[n].inputs;
        inputs.iter().flat_map(|input| self.source.read(&input.object.path).unwrap().unwrap().to_vec()).collect()
    }

    pub fn receipts(&self) -> usize {
        self.target.list("receipts").unwrap().len()
    }

    pub fn slots(&self, count: usize) -> Slots {
        Slots::new(count, count, 1 << 30, self.folder.join("spill"))
    }
}

/// Timers that a test can wait for.
pub fn fast() -> Settings {
    Settings {
        lease: Duration::from_secs(20),
        poll: Duration::from_millis(300),
        retry_after: Duration::from_millis(5),
        ..Settings::default()
    }
}

/// A session of `count` slots that runs to its end.
pub async fn work(reporter: Arc<dyn Reporter>, attempt: RunAttempt, slots: Slots) -> Result<(), Failure> {
    let (_drain, draining) = watch::channel(false);
    let session = Session::new(reporter, attempt, slots).run(draining);
    tokio::time::timeout(Duration::from_secs(60), session).await.expect("the session ends")
}

fn job(source: &Store, n: usize, key: &str) -> JobSpec {
    let input = |chunk: u64| {
        let path = format!("{key}/chunks-{chunk:04}.txt");
        // Later keys are larger, so that the order of assignment is known.
        let content = format!("{key} row\n").repeat(10 * (n + 1));
        source.put_new(&path, content.as_bytes()).unwrap();
        let info = source.head(&path).unwrap().unwrap();
        InputFile {
            object: ObjectRef::new("source", path),
            bytes: info.bytes,
            rows: 10 * (n as u64 + 1),
            identity: info.identity,
            first_chunk: chunk,
            last_chunk: chunk,
            columns: ColumnMap::Same,
        }
    };
    JobSpec {
        job: JobId(n as u32),
        table: "t".into(),
        key: key.into(),
        mode: RowMode::Copy,
        inputs: vec![input(0), input(1)],
        output_path: format!("{key}/chunks-0000-0001.txt"),
        staging: ObjectRef::new("target", "staging"),
        schema: vec![1],
        options: WriteOptions::default(),
        memory_millibytes_per_row: 1,
        target_bytes: 1 << 20,
        key_values: Vec::new(),
    }
}

/// Reads the inputs, writes their rows to the attempt's own object, reads that back.
pub fn join(source: &Store, target: &Store, assignment: &Assignment, context: &Context) -> Result<Receipt, Failure> {
    let spec = &assignment.spec;
    let mut rows = Vec::new();
    for input in &spec.inputs {
        context.check_running()?;
        let content = source.source(&input.object.path, input.bytes, &input.identity)?.read(0..input.bytes)?;
        context.count_read(input.bytes);
        rows.extend_from_slice(&content);
    }
    let object = assignment.staging_object(0);
    let mut sink = target.create(&object.path)?;
    sink.write_all(&rows).map_err(|error| Failure::new(FailureClass::Transient, error.to_string()))?;
    let stored = sink.finish()?;
    let again = target.read(&object.path)?.unwrap_or_default();
    Ok(Receipt {
        outputs: vec![OutputFile {
            object,
            path: spec.output_path.clone(),
            bytes: stored.bytes,
            rows: spec.input_rows(),
            row_groups: 1,
            sha256: stored.sha256,
            identity: stored.identity,
            first_chunk: 0,
            last_chunk: 1,
            fingerprint: measure(&again),
        }],
        expected: measure(&rows),
        stored: measure(&again),
        verified_by: "test".into(),
        input_rows: spec.input_rows(),
        elapsed_ms: 1,
    })
}

fn measure(content: &[u8]) -> Fingerprint {
    let digest = Sha256::digest(content);
    let word = |n: usize| u64::from_le_bytes(digest[8 * n..8 * (n + 1)].try_into().unwrap());
    let rows = content.iter().filter(|byte| **byte == b'\n').count() as u64;
    Fingerprint { rows, ordered: [word(0), word(1)], multiset: [word(2), word(3)] }
}

fn receipt_path(spec: &JobSpec) -> String {
    let digest: String = job_digest(spec).iter().map(|byte| format!("{byte:02x}")).collect();
    format!("receipts/{digest}")
}

struct Receipts(Store);

impl Evidence for Receipts {
    fn record(&self, spec: &JobSpec, receipt: &Receipt) -> Result<(), Failure> {
        for output in &receipt.outputs {
            let found = self.0.head(&output.object.path)?.map(|info| info.bytes);
            if found != Some(output.bytes) {
                let message = format!("{} bytes were reported, {found:?} are there", output.bytes);
                return Err(Failure::new(FailureClass::WorkerLost, message).in_file(output.object.path.clone()));
            }
        }
        self.0.put(&receipt_path(spec), &encode_receipt(receipt))
    }
}

/// The coordinator called directly, with everything that was said.
pub struct Direct {
    pub coordinator: Arc<Coordinator>,
    /// Times each job was handed out.
    pub handed_out: Mutex<BTreeMap<u32, usize>>,
    /// Jobs in the order in which they were handed out.
    pub order: Mutex<Vec<u32>>,
}

impl Direct {
    pub fn new(coordinator: &Arc<Coordinator>) -> Arc<Self> {
        Arc::new(Self { coordinator: coordinator.clone(), handed_out: Mutex::default(), order: Mutex::default() })
    }
}

#[async_trait]
impl Reporter for Direct {
    async fn report(&self, request: v1::ReportRequest) -> Result<v1::ReportReply, Failure> {
        let free_slots = request.free_slots as usize;
        let reply = self.coordinator.report(request).await?;
        assert!(reply.assignments.len() <= free_slots, "more jobs than slots");
        for assignment in &reply.assignments {
            let job = assignment.spec.as_ref().unwrap().job;
            *self.handed_out.lock().unwrap().entry(job).or_default() += 1;
            self.order.lock().unwrap().push(job);
        }
        Ok(reply)
    }
}
