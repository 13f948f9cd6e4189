//! What there is: records, coordinators and what they believe, objects, the table, and requests under way.
//!
//! Everything is plain and small, since millions are kept. Sets of attempts are bits of a byte.

pub const COORDINATORS: usize = 2;
pub const JOBS: usize = 2;
pub const ATTEMPTS: usize = 3;

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum JobPhase {
    Absent,
    Leased,
    Done(u8),
    Verified(u8),
}

/// A job's record. Sets of attempts are bits.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Record {
    pub phase: JobPhase,
    pub listed: u8,
    pub refuted: u8,
}

impl Record {
    pub fn accepted(&self) -> Option<u8> {
        match self.phase {
            JobPhase::Done(attempt) | JobPhase::Verified(attempt) => Some(attempt),
            JobPhase::Absent | JobPhase::Leased => None,
        }
    }
}

/// What a commit publishes: an attempt for each job.
pub type Manifest = [u8; JOBS];

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Run {
    Running,
    Prepared(Manifest),
    Committed,
    Cancelled,
    Failed,
}

/// What the store holds of a run, and what a coordinator believes that it holds.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Records {
    pub run: Run,
    pub jobs: [Record; JOBS],
    /// The attempt that a result segment names.
    pub folded: [Option<u8>; JOBS],
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Coordinator {
    /// 0: does not lead and never did since it started.
    pub epoch: u8,
    pub view: Records,
    /// Attempts whose report came and whose object was looked at.
    pub reported: [u8; JOBS],
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Object {
    Absent,
    Good,
    Corrupt,
}

/// What the current version of the table shows of one job's rows.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Shown {
    Input,
    Output(u8),
    Foreign,
    Twice,
}

/// A commit request that left its sender.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Commit {
    pub on_current_version: bool,
    pub manifest: Manifest,
}

/// What happened to one job outside the records.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Place {
    /// Attempts that were handed to a worker, which may finish them at any time.
    pub issued: u8,
    /// Attempts with a tombstone, or without [`Guard::TombstoneFirst`] those with a delete under way.
    pub tombstones: u8,
    pub objects: [Object; ATTEMPTS],
    pub shown: Shown,
    pub input_exists: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct State {
    pub epoch: u8,
    pub store: Records,
    pub coordinators: [Coordinator; COORDINATORS],
    pub places: [Place; JOBS],
    pub in_flight: [Option<Commit>; 2],
    /// How often the table's history shows the commit; 2 stands for more.
    pub applied: u8,
    /// Changes that somebody else made.
    pub foreign: u8,
    /// Versions before the commit may be swept: nobody reverts to them any more.
    pub boundary: bool,
}

/// What a new store holds.
pub const RECORDS: Records = Records {
    run: Run::Running,
    jobs: [Record { phase: JobPhase::Absent, listed: 0, refuted: 0 }; JOBS],
    folded: [None; JOBS],
};

/// A process that was just started.
pub const DOWN: Coordinator = Coordinator { epoch: 0, view: RECORDS, reported: [0; JOBS] };

impl State {
    /// Nobody has led yet, and the table shows its inputs.
    pub fn first() -> State {
        let place = Place {
            issued: 0,
            tombstones: 0,
            objects: [Object::Absent; ATTEMPTS],
            shown: Shown::Input,
            input_exists: true,
        };
        State {
            epoch: 0,
            store: RECORDS,
            coordinators: [DOWN; COORDINATORS],
            places: [place; JOBS],
            in_flight: [None; 2],
            applied: 0,
            foreign: 0,
            boundary: false,
        }
    }

    /// The same state with the names of the two jobs exchanged.
    pub fn with_jobs_swapped(mut self) -> State {
        for records in [&mut self.store].into_iter().chain(self.coordinators.iter_mut().map(|c| &mut c.view)) {
            records.jobs.swap(0, 1);
            records.folded.swap(0, 1);
            if let Run::Prepared(manifest) = &mut records.run {
                manifest.swap(0, 1);
            }
        }
        for coordinator in &mut self.coordinators {
            coordinator.reported.swap(0, 1);
        }
        self.places.swap(0, 1);
        for commit in self.in_flight.iter_mut().flatten() {
            commit.manifest.swap(0, 1);
        }
        self
    }

    /// The state with what has no identity of its own in order.
    pub fn in_order(mut self) -> State {
        self.coordinators.sort_unstable();
        self.in_flight.sort_unstable();
        self
    }
}
