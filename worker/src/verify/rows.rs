//! Levels and value hashes of one leaf, folded into the sums of a window of rows.
//!
//! A window is a stretch of a row group's rows. A page may reach beyond its end: what was not taken is folded again from
//! that slot on when the next window begins.

use super::schema::Leaf;
use crate::fingerprint::{levels, mix};

/// What a fold of one leaf starts from, the same in every window.
pub(super) struct Start {
    salts: [u64; 2],
    /// Canonical level of each stored definition level, cut to what is known of a missing column.
    canonical: Vec<u16>,
    full: u32,
    /// Deepest repetition level that counts.
    repetition_max: u32,
    /// What a slot without a value makes of a fresh row, by stored definition level.
    empty: Vec<[u64; 2]>,
    /// What a slot with a value starts from in a fresh row.
    pub base: [u64; 2],
}

impl Start {
    /// `canonical_max` and `repetition_max` are the deepest levels that are known of the output's leaf.
    pub(super) fn new(output: &Leaf, stored: &Leaf, canonical_max: u16, repetition_max: u16) -> Self {
        let salts = output.salts;
        let canonical: Vec<u16> = stored.canonical.iter().map(|level| (*level).min(canonical_max)).collect();
        let start = |level: u16| {
            let added = levels(0, level);
            [salts[0].wrapping_add(added[0]), salts[1].wrapping_add(added[1])]
        };
        let empty = canonical.iter().map(|level| start(*level).map(mix)).collect();
        let base = start(canonical.last().copied().unwrap_or_default());
        let full = u32::from(stored.max_definition);
        Self { salts, canonical, full, repetition_max: u32::from(repetition_max), empty, base }
    }
}

/// The fold of one leaf over the rows of a window.
pub(super) struct Fold<'a> {
    rows: &'a mut [[u64; 2]],
    /// Rows of the window that are complete.
    pub done: usize,
    /// The row in progress, for repeated leaves.
    open: Option<[u64; 2]>,
    start: &'a Start,
}

impl<'a> Fold<'a> {
    pub(super) fn new(start: &'a Start, rows: &'a mut [[u64; 2]]) -> Self {
        Self { rows, done: 0, open: None, start }
    }

    /// What a slot with a value starts from in a fresh row.
    pub(super) fn base(&self) -> [u64; 2] {
        self.start.base
    }

    /// Rows of the window that have begun.
    pub(super) fn begun(&self) -> usize {
        self.done + usize::from(self.open.is_some())
    }

    /// Whether every row of the window is complete, so that nothing of a column that is not repeated is wanted.
    pub(super) fn is_full(&self) -> bool {
        self.done == self.rows.len()
    }

    /// Adds slots of a column that is not repeated, from slot `from` on: each is a row. `folded` is what the n-th value
    /// of the page makes of one. Says before which slot the window was full.
    #[inline]
    pub(super) fn flat(
        &mut self,
        from: usize,
        slots: usize,
        definitions: Option<&[u32]>,
        folded: impl Fn(usize) -> [u64; 2],
    ) -> usize {
        let taken = (slots - from).min(self.rows.len() - self.done);
        let rows = &mut self.rows[self.done..self.done + taken];
        match definitions {
            None => {
                for (at, row) in rows.iter_mut().enumerate() {
                    let folded = folded(from + at);
                    row[0] = row[0].wrapping_add(folded[0]);
                    row[1] = row[1].wrapping_add(folded[1]);
                }
            }
            Some(definitions) => {
                let full = self.start.full;
                let mut at = definitions[..from].iter().filter(|definition| **definition == full).count();
                for (row, definition) in rows.iter_mut().zip(&definitions[from..]) {
                    let folded = if *definition == full {
                        at += 1;
                        folded(at - 1)
                    } else {
                        self.start.empty[*definition as usize]
                    };
                    row[0] = row[0].wrapping_add(folded[0]);
                    row[1] = row[1].wrapping_add(folded[1]);
                }
            }
        }
        self.done += taken;
        from + taken
    }

    /// Adds slots of a repeated column, from slot `from` on. `value` is the hash of the n-th value of the page. Says
    /// before which slot a row began that the window has no place for.
    #[inline]
    pub(super) fn nested(
        &mut self,
        from: usize,
        slots: usize,
        definitions: Option<&[u32]>,
        repetitions: &[u32],
        value: impl Fn(usize) -> [u64; 2],
    ) -> Result<usize, String> {
        let full = self.start.full;
        let mut at = match definitions {
            None => from,
            Some(definitions) => definitions[..from].iter().filter(|definition| **definition == full).count(),
        };
        for (slot, &repetition) in repetitions.iter().enumerate().take(slots).skip(from) {
            let definition = definitions.map_or(full, |definitions| definitions[slot]);
            let hash = if definition == full {
                at += 1;
                value(at - 1)
            } else {
                [0; 2]
            };
            if repetition > self.start.repetition_max {
                continue;
            }
            let before = match (repetition, self.open.take()) {
                (0, finished) => {
                    if let Some(sums) = finished {
                        self.close(sums);
                    }
                    if self.is_full() {
                        return Ok(slot);
                    }
                    self.start.salts
                }
                (_, Some(sums)) => sums,
                (_, None) => return Err("its first value continues a row that has no beginning".into()),
            };
            let added = levels(repetition as u16, self.start.canonical[definition as usize]);
            self.open = Some([
                mix(before[0].wrapping_add(added[0]).wrapping_add(hash[0])),
                mix(before[1].wrapping_add(added[1]).wrapping_add(hash[1])),
            ]);
        }
        Ok(slots)
    }

    /// Completes the open row: a row begins only where there is a place for it.
    fn close(&mut self, sums: [u64; 2]) {
        let row = &mut self.rows[self.done];
        row[0] = row[0].wrapping_add(sums[0]);
        row[1] = row[1].wrapping_add(sums[1]);
        self.done += 1;
    }

    /// The column has no more slots: the row in progress is complete.
    pub(super) fn end(&mut self) {
        if let Some(sums) = self.open.take() {
            self.close(sums);
        }
    }
}

/// Adds a column that an input does not have, and of which no ancestor exists: null in every row.
pub(super) fn fold_absent(output: &Leaf, rows: &mut [[u64; 2]]) {
    let added = levels(0, 0);
    let folded = [0, 1].map(|s| mix(output.salts[s].wrapping_add(added[s])));
    for row in rows {
        row[0] = row[0].wrapping_add(folded[0]);
        row[1] = row[1].wrapping_add(folded[1]);
    }
}
