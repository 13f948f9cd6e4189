//! Undoes the newest generation, by making another one that lists what was listed before it.
//!
//! What was before generation N is known from N alone: its live files that it did not put there, and those that it
//! superseded. Files that N adopted without touching them stay. In a destination and with torn reads, files that were
//! set aside come back to their names, and N's outputs are set aside; in place nothing moves. Reverting again brings N's
//! outputs back.
//!
//! Nothing is done unless every file that is to come back is there as it was.

use std::collections::BTreeMap;

use baler_common::model::error::Failure;

use super::checks::{self, Checks, RowCounter};
use super::generation::{self, Figures, Generation, ListedFile, MadeBy, SupersededFile, Why};
use super::previous::{self, PREVIOUS};
use super::publish::{Publication, Step, carry_out, sort};
use super::{CONTROL, DirectoryTable, in_parallel, inconsistent, is_same_content, lists, prepared};
use crate::plan::PublishMode;
use crate::table::CommitToken;

/// A generation that undid another, with its checks.
#[derive(Debug, Clone, PartialEq)]
pub struct Reverted {
    pub generation: Generation,
    pub checks: Checks,
}

/// Undoes the newest generation.
pub fn revert(table: &DirectoryTable, now_ms: i64, count_rows: &RowCounter<'_>) -> Result<Reverted, Failure> {
    prepared::finish(table)?;
    let newest = generation::newest(table)?
        .ok_or_else(|| inconsistent("the table has no generation: there is nothing to revert"))?;
    let publication = decide(&newest, now_ms)?;
    are_there(table, &newest)?;
    prepared::store(table, &publication)?;
    let generation = carry_out(table, &publication)?;
    if !generation::create(table, &generation)? {
        return Err(inconsistent(format!("another commit made generation {}: look again", generation.generation)));
    }
    let checks = checks::run(table, None, &generation, Some(&newest), count_rows)?;
    checks::write(table, &checks)?;
    lists::write_all(table, &generation)?;
    Ok(Reverted { generation, checks })
}

/// The files that `newest` does not list and its parent did.
fn returning(newest: &Generation) -> impl Iterator<Item = &SupersededFile> {
    newest.superseded.iter().filter(move |entry| entry.superseded_in == newest.generation && entry.why != Why::Foreign)
}

fn decide(newest: &Generation, now_ms: i64) -> Result<Publication, Failure> {
    if newest.publish == PublishMode::Destination && newest.parent == 0 {
        return Err(inconsistent("generation 1 is the first of this destination: there is nothing before it"));
    }
    let number = newest.generation.saturating_add(1);
    let is_plain = |object: &str| !object.starts_with(&format!("{CONTROL}/"));
    let (mut live, mut superseded): (Vec<ListedFile>, Vec<SupersededFile>) = (Vec::new(), Vec::new());
    let (mut steps, mut back) = (Vec::new(), Vec::new());
    for file in &newest.live {
        if file.since != newest.generation {
            live.push(file.clone());
            continue;
        }
        let mut file = file.clone();
        if is_plain(&file.object) {
            let to = previous::aside_path(number, &file.path, file.bytes, &file.identity);
            let (from, identity) = (std::mem::replace(&mut file.object, to.clone()), file.identity.clone());
            steps.push(Step::Move { from, to, bytes: file.bytes, identity });
        }
        superseded.push(SupersededFile { file, why: Why::Reverted, superseded_in: number });
    }
    for entry in returning(newest) {
        let mut file = entry.file.clone();
        if file.object.starts_with(PREVIOUS) {
            let from = std::mem::replace(&mut file.object, file.path.clone());
            let (to, identity) = (file.path.clone(), file.identity.clone());
            back.push(Step::Move { from, to, bytes: file.bytes, identity });
        }
        file.since = number;
        live.push(file);
    }
    steps.extend(back);
    let stays = |entry: &&SupersededFile| entry.superseded_in != newest.generation || entry.why == Why::Foreign;
    let (added, removed) = (returning(newest).count() as u64, superseded.len() as u64);
    superseded.extend(newest.superseded.iter().filter(stays).cloned());
    sort(&mut live);
    superseded.sort_by(|a, b| a.file.object.cmp(&b.file.object));
    let generation = Generation {
        generation: number,
        parent: newest.generation,
        table: newest.table.clone(),
        source_location: newest.source_location.clone(),
        token: CommitToken { compaction: format!("revert-{}", newest.generation), plan: newest.token.plan.clone() },
        created_ms: now_ms,
        publish: newest.publish,
        made_by: MadeBy::Revert { undone: newest.generation },
        before: Figures::of(&live),
        listed_before: newest.live.len() as u64,
        added,
        removed,
        duplicate_rows: 0,
        live,
        superseded,
        kept_keys: Vec::new(),
    };
    Ok(Publication { steps, generation })
}

/// Fails unless all that is to come back is there as it was, and its names are free.
fn are_there(table: &DirectoryTable, newest: &Generation) -> Result<(), Failure> {
    let wanted: Vec<&SupersededFile> = returning(newest).collect();
    let outgoing: BTreeMap<&str, u64> = newest
        .live
        .iter()
        .filter(|file| file.since == newest.generation)
        .map(|file| (file.object.as_str(), file.bytes))
        .collect();
    let found = in_parallel(&wanted, |entry| {
        let blocked = entry.file.object != entry.file.path
            && entry.file.object.starts_with(PREVIOUS)
            && !outgoing.contains_key(entry.file.path.as_str())
            && table.head(&entry.file.path)?.is_some();
        Ok::<_, Failure>((table.head(&entry.file.object)?, blocked))
    });
    for (entry, found) in wanted.iter().zip(found) {
        let (found, blocked) = found?;
        let file = &entry.file;
        let why = match found {
            None => "is gone (the sweep may have taken it)",
            Some(found) if !is_same_content(&found, file.bytes, &file.identity) => "was changed",
            Some(_) if blocked => "cannot come back: another file has its name",
            Some(_) => continue,
        };
        let message = format!("{} {why}: generation {} cannot be undone", file.path, newest.generation);
        return Err(inconsistent(message).in_file(table.describe(&file.object)));
    }
    Ok(())
}
