//! The gRPC face of a coordinator. The same messages go through a function call when both sides are one process.

pub mod cluster;
pub mod role;
pub mod worker;

use baler_common::model::error::{Failure, FailureClass};
use baler_proto::v1;
use prost::Message;
use tonic::{Code, Status};

/// The status that carries a failure.
///
/// A failure travels whole in the details, so that a worker reacts to its class and a person reads the same words on both
/// sides. The status code is for what lies between: only a passing fault is `UNAVAILABLE`.
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
