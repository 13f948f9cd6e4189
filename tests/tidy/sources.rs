//! The Rust files of the workspace as text, with what is no code taken out.

use std::fs;
use std::path::{Path, PathBuf};

/// Crates whose sources the rules look at, as folders of the workspace.
pub const CRATES: [&str; 6] = ["proto", "common", "coordinator", "worker", "cli", "tests"];

/// One Rust file.
pub struct Source {
    /// Path below the workspace, with `/` between its parts.
    pub path: String,
    pub text: String,
}

impl Source {
    /// Numbered lines of code, from 1: without comments, string contents and test modules.
    pub fn code(&self) -> Vec<(usize, String)> {
        if self.path.ends_with("/tests.rs") || self.path.contains("/tests/") || self.path.starts_with("tests/") {
            return Vec::new();
        }
        without_tests(&without_comments_and_strings(&self.text))
    }
}

/// The workspace's root.
pub fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("the tests crate lies in the workspace").to_path_buf()
}

/// Every Rust file of the workspace's crates, in path order.
pub fn all() -> Vec<Source> {
    let root = root();
    let mut found = Vec::new();
    for folder in CRATES {
        collect(&root, &root.join(folder), &mut found);
    }
    found.sort_by(|a, b| a.path.cmp(&b.path));
    assert!(found.len() > 20, "only {} Rust files were found below {}", found.len(), root.display());
    found
}

fn collect(root: &Path, folder: &Path, found: &mut Vec<Source>) {
    for entry in fs::read_dir(folder).unwrap_or_else(|e| panic!("list {}: {e}", folder.display())) {
        let path = entry.expect("an entry of a folder of the workspace").path();
        if path.is_dir() {
            if path.file_name().is_some_and(|name| name != "target") {
                collect(root, &path, found);
            }
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            let below = path.strip_prefix(root).expect("walked from the root").to_string_lossy().replace('\\', "/");
            let text = fs::read_to_string(&path).unwrap_or_else(|e| panic!("read {below}: {e}"));
            found.push(Source { path: below, text });
        }
    }
}

/// `text` with comments and the contents of string and character literals blanked; line breaks stay.
fn without_comments_and_strings(text: &str) -> String {
    let bytes: Vec<char> = text.chars().collect();
    let mut out = String::with_capacity(text.len());
    let mut at = 0;
    let blank = |c: char| if c == '\n' { '\n' } else { ' ' };
    while at < bytes.len() {
        let rest = &bytes[at..];
        if rest.starts_with(&['/', '/']) {
            while at < bytes.len() && bytes[at] != '\n' {
                at += 1;
            }
        } else if rest.starts_with(&['/', '*']) {
            let mut depth = 0;
            while at < bytes.len() {
                if bytes[at..].starts_with(&['/', '*']) {
                    depth += 1;
                    at += 2;
                } else if bytes[at..].starts_with(&['*', '/']) {
                    depth -= 1;
                    at += 2;
                    if depth == 0 {
                        break;
                    }
                } else {
                    out.push(blank(bytes[at]));
                    at += 1;
                }
            }
        } else if let Some(hashes) = raw_string(&bytes, at) {
            let close: Vec<char> = std::iter::once('"').chain(std::iter::repeat_n('#', hashes)).collect();
            at += 2 + hashes;
            while at < bytes.len() && !bytes[at..].starts_with(&close) {
                out.push(blank(bytes[at]));
                at += 1;
            }
            at += close.len();
        } else if bytes[at] == '"' {
            at += 1;
            while at < bytes.len() && bytes[at] != '"' {
                if bytes[at] == '\\' {
                    at += 1;
                }
                if at < bytes.len() {
                    out.push(blank(bytes[at]));
                    at += 1;
                }
            }
            at += 1;
        } else if bytes[at] == '\'' && bytes.get(at + 2) == Some(&'\'') && bytes.get(at + 1) != Some(&'\\') {
            at += 3;
        } else if bytes[at] == '\'' && bytes.get(at + 1) == Some(&'\\') {
            at += 3;
            while at < bytes.len() && bytes[at] != '\'' {
                at += 1;
            }
            at += 1;
        } else {
            out.push(bytes[at]);
            at += 1;
        }
    }
    out
}

/// The number of hashes when a raw string literal starts at `at`.
fn raw_string(bytes: &[char], at: usize) -> Option<usize> {
    let before = at.checked_sub(1).map(|i| bytes[i]);
    if bytes[at] != 'r' || before.is_some_and(|c| c.is_alphanumeric() && c != 'b' || c == '_') {
        return None;
    }
    let hashes = bytes[at + 1..].iter().take_while(|c| **c == '#').count();
    (bytes.get(at + 1 + hashes) == Some(&'"')).then_some(hashes)
}

/// Numbered lines outside `#[cfg(test)] mod … { … }`.
fn without_tests(code: &str) -> Vec<(usize, String)> {
    let mut kept = Vec::new();
    let mut lines = code.lines().enumerate();
    while let Some((number, line)) = lines.next() {
        if line.trim() != "#[cfg(test)]" {
            kept.push((number + 1, line.to_owned()));
            continue;
        }
        // The item that follows: up to its closing brace, or its semicolon.
        let mut depth = 0i32;
        for (_, line) in lines.by_ref() {
            depth += line.matches('{').count() as i32 - line.matches('}').count() as i32;
            if depth <= 0 && (line.contains('}') || line.trim_end().ends_with(';')) {
                break;
            }
        }
    }
    kept
}

/// Whether `word` stands in `line` with no letter, digit or underscore at either side.
pub fn has_word(line: &str, word: &str) -> bool {
    let inside = |c: char| c.is_alphanumeric() || c == '_';
    line.match_indices(word).any(|(at, _)| {
        !line[..at].chars().next_back().is_some_and(inside)
            && !line[at + word.len()..].chars().next().is_some_and(inside)
    })
}

/// Fails with every broken line of a rule.
pub fn report(rule: &str, broken: &[String]) {
    assert!(broken.is_empty(), "{rule}:\n  {}", broken.join("\n  "));
}

#[test]
fn comments_strings_and_test_modules_are_no_code() {
    let source = Source {
        path: "common/src/model/x.rs".into(),
        text: "use a; // tokio\nlet s = \"tokio\"; let c = '\"';\nlet r = r#\"tokio \"q\" \"#; /* tokio */\n#[cfg(test)]\nmod tests {\n  fn f() { tokio }\n}\nlet b = tokio;\n"
            .into(),
    };
    let with: Vec<usize> = source.code().iter().filter(|(_, l)| has_word(l, "tokio")).map(|(n, _)| *n).collect();
    assert_eq!(with, [8]);
}

#[test]
fn a_word_is_found_whole_only() {
    assert!(has_word("use tokio::sync;", "tokio"));
    assert!(!has_word("use tokio_util::sync;", "tokio"));
    assert!(!has_word("let asynchronous = 1;", "async"));
}
