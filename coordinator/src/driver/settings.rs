//! Timers and limits of a run. Times are monotonic and only decide when to try again.

use std::time::Duration;

use crate::lifecycle::job::Limits;

/// Timers and limits of a run.
#[derive(Debug, Clone, Copy)]
pub struct Settings {
    pub limits: Limits,
    /// How long an attempt stays its worker's without a report.
    pub lease: Duration,
    /// How long an answer with nothing in it is held back.
    pub poll: Duration,
    /// How long a job waits after its first failure; doubled with each further one, up to [`RETRY_AFTER_MAX`].
    pub retry_after: Duration,
    /// How long an attempt may report without getting any further before it counts as hung.
    pub stall: Duration,
    /// A job that has run for less is never given to a second worker.
    pub second_after: Duration,
}

/// Longest wait of a job that failed, before it is tried again.
pub const RETRY_AFTER_MAX: Duration = Duration::from_secs(30);

impl Default for Settings {
    fn default() -> Self {
        Self {
            limits: Limits::default(),
            lease: Duration::from_secs(30),
            poll: Duration::from_secs(2),
            retry_after: Duration::from_millis(500),
            stall: Duration::from_secs(600),
            second_after: Duration::from_secs(60),
        }
    }
}
