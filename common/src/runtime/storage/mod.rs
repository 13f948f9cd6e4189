//! Object storage, seen the same way on a local disk and on S3, GCS and Azure.
//!
//! A [`Store`] is a root with an alias; everything in it is named by a relative path, and nothing outside the root can
//! be reached through it: local files are opened beneath the root without following links. All calls block; async code
//! calls them from a blocking thread.
//!
//! Deliberately absent: overwriting of data. [`Store::create`] and [`Store::publish`] only make new names;
//! [`Store::put`] exists for the lists that scripts read, and [`Store::delete`] is called by the sweep alone.

mod local;
mod remote;

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::io::Write;
use std::ops::Range;
use std::os::unix::ffi::OsStringExt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use sha2::{Digest, Sha256};

use crate::model::error::{Failure, FailureClass};
use crate::model::object::{Identity, ObjectInfo, ObjectRef};

/// A root in some storage, under an alias.
#[derive(Debug, Clone)]
pub struct Store {
    alias: String,
    backend: Backend,
}

#[derive(Debug, Clone)]
enum Backend {
    Local(Arc<local::LocalRoot>),
    Remote(Arc<remote::RemoteRoot>),
}

/// What a create-only write found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Creation {
    /// The object is there now with the given content, made by this call or an earlier one with the same content.
    Created,
    /// Another object has the name.
    Exists,
}

/// An open object for positional reads. Reads fail with [`FailureClass::InputChanged`] when the content is not the
/// pinned one.
#[derive(Debug, Clone)]
pub struct Source {
    name: Arc<str>,
    bytes: u64,
    kind: SourceKind,
}

#[derive(Debug, Clone)]
enum SourceKind {
    Local(Arc<local::LocalSource>),
    Remote(Arc<remote::RemoteSource>),
    /// The whole content in memory: a small file that was fetched once for all of its readers.
    Memory(Bytes),
}

/// A new object being written. Invisible, or visible only under its unique name, until [`Sink::finish`].
pub struct Sink {
    inner: SinkKind,
    digest: Sha256,
    bytes: u64,
}

enum SinkKind {
    Local(local::LocalSink),
    Remote(remote::RemoteSink),
}

/// A finished new object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Stored {
    pub bytes: u64,
    pub sha256: [u8; 32],
    pub identity: Identity,
}

impl Store {
    /// Opens the root at `location`: a path, or a `file://`, `s3://`, `gs://`, `az://` URL. Credentials come from the
    /// environment and the usual providers, never from the URL.
    ///
    /// With `create`, a missing local directory is made.
    pub fn open(alias: &str, location: &str, create: bool) -> Result<Self, Failure> {
        let backend = match location.split_once("://") {
            None => Backend::Local(Arc::new(local::LocalRoot::open(location.as_ref(), create)?)),
            Some(("file", rest)) => Backend::Local(Arc::new(local::LocalRoot::open(&file_path(rest)?, create)?)),
            Some(_) => Backend::Remote(Arc::new(remote::RemoteRoot::open(location)?)),
        };
        Ok(Self { alias: alias.to_owned(), backend })
    }

    /// A store under `alias` whose root is the folder `path` of this one.
    pub fn beneath(&self, alias: &str, path: &str, create: bool) -> Result<Self, Failure> {
        let backend = match &self.backend {
            Backend::Local(root) => Backend::Local(Arc::new(root.beneath(path, create)?)),
            Backend::Remote(root) => Backend::Remote(Arc::new(root.beneath(path)?)),
        };
        Ok(Self { alias: alias.to_owned(), backend })
    }

    pub fn alias(&self) -> &str {
        &self.alias
    }

    /// The root as a person would name it, without secrets.
    pub fn location(&self) -> String {
        match &self.backend {
            Backend::Local(root) => root.path().display().to_string(),
            Backend::Remote(root) => root.location().to_owned(),
        }
    }

    /// The root's path, if it is on a local disk.
    pub fn local_path(&self) -> Option<PathBuf> {
        match &self.backend {
            Backend::Local(root) => Some(root.path().to_owned()),
            Backend::Remote(_) => None,
        }
    }

    /// An object as a person would name it.
    pub fn describe(&self, path: &str) -> String {
        format!("{}/{path}", self.location().trim_end_matches('/'))
    }

    /// All objects below the folder `prefix` (all: `""`), recursively, sorted by the bytes of their paths. A missing
    /// folder is empty. On a local disk a link or special file named `*.parquet` is listed with identity
    /// [`Identity::Unknown`] and size 0, so that opening it refuses by name.
    pub fn list(&self, prefix: &str) -> Result<Vec<ObjectInfo>, Failure> {
        let mut found = match &self.backend {
            Backend::Local(root) => root.list(prefix)?,
            Backend::Remote(root) => root.list(prefix)?,
        };
        found.sort_by(|a, b| a.path.as_bytes().cmp(b.path.as_bytes()));
        Ok(found)
    }

    /// The object's size and identity, or `None` when it does not exist.
    pub fn head(&self, path: &str) -> Result<Option<ObjectInfo>, Failure> {
        match &self.backend {
            Backend::Local(root) => root.head(path),
            Backend::Remote(root) => root.head(path),
        }
    }

    /// The whole object, or `None` when it does not exist.
    pub fn read(&self, path: &str) -> Result<Option<Bytes>, Failure> {
        match &self.backend {
            Backend::Local(root) => root.read(path),
            Backend::Remote(root) => root.read(path),
        }
    }

    /// Opens an object for positional reads, pinned to `identity` and `bytes`.
    pub fn source(&self, path: &str, bytes: u64, identity: &Identity) -> Result<Source, Failure> {
        let kind = match &self.backend {
            Backend::Local(root) => SourceKind::Local(Arc::new(root.source(path, bytes, identity)?)),
            Backend::Remote(root) => SourceKind::Remote(Arc::new(root.source(path, bytes, identity)?)),
        };
        Ok(Source { name: self.describe(path).into(), bytes, kind })
    }

    /// Makes an object with this content if no object has the name. An unclear answer is resolved by reading back.
    pub fn put_new(&self, path: &str, content: &[u8]) -> Result<Creation, Failure> {
        match &self.backend {
            Backend::Local(root) => root.put_new(path, content),
            Backend::Remote(root) => root.put_new(path, content),
        }
    }

    /// Makes or replaces an object, atomically and durably.
    pub fn put(&self, path: &str, content: &[u8]) -> Result<(), Failure> {
        match &self.backend {
            Backend::Local(root) => root.put(path, content),
            Backend::Remote(root) => root.put(path, content),
        }
    }

    /// Starts a new object under a name that nobody else uses.
    pub fn create(&self, path: &str) -> Result<Sink, Failure> {
        let inner = match &self.backend {
            Backend::Local(root) => SinkKind::Local(root.create(path)?),
            Backend::Remote(root) => SinkKind::Remote(root.create(path)?),
        };
        Ok(Sink { inner, digest: Sha256::new(), bytes: 0 })
    }

    /// Gives the finished object `from` the name `to`, only if no object has it: a rename on a local disk, a copy on
    /// the server elsewhere (`from` then stays). `Created` also when an earlier call had done it.
    pub fn publish(&self, from: &str, to: &str) -> Result<Creation, Failure> {
        match &self.backend {
            Backend::Local(root) => root.publish(from, to),
            Backend::Remote(root) => root.publish(from, to),
        }
    }

    /// Moves an object to a name that no object has: a rename on a local disk; elsewhere a copy that is compared before
    /// the old name goes. `Exists` leaves both as they are. Nothing is lost if the call is cut short and repeated.
    pub fn relocate(&self, from: &str, to: &str) -> Result<Creation, Failure> {
        let creation = self.publish(from, to)?;
        if matches!(self.backend, Backend::Local(_)) {
            return Ok(creation);
        }
        let (Some(old), Some(new)) = (self.head(from)?, self.head(to)?) else { return Ok(creation) };
        let is_copy = old.bytes == new.bytes
            && match creation {
                Creation::Created => true,
                // Another object, or the copy of a call that was cut short.
                Creation::Exists => self.has_same_bytes(&old, &new)?,
            };
        if is_copy {
            self.delete(from)?;
            return Ok(Creation::Created);
        }
        match creation {
            Creation::Exists => Ok(Creation::Exists),
            Creation::Created => {
                let message = format!("the copy has {} bytes, the object {}: try again", new.bytes, old.bytes);
                Err(Failure::new(FailureClass::Transient, message).in_file(self.describe(to)))
            }
        }
    }

    fn has_same_bytes(&self, one: &ObjectInfo, other: &ObjectInfo) -> Result<bool, Failure> {
        let piece = 8 << 20;
        let (one_source, other_source) = (
            self.source(&one.path, one.bytes, &one.identity)?,
            self.source(&other.path, other.bytes, &other.identity)?,
        );
        let mut at = 0;
        while at < one.bytes {
            let end = one.bytes.min(at + piece);
            if one_source.read(at..end)? != other_source.read(at..end)? {
                return Ok(false);
            }
            at = end;
        }
        Ok(true)
    }

    /// Removes an object; one that is gone already is fine. Called by the sweep only.
    pub fn delete(&self, path: &str) -> Result<(), Failure> {
        match &self.backend {
            Backend::Local(root) => root.delete(path),
            Backend::Remote(root) => root.delete(path),
        }
    }

    /// Whether the root is a local folder on a disk of another machine, where file locks cannot be relied on.
    pub fn on_network_disk(&self) -> bool {
        match &self.backend {
            Backend::Local(root) => root.on_network_disk(),
            Backend::Remote(_) => false,
        }
    }

    /// Removes what crashed writers of whole objects left in `folder` (not below it) and is older than `age`; no
    /// listing shows it. Returns how many. Object stores keep nothing of the kind in view.
    pub fn sweep_staging(&self, folder: &str, age: Duration) -> Result<u64, Failure> {
        match &self.backend {
            Backend::Local(root) => root.sweep_staging(folder, age),
            Backend::Remote(_) => Ok(0),
        }
    }

    /// Fails unless this store can be written and keeps its promise that [`Store::put_new`] never replaces: some S3
    /// servers accept the condition and ignore it. Leaves nothing behind. `folder` is the control folder.
    pub fn check_create_only(&self, folder: &str, nonce: &str) -> Result<(), Failure> {
        let path = format!("{}/probe-{nonce}", folder.trim_matches('/'));
        let first = self.put_new(&path, b"first")?;
        let second = self.put_new(&path, b"second");
        let kept = self.read(&path);
        self.delete(&path)?;
        if first == Creation::Created && second? == Creation::Exists && kept?.as_deref() == Some(b"first") {
            return Ok(());
        }
        let message = "this store replaces objects that were to be created only if absent, so two writers could \
                       destroy each other's work: use a store with conditional writes (If-None-Match)";
        Err(Failure::new(FailureClass::Unsupported, message).in_file(self.location()))
    }
}

/// The path of a `file://` URL, whose `rest` follows the two slashes.
fn file_path(rest: &str) -> Result<PathBuf, Failure> {
    let refused = |message: &str| Failure::new(FailureClass::Policy, message);
    let (host, path) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
    if !matches!(host, "" | "localhost") || path.is_empty() {
        return Err(refused("a file:// URL has three slashes and the whole path: file:///folder"));
    }
    let mut decoded = Vec::with_capacity(path.len());
    let mut bytes = path.bytes();
    while let Some(byte) = bytes.next() {
        if byte != b'%' {
            decoded.push(byte);
            continue;
        }
        let mut digit = || bytes.next().and_then(|digit| char::from(digit).to_digit(16));
        let value = digit().and_then(|high| Some(high * 16 + digit()?));
        match value.and_then(|value| u8::try_from(value).ok()) {
            Some(value) if value != 0 => decoded.push(value),
            _ => return Err(refused("a % in a file:// URL begins a byte of two hexadecimal digits: write %25 for %")),
        }
    }
    Ok(PathBuf::from(OsString::from_vec(decoded)))
}

impl Source {
    /// A source over bytes that are in memory already.
    pub fn from_bytes(name: &str, content: Bytes) -> Self {
        Self { name: name.into(), bytes: content.len() as u64, kind: SourceKind::Memory(content) }
    }

    /// The object as a person would name it.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Size in bytes.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// The bytes of `range`, all of them; beyond the end is an [`FailureClass::InputCorrupt`] failure.
    pub fn read(&self, range: Range<u64>) -> Result<Bytes, Failure> {
        if range.start > range.end || range.end > self.bytes {
            let message = format!("bytes {}..{} were asked for, the file has {}", range.start, range.end, self.bytes);
            return Err(Failure::new(FailureClass::InputCorrupt, message).in_file(&*self.name));
        }
        match &self.kind {
            SourceKind::Local(file) => file.read(range),
            SourceKind::Remote(object) => object.read(range),
            SourceKind::Memory(content) => Ok(content.slice(range.start as usize..range.end as usize)),
        }
        .map_err(|failure| failure.in_file(&*self.name))
    }

    /// Fails with [`FailureClass::InputChanged`] if the object is no longer the pinned one. Called after the last read
    /// of a local file; a remote read carries the check with it.
    pub fn check_unchanged(&self) -> Result<(), Failure> {
        match &self.kind {
            SourceKind::Local(file) => file.check_unchanged().map_err(|failure| failure.in_file(&*self.name)),
            SourceKind::Remote(_) | SourceKind::Memory(_) => Ok(()),
        }
    }
}

impl Write for Sink {
    fn write(&mut self, buffer: &[u8]) -> std::io::Result<usize> {
        self.write_all(buffer)?;
        Ok(buffer.len())
    }

    fn write_all(&mut self, buffer: &[u8]) -> std::io::Result<()> {
        match &mut self.inner {
            SinkKind::Local(file) => file.write_all(buffer)?,
            SinkKind::Remote(upload) => upload.write_all(buffer)?,
        }
        self.digest.update(buffer);
        self.bytes += buffer.len() as u64;
        Ok(())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

impl Sink {
    /// Bytes written so far.
    pub fn bytes_written(&self) -> u64 {
        self.bytes
    }

    /// Makes the object durable and visible under its name.
    pub fn finish(self) -> Result<Stored, Failure> {
        let identity = match self.inner {
            SinkKind::Local(file) => file.finish()?,
            SinkKind::Remote(upload) => upload.finish(self.bytes)?,
        };
        Ok(Stored { bytes: self.bytes, sha256: self.digest.finalize().into(), identity })
    }

    /// Gives the object up: nothing with its name is left, as far as that can be arranged.
    pub fn abort(self) {
        match self.inner {
            SinkKind::Local(file) => file.abort(),
            SinkKind::Remote(upload) => upload.abort(),
        }
    }
}

/// The stores a process may touch, by alias.
#[derive(Debug, Clone, Default)]
pub struct Stores {
    by_alias: BTreeMap<String, Store>,
}

impl Stores {
    pub fn new(stores: impl IntoIterator<Item = Store>) -> Self {
        Self { by_alias: stores.into_iter().map(|store| (store.alias.clone(), store)).collect() }
    }

    pub fn insert(&mut self, store: Store) {
        self.by_alias.insert(store.alias.clone(), store);
    }

    /// Names of the stores.
    pub fn aliases(&self) -> impl Iterator<Item = &str> {
        self.by_alias.keys().map(String::as_str)
    }

    /// The store of this alias. `NAME/FOLDER` is the part of the store `NAME` that lies beneath that folder.
    ///
    /// # Errors
    /// An unknown alias, or a folder that is no relative path, is refused before any I/O.
    pub fn get(&self, alias: &str) -> Result<Store, Failure> {
        if let Some(store) = self.by_alias.get(alias) {
            return Ok(store.clone());
        }
        let unknown = || Failure::new(FailureClass::Policy, format!("no store has the alias {alias:?}"));
        let (name, folder) = alias.split_once('/').ok_or_else(unknown)?;
        let root = self.by_alias.get(name).ok_or_else(unknown)?;
        let proper = |part: &str| !part.is_empty() && part != "." && part != "..";
        if !folder.split('/').all(proper) {
            return Err(Failure::new(FailureClass::Policy, format!("{alias:?} names no folder of a store")));
        }
        root.beneath(alias, folder, false)
    }

    /// The alias of the folder that `location` names, if it lies in a store of this process, by the longest root. Only
    /// the roots' own way of writing counts: nothing is resolved.
    ///
    /// # Errors
    /// The location lies in none of the stores.
    pub fn alias_of(&self, location: &str) -> Result<String, Failure> {
        let plain = |text: &str| text.strip_prefix("file://").unwrap_or(text).trim_end_matches('/').to_owned();
        let wanted = plain(location);
        let within = |store: &Store| {
            let root = plain(&store.location());
            let rest = wanted.strip_prefix(&root)?;
            (rest.is_empty() || rest.starts_with('/')).then(|| (root.len(), rest.trim_start_matches('/').to_owned()))
        };
        let found = self.by_alias.values().filter_map(|store| Some((within(store)?, store.alias())));
        match found.max_by_key(|((length, _), _)| *length) {
            Some(((_, rest), name)) if rest.is_empty() => Ok(name.to_owned()),
            Some(((_, rest), name)) => Ok(format!("{name}/{rest}")),
            None => {
                let roots: Vec<String> = self.by_alias.values().map(Store::location).collect();
                let message = format!("it lies in none of the configured stores ({})", roots.join(", "));
                Err(Failure::new(FailureClass::Policy, message).in_file(location))
            }
        }
    }

    /// Opens the object that `reference` names.
    pub fn source(&self, reference: &ObjectRef, bytes: u64, identity: &Identity) -> Result<Source, Failure> {
        self.get(&reference.store)?.source(&reference.path, bytes, identity)
    }
}
