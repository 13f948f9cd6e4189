//! One leaf column of one row group on its way from many inputs into its chunk.
//!
//! Levels and values are gathered until a page is full, by content or by size, and are then handed to the column writer
//! in one piece: its page limit in rows is so low that each piece becomes one page.

use baler_common::model::error::{Failure, FailureClass};
use baler_common::model::options::WriteOptions;
use parquet::column::reader::ColumnReaderImpl;
use parquet::column::writer::ColumnWriterImpl;
use parquet::data_type::{AsBytes, DataType};

use super::chunker::Chunker;
use super::feed::Feed;
use crate::context::Context;

/// Rows that are decoded at a time.
const BATCH_ROWS: usize = 8192;

/// Levels and values of one leaf that are not in a page yet.
pub struct Lane<T: DataType> {
    chunker: Option<Chunker>,
    page_bytes: usize,
    max_definition: i16,
    max_repetition: i16,
    definitions: Vec<i16>,
    repetitions: Vec<i16>,
    values: Vec<T::T>,
    /// Slots and values that the chunker has seen.
    seen_slots: usize,
    seen_values: usize,
    /// Bytes of the gathered values, where pages are cut by size.
    bytes: usize,
}

impl<T: DataType> Lane<T> {
    pub fn new(options: &WriteOptions, max_definition: i16, max_repetition: i16) -> Self {
        Self {
            chunker: options.chunking.map(Chunker::new),
            page_bytes: usize::try_from(options.page_bytes).unwrap_or(usize::MAX),
            max_definition,
            max_repetition,
            definitions: Vec::new(),
            repetitions: Vec::new(),
            values: Vec::new(),
            seen_slots: 0,
            seen_values: 0,
            bytes: 0,
        }
    }

    /// Takes the rows of `runs` (rows to skip, then rows to take) from a column chunk.
    pub fn copy(
        &mut self,
        reader: &mut ColumnReaderImpl<T>,
        writer: &mut ColumnWriterImpl<'_, T>,
        feed: &Feed,
        runs: &[(usize, usize)],
        context: &Context,
    ) -> Result<(), Failure> {
        each_batch(reader, runs, context, |definitions, repetitions, values, slots| {
            self.gather(feed, definitions, repetitions, values, slots);
            self.cut_pages(writer)
        })
    }

    /// Takes rows of which only the levels count, from a column of any type.
    pub fn copy_levels<U: DataType>(
        &mut self,
        reader: &mut ColumnReaderImpl<U>,
        writer: &mut ColumnWriterImpl<'_, T>,
        feed: &Feed,
        runs: &[(usize, usize)],
        context: &Context,
    ) -> Result<(), Failure> {
        let mut none = Vec::new();
        each_batch(reader, runs, context, |definitions, repetitions, _, slots| {
            self.gather(feed, definitions, repetitions, &mut none, slots);
            self.cut_pages(writer)
        })
    }

    /// Takes `rows` rows in which the column is null at the top.
    pub fn absent(&mut self, writer: &mut ColumnWriterImpl<'_, T>, rows: usize) -> Result<(), Failure> {
        let mut left = rows;
        while left > 0 {
            let taken = left.min(BATCH_ROWS);
            self.definitions.resize(self.definitions.len() + taken, 0);
            if self.max_repetition > 0 {
                self.repetitions.resize(self.repetitions.len() + taken, 0);
            }
            self.cut_pages(writer)?;
            left -= taken;
        }
        Ok(())
    }

    /// Hands over what is left.
    pub fn finish(&mut self, writer: &mut ColumnWriterImpl<'_, T>) -> Result<(), Failure> {
        let (slots, values) = (self.slots(), self.values.len());
        self.page(writer, slots, values)
    }

    fn slots(&self) -> usize {
        if self.max_definition > 0 { self.definitions.len() } else { self.values.len() }
    }

    fn gather(&mut self, feed: &Feed, definitions: &[i16], repetitions: &[i16], values: &mut Vec<T::T>, slots: usize) {
        let kept = |at: usize| repetitions.get(at).copied().unwrap_or(0) <= feed.repetition_max;
        if self.max_definition > 0 {
            let told = |level: i16| feed.definitions.get(level as usize).copied().unwrap_or(0);
            match definitions.is_empty() {
                true => self.definitions.resize(self.definitions.len() + slots, told(0)),
                false => self.definitions.extend((0..slots).filter(|at| kept(*at)).map(|at| told(definitions[at]))),
            }
        }
        if self.max_repetition > 0 {
            match repetitions.is_empty() {
                true => self.repetitions.resize(self.repetitions.len() + slots, 0),
                false => self.repetitions.extend((0..slots).filter(|at| kept(*at)).map(|at| repetitions[at])),
            }
        }
        if feed.valued {
            self.values.append(values);
        }
    }

    /// Hands over every page that is complete.
    fn cut_pages(&mut self, writer: &mut ColumnWriterImpl<'_, T>) -> Result<(), Failure> {
        let mut cuts: Vec<(usize, usize)> = Vec::new();
        let slots = self.slots();
        let (mut slot, mut value) = (self.seen_slots, self.seen_values);
        while slot < slots {
            let definition = self.definitions.get(slot).copied().unwrap_or(0);
            let repetition = self.repetitions.get(slot).copied().unwrap_or(0);
            let held = (definition == self.max_definition).then(|| self.values[value].as_bytes());
            match &mut self.chunker {
                Some(chunker) => {
                    if repetition == 0 && chunker.cuts_here() {
                        cuts.push((slot, value));
                    }
                    chunker.slot(definition, repetition, held);
                }
                None => {
                    if repetition == 0 && self.bytes >= self.page_bytes {
                        cuts.push((slot, value));
                        self.bytes = 0;
                    }
                    self.bytes += 1 + held.map_or(0, <[u8]>::len);
                }
            }
            value += usize::from(held.is_some());
            slot += 1;
        }
        (self.seen_slots, self.seen_values) = (slot, value);
        let (mut gone_slots, mut gone_values) = (0, 0);
        for (slot, value) in cuts {
            self.page(writer, slot - gone_slots, value - gone_values)?;
            (gone_slots, gone_values) = (slot, value);
        }
        Ok(())
    }

    /// Hands the first `slots` slots and `values` values over as one page.
    fn page(&mut self, writer: &mut ColumnWriterImpl<'_, T>, slots: usize, values: usize) -> Result<(), Failure> {
        if slots == 0 {
            return Ok(());
        }
        let definitions = (self.max_definition > 0).then(|| &self.definitions[..slots]);
        let repetitions = (self.max_repetition > 0).then(|| &self.repetitions[..slots]);
        writer.write_batch(&self.values[..values], definitions, repetitions).map_err(failed)?;
        if self.max_definition > 0 {
            self.definitions.drain(..slots);
        }
        if self.max_repetition > 0 {
            self.repetitions.drain(..slots);
        }
        self.values.drain(..values);
        self.seen_slots = self.seen_slots.saturating_sub(slots);
        self.seen_values = self.seen_values.saturating_sub(values);
        Ok(())
    }
}

/// Reads the rows of `runs` in batches: `take(definitions, repetitions, values, slots)`.
fn each_batch<T: DataType>(
    reader: &mut ColumnReaderImpl<T>,
    runs: &[(usize, usize)],
    context: &Context,
    mut take: impl FnMut(&[i16], &[i16], &mut Vec<T::T>, usize) -> Result<(), Failure>,
) -> Result<(), Failure> {
    let short = || Failure::new(FailureClass::InputCorrupt, "the column has fewer rows than its footer says");
    let (mut definitions, mut repetitions, mut values) = (Vec::new(), Vec::new(), Vec::new());
    for (skip, rows) in runs {
        let mut skip = *skip;
        while skip > 0 {
            match reader.skip_records(skip).map_err(corrupt)? {
                0 => return Err(short()),
                skipped => skip -= skipped,
            }
        }
        let mut left = *rows;
        while left > 0 {
            context.check_running()?;
            definitions.clear();
            repetitions.clear();
            values.clear();
            let (records, valued, slots) = reader
                .read_records(left.min(BATCH_ROWS), Some(&mut definitions), Some(&mut repetitions), &mut values)
                .map_err(corrupt)?;
            if records == 0 {
                return Err(short());
            }
            take(&definitions, &repetitions, &mut values, slots.max(valued))?;
            left -= records;
        }
    }
    Ok(())
}

/// What the reading library says of an input.
pub fn corrupt(error: parquet::errors::ParquetError) -> Failure {
    Failure::new(FailureClass::InputCorrupt, error.to_string())
}

/// What the writing library says of the output.
pub fn failed(error: parquet::errors::ParquetError) -> Failure {
    Failure::new(FailureClass::Transient, format!("write the output: {error}"))
}
