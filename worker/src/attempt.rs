//! One attempt on one screen: check the inputs, write, read back, report.
//!
//! The input check (independent decoder) runs beside the writing; the footer waits for it, because it carries the
//! fingerprint that the file must have. After the upload the stored object is read back by the same independent decoder.
//! The attempt measures and does not judge: expected and stored fingerprints both go into the [`Receipt`].
//!
//! A job with several outputs (a deduplicated key) is one attempt over its parts: the rows to keep are found over all
//! inputs, once by the writing side and once by the checking side with another hash, and each part is checked against
//! what the checking side keeps.
//!
//! Deliberately absent: publishing, deleting, and any knowledge of a table format.

use std::sync::Arc;
use std::time::Instant;

use baler_common::model::error::{Failure, FailureClass};
use baler_common::model::fingerprint::{FINGERPRINT_VERSION, Fingerprint};
use baler_common::model::job::{Assignment, InputFile, JobSpec, RowMode};
use baler_common::model::object::Identity;
use baler_common::model::outcome::{OutputFile, Receipt};
use baler_common::runtime::killpoint::killpoint;
use baler_common::runtime::storage::{Sink, Stored, Stores};
use sha2::{Digest, Sha256};

use crate::context::Context;
use crate::distinct;
use crate::mask::RowMask;
use crate::read::inputs::Inputs;
use crate::verify::{self, CheckSchema, Checked};
use crate::write;

/// Bytes that are copied at a time where a file is taken over as it is.
const COPY_BYTES: u64 = 4 << 20;
/// A list of inputs longer than this goes into the footer as a digest only.
const FOOTER_INPUTS_MAX: usize = 64;

/// A stretch of a job's inputs that becomes one output object.
struct Part {
    inputs: Vec<InputFile>,
    masks: Option<Masks>,
    path: String,
    first_chunk: u64,
    last_chunk: u64,
}

/// Which rows of a part are kept, found twice.
struct Masks {
    writing: RowMask,
    checking: RowMask,
}

/// A part's output object with what was measured of it.
struct WrittenPart {
    output: OutputFile,
    expected: Checked,
    found: Checked,
}

/// Runs one attempt to its end. Blocks; meant for a thread of its own.
///
/// # Errors
/// The failure names the input file and column it is about. What was stored under the attempt's own staging names stays
/// for the sweep; an object that was not finished is given up.
pub fn run_attempt(stores: &Arc<Stores>, assignment: &Assignment, context: &Context) -> Result<Receipt, Failure> {
    let started = Instant::now();
    let spec = &assignment.spec;
    let schema = CheckSchema::from_parquet(&spec.schema)?;
    let parts = match spec.mode {
        RowMode::Copy | RowMode::Verbatim => vec![single_part(spec)?],
        RowMode::Distinct => distinct_parts(stores, spec, &schema, context)?,
    };
    let mut outputs = Vec::with_capacity(parts.len());
    let mut sums: Option<(Fingerprint, Fingerprint)> = None;
    let mut verified_by: Vec<String> = Vec::new();
    for (number, part) in parts.into_iter().enumerate() {
        let WrittenPart { output, expected, found } = write_part(stores, assignment, part, number, &schema, context)?;
        sums = Some(match sums {
            None => (expected.fingerprint, found.fingerprint),
            Some((before, stored)) => {
                (before.followed_by(&expected.fingerprint), stored.followed_by(&found.fingerprint))
            }
        });
        for note in [expected.verified_by, found.verified_by] {
            if !verified_by.contains(&note) {
                verified_by.push(note);
            }
        }
        outputs.push(output);
    }
    let (expected, stored) = sums.ok_or_else(|| Failure::new(FailureClass::Unsupported, "the job has no output"))?;
    Ok(Receipt {
        outputs,
        expected,
        stored,
        verified_by: verified_by.join("; "),
        input_rows: spec.input_rows(),
        elapsed_ms: u64::try_from(started.elapsed().as_millis()).unwrap_or(u64::MAX),
    })
}

fn single_part(spec: &JobSpec) -> Result<Part, Failure> {
    let (Some(first), Some(last)) = (spec.inputs.first(), spec.inputs.last()) else {
        return Err(Failure::new(FailureClass::Unsupported, "the job has no input"));
    };
    if spec.mode == RowMode::Verbatim && spec.inputs.len() != 1 {
        return Err(Failure::new(FailureClass::Unsupported, "a file taken over as it is must be the job's only input"));
    }
    let (first_chunk, last_chunk) = (first.first_chunk, last.last_chunk);
    Ok(Part { inputs: spec.inputs.clone(), masks: None, path: spec.output_path.clone(), first_chunk, last_chunk })
}

fn distinct_parts(
    stores: &Arc<Stores>,
    spec: &JobSpec,
    schema: &CheckSchema,
    context: &Context,
) -> Result<Vec<Part>, Failure> {
    let rows = spec.input_rows();
    let inputs = Inputs::new(stores.clone(), spec.inputs.clone(), context.memory_bytes / 4);
    let writing =
        distinct::first_occurrences(rows, |sink| distinct::row_hashes(spec, &inputs, context, sink), context)?;
    let checking =
        distinct::first_occurrences(rows, |sink| verify::row_hashes(&inputs, schema, context, sink), context)?;
    if writing != checking {
        let message = "the two decoders disagree on which rows are the first of their kind: nothing was written";
        return Err(Failure::new(FailureClass::FingerprintMismatch, message).in_file(spec.output_path.clone()));
    }
    let mut first_row = 0;
    let mut parts = Vec::new();
    for output in distinct::output_ranges(spec) {
        let files = spec.inputs[output.inputs.clone()].to_vec();
        let end = first_row + files.iter().map(|file| file.rows).sum::<u64>();
        let masks = Masks { writing: writing.part(first_row..end), checking: checking.part(first_row..end) };
        first_row = end;
        parts.push(Part {
            inputs: files,
            masks: Some(masks),
            path: output.path,
            first_chunk: output.first_chunk,
            last_chunk: output.last_chunk,
        });
    }
    Ok(parts)
}

/// Writes one part and reads it back.
fn write_part(
    stores: &Arc<Stores>,
    assignment: &Assignment,
    part: Part,
    number: usize,
    schema: &CheckSchema,
    context: &Context,
) -> Result<WrittenPart, Failure> {
    let spec = &assignment.spec;
    let object = assignment.staging_object(number);
    let target = stores.get(&object.store)?;
    let inputs = Inputs::new(stores.clone(), part.inputs, context.memory_bytes / 4);
    let (writing, checking) = match &part.masks {
        Some(masks) => (Some(&masks.writing), Some(&masks.checking)),
        None => (None, None),
    };
    let check = || verify::check_inputs(&inputs, schema, checking, context);
    let mut sink = target.create(&object.path)?;
    let right = match spec.mode {
        RowMode::Verbatim => already_right(&inputs, schema, context)?,
        RowMode::Copy | RowMode::Distinct => None,
    };
    let written = match right {
        Some(expected) => take_over(&inputs, &mut sink, context).map(|()| expected),
        None => write_checked(spec, &inputs, writing, &mut sink, context, &check),
    };
    let expected = match written {
        Ok(expected) => expected,
        Err(failure) => {
            sink.abort();
            return Err(failure);
        }
    };
    killpoint("attempt-written");
    inputs.check_unchanged()?;
    let Stored { bytes, sha256, identity } = sink.finish()?;
    killpoint("attempt-stored");
    let source = target.source(&object.path, bytes, &Identity::Unknown)?;
    let found = verify::check_object(&source, schema, 0, context)?;
    killpoint("attempt-checked");
    let output = OutputFile {
        object,
        path: part.path,
        bytes,
        rows: found.fingerprint.rows,
        row_groups: found.row_groups,
        sha256,
        identity,
        first_chunk: part.first_chunk,
        last_chunk: part.last_chunk,
        fingerprint: found.fingerprint,
    };
    Ok(WrittenPart { output, expected, found })
}

/// Writes the part while `check` reads its inputs with the independent decoder, on a second thread where there is one.
fn write_checked(
    spec: &JobSpec,
    inputs: &Inputs,
    mask: Option<&RowMask>,
    sink: &mut Sink,
    context: &Context,
    check: &(impl Fn() -> Result<Checked, Failure> + Sync),
) -> Result<Checked, Failure> {
    let mut expected = None;
    let key_values = |checked: &Checked| footer_key_values(inputs.files(), &checked.fingerprint);
    if context.threads == 1 {
        let checked = check()?;
        write::write_file(spec, inputs, mask, context, sink, &mut || Ok(key_values(&checked)))?;
        return Ok(checked);
    }
    std::thread::scope(|scope| {
        let mut checking = Some(scope.spawn(check));
        let mut wait = || {
            let thread = checking.take().ok_or_else(|| lost("the footer was asked for twice"))?;
            let checked = thread.join().map_err(|_| lost("the checking thread panicked"))??;
            let values = key_values(&checked);
            expected = Some(checked);
            Ok(values)
        };
        // A failed writer stops the check, which the scope would wait for otherwise.
        write::write_file(spec, inputs, mask, context, sink, &mut wait).inspect_err(|_| context.cancel())
    })?;
    expected.ok_or_else(|| lost("the footer was not asked for"))
}

fn lost(message: &str) -> Failure {
    Failure::new(FailureClass::WorkerLost, message)
}

/// What the check finds in the only input, if it would pass as an output. One that would not, because its statistics
/// are false for instance, is written anew.
fn already_right(inputs: &Inputs, schema: &CheckSchema, context: &Context) -> Result<Option<Checked>, Failure> {
    let source = inputs.source(0)?;
    match verify::check_object(&source, schema, 0, context) {
        Ok(checked) if checked.fingerprint.rows == inputs.file(0).rows => Ok(Some(checked)),
        Ok(_) => Ok(None),
        Err(failure) => {
            context.check_running()?;
            tracing::info!(file = source.name(), reason = %failure, "the file is not right as it is: its rows are written anew");
            Ok(None)
        }
    }
}

/// Copies the only input byte for byte.
fn take_over(inputs: &Inputs, sink: &mut Sink, context: &Context) -> Result<(), Failure> {
    use std::io::Write;
    let source = inputs.source(0)?;
    let mut offset = 0;
    while offset < source.bytes() {
        context.check_running()?;
        let end = source.bytes().min(offset + COPY_BYTES);
        let block = source.read(offset..end)?;
        sink.write_all(&block)
            .map_err(|error| Failure::new(FailureClass::Transient, format!("write the copy: {error}")))?;
        context.count_read(end - offset);
        context.count_written(end - offset, 0);
        offset = end;
    }
    context.count_written(0, inputs.file(0).rows);
    Ok(())
}

/// What the footer says of the file's origin: a pure function of the plan and of the inputs' rows, so that a retry gives
/// the same bytes.
fn footer_key_values(inputs: &[InputFile], expected: &Fingerprint) -> Vec<(String, String)> {
    let mut list = String::new();
    for input in inputs {
        let InputFile { object, bytes, rows, .. } = input;
        list.push_str(&format!("{}\t{bytes}\t{rows}\t{}\n", object.path, shown_identity(&input.identity)));
    }
    let digest: String = Sha256::digest(list.as_bytes()).iter().map(|byte| format!("{byte:02x}")).collect();
    let mut values = vec![
        ("baler.version".to_owned(), env!("CARGO_PKG_VERSION").to_owned()),
        ("baler.fingerprint.version".to_owned(), FINGERPRINT_VERSION.to_string()),
        ("baler.fingerprint".to_owned(), expected.to_string()),
        ("baler.inputs.count".to_owned(), inputs.len().to_string()),
        ("baler.inputs.sha256".to_owned(), digest),
    ];
    if inputs.len() <= FOOTER_INPUTS_MAX {
        values.push(("baler.inputs".to_owned(), list));
    }
    values
}

fn shown_identity(identity: &Identity) -> String {
    match identity {
        Identity::Unknown => "-".to_owned(),
        Identity::Etag { etag, version: None } => format!("etag {etag}"),
        Identity::Etag { etag, version: Some(version) } => format!("etag {etag} version {version}"),
        // Inode and change time differ between copies of the same file; the modification time is kept by copies.
        Identity::Local { modified_ns, .. } => format!("mtime {modified_ns}"),
    }
}
