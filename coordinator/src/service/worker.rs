//! Answers workers over a connection: each call is one report.

use std::sync::Arc;

use async_trait::async_trait;
use baler_proto::v1;
use baler_proto::v1::worker_server::{Worker, WorkerServer};
use tonic::{Request, Response, Status};

use crate::driver::Coordinator;

/// Largest report that is read, in bytes. A worker names its attempts and receipts in it, never the inputs.
const REPORT_BYTES_MAX: usize = 64 << 20;

/// Whoever takes reports in: one run, or all runs of a cluster.
#[async_trait]
pub trait Reports: Send + Sync + 'static {
    async fn report(&self, request: v1::ReportRequest) -> Result<v1::ReportReply, Status>;
}

#[async_trait]
impl Reports for Coordinator {
    async fn report(&self, request: v1::ReportRequest) -> Result<v1::ReportReply, Status> {
        Coordinator::report(self, request).await.map_err(|failure| super::status(&failure))
    }
}

/// The service for workers.
pub struct WorkerService<R> {
    reports: Arc<R>,
}

impl<R: Reports> WorkerService<R> {
    /// The service for a server.
    pub fn server(reports: Arc<R>) -> WorkerServer<Self> {
        WorkerServer::new(Self { reports }).max_decoding_message_size(REPORT_BYTES_MAX)
    }
}

#[tonic::async_trait]
impl<R: Reports> Worker for WorkerService<R> {
    async fn report(&self, request: Request<v1::ReportRequest>) -> Result<Response<v1::ReportReply>, Status> {
        self.reports.report(request.into_inner()).await.map(Response::new)
    }
}
