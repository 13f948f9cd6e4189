//! Table formats: what a table holds, and how its next version becomes visible.
//!
//! A format turns a replacement (these files out, those in) into a version that readers see at once or not at
//! all, finds again what it committed, and proves afterwards that nothing changed. It never deletes: that is the
//! sweep's.

pub mod directory;

use baler_common::model::error::Failure;

use self::directory::checks::Checks;

/// What identifies one commit over all of its retries: the compaction, and the digest of its plan.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CommitToken {
    pub compaction: String,
    /// Lower-case hexadecimal SHA-256 of the plan.
    pub plan: String,
}

/// How a table's versions are read and made. All calls block.
pub trait TableFormat {
    /// What one commit replaces by what.
    type Replacement;

    /// The newest version; 0 when Baler has made none.
    fn newest(&self) -> Result<u64, Failure>;

    /// Makes the replacement the next version, once: a token that landed already gives the version that it made.
    fn commit(&self, replacement: &Self::Replacement) -> Result<u64, Failure>;

    /// The version that the commit with this token made, if it landed.
    fn find_commit(&self, token: &CommitToken) -> Result<Option<u64>, Failure>;

    /// The four checks on a committed version. Deletes nothing, whatever they find.
    fn check(&self, version: u64) -> Result<Checks, Failure>;
}
