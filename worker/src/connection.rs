//! A coordinator behind a connection.
//!
//! Every call has a time limit, and a connection that is silent is given up, so that a worker is never held by a host
//! that is gone. What the coordinator says is told apart from what happened on the way: only the former can end a session.

use std::time::Duration;

use async_trait::async_trait;
use baler_common::model::error::{Failure, FailureClass};
use baler_proto::v1::worker_client::WorkerClient;
use baler_proto::{convert, v1};
use prost::Message;
use tonic::transport::{Channel, Endpoint};
use tonic::{Code, Status};

use crate::session::Reporter;

/// Longest call: the coordinator holds an answer back for less.
const CALL_MAX: Duration = Duration::from_secs(30);
const CONNECT_MAX: Duration = Duration::from_secs(5);
/// How often a silent connection is asked whether it lives, and how long it may take to say so.
const ALIVE_EVERY: Duration = Duration::from_secs(20);
const ALIVE_MAX: Duration = Duration::from_secs(10);
/// Largest answer that is read, in bytes: a job names each of its inputs.
const REPLY_BYTES_MAX: usize = 64 << 20;

/// The coordinator at an address. Connects when it is first needed, and again after a loss.
#[derive(Debug, Clone)]
pub struct Connection {
    client: WorkerClient<Channel>,
}

impl Connection {
    /// A connection to `http://host:port`.
    ///
    /// # Errors
    /// The address is not one.
    pub fn new(address: &str) -> Result<Self, Failure> {
        let endpoint = Endpoint::from_shared(address.to_owned()).map_err(|error| {
            Failure::new(FailureClass::Policy, format!("{address:?} is not the address of a coordinator: {error}"))
        })?;
        let channel = endpoint
            .timeout(CALL_MAX)
            .connect_timeout(CONNECT_MAX)
            .http2_keep_alive_interval(ALIVE_EVERY)
            .keep_alive_timeout(ALIVE_MAX)
            .keep_alive_while_idle(true)
            .connect_lazy();
        Ok(Self { client: WorkerClient::new(channel).max_decoding_message_size(REPLY_BYTES_MAX) })
    }
}

#[async_trait]
impl Reporter for Connection {
    async fn report(&self, request: v1::ReportRequest) -> Result<v1::ReportReply, Failure> {
        let reply = self.client.clone().report(request).await;
        reply.map(tonic::Response::into_inner).map_err(|status| failure(&status))
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
