//! The lowest versions of dependencies that have no known hole, held against `Cargo.lock`.
//!
//! The advisory database cannot be fetched everywhere, so the table is here. A crate that is not in the tree passes.

use std::fs;

use crate::sources::{report, root};

/// Crate, lowest version, why.
const LOWEST: [(&str, [u32; 3], &str); 18] = [
    ("aws-lc-sys", [0, 39, 0], "RUSTSEC-2026-0044 to 0048"),
    ("bytes", [1, 11, 1], "RUSTSEC-2026-0007: overflow"),
    ("crossbeam-channel", [0, 5, 15], "RUSTSEC-2025-0024: double free"),
    ("h2", [0, 4, 16], "RUSTSEC-2026-0258 and earlier floods"),
    ("idna", [1, 0, 0], "RUSTSEC-2024-0421: punycode"),
    ("lz4_flex", [0, 12, 1], "RUSTSEC-2026-0041: shows old memory"),
    ("object_store", [0, 14, 1], "RUSTSEC-2024-0358: token in logs"),
    ("parquet", [60, 1, 0], "negative sizes in hostile footers"),
    ("prost", [0, 6, 1], "recursion"),
    ("protobuf", [3, 7, 2], "recursion"),
    ("quick-xml", [0, 41, 0], "RUSTSEC-2026-0194, 0195: denial of service"),
    ("ring", [0, 17, 12], "RUSTSEC-2025-0009: panic"),
    ("rustls", [0, 23, 18], "RUSTSEC-2024-0399: panic"),
    ("rustls-webpki", [0, 103, 13], "RUSTSEC-2026-0049, 0098, 0099, 0104"),
    ("time", [0, 3, 47], "RUSTSEC-2026-0009: stack exhaustion"),
    ("tokio", [1, 44, 2], "RUSTSEC-2025-0023: broadcast"),
    ("tonic", [0, 12, 3], "RUSTSEC-2024-0376: accept loop"),
    ("redb", [4, 6, 0], "the version the stored records were made with"),
];

/// Crates that must not be in the tree at all.
const NEVER: [&str; 4] = ["arrow2", "parquet2", "rustls-pemfile", "openssl-sys"];

#[test]
fn no_dependency_is_older_than_its_last_known_hole() {
    let locked = locked();
    assert!(locked.len() > 100, "Cargo.lock names only {} crates", locked.len());
    let broken: Vec<String> = locked
        .iter()
        .filter_map(|(name, version)| {
            let (_, lowest, why) = LOWEST.iter().find(|(lowest_name, ..)| lowest_name == name)?;
            (numbers(version) < *lowest).then(|| format!("{name} {version} is below {lowest:?} ({why})"))
        })
        .collect();
    report("dependencies without known holes", &broken);
}

#[test]
fn abandoned_crates_stay_out() {
    let broken: Vec<String> =
        locked().into_iter().map(|(name, _)| name).filter(|name| NEVER.contains(&name.as_str())).collect();
    report("crates with unfixed advisories or no maintainer", &broken);
}

/// Name and version of every package in `Cargo.lock`.
fn locked() -> Vec<(String, String)> {
    let lock = fs::read_to_string(root().join("Cargo.lock")).expect("Cargo.lock is committed");
    let value = |line: &str, key: &str| Some(line.strip_prefix(key)?.trim_matches(['=', ' ', '"']).to_owned());
    let lines: Vec<&str> = lock.lines().collect();
    lines.windows(2).filter_map(|pair| Some((value(pair[0], "name = ")?, value(pair[1], "version = ")?))).collect()
}

/// The three numbers of a version; what follows `-` or `+` is left out.
fn numbers(version: &str) -> [u32; 3] {
    let plain = version.split(['-', '+']).next().unwrap_or(version);
    let mut parts = plain.split('.').map(|part| part.parse().expect("a version is made of numbers"));
    std::array::from_fn(|_| parts.next().unwrap_or(0))
}
