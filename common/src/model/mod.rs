//! Plain data that the coordinator, the worker and the command line share.

pub mod error;
pub mod fingerprint;
pub mod id;
pub mod job;
pub mod object;
pub mod options;
pub mod outcome;
