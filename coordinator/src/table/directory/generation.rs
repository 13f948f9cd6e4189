//! One version of a table: a manifest generation, `_baler/manifest/{generation:020}.json`.
//!
//! It lists the files that are the table's rows, with the proof of each that Baler wrote, and the files that are not any
//! more and wait for the sweep. It is created with a create-only write, never changed; the highest number is the table.
//! A create that finds the name taken is resolved by the commit token in what has the name.
//!
//! Stored form: `{"format":"baler.manifest","version":1,"sha256":"…","body":{…}}` on one line; the digest is over the
//! bytes of the body. A reader refuses another format, an unknown version, and a body that is not the digest's.

mod stored;

use std::collections::HashSet;

use baler_common::model::error::Failure;
use baler_common::model::fingerprint::Fingerprint;
use baler_common::model::object::Identity;
use baler_common::runtime::storage::Creation;

use super::{DirectoryTable, inconsistent};
use crate::plan::PublishMode;
use crate::table::CommitToken;

pub use stored::{decode, encode, hex, identity_from_json, identity_to_json, unhex};

/// Folder of the generations.
pub const MANIFESTS: &str = "_baler/manifest";

/// The number of the highest generation that may have been swept.
const BOUNDARY: &str = "_baler/gc_boundary";

/// One version of a table.
#[derive(Debug, Clone, PartialEq)]
pub struct Generation {
    /// From 1.
    pub generation: u64,
    /// The generation it replaced; 0 for the first.
    pub parent: u64,
    /// Name of the table.
    pub table: String,
    /// The table's source as a person would name it.
    pub source_location: String,
    pub token: CommitToken,
    /// Milliseconds since the epoch by the coordinator's clock. For people; retention goes by the store's clock.
    pub created_ms: i64,
    pub publish: PublishMode,
    pub made_by: MadeBy,
    /// What was replaced or kept: the table (with a destination: its source, and what was kept) when it was planned.
    pub before: Figures,
    /// Files that were listed before, with a destination: by the parent, else what the plan saw.
    pub listed_before: u64,
    /// Files of `live` that this generation put there.
    pub added: u64,
    /// Files that were listed before and are not any more.
    pub removed: u64,
    /// Rows that deduplication left out on purpose.
    pub duplicate_rows: u64,
    /// The table's files in the order of keys and chunks.
    pub live: Vec<ListedFile>,
    /// Files of this table that are not its rows any more and have not been deleted yet.
    pub superseded: Vec<SupersededFile>,
    /// Keys for which nothing new was committed, with the reason: what was listed for them still is.
    pub kept_keys: Vec<KeptKey>,
}

/// What made a generation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MadeBy {
    Compaction,
    /// `baler revert`, which undid generation `undone`.
    Revert {
        undone: u64,
    },
    /// `--swap`, which gave the live files their plain names.
    Swap,
}

/// Files, bytes and rows together.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Figures {
    pub files: u64,
    pub bytes: u64,
    pub rows: u64,
}

/// A file that is part of the table.
#[derive(Debug, Clone, PartialEq)]
pub struct ListedFile {
    pub key: String,
    /// Logical path below the table, such as `en/chunks-0000-0012.parquet`.
    pub path: String,
    /// Path of the object below the table; another one than `path` for outputs in place.
    pub object: String,
    pub bytes: u64,
    pub rows: u64,
    pub identity: Identity,
    pub first_chunk: u64,
    pub last_chunk: u64,
    /// Where known: of every file that Baler wrote.
    pub sha256: Option<[u8; 32]>,
    /// Baler wrote it, or found it right: a later compaction may leave it as it is.
    pub settled: bool,
    /// The generation that put it there; 0 for files that were there before Baler.
    pub since: u64,
    /// The proof, for files that Baler wrote.
    pub proof: Option<Proof>,
    /// What it was made of, where that lies in another place than the table (`--out`).
    pub sources: Vec<SourceFile>,
}

/// Why a file may be trusted: the judged receipt of its job.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Proof {
    /// SHA-256 of the job's canonical form.
    pub job: [u8; 32],
    /// Of this file's rows alone, by the independent decoder.
    pub fingerprint: Fingerprint,
    /// What all outputs of the job had to hold.
    pub expected: Fingerprint,
    /// What they hold.
    pub stored: Fingerprint,
    pub verified_by: String,
}

/// A file that a file of another place was made of.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SourceFile {
    /// Path of the object below the source table.
    pub path: String,
    pub bytes: u64,
    pub rows: u64,
    pub identity: Identity,
}

/// A file that is not part of the table any more.
#[derive(Debug, Clone, PartialEq)]
pub struct SupersededFile {
    /// The file as it was listed; `object` says where it lies now.
    pub file: ListedFile,
    pub why: Why,
    /// The generation that does not list it any more.
    pub superseded_in: u64,
}

/// Why a file is not part of the table any more.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Why {
    /// Its rows are in an output now.
    Compacted,
    /// Its key's source files changed or are gone.
    Replaced,
    /// No generation ever listed it: it lay in the destination.
    Foreign,
    /// The generation that listed it was undone.
    Reverted,
}

/// A key for which nothing new was committed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeptKey {
    pub key: String,
    pub reason: String,
}

impl Generation {
    /// Files, bytes and rows of the live files.
    pub fn figures(&self) -> Figures {
        Figures::of(&self.live)
    }

    /// The live files of one key.
    pub fn of_key<'a>(&'a self, key: &'a str) -> impl Iterator<Item = &'a ListedFile> {
        self.live.iter().filter(move |file| file.key == key)
    }

    /// Bytes of the superseded files.
    pub fn awaiting_bytes(&self) -> u64 {
        self.superseded.iter().map(|entry| entry.file.bytes).fold(0, u64::saturating_add)
    }
}

impl Figures {
    pub fn of(files: &[ListedFile]) -> Self {
        files.iter().fold(Self::default(), |sum, file| sum.plus(file.bytes, file.rows))
    }

    /// With one more file.
    pub fn plus(self, bytes: u64, rows: u64) -> Self {
        Self {
            files: self.files.saturating_add(1),
            bytes: self.bytes.saturating_add(bytes),
            rows: self.rows.saturating_add(rows),
        }
    }
}

/// Path of a generation's object.
pub fn path_of(generation: u64) -> String {
    format!("{MANIFESTS}/{generation:020}.json")
}

/// The numbers of all generations that are there, ascending. An object of another name is not one.
pub fn numbers(table: &DirectoryTable) -> Result<Vec<u64>, Failure> {
    let mut found: Vec<u64> = table
        .list(MANIFESTS)?
        .iter()
        .filter_map(|info| {
            let name = info.path.strip_prefix(MANIFESTS)?.strip_prefix('/')?.strip_suffix(".json")?;
            let digits = name.len() == 20 && name.bytes().all(|byte| byte.is_ascii_digit());
            if digits { name.parse().ok() } else { None }
        })
        .collect();
    found.sort_unstable();
    Ok(found)
}

/// The newest generation, or `None` where Baler has committed nothing.
pub fn newest(table: &DirectoryTable) -> Result<Option<Generation>, Failure> {
    match numbers(table)?.last() {
        Some(number) => read(table, *number).map(Some),
        None => Ok(None),
    }
}

/// One generation; one that is not there is a failure.
pub fn read(table: &DirectoryTable, generation: u64) -> Result<Generation, Failure> {
    let path = path_of(generation);
    let found = table
        .read(&path)?
        .ok_or_else(|| inconsistent(format!("generation {generation} is not there")).in_file(table.describe(&path)))?;
    let read = decode(&found).map_err(|failure| failure.in_file(table.describe(&path)))?;
    if read.generation != generation {
        let message = format!("the manifest says it is generation {}: somebody renamed it", read.generation);
        return Err(inconsistent(message).in_file(table.describe(&path)));
    }
    Ok(read)
}

/// Creates a generation. `Ok(false)` when another commit has the number.
///
/// # Errors
/// A file would be listed twice, or the manifest cannot be stored.
pub fn create(table: &DirectoryTable, generation: &Generation) -> Result<bool, Failure> {
    check_listed_once(table, &generation.live)?;
    let content = encode(generation)?;
    match table.put_new(&path_of(generation.generation), &content)? {
        // A writer that slept through a sweep may have made again a number that was swept.
        Creation::Created if boundary(table)? >= generation.generation => {
            Err(inconsistent(format!("generation {} was made and swept already: plan again", generation.generation)))
        }
        Creation::Created => Ok(true),
        // The same commit, from an earlier call that had another time or another look at the files.
        Creation::Exists => Ok(read(table, generation.generation)?.token == generation.token),
    }
}

/// The last guard against rows that are read twice: one file under one name, listed as its output and as itself, as an
/// unfinished exchange of directories shows it.
fn check_listed_once(table: &DirectoryTable, live: &[ListedFile]) -> Result<(), Failure> {
    let mut seen = HashSet::new();
    for file in live {
        let Identity::Local { device, inode, .. } = file.identity else { continue };
        if !seen.insert((&file.path, device, inode)) {
            let message = "the file would be listed twice: an exchange of directories was cut short, so run \
                           `baler compact LOCATION --swap` once, which finishes it";
            return Err(inconsistent(message).in_file(table.describe(&file.path)));
        }
    }
    Ok(())
}

/// The highest generation whose manifest may have been swept; 0 when none was.
pub fn boundary(table: &DirectoryTable) -> Result<u64, Failure> {
    let Some(content) = table.read(BOUNDARY)? else { return Ok(0) };
    let text = String::from_utf8_lossy(&content);
    text.trim()
        .parse()
        .map_err(|_| inconsistent(format!("{text:?} is not a generation")).in_file(table.describe(BOUNDARY)))
}

/// Raises the boundary, before manifests up to it are swept. It never falls.
pub fn raise_boundary(table: &DirectoryTable, generation: u64) -> Result<(), Failure> {
    if boundary(table)? < generation { table.put(BOUNDARY, format!("{generation}\n").as_bytes()) } else { Ok(()) }
}

#[cfg(test)]
mod tests;
