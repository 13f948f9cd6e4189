//! The protocol as states and steps: what coordinators, workers, the store and the table may do next.
//!
//! There is no time. Whatever a real process does after a timeout, a lease, a retry or a long sleep, it may do here at
//! any moment: take over from a leader that lives, act on a view that is old, finish an attempt that was given up,
//! land a commit or a delete hours later. What must not happen then is held by [`Guard`]s, each with a switch.
//!
//! ```text
//! run    Running ──► Prepared ──► Committed          job   absent ──► Leased ──► Done ──► Verified ──► folded
//!           └─► Cancelled  └─► Failed (definite)                        ▲ refuted ┘        (key absent again)
//! ```
//!
//! Four things are smaller than in the world without losing a behaviour:
//! - A mod revision is the record's value. Records only grow, so equal values are equal revisions; an absent key has
//!   revision 0 in the store as well, and folding makes a key absent again, here as there.
//! - A table version is a mark on the requests in flight: a request is on the current version or it is not. With the
//!   version compare one that is not can only fail, so it is taken away.
//! - A report is not a message with a life: from the upload on, any coordinator may receive it, never, once or often.
//! - A delete that is allowed by something permanent may land at any time, so it is not stored as a request either.

use super::explorer::Model;
use super::guards::{Bounds, Guard};
use super::invariants;
use super::state::{
    COORDINATORS, Commit, Coordinator, DOWN, JOBS, JobPhase, Manifest, Object, RECORDS, Record, Records, Run, Shown,
    State,
};

pub struct Step {
    pub name: &'static str,
    /// The job and the attempt or coordinator that it is about, for reading.
    pub about: (usize, u8),
    pub next: State,
    /// Epoch of the coordinator whose write of state was applied.
    pub writer: Option<u8>,
}

/// The protocol within bounds, and without the guards in `removed`.
pub struct Protocol {
    pub bounds: Bounds,
    pub removed: Vec<Guard>,
    /// Properties that are not looked at, to see what comes after them.
    pub unwatched: Vec<&'static str>,
}

fn bit(attempt: u8) -> u8 {
    1 << attempt
}

/// One key of the store, with what a write makes of it.
#[derive(Clone, Copy)]
enum Write {
    Run(Run),
    Job(usize, Record),
    Segment(usize, u8),
    Tombstone(usize, u8),
}

impl Model for Protocol {
    type State = State;
    type Step = Step;

    fn initial(&self) -> State {
        State::first()
    }

    fn steps(&self, s: &State, steps: &mut Vec<Step>) {
        for who in 0..COORDINATORS {
            self.leadership(s, who, steps);
            if s.coordinators[who].epoch == 0 {
                continue;
            }
            for job in 0..self.bounds.jobs {
                self.attempts(s, who, job, steps);
                self.folding(s, who, job, steps);
                self.collection(s, who, job, steps);
            }
            self.run(s, who, steps);
        }
        for job in 0..self.bounds.jobs {
            self.objects(s, job, steps);
        }
        self.table(s, steps);
    }

    fn name(&self, step: &Step) -> String {
        format!("{} {}/{}", step.name, step.about.0, step.about.1)
    }

    /// Coordinators and jobs have no identity of their own: their order in a state is the smallest of all.
    fn target(&self, step: &Step) -> State {
        let state = step.next.in_order();
        if self.bounds.jobs < JOBS { state } else { state.min(state.with_jobs_swapped().in_order()) }
    }

    fn broken(&self, before: &State, step: &Step) -> Option<&'static str> {
        invariants::broken(self, before, step).filter(|property| !self.unwatched.contains(property))
    }

    /// Neither somebody's wish to stop, nor a foreign writer, nor a fault is a way to an end.
    fn counts(&self, step: &Step) -> bool {
        !matches!(step.name, "cancel" | "foreign rewrite" | "revert" | "upload corrupt")
    }

    fn is_end(&self, s: &State) -> bool {
        matches!(s.store.run, Run::Committed | Run::Cancelled | Run::Failed)
            || (0..self.bounds.jobs).any(|job| self.is_exhausted(s, job))
    }

    fn must_end(&self, s: &State) -> bool {
        s.epoch > 0 && s.coordinators.iter().any(|coordinator| coordinator.epoch == s.epoch)
    }
}

impl Protocol {
    pub fn has(&self, guard: Guard) -> bool {
        !self.removed.contains(&guard)
    }

    /// The job got no usable result and no attempt is left; the real one is quarantined.
    fn is_exhausted(&self, s: &State, job: usize) -> bool {
        let (record, place) = (&s.store.jobs[job], &s.places[job]);
        let usable = record.listed & !record.refuted & !place.tombstones;
        record.accepted().is_none() && s.store.folded[job].is_none() && usable == 0 && self.fresh(s, job).is_none()
    }

    /// The name of the next attempt: never one that was given out before.
    fn fresh(&self, s: &State, job: usize) -> Option<u8> {
        let issued: u32 = s.places.iter().map(|place| place.issued.count_ones()).sum();
        let next = s.places[job].issued.trailing_ones();
        let allowed = issued < self.bounds.attempts_in_all && (next as usize) < self.bounds.attempts_per_job;
        allowed.then_some(next as u8)
    }

    fn object(&self, attempt: u8) -> usize {
        if self.has(Guard::AttemptNames) { attempt.into() } else { 0 }
    }

    /// A transaction: applied if its compares hold. The coordinator learns it, or in doubt does not. Tombstones are not
    /// part of a view: the completion compares them in the store, and what they allow to delete is permanent.
    fn write(&self, s: &State, who: usize, name: &'static str, attempt: u8, write: Write, steps: &mut Vec<Step>) {
        let writer = &s.coordinators[who];
        if self.has(Guard::EpochCompare) && writer.epoch != s.epoch {
            return;
        }
        let unchanged = match write {
            Write::Run(_) => writer.view.run == s.store.run,
            Write::Job(job, _) | Write::Tombstone(job, _) => writer.view.jobs[job] == s.store.jobs[job],
            Write::Segment(job, _) => s.store.folded[job].is_none(),
        };
        if self.has(Guard::ModCompare) && !unchanged {
            return;
        }
        let mut next = *s;
        let apply = |records: &mut Records| match write {
            Write::Run(run) => records.run = run,
            Write::Job(job, record) => records.jobs[job] = record,
            Write::Segment(job, attempt) => records.folded[job] = Some(attempt),
            Write::Tombstone(..) => {}
        };
        apply(&mut next.store);
        let mut about = (0, attempt);
        match write {
            Write::Tombstone(job, attempt) => {
                next.places[job].tombstones |= bit(attempt);
                about.0 = job;
            }
            Write::Job(job, record) => {
                next.places[job].issued |= record.listed;
                about.0 = job;
            }
            Write::Run(_) | Write::Segment(..) => {}
        }
        if self.bounds.doubt && !matches!(write, Write::Tombstone(..)) {
            steps.push(Step { name, about, next, writer: Some(writer.epoch) });
        }
        let view = &mut next.coordinators[who];
        apply(&mut view.view);
        if let Write::Job(job, Record { phase: JobPhase::Verified(_) | JobPhase::Absent, .. }) = write {
            // Nothing is asked of these reports any more; forgetting them leaves fewer states.
            view.reported[job] = 0;
        }
        steps.push(Step { name, about, next, writer: Some(writer.epoch) });
    }

    fn leadership(&self, s: &State, who: usize, steps: &mut Vec<Step>) {
        let coordinator = &s.coordinators[who];
        let mut push = |name, epoch, coordinator| {
            let mut next = *s;
            next.epoch = epoch;
            next.coordinators[who] = coordinator;
            steps.push(Step { name, about: (who, epoch), next, writer: None });
        };
        let leads = s.epoch > 0 && coordinator.epoch == s.epoch;
        if !leads && s.epoch < self.bounds.epochs {
            let view = if self.has(Guard::LoadAtTakeover) { s.store } else { coordinator.view };
            push("take over", s.epoch + 1, Coordinator { epoch: s.epoch + 1, view, reported: [0; JOBS] });
        }
        if coordinator.epoch > 0 {
            push("crash", s.epoch, DOWN);
            if self.bounds.doubt && coordinator.view != s.store {
                push("read anew", s.epoch, Coordinator { view: s.store, ..*coordinator });
            }
        }
    }

    /// Lease, report, completion, verification.
    fn attempts(&self, s: &State, who: usize, job: usize, steps: &mut Vec<Step>) {
        let coordinator = &s.coordinators[who];
        let (view, record) = (&coordinator.view, coordinator.view.jobs[job]);
        let is_open = view.folded[job].is_none() && record.accepted().is_none();
        if view.run == Run::Running
            && is_open
            && let Some(attempt) = self.fresh(s, job)
        {
            // The first lease, a lease that ran out and speculation are one step, because there is no time.
            let leased = Record { phase: JobPhase::Leased, listed: record.listed | bit(attempt), ..record };
            self.write(s, who, "lease", attempt, Write::Job(job, leased), steps);
        }
        for attempt in 0..self.bounds.attempts_per_job as u8 {
            let is_taken = is_open || !self.has(Guard::FirstCompletionWins);
            let known = if self.has(Guard::ListedOnly) { record.listed } else { record.listed | record.refuted };
            if !is_taken || known & bit(attempt) == 0 {
                // A report that the view has no use for is refused, and may come again.
                continue;
            }
            let object = s.places[job].objects[self.object(attempt)];
            if coordinator.reported[job] & bit(attempt) == 0 {
                if object != Object::Absent {
                    let mut next = *s;
                    next.coordinators[who].reported[job] |= bit(attempt);
                    steps.push(Step { name: "report", about: (job, attempt), next, writer: None });
                }
                continue;
            }
            let has_tombstone = s.places[job].tombstones & bit(attempt) != 0;
            if has_tombstone && self.has(Guard::TombstoneCheck) && self.has(Guard::TombstoneFirst) {
                continue;
            }
            let done = Record { phase: JobPhase::Done(attempt), ..record };
            if done != record {
                self.write(s, who, "complete", attempt, Write::Job(job, done), steps);
            }
        }
        if let JobPhase::Done(attempt) = record.phase {
            let verified = Record { phase: JobPhase::Verified(attempt), ..record };
            let refuted = Record {
                phase: JobPhase::Leased,
                listed: record.listed & !bit(attempt),
                refuted: record.refuted | bit(attempt),
            };
            let judged = match s.places[job].objects[self.object(attempt)] {
                Object::Good => Some(("verify", verified)),
                Object::Corrupt if self.has(Guard::JudgeFingerprints) => Some(("refute", refuted)),
                Object::Corrupt => Some(("verify", verified)),
                Object::Absent => None,
            };
            if let Some((name, record)) = judged {
                self.write(s, who, name, attempt, Write::Job(job, record), steps);
            }
        }
    }

    /// Two steps, so that a crash in between leaves segment and key.
    fn folding(&self, s: &State, who: usize, job: usize, steps: &mut Vec<Step>) {
        let view = &s.coordinators[who].view;
        let attempt = match view.jobs[job].phase {
            JobPhase::Verified(attempt) => attempt,
            JobPhase::Done(attempt) if !self.has(Guard::FoldVerified) => attempt,
            JobPhase::Absent | JobPhase::Leased | JobPhase::Done(_) => return,
        };
        if !self.bounds.folding || view.run != Run::Running {
            return;
        }
        if view.folded[job].is_none() {
            self.write(s, who, "write segment", attempt, Write::Segment(job, attempt), steps);
        } else {
            self.write(s, who, "delete key", attempt, Write::Job(job, RECORDS.jobs[job]), steps);
        }
    }

    /// Tombstones; what they allow to delete goes in [`Protocol::objects`].
    fn collection(&self, s: &State, who: usize, job: usize, steps: &mut Vec<Step>) {
        let view = &s.coordinators[who].view;
        let accepted = view.folded[job].or(view.jobs[job].accepted());
        let is_over = matches!(view.run, Run::Cancelled | Run::Failed);
        let errs = matches!(view.run, Run::Prepared(_)) && s.applied == 0 && !self.has(Guard::KeepOnUnknown);
        let place = &s.places[job];
        for attempt in 0..self.bounds.attempts_per_job as u8 {
            let is_new = place.issued & bit(attempt) != 0 && place.tombstones & bit(attempt) == 0;
            let lost = accepted.is_some_and(|accepted| accepted != attempt);
            if !is_new || !(is_over || errs || lost) {
                continue;
            }
            if self.has(Guard::TombstoneFirst) {
                self.write(s, who, "tombstone", attempt, Write::Tombstone(job, attempt), steps);
            } else {
                let mut next = *s;
                next.places[job].tombstones |= bit(attempt);
                steps.push(Step { name: "request delete", about: (job, attempt), next, writer: None });
            }
        }
    }

    /// Preparation, cancel, commit requests, what the history says, and when inputs may go.
    fn run(&self, s: &State, who: usize, steps: &mut Vec<Step>) {
        let view = &s.coordinators[who].view;
        let jobs = &s.places[..self.bounds.jobs];
        let manifest = match view.run {
            Run::Running => {
                if let Some(manifest) = self.manifest(view) {
                    self.write(s, who, "prepare", 0, Write::Run(Run::Prepared(manifest)), steps);
                }
                self.write(s, who, "cancel", 0, Write::Run(Run::Cancelled), steps);
                return;
            }
            Run::Prepared(manifest) => manifest,
            Run::Committed => {
                let is_unreferenced = jobs.iter().all(|place| place.shown != Shown::Input);
                if !s.boundary && (is_unreferenced || !self.has(Guard::BoundaryUnreferenced)) {
                    let next = State { boundary: true, ..*s };
                    steps.push(Step { name: "raise boundary", about: (who, 0), next, writer: None });
                }
                return;
            }
            Run::Cancelled | Run::Failed => return,
        };
        let inputs_live = jobs.iter().all(|place| place.shown == Shown::Input);
        let may_send =
            (s.applied == 0 || !self.has(Guard::HistoryCheck)) && (inputs_live || !self.has(Guard::InputLiveCheck));
        let under_way = s.in_flight.iter().flatten().count();
        if may_send && under_way < self.bounds.in_flight {
            let mut next = *s;
            let free = next.in_flight.iter_mut().find(|slot| slot.is_none()).expect("in_flight is at most the slots");
            *free = Some(Commit { on_current_version: true, manifest });
            steps.push(Step { name: "send commit", about: (who, 0), next, writer: None });
        }
        if s.applied > 0 {
            self.write(s, who, "committed", 0, Write::Run(Run::Committed), steps);
        } else if !inputs_live || !self.has(Guard::FailOnlyDefinite) {
            self.write(s, who, "fail", 0, Write::Run(Run::Failed), steps);
        }
        if !self.has(Guard::NoCancelAfterPrepared) {
            self.write(s, who, "cancel", 0, Write::Run(Run::Cancelled), steps);
        }
    }

    /// What would be committed, if every job has its result.
    fn manifest(&self, view: &Records) -> Option<Manifest> {
        let mut manifest = [0; JOBS];
        for (job, slot) in manifest.iter_mut().enumerate().take(self.bounds.jobs) {
            *slot = match (view.folded[job], view.jobs[job].phase) {
                (Some(attempt), _) | (None, JobPhase::Verified(attempt)) => attempt,
                (None, JobPhase::Done(attempt)) if !self.has(Guard::PrepareVerified) => attempt,
                (None, JobPhase::Absent | JobPhase::Leased | JobPhase::Done(_)) => return None,
            };
        }
        Some(manifest)
    }

    /// Uploads and deletes, whenever they land.
    fn objects(&self, s: &State, job: usize, steps: &mut Vec<Step>) {
        let place = &s.places[job];
        for attempt in 0..self.bounds.attempts_per_job as u8 {
            if place.issued & bit(attempt) == 0 {
                continue;
            }
            let name = self.object(attempt);
            let mut push = |step, object| {
                let mut next = *s;
                next.places[job].objects[name] = object;
                steps.push(Step { name: step, about: (job, attempt), next, writer: None });
            };
            if place.objects[name] == Object::Absent || !self.has(Guard::AttemptNames) {
                push("upload", Object::Good);
                let corrupt = s.places.iter().flat_map(|place| place.objects).filter(|o| *o == Object::Corrupt).count();
                if corrupt < self.bounds.corrupt {
                    push("upload corrupt", Object::Corrupt);
                }
            }
            if place.objects[name] != Object::Absent && place.tombstones & bit(attempt) != 0 {
                push("delete", Object::Absent);
            }
        }
        if place.input_exists && (s.boundary || self.may_go_early(s)) {
            let mut next = *s;
            next.places[job].input_exists = false;
            steps.push(Step { name: "delete input", about: (job, 0), next, writer: None });
        }
    }

    fn may_go_early(&self, s: &State) -> bool {
        !self.has(Guard::InputsAfterCommitted) && matches!(s.store.run, Run::Prepared(_) | Run::Failed)
    }

    /// Commits that land or get lost, and a foreign writer.
    fn table(&self, s: &State, steps: &mut Vec<Step>) {
        for index in 0..s.in_flight.len() {
            let Some(commit) = s.in_flight[index] else { continue };
            let mut without = *s;
            without.in_flight[index] = None;
            // Lost on the way, or refused because an unrelated version came first.
            steps.push(Step { name: "commit lost", about: (0, 0), next: without, writer: None });
            if commit.on_current_version || !self.has(Guard::VersionCompare) {
                let mut next = self.new_version(without);
                for (place, attempt) in next.places.iter_mut().zip(commit.manifest).take(self.bounds.jobs) {
                    place.shown = if place.shown == Shown::Input { Shown::Output(attempt) } else { Shown::Twice };
                }
                next.applied = (next.applied + 1).min(2);
                steps.push(Step { name: "commit lands", about: (0, 0), next, writer: None });
            }
        }
        if s.foreign == self.bounds.foreign {
            return;
        }
        let jobs = 0..self.bounds.jobs;
        let is_committed = jobs.clone().all(|job| matches!(s.places[job].shown, Shown::Output(_)));
        if is_committed && (!s.boundary || !self.has(Guard::RevertMindsBoundary)) {
            let mut next = self.new_version(*s);
            next.foreign += 1;
            jobs.clone().for_each(|job| next.places[job].shown = Shown::Input);
            steps.push(Step { name: "revert", about: (0, 0), next, writer: None });
        }
        for job in jobs {
            if s.places[job].shown == Shown::Input {
                let mut next = self.new_version(*s);
                next.foreign += 1;
                next.places[job].shown = Shown::Foreign;
                steps.push(Step { name: "foreign rewrite", about: (job, 0), next, writer: None });
            }
        }
    }

    /// The table moves on: requests under way were made for an older version.
    fn new_version(&self, mut s: State) -> State {
        for request in &mut s.in_flight {
            if self.has(Guard::VersionCompare) {
                *request = None;
            } else if let Some(commit) = request {
                commit.on_current_version = false;
            }
        }
        s
    }
}
