//! How many jobs run at once, and what each may use. Pure.

use std::path::PathBuf;

use crate::context::Context;

/// Least memory with which an attempt is started, in bytes.
const SLOT_BYTES_MIN: u64 = 64 << 20;

/// The slots of one worker.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Slots {
    /// Jobs at once, at least 1.
    pub count: usize,
    /// Cores to share between them.
    pub cores: usize,
    /// Memory for all of them together, in bytes.
    pub memory_bytes: u64,
    /// Local folder for spilled data.
    pub spill_folder: PathBuf,
}

impl Slots {
    /// As many slots as asked for, but no more than the memory feeds.
    pub fn new(wanted: usize, cores: usize, memory_bytes: u64, spill_folder: PathBuf) -> Self {
        let fed = usize::try_from(memory_bytes / SLOT_BYTES_MIN).unwrap_or(usize::MAX);
        Self { count: wanted.min(fed).max(1), cores: cores.max(1), memory_bytes, spill_folder }
    }

    /// The budget of an attempt that starts as the `running`-th at this moment: an equal share of the memory, and the
    /// cores that the others leave free.
    pub fn context(&self, running: usize) -> Context {
        let busy = running.clamp(1, self.count);
        Context::new(self.memory_bytes / self.count as u64, (self.cores / busy).max(1), self.spill_folder.clone())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_bounds_the_slots_and_a_lone_attempt_gets_all_cores() {
        let slots = Slots::new(8, 4, 256 << 20, PathBuf::new());
        assert_eq!(slots.count, 4);
        assert_eq!((slots.context(1).threads, slots.context(4).threads), (4, 1));
        assert_eq!(slots.context(1).memory_bytes, 64 << 20);
        assert_eq!(Slots::new(4, 2, 1, PathBuf::new()).count, 1);
    }
}
