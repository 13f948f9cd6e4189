//! The states of one compaction of one table.
//!
//! ```text
//! Submitted ─► Planning ─► Running ─► Verifying ─► Prepared ─► Committed ─► Cleaning ─► Closed
//!     └───────────┴───────────┴───────────┴─► Failed | Cancelled
//!                                                 Prepared ─► Failed only when the commit is known to be absent
//! ```
//! The driver moves a run; `Prepared` is stored, with the token the commit carries, before the table is touched, so that
//! whoever comes next asks the table whether the token landed and never guesses.

/// Where a run is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RunState {
    Submitted,
    Planning,
    Running,
    Verifying,
    Prepared,
    Committed,
    Cleaning,
    Closed,
    Failed,
    Cancelled,
}

/// The head record of a run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Run {
    pub state: RunState,
    pub table: String,
    /// The plan object below the table's root.
    pub plan_path: String,
    pub plan_sha256: [u8; 32],
    /// Jobs in the plan.
    pub jobs: u32,
    /// What the commit is found again by; set with [`RunState::Prepared`].
    pub commit_token: String,
    /// Why it failed or was cancelled.
    pub reason: String,
}

use RunState::*;

/// Every legal move.
const MOVES: [(RunState, RunState); 16] = [
    (Submitted, Planning),
    (Planning, Running),
    (Running, Verifying),
    (Verifying, Prepared),
    (Prepared, Committed),
    (Committed, Cleaning),
    (Cleaning, Closed),
    (Submitted, Failed),
    (Planning, Failed),
    (Running, Failed),
    (Verifying, Failed),
    (Prepared, Failed),
    (Submitted, Cancelled),
    (Planning, Cancelled),
    (Running, Cancelled),
    (Verifying, Cancelled),
];

impl RunState {
    /// Whether a run may go from here to `next`. Staying is always allowed, so that a repeated step is no error.
    pub fn may_become(self, next: RunState) -> bool {
        self == next || MOVES.contains(&(self, next))
    }

    /// Whether the run needs nothing more.
    pub fn is_final(self) -> bool {
        matches!(self, Closed | Failed | Cancelled)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALL: [RunState; 10] =
        [Submitted, Planning, Running, Verifying, Prepared, Committed, Cleaning, Closed, Failed, Cancelled];

    #[test]
    fn nothing_leaves_a_final_state_and_a_prepared_run_cannot_be_cancelled() {
        for from in ALL.into_iter().filter(|state| state.is_final()) {
            for to in ALL.into_iter().filter(|to| *to != from) {
                assert!(!from.may_become(to), "{from:?} -> {to:?}");
            }
        }
        assert!(!Prepared.may_become(Cancelled));
        assert!(Prepared.may_become(Failed));
        assert!(!Running.may_become(Committed));
    }
}
