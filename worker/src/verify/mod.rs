//! The checking side: an independent reader that folds what is stored straight into fingerprints.
//!
//! Footers, pages, codecs and levels are read with polars-parquet, values by `values`; nothing of it is used by the side
//! that feeds the writer (the compression libraries are shared). No row and no array is assembled: each leaf is folded
//! into one pair of sums per row, and a dictionary's values are hashed once.
//!
//! Row groups are independent pieces: their positions in the output follow from footers and mask, so they are folded on
//! as many threads as the attempt has, in any order. A row group is folded in windows of rows, so that its size does not
//! matter. A column that polars-parquet does not support is read by `second`, and the result says so.

mod bounds;
mod crc;
mod dictionary;
mod fold;
mod footer;
mod group;
mod guard;
mod index;
mod pages;
mod rows;
mod schema;
mod second;
mod thrift;
mod values;

#[cfg(test)]
mod tests;

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock};

use baler_common::model::error::{Failure, FailureClass};
use baler_common::model::fingerprint::Fingerprint;
use baler_common::model::job::ColumnMap;
use baler_common::runtime::storage::Source;

use crate::context::Context;
use crate::fingerprint::{add_row, add_rows};
use crate::mask::RowMask;
use crate::read::inputs::Inputs;
use fold::{Feed, Scratch};
use group::FileCheck;
use pages::{Budget, THREAD_BYTES_MIN};
pub use schema::CheckSchema;
use values::Treatment;

/// Name and version of the decoder, as receipts carry it.
pub const DECODER: &str = "polars-parquet 0.55.2";

/// Most columns that a receipt names as read by the second decoder.
const STAND_INS_NAMED_MAX: usize = 16;

/// What a check found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Checked {
    pub fingerprint: Fingerprint,
    /// Row groups of the object, or of all inputs.
    pub row_groups: u32,
    /// The decoder that read the rows, and columns that another one had to check.
    pub verified_by: String,
}

/// A part of what is checked, folded.
#[derive(Debug, Default)]
struct Piece {
    fingerprint: Fingerprint,
    row_groups: u32,
    /// Columns that the second decoder read.
    stand_ins: Vec<String>,
}

/// Fingerprint of all inputs concatenated. Rows outside the mask are left out: positions count kept rows only.
///
/// # Errors
/// The failure names the input and the column.
pub fn check_inputs(
    inputs: &Inputs,
    schema: &CheckSchema,
    mask: Option<&RowMask>,
    context: &Context,
) -> Result<Checked, Failure> {
    let mut starts = Vec::with_capacity(inputs.len());
    let (mut first, mut position) = (0u64, 0u64);
    for file in inputs.files() {
        starts.push((first, position));
        let kept = mask.map_or(file.rows, |mask| mask.kept_in(first..first + file.rows));
        first += file.rows;
        position += kept;
    }
    let treatment = Treatment { check_text: true, ..Treatment::default() };
    let pieces = in_pieces(inputs.len(), context, |input, budget, scratch| {
        let (first, position) = starts[input];
        check_input(inputs, input, schema, mask, first, position, treatment, budget, scratch, context)
    })?;
    Ok(total(pieces))
}

#[allow(clippy::too_many_arguments)]
fn check_input(
    inputs: &Inputs,
    input: usize,
    schema: &CheckSchema,
    mask: Option<&RowMask>,
    mut first: u64,
    mut position: u64,
    treatment: Treatment,
    budget: Budget,
    scratch: &mut Scratch,
    context: &Context,
) -> Result<Piece, Failure> {
    let mut fingerprint = Fingerprint::default();
    let (row_groups, stand_ins) =
        each_window(inputs, input, schema, treatment, budget, scratch, context, &mut |rows| {
            match mask {
                None => {
                    add_rows(&mut fingerprint, rows, position);
                    position += rows.len() as u64;
                    first += rows.len() as u64;
                }
                Some(mask) => {
                    for row in rows {
                        if mask.keeps(first) {
                            add_row(&mut fingerprint, *row, position);
                            position += 1;
                        }
                        first += 1;
                    }
                }
            }
            Ok(())
        })?;
    Ok(Piece { fingerprint, row_groups, stand_ins })
}

/// Folds the row groups of one input and hands over the sums of its rows, in order. Answers how many row groups there
/// are, and which columns the second decoder read.
#[allow(clippy::too_many_arguments)]
fn each_window(
    inputs: &Inputs,
    input: usize,
    schema: &CheckSchema,
    treatment: Treatment,
    budget: Budget,
    scratch: &mut Scratch,
    context: &Context,
    take: &mut dyn FnMut(&[[u64; 2]]) -> Result<(), Failure>,
) -> Result<(u32, Vec<String>), Failure> {
    let source = inputs.source(input)?;
    let file = inputs.file(input);
    let metadata = footer::read_footer(&source)?;
    let own = CheckSchema::from_descriptor(&metadata.schema_descr).map_err(|f| f.in_file(source.name()))?;
    let feeds = feeds(schema, &own, &file.columns).map_err(|failure| failure.in_file(source.name()))?;
    let rows = metadata.row_groups.iter().try_fold(0u64, |sum, group| sum.checked_add(group.num_rows() as u64));
    if rows != Some(file.rows) || metadata.num_rows as u64 != file.rows {
        let message = format!("its footer has {} rows, {} were planned", metadata.num_rows, file.rows);
        return Err(Failure::new(FailureClass::InputCorrupt, message).in_file(source.name()));
    }
    let check = FileCheck {
        source: &source,
        metadata: &metadata,
        schema,
        feeds: &feeds,
        treatment,
        budget,
        context,
        stand_ins: Mutex::default(),
        second: OnceLock::new(),
    };
    for group in 0..metadata.row_groups.len() {
        check.fold_group(group, scratch, take)?;
    }
    Ok((metadata.row_groups.len() as u32, check.stand_ins()))
}

/// Fingerprint of one stored object whose first row has `first_position` in the output's order. The object's schema must
/// be the job's, and its statistics must hold.
///
/// # Errors
/// [`FailureClass::FingerprintMismatch`] when the object is not as it should be.
pub fn check_object(
    source: &Source,
    schema: &CheckSchema,
    first_position: u64,
    context: &Context,
) -> Result<Checked, Failure> {
    let metadata = footer::read_footer(source)?;
    if metadata.schema_descr.fields() != schema.fields.as_slice() {
        let message = "the stored file has another schema than the job";
        return Err(Failure::new(FailureClass::FingerprintMismatch, message).in_file(source.name()));
    }
    let rows = metadata.row_groups.iter().try_fold(0usize, |sum, group| sum.checked_add(group.num_rows()));
    if rows != Some(metadata.num_rows) {
        let message = format!("its footer has {} rows, its row groups have others", metadata.num_rows);
        return Err(Failure::new(FailureClass::InputCorrupt, message).in_file(source.name()));
    }
    let feeds = feeds(schema, schema, &ColumnMap::Same)?;
    let mut starts = Vec::with_capacity(metadata.row_groups.len());
    let mut position = first_position;
    for group in &metadata.row_groups {
        starts.push(position);
        position = position.saturating_add(group.num_rows() as u64);
    }
    let check = FileCheck {
        source,
        metadata: &metadata,
        schema,
        feeds: &feeds,
        treatment: Treatment { check_statistics: true, ..Treatment::default() },
        budget: Budget::new(context, pieces_at_once(metadata.row_groups.len(), context)),
        context,
        stand_ins: Mutex::default(),
        second: OnceLock::new(),
    };
    let mut pieces = in_pieces(metadata.row_groups.len(), context, |group, _, scratch| {
        let mut piece = Piece { row_groups: 1, ..Piece::default() };
        let mut position = starts[group];
        check.fold_group(group, scratch, &mut |rows| {
            add_rows(&mut piece.fingerprint, rows, position);
            position = position.saturating_add(rows.len() as u64);
            Ok(())
        })?;
        Ok(piece)
    })?;
    pieces.push(Piece { stand_ins: check.stand_ins(), ..Piece::default() });
    Ok(total(pieces))
}

/// Fingerprint of a stored file by its own schema, for a check long after its job. Its statistics must hold.
///
/// # Errors
/// [`FailureClass::InputCorrupt`] when the file cannot be read.
pub fn check_stored(source: &Source, context: &Context) -> Result<Checked, Failure> {
    check_object(source, &read_schema(source)?, 0, context)
}

/// The schema in a file's footer.
///
/// # Errors
/// [`FailureClass::InputCorrupt`] when the footer cannot be read.
pub fn read_schema(source: &Source) -> Result<CheckSchema, Failure> {
    let metadata = footer::read_footer(source)?;
    CheckSchema::from_descriptor(&metadata.schema_descr).map_err(|failure| failure.in_file(source.name()))
}

/// A 128-bit hash of every row of the inputs, in order, handed over in blocks: equal rows have equal hashes, where any
/// NaN equals any other, null equals null, and -0.0 differs from 0.0.
pub fn row_hashes(
    inputs: &Inputs,
    schema: &CheckSchema,
    context: &Context,
    sink: &mut dyn FnMut(&[[u64; 2]]) -> Result<(), Failure>,
) -> Result<(), Failure> {
    let treatment = Treatment { one_nan: true, check_text: true, check_statistics: false };
    let mut scratch = Scratch::new();
    let budget = Budget::new(context, 1);
    for input in 0..inputs.len() {
        each_window(inputs, input, schema, treatment, budget, &mut scratch, context, sink)?;
    }
    Ok(())
}

/// For each leaf of the output: the input's leaf that feeds it, or what is known of it from its neighbours.
fn feeds<'a>(
    schema: &CheckSchema,
    own: &'a CheckSchema,
    columns: &ColumnMap,
) -> Result<Vec<Option<(usize, Feed<'a>)>>, Failure> {
    let mismatch = |message: &str| Failure::new(FailureClass::SchemaMismatch, message);
    let mut found = Vec::with_capacity(schema.leaves.len());
    for (number, output) in schema.leaves.iter().enumerate() {
        let leaf = match columns {
            ColumnMap::Same if own.leaves.len() != schema.leaves.len() => {
                return Err(mismatch("it has another number of columns than the job"));
            }
            ColumnMap::Same => Some(number),
            ColumnMap::Leaves(leaves) => leaves.get(number).copied().flatten().map(|leaf| leaf as usize),
        };
        let feed = match leaf {
            Some(leaf) => {
                let stored =
                    own.leaves.get(leaf).ok_or_else(|| mismatch("the job names a column that it does not have"))?;
                if stored.type_text != output.type_text {
                    let message = format!("its type is {}, the job's is {}", stored.type_text, output.type_text);
                    return Err(mismatch(&message).in_column(output.path.as_str()));
                }
                if stored.canonical.last() != output.canonical.last() || stored.max_repetition != output.max_repetition
                {
                    return Err(mismatch("its nesting is not the job's").in_column(output.path.as_str()));
                }
                Some((leaf, Feed::Leaf(stored)))
            }
            None => neighbour(output, schema, own, columns),
        };
        found.push(feed);
    }
    Ok(found)
}

/// The leaf of the input that shares most of a missing column's path, and the levels of the last node they share.
///
/// What a leaf of the input shares is told by the output's leaf that it feeds, node by node, since names can occur twice
/// in a group; only a leaf that feeds nothing is compared by name.
fn neighbour<'a>(
    output: &schema::Leaf,
    schema: &CheckSchema,
    own: &'a CheckSchema,
    columns: &ColumnMap,
) -> Option<(usize, Feed<'a>)> {
    let ColumnMap::Leaves(map) = columns else { return None };
    let mut fed: Vec<Option<&schema::Leaf>> = vec![None; own.leaves.len()];
    for (leaf, source) in schema.leaves.iter().zip(map) {
        if let Some(place) = source.and_then(|number| fed.get_mut(number as usize)) {
            *place = Some(leaf);
        }
    }
    let shared = |number: usize, leaf: &schema::Leaf| match fed[number] {
        Some(fed) => fed.steps.iter().zip(&output.steps).take_while(|(have, want)| have.place == want.place).count(),
        None => leaf.steps.iter().zip(&output.steps).take_while(|(have, want)| have.name == want.name).count(),
    };
    let (number, leaf) = own
        .leaves
        .iter()
        .enumerate()
        .max_by_key(|(number, leaf)| (shared(*number, leaf), std::cmp::Reverse(*number)))?;
    let step = leaf.steps.get(shared(number, leaf).checked_sub(1)?)?;
    Some((number, Feed::Neighbour { leaf, canonical: step.canonical, repetition: step.repetition }))
}

/// How many pieces are folded at once: as many as there are threads and memory for.
fn pieces_at_once(count: usize, context: &Context) -> usize {
    let fed = usize::try_from(context.memory_bytes / (2 * THREAD_BYTES_MIN)).unwrap_or(usize::MAX);
    context.threads.min(count).min(fed).max(1)
}

/// Runs `fold` for every piece, on the attempt's threads. The first failure by piece number wins.
fn in_pieces(
    count: usize,
    context: &Context,
    fold: impl Fn(usize, Budget, &mut Scratch) -> Result<Piece, Failure> + Sync,
) -> Result<Vec<Piece>, Failure> {
    let threads = pieces_at_once(count, context);
    let budget = Budget::new(context, threads);
    if threads == 1 {
        let mut scratch = Scratch::new();
        return (0..count).map(|piece| fold(piece, budget, &mut scratch)).collect();
    }
    let next = AtomicUsize::new(0);
    let failed = AtomicBool::new(false);
    let results: Arc<Mutex<Vec<_>>> = Arc::new(Mutex::new(Vec::with_capacity(count)));
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                let mut scratch = Scratch::new();
                while !failed.load(Ordering::Relaxed) {
                    let piece = next.fetch_add(1, Ordering::Relaxed);
                    if piece >= count {
                        break;
                    }
                    let result = fold(piece, budget, &mut scratch);
                    if result.is_err() {
                        failed.store(true, Ordering::Relaxed);
                    }
                    results.lock().unwrap_or_else(std::sync::PoisonError::into_inner).push((piece, result));
                }
            });
        }
    });
    let mut results = std::mem::take(&mut *results.lock().unwrap_or_else(std::sync::PoisonError::into_inner));
    results.sort_by_key(|(piece, _)| *piece);
    results.into_iter().map(|(_, result)| result).collect()
}

fn total(pieces: Vec<Piece>) -> Checked {
    let mut fingerprint = Fingerprint::default();
    let mut row_groups = 0;
    let mut stand_ins = BTreeSet::new();
    for piece in pieces {
        fingerprint.add(&piece.fingerprint);
        row_groups += piece.row_groups;
        stand_ins.extend(piece.stand_ins);
    }
    Checked { fingerprint, row_groups, verified_by: verified_by(&stand_ins) }
}

/// The decoders as a receipt names them: `polars-parquet 0.55.2; m.key: parquet-rs 60.1.0 (shared: page reader)`.
fn verified_by(stand_ins: &BTreeSet<String>) -> String {
    if stand_ins.is_empty() {
        return DECODER.to_owned();
    }
    let mut named: Vec<&str> = stand_ins.iter().map(String::as_str).take(STAND_INS_NAMED_MAX).collect();
    let more = format!("{} more columns", stand_ins.len() - named.len());
    if named.len() < stand_ins.len() {
        named.push(&more);
    }
    format!("{DECODER}; {}: {}", named.join(", "), second::SECOND_DECODER)
}
