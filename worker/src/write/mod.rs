//! Writing one output file from the leaf columns of many inputs.
//!
//! Leaf columns are independent lanes: the output's row groups are fixed from the footers alone ([`row_groups`]), then
//! each leaf is read from all inputs as levels and values and written to its chunk ([`lane`]), column after column, which
//! is the order of the file. No row is ever assembled, nothing is cast, and the output's bytes depend on the job alone.

mod carry;
pub mod chunker;
pub mod column_orders;
mod dictionary_first;
pub mod feed;
pub mod lane;
pub mod row_groups;

use std::io::Write;
use std::sync::Arc;

use baler_common::model::error::{Failure, FailureClass};
use baler_common::model::job::JobSpec;
use baler_common::model::options::{Codec, WriteOptions};
use baler_common::runtime::storage::Source;
use bytes::{Buf, Bytes};
use parquet::basic::{BrotliLevel, Compression, GzipLevel, ZstdLevel};
use parquet::column::reader::{ColumnReader, get_column_reader};
use parquet::column::writer::ColumnWriter;
use parquet::file::metadata::{KeyValue, ParquetMetaData, ParquetMetaDataReader};
use parquet::file::properties::{EnabledStatistics, WriterProperties, WriterVersion};
use parquet::file::reader::{ChunkReader, Length};
use parquet::file::serialized_reader::SerializedPageReader;
use parquet::file::writer::SerializedFileWriter;
use parquet::schema::types::SchemaDescriptor;

use crate::context::Context;
use crate::mask::RowMask;
use crate::read::inputs::Inputs;
use dictionary_first::DictionaryFirst;
use feed::Feed;
use lane::{Lane, corrupt, failed};
use row_groups::Slice;

/// Bytes that are read at a time from a large file.
const READ_BYTES: u64 = 4 << 20;

/// What was written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Written {
    pub rows: u64,
    pub row_groups: u32,
}

/// Gives the key-values that are added to the footer once all rows are written.
pub type FooterFn<'a> = dyn FnMut() -> Result<Vec<(String, String)>, Failure> + Send + 'a;

/// Writes one Parquet file of all rows of `inputs` (`mask`: the rows kept of their concatenation) into `sink`.
///
/// `footer` is called once, after the last row group, and gives key-values that are added to those of `spec`.
///
/// # Errors
/// The failure names the input and the column; the sink then holds an unfinished file.
pub fn write_file(
    spec: &JobSpec,
    inputs: &Inputs,
    mask: Option<&RowMask>,
    context: &Context,
    sink: &mut (dyn Write + Send),
    footer: &mut FooterFn<'_>,
) -> Result<Written, Failure> {
    let schema = parse(&Bytes::from(spec.schema.clone()))?;
    let output = schema.file_metadata().schema_descr();
    let mut holding = column_orders::HoldingEnd::new(sink, output.num_columns());
    let properties = Arc::new(properties(&spec.options, output)?);
    let mut writer = SerializedFileWriter::new(&mut holding, output.root_schema_ptr(), properties).map_err(failed)?;
    for (key, value) in &spec.key_values {
        writer.append_key_value_metadata(KeyValue { key: key.clone(), value: value.clone() });
    }
    let footers = footers(inputs, context)?;
    let rows_of = |metadata: &Arc<ParquetMetaData>| -> Vec<u64> {
        metadata.row_groups().iter().map(|group| group.num_rows().max(0) as u64).collect()
    };
    let target_rows = spec.options.row_group_bytes.saturating_mul(1000) / spec.memory_millibytes_per_row;
    let groups = row_groups::cut(&footers.iter().map(rows_of).collect::<Vec<_>>(), target_rows);
    let mut rows = 0u64;
    for slices in &groups {
        let runs: Vec<Vec<(usize, usize)>> = slices.iter().map(|slice| runs(mask, slice)).collect();
        let taken: usize = runs.iter().flatten().map(|(_, take)| take).sum();
        if taken == 0 {
            continue;
        }
        let written_before = writer.bytes_written();
        let mut group = writer.next_row_group().map_err(failed)?;
        for leaf in 0..output.num_columns() {
            context.check_running()?;
            if let Some(carried) = carried(spec, inputs, &footers, output, leaf, slices, &runs)? {
                group.append_column(&carried.pages, carried.close).map_err(failed)?;
                continue;
            }
            let mut column = group.next_column().map_err(failed)?.ok_or_else(|| {
                Failure::new(FailureClass::Unsupported, "the writer has fewer columns than its schema")
            })?;
            write_leaf(spec, inputs, &footers, output, leaf, slices, &runs, column.untyped(), context)?;
            column.close().map_err(failed)?;
        }
        group.close().map_err(failed)?;
        rows += taken as u64;
        context.count_written((writer.bytes_written() - written_before) as u64, taken as u64);
    }
    for (key, value) in footer()? {
        writer.append_key_value_metadata(KeyValue { key, value: Some(value) });
    }
    let metadata = writer.close().map_err(failed)?;
    holding.finish().map_err(|error| Failure::new(FailureClass::Transient, format!("write the output: {error}")))?;
    Ok(Written { rows, row_groups: metadata.num_row_groups() as u32 })
}

/// The chunk of one leaf, where it can be had without taking rows apart.
fn carried(
    spec: &JobSpec,
    inputs: &Inputs,
    footers: &[Arc<ParquetMetaData>],
    output: &SchemaDescriptor,
    leaf: usize,
    slices: &[Slice],
    runs: &[Vec<(usize, usize)>],
) -> Result<Option<carry::Carried>, Failure> {
    let column = output.column(leaf);
    if !carry::is_open_to(&column, leaf, &spec.options) {
        return Ok(None);
    }
    let mut parts = Vec::with_capacity(slices.len());
    for (slice, runs) in slices.iter().zip(runs) {
        let metadata = &footers[slice.input];
        let Some(group) = metadata.row_groups().get(slice.row_group) else { return Ok(None) };
        let rows = u64::try_from(group.num_rows()).unwrap_or(0);
        let feed =
            feed::feed(output, metadata.file_metadata().schema_descr(), &inputs.file(slice.input).columns, leaf)?;
        let same = feed.valued && feed.definitions.iter().copied().eq(0..=column.max_def_level());
        let whole = slice.rows == (0..rows) && matches!(runs[..], [(0, taken)] if taken as u64 == rows);
        let chunk = feed.leaf.and_then(|leaf| group.columns().get(leaf));
        match chunk {
            Some(chunk) if same && whole && carry::is_carriable(chunk) => {
                parts.push(carry::Part { source: inputs.source(slice.input)?, chunk: chunk.clone(), rows });
            }
            _ => return Ok(None),
        }
    }
    // What panics here is for the lane to report.
    Ok(guarded(|| Ok(carry::carry(&column, &spec.options, &parts))).unwrap_or(None))
}

/// Writes the chunk of one leaf.
#[allow(clippy::too_many_arguments)]
fn write_leaf(
    spec: &JobSpec,
    inputs: &Inputs,
    footers: &[Arc<ParquetMetaData>],
    output: &SchemaDescriptor,
    leaf: usize,
    slices: &[Slice],
    runs: &[Vec<(usize, usize)>],
    writer: &mut ColumnWriter<'_>,
    context: &Context,
) -> Result<(), Failure> {
    let column = output.column(leaf);
    macro_rules! lanes {
        ($($reader:ident $writer:ident)*) => {
            match writer {
                $(ColumnWriter::$writer(writer) => {
                    let mut lane = Lane::new(&spec.options, column.max_def_level(), column.max_rep_level());
                    let mut last: Option<(usize, Feed)> = None;
                    for (slice, runs) in slices.iter().zip(runs) {
                        let source = inputs.source(slice.input)?;
                        let named = |failure: Failure| failure.in_column(column.path().string()).in_file(source.name());
                        let metadata = &footers[slice.input];
                        let feed = match last.take() {
                            Some((input, feed)) if input == slice.input => feed,
                            _ => {
                                let own = metadata.file_metadata().schema_descr();
                                feed::feed(output, own, &inputs.file(slice.input).columns, leaf).map_err(named)?
                            }
                        };
                        match feed.leaf {
                            None => lane.absent(writer, runs.iter().map(|(_, take)| take).sum()).map_err(named)?,
                            Some(stored) => match open_column(&source, metadata, slice.row_group, stored).map_err(named)? {
                                ColumnReader::$reader(mut reader) if feed.valued => {
                                    lane.copy(&mut reader, writer, &feed, runs, context).map_err(named)?;
                                }
                                reader if !feed.valued => {
                                    levels_only(reader, &mut lane, writer, &feed, runs, context).map_err(named)?;
                                }
                                _ => {
                                    let message = "its physical type in the input is not the job's";
                                    return Err(named(Failure::new(FailureClass::SchemaMismatch, message)));
                                }
                            },
                        }
                        last = Some((slice.input, feed));
                    }
                    lane.finish(writer)
                })*
            }
        };
    }
    lanes!(
        BoolColumnReader BoolColumnWriter
        Int32ColumnReader Int32ColumnWriter
        Int64ColumnReader Int64ColumnWriter
        Int96ColumnReader Int96ColumnWriter
        FloatColumnReader FloatColumnWriter
        DoubleColumnReader DoubleColumnWriter
        ByteArrayColumnReader ByteArrayColumnWriter
        FixedLenByteArrayColumnReader FixedLenByteArrayColumnWriter
    )
}

/// Feeds a column that the input lacks with the levels of its neighbour, whatever type that has.
fn levels_only<T: parquet::data_type::DataType>(
    reader: ColumnReader,
    lane: &mut Lane<T>,
    writer: &mut parquet::column::writer::ColumnWriterImpl<'_, T>,
    feed: &Feed,
    runs: &[(usize, usize)],
    context: &Context,
) -> Result<(), Failure> {
    macro_rules! levels {
        ($($reader:ident)*) => {
            match reader {
                $(ColumnReader::$reader(mut reader) => lane.copy_levels(&mut reader, writer, feed, runs, context),)*
            }
        };
    }
    levels!(
        BoolColumnReader Int32ColumnReader Int64ColumnReader Int96ColumnReader FloatColumnReader DoubleColumnReader
        ByteArrayColumnReader FixedLenByteArrayColumnReader
    )
}

/// The footers of all inputs.
fn footers(inputs: &Inputs, context: &Context) -> Result<Vec<Arc<ParquetMetaData>>, Failure> {
    let mut found = Vec::with_capacity(inputs.len());
    for input in 0..inputs.len() {
        context.check_running()?;
        let source = inputs.source(input)?;
        let read = || ParquetMetaDataReader::new().parse_and_finish(&Chunks(source.clone())).map_err(corrupt);
        let metadata = guarded(read).map_err(|failure| failure.in_file(source.name()))?;
        context.count_read(source.bytes());
        found.push(Arc::new(metadata));
    }
    Ok(found)
}

fn parse(content: &Bytes) -> Result<ParquetMetaData, Failure> {
    guarded(|| ParquetMetaDataReader::new().parse_and_finish(content).map_err(corrupt))
}

/// Turns a panic of the reading library into a failure.
fn guarded<R>(read: impl FnOnce() -> Result<R, Failure>) -> Result<R, Failure> {
    std::panic::catch_unwind(std::panic::AssertUnwindSafe(read)).unwrap_or_else(|_| {
        Err(Failure::new(FailureClass::InputCorrupt, "the reading decoder stopped at a broken assumption"))
    })
}

fn open_column(
    source: &Arc<Source>,
    metadata: &ParquetMetaData,
    row_group: usize,
    leaf: usize,
) -> Result<ColumnReader, Failure> {
    let broken = |message: &str| Failure::new(FailureClass::InputCorrupt, message);
    let group = metadata.row_groups().get(row_group).ok_or_else(|| broken("the row group is missing"))?;
    let chunk = group.columns().get(leaf).ok_or_else(|| broken("the row group lacks the column"))?;
    let start = chunk.dictionary_page_offset().unwrap_or(chunk.data_page_offset());
    let place = u64::try_from(start).ok().zip(u64::try_from(chunk.compressed_size()).ok());
    if place.and_then(|(start, length)| start.checked_add(length)).is_none_or(|end| end > source.bytes()) {
        return Err(broken("its pages lie outside the file"));
    }
    let rows =
        usize::try_from(group.num_rows()).map_err(|_| broken("its row group claims an absurd number of rows"))?;
    let pages = SerializedPageReader::new(Arc::new(Chunks(source.clone())), chunk, rows, None).map_err(corrupt)?;
    Ok(get_column_reader(chunk.column_descr_ptr(), Box::new(DictionaryFirst::new(pages))))
}

/// Rows to skip and rows to take, in turn, of a slice under a mask.
fn runs(mask: Option<&RowMask>, slice: &Slice) -> Vec<(usize, usize)> {
    let first = slice.rows.start as usize;
    let rows = slice.rows.end - slice.rows.start;
    let Some(mask) = mask else { return vec![(first, rows as usize)] };
    let mut found = Vec::new();
    let (mut skip, mut take) = (first, 0);
    for row in 0..rows {
        if mask.keeps(slice.first_in_all + row) {
            take += 1;
        } else {
            if take > 0 {
                found.push((skip, take));
                (skip, take) = (0, 0);
            }
            skip += 1;
        }
    }
    if take > 0 {
        found.push((skip, take));
    }
    found
}

/// A source as the reading library takes it.
struct Chunks(Arc<Source>);

impl Length for Chunks {
    fn len(&self) -> u64 {
        self.0.bytes()
    }
}

impl ChunkReader for Chunks {
    type T = bytes::buf::Reader<Bytes>;

    fn get_read(&self, start: u64) -> parquet::errors::Result<Self::T> {
        let end = start.saturating_add(READ_BYTES).min(self.len());
        Ok(self.get_bytes(start, end.saturating_sub(start) as usize)?.reader())
    }

    fn get_bytes(&self, start: u64, length: usize) -> parquet::errors::Result<Bytes> {
        let end = start.saturating_add(length as u64);
        self.0.read(start..end).map_err(|failure| parquet::errors::ParquetError::General(failure.to_string()))
    }
}

fn properties(options: &WriteOptions, schema: &SchemaDescriptor) -> Result<WriterProperties, Failure> {
    let level = |error: parquet::errors::ParquetError| Failure::new(FailureClass::Unsupported, error.to_string());
    let compression = match options.codec {
        Codec::Uncompressed => Compression::UNCOMPRESSED,
        Codec::Snappy => Compression::SNAPPY,
        Codec::Lz4Raw => Compression::LZ4_RAW,
        Codec::Gzip { level: of } => Compression::GZIP(GzipLevel::try_new(of).map_err(level)?),
        Codec::Brotli { level: of } => Compression::BROTLI(BrotliLevel::try_new(of).map_err(level)?),
        Codec::Zstd { level: of } => Compression::ZSTD(ZstdLevel::try_new(of).map_err(level)?),
    };
    let truncate = options.statistics_truncate_bytes.map(|bytes| bytes as usize);
    let mut builder = WriterProperties::builder()
        .set_writer_version(WriterVersion::PARQUET_1_0)
        .set_compression(compression)
        .set_statistics_enabled(EnabledStatistics::Page)
        .set_statistics_truncate_length(truncate)
        .set_column_index_truncate_length(truncate)
        .set_dictionary_enabled(options.dictionary_bytes > 0)
        .set_dictionary_page_size_limit(usize::try_from(options.dictionary_bytes.max(1)).unwrap_or(usize::MAX))
        // Lanes cut the pages: every piece that they hand over is one. A limit in bytes would make the writer cut the
        // piece itself, value by value; a limit in rows is only looked at after the whole piece.
        .set_data_page_size_limit(usize::MAX)
        .set_data_page_row_count_limit(1)
        .set_write_batch_size(usize::MAX >> 1)
        .set_created_by(concat!("baler version ", env!("CARGO_PKG_VERSION")).to_owned());
    for filter in &options.bloom_filters {
        if filter.leaf as usize >= schema.num_columns() {
            return Err(Failure::new(
                FailureClass::Unsupported,
                "a bloom filter is asked for a column that is not there",
            ));
        }
        let path = schema.column(filter.leaf as usize).path().clone();
        builder = builder
            .set_column_bloom_filter_enabled(path.clone(), true)
            .set_column_bloom_filter_fpp(path.clone(), f64::from(filter.false_positives_ppm) / 1e6)
            .set_column_bloom_filter_max_ndv(path, filter.distinct_max);
    }
    Ok(builder.build())
}
