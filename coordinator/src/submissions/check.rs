//! A look over the state of a cluster and the tables it knows; changes nothing.

use baler_proto::{state as stored, v1};

use super::{Submissions, table_prefixes};
use crate::compaction::blocking;
use crate::state::{StateError, StateStore, runs};
use crate::table::directory::fsck::fsck as look_for_faults;
use crate::table::directory::{DirectoryTable, checks};

impl Submissions {
    /// Looks over the state: every record must be readable and say what its kind may say.
    ///
    /// # Errors
    /// The store cannot be read.
    pub async fn check(&self) -> Result<v1::CheckReply, StateError> {
        let store = self.leadership.store();
        let mut reply = v1::CheckReply::default();
        let all: Vec<v1::Submission> = self.list().await;
        reply.checked.push(format!("{} submissions", all.len()));
        for prefix in table_prefixes(store.as_ref()).await? {
            let scoped = self.leadership.scoped(prefix.clone());
            let record = match store.get(&format!("{prefix}at")).await? {
                Some(entry) => entry.decode::<stored::TableRecord>()?,
                None => {
                    reply.findings.push(format!("{prefix}: it is not known whose state this is"));
                    continue;
                }
            };
            check_table(scoped.store().as_ref(), &record.location, &mut reply).await;
            let stores = self.stores.clone();
            let stored::TableRecord { location, store: alias, folder, .. } = record;
            let looked = blocking(move || {
                let table = DirectoryTable::new(stores.get(&alias)?, &folder);
                look_for_faults(&table, false, &checks::rows_in_footer)
            });
            match looked.await {
                Ok(found) => {
                    reply
                        .checked
                        .push(format!("{location}: {} files of {} generations", found.files, found.generations));
                    reply.findings.extend(found.faults.iter().map(|fault| format!("{location}: {fault}")));
                }
                Err(failure) => reply.findings.push(format!("{location}: {failure}")),
            }
        }
        Ok(reply)
    }
}

/// Looks over the state of one table.
async fn check_table(store: &dyn StateStore, location: &str, reply: &mut v1::CheckReply) {
    let mut found = |what: String| reply.findings.push(format!("{location}: {what}"));
    match runs::stop(store).await {
        Ok(None) => {}
        Ok(Some(stop)) => found(format!("it is stopped: {}", stop.reason)),
        Err(error) => found(error.to_string()),
    }
    let (mut jobs_seen, mut open) = (0, "no run is open".to_owned());
    match runs::active(store).await {
        Ok(None) => {}
        Ok(Some((compaction, run))) => {
            open = format!("run {compaction} is {:?}", run.state);
            match runs::jobs(store, &compaction).await {
                Ok(jobs) => {
                    jobs_seen = jobs.len();
                    for (id, job) in jobs {
                        if id.0 >= run.jobs {
                            found(format!("job {} is not in the plan of {compaction}", id.0));
                        }
                        if let Err(broken) = crate::lifecycle::job::check(&job) {
                            found(format!("job {} of {compaction}: {broken}", id.0));
                        }
                    }
                }
                Err(error) => found(error.to_string()),
            }
        }
        Err(error) => found(error.to_string()),
    }
    reply.checked.push(format!("{location}: {open}, {jobs_seen} job records"));
}
