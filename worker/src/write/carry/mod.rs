//! Carrying a column chunk over without taking its rows apart.
//!
//! Dictionaries of the inputs are merged and their indices told anew, so each distinct value is hashed once a chunk;
//! large pages of plain values keep their compressed bytes. Levels, statistics, page index and content-defined cuts are
//! made from what the pages hold, never copied. Cuts of carried pages are those of the input, which a content-addressed
//! store already holds.
//!
//! [`carry`] either gives a whole chunk or nothing; what it does not know, or finds wrong, is left to the lane
//! ([`super::lane`]), which reports it. Which way is taken depends on the job and its inputs alone.

mod chunk;
mod codec;
mod dictionary;
mod gather;
mod header;
mod hybrid;
mod order;

#[cfg(test)]
mod tests;

use std::sync::Arc;

use baler_common::model::options::{Codec, WriteOptions};
use baler_common::runtime::storage::Source;
use bytes::Bytes;
use parquet::basic::{Compression, CompressionCodec, Encoding, ZstdLevel};
use parquet::column::page::Page;
use parquet::file::metadata::ColumnChunkMetaData;
use parquet::schema::types::ColumnDescPtr;

pub use chunk::Carried;
use chunk::Facts;
use dictionary::{Entries, each_plain};
use gather::{Gather, Values};
use header::{Header, Kind as PageKind};
use order::{Bounds, Kind, Order};

/// Largest chunk of an input that is taken into memory here.
const CHUNK_BYTES_MAX: i64 = 64 << 20;
/// Largest page, uncompressed.
const PAGE_BYTES_MAX: usize = 64 << 20;
/// Plain pages of these sizes keep their bytes; smaller ones are gathered, larger ones cut anew.
const CARRIED_BYTES: std::ops::RangeInclusive<usize> = (64 << 10)..=(2 << 20);

/// One input chunk, all of whose rows are taken.
pub struct Part {
    pub source: Arc<Source>,
    pub chunk: ColumnChunkMetaData,
    pub rows: u64,
}

/// Whether chunks of this output column may be carried at all.
pub fn is_open_to(column: &ColumnDescPtr, leaf: usize, options: &WriteOptions) -> bool {
    matches!(options.codec, Codec::Zstd { .. })
        && options.dictionary_bytes > 0
        && options.bloom_filters.iter().all(|filter| filter.leaf as usize != leaf)
        && column.max_def_level() < 128
        && Kind::of(column).is_some()
}

/// Whether this chunk looks like one that can be carried, by its footer.
pub fn is_carriable(chunk: &ColumnChunkMetaData) -> bool {
    #[allow(deprecated, reason = "old writers name them so")]
    let known = |encoding: Encoding| {
        matches!(
            encoding,
            Encoding::PLAIN
                | Encoding::RLE
                | Encoding::RLE_DICTIONARY
                | Encoding::PLAIN_DICTIONARY
                | Encoding::BIT_PACKED
        )
    };
    codec::is_known(chunk.compression_codec())
        && chunk.encodings().all(known)
        && (0..=CHUNK_BYTES_MAX).contains(&chunk.compressed_size())
        && chunk.file_path().is_none()
}

/// The chunk that holds the rows of all parts, in order; `None` when it must be written another way.
pub fn carry(column: &ColumnDescPtr, options: &WriteOptions, parts: &[Part]) -> Option<Carried> {
    let Codec::Zstd { level } = options.codec else { return None };
    let kind = Kind::of(column)?;
    let compression = Compression::ZSTD(ZstdLevel::try_new(level).ok()?);
    let truncate = options.statistics_truncate_bytes.map(|bytes| bytes as usize);
    let output = chunk::Chunk::new(column.clone(), kind, compression, truncate);
    let mut carrier = Carrier {
        column,
        kind,
        gather: Gather::new(column, kind, options, level, output),
        content: Vec::new(),
        levels: [Vec::new(), Vec::new()],
        indices: Vec::new(),
        at_row_end: true,
    };
    for part in parts {
        carrier.part(part)?;
    }
    carrier.gather.finish()
}

struct Carrier<'a> {
    column: &'a ColumnDescPtr,
    kind: Kind,
    gather: Gather,
    /// The page at hand, uncompressed, with its levels (repetition, definition) and dictionary indices.
    content: Vec<u8>,
    levels: [Vec<u32>; 2],
    indices: Vec<u32>,
    /// Whether the last page's last row may not go on in the next one, because its bytes are written.
    at_row_end: bool,
}

/// A page's values: a place in `content`.
struct Body {
    slots: usize,
    values: usize,
    start: usize,
}

impl Carrier<'_> {
    fn part(&mut self, part: &Part) -> Option<()> {
        let chunk = &part.chunk;
        let codec = chunk.compression_codec();
        let start = chunk.dictionary_page_offset().unwrap_or(chunk.data_page_offset());
        let (start, length) = (u64::try_from(start).ok()?, u64::try_from(chunk.compressed_size()).ok()?);
        let end = start.checked_add(length).filter(|end| *end <= part.source.bytes())?;
        let bytes = part.source.read(start..end).ok()?;
        let slots_wanted = usize::try_from(chunk.num_values()).ok()?;
        let mut dictionary: Option<(Entries, Option<Vec<u32>>)> = None;
        // A row does not go on in another chunk.
        self.at_row_end = true;
        let (mut at, mut slots, mut rows) = (0usize, 0usize, 0u64);
        while slots < slots_wanted {
            let header = header::read(bytes.get(at..)?)?;
            if header.uncompressed > PAGE_BYTES_MAX {
                return None;
            }
            let from = at + header.length;
            let stored = bytes.get(from..from.checked_add(header.stored)?)?;
            let place = from..from + header.stored;
            at = place.end;
            let encoding = match header.kind {
                PageKind::Dictionary { values } => {
                    if dictionary.is_some() || slots > 0 {
                        return None;
                    }
                    let mut content = Vec::new();
                    codec::decompress(codec, stored, header.uncompressed, &mut content)?;
                    let entries = Entries::parse(content, self.kind.width, values)?;
                    let numbers = self.gather.merge(&entries);
                    dictionary = Some((entries, numbers));
                    continue;
                }
                PageKind::Data { encoding, .. } | PageKind::DataV2 { encoding, .. } => encoding,
            };
            let body = self.open(&header, codec, stored)?;
            slots += body.slots;
            let starts_row = self.levels[0].first().is_none_or(|level| *level == 0);
            if body.slots > 0 && !starts_row && self.at_row_end {
                return None;
            }
            rows += self.rows(body.slots);
            match encoding {
                header::PLAIN => {
                    let may_keep = codec == CompressionCodec::ZSTD && CARRIED_BYTES.contains(&header.uncompressed);
                    if may_keep && starts_row {
                        self.keep(&header, bytes.slice(place), &body)?;
                        self.at_row_end = true;
                        continue;
                    }
                    // Small pages without any dictionary may want one, which the lane can give them.
                    dictionary.as_ref()?;
                    self.plain(&body)?;
                }
                header::RLE_DICTIONARY | header::PLAIN_DICTIONARY => {
                    let (entries, numbers) = dictionary.as_ref()?;
                    self.indexed(&body, entries, numbers.as_deref())?;
                }
                _ => return None,
            }
            self.at_row_end &= body.slots == 0;
        }
        (slots == slots_wanted && rows == part.rows).then_some(())
    }

    /// Uncompresses a data page and reads its levels.
    fn open(&mut self, header: &Header, codec: CompressionCodec, stored: &[u8]) -> Option<Body> {
        let max = [self.column.max_rep_level() as u32, self.column.max_def_level() as u32];
        let (slots, start) = match header.kind {
            PageKind::Dictionary { .. } => return None,
            PageKind::Data { slots, levels, .. } => {
                codec::decompress(codec, stored, header.uncompressed, &mut self.content)?;
                let mut at = 0usize;
                for (place, max) in max.into_iter().enumerate() {
                    self.levels[place].clear();
                    if max == 0 {
                        continue;
                    }
                    if levels[1 - place] != header::RLE {
                        return None;
                    }
                    let length = self.content.get(at..at + 4)?.try_into().expect("four bytes were taken");
                    let from = at + 4;
                    at = from.checked_add(u32::from_le_bytes(length) as usize)?;
                    let bytes = self.content.get(from..at)?;
                    hybrid::read(bytes, hybrid::width(max), slots, max, &mut self.levels[place])?;
                }
                (slots, at)
            }
            PageKind::DataV2 { slots, repetition_bytes, definition_bytes, compressed, .. } => {
                let levels = repetition_bytes.checked_add(definition_bytes)?;
                let (front, rest) = stored.split_at_checked(levels)?;
                let codec = if compressed { codec } else { CompressionCodec::UNCOMPRESSED };
                codec::decompress(codec, rest, header.uncompressed.checked_sub(levels)?, &mut self.content)?;
                let parts = [&front[..repetition_bytes], &front[repetition_bytes..]];
                for (place, max) in max.into_iter().enumerate() {
                    self.levels[place].clear();
                    if max > 0 {
                        hybrid::read(parts[place], hybrid::width(max), slots, max, &mut self.levels[place])?;
                    }
                }
                (slots, 0)
            }
        };
        let values = match max[1] {
            0 => slots,
            max => self.levels[1].iter().filter(|level| **level == max).count(),
        };
        Some(Body { slots, values, start })
    }

    fn rows(&self, slots: usize) -> u64 {
        match self.column.max_rep_level() {
            0 => slots as u64,
            _ => self.levels[0].iter().filter(|level| **level == 0).count() as u64,
        }
    }

    /// Keeps a page's bytes as they are.
    fn keep(&mut self, header: &Header, stored: Bytes, body: &Body) -> Option<()> {
        let order = self.kind.order;
        let content = &self.content[body.start..];
        let mut facts = Facts {
            rows: self.rows(body.slots),
            slots: body.slots as u64,
            values: body.values as u64,
            repetitions: gather::counted(self.column.max_rep_level(), &self.levels[0]),
            definitions: gather::counted(self.column.max_def_level(), &self.levels[1]),
            ..Facts::default()
        };
        let mut bounds = Bounds::default();
        let mut bytes = 0;
        let end = each_plain(content, self.kind.width, body.values, |value, _| {
            bytes += value.len() as u64;
            if order != Order::None {
                bounds.take(order, value, 1);
            }
        })?;
        if end != content.len() {
            return None;
        }
        facts.bounds = bounds.bounds.map(|(least, most)| (least.to_vec(), most.to_vec()));
        (facts.nans, facts.value_bytes) = (bounds.nans, bytes);
        let encoding = Encoding::PLAIN;
        let num_values = u32::try_from(body.slots).ok()?;
        let page = match header.kind {
            PageKind::Dictionary { .. } => return None,
            PageKind::Data { .. } => Page::DataPage {
                buf: stored,
                num_values,
                encoding,
                def_level_encoding: Encoding::RLE,
                rep_level_encoding: Encoding::RLE,
                statistics: None,
            },
            PageKind::DataV2 { repetition_bytes, definition_bytes, compressed, .. } => Page::DataPageV2 {
                buf: stored,
                num_values,
                encoding,
                num_nulls: (body.slots - body.values) as u32,
                num_rows: facts.rows as u32,
                def_levels_byte_len: definition_bytes as u32,
                rep_levels_byte_len: repetition_bytes as u32,
                is_compressed: compressed,
                statistics: None,
            },
        };
        self.gather.kept(page, header.uncompressed, facts)
    }

    /// Gathers a page of plain values.
    fn plain(&mut self, body: &Body) -> Option<()> {
        let content = &self.content[body.start..];
        let mut places = Vec::with_capacity(body.values.min(content.len()));
        let end = each_plain(content, self.kind.width, body.values, |value, _| places.push(value))?;
        if end != content.len() {
            return None;
        }
        let [repetitions, definitions] = &self.levels;
        self.gather.take(body.slots, repetitions, definitions, Values::Plain(&places))
    }

    /// Gathers a page of dictionary indices: as numbers of the merged dictionary, or as values when it is full.
    fn indexed(&mut self, body: &Body, entries: &Entries, numbers: Option<&[u32]>) -> Option<()> {
        let content = &self.content[body.start..];
        self.indices.clear();
        if body.values > 0 {
            let (width, packed) = content.split_first()?;
            let max = u32::try_from(entries.len()).ok()?.checked_sub(1)?;
            hybrid::read(packed, u32::from(*width), body.values, max, &mut self.indices)?;
        }
        let [repetitions, definitions] = &self.levels;
        let values = match numbers {
            Some(numbers) => {
                self.indices.iter_mut().for_each(|index| *index = numbers[*index as usize]);
                Values::Numbers(&self.indices)
            }
            None => Values::Entries(&self.indices, entries),
        };
        self.gather.take(body.slots, repetitions, definitions, values)
    }
}
