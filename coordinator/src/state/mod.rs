//! Where a coordinator keeps what must survive it: a small ordered key-value store with compare-and-set transactions.
//!
//! It holds the fencing epoch, the head of each run, one record per job that is not pending, and the stop of a table.
//! Plans, receipts and manifests are objects beside the data, not values here. Every write compares the epoch, so a
//! coordinator that lost its place changes nothing (see [`leadership`]).
//!
//! The trait is shaped after etcd: revisions, transactions, paged ranges. [`embedded`] is one file on one machine,
//! [`etcd`] is shared by several machines, of which one leads at a time (see [`election`]); `simulated` forgets answers
//! on purpose and is what the tests run on.

pub mod election;
pub mod embedded;
pub mod etcd;
pub mod keys;
pub mod leadership;
pub mod records;
pub mod runs;
pub mod scoped;
#[cfg(test)]
pub mod simulated;

use std::collections::HashSet;

use async_trait::async_trait;

/// A value with the revision that wrote it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    pub key: String,
    pub value: Vec<u8>,
    pub revision: u64,
}

impl Entry {
    /// The record that the value is.
    ///
    /// # Errors
    /// [`StateError::Record`] with the key.
    pub fn decode<M: prost::Message + Default>(&self) -> Result<M, StateError> {
        M::decode(self.value.as_slice())
            .map_err(|error| StateError::Record { key: self.key.clone(), message: error.to_string() })
    }
}

/// A condition of a transaction.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Compare {
    Absent(String),
    /// The key was last written by this revision.
    Revision(String, u64),
}

/// A change of a transaction.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Change {
    Put(String, Vec<u8>),
    Delete(String),
}

/// What became of a transaction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Applied {
    /// All changes were made, durably, as this revision.
    Yes(u64),
    /// A condition did not hold; nothing was changed.
    Conflict,
    /// The answer was lost: look.
    Unknown,
}

/// Part of a range.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Page {
    pub entries: Vec<Entry>,
    /// The revision whose state this is.
    pub revision: u64,
    /// Whether the range goes on behind the last of these entries.
    pub more: bool,
}

/// Why the store cannot answer.
#[derive(Debug, thiserror::Error)]
pub enum StateError {
    #[error("state {path} is held by another process: wait for it to end, or look which baler runs on this table")]
    Held { path: String },
    #[error(
        "open state {path}: {message} (a damaged file may be moved away: finished work is found again by its receipts, \
         only a stop of the table would be forgotten)"
    )]
    Open { path: String, message: String },
    #[error("state store: {0}")]
    Io(String),
    #[error("etcd at {endpoints}: {message}")]
    Etcd { endpoints: String, message: String },
    #[error("state transaction refused: {0}")]
    Limit(String),
    #[error("state of revision {0} is not kept any more")]
    Compacted(u64),
    #[error("state record {key} is not readable: {message}")]
    Record { key: String, message: String },
    #[error("another coordinator leads (epoch conflict): this one stops")]
    Fenced,
}

/// Conditions, and changes, in one transaction at most: what etcd takes as it comes.
pub const TXN_ENTRIES_MAX: usize = 128;

/// Bytes of one transaction at most: what etcd takes as it comes.
pub const TXN_BYTES_MAX: usize = 1_536 * 1_024;

/// What a condition or a change takes besides its key and its value at most.
const TXN_ENTRY_BYTES: usize = 192;

/// The store. All answers are of a consistent state; writes are durable when they are answered.
#[async_trait]
pub trait StateStore: Send + Sync {
    /// Makes all changes if all conditions hold.
    ///
    /// # Errors
    /// [`StateError::Limit`] before anything is sent, see [`check_limits`].
    async fn txn(&self, compares: &[Compare], changes: &[Change]) -> Result<Applied, StateError>;

    /// The value of a key.
    async fn get(&self, key: &str) -> Result<Option<Entry>, StateError>;

    /// Up to `limit` entries, or fewer, whose key begins with `prefix` and is above `after`, in key order: as they are,
    /// or as they were at revision `at`.
    ///
    /// # Errors
    /// [`StateError::Compacted`] when the state at that revision is not kept any more. A store may keep the newest only.
    async fn range(&self, prefix: &str, after: Option<&str>, limit: usize, at: Option<u64>)
    -> Result<Page, StateError>;
}

/// Holds every store to the same limits: [`TXN_ENTRIES_MAX`], [`TXN_BYTES_MAX`], and one change for each key.
///
/// # Errors
/// [`StateError::Limit`].
pub fn check_limits(compares: &[Compare], changes: &[Change]) -> Result<(), StateError> {
    for (what, count) in [("conditions", compares.len()), ("changes", changes.len())] {
        if count > TXN_ENTRIES_MAX {
            return Err(StateError::Limit(format!("{count} {what} are more than {TXN_ENTRIES_MAX}")));
        }
    }
    let mut bytes = (compares.len() + changes.len()) * TXN_ENTRY_BYTES;
    for compare in compares {
        let (Compare::Absent(key) | Compare::Revision(key, _)) = compare;
        bytes += key.len();
    }
    let mut changed = HashSet::new();
    for change in changes {
        let (key, value) = match change {
            Change::Put(key, value) => (key, value.len()),
            Change::Delete(key) => (key, 0),
        };
        bytes += key.len() + value;
        if !changed.insert(key) {
            return Err(StateError::Limit(format!("{key} is changed twice")));
        }
    }
    if bytes > TXN_BYTES_MAX {
        return Err(StateError::Limit(format!("{bytes} bytes are more than {TXN_BYTES_MAX}")));
    }
    Ok(())
}

/// All entries below a prefix, page by page, all of one revision.
pub async fn range_all(store: &dyn StateStore, prefix: &str) -> Result<Vec<Entry>, StateError> {
    const TRIES_MAX: u32 = 8;
    for _ in 1..TRIES_MAX {
        match range_at(store, prefix, None).await {
            // The revision of the first page was compacted before the last: begin again with a newer one.
            Err(StateError::Compacted(_)) => {}
            other => return other,
        }
    }
    range_at(store, prefix, None).await
}

/// All entries below a prefix, page by page, as they were at a revision; at the newest for `None`.
///
/// # Errors
/// [`StateError::Compacted`] when the state at that revision is not kept any more.
pub async fn range_at(store: &dyn StateStore, prefix: &str, at: Option<u64>) -> Result<Vec<Entry>, StateError> {
    let mut found: Vec<Entry> = Vec::new();
    let mut at = at;
    loop {
        let after = found.last().map(|entry| entry.key.clone());
        let page = store.range(prefix, after.as_deref(), usize::MAX, at).await?;
        at = Some(page.revision);
        found.extend(page.entries);
        if !page.more {
            return Ok(found);
        }
    }
}

#[cfg(test)]
mod contract;
#[cfg(test)]
mod testing;
