//! What a user asks of a cluster. Whichever coordinator is asked, the leader answers; a change of leader costs time only.

use std::collections::HashSet;
use std::time::{Duration, Instant};

use baler_common::model::error::{Failure, FailureClass};
use baler_common::model::object::ObjectRef;
use baler_common::runtime::random::random_u64;
use baler_coordinator::compaction::CompactError;
use baler_coordinator::driver::RunProgress;
use baler_coordinator::plan::PublishMode;
use baler_coordinator::submissions::spec::spec_of;
use baler_proto::v1::cluster_client::ClusterClient;
use baler_proto::v1::compactions_client::CompactionsClient;
use baler_proto::{LEADER_KEY, v1};
use serde_json::{Value, json};
use tonic::transport::{Channel, ClientTlsConfig, Endpoint};
use tonic::{Code, Status};

use super::client_tls;
use crate::args::{ClusterArgs, CompactArgs, SubmissionArgs, WatchArgs, WorkerNameArgs};
use crate::compaction::runtime;
use crate::request;
use crate::show::progress::ProgressView;
use crate::show::say;

/// How long a coordinator may take to answer.
const CALL_MAX: Duration = Duration::from_secs(10);
/// After this much silence a watcher asks again: a leader that stands still keeps its connections open.
const SILENCE_MAX: Duration = Duration::from_secs(8);
/// Pause before the next coordinator is asked.
const AGAIN_AFTER: Duration = Duration::from_millis(300);
/// Largest answer that is read, in bytes.
const REPLY_BYTES_MAX: usize = 64 << 20;

/// The coordinators of a cluster, as a user reaches them.
struct Coordinators {
    addresses: Vec<String>,
    tls: Option<ClientTlsConfig>,
    /// How long it is tried to reach a leader.
    patience: Duration,
    current: usize,
}

impl Coordinators {
    fn new(args: &ClusterArgs) -> Result<Self, Failure> {
        Ok(Self { addresses: args.coordinator.clone(), tls: client_tls(&args.tls)?, patience: args.wait, current: 0 })
    }

    async fn channel(&self, address: &str) -> Result<Channel, Failure> {
        let wrong = |error: tonic::transport::Error| {
            Failure::new(FailureClass::Policy, format!("{address:?} is not the address of a coordinator: {error}"))
        };
        let mut endpoint = Endpoint::from_shared(address.to_owned()).map_err(wrong)?;
        if let Some(tls) = &self.tls {
            endpoint = endpoint.tls_config(tls.clone()).map_err(wrong)?;
        }
        Ok(endpoint
            .connect_timeout(Duration::from_secs(3))
            .http2_keep_alive_interval(Duration::from_secs(10))
            .keep_alive_timeout(Duration::from_secs(5))
            .connect_lazy())
    }

    /// Asks until a leader answers, or refuses for a reason that will not pass.
    async fn ask<T>(&mut self, mut question: impl AsyncFnMut(Channel) -> Result<T, Status>) -> Result<T, Failure> {
        let started = Instant::now();
        loop {
            let address = self.addresses[self.current].clone();
            let channel = self.channel(&address).await?;
            let asked = tokio::time::timeout(CALL_MAX, question(channel)).await;
            let status = match asked {
                Ok(Ok(answer)) => return Ok(answer),
                Ok(Err(status)) => status,
                Err(_) => Status::unavailable("no answer in time"),
            };
            if !passes(&status) {
                return Err(refusal(&status, &address));
            }
            if started.elapsed() > self.patience {
                let message = format!("no coordinator leads that could answer: {address}: {}", status.message());
                return Err(Failure::new(FailureClass::Transient, message));
            }
            self.turn(&status);
            tokio::time::sleep(AGAIN_AFTER).await;
        }
    }

    /// Turns to the leader that was named, else to the next address.
    fn turn(&mut self, status: &Status) {
        let leader = status.metadata().get(LEADER_KEY).and_then(|value| value.to_str().ok());
        let place = leader.map(|leader| {
            self.addresses.iter().position(|address| address == leader).unwrap_or_else(|| {
                self.addresses.push(leader.to_owned());
                self.addresses.len() - 1
            })
        });
        self.current = place.unwrap_or((self.current + 1) % self.addresses.len());
    }
}

/// Whether another try may help.
fn passes(status: &Status) -> bool {
    matches!(
        status.code(),
        Code::Unavailable | Code::DeadlineExceeded | Code::Unknown | Code::Internal | Code::Aborted | Code::Cancelled
    )
}

fn refusal(status: &Status, address: &str) -> Failure {
    Failure::new(FailureClass::Policy, format!("{address}: {}", status.message()))
}

fn compactions(channel: Channel) -> CompactionsClient<Channel> {
    CompactionsClient::new(channel).max_decoding_message_size(REPLY_BYTES_MAX)
}

/// Refuses what only a single machine can do.
pub fn plan_is_local(args: &CompactArgs) -> Result<(), Failure> {
    let local = [
        (args.swap, "--swap"),
        (args.dry_run, "--dry-run"),
        (args.running.jobs.is_some(), "--jobs"),
        (args.running.until.is_some(), "--until"),
    ];
    match local.iter().find(|(given, _)| *given) {
        Some((_, flag)) => {
            Err(Failure::new(FailureClass::Policy, format!("{flag} is for one machine: leave it or --coordinator out")))
        }
        None => Ok(()),
    }
}

/// `baler compact --coordinator`: submits, and watches to the end.
pub fn compact(args: &CompactArgs) -> Result<bool, CompactError> {
    plan_is_local(args)?;
    let publish = match (&args.out, args.allow_torn_reads) {
        (Some(_), _) => PublishMode::Destination,
        (None, true) => PublishMode::TornReads,
        (None, false) => PublishMode::InPlace,
    };
    let options = request::plan_options(&args.planning, &args.writing, publish, ObjectRef::new("target", ""))?;
    let root_as = request::root_as(args.planning.layout_as);
    let spec = spec_of(located(&args.source), args.out.as_deref().map(located), root_as, &options);
    let key = args.idempotency_key.clone().unwrap_or_else(|| format!("{:016x}{:016x}", random_u64(), random_u64()));
    let mut coordinators = Coordinators::new(&args.cluster)?;
    runtime()?.block_on(async {
        let request = v1::SubmitRequest { spec: Some(spec), idempotency_key: key };
        let reply = coordinators
            .ask(async |channel| Ok(compactions(channel).submit(request.clone()).await?.into_inner()))
            .await?;
        if args.detach {
            say(&reply.submission);
            return Ok(true);
        }
        follow(&mut coordinators, &reply.submission, args.running.json).await
    })
}

/// A path as the coordinator's stores are written: a local one is absolute.
fn located(location: &str) -> String {
    if location.contains("://") {
        return location.to_owned();
    }
    std::path::absolute(location).map_or_else(|_| location.to_owned(), |path| path.display().to_string())
}

/// Watches a submission to its end. True when all of it was done.
async fn follow(coordinators: &mut Coordinators, name: &str, json: bool) -> Result<bool, CompactError> {
    let mut view = ProgressView::new(name, json);
    let mut told = HashSet::new();
    let ended = loop {
        let request = v1::WatchRequest { submission: name.to_owned() };
        let mut stream = coordinators
            .ask(async |channel| Ok(compactions(channel).watch(request.clone()).await?.into_inner()))
            .await?;
        let last = loop {
            let Ok(told_now) = tokio::time::timeout(SILENCE_MAX, stream.message()).await else { break None };
            match told_now {
                Ok(Some(now)) => {
                    view.update(progress(&now));
                    for table in &now.tables {
                        if told.insert(table.table.clone()) && !json {
                            say(table.text.trim_end());
                        }
                    }
                    if matches!(now.state(), v1::SubmissionState::Done | v1::SubmissionState::Cancelled) {
                        break Some(now);
                    }
                }
                // The leader went away: the next one knows the submission too.
                Ok(None) => break None,
                Err(status) if passes(&status) => {
                    coordinators.turn(&status);
                    break None;
                }
                Err(status) => return Err(refusal(&status, name).into()),
            }
        };
        if let Some(ended) = last {
            break ended;
        }
        tokio::time::sleep(AGAIN_AFTER).await;
    };
    view.finish();
    if json {
        say(submission_json(&ended));
    } else if !ended.reason.is_empty() {
        eprintln!("error: submission {name}: {}", ended.reason);
    }
    Ok(ended.complete)
}

fn progress(submission: &v1::Submission) -> RunProgress {
    let figures = submission.figures.unwrap_or_default();
    RunProgress {
        jobs: figures.jobs,
        verified: figures.verified,
        quarantined: figures.quarantined,
        running: figures.running,
        bytes: figures.bytes,
        rows: figures.rows,
        bytes_done: figures.bytes_done,
        rows_done: figures.rows_done,
    }
}

fn submission_json(submission: &v1::Submission) -> Value {
    let tables: Vec<Value> = submission
        .tables
        .iter()
        .map(|table| serde_json::from_str(&table.json).unwrap_or_else(|_| json!({"table": table.table})))
        .collect();
    json!({
        "submission": submission.submission,
        "state": state_name(submission.state()),
        "source": submission.spec.as_ref().map(|spec| &spec.source),
        "out": submission.spec.as_ref().and_then(|spec| spec.out.as_ref()),
        "complete": submission.complete,
        "reason": submission.reason,
        "jobs": submission.figures.map(|figures| json!({
            "all": figures.jobs, "verified": figures.verified, "running": figures.running, "failed": figures.quarantined,
        })),
        "tables": tables,
    })
}

fn state_name(state: v1::SubmissionState) -> &'static str {
    match state {
        v1::SubmissionState::Unspecified => "unknown",
        v1::SubmissionState::Running => "running",
        v1::SubmissionState::Paused => "paused",
        v1::SubmissionState::Done => "done",
        v1::SubmissionState::Cancelled => "cancelled",
    }
}

/// `baler watch`. True when all of the submission was done.
pub fn watch(args: &WatchArgs) -> Result<bool, CompactError> {
    let mut coordinators = Coordinators::new(&args.cluster)?;
    runtime()?.block_on(follow(&mut coordinators, &args.submission, args.json))
}

/// `baler cancel`.
pub fn cancel(args: &SubmissionArgs) -> Result<bool, CompactError> {
    control(args, v1::Control::Cancel)
}

/// `baler pause`.
pub fn pause(args: &SubmissionArgs) -> Result<bool, CompactError> {
    control(args, v1::Control::Pause)
}

/// `baler resume`.
pub fn resume(args: &SubmissionArgs) -> Result<bool, CompactError> {
    control(args, v1::Control::Resume)
}

fn control(args: &SubmissionArgs, control: v1::Control) -> Result<bool, CompactError> {
    let mut coordinators = Coordinators::new(&args.cluster)?;
    let request = v1::ControlRequest { submission: args.submission.clone(), control: control.into() };
    let now = runtime()?.block_on(
        coordinators.ask(async |channel| Ok(compactions(channel).control(request.clone()).await?.into_inner())),
    )?;
    say(format!("submission {} is {}", now.submission, state_name(now.state())));
    Ok(true)
}

/// `baler drain`.
pub fn drain(args: &WorkerNameArgs) -> Result<bool, CompactError> {
    let mut coordinators = Coordinators::new(&args.cluster)?;
    let request = v1::DrainRequest { worker: args.worker.clone() };
    runtime()?.block_on(
        coordinators.ask(async |channel| Ok(ClusterClient::new(channel).drain(request.clone()).await?.into_inner())),
    )?;
    say(format!("worker {} ends when what it runs has ended", args.worker));
    Ok(true)
}

/// `baler status --coordinator`: submissions and workers.
pub fn list(args: &ClusterArgs, as_json: bool) -> Result<bool, CompactError> {
    let mut coordinators = Coordinators::new(args)?;
    let (submissions, workers) = runtime()?.block_on(async {
        let submissions = coordinators
            .ask(async |channel| Ok(compactions(channel).list(v1::ListRequest {}).await?.into_inner().submissions))
            .await?;
        let workers = coordinators
            .ask(async |channel| Ok(ClusterClient::new(channel).workers(v1::WorkersRequest {}).await?.into_inner()))
            .await?;
        Ok::<_, Failure>((submissions, workers))
    })?;
    if as_json {
        let worker = |worker: &v1::WorkerView| {
            json!({
                "worker": worker.worker, "free_slots": worker.free_slots, "running": worker.running,
                "draining": worker.draining, "silent_ms": worker.silent_ms,
            })
        };
        say(json!({
            "epoch": workers.epoch,
            "submissions": submissions.iter().map(submission_json).collect::<Vec<_>>(),
            "workers": workers.workers.iter().map(worker).collect::<Vec<_>>(),
        }));
        return Ok(true);
    }
    say(format!("epoch {}", workers.epoch));
    for submission in &submissions {
        let figures = submission.figures.unwrap_or_default();
        let source = submission.spec.as_ref().map_or("", |spec| &spec.source);
        say(format!(
            "submission {}  {}  {source}  {}/{} jobs, {} running, {} tables ended{}",
            submission.submission,
            state_name(submission.state()),
            figures.verified,
            figures.jobs,
            figures.running,
            submission.tables.len(),
            if submission.reason.is_empty() { String::new() } else { format!("  {}", submission.reason) },
        ));
    }
    for worker in &workers.workers {
        let draining = if worker.draining { "  draining" } else { "" };
        say(format!(
            "worker {}  {} running, {} free, heard {:.1} s ago{draining}",
            worker.worker,
            worker.running,
            worker.free_slots,
            worker.silent_ms as f64 / 1000.0
        ));
    }
    Ok(true)
}

/// `baler fsck --coordinator`. True when all is well.
pub fn check(args: &ClusterArgs, as_json: bool) -> Result<bool, CompactError> {
    let mut coordinators = Coordinators::new(args)?;
    let found = runtime()?.block_on(
        coordinators
            .ask(async |channel| Ok(ClusterClient::new(channel).check(v1::CheckRequest {}).await?.into_inner())),
    )?;
    if as_json {
        say(json!({"clean": found.findings.is_empty(), "findings": found.findings, "checked": found.checked}));
    } else {
        found.checked.iter().for_each(say);
        found.findings.iter().for_each(|line| say(format!("FAULT {line}")));
        if found.findings.is_empty() {
            say("all is well");
        }
    }
    Ok(found.findings.is_empty())
}
