//! `--isolate`: each attempt in a child process of its own, with a limit on its memory.
//!
//! A file that makes a decoder crash or eat all memory then costs one attempt and nothing else. The parent starts
//! `baler attempt`, hands it the assignment on standard input, and reads progress and the outcome, a line each, from its
//! standard output. Standard input stays open: when it closes, the parent is gone or wants the child gone, and the
//! child ends. The child is in a process group of its own, so that Ctrl-C drains the parent and does not kill it.

use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use baler_common::model::error::{Failure, FailureClass};
use baler_common::model::job::Assignment;
use baler_common::model::outcome::{Outcome, Progress, Receipt};
use baler_common::runtime::storage::{Store, Stores};
use baler_proto::v1;
use baler_worker::attempt::run_attempt;
use baler_worker::context::Context;
use prost::Message;
use serde_json::{Value, json};

/// How often a child says how far it is.
const SAY_EVERY: Duration = Duration::from_millis(250);
/// Largest message that is read, in bytes.
const MESSAGE_BYTES_MAX: u64 = 1 << 30;
/// Address space beyond the budget: code, stacks, allocator slack, and what the libraries map without using.
const SLACK_BYTES: u64 = 1 << 30;

fn lost(message: impl Into<String>) -> Failure {
    Failure::new(FailureClass::WorkerLost, message)
}

/// Runs one attempt in a child process. Blocks.
///
/// # Errors
/// What the attempt says, or [`FailureClass::WorkerLost`] when the child died.
pub fn run_in_child(stores: &Stores, assignment: &Assignment, context: &Context) -> Result<Receipt, Failure> {
    let mut child = start(stores, assignment, context)?;
    let result = listen(&mut child, context);
    if result.is_err() {
        // Dead already, or to be.
        let _ = child.kill();
    }
    let status = child.wait().map_err(|error| lost(format!("wait for the decoding process: {error}")))?;
    match result? {
        Some(outcome) => outcome.result,
        None => {
            let how = match (status.signal(), status.code()) {
                (Some(signal), _) => format!("was ended by signal {signal}"),
                (None, Some(code)) => format!("ended with code {code}"),
                (None, None) => "ended".to_owned(),
            };
            let message = format!("the decoding process {how}: the file may be broken, or --memory too small for it");
            Err(lost(message).in_file(assignment.spec.inputs.first().map_or("", |input| &input.object.path)))
        }
    }
}

fn start(stores: &Stores, assignment: &Assignment, context: &Context) -> Result<Child, Failure> {
    let mut places = Vec::new();
    for alias in stores.aliases() {
        places.push(json!({"alias": alias, "location": stores.get(alias)?.location()}));
    }
    let head = json!({
        "stores": places,
        "memory_bytes": context.memory_bytes,
        "threads": context.threads,
        "spill_folder": context.spill_folder,
    });
    let program = std::env::current_exe().map_err(|error| lost(format!("find this program: {error}")))?;
    let mut child = Command::new(program)
        .arg("attempt")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .process_group(0)
        .spawn()
        .map_err(|error| Failure::new(FailureClass::Transient, format!("start a decoding process: {error}")))?;
    let Some(input) = child.stdin.as_mut() else { return Err(lost("the decoding process has no input")) };
    let sent = send(input, head.to_string().as_bytes())
        .and_then(|()| send(input, &v1::Assignment::from(assignment).encode_to_vec()))
        .and_then(|()| input.flush());
    match sent {
        Ok(()) => Ok(child),
        // It died before it listened: its status says how.
        Err(error) if error.kind() == std::io::ErrorKind::BrokenPipe => Ok(child),
        Err(error) => {
            let _ = child.kill();
            let _ = child.wait();
            Err(lost(format!("speak to the decoding process: {error}")))
        }
    }
}

/// Reads what the child says until it ends; `None` when it ended without an outcome.
fn listen(child: &mut Child, context: &Context) -> Result<Option<Outcome>, Failure> {
    let Some(output) = child.stdout.take() else { return Err(lost("the decoding process has no output")) };
    let mut before = Progress::default();
    for line in BufReader::new(output).lines() {
        let line = line.map_err(|error| lost(format!("listen to the decoding process: {error}")))?;
        context.check_running()?;
        match line.split_once(' ') {
            Some(("progress", numbers)) => {
                let now =
                    parse_progress(numbers).ok_or_else(|| lost("the decoding process speaks another language"))?;
                context.count_read(now.read_bytes.saturating_sub(before.read_bytes));
                context.count_written(
                    now.written_bytes.saturating_sub(before.written_bytes),
                    now.written_rows.saturating_sub(before.written_rows),
                );
                context.count_verified(now.verified_rows.saturating_sub(before.verified_rows));
                before = now;
            }
            Some(("outcome", digits)) => {
                let bytes = unhex(digits).ok_or_else(|| lost("the outcome of the decoding process is cut short"))?;
                let outcome = v1::Outcome::decode(&bytes[..]).map_err(|error| lost(error.to_string()))?;
                return Outcome::try_from(outcome).map(Some);
            }
            _ => return Err(lost("the decoding process speaks another language")),
        }
    }
    Ok(None)
}

/// The child's side: `baler attempt`.
///
/// # Errors
/// The parent's words cannot be read. A failure of the attempt itself is an outcome, and no error here.
pub fn attempt() -> Result<(), Failure> {
    let mut input = std::io::stdin().lock();
    let head: Value = serde_json::from_slice(&receive(&mut input)?).map_err(|error| lost(error.to_string()))?;
    let assignment = v1::Assignment::decode(&receive(&mut input)?[..]).map_err(|error| lost(error.to_string()))?;
    let assignment = Assignment::try_from(assignment)?;
    drop(input);
    std::thread::spawn(|| {
        let _ = std::io::stdin().lock().read(&mut [0]);
        std::process::exit(1);
    });
    let number = |name: &str| head.get(name).and_then(Value::as_u64).ok_or_else(|| lost(format!("{name} is missing")));
    let memory_bytes = number("memory_bytes")?;
    limit_memory(memory_bytes.saturating_mul(2).saturating_add(SLACK_BYTES))?;
    let mut stores = Stores::default();
    for place in head.get("stores").and_then(Value::as_array).into_iter().flatten() {
        let text = |name: &str| place.get(name).and_then(Value::as_str).unwrap_or_default();
        stores.insert(Store::open(text("alias"), text("location"), false)?);
    }
    let spill = head.get("spill_folder").and_then(Value::as_str).unwrap_or("/tmp");
    let threads = usize::try_from(number("threads")?).unwrap_or(1);
    let context = Context::new(memory_bytes, threads, spill.into());

    let (done, ended) = std::sync::mpsc::channel::<()>();
    let watched = context.clone();
    let saying = std::thread::spawn(move || {
        while ended.recv_timeout(SAY_EVERY).is_err_and(|error| error == std::sync::mpsc::RecvTimeoutError::Timeout) {
            say(&format_progress(&watched.progress()));
        }
        say(&format_progress(&watched.progress()));
    });
    let result = run_attempt(&Arc::new(stores), &assignment, &context);
    drop(done);
    let _ = saying.join();
    let Assignment { compaction, epoch, attempt, spec } = assignment;
    let outcome = Outcome { compaction, epoch, attempt, job: spec.job, result };
    say(&format!("outcome {}", hex(&v1::Outcome::from(&outcome).encode_to_vec())));
    Ok(())
}

fn limit_memory(bytes: u64) -> Result<(), Failure> {
    use rustix::process::{Resource, Rlimit, setrlimit};
    setrlimit(Resource::As, Rlimit { current: Some(bytes), maximum: Some(bytes) })
        .map_err(|error| lost(format!("limit the memory of the decoding process: {error}")))
}

/// Says a line; a parent that does not listen any more is found out by its silence.
fn say(line: &str) {
    let mut output = std::io::stdout().lock();
    let _ = writeln!(output, "{line}").and_then(|()| output.flush());
}

fn send(to: &mut impl Write, message: &[u8]) -> std::io::Result<()> {
    to.write_all(&(message.len() as u64).to_le_bytes())?;
    to.write_all(message)
}

fn receive(from: &mut impl Read) -> Result<Vec<u8>, Failure> {
    let failed = |error: std::io::Error| lost(format!("listen to the parent: {error}"));
    let mut length = [0; 8];
    from.read_exact(&mut length).map_err(failed)?;
    let length = u64::from_le_bytes(length);
    if length > MESSAGE_BYTES_MAX {
        return Err(lost(format!("a message of {length} bytes is too long")));
    }
    let mut message = Vec::new();
    from.take(length).read_to_end(&mut message).map_err(failed)?;
    if message.len() as u64 != length {
        return Err(lost("the parent's message is cut short"));
    }
    Ok(message)
}

fn format_progress(progress: &Progress) -> String {
    let Progress { read_bytes, written_bytes, written_rows, verified_rows } = progress;
    format!("progress {read_bytes} {written_bytes} {written_rows} {verified_rows}")
}

fn parse_progress(numbers: &str) -> Option<Progress> {
    let numbers: Vec<u64> = numbers.split(' ').map(|number| number.parse().ok()).collect::<Option<_>>()?;
    match numbers[..] {
        [read_bytes, written_bytes, written_rows, verified_rows] => {
            Some(Progress { read_bytes, written_bytes, written_rows, verified_rows })
        }
        _ => None,
    }
}

/// Bytes as digits, for what travels in text.
pub fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Digits as bytes; `None` when they are none.
pub fn unhex(text: &str) -> Option<Vec<u8>> {
    let digits = text.as_bytes();
    if !digits.len().is_multiple_of(2) {
        return None;
    }
    digits.chunks_exact(2).map(|pair| u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn progress_and_messages_survive_the_pipe() {
        let progress = Progress { read_bytes: 1, written_bytes: 2, written_rows: 3, verified_rows: u64::MAX };
        let line = format_progress(&progress);
        assert_eq!(line.strip_prefix("progress ").and_then(parse_progress), Some(progress));
        assert_eq!((parse_progress("1 2 3"), parse_progress("1 2 3 x")), (None, None));
        let mut pipe = Vec::new();
        send(&mut pipe, b"hello").unwrap();
        assert_eq!(receive(&mut &pipe[..]).unwrap(), b"hello");
        assert!(receive(&mut &pipe[..10]).unwrap_err().message.contains("cut short"));
        assert!(receive(&mut &[0xff; 8][..]).unwrap_err().message.contains("too long"));
    }

    #[test]
    fn bytes_survive_as_digits() {
        assert_eq!(unhex(&hex(&[0, 1, 255])), Some(vec![0, 1, 255]));
        assert_eq!((unhex("0"), unhex("zz")), (None, None));
    }
}
