//! The protocol of leases, epochs, commits and deletes, explored in full within bounds.
//!
//! [`state`] says what there is, [`protocol`] what may happen next, [`guards`] what can be switched off and how far the
//! model goes, [`invariants`] what must hold, [`explorer`] visits everything, and [`removals`] takes the guards away one
//! at a time, to see that each is needed. `docs/model.md` has the numbers.
//!
//! The explorer is our own. `stateright` brings 45 crates and a web server that no feature leaves out, tells states
//! apart by a 64-bit hash, and has no property for "from every state an end is reachable": its "eventually" is about
//! all paths, which is false here, since anybody may crash at any time. What is needed of it is less than 200 lines.

mod explorer;
mod guards;
mod invariants;
mod protocol;
mod removals;
mod state;

use std::collections::BTreeSet;
use std::time::Instant;

use explorer::{Explored, Model, explore};
use guards::Bounds;
use protocol::Protocol;
use state::{Run, State};

/// More than any bounds here need; about 3 GB.
const STATES_MAX: usize = 30_000_000;

/// One job that may be done twice at once; a wrong result and one change by somebody else.
const ONE_JOB: Bounds = Bounds {
    jobs: 1,
    attempts_per_job: 2,
    attempts_in_all: 2,
    epochs: 2,
    in_flight: 2,
    corrupt: 1,
    foreign: 1,
    folding: true,
    doubt: false,
};

/// Explores the protocol with all guards: nothing is broken, and a leader can always come to an end.
fn check(title: &str, bounds: Bounds, states: usize) -> Explored<State> {
    let protocol = Protocol { bounds, removed: Vec::new(), unwatched: Vec::new() };
    let begun = Instant::now();
    let explored = explore(&protocol, STATES_MAX);
    let (seen, steps, depth) = (explored.states.len(), explored.steps, explored.depth);
    println!("{title}: {seen} states, {steps} steps, depth {depth}, {:.1?}", begun.elapsed());
    if let Some(violation) = &explored.violation {
        panic!("{title}: {} is broken by {:#?}", violation.property, violation.path);
    }
    let stuck = explored.stuck(&protocol);
    assert!(stuck.is_empty(), "{title}: {} states with a leader and no way to an end: {:#?}", stuck.len(), stuck[0]);
    assert_eq!(
        seen, states,
        "{title}: the model changed; if that was meant, change the number here and in docs/model.md"
    );
    explored
}

#[test]
fn one_job_with_every_kind_of_step() {
    let explored = check("one job", ONE_JOB, 62_282);
    let protocol = Protocol { bounds: ONE_JOB, removed: Vec::new(), unwatched: Vec::new() };
    let (mut names, mut steps) = (BTreeSet::new(), Vec::new());
    for state in &explored.states {
        protocol.steps(state, &mut steps);
        names.extend(steps.drain(..).map(|step| step.name));
    }
    let expected = "cancel, commit lands, commit lost, committed, complete, crash, delete, delete input, delete key, fail, \
                    foreign rewrite, lease, prepare, raise boundary, refute, report, revert, send commit, take over, \
                    tombstone, upload, upload corrupt, verify, write segment";
    assert_eq!(names.into_iter().collect::<Vec<_>>().join(", "), expected);
    for end in [Run::Committed, Run::Cancelled, Run::Failed] {
        assert!(explored.states.iter().any(|state| state.store.run == end), "no run ends as {end:?}");
    }
}

#[test]
fn one_job_with_lost_answers_and_old_views_anew() {
    check("one job in doubt", Bounds { epochs: 3, doubt: true, ..ONE_JOB }, 1_179_720);
}

#[test]
fn one_job_with_three_attempts() {
    check("three attempts", Bounds { attempts_per_job: 3, attempts_in_all: 3, ..ONE_JOB }, 1_305_894);
}

#[test]
fn two_jobs_of_which_one_is_speculated_on() {
    check("two jobs", Bounds { jobs: 2, attempts_in_all: 3, in_flight: 1, foreign: 0, ..ONE_JOB }, 1_662_503);
}

#[test]
fn two_jobs_in_doubt() {
    check("two jobs in doubt", Bounds { jobs: 2, doubt: true, ..ONE_JOB }, 1_216_692);
}

#[test]
#[ignore = "5.4 million states, a minute or two"]
fn two_jobs_with_doubled_commits_and_a_foreign_writer() {
    check("two jobs, large", Bounds { jobs: 2, attempts_in_all: 3, ..ONE_JOB }, 5_350_238);
}

#[test]
#[ignore = "6.1 million states, a minute or two"]
fn two_jobs_with_three_leaders() {
    let bounds = Bounds { jobs: 2, attempts_in_all: 3, epochs: 3, in_flight: 1, foreign: 0, ..ONE_JOB };
    check("two jobs, three leaders", bounds, 6_121_732);
}
