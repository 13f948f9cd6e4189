//! Runs tables one after the other, shows each, and adds up whether all was well.

use std::sync::Mutex;

use baler_common::model::error::{Failure, FailureClass};
use baler_common::model::object::ObjectRef;
use baler_coordinator::driver::{RunProgress, Settings};
use baler_coordinator::plan::{Plan, TableSnapshot};
use baler_coordinator::state::StateError;
use baler_coordinator::table::directory::{checks, swap};
use serde_json::{Value, json};

use crate::args::{CompactArgs, RunningArgs};
use crate::plan::print_plans;
use crate::request;
use crate::show::progress::ProgressView;
use crate::show::{Style, compaction, say};
use crate::tables::{finish_interrupted, finish_swaps, hold};
use crate::work::{LocalWorkers, Resources};
use baler_coordinator::compaction::{CompactError, Places, TableResult, compact_table, now_ms, plan_table};

/// What is shared by the tables of one command, and what came of them so far.
pub struct Running<'a> {
    args: &'a RunningArgs,
    resources: Resources,
    runtime: tokio::runtime::Runtime,
    results: Vec<TableResult>,
    /// Tables that could not be compacted at all, with the reason.
    errors: Vec<(String, String)>,
}

impl<'a> Running<'a> {
    pub fn new(args: &'a RunningArgs) -> Result<Self, Failure> {
        Ok(Self {
            args,
            resources: request::resources(args),
            runtime: runtime()?,
            results: Vec::new(),
            errors: Vec::new(),
        })
    }

    /// Finishes what an earlier run began in the destination, so that it is planned on what is really there.
    pub fn finish_interrupted(&self, places: &Places) -> Result<(), CompactError> {
        self.runtime.block_on(finish_interrupted(&places.target, self.args.state.as_ref()))
    }

    /// Prints what is printed at the end. True when every table is complete.
    pub fn finish(self) -> bool {
        let complete = self.errors.is_empty() && self.results.iter().all(TableResult::is_complete);
        if self.args.json {
            let tables: Vec<Value> = self.results.iter().map(compaction::table_json).collect();
            let errors: Vec<Value> =
                self.errors.iter().map(|(table, message)| json!({"table": table, "message": message})).collect();
            say(json!({"complete": complete, "tables": tables, "errors": errors}));
        } else if self.results.len() > 1 {
            say(compaction::total(&self.results, Style::of_standard_output()));
        }
        complete
    }
}

/// A runtime for one command.
pub fn runtime() -> Result<tokio::runtime::Runtime, Failure> {
    tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .worker_threads(2)
        .build()
        .map_err(|error| Failure::new(FailureClass::Transient, format!("start the runtime: {error}")))
}

/// `baler compact`. True when all of it was done.
pub fn compact(args: &CompactArgs) -> Result<bool, CompactError> {
    if args.out.is_none() && !args.dry_run {
        runtime()?.block_on(finish_swaps(&args.source, args.running.state.as_ref()))?;
    }
    let places = Places::open(&args.source, args.out.as_deref(), args.allow_torn_reads, !args.dry_run)?;
    let options = request::plan_options(&args.planning, &args.writing, places.publish, ObjectRef::new("target", ""))?;
    if args.swap && places.source.local_path().is_none() {
        let message = "--swap exchanges directories, which only a local disk can: leave it out";
        return Err(Failure::new(FailureClass::Policy, message).in_file(&args.source).into());
    }
    let mut running = Running::new(&args.running)?;
    if !args.dry_run {
        running.finish_interrupted(&places)?;
    }
    let snapshots = places.scan(request::root_as(args.planning.layout_as))?;
    if snapshots.is_empty() && !args.running.json {
        say(format!("{}: no *.parquet file was found, so there is nothing to do", places.source.location()));
    }
    if args.dry_run {
        let plans =
            snapshots.iter().map(|snapshot| plan_table(&places, snapshot, &options)).collect::<Result<Vec<_>, _>>()?;
        print_plans(&plans, args.running.json);
        return Ok(plans.iter().all(|plan| plan.refusals.is_empty()));
    }
    for snapshot in &snapshots {
        let plan = plan_table(&places, snapshot, &options)?;
        run_table(&mut running, &places, snapshot, plan)?;
    }
    let mut complete = true;
    if args.swap {
        for snapshot in &snapshots {
            complete &= exchange(&mut running, &places, snapshot)?;
        }
    }
    Ok(running.finish() && complete)
}

/// Gives the live files of a table that was compacted in place their plain names. True when the checks hold afterwards.
fn exchange(running: &mut Running<'_>, places: &Places, snapshot: &TableSnapshot) -> Result<bool, CompactError> {
    let name = &snapshot.table;
    if running.errors.iter().any(|(table, _)| table == name) {
        return Ok(false);
    }
    let Some(root) = places.source.local_path() else { return Ok(true) };
    let path = if snapshot.folder.is_empty() { root } else { root.join(&snapshot.folder) };
    let _leadership = running.runtime.block_on(hold(&places.target_table(snapshot), running.args.state.as_ref()))?;
    let swapped = match swap::swap(&path, now_ms(), &checks::rows_in_footer) {
        Ok(swapped) => swapped,
        Err(failure) => {
            eprintln!("error: table {name}: {failure}");
            running.errors.push((name.clone(), failure.to_string()));
            return Ok(false);
        }
    };
    let Some(swapped) = swapped else { return Ok(true) };
    if !running.args.json {
        say(format!("table {name}: generation {} gives the files their plain names", swapped.generation.generation));
        swapped.checks.to_string().lines().for_each(|line| say(format!("  {line}")));
    }
    Ok(swapped.checks.passed())
}

/// Runs one table to its commit and shows what came of it. A table that cannot be compacted is noted, and the others go
/// on.
///
/// # Errors
/// Another process holds the table.
pub fn run_table(
    running: &mut Running<'_>,
    places: &Places,
    snapshot: &TableSnapshot,
    plan: Plan,
) -> Result<(), CompactError> {
    let json = running.args.json;
    let mut view = ProgressView::new(&snapshot.table, json);
    let workers =
        LocalWorkers { resources: &running.resources, show: Mutex::new(|progress: RunProgress| view.update(progress)) };
    let done = running.runtime.block_on(async {
        let leadership = hold(&places.target_table(snapshot), running.args.state.as_ref()).await?;
        compact_table(places, snapshot, plan, leadership, &workers, Settings::default()).await
    });
    view.finish();
    match done {
        Ok(result) => {
            if !json {
                say(compaction::text(&result, Style::of_standard_output()).trim_end());
            }
            running.results.push(result);
        }
        Err(CompactError::State(StateError::Held { path })) => {
            return Err(CompactError::State(StateError::Held { path }));
        }
        Err(error) => {
            eprintln!("error: table {}: {error}", snapshot.table);
            running.errors.push((snapshot.table.clone(), error.to_string()));
        }
    }
    Ok(())
}
