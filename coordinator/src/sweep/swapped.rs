//! What an exchange of directories left: second links to files that are in the table under the same names.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use baler_common::model::error::{Failure, FailureClass};

use crate::table::directory::swap::sibling;

/// Removes the old tree of an exchange, as far as it holds nothing but links to files of the table at `path`, and says
/// how many files had to stay.
pub fn remove_old_tree(path: &Path) -> Result<u64, Failure> {
    match sibling(path) {
        Some(side) if side.is_dir() => remove(&side, path),
        _ => Ok(0),
    }
}

fn remove(old: &Path, table: &Path) -> Result<u64, Failure> {
    let mut stayed = 0;
    for entry in fs::read_dir(old).map_err(|error| failed(&error, old))? {
        let entry = entry.map_err(|error| failed(&error, old))?;
        let (from, twin) = (entry.path(), table.join(entry.file_name()));
        let metadata = fs::symlink_metadata(&from).map_err(|error| failed(&error, &from))?;
        if metadata.is_dir() {
            stayed += remove(&from, &twin)?;
        } else if fs::symlink_metadata(&twin)
            .is_ok_and(|twin| (twin.dev(), twin.ino()) == (metadata.dev(), metadata.ino()))
        {
            fs::remove_file(&from).map_err(|error| failed(&error, &from))?;
        } else {
            stayed += 1;
        }
    }
    if stayed == 0 {
        fs::remove_dir(old).map_err(|error| failed(&error, old))?;
    }
    Ok(stayed)
}

fn failed(error: &std::io::Error, path: &Path) -> Failure {
    Failure::new(FailureClass::Transient, format!("remove the old tree: {error}")).in_file(path.display().to_string())
}
