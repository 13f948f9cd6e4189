//! A file is named after the thing in it, is short, and says what it is.

use crate::sources::{self, report};

const NO_NAMES: [&str; 8] = ["util", "utils", "helper", "helpers", "misc", "common", "types", "core"];

/// Lines above which a file holds more than one thing.
const LINES_MAX: usize = 700;

#[test]
fn files_are_named_after_the_thing_in_them() {
    let broken: Vec<String> = sources::all()
        .iter()
        .filter(|source| {
            let mut parts = source.path.rsplit('/');
            let file = parts.next().unwrap_or_default().trim_end_matches(".rs");
            let folder = parts.next().unwrap_or_default();
            // `common` is the name of a crate, not of a module.
            NO_NAMES.contains(&file) || (NO_NAMES.contains(&folder) && source.path.matches('/').count() > 1)
        })
        .map(|source| source.path.clone())
        .collect();
    report("no file or module is called util, helpers, misc, common, types or core", &broken);
}

#[test]
fn files_hold_one_thing() {
    let broken: Vec<String> = sources::all()
        .iter()
        .filter(|source| source.text.lines().count() > LINES_MAX)
        .map(|source| format!("{} has {} lines", source.path, source.text.lines().count()))
        .collect();
    report("a file has at most 700 lines", &broken);
}

#[test]
fn a_file_says_first_what_it_is() {
    let broken: Vec<String> = sources::all()
        .iter()
        .filter(|source| !source.path.ends_with("/tests.rs") && !source.text.starts_with("//! "))
        .map(|source| source.path.clone())
        .collect();
    report("a file starts with a //! that says what it is", &broken);
}
