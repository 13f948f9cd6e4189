//! Deduplication of a job's whole rows: which rows are the first of their kind, and where the outputs are cut.
//!
//! Every row gets a 128-bit hash; the first row of each hash is kept. The hashes are taken twice, here from what the
//! writing side decodes and again by the checking side with another function: rows that differ but agree in one hash
//! show as a difference of the two masks, and nothing is written. The set of hashes lives in memory within a budget and
//! goes to local disk above it.
//!
//! Absent: any comparison of values. A pair of rows that collides in both functions is out of reach of chance.

mod first;
mod pages;
mod row_hashes;

use std::ops::Range;

use baler_common::model::error::{Failure, FailureClass};
use baler_common::model::job::JobSpec;

use crate::context::Context;
use crate::mask::RowMask;
use first::FirstOfEach;
pub use row_hashes::row_hashes;

/// One output of a deduplicating job.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DistinctOutput {
    /// The inputs whose kept rows it holds, by their number in the job.
    pub inputs: Range<usize>,
    /// Logical name below the table's root.
    pub path: String,
    /// Chunk numbers it covers, inclusive.
    pub first_chunk: u64,
    pub last_chunk: u64,
}

/// The mask that keeps the first row of each hash. `hashes` hands the hash of every row to its argument, in order, in
/// blocks of any size.
///
/// The hashes take at most a quarter of the attempt's memory; what goes beyond is kept in files without names in the
/// spill folder, which vanish however the attempt ends.
///
/// # Errors
/// Whatever `hashes` fails with; an input that has another number of rows than was planned; a full spill folder.
pub fn first_occurrences(
    rows: u64,
    hashes: impl FnOnce(&mut dyn FnMut(&[[u64; 2]]) -> Result<(), Failure>) -> Result<(), Failure>,
    context: &Context,
) -> Result<RowMask, Failure> {
    let mut mask = RowMask::all(rows);
    let mut first = FirstOfEach::new(context.memory_bytes / 4, &context.spill_folder);
    let mut row = 0;
    let changed = |found: u64| {
        let message = format!("the inputs hold {found} rows, {rows} were planned: plan again");
        Failure::new(FailureClass::InputChanged, message)
    };
    hashes(&mut |block| {
        context.check_running()?;
        if block.len() as u64 > rows - row {
            return Err(changed(row.saturating_add(block.len() as u64)));
        }
        for &hash in block {
            first.see(hash, row, &mut mask)?;
            row += 1;
        }
        Ok(())
    })?;
    if row != rows {
        return Err(changed(row));
    }
    first.finish(&mut mask, &|| context.check_running())?;
    Ok(mask)
}

/// Cuts the inputs of a deduplicating job into outputs: stretches of inputs whose sizes add up to at most the target.
/// A larger input is alone in its output. A job that fits in one output keeps the name the plan gave it.
pub fn output_ranges(spec: &JobSpec) -> Vec<DistinctOutput> {
    let mut stretches: Vec<Range<usize>> = Vec::new();
    let mut bytes = 0u64;
    for (number, input) in spec.inputs.iter().enumerate() {
        match stretches.last_mut() {
            Some(stretch) if bytes.saturating_add(input.bytes) <= spec.target_bytes => {
                stretch.end = number + 1;
                bytes = bytes.saturating_add(input.bytes);
            }
            _ => {
                stretches.push(number..number + 1);
                bytes = input.bytes;
            }
        }
    }
    let only = stretches.len() == 1;
    let outputs = stretches.into_iter().filter_map(|stretch| {
        let inputs = spec.inputs.get(stretch.clone())?;
        let (first_chunk, last_chunk) = (inputs.first()?.first_chunk, inputs.last()?.last_chunk);
        let path = if only { spec.output_path.clone() } else { output_path(spec, first_chunk, last_chunk) };
        Some(DistinctOutput { inputs: stretch, path, first_chunk, last_chunk })
    });
    outputs.collect()
}

/// The name of one of several outputs: in the planned output's folder, numbers padded as every output's are.
fn output_path(spec: &JobSpec, first_chunk: u64, last_chunk: u64) -> String {
    let folder = spec.output_path.rsplit_once('/').map_or(String::new(), |(folder, _)| format!("{folder}/"));
    let digits = last_chunk.to_string().len().max(4);
    format!("{folder}chunks-{first_chunk:0digits$}-{last_chunk:0digits$}.parquet")
}

#[cfg(test)]
mod tests;
