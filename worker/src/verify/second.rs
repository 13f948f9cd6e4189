//! The decoder that stands in where polars-parquet cannot read a column: parquet-rs.
//!
//! It is what feeds the writer too, so its word is a weaker proof, and receipts say which columns rest on it. Only its
//! page reader and its column readers are shared: levels and values are folded here, by the same definition as those of
//! the first decoder, and nothing of the writing side is used.
//!
//! Page sizes and checksums are checked before parquet-rs sees a page. The bounds of single pages are not.

use std::io::Read;
use std::ops::Range;
use std::sync::{Arc, Mutex, PoisonError};

use baler_common::model::error::{Failure, FailureClass};
use baler_common::runtime::storage::Source;
use bytes::{Buf, Bytes};
use parquet::column::reader::{ColumnReader, ColumnReaderImpl, get_column_reader};
use parquet::data_type::{ByteArray, DataType, FixedLenByteArray, Int96};
use parquet::errors::ParquetError;
use parquet::file::metadata::{ColumnChunkMetaData, ParquetMetaData, ParquetMetaDataReader};
use parquet::file::reader::{ChunkReader, Length};
use parquet::file::serialized_reader::SerializedPageReader;

use super::fold::{Chunk, chunk_range};
use super::pages::{Kind, Pages};
use super::rows::Fold;
use super::values::{PageValues, ValueReader};
use crate::context::Context;
use crate::fingerprint::{hash_bytes, mix, mix_all};

/// Name and version, as receipts carry them.
pub(super) const SECOND_DECODER: &str = "parquet-rs 60.1.0 (shared: page reader)";

/// Records decoded at a time.
const BATCH_ROWS: usize = 4 << 10;
/// Bytes fetched at a time.
const WINDOW_BYTES: u64 = 1 << 20;

/// How far a chunk was folded.
#[derive(Debug, Clone, Default)]
pub(super) struct Progress {
    rows: usize,
    /// Rows that the first decoder had read when this one took over.
    skipped: usize,
    /// Whether the pages were looked at.
    looked: bool,
    slots: u64,
    nulls: u64,
}

impl Progress {
    /// The first decoder read this many rows.
    pub(super) fn skip_to(&mut self, rows: usize) {
        (self.rows, self.skipped) = (rows, rows);
    }
}

fn corrupt(message: impl Into<String>) -> Failure {
    Failure::new(FailureClass::InputCorrupt, message)
}

/// Reads a footer, as the first decoder was given it (with the eight bytes that end the file).
pub(super) fn read_footer(footer: &[u8]) -> Result<ParquetMetaData, Failure> {
    let thrift = footer.len().checked_sub(8).map(|end| &footer[..end]).ok_or_else(|| corrupt("its footer is gone"))?;
    ParquetMetaDataReader::decode_metadata(thrift).map_err(unreadable)
}

impl Chunk<'_> {
    /// Folds the next rows of the chunk, which is `own` in parquet-rs's footer, into `rows`.
    pub(super) fn fold_second(
        &self,
        own: &ColumnChunkMetaData,
        rows: &mut [[u64; 2]],
        last: bool,
        progress: &mut Progress,
        context: &Context,
    ) -> Result<(), Failure> {
        let metadata = self.metadata;
        if metadata.num_values() == 0 && self.rows == 0 {
            return Ok(());
        }
        let said = (own.num_values(), own.compressed_size(), own.data_page_offset(), own.dictionary_page_offset());
        let first = (metadata.num_values(), metadata.compressed_size(), metadata.data_page_offset());
        if said != (first.0, first.1, first.2, metadata.dictionary_page_offset()) {
            return Err(corrupt("the two decoders read different footers"));
        }
        let range = chunk_range(metadata, self.source.bytes()).map_err(corrupt)?;
        if !progress.looked {
            self.check_pages(range.clone(), context)?;
            progress.looked = true;
        }
        let bounds = self.bounds()?;
        let stored = self.feed.stored();
        let reader = ValueReader {
            physical: stored.physical,
            form: stored.form,
            treatment: self.treatment,
            bounds: [bounds.as_ref(), None],
        };
        let file = Arc::new(Windows { source: self.source.clone(), end: range.end, window: Mutex::default() });
        let pages = SerializedPageReader::new(file, own, self.rows, None).map_err(unreadable)?;
        let read = Reading { chunk: self, reader, rows, last, progress, context };
        let word = |hash: u64| Ok([hash; 2]);
        match get_column_reader(own.column_descr_ptr(), Box::new(pages)) {
            ColumnReader::BoolColumnReader(column) => read.run(column, |value: &bool| word(u64::from(*value))),
            ColumnReader::Int32ColumnReader(column) => {
                read.run(column, |value: &i32| Ok(reader.fixed32(value.cast_unsigned())))
            }
            ColumnReader::Int64ColumnReader(column) => {
                read.run(column, |value: &i64| Ok(reader.fixed64(value.cast_unsigned())))
            }
            ColumnReader::FloatColumnReader(column) => {
                read.run(column, |value: &f32| Ok(reader.fixed32(value.to_bits())))
            }
            ColumnReader::DoubleColumnReader(column) => {
                read.run(column, |value: &f64| Ok(reader.fixed64(value.to_bits())))
            }
            ColumnReader::Int96ColumnReader(column) => read.run(column, |value: &Int96| {
                let bytes: Vec<u8> = value.data().iter().flat_map(|word| word.to_le_bytes()).collect();
                Ok(hash_bytes(&bytes))
            }),
            ColumnReader::ByteArrayColumnReader(column) => {
                read.run(column, |value: &ByteArray| reader.bytes(value.data()))
            }
            ColumnReader::FixedLenByteArrayColumnReader(column) => {
                read.run(column, |value: &FixedLenByteArray| reader.bytes(value.data()))
            }
        }
    }

    /// Looks at every page's header, size and checksum.
    fn check_pages(&self, range: Range<u64>, context: &Context) -> Result<(), Failure> {
        let stored = self.feed.stored();
        let mut pages = Pages::new(self.source, range, stored, self.budget);
        let wanted = usize::try_from(self.metadata.num_values()).map_err(|_| corrupt("its value count is negative"))?;
        let mut slots = 0usize;
        while slots < wanted {
            context.check_running()?;
            let Some(page) = pages.next()? else { break };
            if page.head.has_packed_levels(stored) {
                return Err(corrupt("it reads bit-packed levels from the wrong end"));
            }
            if page.head.kind == Kind::Data {
                slots = slots.saturating_add(page.head.values);
            }
        }
        if slots != wanted {
            return Err(corrupt(format!("its pages hold {slots} values, its footer says {wanted}")));
        }
        Ok(())
    }
}

/// One pass over the rows of a window.
struct Reading<'a, 'b> {
    chunk: &'a Chunk<'b>,
    reader: ValueReader<'a>,
    rows: &'a mut [[u64; 2]],
    last: bool,
    progress: &'a mut Progress,
    context: &'a Context,
}

impl Reading<'_, '_> {
    fn run<T: DataType>(
        self,
        mut column: ColumnReaderImpl<T>,
        hash: impl Fn(&T::T) -> Result<[u64; 2], String>,
    ) -> Result<(), Failure> {
        let short = || corrupt("it has fewer rows than its row group");
        let stored = self.chunk.feed.stored();
        let full = u32::from(stored.max_definition);
        let skipped = column.skip_records(self.progress.rows).map_err(unreadable)?;
        if skipped != self.progress.rows {
            return Err(short());
        }
        let start = self.chunk.feed.start(self.chunk.output);
        let wanted = self.rows.len();
        let mut fold = Fold::new(&start, self.rows);
        let (mut definitions, mut repetitions, mut values) = (Vec::new(), Vec::new(), Vec::new());
        let mut hashes = PageValues::default();
        while fold.begun() < wanted {
            self.context.check_running()?;
            definitions.clear();
            repetitions.clear();
            values.clear();
            let batch = BATCH_ROWS.min(wanted - fold.begun());
            let (records, held, slots) = column
                .read_records(batch, Some(&mut definitions), Some(&mut repetitions), &mut values)
                .map_err(unreadable)?;
            if records == 0 {
                return Err(short());
            }
            let levels = levels(&definitions, stored.max_definition, slots)?;
            let present = levels.as_ref().map_or(slots, |all| all.iter().filter(|level| **level == full).count());
            if present != held || values.len() < held {
                return Err(corrupt("it has another number of values than its levels say"));
            }
            hashes.hashes.clear();
            if self.chunk.feed.is_valued() {
                for value in &values[..held] {
                    hashes.hashes.push(hash(value).map_err(corrupt)?);
                }
                self.reader.check_numbers(&hashes).map_err(corrupt)?;
            } else {
                hashes.hashes.resize(held, [0; 2]);
            }
            let until = match self::levels(&repetitions, stored.max_repetition, slots)? {
                None if self.chunk.feed.is_valued() => {
                    mix_all(&mut hashes.hashes, start.base);
                    fold.flat(0, slots, levels.as_deref(), |at| hashes.hashes[at])
                }
                None => fold.flat(0, slots, levels.as_deref(), |_| start.base.map(mix)),
                Some(repetitions) => {
                    fold.nested(0, slots, levels.as_deref(), &repetitions, |at| hashes.hashes[at]).map_err(corrupt)?
                }
            };
            if until != slots {
                return Err(corrupt("it has more rows than its row group"));
            }
            self.progress.slots += slots as u64;
            self.progress.nulls += (slots - present) as u64;
        }
        fold.end();
        if !fold.is_full() {
            return Err(short());
        }
        self.progress.rows += wanted;
        if !self.last {
            return Ok(());
        }
        let (records, ..) =
            column.read_records(1, Some(&mut definitions), Some(&mut repetitions), &mut values).map_err(unreadable)?;
        let all = self.progress.skipped == 0;
        if records != 0 || (all && i64::try_from(self.progress.slots) != Ok(self.chunk.metadata.num_values())) {
            return Err(corrupt("it has other values than its row group's rows"));
        }
        match self.reader.bounds[0].and_then(|bounds| bounds.null_count) {
            Some(claimed) if all && claimed != self.progress.nulls => {
                Err(corrupt(format!("its statistics count {claimed} nulls, it has {}", self.progress.nulls)))
            }
            _ => Ok(()),
        }
    }
}

/// Levels as the fold takes them; none where there is only one.
fn levels(read: &[i16], max: u16, slots: usize) -> Result<Option<Vec<u32>>, Failure> {
    if max == 0 {
        return Ok(None);
    }
    if read.len() < slots {
        return Err(corrupt("it has fewer levels than values"));
    }
    let level = |level: &i16| u32::try_from(*level).ok().filter(|level| *level <= u32::from(max));
    let levels = read[..slots].iter().map(level).collect::<Option<Vec<_>>>();
    levels.map(Some).ok_or_else(|| corrupt(format!("a level is above {max}")))
}

fn unreadable(error: ParquetError) -> Failure {
    match error {
        ParquetError::External(source) => match source.downcast::<Failure>() {
            Ok(failure) => *failure,
            Err(source) => corrupt(source.to_string()),
        },
        ParquetError::NYI(message) => Failure::new(FailureClass::Unsupported, message),
        error => corrupt(error.to_string()),
    }
}

/// A file as parquet-rs reads it, a window at a time.
struct Windows {
    source: Source,
    end: u64,
    window: Mutex<(u64, Bytes)>,
}

impl Windows {
    /// What is at hand from `at` on: `bytes` at least.
    fn fetch(&self, at: u64, bytes: u64) -> Result<Bytes, ParquetError> {
        let end = at.checked_add(bytes).filter(|end| *end <= self.end);
        let end = end.ok_or_else(|| ParquetError::EOF(format!("bytes from {at} on lie beyond the column chunk")))?;
        let mut window = self.window.lock().unwrap_or_else(PoisonError::into_inner);
        if at < window.0 || end > window.0 + window.1.len() as u64 {
            let wanted = bytes.max(WINDOW_BYTES).min(self.end - at);
            let read = self.source.read(at..at + wanted).map_err(|failure| ParquetError::External(failure.into()))?;
            *window = (at, read);
        }
        Ok(window.1.slice((at - window.0) as usize..))
    }
}

impl Length for Windows {
    fn len(&self) -> u64 {
        self.end
    }
}

impl ChunkReader for Windows {
    type T = Onward;

    fn get_read(&self, start: u64) -> Result<Onward, ParquetError> {
        // A page header that does not lie in the window as a whole is fetched with what follows it.
        let held = self.fetch(start, HEADER_BYTES.min(self.end.saturating_sub(start)))?;
        Ok(Onward(held))
    }

    fn get_bytes(&self, start: u64, length: usize) -> Result<Bytes, ParquetError> {
        if length == 0 {
            return Ok(Bytes::new());
        }
        Ok(self.fetch(start, length as u64)?.slice(..length))
    }
}

/// Bytes for a page header, at least.
const HEADER_BYTES: u64 = 256 << 10;

/// What a page header is read from.
struct Onward(Bytes);

impl Read for Onward {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        let taken = buffer.len().min(self.0.len());
        self.0.copy_to_slice(&mut buffer[..taken]);
        Ok(taken)
    }
}
