//! From the words of the command line to what the other crates take.

use std::path::PathBuf;

use baler_common::model::error::{Failure, FailureClass};
use baler_common::model::object::ObjectRef;
use baler_common::model::options::{Codec, ContentDefinedChunking, WriteOptions};
use baler_coordinator::compaction::new_compaction;
use baler_coordinator::plan::{BloomChoice, Dedup, PlanOptions, PublishMode};
use baler_coordinator::table::directory::layout::RootAs;

use crate::args::{CodecName, LayoutAs, PlanningArgs, RunningArgs, WritingArgs};
use crate::work::Resources;

/// What the layout flag means to the scan.
pub fn root_as(layout: Option<LayoutAs>) -> RootAs {
    match layout {
        None => RootAs::Detect,
        Some(LayoutAs::Root) => RootAs::Tables,
        Some(LayoutAs::Table) => RootAs::Table,
        Some(LayoutAs::Key) => RootAs::Key,
    }
}

/// The options of a plan.
///
/// # Errors
/// A value that the flags' own parsers cannot judge, such as a condition.
pub fn plan_options(
    planning: &PlanningArgs,
    writing: &WritingArgs,
    publish: PublishMode,
    staging: ObjectRef,
) -> Result<PlanOptions, Failure> {
    let mut options = PlanOptions::new(new_compaction(), publish, staging);
    options.target_bytes = planning.target_size.max(1);
    options.min_input_files = planning.min_input_files.max(1);
    options.rewrite = planning.rewrite;
    options.evolve = planning.evolve;
    options.max_bytes = planning.max_bytes;
    options.selection = planning.conditions.iter().map(|text| text.parse()).collect::<Result<_, _>>()?;
    options.dedup = match planning.dedup.as_deref() {
        None => Dedup::None,
        Some("*") => Dedup::All,
        Some(tables) => Dedup::Tables(tables.split(',').map(str::to_owned).collect()),
    };
    options.bloom = match (writing.no_bloom_filters, writing.bloom_filters.as_slice()) {
        (true, _) => BloomChoice::None,
        (false, []) => BloomChoice::Inherit,
        (false, columns) => BloomChoice::Columns(columns.to_vec()),
    };
    if !(writing.bloom_filter_fpp > 0.0 && writing.bloom_filter_fpp < 1.0) {
        return Err(wrong("--bloom-filter-fpp must lie between 0 and 1"));
    }
    options.bloom_false_positives_ppm = ((writing.bloom_filter_fpp * 1e6) as u32).max(1);
    options.write = write_options(writing)?;
    Ok(options)
}

fn write_options(writing: &WritingArgs) -> Result<WriteOptions, Failure> {
    let level = |default: u32, max: u32| match writing.codec_level {
        None => Ok(default),
        Some(level) => u32::try_from(level)
            .ok()
            .filter(|level| *level <= max)
            .ok_or_else(|| wrong(&format!("--codec-level must lie between 0 and {max} for this codec"))),
    };
    let codec = match writing.codec {
        CodecName::None => Codec::Uncompressed,
        CodecName::Snappy => Codec::Snappy,
        CodecName::Lz4 => Codec::Lz4Raw,
        CodecName::Gzip => Codec::Gzip { level: level(6, 9)? },
        CodecName::Brotli => Codec::Brotli { level: level(4, 11)? },
        CodecName::Zstd => match writing.codec_level {
            None => Codec::Zstd { level: 3 },
            Some(level) if (1..=22).contains(&level) => Codec::Zstd { level },
            Some(_) => return Err(wrong("--codec-level must lie between 1 and 22 for zstd")),
        },
    };
    if writing.cdc_min == 0 || writing.cdc_min > writing.cdc_max {
        return Err(wrong("--cdc-min must be above 0 and not above --cdc-max"));
    }
    if writing.row_group_bytes == 0 || writing.page_bytes == 0 {
        return Err(wrong("--row-group-bytes and --page-bytes must be above 0"));
    }
    let chunking =
        ContentDefinedChunking { min_bytes: writing.cdc_min, max_bytes: writing.cdc_max, norm_level: writing.cdc_norm };
    Ok(WriteOptions {
        codec,
        row_group_bytes: writing.row_group_bytes,
        page_bytes: writing.page_bytes,
        dictionary_bytes: writing.dictionary_bytes,
        chunking: (!writing.no_cdc).then_some(chunking),
        bloom_filters: Vec::new(),
        statistics_truncate_bytes: (writing.statistics_truncate > 0).then_some(writing.statistics_truncate),
    })
}

fn wrong(message: &str) -> Failure {
    Failure::new(FailureClass::Policy, message)
}

/// What the jobs may use on this machine.
pub fn resources(running: &RunningArgs) -> Resources {
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    Resources {
        jobs: running.jobs.unwrap_or(cores).max(1),
        cores,
        memory_bytes: running.memory.unwrap_or_else(|| machine_memory() / 2),
        spill_folder: running.state.clone().unwrap_or_else(std::env::temp_dir),
        isolate: running.isolate,
        until: running.until,
    }
}

/// Memory of the machine in bytes; 4 GiB where it cannot be told.
pub fn machine_memory() -> u64 {
    let said = std::fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let total = said
        .lines()
        .find_map(|line| line.strip_prefix("MemTotal:")?.trim().strip_suffix("kB")?.trim().parse::<u64>().ok());
    total.map_or(4 << 30, |kib| kib << 10)
}

/// Where the state of runs is kept whose destination is not on a local disk.
pub fn state_folder(given: Option<&PathBuf>) -> PathBuf {
    if let Some(folder) = given {
        return folder.clone();
    }
    let base = std::env::var_os("XDG_STATE_HOME")
        .map(PathBuf::from)
        .or_else(|| std::env::var_os("HOME").map(|home| PathBuf::from(home).join(".local/state")));
    base.unwrap_or_else(std::env::temp_dir).join("baler")
}
