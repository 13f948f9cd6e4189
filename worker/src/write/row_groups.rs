//! Fixes the output's row groups from the row groups of the inputs, before any lane is read. Pure.
//!
//! A row group of the output is made of whole row groups of the inputs where those are small; one that is much larger
//! than the target is cut into equal parts. So most of what is read is read once.

use std::ops::Range;

/// A stretch of rows of one row group of one input.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Slice {
    pub input: usize,
    pub row_group: usize,
    /// Rows in the input's row group.
    pub rows: Range<u64>,
    /// Number of the first row in all inputs.
    pub first_in_all: u64,
}

/// Cuts the inputs' row groups (`groups[input][row group]` rows) into row groups of about `target` rows.
pub fn cut(groups: &[Vec<u64>], target: u64) -> Vec<Vec<Slice>> {
    let target = target.max(1);
    let mut found = Vec::new();
    let mut open: Vec<Slice> = Vec::new();
    let mut held = 0u64;
    let mut first_in_all = 0u64;
    for (input, row_groups) in groups.iter().enumerate() {
        for (row_group, &rows) in row_groups.iter().enumerate() {
            let parts = if rows / 2 > target / 4 * 3 { rows.div_ceil(target) } else { 1 };
            for part in 0..parts {
                let range = rows * part / parts..rows * (part + 1) / parts;
                let taken = range.end - range.start;
                if taken == 0 {
                    continue;
                }
                // Close a row group that is nearer to the target without the next part than with it.
                if held > 0 && (held >= target || (held + taken > target && held + taken - target > target - held)) {
                    found.push(std::mem::take(&mut open));
                    held = 0;
                }
                open.push(Slice { input, row_group, rows: range, first_in_all });
                held += taken;
                first_in_all += taken;
            }
        }
    }
    if !open.is_empty() {
        found.push(open);
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sizes(groups: &[Vec<u64>], target: u64) -> Vec<u64> {
        let rows = |slices: &Vec<Slice>| slices.iter().map(|slice| slice.rows.end - slice.rows.start).sum();
        cut(groups, target).iter().map(rows).collect()
    }

    #[test]
    fn small_row_groups_are_gathered_and_large_ones_cut_evenly() {
        assert_eq!(sizes(&[vec![10; 7], vec![10; 3]], 40), [40, 40, 20]);
        assert_eq!(sizes(&[vec![100]], 40), [33, 33, 34]);
        assert_eq!(sizes(&[vec![50], vec![50]], 40), [50, 50]);
        assert_eq!(sizes(&[vec![0, 0], vec![]], 40), Vec::<u64>::new());
        assert_eq!(sizes(&[vec![1; 1_000]], 1_000_000), [1_000]);
    }

    #[test]
    fn every_row_is_in_one_slice_and_in_order() {
        for seed in 1..200u64 {
            let group = |n: u64| (seed.wrapping_mul(n * 2_654_435_761 + 1) >> 7) % 300;
            let groups: Vec<Vec<u64>> = (0..seed % 9).map(|i| (0..i).map(|j| group(i * 31 + j)).collect()).collect();
            let mut next = 0;
            for slice in cut(&groups, 1 + seed % 170).iter().flatten() {
                assert_eq!(slice.first_in_all, next, "seed {seed}");
                next += slice.rows.end - slice.rows.start;
            }
            assert_eq!(next, groups.iter().flatten().sum::<u64>(), "seed {seed}");
        }
    }
}
