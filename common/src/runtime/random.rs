//! Random numbers for identities. Not for secrets.

use std::hash::{BuildHasher, RandomState};
use std::time::{SystemTime, UNIX_EPOCH};

/// 64 random bits: a hash under keys that the operating system drew for this process, of the time in nanoseconds.
pub fn random_u64() -> u64 {
    let elapsed = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |elapsed| elapsed.as_nanos());
    RandomState::new().hash_one((elapsed, std::process::id()))
}
