//! Dying at every point of the exchange, and what the next process finds.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;

use baler_common::runtime::killpoint::{ALL, CLUSTER, RARE};
use baler_coordinator::lifecycle::job::JobState;
use baler_coordinator::lifecycle::run::RunState;
use baler_coordinator::state::embedded::EmbeddedStore;
use baler_coordinator::state::leadership::Leadership;
use baler_coordinator::state::{StateStore, keys, range_all, records};
use baler_proto::convert::job_digest;

use crate::bench::{Bench, Direct, fast, work};

/// Names the folder in which the child of a test runs.
const FOLDER: &str = "BALER_TEST_FOLDER";
const KEYS: [&str; 3] = ["a", "b", "c"];

/// The points that lie in the exchange; the others are in the commit and in the reading and writing of real files.
const HERE: [&str; 15] = [
    "epoch-before",
    "epoch-after",
    "store-commit-before",
    "store-commit-after",
    "run-record-before",
    "run-record-after",
    "lease-before",
    "lease-after",
    "attempt-start",
    "attempt-end",
    "receipt-before",
    "receipt-after",
    "outcome-before",
    "outcome-after",
    "run-move-before",
];

#[test]
fn the_list_names_every_point_of_the_sources_once() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    let mut found = Vec::new();
    for folder in ["common/src", "coordinator/src", "worker/src", "cli/src"] {
        collect(&root.join(folder), &mut found);
    }
    // Each store of state has its own.
    found.sort();
    found.dedup_by(|one, other| one == other && one.starts_with("store-commit"));
    let (named, listed): (BTreeSet<_>, BTreeSet<_>) =
        (found.iter().map(String::as_str).collect(), ALL.into_iter().chain(CLUSTER).chain(RARE).collect());
    assert_eq!(named, listed);
    let count = ALL.len() + CLUSTER.len() + RARE.len();
    assert_eq!((named.len(), listed.len()), (found.len(), count), "a name stands for one point");
}

fn collect(folder: &Path, found: &mut Vec<String>) {
    for entry in std::fs::read_dir(folder).unwrap() {
        let path: PathBuf = entry.unwrap().path();
        if path.is_dir() {
            collect(&path, found);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            let text = std::fs::read_to_string(&path).unwrap();
            let calls = text.split("killpoint(\"").skip(1);
            found.extend(calls.map(|rest| rest.split('"').next().unwrap().to_owned()));
        }
    }
}

/// Not a test of its own: what [`a_process_killed_at_any_point_leaves_what_the_next_one_needs`] starts and kills.
#[tokio::test]
async fn child_runs_to_the_point() {
    let Some(folder) = std::env::var_os(FOLDER) else { return };
    run(Bench::within(Path::new(&folder), &KEYS, 1)).await;
}

async fn run(bench: Bench) -> usize {
    let adopted = bench.found_receipts();
    let count = adopted.len();
    let coordinator = bench.adopting(fast(), adopted).await;
    work(Direct::new(&coordinator), bench.join(&Arc::default()), bench.slots(1)).await.unwrap();
    let settled = coordinator.wait_settled().await;
    assert_eq!((settled.verified.len(), settled.stopped), (3, None));
    coordinator.move_run(RunState::Verifying, None, "").await.unwrap();
    for (job, receipt) in &settled.verified {
        let stored = bench.target.read(&receipt.outputs[0].object.path).unwrap().unwrap();
        assert_eq!(stored, bench.expected(job.0 as usize), "job {job}");
    }
    count
}

#[tokio::test]
async fn a_process_killed_at_any_point_leaves_what_the_next_one_needs() {
    for point in HERE {
        // Also at a later pass, when there is something to lose already.
        for time in 1..=3 {
            let folder = tempfile::tempdir().unwrap();
            let killed = Command::new(std::env::current_exe().unwrap())
                .args(["killpoints::child_runs_to_the_point", "--exact", "--nocapture"])
                .env(FOLDER, folder.path())
                .env("BALER_KILL_AT", format!("{point}:{time}"))
                .output()
                .unwrap();
            let status = std::os::unix::process::ExitStatusExt::signal(&killed.status);
            let once = point.starts_with("epoch") || point.starts_with("run-");
            if once && time > 1 {
                assert_eq!(status, None, "{point}:{time} is passed once only");
                continue;
            }
            let said = String::from_utf8_lossy(&killed.stdout);
            assert_eq!(status, Some(9), "{point}:{time} was not passed: {said}");
            let recorded = recorded(folder.path()).await;
            let bench = Bench::within(folder.path(), &KEYS, 2);
            let receipts = bench.receipts();
            assert!(recorded <= receipts, "{point}:{time}: {recorded} verified jobs, {receipts} receipts");
            assert_eq!(run(bench).await, receipts, "{point}:{time}: every receipt proves its job");
        }
    }
}

/// Verified jobs in the store that the killed process left. Each of its records can be read.
async fn recorded(folder: &Path) -> usize {
    let store: Arc<dyn StateStore> = Arc::new(EmbeddedStore::open(&folder.join("state.redb")).unwrap());
    let before = store.get(keys::EPOCH).await.unwrap();
    let next = Leadership::take(store.clone(), "inspector", 7).await.unwrap();
    assert!(before.is_none() || next.epoch().0 > 1, "the epoch only grows");
    let jobs = range_all(store.as_ref(), "1/r/run-1/j/").await.unwrap();
    let jobs = jobs.iter().map(|entry| records::decode_job(&entry.key, &entry.value).unwrap());
    jobs.filter(|job| job.state == JobState::Verified).count()
}

#[test]
fn equal_work_has_an_equal_digest_in_another_process() {
    let (one, two) = (Bench::new(&KEYS), Bench::new(&KEYS));
    // The inputs are other files with other identities.
    assert_ne!(job_digest(&one.plan.jobs[0]), job_digest(&two.plan.jobs[0]));
    let again = Bench::within(one.folder(), &KEYS, 2);
    assert_eq!(job_digest(&one.plan.jobs[0]), job_digest(&again.plan.jobs[0]));
}
