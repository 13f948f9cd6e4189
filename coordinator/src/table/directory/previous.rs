//! Files set aside: out of every reader's sight, and kept until the sweep may have them.
//!
//! A file that no longer belongs moves to `_baler/previous/{generation:020}/{its path}.{12 digits}.aside`, where
//! `generation` is the one that does not list it any more. The digits come from the file's size and identity, so the
//! same file always gets the same name, and another one with the same path another name. Moving is create-only: nothing
//! that was set aside before is ever replaced.

use baler_common::model::error::Failure;
use baler_common::model::object::{Identity, ObjectInfo};
use sha2::{Digest, Sha256};

use super::generation::{hex, identity_to_json};
use super::{ASIDE_SUFFIX, DirectoryTable, is_same_content};

/// Folder of everything that was set aside.
pub const PREVIOUS: &str = "_baler/previous";

/// What became of a move.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Moved {
    /// The object has its new name, by this call or an earlier one, and is as said.
    There(ObjectInfo),
    /// The pinned object has neither name: somebody else changed or removed it. What has the old name was left alone.
    Gone,
}

/// Where `path` goes when `generation` stops listing it.
pub fn aside_path(generation: u64, path: &str, bytes: u64, identity: &Identity) -> String {
    let digest = hex(&Sha256::digest(format!("{bytes} {}", identity_to_json(identity))).into());
    format!("{PREVIOUS}/{generation:020}/{path}.{}{ASIDE_SUFFIX}", &digest[..12])
}

/// The path that a set-aside object had; `None` when its name is not one that [`aside_path`] makes.
pub fn original_path(object: &str) -> Option<(u64, &str)> {
    let (generation, rest) = object.strip_prefix(PREVIOUS)?.strip_prefix('/')?.split_once('/')?;
    if generation.len() != 20 || !generation.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    let (path, digits) = rest.strip_suffix(ASIDE_SUFFIX)?.rsplit_once('.')?;
    let is_ours = digits.len() == 12 && digits.bytes().all(|byte| byte.is_ascii_hexdigit());
    if is_ours { Some((generation.parse().ok()?, path)) } else { None }
}

/// Moves an object that must be the pinned one. Repeating it after a crash gives the same answer.
pub fn move_pinned(
    table: &DirectoryTable,
    from: &str,
    to: &str,
    bytes: u64,
    identity: &Identity,
) -> Result<Moved, Failure> {
    let is_there = table.head(from)?.is_some_and(|found| is_same_content(&found, bytes, identity));
    if is_there {
        table.relocate(from, to)?;
    }
    // Otherwise an earlier call moved it, and an output may have its name now; or somebody else took it.
    Ok(match table.head(to)? {
        Some(found) if found.bytes == bytes => Moved::There(found),
        _ => Moved::Gone,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_set_aside_name_gives_back_the_path_and_no_glob_matches_it() {
        let name = aside_path(7, "en/chunks-0000.parquet", 12, &Identity::Unknown);
        assert_eq!(original_path(&name), Some((7, "en/chunks-0000.parquet")));
        assert!(!name.ends_with(".parquet"));
        assert_eq!(name, aside_path(7, "en/chunks-0000.parquet", 12, &Identity::Unknown));
        assert_ne!(name, aside_path(7, "en/chunks-0000.parquet", 13, &Identity::Unknown));
    }

    #[test]
    fn foreign_names_in_the_folder_are_not_taken_for_set_aside_files() {
        for name in [
            "_baler/previous/7/a.parquet.0123456789ab.aside",
            "_baler/previous/00000000000000000007/a.parquet.aside",
            "_baler/previous/00000000000000000007/a.parquet",
            "elsewhere/00000000000000000007/a.parquet.0123456789ab.aside",
        ] {
            assert_eq!(original_path(name), None, "{name}");
        }
    }
}
