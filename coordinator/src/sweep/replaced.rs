//! Sources that live on in a destination: `baler gc SRC --replaced-by DST`.
//!
//! Afterwards the destination holds the only copy of their rows, so before anything is deleted it is told: a line for
//! each job in its `_baler/removed.jsonl` keeps the job's outputs in every later generation, though their sources are
//! gone.

use std::collections::{BTreeMap, BTreeSet};

use baler_common::model::error::{Failure, FailureClass};

use super::{SweepOptions, SweepReport, delete_all, is_older, made_at, refuse_unsettled, store_time};
use crate::table::directory::generation::{self, ListedFile};
use crate::table::directory::publish::record_removed;
use crate::table::directory::{CONTROL, DirectoryTable, in_parallel, is_pinned, is_same_content};

/// Sweeps the sources whose outputs are live in `destination`. Paths in the report are below the source table.
pub fn sweep_replaced(
    source: &DirectoryTable,
    destination: &DirectoryTable,
    options: &SweepOptions,
) -> Result<SweepReport, Failure> {
    let mut report = SweepReport::default();
    let refuse = |why: &str| Err(Failure::new(FailureClass::Policy, why).in_file(source.describe("")));
    if source.describe("") == destination.describe("") {
        return refuse("the source is the destination: a table compacted in place is swept without --replaced-by");
    }
    if !generation::numbers(source)?.is_empty() {
        return refuse("the source has generations of its own: revert or sweep those first");
    }
    let Some(newest) = generation::newest(destination)? else {
        return refuse("the destination has no generation: nothing replaces these files");
    };
    refuse_unsettled(destination, &newest)?;
    let now_ms = store_time(destination, options)?;
    // All outputs of a job stand or fall together.
    let mut jobs: BTreeMap<[u8; 32], Vec<&ListedFile>> = BTreeMap::new();
    for file in &newest.live {
        if let Some(proof) = &file.proof {
            jobs.entry(proof.job).or_default().push(file);
        }
    }
    let mut replaced: BTreeSet<[u8; 32]> = BTreeSet::new();
    for (job, outputs) in jobs {
        let sources: Vec<_> = outputs.iter().flat_map(|file| &file.sources).collect();
        let whole = is_whole(destination, &outputs)?;
        let since = outputs.iter().map(|file| file.since).max().unwrap_or(0);
        let aged = made_at(destination, since)?.is_some_and(|made| is_older(made, options.retention, now_ms));
        let found = in_parallel(&sources, |input| source.head(&input.path));
        for (input, found) in sources.iter().zip(found) {
            let Some(found) = found? else { continue };
            if !whole {
                report.leave(&input.path, found.bytes, "an output of its job is not there as recorded");
            } else if input.path.starts_with(&format!("{CONTROL}/")) {
                report.leave(&input.path, found.bytes, "it lies in a control folder");
            } else if !is_pinned(&found, input.bytes, &input.identity) {
                report.leave(&input.path, found.bytes, "it is not the compacted object any more");
            } else if !aged {
                report.leave(&input.path, found.bytes, "its output is younger than the retention");
            } else {
                report.sweep(
                    &input.path,
                    found.bytes,
                    format!("its rows are live in generation {}", newest.generation),
                );
                replaced.insert(job);
            }
        }
    }
    if options.delete {
        record_removed(destination, &replaced)?;
        delete_all(&mut report, source)?;
    }
    Ok(report)
}

/// Whether the job was proved and all its outputs are there: the rows listed are the rows that were to be.
fn is_whole(destination: &DirectoryTable, outputs: &[&ListedFile]) -> Result<bool, Failure> {
    let rows: Option<u64> = outputs.iter().try_fold(0u64, |sum, file| sum.checked_add(file.rows));
    let proved = outputs.iter().all(|file| {
        file.proof.as_ref().is_some_and(|proof| proof.expected == proof.stored && Some(proof.stored.rows) == rows)
    });
    if !proved {
        return Ok(false);
    }
    for found in in_parallel(outputs, |file| {
        let found = destination.head(&file.object)?;
        Ok::<_, Failure>(found.is_some_and(|found| is_same_content(&found, file.bytes, &file.identity)))
    }) {
        if !found? {
            return Ok(false);
        }
    }
    Ok(true)
}
