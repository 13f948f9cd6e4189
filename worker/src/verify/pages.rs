//! The pages of a column chunk, one after the other, in ranges that fit the attempt's memory.
//!
//! A small chunk is fetched at once; a large one in windows, and a page that does not fit a window by itself. Page
//! headers are read here first: a page that would take more memory than there is, or grow like a decompression bomb, is
//! refused before its bytes are fetched, and one that does not match its checksum before it is decoded. Where a page
//! lies follows from the headers before it; the offset index of a file is never trusted with that.

use std::ops::Range;

use baler_common::model::error::{Failure, FailureClass};
use baler_common::runtime::storage::Source;
use polars_buffer::Buffer;

use super::crc::crc32;
use super::schema::Leaf;
use super::thrift::{Broken, Structure};
use crate::context::Context;

/// Largest chunk that is fetched at once.
const WHOLE_BYTES_MAX: u64 = 64 << 20;
/// Bytes of a large chunk that are fetched at a time.
const WINDOW_BYTES: u64 = 4 << 20;
/// Largest page header; only statistics of long values make one large.
const HEADER_BYTES_MAX: u64 = 8 << 20;
/// Largest page, in bytes, compressed or not.
pub(super) const PAGE_BYTES_MAX: usize = 1 << 30;
/// Most bytes that one compressed byte may become. zstd reaches about 1 : 100,000 on constant data, so small pages are
/// let be.
const RATIO_MAX: usize = 1000;
/// Pages up to this size are never a bomb.
const RATIO_FREE_BYTES: usize = 16 << 20;
/// What one thread of the check may always use.
pub(super) const THREAD_BYTES_MIN: u64 = 32 << 20;
/// Bytes of a window's sums, at most; more would only leave the caches.
const SUMS_BYTES_MAX: u64 = 64 << 20;
const SUMS_BYTES_MIN: u64 = 64 << 10;
/// Bytes of one row's sums.
const ROW_BYTES: u64 = 16;

/// What one thread of the check may use. Half of the attempt's memory is the writer's.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Budget {
    /// Rows of a row group that are folded together.
    pub window_rows: usize,
    /// Chunks up to this size are fetched at once.
    whole_bytes: u64,
    /// What one page may take, decoded.
    page_bytes: u64,
}

impl Budget {
    /// The budget of each of `threads` threads.
    pub(super) fn new(context: &Context, threads: usize) -> Self {
        let share = context.memory_bytes / (2 * threads.max(1) as u64);
        Self {
            window_rows: ((share / 4).clamp(SUMS_BYTES_MIN, SUMS_BYTES_MAX) / ROW_BYTES) as usize,
            whole_bytes: (share / 4).min(WHOLE_BYTES_MAX),
            page_bytes: share.max(THREAD_BYTES_MIN),
        }
    }
}

/// What a page is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Dictionary,
    Data,
}

/// A page's header, as it is read here.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Head {
    pub kind: Kind,
    pub compressed: usize,
    pub uncompressed: usize,
    /// Slots of a data page, values of a dictionary.
    pub values: usize,
    encoding: i64,
    /// Whether definition levels, and repetition levels, are in the bit-packed encoding.
    packed: [bool; 2],
    /// Bytes at its beginning that are not compressed.
    pub plain_bytes: usize,
    crc: Option<u32>,
}

/// What a header announces.
enum Header {
    Page(Head),
    Index { stored_bytes: u64 },
}

/// One page with its header.
#[derive(Debug)]
pub(super) struct Page {
    /// Where its header begins in the file.
    pub at: u64,
    pub head: Head,
    header_bytes: usize,
    /// Header and body.
    pub bytes: Buffer<u8>,
}

impl Page {
    /// The page as it is stored, without its header.
    pub(super) fn body(&self) -> &[u8] {
        &self.bytes[self.header_bytes..]
    }

    /// What it takes in the file.
    pub(super) fn stored_bytes(&self) -> u64 {
        self.bytes.len() as u64
    }
}

/// A walk over the pages of a chunk.
pub(super) struct Pages<'a> {
    source: &'a Source,
    /// Bytes of the chunk.
    range: Range<u64>,
    /// Where the next header begins.
    at: u64,
    window_at: u64,
    window: Buffer<u8>,
    leaf: &'a Leaf,
    budget: Budget,
}

impl<'a> Pages<'a> {
    pub(super) fn new(source: &'a Source, range: Range<u64>, leaf: &'a Leaf, budget: Budget) -> Self {
        Self { source, at: range.start, window_at: range.start, range, window: Buffer::new(), leaf, budget }
    }

    /// Where the next page begins.
    pub(super) fn at(&self) -> u64 {
        self.at
    }

    /// Goes to the page that begins at `at`, which [`Pages::at`] said earlier.
    pub(super) fn go_to(&mut self, at: u64) {
        self.at = at;
    }

    /// The next page, or nothing at the end of the chunk. Index pages are passed over.
    pub(super) fn next(&mut self) -> Result<Option<Page>, Failure> {
        loop {
            if self.at >= self.range.end {
                return Ok(None);
            }
            if let Some(page) = self.read()? {
                return Ok(Some(page));
            }
        }
    }

    fn read(&mut self) -> Result<Option<Page>, Failure> {
        let corrupt = |message: String| Failure::new(FailureClass::InputCorrupt, message);
        let mut wanted = WINDOW_BYTES.min(self.range.end - self.at);
        let (head, header_bytes) = loop {
            let at = self.at;
            let left = self.range.end - at;
            let held = self.hold(1)?;
            match Structure::read(held) {
                Ok((header, length)) => break (Head::read(&header), length),
                Err(Broken::Cut) if (held.len() as u64) < left.min(HEADER_BYTES_MAX) => {
                    wanted = wanted.max(held.len() as u64 * 2).min(left);
                    self.hold(wanted)?;
                }
                Err(_) => return Err(corrupt(format!("the page header at byte {at} cannot be read"))),
            }
        };
        let at = self.at;
        let head = match head.map_err(|message| corrupt(format!("the page at byte {at}: {message}")))? {
            Header::Page(head) => head,
            // Nobody writes them, and they hold no rows.
            Header::Index { stored_bytes } => {
                self.at = at.saturating_add(header_bytes as u64 + stored_bytes);
                return Ok(None);
            }
        };
        let bytes = header_bytes as u64 + head.compressed as u64;
        if bytes > self.range.end - at {
            return Err(corrupt(format!("the page at byte {at} is longer than its column chunk")));
        }
        self.check_size(&head).map_err(|failure| {
            let message = format!("the page at byte {at}: {}", failure.message);
            Failure::new(failure.class, message)
        })?;
        self.hold(bytes)?;
        let from = (at - self.window_at) as usize;
        let page = Page { at, head, header_bytes, bytes: self.window.clone().sliced(from..from + bytes as usize) };
        self.at += bytes;
        if let Some(expected) = page.head.crc {
            let found = crc32(page.body());
            if found != expected {
                let message =
                    format!("the page at byte {at} has the checksum {found:08x}, its header says {expected:08x}");
                return Err(corrupt(message));
            }
        }
        Ok(Some(page))
    }

    /// What is held from the next page on: `bytes` at least.
    fn hold(&mut self, bytes: u64) -> Result<&[u8], Failure> {
        let end = self.window_at + self.window.len() as u64;
        if self.at < self.window_at || self.at + bytes > end {
            let whole = self.range.end - self.range.start <= self.budget.whole_bytes;
            let from = if whole { self.range.start } else { self.at };
            let wanted = if whole { self.range.end - from } else { bytes.max(WINDOW_BYTES).min(self.range.end - from) };
            self.window = Buffer::new();
            self.window = Buffer::from_owner(self.source.read(from..from + wanted)?);
            self.window_at = from;
        }
        Ok(&self.window[(self.at - self.window_at) as usize..])
    }

    fn check_size(&self, head: &Head) -> Result<(), Failure> {
        let (compressed, full) = (head.compressed, head.uncompressed);
        if full > PAGE_BYTES_MAX
            || compressed > PAGE_BYTES_MAX
            || (full > RATIO_FREE_BYTES && full / RATIO_MAX > compressed)
        {
            let message = format!("{compressed} bytes claim to hold {full}: refused as a decompression bomb");
            return Err(Failure::new(FailureClass::InputCorrupt, message));
        }
        let needed = head.memory_bytes(self.leaf);
        if needed > self.budget.page_bytes {
            let message = format!(
                "its {} values take {needed} bytes to check, more than the {} that one thread of the attempt may use: \
                 give the attempt more memory",
                head.values, self.budget.page_bytes
            );
            return Err(Failure::new(FailureClass::Policy, message));
        }
        Ok(())
    }
}

impl Head {
    fn read(header: &Structure<'_>) -> Result<Header, String> {
        let size = |value: Option<i64>, what: &str| {
            let size = value.and_then(|value| usize::try_from(value).ok()).filter(|size| *size <= i32::MAX as usize);
            size.ok_or_else(|| format!("its header has no possible {what}"))
        };
        const PACKED: Option<i64> = Some(4);
        let (kind, details, fields) = match header.int(1) {
            Some(0) => (Kind::Data, header.structure(5), [2, 3, 4]),
            Some(1) => return Ok(Header::Index { stored_bytes: size(header.int(3), "compressed size")? as u64 }),
            Some(2) => (Kind::Dictionary, header.structure(7), [2, 0, 0]),
            Some(3) => (Kind::Data, header.structure(8), [4, 0, 0]),
            other => return Err(format!("its header says it is of kind {other:?}")),
        };
        let details = details.ok_or("its header lacks what its kind needs")?;
        let plain_bytes = match header.int(1) {
            Some(3) => size(details.int(5), "level size")?.saturating_add(size(details.int(6), "level size")?),
            _ => 0,
        };
        Ok(Header::Page(Self {
            kind,
            uncompressed: size(header.int(2), "size")?,
            compressed: size(header.int(3), "compressed size")?,
            crc: header.int(4).map(|crc| crc as u32),
            values: size(details.int(1), "number of values")?,
            encoding: details.int(fields[0]).unwrap_or(-1),
            packed: [details.int(fields[1]) == PACKED, details.int(fields[2]) == PACKED],
            plain_bytes,
        }))
    }

    /// Whether levels that the leaf has are in the bit-packed encoding.
    pub(super) fn has_packed_levels(&self, leaf: &Leaf) -> bool {
        let [definitions, repetitions] = self.packed;
        (definitions && leaf.max_definition > 0) || (repetitions && leaf.max_repetition > 0)
    }

    /// What decoding it takes: its bytes twice, its levels, and its values as places in a dictionary or as hashes.
    fn memory_bytes(&self, leaf: &Leaf) -> u64 {
        const PLAIN: i64 = 0;
        const DICTIONARIES: [i64; 2] = [2, 8];
        let values = self.values as u64;
        let held = match self.kind {
            // Hashes, twice, and where each value lies.
            Kind::Dictionary => 40 * values,
            Kind::Data if DICTIONARIES.contains(&self.encoding) => 4 * values,
            // A plain value takes a bit at least.
            Kind::Data if self.encoding == PLAIN => 16 * values.min(8 * self.uncompressed as u64),
            Kind::Data => 24 * values,
        };
        let levels = 4 * (u64::from(leaf.max_definition > 0) + u64::from(leaf.max_repetition > 0));
        let levels = if self.kind == Kind::Data { levels * values } else { 0 };
        self.compressed as u64 + self.uncompressed as u64 + held + levels
    }
}
