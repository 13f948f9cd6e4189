//! Cuts each key's source files into runs, and each run into a job or skips.
//!
//! A run is a stretch of consecutive files whose sizes add up to at most the target; it becomes exactly one output file.
//! Order inside a key is the order of the snapshot, so equal snapshots give equal runs. A file is never split.

use baler_common::model::error::{Failure, FailureClass};
use baler_common::model::id::JobId;
use baler_common::model::job::{ColumnMap, InputFile, JobSpec, RowMode};
use baler_common::model::options::{BloomFilter, Codec, WriteOptions};

use parquet::schema::types::SchemaDescriptor;

use super::schema::{self, KeySchema};
use super::{
    BloomChoice, FileFacts, FileSnapshot, KeyFigures, KeySnapshot, Plan, PlanOptions, PublishMode, Refusal,
    SchemaFacts, Skip, SkipReason, TableSnapshot, arrow_hint, metadata,
};

/// Turns a schema into the bytes that a job carries.
pub type SchemaBytes<'a> = &'a dyn Fn(parquet::schema::types::TypePtr) -> Result<Vec<u8>, Failure>;

/// Plans one table.
pub fn plan(snapshot: &TableSnapshot, options: &PlanOptions, schema_bytes: SchemaBytes<'_>) -> Plan {
    let mut plan = Plan {
        compaction: options.compaction.clone(),
        table: snapshot.table.clone(),
        source_location: snapshot.source_location.clone(),
        base_generation: options.base_generation,
        publish: options.publish,
        jobs: Vec::new(),
        skips: Vec::new(),
        refusals: Vec::new(),
        keys: Vec::new(),
        notes: snapshot.notes.clone(),
    };
    let mut budget = options.max_bytes.unwrap_or(u64::MAX);
    for key in &snapshot.keys {
        plan.keys.push(KeyFigures {
            key: key.key.clone(),
            files: key.files.len() as u64,
            bytes: key.bytes(),
            rows: key.rows(),
        });
        if !options.selection.iter().all(|condition| condition.selects(&key.key)) {
            plan.skips.extend(key.files.iter().map(|file| skip(key, file, SkipReason::NotSelected)));
            continue;
        }
        if let Err(failure) = plan_key(key, options, schema_bytes, &mut budget, &mut plan) {
            plan.refusals.push(Refusal { key: key.key.clone(), failure });
        }
    }
    plan
}

fn skip(key: &KeySnapshot, file: &FileSnapshot, reason: SkipReason) -> Skip {
    Skip { key: key.key.clone(), file: file.path.clone(), bytes: file.bytes, rows: file.rows(), reason }
}

fn plan_key(
    key: &KeySnapshot,
    options: &PlanOptions,
    schema_bytes: SchemaBytes<'_>,
    budget: &mut u64,
    plan: &mut Plan,
) -> Result<(), Failure> {
    if let Some(failure) = &key.failure {
        return Err(failure.clone());
    }
    let mut files: Vec<(&FileSnapshot, &FileFacts)> = Vec::with_capacity(key.files.len());
    for file in &key.files {
        let facts = file.facts.as_deref().ok_or_else(|| {
            Failure::new(FailureClass::InputCorrupt, "its footer was not read").in_file(file.path.clone())
        })?;
        files.push((file, facts));
    }
    let schemas: Vec<(&FileSnapshot, &SchemaFacts)> =
        files.iter().map(|(file, facts)| (*file, facts.schema.as_ref())).collect();
    let key_schema = if options.evolve { schema::merge(&schemas)? } else { schema::same(&schemas)? };
    let hints = files.iter().flat_map(|(_, facts)| facts.key_values.iter());
    let hints = hints.filter(|(key, _)| key == arrow_hint::KEY).filter_map(|(_, hint)| hint.as_deref()).collect();
    arrow_hint::check_zones(&SchemaDescriptor::new(key_schema.root.clone()), &hints)?;
    let schema = schema_bytes(key_schema.root.clone())?;
    let dedup = options.dedup.covers(&plan.table);
    let whole = std::iter::once(0..files.len()).collect();
    let runs: Vec<_> = if dedup { whole } else { runs(&files, options) };
    for run in runs {
        let bytes: u64 = files[run.clone()].iter().map(|(file, _)| file.bytes).sum();
        let verdict = verdict(
            &files[run.clone()],
            options,
            dedup,
            key_schema.columns[run.clone()].iter().all(|map| *map == ColumnMap::Same),
        );
        let mode = match verdict {
            Ok(mode) => mode,
            Err(reason) => {
                plan.skips.extend(files[run].iter().map(|(file, _)| skip(key, file, reason.clone())));
                continue;
            }
        };
        if bytes > *budget {
            *budget = 0;
            plan.skips.extend(files[run].iter().map(|(file, _)| skip(key, file, SkipReason::OverBudget)));
            continue;
        }
        *budget -= bytes;
        let job = job(key, &files, run, mode, &schema, &key_schema, options, plan);
        plan.jobs.push(job);
    }
    Ok(())
}

/// Stretches of consecutive files of at most the target size. In place, files that an earlier compaction settled and
/// that are large already stay out of the way.
fn runs(files: &[(&FileSnapshot, &FileFacts)], options: &PlanOptions) -> Vec<std::ops::Range<usize>> {
    let mut found = Vec::new();
    let mut start = 0;
    let mut bytes = 0u64;
    for (place, (file, _)) in files.iter().enumerate() {
        if place > start && bytes.saturating_add(file.bytes) > options.target_bytes {
            found.push(start..place);
            (start, bytes) = (place, 0);
        }
        bytes = bytes.saturating_add(file.bytes);
    }
    if start < files.len() {
        found.push(start..files.len());
    }
    found
}

/// What a run needs: a job of this mode, or nothing for this reason.
fn verdict(
    run: &[(&FileSnapshot, &FileFacts)],
    options: &PlanOptions,
    dedup: bool,
    same_schema: bool,
) -> Result<RowMode, SkipReason> {
    let destination = options.publish == PublishMode::Destination;
    if dedup {
        return Ok(RowMode::Distinct);
    }
    if let [(file, facts)] = run
        && !options.rewrite
        && same_schema
        && (file.settled || is_right(facts, &options.write))
    {
        return if destination { Ok(RowMode::Verbatim) } else { Err(SkipReason::AlreadyRight) };
    }
    let files = u32::try_from(run.len()).unwrap_or(u32::MAX);
    if !destination && files < options.min_input_files && !options.rewrite {
        return Err(SkipReason::TooFewFiles { files, min: options.min_input_files });
    }
    Ok(RowMode::Copy)
}

/// Whether a file is as Baler would write it: written by it, or compressed with zstd, indexed, and cut into row groups of
/// a useful size.
fn is_right(facts: &FileFacts, write: &WriteOptions) -> bool {
    if !matches!(write.codec, Codec::Zstd { .. }) {
        return false;
    }
    let ours = facts.key_values.iter().any(|(key, _)| key == "baler.fingerprint");
    let target = write.row_group_bytes;
    let large_enough = facts.smallest_row_group_bytes.is_none_or(|bytes| bytes >= target / 2);
    facts.all_zstd && facts.page_index && (ours || (large_enough && facts.largest_row_group_bytes <= target / 2 * 3))
}

#[allow(clippy::too_many_arguments)]
fn job(
    key: &KeySnapshot,
    files: &[(&FileSnapshot, &FileFacts)],
    run: std::ops::Range<usize>,
    mode: RowMode,
    schema: &[u8],
    key_schema: &KeySchema,
    options: &PlanOptions,
    plan: &mut Plan,
) -> JobSpec {
    let members = &files[run.clone()];
    let (first, last) = (members[0].0.first_chunk, members[members.len() - 1].0.last_chunk);
    let name = output_name(first, last);
    let output_path = if key.folder.is_empty() { name } else { format!("{}/{name}", key.folder) };
    let sources: Vec<_> = members.iter().map(|(_, facts)| (facts.key_values.as_slice(), facts.rows)).collect();
    let (mut key_values, mut conflicts) = metadata::merge(&sources);
    // Hints of one file say nothing of columns that it does not have, and of indices that the others need.
    conflicts.retain(|key| key != arrow_hint::KEY);
    if members.len() > 1
        && let Some((_, Some(hint))) = key_values.iter_mut().find(|(key, _)| key == arrow_hint::KEY)
        && let Some(wide) = arrow_hint::widened(&SchemaDescriptor::new(key_schema.root.clone()), hint)
    {
        *hint = wide;
    }
    if key_schema.columns[run.clone()].iter().any(|columns| *columns != ColumnMap::Same) {
        key_values.retain(|(key, _)| key != arrow_hint::KEY);
    }
    for conflict in conflicts {
        plan.notes
            .push(format!("{output_path}: files differ in metadata {conflict:?}, the first file's value is kept"));
    }
    let inputs = members.iter().zip(&key_schema.columns[run]).map(|((file, facts), columns)| InputFile {
        object: file.object.clone(),
        bytes: file.bytes,
        rows: facts.rows,
        identity: file.identity.clone(),
        first_chunk: file.first_chunk,
        last_chunk: file.last_chunk,
        columns: columns.clone(),
    });
    let largest = files.iter().filter(|(_, facts)| facts.rows > 0).max_by_key(|(file, _)| file.bytes);
    let per_row = largest.map_or(1_000, |(_, facts)| facts.memory_bytes.saturating_mul(1_000) / facts.rows);
    let mut write = options.write.clone();
    write.bloom_filters = bloom_filters(members, key_schema, options);
    JobSpec {
        job: JobId(u32::try_from(plan.jobs.len()).unwrap_or(u32::MAX)),
        table: plan.table.clone(),
        key: key.key.clone(),
        mode,
        inputs: inputs.collect(),
        output_path,
        staging: options.staging.clone(),
        schema: schema.to_vec(),
        options: write,
        memory_millibytes_per_row: per_row.max(1),
        target_bytes: options.target_bytes,
        key_values,
    }
}

/// `chunks-{first}-{last}.parquet`, padded to the digits of the last number, at least four.
pub fn output_name(first: u64, last: u64) -> String {
    let digits = last.to_string().len().max(4);
    format!("chunks-{first:0digits$}-{last:0digits$}.parquet")
}

fn bloom_filters(run: &[(&FileSnapshot, &FileFacts)], schema: &KeySchema, options: &PlanOptions) -> Vec<BloomFilter> {
    let rows: u64 = run.iter().map(|(_, facts)| facts.rows).sum();
    let descriptor = SchemaDescriptor::new(schema.root.clone());
    let wanted = |leaf: u32| match &options.bloom {
        BloomChoice::None => false,
        BloomChoice::Columns(columns) => columns.contains(&descriptor.column(leaf as usize).path().string()),
        BloomChoice::Inherit => run.iter().zip(&schema.columns).any(|((_, facts), columns)| {
            let own = match columns {
                ColumnMap::Same => Some(leaf),
                ColumnMap::Leaves(leaves) => leaves.get(leaf as usize).copied().flatten(),
            };
            own.is_some_and(|own| facts.bloom_leaves.contains(&own))
        }),
    };
    (0..descriptor.num_columns() as u32)
        .filter(|leaf| wanted(*leaf))
        .map(|leaf| BloomFilter {
            leaf,
            false_positives_ppm: options.bloom_false_positives_ppm,
            distinct_max: rows.max(1),
        })
        .collect()
}
