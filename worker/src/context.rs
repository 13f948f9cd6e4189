//! What surrounds an attempt while it runs: its counters, its stop signal, its budget.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use baler_common::model::error::{Failure, FailureClass};
use baler_common::model::outcome::Progress;

/// Shared by every thread of one attempt. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Context {
    counters: Arc<Counters>,
    cancelled: Arc<AtomicBool>,
    /// Bytes that all buffers of this attempt together may hold.
    pub memory_bytes: u64,
    /// Threads the attempt may use for its own work, at least 1.
    pub threads: usize,
    /// Local folder for spilled data; made when first needed.
    pub spill_folder: PathBuf,
}

#[derive(Debug, Default)]
struct Counters {
    read_bytes: AtomicU64,
    written_bytes: AtomicU64,
    written_rows: AtomicU64,
    verified_rows: AtomicU64,
}

impl Context {
    pub fn new(memory_bytes: u64, threads: usize, spill_folder: PathBuf) -> Self {
        Self {
            counters: Arc::default(),
            cancelled: Arc::default(),
            memory_bytes,
            threads: threads.max(1),
            spill_folder,
        }
    }

    /// Counts input bytes read for writing.
    pub fn count_read(&self, bytes: u64) {
        self.counters.read_bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    /// Counts output written.
    pub fn count_written(&self, bytes: u64, rows: u64) {
        self.counters.written_bytes.fetch_add(bytes, Ordering::Relaxed);
        self.counters.written_rows.fetch_add(rows, Ordering::Relaxed);
    }

    /// Counts rows fingerprinted.
    pub fn count_verified(&self, rows: u64) {
        self.counters.verified_rows.fetch_add(rows, Ordering::Relaxed);
    }

    pub fn progress(&self) -> Progress {
        Progress {
            read_bytes: self.counters.read_bytes.load(Ordering::Relaxed),
            written_bytes: self.counters.written_bytes.load(Ordering::Relaxed),
            written_rows: self.counters.written_rows.load(Ordering::Relaxed),
            verified_rows: self.counters.verified_rows.load(Ordering::Relaxed),
        }
    }

    /// Asks every thread of the attempt to stop at its next look.
    pub fn cancel(&self) {
        self.cancelled.store(true, Ordering::Relaxed);
    }

    /// Fails when the attempt was asked to stop. Called between pages.
    pub fn check_running(&self) -> Result<(), Failure> {
        if self.cancelled.load(Ordering::Relaxed) {
            return Err(Failure::new(FailureClass::Cancelled, "the attempt was stopped"));
        }
        Ok(())
    }
}
