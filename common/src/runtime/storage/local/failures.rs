//! What an error of the file system asks for.

use std::io;

use rustix::io::Errno;

use crate::model::error::{Failure, FailureClass};

/// Which way the data went: a missing file means something else to a reader than to a writer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Doing {
    Read,
    Write,
}

/// The failure for `error` on the file `shown`, which came up in the step `what`.
pub(super) fn failed(error: &io::Error, doing: Doing, what: &str, shown: &str) -> Failure {
    let (class, remedy) = match Errno::from_io_error(error) {
        Some(Errno::NOENT) if doing == Doing::Read => (FailureClass::InputMissing, ""),
        Some(Errno::LOOP | Errno::XDEV) if doing == Doing::Read => {
            let message = "a link is in its path: Baler follows no links, put the file itself below the root";
            return Failure::new(FailureClass::Policy, message).in_file(shown);
        }
        Some(Errno::LOOP) => (FailureClass::Policy, ": a link is in its path, and Baler follows no links"),
        Some(Errno::XDEV) => (FailureClass::Policy, ": staging and destination must be on one file system"),
        Some(Errno::ACCESS | Errno::PERM) if doing == Doing::Read => {
            (FailureClass::Policy, ": allow this user to read it")
        }
        Some(Errno::ACCESS | Errno::PERM) => (FailureClass::Policy, ": allow this user to write there"),
        Some(Errno::ROFS) => (FailureClass::Policy, ": choose a destination that can be written"),
        Some(Errno::NOTDIR | Errno::ISDIR) => (FailureClass::Policy, ": a folder and a file have the same name"),
        Some(Errno::NAMETOOLONG) => (FailureClass::Policy, ": rename it"),
        Some(Errno::NOSPC | Errno::DQUOT) => (FailureClass::Transient, ": free some space and run again"),
        Some(Errno::MFILE | Errno::NFILE) => (FailureClass::Transient, ": raise the limit of open files (ulimit -n)"),
        Some(Errno::EXIST) => (FailureClass::Transient, ": another writer has this name"),
        Some(Errno::IO) => (FailureClass::Transient, ": the disk failed, look at the system's log"),
        _ => (FailureClass::Transient, ""),
    };
    // The standard library adds its own "(os error N)", which helps nobody here.
    let cause = error.to_string();
    let cause = cause.split(" (os error").next().unwrap_or_default().to_lowercase();
    Failure::new(class, format!("{what}: {cause}{remedy}")).in_file(shown)
}
