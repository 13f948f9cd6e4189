//! A part of a store that looks like a store of its own: the state of one table in a cluster.
//!
//! Every key gets a prefix but one: the epoch is the whole store's, so that one leadership fences all parts.

use std::sync::Arc;

use async_trait::async_trait;

use super::{Applied, Change, Compare, Entry, Page, StateError, StateStore, keys};

/// The part of `inner` whose keys begin with `prefix`.
pub struct ScopedStore {
    inner: Arc<dyn StateStore>,
    prefix: String,
}

impl ScopedStore {
    pub fn new(inner: Arc<dyn StateStore>, prefix: String) -> Self {
        Self { inner, prefix }
    }

    fn outer(&self, key: &str) -> String {
        if key == keys::EPOCH { key.to_owned() } else { format!("{}{key}", self.prefix) }
    }

    fn inner(&self, entry: Entry) -> Entry {
        let key = entry.key.strip_prefix(&self.prefix).map(str::to_owned).unwrap_or(entry.key);
        Entry { key, ..entry }
    }
}

#[async_trait]
impl StateStore for ScopedStore {
    async fn txn(&self, compares: &[Compare], changes: &[Change]) -> Result<Applied, StateError> {
        let compares: Vec<Compare> = compares
            .iter()
            .map(|compare| match compare {
                Compare::Absent(key) => Compare::Absent(self.outer(key)),
                Compare::Revision(key, revision) => Compare::Revision(self.outer(key), *revision),
            })
            .collect();
        let changes: Vec<Change> = changes
            .iter()
            .map(|change| match change {
                Change::Put(key, value) => Change::Put(self.outer(key), value.clone()),
                Change::Delete(key) => Change::Delete(self.outer(key)),
            })
            .collect();
        self.inner.txn(&compares, &changes).await
    }

    async fn get(&self, key: &str) -> Result<Option<Entry>, StateError> {
        Ok(self.inner.get(&self.outer(key)).await?.map(|entry| self.inner(entry)))
    }

    async fn range(
        &self,
        prefix: &str,
        after: Option<&str>,
        limit: usize,
        at: Option<u64>,
    ) -> Result<Page, StateError> {
        let (prefix, after) = (format!("{}{prefix}", self.prefix), after.map(|key| self.outer(key)));
        let found = self.inner.range(&prefix, after.as_deref(), limit, at).await?;
        Ok(Page { entries: found.entries.into_iter().map(|entry| self.inner(entry)).collect(), ..found })
    }
}
