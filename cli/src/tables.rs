//! The tables at a location, for commands about tables that exist already.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use baler_common::model::error::{Failure, FailureClass};
use baler_common::runtime::random::random_u64;
use baler_common::runtime::storage::Store;
use baler_coordinator::state::embedded::EmbeddedStore;
use baler_coordinator::state::leadership::Leadership;
use baler_coordinator::state::runs;
use baler_coordinator::state::{StateError, StateStore};
use baler_coordinator::table::directory::layout::{RootAs, lay_out};
use baler_coordinator::table::directory::prepared::controlled_folders;
use baler_coordinator::table::directory::{CONTROL, DirectoryTable, checks, prepared, swap};

use baler_coordinator::compaction::{CompactError, now_ms};
use baler_coordinator::table::directory::generation::hex;
use sha2::{Digest, Sha256};

use crate::request::state_folder;

/// A table by its name.
#[derive(Debug, Clone)]
pub struct NamedTable {
    pub name: String,
    /// Folder below the location; empty when the location is the table.
    pub folder: String,
    pub table: DirectoryTable,
}

/// All tables at a location: those that Baler has compacted, and those that only hold Parquet files.
///
/// # Errors
/// The location cannot be listed, or holds no table.
pub fn open_tables(location: &str) -> Result<Vec<NamedTable>, Failure> {
    let store = Store::open("target", location, false)?;
    let objects = store.list("")?;
    let root_name = name_of(&store.location());
    let mut folders = controlled_folders(objects.iter().map(|object| object.path.as_str()));
    let is_cut_short = store.local_path().is_some_and(|path| swap::is_between_renames(&path));
    if folders.contains("") || is_cut_short {
        folders = BTreeSet::from([String::new()]);
    } else {
        let layout = lay_out(&objects, RootAs::Detect, &root_name, &|_| None);
        folders.extend(layout.tables.into_iter().map(|table| table.folder));
    }
    if folders.is_empty() {
        let message = "no table is here: no *.parquet file and no _baler folder was found";
        return Err(Failure::new(FailureClass::InputMissing, message).in_file(store.location()));
    }
    if let Some(root) = store.local_path()
        && folders.iter().any(|folder| swap::is_between_renames(&root.join(folder)))
    {
        return Err(Failure::new(FailureClass::Policy, swap::CUT_SHORT).in_file(store.location()));
    }
    Ok(folders
        .into_iter()
        .map(|folder| NamedTable {
            name: if folder.is_empty() { root_name.clone() } else { folder.clone() },
            table: DirectoryTable::new(store.clone(), &folder),
            folder,
        })
        .collect())
}

fn name_of(location: &str) -> String {
    location.trim_end_matches('/').rsplit('/').next().unwrap_or("table").to_owned()
}

/// The folder for state that the environment names.
pub fn state_from_environment() -> Option<PathBuf> {
    std::env::var_os("BALER_STATE").map(PathBuf::from)
}

/// The state store of a table: in its control folder on a local disk, else in the user's state folder.
pub fn state_path(target: &DirectoryTable, given: Option<&PathBuf>) -> PathBuf {
    match target.store().local_path() {
        Some(root) => root.join(target.absolute(&format!("{CONTROL}/state.redb"))),
        None => {
            let name = hex(&Sha256::digest(target.describe("").as_bytes()).into());
            state_folder(given).join(&name[..16]).join("state.redb")
        }
    }
}

/// Keeps every other process from changing the table while it lives.
///
/// # Errors
/// [`StateError::Held`] while another process has the table.
pub async fn hold(table: &DirectoryTable, state: Option<&PathBuf>) -> Result<Leadership, StateError> {
    let store: Arc<dyn StateStore> = Arc::new(EmbeddedStore::open(&state_path(table, state))?);
    Leadership::take(store, &format!("pid {}", std::process::id()), random_u64()).await
}

/// Finishes what an earlier run began and did not live to end: an exchange of directories, and commits. To be called
/// before a location is scanned for a compaction; a table that another process holds is left to it.
///
/// # Errors
/// A commit that cannot be finished as it was begun.
pub async fn finish_interrupted(store: &Store, state: Option<&PathBuf>) -> Result<(), CompactError> {
    for table in prepared::all_pending(store)? {
        let _leadership = hold(&table, state).await?;
        prepared::finish(&table)?;
    }
    Ok(())
}

/// Ends exchanges of directories that were cut short, before the location is opened to change it. Only local ones can
/// be. A table that another process holds is an error: it may be in the middle of its own.
///
/// # Errors
/// See [`swap::recover`] and [`swap::swap`].
pub async fn finish_swaps(location: &str, state: Option<&PathBuf>) -> Result<(), CompactError> {
    let path = Path::new(location.strip_prefix("file://").unwrap_or(location));
    let Ok(path) = path.canonicalize() else { return Ok(()) };
    let Ok(entries) = std::fs::read_dir(&path) else { return Ok(()) };
    let folders = entries.flatten().filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()));
    let folders: Vec<PathBuf> = folders.map(|entry| entry.path()).collect();
    for folder in std::iter::once(path).chain(folders) {
        swap::recover(&folder)?;
        if swap::is_begun(&folder)?
            && let Some(text) = folder.to_str()
        {
            let _leadership = hold(&DirectoryTable::new(Store::open("target", text, false)?, ""), state).await?;
            swap::swap(&folder, now_ms(), &checks::rows_in_footer)?;
        }
    }
    Ok(())
}

/// What the state of a table says at this moment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TableState {
    /// Nothing is going on.
    Idle,
    /// Another process holds the table.
    Held,
    /// Runs refuse it, for this reason.
    Stopped(String),
}

/// Looks at the state of a table without making any.
pub async fn look(table: &DirectoryTable) -> Result<TableState, StateError> {
    let path = state_path(table, state_from_environment().as_ref());
    if !path.exists() {
        return Ok(TableState::Idle);
    }
    match EmbeddedStore::open(&path) {
        Ok(store) => Ok(runs::stop(&store).await?.map_or(TableState::Idle, |stop| TableState::Stopped(stop.reason))),
        Err(StateError::Held { .. }) => Ok(TableState::Held),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_control_folder_makes_its_parent_a_table() {
        let paths = ["a/_baler/manifest/1.json", "b/c/_baler/x", "_balers/x", "d/x_baler/y", "a/k/f.parquet"];
        let found: Vec<String> = controlled_folders(paths.into_iter()).into_iter().collect();
        assert_eq!(found, ["a", "b/c"]);
        assert_eq!(controlled_folders(["_baler/state.redb"].into_iter()).first().map(String::as_str), Some(""));
        assert_eq!(name_of("/data/claims/"), "claims");
    }
}
