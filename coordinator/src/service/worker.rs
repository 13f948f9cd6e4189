//! Answers workers over a connection: each call is one [`Coordinator::report`].
//!
//! A failure travels whole in the details of the status, so that a worker reacts to its class and a person reads the same
//! words on both sides. The status code is for what lies between: only a passing fault is `UNAVAILABLE`.

use std::sync::Arc;

use baler_common::model::error::{Failure, FailureClass};
use baler_proto::v1;
use baler_proto::v1::worker_server::{Worker, WorkerServer};
use prost::Message;
use tonic::{Code, Request, Response, Status};

use crate::driver::Coordinator;

/// Largest report that is read, in bytes. A worker names its attempts and receipts in it, never the inputs.
const REPORT_BYTES_MAX: usize = 64 << 20;

/// The service of one run.
pub struct WorkerService {
    coordinator: Arc<Coordinator>,
}

impl WorkerService {
    pub fn new(coordinator: Arc<Coordinator>) -> Self {
        Self { coordinator }
    }

    /// The service for a server.
    pub fn server(coordinator: Arc<Coordinator>) -> WorkerServer<Self> {
        WorkerServer::new(Self::new(coordinator)).max_decoding_message_size(REPORT_BYTES_MAX)
    }
}

#[tonic::async_trait]
impl Worker for WorkerService {
    async fn report(&self, request: Request<v1::ReportRequest>) -> Result<Response<v1::ReportReply>, Status> {
        let reply = self.coordinator.report(request.into_inner()).await;
        reply.map(Response::new).map_err(|failure| status(&failure))
    }
}

/// The status that carries a failure.
fn status(failure: &Failure) -> Status {
    let code = match failure.class {
        FailureClass::Transient | FailureClass::WorkerLost => Code::Unavailable,
        FailureClass::Policy | FailureClass::Unsupported => Code::FailedPrecondition,
        FailureClass::InputChanged
        | FailureClass::InputMissing
        | FailureClass::InputCorrupt
        | FailureClass::SchemaMismatch
        | FailureClass::FingerprintMismatch => Code::DataLoss,
        FailureClass::Cancelled => Code::Cancelled,
    };
    Status::with_details(code, failure.to_string(), v1::Failure::from(failure).encode_to_vec().into())
}
