//! Sizes and durations as people write them.

use std::time::Duration;

/// Bytes of `500MiB`, `2GB`, `64k` or a plain number. `k`, `m`, `g`, `t` alone are powers of 1,024.
pub fn parse_size(text: &str) -> Result<u64, String> {
    let unit_at = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let (number, unit) = text.split_at(unit_at);
    let factor: u64 = match unit.trim().to_ascii_lowercase().as_str() {
        "" | "b" => 1,
        "k" | "kib" => 1 << 10,
        "m" | "mib" => 1 << 20,
        "g" | "gib" => 1 << 30,
        "t" | "tib" => 1 << 40,
        "kb" => 1_000,
        "mb" => 1_000_000,
        "gb" => 1_000_000_000,
        "tb" => 1_000_000_000_000,
        _ => return Err(format!("{unit:?} is no unit of size: use B, KiB, MiB, GiB, TiB, KB, MB, GB or TB")),
    };
    if let Ok(whole) = number.parse::<u64>() {
        return whole.checked_mul(factor).ok_or_else(|| format!("{text} is more than can be counted"));
    }
    match number.parse::<f64>() {
        Ok(value) if value * (factor as f64) < 1e18 => Ok((value * factor as f64) as u64),
        _ => Err(format!("{text:?} is no size: write a number with a unit, such as 500MiB")),
    }
}

/// `90s`, `15m`, `2h`, `7d`; a sum such as `1h30m` too.
pub fn parse_duration(text: &str) -> Result<Duration, String> {
    let wrong = || format!("{text:?} is no duration: write numbers with s, m, h or d, such as 1h30m");
    let mut total = Duration::ZERO;
    let mut rest = text;
    while !rest.is_empty() {
        let unit_at = rest.find(|c: char| !c.is_ascii_digit()).ok_or_else(wrong)?;
        let number: u64 = rest[..unit_at].parse().map_err(|_| wrong())?;
        let unit_end = rest[unit_at..].find(|c: char| c.is_ascii_digit()).map_or(rest.len(), |at| unit_at + at);
        let seconds: u64 = match &rest[unit_at..unit_end] {
            "s" => 1,
            "m" | "min" => 60,
            "h" => 3_600,
            "d" => 86_400,
            _ => return Err(wrong()),
        };
        let part = number.checked_mul(seconds).ok_or_else(wrong)?;
        total = total.checked_add(Duration::from_secs(part)).ok_or_else(wrong)?;
        rest = &rest[unit_end..];
    }
    if text.is_empty() { Err(wrong()) } else { Ok(total) }
}

/// How long from now until a time in RFC 3339; a duration as it is.
pub fn parse_until(text: &str) -> Result<Duration, String> {
    match chrono::DateTime::parse_from_rfc3339(text) {
        // A time that is past starts nothing.
        Ok(time) => Ok((time.to_utc() - chrono::Utc::now()).to_std().unwrap_or(Duration::ZERO)),
        Err(_) if text.contains([':', '-']) => {
            Err(format!("{text:?} is no time: write it with its zone, such as 2026-03-01T06:00:00Z, or a duration"))
        }
        Err(_) => parse_duration(text),
    }
}

/// A size for people: three digits and a binary unit.
pub fn show_size(bytes: u64) -> String {
    const UNITS: [&str; 5] = ["B", "KiB", "MiB", "GiB", "TiB"];
    let mut value = bytes as f64;
    let mut unit = 0;
    while value >= 1024.0 && unit + 1 < UNITS.len() {
        value /= 1024.0;
        unit += 1;
    }
    match unit {
        0 => format!("{bytes} B"),
        _ if value < 10.0 => format!("{value:.2} {}", UNITS[unit]),
        _ if value < 100.0 => format!("{value:.1} {}", UNITS[unit]),
        _ => format!("{value:.0} {}", UNITS[unit]),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_and_durations_are_read_exactly() {
        assert_eq!(parse_size("500MiB"), Ok(500 << 20));
        assert_eq!(parse_size("1.5k"), Ok(1_536));
        assert_eq!(parse_size("2 GB"), Ok(2_000_000_000));
        assert!(parse_size("12 parsecs").unwrap_err().contains("parsecs"));
        assert!(parse_size("99999999999T").is_err());
        assert!(parse_size("-1").is_err());
        assert_eq!(parse_duration("1h30m"), Ok(Duration::from_secs(5_400)));
        assert_eq!(parse_duration("7d"), Ok(Duration::from_secs(604_800)));
        assert_eq!(parse_duration("0s"), Ok(Duration::ZERO));
        for wrong in ["", "5", "h", "3 days", "99999999999999999999s"] {
            assert!(parse_duration(wrong).is_err(), "{wrong}");
        }
        assert_eq!(
            (show_size(12), show_size(1_536), show_size(524_288_000)),
            ("12 B".into(), "1.50 KiB".into(), "500 MiB".into())
        );
    }
}
