//! Writing one output file from the leaf columns of many inputs.
//!
//! Leaf columns are independent lanes: the output's row groups are fixed from the footers alone, then each leaf is read
//! from all inputs as levels and values and written to its chunk, without ever assembling a row.

pub mod column_orders;

use std::io::Write;
use std::sync::Arc;

use baler_common::model::error::{Failure, FailureClass};
use baler_common::model::job::{ColumnMap, JobSpec};
use baler_common::model::options::{Codec, WriteOptions};
use parquet::basic::{BrotliLevel, Compression, GzipLevel, ZstdLevel};
use parquet::column::reader::{ColumnReader, ColumnReaderImpl};
use parquet::column::writer::{ColumnWriter, ColumnWriterImpl};
use parquet::data_type::DataType;
use parquet::file::metadata::{KeyValue, ParquetMetaDataReader};
use parquet::file::properties::{EnabledStatistics, WriterProperties, WriterVersion};
use parquet::file::reader::{ChunkReader, FileReader, Length};
use parquet::file::serialized_reader::SerializedFileReader;
use parquet::file::writer::SerializedFileWriter;

use crate::context::Context;
use crate::mask::RowMask;
use crate::read::inputs::Inputs;

/// What was written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Written {
    pub rows: u64,
    pub row_groups: u32,
}

/// Gives the key-values that are added to the footer once all rows are written.
pub type FooterFn<'a> = dyn FnMut() -> Result<Vec<(String, String)>, Failure> + Send + 'a;

struct Chunks(Arc<baler_common::runtime::storage::Source>);
impl Length for Chunks {
    fn len(&self) -> u64 {
        self.0.bytes()
    }
}
impl ChunkReader for Chunks {
    type T = bytes::buf::Reader<bytes::Bytes>;
    fn get_read(&self, start: u64) -> parquet::errors::Result<Self::T> {
        use bytes::Buf;
        let end = (start + (8 << 20)).min(self.len());
        Ok(self.get_bytes(start, (end - start) as usize)?.reader())
    }
    fn get_bytes(&self, start: u64, length: usize) -> parquet::errors::Result<bytes::Bytes> {
        self.0.read(start..start + length as u64).map_err(|f| parquet::errors::ParquetError::General(f.to_string()))
    }
}

fn wrong(error: parquet::errors::ParquetError) -> Failure {
    Failure::new(FailureClass::InputCorrupt, error.to_string())
}

/// Writes one Parquet file of all rows of `inputs` (`mask`: the rows kept of their concatenation) into `sink`.
pub fn write_file(
    spec: &JobSpec,
    inputs: &Inputs,
    mask: Option<&RowMask>,
    context: &Context,
    sink: &mut (dyn Write + Send),
    footer: &mut FooterFn<'_>,
) -> Result<Written, Failure> {
    let parsed =
        ParquetMetaDataReader::new().parse_and_finish(&bytes::Bytes::from(spec.schema.clone())).map_err(wrong)?;
    let schema = parsed.file_metadata().schema_descr().root_schema_ptr();
    let mut holding = column_orders::HoldingEnd::new(sink, parsed.file_metadata().schema_descr().num_columns());
    let mut writer =
        SerializedFileWriter::new(&mut holding, schema, Arc::new(properties(&spec.options)?)).map_err(wrong)?;
    for (key, value) in &spec.key_values {
        writer.append_key_value_metadata(KeyValue { key: key.clone(), value: value.clone() });
    }
    let rows_per_group =
        (spec.options.row_group_bytes.saturating_mul(1000) / spec.memory_millibytes_per_row).max(1) as usize;
    // (input, row group, first row, rows, first row in all)
    let mut groups: Vec<Vec<(usize, usize, usize, usize, u64)>> = vec![Vec::new()];
    let (mut filled, mut at, mut total) = (0usize, 0u64, 0u64);
    let mut readers = Vec::new();
    for input in 0..inputs.len() {
        let reader = SerializedFileReader::new(Chunks(inputs.source(input)?)).map_err(wrong)?;
        for group in 0..reader.metadata().num_row_groups() {
            let rows = reader.metadata().row_group(group).num_rows() as usize;
            let mut done = 0;
            while done < rows {
                if filled >= rows_per_group {
                    groups.push(Vec::new());
                    filled = 0;
                }
                let take = (rows - done).min(rows_per_group - filled);
                groups.last_mut().expect("one").push((input, group, done, take, at));
                filled += take;
                done += take;
                at += take as u64;
            }
        }
        readers.push(reader);
    }
    let leaves = writer.schema_descr().num_columns();
    for slices in groups.iter().filter(|slices| !slices.is_empty()) {
        let mut group_writer = writer.next_row_group().map_err(wrong)?;
        for leaf in 0..leaves {
            let mut column = group_writer.next_column().map_err(wrong)?.expect("a column is left");
            for (input, group, first, rows, first_in_all) in slices {
                let source_leaf = match &inputs.file(*input).columns {
                    ColumnMap::Same => leaf,
                    ColumnMap::Leaves(leaves) => leaves[leaf]
                        .ok_or_else(|| Failure::new(FailureClass::Unsupported, "missing columns are not written yet"))?
                        as usize,
                };
                let row_group = readers[*input].get_row_group(*group).map_err(wrong)?;
                let reader = row_group.get_column_reader(source_leaf).map_err(wrong)?;
                let runs = kept(mask, *first, *rows, *first_in_all);
                macro_rules! copy {
                    ($($kind:ident $to:ident),*) => {
                        match (reader, column.untyped()) {
                            $((ColumnReader::$kind(mut r), ColumnWriter::$to(w)) => copy_rows(&mut r, w, &runs, context)?,)*
                            _ => return Err(Failure::new(FailureClass::SchemaMismatch, "physical types differ")),
                        }
                    };
                }
                copy!(
                    BoolColumnReader BoolColumnWriter,
                    Int32ColumnReader Int32ColumnWriter,
                    Int64ColumnReader Int64ColumnWriter,
                    Int96ColumnReader Int96ColumnWriter,
                    FloatColumnReader FloatColumnWriter,
                    DoubleColumnReader DoubleColumnWriter,
                    ByteArrayColumnReader ByteArrayColumnWriter,
                    FixedLenByteArrayColumnReader FixedLenByteArrayColumnWriter
                );
            }
            column.close().map_err(wrong)?;
        }
        total += group_writer.close().map_err(wrong)?.num_rows() as u64;
    }
    for (key, value) in footer()? {
        writer.append_key_value_metadata(KeyValue { key, value: Some(value) });
    }
    let metadata = writer.close().map_err(wrong)?;
    holding.finish().map_err(|error| Failure::new(FailureClass::Transient, format!("write the output: {error}")))?;
    Ok(Written { rows: total, row_groups: metadata.num_row_groups() as u32 })
}

fn kept(mask: Option<&RowMask>, first: usize, rows: usize, first_in_all: u64) -> Vec<(usize, usize)> {
    let Some(mask) = mask else { return vec![(first, rows)] };
    let mut runs = vec![(first, 0)];
    let mut dropped = false;
    for row in 0..rows {
        if mask.keeps(first_in_all + row as u64) {
            if dropped {
                runs.push((0, 0));
                dropped = false;
            }
            runs.last_mut().expect("one").1 += 1;
        } else {
            if !dropped {
                runs.push((0, 0));
            }
            runs.last_mut().expect("one").0 += 1;
            dropped = true;
            if runs.last().expect("one").1 == 0 {
                dropped = false;
            }
        }
    }
    runs
}

fn copy_rows<T: DataType>(
    reader: &mut ColumnReaderImpl<T>,
    writer: &mut ColumnWriterImpl<'_, T>,
    runs: &[(usize, usize)],
    context: &Context,
) -> Result<(), Failure> {
    const BATCH: usize = 8192;
    let (mut definitions, mut repetitions, mut values) = (Vec::new(), Vec::new(), Vec::new());
    for (skip, take) in runs {
        let mut skip = *skip;
        while skip > 0 {
            let skipped = reader.skip_records(skip).map_err(wrong)?;
            if skipped == 0 {
                return Err(Failure::new(FailureClass::InputCorrupt, "the column has fewer rows than its footer says"));
            }
            skip -= skipped;
        }
        let mut left = *take;
        while left > 0 {
            context.check_running()?;
            definitions.clear();
            repetitions.clear();
            values.clear();
            let (records, _, _) = reader
                .read_records(left.min(BATCH), Some(&mut definitions), Some(&mut repetitions), &mut values)
                .map_err(wrong)?;
            if records == 0 {
                return Err(Failure::new(FailureClass::InputCorrupt, "the column has fewer rows than its footer says"));
            }
            let definitions = (!definitions.is_empty()).then_some(&definitions[..]);
            let repetitions = (!repetitions.is_empty()).then_some(&repetitions[..]);
            writer.write_batch(&values, definitions, repetitions).map_err(wrong)?;
            left -= records;
        }
    }
    Ok(())
}

fn properties(options: &WriteOptions) -> Result<WriterProperties, Failure> {
    let compression = match options.codec {
        Codec::Uncompressed => Compression::UNCOMPRESSED,
        Codec::Snappy => Compression::SNAPPY,
        Codec::Lz4Raw => Compression::LZ4_RAW,
        Codec::Gzip { level } => Compression::GZIP(GzipLevel::try_new(level).map_err(wrong)?),
        Codec::Brotli { level } => Compression::BROTLI(BrotliLevel::try_new(level).map_err(wrong)?),
        Codec::Zstd { level } => Compression::ZSTD(ZstdLevel::try_new(level).map_err(wrong)?),
    };
    Ok(WriterProperties::builder()
        .set_writer_version(WriterVersion::PARQUET_1_0)
        .set_compression(compression)
        .set_statistics_enabled(EnabledStatistics::Page)
        .set_created_by(concat!("baler version ", env!("CARGO_PKG_VERSION")).to_owned())
        .build())
}
