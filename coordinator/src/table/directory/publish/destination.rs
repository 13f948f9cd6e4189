//! A destination that mirrors the source: afterwards it holds the outputs and nothing else that a glob could read.
//!
//! Per key all or nothing. A key that is not committed keeps what the newest generation lists for it; a key that the
//! source does not have any more goes. Whatever else looks like Parquet in the destination, such as what a killed
//! foreign run left, is set aside.

use std::collections::btree_map::Entry;

use super::*;

/// What to move and what to list in a destination.
pub(super) fn decide(
    source: &DirectoryTable,
    target: &DirectoryTable,
    settled: &Settled<'_>,
    newest: Option<&Generation>,
) -> Result<Publication, Failure> {
    let mut generation = draft(settled, newest);
    let number = generation.generation;
    let listed_now: BTreeMap<&str, &ListedFile> =
        newest.map_or(&[][..], |newest| &newest.live).iter().map(|file| (file.path.as_str(), file)).collect();
    let there = data_objects(target)?;
    let kept: BTreeSet<&str> = settled.kept.iter().map(|kept| kept.key.as_str()).collect();
    // Every path that will be live, and for the new ones the staged object.
    let mut live: BTreeMap<String, (ListedFile, Option<String>)> = BTreeMap::new();
    let swept = removed_jobs(target)?;
    let is_only_copy = |file: &ListedFile| file.proof.as_ref().is_some_and(|proof| swept.contains(&proof.job));
    for file in listed_now.values().filter(|file| kept.contains(file.key.as_str()) || is_only_copy(file)) {
        generation.before = generation.before.plus(file.bytes, file.rows);
        live.insert(file.path.clone(), ((*file).clone(), None));
    }
    for (job, verified) in jobs(settled) {
        for (at, output) in verified.receipt.outputs.iter().enumerate() {
            let mut file = listed(job, verified, output, output.path.clone(), number);
            // All inputs of a job stand at its first output; the others of a deduplicated key have them in common.
            file.sources = if at == 0 { sources(source, &job.inputs)? } else { Vec::new() };
            let staged = staged_path(target, output)?.to_owned();
            let before = listed_now.get(output.path.as_str()).copied();
            let staged = match there.get(&output.path) {
                Some(found) if is_output(target, found, output, before)? => {
                    file.since = before.filter(|before| before.sha256 == file.sha256).map_or(number, |old| old.since);
                    file.identity = found.identity.clone();
                    None
                }
                _ => Some(staged),
            };
            match live.entry(output.path.clone()) {
                Entry::Vacant(entry) => entry.insert((file, staged)),
                Entry::Occupied(_) => {
                    let message = "two outputs have this name: rename the source files, or compact the keys apart";
                    return Err(Failure::new(FailureClass::Policy, message).in_file(output.path.clone()));
                }
            };
        }
    }
    if settled.files.is_empty() && live.len() < listed_now.len() {
        let message = "the source holds no file any more, so what the destination has would be set aside: see that the \
                       source is mounted and spelt right";
        return Err(Failure::new(FailureClass::Policy, message).in_file(source.describe("")));
    }
    let committed_keys: BTreeSet<&str> = jobs(settled).map(|(job, _)| job.key.as_str()).collect();
    for file in settled.files.iter().filter(|file| committed_keys.contains(file.key.as_str())) {
        generation.before = generation.before.plus(file.bytes, file.rows);
    }
    generation.superseded = still_there(target, newest)?;
    let mut steps = Vec::new();
    set_aside(&mut generation, &mut steps, &there, &listed_now, &live);
    for (path, (file, staged)) in &live {
        if let (Some(from), Some(sha256)) = (staged, file.sha256) {
            steps.push(Step::Publish { from: from.clone(), to: path.clone(), bytes: file.bytes, sha256 });
        }
    }
    by_key(&mut steps, &live);
    generation.listed_before = listed_now.len() as u64;
    generation.live = live.into_values().map(|(file, _)| file).collect();
    generation.added = generation.live.iter().filter(|file| file.since == number).count() as u64;
    generation.removed = removed(&listed_now, &generation.live, number);
    Ok(Publication { steps, generation })
}

/// Everything in the destination that a glob for Parquet could read, or that a killed writer of Parquet left.
fn data_objects(target: &DirectoryTable) -> Result<BTreeMap<String, ObjectInfo>, Failure> {
    let control = format!("{CONTROL}/");
    Ok(target
        .list("")?
        .into_iter()
        .filter(|info| !info.path.starts_with(&control) && looks_like_parquet(&info.path))
        .map(|info| (info.path.clone(), info))
        .collect())
}

/// By its name alone: `x.parquet`, `X.PARQUET`, `x.parquet.tmp`, `.x.parquet.crc`.
pub(crate) fn looks_like_parquet(path: &str) -> bool {
    path.rsplit('/').next().unwrap_or(path).to_ascii_lowercase().contains(".parquet")
}

/// Whether what has the output's name is the output.
fn is_output(
    target: &DirectoryTable,
    found: &ObjectInfo,
    output: &OutputFile,
    before: Option<&ListedFile>,
) -> Result<bool, Failure> {
    if found.bytes != output.bytes {
        return Ok(false);
    }
    // Known from the newest generation, and untouched since: it need not be read again.
    if let Some(before) = before
        && before.sha256 == Some(output.sha256)
        && before.identity != Identity::Unknown
        && is_same_content(found, before.bytes, &before.identity)
    {
        return Ok(true);
    }
    Ok(target.sha256(&output.path, output.bytes)? == Some(output.sha256))
}

/// Sets aside every object that is not to be live, or has the name of an output and is not it.
fn set_aside(
    generation: &mut Generation,
    steps: &mut Vec<Step>,
    there: &BTreeMap<String, ObjectInfo>,
    listed_now: &BTreeMap<&str, &ListedFile>,
    live: &BTreeMap<String, (ListedFile, Option<String>)>,
) {
    let number = generation.generation;
    for (path, found) in there {
        if live.get(path).is_some_and(|(_, staged)| staged.is_none()) {
            continue;
        }
        let to = previous::aside_path(number, path, found.bytes, &found.identity);
        let known =
            listed_now.get(path.as_str()).filter(|listed| is_same_content(found, listed.bytes, &listed.identity));
        let (file, why) = match known {
            Some(listed) => ((*listed).clone(), Why::Replaced),
            None => (foreign(path, found), Why::Foreign),
        };
        let file = ListedFile { object: to.clone(), identity: found.identity.clone(), ..file };
        generation.superseded.push(SupersededFile { file, why, superseded_in: number });
        let (from, identity) = (path.clone(), found.identity.clone());
        steps.push(Step::Move { from, to, bytes: found.bytes, identity });
    }
}

/// A file of which nothing is known but that it is there.
pub(super) fn foreign(path: &str, found: &ObjectInfo) -> ListedFile {
    ListedFile {
        key: path.rsplit_once('/').map_or("all", |(folder, _)| folder).to_owned(),
        path: path.to_owned(),
        object: path.to_owned(),
        bytes: found.bytes,
        rows: 0,
        identity: found.identity.clone(),
        first_chunk: 0,
        last_chunk: 0,
        sha256: None,
        settled: false,
        since: 0,
        proof: None,
        sources: Vec::new(),
    }
}

/// Key by key, so that as few keys as can be are between two layouts at any moment; in a key what goes comes first.
fn by_key(steps: &mut [Step], live: &BTreeMap<String, (ListedFile, Option<String>)>) {
    let folder = |path: &str| path.rsplit_once('/').map_or(String::new(), |(folder, _)| folder.to_owned());
    steps.sort_by_cached_key(|step| match step {
        Step::Move { from, .. } => (folder(from), false, from.clone()),
        Step::Publish { to, .. } => (live.get(to).map_or(String::new(), |_| folder(to)), true, to.clone()),
    });
}

/// How many files that were listed are not listed any more, or are others now.
fn removed(listed_now: &BTreeMap<&str, &ListedFile>, live: &[ListedFile], number: u64) -> u64 {
    let stays: BTreeSet<&str> =
        live.iter().filter(|file| file.since != number).map(|file| file.path.as_str()).collect();
    listed_now.keys().filter(|path| !stays.contains(*path)).count() as u64
}

/// The inputs of a job, by their paths below the source table.
fn sources(source: &DirectoryTable, inputs: &[InputFile]) -> Result<Vec<SourceFile>, Failure> {
    inputs
        .iter()
        .map(|input| {
            let path = source.relative(&input.object.path).ok_or_else(|| {
                let message = format!("it does not lie in the table {}", source.describe(""));
                Failure::new(FailureClass::Policy, message).in_file(input.object.to_string())
            })?;
            Ok(SourceFile {
                path: path.to_owned(),
                bytes: input.bytes,
                rows: input.rows,
                identity: input.identity.clone(),
            })
        })
        .collect()
}
