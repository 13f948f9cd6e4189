//! Files of one column whose pages are made by hand, byte by byte.

use parquet::basic::Compression;
use parquet::column::writer::ColumnCloseResult;
use parquet::file::metadata::ColumnChunkMetaData;

use super::*;
use crate::verify::crc::crc32;
use crate::write::column_orders::settle_column_orders;

/// A data page (version 1) of plain values as it is stored.
pub(super) struct RawPage {
    pub slots: i64,
    /// Bytes before compression.
    pub full_bytes: usize,
    /// What is stored.
    pub stored: Vec<u8>,
    pub crc: Option<u32>,
    /// Encoding of the levels: 3 is RLE, 4 bit-packed.
    pub levels: i64,
}

impl RawPage {
    /// A page that is not compressed, with its checksum.
    pub(super) fn plain(slots: i64, content: Vec<u8>) -> Self {
        Self { slots, full_bytes: content.len(), crc: Some(crc32(&content)), stored: content, levels: 3 }
    }

    fn header(&self) -> Vec<u8> {
        let mut header = Vec::new();
        let int = |header: &mut Vec<u8>, value: i64| {
            let mut rest = ((value << 1) ^ (value >> 63)).cast_unsigned();
            header.push(0x15);
            while rest >= 0x80 {
                header.push(rest as u8 | 0x80);
                rest >>= 7;
            }
            header.push(rest as u8);
        };
        for value in [0, self.full_bytes as i64, self.stored.len() as i64] {
            int(&mut header, value);
        }
        match self.crc {
            Some(crc) => {
                int(&mut header, i64::from(crc.cast_signed()));
                header.push(0x1c);
            }
            None => header.push(0x2c),
        }
        for value in [self.slots, 0, self.levels, self.levels] {
            int(&mut header, value);
        }
        header.extend([0, 0]);
        header
    }
}

/// A file of one row group and one column.
pub(super) fn raw_file(schema: &str, codec: Compression, rows: u64, pages: &[RawPage]) -> Vec<u8> {
    let schema = Arc::new(parse_message_type(schema).expect("a schema"));
    let mut chunk = Vec::new();
    let (mut full, mut slots) = (0, 0);
    for page in pages {
        let header = page.header();
        full += header.len() + page.full_bytes;
        slots += page.slots;
        chunk.extend(header);
        chunk.extend(&page.stored);
    }
    let mut content = Vec::new();
    let mut writer =
        SerializedFileWriter::new(&mut content, schema, Arc::new(WriterProperties::default())).expect("a writer");
    let metadata = ColumnChunkMetaData::builder(writer.schema_descr().column(0))
        .set_compression_codec(codec.into())
        .set_num_values(slots)
        .set_total_compressed_size(chunk.len() as i64)
        .set_total_uncompressed_size(full as i64)
        .set_data_page_offset(0)
        .build()
        .expect("a chunk");
    let mut group = writer.next_row_group().expect("a row group");
    let bytes_written = chunk.len() as u64;
    let (bloom_filter, column_index, offset_index) = (None, None, None);
    let close =
        ColumnCloseResult { bytes_written, rows_written: rows, metadata, bloom_filter, column_index, offset_index };
    group.append_column(&bytes::Bytes::from(chunk), close).expect("appended");
    group.close().expect("closed");
    writer.close().expect("closed");
    settle_column_orders(&mut content, 1);
    content
}
