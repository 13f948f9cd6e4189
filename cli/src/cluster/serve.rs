//! `baler coordinator`: stands by, leads when it is its turn, and ends when it may not lead any more.
//!
//! It never goes on after it lost the lead: it exits, and whoever supervises it starts it again. So there is one way
//! into leading, and it is the one that every test takes.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use baler_common::model::error::{Failure, FailureClass};
use baler_common::runtime::random::random_u64;
use baler_coordinator::compaction::{CompactError, TableResult};
use baler_coordinator::driver::Settings;
use baler_coordinator::service::cluster::UserService;
use baler_coordinator::service::role::Role;
use baler_coordinator::service::worker::WorkerService;
use baler_coordinator::state::StateError;
use baler_coordinator::state::election::{self, Candidate};
use baler_coordinator::state::embedded::EmbeddedStore;
use baler_coordinator::state::etcd::{EtcdOptions, EtcdStore};
use baler_coordinator::state::leadership::Leadership;
use baler_coordinator::submissions::{Render, Submissions};
use tonic::transport::Server;

use super::{open_stores, server_tls};
use crate::args::CoordinatorArgs;
use crate::compaction::runtime;
use crate::show::{Style, compaction};

/// Streams of one connection at most.
const STREAMS_MAX: u32 = 64;
/// How often a standby looks who leads.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// `baler coordinator`. Fails with [`StateError::Fenced`] when the lead was lost: the process is to be started again.
pub fn coordinator(args: &CoordinatorArgs) -> Result<bool, CompactError> {
    let tls = server_tls(&args.tls)?;
    if tls.is_none() && !args.listen.ip().is_loopback() {
        let message = format!(
            "{} can be reached from elsewhere, so --tls-ca, --tls-cert and --tls-key are needed; without them only \
             127.0.0.1 and [::1] are listened on",
            args.listen
        );
        return Err(Failure::new(FailureClass::Policy, message).into());
    }
    let stores = Arc::new(open_stores(&args.stores)?);
    let runtime = runtime()?;
    let ended = runtime.block_on(async {
        let role = Arc::new(Role::default());
        let listener = tokio::net::TcpListener::bind(args.listen)
            .await
            .map_err(|error| Failure::new(FailureClass::Policy, format!("listen on {}: {error}", args.listen)))?;
        let address = listener.local_addr().unwrap_or(args.listen);
        let scheme = if tls.is_some() { "https" } else { "http" };
        let own = args.advertise.clone().unwrap_or_else(|| format!("{scheme}://{address}"));
        let mut server = Server::builder()
            .max_concurrent_streams(STREAMS_MAX)
            .http2_keepalive_interval(Some(Duration::from_secs(20)))
            .http2_keepalive_timeout(Some(Duration::from_secs(10)));
        if let Some(tls) = tls {
            server = server
                .tls_config(tls)
                .map_err(|error| Failure::new(FailureClass::Policy, format!("set up TLS: {error}")))?;
        }
        let users = UserService::new(role.clone());
        let serving = server
            .add_service(WorkerService::server(role.clone()))
            .add_service(users.clone().compactions())
            .add_service(users.cluster())
            .serve_with_incoming(tokio_stream::wrappers::TcpListenerStream::new(listener));
        println!("listening on {address}");
        let mut serving = tokio::spawn(serving);
        tokio::select! {
            ended = &mut serving => {
                let message = format!("the server ended: {ended:?}");
                Err(Failure::new(FailureClass::Transient, message).into())
            }
            led = lead(args, &own, &role, stores) => match led? {
                true => Ok(true),
                false => Err(StateError::Fenced.into()),
            },
        }
    });
    // A commit that is being made is not waited for: another coordinator may lead by now, and finishes it.
    runtime.shutdown_background();
    ended
}

/// Waits for the lead, leads, and returns when that is over: true when it was asked to end.
async fn lead(
    args: &CoordinatorArgs,
    own: &str,
    role: &Arc<Role>,
    stores: Arc<baler_common::runtime::storage::Stores>,
) -> Result<bool, CompactError> {
    let usual = Settings::default();
    // Never longer than a worker waits for an answer, however long its lease is.
    let settings = Settings { lease: args.worker_lease, poll: usual.poll.min(args.worker_lease / 8), ..usual };
    let render: Render = Arc::new(|result: &TableResult| {
        (compaction::text(result, Style::plain()), compaction::table_json(result).to_string())
    });
    let holder = format!("{own} pid {}", std::process::id());
    let mut asked_to_end = std::pin::pin!(crate::work::interrupted());
    let Some(endpoints) = &args.etcd else {
        let Some(path) = &args.state else {
            let message = "name the etcd servers with --etcd, or, for a single coordinator, a file with --state";
            return Err(Failure::new(FailureClass::Policy, message).into());
        };
        let store = Arc::new(EmbeddedStore::open(path)?);
        let leadership = Leadership::take(store, &holder, random_u64()).await?;
        let submissions = Submissions::load(leadership, stores, settings, render).await?;
        let mut lost = submissions.lost();
        role.lead(submissions);
        return Ok(tokio::select! {
            () = &mut asked_to_end => true,
            _ = lost.wait_for(|lost| *lost) => false,
        });
    };
    let store = EtcdStore::connect(EtcdOptions::new(endpoints.clone())).await?;
    let candidate = Candidate { store: store.clone(), holder, address: own.to_owned(), ttl: args.lease_ttl };
    let known = role.clone();
    let looks = store.clone();
    // A standby tells workers and users where the leader is.
    let looking = tokio::spawn(async move {
        loop {
            if let Ok(leader) = election::leader(&looks).await {
                known.set_leader(leader.map(|leader| leader.address));
            }
            tokio::time::sleep(LOOK_EVERY).await;
        }
    });
    let (leadership, term) = tokio::select! {
        () = &mut asked_to_end => return Ok(true),
        won = candidate.campaign() => won?,
    };
    looking.abort();
    let lease_lost = term.lost();
    let leading = async {
        let submissions = Submissions::load(leadership, stores, settings, render).await?;
        let mut lost = submissions.lost();
        role.lead(submissions);
        tracing::info!("this coordinator leads");
        let _ = lost.wait_for(|lost| *lost).await;
        Ok::<_, CompactError>(())
    };
    tokio::select! {
        () = &mut asked_to_end => {
            role.stand_by();
            term.resign().await?;
            Ok(true)
        }
        () = lease_lost => {
            role.stand_by();
            tracing::error!("the lease is lost: another coordinator may lead, so this one ends");
            Ok(false)
        }
        ended = leading => {
            role.stand_by();
            ended?;
            tracing::error!("the state cannot be written any more, so this coordinator ends");
            Ok(false)
        }
    }
}

/// Parses `HOST:PORT`.
pub fn parse_listen(text: &str) -> Result<SocketAddr, String> {
    text.parse().map_err(|_| format!("{text:?} is not ADDRESS:PORT, such as 127.0.0.1:7070"))
}
