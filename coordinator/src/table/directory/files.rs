//! What readers ask: the live files of a generation, what was appended since, and the history.

use std::collections::{BTreeMap, BTreeSet};

use baler_common::model::error::Failure;
use baler_common::model::object::ObjectInfo;
use serde_json::json;

use super::DirectoryTable;
use super::generation::{self, Figures, Generation, ListedFile, MadeBy, hex};
use super::is_same_content;
use super::publish::is_plain_data;

/// How a list of files is printed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ListFormat {
    /// One location a line.
    List,
    /// One JSON object: generation and files.
    Json,
    /// A query for DuckDB and what speaks like it.
    Sql,
}

/// One generation in the history.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HistoryLine {
    pub generation: u64,
    pub made_by: MadeBy,
    pub compaction: String,
    /// By the coordinator's clock, in milliseconds since the epoch.
    pub created_ms: i64,
    /// Of the live files.
    pub figures: Figures,
    pub added: u64,
    pub removed: u64,
    /// Whether its checks passed; `None` when they were never finished.
    pub checked: Option<bool>,
}

/// A generation (default: the newest); `Ok(None)` when Baler never committed anything here.
pub fn live(table: &DirectoryTable, number: Option<u64>) -> Result<Option<Generation>, Failure> {
    match number {
        Some(number) => generation::read(table, number).map(Some),
        None => generation::newest(table),
    }
}

/// The live files of a generation as text.
pub fn render(table: &DirectoryTable, generation: &Generation, format: ListFormat) -> String {
    let locations = generation.live.iter().map(|file| table.describe(&file.object));
    match format {
        ListFormat::List => locations.map(|location| location + "\n").collect(),
        ListFormat::Sql => {
            let quoted: Vec<String> = locations.map(|location| format!("'{}'", location.replace('\'', "''"))).collect();
            format!("SELECT * FROM read_parquet([{}]);\n", quoted.join(", "))
        }
        ListFormat::Json => {
            let files: Vec<_> = generation
                .live
                .iter()
                .map(|file| {
                    json!({
                        "location": table.describe(&file.object),
                        "path": file.path,
                        "key": file.key,
                        "bytes": file.bytes,
                        "rows": file.rows,
                        "sha256": file.sha256.as_ref().map(hex),
                        "fingerprint": file.proof.as_ref().map(|proof| proof.fingerprint.to_string()),
                    })
                })
                .collect();
            format!("{}\n", json!({"table": generation.table, "generation": generation.generation, "files": files}))
        }
    }
}

/// Data files that the newest generation knows nothing of: others put them there since, or wrote them anew under the
/// name of a superseded one. In place the next compaction adopts them; a destination should have none.
pub fn appended(table: &DirectoryTable, newest: &Generation) -> Result<Vec<ObjectInfo>, Failure> {
    let listed: BTreeSet<&str> = newest.live.iter().map(|file| file.object.as_str()).collect();
    let superseded: BTreeMap<&str, &ListedFile> =
        newest.superseded.iter().map(|entry| (entry.file.object.as_str(), &entry.file)).collect();
    Ok(table
        .list("")?
        .into_iter()
        .filter(|info| is_plain_data(&info.path, true) && !listed.contains(info.path.as_str()))
        .filter(|info| {
            superseded.get(info.path.as_str()).is_none_or(|file| !is_same_content(info, file.bytes, &file.identity))
        })
        .collect())
}

/// All generations that are kept, oldest first.
pub fn history(table: &DirectoryTable) -> Result<Vec<HistoryLine>, Failure> {
    generation::numbers(table)?
        .into_iter()
        .map(|number| {
            let read = generation::read(table, number)?;
            Ok(HistoryLine {
                generation: number,
                made_by: read.made_by,
                compaction: read.token.compaction.clone(),
                created_ms: read.created_ms,
                figures: read.figures(),
                added: read.added,
                removed: read.removed,
                checked: super::checks::read(table, number)?.map(|checks| checks.passed()),
            })
        })
        .collect()
}
