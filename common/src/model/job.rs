//! What a worker is asked to do: a [`JobSpec`] says everything, and knows no table format.

use super::id::{AttemptId, CompactionId, Epoch, JobId};
use super::object::{Identity, ObjectRef};
use super::options::WriteOptions;

/// What happens to the rows of the inputs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum RowMode {
    /// Every row, in order, re-encoded into one new file.
    Copy,
    /// The one input file byte for byte: it is already right.
    Verbatim,
    /// The first occurrence of each distinct row over all inputs, in order; cut into one or more files.
    Distinct,
}

/// One input of a job.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InputFile {
    pub object: ObjectRef,
    /// Size in bytes at planning time.
    pub bytes: u64,
    /// Rows by the footer at planning time.
    pub rows: u64,
    pub identity: Identity,
    /// Chunk numbers the file covers, inclusive: of its name, or its position in the key.
    pub first_chunk: u64,
    pub last_chunk: u64,
    pub columns: ColumnMap,
}

/// Which leaf column of an input feeds each leaf column of the output.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ColumnMap {
    /// The Parquet schemas are equal: leaf n feeds leaf n.
    Same,
    /// For each output leaf, depth-first: the input's leaf, or `None` where the input has no such column.
    Leaves(Vec<Option<u32>>),
}

/// A job: one run of consecutive input files that becomes one output (or, for [`RowMode::Distinct`], one or more).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct JobSpec {
    pub job: JobId,
    /// Name of the table, for messages and progress.
    pub table: String,
    /// Key in the table (its directory below the table, `all` for a flat table), for messages and progress.
    pub key: String,
    pub mode: RowMode,
    /// In order. Never empty.
    pub inputs: Vec<InputFile>,
    /// Logical name of the output below the table's root, such as `en/chunks-0000-0012.parquet`. For
    /// [`RowMode::Distinct`] with more than one output, the worker derives the names from the chunk ranges.
    pub output_path: String,
    /// Where attempts write: store alias and folder. Names in it carry job, epoch and attempt.
    pub staging: ObjectRef,
    /// The output's Parquet schema, as the footer of a Parquet file without rows.
    pub schema: Vec<u8>,
    pub options: WriteOptions,
    /// Estimated Arrow bytes of a row, in thousandths of a byte, from the key's largest file. Never 0.
    pub memory_millibytes_per_row: u64,
    /// Largest output in bytes at which a [`RowMode::Distinct`] job cuts.
    pub target_bytes: u64,
    /// User key-value metadata of the output footer, merged by the planner, in order.
    pub key_values: Vec<(String, Option<String>)>,
}

/// A job handed to a worker.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Assignment {
    pub compaction: CompactionId,
    pub epoch: Epoch,
    pub attempt: AttemptId,
    pub spec: JobSpec,
}

impl JobSpec {
    /// Bytes of all inputs.
    pub fn input_bytes(&self) -> u64 {
        self.inputs.iter().map(|input| input.bytes).sum()
    }

    /// Rows of all inputs by their footers.
    pub fn input_rows(&self) -> u64 {
        self.inputs.iter().map(|input| input.rows).sum()
    }
}

impl Assignment {
    /// Name of the attempt's n-th output object in the staging folder. No other attempt can have it, and no
    /// `*.parquet` glob matches it.
    pub fn staging_object(&self, output: usize) -> ObjectRef {
        let Assignment { epoch, attempt, spec, .. } = self;
        let name = format!("{:08x}-{:06x}-{attempt}-{output}.part", spec.job.0, epoch.0);
        ObjectRef::new(spec.staging.store.clone(), format!("{}/{name}", spec.staging.path))
    }
}
