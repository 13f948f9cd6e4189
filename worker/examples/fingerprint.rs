//! How fast the checking reader is on a file: `cargo run --release -p baler-worker --example fingerprint FILE [TIMES]`.
//!
//! Prints the fingerprint, the time of the fastest round, and what it comes to per row and per stored byte.

use std::time::Instant;

use baler_common::runtime::storage::Source;
use baler_worker::context::Context;
use baler_worker::verify::check_stored;

fn main() {
    let mut arguments = std::env::args().skip(1);
    let Some(path) = arguments.next() else {
        eprintln!("usage: fingerprint FILE [TIMES]");
        std::process::exit(2);
    };
    let times: u32 = arguments.next().and_then(|times| times.parse().ok()).unwrap_or(5);
    let content = match std::fs::read(&path) {
        Ok(content) => content,
        Err(error) => {
            eprintln!("{path}: {error}");
            std::process::exit(1);
        }
    };
    let bytes = content.len();
    let source = Source::from_bytes(&path, content.into());
    let context = Context::new(1 << 30, 1, std::env::temp_dir());
    let mut best = f64::INFINITY;
    for _ in 0..times.max(1) {
        let started = Instant::now();
        match check_stored(&source, &context) {
            Ok(checked) => {
                let seconds = started.elapsed().as_secs_f64();
                if seconds < best {
                    best = seconds;
                    let rows = checked.fingerprint.rows as f64;
                    println!(
                        "{} in {:.1} ms: {:.1} ns a row, {:.2} GB/s of the file",
                        checked.fingerprint,
                        seconds * 1e3,
                        seconds * 1e9 / rows,
                        bytes as f64 / seconds / 1e9
                    );
                }
            }
            Err(failure) => {
                eprintln!("{failure}");
                std::process::exit(1);
            }
        }
    }
}
