//! Where an object is and which content of it is meant.

use std::fmt;

/// An object by the alias of its store and its path below that store's root.
///
/// The alias is resolved by whoever reads or writes, from its own configuration, so a message can never name a bucket,
/// an endpoint or a file outside the root. `path` uses `/`, has no leading slash and no `.` or `..` segment.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ObjectRef {
    pub store: String,
    pub path: String,
}

/// What pins the content of an object between planning and reading.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub enum Identity {
    /// Nothing but the size is known.
    #[default]
    Unknown,
    /// An object store's entity tag, and its version id where the bucket has versions.
    Etag { etag: String, version: Option<String> },
    /// A local file: device, inode, modification and change time in nanoseconds since the epoch.
    Local { device: u64, inode: u64, modified_ns: i64, changed_ns: i64 },
}

/// A listed object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ObjectInfo {
    /// Path below the store's root.
    pub path: String,
    /// Size in bytes.
    pub bytes: u64,
    pub identity: Identity,
    /// Modification time by the store's clock, in milliseconds since the epoch. For age only, never for order.
    pub modified_ms: i64,
}

impl ObjectRef {
    pub fn new(store: impl Into<String>, path: impl Into<String>) -> Self {
        Self { store: store.into(), path: path.into() }
    }
}

impl fmt::Display for ObjectRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.store, self.path)
    }
}
