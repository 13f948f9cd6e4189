//! Looks for what is wrong with a table, and changes nothing; and proves its outputs again, months later.

use baler_common::model::error::Failure;
use baler_common::model::fingerprint::Fingerprint;
use baler_common::runtime::storage::Source;

use super::checks::{self, RowCounter};
use super::generation::{self, Generation, hex};
use super::{DirectoryTable, in_parallel, prepared, swap};

/// What `baler fsck` found.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Findings {
    /// Generations that were read and are whole.
    pub generations: u64,
    /// Live files of the newest generation that were looked at.
    pub files: u64,
    /// Objects in staging: attempts that are running, verified and not published yet, or left over.
    pub staged_objects: u64,
    pub staged_bytes: u64,
    /// What is worth knowing and no fault.
    pub notes: Vec<String>,
    /// What is wrong, one sentence each.
    pub faults: Vec<String>,
}

/// What became of one file that was proved again.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct VerifiedFile {
    pub path: String,
    pub rows: u64,
    /// What does not fit; empty when the file is as it was proved.
    pub faults: Vec<String>,
    /// Whether it could be compared: a file that Baler did not write has no fingerprint on record.
    pub on_record: bool,
}

/// Looks at everything that Baler keeps of a table; with `full`, reads every live file that has a SHA-256.
pub fn fsck(table: &DirectoryTable, full: bool, count_rows: &RowCounter<'_>) -> Result<Findings, Failure> {
    let mut findings = Findings::default();
    let mut newest: Option<Generation> = None;
    let mut before = None;
    for number in generation::numbers(table)? {
        match generation::read(table, number) {
            Ok(read) => {
                findings.generations += 1;
                if before.is_some_and(|before| read.parent != before) {
                    findings.faults.push(format!("generation {number} says its parent is {}", read.parent));
                }
                newest = Some(read);
            }
            Err(failure) => {
                findings.faults.push(failure.to_string());
                newest = None;
            }
        }
        before = Some(number);
    }
    match prepared::pending(table) {
        Ok(Some(publication)) => findings.notes.push(format!(
            "a commit of generation {} was begun and not finished: the next compaction finishes it",
            publication.generation.generation
        )),
        Ok(None) => {}
        Err(failure) => findings.faults.push(failure.to_string()),
    }
    if let Some(root) = table.store().local_path()
        && swap::is_begun(&root.join(table.absolute("")))?
    {
        findings.faults.push(format!("{}; until then files seem to be missing, or in no list", swap::CUT_SHORT));
    }
    for info in table.list("_baler/staging")? {
        findings.staged_objects += 1;
        findings.staged_bytes = findings.staged_bytes.saturating_add(info.bytes);
    }
    let Some(newest) = newest else { return Ok(findings) };
    findings.files = newest.live.len() as u64;
    // The checks look at every file; their sums over the version before are the commit's business.
    let found = checks::run(table, None, &newest, None, count_rows)?;
    let mut mismatches = found.mismatches;
    mismatches.retain(|mismatch| !mismatch.starts_with("version before: "));
    // A sweep removes superseded files and leaves the manifest as it is; the next generation lists what is left.
    let (gone, others): (Vec<_>, Vec<_>) = mismatches.into_iter().partition(|text| text.starts_with(checks::AWAITING));
    if !gone.is_empty() {
        findings.notes.push(format!(
            "{} of {} superseded files are not there any more, as `gc --delete` leaves it: no generation of theirs comes back",
            gone.len(),
            newest.superseded.len()
        ));
    }
    findings.faults.extend(others);
    findings.faults.dedup();
    match checks::read(table, newest.generation)? {
        Some(kept) if kept.passed() => {}
        Some(_) => findings.faults.push(format!("the checks of generation {} failed", newest.generation)),
        None => findings.notes.push(format!(
            "the checks of generation {} were not finished: the next compaction finishes them",
            newest.generation
        )),
    }
    if full {
        let digests = in_parallel(&newest.live, |file| match file.sha256 {
            Some(_) => table.sha256(&file.object, file.bytes),
            None => Ok(None),
        });
        for (file, digest) in newest.live.iter().zip(digests) {
            if let (Some(recorded), found) = (file.sha256, digest?)
                && found != Some(recorded)
            {
                let found = found.as_ref().map_or("unreadable".to_owned(), hex);
                let object = table.describe(&file.object);
                findings.faults.push(format!("{object} has SHA-256 {found}, {} recorded", hex(&recorded)));
            }
        }
    }
    Ok(findings)
}

/// Proves the newest generation's outputs again: SHA-256 of the bytes, fingerprint of the rows by `fingerprint`.
/// `progress` is told of each file.
pub fn verify(
    table: &DirectoryTable,
    fingerprint: &dyn Fn(&Source) -> Result<Fingerprint, Failure>,
    progress: &mut dyn FnMut(&VerifiedFile),
) -> Result<Vec<VerifiedFile>, Failure> {
    let Some(newest) = generation::newest(table)? else { return Ok(Vec::new()) };
    let mut verified = Vec::with_capacity(newest.live.len());
    for file in &newest.live {
        let mut faults = Vec::new();
        let mut result =
            VerifiedFile { path: file.path.clone(), rows: file.rows, faults: Vec::new(), on_record: false };
        if let (Some(sha256), Some(proof)) = (file.sha256, &file.proof) {
            result.on_record = true;
            match table.head(&file.object)? {
                None => faults.push("it is gone".to_owned()),
                Some(info) if info.bytes != file.bytes => {
                    faults.push(format!("it has {} bytes, {} recorded", info.bytes, file.bytes));
                }
                Some(info) => {
                    if table.sha256(&file.object, file.bytes)? != Some(sha256) {
                        faults.push("its SHA-256 is not the recorded one".to_owned());
                    }
                    match table.source(&file.object, file.bytes, &info.identity).and_then(|it| fingerprint(&it)) {
                        Ok(found) if found == proof.fingerprint => {}
                        Ok(found) => {
                            faults.push(format!("its rows are {found}, {} recorded", proof.fingerprint));
                        }
                        Err(failure) if failure.class.is_retryable() => return Err(failure),
                        Err(failure) => faults.push(failure.to_string()),
                    }
                }
            }
        }
        result.faults = faults;
        progress(&result);
        verified.push(result);
    }
    Ok(verified)
}

#[cfg(test)]
mod tests;
