//! Leases of etcd: keys that go with the process that wrote them.
//!
//! A lease is a lower bound on silence and nothing more: etcd may keep one for twice its time when its own leader
//! changes, and some versions say that a lease is kept when it is gone. It says when to try to lead, never that it is
//! safe to write; the epoch says that.

use std::time::Duration;

use etcd_client::{PutOptions, TxnOp, WatchOptions};

use super::{EtcdStore, Repeat, Trouble, repeat, within};
use crate::state::{Applied, Change, Compare, StateError, check_limits};

/// A lease.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LeaseId(i64);

impl EtcdStore {
    /// Grants a lease; gives it with the time it lives, which may be more than asked. One whose answer was lost ends
    /// by itself.
    ///
    /// # Errors
    /// [`StateError::Etcd`].
    pub async fn grant(&self, ttl: Duration) -> Result<(LeaseId, Duration), StateError> {
        let seconds = i64::try_from(ttl.as_millis().div_ceil(1_000)).unwrap_or(i64::MAX);
        let grant = || {
            let mut leases = self.client.lease_client();
            async move { leases.grant(seconds, None).await }
        };
        let answer = repeat(&self.options, Repeat::NotTakenOrLost, grant).await;
        let answer = answer.map_err(|trouble| self.failed(&trouble))?;
        Ok((LeaseId(answer.id()), Duration::from_secs(u64::try_from(answer.ttl()).unwrap_or(0))))
    }

    /// Keeps a lease alive, once; `false` when it is gone.
    ///
    /// # Errors
    /// [`StateError::Etcd`], also when the answer does not come in time: the lease may have been kept or not.
    pub async fn keep_alive(&self, lease: LeaseId, limit: Duration) -> Result<bool, StateError> {
        let mut leases = self.client.lease_client();
        match within(limit.min(self.options.call_timeout), leases.keep_alive(lease.0)).await {
            Ok(_) => Ok(true),
            Err(Trouble::LeaseGone) => Ok(false),
            Err(trouble) => Err(self.failed(&trouble)),
        }
    }

    /// Ends a lease, and its keys with it.
    ///
    /// # Errors
    /// [`StateError::Etcd`]; the lease then ends by itself.
    pub async fn revoke(&self, lease: LeaseId) -> Result<(), StateError> {
        let mut leases = self.client.lease_client();
        match within(self.options.call_timeout, leases.revoke(lease.0)).await {
            Ok(_) | Err(Trouble::LeaseGone) => Ok(()),
            Err(trouble) => Err(self.failed(&trouble)),
        }
    }

    /// As [`txn`](crate::state::StateStore::txn), and puts `key` with the lease. A lease that is gone is a conflict.
    ///
    /// # Errors
    /// As [`txn`](crate::state::StateStore::txn).
    pub async fn txn_leased(
        &self,
        compares: &[Compare],
        change: Change,
        (key, value): (&str, Vec<u8>),
        lease: LeaseId,
    ) -> Result<Applied, StateError> {
        let options = PutOptions::new().with_lease(lease.0);
        let leased = TxnOp::put(self.key(key), value.as_slice(), Some(options));
        let operations = vec![self.change(&change), leased];
        check_limits(compares, &[change, Change::Put(key.to_owned(), value)])?;
        match self.send(compares, operations).await? {
            Err(Trouble::LeaseGone) => Ok(Applied::Conflict),
            applied => applied.map_err(|trouble| self.failed(&trouble)),
        }
    }

    /// Waits until a key may have changed after a revision, at most for `limit`. A hint: look afterwards.
    pub async fn changed(&self, key: &str, after: u64, limit: Duration) {
        let mut watches = self.client.watch_client();
        let watch = async {
            let from = i64::try_from(after).unwrap_or(i64::MAX).saturating_add(1);
            let options = WatchOptions::new().with_start_revision(from);
            if let Ok(mut events) = watches.watch(self.key(key), Some(options)).await {
                while let Ok(Some(message)) = events.message().await {
                    if !message.events().is_empty() {
                        return;
                    }
                    if message.canceled() {
                        break;
                    }
                }
            }
            // Nothing will come from this watch any more.
            std::future::pending::<()>().await;
        };
        let _ = tokio::time::timeout(limit, watch).await;
    }
}
