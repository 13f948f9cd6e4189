//! What a plan may know of a table: its keys, their files in order, and what each footer says.
//!
//! A [`TableSnapshot`] is plain data, pinned at one moment: `table::directory` makes it, `plan` reads it, and equal
//! snapshots give equal plans. Files that look alike share what they say ([`SchemaFacts`], [`FileFacts::key_values`]),
//! since a key of a million small files has one schema.

use std::sync::Arc;

use baler_common::model::error::Failure;
use baler_common::model::object::{Identity, ObjectRef};

/// One table at one moment.
#[derive(Debug, Clone, PartialEq)]
pub struct TableSnapshot {
    /// Name of the table: its folder's name.
    pub table: String,
    /// The table's folder below the store's root; empty when the root itself is the table.
    pub folder: String,
    /// The table's root as a person would name it.
    pub source_location: String,
    /// The manifest generation that the snapshot was made on; 0 where there was none.
    pub base_generation: u64,
    /// In the order of their names' bytes.
    pub keys: Vec<KeySnapshot>,
    /// What a person should know: how the layout was read, which files were left out.
    pub notes: Vec<String>,
}

/// One key of a table: files that are compacted together.
#[derive(Debug, Clone, PartialEq)]
pub struct KeySnapshot {
    /// Directory below the table, byte for byte; `all` for the files directly in the table's folder.
    pub key: String,
    /// The same directory as a path; empty for the files directly in the table's folder.
    pub folder: String,
    /// In plan order: by chunk number, or by name in natural order.
    pub files: Vec<FileSnapshot>,
    /// Why the key cannot be compacted: its first unreadable file, or its numbering.
    pub failure: Option<Failure>,
}

/// One file of a key.
#[derive(Debug, Clone, PartialEq)]
pub struct FileSnapshot {
    /// Logical path below the table's root, such as `en/chunks-0003.parquet`.
    pub path: String,
    /// Where the object is: store alias and path below that store's root.
    pub object: ObjectRef,
    /// Size in bytes.
    pub bytes: u64,
    pub identity: Identity,
    /// Chunk numbers the file covers, inclusive: of its name, or its position in the key.
    pub first_chunk: u64,
    pub last_chunk: u64,
    /// An earlier compaction decided that this file stays as it is.
    pub settled: bool,
    /// What its footer says; `None` when it could not be read (the key then has a failure).
    pub facts: Option<Arc<FileFacts>>,
}

/// What one footer says.
#[derive(Debug, Clone, PartialEq)]
pub struct FileFacts {
    pub rows: u64,
    pub row_groups: u32,
    pub schema: Arc<SchemaFacts>,
    /// User key-value metadata, in order, `baler.*` keys included.
    pub key_values: Arc<Vec<(String, Option<String>)>>,
    /// Whether every page of every column chunk is compressed with zstd. True where there are none.
    pub all_zstd: bool,
    /// Whether every column chunk has a column index and an offset index. True where there are none.
    pub page_index: bool,
    /// Whether any row group claims an order of its rows. Such claims are dropped, since nothing proves them.
    pub sorted: bool,
    /// Uncompressed bytes of all pages.
    pub uncompressed_bytes: u64,
    /// Estimated bytes of all rows as Arrow arrays.
    pub memory_bytes: u64,
    /// Estimated Arrow bytes of the largest row group; 0 without row groups.
    pub largest_row_group_bytes: u64,
    /// Estimated Arrow bytes of the smallest row group, the last left out; `None` with fewer than two.
    pub smallest_row_group_bytes: Option<u64>,
    /// Depth-first numbers of the leaves that have a bloom filter in any row group, ascending.
    pub bloom_leaves: Arc<Vec<u32>>,
}

/// A Parquet schema, as the footer says it.
#[derive(Debug, Clone, PartialEq)]
pub struct SchemaFacts {
    /// As the footer of a Parquet file without rows.
    pub bytes: Vec<u8>,
    /// The same, parsed.
    pub root: parquet::schema::types::TypePtr,
    /// Leaf columns.
    pub leaves: u32,
}

/// The files that the newest manifest generation of a table lists, and those it holds back for the sweep.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct LiveTable {
    pub generation: u64,
    pub live: Vec<LiveFile>,
    /// Files that earlier generations list and this one does not: no longer the table's rows, not yet deleted.
    pub superseded: Vec<LiveFile>,
}

/// One file of a manifest generation, as far as planning needs it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LiveFile {
    /// Where the object is, below the table's root; `_baler/data/…` for outputs in place.
    pub object_path: String,
    /// Logical path below the table's root, such as `en/chunks-0000-0012.parquet`: gives key and chunk numbers.
    pub path: String,
    /// Size in bytes.
    pub bytes: u64,
    /// Unknown pins the size alone.
    pub identity: Identity,
    /// The compaction that wrote the generation decided that this file stays as it is: it wrote it, or found it right.
    pub settled: bool,
}

impl KeySnapshot {
    /// Bytes of all files.
    pub fn bytes(&self) -> u64 {
        self.files.iter().map(|file| file.bytes).sum()
    }

    /// Rows of all files whose footers were read.
    pub fn rows(&self) -> u64 {
        self.files.iter().map(FileSnapshot::rows).sum()
    }
}

impl FileSnapshot {
    /// Rows by the footer; 0 when it could not be read.
    pub fn rows(&self) -> u64 {
        self.facts.as_ref().map_or(0, |facts| facts.rows)
    }
}
