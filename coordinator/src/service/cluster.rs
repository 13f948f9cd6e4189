//! Answers users of a cluster: submissions, workers, a look over the state.

use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use baler_proto::v1;
use baler_proto::v1::cluster_server::{Cluster, ClusterServer};
use baler_proto::v1::compactions_server::{Compactions, CompactionsServer};
use futures::Stream;
use prost::Message;
use tonic::{Code, Request, Response, Status};

use super::role::Role;
use crate::submissions::SubmitError;

/// Largest request of a user, in bytes.
const REQUEST_BYTES_MAX: usize = 256 << 10;
/// A watcher hears at least this often while figures change.
const TOLD_EVERY: Duration = Duration::from_millis(500);

/// The services for users.
#[derive(Clone)]
pub struct UserService {
    role: Arc<Role>,
}

impl UserService {
    pub fn new(role: Arc<Role>) -> Self {
        Self { role }
    }

    pub fn compactions(self) -> CompactionsServer<Self> {
        CompactionsServer::new(self).max_decoding_message_size(REQUEST_BYTES_MAX)
    }

    pub fn cluster(self) -> ClusterServer<Self> {
        ClusterServer::new(self).max_decoding_message_size(REQUEST_BYTES_MAX)
    }
}

/// `google.rpc.Status` and the one detail that is used, as far as they are needed
/// (<https://github.com/googleapis/googleapis/blob/master/google/rpc/error_details.proto>).
mod rpc {
    #[derive(Clone, PartialEq, prost::Message)]
    pub struct Status {
        #[prost(int32, tag = "1")]
        pub code: i32,
        #[prost(string, tag = "2")]
        pub message: String,
        #[prost(message, repeated, tag = "3")]
        pub details: Vec<Any>,
    }

    #[derive(Clone, PartialEq, prost::Message)]
    pub struct Any {
        #[prost(string, tag = "1")]
        pub type_url: String,
        #[prost(bytes = "vec", tag = "2")]
        pub value: Vec<u8>,
    }

    #[derive(Clone, PartialEq, prost::Message)]
    pub struct BadRequest {
        #[prost(message, repeated, tag = "1")]
        pub field_violations: Vec<FieldViolation>,
    }

    #[derive(Clone, PartialEq, prost::Message)]
    pub struct FieldViolation {
        #[prost(string, tag = "1")]
        pub field: String,
        #[prost(string, tag = "2")]
        pub description: String,
    }
}

/// `INVALID_ARGUMENT` with the standard detail that names the field.
fn bad_field(field: &str, message: &str) -> Status {
    let violation = rpc::FieldViolation { field: field.to_owned(), description: message.to_owned() };
    let detail = rpc::Any {
        type_url: "type.googleapis.com/google.rpc.BadRequest".to_owned(),
        value: rpc::BadRequest { field_violations: vec![violation] }.encode_to_vec(),
    };
    let message = format!("{field}: {message}");
    let code = Code::InvalidArgument;
    let status = rpc::Status { code: code as i32, message: message.clone(), details: vec![detail] };
    Status::with_details(code, message, status.encode_to_vec().into())
}

impl From<SubmitError> for Status {
    fn from(error: SubmitError) -> Self {
        match &error {
            SubmitError::Field { field, message } => bad_field(field, message),
            SubmitError::OtherSpec { .. } => Self::already_exists(error.to_string()),
            SubmitError::Unknown(_) => Self::not_found(error.to_string()),
            SubmitError::Ended => Self::failed_precondition(error.to_string()),
            SubmitError::State(_) => Self::unavailable(error.to_string()),
        }
    }
}

#[tonic::async_trait]
impl Compactions for UserService {
    async fn submit(&self, request: Request<v1::SubmitRequest>) -> Result<Response<v1::SubmitReply>, Status> {
        let v1::SubmitRequest { spec, idempotency_key } = request.into_inner();
        let spec = spec.ok_or_else(|| bad_field("spec", "is missing"))?;
        let submission = self.role.leading()?.submit(spec, &idempotency_key).await?;
        Ok(Response::new(v1::SubmitReply { submission }))
    }

    type WatchStream = Pin<Box<dyn Stream<Item = Result<v1::Submission, Status>> + Send>>;

    async fn watch(&self, request: Request<v1::WatchRequest>) -> Result<Response<Self::WatchStream>, Status> {
        let name = request.into_inner().submission;
        let role = self.role.clone();
        // Unknown names are refused at once.
        role.leading()?.watch(&name).await?;
        let told = futures::stream::unfold(Some((role, None::<v1::Submission>)), move |held| {
            let name = name.clone();
            async move {
                let (role, before) = held?;
                match next(&role, &name, before.as_ref()).await {
                    Ok(now) => {
                        let goes_on = !has_ended(&now);
                        Some((Ok(now.clone()), goes_on.then_some((role, Some(now)))))
                    }
                    Err(status) => Some((Err(status), None)),
                }
            }
        });
        Ok(Response::new(Box::pin(told)))
    }

    async fn list(&self, _: Request<v1::ListRequest>) -> Result<Response<v1::ListReply>, Status> {
        Ok(Response::new(v1::ListReply { submissions: self.role.leading()?.list().await }))
    }

    async fn control(&self, request: Request<v1::ControlRequest>) -> Result<Response<v1::Submission>, Status> {
        let request = request.into_inner();
        let submission = self.role.leading()?.control(&request.submission, request.control()).await?;
        Ok(Response::new(submission))
    }
}

fn has_ended(submission: &v1::Submission) -> bool {
    matches!(submission.state(), v1::SubmissionState::Done | v1::SubmissionState::Cancelled)
}

/// The submission once it is another than `before`.
async fn next(role: &Role, name: &str, before: Option<&v1::Submission>) -> Result<v1::Submission, Status> {
    loop {
        let (now, mut changes) = role.leading()?.watch(name).await?;
        if before != Some(&now) {
            return Ok(now);
        }
        let _ = tokio::time::timeout(TOLD_EVERY, changes.changed()).await;
    }
}

#[tonic::async_trait]
impl Cluster for UserService {
    async fn workers(&self, _: Request<v1::WorkersRequest>) -> Result<Response<v1::WorkersReply>, Status> {
        let submissions = self.role.leading()?;
        let view = |worker: crate::fleet::WorkerState| v1::WorkerView {
            worker: worker.worker,
            free_slots: worker.free_slots,
            running: worker.running,
            draining: worker.draining,
            silent_ms: u64::try_from(worker.silent.as_millis()).unwrap_or(u64::MAX),
        };
        let workers = submissions.fleet().workers().into_iter().map(view).collect();
        Ok(Response::new(v1::WorkersReply { workers, epoch: submissions.fleet().epoch().0 }))
    }

    async fn drain(&self, request: Request<v1::DrainRequest>) -> Result<Response<v1::DrainReply>, Status> {
        let worker = request.into_inner().worker;
        match self.role.leading()?.fleet().dismiss(&worker) {
            true => Ok(Response::new(v1::DrainReply {})),
            false => Err(Status::not_found(format!("no worker {worker} has reported lately"))),
        }
    }

    async fn check(&self, _: Request<v1::CheckRequest>) -> Result<Response<v1::CheckReply>, Status> {
        let reply = self.role.leading()?.check().await.map_err(|error| Status::unavailable(error.to_string()))?;
        Ok(Response::new(reply))
    }
}
