//! How a Baler process lives: object storage and what surrounds it.

pub mod killpoint;
pub mod random;
pub mod storage;
