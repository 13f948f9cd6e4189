//! WIP
mod explorer;
mod invariants;
mod protocol;

use explorer::explore;
use protocol::{Bounds, Protocol};

fn show(name: &str, bounds: Bounds) {
    let p = Protocol { bounds, removed: vec![], unwatched: vec![] };
    let t = std::time::Instant::now();
    let e = explore(&p, 30_000_000);
    println!(
        "{name} states {} steps {} depth {} {:?} {:?}",
        e.states.len(),
        e.steps,
        e.depth,
        t.elapsed(),
        e.violation
    );
    let t = std::time::Instant::now();
    let stuck = e.stuck(&p);
    println!("  stuck {} {:?} {:?}", stuck.len(), stuck.first(), t.elapsed());
}

#[test]
fn wip() {
    let b = Bounds {
        jobs: 1,
        attempts_per_job: 2,
        attempts_in_all: 2,
        epochs: 2,
        in_flight: 2,
        corrupt: 1,
        foreign: 1,
        folding: true,
        doubt: true,
    };
    show("1 job doubt e2", b);
    show("1 job e3", Bounds { epochs: 3, doubt: false, ..b });
    show("2 jobs 2 attempts e2", Bounds { jobs: 2, attempts_per_job: 1, doubt: false, ..b });
    show("2 jobs 3 attempts e2", Bounds { jobs: 2, attempts_in_all: 3, doubt: false, foreign: 0, in_flight: 1, ..b });
}
