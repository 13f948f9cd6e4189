//! Reads the footers of a table's files, many at once, under bounds that are checked before anything is allocated.

use std::collections::HashMap;
use std::panic::AssertUnwindSafe;
use std::sync::{Arc, Mutex};

use baler_common::model::error::{Failure, FailureClass};
use baler_common::model::object::Identity;
use baler_common::runtime::storage::{Source, Store};
use bytes::Bytes;
use parquet::basic::{Compression, Type as PhysicalType};
use parquet::file::metadata::{ColumnChunkMetaData, ParquetMetaData, ParquetMetaDataReader};
use parquet::file::writer::SerializedFileWriter;
use parquet::schema::types::{SchemaDescriptor, Type, TypePtr};

use crate::plan::{FileFacts, SchemaFacts};

use super::schema_depth::schema_depth;

/// Largest footer that is read, in bytes.
const FOOTER_BYTES_MAX: u64 = 64 << 20;
/// Bytes of the end of a file that are read at once.
const TAIL_BYTES: u64 = 64 << 10;
/// Most leaf columns of a file.
const COLUMNS_MAX: usize = 20_000;
/// Deepest nesting of a column.
const DEPTH_MAX: usize = 128;
/// Most row groups of a file.
const ROW_GROUPS_MAX: usize = 1_000_000;
/// Assumed length of a text whose length the footer does not tell.
const TEXT_BYTES_GUESS: u64 = 16;

/// Schemas that were met, so that equal ones are kept once.
#[derive(Debug, Default)]
pub struct KnownSchemas(Mutex<HashMap<Vec<u8>, Arc<SchemaFacts>>>);

/// Reads one footer.
pub fn read_facts(
    store: &Store,
    path: &str,
    bytes: u64,
    identity: &Identity,
    known: &KnownSchemas,
) -> Result<FileFacts, Failure> {
    let source = store.source(path, bytes, identity)?;
    let metadata = read_metadata(&source)?;
    source.check_unchanged()?;
    facts(&metadata, bytes, known).map_err(|failure| failure.in_file(source.name()))
}

fn read_metadata(source: &Source) -> Result<ParquetMetaData, Failure> {
    let corrupt = |message: String| Failure::new(FailureClass::InputCorrupt, message).in_file(source.name());
    if source.bytes() < 12 {
        return Err(corrupt(format!(
            "it has {} bytes, a Parquet file has at least 12: remove it, or write it anew",
            source.bytes()
        )));
    }
    let tail_at = source.bytes().saturating_sub(TAIL_BYTES);
    let tail = source.read(tail_at..source.bytes())?;
    let end = &tail[tail.len() - 8..];
    match &end[4..] {
        b"PAR1" => {}
        b"PARE" => {
            let message = "its footer is encrypted: Baler has no keys, decrypt it first";
            return Err(Failure::new(FailureClass::Unsupported, message).in_file(source.name()));
        }
        other => {
            return Err(corrupt(format!(
                "it ends with {other:02x?}, not with PAR1: it is cut off, or not a Parquet file; write it anew"
            )));
        }
    }
    let length = u64::from(u32::from_le_bytes([end[0], end[1], end[2], end[3]]));
    if length > FOOTER_BYTES_MAX {
        return Err(corrupt(format!("its footer claims {length} bytes, {FOOTER_BYTES_MAX} are allowed")));
    }
    if length == 0 || length + 12 > source.bytes() {
        return Err(corrupt(format!("its footer claims {length} bytes of a file of {}", source.bytes())));
    }
    let head = if tail_at == 0 { tail.slice(..4) } else { source.read(0..4)? };
    if &head[..] != b"PAR1" {
        return Err(corrupt(format!("it begins with {:02x?}, not with PAR1", &head[..])));
    }
    let footer_at = source.bytes() - 8 - length;
    let footer: Bytes = match footer_at >= tail_at {
        true => tail.slice((footer_at - tail_at) as usize..tail.len() - 8),
        false => source.read(footer_at..source.bytes() - 8)?,
    };
    let depth = schema_depth(&footer);
    if depth > DEPTH_MAX {
        let message = format!("it is nested {depth} deep, {DEPTH_MAX} are allowed");
        return Err(Failure::new(FailureClass::Policy, message).in_file(source.name()));
    }
    let decode = || ParquetMetaDataReader::decode_metadata(&footer);
    match std::panic::catch_unwind(AssertUnwindSafe(decode)) {
        Ok(Ok(metadata)) => Ok(metadata),
        Ok(Err(error)) => Err(corrupt(format!("its footer cannot be read: {error}"))),
        Err(_) => Err(corrupt("its footer is broken".to_owned())),
    }
}

fn facts(metadata: &ParquetMetaData, bytes: u64, known: &KnownSchemas) -> Result<FileFacts, Failure> {
    let corrupt = |message: String| Failure::new(FailureClass::InputCorrupt, message);
    let over = |message: String| Failure::new(FailureClass::Policy, message);
    let descriptor = metadata.file_metadata().schema_descr();
    if descriptor.num_columns() > COLUMNS_MAX {
        return Err(over(format!("it has {} columns, {COLUMNS_MAX} are allowed", descriptor.num_columns())));
    }
    if let Some(column) = descriptor.columns().iter().find(|column| column.path().parts().len() > DEPTH_MAX) {
        let message = format!("it is nested {} deep, {DEPTH_MAX} are allowed", column.path().parts().len());
        return Err(over(message).in_column(column.path().string()));
    }
    if metadata.num_row_groups() > ROW_GROUPS_MAX {
        return Err(over(format!("it has {} row groups, {ROW_GROUPS_MAX} are allowed", metadata.num_row_groups())));
    }
    if let Some(path) = childless(descriptor.root_schema(), "") {
        let message = "it is a group without children, which no reader keeps: give it a field, or leave it out";
        return Err(Failure::new(FailureClass::Unsupported, message).in_column(path));
    }
    let mut rows = 0u64;
    let mut memory = Vec::with_capacity(metadata.num_row_groups());
    let mut uncompressed_bytes = 0u64;
    let (mut all_zstd, mut page_index, mut sorted) = (true, true, false);
    let mut bloom = vec![false; descriptor.num_columns()];
    for (number, group) in metadata.row_groups().iter().enumerate() {
        let group_rows = u64::try_from(group.num_rows())
            .map_err(|_| corrupt(format!("row group {number} claims {} rows", group.num_rows())))?;
        rows = rows
            .checked_add(group_rows)
            .ok_or_else(|| corrupt("its row groups claim absurd numbers of rows".into()))?;
        if group.num_columns() != descriptor.num_columns() {
            return Err(corrupt(format!(
                "row group {number} has {} columns of {}",
                group.num_columns(),
                descriptor.num_columns()
            )));
        }
        sorted |= group.sorting_columns().is_some_and(|columns| !columns.is_empty());
        let mut group_memory = 0u64;
        for (leaf, column) in group.columns().iter().enumerate() {
            let named = |message: String| corrupt(message).in_column(column.column_path().string());
            check_chunk(column, bytes).map_err(named)?;
            all_zstd &= matches!(column.compression(), Compression::ZSTD(_));
            page_index &= column.offset_index_offset().is_some() && column.column_index_offset().is_some();
            bloom[leaf] |= column.bloom_filter_offset().is_some();
            uncompressed_bytes = uncompressed_bytes.saturating_add(column.uncompressed_size().max(0) as u64);
            group_memory = group_memory.saturating_add(chunk_memory(column));
        }
        memory.push(group_memory);
    }
    let claimed = metadata.file_metadata().num_rows();
    if u64::try_from(claimed).ok() != Some(rows) {
        return Err(corrupt(format!("its footer claims {claimed} rows, its row groups hold {rows}")));
    }
    let key_values = metadata.file_metadata().key_value_metadata().into_iter().flatten();
    let key_values: Vec<_> = key_values.map(|pair| (pair.key.clone(), pair.value.clone())).collect();
    let bloom_leaves = bloom.iter().enumerate().filter(|(_, has)| **has).map(|(leaf, _)| leaf as u32).collect();
    Ok(FileFacts {
        rows,
        row_groups: metadata.num_row_groups() as u32,
        schema: known.intern(descriptor)?,
        key_values: Arc::new(key_values),
        all_zstd,
        page_index,
        sorted,
        uncompressed_bytes,
        memory_bytes: memory.iter().fold(0, |sum: u64, bytes| sum.saturating_add(*bytes)),
        largest_row_group_bytes: memory.iter().copied().max().unwrap_or(0),
        smallest_row_group_bytes: memory.split_last().and_then(|(_, rest)| rest.iter().copied().min()),
        bloom_leaves: Arc::new(bloom_leaves),
    })
}

fn check_chunk(column: &ColumnChunkMetaData, file_bytes: u64) -> Result<(), String> {
    let start = column.dictionary_page_offset().filter(|offset| *offset > 0).unwrap_or(column.data_page_offset());
    let start = start.min(column.data_page_offset());
    let range = u64::try_from(start).ok().zip(u64::try_from(column.compressed_size()).ok());
    let end = range.and_then(|(start, length)| start.checked_add(length));
    if column.num_values() < 0 || column.uncompressed_size() < 0 {
        return Err("its footer claims a negative number".into());
    }
    match end {
        // Without values there may be no page, and writers disagree on where it would be.
        Some(_) if column.num_values() == 0 => Ok(()),
        Some(end) if end <= file_bytes && start >= 4 => Ok(()),
        _ => Err(format!("its pages lie outside the file of {file_bytes} bytes")),
    }
}

/// Estimated bytes of a column chunk as an Arrow array.
fn chunk_memory(column: &ColumnChunkMetaData) -> u64 {
    let values = column.num_values().max(0) as u64;
    let uncompressed = column.uncompressed_size().max(0) as u64;
    let wide = match column.column_type() {
        PhysicalType::BOOLEAN => values / 8,
        PhysicalType::INT32 | PhysicalType::FLOAT => values.saturating_mul(4),
        PhysicalType::INT64 | PhysicalType::DOUBLE | PhysicalType::INT96 => values.saturating_mul(8),
        PhysicalType::FIXED_LEN_BYTE_ARRAY => values.saturating_mul(column.column_descr().type_length().max(0) as u64),
        PhysicalType::BYTE_ARRAY => {
            let text = match column.unencoded_byte_array_data_bytes() {
                Some(bytes) => bytes.max(0) as u64,
                None if column.dictionary_page_offset().is_none() => uncompressed,
                None => uncompressed.max(values.saturating_mul(TEXT_BYTES_GUESS)),
            };
            text.saturating_add(values.saturating_mul(4))
        }
    };
    wide.saturating_add(values / 8)
}

/// The path of a group without children; the root may have none.
fn childless(node: &Type, path: &str) -> Option<String> {
    let Type::GroupType { fields, .. } = node else { return None };
    for field in fields {
        let below = if path.is_empty() { field.name().to_owned() } else { format!("{path}.{}", field.name()) };
        if let Type::GroupType { fields, .. } = field.as_ref()
            && fields.is_empty()
        {
            return Some(below);
        }
        if let Some(found) = childless(field, &below) {
            return Some(found);
        }
    }
    None
}

/// A schema as the footer of a Parquet file without rows.
pub fn schema_bytes(root: TypePtr) -> Result<Vec<u8>, Failure> {
    let failed = |error: parquet::errors::ParquetError| {
        Failure::new(FailureClass::Unsupported, format!("its schema cannot be written: {error}"))
    };
    let mut content = Vec::new();
    let writer = SerializedFileWriter::new(&mut content, root, Arc::default()).map_err(failed)?;
    writer.close().map_err(failed)?;
    Ok(content)
}

impl KnownSchemas {
    fn intern(&self, descriptor: &SchemaDescriptor) -> Result<Arc<SchemaFacts>, Failure> {
        let root = descriptor.root_schema_ptr();
        let bytes = schema_bytes(root.clone())?;
        let mut known = self.0.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        if let Some(facts) = known.get(&bytes) {
            return Ok(facts.clone());
        }
        let facts = Arc::new(SchemaFacts { bytes: bytes.clone(), root, leaves: descriptor.num_columns() as u32 });
        known.insert(bytes, facts.clone());
        Ok(facts)
    }
}
