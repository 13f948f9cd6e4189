//! Opens a path below a folder without following any link.
//!
//! `openat2` lets the kernel do the whole walk. Where the kernel is older than 5.6 or a sandbox forbids the call, the
//! walk is done here, a segment at a time, each opened from its parent's descriptor with `O_NOFOLLOW`.

use std::os::fd::{AsFd, OwnedFd};

use rustix::fs::{AtFlags, FileType, Mode, OFlags, ResolveFlags};
use rustix::io::{Errno, retry_on_intr};

/// Who walks down the path.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) enum Walk {
    /// The kernel where it can.
    #[default]
    Kernel,
    /// A segment at a time.
    Segments,
}

/// Opens `path` (no `..` segment; empty: the folder itself) below `root`. A link anywhere in it is [`Errno::LOOP`].
pub(super) fn open_beneath(root: &OwnedFd, path: &[u8], flags: OFlags, walk: Walk) -> Result<OwnedFd, Errno> {
    let flags = flags | OFlags::CLOEXEC;
    let path = if path.is_empty() { b".".as_slice() } else { path };
    if walk == Walk::Segments {
        return open_by_segments(root, path, flags);
    }
    // The kernel answers EAGAIN when something below the root was renamed during the walk.
    for _ in 0..32 {
        let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS;
        match retry_on_intr(|| rustix::fs::openat2(root, path, flags, Mode::empty(), resolve)) {
            Err(Errno::AGAIN) => {}
            Err(Errno::NOSYS | Errno::PERM | Errno::INVAL) => return open_by_segments(root, path, flags),
            opened => return opened,
        }
    }
    open_by_segments(root, path, flags)
}

fn open_by_segments(root: &OwnedFd, path: &[u8], flags: OFlags) -> Result<OwnedFd, Errno> {
    let mut folder: Option<OwnedFd> = None;
    let mut segments = path.split(|&byte| byte == b'/').peekable();
    while let Some(segment) = segments.next() {
        if segment.is_empty() || segment == b".." {
            return Err(Errno::INVAL);
        }
        let parent = folder.as_ref().map_or(root.as_fd(), |folder| folder.as_fd());
        let last = segments.peek().is_none();
        let wanted = if last { flags } else { OFlags::DIRECTORY | OFlags::RDONLY | OFlags::CLOEXEC };
        let opened = retry_on_intr(|| rustix::fs::openat(parent, segment, wanted | OFlags::NOFOLLOW, Mode::empty()));
        let opened = match opened {
            Ok(opened) => opened,
            // A link where a folder is wanted answers ENOTDIR, before anything looks at the link.
            Err(Errno::NOTDIR) => {
                let stat = rustix::fs::statat(parent, segment, AtFlags::SYMLINK_NOFOLLOW)?;
                let link = FileType::from_raw_mode(stat.st_mode) == FileType::Symlink;
                return Err(if link { Errno::LOOP } else { Errno::NOTDIR });
            }
            Err(error) => return Err(error),
        };
        folder = Some(opened);
    }
    folder.ok_or(Errno::INVAL)
}
