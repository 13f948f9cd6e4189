//! `verify`: proves the live files of a table again, with the independent decoder, months later if need be.
//!
//! Without `--inputs` each file that Baler wrote is read whole: its SHA-256 and the fingerprint of its rows must be those
//! on record. With `--inputs` the files that it was made of are read too, as far as they still exist unchanged, and
//! must have the rows that the job had to write.

use std::sync::Arc;

use baler_common::model::error::{Failure, FailureClass};
use baler_common::model::fingerprint::Fingerprint;
use baler_common::model::job::{ColumnMap, InputFile};
use baler_common::model::object::{Identity, ObjectRef};
use baler_common::runtime::storage::{Source, Store, Stores};
use baler_coordinator::table::directory::fsck::{VerifiedFile, verify as verify_outputs};
use baler_coordinator::table::directory::generation::{self, Generation, ListedFile};
use baler_coordinator::table::directory::{DirectoryTable, is_same_content};
use baler_worker::context::Context;
use baler_worker::read::inputs::Inputs;
use baler_worker::verify::{check_inputs, check_stored, read_schema};
use serde_json::{Value, json};

use crate::args::VerifyArgs;
use crate::show::{Style, count, counted};
use crate::tables::open_tables;
use baler_coordinator::compaction::CompactError;

/// Bytes that a check may hold.
const MEMORY_BYTES: u64 = 512 << 20;

/// What came of a file's inputs.
#[derive(Debug, Clone, PartialEq, Eq)]
enum InputsResult {
    /// Their rows are the file's.
    Equal { files: u64 },
    /// They could not be compared, and why.
    NotCompared(String),
    /// They say otherwise.
    Differ(String),
}

/// `baler verify`. True when everything on record is as it was.
pub fn verify(args: &VerifyArgs) -> Result<bool, CompactError> {
    let style = Style::of_standard_output();
    let mut well = true;
    let mut values = Vec::new();
    for named in open_tables(&args.location)? {
        if !args.json {
            println!("{}", style.strong(format!("table {}", named.name)));
        }
        let fingerprint =
            |source: &Source| -> Result<Fingerprint, Failure> { Ok(check_stored(source, &context())?.fingerprint) };
        let json = args.json;
        let mut show = |file: &VerifiedFile| {
            if !json {
                println!("  {}", file_text(file, style));
            }
        };
        let files = verify_outputs(&named.table, &fingerprint, &mut show)?;
        well &= files.iter().all(|file| file.faults.is_empty());
        let mut inputs = Vec::new();
        if args.inputs
            && let Some(newest) = generation::newest(&named.table)?
        {
            for file in newest.live.iter().filter(|file| file.proof.is_some()) {
                let result = compare_inputs(&named.table, &newest, file)?;
                well &= !matches!(result, InputsResult::Differ(_));
                if !args.json {
                    println!("  {}", inputs_text(&file.path, &result, style));
                }
                inputs.push(inputs_json(&file.path, &result));
            }
        }
        if args.json {
            values.push(json!({
                "table": named.name,
                "files": files.iter().map(file_json).collect::<Vec<_>>(),
                "inputs": inputs,
            }));
        } else {
            let proved = files.iter().filter(|file| file.on_record && file.faults.is_empty());
            let rows = proved.clone().map(|file| file.rows).fold(0, u64::saturating_add);
            println!(
                "  {} of {} proved again, {}",
                count(proved.count() as u64),
                counted(files.len() as u64, "live file", "live files"),
                counted(rows, "row", "rows")
            );
        }
    }
    if args.json {
        println!("{}", json!({"verified": well, "tables": values}));
    }
    Ok(well)
}

fn context() -> Context {
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    Context::new(MEMORY_BYTES, cores, std::env::temp_dir())
}

fn file_text(file: &VerifiedFile, style: Style) -> String {
    match (file.on_record, file.faults.is_empty()) {
        (false, _) => format!("{}: not written by Baler, so nothing is on record", file.path),
        (true, true) => format!("{}: {}, {}", file.path, counted(file.rows, "row", "rows"), style.good("as recorded")),
        (true, false) => format!("{}: {}", file.path, style.bad(file.faults.join("; "))),
    }
}

fn file_json(file: &VerifiedFile) -> Value {
    json!({"path": file.path, "rows": file.rows, "on_record": file.on_record, "faults": file.faults})
}

fn inputs_text(path: &str, result: &InputsResult, style: Style) -> String {
    match result {
        InputsResult::Equal { files } => {
            format!("{path}: its {} {}", counted(*files, "input", "inputs"), style.good("have the same rows"))
        }
        InputsResult::NotCompared(why) => format!("{path}: its inputs were not compared: {why}"),
        InputsResult::Differ(how) => format!("{path}: {}", style.bad(format!("its inputs differ: {how}"))),
    }
}

fn inputs_json(path: &str, result: &InputsResult) -> Value {
    match result {
        InputsResult::Equal { files } => json!({"path": path, "result": "equal", "files": files}),
        InputsResult::NotCompared(why) => json!({"path": path, "result": "not_compared", "says": why}),
        InputsResult::Differ(how) => json!({"path": path, "result": "differ", "says": how}),
    }
}

/// An input of a live file, wherever it is.
struct Recorded<'a> {
    object: &'a str,
    bytes: u64,
    rows: u64,
    identity: &'a Identity,
}

/// The files that a live file was made of, and the table that they are in.
fn recorded<'a>(newest: &'a Generation, file: &'a ListedFile) -> Vec<Recorded<'a>> {
    if !file.sources.is_empty() {
        let source = |it: &'a generation::SourceFile| Recorded {
            object: &it.path,
            bytes: it.bytes,
            rows: it.rows,
            identity: &it.identity,
        };
        return file.sources.iter().map(source).collect();
    }
    let mut found: Vec<&ListedFile> = newest
        .superseded
        .iter()
        .filter(|entry| entry.superseded_in == file.since && entry.file.key == file.key)
        .map(|entry| &entry.file)
        .filter(|it| it.first_chunk >= file.first_chunk && it.last_chunk <= file.last_chunk)
        .collect();
    found.sort_by_key(|it| it.first_chunk);
    let listed =
        |it: &&'a ListedFile| Recorded { object: &it.object, bytes: it.bytes, rows: it.rows, identity: &it.identity };
    found.iter().map(listed).collect()
}

fn compare_inputs(table: &DirectoryTable, newest: &Generation, file: &ListedFile) -> Result<InputsResult, Failure> {
    let not_compared = |why: &str| Ok(InputsResult::NotCompared(why.to_owned()));
    let Some(proof) = &file.proof else { return not_compared("nothing is on record") };
    let inputs = recorded(newest, file);
    if inputs.is_empty() {
        return not_compared("they are not on record any more");
    }
    if inputs.iter().map(|input| input.rows).fold(0, u64::saturating_add) != file.rows {
        return not_compared("repeated rows were left out");
    }
    let place = if file.sources.is_empty() {
        DirectoryTable::new(table.store().clone(), table.folder())
    } else {
        match Store::open("source", &newest.source_location, false) {
            Ok(store) => DirectoryTable::new(store, ""),
            Err(_) => return not_compared("their folder is not there any more"),
        }
    };
    let mut files = Vec::with_capacity(inputs.len());
    for input in &inputs {
        let found = place.head(input.object)?;
        let Some(found) = found.filter(|found| is_same_content(found, input.bytes, input.identity)) else {
            return Ok(InputsResult::NotCompared(format!("{} is gone or was changed", input.object)));
        };
        files.push(InputFile {
            object: ObjectRef::new(place.store().alias(), place.absolute(input.object)),
            bytes: input.bytes,
            rows: input.rows,
            identity: found.identity,
            first_chunk: 0,
            last_chunk: 0,
            columns: ColumnMap::Same,
        });
    }
    let output = table.head(&file.object)?;
    let Some(output) = output else { return not_compared("the file itself is gone") };
    let schema = read_schema(&table.source(&file.object, output.bytes, &output.identity)?)?;
    let stores = Arc::new(Stores::new([place.store().clone()]));
    for input in &files {
        let other = read_schema(&stores.source(&input.object, input.bytes, &input.identity)?)?;
        if other != schema {
            return not_compared("their schemas were merged");
        }
    }
    let number = files.len() as u64;
    let checked = check_inputs(&Inputs::new(stores, files, MEMORY_BYTES / 4), &schema, None, &context());
    match checked {
        Ok(checked) if checked.fingerprint == proof.fingerprint => Ok(InputsResult::Equal { files: number }),
        Ok(checked) => {
            Ok(InputsResult::Differ(format!("they are {}, the file is {}", checked.fingerprint, proof.fingerprint)))
        }
        Err(failure) if failure.class == FailureClass::Transient => Err(failure),
        Err(failure) => Ok(InputsResult::Differ(failure.to_string())),
    }
}
