//! How far a run is: a bar on a terminal, a plain line now and then elsewhere. Both go to standard error.

use std::io::IsTerminal;
use std::time::{Duration, Instant};

use baler_coordinator::driver::RunProgress;
use indicatif::{ProgressBar, ProgressStyle};

use crate::args::sizes::show_size;
use crate::show::count;

/// How often a plain line is printed.
const LINE_EVERY: Duration = Duration::from_secs(10);
const BAR: &str = "{prefix} {bar:28} {bytes}/{total_bytes}  {bytes_per_sec}  {msg}  eta {eta}";

/// The progress of one table.
pub struct ProgressView {
    table: String,
    bar: Option<ProgressBar>,
    started: Instant,
    /// When the last plain line was printed; `None` prints none.
    last_line: Option<Instant>,
}

impl ProgressView {
    /// `quiet` shows nothing at all.
    pub fn new(table: &str, quiet: bool) -> Self {
        let on_terminal = std::io::stderr().is_terminal() && !quiet;
        let bar = on_terminal.then(|| {
            let bar = ProgressBar::new(0);
            if let Ok(style) = ProgressStyle::with_template(BAR) {
                bar.set_style(style.progress_chars("=> "));
            }
            bar.set_prefix(table.to_owned());
            bar
        });
        let started = Instant::now();
        let last_line = (!on_terminal && !quiet).then_some(started);
        Self { table: table.to_owned(), bar, started, last_line }
    }

    /// Shows the state of the run.
    pub fn update(&mut self, progress: RunProgress) {
        if progress.jobs == 0 {
            return;
        }
        if let Some(bar) = &self.bar {
            bar.set_length(progress.bytes);
            bar.set_position(progress.bytes_done.min(progress.bytes));
            bar.set_message(files_and_rows(&progress));
        }
        if let Some(last) = &mut self.last_line
            && last.elapsed() >= LINE_EVERY
        {
            *last = Instant::now();
            eprintln!("{}: {}", self.table, line(&progress, self.started.elapsed()));
        }
    }

    /// Takes the bar away.
    pub fn finish(&self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }
}

fn files_and_rows(progress: &RunProgress) -> String {
    format!(
        "{}/{} files  {} rows",
        count(progress.verified.into()),
        count(progress.jobs.into()),
        count(progress.rows_done.min(progress.rows))
    )
}

/// One line of progress.
fn line(progress: &RunProgress, elapsed: Duration) -> String {
    let seconds = elapsed.as_secs_f64().max(0.001);
    let rate = progress.bytes_done as f64 / seconds;
    let left = progress.bytes.saturating_sub(progress.bytes_done);
    let eta = if rate >= 1.0 { format!("{:.0} s left", left as f64 / rate) } else { "no rate yet".to_owned() };
    format!(
        "{} of {}, {}, {}/s, {eta}",
        show_size(progress.bytes_done.min(progress.bytes)),
        show_size(progress.bytes),
        files_and_rows(progress),
        show_size(rate as u64)
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_says_bytes_files_rows_rate_and_what_is_left() {
        let progress = RunProgress {
            jobs: 4,
            verified: 1,
            bytes: 400 << 20,
            bytes_done: 100 << 20,
            rows: 8_000,
            rows_done: 2_000,
            ..RunProgress::default()
        };
        assert_eq!(
            line(&progress, Duration::from_secs(10)),
            "100 MiB of 400 MiB, 1/4 files  2,000 rows, 10.0 MiB/s, 30 s left"
        );
        assert_eq!(
            line(&RunProgress { bytes: 1, ..RunProgress::default() }, Duration::ZERO),
            "0 B of 1 B, 0/0 files  0 rows, 0 B/s, no rate yet"
        );
    }
}
