//! The nouns both sides of Baler speak, and how a Baler process lives.
//!
//! [`model`] holds plain data: no I/O, no async, no serialization. [`runtime`] holds what every process needs around
//! it: object storage from a URL, the clock, telemetry. A module lives here only while two crates import it.

pub mod model;
pub mod runtime;
