//! Which of several coordinators leads, by a lease in etcd.
//!
//! A candidate waits while another leads, then grants itself a lease and, in one transaction, raises the epoch and
//! puts the leader key with that lease. The epoch fences every write from then on (see [`super::leadership`]), so
//! nothing rests on the lease or on a clock: they only decide when the next candidate may try, and how soon a leader
//! that is cut off notices.
//!
//! ```text
//!  wait ──leader key gone──► claim ──won──► lead ──keepalive every 0.3 TTL──┐
//!   ▲                          │             │  ▲                           │
//!   └───────────lost───────────┘             │  └───────acknowledged────────┘
//!                                            ├─ none acknowledged for 0.6 TTL, or lease gone ──► lost, for good
//!                                            └─ resign: lease revoked, the next leads at once
//! ```
//!
//! The deadline counts from the moment a keepalive was sent, on a clock that goes on while the machine sleeps.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use baler_common::model::id::Epoch;
use baler_common::runtime::random::random_u64;
use baler_proto::state::LeaderRecord;
use futures::FutureExt;
use prost::Message;
use rustix::time::{ClockId, clock_gettime};
use tokio::task::JoinHandle;
use tracing::{debug, info, warn};

use super::etcd::{EtcdStore, LeaseId, fraction};
use super::leadership::{Claim, Leadership};
use super::{Compare, StateError, StateStore, keys};

/// After this part of the lease's time it is kept alive again.
const KEEPALIVE: f64 = 0.3;
/// After this part of the lease's time without an acknowledgement the term is lost.
const DEADLINE: f64 = 0.6;
/// A standby looks at least this often whether there is a leader.
const POLL_MAX: Duration = Duration::from_secs(5);
/// How often a deadline is looked at: a timer stands still while the machine sleeps, the deadline does not.
const LOOK_EVERY: Duration = Duration::from_millis(200);

/// The shortest lease that etcd grants.
pub const TTL_MIN: Duration = Duration::from_secs(2);
/// How long a lease lives without a keepalive, unless told otherwise.
pub const TTL_DEFAULT: Duration = Duration::from_secs(10);

/// Who leads, and where it is reached.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Leader {
    pub epoch: Epoch,
    pub holder: String,
    pub address: String,
}

/// The present leader; `None` while there is none.
///
/// # Errors
/// [`StateError::Record`] when its record is not readable, and what the store says.
pub async fn leader(store: &dyn StateStore) -> Result<Option<Leader>, StateError> {
    let Some(entry) = store.get(keys::LEADER).await? else { return Ok(None) };
    let record = entry.decode::<LeaderRecord>()?;
    let LeaderRecord { epoch, holder, address, .. } = record;
    Ok(Some(Leader { epoch: Epoch(epoch), holder, address }))
}

/// A coordinator that wants to lead.
#[derive(Debug, Clone)]
pub struct Candidate {
    pub store: EtcdStore,
    /// Who this is, for people.
    pub holder: String,
    /// Where workers and clients reach this coordinator once it leads.
    pub address: String,
    /// How long the others wait after this process fell silent; [`TTL_MIN`] at least.
    pub ttl: Duration,
}

impl Candidate {
    /// Waits until this process leads.
    ///
    /// # Errors
    /// What the store says; a standby that is restarted has lost nothing.
    pub async fn campaign(&self) -> Result<(Leadership, Term), StateError> {
        let mut waited = false;
        loop {
            if let Some(entry) = self.store.get(keys::LEADER).await? {
                self.store.changed(keys::LEADER, entry.revision, POLL_MAX.min(self.ttl / 2)).await;
                waited = true;
                continue;
            }
            if waited {
                // So that all standbys do not claim at the same moment.
                tokio::time::sleep((self.ttl / 10).mul_f64(fraction())).await;
            }
            if let Some(won) = self.claim().await? {
                return Ok(won);
            }
            waited = true;
        }
    }

    /// One try; `None` when another was faster.
    async fn claim(&self) -> Result<Option<(Leadership, Term)>, StateError> {
        let sent = now();
        let (lease, granted) = self.store.grant(self.ttl.max(TTL_MIN)).await?;
        let ttl = self.ttl.max(TTL_MIN).min(granted);
        let claimed = self.claim_with(lease).await;
        if let Ok(Some(leadership)) = claimed {
            info!(epoch = leadership.epoch().0, holder = self.holder, "this coordinator leads");
            return Ok(Some((leadership, Term::begin(self.store.clone(), lease, ttl, sent))));
        }
        // Best effort: it ends by itself, only later.
        if let Err(error) = self.store.revoke(lease).await {
            debug!(%error, "the lease of a lost claim was not revoked");
        }
        claimed.map(|_| None)
    }

    async fn claim_with(&self, lease: LeaseId) -> Result<Option<Leadership>, StateError> {
        let op = random_u64();
        let send = |claim: Claim| {
            let store = self.store.clone();
            let record =
                LeaderRecord { epoch: claim.epoch.0, holder: self.holder.clone(), address: self.address.clone(), op };
            async move {
                let compares = [claim.compare, Compare::Absent(keys::LEADER.to_owned())];
                store.txn_leased(&compares, claim.change, (keys::LEADER, record.encode_to_vec()), lease).await
            }
            .boxed()
        };
        let store: Arc<dyn StateStore> = Arc::new(self.store.clone());
        Leadership::claim(&store, &self.holder, op, &send).await
    }
}

/// The time a process leads. Dropped, it is no longer kept alive, and the next candidate leads when the lease is over.
#[derive(Debug)]
pub struct Term {
    store: EtcdStore,
    lease: LeaseId,
    deadline: Arc<Deadline>,
    keeper: JoinHandle<()>,
}

impl Term {
    fn begin(store: EtcdStore, lease: LeaseId, ttl: Duration, sent: Duration) -> Self {
        let deadline = Arc::new(Deadline::new(sent + ttl.mul_f64(DEADLINE)));
        let keeper = tokio::spawn(keep(store.clone(), lease, ttl, sent, Arc::clone(&deadline)));
        Self { store, lease, deadline, keeper }
    }

    /// Whether the deadline is yet to come. Once `false`, it stays so.
    pub fn is_valid(&self) -> bool {
        self.deadline.left(now()).is_some()
    }

    /// Ends when the term is lost: time to stop, whatever is at hand.
    pub fn lost(&self) -> impl Future<Output = ()> + Send + use<> {
        let deadline = Arc::clone(&self.deadline);
        async move {
            while let Some(left) = deadline.left(now()) {
                tokio::time::sleep(left.min(LOOK_EVERY)).await;
            }
        }
    }

    /// Gives the lead away: the next candidate leads at once. Nothing must be written afterwards.
    ///
    /// # Errors
    /// [`StateError::Etcd`]; the lease then ends by itself.
    pub async fn resign(&self) -> Result<(), StateError> {
        self.end();
        self.store.revoke(self.lease).await
    }

    fn end(&self) {
        self.keeper.abort();
        self.deadline.lose();
    }
}

impl Drop for Term {
    fn drop(&mut self) {
        self.end();
    }
}

/// Keeps the lease alive until it is gone or the deadline has passed.
async fn keep(store: EtcdStore, lease: LeaseId, ttl: Duration, sent: Duration, deadline: Arc<Deadline>) {
    let period = ttl.mul_f64(KEEPALIVE);
    let mut next = sent + period;
    while deadline.left(now()).is_some() {
        tokio::time::sleep(next.saturating_sub(now())).await;
        let sent = now();
        next = sent + period;
        match store.keep_alive(lease, period).await {
            Ok(true) => deadline.extend(now(), sent + ttl.mul_f64(DEADLINE)),
            Ok(false) => {
                warn!("the lease of the leader is gone");
                deadline.lose();
            }
            Err(error) => {
                debug!(%error, "a keepalive was not acknowledged");
                next = now() + period / 6;
            }
        }
    }
}

/// A moment after which a term is lost, for good.
#[derive(Debug)]
struct Deadline {
    /// `None` once lost.
    at: Mutex<Option<Duration>>,
}

impl Deadline {
    fn new(at: Duration) -> Self {
        Self { at: Mutex::new(Some(at)) }
    }

    /// The time that is left; `None` when lost.
    fn left(&self, now: Duration) -> Option<Duration> {
        let mut at = self.at.lock().unwrap_or_else(PoisonError::into_inner);
        *at = at.filter(|at| now < *at);
        at.map(|at| at - now)
    }

    /// Moves it, unless it has passed.
    fn extend(&self, now: Duration, to: Duration) {
        let mut at = self.at.lock().unwrap_or_else(PoisonError::into_inner);
        *at = at.filter(|at| now < *at).map(|at| at.max(to));
    }

    fn lose(&self) {
        *self.at.lock().unwrap_or_else(PoisonError::into_inner) = None;
    }
}

/// The time since the machine was started, its sleep included.
fn now() -> Duration {
    let time = clock_gettime(ClockId::Boottime);
    Duration::new(u64::try_from(time.tv_sec).unwrap_or(0), u32::try_from(time.tv_nsec).unwrap_or(0))
}

#[cfg(test)]
mod tests;
