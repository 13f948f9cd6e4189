//! What a coordinator is at the moment: the leader, or one that waits and knows who leads.

use std::sync::{Arc, RwLock};

use async_trait::async_trait;
use baler_common::model::error::{Failure, FailureClass};
use baler_proto::{LEADER_KEY, v1};
use tonic::{Status, metadata::MetadataValue};

use super::worker::Reports;
use crate::submissions::Submissions;

/// The role of this process, shared by its services.
#[derive(Default)]
pub struct Role {
    leads: RwLock<Option<Arc<Submissions>>>,
    leader: RwLock<Option<String>>,
}

impl Role {
    /// This process leads from now on.
    pub fn lead(&self, submissions: Arc<Submissions>) {
        *self.leads.write().expect("no holder of the lock panics") = Some(submissions);
    }

    /// This process leads no more, or not yet.
    pub fn stand_by(&self) {
        *self.leads.write().expect("no holder of the lock panics") = None;
    }

    /// Where the leader is, as far as this one knows.
    pub fn set_leader(&self, address: Option<String>) {
        *self.leader.write().expect("no holder of the lock panics") = address;
    }

    /// The leader's work.
    ///
    /// # Errors
    /// `UNAVAILABLE` while this process does not lead; the metadata names who does, where that is known.
    pub fn leading(&self) -> Result<Arc<Submissions>, Status> {
        if let Some(submissions) = self.leads.read().expect("no holder of the lock panics").clone() {
            return Ok(submissions);
        }
        let leader = self.leader.read().expect("no holder of the lock panics").clone();
        let message = match &leader {
            Some(leader) => format!("this coordinator stands by; {leader} leads"),
            None => "this coordinator stands by; nobody leads yet".to_owned(),
        };
        let mut status = super::status(&Failure::new(FailureClass::Transient, message));
        if let Some(value) = leader.and_then(|leader| MetadataValue::try_from(leader).ok()) {
            status.metadata_mut().insert(LEADER_KEY, value);
        }
        Err(status)
    }
}

#[async_trait]
impl Reports for Role {
    async fn report(&self, request: v1::ReportRequest) -> Result<v1::ReportReply, Status> {
        let submissions = self.leading()?;
        submissions.fleet().report(request).await.map_err(|failure| super::status(&failure))
    }
}
