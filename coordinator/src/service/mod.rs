//! The gRPC face of a coordinator. The same messages go through a function call when both sides are one process.

pub mod worker;
