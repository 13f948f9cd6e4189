//! What must hold after every step. The numbers are those of the design and of `docs/model.md`.

use super::guards::Guard;
use super::protocol::{Protocol, Step};
use super::state::{JobPhase, Object, Run, Shown, State};

pub const S1: &str = "S1 rows exactly once";
pub const S2: &str = "S2 one accepted attempt per job";
pub const S3: &str = "S3 referenced objects exist";
pub const S4: &str = "S4 a commit is applied at most once";
pub const S5: &str = "S5 inputs go only after COMMITTED";
pub const S6: &str = "S6 what may be deleted cannot be referenced";
pub const S7: &str = "S7 no write of a deposed coordinator";

/// The first property that is broken by `step` or in the state it leads to; what a reader of the table would see
/// comes first.
pub fn broken(protocol: &Protocol, before: &State, step: &Step) -> Option<&'static str> {
    let after = &step.next;
    let jobs = 0..protocol.bounds.jobs;
    let checks: [(&'static str, bool); 7] = [
        (S1, jobs.clone().all(|job| rows_once(protocol, after, job))),
        (S5, jobs.clone().all(|job| inputs_after_committed(after, job))),
        (S3, jobs.clone().all(|job| referenced_exist(protocol, after, job))),
        (S4, after.applied <= 1),
        (S2, jobs.clone().all(|job| one_accepted(protocol, before, after, job))),
        (S6, jobs.clone().all(|job| condemned_is_unreferenced(after, job))),
        (S7, step.writer.is_none_or(|epoch| epoch == before.epoch)),
    ];
    checks.into_iter().find(|&(property, holds)| !holds && !protocol.unwatched.contains(&property)).map(|(p, _)| p)
}

fn object_of(protocol: &Protocol, state: &State, job: usize, attempt: u8) -> Object {
    let name = if protocol.has(Guard::AttemptNames) { attempt.into() } else { 0 };
    state.places[job].objects[name]
}

fn rows_once(protocol: &Protocol, state: &State, job: usize) -> bool {
    match state.places[job].shown {
        Shown::Input | Shown::Foreign => true,
        Shown::Twice => false,
        Shown::Output(attempt) => object_of(protocol, state, job, attempt) != Object::Corrupt,
    }
}

fn referenced_exist(protocol: &Protocol, state: &State, job: usize) -> bool {
    match state.places[job].shown {
        Shown::Input => state.places[job].input_exists,
        Shown::Output(attempt) => object_of(protocol, state, job, attempt) != Object::Absent,
        Shown::Foreign | Shown::Twice => true,
    }
}

/// An accepted attempt stays, until it is refuted; verified ones stay for good, in the record or in a segment.
fn one_accepted(protocol: &Protocol, before: &State, after: &State, job: usize) -> bool {
    let (old, new) = (&before.store.jobs[job], &after.store.jobs[job]);
    let (old_segment, segment) = (before.store.folded[job], after.store.folded[job]);
    let not_two = match (new.accepted(), segment) {
        (Some(accepted), Some(folded)) => accepted == folded,
        _ => true,
    };
    let not_replaced = match (old.accepted(), new.accepted()) {
        (Some(old), Some(new)) => old == new,
        _ => true,
    };
    let verified_stays = match old.phase {
        JobPhase::Verified(attempt) => new.phase == old.phase || segment == Some(attempt),
        JobPhase::Absent | JobPhase::Leased | JobPhase::Done(_) => true,
    };
    let segment_stays = old_segment.is_none() || old_segment == segment;
    let not_dead = match new.accepted() {
        Some(attempt) if old.accepted() != Some(attempt) => {
            let tombstones = if protocol.has(Guard::TombstoneFirst) { before.places[job].tombstones } else { 0 };
            (old.refuted | tombstones) & (1 << attempt) == 0
        }
        _ => true,
    };
    not_two && not_replaced && verified_stays && segment_stays && not_dead
}

fn inputs_after_committed(state: &State, job: usize) -> bool {
    let place = &state.places[job];
    place.input_exists || (state.store.run == Run::Committed && state.applied > 0 && place.shown != Shown::Input)
}

/// An attempt with a tombstone is in no version, in no commit that may still land, and in none that may be made.
fn condemned_is_unreferenced(state: &State, job: usize) -> bool {
    let place = &state.places[job];
    let is_condemned = |attempt: u8| place.tombstones & (1 << attempt) != 0;
    let accepted = state.store.folded[job].or(state.store.jobs[job].accepted());
    let will_be = match state.store.run {
        Run::Running => accepted.is_some_and(is_condemned),
        Run::Prepared(manifest) => is_condemned(manifest[job]),
        Run::Committed | Run::Cancelled | Run::Failed => false,
    };
    let is_shown = matches!(place.shown, Shown::Output(attempt) if is_condemned(attempt));
    let may_land = state.in_flight.iter().flatten().any(|commit| is_condemned(commit.manifest[job]));
    !will_be && !is_shown && !may_land
}
