//! A directory of a local disk as a store.
//!
//! Every open walks down from the root's descriptor with `openat2(RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS)`, so neither a
//! link nor `..` leads out, also when it is swapped in between check and open. What is created is synced, its folder
//! too, before the call returns.

use std::fs::File;
use std::io::{self, Read, Write};
use std::ops::Range;
use std::os::fd::OwnedFd;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};

use bytes::Bytes;
use rustix::fs::{AtFlags, Mode, OFlags, RenameFlags, ResolveFlags};

use super::Creation;
use crate::model::error::{Failure, FailureClass};
use crate::model::object::{Identity, ObjectInfo};

/// Bytes that [`LocalSink`] gathers before it writes.
const WRITE_BUFFER_BYTES: usize = 1 << 20;

#[derive(Debug)]
pub(super) struct LocalRoot {
    path: PathBuf,
    directory: OwnedFd,
}

#[derive(Debug)]
pub(super) struct LocalSource {
    file: File,
    identity: Identity,
    bytes: u64,
}

pub(super) struct LocalSink {
    file: io::BufWriter<File>,
    folder: OwnedFd,
    name: String,
}

impl LocalRoot {
    pub(super) fn open(path: &Path, create: bool) -> Result<Self, Failure> {
        if create {
            std::fs::create_dir_all(path)
                .map_err(|error| failed(&error, "create directory", &path.display().to_string()))?;
        }
        let path = std::path::absolute(path).map_err(|error| failed(&error, "resolve", &path.display().to_string()))?;
        let directory = rustix::fs::open(&path, OFlags::DIRECTORY | OFlags::CLOEXEC | OFlags::RDONLY, Mode::empty())
            .map_err(|error| failed(&error.into(), "open directory", &path.display().to_string()))?;
        Ok(Self { path, directory })
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    fn open_beneath(&self, path: &str, flags: OFlags) -> Result<OwnedFd, rustix::io::Errno> {
        let path = if path.is_empty() { "." } else { path };
        rustix::fs::openat2(
            &self.directory,
            path,
            flags | OFlags::CLOEXEC,
            if flags.contains(OFlags::CREATE) { Mode::from_raw_mode(0o644) } else { Mode::empty() },
            ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS,
        )
    }

    /// The folder of `path` opened, made where missing, and the last segment of `path`.
    fn make_folder<'a>(&self, path: &'a str) -> Result<(OwnedFd, &'a str), Failure> {
        let (folder, name) = path.rsplit_once('/').unwrap_or(("", path));
        let mut made = String::new();
        for segment in folder.split('/').filter(|segment| !segment.is_empty()) {
            let parent = self
                .open_beneath(&made, OFlags::DIRECTORY)
                .map_err(|error| failed(&error.into(), "open folder", &made))?;
            match rustix::fs::mkdirat(&parent, segment, Mode::from_raw_mode(0o755)) {
                Ok(()) => rustix::fs::fsync(&parent).map_err(|error| failed(&error.into(), "sync folder", &made))?,
                Err(rustix::io::Errno::EXIST) => {}
                Err(error) => return Err(failed(&error.into(), "create folder", &format!("{made}/{segment}"))),
            }
            if !made.is_empty() {
                made.push('/');
            }
            made.push_str(segment);
        }
        let folder =
            self.open_beneath(&made, OFlags::DIRECTORY).map_err(|error| failed(&error.into(), "open folder", &made))?;
        Ok((folder, name))
    }

    pub(super) fn list(&self, prefix: &str) -> Result<Vec<ObjectInfo>, Failure> {
        let mut found = Vec::new();
        let mut folders = vec![prefix.trim_matches('/').to_owned()];
        while let Some(folder) = folders.pop() {
            let descriptor = match self.open_beneath(&folder, OFlags::DIRECTORY) {
                Ok(descriptor) => descriptor,
                Err(rustix::io::Errno::NOENT) => continue,
                Err(error) => return Err(failed(&error.into(), "list", &folder)),
            };
            let entries =
                rustix::fs::Dir::read_from(&descriptor).map_err(|error| failed(&error.into(), "list", &folder))?;
            for entry in entries {
                let entry = entry.map_err(|error| failed(&error.into(), "list", &folder))?;
                let Ok(name) = entry.file_name().to_str() else {
                    let shown = entry.file_name().to_string_lossy().into_owned();
                    let message = "the name is not UTF-8: rename it, or leave it outside the table";
                    return Err(Failure::new(FailureClass::Policy, message).in_file(format!("{folder}/{shown}")));
                };
                if name == "." || name == ".." {
                    continue;
                }
                let path = if folder.is_empty() { name.to_owned() } else { format!("{folder}/{name}") };
                let stat = match rustix::fs::statat(&descriptor, name, AtFlags::SYMLINK_NOFOLLOW) {
                    Ok(stat) => stat,
                    Err(rustix::io::Errno::NOENT) => continue,
                    Err(error) => return Err(failed(&error.into(), "look at", &path)),
                };
                match rustix::fs::FileType::from_raw_mode(stat.st_mode) {
                    rustix::fs::FileType::Directory => folders.push(path),
                    rustix::fs::FileType::RegularFile => found.push(info(path, &stat)),
                    _ if name.ends_with(".parquet") => {
                        found.push(ObjectInfo { path, bytes: 0, identity: Identity::Unknown, modified_ms: 0 });
                    }
                    _ => {}
                }
            }
        }
        Ok(found)
    }

    pub(super) fn head(&self, path: &str) -> Result<Option<ObjectInfo>, Failure> {
        match self.open_regular(path) {
            Ok(Some(file)) => {
                let stat = rustix::fs::fstat(&file).map_err(|error| failed(&error.into(), "look at", path))?;
                Ok(Some(info(path.to_owned(), &stat)))
            }
            Ok(None) => Ok(None),
            Err(failure) => Err(failure),
        }
    }

    /// Opens a regular file for reading; anything else is refused. Never blocks on a pipe.
    fn open_regular(&self, path: &str) -> Result<Option<File>, Failure> {
        let descriptor = match self.open_beneath(path, OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY) {
            Ok(descriptor) => descriptor,
            Err(rustix::io::Errno::NOENT) => return Ok(None),
            Err(rustix::io::Errno::LOOP | rustix::io::Errno::XDEV) => {
                let message = "a link is in its path: Baler follows no links, put the file itself below the root";
                return Err(Failure::new(FailureClass::Policy, message).in_file(self.shown(path)));
            }
            Err(error) => return Err(failed(&error.into(), "open", &self.shown(path))),
        };
        let file = File::from(descriptor);
        let regular = file.metadata().map_err(|error| failed(&error, "look at", &self.shown(path)))?.is_file();
        if !regular {
            return Err(Failure::new(FailureClass::Policy, "it is not a regular file").in_file(self.shown(path)));
        }
        Ok(Some(file))
    }

    fn shown(&self, path: &str) -> String {
        self.path.join(path).display().to_string()
    }

    pub(super) fn read(&self, path: &str) -> Result<Option<Bytes>, Failure> {
        let Some(mut file) = self.open_regular(path)? else { return Ok(None) };
        let mut content = Vec::new();
        file.read_to_end(&mut content).map_err(|error| failed(&error, "read", &self.shown(path)))?;
        Ok(Some(content.into()))
    }

    pub(super) fn source(&self, path: &str, bytes: u64, identity: &Identity) -> Result<LocalSource, Failure> {
        let file = self
            .open_regular(path)?
            .ok_or_else(|| Failure::new(FailureClass::InputMissing, "the file is gone").in_file(self.shown(path)))?;
        let source = LocalSource { file, identity: identity.clone(), bytes };
        source.check_unchanged().map_err(|failure| failure.in_file(self.shown(path)))?;
        Ok(source)
    }

    pub(super) fn put_new(&self, path: &str, content: &[u8]) -> Result<Creation, Failure> {
        let (folder, name) = self.make_folder(path)?;
        let staging = format!(".{name}.{}.new", std::process::id());
        self.write_whole(&folder, &staging, content, path)?;
        let linked = rustix::fs::linkat(&folder, staging.as_str(), &folder, name, AtFlags::empty());
        let _ = rustix::fs::unlinkat(&folder, staging.as_str(), AtFlags::empty());
        rustix::fs::fsync(&folder).map_err(|error| failed(&error.into(), "sync folder of", path))?;
        match linked {
            Ok(()) => Ok(Creation::Created),
            Err(rustix::io::Errno::EXIST) if self.read(path)?.as_deref() == Some(content) => Ok(Creation::Created),
            Err(rustix::io::Errno::EXIST) => Ok(Creation::Exists),
            Err(error) => Err(failed(&error.into(), "create", &self.shown(path))),
        }
    }

    pub(super) fn put(&self, path: &str, content: &[u8]) -> Result<(), Failure> {
        let (folder, name) = self.make_folder(path)?;
        let staging = format!(".{name}.{}.new", std::process::id());
        self.write_whole(&folder, &staging, content, path)?;
        rustix::fs::renameat(&folder, staging.as_str(), &folder, name)
            .map_err(|error| failed(&error.into(), "replace", &self.shown(path)))?;
        rustix::fs::fsync(&folder).map_err(|error| failed(&error.into(), "sync folder of", path))
    }

    fn write_whole(&self, folder: &OwnedFd, name: &str, content: &[u8], path: &str) -> Result<(), Failure> {
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::TRUNC | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let descriptor = rustix::fs::openat(folder, name, flags, Mode::from_raw_mode(0o644))
            .map_err(|error| failed(&error.into(), "create", &self.shown(path)))?;
        let mut file = File::from(descriptor);
        file.write_all(content)
            .and_then(|()| file.sync_all())
            .map_err(|error| failed(&error, "write", &self.shown(path)))
    }

    pub(super) fn create(&self, path: &str) -> Result<LocalSink, Failure> {
        let (folder, name) = self.make_folder(path)?;
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let descriptor = rustix::fs::openat(&folder, name, flags, Mode::from_raw_mode(0o644))
            .map_err(|error| failed(&error.into(), "create", &self.shown(path)))?;
        let file = io::BufWriter::with_capacity(WRITE_BUFFER_BYTES, File::from(descriptor));
        Ok(LocalSink { file, folder, name: name.to_owned() })
    }

    pub(super) fn publish(&self, from: &str, to: &str) -> Result<Creation, Failure> {
        let (to_folder, to_name) = self.make_folder(to)?;
        let (from_folder, from_name) = self.make_folder(from)?;
        match rustix::fs::renameat_with(&from_folder, from_name, &to_folder, to_name, RenameFlags::NOREPLACE) {
            Ok(()) => {}
            Err(rustix::io::Errno::EXIST) => return Ok(Creation::Exists),
            // An earlier call may have moved it: the caller looks at what has the name.
            Err(rustix::io::Errno::NOENT) if self.head(to)?.is_some() => return Ok(Creation::Exists),
            Err(error) => return Err(failed(&error.into(), "publish", &self.shown(to))),
        }
        rustix::fs::fsync(&to_folder).map_err(|error| failed(&error.into(), "sync folder of", to))?;
        rustix::fs::fsync(&from_folder).map_err(|error| failed(&error.into(), "sync folder of", from))?;
        Ok(Creation::Created)
    }

    pub(super) fn delete(&self, path: &str) -> Result<(), Failure> {
        let (folder, name) = path.rsplit_once('/').unwrap_or(("", path));
        let folder = match self.open_beneath(folder, OFlags::DIRECTORY) {
            Ok(folder) => folder,
            Err(rustix::io::Errno::NOENT) => return Ok(()),
            Err(error) => return Err(failed(&error.into(), "open folder", folder)),
        };
        match rustix::fs::unlinkat(&folder, name, AtFlags::empty()) {
            Ok(()) => rustix::fs::fsync(&folder).map_err(|error| failed(&error.into(), "sync folder of", path)),
            Err(rustix::io::Errno::NOENT) => Ok(()),
            Err(error) => Err(failed(&error.into(), "delete", &self.shown(path))),
        }
    }
}

impl LocalSource {
    pub(super) fn read(&self, range: Range<u64>) -> Result<Bytes, Failure> {
        let mut content = vec![0; (range.end - range.start) as usize];
        match self.file.read_exact_at(&mut content, range.start) {
            Ok(()) => Ok(content.into()),
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => {
                Err(Failure::new(FailureClass::InputChanged, "the file became shorter while it was read"))
            }
            Err(error) => Err(failed(&error, "read", "")),
        }
    }

    pub(super) fn check_unchanged(&self) -> Result<(), Failure> {
        let stat = rustix::fs::fstat(&self.file).map_err(|error| failed(&error.into(), "look at", ""))?;
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

impl LocalSink {
    pub(super) fn write_all(&mut self, buffer: &[u8]) -> io::Result<()> {
        self.file.write_all(buffer)
    }

    pub(super) fn finish(self) -> Result<Identity, Failure> {
        let name = self.name;
        let file = self.file.into_inner().map_err(|error| failed(error.error(), "write", &name))?;
        file.sync_all().map_err(|error| failed(&error, "sync", &name))?;
        rustix::fs::fsync(&self.folder).map_err(|error| failed(&error.into(), "sync folder of", &name))?;
        let metadata = file.metadata().map_err(|error| failed(&error, "look at", &name))?;
        Ok(Identity::Local {
            device: metadata.dev(),
            inode: metadata.ino(),
            modified_ns: metadata.mtime() * 1_000_000_000 + metadata.mtime_nsec(),
            changed_ns: metadata.ctime() * 1_000_000_000 + metadata.ctime_nsec(),
        })
    }

    pub(super) fn abort(self) {
        let _ = rustix::fs::unlinkat(&self.folder, self.name.as_str(), AtFlags::empty());
    }
}

fn info(path: String, stat: &rustix::fs::Stat) -> ObjectInfo {
    ObjectInfo {
        path,
        bytes: stat.st_size as u64,
        identity: Identity::Local {
            device: stat.st_dev,
            inode: stat.st_ino,
            modified_ns: stat.st_mtime * 1_000_000_000 + stat.st_mtime_nsec as i64,
            changed_ns: stat.st_ctime * 1_000_000_000 + stat.st_ctime_nsec as i64,
        },
        modified_ms: stat.st_mtime * 1_000 + stat.st_mtime_nsec as i64 / 1_000_000,
    }
}

/// A failure of the file system: missing is definite, permission is policy, the rest may pass.
fn failed(error: &io::Error, doing: &str, path: &str) -> Failure {
    let class = match error.kind() {
        io::ErrorKind::NotFound => FailureClass::InputMissing,
        io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem => FailureClass::Policy,
        _ => FailureClass::Transient,
    };
    Failure::new(class, format!("{doing}: {error}")).in_file(path)
}
