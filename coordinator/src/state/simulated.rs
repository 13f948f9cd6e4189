//! A store in memory that loses answers on purpose: every n-th transaction is applied, or not, and answered `Unknown`.

use std::collections::BTreeMap;
use std::sync::Mutex;

use async_trait::async_trait;

use super::{Applied, Change, Compare, Entry, Page, StateError, StateStore, check_limits};

#[derive(Debug, Default)]
pub struct SimulatedStore {
    inner: Mutex<Inner>,
    /// Every n-th transaction's answer is lost; 0 never.
    lose_every: u64,
}

#[derive(Debug, Default)]
struct Inner {
    values: BTreeMap<String, (u64, Vec<u8>)>,
    revision: u64,
    transactions: u64,
}

impl SimulatedStore {
    pub fn losing_every(lose_every: u64) -> Self {
        Self { lose_every, ..Self::default() }
    }
}

#[async_trait]
impl StateStore for SimulatedStore {
    async fn txn(&self, compares: &[Compare], changes: &[Change]) -> Result<Applied, StateError> {
        check_limits(compares, changes)?;
        let mut inner = self.inner.lock().unwrap();
        inner.transactions += 1;
        let lost = self.lose_every != 0 && inner.transactions.is_multiple_of(self.lose_every);
        // Of the lost ones, every other was applied.
        if lost && inner.transactions.is_multiple_of(2 * self.lose_every) {
            return Ok(Applied::Unknown);
        }
        let holds = |compare: &Compare| match compare {
            Compare::Absent(key) => !inner.values.contains_key(key),
            Compare::Revision(key, wanted) => inner.values.get(key).is_some_and(|(revision, _)| revision == wanted),
        };
        if !compares.iter().all(holds) {
            return Ok(if lost { Applied::Unknown } else { Applied::Conflict });
        }
        inner.revision += 1;
        let revision = inner.revision;
        for change in changes {
            match change {
                Change::Put(key, value) => {
                    inner.values.insert(key.clone(), (revision, value.clone()));
                }
                Change::Delete(key) => {
                    inner.values.remove(key);
                }
            }
        }
        Ok(if lost { Applied::Unknown } else { Applied::Yes(revision) })
    }

    async fn get(&self, key: &str) -> Result<Option<Entry>, StateError> {
        let inner = self.inner.lock().unwrap();
        let entry =
            |(revision, value): &(u64, Vec<u8>)| Entry { key: key.into(), value: value.clone(), revision: *revision };
        Ok(inner.values.get(key).map(entry))
    }

    async fn range(
        &self,
        prefix: &str,
        after: Option<&str>,
        limit: usize,
        at: Option<u64>,
    ) -> Result<Page, StateError> {
        let inner = self.inner.lock().unwrap();
        if let Some(at) = at.filter(|at| *at != inner.revision) {
            return Err(StateError::Compacted(at));
        }
        let mut entries = inner
            .values
            .iter()
            .filter(|(key, _)| key.starts_with(prefix) && after.is_none_or(|after| key.as_str() > after))
            .map(|(key, (revision, value))| Entry { key: key.clone(), value: value.clone(), revision: *revision });
        let page = entries.by_ref().take(limit).collect();
        Ok(Page { entries: page, revision: inner.revision, more: entries.next().is_some() })
    }
}
