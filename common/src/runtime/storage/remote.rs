//! A prefix of a bucket as a store.

use std::ops::Range;

use bytes::Bytes;

use super::Creation;
use crate::model::error::{Failure, FailureClass};
use crate::model::object::{Identity, ObjectInfo};

#[derive(Debug)]
pub(super) struct RemoteRoot {
    location: String,
}

#[derive(Debug)]
pub(super) struct RemoteSource {}

pub(super) struct RemoteSink {}

fn unsupported() -> Failure {
    Failure::new(FailureClass::Unsupported, "object stores are not wired yet")
}

impl RemoteRoot {
    pub(super) fn open(location: &str) -> Result<Self, Failure> {
        let _ = location;
        Err(unsupported())
    }

    pub(super) fn beneath(&self, path: &str) -> Self {
        Self { location: format!("{}/{path}", self.location.trim_end_matches('/')) }
    }

    pub(super) fn location(&self) -> &str {
        &self.location
    }

    pub(super) fn list(&self, _prefix: &str) -> Result<Vec<ObjectInfo>, Failure> {
        Err(unsupported())
    }

    pub(super) fn head(&self, _path: &str) -> Result<Option<ObjectInfo>, Failure> {
        Err(unsupported())
    }

    pub(super) fn read(&self, _path: &str) -> Result<Option<Bytes>, Failure> {
        Err(unsupported())
    }

    pub(super) fn source(&self, _path: &str, _bytes: u64, _identity: &Identity) -> RemoteSource {
        RemoteSource {}
    }

    pub(super) fn put_new(&self, _path: &str, _content: &[u8]) -> Result<Creation, Failure> {
        Err(unsupported())
    }

    pub(super) fn put(&self, _path: &str, _content: &[u8]) -> Result<(), Failure> {
        Err(unsupported())
    }

    pub(super) fn create(&self, _path: &str) -> Result<RemoteSink, Failure> {
        Err(unsupported())
    }

    pub(super) fn publish(&self, _from: &str, _to: &str) -> Result<Creation, Failure> {
        Err(unsupported())
    }

    pub(super) fn delete(&self, _path: &str) -> Result<(), Failure> {
        Err(unsupported())
    }
}

impl RemoteSource {
    pub(super) fn read(&self, _range: Range<u64>) -> Result<Bytes, Failure> {
        Err(unsupported())
    }
}

impl RemoteSink {
    pub(super) fn write_all(&mut self, _buffer: &[u8]) -> std::io::Result<()> {
        Err(std::io::Error::other("object stores are not wired yet"))
    }

    pub(super) fn finish(self, _bytes: u64) -> Result<Identity, Failure> {
        Err(unsupported())
    }

    pub(super) fn abort(self) {}
}
