//! The worker measures: it reads a run of input files, writes one new object, and proves with an independent decoder
//! that the rows are the same. It knows no table format and commits nothing.

pub mod attempt;
pub mod connection;
pub mod context;
pub mod distinct;
pub mod fingerprint;
pub mod mask;
pub mod read;
pub mod session;
pub mod slots;
pub mod verify;
pub mod write;
