//! A prefix of a bucket as a store: S3, Google Cloud Storage, Azure Blob Storage.
//!
//! The calls block: each hands its future to a small runtime of this module's own and waits for the answer, so they
//! work on any thread that may block. What a store answers is not believed blindly: every read is checked for its
//! length and carries the pinned entity tag, and after an unclear answer to a write the object itself is looked at.
//!
//! Deliberately absent: version ids. A listing does not say them, so an identity is the entity tag alone, the same from
//! a listing and from a look at one object.

mod connect;
mod failures;
mod read;
mod upload;

use std::collections::BTreeMap;
use std::future::Future;
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use bytes::Bytes;
use futures::StreamExt;
use object_store::path::Path;
use object_store::{CopyMode, CopyOptions, Error, ObjectMeta, ObjectStore, ObjectStoreExt, PutMode, PutPayload};
use tokio::runtime::Runtime;

use super::Creation;
use crate::model::error::{Failure, FailureClass};
use crate::model::object::{Identity, ObjectInfo};
use failures::classify;
pub(super) use read::RemoteSource;
pub(super) use upload::RemoteSink;

/// Tries of a request whose answer made no sense, and of a create whose result is unclear.
const TRIES: u32 = 4;
/// Largest object that one server-side copy takes, on S3 and Azure.
const COPY_BYTES_MAX: u64 = 5 << 30;

/// The threads that drive requests. Apart from any runtime of the caller, so that a busy caller delays no answer.
static RUNTIME: LazyLock<Result<Runtime, String>> = LazyLock::new(|| {
    tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .thread_name("baler-store")
        .enable_all()
        .build()
        .map_err(|error| error.to_string())
});

/// A bucket, and the folder in it that is the root.
#[derive(Debug, Clone)]
pub(super) struct RemoteRoot {
    store: Arc<dyn ObjectStore>,
    /// Without a trailing slash; empty for the whole bucket.
    prefix: String,
    /// As a person would name it, without secrets.
    location: String,
}

/// Runs `future` on the module's own threads and waits for it.
fn wait<T: Send + 'static>(future: impl Future<Output = T> + Send + 'static) -> Result<T, Failure> {
    let lost = |why: &str| Failure::new(FailureClass::Transient, format!("a request to the store was lost: {why}"));
    let runtime = RUNTIME.as_ref().map_err(|error| lost(error))?;
    let (sender, receiver) = std::sync::mpsc::sync_channel(1);
    runtime.spawn(async move {
        let _ = sender.send(future.await);
    });
    receiver.recv().map_err(|_| lost("its task ended early"))
}

/// Time to wait before try number `attempt` (from 1): doubling from 100 ms to 5 s, half of it by chance.
fn pause(attempt: u32) -> Duration {
    use std::hash::{BuildHasher, Hasher};
    let full = (100u64 << attempt.min(6)).min(5_000);
    let chance = std::collections::hash_map::RandomState::new().build_hasher().finish();
    Duration::from_millis(full / 2 + chance % (full / 2))
}

impl RemoteRoot {
    /// Opens `scheme://bucket/prefix`. Nothing is asked of the store yet.
    pub(super) fn open(location: &str) -> Result<Self, Failure> {
        let (store, prefix, location) = connect::open(location)?;
        Ok(Self { store, prefix, location })
    }

    /// The folder `path` of this root as a root of its own.
    pub(super) fn beneath(&self, path: &str) -> Result<Self, Failure> {
        let path = path.trim_matches('/');
        let prefix = self.folder_key(path)?.as_ref().to_owned();
        Ok(Self { store: self.store.clone(), prefix, location: self.shown(path) })
    }

    pub(super) fn location(&self) -> &str {
        &self.location
    }

    fn shown(&self, path: &str) -> String {
        format!("{}/{path}", self.location.trim_end_matches('/'))
    }

    /// The key of the object `path`. A path that leaves the root or that a store would change is refused.
    fn key(&self, path: &str) -> Result<Path, Failure> {
        if path.is_empty() || path.starts_with('/') || path.ends_with('/') {
            let message = "not a name of an object (it is empty, or has a slash at its start or end): rename it";
            return Err(Failure::new(FailureClass::Policy, message).in_file(self.shown(path)));
        }
        self.folder_key(path)
    }

    fn folder_key(&self, path: &str) -> Result<Path, Failure> {
        let whole = match (self.prefix.is_empty(), path.is_empty()) {
            (true, _) => path.to_owned(),
            (false, true) => self.prefix.clone(),
            (false, false) => format!("{}/{path}", self.prefix),
        };
        let refused = |why: String| {
            let message = format!("not a name that object stores keep as it is ({why}): rename it");
            Failure::new(FailureClass::Policy, message).in_file(self.shown(path))
        };
        if whole.len() > 1_024 {
            return Err(refused("longer than 1,024 bytes".to_owned()));
        }
        if whole.chars().any(char::is_control) {
            return Err(refused("a control character".to_owned()));
        }
        match Path::parse(&whole) {
            Ok(key) if key.as_ref() == whole => Ok(key),
            Ok(_) => Err(refused("a slash at its end".to_owned())),
            Err(error) => Err(refused(error.to_string())),
        }
    }

    /// The path below the root of a key that the store listed.
    fn relative<'a>(&self, key: &'a Path) -> Option<&'a str> {
        if self.prefix.is_empty() {
            return Some(key.as_ref());
        }
        key.as_ref().strip_prefix(self.prefix.as_str())?.strip_prefix('/')
    }

    fn failed(&self, error: &Error, doing: &str, path: &str) -> Failure {
        classify(error, doing).in_file(self.shown(path))
    }

    pub(super) fn list(&self, prefix: &str) -> Result<Vec<ObjectInfo>, Failure> {
        let folder = self.folder_key(prefix.trim_matches('/'))?;
        let store = self.store.clone();
        let listed = wait(async move {
            let folder = (!folder.as_ref().is_empty()).then_some(folder);
            store.list(folder.as_ref()).collect::<Vec<_>>().await
        })?;
        let mut found: BTreeMap<String, ObjectInfo> = BTreeMap::new();
        for meta in listed {
            let meta = meta.map_err(|error| self.failed(&error, "list", prefix))?;
            // The folder itself, as some tools mark it with an empty object.
            if meta.location.as_ref() == self.prefix && meta.size == 0 {
                continue;
            }
            let Some(path) = self.relative(&meta.location) else {
                let message = format!("the store listed {}, which is not below the folder", meta.location);
                return Err(Failure::new(FailureClass::Transient, message).in_file(self.shown(prefix)));
            };
            let info = info(path.to_owned(), &meta);
            if let Some(other) = found.get(path)
                && (other.bytes, &other.identity) != (info.bytes, &info.identity)
            {
                let message = "the store listed it twice, differently: something writes here, or the listing is stale";
                return Err(Failure::new(FailureClass::Transient, message).in_file(self.shown(path)));
            }
            found.insert(path.to_owned(), info);
        }
        Ok(without_folder_marks(found))
    }

    pub(super) fn head(&self, path: &str) -> Result<Option<ObjectInfo>, Failure> {
        let (store, key) = (self.store.clone(), self.key(path)?);
        match wait(async move { store.head(&key).await })? {
            Ok(meta) => Ok(Some(info(path.to_owned(), &meta))),
            Err(Error::NotFound { .. }) => Ok(None),
            Err(error) => Err(self.failed(&error, "look at", path)),
        }
    }

    pub(super) fn read(&self, path: &str) -> Result<Option<Bytes>, Failure> {
        read::whole(&self.store, self.key(path)?).map_err(|failure| failure.in_file(self.shown(path)))
    }

    pub(super) fn source(&self, path: &str, bytes: u64, identity: &Identity) -> Result<RemoteSource, Failure> {
        Ok(RemoteSource::new(self.store.clone(), self.key(path)?, bytes, identity))
    }

    pub(super) fn put_new(&self, path: &str, content: &[u8]) -> Result<Creation, Failure> {
        let key = self.key(path)?;
        let content = Bytes::copy_from_slice(content);
        let mut last = None;
        for attempt in 1..=TRIES {
            let (store, key, payload) = (self.store.clone(), key.clone(), PutPayload::from(content.clone()));
            let error = match wait(async move { store.put_opts(&key, payload, PutMode::Create.into()).await })? {
                Ok(_) => return Ok(Creation::Created),
                Err(error) => error,
            };
            // A retried request finds its own first success, and a lost answer may hide one: the content decides.
            match self.read(path)? {
                Some(found) if found == content => return Ok(Creation::Created),
                Some(_) => return Ok(Creation::Exists),
                None => {}
            }
            let failure = self.failed(&error, "create", path);
            let again = failure.class.is_retryable()
                || matches!(error, Error::AlreadyExists { .. } | Error::Precondition { .. });
            if !again {
                return Err(failure);
            }
            last = Some(Failure { class: FailureClass::Transient, ..failure });
            wait(async move { tokio::time::sleep(pause(attempt)).await })?;
        }
        Err(last.unwrap_or_else(|| Failure::new(FailureClass::Transient, "create: no answer")))
    }

    pub(super) fn put(&self, path: &str, content: &[u8]) -> Result<(), Failure> {
        let (store, key, payload) = (self.store.clone(), self.key(path)?, PutPayload::from(content.to_vec()));
        match wait(async move { store.put(&key, payload).await })? {
            Ok(_) => Ok(()),
            Err(error) => match self.read(path) {
                Ok(Some(found)) if found == content => Ok(()),
                _ => Err(self.failed(&error, "write", path)),
            },
        }
    }

    pub(super) fn create(&self, path: &str) -> Result<RemoteSink, Failure> {
        Ok(RemoteSink::new(self.store.clone(), self.key(path)?, self.shown(path)))
    }

    /// Copies on the server. The copy is looked at afterwards; whether an object that was there already has the right
    /// content is for the caller to find out.
    pub(super) fn publish(&self, from: &str, to: &str) -> Result<Creation, Failure> {
        if self.head(to)?.is_some() {
            return Ok(Creation::Exists);
        }
        let Some(original) = self.head(from)? else {
            let message = "the verified object is gone from its staging name: something removed it";
            return Err(Failure::new(FailureClass::InputMissing, message).in_file(self.shown(from)));
        };
        if original.bytes > COPY_BYTES_MAX {
            return self.publish_large(&original, to);
        }
        let (store, source, target) = (self.store.clone(), self.key(from)?, self.key(to)?);
        let options = CopyOptions { mode: CopyMode::Create, ..CopyOptions::default() };
        let copied = wait(async move { store.copy_opts(&source, &target, options).await })?;
        match (copied, self.head(to)?) {
            (Ok(()), Some(copy)) if copy.bytes == original.bytes => Ok(Creation::Created),
            (Ok(()), found) => {
                let message = format!(
                    "the store said it copied {} bytes, and has {}",
                    original.bytes,
                    found.map_or("nothing".to_owned(), |copy| format!("{} bytes", copy.bytes))
                );
                Err(Failure::new(FailureClass::Transient, message).in_file(self.shown(to)))
            }
            (Err(_), Some(_)) => Ok(Creation::Exists),
            (Err(error), None) => {
                let failure = self.failed(&error, "copy", to);
                let class = match error {
                    Error::AlreadyExists { .. } | Error::Precondition { .. } => FailureClass::Transient,
                    _ => failure.class,
                };
                Err(Failure { class, ..failure })
            }
        }
    }

    /// Publishes an object that is too large for one copy, through this machine. Stores have no create-only form of
    /// this: between the look at the name and the end of the upload, another writer could take the name.
    fn publish_large(&self, original: &ObjectInfo, to: &str) -> Result<Creation, Failure> {
        let source = self.source(&original.path, original.bytes, &original.identity)?;
        let mut sink = self.create(to)?;
        let piece = 32 << 20;
        let mut start = 0;
        while start < original.bytes {
            let end = original.bytes.min(start + piece);
            let content = source.read(start..end).map_err(|failure| failure.in_file(self.shown(&original.path)))?;
            sink.write_all(&content).map_err(|error| {
                Failure::new(FailureClass::Transient, format!("copy: {error}")).in_file(self.shown(to))
            })?;
            start = end;
        }
        if self.head(to)?.is_some() {
            sink.abort();
            return Ok(Creation::Exists);
        }
        sink.finish(original.bytes)?;
        Ok(Creation::Created)
    }

    pub(super) fn delete(&self, path: &str) -> Result<(), Failure> {
        let (store, key) = (self.store.clone(), self.key(path)?);
        match wait(async move { store.delete(&key).await })? {
            Ok(()) | Err(Error::NotFound { .. }) => Ok(()),
            Err(error) => Err(self.failed(&error, "delete", path)),
        }
    }
}

/// Leaves out the empty objects by which some tools mark folders.
fn without_folder_marks(found: BTreeMap<String, ObjectInfo>) -> Vec<ObjectInfo> {
    let is_folder = |path: &str| {
        let below = format!("{path}/");
        found.range(below.clone()..).next().is_some_and(|(next, _)| next.starts_with(&below))
    };
    let marks: Vec<String> =
        found.iter().filter(|(path, info)| info.bytes == 0 && is_folder(path)).map(|(path, _)| path.clone()).collect();
    let mut found = found;
    marks.iter().for_each(|mark| {
        found.remove(mark);
    });
    found.into_values().collect()
}

fn info(path: String, meta: &ObjectMeta) -> ObjectInfo {
    ObjectInfo {
        path,
        bytes: meta.size,
        identity: identity(meta.e_tag.as_deref()),
        modified_ms: meta.last_modified.timestamp_millis(),
    }
}

/// The identity that an entity tag gives. Some answers quote the tag and some do not; kept without quotes.
fn identity(etag: Option<&str>) -> Identity {
    match etag.map(bare_tag) {
        Some(etag) if !etag.is_empty() => Identity::Etag { etag: etag.to_owned(), version: None },
        _ => Identity::Unknown,
    }
}

fn bare_tag(etag: &str) -> &str {
    etag.strip_prefix('"').and_then(|rest| rest.strip_suffix('"')).unwrap_or(etag)
}

#[cfg(test)]
mod faults;
