//! The dictionary of an output chunk, merged from those of the input chunks.

use hashbrown::HashTable;
use xxhash_rust::xxh3::xxh3_64;

use crate::write::chunker::{Chunker, Trace};

/// A dictionary as an input holds it: its plain-encoded values and where each lies.
#[derive(Debug, Default)]
pub struct Entries {
    content: Vec<u8>,
    places: Vec<(u32, u32)>,
}

impl Entries {
    /// Takes a dictionary page's content apart. `None` when it is not `count` values.
    pub fn parse(content: Vec<u8>, width: Option<usize>, count: usize) -> Option<Self> {
        let mut places = Vec::with_capacity(count.min(content.len()));
        let rest = each_plain(&content, width, count, |value, start| {
            places.push((start as u32, value.len() as u32));
        })?;
        // Offsets are kept in four bytes.
        (rest == content.len() && u32::try_from(content.len()).is_ok()).then_some(Self { content, places })
    }

    pub fn len(&self) -> usize {
        self.places.len()
    }

    pub fn get(&self, entry: u32) -> &[u8] {
        let (start, length) = self.places[entry as usize];
        &self.content[start as usize..(start + length) as usize]
    }

    fn iter(&self) -> impl Iterator<Item = &[u8]> {
        (0..self.places.len() as u32).map(|entry| self.get(entry))
    }
}

/// Calls `take(value, its place)` for `count` plain-encoded values; gives where they end, `None` when bytes are missing.
pub fn each_plain<'a>(
    content: &'a [u8],
    width: Option<usize>,
    count: usize,
    mut take: impl FnMut(&'a [u8], usize),
) -> Option<usize> {
    let mut at = 0usize;
    for _ in 0..count {
        let (start, length) = match width {
            Some(width) => (at, width),
            None => {
                let length = content.get(at..at + 4)?;
                (at + 4, u32::from_le_bytes(length.try_into().expect("four bytes were taken")) as usize)
            }
        };
        let end = start.checked_add(length)?;
        take(content.get(start..end)?, start);
        at = end;
    }
    Some(at)
}

/// Appends a value as PLAIN encodes it.
pub fn put_plain(value: &[u8], width: Option<usize>, into: &mut Vec<u8>) {
    if width.is_none() {
        into.extend_from_slice(&(value.len() as u32).to_le_bytes());
    }
    into.extend_from_slice(value);
}

/// The growing dictionary of one output chunk.
#[derive(Debug)]
pub struct Dictionary {
    width: Option<usize>,
    bytes_max: usize,
    /// Plain-encoded: the dictionary page.
    content: Vec<u8>,
    places: Vec<(u32, u32)>,
    traces: Vec<Trace>,
    table: HashTable<u32>,
    /// Whether a dictionary did not fit.
    is_full: bool,
}

/// Values of a dictionary that are looked up before it is merged into a full one.
const PROBED: usize = 64;

impl Dictionary {
    /// `bytes_max` bounds the encoded dictionary.
    pub fn new(width: Option<usize>, bytes_max: usize) -> Self {
        let bytes_max = bytes_max.min(u32::MAX as usize / 2);
        Self {
            width,
            bytes_max,
            content: Vec::new(),
            places: Vec::new(),
            traces: Vec::new(),
            table: HashTable::new(),
            is_full: false,
        }
    }

    pub fn len(&self) -> usize {
        self.places.len()
    }

    pub fn content(&self) -> &[u8] {
        &self.content
    }

    pub fn get(&self, entry: u32) -> &[u8] {
        let (start, length) = self.places[entry as usize];
        &self.content[start as usize..(start + length) as usize]
    }

    /// What the chunker needs to know of a value, and its length.
    pub fn trace(&self, entry: u32) -> Trace {
        self.traces[entry as usize]
    }

    /// Takes all values of an input's dictionary in and gives the number of each here. `None`, and nothing is taken,
    /// when the dictionary would grow beyond its bound.
    pub fn merge(&mut self, entries: &Entries) -> Option<Vec<u32>> {
        if self.is_full {
            let known = entries.iter().take(PROBED).filter(|value| self.find(xxh3_64(value), value).is_some()).count();
            if known < entries.len().min(PROBED) / 2 {
                return None;
            }
        }
        let (len, bytes) = (self.places.len(), self.content.len());
        let mut numbers = Vec::with_capacity(entries.len());
        for value in entries.iter() {
            let hash = xxh3_64(value);
            if let Some(entry) = self.find(hash, value) {
                numbers.push(entry);
                continue;
            }
            let Self { table, content, places, .. } = self;
            let entry = places.len() as u32;
            put_plain(value, self.width, content);
            places.push(((content.len() - value.len()) as u32, value.len() as u32));
            let held = |entry: &u32| {
                let (start, length) = places[*entry as usize];
                xxh3_64(&content[start as usize..(start + length) as usize])
            };
            table.insert_unique(hash, entry, held);
            self.traces.push(Chunker::trace(value));
            numbers.push(entry);
            if content.len() > self.bytes_max {
                self.is_full = true;
                self.forget(len, bytes);
                return None;
            }
        }
        Some(numbers)
    }

    fn find(&self, hash: u64, value: &[u8]) -> Option<u32> {
        self.table.find(hash, |entry| self.get(*entry) == value).copied()
    }

    fn forget(&mut self, len: usize, bytes: usize) {
        self.table.retain(|entry| (*entry as usize) < len);
        self.places.truncate(len);
        self.traces.truncate(len);
        self.content.truncate(bytes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entries(values: &[&str]) -> Entries {
        let mut content = Vec::new();
        values.iter().for_each(|value| put_plain(value.as_bytes(), None, &mut content));
        Entries::parse(content, None, values.len()).unwrap()
    }

    #[test]
    fn equal_values_have_one_number() {
        let mut merged = Dictionary::new(None, 1 << 20);
        assert_eq!(merged.merge(&entries(&["a", "", "bc"])), Some(vec![0, 1, 2]));
        assert_eq!(merged.merge(&entries(&["bc", "d", "a"])), Some(vec![2, 3, 0]));
        assert_eq!((merged.len(), merged.get(3), merged.get(1)), (4, &b"d"[..], &b""[..]));
    }

    #[test]
    fn a_dictionary_that_does_not_fit_leaves_no_trace() {
        let mut merged = Dictionary::new(None, 12);
        assert_eq!(merged.merge(&entries(&["a"])), Some(vec![0]));
        assert_eq!(merged.merge(&entries(&["b", "cdef"])), None);
        assert_eq!((merged.len(), merged.content().len()), (1, 5));
        assert_eq!(merged.merge(&entries(&["b", "a"])), Some(vec![1, 0]));
    }

    #[test]
    fn content_that_is_not_as_many_values_is_refused() {
        assert!(Entries::parse(vec![2, 0, 0, 0, b'a'], None, 1).is_none());
        assert!(Entries::parse(vec![1, 0, 0, 0, b'a', 0], None, 1).is_none());
        assert!(Entries::parse(vec![0; 8], Some(4), 3).is_none());
        assert!(Entries::parse(vec![0; 8], Some(4), 2).is_some());
    }
}
