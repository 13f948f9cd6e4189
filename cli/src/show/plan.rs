//! A plan as a picture, and as JSON.
//!
//! ```text
//! key en: 3 files, 895 MiB, 9,000 rows
//!   chunks-0001.parquet  180 MiB ┐
//!   chunks-0002.parquet  210 MiB ┴─► en/chunks-0001-0002.parquet  390 MiB, 6,000 rows
//!   chunks-0003.parquet  505 MiB ──  stays: it is already right
//! ```

use std::collections::BTreeMap;
use std::fmt::Write;

use baler_common::model::job::{JobSpec, RowMode};
use baler_coordinator::plan::{Plan, PublishMode, Skip, SkipReason};
use serde_json::{Value, json};

use super::{Style, count, counted, failure_json};
use crate::args::sizes::show_size;

/// Longer runs are shortened in the picture.
const FILES_SHOWN: usize = 8;
/// Input bytes a second and core that the estimate of time assumes, checks included.
const BYTES_PER_SECOND: u64 = 60 << 20;

/// Why a file stays as it is, in words.
pub fn reason(reason: &SkipReason) -> String {
    match reason {
        SkipReason::AlreadyRight => "it is already right".to_owned(),
        SkipReason::TooFewFiles { files, min } => {
            format!("its run has {}, --min-input-files is {min}", counted(u64::from(*files), "file", "files"))
        }
        SkipReason::OverBudget => "--max-bytes is used up by earlier runs".to_owned(),
        SkipReason::NotSelected => "its key does not match --where".to_owned(),
    }
}

/// The word for a reason, for machines.
fn reason_code(reason: &SkipReason) -> &'static str {
    match reason {
        SkipReason::AlreadyRight => "already_right",
        SkipReason::TooFewFiles { .. } => "too_few_files",
        SkipReason::OverBudget => "over_budget",
        SkipReason::NotSelected => "not_selected",
    }
}

/// What a job does with its rows.
pub fn mode(mode: RowMode) -> &'static str {
    match mode {
        RowMode::Copy => "rewrite",
        RowMode::Verbatim => "copy byte for byte",
        RowMode::Distinct => "first of equal rows",
    }
}

/// Seconds that the jobs may take on this many cores. A guess from their input bytes.
pub fn estimated_seconds(plan: &Plan, cores: usize) -> u64 {
    let bytes: u64 = plan.jobs.iter().map(JobSpec::input_bytes).fold(0, u64::saturating_add);
    let largest = plan.jobs.iter().map(JobSpec::input_bytes).max().unwrap_or(0);
    let cores = (cores as u64).clamp(1, plan.jobs.len().max(1) as u64);
    (bytes / (BYTES_PER_SECOND * cores)).max(largest / (BYTES_PER_SECOND * 2))
}

/// The picture.
pub fn picture(plan: &Plan, cores: usize, style: Style) -> String {
    let mut out = String::new();
    let mut jobs: BTreeMap<&str, Vec<&JobSpec>> = BTreeMap::new();
    let mut skips: BTreeMap<&str, Vec<&Skip>> = BTreeMap::new();
    for job in &plan.jobs {
        jobs.entry(&job.key).or_default().push(job);
    }
    for skip in &plan.skips {
        skips.entry(&skip.key).or_default().push(skip);
    }
    let _ = writeln!(out, "{} ({})", style.strong(format!("table {}", plan.table)), plan.source_location);
    for note in &plan.notes {
        let _ = writeln!(out, "  note: {note}");
    }
    for key in &plan.keys {
        let files = counted(key.files, "file", "files");
        let rows = counted(key.rows, "row", "rows");
        let _ = writeln!(out, "key {}: {files}, {}, {rows}", key.key, show_size(key.bytes));
        for job in jobs.get(key.key.as_str()).map_or(&[][..], Vec::as_slice) {
            job_lines(&mut out, job, style);
        }
        for skip in skips.get(key.key.as_str()).map_or(&[][..], Vec::as_slice) {
            file_line(&mut out, &skip.file, skip.bytes, &format!("──  stays: {}", reason(&skip.reason)));
        }
        for refusal in plan.refusals.iter().filter(|refusal| refusal.key == key.key) {
            let _ = writeln!(out, "  {}", style.bad(format!("refused: {}", refusal.failure)));
        }
    }
    for refusal in plan.refusals.iter().filter(|refusal| plan.keys.iter().all(|key| key.key != refusal.key)) {
        let _ = writeln!(out, "key {}\n  {}", refusal.key, style.bad(format!("refused: {}", refusal.failure)));
    }
    let _ = writeln!(out, "{}", summary(plan, cores));
    out
}

/// One sentence: how much there is to do.
fn summary(plan: &Plan, cores: usize) -> String {
    let (inputs, bytes) = plan
        .jobs
        .iter()
        .fold((0u64, 0u64), |(files, bytes), job| (files + job.inputs.len() as u64, bytes + job.input_bytes()));
    if plan.jobs.is_empty() {
        return format!(
            "nothing to do: {} as they are, {} refused",
            counted(plan.skips.len() as u64, "file stays", "files stay"),
            counted(plan.refusals.len() as u64, "key is", "keys are")
        );
    }
    format!(
        "{}: {} ({}) become {} or more of about {} in all, in about {} s on {} (a guess from the input bytes); {} as they are, {} refused",
        counted(plan.jobs.len() as u64, "job", "jobs"),
        counted(inputs, "file", "files"),
        show_size(bytes),
        counted(plan.jobs.len() as u64, "file", "files"),
        show_size(bytes),
        count(estimated_seconds(plan, cores).max(1)),
        counted(cores as u64, "core", "cores"),
        counted(plan.skips.len() as u64, "file stays", "files stay"),
        counted(plan.refusals.len() as u64, "key is", "keys are")
    )
}

fn job_lines(out: &mut String, job: &JobSpec, style: Style) {
    let last = job.inputs.len().saturating_sub(1);
    for (place, input) in job.inputs.iter().enumerate() {
        if job.inputs.len() > FILES_SHOWN && place == 3 {
            let hidden = job.inputs.len() - 5;
            let _ = writeln!(out, "  {:<40} {:>10} │", format!("… {} more", count(hidden as u64)), "");
        }
        if job.inputs.len() > FILES_SHOWN && (3..job.inputs.len() - 2).contains(&place) {
            continue;
        }
        let corner = match place {
            _ if place == last => {
                let arrow = if last == 0 { "──►" } else { "┴─►" };
                let size = show_size(job.input_bytes());
                let rows = counted(job.input_rows(), "row", "rows");
                let what = if job.mode == RowMode::Copy { String::new() } else { format!(", {}", mode(job.mode)) };
                format!("{arrow} {}  {size}, {rows}{what}", style.good(&job.output_path))
            }
            0 => "┐".to_owned(),
            _ => "│".to_owned(),
        };
        file_line(out, &input.object.path, input.bytes, &corner);
    }
}

fn file_line(out: &mut String, path: &str, bytes: u64, rest: &str) {
    let name = path.rsplit('/').next().unwrap_or(path);
    let _ = writeln!(out, "  {name:<40} {:>10} {rest}", show_size(bytes));
}

/// The plan for machines.
pub fn plan_json(plan: &Plan, cores: usize) -> Value {
    let publish = match plan.publish {
        PublishMode::Destination => "destination",
        PublishMode::InPlace => "in_place",
        PublishMode::TornReads => "torn_reads",
    };
    let job = |job: &JobSpec| {
        let input = |input: &baler_common::model::job::InputFile| json!({"path": input.object.path, "bytes": input.bytes, "rows": input.rows});
        json!({
            "job": job.job.0,
            "key": job.key,
            "mode": mode(job.mode),
            "output": job.output_path,
            "bytes": job.input_bytes(),
            "rows": job.input_rows(),
            "inputs": job.inputs.iter().map(input).collect::<Vec<_>>(),
        })
    };
    let skip = |skip: &Skip| {
        json!({
            "key": skip.key,
            "file": skip.file,
            "bytes": skip.bytes,
            "rows": skip.rows,
            "reason": reason_code(&skip.reason),
            "says": reason(&skip.reason),
        })
    };
    let bytes: u64 = plan.jobs.iter().map(JobSpec::input_bytes).fold(0, u64::saturating_add);
    json!({
        "table": plan.table,
        "source": plan.source_location,
        "publish": publish,
        "base_generation": plan.base_generation,
        "jobs": plan.jobs.iter().map(job).collect::<Vec<_>>(),
        "skips": plan.skips.iter().map(skip).collect::<Vec<_>>(),
        "refusals": plan.refusals.iter()
            .map(|refusal| json!({"key": refusal.key, "failure": failure_json(&refusal.failure)}))
            .collect::<Vec<_>>(),
        "keys": plan.keys.iter()
            .map(|key| json!({"key": key.key, "files": key.files, "bytes": key.bytes, "rows": key.rows}))
            .collect::<Vec<_>>(),
        "notes": plan.notes,
        "estimate": {"seconds": estimated_seconds(plan, cores), "output_bytes": bytes},
    })
}

#[cfg(test)]
mod tests;
