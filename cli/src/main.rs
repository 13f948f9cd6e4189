//! The `baler` command: reads the command line, joins the crates, says what came of it.

mod args;
mod compact;
mod request;
mod work;

use std::process::ExitCode;

use baler_common::model::error::Failure;
use baler_coordinator::state::StateError;
use clap::{CommandFactory, Parser};

use args::sizes::show_size;
use args::{Cli, Command, CompactArgs};
use compact::{CompactError, Places, TableResult, compact_table, plan_table};

/// At least one key was refused or failed, or a check did not hold.
const INCOMPLETE: u8 = 1;
/// The command line is wrong.
const USAGE: u8 = 2;
/// Another run holds the table.
const HELD: u8 = 75;

fn main() -> ExitCode {
    let cli = Cli::parse();
    let filter = tracing_subscriber::EnvFilter::try_new(&cli.log).unwrap_or_default();
    tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr).init();
    match cli.command {
        Command::Compact(args) => compact_command(&args),
        Command::KillPoints => {
            baler_common::runtime::killpoint::ALL.iter().for_each(|name| println!("{name}"));
            ExitCode::SUCCESS
        }
        Command::Completions { shell } => {
            clap_complete::generate(shell, &mut Cli::command(), "baler", &mut std::io::stdout());
            ExitCode::SUCCESS
        }
        _ => {
            eprintln!("error: this command is not there yet");
            ExitCode::from(USAGE)
        }
    }
}

fn compact_command(args: &CompactArgs) -> ExitCode {
    let runtime = match tokio::runtime::Builder::new_multi_thread().enable_all().worker_threads(2).build() {
        Ok(runtime) => runtime,
        Err(error) => {
            eprintln!("error: start: {error}");
            return ExitCode::from(INCOMPLETE);
        }
    };
    match compact_tables(args, &runtime) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::from(INCOMPLETE),
        Err(failure) => {
            eprintln!("error: {failure}");
            ExitCode::from(INCOMPLETE)
        }
    }
}

/// Compacts all tables of a location. True when all of it was done.
fn compact_tables(args: &CompactArgs, runtime: &tokio::runtime::Runtime) -> Result<bool, Failure> {
    let places = Places::open(&args.source, args.out.as_deref(), args.allow_torn_reads, !args.dry_run)?;
    let staging = baler_common::model::object::ObjectRef::new("target", "");
    let options = request::plan_options(&args.planning, &args.writing, places.publish, staging)?;
    let snapshots = places.scan(request::root_as(args.planning.layout_as))?;
    if snapshots.is_empty() {
        println!("{}: no *.parquet file was found, so there is nothing to do", places.source.location());
        return Ok(true);
    }
    let resources = request::resources(&args.running);
    let mut complete = true;
    for snapshot in &snapshots {
        let plan = plan_table(&places, snapshot, &options)?;
        let done = runtime.block_on(compact_table(
            &places,
            snapshot,
            plan,
            &resources,
            args.running.state.as_ref(),
            |_progress| {},
        ));
        match done {
            Ok(result) => {
                complete &= result.is_complete();
                show(&result);
            }
            Err(CompactError::State(StateError::Held { path })) => {
                eprintln!("error: {}", StateError::Held { path });
                std::process::exit(HELD.into());
            }
            Err(error) => {
                complete = false;
                eprintln!("error: table {}: {error}", snapshot.table);
            }
        }
    }
    Ok(complete)
}

fn show(result: &TableResult) {
    let TableResult { plan, committed, failed, untouched, adopted, ran, elapsed } = result;
    println!("table {}", plan.table);
    for note in &plan.notes {
        println!("  note: {note}");
    }
    println!(
        "  jobs: {ran} run, {adopted} taken over, {} failed, {untouched} left, in {:.1} s",
        failed.len(),
        elapsed.as_secs_f64()
    );
    for refusal in &plan.refusals {
        println!("  refused: key {}: {}", refusal.key, refusal.failure);
    }
    for (job, failure) in failed {
        let key = plan.jobs.get(job.0 as usize).map_or("?", |spec| spec.key.as_str());
        println!("  failed: key {key}: {failure}");
    }
    for kept in &committed.kept {
        println!("  kept as it was: key {}: {}", kept.key, kept.reason);
    }
    let before: u64 = plan.keys.iter().map(|key| key.bytes).sum();
    if let Some(generation) = &committed.generation {
        let after: u64 = generation.live.iter().map(|file| file.bytes).sum();
        println!("  generation {}: {} -> {}", generation.generation, show_size(before), show_size(after));
    }
    if let Some(checks) = &committed.checks {
        for line in checks.to_string().lines() {
            println!("  {line}");
        }
        println!(
            "  {}",
            if checks.passed() { "all four checks hold" } else { "A CHECK DOES NOT HOLD: the table is stopped" }
        );
    }
}
