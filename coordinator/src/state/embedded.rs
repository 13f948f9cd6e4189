//! The state store as one file on this machine.
//!
//! A redb database with immediate durability: a transaction is on the disk when it is answered. The file is locked while
//! it is open, so a second process on the same table is told so instead of joining in. Each value is stored behind the
//! revision that wrote it.

use std::path::Path;
use std::sync::Mutex;

use async_trait::async_trait;
use baler_common::runtime::killpoint::killpoint;
use redb::{Database, DatabaseError, ReadableDatabase, ReadableTable, TableDefinition};

use super::{Applied, Change, Compare, Entry, Page, StateError, StateStore, check_limits};

const VALUES: TableDefinition<&str, &[u8]> = TableDefinition::new("values");
const REVISION: TableDefinition<&str, u64> = TableDefinition::new("revision");
const LATEST: &str = "latest";

/// The embedded store.
#[derive(Debug)]
pub struct EmbeddedStore {
    database: Mutex<Database>,
}

impl EmbeddedStore {
    /// Opens the file, making it and its folder where missing.
    ///
    /// # Errors
    /// [`StateError::Held`] while another process has it open.
    pub fn open(path: &Path) -> Result<Self, StateError> {
        let shown = path.display().to_string();
        let failed = |message: String| StateError::Open { path: shown.clone(), message };
        if let Some(folder) = path.parent() {
            std::fs::create_dir_all(folder).map_err(|error| failed(error.to_string()))?;
        }
        let database = match Database::create(path) {
            Ok(database) => database,
            Err(DatabaseError::DatabaseAlreadyOpen) => return Err(StateError::Held { path: shown }),
            Err(error) => return Err(failed(error.to_string())),
        };
        let prepared = database.begin_write().map_err(|error| failed(error.to_string()))?;
        prepared.open_table(VALUES).map_err(|error| failed(error.to_string()))?;
        prepared.open_table(REVISION).map_err(|error| failed(error.to_string()))?;
        prepared.commit().map_err(|error| failed(error.to_string()))?;
        Ok(Self { database: Mutex::new(database) })
    }

    fn apply(&self, compares: &[Compare], changes: &[Change]) -> Result<Applied, StateError> {
        let database = self.database.lock().map_err(failed)?;
        let transaction = database.begin_write().map_err(failed)?;
        let revision = {
            let mut values = transaction.open_table(VALUES).map_err(failed)?;
            for compare in compares {
                let holds = match compare {
                    Compare::Absent(key) => values.get(key.as_str()).map_err(failed)?.is_none(),
                    Compare::Revision(key, wanted) => match values.get(key.as_str()).map_err(failed)? {
                        Some(stored) => split(key, stored.value())?.revision == *wanted,
                        None => false,
                    },
                };
                if !holds {
                    return Ok(Applied::Conflict);
                }
            }
            let mut revisions = transaction.open_table(REVISION).map_err(failed)?;
            let revision = revisions.get(LATEST).map_err(failed)?.map_or(0, |latest| latest.value()) + 1;
            revisions.insert(LATEST, revision).map_err(failed)?;
            for change in changes {
                match change {
                    Change::Put(key, value) => {
                        let stored = [&revision.to_le_bytes()[..], value].concat();
                        values.insert(key.as_str(), stored.as_slice()).map_err(failed)?;
                    }
                    Change::Delete(key) => {
                        values.remove(key.as_str()).map_err(failed)?;
                    }
                }
            }
            revision
        };
        killpoint("store-commit-before");
        transaction.commit().map_err(failed)?;
        killpoint("store-commit-after");
        Ok(Applied::Yes(revision))
    }

    fn scan(&self, prefix: &str, after: Option<&str>, limit: usize, at: Option<u64>) -> Result<Page, StateError> {
        let database = self.database.lock().map_err(failed)?;
        let transaction = database.begin_read().map_err(failed)?;
        let values = transaction.open_table(VALUES).map_err(failed)?;
        let revisions = transaction.open_table(REVISION).map_err(failed)?;
        let revision = revisions.get(LATEST).map_err(failed)?.map_or(0, |latest| latest.value());
        check_newest(revision, at)?;
        let start = after.map_or(prefix, |after| after.max(prefix));
        let mut page = Page { entries: Vec::new(), revision, more: false };
        for entry in values.range(start..).map_err(failed)? {
            let (key, stored) = entry.map_err(failed)?;
            let key = key.value();
            if !key.starts_with(prefix) {
                break;
            }
            if after == Some(key) {
                continue;
            }
            if page.entries.len() == limit {
                page.more = true;
                break;
            }
            page.entries.push(split(key, stored.value())?);
        }
        Ok(page)
    }
}

fn split(key: &str, stored: &[u8]) -> Result<Entry, StateError> {
    let (revision, value) = stored
        .split_first_chunk::<8>()
        .ok_or_else(|| StateError::Record { key: key.to_owned(), message: "it has no revision".to_owned() })?;
    Ok(Entry { key: key.to_owned(), value: value.to_vec(), revision: u64::from_le_bytes(*revision) })
}

/// This store keeps the newest state alone.
fn check_newest(newest: u64, at: Option<u64>) -> Result<(), StateError> {
    match at {
        Some(at) if at < newest => Err(StateError::Compacted(at)),
        Some(at) if at > newest => Err(StateError::Io(format!("revision {at} is yet to come, {newest} is the newest"))),
        _ => Ok(()),
    }
}

fn failed(error: impl std::fmt::Display) -> StateError {
    StateError::Io(error.to_string())
}

#[async_trait]
impl StateStore for EmbeddedStore {
    async fn txn(&self, compares: &[Compare], changes: &[Change]) -> Result<Applied, StateError> {
        check_limits(compares, changes)?;
        self.apply(compares, changes)
    }

    async fn get(&self, key: &str) -> Result<Option<Entry>, StateError> {
        Ok(self.scan(key, None, 1, None)?.entries.into_iter().find(|entry| entry.key == key))
    }

    async fn range(
        &self,
        prefix: &str,
        after: Option<&str>,
        limit: usize,
        at: Option<u64>,
    ) -> Result<Page, StateError> {
        self.scan(prefix, after, limit, at)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_second_opener_is_told_who_holds_the_file() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("deep/state.redb");
        let _held = EmbeddedStore::open(&path).unwrap();
        let refused = EmbeddedStore::open(&path).unwrap_err();
        assert!(matches!(refused, StateError::Held { .. }), "{refused}");
        assert!(refused.to_string().contains("state.redb"));
    }

    #[test]
    fn a_damaged_file_is_named_with_what_to_do() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("state.redb");
        std::fs::write(&path, vec![7; 10_000]).unwrap();
        let refused = EmbeddedStore::open(&path).unwrap_err().to_string();
        assert!(refused.contains("state.redb: ") && refused.contains("may be moved away"), "{refused}");
    }

    #[test]
    fn a_file_that_was_never_filled_is_a_new_store() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("state.redb");
        std::fs::write(&path, b"").unwrap();
        EmbeddedStore::open(&path).unwrap();
    }
}
