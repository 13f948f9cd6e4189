//! An open file being read, and a new one being written.

use std::fs::File;
use std::io::{self, Write};
use std::ops::Range;
use std::os::fd::OwnedFd;

use bytes::Bytes;
use rustix::buffer::spare_capacity;
use rustix::fs::AtFlags;
use rustix::io::{Errno, retry_on_intr};

use super::failures::{Doing, failed};
use super::{identity, info};
use crate::model::error::{Failure, FailureClass};
use crate::model::object::Identity;

/// Bytes that [`LocalSink`] gathers before it writes.
const WRITE_BUFFER_BYTES: usize = 1 << 20;

#[derive(Debug)]
pub(in super::super) struct LocalSource {
    file: File,
    identity: Identity,
    bytes: u64,
}

impl LocalSource {
    pub(super) fn new(file: File, bytes: u64, identity: Identity) -> Self {
        Self { file, identity, bytes }
    }

    /// The bytes of `range`, which lies within the pinned size.
    pub(in super::super) fn read(&self, range: Range<u64>) -> Result<Bytes, Failure> {
        let too_large = || {
            let message = format!("{} bytes at once do not fit in memory", range.end - range.start);
            Failure::new(FailureClass::Policy, message)
        };
        let wanted = usize::try_from(range.end - range.start).map_err(|_| too_large())?;
        let mut content = Vec::new();
        content.try_reserve_exact(wanted).map_err(|_| too_large())?;
        while content.len() < wanted {
            let at = range.start + content.len() as u64;
            match retry_on_intr(|| rustix::io::pread(&self.file, spare_capacity(&mut content), at)) {
                Ok(0) => {
                    let message = "the file became shorter while it was read";
                    return Err(Failure::new(FailureClass::InputChanged, message));
                }
                Ok(_) => {}
                Err(error) => return Err(failed(&error.into(), Doing::Read, "read", "")),
            }
        }
        // The allocator may have given more room than was asked for, and a file that grew then fills it.
        content.truncate(wanted);
        Ok(content.into())
    }

    pub(in super::super) fn check_unchanged(&self) -> Result<(), Failure> {
        let stat = rustix::fs::fstat(&self.file).map_err(|error| failed(&error.into(), Doing::Read, "look at", ""))?;
        let now = info(String::new(), &stat);
        if now.bytes != self.bytes || (self.identity != Identity::Unknown && now.identity != self.identity) {
            let message = format!(
                "the file is not the one that was planned ({} bytes now, {} planned): plan again",
                now.bytes, self.bytes
            );
            return Err(Failure::new(FailureClass::InputChanged, message));
        }
        Ok(())
    }
}

pub(in super::super) struct LocalSink {
    /// `None` once finished.
    file: Option<io::BufWriter<File>>,
    folder: OwnedFd,
    name: String,
    shown: String,
}

impl LocalSink {
    pub(super) fn new(file: File, folder: OwnedFd, name: &str, shown: String) -> Self {
        let file = Some(io::BufWriter::with_capacity(WRITE_BUFFER_BYTES, file));
        Self { file, folder, name: name.to_owned(), shown }
    }

    pub(in super::super) fn write_all(&mut self, buffer: &[u8]) -> io::Result<()> {
        match &mut self.file {
            Some(file) => file.write_all(buffer).map_err(|error| io::Error::other(self.failed(&error, "write"))),
            None => Err(io::Error::other("the file is finished")),
        }
    }

    fn failed(&self, error: &io::Error, what: &str) -> Failure {
        failed(error, Doing::Write, what, &self.shown)
    }

    pub(in super::super) fn finish(mut self) -> Result<Identity, Failure> {
        let Some(mut file) = self.file.take() else {
            return Err(self.failed(&Errno::BADF.into(), "finish"));
        };
        let synced = file
            .flush()
            .and_then(|()| file.get_ref().sync_all())
            .and_then(|()| Ok(retry_on_intr(|| rustix::fs::fsync(&self.folder))?))
            .and_then(|()| Ok(rustix::fs::fstat(file.get_ref())?));
        match synced {
            Ok(stat) => Ok(identity(&stat)),
            Err(error) => {
                let failure = self.failed(&error, "write");
                self.file = Some(file);
                Err(failure)
            }
        }
    }

    pub(in super::super) fn abort(self) {}
}

impl Drop for LocalSink {
    /// What was not finished is removed; what a killed process left has a name that no other attempt uses.
    fn drop(&mut self) {
        if let Some(file) = self.file.take() {
            // Dropping the writer itself would write what it still holds.
            let _ = file.into_parts();
            let _ = rustix::fs::unlinkat(&self.folder, self.name.as_str(), AtFlags::empty());
        }
    }
}
