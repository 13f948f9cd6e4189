//! The state store in etcd, shared by coordinators on several machines.
//!
//! Every key stands below a prefix, and revisions are etcd's own. What a failed call means is decided in one place,
//! `Trouble::of`: a request that etcd did not take, because it never left or because etcd was busy, is sent again; a
//! read whose answer was lost is sent again too; a transaction whose answer was lost is [`Applied::Unknown`], and the
//! caller looks. Reads are linearizable, and the pages of one range are of one revision.
//!
//! No state is taken from watch events: they may come late, twice or never, and only say when to look again.
//! Leases, which leadership rests on, are in `leases.rs`.

mod leases;

use std::fmt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use async_trait::async_trait;
use baler_common::runtime::killpoint::killpoint;
use baler_common::runtime::random::random_u64;
use etcd_client::{
    Certificate, Client, CompareOp, ConnectOptions, GetOptions, Identity, KvClient, TlsOptions, Txn, TxnOp,
};
use tonic::{Code, Status};
use tracing::debug;

pub use self::leases::LeaseId;
use super::{Applied, Change, Compare, Entry, Page, StateError, StateStore, check_limits};

/// Entries of one page at most.
const PAGE_MAX: usize = 5_000;

/// Bytes of one answer at most. A page that is larger is asked for again in halves.
const ANSWER_BYTES_MAX: usize = 64 * 1_024 * 1_024;

/// Bytes of a key prefix at most; the limits of a transaction leave room for it.
const PREFIX_BYTES_MAX: usize = 128;

/// Pings on a busy connection: etcd drops clients that send them more often than every 5 s.
const PING_INTERVAL: Duration = Duration::from_secs(10);
const PING_TIMEOUT: Duration = Duration::from_secs(5);

const PAUSE_MIN: Duration = Duration::from_millis(50);
const PAUSE_MAX: Duration = Duration::from_secs(1);

/// Where etcd is and how to talk to it.
#[derive(Clone)]
pub struct EtcdOptions {
    /// `http://host:2379` or `https://…`, one for each member.
    pub endpoints: Vec<String>,
    /// What all keys begin with; tables that share an etcd have different ones.
    pub prefix: String,
    pub user: Option<EtcdUser>,
    /// Needed for `https` endpoints.
    pub tls: Option<EtcdTls>,
    pub connect_timeout: Duration,
    /// After this an answer counts as lost.
    pub call_timeout: Duration,
    /// How long a call that etcd did not take, or a read, is tried again.
    pub retry_for: Duration,
}

/// Who logs in to etcd.
#[derive(Clone)]
pub struct EtcdUser {
    pub name: String,
    pub password: String,
}

/// The certificates, PEM files, of a connection to etcd.
#[derive(Debug, Clone)]
pub struct EtcdTls {
    /// The authority that signed etcd's certificate.
    pub ca: PathBuf,
    /// The client's own certificate and its key, where etcd asks for one.
    pub identity: Option<(PathBuf, PathBuf)>,
}

impl EtcdOptions {
    /// The defaults: keys below `/baler/`, no user, no TLS.
    pub fn new(endpoints: Vec<String>) -> Self {
        Self {
            endpoints,
            prefix: "/baler/".to_owned(),
            user: None,
            tls: None,
            connect_timeout: Duration::from_secs(3),
            call_timeout: Duration::from_secs(5),
            retry_for: Duration::from_secs(30),
        }
    }

    fn check(&self) -> Result<(), String> {
        if self.endpoints.is_empty() {
            return Err("no endpoint is given".to_owned());
        }
        for endpoint in &self.endpoints {
            if endpoint.contains('@') {
                return Err("an endpoint holds no user and password: they have options of their own".to_owned());
            }
            let secure = endpoint.starts_with("https://");
            if !secure && !endpoint.starts_with("http://") {
                return Err(format!("{endpoint} begins with neither http:// nor https://"));
            }
            if secure != self.tls.is_some() {
                let wanted = if secure { "https needs the certificate of its authority" } else { "TLS needs https" };
                return Err(format!("{endpoint}: {wanted}"));
            }
        }
        if self.prefix.is_empty() || self.prefix.len() > PREFIX_BYTES_MAX {
            return Err(format!("the prefix has {} bytes, 1 to {PREFIX_BYTES_MAX} are possible", self.prefix.len()));
        }
        Ok(())
    }

    async fn connect_options(&self) -> Result<ConnectOptions, String> {
        let mut options = ConnectOptions::new()
            .with_connect_timeout(self.connect_timeout)
            .with_tcp_keepalive(PING_INTERVAL)
            .with_keep_alive(PING_INTERVAL, PING_TIMEOUT)
            .with_require_leader(true);
        if let Some(user) = &self.user {
            options = options.with_user(&user.name, &user.password).with_auto_token_refresh(true);
        }
        if let Some(tls) = &self.tls {
            let mut config = TlsOptions::new().ca_certificate(Certificate::from_pem(read_file(&tls.ca).await?));
            if let Some((certificate, key)) = &tls.identity {
                config = config.identity(Identity::from_pem(read_file(certificate).await?, read_file(key).await?));
            }
            options = options.with_tls(config);
        }
        Ok(options)
    }
}

async fn read_file(path: &Path) -> Result<Vec<u8>, String> {
    tokio::fs::read(path).await.map_err(|error| format!("read {}: {error}", path.display()))
}

impl fmt::Debug for EtcdOptions {
    /// Without the password.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EtcdOptions")
            .field("endpoints", &self.endpoints)
            .field("prefix", &self.prefix)
            .field("user", &self.user.as_ref().map(|user| &user.name))
            .field("tls", &self.tls)
            .finish_non_exhaustive()
    }
}

/// The store in etcd. Clones share one connection.
#[derive(Clone)]
pub struct EtcdStore {
    client: Client,
    kv: KvClient,
    options: EtcdOptions,
}

impl fmt::Debug for EtcdStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EtcdStore").field("options", &self.options).finish_non_exhaustive()
    }
}

impl EtcdStore {
    /// Connects, logs in, and reads once, so that a wrong address, certificate or password is told here.
    ///
    /// # Errors
    /// [`StateError::Etcd`] for options that cannot be right, and when etcd refuses or stays silent.
    pub async fn connect(options: EtcdOptions) -> Result<Self, StateError> {
        let endpoints = options.endpoints.join(",");
        let failed = |message: String| StateError::Etcd { endpoints: endpoints.clone(), message };
        options.check().map_err(failed)?;
        let connect_options = options.connect_options().await.map_err(failed)?;
        let connect = || Client::connect(&options.endpoints, Some(connect_options.clone()));
        let client = repeat(&options, Repeat::NotTakenOrLost, connect).await;
        let client = client.map_err(|trouble| failed(trouble.to_string()))?;
        let kv = client.kv_client().max_decoding_message_size(ANSWER_BYTES_MAX);
        let store = Self { client, kv, options };
        store.get("").await?;
        Ok(store)
    }

    fn key(&self, key: &str) -> String {
        format!("{}{key}", self.options.prefix)
    }

    fn failed(&self, trouble: &Trouble) -> StateError {
        StateError::Etcd { endpoints: self.options.endpoints.join(","), message: trouble.to_string() }
    }

    async fn read(&self, key: &str, options: GetOptions) -> Result<etcd_client::GetResponse, Trouble> {
        let read = || {
            let (mut kv, key, options) = (self.kv.clone(), key.to_owned(), options.clone());
            async move { kv.get(key, Some(options)).await }
        };
        repeat(&self.options, Repeat::NotTakenOrLost, read).await
    }

    /// Sends a transaction until etcd takes it, and then never again.
    async fn send(&self, compares: &[Compare], changes: Vec<TxnOp>) -> Result<Result<Applied, Trouble>, StateError> {
        let Some(compares) = compares.iter().map(|compare| self.compare(compare)).collect::<Option<Vec<_>>>() else {
            return Ok(Ok(Applied::Conflict));
        };
        let txn = Txn::new().when(compares).and_then(changes);
        let send = || {
            let (mut kv, txn) = (self.kv.clone(), txn.clone());
            async move { kv.txn(txn).await }
        };
        killpoint("store-commit-before");
        let answer = repeat(&self.options, Repeat::NotTaken, send).await;
        killpoint("store-commit-after");
        match answer {
            Ok(answer) if answer.succeeded() => {
                let revision = answer.header().map(etcd_client::ResponseHeader::revision);
                Ok(Ok(Applied::Yes(self.revision(revision)?)))
            }
            Ok(_) => Ok(Ok(Applied::Conflict)),
            Err(Trouble::Lost(message)) => {
                debug!(message, "the answer to a transaction was lost");
                Ok(Ok(Applied::Unknown))
            }
            Err(trouble) => Ok(Err(trouble)),
        }
    }

    /// `None` for what never holds: revisions begin with 1, and etcd says 0 for a key that is absent.
    fn compare(&self, compare: &Compare) -> Option<etcd_client::Compare> {
        match compare {
            Compare::Absent(key) => Some(etcd_client::Compare::create_revision(self.key(key), CompareOp::Equal, 0)),
            Compare::Revision(key, revision) => {
                let revision = i64::try_from(*revision).ok().filter(|revision| *revision > 0)?;
                Some(etcd_client::Compare::mod_revision(self.key(key), CompareOp::Equal, revision))
            }
        }
    }

    fn change(&self, change: &Change) -> TxnOp {
        match change {
            Change::Put(key, value) => TxnOp::put(self.key(key), value.as_slice(), None),
            Change::Delete(key) => TxnOp::delete(self.key(key), None),
        }
    }

    fn entry(&self, stored: &etcd_client::KeyValue) -> Result<Entry, StateError> {
        let key = String::from_utf8_lossy(stored.key());
        let key = key.strip_prefix(&self.options.prefix).unwrap_or(&key).to_owned();
        Ok(Entry { revision: self.revision(Some(stored.mod_revision()))?, key, value: stored.value().to_vec() })
    }

    fn revision(&self, revision: Option<i64>) -> Result<u64, StateError> {
        let revision = revision.and_then(|revision| u64::try_from(revision).ok());
        revision.ok_or_else(|| self.failed(&Trouble::Refused("an answer without a revision".to_owned())))
    }
}

#[async_trait]
impl StateStore for EtcdStore {
    async fn txn(&self, compares: &[Compare], changes: &[Change]) -> Result<Applied, StateError> {
        check_limits(compares, changes)?;
        let changes = changes.iter().map(|change| self.change(change)).collect();
        self.send(compares, changes).await?.map_err(|trouble| self.failed(&trouble))
    }

    async fn get(&self, key: &str) -> Result<Option<Entry>, StateError> {
        let answer = self.read(&self.key(key), GetOptions::new()).await.map_err(|trouble| self.failed(&trouble))?;
        answer.kvs().first().map(|stored| self.entry(stored)).transpose()
    }

    async fn range(
        &self,
        prefix: &str,
        after: Option<&str>,
        limit: usize,
        at: Option<u64>,
    ) -> Result<Page, StateError> {
        let prefix = self.key(prefix);
        let end = end_of(&prefix);
        // The first key above `after` is `after` and a zero.
        let start = after.map_or(prefix.clone(), |after| prefix.clone().max(format!("{}\0", self.key(after))));
        let revision = at.map_or(Some(0), |at| i64::try_from(at).ok().filter(|at| *at > 0));
        let revision = revision.ok_or_else(|| StateError::Io(format!("{at:?} is no revision of etcd")))?;
        let mut limit = limit.min(PAGE_MAX);
        loop {
            // To etcd no limit is 0.
            let wanted = i64::try_from(limit.max(1)).unwrap_or(i64::MAX);
            let options = GetOptions::new().with_range(end.clone()).with_limit(wanted).with_revision(revision);
            let answer = match self.read(&start, options).await {
                Ok(answer) => answer,
                Err(Trouble::TooLong) if limit > 1 => {
                    limit /= 2;
                    continue;
                }
                Err(Trouble::Compacted) => return Err(StateError::Compacted(at.unwrap_or(0))),
                Err(trouble) => return Err(self.failed(&trouble)),
            };
            let mut entries = answer.kvs().iter().map(|stored| self.entry(stored)).collect::<Result<Vec<_>, _>>()?;
            let more = answer.more() || entries.len() > limit;
            entries.truncate(limit);
            let newest = self.revision(answer.header().map(etcd_client::ResponseHeader::revision))?;
            return Ok(Page { entries, revision: at.unwrap_or(newest), more });
        }
    }
}

/// The end of the range of all keys that begin with a prefix.
fn end_of(prefix: &str) -> Vec<u8> {
    let mut end = prefix.as_bytes().to_vec();
    while let Some(last) = end.pop() {
        if last < u8::MAX {
            end.push(last + 1);
            return end;
        }
    }
    // To etcd: up to the last key.
    vec![0]
}

/// Why a call gave no answer that can be used.
#[derive(Debug)]
enum Trouble {
    /// etcd has it not done and will not.
    Refused(String),
    /// As refused: the lease is gone.
    LeaseGone,
    /// As refused: the revision is not kept any more.
    Compacted,
    /// The answer is larger than [`ANSWER_BYTES_MAX`].
    TooLong,
    /// The request was never sent, or etcd was too busy to take it.
    NotTaken(String),
    /// It may have been done or not.
    Lost(String),
}

impl Trouble {
    fn of(error: &etcd_client::Error) -> Self {
        use etcd_client::Error;
        match error {
            Error::GRpcStatus(status) => Self::of_status(status),
            Error::InvalidArgs(_) | Error::InvalidUri(_) | Error::InvalidMetadataValue(_) | Error::Utf8Error(_) => {
                Self::Refused(error.to_string())
            }
            Error::LeaseKeepAliveError(message) if message == "lease not found" => Self::LeaseGone,
            _ => Self::Lost(error.to_string()),
        }
    }

    fn of_status(status: &Status) -> Self {
        let message = status.message().to_owned();
        if never_sent(status) {
            return Self::NotTaken(with_causes(status));
        }
        match status.code() {
            Code::NotFound if message.contains("lease") => Self::LeaseGone,
            Code::OutOfRange if message.contains("compacted") => Self::Compacted,
            Code::OutOfRange if message.contains("message length too large") => Self::TooLong,
            Code::ResourceExhausted if message.contains("too many requests") => Self::NotTaken(message),
            Code::InvalidArgument
            | Code::NotFound
            | Code::AlreadyExists
            | Code::PermissionDenied
            | Code::ResourceExhausted
            | Code::FailedPrecondition
            | Code::OutOfRange
            | Code::Unimplemented
            | Code::Unauthenticated => Self::Refused(message),
            Code::Ok
            | Code::Cancelled
            | Code::Unknown
            | Code::DeadlineExceeded
            | Code::Aborted
            | Code::Internal
            | Code::Unavailable
            | Code::DataLoss => Self::Lost(with_causes(status)),
        }
    }
}

impl fmt::Display for Trouble {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Refused(message) | Self::NotTaken(message) | Self::Lost(message) => f.write_str(message),
            Self::LeaseGone => f.write_str("the lease is gone"),
            Self::Compacted => f.write_str("the revision is not kept any more"),
            Self::TooLong => f.write_str("one entry is larger than an answer may be"),
        }
    }
}

/// Whether there was no connection that the request could have left by.
fn never_sent(status: &Status) -> bool {
    causes(status).any(|cause| cause.is::<tonic::ConnectError>())
}

fn causes(status: &Status) -> impl Iterator<Item = &(dyn std::error::Error + 'static)> {
    std::iter::successors(std::error::Error::source(status), |cause| cause.source())
}

fn with_causes(status: &Status) -> String {
    let mut text = status.message().to_owned();
    for cause in causes(status) {
        let cause = cause.to_string();
        if !text.contains(&cause) {
            text = format!("{text}: {cause}");
        }
    }
    text
}

/// What is safe to send again.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Repeat {
    /// A transaction: what etcd did not take.
    NotTaken,
    /// A read: also when the answer was lost.
    NotTakenOrLost,
}

/// Makes a call until there is an answer, or trouble that another try does not mend, or the time is over.
async fn repeat<T, F>(options: &EtcdOptions, safe: Repeat, call: impl Fn() -> F) -> Result<T, Trouble>
where
    F: Future<Output = Result<T, etcd_client::Error>>,
{
    let begun = Instant::now();
    let mut pause = PAUSE_MIN;
    loop {
        let trouble = match within(options.call_timeout, call()).await {
            Err(trouble @ Trouble::NotTaken(_)) => trouble,
            Err(trouble @ Trouble::Lost(_)) if safe == Repeat::NotTakenOrLost => trouble,
            answer => return answer,
        };
        if begun.elapsed() + pause > options.retry_for {
            return Err(Trouble::Refused(format!("no answer for {:?}: {trouble}", options.retry_for)));
        }
        debug!(%trouble, "etcd is asked again");
        // Between the half and the whole, so that many clients do not come back as one.
        tokio::time::sleep(pause.mul_f64(0.5 + fraction() / 2.0)).await;
        pause = (pause * 2).min(PAUSE_MAX);
    }
}

/// One call with a limit.
async fn within<T>(limit: Duration, call: impl Future<Output = Result<T, etcd_client::Error>>) -> Result<T, Trouble> {
    match tokio::time::timeout(limit, call).await {
        Ok(Ok(answer)) => Ok(answer),
        Ok(Err(error)) => Err(Trouble::of(&error)),
        Err(_) => Err(Trouble::Lost(format!("no answer within {limit:?}"))),
    }
}

/// A random number from 0 to 1.
pub(super) fn fraction() -> f64 {
    (random_u64() >> 11) as f64 / (1_u64 << 53) as f64
}

#[cfg(test)]
mod tests;
