//! A directory of a local disk as a store.
//!
//! Every open walks down from the root's descriptor without following a link (see [`beneath`]), so nothing leads out of
//! the root, also when a link is swapped in between check and open. What is created is synced, its folder too, before
//! the call returns. A whole object is first written under a staging name, which no listing shows; a crash leaves at
//! most that, and [`LocalRoot::sweep_staging`] removes it.
//!
//! The root itself may be named through links: whoever names it decides. On a network disk hard links and renames are
//! as atomic as here, but locks need a lock service that is often missing, so an embedded state store does not belong
//! there ([`LocalRoot::on_network_disk`]).

mod beneath;
mod failures;
mod objects;

use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use rustix::fs::{AtFlags, FileType, Mode, OFlags, RenameFlags, Stat};
use rustix::io::{Errno, retry_on_intr};

use super::Creation;
use crate::model::error::{Failure, FailureClass};
use crate::model::object::{Identity, ObjectInfo};
use beneath::{Walk, open_beneath};
use failures::{Doing, failed};
pub(super) use objects::{LocalSink, LocalSource};

/// End of the names under which whole objects are written before they get theirs.
const STAGING_SUFFIX: &str = ".baler-new";
/// Longest name of a file, in bytes.
const NAME_BYTES_MAX: usize = 255;
/// Longest path below the root, in bytes: what object stores can hold too.
const PATH_BYTES_MAX: usize = 1_024;

#[derive(Debug)]
pub(super) struct LocalRoot {
    path: PathBuf,
    directory: OwnedFd,
    walk: Walk,
}

impl LocalRoot {
    pub(super) fn open(path: &Path, create: bool) -> Result<Self, Failure> {
        let shown = path.display().to_string();
        if create {
            std::fs::create_dir_all(path).map_err(|error| failed(&error, Doing::Write, "create directory", &shown))?;
        }
        let path = std::path::absolute(path).map_err(|error| failed(&error, Doing::Read, "resolve", &shown))?;
        let flags = OFlags::DIRECTORY | OFlags::CLOEXEC | OFlags::RDONLY;
        let directory = retry_on_intr(|| rustix::fs::open(&path, flags, Mode::empty()))
            .map_err(|error| failed(&error.into(), Doing::Read, "open directory", &shown))?;
        Ok(Self { path, directory, walk: Walk::default() })
    }

    /// The folder `path` of this root as a root of its own.
    pub(super) fn beneath(&self, path: &str, create: bool) -> Result<Self, Failure> {
        let path = path.trim_matches('/');
        self.check_folder(path)?;
        let directory = match create {
            true => self.make_folder(path)?,
            false => self.folder(path).map_err(|error| self.failed(error, Doing::Read, "open directory", path))?,
        };
        Ok(Self { path: self.path.join(path), directory, walk: self.walk })
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Whether the root is on a disk of another machine, where locks cannot be relied on.
    pub(super) fn on_network_disk(&self) -> bool {
        const NETWORK: [u64; 6] = [0x6969, 0xff53_4d42, 0xfe53_4d42, 0x517b, 0x0bd0_0bd0, 0x0102_1997];
        rustix::fs::fstatfs(&self.directory).is_ok_and(|stat| NETWORK.contains(&(stat.f_type as u64 & 0xffff_ffff)))
    }

    fn shown(&self, path: &str) -> String {
        self.path.join(path).display().to_string()
    }

    fn failed(&self, error: Errno, doing: Doing, what: &str, path: &str) -> Failure {
        failed(&error.into(), doing, what, &self.shown(path))
    }

    /// Refuses a path that would leave the root or that not every store can hold.
    fn check(&self, path: &str) -> Result<(), Failure> {
        let wrong = if path.is_empty() {
            "it is empty"
        } else if path.len() > PATH_BYTES_MAX {
            "it is longer than 1,024 bytes"
        } else if path.chars().any(char::is_control) {
            "it holds a control character"
        } else if path.split('/').any(|segment| matches!(segment, "" | "." | "..")) {
            "it has an empty, '.' or '..' segment"
        } else if path.split('/').any(|segment| segment.len() > NAME_BYTES_MAX) {
            "a segment is longer than 255 bytes"
        } else {
            return Ok(());
        };
        let message = format!("not a name below the root ({wrong}): rename it");
        Err(Failure::new(FailureClass::Policy, message).in_file(format!("{}/{path:?}", self.path.display())))
    }

    fn check_folder(&self, path: &str) -> Result<(), Failure> {
        if path.is_empty() { Ok(()) } else { self.check(path) }
    }

    fn folder(&self, path: &str) -> Result<OwnedFd, Errno> {
        open_beneath(&self.directory, path.as_bytes(), OFlags::DIRECTORY | OFlags::RDONLY, self.walk)
    }

    /// The folder opened, made where missing.
    fn make_folder(&self, folder: &str) -> Result<OwnedFd, Failure> {
        match self.folder(folder) {
            Ok(found) => return Ok(found),
            Err(Errno::NOENT) => {}
            Err(error) => return Err(self.failed(error, Doing::Write, "open folder", folder)),
        }
        let mut end = 0;
        for segment in folder.split('/') {
            let parent = &folder[..end];
            let path = &folder[..if end == 0 { segment.len() } else { end + 1 + segment.len() }];
            end = path.len();
            let parent =
                self.folder(parent).map_err(|error| self.failed(error, Doing::Write, "open folder", parent))?;
            match rustix::fs::mkdirat(&parent, segment, Mode::from_raw_mode(0o777)) {
                Ok(()) => self.sync(&parent, path)?,
                Err(Errno::EXIST) => {}
                Err(error) => return Err(self.failed(error, Doing::Write, "create folder", path)),
            }
        }
        self.folder(folder).map_err(|error| self.failed(error, Doing::Write, "open folder", folder))
    }

    fn sync(&self, folder: &OwnedFd, path: &str) -> Result<(), Failure> {
        retry_on_intr(|| rustix::fs::fsync(folder))
            .map_err(|error| self.failed(error, Doing::Write, "sync the folder of", path))
    }

    pub(super) fn list(&self, prefix: &str) -> Result<Vec<ObjectInfo>, Failure> {
        let prefix = prefix.trim_matches('/');
        self.check_folder(prefix)?;
        let mut found = Vec::new();
        let mut folders = vec![prefix.as_bytes().to_vec()];
        while let Some(folder) = folders.pop() {
            self.list_folder(&folder, &mut folders, &mut found)?;
        }
        Ok(found)
    }

    /// Lists one folder. Names are bytes here: one that is not UTF-8, or not a name for every store, is listed too, so
    /// that opening it refuses by name.
    fn list_folder(
        &self,
        folder: &[u8],
        folders: &mut Vec<Vec<u8>>,
        found: &mut Vec<ObjectInfo>,
    ) -> Result<(), Failure> {
        let shown = String::from_utf8_lossy(folder);
        let failed = |error: Errno| self.failed(error, Doing::Read, "list", &shown);
        let flags = OFlags::DIRECTORY | OFlags::RDONLY;
        let descriptor = match open_beneath(&self.directory, folder, flags, self.walk) {
            Ok(descriptor) => descriptor,
            Err(Errno::NOENT) => return Ok(()),
            Err(error) => return Err(failed(error)),
        };
        for entry in rustix::fs::Dir::read_from(&descriptor).map_err(failed)? {
            let entry = entry.map_err(failed)?;
            let name = entry.file_name().to_bytes();
            if name == b"." || name == b".." || is_staging(name) {
                continue;
            }
            let path = if folder.is_empty() { name.to_vec() } else { [folder, b"/", name].concat() };
            let stat = match rustix::fs::statat(&descriptor, name, AtFlags::SYMLINK_NOFOLLOW) {
                Ok(stat) => stat,
                Err(Errno::NOENT) => continue,
                Err(error) => return Err(failed(error)),
            };
            let unopenable = |path: String| ObjectInfo { path, bytes: 0, identity: Identity::Unknown, modified_ms: 0 };
            match FileType::from_raw_mode(stat.st_mode) {
                FileType::Directory => folders.push(path),
                FileType::RegularFile => match String::from_utf8(path) {
                    Ok(path) if self.check(&path).is_ok() => found.push(info(path, &stat)),
                    Ok(path) => found.push(unopenable(path)),
                    Err(error) => found.push(unopenable(String::from_utf8_lossy(error.as_bytes()).into_owned())),
                },
                _ if name.ends_with(b".parquet") => {
                    found.push(unopenable(String::from_utf8_lossy(&path).into_owned()));
                }
                // Files may be behind a link to a folder: they are not read, and must not be passed over in silence.
                FileType::Symlink => {
                    let target = rustix::fs::statat(&descriptor, name, AtFlags::empty());
                    if target.is_ok_and(|stat| FileType::from_raw_mode(stat.st_mode) == FileType::Directory) {
                        let path = String::from_utf8_lossy(&path);
                        found.push(unopenable(format!("{path}/behind-a-link.parquet")));
                    }
                }
                _ => {}
            }
        }
        Ok(())
    }

    pub(super) fn head(&self, path: &str) -> Result<Option<ObjectInfo>, Failure> {
        let Some(file) = self.open_regular(path)? else { return Ok(None) };
        let stat = rustix::fs::fstat(&file).map_err(|error| self.failed(error, Doing::Read, "look at", path))?;
        Ok(Some(info(path.to_owned(), &stat)))
    }

    /// Opens a regular file for reading; anything else is refused. Never blocks on a pipe.
    fn open_regular(&self, path: &str) -> Result<Option<File>, Failure> {
        self.check(path)?;
        let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY;
        let descriptor = match open_beneath(&self.directory, path.as_bytes(), flags, self.walk) {
            Ok(descriptor) => descriptor,
            Err(Errno::NOENT) if path.contains(char::REPLACEMENT_CHARACTER) => {
                let message = "the name is not UTF-8: rename it, or leave it outside the table";
                return Err(Failure::new(FailureClass::Policy, message).in_file(self.shown(path)));
            }
            Err(Errno::NOENT) => return Ok(None),
            Err(error) => return Err(self.failed(error, Doing::Read, "open", path)),
        };
        let stat = rustix::fs::fstat(&descriptor).map_err(|error| self.failed(error, Doing::Read, "look at", path))?;
        if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile {
            return Err(Failure::new(FailureClass::Policy, "it is not a regular file").in_file(self.shown(path)));
        }
        Ok(Some(File::from(descriptor)))
    }

    pub(super) fn read(&self, path: &str) -> Result<Option<Bytes>, Failure> {
        let Some(mut file) = self.open_regular(path)? else { return Ok(None) };
        let mut content = Vec::new();
        file.read_to_end(&mut content).map_err(|error| failed(&error, Doing::Read, "read", &self.shown(path)))?;
        Ok(Some(content.into()))
    }

    pub(super) fn source(&self, path: &str, bytes: u64, identity: &Identity) -> Result<LocalSource, Failure> {
        let file = self
            .open_regular(path)?
            .ok_or_else(|| Failure::new(FailureClass::InputMissing, "the file is gone").in_file(self.shown(path)))?;
        let source = LocalSource::new(file, bytes, identity.clone());
        source.check_unchanged().map_err(|failure| failure.in_file(self.shown(path)))?;
        Ok(source)
    }

    pub(super) fn put_new(&self, path: &str, content: &[u8]) -> Result<Creation, Failure> {
        let (folder, name) = self.place(path)?;
        let staging = self.write_whole(&folder, content, path)?;
        let linked = match rustix::fs::linkat(&folder, staging.as_str(), &folder, name, AtFlags::empty()) {
            // A file system without hard links.
            Err(Errno::PERM | Errno::OPNOTSUPP | Errno::NOSYS | Errno::MLINK) => {
                rustix::fs::renameat_with(&folder, staging.as_str(), &folder, name, RenameFlags::NOREPLACE)
            }
            linked => linked,
        };
        let _ = rustix::fs::unlinkat(&folder, staging.as_str(), AtFlags::empty());
        self.sync(&folder, path)?;
        match linked {
            Ok(()) => Ok(Creation::Created),
            Err(Errno::EXIST) if self.read(path)?.as_deref() == Some(content) => Ok(Creation::Created),
            Err(Errno::EXIST) => Ok(Creation::Exists),
            Err(error) => Err(self.failed(error, Doing::Write, "create", path)),
        }
    }

    pub(super) fn put(&self, path: &str, content: &[u8]) -> Result<(), Failure> {
        let (folder, name) = self.place(path)?;
        let staging = self.write_whole(&folder, content, path)?;
        if let Err(error) = rustix::fs::renameat(&folder, staging.as_str(), &folder, name) {
            let _ = rustix::fs::unlinkat(&folder, staging.as_str(), AtFlags::empty());
            return Err(self.failed(error, Doing::Write, "replace", path));
        }
        self.sync(&folder, path)
    }

    /// The folder of `path`, made where missing, and the name in it.
    fn place<'a>(&self, path: &'a str) -> Result<(OwnedFd, &'a str), Failure> {
        self.check(path)?;
        let (folder, name) = path.rsplit_once('/').unwrap_or(("", path));
        Ok((self.make_folder(folder)?, name))
    }

    /// Writes and syncs a whole new file under a staging name, which it returns.
    fn write_whole(&self, folder: &OwnedFd, content: &[u8], path: &str) -> Result<String, Failure> {
        static NUMBER: AtomicU64 = AtomicU64::new(0);
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        loop {
            let number = NUMBER.fetch_add(1, Ordering::Relaxed);
            let nanos = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).map_or(0, |since| since.as_nanos());
            let staging = format!(".{nanos:x}-{:x}-{number:x}{STAGING_SUFFIX}", std::process::id());
            match retry_on_intr(|| rustix::fs::openat(folder, staging.as_str(), flags, Mode::from_raw_mode(0o666))) {
                Ok(descriptor) => {
                    let mut file = File::from(descriptor);
                    let written = file.write_all(content).and_then(|()| file.sync_all());
                    return written.map(|()| staging.clone()).map_err(|error| {
                        let _ = rustix::fs::unlinkat(folder, staging.as_str(), AtFlags::empty());
                        failed(&error, Doing::Write, "write", &self.shown(path))
                    });
                }
                Err(Errno::EXIST) => {}
                Err(error) => return Err(self.failed(error, Doing::Write, "create", path)),
            }
        }
    }

    pub(super) fn create(&self, path: &str) -> Result<LocalSink, Failure> {
        let (folder, name) = self.place(path)?;
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let descriptor = retry_on_intr(|| rustix::fs::openat(&folder, name, flags, Mode::from_raw_mode(0o666)))
            .map_err(|error| self.failed(error, Doing::Write, "create", path))?;
        Ok(LocalSink::new(File::from(descriptor), folder, name, self.shown(path)))
    }

    pub(super) fn publish(&self, from: &str, to: &str) -> Result<Creation, Failure> {
        let verified = self.open_regular(from)?;
        let (to_folder, to_name) = self.place(to)?;
        if verified.is_none() {
            // An earlier call may have moved it: the caller looks at what has the name.
            return match self.head(to)? {
                Some(_) => Ok(Creation::Exists),
                None => Err(self.failed(Errno::NOENT, Doing::Read, "publish", from)),
            };
        }
        let (folder, from_name) = from.rsplit_once('/').unwrap_or(("", from));
        let from_folder =
            self.folder(folder).map_err(|error| self.failed(error, Doing::Write, "open folder", folder))?;
        let moved =
            match rustix::fs::renameat_with(&from_folder, from_name, &to_folder, to_name, RenameFlags::NOREPLACE) {
                // A file system without this kind of rename.
                Err(Errno::INVAL | Errno::NOSYS | Errno::OPNOTSUPP) => {
                    rustix::fs::linkat(&from_folder, from_name, &to_folder, to_name, AtFlags::empty())
                        .and_then(|()| rustix::fs::unlinkat(&from_folder, from_name, AtFlags::empty()))
                }
                moved => moved,
            };
        match moved {
            Ok(()) => {}
            Err(Errno::EXIST) => return Ok(Creation::Exists),
            Err(error) => return Err(self.failed(error, Doing::Write, "publish", to)),
        }
        self.sync(&to_folder, to)?;
        self.sync(&from_folder, from)?;
        Ok(Creation::Created)
    }

    pub(super) fn delete(&self, path: &str) -> Result<(), Failure> {
        self.check(path)?;
        let (folder, name) = path.rsplit_once('/').unwrap_or(("", path));
        let folder = match self.folder(folder) {
            Ok(folder) => folder,
            Err(Errno::NOENT) => return Ok(()),
            Err(error) => return Err(self.failed(error, Doing::Write, "open folder", folder)),
        };
        match rustix::fs::unlinkat(&folder, name, AtFlags::empty()) {
            Ok(()) => self.sync(&folder, path),
            Err(Errno::NOENT) => Ok(()),
            Err(error) => Err(self.failed(error, Doing::Write, "delete", path)),
        }
    }

    /// Removes staging names in `folder` that are older than `age`: what a crashed writer left. Returns how many.
    pub(super) fn sweep_staging(&self, folder: &str, age: Duration) -> Result<u64, Failure> {
        let folder = folder.trim_matches('/');
        self.check_folder(folder)?;
        let failed = |error: Errno| self.failed(error, Doing::Write, "sweep", folder);
        let descriptor = match self.folder(folder) {
            Ok(descriptor) => descriptor,
            Err(Errno::NOENT) => return Ok(0),
            Err(error) => return Err(failed(error)),
        };
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default().as_secs();
        let mut removed = 0;
        for entry in rustix::fs::Dir::read_from(&descriptor).map_err(failed)? {
            let entry = entry.map_err(failed)?;
            let name = entry.file_name();
            if !is_staging(name.to_bytes()) {
                continue;
            }
            let Ok(stat) = rustix::fs::statat(&descriptor, name, AtFlags::SYMLINK_NOFOLLOW) else { continue };
            let old = u64::try_from(stat.st_mtime).is_ok_and(|modified| now.saturating_sub(modified) >= age.as_secs());
            if old && rustix::fs::unlinkat(&descriptor, name, AtFlags::empty()).is_ok() {
                removed += 1;
            }
        }
        Ok(removed)
    }
}

fn is_staging(name: &[u8]) -> bool {
    name.starts_with(b".") && name.ends_with(STAGING_SUFFIX.as_bytes())
}

fn info(path: String, stat: &Stat) -> ObjectInfo {
    ObjectInfo {
        path,
        bytes: stat.st_size as u64,
        identity: identity(stat),
        modified_ms: stat.st_mtime.saturating_mul(1_000).saturating_add(stat.st_mtime_nsec as i64 / 1_000_000),
    }
}

fn identity(stat: &Stat) -> Identity {
    let nanos = |seconds: i64, nanos: i64| seconds.saturating_mul(1_000_000_000).saturating_add(nanos);
    Identity::Local {
        device: stat.st_dev,
        inode: stat.st_ino,
        modified_ns: nanos(stat.st_mtime, stat.st_mtime_nsec as i64),
        changed_ns: nanos(stat.st_ctime, stat.st_ctime_nsec as i64),
    }
}

#[cfg(test)]
mod tests;
