//! `audit.jsonl`: a line per output and state change, written as a run goes on.
//!
//! [`line()`] says what an event means for an output; [`AuditTrail`] collects the events of a run and adds their lines when
//! it is told to, because every addition rewrites the list. The list is for people and scripts: nothing reads it back,
//! and a run that dies between two additions loses lines, not work.

use std::sync::Arc;

use baler_common::model::error::Failure;
use baler_common::model::id::JobId;
use serde_json::Value;
use tokio::sync::broadcast;
use tokio::sync::broadcast::error::TryRecvError;

use crate::driver::Event;
use crate::plan::Plan;
use crate::table::directory::DirectoryTable;
use crate::table::directory::lists::{audit_line, record_audit};

/// The lines of one run that are not in the list yet.
pub struct AuditTrail {
    plan: Arc<Plan>,
    target: DirectoryTable,
    events: broadcast::Receiver<Event>,
    /// Jobs that were adopted before anybody listened.
    adopted: Vec<JobId>,
}

impl AuditTrail {
    pub fn new(
        plan: Arc<Plan>,
        target: DirectoryTable,
        events: broadcast::Receiver<Event>,
        adopted: impl IntoIterator<Item = JobId>,
    ) -> Self {
        Self { plan, target, events, adopted: adopted.into_iter().collect() }
    }

    /// Adds what happened since the last time. Blocks.
    ///
    /// # Errors
    /// The list cannot be written; its lines are lost.
    pub fn write(&mut self, now_ms: i64) -> Result<(), Failure> {
        let adopted = std::mem::take(&mut self.adopted);
        let mut lines: Vec<Value> =
            adopted.into_iter().map(|job| line(&self.plan, &Event::Adopted { job }, now_ms)).collect();
        loop {
            match self.events.try_recv() {
                Ok(event) => lines.push(line(&self.plan, &event, now_ms)),
                Err(TryRecvError::Lagged(missed)) => {
                    let detail = format!("{missed} changes came too fast to be listed");
                    lines.push(audit_line(now_ms, &self.plan.compaction.0, "", "", "", &detail));
                }
                Err(TryRecvError::Empty | TryRecvError::Closed) => break,
            }
        }
        if lines.is_empty() { Ok(()) } else { record_audit(&self.target, &lines) }
    }
}

/// What an event means for its output.
pub fn line(plan: &Plan, event: &Event, now_ms: i64) -> Value {
    let (job, from, to, detail) = match event {
        Event::Leased { job, attempt } => (job, "pending", "leased", format!("attempt {attempt}")),
        Event::Adopted { job } => (job, "pending", "verified", "an earlier run's output".to_owned()),
        Event::Verified { job, attempt } => (job, "leased", "verified", format!("attempt {attempt}")),
        Event::Retried { job, attempt, failure } => (job, "leased", "pending", format!("attempt {attempt}: {failure}")),
        Event::Quarantined { job, failure } => (job, "leased", "quarantined", failure.to_string()),
    };
    let output = plan.jobs.get(job.0 as usize).map_or("", |spec| spec.output_path.as_str());
    audit_line(now_ms, &plan.compaction.0, output, from, to, &detail)
}

#[cfg(test)]
mod tests {
    use baler_common::model::error::FailureClass;
    use baler_common::model::id::{AttemptId, CompactionId};
    use baler_common::runtime::storage::Store;

    use super::*;
    use crate::plan::PublishMode;

    #[test]
    fn each_change_is_one_line_and_is_written_once() {
        let folder = tempfile::tempdir().unwrap();
        let store = Store::open("target", folder.path().to_str().unwrap(), true).unwrap();
        let plan = Plan {
            compaction: CompactionId("run".into()),
            table: "t".into(),
            source_location: "/".into(),
            base_generation: 0,
            publish: PublishMode::Destination,
            jobs: Vec::new(),
            skips: Vec::new(),
            refusals: Vec::new(),
            keys: Vec::new(),
            notes: Vec::new(),
        };
        let target = DirectoryTable::new(store, "t");
        let (sender, events) = broadcast::channel(4);
        let mut trail = AuditTrail::new(Arc::new(plan), target.clone(), events, [JobId(0)]);
        let attempt = AttemptId([1; 8]);
        let failure = Failure::new(FailureClass::Transient, "slow down");
        sender.send(Event::Leased { job: JobId(1), attempt }).unwrap();
        sender.send(Event::Retried { job: JobId(1), attempt, failure }).unwrap();
        trail.write(5).unwrap();
        trail.write(6).unwrap();
        let text = String::from_utf8(target.read("_baler/audit.jsonl").unwrap().unwrap().to_vec()).unwrap();
        let lines: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        let states: Vec<_> = lines.iter().map(|line| (line["from"].as_str(), line["to"].as_str())).collect();
        let expected = [("pending", "verified"), ("pending", "leased"), ("leased", "pending")];
        assert_eq!(states, expected.map(|(from, to)| (Some(from), Some(to))));
        assert_eq!(lines[2]["detail"], "attempt 0101010101010101: TRANSIENT: slow down");
        for n in 0..9 {
            sender.send(Event::Adopted { job: JobId(n) }).unwrap();
        }
        trail.write(7).unwrap();
        let text = String::from_utf8(target.read("_baler/audit.jsonl").unwrap().unwrap().to_vec()).unwrap();
        assert!(text.contains("5 changes came too fast to be listed"), "{text}");
    }
}
