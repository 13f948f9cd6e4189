//! One leaf of one row group, folded into the sums of its rows.

use baler_common::model::error::{Failure, FailureClass};
use baler_common::runtime::storage::Source;
use polars_buffer::Buffer;
use polars_parquet::parquet::compression::{Compression, DecompressionContext};
use polars_parquet::parquet::encoding::Encoding;
use polars_parquet::parquet::encoding::hybrid_rle::{HybridRleChunk, HybridRleDecoder};
use polars_parquet::parquet::metadata::ColumnChunkMetadata;
use polars_parquet::parquet::page::{CompressedPage, DataPage, DataPageHeader, Page, split_buffer};
use polars_parquet::parquet::read::{PageReader, decompress};

use super::bounds::Bounds;
use super::schema::Leaf;
use super::values::{Dictionary, PageValues, Treatment, ValueReader, hybrid};
use crate::context::Context;
use crate::fingerprint::{levels, mix, mix_all};

/// Largest page, in bytes, compressed or not.
const PAGE_BYTES_MAX: usize = 1 << 30;
/// Most bytes that one compressed byte may become. zstd reaches about 1 : 100,000 on constant data, so small pages are
/// let be.
const RATIO_MAX: usize = 1000;
/// Pages up to this size are never a bomb.
const RATIO_FREE_BYTES: usize = 16 << 20;

/// What is kept from chunk to chunk by one thread: codec contexts and buffers, which are dear to make anew.
pub(super) struct Scratch {
    zstd: DecompressionContext,
    page: Vec<u8>,
    values: PageValues,
    /// Sums of a row group's rows.
    pub sums: Vec<[u64; 2]>,
}

impl Scratch {
    pub(super) fn new() -> Self {
        Self { zstd: DecompressionContext::Unset, page: Vec::new(), values: PageValues::default(), sums: Vec::new() }
    }
}

/// Where a leaf of the output comes from in one input.
pub(super) enum Feed<'a> {
    /// The input's leaf.
    Leaf(&'a Leaf),
    /// The input has no such column: what is known are the levels of a neighbour, down to the deepest node that both
    /// have. The numbers are that node's canonical definition level and repetition level.
    Neighbour { leaf: &'a Leaf, canonical: u16, repetition: u16 },
}

/// Folds the chunk into `rows`, one pair of sums per row of the row group. With `statistics`, the footer they lie in, the
/// chunk's statistics must hold.
#[allow(clippy::too_many_arguments)]
pub(super) fn fold_chunk(
    source: &Source,
    chunk: &ColumnChunkMetadata,
    output: &Leaf,
    feed: &Feed<'_>,
    treatment: Treatment,
    statistics: Option<&[u8]>,
    rows: &mut [[u64; 2]],
    scratch: &mut Scratch,
    context: &Context,
) -> Result<(), Failure> {
    let corrupt = |message: String| Failure::new(FailureClass::InputCorrupt, message);
    let (stored, limits) = match feed {
        Feed::Leaf(leaf) => (*leaf, (u16::MAX, u16::MAX)),
        Feed::Neighbour { leaf, canonical, repetition } => (*leaf, (*canonical, *repetition)),
    };
    let valued = matches!(feed, Feed::Leaf(_));
    if chunk.num_values() == 0 && rows.is_empty() {
        return Ok(());
    }
    let range = chunk_range(chunk, source.bytes()).map_err(corrupt)?;
    let content = source.read(range)?;
    let buffer = Buffer::from_owner(content);
    let mut reader = PageReader::new(std::io::Cursor::new(buffer), chunk, Vec::new(), PAGE_BYTES_MAX);
    let bounds = match statistics.filter(|_| stored.max_repetition == 0).and_then(|footer| chunk.statistics(footer)) {
        Some(statistics) => {
            let statistics = statistics.map_err(|error| corrupt(format!("its statistics cannot be read: {error}")))?;
            Some(Bounds::new(&statistics, stored).map_err(corrupt)?)
        }
        None => None,
    };
    let bounds = bounds.as_ref();
    let values_reader = ValueReader { physical: stored.physical, form: stored.form, treatment, bounds };
    let mut dictionary: Option<Dictionary> = None;
    let mut fold = Fold::new(output, stored, limits, rows);
    let wanted = usize::try_from(chunk.num_values()).map_err(|_| corrupt("its value count is negative".into()))?;
    let mut seen = 0usize;
    while seen < wanted {
        context.check_running()?;
        let Some(page) = reader.next() else { break };
        let page = page.map_err(|error| corrupt(error.to_string()))?;
        check_ratio(&page).map_err(corrupt)?;
        let page =
            decompress(page, &mut scratch.page, &mut scratch.zstd).map_err(|error| corrupt(error.to_string()))?;
        match page {
            Page::Dict(page) => {
                if dictionary.is_some() {
                    return Err(corrupt("it has two dictionaries".into()));
                }
                let mut read = match valued {
                    true => values_reader.dictionary(&page.buffer, page.num_values).map_err(corrupt)?,
                    false => Dictionary::default(),
                };
                if stored.max_repetition == 0 {
                    read.folded.clone_from(&read.hashes);
                    mix_all(&mut read.folded, fold.base);
                }
                dictionary = Some(read);
                if chunk.compression() != Compression::Uncompressed {
                    recycle(&mut scratch.page, page.buffer.into_vec());
                }
            }
            Page::Data(page) => {
                let slots = page.num_values();
                if slots > wanted - seen {
                    return Err(corrupt(format!("its pages hold more than the {wanted} values of its footer")));
                }
                seen += slots;
                fold_page(&page, stored, valued, &values_reader, dictionary.as_ref(), &mut scratch.values, &mut fold)
                    .map_err(corrupt)?;
                // An uncompressed page is a part of the chunk; taking its buffer would copy it.
                if chunk.compression() != Compression::Uncompressed {
                    let mut page = page;
                    recycle(&mut scratch.page, std::mem::take(page.buffer_mut()));
                }
            }
        }
    }
    if seen != wanted {
        return Err(corrupt(format!("its pages hold {seen} values, its footer says {wanted}")));
    }
    if let Some(claimed) = bounds.and_then(|bounds| bounds.null_count)
        && claimed != fold.nulls
    {
        return Err(corrupt(format!("its statistics count {claimed} nulls, it has {}", fold.nulls)));
    }
    fold.finish().map_err(corrupt)
}

fn recycle(slot: &mut Vec<u8>, buffer: Vec<u8>) {
    if buffer.capacity() > slot.capacity() {
        *slot = buffer;
    }
}

/// The bytes of a chunk, inside the file.
fn chunk_range(chunk: &ColumnChunkMetadata, file_bytes: u64) -> Result<std::ops::Range<u64>, String> {
    let start = match chunk.dictionary_page_offset() {
        Some(offset) if offset > 0 && offset < chunk.data_page_offset() => offset,
        _ => chunk.data_page_offset(),
    };
    let (start, length) = (u64::try_from(start).ok(), u64::try_from(chunk.compressed_size()).ok());
    let range = start.zip(length).and_then(|(start, length)| Some(start..start.checked_add(length)?));
    range
        .filter(|range| range.start >= 4 && range.end <= file_bytes)
        .ok_or_else(|| format!("its pages lie outside the file of {file_bytes} bytes"))
}

fn check_ratio(page: &CompressedPage) -> Result<(), String> {
    // The sizes of a dictionary page cannot be seen here; the codec refuses what does not fit them.
    let CompressedPage::Data(page) = page else { return Ok(()) };
    let (compressed, full) = (page.compressed_size(), page.uncompressed_size());
    if full > PAGE_BYTES_MAX || (full > RATIO_FREE_BYTES && full / RATIO_MAX > compressed) {
        return Err(format!("a page of {compressed} bytes claims to hold {full}: refused as a decompression bomb"));
    }
    if page.compression() == Compression::Uncompressed && full != compressed {
        return Err(format!("a page of {compressed} uncompressed bytes claims to hold {full}"));
    }
    Ok(())
}

fn fold_page(
    page: &DataPage,
    stored: &Leaf,
    valued: bool,
    reader: &ValueReader<'_>,
    dictionary: Option<&Dictionary>,
    values: &mut PageValues,
    fold: &mut Fold<'_>,
) -> Result<(), String> {
    let slots = page.num_values();
    if let DataPageHeader::V2(header) = page.header() {
        let (repetition, definition) = (header.repetition_levels_byte_length, header.definition_levels_byte_length);
        let levels = usize::try_from(repetition).ok().zip(usize::try_from(definition).ok());
        if levels.and_then(|(r, d)| r.checked_add(d)).is_none_or(|bytes| bytes > page.buffer().len()) {
            return Err("its levels are longer than their page".into());
        }
    }
    let parts = split_buffer(page).map_err(|error| error.to_string())?;
    if (stored.max_repetition > 0 && page.repetition_level_encoding() != Encoding::Rle)
        || (stored.max_definition > 0 && page.definition_level_encoding() != Encoding::Rle)
    {
        return Err("its levels are in the bit-packed encoding that was given up in 2013".into());
    }
    let read_levels = |bytes: &[u8], max: u16| -> Result<Option<Vec<u32>>, String> {
        if max == 0 {
            return Ok(None);
        }
        let width = (u16::BITS - max.leading_zeros()) as u8;
        let levels = hybrid(bytes, width, slots)?;
        match levels.iter().any(|level| *level > u32::from(max)) {
            true => Err(format!("a level is above {max}")),
            false => Ok(Some(levels)),
        }
    };
    let definitions = match all_full(parts.def, stored.max_definition, slots) {
        true => None,
        false => read_levels(parts.def, stored.max_definition)?,
    };
    let repetitions = read_levels(parts.rep, stored.max_repetition)?;
    let full = u32::from(stored.max_definition);
    let present = definitions.as_ref().map_or(slots, |levels| levels.iter().filter(|level| **level == full).count());
    fold.nulls += (slots - present) as u64;
    values.indexed = false;
    if valued {
        reader.page(page.encoding(), parts.values, present, dictionary, values)?;
    }
    let definitions = definitions.as_deref();
    let Some(repetitions) = repetitions.as_deref() else {
        return match (valued, values.indexed, dictionary) {
            (false, ..) => {
                let bare = fold.base.map(mix);
                fold.flat(slots, definitions, |_| bare)
            }
            (true, true, Some(dictionary)) => {
                let (indices, folded) = (&values.indices[..present], &dictionary.folded[..]);
                fold.flat(slots, definitions, |at| folded[indices[at] as usize])
            }
            (true, ..) => {
                mix_all(&mut values.hashes, fold.base);
                let folded = &values.hashes[..present];
                fold.flat(slots, definitions, |at| folded[at])
            }
        };
    };
    match (valued, values.indexed, dictionary) {
        (false, ..) => fold.nested(slots, definitions, repetitions, |_| [0; 2]),
        (true, true, Some(dictionary)) => {
            let (indices, dictionary) = (&values.indices, &dictionary.hashes);
            fold.nested(slots, definitions, repetitions, |at| dictionary[indices[at] as usize])
        }
        (true, ..) => {
            let hashes = &values.hashes;
            fold.nested(slots, definitions, repetitions, |at| hashes[at])
        }
    }
}

/// Whether the definition levels are a single run of the highest one: no value is missing.
fn all_full(levels: &[u8], max: u16, slots: usize) -> bool {
    let width = u16::BITS - max.leading_zeros();
    match HybridRleDecoder::new(levels, width, slots).next_chunk() {
        Ok(Some(HybridRleChunk::Rle(level, run))) => run == slots && level == u32::from(max),
        _ => false,
    }
}

/// The fold of one leaf over the rows of a row group.
struct Fold<'a> {
    rows: &'a mut [[u64; 2]],
    /// Rows that are complete.
    done: usize,
    /// Slots without a value.
    nulls: u64,
    salts: [u64; 2],
    /// Canonical level of each stored definition level, cut to what is known of a missing column.
    canonical: Vec<u16>,
    full: u32,
    /// Deepest repetition level that counts.
    repetition_max: u32,
    /// What a slot without a value makes of a fresh row, by stored definition level.
    empty: Vec<[u64; 2]>,
    /// What a slot with a value starts from in a fresh row.
    base: [u64; 2],
    /// The row in progress, for repeated leaves.
    open: Option<[u64; 2]>,
}

impl<'a> Fold<'a> {
    fn new(
        output: &Leaf,
        stored: &Leaf,
        (canonical_max, repetition_max): (u16, u16),
        rows: &'a mut [[u64; 2]],
    ) -> Self {
        let salts = output.salts;
        let canonical: Vec<u16> = stored.canonical.iter().map(|level| (*level).min(canonical_max)).collect();
        let start = |level: u16| {
            let added = levels(0, level);
            [salts[0].wrapping_add(added[0]), salts[1].wrapping_add(added[1])]
        };
        let empty = canonical.iter().map(|level| start(*level).map(mix)).collect();
        let base = start(canonical.last().copied().unwrap_or_default());
        let full = u32::from(stored.max_definition);
        let repetition_max = u32::from(repetition_max);
        Self { rows, done: 0, nulls: 0, salts, canonical, full, repetition_max, empty, base, open: None }
    }

    /// Adds a page of a column that is not repeated: each slot is a row. `folded` is what the n-th value makes of one.
    #[inline]
    fn flat(
        &mut self,
        slots: usize,
        definitions: Option<&[u32]>,
        folded: impl Fn(usize) -> [u64; 2],
    ) -> Result<(), String> {
        let rows = self.rows.get_mut(self.done..self.done + slots).ok_or("it has more rows than its row group")?;
        match definitions {
            None => {
                for (at, row) in rows.iter_mut().enumerate() {
                    let folded = folded(at);
                    row[0] = row[0].wrapping_add(folded[0]);
                    row[1] = row[1].wrapping_add(folded[1]);
                }
            }
            Some(definitions) => {
                let mut at = 0;
                for (row, definition) in rows.iter_mut().zip(definitions) {
                    let folded = if *definition == self.full {
                        at += 1;
                        folded(at - 1)
                    } else {
                        self.empty[*definition as usize]
                    };
                    row[0] = row[0].wrapping_add(folded[0]);
                    row[1] = row[1].wrapping_add(folded[1]);
                }
            }
        }
        self.done += slots;
        Ok(())
    }

    #[inline]
    fn nested(
        &mut self,
        slots: usize,
        definitions: Option<&[u32]>,
        repetitions: &[u32],
        value: impl Fn(usize) -> [u64; 2],
    ) -> Result<(), String> {
        let mut at = 0;
        for (slot, &repetition) in repetitions[..slots].iter().enumerate() {
            let definition = definitions.map_or(self.full, |definitions| definitions[slot]);
            let hash = if definition == self.full {
                at += 1;
                value(at - 1)
            } else {
                [0; 2]
            };
            if repetition > self.repetition_max {
                continue;
            }
            let before = match (repetition, self.open.take()) {
                (0, finished) => {
                    if let Some(sums) = finished {
                        self.close(sums)?;
                    }
                    self.salts
                }
                (_, Some(sums)) => sums,
                (_, None) => return Err("its first value continues a row that has no beginning".into()),
            };
            let added = levels(repetition as u16, self.canonical[definition as usize]);
            self.open = Some([
                mix(before[0].wrapping_add(added[0]).wrapping_add(hash[0])),
                mix(before[1].wrapping_add(added[1]).wrapping_add(hash[1])),
            ]);
        }
        Ok(())
    }

    fn close(&mut self, sums: [u64; 2]) -> Result<(), String> {
        let row = self.rows.get_mut(self.done).ok_or("it has more rows than its row group")?;
        row[0] = row[0].wrapping_add(sums[0]);
        row[1] = row[1].wrapping_add(sums[1]);
        self.done += 1;
        Ok(())
    }

    fn finish(mut self) -> Result<(), String> {
        if let Some(sums) = self.open.take() {
            self.close(sums)?;
        }
        match self.done == self.rows.len() {
            true => Ok(()),
            false => Err(format!("it has {} rows, its row group {}", self.done, self.rows.len())),
        }
    }
}

/// Adds a column that an input does not have, and of which no ancestor exists: null in every row.
pub(super) fn fold_absent(output: &Leaf, rows: &mut [[u64; 2]]) {
    let added = levels(0, 0);
    let folded = [0, 1].map(|s| mix(output.salts[s].wrapping_add(added[s])));
    for row in rows {
        row[0] = row[0].wrapping_add(folded[0]);
        row[1] = row[1].wrapping_add(folded[1]);
    }
}
