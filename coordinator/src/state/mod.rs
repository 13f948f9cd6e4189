//! Where a coordinator keeps what must survive it: a small ordered key-value store with compare-and-set transactions.
//!
//! It holds the fencing epoch, the head of each run, one record per job that is not pending, and the stop of a table.
//! Plans, receipts and manifests are objects beside the data, not values here. Every write compares the epoch, so a
//! coordinator that lost its place changes nothing (see [`leadership`]).
//!
//! The trait is shaped after etcd: revisions, transactions, paged ranges. [`embedded`] is one file on one machine;
//! `simulated` forgets answers on purpose and is what the tests run on.

pub mod embedded;
pub mod keys;
pub mod leadership;
pub mod records;
pub mod runs;
pub mod scoped;
#[cfg(test)]
pub mod simulated;

use async_trait::async_trait;

/// A value with the revision that wrote it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    pub key: String,
    pub value: Vec<u8>,
    pub revision: u64,
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
    #[error("state record {key} is not readable: {message}")]
    Record { key: String, message: String },
    #[error("another coordinator leads (epoch conflict): this one stops")]
    Fenced,
}

/// The store. All answers are of a consistent state; writes are durable when they are answered.
#[async_trait]
pub trait StateStore: Send + Sync {
    /// Makes all changes if all conditions hold.
    async fn txn(&self, compares: &[Compare], changes: &[Change]) -> Result<Applied, StateError>;

    /// The value of a key.
    async fn get(&self, key: &str) -> Result<Option<Entry>, StateError>;

    /// Up to `limit` entries whose key begins with `prefix` and is above `after`, in key order.
    async fn range(&self, prefix: &str, after: Option<&str>, limit: usize) -> Result<Vec<Entry>, StateError>;
}

/// All entries below a prefix, page by page.
pub async fn range_all(store: &dyn StateStore, prefix: &str) -> Result<Vec<Entry>, StateError> {
    const PAGE: usize = 5_000;
    let mut found: Vec<Entry> = Vec::new();
    loop {
        let after = found.last().map(|entry| entry.key.clone());
        let page = store.range(prefix, after.as_deref(), PAGE).await?;
        let last = page.len() < PAGE;
        found.extend(page);
        if last {
            return Ok(found);
        }
    }
}

#[cfg(test)]
mod contract;
