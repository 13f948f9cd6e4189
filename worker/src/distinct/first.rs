//! Finds the rows whose hash was seen before, within a memory budget.
//!
//! A table of hashes grows until the budget is reached. Then everything it holds, and every pair of hash and row that
//! follows, goes to one of [`PARTITIONS`] files by some bits of the hash; afterwards each file is worked through on its
//! own, in the same way, with the next bits. A file holds its rows in order and the table's own hashes before them, so
//! the first of each hash is found whatever the budget.

use std::fs::File;
use std::io::{self, BufReader, BufWriter, Read, Seek, Write};
use std::path::{Path, PathBuf};

use baler_common::model::error::{Failure, FailureClass};

use crate::mask::RowMask;

/// Files that one table is spread over when it no longer fits.
const PARTITIONS: usize = 64;
const PARTITION_BITS: u32 = 6;
/// Times that files can be spread over further files, by the 64 bits of a hash's first word.
const LEVELS_MAX: u32 = 10;
/// Hashes of a table that is always allowed.
const SLOTS_MIN: usize = 1 << 10;
const SLOT_BYTES: u64 = 16;
/// Bytes of a hash and its row in a file.
const ENTRY_BYTES: usize = 24;
/// The row number of a hash that the table held: its row comes before all others and is kept.
const HELD: u64 = u64::MAX;

/// The hashes seen so far.
pub(super) struct FirstOfEach {
    table: Table,
    spilled: Option<Vec<BufWriter<File>>>,
    budget_bytes: u64,
    folder: PathBuf,
    level: u32,
}

/// A set of hashes by open addressing. An empty slot is zero; the zero hash has a flag of its own.
struct Table {
    slots: Vec<[u64; 2]>,
    held: usize,
    zero: bool,
}

impl FirstOfEach {
    pub(super) fn new(budget_bytes: u64, folder: &Path) -> Self {
        Self::at_level(budget_bytes, folder, 0)
    }

    fn at_level(budget_bytes: u64, folder: &Path, level: u32) -> Self {
        Self { table: Table::new(SLOTS_MIN), spilled: None, budget_bytes, folder: folder.to_owned(), level }
    }

    /// Takes the next row; drops it from the mask, now or in [`FirstOfEach::finish`], if its hash was there before.
    pub(super) fn see(&mut self, hash: [u64; 2], row: u64, mask: &mut RowMask) -> Result<(), Failure> {
        if self.spilled.is_none() && self.table.is_full() {
            // Both tables exist while one grows into the other.
            let slots = self.table.slots.len() as u64;
            if slots.saturating_mul(3 * SLOT_BYTES) <= self.budget_bytes {
                self.table.grow();
            } else {
                self.spill()?;
            }
        }
        match &mut self.spilled {
            Some(files) => {
                let file = &mut files[partition(hash, self.level)];
                write_entry(file, hash, row).map_err(|error| self.failed(&error))?;
            }
            None => {
                if !self.table.insert(hash) && row != HELD {
                    mask.drop_row(row);
                }
            }
        }
        Ok(())
    }

    /// Moves what the table holds to files.
    fn spill(&mut self) -> Result<(), Failure> {
        if self.level == LEVELS_MAX {
            let message = "the rows' hashes are not spread as hashes are: deduplication needs more memory here";
            return Err(Failure::new(FailureClass::Policy, message));
        }
        let buffer_bytes = usize::try_from(self.budget_bytes / (4 * PARTITIONS as u64)).unwrap_or(usize::MAX);
        let files = (0..PARTITIONS)
            .map(|_| Ok(BufWriter::with_capacity(buffer_bytes.clamp(4 << 10, 256 << 10), self.new_file()?)))
            .collect::<io::Result<Vec<_>>>();
        let mut files = files.map_err(|error| self.failed(&error))?;
        let table = std::mem::replace(&mut self.table, Table::new(1));
        for hash in table.hashes() {
            write_entry(&mut files[partition(hash, self.level)], hash, HELD).map_err(|error| self.failed(&error))?;
        }
        self.spilled = Some(files);
        Ok(())
    }

    /// A file without a name, which is gone when the process is.
    fn new_file(&self) -> io::Result<File> {
        std::fs::create_dir_all(&self.folder)?;
        tempfile::tempfile_in(&self.folder)
    }

    /// Works through what went to files. `check` fails when the attempt is to stop.
    pub(super) fn finish(self, mask: &mut RowMask, check: &dyn Fn() -> Result<(), Failure>) -> Result<(), Failure> {
        let Self { table, spilled, budget_bytes, folder, level } = self;
        drop(table);
        let failed = |error: &io::Error| failed(error, &folder);
        // All buffers are given back before the first file is worked through.
        let files =
            spilled.unwrap_or_default().into_iter().map(|file| file.into_inner().map_err(|error| error.into_error()));
        let files = files.collect::<io::Result<Vec<File>>>().map_err(|error| failed(&error))?;
        for mut file in files {
            file.rewind().map_err(|error| failed(&error))?;
            let mut file = BufReader::with_capacity(64 << 10, file);
            let mut next = Self::at_level(budget_bytes, &folder, level + 1);
            let mut entries = 0u64;
            while let Some((hash, row)) = read_entry(&mut file).map_err(|error| failed(&error))? {
                next.see(hash, row, mask)?;
                entries += 1;
                if entries.is_multiple_of(1 << 16) {
                    check()?;
                }
            }
            drop(file);
            next.finish(mask, check)?;
        }
        Ok(())
    }

    fn failed(&self, error: &io::Error) -> Failure {
        failed(error, &self.folder)
    }
}

fn failed(error: &io::Error, folder: &Path) -> Failure {
    let message = match error.kind() {
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => {
            "the folder for spilled data is full: free some space there, or give the run more memory".to_owned()
        }
        _ => format!("deduplication could not use the folder for spilled data: {error}"),
    };
    Failure::new(FailureClass::Transient, message).in_file(folder.display().to_string())
}

/// The file of a hash: each level looks at its own bits of the first word. The tables look at the second word.
fn partition(hash: [u64; 2], level: u32) -> usize {
    (hash[0] >> (level * PARTITION_BITS)) as usize % PARTITIONS
}

fn write_entry(file: &mut impl Write, hash: [u64; 2], row: u64) -> io::Result<()> {
    let mut entry = [0; ENTRY_BYTES];
    for (place, word) in entry.chunks_exact_mut(8).zip([hash[0], hash[1], row]) {
        place.copy_from_slice(&word.to_le_bytes());
    }
    file.write_all(&entry)
}

fn read_entry(file: &mut impl Read) -> io::Result<Option<([u64; 2], u64)>> {
    let mut entry = [0; ENTRY_BYTES];
    let mut held = 0;
    while held < ENTRY_BYTES {
        match file.read(&mut entry[held..])? {
            0 if held == 0 => return Ok(None),
            0 => return Err(io::ErrorKind::UnexpectedEof.into()),
            read => held += read,
        }
    }
    let word = |at: usize| {
        let mut bytes = [0; 8];
        bytes.copy_from_slice(&entry[at..at + 8]);
        u64::from_le_bytes(bytes)
    };
    Ok(Some(([word(0), word(8)], word(16))))
}

impl Table {
    /// `slots` is a power of two.
    fn new(slots: usize) -> Self {
        Self { slots: vec![[0; 2]; slots], held: 0, zero: false }
    }

    /// Whether another hash would make it too dense: more than three quarters.
    fn is_full(&self) -> bool {
        self.held * 4 >= self.slots.len() * 3
    }

    /// Whether the hash is new. The table is not full.
    fn insert(&mut self, hash: [u64; 2]) -> bool {
        if hash == [0, 0] {
            return !std::mem::replace(&mut self.zero, true);
        }
        let last = self.slots.len() - 1;
        let mut at = hash[1] as usize & last;
        loop {
            match self.slots[at] {
                [0, 0] => {
                    self.slots[at] = hash;
                    self.held += 1;
                    return true;
                }
                found if found == hash => return false,
                _ => at = (at + 1) & last,
            }
        }
    }

    fn grow(&mut self) {
        let mut larger = Self::new(self.slots.len() * 2);
        larger.zero = self.zero;
        for &hash in self.slots.iter().filter(|&&hash| hash != [0, 0]) {
            larger.insert(hash);
        }
        *self = larger;
    }

    fn hashes(&self) -> impl Iterator<Item = [u64; 2]> {
        let zero = self.zero.then_some([0, 0]);
        zero.into_iter().chain(self.slots.iter().copied().filter(|&hash| hash != [0, 0]))
    }
}
