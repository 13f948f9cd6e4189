//! What a person sees: results, plans, progress. Pure text but for [`progress`].

pub mod compaction;
pub mod plan;
pub mod progress;

use std::fmt::Display;
use std::io::IsTerminal;

use serde_json::{Value, json};

use baler_common::model::error::Failure;

/// Prints a line on standard output. A reader that went away is no reason to stop working on a table.
pub fn say(line: impl Display) {
    use std::io::Write;
    let _ = writeln!(std::io::stdout(), "{line}");
}

/// How text is printed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Style {
    pub colours: bool,
}

impl Style {
    /// Colours only on a terminal, and not where NO_COLOR is set.
    pub fn of_standard_output() -> Self {
        Self { colours: std::io::stdout().is_terminal() && std::env::var_os("NO_COLOR").is_none() }
    }

    /// Without colours.
    pub fn plain() -> Self {
        Self { colours: false }
    }

    pub fn strong(self, text: impl Display) -> String {
        self.painted("1", text)
    }

    pub fn good(self, text: impl Display) -> String {
        self.painted("32", text)
    }

    pub fn bad(self, text: impl Display) -> String {
        self.painted("31", text)
    }

    fn painted(self, code: &str, text: impl Display) -> String {
        if self.colours { format!("\x1b[{code}m{text}\x1b[0m") } else { text.to_string() }
    }
}

/// A count with its thousands set apart.
pub fn count(number: u64) -> String {
    let digits = number.to_string();
    let mut out = String::with_capacity(digits.len() + digits.len() / 3);
    for (place, digit) in digits.chars().enumerate() {
        if place > 0 && (digits.len() - place).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    out
}

/// A count with its noun.
pub fn counted(number: u64, one: &str, many: &str) -> String {
    format!("{} {}", count(number), if number == 1 { one } else { many })
}

/// A failure for machines.
pub fn failure_json(failure: &Failure) -> Value {
    json!({
        "code": failure.class.code(),
        "file": failure.file,
        "column": failure.column,
        "message": failure.message,
    })
}

/// Milliseconds since the epoch as a date and time in UTC.
pub fn moment(time_ms: i64) -> String {
    let seconds = time_ms.div_euclid(1_000);
    let (days, second) = (seconds.div_euclid(86_400), seconds.rem_euclid(86_400));
    // Days to a civil date, by eras of 400 years that begin in March.
    let shifted = days + 719_468;
    let (era, day_of_era) = (shifted.div_euclid(146_097), shifted.rem_euclid(146_097));
    let year_of_era = (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_from_march = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month_from_march + 2) / 5 + 1;
    let month = if month_from_march < 10 { month_from_march + 3 } else { month_from_march - 9 };
    let year = year_of_era + era * 400 + i64::from(month <= 2);
    format!("{year:04}-{month:02}-{day:02} {:02}:{:02}:{:02}Z", second / 3_600, second / 60 % 60, second % 60)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_and_moments_are_readable() {
        assert_eq!((count(0), count(999), count(1_000), count(12_345_678)).3, "12,345,678");
        assert_eq!(count(1_000), "1,000");
        assert_eq!(counted(1, "file", "files"), "1 file");
        assert_eq!(moment(0), "1970-01-01 00:00:00Z");
        assert_eq!(moment(951_782_400_000), "2000-02-29 00:00:00Z");
        assert_eq!(moment(1_796_083_199_999), "2026-11-30 23:59:59Z");
        assert_eq!(moment(-1), "1969-12-31 23:59:59Z");
        assert_eq!(Style { colours: true }.good("x"), "\x1b[32mx\x1b[0m");
    }
}
