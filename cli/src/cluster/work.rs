//! `baler worker`: does what the leader hands out, and keeps nothing of its own.

use std::sync::Arc;

use baler_coordinator::compaction::CompactError;
use baler_worker::attempt::run_attempt;
use baler_worker::connection::Connection;
use baler_worker::session::{RunAttempt, Session};
use baler_worker::slots::Slots;
use tokio::sync::watch;

use super::{client_tls, open_stores};
use crate::args::WorkerArgs;
use crate::compaction::runtime;
use crate::isolation::run_in_child;
use crate::request::machine_memory;

/// `baler worker`. Ends when it was asked to, by a signal or by the coordinator.
pub fn worker(args: &WorkerArgs) -> Result<bool, CompactError> {
    let stores = Arc::new(open_stores(&args.stores)?);
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let memory = args.memory.unwrap_or_else(|| machine_memory() / 2);
    let spill = args.spill.clone().unwrap_or_else(std::env::temp_dir);
    let slots = Slots::new(args.slots.unwrap_or(cores).max(1), cores, memory, spill);
    let isolate = !args.no_isolate;
    let run: RunAttempt = Arc::new(move |assignment, context| match isolate {
        true => run_in_child(&stores, assignment, context),
        false => run_attempt(&stores, assignment, context),
    });
    runtime()?.block_on(async {
        let connection = Connection::new(&args.coordinator, client_tls(&args.tls)?)?;
        let session = Session::new(Arc::new(connection), run, slots).impatient();
        println!("worker {}", session.name());
        let (drain, draining) = watch::channel(false);
        tokio::spawn(async move {
            crate::work::interrupted().await;
            tracing::warn!("asked to end: running attempts end first, or are given up after a while");
            let _ = drain.send(true);
            crate::work::interrupted().await;
            std::process::exit(130);
        });
        session.run(draining).await
    })?;
    Ok(true)
}
