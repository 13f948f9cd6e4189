//! Content-defined cuts between pages.
//!
//! A rolling hash (the gear hash of FastCDC, Xia et al. 2016) runs over the levels and values of a leaf. Where its upper
//! bits are zero a page ends, so the cuts depend on nearby content alone: after rows are inserted or removed elsewhere,
//! the other pages are cut, and compressed, as before, and a content-addressed store finds them again. A cut lies only
//! between rows, at least `min_bytes` and at most about `max_bytes` after the one before. One pass, no look-ahead.

use baler_common::model::options::ContentDefinedChunking;

/// Bytes after which the hash has forgotten what came before.
const WINDOW: u64 = 64;

/// The chunker of one leaf in one row group.
#[derive(Debug, Clone)]
pub struct Chunker {
    gear: &'static [u64; 256],
    min_bytes: u64,
    max_bytes: u64,
    mask: u64,
    hash: u64,
    bytes: u64,
}

/// A value as the chunker sees it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Trace {
    pub length: u32,
    hash: u64,
}

impl Chunker {
    pub fn new(options: ContentDefinedChunking) -> Self {
        let ContentDefinedChunking { min_bytes, max_bytes, norm_level } = options;
        // On average a cut comes as long after the minimum as it may come before the maximum.
        let spread = (max_bytes.saturating_sub(min_bytes) / 2).max(2);
        let bits = i64::from(spread.ilog2()) - i64::from(norm_level);
        let bits = bits.clamp(1, 48) as u32;
        let mask = !(u64::MAX >> bits);
        Self { gear: gear(), min_bytes, max_bytes: max_bytes.max(1), mask, hash: 0, bytes: 0 }
    }

    /// Takes one slot of a row in: its levels and the bytes of its value, if it has one.
    #[inline]
    pub fn slot(&mut self, definition: i16, repetition: i16, value: Option<&[u8]>) {
        self.roll(definition as u8);
        if repetition > 0 {
            self.roll(repetition as u8);
        }
        if let Some(value) = value {
            self.bytes += value.len() as u64;
            if self.bytes + WINDOW >= self.min_bytes {
                let tail = value.len().saturating_sub(WINDOW as usize);
                for byte in &value[tail..] {
                    self.hash = (self.hash << 1).wrapping_add(self.gear[*byte as usize]);
                }
            }
        }
    }

    /// Takes one slot in whose value was traced before; the same as [`Self::slot`] with the value.
    #[inline]
    pub fn traced_slot(&mut self, definition: i16, repetition: i16, trace: Trace) {
        self.roll(definition as u8);
        if repetition > 0 {
            self.roll(repetition as u8);
        }
        self.bytes += u64::from(trace.length);
        if self.bytes + WINDOW >= self.min_bytes {
            self.hash = self.hash.checked_shl(trace.length).unwrap_or(0).wrapping_add(trace.hash);
        }
    }

    /// What a value does to the hash, whatever came before.
    pub fn trace(value: &[u8]) -> Trace {
        let gear = gear();
        // A byte is shifted out after 64 others.
        let tail = value.len().saturating_sub(WINDOW as usize);
        let hash = value[tail..].iter().fold(0u64, |hash, byte| (hash << 1).wrapping_add(gear[*byte as usize]));
        Trace { length: value.len() as u32, hash }
    }

    #[inline]
    fn roll(&mut self, byte: u8) {
        self.bytes += 1;
        self.hash = (self.hash << 1).wrapping_add(self.gear[byte as usize]);
    }

    /// Begins anew, behind a page that was cut by someone else.
    pub fn restart(&mut self) {
        (self.hash, self.bytes) = (0, 0);
    }

    /// Whether a page ends before the row that comes next. Called between rows.
    #[inline]
    pub fn cuts_here(&mut self) -> bool {
        let cut = self.bytes >= self.min_bytes && (self.hash & self.mask == 0 || self.bytes >= self.max_bytes);
        if cut {
            self.restart();
        }
        cut
    }
}

/// The table of the gear hash: the outputs of splitmix64 from seed 0.
fn gear() -> &'static [u64; 256] {
    const TABLE: [u64; 256] = {
        let mut table = [0; 256];
        let mut state = 0u64;
        let mut at = 0;
        while at < 256 {
            state = state.wrapping_add(0x9E37_79B9_7F4A_7C15);
            let mut z = state;
            z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
            z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
            table[at] = z ^ (z >> 31);
            at += 1;
        }
        table
    };
    &TABLE
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cuts(values: &[u64]) -> Vec<usize> {
        let mut chunker = Chunker::new(ContentDefinedChunking { min_bytes: 512, max_bytes: 4096, norm_level: 0 });
        let mut found = Vec::new();
        for (row, value) in values.iter().enumerate() {
            if chunker.cuts_here() {
                found.push(row);
            }
            chunker.slot(1, 0, Some(&value.to_le_bytes()));
        }
        found
    }

    #[test]
    fn cuts_come_back_after_an_insertion() {
        let values: Vec<u64> = (0..20_000u64).map(|n| n.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 7).collect();
        let before = cuts(&values);
        let shifted: Vec<u64> = (0..77).chain(values.iter().copied()).collect();
        let after: Vec<usize> = cuts(&shifted).into_iter().filter_map(|row| row.checked_sub(77)).collect();
        let kept = before.iter().filter(|row| after.contains(row)).count();
        assert!(before.len() > 40, "{}", before.len());
        assert!(kept * 10 > before.len() * 8, "{kept} of {} cuts came back", before.len());
    }

    #[test]
    fn a_traced_value_cuts_as_the_value_does() {
        let options = ContentDefinedChunking { min_bytes: 600, max_bytes: 4096, norm_level: 0 };
        let (mut plain, mut traced) = (Chunker::new(options), Chunker::new(options));
        let content: Vec<u8> = (0..200u32).map(|n| (n * n) as u8).collect();
        let mut cuts = 0;
        for row in 0..30_000usize {
            let value = &content[row % 31..][..(row * row) % 150];
            let cut = plain.cuts_here();
            assert_eq!(cut, traced.cuts_here(), "row {row}");
            cuts += usize::from(cut);
            plain.slot(1, (row % 3) as i16, Some(value));
            traced.traced_slot(1, (row % 3) as i16, Chunker::trace(value));
        }
        assert!(cuts > 300, "{cuts}");
    }

    #[test]
    fn pieces_keep_to_their_bounds() {
        let found = cuts(&vec![7; 10_000]);
        assert!(found.windows(2).all(|pair| (512..=4096 + 9).contains(&((pair[1] - pair[0]) * 9))), "{found:?}");
    }
}
