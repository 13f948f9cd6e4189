//! Which running job is worth a second attempt. Pure.
//!
//! At the end of a run everyone waits for the last jobs. One that runs much longer than jobs of its size did is given
//! to another worker too; the first valid outcome wins, and the other attempt is stopped.

use std::time::Duration;

use baler_common::model::id::JobId;

/// One in so many of a run's jobs, but at least one, may be left when any is tried twice.
const LEFT: usize = 10;
/// How much longer than almost all others a job must have run.
const SLOWER: f64 = 2.0;
/// Part of the running attempts that may be second ones; one always may.
const SECOND_MAX: f64 = 0.1;

/// A job that one attempt works on.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Running {
    pub job: JobId,
    pub bytes: u64,
    pub ran: Duration,
    /// Whether the worker that asks runs it, or two attempts do.
    pub is_taken: bool,
}

/// What is known of a run.
#[derive(Debug, Clone, PartialEq)]
pub struct Pace<'a> {
    pub jobs: usize,
    pub ended: usize,
    /// Attempts that are second ones.
    pub second: usize,
    /// Seconds a byte of jobs that ended well.
    pub seconds_per_byte: &'a [f64],
    /// No job that ran for less is tried twice.
    pub least: Duration,
}

/// The job that is furthest behind, if one is.
pub fn straggler(running: &[Running], pace: &Pace<'_>) -> Option<JobId> {
    if pace.jobs.saturating_sub(pace.ended) > (pace.jobs / LEFT).max(1) || pace.seconds_per_byte.is_empty() {
        return None;
    }
    if pace.second as f64 >= (SECOND_MAX * running.len() as f64).max(1.0) {
        return None;
    }
    let mut sorted = pace.seconds_per_byte.to_vec();
    sorted.sort_by(f64::total_cmp);
    let usual = sorted[(sorted.len() * 95 / 100).min(sorted.len() - 1)];
    let behind = |one: &Running| one.ran.as_secs_f64() / (usual * one.bytes.max(1) as f64);
    running
        .iter()
        .filter(|one| !one.is_taken && one.ran >= pace.least && behind(one) > SLOWER)
        .max_by(|one, other| behind(one).total_cmp(&behind(other)))
        .map(|one| one.job)
}

#[cfg(test)]
mod tests {
    use super::*;

    const PACE: Pace<'static> =
        Pace { jobs: 100, ended: 95, second: 0, seconds_per_byte: &[0.1; 95], least: Duration::from_secs(60) };

    fn running(job: u32, bytes: u64, seconds: u64) -> Running {
        Running { job: JobId(job), bytes, ran: Duration::from_secs(seconds), is_taken: false }
    }

    #[test]
    fn the_job_that_is_furthest_behind_its_size_is_tried_twice() {
        let all = [running(1, 1000, 190), running(2, 1000, 250), running(3, 10, 61)];
        assert_eq!(straggler(&all, &PACE), Some(JobId(3)));
        assert_eq!(straggler(&all[..2], &PACE), Some(JobId(2)));
        assert_eq!(straggler(&all[..1], &PACE), None, "not twice as slow");
        assert_eq!(straggler(&[running(4, 10, 59)], &PACE), None, "too early");
    }

    #[test]
    fn nothing_is_tried_twice_in_the_middle_of_a_run_or_by_the_same_worker() {
        let slow = [running(3, 10, 900)];
        assert_eq!(straggler(&slow, &Pace { ended: 80, ..PACE }), None);
        assert_eq!(straggler(&slow, &Pace { second: 1, ..PACE }), None);
        assert_eq!(straggler(&slow, &Pace { seconds_per_byte: &[], ..PACE }), None);
        assert_eq!(straggler(&[Running { is_taken: true, ..slow[0] }], &PACE), None);
    }
}
