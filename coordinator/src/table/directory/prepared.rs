//! The intention of a commit, kept in the table before anything is moved: `_baler/commit.json`.
//!
//! It holds every move and the draft of the generation, so whoever comes after a crash, from whatever machine, can make
//! the remaining moves instead of guessing from what lies where. There is one slot: the next commit starts only after
//! the one in the slot is finished or given up.

use std::collections::BTreeSet;

use baler_common::model::error::{Failure, FailureClass};
use baler_common::runtime::storage::Store;
use serde::{Deserialize, Serialize};

use super::generation::{self, Generation, hex, identity_from_json, identity_to_json, unhex};
use super::publish::{Publication, Step, carry_out};
use super::{CONTROL, DirectoryTable};

/// Where the intention lies.
pub const PREPARED: &str = "_baler/commit.json";
const VERSION: u32 = 1;

#[derive(Serialize, Deserialize)]
struct Stored {
    format: String,
    version: u32,
    /// Whether the commit was given up; its moves were undone or not begun.
    given_up: bool,
    steps: Vec<StoredStep>,
    /// The draft, in the stored form of a generation.
    manifest: String,
}

#[derive(Serialize, Deserialize)]
#[serde(tag = "move", rename_all = "snake_case")]
enum StoredStep {
    Publish { from: String, to: String, bytes: u64, sha256: String },
    Move { from: String, to: String, bytes: u64, identity: serde_json::Value },
}

/// Stores the intention.
pub fn store(table: &DirectoryTable, publication: &Publication) -> Result<(), Failure> {
    put(table, publication, false)
}

fn put(table: &DirectoryTable, publication: &Publication, given_up: bool) -> Result<(), Failure> {
    let manifest = String::from_utf8(generation::encode(&publication.generation)?)
        .map_err(|_| bad("the manifest is not UTF-8"))?;
    let steps = publication
        .steps
        .iter()
        .map(|step| match step {
            Step::Publish { from, to, bytes, sha256 } => {
                StoredStep::Publish { from: from.clone(), to: to.clone(), bytes: *bytes, sha256: hex(sha256) }
            }
            Step::Move { from, to, bytes, identity } => StoredStep::Move {
                from: from.clone(),
                to: to.clone(),
                bytes: *bytes,
                identity: identity_to_json(identity),
            },
        })
        .collect();
    let stored = Stored { format: "baler.commit".to_owned(), version: VERSION, given_up, steps, manifest };
    let content = serde_json::to_vec(&stored).map_err(|error| bad(format!("write: {error}")))?;
    table.put(PREPARED, &content)
}

/// The stored intention whose generation is not there yet, if there is one.
pub fn pending(table: &DirectoryTable) -> Result<Option<Publication>, Failure> {
    let Some(content) = table.read(PREPARED)? else { return Ok(None) };
    let publication = match decode(&content).map_err(|failure| failure.in_file(table.describe(PREPARED)))? {
        Some(publication) => publication,
        None => return Ok(None),
    };
    let newest = generation::numbers(table)?.last().copied().unwrap_or(0);
    Ok((newest < publication.generation.generation).then_some(publication))
}

/// The tables below a store's root whose commit was begun and not ended.
pub fn all_pending(store: &Store) -> Result<Vec<DirectoryTable>, Failure> {
    let objects = store.list("")?;
    let mut found = Vec::new();
    for folder in controlled_folders(objects.iter().map(|object| object.path.as_str())) {
        let table = DirectoryTable::new(store.clone(), &folder);
        if pending(&table)?.is_some() {
            found.push(table);
        }
    }
    Ok(found)
}

/// Folders that have a control folder.
pub fn controlled_folders<'a>(paths: impl Iterator<Item = &'a str>) -> BTreeSet<String> {
    let folder_of = |path: &'a str| {
        let mut folder = Vec::new();
        for part in path.split('/') {
            if part == CONTROL {
                return Some(folder.join("/"));
            }
            folder.push(part);
        }
        None
    };
    paths.filter_map(folder_of).collect()
}

fn decode(content: &[u8]) -> Result<Option<Publication>, Failure> {
    let stored: Stored = serde_json::from_slice(content).map_err(|error| bad(error.to_string()))?;
    if stored.format != "baler.commit" || stored.version != VERSION {
        let message = format!(
            "a commit of version {} was begun and this Baler knows version {VERSION}: finish it with the Baler that began it",
            stored.version
        );
        return Err(Failure::new(FailureClass::Unsupported, message));
    }
    if stored.given_up {
        return Ok(None);
    }
    let steps = stored
        .steps
        .into_iter()
        .map(|step| {
            Ok(match step {
                StoredStep::Publish { from, to, bytes, sha256 } => {
                    let sha256 = unhex(&sha256).ok_or_else(|| bad(format!("{sha256:?} is not a SHA-256")))?;
                    Step::Publish { from, to, bytes, sha256 }
                }
                StoredStep::Move { from, to, bytes, identity } => {
                    Step::Move { from, to, bytes, identity: identity_from_json(&identity) }
                }
            })
        })
        .collect::<Result<_, Failure>>()?;
    Ok(Some(Publication { steps, generation: generation::decode(stored.manifest.as_bytes())? }))
}

/// Finishes a commit that was begun and cut short. `Ok(None)` when there was none, or when it could not be finished
/// because an output is gone and nothing had been lost by giving it up.
///
/// To be called before a table is listed for planning: until then a table with torn reads may be between two layouts.
pub fn finish(table: &DirectoryTable) -> Result<Option<Generation>, Failure> {
    let Some(publication) = pending(table)? else { return Ok(None) };
    match carry_out(table, &publication) {
        Ok(generation) => match generation::create(table, &generation)? {
            true => Ok(Some(generation)),
            // Another commit got the number, and so this one never happened.
            false => give_up(table, &publication).map(|()| None),
        },
        Err(failure) if failure.class == FailureClass::InputMissing => {
            give_up(table, &publication)?;
            Ok(None)
        }
        Err(failure) => Err(failure),
    }
}

/// Undoes the moves that were made, last first, as far as the old names are free, and marks the slot. Outputs stay
/// where they are: a plan made anew finds them by name and SHA-256, or sets them aside.
fn give_up(table: &DirectoryTable, publication: &Publication) -> Result<(), Failure> {
    for step in publication.steps.iter().rev() {
        if let Step::Move { from, to, bytes, identity } = step
            && table.head(from)?.is_none()
        {
            super::previous::move_pinned(table, to, from, *bytes, identity)?;
        }
    }
    put(table, publication, true)
}

fn bad(message: impl Into<String>) -> Failure {
    Failure::new(FailureClass::InputCorrupt, format!("commit record: {}", message.into()))
}
