//! From verified outputs to a generation: which moves, in which order, and what is listed afterwards.
//!
//! [`decide`] looks at the table and makes a [`Publication`]: moves and a draft of the generation. [`carry_out`] makes
//! the moves and fills in what only then is known. Both may be cut short anywhere and called again; every move is
//! create-only, and nothing is deleted.
//!
//! ```text
//! destination  per key: what does not belong is set aside, then the outputs get their names; then the generation
//! in place     outputs go to _baler/data/, no other file is touched; then the generation
//! torn reads   outputs get their names beside the sources, then the sources are set aside; then the generation
//! ```
//! A name that an output needs and another file has is freed first, in every mode.

mod destination;
mod in_place;

use std::collections::{BTreeMap, BTreeSet};

use baler_common::model::error::{Failure, FailureClass};
use baler_common::model::id::JobId;
use baler_common::model::job::{InputFile, JobSpec, RowMode};
use baler_common::model::object::{Identity, ObjectInfo};
use baler_common::model::outcome::{OutputFile, Receipt};
use baler_common::runtime::killpoint::killpoint;
use baler_common::runtime::storage::Creation;

use super::generation::{
    Figures, Generation, KeptKey, ListedFile, MadeBy, Proof, SourceFile, SupersededFile, Why, hex, unhex,
};
use super::previous::{self, Moved};
use super::{CONTROL, DATA_SUFFIX, DirectoryTable, in_parallel, is_same_content};
use crate::plan::{Plan, PublishMode, TableSnapshot};
use crate::table::CommitToken;

/// Which jobs' sources were swept.
const REMOVED: &str = "_baler/removed.jsonl";

/// A file of the table as the plan saw it.
#[derive(Debug, Clone, PartialEq)]
pub struct PlannedFile {
    pub key: String,
    /// Logical path below the table.
    pub path: String,
    /// Path of the object below its table (with a destination: below the source table).
    pub object: String,
    pub bytes: u64,
    /// By its footer; 0 when it could not be read.
    pub rows: u64,
    pub identity: Identity,
    pub first_chunk: u64,
    pub last_chunk: u64,
    /// An earlier compaction wrote it or found it right.
    pub settled: bool,
}

/// Every file of a snapshot, as a commit needs it. `source` is the table that was pinned.
pub fn planned_files(source: &DirectoryTable, snapshot: &TableSnapshot) -> Result<Vec<PlannedFile>, Failure> {
    let files = snapshot.keys.iter().flat_map(|key| key.files.iter().map(move |file| (key, file)));
    files
        .map(|(key, file)| {
            let object = source.relative(&file.object.path).ok_or_else(|| {
                let message = format!("it does not lie in the table {}", source.describe(""));
                Failure::new(FailureClass::Policy, message).in_file(file.object.to_string())
            })?;
            Ok(PlannedFile {
                key: key.key.clone(),
                path: file.path.clone(),
                object: object.to_owned(),
                bytes: file.bytes,
                rows: file.rows(),
                identity: file.identity.clone(),
                first_chunk: file.first_chunk,
                last_chunk: file.last_chunk,
                settled: file.settled,
            })
        })
        .collect()
}

/// A job whose outputs the coordinator has judged to be right.
#[derive(Debug, Clone, PartialEq)]
pub struct VerifiedJob {
    /// SHA-256 of the job's canonical form, without its index and staging folder.
    pub digest: [u8; 32],
    pub receipt: Receipt,
}

/// Everything that a publication is decided on.
pub struct Settled<'a> {
    pub plan: &'a Plan,
    pub token: CommitToken,
    /// Every file that the plan saw.
    pub files: &'a [PlannedFile],
    /// Jobs of keys that are committed, all of them verified and their inputs unchanged.
    pub committed: BTreeMap<JobId, VerifiedJob>,
    /// Keys for which nothing new is committed, with the reason.
    pub kept: Vec<KeptKey>,
    /// Milliseconds since the epoch.
    pub now_ms: i64,
}

/// One move of an object, by paths below the table.
#[derive(Debug, Clone, PartialEq)]
pub enum Step {
    /// A verified output gets its name.
    Publish { from: String, to: String, bytes: u64, sha256: [u8; 32] },
    /// A file leaves readers' sight, or comes back into it.
    Move { from: String, to: String, bytes: u64, identity: Identity },
}

/// Moves, and the generation that lists what they leave.
#[derive(Debug, Clone, PartialEq)]
pub struct Publication {
    pub steps: Vec<Step>,
    /// Identities of moved files are those of before the moves, until [`carry_out`] looks.
    pub generation: Generation,
}

impl Publication {
    /// Whether readers would see the same table as in `newest`, and nothing has to move.
    pub fn changes_nothing(&self, newest: Option<&Generation>) -> bool {
        let lists = |generation: &Generation| -> Vec<(String, String, u64, bool, Vec<String>)> {
            let sources = |file: &ListedFile| file.sources.iter().map(|source| format!("{source:?}")).collect();
            let row =
                |file: &ListedFile| (file.path.clone(), file.object.clone(), file.bytes, file.settled, sources(file));
            generation.live.iter().map(row).collect()
        };
        let kept = |generation: &Generation| -> BTreeSet<String> {
            generation.superseded.iter().map(|entry| entry.file.object.clone()).collect()
        };
        self.steps.is_empty()
            && newest.is_some_and(|newest| {
                lists(newest) == lists(&self.generation) && kept(&self.generation).is_subset(&kept(newest))
            })
    }
}

/// What to move and what to list. Looks, and moves nothing.
pub fn decide(
    source: &DirectoryTable,
    target: &DirectoryTable,
    settled: &Settled<'_>,
    newest: Option<&Generation>,
) -> Result<Publication, Failure> {
    let mut publication = match settled.plan.publish {
        PublishMode::Destination => destination::decide(source, target, settled, newest)?,
        PublishMode::InPlace | PublishMode::TornReads => in_place::decide(target, settled, newest)?,
    };
    let generation = &mut publication.generation;
    adopt_strays(target, generation, &publication.steps)?;
    sort(&mut generation.live);
    generation.superseded.sort_by(|a, b| a.file.object.cmp(&b.file.object));
    Ok(publication)
}

/// Lists what a commit that was given up left in the control folder, so that the sweep may have it.
fn adopt_strays(target: &DirectoryTable, generation: &mut Generation, steps: &[Step]) -> Result<(), Failure> {
    let known: BTreeSet<&str> = generation
        .live
        .iter()
        .map(|file| file.object.as_str())
        .chain(generation.superseded.iter().map(|entry| entry.file.object.as_str()))
        .chain(steps.iter().map(|step| match step {
            Step::Publish { to, .. } | Step::Move { to, .. } => to.as_str(),
        }))
        .collect();
    let mut strays = Vec::new();
    for found in target.list(&format!("{CONTROL}/data"))?.into_iter().chain(target.list(previous::PREVIOUS)?) {
        let path = match previous::original_path(&found.path) {
            Some((_, path)) => path.to_owned(),
            None if data_object(&found.path) => found.path.clone(),
            None => continue,
        };
        if !known.contains(found.path.as_str()) {
            let file = ListedFile { object: found.path.clone(), ..destination::foreign(&path, &found) };
            strays.push(SupersededFile { file, why: Why::Foreign, superseded_in: generation.generation });
        }
    }
    generation.superseded.extend(strays);
    Ok(())
}

/// Makes the moves, and says in the generation what they left. `Err` leaves a state from which the same call goes on.
pub fn carry_out(target: &DirectoryTable, publication: &Publication) -> Result<Generation, Failure> {
    let mut dropped: BTreeSet<String> = BTreeSet::new();
    for step in &publication.steps {
        match step {
            Step::Publish { from, to, bytes, sha256 } => {
                killpoint("commit-publish-before");
                publish(target, from, to, *bytes, sha256)?;
                killpoint("commit-publish-after");
            }
            Step::Move { from, to, bytes, identity } => {
                killpoint("commit-set-aside-before");
                match previous::move_pinned(target, from, to, *bytes, identity)? {
                    Moved::There(_) => {}
                    // Somebody else changed or removed it meanwhile: it is not ours to keep.
                    Moved::Gone => {
                        dropped.insert(to.clone());
                    }
                }
                killpoint("commit-set-aside-after");
            }
        }
    }
    let mut generation = publication.generation.clone();
    refresh(target, &mut generation, &dropped)?;
    Ok(generation)
}

/// Gives every file that moved the identity that it has now.
fn refresh(target: &DirectoryTable, generation: &mut Generation, dropped: &BTreeSet<String>) -> Result<(), Failure> {
    let number = generation.generation;
    let moved: Vec<&mut ListedFile> = generation.live.iter_mut().filter(|file| file.since == number).collect();
    let found = in_parallel(&moved, |file| target.head(&file.object));
    for (file, found) in moved.into_iter().zip(found) {
        let Some(found) = found?.filter(|found| found.bytes == file.bytes) else {
            let message = "the published object is not there, or has another size: something else writes here";
            return Err(Failure::new(FailureClass::Transient, message).in_file(target.describe(&file.object)));
        };
        file.identity = found.identity;
    }
    generation.superseded.retain(|entry| !dropped.contains(&entry.file.object));
    let aside: Vec<&mut SupersededFile> = generation
        .superseded
        .iter_mut()
        .filter(|entry| entry.superseded_in == number && entry.file.object != entry.file.path)
        .collect();
    let found = in_parallel(&aside, |entry| target.head(&entry.file.object));
    for (entry, found) in aside.into_iter().zip(found) {
        if let Some(found) = found? {
            entry.file.identity = found.identity;
        }
    }
    Ok(())
}

/// Gives a verified output its name; the same content under that name already is as good.
fn publish(target: &DirectoryTable, from: &str, to: &str, bytes: u64, sha256: &[u8; 32]) -> Result<(), Failure> {
    if target.head(from)?.is_none_or(|staged| staged.bytes != bytes) {
        return match target.sha256(to, bytes)? {
            Some(found) if found == *sha256 => Ok(()),
            _ => Err(missing_output(target, from, to)),
        };
    }
    match target.publish(from, to)? {
        Creation::Created => Ok(()),
        Creation::Exists if target.sha256(to, bytes)?.as_ref() == Some(sha256) => Ok(()),
        Creation::Exists => {
            let message = "another object took this name during the commit: see who else writes here, then run again";
            Err(Failure::new(FailureClass::Transient, message).in_file(target.describe(to)))
        }
    }
}

fn missing_output(target: &DirectoryTable, from: &str, to: &str) -> Failure {
    let message = format!("the verified output is neither there nor at {from}: run again to write it anew");
    Failure::new(FailureClass::InputMissing, message).in_file(target.describe(to))
}

/// Where the output of a job lies once it is published, below the table.
pub fn published_object(mode: PublishMode, output_path: &str, job_digest: &[u8; 32]) -> String {
    match mode {
        PublishMode::Destination | PublishMode::TornReads => output_path.to_owned(),
        PublishMode::InPlace => in_place::data_path(output_path, job_digest),
    }
}

/// Whether a path is that of an output in place.
pub(crate) fn data_object(path: &str) -> bool {
    path.strip_prefix(CONTROL).is_some_and(|rest| rest.starts_with("/data/") && rest.ends_with(DATA_SUFFIX))
}

/// Whether a path is that of a data file outside the control folder. In place, names that start with `_` or `.` are
/// nobody's rows; in a destination a recursive glob could still read them.
pub(crate) fn is_plain_data(path: &str, in_place: bool) -> bool {
    let hidden = |path: &str| path.split('/').any(|segment| segment.starts_with(['_', '.']));
    path.ends_with(".parquet")
        && path.strip_prefix(CONTROL).is_none_or(|rest| !rest.starts_with('/'))
        && !(in_place && hidden(path))
}

/// By key and chunk, then by path.
pub(crate) fn sort(files: &mut [ListedFile]) {
    files.sort_by(|a, b| {
        (a.key.as_bytes(), a.first_chunk, a.last_chunk, a.path.as_bytes()).cmp(&(
            b.key.as_bytes(),
            b.first_chunk,
            b.last_chunk,
            b.path.as_bytes(),
        ))
    });
}

/// An output as the generation `since` lists it.
fn listed(job: &JobSpec, verified: &VerifiedJob, output: &OutputFile, object: String, since: u64) -> ListedFile {
    ListedFile {
        key: job.key.clone(),
        path: output.path.clone(),
        object,
        bytes: output.bytes,
        rows: output.rows,
        identity: output.identity.clone(),
        first_chunk: output.first_chunk,
        last_chunk: output.last_chunk,
        sha256: Some(output.sha256),
        settled: true,
        since,
        proof: Some(Proof {
            job: verified.digest,
            fingerprint: output.fingerprint,
            expected: verified.receipt.expected,
            stored: verified.receipt.stored,
            verified_by: verified.receipt.verified_by.clone(),
        }),
        sources: Vec::new(),
    }
}

/// Rows that the committed jobs left out because they had been seen before.
fn duplicate_rows(settled: &Settled<'_>) -> u64 {
    jobs(settled)
        .filter(|(job, _)| job.mode == RowMode::Distinct)
        .map(|(job, verified)| job.input_rows().saturating_sub(verified.receipt.stored.rows))
        .fold(0, u64::saturating_add)
}

/// The committed jobs in plan order.
fn jobs<'a>(settled: &'a Settled<'_>) -> impl Iterator<Item = (&'a JobSpec, &'a VerifiedJob)> {
    settled.plan.jobs.iter().filter_map(|job| Some((job, settled.committed.get(&job.job)?)))
}

/// The path of an attempt's object below the table.
fn staged_path<'a>(target: &DirectoryTable, output: &'a OutputFile) -> Result<&'a str, Failure> {
    target.relative(&output.object.path).ok_or_else(|| {
        let message = format!("it does not lie in the table {}", target.describe(""));
        Failure::new(FailureClass::Policy, message).in_file(output.object.to_string())
    })
}

/// Superseded files of earlier generations that are still there as they were.
fn still_there(target: &DirectoryTable, newest: Option<&Generation>) -> Result<Vec<SupersededFile>, Failure> {
    let before = newest.map_or(&[][..], |newest| &newest.superseded);
    let found = in_parallel(before, |entry| target.head(&entry.file.object));
    let mut kept = Vec::with_capacity(before.len());
    for (entry, found) in before.iter().zip(found) {
        if found?.is_some_and(|found| is_same_content(&found, entry.file.bytes, &entry.file.identity)) {
            kept.push(entry.clone());
        }
    }
    Ok(kept)
}

/// Jobs whose sources were swept after their outputs had replaced them: `_baler/removed.jsonl`, a job's digest a line.
fn removed_jobs(target: &DirectoryTable) -> Result<BTreeSet<[u8; 32]>, Failure> {
    let Some(content) = target.read(REMOVED)? else { return Ok(BTreeSet::new()) };
    let bad = |message: String| Failure::new(FailureClass::InputCorrupt, message).in_file(target.describe(REMOVED));
    let text = std::str::from_utf8(&content).map_err(|error| bad(error.to_string()))?;
    text.lines()
        .map(|line| {
            let value: serde_json::Value = serde_json::from_str(line).map_err(|error| bad(error.to_string()))?;
            let job = value.get("job").and_then(serde_json::Value::as_str).and_then(unhex);
            job.ok_or_else(|| bad(format!("{line:?} names no job")))
        })
        .collect()
}

/// Keeps the outputs of these jobs in every later generation, though their sources will be gone.
pub fn record_removed(target: &DirectoryTable, jobs: &BTreeSet<[u8; 32]>) -> Result<(), Failure> {
    let known = removed_jobs(target)?;
    let mut content = target.read(REMOVED)?.map(|bytes| bytes.to_vec()).unwrap_or_default();
    for job in jobs.difference(&known) {
        content.extend(format!("{{\"job\":\"{}\"}}\n", hex(job)).into_bytes());
    }
    if jobs.is_subset(&known) { Ok(()) } else { target.put(REMOVED, &content) }
}

/// A generation without files.
fn draft(settled: &Settled<'_>, newest: Option<&Generation>) -> Generation {
    let parent = newest.map_or(0, |newest| newest.generation);
    Generation {
        generation: parent.saturating_add(1),
        parent,
        table: settled.plan.table.clone(),
        source_location: settled.plan.source_location.clone(),
        token: settled.token.clone(),
        created_ms: settled.now_ms,
        publish: settled.plan.publish,
        made_by: MadeBy::Compaction,
        before: Figures::default(),
        listed_before: 0,
        added: 0,
        removed: 0,
        duplicate_rows: duplicate_rows(settled),
        live: Vec::new(),
        superseded: Vec::new(),
        kept_keys: settled.kept.clone(),
    }
}

#[cfg(test)]
mod tests;
