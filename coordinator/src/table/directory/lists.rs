//! The lists for scripts, in the control folder: plain JSON, derived from the generations, never read by a commit.
//!
//! | file | holds |
//! |---|---|
//! | `TABLE.json` | the newest generation's files, bytes and rows, in all and per key |
//! | `manifest.jsonl` | a line per finished key |
//! | `files.jsonl` | a line per output that was checked |
//! | `compact.jsonl` | a line per compaction and stage: planned, written, done |
//! | `audit.jsonl` | a line per output and state change |
//!
//! The first two are written anew from the generation. The others grow by lines, and a line that is there already is not
//! written again, so that repeating any call changes nothing.

use std::collections::{BTreeMap, BTreeSet};

use baler_common::model::error::{Failure, FailureClass};
use baler_common::model::outcome::Receipt;
use serde_json::{Value, json};

use super::DirectoryTable;
use super::generation::{Figures, Generation, hex, identity_to_json};

/// The control folder's lists.
const TABLE: &str = "_baler/TABLE.json";
const MANIFEST: &str = "_baler/manifest.jsonl";
const FILES: &str = "_baler/files.jsonl";
const COMPACT: &str = "_baler/compact.jsonl";
const AUDIT: &str = "_baler/audit.jsonl";

/// What a compaction of a table has finished.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stage {
    Planned,
    /// Every output that could be is written and checked.
    Written,
    /// The generation is there and was checked.
    Done,
}

/// Writes everything that follows from a generation.
pub fn write_all(table: &DirectoryTable, generation: &Generation) -> Result<(), Failure> {
    table.put(TABLE, &line(&table_json(generation))?)?;
    let mut lines = Vec::new();
    for value in manifest_lines(generation) {
        lines.extend(line(&value)?);
    }
    table.put(MANIFEST, &lines)?;
    let checked: Vec<Value> = generation
        .live
        .iter()
        .filter_map(|file| {
            let (sha256, proof) = (file.sha256?, file.proof.as_ref()?);
            Some(json!({
                "path": file.path,
                "bytes": file.bytes,
                "rows": file.rows,
                "sha256": hex(&sha256),
                "fingerprint": proof.fingerprint.to_string(),
                "job": hex(&proof.job),
                "verified_by": proof.verified_by,
            }))
        })
        .collect();
    merge(table, FILES, &checked)?;
    record_stage(table, &generation.table, &generation.token.compaction, Stage::Done, generation.figures())
}

/// Adds outputs to `files.jsonl` as they are checked.
pub fn record_checked(table: &DirectoryTable, job: &[u8; 32], receipt: &Receipt) -> Result<(), Failure> {
    let lines: Vec<Value> = receipt
        .outputs
        .iter()
        .map(|output| {
            json!({
                "path": output.path,
                "bytes": output.bytes,
                "rows": output.rows,
                "sha256": hex(&output.sha256),
                "fingerprint": output.fingerprint.to_string(),
                "job": hex(job),
                "verified_by": receipt.verified_by,
            })
        })
        .collect();
    merge(table, FILES, &lines)
}

/// Adds a line to `compact.jsonl`, once per compaction and stage.
pub fn record_stage(
    table: &DirectoryTable,
    name: &str,
    compaction: &str,
    stage: Stage,
    figures: Figures,
) -> Result<(), Failure> {
    let stage = match stage {
        Stage::Planned => "planned",
        Stage::Written => "written",
        Stage::Done => "done",
    };
    let Figures { files, bytes, rows } = figures;
    let value = json!({
        "table": name,
        "compaction": compaction,
        "stage": stage,
        "files": files,
        "bytes": bytes,
        "rows": rows,
    });
    merge(table, COMPACT, &[value])
}

/// A line of `audit.jsonl`: an output's (or the table's) change of state, with its time in milliseconds since the epoch.
pub fn audit_line(time_ms: i64, compaction: &str, output: &str, from: &str, to: &str, detail: &str) -> Value {
    json!({
        "time_ms": time_ms,
        "compaction": compaction,
        "output": output,
        "from": from,
        "to": to,
        "detail": detail,
    })
}

/// Adds lines to `audit.jsonl`.
pub fn record_audit(table: &DirectoryTable, lines: &[Value]) -> Result<(), Failure> {
    merge(table, AUDIT, lines)
}

fn table_json(generation: &Generation) -> Value {
    let figures = |figures: Figures| json!({"files": figures.files, "bytes": figures.bytes, "rows": figures.rows});
    let keys: BTreeMap<&str, Value> = by_key(generation).into_iter().map(|(key, sum)| (key, figures(sum))).collect();
    let Figures { files, bytes, rows } = generation.figures();
    json!({
        "table": generation.table,
        "generation": generation.generation,
        "files": files,
        "bytes": bytes,
        "rows": rows,
        "keys": keys,
    })
}

fn by_key(generation: &Generation) -> BTreeMap<&str, Figures> {
    let mut keys: BTreeMap<&str, Figures> = BTreeMap::new();
    for file in &generation.live {
        let sum = keys.entry(&file.key).or_default();
        *sum = sum.plus(file.bytes, file.rows);
    }
    keys
}

/// A key is finished when every file of it is settled and nothing kept it from being committed.
fn manifest_lines(generation: &Generation) -> Vec<Value> {
    let kept: BTreeSet<&str> = generation.kept_keys.iter().map(|kept| kept.key.as_str()).collect();
    by_key(generation)
        .into_iter()
        .filter(|(key, _)| !kept.contains(key))
        .map(|(key, sum)| {
            let files: Vec<Value> = generation
                .of_key(key)
                .map(|file| {
                    json!({
                        "path": file.path,
                        "object": file.object,
                        "bytes": file.bytes,
                        "rows": file.rows,
                        "sha256": file.sha256.as_ref().map(hex),
                        "identity": identity_to_json(&file.identity),
                        "since": file.since,
                    })
                })
                .collect();
            json!({
                "key": key,
                "generation": generation.generation,
                "files": sum.files,
                "bytes": sum.bytes,
                "rows": sum.rows,
                "outputs": files,
            })
        })
        .collect()
}

/// Adds the lines that the list does not have.
fn merge(table: &DirectoryTable, path: &str, values: &[Value]) -> Result<(), Failure> {
    let mut content = table.read(path)?.map(|bytes| bytes.to_vec()).unwrap_or_default();
    let known: BTreeSet<Vec<u8>> = content.split_inclusive(|byte| *byte == b'\n').map(<[u8]>::to_vec).collect();
    let mut grew = false;
    for value in values {
        let line = line(value)?;
        if !known.contains(&line) {
            content.extend(line);
            grew = true;
        }
    }
    if grew { table.put(path, &content) } else { Ok(()) }
}

fn line(value: &Value) -> Result<Vec<u8>, Failure> {
    let mut line = serde_json::to_vec(value)
        .map_err(|error| Failure::new(FailureClass::Transient, format!("write a list: {error}")))?;
    line.push(b'\n');
    Ok(line)
}
