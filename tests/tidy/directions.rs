//! Who may import whom: cli → coordinator, worker → proto → common.

use std::fs;

use crate::sources::{self, CRATES, has_word, report};

/// What each crate may depend on among the crates of the workspace, leaving out development dependencies.
const ALLOWED: [(&str, &[&str]); 6] = [
    ("common", &[]),
    ("proto", &["common"]),
    ("coordinator", &["common", "proto"]),
    ("worker", &["common", "proto"]),
    ("cli", &["common", "proto", "coordinator", "worker"]),
    ("tests", &["common", "proto", "coordinator", "worker"]),
];

#[test]
fn crates_depend_only_on_those_below_them() {
    let mut broken = Vec::new();
    for (krate, allowed) in ALLOWED {
        let manifest =
            fs::read_to_string(sources::root().join(krate).join("Cargo.toml")).expect("a crate has a manifest");
        for other in CRATES {
            let depends = manifest.lines().any(|line| {
                line.trim_start()
                    .strip_prefix("baler-")
                    .and_then(|rest| rest.strip_prefix(other))
                    .is_some_and(|rest| rest.starts_with(' ') || rest.starts_with('=') || rest.starts_with('.'))
            });
            if depends && !allowed.contains(&other) {
                broken.push(format!("{krate}/Cargo.toml depends on baler-{other}"));
            }
        }
    }
    report("a crate may depend only on those below it", &broken);
}

#[test]
fn the_coordinator_and_the_worker_do_not_know_each_other() {
    let mut broken = Vec::new();
    for source in sources::all() {
        let stranger = match source.path.split('/').next() {
            Some("coordinator") => "baler_worker",
            Some("worker") => "baler_coordinator",
            _ => continue,
        };
        for (number, line) in source.code() {
            if has_word(&line, stranger) {
                broken.push(format!("{}:{number} names {stranger}", source.path));
            }
        }
    }
    report("coordinator and worker talk through baler-proto alone", &broken);
}

#[test]
fn inside_the_coordinator_imports_point_inward() {
    // A module, and what it must not import.
    let outer: [(&str, &[&str]); 5] = [
        ("coordinator/src/plan", &["lifecycle", "state", "table", "service", "driver", "commit", "sweep"]),
        ("coordinator/src/lifecycle", &["state", "table", "service", "driver", "commit", "sweep"]),
        ("coordinator/src/state", &["service", "driver", "commit", "sweep"]),
        ("coordinator/src/table", &["service", "driver", "commit", "sweep"]),
        ("coordinator/src/commit", &["service", "driver"]),
    ];
    let mut broken = Vec::new();
    for source in sources::all() {
        for (module, strangers) in outer {
            if !source.path.starts_with(&format!("{module}/")) && source.path != format!("{module}.rs") {
                continue;
            }
            for (number, line) in source.code() {
                for stranger in strangers {
                    if line.contains(&format!("crate::{stranger}")) {
                        broken.push(format!("{}:{number} imports crate::{stranger}", source.path));
                    }
                }
            }
        }
    }
    report("shell, then edges, then decisions, then nouns", &broken);
}
