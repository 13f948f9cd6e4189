//! Pins tables: lists a location, lays it out, and reads every footer.

use baler_common::model::error::{Failure, FailureClass};
use baler_common::model::object::{Identity, ObjectRef};
use baler_common::runtime::storage::Store;

use super::footers::{KnownSchemas, read_facts};
use super::generation::{self, Generation};
use super::layout::{RootAs, TableLayout, lay_out};
use super::{DirectoryTable, in_parallel, prepared};
use crate::plan::{FileSnapshot, KeySnapshot, LiveFile, LiveTable, TableSnapshot};

/// How a location is read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ScanOptions {
    pub root_as: RootAs,
    /// Take the files of tables that Baler has compacted in place from their newest manifest generation.
    pub live: bool,
}

/// All tables below the store's root. A key whose files cannot be read carries its failure; the others go on.
///
/// # Errors
/// The location cannot be listed, or a manifest cannot be read.
pub fn scan(store: &Store, options: ScanOptions) -> Result<Vec<TableSnapshot>, Failure> {
    let mut objects = store.list("")?;
    let location = store.location();
    let root_name = location.trim_end_matches('/').rsplit('/').next().unwrap_or("table").to_owned();
    let mut generations: std::collections::BTreeMap<String, Generation> = std::collections::BTreeMap::new();
    if options.live {
        // A commit that was cut short is finished first: the table may lie between two layouts.
        for folder in controlled_folders(objects.iter().map(|object| object.path.as_str())) {
            let table = DirectoryTable::new(store.clone(), &folder);
            if prepared::finish(&table)?.is_some() {
                objects = store.list("")?;
            }
            if let Some(newest) = generation::newest(&table)? {
                generations.insert(folder, newest);
            }
        }
    }
    let live = |folder: &str| generations.get(folder).map(live_table);
    let layout = lay_out(&objects, options.root_as, &root_name, &live);
    let known = KnownSchemas::default();
    let mut tables = Vec::new();
    for table in layout.tables {
        let base_generation = generations.get(&table.folder).map_or(0, |newest| newest.generation);
        tables.push(pin(store, table, &layout.note, base_generation, &known));
    }
    Ok(tables)
}

/// Folders with a control folder, below the root.
fn controlled_folders<'a>(paths: impl Iterator<Item = &'a str>) -> Vec<String> {
    let mut found: Vec<String> = paths
        .filter_map(|path| {
            let at = path.find(super::CONTROL)?;
            let folder = &path[..at];
            (folder.is_empty() || folder.ends_with('/')).then(|| folder.trim_end_matches('/').to_owned())
        })
        .collect();
    found.sort();
    found.dedup();
    found
}

fn live_table(newest: &Generation) -> LiveTable {
    let live = newest.live.iter().map(|file| LiveFile {
        object_path: file.object.clone(),
        path: file.path.clone(),
        bytes: file.bytes,
        identity: file.identity.clone(),
        settled: file.settled,
    });
    let superseded = newest.superseded.iter().map(|entry| LiveFile {
        object_path: entry.file.object.clone(),
        path: entry.file.path.clone(),
        bytes: entry.file.bytes,
        identity: entry.file.identity.clone(),
        settled: entry.file.settled,
    });
    LiveTable { generation: newest.generation, live: live.collect(), superseded: superseded.collect() }
}

fn pin(store: &Store, table: TableLayout, note: &str, base_generation: u64, known: &KnownSchemas) -> TableSnapshot {
    let files: Vec<_> = table.keys.iter().flat_map(|key| &key.files).collect();
    let mut read = in_parallel(&files, |file| {
        check_name(&file.path)?;
        if file.identity == Identity::Unknown && file.bytes == 0 {
            // A link or special file: opening it says which.
            store.source(&file.object_path, 0, &Identity::Unknown)?;
        }
        read_facts(store, &file.object_path, file.bytes, &file.identity, known)
    })
    .into_iter();
    let mut keys = Vec::with_capacity(table.keys.len());
    for key in table.keys {
        let mut failure = key.failure;
        let mut pinned = Vec::with_capacity(key.files.len());
        for file in key.files {
            let facts = match read.next() {
                Some(Ok(facts)) => Some(std::sync::Arc::new(facts)),
                Some(Err(problem)) => {
                    failure.get_or_insert(problem);
                    None
                }
                None => None,
            };
            pinned.push(FileSnapshot {
                path: file.path,
                object: ObjectRef::new(store.alias(), file.object_path),
                bytes: file.bytes,
                identity: file.identity,
                first_chunk: file.first_chunk,
                last_chunk: file.last_chunk,
                settled: file.settled,
                facts,
            });
        }
        keys.push(KeySnapshot { key: key.key, folder: key.folder, files: pinned, failure });
    }
    let source_location = store.describe(&table.folder).trim_end_matches('/').to_owned();
    let mut notes = vec![format!("{}: {note}", store.location())];
    notes.extend(table.notes);
    TableSnapshot { table: table.table, folder: table.folder, source_location, base_generation, keys, notes }
}

/// Refuses names that cannot travel: every object store and message must be able to say them.
fn check_name(path: &str) -> Result<(), Failure> {
    if path.contains('\\') {
        let message = "a backslash in a name means a folder to some stores: rename it";
        return Err(Failure::new(FailureClass::Policy, message).in_file(path));
    }
    baler_proto::convert::check_path("path", path).map_err(|failure| failure.in_file(path))
}
