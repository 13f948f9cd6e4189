//! A report as the driver takes it in.

use baler_common::model::error::{Failure, FailureClass};
use baler_common::model::id::{AttemptId, WorkerId};
use baler_common::model::outcome::{Outcome, Progress};
use baler_proto::{convert, v1};

/// A report with every field checked.
pub(super) struct Request {
    pub worker: WorkerId,
    pub sequence: u64,
    pub free_slots: usize,
    pub running: Vec<(AttemptId, Progress)>,
    pub outcomes: Vec<Outcome>,
}

impl Request {
    pub fn checked(request: v1::ReportRequest) -> Result<Self, Failure> {
        if request.worker.is_empty() {
            return Err(Failure::new(FailureClass::Policy, "message field worker: is empty"));
        }
        let running = |(n, running): (usize, v1::RunningAttempt)| {
            let attempt = convert::attempt_from_wire(&running.attempt);
            let attempt = attempt.map_err(convert::within(format_args!("running[{n}]")))?;
            Ok((attempt, running.progress.unwrap_or_default().into()))
        };
        Ok(Self {
            worker: WorkerId(request.worker),
            sequence: request.sequence,
            free_slots: if request.draining { 0 } else { request.free_slots as usize },
            running: request.running.into_iter().enumerate().map(running).collect::<Result<_, Failure>>()?,
            outcomes: convert::each("outcomes", request.outcomes)?,
        })
    }
}
