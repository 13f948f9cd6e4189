//! A plain directory of Parquet files as a table, its versions kept as manifest generations in the control folder.
//!
//! [`DirectoryTable`] is the table's folder in a store. Every path in this module and its children is relative to that
//! folder. `docs/directory-layout.md` describes what lies where.
//!
//! Deliberately absent: deleting (the sweep's), and reading of rows.

pub mod checks;
pub mod files;
pub mod footers;
pub mod format;
pub mod fsck;
pub mod generation;
pub mod layout;
pub mod lists;
pub mod prepared;
pub mod previous;
pub mod publish;
pub mod revert;
mod schema_depth;
pub mod snapshot;
pub mod status;
pub mod swap;

use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use baler_common::model::error::{Failure, FailureClass};
use baler_common::model::object::{Identity, ObjectInfo};
use baler_common::runtime::storage::{Creation, Source, Store};
use bytes::Bytes;

/// Folder of everything that is Baler's own in a table.
pub const CONTROL: &str = "_baler";
/// Suffix of outputs in place. No `*.parquet` glob matches it.
pub const DATA_SUFFIX: &str = ".bale";
/// Suffix of files set aside. No `*.parquet` glob matches it.
pub const ASIDE_SUFFIX: &str = ".aside";

/// Looks and footer reads that run at once.
const PARALLEL: usize = 16;

/// A table's folder in a store.
#[derive(Debug, Clone)]
pub struct DirectoryTable {
    store: Store,
    folder: String,
}

impl DirectoryTable {
    /// The table in `folder` below the store's root; empty when the root is the table.
    pub fn new(store: Store, folder: &str) -> Self {
        Self { store, folder: folder.trim_matches('/').to_owned() }
    }

    pub fn store(&self) -> &Store {
        &self.store
    }

    /// The table's folder below the store's root.
    pub fn folder(&self) -> &str {
        &self.folder
    }

    /// A path of the store, from one of the table.
    pub fn absolute(&self, path: &str) -> String {
        if self.folder.is_empty() { path.to_owned() } else { format!("{}/{path}", self.folder) }
    }

    /// A path of the table, from one of the store; `None` when it lies elsewhere.
    pub fn relative<'a>(&self, path: &'a str) -> Option<&'a str> {
        if self.folder.is_empty() {
            return Some(path);
        }
        path.strip_prefix(self.folder.as_str())?.strip_prefix('/')
    }

    /// An object as a person would name it.
    pub fn describe(&self, path: &str) -> String {
        self.store.describe(&self.absolute(path))
    }

    /// All objects below a folder of the table, by path.
    pub fn list(&self, prefix: &str) -> Result<Vec<ObjectInfo>, Failure> {
        let prefix = if prefix.is_empty() { self.folder.clone() } else { self.absolute(prefix) };
        let found = self.store.list(&prefix)?;
        Ok(found
            .into_iter()
            .filter_map(|info| Some(ObjectInfo { path: self.relative(&info.path)?.to_owned(), ..info }))
            .collect())
    }

    pub fn head(&self, path: &str) -> Result<Option<ObjectInfo>, Failure> {
        self.store.head(&self.absolute(path))
    }

    pub fn read(&self, path: &str) -> Result<Option<Bytes>, Failure> {
        self.store.read(&self.absolute(path))
    }

    pub fn put(&self, path: &str, content: &[u8]) -> Result<(), Failure> {
        self.store.put(&self.absolute(path), content)
    }

    pub fn put_new(&self, path: &str, content: &[u8]) -> Result<Creation, Failure> {
        self.store.put_new(&self.absolute(path), content)
    }

    pub fn publish(&self, from: &str, to: &str) -> Result<Creation, Failure> {
        self.store.publish(&self.absolute(from), &self.absolute(to))
    }

    pub fn relocate(&self, from: &str, to: &str) -> Result<Creation, Failure> {
        self.store.relocate(&self.absolute(from), &self.absolute(to))
    }

    pub fn source(&self, path: &str, bytes: u64, identity: &Identity) -> Result<Source, Failure> {
        self.store.source(&self.absolute(path), bytes, identity)
    }

    /// The SHA-256 of an object that must have `bytes` bytes; `None` when it is not there or has another size.
    pub fn sha256(&self, path: &str, bytes: u64) -> Result<Option<[u8; 32]>, Failure> {
        use sha2::{Digest, Sha256};
        let Some(info) = self.head(path)?.filter(|info| info.bytes == bytes) else { return Ok(None) };
        let source = self.source(path, bytes, &info.identity)?;
        let mut digest = Sha256::new();
        let mut at = 0;
        while at < bytes {
            let end = bytes.min(at + (8 << 20));
            digest.update(source.read(at..end)?);
            at = end;
        }
        source.check_unchanged()?;
        Ok(Some(digest.finalize().into()))
    }
}

/// Whether an object is still the pinned one. [`Identity::Unknown`] pins the size alone.
pub fn is_pinned(found: &ObjectInfo, bytes: u64, identity: &Identity) -> bool {
    found.bytes == bytes && (*identity == Identity::Unknown || found.identity == *identity)
}

/// The same, for an object that was renamed or linked since: that changes a local file's change time, and nothing else.
pub fn is_same_content(found: &ObjectInfo, bytes: u64, identity: &Identity) -> bool {
    let without_change = |identity: &Identity| match identity.clone() {
        Identity::Local { device, inode, modified_ns, .. } => {
            Identity::Local { device, inode, modified_ns, changed_ns: 0 }
        }
        other => other,
    };
    found.bytes == bytes
        && (*identity == Identity::Unknown || without_change(&found.identity) == without_change(identity))
}

/// Calls `look` for each item on some threads; results in the order of the items.
pub fn in_parallel<T: Sync, R: Send>(items: &[T], look: impl Fn(&T) -> R + Sync) -> Vec<R> {
    if items.len() < 2 {
        return items.iter().map(look).collect();
    }
    let next = AtomicUsize::new(0);
    let found = Mutex::new(Vec::with_capacity(items.len()));
    std::thread::scope(|scope| {
        for _ in 0..PARALLEL.min(items.len()) {
            scope.spawn(|| {
                loop {
                    let at = next.fetch_add(1, Ordering::Relaxed);
                    let Some(item) = items.get(at) else { break };
                    let result = look(item);
                    if let Ok(mut found) = found.lock() {
                        found.push((at, result));
                    }
                }
            });
        }
    });
    let mut found = found.into_inner().unwrap_or_else(std::sync::PoisonError::into_inner);
    found.sort_by_key(|(at, _)| *at);
    found.into_iter().map(|(_, result)| result).collect()
}

/// A failure of a table whose own records do not fit together.
pub(crate) fn inconsistent(message: impl Into<String>) -> Failure {
    Failure::new(FailureClass::Policy, message)
}
