//! Hashes of whole rows, from what the writing side's decoder reads.
//!
//! A leaf column gives each row a pair of sums over its slots: levels and values, in order. The levels are those of the
//! output's schema, so that a column which is required in one file and nullable in another hashes alike. The pairs of
//! all leaves add up to the row's hash, so leaves are read one after the other, on several threads, and no row is put
//! together. Any NaN counts as the same NaN; everything else counts by its bits.
//!
//! Row groups too large for the budget are read in stretches of rows.

use std::ops::Range;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;

use baler_common::model::error::{Failure, FailureClass};
use baler_common::model::job::{ColumnMap, JobSpec};
use baler_common::runtime::storage::Source;
use parquet::basic::{LogicalType, Repetition};
use parquet::column::reader::{ColumnReader, ColumnReaderImpl, get_column_reader};
use parquet::data_type::{AsBytes, ByteArray, DataType, FixedLenByteArray, Int96};
use parquet::errors::ParquetError;
use parquet::file::metadata::{ParquetMetaData, ParquetMetaDataReader, RowGroupMetaData};
use parquet::file::serialized_reader::SerializedPageReader;
use parquet::schema::types::{SchemaDescriptor, Type};
use xxhash_rust::xxh3::xxh3_128_with_seed;

use super::pages::Windowed;
use crate::context::Context;
use crate::read::inputs::Inputs;

/// Rows whose hashes are always taken together.
const STRETCH_ROWS_MIN: u64 = 1 << 16;
/// Rows handed over at a time.
const BLOCK_ROWS: usize = 1 << 14;
/// Decoded bytes that one batch of a leaf aims at.
const BATCH_BYTES: u64 = 4 << 20;
const BATCH_ROWS_MAX: u64 = 8 << 10;
/// Largest footer that is read.
const FOOTER_BYTES_MAX: u64 = 64 << 20;

const FOLD: [u64; 4] = [0xa076_1d64_78bd_642f, 0xe703_7ed1_a0b4_28db, 0x8ebc_6af0_9c88_c6e3, 0x5899_65cc_7537_4cc3];

/// Hands the hash of every row of the inputs to `sink`, in order. Equal rows have equal hashes, where null equals null,
/// any NaN equals any other, and -0.0 differs from 0.0.
///
/// # Errors
/// An input that cannot be read or does not have the planned rows, with file and column; whatever `sink` fails with.
pub fn row_hashes(
    spec: &JobSpec,
    inputs: &Inputs,
    context: &Context,
    sink: &mut dyn FnMut(&[[u64; 2]]) -> Result<(), Failure>,
) -> Result<(), Failure> {
    let schema = bytes::Bytes::from(spec.schema.clone());
    let schema = ParquetMetaDataReader::new().parse_and_finish(&schema).map_err(|error| {
        Failure::new(FailureClass::Unsupported, format!("the job's schema cannot be read: {error}"))
    })?;
    for input in 0..inputs.len() {
        let source = inputs.source(input)?;
        let named = |failure: Failure| failure.in_file(source.name());
        let file = inputs.file(input);
        let footer = guarded(|| read_footer(&source)).map_err(named)?;
        let rows = (0..footer.num_row_groups()).try_fold(0u64, |rows, group| {
            u64::try_from(footer.row_group(group).num_rows()).ok().and_then(|more| rows.checked_add(more))
        });
        if rows != Some(file.rows) {
            let message = format!("its footer counts other rows than the {} that were planned: plan again", file.rows);
            return Err(named(Failure::new(FailureClass::InputChanged, message)));
        }
        let leaves = leaves(schema.file_metadata().schema_descr(), &footer, &file.columns).map_err(named)?;
        for group in 0..footer.num_row_groups() {
            hash_group(&source, footer.row_group(group), &leaves, context, sink).map_err(named)?;
        }
    }
    Ok(())
}

fn read_footer(source: &Arc<Source>) -> Result<ParquetMetaData, Failure> {
    let corrupt = |message: String| Failure::new(FailureClass::InputCorrupt, message);
    let bytes = source.bytes();
    if bytes < 12 {
        return Err(corrupt(format!("{bytes} bytes are too few for a Parquet file")));
    }
    let tail = source.read(bytes - 8..bytes)?;
    let length = tail.first_chunk::<4>().map_or(0, |length| u64::from(u32::from_le_bytes(*length)));
    match &tail[4..] {
        b"PAR1" => {}
        b"PARE" => {
            let message = "its footer is encrypted: Baler does not read encrypted files";
            return Err(Failure::new(FailureClass::Unsupported, message));
        }
        _ => return Err(corrupt("it does not end as a Parquet file does".to_owned())),
    }
    if length > FOOTER_BYTES_MAX || length + 12 > bytes {
        return Err(corrupt(format!("its footer claims {length} bytes")));
    }
    let footer = source.read(bytes - 8 - length..bytes - 8)?;
    ParquetMetaDataReader::decode_metadata(&footer)
        .map_err(|error| corrupt(format!("its footer cannot be read: {error}")))
}

/// One leaf of the output and what feeds it from one input.
struct Leaf {
    /// Dotted path.
    name: String,
    /// Depth-first number in the output.
    number: u64,
    /// Number in the input; `None` where the input has no such column.
    input: Option<usize>,
    /// The output's definition level for each of the input's.
    levels: Vec<i16>,
    float16: bool,
}

fn leaves(output: &SchemaDescriptor, footer: &ParquetMetaData, map: &ColumnMap) -> Result<Vec<Leaf>, Failure> {
    let input = footer.file_metadata().schema_descr();
    let differs = |message: String| Failure::new(FailureClass::SchemaMismatch, message);
    let numbers: Vec<Option<usize>> = match map {
        ColumnMap::Same => (0..output.num_columns()).map(Some).collect(),
        ColumnMap::Leaves(leaves) => leaves.iter().map(|leaf| leaf.map(|leaf| leaf as usize)).collect(),
    };
    if numbers.len() != output.num_columns() || (*map == ColumnMap::Same && input.num_columns() != numbers.len()) {
        return Err(differs(format!("it has {} columns, the output {}", input.num_columns(), output.num_columns())));
    }
    let (input_nodes, output_nodes) = (leaf_nodes(input), leaf_nodes(output));
    let leaf = |(number, from): (usize, Option<usize>)| {
        let wanted = output.column(number);
        let name = wanted.path().string();
        let found = match from {
            None => None,
            Some(from) if from < input.num_columns() => Some(input.column(from)),
            Some(from) => return Err(differs(format!("it has no column number {from}")).in_column(name)),
        };
        let levels = match &found {
            None => Vec::new(),
            Some(found) if found.physical_type() != wanted.physical_type() => {
                let (is, should) = (found.physical_type(), wanted.physical_type());
                return Err(differs(format!("it is stored as {is}, the output as {should}")).in_column(name));
            }
            Some(_) => from
                .and_then(|from| level_map(input_nodes.get(from)?, output_nodes.get(number)?))
                .ok_or_else(|| differs("it is nested otherwise than in the output".to_owned()).in_column(&name))?,
        };
        let float16 = matches!(wanted.logical_type_ref(), Some(LogicalType::Float16));
        Ok(Leaf { name, number: number as u64, input: from, levels, float16 })
    };
    numbers.into_iter().enumerate().map(leaf).collect()
}

/// For each leaf, depth-first, the repetition of each node from below the root to the leaf. By position, not by name:
/// names can occur twice.
fn leaf_nodes(schema: &SchemaDescriptor) -> Vec<Vec<Repetition>> {
    fn walk(node: &Type, above: &[Repetition], found: &mut Vec<Vec<Repetition>>) {
        let nodes = [above, &[node.get_basic_info().repetition()]].concat();
        match node {
            Type::PrimitiveType { .. } => found.push(nodes),
            Type::GroupType { fields, .. } => fields.iter().for_each(|field| walk(field, &nodes, found)),
        }
    }
    let mut found = Vec::with_capacity(schema.num_columns());
    if let Type::GroupType { fields, .. } = schema.root_schema() {
        fields.iter().for_each(|field| walk(field, &[], &mut found));
    }
    found
}

/// For each definition level of the first path, the level that says the same in the second: how many of its nodes that
/// can be absent are there.
fn level_map(from: &[Repetition], to: &[Repetition]) -> Option<Vec<i16>> {
    let repeated =
        |nodes: &[Repetition]| -> Vec<bool> { nodes.iter().map(|&node| node == Repetition::REPEATED).collect() };
    if repeated(from) != repeated(to) {
        return None;
    }
    let mut levels = Vec::new();
    let mut above = 0;
    for (from, to) in from.iter().zip(to) {
        // This node is the first absent one: all nodes above it are there.
        if *from != Repetition::REQUIRED {
            levels.push(above);
        }
        above += i16::from(*to != Repetition::REQUIRED);
    }
    levels.push(above);
    Some(levels)
}

fn hash_group(
    source: &Arc<Source>,
    group: &RowGroupMetaData,
    leaves: &[Leaf],
    context: &Context,
    sink: &mut dyn FnMut(&[[u64; 2]]) -> Result<(), Failure>,
) -> Result<(), Failure> {
    let rows = u64::try_from(group.num_rows()).unwrap_or(0);
    let threads = context.threads.clamp(1, leaves.len().max(1));
    let stretch = (context.memory_bytes / (8 * 16 * threads as u64)).max(STRETCH_ROWS_MIN);
    let mut start = 0;
    while start < rows {
        let end = rows.min(start + stretch);
        let hashes = hash_stretch(source, group, leaves, start..end, threads, context)?;
        for block in hashes.chunks(BLOCK_ROWS) {
            sink(block)?;
        }
        start = end;
    }
    Ok(())
}

/// The hashes of some rows of a row group, from all leaves.
fn hash_stretch(
    source: &Arc<Source>,
    group: &RowGroupMetaData,
    leaves: &[Leaf],
    rows: Range<u64>,
    threads: usize,
    context: &Context,
) -> Result<Vec<[u64; 2]>, Failure> {
    let some_leaves = |first: usize| -> Result<Vec<[u64; 2]>, Failure> {
        let mut sums = vec![[0; 2]; (rows.end - rows.start) as usize];
        for leaf in leaves.iter().skip(first).step_by(threads) {
            context.check_running()?;
            guarded(|| add_leaf(source, group, leaf, rows.start, &mut sums, context))
                .map_err(|failure| failure.in_column(&leaf.name))?;
        }
        Ok(sums)
    };
    if threads == 1 {
        return some_leaves(0);
    }
    std::thread::scope(|scope| {
        let others: Vec<_> = (1..threads).map(|first| scope.spawn(move || some_leaves(first))).collect();
        let mut sums = some_leaves(0);
        for other in others {
            let more = other.join().unwrap_or_else(|_| {
                Err(Failure::new(FailureClass::WorkerLost, "a thread that hashed rows panicked: report this file"))
            });
            sums = sums.and_then(|mut sums| {
                for (sum, more) in sums.iter_mut().zip(more?) {
                    *sum = [sum[0].wrapping_add(more[0]), sum[1].wrapping_add(more[1])];
                }
                Ok(sums)
            });
        }
        sums
    })
}

/// Adds one leaf's share to the sums of the rows from `first` on.
fn add_leaf(
    source: &Arc<Source>,
    group: &RowGroupMetaData,
    leaf: &Leaf,
    first: u64,
    sums: &mut [[u64; 2]],
    context: &Context,
) -> Result<(), Failure> {
    let Some(number) = leaf.input else {
        let absent = Slots { leaf, batch_rows: 1 }.absent();
        sums.iter_mut().for_each(|sum| add(sum, absent));
        return Ok(());
    };
    let corrupt = |message: &str| Failure::new(FailureClass::InputCorrupt, message);
    let chunk = group.columns().get(number).ok_or_else(|| corrupt("the row group lacks the column"))?;
    // The library asserts what it takes for granted here.
    let start = chunk.dictionary_page_offset().unwrap_or(chunk.data_page_offset());
    let (Ok(start), Ok(length)) = (u64::try_from(start), u64::try_from(chunk.compressed_size())) else {
        return Err(corrupt("the column chunk has a negative place or size"));
    };
    let Some(end) = start.checked_add(length).filter(|&end| end <= source.bytes()) else {
        return Err(corrupt("the column chunk lies outside of the file"));
    };
    let rows = u64::try_from(group.num_rows()).unwrap_or(0).max(1);
    let row_bytes = u64::try_from(chunk.uncompressed_size()).unwrap_or(0) / rows + 1;
    let slots = Slots { leaf, batch_rows: (BATCH_BYTES / row_bytes).clamp(1, BATCH_ROWS_MAX) as usize };
    let pages = SerializedPageReader::new(Arc::new(Windowed::new(source.clone(), end)), chunk, rows as usize, None)
        .map_err(unreadable)?;
    let floats = |bits: u32| if f32::from_bits(bits).is_nan() { 0x7fc0_0000 } else { bits };
    let doubles = |bits: u64| if f64::from_bits(bits).is_nan() { 0x7ff8_0000_0000_0000 } else { bits };
    match get_column_reader(chunk.column_descr_ptr(), Box::new(pages)) {
        ColumnReader::BoolColumnReader(reader) => {
            slots.read(reader, first, sums, context, |value: &bool, state| state.word(u64::from(*value)))
        }
        ColumnReader::Int32ColumnReader(reader) => {
            slots.read(reader, first, sums, context, |value: &i32, state| state.word(*value as u32 as u64))
        }
        ColumnReader::Int64ColumnReader(reader) => {
            slots.read(reader, first, sums, context, |value: &i64, state| state.word(*value as u64))
        }
        ColumnReader::FloatColumnReader(reader) => slots.read(reader, first, sums, context, |value: &f32, state| {
            state.word(u64::from(floats(value.to_bits())));
        }),
        ColumnReader::DoubleColumnReader(reader) => slots.read(reader, first, sums, context, |value: &f64, state| {
            state.word(doubles(value.to_bits()));
        }),
        ColumnReader::Int96ColumnReader(reader) => slots.read(reader, first, sums, context, |value: &Int96, state| {
            state.bytes(value.as_bytes());
        }),
        ColumnReader::ByteArrayColumnReader(reader) => {
            slots.read(reader, first, sums, context, |value: &ByteArray, state| state.bytes(value.data()))
        }
        ColumnReader::FixedLenByteArrayColumnReader(reader) => {
            slots.read(reader, first, sums, context, |value: &FixedLenByteArray, state| match value.data() {
                &[low, high] if leaf.float16 && high & 0x7c == 0x7c && (high & 0x03 != 0 || low != 0) => {
                    state.bytes(&[0x00, 0x7e]);
                }
                bytes => state.bytes(bytes),
            })
        }
    }
}

/// The slots of one leaf of one row group.
struct Slots<'a> {
    leaf: &'a Leaf,
    batch_rows: usize,
}

impl Slots<'_> {
    /// What a row adds that lacks the column: one slot, defined nowhere.
    fn absent(&self) -> [u64; 2] {
        let mut state = State::of(self.leaf.number);
        state.levels(0, 0);
        state.end()
    }

    fn read<T: DataType>(
        &self,
        mut reader: ColumnReaderImpl<T>,
        first: u64,
        sums: &mut [[u64; 2]],
        context: &Context,
        value: impl Fn(&T::T, &mut State),
    ) -> Result<(), Failure> {
        let short = || Failure::new(FailureClass::InputCorrupt, "the column holds fewer rows than its row group");
        let skipped = reader.skip_records(first as usize).map_err(unreadable)?;
        if skipped as u64 != first {
            return Err(short());
        }
        let (mut definitions, mut repetitions, mut values) = (Vec::new(), Vec::new(), Vec::new());
        let top = self.leaf.levels.len().saturating_sub(1) as i16;
        let mut rest = sums;
        while !rest.is_empty() {
            context.check_running()?;
            definitions.clear();
            repetitions.clear();
            values.clear();
            let wanted = self.batch_rows.min(rest.len());
            let (records, held, slots) = reader
                .read_records(wanted, Some(&mut definitions), Some(&mut repetitions), &mut values)
                .map_err(unreadable)?;
            if records == 0 || records > rest.len() {
                return Err(short());
            }
            let (batch, after) = rest.split_at_mut(records);
            rest = after;
            let mut batch = batch.iter_mut();
            let mut row: Option<&mut [u64; 2]> = None;
            let mut state = State::of(self.leaf.number);
            let mut next = 0;
            for slot in 0..slots {
                let repetition = repetitions.get(slot).copied().unwrap_or(0);
                if repetition == 0 {
                    if let Some(row) = row.take() {
                        add(row, state.end());
                    }
                    state = State::of(self.leaf.number);
                    row = Some(batch.next().ok_or_else(short)?);
                }
                let definition = definitions.get(slot).copied().unwrap_or(top);
                let level = usize::try_from(definition).ok().and_then(|level| self.leaf.levels.get(level));
                state.levels(repetition, *level.ok_or_else(short)?);
                if definition == top {
                    value(values.get(next).ok_or_else(short)?, &mut state);
                    next += 1;
                }
            }
            if let Some(row) = row {
                add(row, state.end());
            }
            if batch.next().is_some() || next != held {
                return Err(short());
            }
        }
        Ok(())
    }
}

/// The hash of a row's slots in one leaf while they come in.
struct State([u64; 2]);

impl State {
    fn of(leaf: u64) -> Self {
        Self([FOLD[0] ^ leaf, FOLD[1] ^ leaf.rotate_left(32)])
    }

    fn word(&mut self, word: u64) {
        self.0 = [
            fold(self.0[0] ^ word, FOLD[2]).wrapping_add(FOLD[0]),
            fold(self.0[1].rotate_left(29) ^ word, FOLD[3]).wrapping_add(FOLD[1]),
        ];
    }

    fn levels(&mut self, repetition: i16, definition: i16) {
        self.word(1 << 63 | u64::from(repetition as u16) << 16 | u64::from(definition as u16));
    }

    fn bytes(&mut self, bytes: &[u8]) {
        let hash = xxh3_128_with_seed(bytes, FOLD[0]);
        self.word(hash as u64);
        self.word((hash >> 64) as u64);
    }

    fn end(&self) -> [u64; 2] {
        [fold(self.0[0], FOLD[1]) ^ self.0[1], fold(self.0[1], FOLD[0]) ^ self.0[0].rotate_left(17)]
    }
}

/// Both halves of the product, folded. Two factors of zero would forget everything; the constants are odd, and the sum
/// after each step keeps the state from staying there.
fn fold(a: u64, b: u64) -> u64 {
    let product = u128::from(a) * u128::from(b);
    product as u64 ^ (product >> 64) as u64
}

fn add(sum: &mut [u64; 2], more: [u64; 2]) {
    *sum = [sum[0].wrapping_add(more[0]), sum[1].wrapping_add(more[1])];
}

/// The library takes some of what a file says for granted and panics where it is not so: the file is broken then.
fn guarded<T>(read: impl FnOnce() -> Result<T, Failure>) -> Result<T, Failure> {
    std::panic::catch_unwind(AssertUnwindSafe(read)).unwrap_or_else(|_| {
        Err(Failure::new(FailureClass::InputCorrupt, "its pages contradict each other: the decoder gave up"))
    })
}

fn unreadable(error: ParquetError) -> Failure {
    match error {
        ParquetError::External(source) => match source.downcast::<Failure>() {
            Ok(failure) => *failure,
            Err(source) => Failure::new(FailureClass::InputCorrupt, format!("it cannot be decoded: {source}")),
        },
        ParquetError::NYI(what) => {
            Failure::new(FailureClass::Unsupported, format!("it uses what Baler does not read: {what}"))
        }
        error => Failure::new(FailureClass::InputCorrupt, format!("it cannot be decoded: {error}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const REQUIRED: Repetition = Repetition::REQUIRED;
    const OPTIONAL: Repetition = Repetition::OPTIONAL;
    const REPEATED: Repetition = Repetition::REPEATED;

    #[test]
    fn levels_say_the_same_whatever_is_nullable() {
        assert_eq!(level_map(&[REQUIRED], &[OPTIONAL]), Some(vec![1]));
        assert_eq!(level_map(&[OPTIONAL], &[OPTIONAL]), Some(vec![0, 1]));
        // A nullable struct of a required field, read into one of a nullable field: null struct, value.
        assert_eq!(level_map(&[OPTIONAL, REQUIRED], &[OPTIONAL, OPTIONAL]), Some(vec![0, 2]));
        let list = [OPTIONAL, REPEATED, OPTIONAL];
        assert_eq!(level_map(&list, &list), Some(vec![0, 1, 2, 3]));
        assert_eq!(level_map(&[REQUIRED, REPEATED, REQUIRED], &list), Some(vec![1, 3]));
        assert_eq!(level_map(&[OPTIONAL], &list), None);
    }

    #[test]
    fn a_known_row_keeps_its_hash() {
        let mut state = State::of(0);
        state.levels(0, 1);
        state.bytes(b"abc");
        let known = state.end();
        let mut again = State::of(0);
        again.levels(0, 1);
        again.bytes(b"abc");
        assert_eq!(again.end(), known);
        let mut other = State::of(1);
        other.levels(0, 1);
        other.bytes(b"abc");
        assert_ne!(other.end(), known, "the same value in another column");
    }
}
