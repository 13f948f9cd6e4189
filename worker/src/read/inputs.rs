//! The input files of an attempt, opened when needed.
//!
//! A job may have tens of thousands of inputs, more than a process may hold open. Small files are fetched whole, once
//! for every reader of the attempt, and kept while they fit the budget; larger ones are kept open, a bounded number at
//! a time. Eviction follows first-in first-out, since every reader walks the inputs in order.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex};

use baler_common::model::error::Failure;
use baler_common::model::job::InputFile;
use baler_common::runtime::storage::{Source, Stores};

/// Files up to this size are fetched whole.
pub const SMALL_FILE_BYTES: u64 = 8 << 20;
/// Sources kept open at a time.
const OPEN_MAX: usize = 128;

/// The inputs of one job.
#[derive(Debug)]
pub struct Inputs {
    stores: Arc<Stores>,
    files: Vec<InputFile>,
    memory_bytes: u64,
    held: Mutex<Held>,
}

#[derive(Debug, Default)]
struct Held {
    sources: HashMap<usize, Arc<Source>>,
    /// Inputs in the order they were opened, with the memory each takes.
    order: VecDeque<(usize, u64)>,
    bytes: u64,
}

impl Inputs {
    /// `memory_bytes` bounds what whole small files may take.
    pub fn new(stores: Arc<Stores>, files: Vec<InputFile>, memory_bytes: u64) -> Self {
        Self { stores, files, memory_bytes, held: Mutex::default() }
    }

    pub fn len(&self) -> usize {
        self.files.len()
    }

    pub fn is_empty(&self) -> bool {
        self.files.is_empty()
    }

    pub fn file(&self, input: usize) -> &InputFile {
        &self.files[input]
    }

    pub fn files(&self) -> &[InputFile] {
        &self.files
    }

    /// Opens input number `input`, or returns it as it was opened before. Fails when it is not the pinned file.
    pub fn source(&self, input: usize) -> Result<Arc<Source>, Failure> {
        if let Some(source) = self.held.lock().expect("no holder of the lock panics").sources.get(&input) {
            return Ok(source.clone());
        }
        let file = &self.files[input];
        let opened = self.stores.source(&file.object, file.bytes, &file.identity)?;
        let (source, bytes) = if file.bytes <= SMALL_FILE_BYTES {
            let content = opened.read(0..file.bytes)?;
            opened.check_unchanged()?;
            (Source::from_bytes(opened.name(), content), file.bytes)
        } else {
            (opened, 0)
        };
        let source = Arc::new(source);
        let mut held = self.held.lock().expect("no holder of the lock panics");
        if let Some(first) = held.sources.get(&input) {
            return Ok(first.clone());
        }
        held.sources.insert(input, source.clone());
        held.order.push_back((input, bytes));
        held.bytes += bytes;
        while held.order.len() > 1 && (held.bytes > self.memory_bytes || open_files(&held.order) > OPEN_MAX) {
            let (oldest, freed) = held.order.pop_front().expect("more than one is held");
            held.sources.remove(&oldest);
            held.bytes -= freed;
        }
        Ok(source)
    }

    /// Fails if any large input changed since it was opened. Small ones were checked when they were fetched whole.
    pub fn check_unchanged(&self) -> Result<(), Failure> {
        for (input, file) in self.files.iter().enumerate() {
            if file.bytes > SMALL_FILE_BYTES {
                self.source(input)?.check_unchanged()?;
            }
        }
        Ok(())
    }
}

fn open_files(order: &VecDeque<(usize, u64)>) -> usize {
    order.iter().filter(|(_, bytes)| *bytes == 0).count()
}
