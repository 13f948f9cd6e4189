//! What a worker says of an attempt: the measurements that the coordinator judges.

use super::error::Failure;
use super::fingerprint::Fingerprint;
use super::id::{AttemptId, CompactionId, Epoch, JobId};
use super::object::{Identity, ObjectRef};

/// One object that an attempt wrote.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OutputFile {
    /// Where it is: an attempt-unique staging name.
    pub object: ObjectRef,
    /// Logical name below the table's root, under which it is to be published.
    pub path: String,
    /// Size in bytes.
    pub bytes: u64,
    pub rows: u64,
    pub row_groups: u32,
    /// SHA-256 of the bytes as written.
    pub sha256: [u8; 32],
    pub identity: Identity,
    /// Chunk numbers it covers, inclusive.
    pub first_chunk: u64,
    pub last_chunk: u64,
    /// Fingerprint of this object's rows alone, from the stored object by the independent decoder.
    pub fingerprint: Fingerprint,
}

/// Proof of one attempt: what went in, what is stored, and who checked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Receipt {
    /// In order. Consecutive; never empty.
    pub outputs: Vec<OutputFile>,
    /// What the output must hold: the inputs by the independent decoder (for distinct: their first occurrences).
    pub expected: Fingerprint,
    /// What the stored outputs hold together, by the independent decoder.
    pub stored: Fingerprint,
    /// The decoder, its version, and each column that another one checked, such as
    /// `polars-parquet 0.55.2; m: parquet-rs 60.1.0`.
    pub verified_by: String,
    /// Rows read from the inputs, before deduplication.
    pub input_rows: u64,
    /// Wall time of the attempt in milliseconds.
    pub elapsed_ms: u64,
}

/// The end of an attempt.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Outcome {
    pub compaction: CompactionId,
    pub epoch: Epoch,
    pub attempt: AttemptId,
    pub job: JobId,
    pub result: Result<Receipt, Failure>,
}

/// How far a running attempt is. All counts only grow.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Progress {
    /// Input bytes read for writing.
    pub read_bytes: u64,
    /// Output bytes written.
    pub written_bytes: u64,
    /// Rows written.
    pub written_rows: u64,
    /// Rows fingerprinted, of inputs and output together.
    pub verified_rows: u64,
}
