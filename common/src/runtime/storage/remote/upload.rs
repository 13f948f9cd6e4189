//! A new object written as a stream.
//!
//! Up to one part is gathered in memory. A smaller object is one put; a larger one becomes a multipart upload whose
//! parts are sent while the next is gathered, a few at a time, so that memory is bounded by
//! [`PART_BYTES`] * ([`PARTS_AT_A_TIME`] + 1) for objects up to 40 GiB. Nothing is visible before the end. After an
//! unclear end the object is looked at: its name is the writer's own, so what has the right size is it.

use std::sync::Arc;

use bytes::Bytes;
use object_store::path::Path;
use object_store::{MultipartUpload, ObjectStore, ObjectStoreExt, PutPayload};
use tokio::task::JoinSet;

use super::failures::classify;
use super::{RUNTIME, identity, wait};
use crate::model::error::{Failure, FailureClass};
use crate::model::object::Identity;

/// Size of a part of objects up to 40 GiB: parts of one size suit every store.
const PART_BYTES: usize = 8 << 20;
/// Parts under way at a time.
const PARTS_AT_A_TIME: usize = 3;
/// Parts that a multipart upload can have.
const PARTS_MAX: usize = 10_000;

pub(in super::super) struct RemoteSink {
    store: Arc<dyn ObjectStore>,
    key: Path,
    shown: String,
    buffer: Vec<u8>,
    upload: Option<Upload>,
}

struct Upload {
    /// `None` once completed or aborted.
    multipart: Option<Box<dyn MultipartUpload>>,
    under_way: JoinSet<object_store::Result<()>>,
    parts: usize,
}

/// Size of part number `part`: grows late, so that 10,000 parts are enough for the largest objects.
fn part_bytes(part: usize) -> usize {
    match part {
        0..5_000 => PART_BYTES,
        5_000..8_000 => 8 * PART_BYTES,
        _ => 64 * PART_BYTES,
    }
}

impl RemoteSink {
    pub(super) fn new(store: Arc<dyn ObjectStore>, key: Path, shown: String) -> Self {
        Self { store, key, shown, buffer: Vec::new(), upload: None }
    }

    fn failed(&self, error: &object_store::Error, doing: &str) -> Failure {
        let failure = classify(error, doing);
        // A part of an upload that the store forgot, or of a bucket that is gone: nothing an input did.
        let class = match failure.class {
            FailureClass::InputMissing | FailureClass::InputChanged => FailureClass::Transient,
            class => class,
        };
        Failure { class, ..failure }.in_file(self.shown.clone())
    }

    pub(in super::super) fn write_all(&mut self, mut buffer: &[u8]) -> std::io::Result<()> {
        while !buffer.is_empty() {
            let wanted = part_bytes(self.upload.as_ref().map_or(0, |upload| upload.parts));
            let taken = buffer.len().min(wanted - self.buffer.len());
            if self.buffer.capacity() == 0 && self.upload.is_some() {
                self.buffer.reserve_exact(wanted);
            }
            self.buffer.extend_from_slice(&buffer[..taken]);
            buffer = &buffer[taken..];
            if self.buffer.len() == wanted && !buffer.is_empty() {
                self.send_part().map_err(std::io::Error::other)?;
            }
        }
        Ok(())
    }

    /// Sends what is gathered as the next part, once a place is free.
    fn send_part(&mut self) -> Result<(), Failure> {
        let content = Bytes::from(std::mem::take(&mut self.buffer));
        if self.upload.is_none() {
            let (store, key) = (self.store.clone(), self.key.clone());
            let started = wait(async move { store.put_multipart(&key).await })?;
            let multipart = started.map_err(|error| self.failed(&error, "start an upload"))?;
            self.upload = Some(Upload { multipart: Some(multipart), under_way: JoinSet::new(), parts: 0 });
        }
        self.wait_for_parts(PARTS_AT_A_TIME - 1)?;
        let Ok(runtime) = RUNTIME.as_ref() else { return Ok(()) };
        if let Some(Upload { multipart: Some(multipart), under_way, parts }) = &mut self.upload {
            if *parts == PARTS_MAX {
                let message = "the object is too large for one upload: choose a smaller target size";
                return Err(Failure::new(FailureClass::Policy, message).in_file(self.shown.clone()));
            }
            *parts += 1;
            under_way.spawn_on(multipart.put_part(PutPayload::from(content)), runtime.handle());
        }
        Ok(())
    }

    /// Waits until at most `most` parts are under way.
    fn wait_for_parts(&mut self, most: usize) -> Result<(), Failure> {
        let Some(upload) = &mut self.upload else { return Ok(()) };
        let mut under_way = std::mem::take(&mut upload.under_way);
        let (under_way, ended) = wait(async move {
            let mut ended = Ok(());
            while under_way.len() > most && ended.is_ok() {
                ended = match under_way.join_next().await {
                    Some(Ok(ended)) => ended,
                    Some(Err(error)) => Err(error.into()),
                    None => break,
                };
            }
            (under_way, ended)
        })?;
        if let Some(upload) = &mut self.upload {
            upload.under_way = under_way;
        }
        ended.map_err(|error| self.failed(&error, "upload a part"))
    }

    pub(in super::super) fn finish(mut self, bytes: u64) -> Result<Identity, Failure> {
        let ended = if self.upload.is_none() {
            let content = PutPayload::from(std::mem::take(&mut self.buffer));
            let (store, key) = (self.store.clone(), self.key.clone());
            wait(async move { store.put(&key, content).await.map(|_| ()) })?
        } else {
            if !self.buffer.is_empty() {
                self.send_part()?;
            }
            self.wait_for_parts(0)?;
            let Some(mut multipart) = self.upload.as_mut().and_then(|upload| upload.multipart.take()) else {
                return Err(Failure::new(FailureClass::Transient, "the upload is gone").in_file(self.shown.clone()));
            };
            let (multipart, ended) = wait(async move {
                let ended = multipart.complete().await.map(|_| ());
                (multipart, ended)
            })?;
            if ended.is_err()
                && let Some(upload) = &mut self.upload
            {
                upload.multipart = Some(multipart);
            }
            ended
        };
        let (store, key) = (self.store.clone(), self.key.clone());
        let stored = wait(async move { store.head(&key).await })?;
        match (ended, stored) {
            (_, Ok(meta)) if meta.size == bytes => {
                self.upload = None;
                Ok(identity(meta.e_tag.as_deref()))
            }
            (Ok(()), Ok(meta)) => {
                let message = format!("{bytes} bytes were written, the store has {}", meta.size);
                Err(Failure::new(FailureClass::Transient, message).in_file(self.shown.clone()))
            }
            (Err(error), _) => Err(self.failed(&error, "finish the upload")),
            (Ok(()), Err(error)) => Err(self.failed(&error, "look at the finished upload")),
        }
    }

    pub(in super::super) fn abort(mut self) {
        let Some(upload) = self.upload.take() else { return };
        let _ = wait(abort(upload));
    }
}

impl Drop for RemoteSink {
    /// A sink that was neither finished nor aborted leaves no parts behind, if the process lives long enough.
    fn drop(&mut self) {
        if let (Some(upload), Ok(runtime)) = (self.upload.take(), RUNTIME.as_ref()) {
            runtime.spawn(abort(upload));
        }
    }
}

async fn abort(mut upload: Upload) {
    upload.under_way.shutdown().await;
    if let Some(multipart) = &mut upload.multipart
        && let Err(error) = multipart.abort().await
    {
        tracing::debug!(%error, "an upload could not be aborted: the bucket's lifecycle rule removes it");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ten_thousand_parts_hold_a_terabyte() {
        let total: u64 = (0..PARTS_MAX).map(|part| part_bytes(part) as u64).sum();
        assert_eq!(total, 5_000 * (8 << 20) + 3_000 * (64 << 20) + 2_000 * (512 << 20));
    }
}
