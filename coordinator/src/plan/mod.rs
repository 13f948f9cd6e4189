//! What should happen: pure functions from a pinned snapshot of a table to a [`Plan`].
//!
//! Nothing here reads a file or a clock; equal snapshots and options give equal plans.

pub mod arrow_hint;
pub mod metadata;
pub mod options;
pub mod runs;
pub mod schema;
pub mod snapshot;

use baler_common::model::error::Failure;
use baler_common::model::id::CompactionId;
use baler_common::model::job::JobSpec;

pub use options::{BloomChoice, Dedup, KeyPattern, PlanOptions};
pub use snapshot::{FileFacts, FileSnapshot, KeySnapshot, LiveFile, LiveTable, SchemaFacts, TableSnapshot};

/// How the outputs become visible.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PublishMode {
    /// Under a destination that mirrors the source; complete when its manifest generation exists.
    Destination,
    /// In the table's control folder; readers ask the newest manifest generation for the live files.
    InPlace,
    /// Beside the sources under their logical names, which are then set aside: readers may see both or neither.
    TornReads,
}

/// The decision for one version of one table. Immutable: stored once, then only read.
#[derive(Debug, Clone, PartialEq)]
pub struct Plan {
    pub compaction: CompactionId,
    /// Name of the table: its folder's name.
    pub table: String,
    /// The table's root as a person would name it.
    pub source_location: String,
    /// The manifest generation of the destination that the plan was made on; 0 where there was none.
    pub base_generation: u64,
    pub publish: PublishMode,
    /// In plan order: keys in order, runs in order in a key. `jobs[n].job` is `n`.
    pub jobs: Vec<JobSpec>,
    /// Every file that no job reads, with the reason.
    pub skips: Vec<Skip>,
    /// Keys that cannot be compacted, with the reason; the others go on.
    pub refusals: Vec<Refusal>,
    /// Every key with what it held, for the four checks.
    pub keys: Vec<KeyFigures>,
    /// What a person should know of the plan: how keys and order were read, how metadata was merged.
    pub notes: Vec<String>,
}

/// What a key held when it was planned.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeyFigures {
    pub key: String,
    pub files: u64,
    pub bytes: u64,
    pub rows: u64,
}

/// A key that is left as it is because of what is wrong with it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refusal {
    pub key: String,
    pub failure: Failure,
}

/// A file that is left as it is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Skip {
    pub key: String,
    /// Path below the table's root.
    pub file: String,
    pub bytes: u64,
    pub rows: u64,
    pub reason: SkipReason,
}

/// Why a file needs no job.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SkipReason {
    /// A run of one file that is already as Baler would write it.
    AlreadyRight,
    /// The run has fewer files than `--min-input-files`.
    TooFewFiles { files: u32, min: u32 },
    /// `--max-bytes` was reached by earlier runs.
    OverBudget,
    /// The key does not match `--where`.
    NotSelected,
}
