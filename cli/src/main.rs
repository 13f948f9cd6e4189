//! The `baler` command: reads the command line, joins the crates, says what came of it.

mod args;
mod change;
mod cluster;
mod compaction;
mod demo;
mod inspect;
mod isolation;
mod manual;
mod plan;
mod request;
mod show;
mod tables;
mod verify;
mod work;

use std::process::ExitCode;

use baler_common::runtime::killpoint;
use baler_coordinator::commit::CommitFailure;
use baler_coordinator::state::StateError;
use clap::{CommandFactory, Parser};

use args::{Cli, Command};
use baler_coordinator::compaction::CompactError;

/// At least one key was refused or failed, or a check did not hold.
const INCOMPLETE: u8 = 1;
/// The command line is wrong.
const USAGE: u8 = 2;
/// Another run holds the table, or moved it on meanwhile: try again.
const HELD: u8 = 75;

fn main() -> ExitCode {
    let cli = Cli::parse();
    let filter = match tracing_subscriber::EnvFilter::try_new(&cli.log) {
        Ok(filter) => filter,
        Err(error) => {
            eprintln!("error: --log {:?}: {error}", cli.log);
            return ExitCode::from(USAGE);
        }
    };
    if only_looks(&cli.command) {
        end_with_the_reader();
    }
    tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr).init();
    match run(cli.command) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::from(INCOMPLETE),
        Err(error) => {
            eprintln!("error: {}", chain(&error));
            ExitCode::from(code(&error))
        }
    }
}

/// Whether a command changes nothing, so that it may end at any moment.
fn only_looks(command: &Command) -> bool {
    !matches!(
        command,
        Command::Compact(_)
            | Command::Apply(_)
            | Command::Revert(_)
            | Command::Release(_)
            | Command::Gc(_)
            | Command::Coordinator(_)
            | Command::Worker(_)
    )
}

/// Ends the process quietly when the reader of its output goes away, as in `baler plan … | head`.
fn end_with_the_reader() {
    // SAFETY: called before any thread is started; the default action needs no handler of ours.
    unsafe {
        libc::signal(libc::SIGPIPE, libc::SIG_DFL);
    }
}

/// True when all that was asked for was done.
fn run(command: Command) -> Result<bool, CompactError> {
    match command {
        Command::Compact(args) if !args.cluster.coordinator.is_empty() => cluster::compact(&args),
        Command::Compact(args) => compaction::compact(&args),
        Command::Coordinator(args) => cluster::coordinator(&args),
        Command::Worker(args) => cluster::worker(&args),
        Command::Watch(args) => cluster::watch(&args),
        Command::Cancel(args) => cluster::cancel(&args),
        Command::Pause(args) => cluster::pause(&args),
        Command::Resume(args) => cluster::resume(&args),
        Command::Drain(args) => cluster::drain(&args),
        Command::Plan(args) => plan::plan(&args),
        Command::Apply(args) => plan::apply(&args),
        Command::Explain(args) => plan::explain(&args),
        Command::Status(args) => inspect::status(&args),
        Command::Verify(args) => verify::verify(&args),
        Command::Files(args) => inspect::files_of(&args),
        Command::History(args) => inspect::history(&args),
        Command::Revert(args) => change::revert(&args),
        Command::Release(args) => change::release(&args),
        Command::Gc(args) => change::gc(&args),
        Command::Fsck(args) => inspect::fsck(&args),
        Command::DemoData(args) => Ok(demo::make(&args.folder).map(|()| true)?),
        Command::Man { folder } => Ok(manual::print(folder.as_deref()).map(|()| true)?),
        Command::Completions { shell } => {
            clap_complete::generate(shell, &mut Cli::command(), "baler", &mut std::io::stdout());
            Ok(true)
        }
        Command::Attempt => Ok(isolation::attempt().map(|()| true)?),
        Command::KillPoints { cluster } => {
            let names = if cluster { &killpoint::CLUSTER[..] } else { &killpoint::ALL[..] };
            names.iter().for_each(|name| println!("{name}"));
            Ok(true)
        }
    }
}

fn code(error: &CompactError) -> u8 {
    match error {
        CompactError::State(StateError::Held { .. } | StateError::Fenced)
        | CompactError::Commit(CommitFailure::Moved { .. }) => HELD,
        CompactError::State(_) | CompactError::Commit(_) | CompactError::Failed(_) | CompactError::Stopped { .. } => {
            INCOMPLETE
        }
    }
}

/// An error with its causes, as one sentence.
fn chain(error: &dyn std::error::Error) -> String {
    let mut said = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        let message = error.to_string();
        if !said.contains(&message) {
            said.push_str(": ");
            said.push_str(&message);
        }
        cause = error.source();
    }
    said
}
