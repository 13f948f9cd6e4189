//! Coordinators behind connections.
//!
//! Every call has a time limit, and a connection that is silent is given up, so that a worker is never held by a host
//! that is gone. What the coordinator says is told apart from what happened on the way: only the former can end a session.

use std::sync::Mutex;
use std::time::Duration;

use async_trait::async_trait;
use baler_common::model::error::{Failure, FailureClass};
use baler_proto::v1::worker_client::WorkerClient;
use baler_proto::{LEADER_KEY, convert, v1};
use prost::Message;
use tonic::transport::{Channel, ClientTlsConfig, Endpoint};
use tonic::{Code, Status};

use crate::session::Reporter;

/// Longest call: the coordinator holds an answer back for two seconds at most. A leader that stands still, its connections
/// open, is given up after this, so that the next one hears of the attempts while their leases last.
const CALL_MAX: Duration = Duration::from_secs(8);
const CONNECT_MAX: Duration = Duration::from_secs(5);
/// How often a silent connection is asked whether it lives, and how long it may take to say so.
const ALIVE_EVERY: Duration = Duration::from_secs(20);
const ALIVE_MAX: Duration = Duration::from_secs(10);
/// Largest answer that is read, in bytes: a job names each of its inputs.
const REPLY_BYTES_MAX: usize = 64 << 20;

/// The coordinators at some addresses, of which one leads. Connects when it is first needed, and again after a loss.
#[derive(Debug)]
pub struct Connection {
    tls: Option<ClientTlsConfig>,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    clients: Vec<(String, WorkerClient<Channel>)>,
    /// The one that is asked.
    current: usize,
}

impl Connection {
    /// Connections to `http://host:port`, or `https://` with `tls`. The first one is asked first.
    ///
    /// # Errors
    /// An address is none, or there is none.
    pub fn new<A: AsRef<str>>(addresses: &[A], tls: Option<ClientTlsConfig>) -> Result<Self, Failure> {
        let clients = addresses
            .iter()
            .map(|address| Ok((address.as_ref().to_owned(), client(address.as_ref(), tls.as_ref())?)))
            .collect::<Result<Vec<_>, Failure>>()?;
        if clients.is_empty() {
            return Err(Failure::new(FailureClass::Policy, "no address of a coordinator is given"));
        }
        Ok(Self { tls, state: Mutex::new(State { clients, current: 0 }) })
    }

    fn current(&self) -> (usize, WorkerClient<Channel>) {
        let state = self.state.lock().expect("no holder of the lock panics");
        (state.current, state.clients[state.current].1.clone())
    }

    /// Turns to the leader that was named, else to the next address; nothing when somebody did so meanwhile.
    fn turn(&self, from: usize, leader: Option<&str>) {
        let mut state = self.state.lock().expect("no holder of the lock panics");
        if state.current != from {
            return;
        }
        let named = leader.and_then(|leader| state.clients.iter().position(|(address, _)| address == leader));
        state.current = match (named, leader.map(|leader| (leader, client(leader, self.tls.as_ref())))) {
            (Some(place), _) => place,
            (None, Some((leader, Ok(client)))) => {
                let leader = leader.to_owned();
                state.clients.push((leader, client));
                state.clients.len() - 1
            }
            _ => (from + 1) % state.clients.len(),
        };
    }
}

fn client(address: &str, tls: Option<&ClientTlsConfig>) -> Result<WorkerClient<Channel>, Failure> {
    let wrong = |error: tonic::transport::Error| {
        Failure::new(FailureClass::Policy, format!("{address:?} is not the address of a coordinator: {error}"))
    };
    let mut endpoint = Endpoint::from_shared(address.to_owned()).map_err(wrong)?;
    if let Some(tls) = tls {
        endpoint = endpoint.tls_config(tls.clone()).map_err(wrong)?;
    }
    let channel = endpoint
        .timeout(CALL_MAX)
        .connect_timeout(CONNECT_MAX)
        .http2_keep_alive_interval(ALIVE_EVERY)
        .keep_alive_timeout(ALIVE_MAX)
        .keep_alive_while_idle(true)
        .connect_lazy();
    Ok(WorkerClient::new(channel).max_decoding_message_size(REPLY_BYTES_MAX))
}

#[async_trait]
impl Reporter for Connection {
    async fn report(&self, request: v1::ReportRequest) -> Result<v1::ReportReply, Failure> {
        let (place, mut client) = self.current();
        match client.report(request).await {
            Ok(reply) => Ok(reply.into_inner()),
            Err(status) => {
                let failure = failure(&status);
                if failure.class == FailureClass::Transient {
                    let leader = status.metadata().get(LEADER_KEY).and_then(|value| value.to_str().ok());
                    self.turn(place, leader);
                }
                Err(failure)
            }
        }
    }
}

/// The coordinator's own failure where the status carries one; trouble on the way is waited out.
fn failure(status: &Status) -> Failure {
    if let Ok(wire) = v1::Failure::decode(status.details())
        && !wire.code.is_empty()
        && let Ok(failure) = convert::failure_from_wire(wire)
    {
        return failure;
    }
    let class = match status.code() {
        Code::Unimplemented | Code::InvalidArgument | Code::Unauthenticated | Code::PermissionDenied => {
            FailureClass::Policy
        }
        _ => FailureClass::Transient,
    };
    Failure::new(class, format!("report to the coordinator: {}", status.message()))
}
