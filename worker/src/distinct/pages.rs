//! A source as the Parquet library reads it: in windows.
//!
//! The library asks for a page header byte by byte and then for the page. Both come out of a window of a few MiB that is
//! fetched at once, so that a remote object is read in few requests. A column chunk is read front to back, which is what
//! the window is for.

use std::sync::{Arc, Mutex, PoisonError};

use baler_common::runtime::storage::Source;
use bytes::{Buf, Bytes};
use parquet::errors::{ParquetError, Result};
use parquet::file::reader::{ChunkReader, Length};

/// Bytes fetched at once.
const WINDOW_BYTES: u64 = 4 << 20;
/// Bytes that a reader of unknown length gets at least, unless the source ends before: more than any page header takes.
const HEADER_BYTES: u64 = 256 << 10;

/// One reader's view of a source, up to the byte `end`.
pub(super) struct Windowed {
    source: Arc<Source>,
    end: u64,
    window: Mutex<(u64, Bytes)>,
}

impl Windowed {
    pub(super) fn new(source: Arc<Source>, end: u64) -> Self {
        let end = end.min(source.bytes());
        Self { source, end, window: Mutex::default() }
    }

    /// `length` bytes from `start`, or [`HEADER_BYTES`] to a window of them if `length` is 0.
    fn fetch(&self, start: u64, length: u64) -> Result<Bytes> {
        let beyond = || ParquetError::EOF(format!("bytes from {start} on were asked for, it ends at {}", self.end));
        start.checked_add(length).filter(|&end| end <= self.end).ok_or_else(beyond)?;
        let mut window = self.window.lock().unwrap_or_else(PoisonError::into_inner);
        let (first, held) = (window.0, window.1.len() as u64);
        let wanted = if length > 0 { length } else { HEADER_BYTES.min(self.end - start) };
        let inside = start >= first && start + wanted <= first + held;
        if !inside {
            let wanted = length.max(WINDOW_BYTES).min(self.end - start);
            let content =
                self.source.read(start..start + wanted).map_err(|failure| ParquetError::External(failure.into()))?;
            *window = (start, content);
        }
        let at = (start - window.0) as usize;
        let available = window.1.len() - at;
        let taken = if length == 0 { available } else { length as usize };
        Ok(window.1.slice(at..at + taken))
    }
}

impl Length for Windowed {
    fn len(&self) -> u64 {
        self.end
    }
}

impl ChunkReader for Windowed {
    type T = bytes::buf::Reader<Bytes>;

    fn get_read(&self, start: u64) -> Result<Self::T> {
        Ok(self.fetch(start, 0)?.reader())
    }

    fn get_bytes(&self, start: u64, length: usize) -> Result<Bytes> {
        if length == 0 {
            return Ok(Bytes::new());
        }
        self.fetch(start, length as u64)
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read;

    use super::*;

    #[test]
    fn a_header_across_the_end_of_a_window_is_read_whole() {
        let content: Vec<u8> = (0..WINDOW_BYTES as usize + (1 << 20)).map(|n| (n / 7) as u8).collect();
        let source = Arc::new(Source::from_bytes("input", content.clone().into()));
        let windowed = Windowed::new(source, u64::MAX);
        windowed.get_bytes(0, 10).unwrap();
        for start in [WINDOW_BYTES - 3, WINDOW_BYTES - 1, WINDOW_BYTES, content.len() as u64 - 5] {
            let mut head = [0; 5];
            windowed.get_read(start).unwrap().read_exact(&mut head).unwrap();
            assert_eq!(head, content[start as usize..start as usize + 5], "from {start}");
        }
    }
}
