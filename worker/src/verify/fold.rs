//! One column chunk, decoded page by page and folded into the sums of a window of its row group's rows.
//!
//! A [`Cursor`] remembers where in the chunk a window ended. The next window begins with that page again, and with the
//! dictionary, so that between windows nothing is held but a few numbers per column.

use baler_common::model::error::{Failure, FailureClass};
use baler_common::runtime::storage::Source;
use polars_parquet::parquet::compression::{Compression, DecompressionContext};
use polars_parquet::parquet::encoding::Encoding;
use polars_parquet::parquet::encoding::hybrid_rle::{HybridRleChunk, HybridRleDecoder};
use polars_parquet::parquet::error::ParquetError;
use polars_parquet::parquet::metadata::ColumnChunkMetadata;
use polars_parquet::parquet::page::{CompressedPage, DataPage, DataPageHeader, DictPage, Page, split_buffer};
use polars_parquet::parquet::read::{PageMetaData, PageReader, decompress};

use super::bounds::Bounds;
use super::dictionary::Dictionary;
use super::index::PageIndex;
use super::pages::{self, Budget, Kind, PAGE_BYTES_MAX, Pages};
use super::rows::{Fold, Start};
use super::schema::Leaf;
use super::values::{PageValues, Treatment, ValueReader, hybrid};
use crate::context::Context;
use crate::fingerprint::{mix, mix_all};

/// How a frame of LZ4's own file format begins.
const LZ4_FRAME: [u8; 4] = [0x04, 0x22, 0x4d, 0x18];
/// How a member of a gzip stream begins.
const GZIP_MEMBER: [u8; 3] = [0x1f, 0x8b, 0x08];

/// What is kept from chunk to chunk by one thread: codec contexts and buffers, which are dear to make anew.
pub(super) struct Scratch {
    zstd: DecompressionContext,
    page: Vec<u8>,
    values: PageValues,
    /// Sums of a window's rows.
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

impl<'a> Feed<'a> {
    /// The leaf that is read.
    pub(super) fn stored(&self) -> &'a Leaf {
        match self {
            Self::Leaf(leaf) | Self::Neighbour { leaf, .. } => leaf,
        }
    }

    /// Whether its values count, and not its levels only.
    pub(super) fn is_valued(&self) -> bool {
        matches!(self, Self::Leaf(_))
    }

    pub(super) fn start(&self, output: &Leaf) -> Start {
        match self {
            Self::Leaf(leaf) => Start::new(output, leaf, u16::MAX, u16::MAX),
            Self::Neighbour { leaf, canonical, repetition } => Start::new(output, leaf, *canonical, *repetition),
        }
    }
}

/// One column chunk to be folded.
pub(super) struct Chunk<'a> {
    pub source: &'a Source,
    pub metadata: &'a ColumnChunkMetadata,
    pub output: &'a Leaf,
    pub feed: &'a Feed<'a>,
    pub treatment: Treatment,
    /// The footer with the chunk's statistics, where they must hold.
    pub statistics: Option<&'a [u8]>,
    /// Rows of its row group.
    pub rows: usize,
    pub budget: Budget,
}

/// How far a chunk was folded.
#[derive(Debug, Clone, Default)]
pub(super) struct Cursor {
    /// Where the page begins that comes next, or was not taken wholly.
    at: Option<u64>,
    /// Whether the chunk begins with a dictionary.
    has_dictionary: bool,
    /// Data pages before it.
    pages: usize,
    /// Slots of those pages.
    slots: usize,
    /// Slots of the next page that are folded already.
    taken: usize,
    /// Slots without a value in those pages.
    nulls: u64,
    /// Complete rows.
    rows: usize,
}

impl Cursor {
    /// Rows that are folded.
    pub(super) fn rows(&self) -> usize {
        self.rows
    }
}

fn corrupt(message: impl Into<String>) -> Failure {
    Failure::new(FailureClass::InputCorrupt, message)
}

/// Why a chunk was not folded.
pub(super) enum Trouble {
    /// The file may be sound: polars-parquet does not read what it uses, and the second decoder may stand in. The text
    /// says what it is.
    StandIn(String),
    /// The file is not as it should be, or cannot be read.
    Failed(Failure),
}

impl From<Failure> for Trouble {
    fn from(failure: Failure) -> Self {
        Self::Failed(failure)
    }
}

/// What polars-parquet says of itself, kept apart from what it says of the file.
fn refused(error: ParquetError) -> Trouble {
    match error {
        ParquetError::FeatureNotSupported(_) | ParquetError::FeatureNotActive(..) => {
            Trouble::StandIn(error.to_string())
        }
        _ => Trouble::Failed(corrupt(error.to_string())),
    }
}

impl Chunk<'_> {
    /// Folds the next rows of the chunk into `rows`, one pair of sums each. With `last`, they must be its last.
    ///
    /// `rows` are spoilt by any trouble.
    pub(super) fn fold(
        &self,
        rows: &mut [[u64; 2]],
        last: bool,
        cursor: &mut Cursor,
        scratch: &mut Scratch,
        context: &Context,
    ) -> Result<(), Trouble> {
        let stored = self.feed.stored();
        if self.metadata.num_values() == 0 && self.rows == 0 {
            return Ok(());
        }
        let wanted = usize::try_from(self.metadata.num_values()).map_err(|_| corrupt("its value count is negative"))?;
        let range = chunk_range(self.metadata, self.source.bytes()).map_err(corrupt)?;
        let bounds = self.bounds()?;
        let reader = ValueReader {
            physical: stored.physical,
            form: stored.form,
            treatment: self.treatment,
            bounds: [bounds.as_ref(), None],
        };
        let index = match self.statistics {
            Some(_) => PageIndex::read(self.source, self.metadata, stored)?,
            None => PageIndex::default(),
        };
        let start = self.feed.start(self.output);
        let mut fold = Fold::new(&start, rows);
        let mut dictionary: Option<Dictionary> = None;
        let mut pages = Pages::new(self.source, range, stored, self.budget);
        if let Some(at) = cursor.at {
            if cursor.has_dictionary {
                let page = pages.next()?.ok_or_else(|| corrupt("its dictionary is gone"))?;
                dictionary = self.dictionary(&page, &reader, start.base, scratch)?;
            }
            pages.go_to(at);
        }
        // A flat column's window is full with its last row; of a repeated one, when the next row begins.
        let repeated = stored.max_repetition > 0;
        while cursor.slots < wanted && (last || repeated || !fold.is_full()) {
            context.check_running()?;
            let at = pages.at();
            let Some(page) = pages.next()? else { break };
            if page.head.kind == Kind::Dictionary {
                if dictionary.is_some() || cursor.pages > 0 {
                    return Err(corrupt("it has two dictionaries, or one after its values").into());
                }
                dictionary = self.dictionary(&page, &reader, start.base, scratch)?;
                cursor.has_dictionary = true;
                continue;
            }
            let slots = page.head.values;
            if slots > wanted - cursor.slots {
                return Err(corrupt(format!("its pages hold more than the {wanted} values of its footer")).into());
            }
            let Page::Data(data) = self.decompressed(&page, scratch)? else {
                return Err(corrupt("a page is and is not a dictionary").into());
            };
            let page_bounds = index.bounds(cursor.pages).map_err(corrupt)?;
            let reader = ValueReader { bounds: narrowed(bounds.as_ref(), page_bounds), ..reader };
            let rows_before = cursor.rows + fold.begun();
            let view = PageView { page: &data, from: cursor.taken, stored, valued: self.feed.is_valued() };
            let Folded { until, present, begins_row } =
                view.fold(&reader, dictionary.as_ref(), &mut scratch.values, &mut fold)?;
            self.recycle(scratch, data);
            index.check_nulls(cursor.pages, slots, present).map_err(corrupt)?;
            if cursor.taken == 0 {
                let first_row = begins_row.then_some(rows_before);
                index.check_place(cursor.pages, page.at, page.stored_bytes(), first_row).map_err(corrupt)?;
            }
            if until < slots {
                // The window is full in the middle of this page.
                (cursor.at, cursor.taken) = (Some(at), until);
                if last {
                    return Err(corrupt("it has more rows than its row group").into());
                }
                cursor.rows += fold.done;
                return Ok(());
            }
            cursor.taken = 0;
            cursor.pages += 1;
            cursor.slots += slots;
            cursor.nulls += (slots - present) as u64;
            cursor.at = Some(pages.at());
        }
        if cursor.slots == wanted {
            fold.end();
        } else if last || !fold.is_full() {
            return Err(corrupt(format!("its pages hold {} values, its footer says {wanted}", cursor.slots)).into());
        }
        cursor.rows += fold.done;
        if !fold.is_full() {
            return Err(corrupt(format!("it has {} rows, its row group {}", cursor.rows, self.rows)).into());
        }
        if last {
            index.check_end(cursor.pages).map_err(corrupt)?;
            self.check_end(bounds.as_ref(), cursor)?;
        }
        Ok(())
    }

    /// The chunk's statistics, where they must hold.
    pub(super) fn bounds(&self) -> Result<Option<Bounds>, Failure> {
        let stored = self.feed.stored();
        let footer = self.statistics.filter(|_| stored.max_repetition == 0);
        let Some(statistics) = footer.and_then(|footer| self.metadata.statistics(footer)) else { return Ok(None) };
        let statistics = statistics.map_err(|error| corrupt(format!("its statistics cannot be read: {error}")))?;
        Bounds::new(&statistics, stored).map(Some).map_err(corrupt)
    }

    fn check_end(&self, bounds: Option<&Bounds>, cursor: &Cursor) -> Result<(), Failure> {
        match bounds.and_then(|bounds| bounds.null_count) {
            Some(claimed) if claimed != cursor.nulls => {
                Err(corrupt(format!("its statistics count {claimed} nulls, it has {}", cursor.nulls)))
            }
            _ => Ok(()),
        }
    }

    fn dictionary(
        &self,
        page: &pages::Page,
        reader: &ValueReader<'_>,
        base: [u64; 2],
        scratch: &mut Scratch,
    ) -> Result<Option<Dictionary>, Trouble> {
        if page.head.kind != Kind::Dictionary {
            return Err(corrupt("its dictionary is gone").into());
        }
        let Page::Dict(DictPage { buffer, num_values, .. }) = self.decompressed(page, scratch)? else {
            return Err(corrupt("a page is and is not a dictionary").into());
        };
        let mut read = match self.feed.is_valued() {
            true => reader.dictionary(&buffer, num_values).map_err(corrupt)?,
            false => Dictionary::default(),
        };
        if self.feed.stored().max_repetition == 0 {
            read.folded.clone_from(&read.hashes);
            mix_all(&mut read.folded, base);
        }
        if self.metadata.compression() != Compression::Uncompressed {
            keep(&mut scratch.page, buffer.into_vec());
        }
        Ok(Some(read))
    }

    /// The page as polars-parquet sees and decompresses it. Its header must say what was read here.
    fn decompressed(&self, page: &pages::Page, scratch: &mut Scratch) -> Result<Page, Trouble> {
        let compression = self.metadata.compression();
        if page.head.has_packed_levels(self.feed.stored()) {
            // parquet-rs reads these bits from the wrong end: it cannot stand in.
            let message = "its levels are in the bit-packed encoding that was given up in 2013";
            return Err(Failure::new(FailureClass::Unsupported, message).into());
        }
        let values = page.body().get(page.head.plain_bytes..).unwrap_or_default();
        if compression == Compression::Lz4 && values.starts_with(&LZ4_FRAME) {
            return Err(Trouble::StandIn("a page is an LZ4 file, as early writers made them".to_owned()));
        }
        let descriptor = self.metadata.descriptor().descriptor.clone();
        let meta = PageMetaData::new(0, i64::MAX, compression, descriptor);
        let content = std::io::Cursor::new(page.bytes.clone());
        let mut reader = PageReader::new_with_page_meta(content, meta, Vec::new(), PAGE_BYTES_MAX);
        let compressed = match reader.next() {
            Some(compressed) => compressed.map_err(refused)?,
            None => return Err(corrupt("a page is empty").into()),
        };
        let agree = match &compressed {
            CompressedPage::Data(data) => {
                page.head.kind == Kind::Data
                    && (data.num_values(), data.compressed_size(), data.uncompressed_size())
                        == (page.head.values, page.head.compressed, page.head.uncompressed)
            }
            CompressedPage::Dict(_) => page.head.kind == Kind::Dictionary,
        };
        if !agree {
            return Err(corrupt("a page header reads in two ways").into());
        }
        if compression == Compression::Uncompressed && page.head.uncompressed != page.head.compressed {
            let (compressed, full) = (page.head.compressed, page.head.uncompressed);
            return Err(corrupt(format!("a page of {compressed} uncompressed bytes claims to hold {full}")).into());
        }
        decompress(compressed, &mut scratch.page, &mut scratch.zstd).map_err(|error| {
            let members = values.windows(3).skip(1).any(|bytes| bytes == GZIP_MEMBER);
            match compression == Compression::Gzip && values.starts_with(&GZIP_MEMBER) && members {
                true => Trouble::StandIn(format!("a page of several gzip members: {error}")),
                false => refused(error),
            }
        })
    }

    /// Takes a page's buffer back. That of an uncompressed page is a part of the chunk: taking it would copy it.
    fn recycle(&self, scratch: &mut Scratch, mut page: DataPage) {
        if self.metadata.compression() != Compression::Uncompressed {
            keep(&mut scratch.page, std::mem::take(page.buffer_mut()));
        }
    }
}

/// What the values of a page are held against: the narrower of the two bounds where that is enough.
fn narrowed<'a>(chunk: Option<&'a Bounds>, page: Option<&'a Bounds>) -> [Option<&'a Bounds>; 2] {
    match (chunk, page) {
        (Some(chunk), Some(page)) if page.has_limits_of(chunk) => [Some(chunk), None],
        (Some(chunk), Some(page)) if chunk.covers(page) => [None, Some(page)],
        both => both.into(),
    }
}

fn keep(slot: &mut Vec<u8>, buffer: Vec<u8>) {
    if buffer.capacity() > slot.capacity() {
        *slot = buffer;
    }
}

/// The bytes of a chunk, inside the file.
pub(super) fn chunk_range(chunk: &ColumnChunkMetadata, file_bytes: u64) -> Result<std::ops::Range<u64>, String> {
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

/// One data page, to be folded from one of its slots on.
struct PageView<'a> {
    page: &'a DataPage,
    from: usize,
    stored: &'a Leaf,
    valued: bool,
}

/// What became of a page.
struct Folded {
    /// Slot before which the window was full, or the number of slots.
    until: usize,
    /// Slots of the page that have a value.
    present: usize,
    /// Whether its first slot begins a row.
    begins_row: bool,
}

impl PageView<'_> {
    fn fold(
        &self,
        reader: &ValueReader<'_>,
        dictionary: Option<&Dictionary>,
        values: &mut PageValues,
        fold: &mut Fold<'_>,
    ) -> Result<Folded, Failure> {
        let slots = self.page.num_values();
        let (definitions, repetitions, bytes) = self.split().map_err(corrupt)?;
        let full = u32::from(self.stored.max_definition);
        let present =
            definitions.as_ref().map_or(slots, |levels| levels.iter().filter(|level| **level == full).count());
        values.indexed = false;
        if self.valued {
            reader.page(self.page.encoding(), bytes, present, dictionary, values)?;
        }
        let (from, definitions) = (self.from, definitions.as_deref());
        let until = match (repetitions.as_deref(), self.valued, values.indexed, dictionary) {
            (None, false, ..) => {
                let bare = fold.base().map(mix);
                fold.flat(from, slots, definitions, |_| bare)
            }
            (None, true, true, Some(dictionary)) => {
                let (indices, folded) = (&values.indices[..present], &dictionary.folded[..]);
                fold.flat(from, slots, definitions, |at| folded[indices[at] as usize])
            }
            (None, true, ..) => {
                mix_all(&mut values.hashes, fold.base());
                let folded = &values.hashes[..present];
                fold.flat(from, slots, definitions, |at| folded[at])
            }
            (Some(repetitions), false, ..) => {
                fold.nested(from, slots, definitions, repetitions, |_| [0; 2]).map_err(corrupt)?
            }
            (Some(repetitions), true, true, Some(dictionary)) => {
                let (indices, hashes) = (&values.indices, &dictionary.hashes);
                let hash = |at: usize| hashes[indices[at] as usize];
                fold.nested(from, slots, definitions, repetitions, hash).map_err(corrupt)?
            }
            (Some(repetitions), true, ..) => {
                let hashes = &values.hashes;
                fold.nested(from, slots, definitions, repetitions, |at| hashes[at]).map_err(corrupt)?
            }
        };
        let begins_row = repetitions.as_ref().is_none_or(|levels| levels.first() == Some(&0));
        Ok(Folded { until, present, begins_row })
    }

    /// Definition levels (none where all are the highest), repetition levels (none where there are none), values.
    #[allow(clippy::type_complexity)]
    fn split(&self) -> Result<(Option<Vec<u32>>, Option<Vec<u32>>, &[u8]), String> {
        let slots = self.page.num_values();
        if let DataPageHeader::V2(header) = self.page.header() {
            let (repetition, definition) = (header.repetition_levels_byte_length, header.definition_levels_byte_length);
            let levels = usize::try_from(repetition).ok().zip(usize::try_from(definition).ok());
            if levels.and_then(|(r, d)| r.checked_add(d)).is_none_or(|bytes| bytes > self.page.buffer().len()) {
                return Err("its levels are longer than their page".into());
            }
        }
        let parts = split_buffer(self.page).map_err(|error| error.to_string())?;
        if (self.stored.max_repetition > 0 && self.page.repetition_level_encoding() != Encoding::Rle)
            || (self.stored.max_definition > 0 && self.page.definition_level_encoding() != Encoding::Rle)
        {
            return Err("its levels are in an encoding that levels do not have".into());
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
        let definitions = match all_full(parts.def, self.stored.max_definition, slots) {
            true => None,
            false => read_levels(parts.def, self.stored.max_definition)?,
        };
        Ok((definitions, read_levels(parts.rep, self.stored.max_repetition)?, parts.values))
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
