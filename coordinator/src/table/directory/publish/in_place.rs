//! A table that is its own destination.
//!
//! In place, outputs go to `_baler/data/{path}.{16 digits of the job}.bale` and no other file is touched: the generation
//! lists outputs and untouched files, and names the sources that they replace. With torn reads, outputs get their plain
//! names and the sources are set aside afterwards.

use super::*;

/// What to move and what to list in place.
pub(super) fn decide(
    target: &DirectoryTable,
    settled: &Settled<'_>,
    newest: Option<&Generation>,
) -> Result<Publication, Failure> {
    let torn = settled.plan.publish == PublishMode::TornReads;
    let mut generation = draft(settled, newest);
    let number = generation.generation;
    let known: BTreeMap<&str, &ListedFile> =
        newest.map_or(&[][..], |newest| &newest.live).iter().map(|file| (file.object.as_str(), file)).collect();
    generation.superseded = still_there(target, newest)?;
    let mut replaced: BTreeSet<String> = BTreeSet::new();
    let mut publishes = Vec::new();
    for (job, verified) in jobs(settled) {
        for input in &job.inputs {
            let object = target.relative(&input.object.path).ok_or_else(|| {
                let message = format!("it does not lie in the table {}", target.describe(""));
                Failure::new(FailureClass::Policy, message).in_file(input.object.to_string())
            })?;
            replaced.insert(object.to_owned());
        }
        for output in &verified.receipt.outputs {
            let object = if torn { output.path.clone() } else { data_path(&output.path, &verified.digest) };
            let file = listed(job, verified, output, object.clone(), number);
            let from = staged_path(target, output)?.to_owned();
            publishes.push(Step::Publish { from, to: object, bytes: file.bytes, sha256: output.sha256 });
            generation.live.push(file);
        }
    }
    let right: BTreeSet<&str> = settled
        .plan
        .skips
        .iter()
        .filter(|skip| skip.reason == crate::plan::SkipReason::AlreadyRight)
        .map(|skip| skip.file.as_str())
        .collect();
    let names: BTreeSet<&str> = publishes
        .iter()
        .filter_map(|step| match step {
            Step::Publish { to, .. } => Some(to.as_str()),
            Step::Move { .. } => None,
        })
        .collect();
    let (mut first, mut last) = (Vec::new(), Vec::new());
    for planned in settled.files {
        generation.before = generation.before.plus(planned.bytes, planned.rows);
        let mut file = known
            .get(planned.object.as_str())
            .filter(|known| known.bytes == planned.bytes)
            .map_or_else(|| untouched(planned), |known| (*known).clone());
        file.settled |= right.contains(planned.path.as_str());
        if !replaced.contains(&planned.object) {
            generation.live.push(file);
            continue;
        }
        if torn {
            let to = previous::aside_path(number, &planned.path, planned.bytes, &planned.identity);
            let step = Step::Move {
                from: planned.object.clone(),
                to: to.clone(),
                bytes: planned.bytes,
                identity: planned.identity.clone(),
            };
            if names.contains(planned.object.as_str()) {
                first.push(step)
            } else {
                last.push(step)
            }
            file.object = to;
        }
        generation.superseded.push(SupersededFile { file, why: Why::Compacted, superseded_in: number });
    }
    generation.listed_before = settled.files.len() as u64;
    generation.added = publishes.len() as u64;
    generation.removed = generation.superseded.iter().filter(|entry| entry.superseded_in == number).count() as u64;
    let steps = first.into_iter().chain(publishes).chain(last).collect();
    Ok(Publication { steps, generation })
}

/// Where an output in place lies.
pub(crate) fn data_path(path: &str, job: &[u8; 32]) -> String {
    format!("{CONTROL}/data/{path}.{}{DATA_SUFFIX}", &hex(job)[..16])
}

/// A file that Baler has not touched, as it was planned.
fn untouched(planned: &PlannedFile) -> ListedFile {
    ListedFile {
        key: planned.key.clone(),
        path: planned.path.clone(),
        object: planned.object.clone(),
        bytes: planned.bytes,
        rows: planned.rows,
        identity: planned.identity.clone(),
        first_chunk: planned.first_chunk,
        last_chunk: planned.last_chunk,
        sha256: None,
        settled: planned.settled,
        since: 0,
        proof: None,
        sources: Vec::new(),
    }
}
