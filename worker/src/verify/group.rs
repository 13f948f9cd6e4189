//! A file under check: its row groups, each folded in windows of rows, each leaf by the decoder that can read it.
//!
//! Every leaf of a window is folded before the next window begins, so a row group of any size takes the sums of a window
//! and one page at a time. A leaf that polars-parquet says it does not support is folded by parquet-rs from then on, and
//! the file's receipt names it; whatever else is wrong with a page is an error (`docs/decisions/0002`).

use std::collections::BTreeMap;
use std::panic::AssertUnwindSafe;
use std::sync::{Mutex, OnceLock, PoisonError};

use baler_common::model::error::{Failure, FailureClass};
use baler_common::runtime::storage::Source;
use parquet::file::metadata::ParquetMetaData;
use polars_parquet::parquet::metadata::FileMetadata;

use super::fold::{Chunk, Cursor, Feed, Scratch, Trouble};
use super::pages::Budget;
use super::rows::fold_absent;
use super::schema::{CheckSchema, Leaf};
use super::second::{self, Progress};
use super::values::Treatment;
use crate::context::Context;

/// Most rows of a row group that has no column to prove them.
const BARE_ROWS_MAX: usize = 1 << 32;

/// One file and how it is read.
pub(super) struct FileCheck<'a> {
    pub source: &'a Source,
    pub metadata: &'a FileMetadata,
    /// The leaves that are folded, and for each what feeds it.
    pub schema: &'a CheckSchema,
    pub feeds: &'a [Option<(usize, Feed<'a>)>],
    pub treatment: Treatment,
    pub budget: Budget,
    pub context: &'a Context,
    /// Leaves that the second decoder reads, and why the first does not.
    pub stand_ins: Mutex<BTreeMap<usize, String>>,
    /// The footer as the second decoder reads it.
    pub second: OnceLock<Result<ParquetMetaData, Failure>>,
}

/// How far each leaf of a row group was folded.
#[derive(Clone, Default)]
struct Place {
    first: Cursor,
    second: Progress,
}

/// A stretch of a row group's rows.
struct Window {
    group: usize,
    rows: usize,
    last: bool,
}

impl FileCheck<'_> {
    /// Paths of the leaves that the second decoder read.
    pub(super) fn stand_ins(&self) -> Vec<String> {
        let found = self.stand_ins.lock().unwrap_or_else(PoisonError::into_inner);
        found.keys().map(|leaf| self.schema.leaves[*leaf].path.clone()).collect()
    }

    /// Folds all leaves of row group `group` and hands over its rows' sums, a window at a time.
    pub(super) fn fold_group(
        &self,
        group: usize,
        scratch: &mut Scratch,
        take: &mut dyn FnMut(&[[u64; 2]]) -> Result<(), Failure>,
    ) -> Result<(), Failure> {
        let rows = self.metadata.row_groups[group].num_rows();
        if rows > BARE_ROWS_MAX && self.feeds.iter().all(Option::is_none) {
            let message = format!("a row group claims {rows} rows and has no column to show them");
            return Err(Failure::new(FailureClass::Policy, message).in_file(self.source.name()));
        }
        let mut places = vec![Place::default(); self.feeds.len()];
        let mut sums = std::mem::take(&mut scratch.sums);
        let mut done = 0;
        loop {
            self.context.check_running()?;
            let count = self.budget.window_rows.min(rows - done);
            done += count;
            let window = Window { group, rows: count, last: done == rows };
            self.fold_window(&window, &mut places, &mut sums, scratch)?;
            take(&sums)?;
            self.context.count_verified(count as u64);
            if window.last {
                break;
            }
        }
        scratch.sums = sums;
        Ok(())
    }

    /// Folds all leaves of one window. Where a leaf turns out to need the second decoder the window is begun again, since
    /// the sums hold a part of that leaf.
    fn fold_window(
        &self,
        window: &Window,
        places: &mut Vec<Place>,
        sums: &mut Vec<[u64; 2]>,
        scratch: &mut Scratch,
    ) -> Result<(), Failure> {
        loop {
            sums.clear();
            sums.resize(window.rows, [0; 2]);
            let mut next = places.clone();
            let mut whole = true;
            for (number, output) in self.schema.leaves.iter().enumerate() {
                whole &= self
                    .fold_leaf(window, number, output, &mut next[number], sums, scratch)
                    .map_err(|failure| failure.in_column(output.path.as_str()).in_file(self.source.name()))?;
            }
            if whole {
                *places = next;
                return Ok(());
            }
        }
    }

    /// Folds one leaf. Answers whether it was folded as a whole: not when it turned out to need the second decoder.
    fn fold_leaf(
        &self,
        window: &Window,
        number: usize,
        output: &Leaf,
        place: &mut Place,
        sums: &mut [[u64; 2]],
        scratch: &mut Scratch,
    ) -> Result<bool, Failure> {
        let Some((column, feed)) = &self.feeds[number] else {
            fold_absent(output, sums);
            return Ok(true);
        };
        let corrupt = |message: &str| Failure::new(FailureClass::InputCorrupt, message);
        let group = &self.metadata.row_groups[window.group];
        let metadata = group.parquet_columns().get(*column);
        let chunk = Chunk {
            source: self.source,
            metadata: metadata.ok_or_else(|| corrupt("the row group has no such column chunk"))?,
            output,
            feed,
            treatment: self.treatment,
            statistics: self.treatment.check_statistics.then(|| self.metadata.footer_buf.as_ref()),
            rows: group.num_rows(),
            budget: self.budget,
        };
        let reason = self.stand_ins.lock().unwrap_or_else(PoisonError::into_inner).get(&number).cloned();
        let Some(reason) = reason else {
            let folded = std::panic::catch_unwind(AssertUnwindSafe(|| {
                chunk.fold(sums, window.last, &mut place.first, scratch, self.context)
            }));
            return match folded {
                Ok(Ok(())) => {
                    place.second.skip_to(place.first.rows());
                    Ok(true)
                }
                Ok(Err(Trouble::StandIn(reason))) => {
                    self.stand_ins.lock().unwrap_or_else(PoisonError::into_inner).insert(number, reason);
                    Ok(false)
                }
                Ok(Err(Trouble::Failed(failure))) => Err(failure),
                Err(_) => {
                    *scratch = Scratch::new();
                    Err(corrupt("the checking decoder cannot read it"))
                }
            };
        };
        let read = AssertUnwindSafe(|| {
            let footer = self.second.get_or_init(|| second::read_footer(&self.metadata.footer_buf));
            let footer = footer.as_ref().map_err(Clone::clone)?;
            let own = footer.row_groups().get(window.group).and_then(|group| group.columns().get(*column));
            let own = own.ok_or_else(|| corrupt("its footer has no such column chunk"))?;
            chunk.fold_second(own, sums, window.last, &mut place.second, self.context)
        });
        let folded = std::panic::catch_unwind(read).unwrap_or_else(|_| Err(corrupt("its pages contradict each other")));
        folded.map(|()| true).map_err(|failure| {
            let message = format!("{reason}; and {} says: {}", second::SECOND_DECODER, failure.message);
            Failure { message, ..failure }
        })
    }
}
