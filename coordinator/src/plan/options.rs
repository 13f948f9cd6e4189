//! What a user may ask of a plan.

use std::collections::BTreeSet;

use baler_common::model::error::{Failure, FailureClass};
use baler_common::model::id::CompactionId;
use baler_common::model::object::ObjectRef;
use baler_common::model::options::WriteOptions;

use super::PublishMode;

/// Everything a plan depends on besides the snapshot.
#[derive(Debug, Clone, PartialEq)]
pub struct PlanOptions {
    pub compaction: CompactionId,
    pub publish: PublishMode,
    /// Where attempts write: alias of the destination's store and the staging folder of the table.
    pub staging: ObjectRef,
    /// The manifest generation of the destination (in place: of the table itself, as the snapshot has it).
    pub base_generation: u64,
    /// Most input bytes of a run of more than one file.
    pub target_bytes: u64,
    /// In place, runs of fewer files are left as they are. With a destination every row is wanted there, so none is.
    pub min_input_files: u32,
    /// Whether files that are already right are written anew too.
    pub rewrite: bool,
    /// Whether differing schemas are merged, rather than refused.
    pub evolve: bool,
    pub dedup: Dedup,
    pub bloom: BloomChoice,
    /// False-positive probability of new bloom filters, in parts per million.
    pub bloom_false_positives_ppm: u32,
    /// Every one must hold for a key to be planned.
    pub selection: Vec<KeyPattern>,
    /// Most input bytes of all jobs together.
    pub max_bytes: Option<u64>,
    /// Writer options of every job; `bloom_filters` is filled by the plan.
    pub write: WriteOptions,
}

/// Which tables lose repeated rows.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum Dedup {
    #[default]
    None,
    All,
    Tables(BTreeSet<String>),
}

/// Which columns get bloom filters.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum BloomChoice {
    /// Those that have one in any input of the run.
    #[default]
    Inherit,
    None,
    /// These columns, by dotted path.
    Columns(Vec<String>),
}

/// A condition on a key: a pattern for the whole key, or for the value of a Hive folder (`column=pattern`).
///
/// `*` stands for any characters, `?` for one, and a backslash takes the next character as it is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeyPattern {
    pub column: Option<String>,
    pub pattern: String,
}

impl PlanOptions {
    /// The defaults of the command line.
    pub fn new(compaction: CompactionId, publish: PublishMode, staging: ObjectRef) -> Self {
        Self {
            compaction,
            publish,
            staging,
            base_generation: 0,
            target_bytes: 500 << 20,
            min_input_files: 2,
            rewrite: false,
            evolve: false,
            dedup: Dedup::None,
            bloom: BloomChoice::Inherit,
            bloom_false_positives_ppm: 10_000,
            selection: Vec::new(),
            max_bytes: None,
            write: WriteOptions::default(),
        }
    }
}

impl Dedup {
    pub fn covers(&self, table: &str) -> bool {
        match self {
            Self::None => false,
            Self::All => true,
            Self::Tables(tables) => tables.contains(table),
        }
    }
}

impl std::fmt::Display for KeyPattern {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match &self.column {
            Some(column) => write!(f, "{column}={}", self.pattern),
            None => f.write_str(&self.pattern),
        }
    }
}

impl std::str::FromStr for KeyPattern {
    type Err = Failure;

    fn from_str(text: &str) -> Result<Self, Failure> {
        if text.is_empty() {
            return Err(Failure::new(
                FailureClass::Policy,
                "an empty condition selects nothing: give a key pattern or column=value",
            ));
        }
        Ok(match text.split_once('=') {
            Some((column, pattern)) if !column.contains(['/', '*', '?']) => {
                Self { column: Some(column.to_owned()), pattern: pattern.to_owned() }
            }
            _ => Self { column: None, pattern: text.to_owned() },
        })
    }
}

impl KeyPattern {
    /// Whether `key` fulfils the condition. Keys are compared as they are: no escape in a folder's name is decoded.
    pub fn selects(&self, key: &str) -> bool {
        let pattern: Vec<char> = self.pattern.chars().collect();
        match &self.column {
            None => glob(&pattern, key),
            Some(column) => key.split('/').any(|segment| {
                segment.split_once('=').is_some_and(|(name, value)| name == column && glob(&pattern, value))
            }),
        }
    }
}

/// Matches without backtracking further than the last star.
fn glob(pattern: &[char], text: &str) -> bool {
    let text: Vec<char> = text.chars().collect();
    let (mut p, mut t) = (0, 0);
    let mut star: Option<(usize, usize)> = None;
    while t < text.len() {
        let (literal, width) = match pattern.get(p) {
            Some('*') => {
                star = Some((p + 1, t));
                p += 1;
                continue;
            }
            Some('?') => (Some(text[t]), 1),
            Some('\\') if p + 1 < pattern.len() => (Some(pattern[p + 1]), 2),
            other => (other.copied(), 1),
        };
        if literal == Some(text[t]) {
            p += width;
            t += 1;
        } else if let Some((after, from)) = star {
            star = Some((after, from + 1));
            p = after;
            t = from + 1;
        } else {
            return false;
        }
    }
    pattern[p..].iter().all(|c| *c == '*')
}

#[cfg(test)]
mod tests {
    use super::*;

    fn selects(pattern: &str, key: &str) -> bool {
        pattern.parse::<KeyPattern>().unwrap().selects(key)
    }

    #[test]
    fn a_pattern_is_for_the_whole_key() {
        assert!(selects("en", "en"));
        assert!(!selects("en", "eng"));
        assert!(selects("e*", "en/2024"));
        assert!(selects("*a*b*", "xxaxxbxx"));
        assert!(!selects("*a*b", "xxaxxbxx"));
        assert!(selects("\\*?", "*x"));
        assert!(!selects("\\*?", "ax"));
        assert!(selects("ж?", "жя"));
    }

    #[test]
    fn a_column_condition_looks_at_hive_folders_as_they_are_written() {
        assert!(selects("day=2024-01-*", "region=a%2Fb/day=2024-01-03"));
        assert!(selects("region=a%2Fb", "region=a%2Fb/day=2024-01-03"));
        assert!(!selects("region=a/b", "region=a%2Fb/day=2024-01-03"));
        assert!(!selects("day=2024-01-*", "plain"));
        assert!(selects("k=a=b", "k=a=b"));
        assert!("".parse::<KeyPattern>().is_err());
    }
}
