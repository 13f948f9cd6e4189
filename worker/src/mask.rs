//! Which rows of a job's inputs are kept: one bit a row, over all inputs concatenated.

use std::ops::Range;

/// Rows kept of a job's inputs, by position in their concatenation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RowMask {
    words: Vec<u64>,
    rows: u64,
}

impl RowMask {
    /// A mask over `rows` rows that keeps them all.
    pub fn all(rows: u64) -> Self {
        let mut words = vec![u64::MAX; rows.div_ceil(64) as usize];
        if let (Some(last), tail) = (words.last_mut(), rows % 64)
            && tail != 0
        {
            *last = (1 << tail) - 1;
        }
        Self { words, rows }
    }

    /// Rows covered, kept or not.
    pub fn rows(&self) -> u64 {
        self.rows
    }

    /// Leaves `row` out. `row` is below [`RowMask::rows`].
    pub fn drop_row(&mut self, row: u64) {
        self.words[(row / 64) as usize] &= !(1 << (row % 64));
    }

    /// Whether `row` is kept.
    pub fn keeps(&self, row: u64) -> bool {
        self.words[(row / 64) as usize] >> (row % 64) & 1 == 1
    }

    /// The part of the mask that covers `range`, renumbered from 0.
    pub fn part(&self, range: Range<u64>) -> RowMask {
        let mut part = RowMask::all(range.end - range.start);
        (range.clone()).filter(|row| !self.keeps(*row)).for_each(|row| part.drop_row(row - range.start));
        part
    }

    /// Number of rows kept in `range`.
    pub fn kept_in(&self, range: Range<u64>) -> u64 {
        let (first, last) = (range.start / 64, range.end / 64);
        if range.is_empty() {
            return 0;
        }
        let above = u64::MAX << (range.start % 64);
        let below = (1u64 << (range.end % 64)) - 1;
        if first == last {
            return u64::from((self.words[first as usize] & above & below).count_ones());
        }
        let middle: u64 =
            self.words[first as usize + 1..last as usize].iter().map(|word| u64::from(word.count_ones())).sum();
        let tail = if below == 0 { 0 } else { (self.words[last as usize] & below).count_ones() };
        u64::from((self.words[first as usize] & above).count_ones()) + middle + u64::from(tail)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_part_keeps_the_same_rows() {
        let mut mask = RowMask::all(150);
        (0..150).filter(|row| row % 7 == 0).for_each(|row| mask.drop_row(row));
        let part = mask.part(65..140);
        assert_eq!(part.rows(), 75);
        assert!((0..75).all(|row| part.keeps(row) == mask.keeps(row + 65)));
    }

    #[test]
    fn counts_agree_with_single_rows() {
        let mut mask = RowMask::all(200);
        (0..200).filter(|row| row % 3 == 0).for_each(|row| mask.drop_row(row));
        for start in 0..200 {
            for end in start..=200 {
                let expected = (start..end).filter(|row| row % 3 != 0).count() as u64;
                assert_eq!(mask.kept_in(start..end), expected, "{start}..{end}");
            }
        }
    }
}
