//! What can be switched off, and how far the model goes.

/// What keeps a late or doubled actor from doing harm.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Guard {
    /// Every write of state compares the epoch.
    EpochCompare,
    /// Every write of a record compares the record's revision.
    ModCompare,
    /// Who takes over reads the state at the revision of its epoch.
    LoadAtTakeover,
    /// Objects carry the attempt's name, so no two attempts write the same one.
    AttemptNames,
    /// A completion compares that the attempt has no tombstone.
    TombstoneCheck,
    /// Only an attempt that the record lists is accepted: no refuted one.
    ListedOnly,
    /// A job that is done takes no other completion.
    FirstCompletionWins,
    /// An attempt is verified only if its two fingerprints agree.
    JudgeFingerprints,
    /// A commit is prepared only from verified jobs.
    PrepareVerified,
    /// Only verified jobs are folded.
    FoldVerified,
    /// A commit applies only to the version that it was made for.
    VersionCompare,
    /// A commit is sent only if the history does not show it.
    HistoryCheck,
    /// A commit is sent only if all its inputs are live.
    InputLiveCheck,
    /// An error of a commit is no reason to give its files up.
    KeepOnUnknown,
    /// An error of a commit is no reason to call the run failed; a missing input is.
    FailOnlyDefinite,
    /// After the commit is prepared nobody can cancel.
    NoCancelAfterPrepared,
    /// A durable tombstone comes before the delete.
    TombstoneFirst,
    /// Inputs are deleted only after the record says committed.
    InputsAfterCommitted,
    /// The sweep's boundary is raised only when the current version shows no input.
    BoundaryUnreferenced,
    /// Who reverts the table to its inputs respects the boundary.
    RevertMindsBoundary,
}

pub const GUARDS: [Guard; 20] = [
    Guard::EpochCompare,
    Guard::ModCompare,
    Guard::LoadAtTakeover,
    Guard::AttemptNames,
    Guard::TombstoneCheck,
    Guard::ListedOnly,
    Guard::FirstCompletionWins,
    Guard::JudgeFingerprints,
    Guard::PrepareVerified,
    Guard::FoldVerified,
    Guard::VersionCompare,
    Guard::HistoryCheck,
    Guard::InputLiveCheck,
    Guard::KeepOnUnknown,
    Guard::FailOnlyDefinite,
    Guard::NoCancelAfterPrepared,
    Guard::TombstoneFirst,
    Guard::InputsAfterCommitted,
    Guard::BoundaryUnreferenced,
    Guard::RevertMindsBoundary,
];

/// How far each dimension goes.
#[derive(Clone, Copy, Debug)]
pub struct Bounds {
    pub jobs: usize,
    /// Attempts that one job may get, two at once included.
    pub attempts_per_job: usize,
    pub attempts_in_all: u32,
    /// Times that a coordinator may take over.
    pub epochs: u8,
    /// Commit requests under way at once, at most 2.
    pub in_flight: usize,
    /// Objects with wrong rows at once.
    pub corrupt: usize,
    /// Changes by somebody else: an input rewritten, or the commit reverted.
    pub foreign: u8,
    pub folding: bool,
    /// Answers of the store get lost, and coordinators read their view anew at any moment.
    pub doubt: bool,
}
