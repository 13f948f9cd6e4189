//! The four checks after a compaction, from two sources each: what the manifests say, and what is really there.
//!
//! 1. The files listed before, without those removed and with those added, are the files listed now; those added are
//!    exactly the outputs that were proved.
//! 2. The rows now are the rows before (without the duplicates that deduplication left out). Rows of new files are read
//!    from their footers again.
//! 3. The rows of the version before still read: every file of it is there, unchanged, and its footer says the same.
//! 4. The Parquet files on disk are the listed ones and those awaiting cleanup.
//!
//! A mismatch is a value, not an error: the table is left as it is and stopped by whoever called. Nothing is deleted.

mod stored;

use std::collections::BTreeSet;
use std::fmt;

use baler_common::model::error::{Failure, FailureClass};
use baler_common::model::object::Identity;
use baler_common::runtime::storage::Source;

use super::generation::{Generation, MadeBy, Why};
use super::publish::{data_object, is_plain_data};
use super::{ASIDE_SUFFIX, DirectoryTable, in_parallel, is_pinned, is_same_content, previous};
use crate::plan::PublishMode;

pub use stored::{read, write};

/// Reads the number of rows of a file from its footer.
pub type RowCounter<'a> = dyn Fn(&Source) -> Result<u64, Failure> + Sync + 'a;

/// The four checks with their figures.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Checks {
    pub generation: u64,
    /// Check 1: files listed before, added, removed, and listed now.
    pub files_before: u64,
    pub files_added: u64,
    pub files_removed: u64,
    pub files_after: u64,
    /// Check 2.
    pub rows_before: u64,
    pub rows_duplicate: u64,
    pub rows_after: u64,
    /// Check 3: rows of the version before, as recorded and as read.
    pub rows_previous: u64,
    pub rows_previous_read: u64,
    pub files_previous_read: u64,
    /// Check 4: Parquet files on disk, listed, and awaiting cleanup.
    pub files_on_disk: u64,
    pub files_listed: u64,
    pub files_awaiting: u64,
    /// Files that others put into the table meanwhile (in place); the next compaction adopts them.
    pub files_appended: u64,
    /// What does not fit, one sentence each. Empty when all is well.
    pub mismatches: Vec<String>,
}

impl Checks {
    pub fn passed(&self) -> bool {
        self.mismatches.is_empty()
    }
}

/// In plain words, one check a line.
impl fmt::Display for Checks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "1. listed files: {} before, {} removed, {} added, {} now",
            self.files_before, self.files_removed, self.files_added, self.files_after
        )?;
        write!(f, "2. rows: {} before, {} now", self.rows_before, self.rows_after)?;
        if self.rows_duplicate > 0 {
            write!(f, " ({} duplicates left out)", self.rows_duplicate)?;
        }
        writeln!(f)?;
        writeln!(
            f,
            "3. rows of the version before: {} recorded, {} read from {} files",
            self.rows_previous, self.rows_previous_read, self.files_previous_read
        )?;
        write!(
            f,
            "4. Parquet files on disk: {} = {} listed + {} awaiting cleanup",
            self.files_on_disk, self.files_listed, self.files_awaiting
        )?;
        if self.files_appended > 0 {
            write!(f, " + {} appended meanwhile", self.files_appended)?;
        }
        for mismatch in &self.mismatches {
            write!(f, "\nmismatch: {mismatch}")?;
        }
        Ok(())
    }
}

/// Runs the checks on `generation`, which must be the newest. `source` is where the inputs lie when that is another
/// place than the table, and is looked at only right after the commit, before anybody may clean up there.
pub fn run(
    table: &DirectoryTable,
    source: Option<&DirectoryTable>,
    generation: &Generation,
    parent: Option<&Generation>,
    count_rows: &RowCounter<'_>,
) -> Result<Checks, Failure> {
    let mut checks = Checks { generation: generation.generation, ..Checks::default() };
    listed_files(&mut checks, generation, parent);
    rows_now(&mut checks, table, generation, count_rows)?;
    rows_before(&mut checks, table, source, generation, count_rows)?;
    files_on_disk(&mut checks, table, generation)?;
    Ok(checks)
}

fn listed_files(checks: &mut Checks, generation: &Generation, parent: Option<&Generation>) {
    checks.files_before = generation.listed_before;
    checks.files_added = generation.added;
    checks.files_removed = generation.removed;
    checks.files_after = generation.live.len() as u64;
    let sum = (generation.listed_before + generation.added).checked_sub(generation.removed);
    if sum != Some(checks.files_after) {
        checks.mismatches.push("the listed files before, removed and added do not add up to those now".to_owned());
    }
    let ours = |since: bool, proved: bool| !since || proved;
    for file in &generation.live {
        let proved = file.proof.as_ref().is_some_and(|proof| proof.expected == proof.stored && file.sha256.is_some());
        if generation.made_by == MadeBy::Compaction && !ours(file.since == generation.generation, proved) {
            checks.mismatches.push(format!("{} was added and has no proof", file.path));
        }
    }
    let added = generation.live.iter().filter(|file| file.since == generation.generation).count() as u64;
    if added != generation.added {
        checks.mismatches.push(format!("{} files were to be added, the list has {added}", generation.added));
    }
    let listed: BTreeSet<&str> = generation.live.iter().map(|file| file.object.as_str()).collect();
    if listed.len() != generation.live.len() {
        checks.mismatches.push("an object is listed twice".to_owned());
    }
    if let Some(parent) = parent.filter(|_| generation.publish == PublishMode::Destination)
        && parent.live.len() as u64 != generation.listed_before
    {
        let message = format!(
            "generation {} lists {} files, {} were to be there before",
            parent.generation,
            parent.live.len(),
            generation.listed_before
        );
        checks.mismatches.push(message);
    }
}

/// A file whose footer is to be read: where it is, what it must be, and how strictly.
struct Wanted<'a> {
    table: &'a DirectoryTable,
    object: &'a str,
    bytes: u64,
    rows: u64,
    identity: &'a Identity,
    moved: bool,
}

/// Rows by the footer of each file that is there as recorded; else what is wrong.
fn read_rows(wanted: &[Wanted<'_>], count_rows: &RowCounter<'_>) -> Vec<Result<Result<u64, String>, Failure>> {
    in_parallel(wanted, |file| {
        let Some(found) = file.table.head(file.object)? else {
            return Ok(Err(format!("{} is gone", file.table.describe(file.object))));
        };
        let same = if file.moved {
            is_same_content(&found, file.bytes, file.identity)
        } else {
            is_pinned(&found, file.bytes, file.identity)
        };
        if !same {
            return Ok(Err(format!("{} was changed", file.table.describe(file.object))));
        }
        let source = file.table.source(file.object, file.bytes, &found.identity)?;
        match count_rows(&source) {
            Ok(rows) if rows == file.rows => Ok(Ok(rows)),
            Ok(rows) => {
                Ok(Err(format!("{} has {rows} rows, {} recorded", file.table.describe(file.object), file.rows)))
            }
            Err(failure) if failure.class.is_retryable() => Err(failure),
            Err(failure) => Ok(Err(failure.to_string())),
        }
    })
}

fn rows_now(
    checks: &mut Checks,
    table: &DirectoryTable,
    generation: &Generation,
    count_rows: &RowCounter<'_>,
) -> Result<(), Failure> {
    checks.rows_before = generation.before.rows;
    checks.rows_duplicate = generation.duplicate_rows;
    let added: Vec<Wanted<'_>> = generation
        .live
        .iter()
        .filter(|file| file.since == generation.generation)
        .map(|file| Wanted {
            table,
            object: &file.object,
            bytes: file.bytes,
            rows: file.rows,
            identity: &file.identity,
            moved: true,
        })
        .collect();
    let mut rows = 0u64;
    for found in read_rows(&added, count_rows) {
        match found? {
            Ok(found) => rows = rows.saturating_add(found),
            Err(mismatch) => checks.mismatches.push(mismatch),
        }
    }
    let kept: Vec<_> = generation.live.iter().filter(|file| file.since != generation.generation).collect();
    for (file, found) in kept.iter().zip(in_parallel(&kept, |file| table.head(&file.object))) {
        match found? {
            Some(found) if found.bytes == file.bytes => rows = rows.saturating_add(file.rows),
            Some(_) => checks.mismatches.push(format!("{} has another size", table.describe(&file.object))),
            None => checks.mismatches.push(format!("{} is gone", table.describe(&file.object))),
        }
    }
    checks.rows_after = rows;
    if checks.rows_before.checked_sub(checks.rows_duplicate) != Some(rows) {
        checks.mismatches.push(format!(
            "{rows} rows now, {} before and {} duplicates left out",
            checks.rows_before, checks.rows_duplicate
        ));
    }
    Ok(())
}

fn rows_before(
    checks: &mut Checks,
    table: &DirectoryTable,
    source: Option<&DirectoryTable>,
    generation: &Generation,
    count_rows: &RowCounter<'_>,
) -> Result<(), Failure> {
    let number = generation.generation;
    let mut wanted: Vec<Wanted<'_>> = generation
        .superseded
        .iter()
        .filter(|entry| entry.superseded_in == number && entry.why != Why::Foreign)
        .map(|entry| Wanted {
            table,
            object: &entry.file.object,
            bytes: entry.file.bytes,
            rows: entry.file.rows,
            identity: &entry.file.identity,
            moved: true,
        })
        .collect();
    if let Some(source) = source.filter(|_| generation.publish == PublishMode::Destination) {
        let added = generation.live.iter().filter(|file| file.since == number);
        wanted.extend(added.flat_map(|file| &file.sources).map(|input| Wanted {
            table: source,
            object: &input.path,
            bytes: input.bytes,
            rows: input.rows,
            identity: &input.identity,
            moved: false,
        }));
    }
    for (file, found) in wanted.iter().zip(read_rows(&wanted, count_rows)) {
        checks.rows_previous = checks.rows_previous.saturating_add(file.rows);
        match found? {
            Ok(rows) => {
                checks.rows_previous_read = checks.rows_previous_read.saturating_add(rows);
                checks.files_previous_read += 1;
            }
            Err(mismatch) => checks.mismatches.push(format!("version before: {mismatch}")),
        }
    }
    // What stayed is part of the version before too; the second check has looked at it.
    let stayed = generation.live.iter().filter(|file| file.since != number);
    for file in stayed {
        checks.rows_previous = checks.rows_previous.saturating_add(file.rows);
        checks.rows_previous_read = checks.rows_previous_read.saturating_add(file.rows);
    }
    if checks.rows_previous != checks.rows_previous_read {
        let message = format!(
            "version before: {} rows were recorded, {} can be read",
            checks.rows_previous, checks.rows_previous_read
        );
        checks.mismatches.push(message);
    }
    Ok(())
}

/// How a mismatch begins that is about a superseded file.
pub const AWAITING: &str = "awaiting cleanup: ";

fn files_on_disk(checks: &mut Checks, table: &DirectoryTable, generation: &Generation) -> Result<(), Failure> {
    let in_place = generation.publish != PublishMode::Destination;
    let on_disk: BTreeSet<String> = table
        .list("")?
        .into_iter()
        .map(|info| info.path)
        .filter(|path| {
            data_object(path)
                || (path.ends_with(ASIDE_SUFFIX) && previous::original_path(path).is_some())
                || is_plain_data(path, in_place)
        })
        .collect();
    let listed: BTreeSet<&str> = generation.live.iter().map(|file| file.object.as_str()).collect();
    let awaiting: BTreeSet<&str> = generation.superseded.iter().map(|entry| entry.file.object.as_str()).collect();
    checks.files_listed = listed.len() as u64;
    checks.files_awaiting = awaiting.len() as u64;
    checks.files_on_disk = on_disk.len() as u64;
    for path in listed.iter().filter(|path| !on_disk.contains(**path)) {
        checks.mismatches.push(format!("{} is not on disk", table.describe(path)));
    }
    for path in awaiting.difference(&listed).filter(|path| !on_disk.contains(**path)) {
        checks.mismatches.push(format!("{AWAITING}{} is not on disk", table.describe(path)));
    }
    for path in on_disk.iter().filter(|path| !listed.contains(path.as_str()) && !awaiting.contains(path.as_str())) {
        if in_place && !path.starts_with("_baler/") {
            checks.files_appended += 1;
        } else {
            checks.mismatches.push(format!("{} is on disk and in no list", table.describe(path)));
        }
    }
    Ok(())
}

/// The number of rows that a Parquet footer says.
pub fn rows_in_footer(source: &Source) -> Result<u64, Failure> {
    use parquet::file::FOOTER_SIZE;
    use parquet::file::metadata::{FooterTail, ParquetMetaDataReader};
    let bad = |message: String| Failure::new(FailureClass::InputCorrupt, message).in_file(source.name());
    let bytes = source.bytes();
    let tail_at = bytes.checked_sub(FOOTER_SIZE as u64).ok_or_else(|| bad("too short for a Parquet file".into()))?;
    let tail = source.read(tail_at..bytes)?;
    let tail: &[u8; FOOTER_SIZE] = tail.as_ref().try_into().map_err(|_| bad("the footer is cut short".into()))?;
    let tail = FooterTail::try_new(tail).map_err(|error| bad(error.to_string()))?;
    let start = tail_at
        .checked_sub(tail.metadata_length() as u64)
        .ok_or_else(|| bad("the footer is longer than the file".into()))?;
    let metadata = source.read(start..tail_at)?;
    let metadata = ParquetMetaDataReader::decode_metadata(&metadata).map_err(|error| bad(error.to_string()))?;
    u64::try_from(metadata.file_metadata().num_rows()).map_err(|_| bad("the footer says fewer than no rows".into()))
}
