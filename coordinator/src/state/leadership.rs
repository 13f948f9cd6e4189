//! Who leads, and the fence around everything a leader writes.
//!
//! Winning is one transaction that raises the epoch. Every later write compares the epoch record's revision, so the
//! writes of an earlier leader fail from that moment on, however late they arrive.

use std::sync::Arc;

use baler_common::model::id::Epoch;
use baler_common::runtime::killpoint::killpoint;
use baler_proto::state::EpochRecord;
use prost::Message;

use super::scoped::ScopedStore;
use super::{Applied, Change, Compare, Entry, StateError, StateStore, keys};

/// How often a transaction whose answer was lost is tried again.
const TRIES_MAX: u32 = 8;

/// The right to write, until another process takes it.
pub struct Leadership {
    store: Arc<dyn StateStore>,
    epoch: Epoch,
    revision: u64,
}

impl Leadership {
    /// Takes the lead: raises the epoch by one. `op` tells this attempt's record from anyone else's.
    ///
    /// # Errors
    /// [`StateError::Fenced`] when another process took it at the same moment.
    pub async fn take(store: Arc<dyn StateStore>, holder: &str, op: u64) -> Result<Self, StateError> {
        for _ in 0..TRIES_MAX {
            let current = store.get(keys::EPOCH).await?;
            let record = current.as_ref().map(decode).transpose()?;
            if let (Some(entry), Some(record)) = (&current, &record)
                && record.op == op
            {
                return Ok(Self { epoch: Epoch(record.epoch), revision: entry.revision, store });
            }
            let epoch = record.map_or(0, |record| record.epoch) + 1;
            let compare = match &current {
                Some(entry) => Compare::Revision(keys::EPOCH.into(), entry.revision),
                None => Compare::Absent(keys::EPOCH.into()),
            };
            let value = EpochRecord { epoch, holder: holder.to_owned(), op }.encode_to_vec();
            killpoint("epoch-before");
            let applied = store.txn(&[compare], &[Change::Put(keys::EPOCH.into(), value)]).await?;
            killpoint("epoch-after");
            match applied {
                Applied::Yes(revision) => return Ok(Self { store, epoch: Epoch(epoch), revision }),
                Applied::Conflict => return Err(StateError::Fenced),
                Applied::Unknown => {}
            }
        }
        Err(StateError::Io("the store keeps losing answers".into()))
    }

    pub fn epoch(&self) -> Epoch {
        self.epoch
    }

    pub fn store(&self) -> &Arc<dyn StateStore> {
        &self.store
    }

    /// The same right over a part of the store; see [`ScopedStore`].
    pub fn scoped(&self, prefix: String) -> Self {
        let store = Arc::new(ScopedStore::new(self.store.clone(), prefix));
        Self { store, epoch: self.epoch, revision: self.revision }
    }

    /// Writes under the fence. A lost answer is resolved by looking at the first value written: values carry a random
    /// `op`, so an equal value is this write's.
    ///
    /// # Errors
    /// [`StateError::Fenced`] when a condition, or the epoch, does not hold.
    pub async fn write(&self, compares: &[Compare], changes: &[Change]) -> Result<u64, StateError> {
        let mut all = vec![Compare::Revision(keys::EPOCH.into(), self.revision)];
        all.extend_from_slice(compares);
        for _ in 0..TRIES_MAX {
            match self.store.txn(&all, changes).await? {
                Applied::Yes(revision) => return Ok(revision),
                Applied::Unknown => continue,
                Applied::Conflict => {}
            }
            // A first try whose answer was lost makes the second conflict.
            return self.landed(changes).await?.ok_or(StateError::Fenced);
        }
        self.landed(changes).await?.ok_or_else(|| StateError::Io("the store keeps losing answers".into()))
    }

    async fn landed(&self, changes: &[Change]) -> Result<Option<u64>, StateError> {
        for change in changes {
            if let Change::Put(key, value) = change {
                let stored = self.store.get(key).await?;
                return Ok(stored.filter(|entry| entry.value == *value).map(|entry| entry.revision));
            }
        }
        // Nothing but deletions: they landed if the keys are gone, unless another leader came in between.
        for change in changes {
            if let Change::Delete(key) = change
                && self.store.get(key).await?.is_some()
            {
                return Ok(None);
            }
        }
        let epoch = self.store.get(keys::EPOCH).await?;
        Ok(epoch.filter(|entry| entry.revision == self.revision).map(|entry| entry.revision))
    }
}

fn decode(entry: &Entry) -> Result<EpochRecord, StateError> {
    EpochRecord::decode(entry.value.as_slice())
        .map_err(|error| StateError::Record { key: entry.key.clone(), message: error.to_string() })
}

#[cfg(test)]
mod tests {
    use super::super::simulated::SimulatedStore;
    use super::*;

    #[tokio::test]
    async fn an_earlier_leader_cannot_write_any_more() {
        let store: Arc<dyn StateStore> = Arc::new(SimulatedStore::default());
        let first = Leadership::take(store.clone(), "a", 1).await.unwrap();
        first.write(&[], &[Change::Put("k".into(), b"1".to_vec())]).await.unwrap();
        let second = Leadership::take(store.clone(), "b", 2).await.unwrap();
        assert_eq!((first.epoch(), second.epoch()), (Epoch(1), Epoch(2)));
        let refused = first.write(&[], &[Change::Put("k".into(), b"2".to_vec())]).await;
        assert!(matches!(refused, Err(StateError::Fenced)));
        assert_eq!(store.get("k").await.unwrap().unwrap().value, b"1");
    }

    #[tokio::test]
    async fn a_lost_answer_is_resolved_by_looking() {
        for lose_every in 2..6 {
            let store: Arc<dyn StateStore> = Arc::new(SimulatedStore::losing_every(lose_every));
            let leader = Leadership::take(store.clone(), "a", 7).await.unwrap();
            for n in 0..40u64 {
                let compare = match store.get("k").await.unwrap() {
                    None => Compare::Absent("k".into()),
                    Some(entry) => Compare::Revision("k".into(), entry.revision),
                };
                leader.write(&[compare], &[Change::Put("k".into(), n.to_le_bytes().to_vec())]).await.unwrap();
                assert_eq!(store.get("k").await.unwrap().unwrap().value, n.to_le_bytes(), "losing every {lose_every}");
            }
        }
    }
}
