//! Who leads, and the fence around everything a leader writes.
//!
//! Winning is one transaction that raises the epoch. Every later write compares the epoch record's revision, so the
//! writes of an earlier leader fail from that moment on, however late they arrive.

use std::sync::Arc;

use baler_common::model::id::Epoch;
use baler_common::runtime::killpoint::killpoint;
use baler_proto::state::EpochRecord;
use futures::FutureExt;
use futures::future::BoxFuture;
use prost::Message;
use tokio::sync::watch;

use super::scoped::ScopedStore;
use super::{Applied, Change, Compare, Entry, StateError, StateStore, keys};

/// How often a transaction whose answer was lost is tried again.
const TRIES_MAX: u32 = 8;

/// What the transaction that makes a leader holds and changes.
pub(super) struct Claim {
    pub epoch: Epoch,
    pub compare: Compare,
    pub change: Change,
}

/// The right to write, until another process takes it.
pub struct Leadership {
    store: Arc<dyn StateStore>,
    epoch: Epoch,
    revision: u64,
    /// True once a write failed that only the fence or the store itself can refuse.
    lost: Arc<watch::Sender<bool>>,
}

impl Leadership {
    fn new(store: Arc<dyn StateStore>, epoch: Epoch, revision: u64) -> Self {
        Self { store, epoch, revision, lost: Arc::new(watch::Sender::new(false)) }
    }

    /// Takes the lead: raises the epoch by one. `op` tells this attempt's record from anyone else's.
    ///
    /// # Errors
    /// [`StateError::Fenced`] when another process took it at the same moment.
    pub async fn take(store: Arc<dyn StateStore>, holder: &str, op: u64) -> Result<Self, StateError> {
        let send = |claim: Claim| {
            let store = store.clone();
            async move { store.txn(&[claim.compare], &[claim.change]).await }.boxed()
        };
        Self::claim(&store, holder, op, &send).await?.ok_or(StateError::Fenced)
    }

    /// Raises the epoch by one in the transaction that `send` makes of a claim; `None` when its conditions do not hold.
    pub(super) async fn claim(
        store: &Arc<dyn StateStore>,
        holder: &str,
        op: u64,
        send: &(dyn Fn(Claim) -> BoxFuture<'static, Result<Applied, StateError>> + Send + Sync),
    ) -> Result<Option<Self>, StateError> {
        let mut refused = false;
        for _ in 0..TRIES_MAX {
            let current = store.get(keys::EPOCH).await?;
            let record = current.as_ref().map(decode).transpose()?;
            if let (Some(entry), Some(record)) = (&current, &record)
                && record.op == op
            {
                return Ok(Some(Self::new(Arc::clone(store), Epoch(record.epoch), entry.revision)));
            }
            if refused {
                return Ok(None);
            }
            let epoch = Epoch(record.map_or(0, |record| record.epoch) + 1);
            let compare = match &current {
                Some(entry) => Compare::Revision(keys::EPOCH.into(), entry.revision),
                None => Compare::Absent(keys::EPOCH.into()),
            };
            let value = EpochRecord { epoch: epoch.0, holder: holder.to_owned(), op }.encode_to_vec();
            let claim = Claim { epoch, compare, change: Change::Put(keys::EPOCH.into(), value) };
            killpoint("epoch-before");
            let applied = send(claim).await?;
            killpoint("epoch-after");
            match applied {
                Applied::Yes(revision) => return Ok(Some(Self::new(Arc::clone(store), epoch, revision))),
                // An earlier try whose answer was lost makes this one conflict: look.
                Applied::Conflict => refused = true,
                Applied::Unknown => {}
            }
        }
        Err(StateError::Io("the store keeps losing answers".into()))
    }

    pub fn epoch(&self) -> Epoch {
        self.epoch
    }

    /// The revision that made this process the leader. What it begins with is read as of this one, see
    /// [`range_at`](super::range_at).
    pub fn revision(&self) -> u64 {
        self.revision
    }

    pub fn store(&self) -> &Arc<dyn StateStore> {
        &self.store
    }

    /// The same right over a part of the store; see [`ScopedStore`].
    pub fn scoped(&self, prefix: String) -> Self {
        let store = Arc::new(ScopedStore::new(self.store.clone(), prefix));
        Self { store, epoch: self.epoch, revision: self.revision, lost: self.lost.clone() }
    }

    /// Turns true when nothing can be made durable any more, here or in a part of the store: another process leads, or
    /// the store is gone. Whatever comes of work in progress after that is not to be believed: its writes failed too.
    pub fn lost(&self) -> watch::Receiver<bool> {
        self.lost.subscribe()
    }

    pub fn is_lost(&self) -> bool {
        *self.lost.borrow()
    }

    /// Notes it for all who hold this right.
    pub fn lose(&self) {
        self.lost.send_replace(true);
    }

    /// Writes under the fence. A lost answer is resolved by looking at the first value written: values carry a random
    /// `op`, so an equal value is this write's. A failure is the end of this right, unless it may be due to `compares`.
    ///
    /// # Errors
    /// [`StateError::Fenced`] when a condition, or the epoch, does not hold.
    pub async fn write(&self, compares: &[Compare], changes: &[Change]) -> Result<u64, StateError> {
        let written = self.try_write(compares, changes).await;
        if let Err(StateError::Fenced | StateError::Io(_) | StateError::Etcd { .. }) = written
            && compares.is_empty()
        {
            self.lose();
        }
        written
    }

    async fn try_write(&self, compares: &[Compare], changes: &[Change]) -> Result<u64, StateError> {
        let mut all = vec![Compare::Revision(keys::EPOCH.into(), self.revision)];
        all.extend_from_slice(compares);
        let mut lost = false;
        for _ in 0..TRIES_MAX {
            match self.store.txn(&all, changes).await? {
                Applied::Yes(revision) => return Ok(revision),
                // A first try whose answer was lost makes the second conflict.
                Applied::Conflict if lost => return self.landed(changes).await?.ok_or(StateError::Fenced),
                Applied::Conflict => return Err(StateError::Fenced),
                Applied::Unknown => lost = true,
            }
            // Looking also waits until the store answers again.
            if let Some(revision) = self.landed(changes).await? {
                return Ok(revision);
            }
        }
        Err(StateError::Io("the store keeps losing answers".into()))
    }

    async fn landed(&self, changes: &[Change]) -> Result<Option<u64>, StateError> {
        for change in changes {
            if let Change::Put(key, value) = change {
                let stored = self.store.get(key).await?;
                return Ok(stored.filter(|entry| entry.value == *value).map(|entry| entry.revision));
            }
        }
        if changes.is_empty() {
            return Ok(None);
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
    entry.decode::<EpochRecord>()
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
        assert!(first.is_lost() && first.scoped("part/".into()).is_lost() && !second.is_lost());
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
