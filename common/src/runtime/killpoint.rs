//! Named points at which a test may end the process, as a power cut would.
//!
//! `BALER_KILL_AT=NAME` kills the process with SIGKILL when it comes to the point NAME; `BALER_KILL_AT=NAME:3` at the
//! third time. Without the variable a point costs one look at a cell.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};

/// The points that every compaction into a new destination passes, in the order in which it comes to them first.
pub const ALL: [&str; 30] = [
    "epoch-before",
    "epoch-after",
    "store-commit-before",
    "store-commit-after",
    "run-record-before",
    "run-record-after",
    "lease-before",
    "lease-after",
    "attempt-start",
    "attempt-written",
    "attempt-stored",
    "attempt-checked",
    "attempt-end",
    "receipt-before",
    "receipt-after",
    "outcome-before",
    "outcome-after",
    "run-move-before",
    "run-move-after",
    "commit-start",
    "commit-prepared-before",
    "commit-prepared-after",
    "commit-publish-before",
    "commit-publish-after",
    "commit-generation-before",
    "commit-generation-after",
    "commit-checks-before",
    "commit-checks-after",
    "commit-lists-after",
    "commit-committed",
];

/// The points that only the coordinator of a cluster passes, besides [`ALL`].
pub const CLUSTER: [&str; 4] = ["submit-before", "submit-after", "submission-before", "submission-after"];

/// The points that are passed only where something is replaced or exchanged.
pub const RARE: [&str; 7] = [
    "commit-set-aside-before",
    "commit-set-aside-after",
    "swap-built",
    "swap-between",
    "swap-exchanged",
    "swap-moved",
    "swap-generation",
];

static WANTED: OnceLock<Option<(String, u32)>> = OnceLock::new();
static SEEN: AtomicU32 = AtomicU32::new(0);

/// Ends the process here if the environment asks for it.
pub fn killpoint(name: &str) {
    let wanted = WANTED.get_or_init(|| {
        let text = std::env::var("BALER_KILL_AT").ok()?;
        Some(match text.rsplit_once(':').map(|(name, time)| (name, time.parse())) {
            Some((name, Ok(time))) => (name.to_owned(), time),
            _ => (text, 1),
        })
    });
    if let Some((wanted, time)) = wanted
        && wanted == name
        && SEEN.fetch_add(1, Ordering::SeqCst) + 1 == *time
    {
        let _ = rustix::process::kill_process(rustix::process::getpid(), rustix::process::Signal::KILL);
    }
}
