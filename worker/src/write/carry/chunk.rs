//! The chunk as it is written: pages in memory, and everything that footer and page index say of them.

use std::io::Read;

use bytes::{Buf, Bytes};
use parquet::basic::{Compression, Encoding, EncodingMask, PageType};
use parquet::column::page::{CompressedPage, Page, PageWriter};
use parquet::column::writer::ColumnCloseResult;
use parquet::data_type::{ByteArray, FixedLenByteArray};
use parquet::errors::Result;
use parquet::file::metadata::{
    ColumnChunkMetaData, ColumnIndexBuilder, LevelHistogram, OffsetIndexBuilder, PageEncodingStats,
};
use parquet::file::reader::{ChunkReader, Length};
use parquet::file::statistics::{Statistics, ValueStatistics};
use parquet::file::writer::{SerializedPageWriter, TrackedWrite};
use parquet::schema::types::ColumnDescPtr;

use super::order::{Kind, Order, above, below};

/// What the footer and the page index say of one data page.
#[derive(Debug, Default)]
pub struct Facts {
    pub rows: u64,
    pub slots: u64,
    /// Slots with a value.
    pub values: u64,
    pub bounds: Option<(Vec<u8>, Vec<u8>)>,
    pub nans: u64,
    /// Bytes of the values without their lengths.
    pub value_bytes: u64,
    /// Slots of each level; empty where the column has no such levels.
    pub repetitions: Vec<i64>,
    pub definitions: Vec<i64>,
}

/// A finished chunk: its pages and what to say of them.
pub struct Carried {
    pub close: ColumnCloseResult,
    pub pages: Pages,
}

/// The chunk being written.
pub struct Chunk {
    column: ColumnDescPtr,
    kind: Kind,
    compression: Compression,
    truncate: Option<usize>,
    sink: TrackedWrite<Vec<u8>>,
    offset_index: OffsetIndexBuilder,
    column_index: ColumnIndexBuilder,
    last: Option<(Vec<u8>, Vec<u8>)>,
    ascending: bool,
    descending: bool,
    total: Facts,
    uncompressed: i64,
    encodings: Vec<PageEncodingStats>,
}

impl Chunk {
    pub fn new(column: ColumnDescPtr, kind: Kind, compression: Compression, truncate: Option<usize>) -> Self {
        let level = |max: i16| if max > 0 { vec![0; max as usize + 1] } else { Vec::new() };
        let total = Facts {
            repetitions: level(column.max_rep_level()),
            definitions: level(column.max_def_level()),
            ..Facts::default()
        };
        let mut column_index = ColumnIndexBuilder::new(column.physical_type());
        if kind.order == Order::None {
            column_index.to_invalid();
        }
        Self {
            truncate: truncate.filter(|_| kind.may_truncate(column.physical_type())),
            column,
            kind,
            compression,
            sink: TrackedWrite::new(Vec::new()),
            offset_index: OffsetIndexBuilder::new(),
            column_index,
            last: None,
            ascending: true,
            descending: true,
            total,
            uncompressed: 0,
            encodings: Vec::new(),
        }
    }

    /// Appends a data page. `None` when it has values but no bounds where bounds are due.
    pub fn page(&mut self, page: Page, uncompressed: usize, facts: Facts) -> Option<()> {
        self.count(page.page_type(), page.encoding());
        let is_text = self.kind.is_text;
        if self.kind.order != Order::None {
            let nans = self.kind.order.is_float().then_some(facts.nans as i64);
            let nulls = (facts.slots - facts.values) as i64;
            match (&facts.bounds, facts.values) {
                (None, 0) => self.column_index.append(true, Vec::new(), Vec::new(), nulls, nans),
                (None, _) => return None,
                (Some((smallest, largest)), _) => {
                    let low = below(smallest, self.truncate, is_text).0;
                    let high = above(largest, self.truncate, is_text).0;
                    self.column_index.append(false, low, high, nulls, nans);
                    self.bound(smallest, largest);
                }
            }
        }
        self.column_index.append_histograms(&histogram(&facts.repetitions), &histogram(&facts.definitions));
        self.offset_index.append_row_count(facts.rows as i64);
        if self.column.physical_type() == parquet::basic::Type::BYTE_ARRAY {
            self.offset_index.append_unencoded_byte_array_data_bytes(Some(facts.value_bytes as i64));
        }
        let spec =
            SerializedPageWriter::new(&mut self.sink).write_page(CompressedPage::new(page, uncompressed)).ok()?;
        self.offset_index.append_offset_and_size(spec.offset as i64, i32::try_from(spec.compressed_size).ok()?);
        self.uncompressed += spec.uncompressed_size as i64;
        let total = &mut self.total;
        total.rows += facts.rows;
        total.slots += facts.slots;
        total.values += facts.values;
        total.nans += facts.nans;
        total.value_bytes += facts.value_bytes;
        total.repetitions.iter_mut().zip(&facts.repetitions).for_each(|(sum, count)| *sum += count);
        total.definitions.iter_mut().zip(&facts.definitions).for_each(|(sum, count)| *sum += count);
        Some(())
    }

    /// Takes a page's bounds into the chunk's, and looks whether the pages are in order.
    fn bound(&mut self, smallest: &[u8], largest: &[u8]) {
        let order = self.kind.order;
        if let Some((last_smallest, last_largest)) = &self.last {
            let (low, high) = (order.compare(smallest, last_smallest), order.compare(largest, last_largest));
            self.ascending &= low.is_ge() && high.is_ge();
            self.descending &= low.is_le() && high.is_le();
        }
        self.last = Some((smallest.to_vec(), largest.to_vec()));
        match &mut self.total.bounds {
            None => self.total.bounds = Some((smallest.to_vec(), largest.to_vec())),
            Some((least, most)) => {
                if order.compare(smallest, least).is_lt() {
                    *least = smallest.to_vec();
                }
                if order.compare(largest, most).is_gt() {
                    *most = largest.to_vec();
                }
            }
        }
    }

    fn count(&mut self, page_type: PageType, encoding: Encoding) {
        let same = |stats: &&mut PageEncodingStats| stats.page_type == page_type && stats.encoding == encoding;
        match self.encodings.iter_mut().find(same) {
            Some(stats) => stats.count += 1,
            None => self.encodings.push(PageEncodingStats { page_type, encoding, count: 1 }),
        }
    }

    /// Whether a page refers to the dictionary.
    pub fn has_numbers(&self) -> bool {
        self.encodings.iter().any(|stats| stats.encoding == Encoding::RLE_DICTIONARY)
    }

    /// Ends the chunk; `dictionary` is its dictionary page, compressed, with its uncompressed size.
    pub fn finish(mut self, dictionary: Option<(Page, usize)>) -> Option<Carried> {
        let mut head = Bytes::new();
        if let Some((page, uncompressed)) = dictionary {
            let mut sink = TrackedWrite::new(Vec::new());
            let spec = SerializedPageWriter::new(&mut sink).write_page(CompressedPage::new(page, uncompressed)).ok()?;
            self.uncompressed += spec.uncompressed_size as i64;
            head = sink.into_inner().ok()?.into();
            self.encodings.insert(
                0,
                PageEncodingStats { page_type: PageType::DICTIONARY_PAGE, encoding: Encoding::PLAIN, count: 1 },
            );
        }
        let data = Bytes::from(self.sink.into_inner().ok()?);
        let is_bytes = self.column.physical_type() == parquet::basic::Type::BYTE_ARRAY;
        let total = &self.total;
        let encodings = self.encodings.iter().map(|stats| stats.encoding).chain([Encoding::RLE]).collect::<Vec<_>>();
        let metadata = ColumnChunkMetaData::builder(self.column.clone())
            .set_compression(self.compression)
            .set_encodings_mask(EncodingMask::new_from_encodings(encodings.iter()))
            .set_page_encoding_stats(self.encodings)
            .set_total_compressed_size((head.len() + data.len()) as i64)
            .set_total_uncompressed_size(self.uncompressed)
            .set_num_values(total.slots as i64)
            .set_data_page_offset(0)
            .set_statistics(statistics(&self.column, self.kind, self.truncate, total))
            .set_unencoded_byte_array_data_bytes(is_bytes.then_some(total.value_bytes as i64))
            .set_repetition_level_histogram(histogram(&total.repetitions))
            .set_definition_level_histogram(histogram(&total.definitions))
            .build()
            .ok()?;
        self.column_index.set_boundary_order(match (self.ascending, self.descending) {
            (true, _) => parquet::basic::BoundaryOrder::ASCENDING,
            (false, true) => parquet::basic::BoundaryOrder::DESCENDING,
            (false, false) => parquet::basic::BoundaryOrder::UNORDERED,
        });
        let column_index = if self.column_index.valid() { Some(self.column_index.build().ok()?) } else { None };
        let close = ColumnCloseResult {
            bytes_written: (head.len() + data.len()) as u64,
            rows_written: total.rows,
            metadata,
            bloom_filter: None,
            column_index,
            offset_index: Some(self.offset_index.build()),
        };
        let close = close.update_dictionary_location(head.len()).ok()?;
        Some(Carried { close, pages: Pages { head, data } })
    }
}

fn histogram(counts: &[i64]) -> Option<LevelHistogram> {
    (!counts.is_empty()).then(|| LevelHistogram::from(counts.to_vec()))
}

fn statistics(column: &ColumnDescPtr, kind: Kind, truncate: Option<usize>, total: &Facts) -> Statistics {
    let nulls = Some(total.slots - total.values);
    let nans = kind.order.is_float().then_some(total.nans);
    let signed = column.sort_order().is_signed();
    let bounds = total
        .bounds
        .as_ref()
        .map(|(least, most)| (below(least, truncate, kind.is_text), above(most, truncate, kind.is_text)));
    macro_rules! of {
        ($value:ty, $from:expr) => {{
            let from: fn(&[u8]) -> $value = $from;
            let value = |bound: &(Vec<u8>, bool)| from(&bound.0);
            let (least, most) =
                (bounds.as_ref().map(|(low, _)| value(low)), bounds.as_ref().map(|(_, high)| value(high)));
            ValueStatistics::<$value>::new(least, most, None, nulls, false)
                .with_min_is_exact(bounds.as_ref().is_some_and(|(low, _)| !low.1))
                .with_max_is_exact(bounds.as_ref().is_some_and(|(_, high)| !high.1))
                .with_nan_count(nans)
                .with_backwards_compatible_min_max(signed)
                .into()
        }};
    }
    use parquet::basic::Type;
    match column.physical_type() {
        Type::INT32 => of!(i32, |raw| i32::from_le_bytes(raw.try_into().expect("four bytes"))),
        Type::INT64 => of!(i64, |raw| i64::from_le_bytes(raw.try_into().expect("eight bytes"))),
        Type::FLOAT => of!(f32, |raw| f32::from_le_bytes(raw.try_into().expect("four bytes"))),
        Type::DOUBLE => of!(f64, |raw| f64::from_le_bytes(raw.try_into().expect("eight bytes"))),
        Type::BYTE_ARRAY => of!(ByteArray, |raw| ByteArray::from(raw.to_vec())),
        Type::FIXED_LEN_BYTE_ARRAY => of!(FixedLenByteArray, |raw| ByteArray::from(raw.to_vec()).into()),
        Type::INT96 | Type::BOOLEAN => of!(parquet::data_type::Int96, |_| parquet::data_type::Int96::new()),
    }
}

/// The bytes of a chunk: the dictionary page, then the data pages.
pub struct Pages {
    head: Bytes,
    data: Bytes,
}

impl Length for Pages {
    fn len(&self) -> u64 {
        (self.head.len() + self.data.len()) as u64
    }
}

impl ChunkReader for Pages {
    type T = std::io::Chain<bytes::buf::Reader<Bytes>, bytes::buf::Reader<Bytes>>;

    fn get_read(&self, start: u64) -> Result<Self::T> {
        let start = usize::try_from(start).unwrap_or(usize::MAX);
        let in_head = start.min(self.head.len());
        let in_data = (start - in_head).min(self.data.len());
        Ok(self.head.slice(in_head..).reader().chain(self.data.slice(in_data..).reader()))
    }

    fn get_bytes(&self, start: u64, length: usize) -> Result<Bytes> {
        let mut found = vec![0; length];
        self.get_read(start)?.read_exact(&mut found)?;
        Ok(found.into())
    }
}
