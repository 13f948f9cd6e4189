//! The wire and the stored form of Baler's messages, and their conversion to and from [`baler_common::model`].
//!
//! Generated types stay at the edges; domain code uses the model. A conversion from the wire checks every field and its
//! failure names the field. This crate knows no I/O.

/// The metadata key in which a coordinator that stands by names the leader's address.
pub const LEADER_KEY: &str = "baler-leader";

pub mod convert;
pub mod framed;

/// Messages between processes and in plan files.
#[allow(missing_docs, clippy::all)]
pub mod v1 {
    tonic::include_proto!("baler.v1");
}

/// Records in the state store.
#[allow(missing_docs, clippy::all)]
pub mod state {
    tonic::include_proto!("baler.state.v1");
}
