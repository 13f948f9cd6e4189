//! Levels and values of small pages on their way into pages of a useful size.

use baler_common::model::options::WriteOptions;
use bytes::Bytes;
use parquet::basic::Encoding;
use parquet::column::page::Page;
use parquet::schema::types::ColumnDescPtr;

use super::chunk::{Carried, Chunk, Facts};
use super::codec;
use super::dictionary::{Dictionary, Entries, each_plain, put_plain};
use super::hybrid;
use super::order::{Bounds, Kind, Order};
use crate::write::chunker::Chunker;

/// Values of one input page, one for each slot that has one.
pub enum Values<'a> {
    /// Numbers in the merged dictionary.
    Numbers(&'a [u32]),
    /// Indices into an input's dictionary that did not fit into the merged one.
    Entries(&'a [u32], &'a Entries),
    Plain(&'a [&'a [u8]]),
}

/// Gathers slots until a page is full, and writes it.
pub struct Gather {
    kind: Kind,
    level: i32,
    max_repetition: i16,
    max_definition: i16,
    chunker: Option<Chunker>,
    page_bytes: usize,
    /// Bytes gathered, where pages are cut by size.
    bytes: usize,
    output: Chunk,
    dictionary: Dictionary,
    repetitions: Vec<u32>,
    definitions: Vec<u32>,
    slots: usize,
    held: Held,
    /// For each dictionary number, the page that it was last seen in.
    seen: Vec<u32>,
    page: u32,
}

/// The values that are not in a page yet.
enum Held {
    Numbers(Vec<u32>),
    Plain { content: Vec<u8>, values: usize },
}

impl Held {
    fn len(&self) -> usize {
        match self {
            Self::Numbers(numbers) => numbers.len(),
            Self::Plain { values, .. } => *values,
        }
    }
}

impl Gather {
    pub fn new(column: &ColumnDescPtr, kind: Kind, options: &WriteOptions, level: i32, output: Chunk) -> Self {
        let bytes = |bytes: u64| usize::try_from(bytes).unwrap_or(usize::MAX);
        Self {
            kind,
            level,
            max_repetition: column.max_rep_level(),
            max_definition: column.max_def_level(),
            chunker: options.chunking.map(Chunker::new),
            page_bytes: bytes(options.page_bytes),
            bytes: 0,
            output,
            dictionary: Dictionary::new(kind.width, bytes(options.dictionary_bytes)),
            repetitions: Vec::new(),
            definitions: Vec::new(),
            slots: 0,
            held: Held::Numbers(Vec::new()),
            seen: Vec::new(),
            page: 0,
        }
    }

    /// Takes an input's dictionary into the merged one; `None` when it does not fit.
    pub fn merge(&mut self, entries: &Entries) -> Option<Vec<u32>> {
        self.dictionary.merge(entries)
    }

    /// Takes the slots of one input page.
    pub fn take(&mut self, slots: usize, repetitions: &[u32], definitions: &[u32], values: Values<'_>) -> Option<()> {
        let mut next = 0;
        for slot in 0..slots {
            let repetition = repetitions.get(slot).copied().unwrap_or(0);
            if repetition == 0 {
                let cuts = match &mut self.chunker {
                    Some(chunker) => chunker.cuts_here(),
                    None => self.bytes >= self.page_bytes,
                };
                if cuts {
                    self.flush()?;
                }
            }
            let definition = definitions.get(slot).copied().unwrap_or(0);
            let valued = definition == self.max_definition as u32;
            if valued {
                // A page is of one encoding; it changes between rows, or not at all.
                let fits = matches!(
                    (&self.held, &values),
                    (Held::Numbers(_), Values::Numbers(_))
                        | (Held::Plain { .. }, Values::Entries(..) | Values::Plain(_))
                );
                if !fits {
                    if self.held.len() > 0 && repetition == 0 {
                        self.flush()?;
                    }
                    self.turn(&values)?;
                }
            }
            if self.max_repetition > 0 {
                self.repetitions.push(repetition);
            }
            if self.max_definition > 0 {
                self.definitions.push(definition);
            }
            self.slots += 1;
            if !valued {
                self.pass(definition as i16, repetition as i16, None);
                continue;
            }
            match (&mut self.held, &values) {
                (Held::Numbers(held), Values::Numbers(numbers)) => {
                    let number = *numbers.get(next)?;
                    held.push(number);
                    let trace = self.dictionary.trace(number);
                    match &mut self.chunker {
                        Some(chunker) => chunker.traced_slot(definition as i16, repetition as i16, trace),
                        None => self.bytes += 1 + trace.length as usize,
                    }
                }
                (Held::Plain { content, values: count }, Values::Entries(..) | Values::Plain(_)) => {
                    let value = match &values {
                        Values::Entries(indices, entries) => entries.get(*indices.get(next)?),
                        Values::Plain(plain) => plain.get(next)?,
                        Values::Numbers(_) => return None,
                    };
                    put_plain(value, self.kind.width, content);
                    *count += 1;
                    self.pass(definition as i16, repetition as i16, Some(value));
                }
                _ => return None,
            }
            next += 1;
        }
        Some(())
    }

    fn pass(&mut self, definition: i16, repetition: i16, value: Option<&[u8]>) {
        match &mut self.chunker {
            Some(chunker) => chunker.slot(definition, repetition, value),
            None => self.bytes += 1 + value.map_or(0, <[u8]>::len),
        }
    }

    /// Makes what is held ready for these values. A row that began as numbers goes on as plain values.
    fn turn(&mut self, values: &Values<'_>) -> Option<()> {
        match (&self.held, values) {
            (Held::Numbers(numbers), Values::Entries(..) | Values::Plain(_)) => {
                let mut content = Vec::new();
                numbers
                    .iter()
                    .for_each(|number| put_plain(self.dictionary.get(*number), self.kind.width, &mut content));
                self.held = Held::Plain { content, values: numbers.len() };
            }
            (Held::Plain { values: 0, .. }, Values::Numbers(_)) => self.held = Held::Numbers(Vec::new()),
            // In the middle of a row of plain values: does not come about, since a chunk's dictionary pages come first.
            _ => return None,
        }
        Some(())
    }

    /// Writes what is held as one page.
    fn flush(&mut self) -> Option<()> {
        if self.slots == 0 {
            return Some(());
        }
        self.page += 1;
        self.bytes = 0;
        let mut facts = Facts {
            rows: match self.max_repetition {
                0 => self.slots as u64,
                _ => self.repetitions.iter().filter(|level| **level == 0).count() as u64,
            },
            slots: self.slots as u64,
            values: self.held.len() as u64,
            repetitions: counted(self.max_repetition, &self.repetitions),
            definitions: counted(self.max_definition, &self.definitions),
            ..Facts::default()
        };
        let mut body = Vec::new();
        for (max, levels) in [(self.max_repetition, &self.repetitions), (self.max_definition, &self.definitions)] {
            if max > 0 {
                let at = body.len();
                body.extend_from_slice(&[0; 4]);
                hybrid::write(levels, hybrid::width(max as u32), &mut body);
                let length = (body.len() - at - 4) as u32;
                body[at..at + 4].copy_from_slice(&length.to_le_bytes());
            }
        }
        let order = self.kind.order;
        let mut bounds = Bounds::default();
        let encoding = match &mut self.held {
            // A page without values needs no dictionary, and there may be none.
            held if held.len() == 0 => Encoding::PLAIN,
            Held::Numbers(numbers) => {
                self.seen.resize(self.dictionary.len(), 0);
                let (mut max, mut bytes) = (0, 0);
                for number in numbers.iter() {
                    max = max.max(*number);
                    bytes += u64::from(self.dictionary.trace(*number).length);
                    let seen = &mut self.seen[*number as usize];
                    if *seen != self.page {
                        *seen = self.page;
                        bounds.take(order, self.dictionary.get(*number), 1);
                    } else if order.is_float() && order.is_nan(self.dictionary.get(*number)) {
                        bounds.nans += 1;
                    }
                }
                facts.value_bytes = bytes;
                let width = hybrid::width(max);
                body.push(width as u8);
                hybrid::write(numbers, width, &mut body);
                Encoding::RLE_DICTIONARY
            }
            Held::Plain { content, values } => {
                let mut bytes = 0;
                each_plain(content, self.kind.width, *values, |value, _| {
                    bytes += value.len() as u64;
                    if order != Order::None {
                        bounds.take(order, value, 1);
                    }
                })?;
                facts.value_bytes = bytes;
                body.extend_from_slice(content);
                Encoding::PLAIN
            }
        };
        facts.nans = bounds.nans;
        facts.bounds = bounds.bounds.map(|(least, most)| (least.to_vec(), most.to_vec()));
        let page = Page::DataPage {
            buf: codec::compress(&body, self.level)?.into(),
            num_values: u32::try_from(self.slots).ok()?,
            encoding,
            def_level_encoding: Encoding::RLE,
            rep_level_encoding: Encoding::RLE,
            statistics: None,
        };
        self.output.page(page, body.len(), facts)?;
        self.repetitions.clear();
        self.definitions.clear();
        self.slots = 0;
        match &mut self.held {
            Held::Numbers(numbers) => numbers.clear(),
            Held::Plain { content, values } => {
                content.clear();
                *values = 0;
            }
        }
        Some(())
    }

    /// Writes a page of an input as it is.
    pub fn kept(&mut self, page: Page, uncompressed: usize, facts: Facts) -> Option<()> {
        self.flush()?;
        if let Some(chunker) = &mut self.chunker {
            chunker.restart();
        }
        self.output.page(page, uncompressed, facts)
    }

    /// Writes what is left and the dictionary.
    pub fn finish(mut self) -> Option<Carried> {
        self.flush()?;
        let mut dictionary = None;
        if self.dictionary.len() > 0 && self.output.has_numbers() {
            let content = self.dictionary.content();
            let page = Page::DictionaryPage {
                buf: Bytes::from(codec::compress(content, self.level)?),
                num_values: u32::try_from(self.dictionary.len()).ok()?,
                encoding: Encoding::PLAIN,
                is_sorted: false,
            };
            dictionary = Some((page, content.len()));
        }
        self.output.finish(dictionary)
    }
}

/// Slots of each level from 0 to `max`; empty for a column without such levels.
pub fn counted(max: i16, levels: &[u32]) -> Vec<i64> {
    if max == 0 {
        return Vec::new();
    }
    let mut counts = vec![0; max as usize + 1];
    levels.iter().for_each(|level| counts[*level as usize] += 1);
    counts
}
