//! The page index of a column chunk, held against its pages.
//!
//! Readers leave pages out by the bounds of the column index, search it by the order that it claims, and go to a page by
//! the offset index, so each of them must hold as the chunk's statistics must: every value lies inside its page's bounds,
//! a page of nulls has no value, the nulls are counted rightly, the claimed order is there, and every page lies where the
//! offset index says and begins with the row that it says.
//!
//! Bounds and nulls of repeated columns are not looked at, as in the chunk's statistics; their pages' places are.

use std::ops::Range;

use baler_common::model::error::{Failure, FailureClass};
use baler_common::runtime::storage::Source;
use polars_parquet::parquet::metadata::ColumnChunkMetadata;

use super::bounds::Bounds;
use super::schema::Leaf;
use super::thrift::Structure;

/// Largest index of a chunk that is read; one of 100,000 pages takes a few MiB.
const INDEX_BYTES_MAX: u64 = 16 << 20;

/// What a file says of a chunk's pages, as far as it says anything.
#[derive(Debug, Default)]
pub(super) struct PageIndex {
    columns: Option<Vec<Entry>>,
    places: Option<Vec<Place>>,
}

/// A page in the column index.
#[derive(Debug)]
struct Entry {
    /// Nothing for a page of nulls.
    bounds: Option<Bounds>,
    nulls: Option<u64>,
}

/// A page in the offset index.
#[derive(Debug, PartialEq, Eq)]
struct Place {
    at: u64,
    stored_bytes: u64,
    first_row: u64,
}

impl PageIndex {
    /// Reads the index of `chunk`, if the file has one.
    pub(super) fn read(source: &Source, chunk: &ColumnChunkMetadata, leaf: &Leaf) -> Result<Self, Failure> {
        let corrupt = |message: String| Failure::new(FailureClass::InputCorrupt, message);
        let mut found = Self::default();
        let columns = range(chunk.column_index_offset(), chunk.column_index_length(), source.bytes());
        if let Some(range) = columns.map_err(corrupt)?.filter(|_| leaf.max_repetition == 0) {
            found.columns = Some(column_index(&source.read(range)?, leaf).map_err(corrupt)?);
        }
        let places = range(chunk.offset_index_offset(), chunk.offset_index_length(), source.bytes());
        if let Some(range) = places.map_err(corrupt)? {
            found.places = Some(offset_index(&source.read(range)?).map_err(corrupt)?);
        }
        Ok(found)
    }

    /// The bounds of data page `page`.
    pub(super) fn bounds(&self, page: usize) -> Result<Option<&Bounds>, String> {
        let Some(columns) = &self.columns else { return Ok(None) };
        columns.get(page).map(|entry| entry.bounds.as_ref()).ok_or_else(|| too_few(columns.len()))
    }

    /// Holds the nulls of data page `page` against the index.
    pub(super) fn check_nulls(&self, page: usize, slots: usize, present: usize) -> Result<(), String> {
        let Some(columns) = &self.columns else { return Ok(()) };
        let Entry { bounds, nulls } = columns.get(page).ok_or_else(|| too_few(columns.len()))?;
        if bounds.is_none() && present > 0 {
            return Err(format!("its page index says that page {page} is all nulls, it has {present} values"));
        }
        match nulls {
            Some(claimed) if *claimed != (slots - present) as u64 => {
                Err(format!("its page index counts {claimed} nulls in page {page}, it has {}", slots - present))
            }
            _ => Ok(()),
        }
    }

    /// Holds the place of data page `page` against the index, and its first row if it begins with a row.
    pub(super) fn check_place(
        &self,
        page: usize,
        at: u64,
        stored_bytes: u64,
        first_row: Option<usize>,
    ) -> Result<(), String> {
        let Some(places) = &self.places else { return Ok(()) };
        let claimed = places.get(page).ok_or_else(|| too_few(places.len()))?;
        let first_row = first_row.map_or(claimed.first_row, |row| row as u64);
        if *claimed == (Place { at, stored_bytes, first_row }) {
            return Ok(());
        }
        let Place { at: claimed_at, stored_bytes: claimed_bytes, first_row: claimed_row } = claimed;
        Err(format!(
            "its page index says that page {page} lies at byte {claimed_at} with {claimed_bytes} bytes from row \
             {claimed_row} on, it lies at byte {at} with {stored_bytes} bytes from row {first_row} on"
        ))
    }

    /// The chunk has `pages` data pages: the index must have as many.
    pub(super) fn check_end(&self, pages: usize) -> Result<(), String> {
        let counts = [self.columns.as_ref().map(Vec::len), self.places.as_ref().map(Vec::len)];
        match counts.into_iter().flatten().find(|count| *count != pages) {
            Some(count) => Err(format!("its page index lists {count} pages, it has {pages}")),
            None => Ok(()),
        }
    }
}

fn too_few(listed: usize) -> String {
    format!("its page index lists {listed} pages, it has more")
}

fn range(offset: Option<i64>, length: Option<i32>, file_bytes: u64) -> Result<Option<Range<u64>>, String> {
    let (Some(offset), Some(length)) = (offset, length) else { return Ok(None) };
    let range = u64::try_from(offset).ok().zip(u64::try_from(length).ok());
    match range.and_then(|(start, length)| Some(start..start.checked_add(length)?)) {
        Some(range) if range.end <= file_bytes && range.end - range.start <= INDEX_BYTES_MAX => Ok(Some(range)),
        _ => Err(format!("its page index of {length} bytes at byte {offset} cannot be read")),
    }
}

fn column_index(content: &[u8], leaf: &Leaf) -> Result<Vec<Entry>, String> {
    const UNREADABLE: &str = "its column index cannot be read";
    let (index, _) = Structure::read(content).map_err(|_| UNREADABLE)?;
    let all_null = index.bools(1).ok_or(UNREADABLE)?;
    let (minima, maxima) = index.byte_strings(2).zip(index.byte_strings(3)).ok_or(UNREADABLE)?;
    let nulls = index.ints(5);
    let count = all_null.len();
    if minima.len() != count || maxima.len() != count || nulls.as_ref().is_some_and(|nulls| nulls.len() != count) {
        return Err("its column index has lists of different lengths".into());
    }
    let mut entries = Vec::with_capacity(count);
    for page in 0..count {
        let nulls = match &nulls {
            Some(nulls) => Some(u64::try_from(nulls[page]).map_err(|_| "its column index has a negative count")?),
            None => None,
        };
        let bounds = match all_null[page] {
            true => None,
            false => Some(Bounds::of_page(leaf, minima[page], maxima[page], nulls)?),
        };
        entries.push(Entry { bounds, nulls });
    }
    let known: Vec<&Bounds> = entries.iter().filter_map(|entry| entry.bounds.as_ref()).collect();
    let ordered = match index.int(4) {
        Some(1) => known.windows(2).all(|pair| pair[0].may_precede(pair[1])),
        Some(2) => known.windows(2).all(|pair| pair[1].may_precede(pair[0])),
        _ => true,
    };
    if !ordered {
        return Err("its page index claims an order that its pages do not have".into());
    }
    Ok(entries)
}

fn offset_index(content: &[u8]) -> Result<Vec<Place>, String> {
    const UNREADABLE: &str = "its offset index cannot be read";
    let (index, _) = Structure::read(content).map_err(|_| UNREADABLE)?;
    let number = |place: &Structure<'_>, field| u64::try_from(place.int(field)?).ok();
    let place = |place: &&Structure<'_>| {
        Some(Place { at: number(place, 1)?, stored_bytes: number(place, 2)?, first_row: number(place, 3)? })
    };
    let places = index.structures(1).ok_or(UNREADABLE)?;
    places.iter().map(place).collect::<Option<Vec<_>>>().ok_or_else(|| UNREADABLE.into())
}
