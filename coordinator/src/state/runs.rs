//! What is kept of runs and of a table between processes: its stop, and no job records of runs that are over.

use baler_common::model::id::{CompactionId, JobId};

use super::leadership::Leadership;
use super::records::{Stop, decode_job, decode_run, decode_stop, encode_stop};
use super::{Change, StateError, StateStore, keys, range_all};
use crate::lifecycle::job::Job;
use crate::lifecycle::run::Run;

/// Changes in one transaction at most; etcd takes 128.
const CHANGES_MAX: usize = 100;

/// Why the table must not be touched; `None` when it may.
pub async fn stop(store: &dyn StateStore) -> Result<Option<Stop>, StateError> {
    let entry = store.get(keys::STOP).await?;
    entry.map(|entry| decode_stop(&entry.key, &entry.value)).transpose()
}

/// The run that is not closed yet, with its head; `None` when there is none.
pub async fn active(store: &dyn StateStore) -> Result<Option<(CompactionId, Run)>, StateError> {
    let Some(entry) = store.get(keys::ACTIVE).await? else { return Ok(None) };
    let unreadable = |message: &str| StateError::Record { key: entry.key.clone(), message: message.to_owned() };
    let name = String::from_utf8(entry.value.clone()).map_err(|_| unreadable("is no name of a compaction"))?;
    let compaction = CompactionId(name);
    let Some(head) = store.get(&keys::run(&compaction)).await? else { return Ok(None) };
    let run = decode_run(&head.key, &head.value)?;
    Ok(Some((compaction, run)))
}

/// The job records of a run.
pub async fn jobs(store: &dyn StateStore, compaction: &CompactionId) -> Result<Vec<(JobId, Job)>, StateError> {
    let prefix = keys::jobs(compaction);
    let entries = range_all(store, &prefix).await?;
    entries
        .iter()
        .map(|entry| {
            let number = entry.key.strip_prefix(&prefix).and_then(|text| u32::from_str_radix(text, 16).ok());
            let message = || "is no number of a job".to_owned();
            let number = number.ok_or_else(|| StateError::Record { key: entry.key.clone(), message: message() })?;
            Ok((JobId(number), decode_job(&entry.key, &entry.value)?))
        })
        .collect()
}

/// Stores why the table must not be touched until a person releases it.
pub async fn set_stop(leadership: &Leadership, stop: &Stop) -> Result<(), StateError> {
    leadership.write(&[], &[Change::Put(keys::STOP.to_owned(), encode_stop(stop))]).await.map(|_| ())
}

/// Lifts the stop; gives the one that was lifted.
pub async fn clear_stop(leadership: &Leadership) -> Result<Option<Stop>, StateError> {
    let lifted = stop(leadership.store().as_ref()).await?;
    if lifted.is_some() {
        leadership.write(&[], &[Change::Delete(keys::STOP.to_owned())]).await?;
    }
    Ok(lifted)
}

/// Removes the job records of all runs: a run that starts plans anew and finds what is done by the receipts. The heads
/// of earlier runs stay.
pub async fn forget_jobs(leadership: &Leadership) -> Result<(), StateError> {
    let records = range_all(leadership.store().as_ref(), keys::RUNS).await?;
    let jobs: Vec<Change> =
        records.into_iter().filter(|entry| keys::is_job(&entry.key)).map(|entry| Change::Delete(entry.key)).collect();
    for changes in jobs.chunks(CHANGES_MAX) {
        leadership.write(&[], changes).await?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::super::simulated::SimulatedStore;
    use super::*;

    #[tokio::test]
    async fn a_stop_is_kept_until_it_is_lifted() {
        for lose_every in [0, 2, 3] {
            let store: Arc<dyn StateStore> = Arc::new(SimulatedStore::losing_every(lose_every));
            let leadership = Leadership::take(store.clone(), "a", 1).await.unwrap();
            assert_eq!(stop(store.as_ref()).await.unwrap(), None);
            let wanted = Stop { reason: "rows differ".into(), compaction: CompactionId("c".into()), since_ms: -5 };
            set_stop(&leadership, &wanted).await.unwrap();
            assert_eq!(stop(store.as_ref()).await.unwrap(), Some(wanted.clone()));
            assert_eq!(clear_stop(&leadership).await.unwrap(), Some(wanted));
            assert_eq!(stop(store.as_ref()).await.unwrap(), None);
            assert_eq!(clear_stop(&leadership).await.unwrap(), None);
        }
    }

    #[tokio::test]
    async fn job_records_of_earlier_runs_go_and_their_heads_stay() {
        let store: Arc<dyn StateStore> = Arc::new(SimulatedStore::losing_every(3));
        let leadership = Leadership::take(store.clone(), "a", 1).await.unwrap();
        let run = CompactionId("old".into());
        for n in 0..250 {
            let put = Change::Put(keys::job(&run, JobId(n)), n.to_le_bytes().to_vec());
            leadership.write(&[], &[put]).await.unwrap();
        }
        leadership.write(&[], &[Change::Put(keys::run(&run), b"head".to_vec())]).await.unwrap();
        forget_jobs(&leadership).await.unwrap();
        let left: Vec<String> =
            range_all(store.as_ref(), "").await.unwrap().into_iter().map(|entry| entry.key).collect();
        assert_eq!(left, [keys::EPOCH.to_owned(), keys::run(&run)]);
    }
}
