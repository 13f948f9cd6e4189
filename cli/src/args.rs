//! The command line. A flag's help is its documentation.

pub mod sizes;

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Parser, Subcommand, ValueEnum};

use sizes::{parse_duration, parse_size, parse_until};

/// Compacts Parquet tables and proves that nothing changed.
#[derive(Debug, Parser)]
#[command(name = "baler", version, propagate_version = true, max_term_width = 120, after_help = EXIT_CODES)]
pub struct Cli {
    #[command(subcommand)]
    pub command: Command,
    /// What is logged on standard error, as for RUST_LOG: error, warn, info, debug, or per module.
    #[arg(long, global = true, env = "BALER_LOG", default_value = "warn", value_name = "FILTER")]
    pub log: String,
}

const EXIT_CODES: &str = "Exit codes: 0 done, or nothing to do; 1 at least one key was refused or failed, or a check did not hold; \
2 the command line is wrong; 75 another run holds the table: try again later.";

#[derive(Debug, Subcommand)]
pub enum Command {
    /// Merge small Parquet files into larger ones, prove that the rows are the same, then make them the table's files.
    Compact(CompactArgs),
    /// Show what `compact` would do, and why, without doing it.
    Plan(PlanArgs),
    /// Carry out a plan that `plan --save` wrote, exactly as it was reviewed.
    Apply(ApplyArgs),
    /// Say why a file or a key is, or is not, in a job.
    Explain(ExplainArgs),
    /// Show a location's files, small files, bytes awaiting cleanup, and the rate at which files arrive.
    Status(StatusArgs),
    /// Read every file that Baler wrote with the independent decoder and compare it with what was recorded.
    Verify(VerifyArgs),
    /// Print the files that are the table's rows now, or were in an earlier generation.
    Files(FilesArgs),
    /// Show the generations of a table: files and rows of each.
    History(LocationArgs),
    /// Make the generation before the newest the table again, as a new generation.
    Revert(LocationArgs),
    /// Lift the stop of a table after a check did not hold.
    Release(ReleaseArgs),
    /// Report what no generation needs any more; with --delete, remove it.
    Gc(GcArgs),
    /// Check the control folder and everything it refers to, changing nothing.
    Fsck(FsckArgs),
    /// Run a coordinator of a cluster: any number may run, one leads.
    Coordinator(CoordinatorArgs),
    /// Run a worker of a cluster: it does what the leading coordinator hands out, and keeps nothing.
    Worker(WorkerArgs),
    /// Follow a compaction that was submitted to a cluster, to its end.
    Watch(WatchArgs),
    /// Give up a compaction that was submitted to a cluster; its tables stay as they are.
    Cancel(SubmissionArgs),
    /// Start no more jobs of a submitted compaction until it is resumed.
    Pause(SubmissionArgs),
    /// Go on with a submitted compaction that was paused.
    Resume(SubmissionArgs),
    /// Let a worker end when what it runs has ended.
    Drain(WorkerNameArgs),
    /// Make a small table of several keys to try things on.
    DemoData(DemoDataArgs),
    /// Print the completions for a shell.
    Completions { shell: clap_complete::Shell },
    /// Print the manual page, or write one page per command into a folder.
    Man { folder: Option<PathBuf> },
    /// Print the points at which BALER_KILL_AT can kill the process, for tests.
    #[command(hide = true)]
    KillPoints {
        /// Those that only a cluster passes.
        #[arg(long)]
        cluster: bool,
    },
    /// Run one attempt in this process, for its parent.
    #[command(hide = true)]
    Attempt,
}

/// What a location is taken for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum LayoutAs {
    /// Its first level of folders are tables.
    Root,
    /// It is one table; folders below are keys.
    Table,
    /// It is one key: files directly in it.
    Key,
}

#[derive(Debug, Args)]
pub struct CompactArgs {
    /// A directory or an s3://, gs:// or az:// location: a root of tables, or one table.
    pub source: String,
    /// Write the compacted tables here, in the same layout, and leave the source as it is. Without it the table is
    /// compacted in place: its files stay, and `baler files` lists the live ones.
    #[arg(long, value_name = "LOCATION")]
    pub out: Option<String>,
    #[command(flatten)]
    pub planning: PlanningArgs,
    #[command(flatten)]
    pub writing: WritingArgs,
    #[command(flatten)]
    pub running: RunningArgs,
    /// In place on a local disk: afterwards exchange the table's folder with one that holds the compacted files under
    /// plain names, so that readers without a manifest see them. A reader that is listing meanwhile may see both.
    #[arg(long, conflicts_with_all = ["out", "allow_torn_reads"])]
    pub swap: bool,
    /// In place: put the new files beside the old ones and set the old ones aside. A reader meanwhile may read rows twice.
    #[arg(long, conflicts_with = "out")]
    pub allow_torn_reads: bool,
    /// Show the plan and stop.
    #[arg(long)]
    pub dry_run: bool,
    #[command(flatten)]
    pub cluster: ClusterArgs,
    /// With --coordinator: print the submission's name and do not wait for its end.
    #[arg(long, requires = "coordinator")]
    pub detach: bool,
    /// With --coordinator: a name for this request; the same one again gives the same submission.
    #[arg(long, value_name = "KEY", requires = "coordinator")]
    pub idempotency_key: Option<String>,
}

#[derive(Debug, Args)]
pub struct PlanArgs {
    /// A directory or an s3://, gs:// or az:// location: a root of tables, or one table.
    pub source: String,
    /// Plan for this destination instead of in place.
    #[arg(long, value_name = "LOCATION")]
    pub out: Option<String>,
    #[command(flatten)]
    pub planning: PlanningArgs,
    #[command(flatten)]
    pub writing: WritingArgs,
    /// Print the plan for machines.
    #[arg(long)]
    pub json: bool,
    /// Write the plan into a file for `baler apply`.
    #[arg(long, value_name = "FILE")]
    pub save: Option<PathBuf>,
    /// In place: plan for `compact --allow-torn-reads`.
    #[arg(long, conflicts_with = "out")]
    pub allow_torn_reads: bool,
}

#[derive(Debug, Args)]
pub struct ApplyArgs {
    /// A file that `plan --save` wrote.
    pub file: PathBuf,
    #[command(flatten)]
    pub running: RunningArgs,
}

#[derive(Debug, Args)]
pub struct ExplainArgs {
    /// A file or a key of the table.
    pub name: String,
    /// The table or the root of tables that it is in.
    #[arg(long = "in", value_name = "LOCATION", default_value = ".")]
    pub location: String,
    /// Explain for this destination instead of in place.
    #[arg(long, value_name = "LOCATION")]
    pub out: Option<String>,
    #[command(flatten)]
    pub planning: PlanningArgs,
    #[command(flatten)]
    pub writing: WritingArgs,
}

/// How the source is read and cut.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Planning")]
pub struct PlanningArgs {
    /// What the location is taken for, where its folders do not tell.
    #[arg(long = "as", value_name = "KIND")]
    pub layout_as: Option<LayoutAs>,
    /// Largest sum of input bytes of one output file; a larger input stays alone.
    #[arg(long, value_name = "SIZE", default_value = "500MiB", value_parser = parse_size)]
    pub target_size: u64,
    /// In place, leave stretches of fewer files as they are.
    #[arg(long, value_name = "N", default_value_t = 2)]
    pub min_input_files: u32,
    /// Only keys that match: a pattern with * and ?, or COLUMN=PATTERN for Hive folders. May be repeated: all must hold.
    #[arg(long = "where", value_name = "CONDITION")]
    pub conditions: Vec<String>,
    /// Stop planning when the inputs of the jobs add up to this.
    #[arg(long, value_name = "SIZE", value_parser = parse_size)]
    pub max_bytes: Option<u64>,
    /// Write files anew that are already right.
    #[arg(long)]
    pub rewrite: bool,
    /// Merge differing schemas of a key by field id or name: a missing column is null, order and nullability may
    /// differ, types may not. Without it such a key is refused with a report.
    #[arg(long)]
    pub evolve: bool,
    /// Keep only the first of equal rows of a key: in all tables, or in the named ones. NaN equals NaN, null equals null.
    #[arg(long, value_name = "TABLE,...", num_args = 0..=1, require_equals = true, default_missing_value = "*")]
    pub dedup: Option<String>,
}

/// How output files are written.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Writing")]
pub struct WritingArgs {
    /// Compression of the output.
    #[arg(long, value_enum, default_value_t = CodecName::Zstd)]
    pub codec: CodecName,
    /// Level of the codec, where it has levels; zstd: 3.
    #[arg(long, value_name = "N", allow_negative_numbers = true)]
    pub codec_level: Option<i32>,
    /// Size of a row group in memory.
    #[arg(long, value_name = "SIZE", default_value = "128MiB", value_parser = parse_size)]
    pub row_group_bytes: u64,
    /// Size of a page where content-defined cuts are off.
    #[arg(long, value_name = "SIZE", default_value = "1MiB", value_parser = parse_size)]
    pub page_bytes: u64,
    /// Largest dictionary of a column chunk; 0 writes none.
    #[arg(long, value_name = "SIZE", default_value = "1MiB", value_parser = parse_size)]
    pub dictionary_bytes: u64,
    /// Bloom filters for these columns (dotted paths). By default the columns that have one in the inputs keep one.
    #[arg(long = "bloom-filter", value_name = "COLUMN")]
    pub bloom_filters: Vec<String>,
    /// Write no bloom filters.
    #[arg(long, conflicts_with = "bloom_filters")]
    pub no_bloom_filters: bool,
    /// False-positive probability of bloom filters.
    #[arg(long, value_name = "P", default_value_t = 0.01)]
    pub bloom_filter_fpp: f64,
    /// Cut pages by size instead of by content.
    #[arg(long)]
    pub no_cdc: bool,
    /// Smallest content-defined piece.
    #[arg(long, value_name = "SIZE", default_value = "256KiB", value_parser = parse_size)]
    pub cdc_min: u64,
    /// Largest content-defined piece.
    #[arg(long, value_name = "SIZE", default_value = "1MiB", value_parser = parse_size)]
    pub cdc_max: u64,
    /// Evenness of content-defined pieces.
    #[arg(long, value_name = "N", default_value_t = 0, allow_negative_numbers = true)]
    pub cdc_norm: i32,
    /// Longest minimum and maximum of text and bytes in statistics; 0 never cuts.
    #[arg(long, value_name = "BYTES", default_value_t = 64)]
    pub statistics_truncate: u32,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum CodecName {
    Zstd,
    Snappy,
    Lz4,
    Gzip,
    Brotli,
    None,
}

/// How the work is done.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Running")]
pub struct RunningArgs {
    /// Jobs at once; by default one per core.
    #[arg(long, value_name = "N")]
    pub jobs: Option<usize>,
    /// Memory for all jobs together; by default half of the machine's.
    #[arg(long, value_name = "SIZE", value_parser = parse_size)]
    pub memory: Option<u64>,
    /// Folder for the state of runs on object stores, and for spilled data. By default the user's state directory.
    #[arg(long, value_name = "DIR", env = "BALER_STATE")]
    pub state: Option<PathBuf>,
    /// Start no more jobs after this time (2026-03-01T06:00:00Z) or this long (2h); what is verified is committed, the
    /// next run takes up the rest.
    #[arg(long, value_name = "TIME", value_parser = parse_until)]
    pub until: Option<Duration>,
    /// Decode each job in a child process with a memory limit, so that a hostile file costs one attempt.
    #[arg(long, overrides_with = "no_isolate")]
    pub isolate: bool,
    /// Decode in this process, which is the default here.
    #[arg(long, overrides_with = "isolate")]
    pub no_isolate: bool,
    /// Print the result for machines.
    #[arg(long)]
    pub json: bool,
}

/// Where a cluster is reached.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Cluster")]
pub struct ClusterArgs {
    /// Let a cluster do it: the addresses of its coordinators, whichever leads.
    #[arg(long, value_name = "URL,...", value_delimiter = ',', env = "BALER_COORDINATOR")]
    pub coordinator: Vec<String>,
    /// How long to look for a coordinator that leads.
    #[arg(long, value_name = "DURATION", default_value = "2m", value_parser = parse_duration)]
    pub wait: Duration,
    #[command(flatten)]
    pub tls: TlsArgs,
}

/// Certificates for connections.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Cluster")]
pub struct TlsArgs {
    /// Certificates of the authority that the other side's certificate must be from, in PEM.
    #[arg(long, value_name = "FILE", env = "BALER_TLS_CA")]
    pub tls_ca: Option<PathBuf>,
    /// This side's certificate, in PEM.
    #[arg(long, value_name = "FILE", env = "BALER_TLS_CERT", requires = "tls_key")]
    pub tls_cert: Option<PathBuf>,
    /// The key of this side's certificate, in PEM.
    #[arg(long, value_name = "FILE", env = "BALER_TLS_KEY", requires = "tls_cert")]
    pub tls_key: Option<PathBuf>,
}

#[derive(Debug, Args)]
pub struct CoordinatorArgs {
    /// The etcd servers that keep the state of the cluster.
    #[arg(long, value_name = "URL,...", value_delimiter = ',', env = "BALER_ETCD", conflicts_with = "state")]
    pub etcd: Option<Vec<String>>,
    /// Keep the state in this file instead: for a cluster with a single coordinator.
    #[arg(long, value_name = "FILE")]
    pub state: Option<PathBuf>,
    /// Where workers and users are listened to. Addresses other than loopback need certificates.
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:7070", value_parser = crate::cluster::parse_listen)]
    pub listen: std::net::SocketAddr,
    /// Where workers and users reach this coordinator, where that is another address.
    #[arg(long, value_name = "URL")]
    pub advertise: Option<String>,
    /// A place that may be touched, by the name that messages call it. May be repeated.
    #[arg(long = "store", value_name = "NAME=URL", required = true, value_parser = crate::cluster::parse_store)]
    pub stores: Vec<crate::cluster::NamedStore>,
    /// How long the others wait after this coordinator fell silent while it led.
    #[arg(long, value_name = "DURATION", default_value = "10s", value_parser = parse_duration)]
    pub lease_ttl: Duration,
    /// How long a job stays with a worker that is silent.
    #[arg(long, value_name = "DURATION", default_value = "30s", value_parser = parse_duration)]
    pub worker_lease: Duration,
    #[command(flatten)]
    pub tls: TlsArgs,
}

#[derive(Debug, Args)]
pub struct WorkerArgs {
    /// The addresses of the coordinators, whichever leads.
    #[arg(long, value_name = "URL,...", value_delimiter = ',', required = true, env = "BALER_COORDINATOR")]
    pub coordinator: Vec<String>,
    /// A place that may be touched, by the name that messages call it. May be repeated.
    #[arg(long = "store", value_name = "NAME=URL", required = true, value_parser = crate::cluster::parse_store)]
    pub stores: Vec<crate::cluster::NamedStore>,
    /// Jobs at once; by default one per core.
    #[arg(long, value_name = "N")]
    pub slots: Option<usize>,
    /// Memory for all jobs together; by default half of the machine's.
    #[arg(long, value_name = "SIZE", value_parser = parse_size)]
    pub memory: Option<u64>,
    /// Folder for spilled data.
    #[arg(long, value_name = "DIR")]
    pub spill: Option<PathBuf>,
    /// Decode in this process instead of in a child with a memory limit.
    #[arg(long)]
    pub no_isolate: bool,
    #[command(flatten)]
    pub tls: TlsArgs,
}

#[derive(Debug, Args)]
pub struct WatchArgs {
    /// The name that `compact --coordinator … --detach` printed.
    pub submission: String,
    #[command(flatten)]
    pub cluster: ClusterArgs,
    /// Print the result for machines.
    #[arg(long)]
    pub json: bool,
}

#[derive(Debug, Args)]
pub struct SubmissionArgs {
    /// The name that `compact --coordinator … --detach` printed.
    pub submission: String,
    #[command(flatten)]
    pub cluster: ClusterArgs,
}

#[derive(Debug, Args)]
pub struct WorkerNameArgs {
    /// The name of the worker, as `baler status --coordinator` shows it.
    pub worker: String,
    #[command(flatten)]
    pub cluster: ClusterArgs,
}

#[derive(Debug, Args)]
pub struct StatusArgs {
    /// A table, or a root of tables; with --coordinator none is needed.
    #[arg(required_unless_present = "coordinator")]
    pub location: Option<String>,
    #[command(flatten)]
    pub cluster: ClusterArgs,
    /// Print for machines.
    #[arg(long)]
    pub json: bool,
}

#[derive(Debug, Args)]
pub struct LocationArgs {
    /// A table, or a root of tables.
    pub location: String,
    /// Folder for the state of runs on object stores.
    #[arg(long, value_name = "DIR", env = "BALER_STATE")]
    pub state: Option<PathBuf>,
    /// Print for machines.
    #[arg(long)]
    pub json: bool,
}

#[derive(Debug, Args)]
pub struct VerifyArgs {
    /// A table, or a root of tables.
    pub location: String,
    /// Read the inputs again too, where they still exist, and compare.
    #[arg(long)]
    pub inputs: bool,
    /// Print for machines.
    #[arg(long)]
    pub json: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum FilesFormat {
    List,
    Json,
    Sql,
}

#[derive(Debug, Args)]
pub struct FilesArgs {
    /// A table, or a root of tables.
    pub location: String,
    /// An earlier generation instead of the newest.
    #[arg(long, value_name = "N")]
    pub generation: Option<u64>,
    /// A path a line, JSON, or a query that reads exactly these files.
    #[arg(long, value_enum, default_value_t = FilesFormat::List)]
    pub format: FilesFormat,
}

#[derive(Debug, Args)]
pub struct ReleaseArgs {
    /// The table.
    pub location: String,
    /// Why it may be touched again; kept in the audit list.
    #[arg(long, value_name = "TEXT")]
    pub reason: String,
    /// Folder for the state of runs on object stores.
    #[arg(long, value_name = "DIR", env = "BALER_STATE")]
    pub state: Option<PathBuf>,
}

#[derive(Debug, Args)]
pub struct GcArgs {
    /// A table, or a root of tables.
    pub location: String,
    /// Remove what is reported.
    #[arg(long)]
    pub delete: bool,
    /// How long superseded files are kept.
    #[arg(long, value_name = "DURATION", default_value = "7d", value_parser = parse_duration)]
    pub retention: Duration,
    /// Remove sources of LOCATION whose verified rows are in this destination.
    #[arg(long, value_name = "LOCATION")]
    pub replaced_by: Option<String>,
    /// Folder for the state of runs on object stores.
    #[arg(long, value_name = "DIR", env = "BALER_STATE")]
    pub state: Option<PathBuf>,
    /// Print for machines.
    #[arg(long)]
    pub json: bool,
}

#[derive(Debug, Args)]
pub struct FsckArgs {
    /// A table, or a root of tables; with --coordinator the cluster looks over its state and its tables.
    #[arg(required_unless_present = "coordinator")]
    pub location: Option<String>,
    #[command(flatten)]
    pub cluster: ClusterArgs,
    /// Compare the SHA-256 of every file that Baler wrote too.
    #[arg(long)]
    pub full: bool,
    /// Print for machines.
    #[arg(long)]
    pub json: bool,
}

#[derive(Debug, Args)]
pub struct DemoDataArgs {
    /// Folder to make; it must not exist or be empty.
    pub folder: PathBuf,
}

#[cfg(test)]
mod tests;
