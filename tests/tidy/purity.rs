//! What decides touches nothing: no waiting, no storage, no clock, no randomness.

use crate::sources::{self, has_word, report};

/// Folders and files whose code takes everything it needs as arguments.
const PURE: [&str; 5] = [
    "common/src/model/",
    "coordinator/src/plan/",
    "coordinator/src/lifecycle/",
    "coordinator/src/lifecycle.rs",
    "worker/src/fingerprint/",
];

/// Words of the world outside.
const WORLD: [&str; 16] = [
    "async",
    "await",
    "tokio",
    "tonic",
    "etcd_client",
    "object_store",
    "reqwest",
    "redb",
    "Instant",
    "SystemTime",
    "rand",
    "getrandom",
    "std::fs",
    "std::net",
    "std::process",
    "std::env",
];

/// Where an object or a file may be deleted, and why.
const MAY_DELETE: [(&str, &str); 2] = [
    ("coordinator/src/sweep", "the one place that deletes what a manifest no longer needs"),
    ("common/src/runtime/storage/", "implements deletion for sweep; names it, decides nothing"),
];

#[test]
fn decisions_are_pure() {
    let mut broken = Vec::new();
    let mut looked_at = 0;
    for source in sources::all() {
        if !PURE.iter().any(|pure| source.path.starts_with(pure)) {
            continue;
        }
        looked_at += 1;
        for (number, line) in source.code() {
            for word in WORLD {
                if has_word(&line, word) {
                    broken.push(format!("{}:{number} uses {word}", source.path));
                }
            }
        }
    }
    assert!(looked_at >= 8, "only {looked_at} files of pure code were found");
    report("plan, lifecycle, model and fingerprint take time, ids and bytes as arguments", &broken);
}

#[test]
fn only_the_sweep_deletes() {
    let mut broken = Vec::new();
    for source in sources::all() {
        if MAY_DELETE.iter().any(|(path, _)| source.path.starts_with(path)) {
            continue;
        }
        for (number, line) in source.code() {
            for call in [".delete(", "remove_file(", "remove_dir(", "remove_dir_all(", "unlink(", "unlinkat("] {
                if line.contains(call) {
                    broken.push(format!("{}:{number} calls {call}…)", source.path));
                }
            }
        }
    }
    report("an object is deleted in coordinator/src/sweep alone", &broken);
}

#[test]
fn unfinished_and_debugging_code_is_not_committed() {
    let mut broken = Vec::new();
    for source in sources::all() {
        for (number, line) in source.code() {
            for call in ["todo!", "unimplemented!", "dbg!"] {
                if line.contains(call) {
                    broken.push(format!("{}:{number} has {call}", source.path));
                }
            }
        }
    }
    report("finished code only", &broken);
}
