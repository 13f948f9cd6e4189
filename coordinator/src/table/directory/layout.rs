//! From listed objects to tables, keys and files in order. Pure.
//!
//! The root is by default a root of tables: each folder of its first level is one. It is a table itself if it holds
//! `*.parquet` files directly, if its first level is Hive partitions (`k=v`), or if it has a control folder; the user
//! may say otherwise. A key is a directory below its table, at any depth, its name byte for byte: escapes are not
//! decoded, and nothing is read out of `k=v`. Files directly in the table are the key `all`.
//!
//! Names that start with `_` or `.`, at any level, and files that are not `*.parquet` are nobody's rows: they are
//! counted and left alone.
//!
//! If all files of a key have a chunk number at the end of their names (`x-7`, `x-7-12`), that is their order, read as
//! an integer at any width; otherwise the natural order of their names, numbered by position from 0.

use std::cmp::Ordering;
use std::collections::{BTreeMap, HashMap};

use baler_common::model::error::{Failure, FailureClass};
use baler_common::model::object::{Identity, ObjectInfo};

use crate::plan::LiveTable;

/// Name of the folder in which Baler keeps what is its own.
pub const CONTROL_FOLDER: &str = "_baler";
/// Key of the files directly in a table's folder.
pub const FLAT_KEY: &str = "all";

/// What the user says that the root is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum RootAs {
    /// Look at it and say what it was taken for.
    #[default]
    Detect,
    /// Each folder of its first level is a table.
    Tables,
    /// It is a table.
    Table,
    /// It is one key: every file below it, at any depth.
    Key,
}

/// What a root holds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Layout {
    /// What the root was taken for: [`RootAs::Tables`], [`RootAs::Table`] or [`RootAs::Key`].
    pub taken_for: RootAs,
    /// The same as a sentence, with the reason.
    pub note: String,
    /// In the order of their names' bytes.
    pub tables: Vec<TableLayout>,
}

/// The files of one table, by key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TableLayout {
    pub table: String,
    /// Folder below the store's root; empty when the root is the table.
    pub folder: String,
    pub keys: Vec<KeyLayout>,
    /// What was left out or numbered, as sentences.
    pub notes: Vec<String>,
    /// Whether it has a control folder.
    pub controlled: bool,
    /// All its `*.parquet` objects as listed, for the check of files on disk.
    pub parquet_objects: u64,
}

/// The files of one key in plan order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeyLayout {
    pub key: String,
    /// Path below the table's folder.
    pub folder: String,
    pub files: Vec<FileLayout>,
    /// Why the key has no order.
    pub failure: Option<Failure>,
}

/// One file of a key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FileLayout {
    /// Logical path below the table's folder.
    pub path: String,
    /// Path of the object below the store's root.
    pub object_path: String,
    pub bytes: u64,
    pub identity: Identity,
    pub first_chunk: u64,
    pub last_chunk: u64,
    pub settled: bool,
}

/// Lays the listed objects out. `root_name` names the table when the root is one; `live` gives the newest manifest
/// generation of the table in a folder, where files are to be taken from it.
pub fn lay_out(
    objects: &[ObjectInfo],
    root_as: RootAs,
    root_name: &str,
    live: &dyn Fn(&str) -> Option<LiveTable>,
) -> Layout {
    let (taken_for, reason) = match root_as {
        RootAs::Detect => detect(objects),
        said => (said, "as said".to_owned()),
    };
    let mut folders: BTreeMap<&str, Vec<&ObjectInfo>> = BTreeMap::new();
    for object in objects {
        match taken_for {
            RootAs::Table | RootAs::Key | RootAs::Detect => folders.entry("").or_default().push(object),
            RootAs::Tables => {
                // Files directly in a root of tables are nobody's.
                if let Some((folder, _)) = object.path.split_once('/')
                    && !is_hidden(folder)
                {
                    folders.entry(folder).or_default().push(object);
                }
            }
        }
    }
    let flat = taken_for == RootAs::Key;
    let tables = folders
        .into_iter()
        .map(|(folder, objects)| table(folder, root_name, &objects, flat, live(folder)))
        .filter(|table| !table.keys.is_empty() || table.controlled)
        .collect();
    let note = match taken_for {
        RootAs::Tables => format!("taken for a root of tables, one in each folder ({reason})"),
        RootAs::Table | RootAs::Detect => format!("taken for one table ({reason})"),
        RootAs::Key => format!("taken for one key of a table ({reason})"),
    };
    Layout { taken_for, note, tables }
}

fn detect(objects: &[ObjectInfo]) -> (RootAs, String) {
    for object in objects {
        match object.path.split_once('/') {
            None if is_data(&object.path) => return (RootAs::Table, format!("it holds {}", object.path)),
            Some((CONTROL_FOLDER, _)) => return (RootAs::Table, "it has a control folder".to_owned()),
            Some((folder, _)) if folder.contains('=') && !is_hidden(folder) => {
                return (RootAs::Table, format!("{folder} is a Hive partition"));
            }
            _ => {}
        }
    }
    (RootAs::Tables, "its files lie in folders".to_owned())
}

/// Whether a name is nobody's rows by convention.
fn is_hidden(name: &str) -> bool {
    name.starts_with(['_', '.'])
}

fn is_data(path: &str) -> bool {
    path.ends_with(".parquet") && !path.split('/').any(is_hidden)
}

fn table(folder: &str, root_name: &str, objects: &[&ObjectInfo], flat: bool, live: Option<LiveTable>) -> TableLayout {
    let below = |path: &str| match folder {
        "" => path.to_owned(),
        folder => path.strip_prefix(folder).and_then(|rest| rest.strip_prefix('/')).unwrap_or(path).to_owned(),
    };
    let absolute = |path: &str| if folder.is_empty() { path.to_owned() } else { format!("{folder}/{path}") };
    let mut notes = Vec::new();
    let mut keys: BTreeMap<String, Vec<FileLayout>> = BTreeMap::new();
    let mut strays = 0u64;
    let mut parquet_objects = 0;
    let mut controlled = false;
    let known: HashMap<String, ()> = live
        .iter()
        .flat_map(|live| live.live.iter().chain(&live.superseded))
        .map(|file| (file.object_path.clone(), ()))
        .collect();
    let mut add = |path: String, file: FileLayout| {
        let key = match (flat, path.rsplit_once('/')) {
            (false, Some((key, _))) => key.to_owned(),
            _ => String::new(),
        };
        keys.entry(key).or_default().push(file);
    };
    for object in objects {
        let path = below(&object.path);
        if path.starts_with(CONTROL_FOLDER) {
            controlled = true;
            continue;
        }
        if !is_data(&path) {
            strays += 1;
            continue;
        }
        parquet_objects += 1;
        if known.contains_key(&path) {
            continue;
        }
        let file = FileLayout {
            path: path.clone(),
            object_path: object.path.clone(),
            bytes: object.bytes,
            identity: object.identity.clone(),
            first_chunk: 0,
            last_chunk: 0,
            settled: false,
        };
        add(path, file);
    }
    for file in live.iter().flat_map(|live| &live.live) {
        let laid = FileLayout {
            path: file.path.clone(),
            object_path: absolute(&file.object_path),
            bytes: file.bytes,
            identity: file.identity.clone(),
            first_chunk: 0,
            last_chunk: 0,
            settled: file.settled,
        };
        add(file.path.clone(), laid);
    }
    if strays > 0 {
        notes.push(format!("{strays} files that are not *.parquet, or hidden by _ or ., were left alone"));
    }
    let keys = keys.into_iter().map(|(folder, files)| key(folder, files, &mut notes)).collect();
    let table = if folder.is_empty() { root_name } else { folder };
    TableLayout { table: table.to_owned(), folder: folder.to_owned(), keys, notes, controlled, parquet_objects }
}

fn key(folder: String, mut files: Vec<FileLayout>, notes: &mut Vec<String>) -> KeyLayout {
    let key = if folder.is_empty() { FLAT_KEY.to_owned() } else { folder.clone() };
    let mut failure = None;
    let numbers: Vec<_> = files.iter().map(|file| chunk_numbers(&file.path)).collect();
    if numbers.iter().all(|numbers| matches!(numbers, Ok(Some(_)))) {
        for (file, numbers) in files.iter_mut().zip(numbers) {
            if let Ok(Some((first, last))) = numbers {
                (file.first_chunk, file.last_chunk) = (first, last);
            }
        }
        files.sort_by(|a, b| (a.first_chunk, a.last_chunk, &a.path).cmp(&(b.first_chunk, b.last_chunk, &b.path)));
        if let Some(pair) = files.windows(2).find(|pair| pair[1].first_chunk <= pair[0].last_chunk) {
            let message = format!(
                "{} and {} claim the same chunk number: remove one of them, or give it another number",
                pair[0].path, pair[1].path
            );
            failure = Some(Failure::new(FailureClass::Policy, message).in_file(pair[1].path.clone()));
        }
    } else {
        if let Some((file, Err(message))) = files.iter().zip(&numbers).find(|(_, numbers)| numbers.is_err()) {
            failure = Some(Failure::new(FailureClass::Policy, message.clone()).in_file(file.path.clone()));
        }
        files.sort_by(|a, b| natural(&a.path, &b.path));
        for (position, file) in files.iter_mut().enumerate() {
            (file.first_chunk, file.last_chunk) = (position as u64, position as u64);
        }
        notes.push(format!(
            "key {key}: its names carry no chunk numbers, so the natural order of the names is the order"
        ));
    }
    KeyLayout { key, folder, files, failure }
}

/// The chunk numbers at the end of a name: `x-7.parquet`, `x-7-12.parquet`; `None` without any.
fn chunk_numbers(path: &str) -> Result<Option<(u64, u64)>, String> {
    let name = path.rsplit('/').next().unwrap_or(path);
    let Some(stem) = name.strip_suffix(".parquet") else { return Ok(None) };
    let mut parts = stem.rsplit('-');
    let digits = |part: Option<&str>| {
        part.filter(|part| !part.is_empty() && part.bytes().all(|b| b.is_ascii_digit())).map(str::to_owned)
    };
    let Some(last) = digits(parts.next()) else { return Ok(None) };
    let number = |text: &str| text.parse::<u64>().map_err(|_| format!("chunk number {text} is too large"));
    let last = number(&last)?;
    let mut before = parts.next();
    let first = match digits(before) {
        Some(first) => {
            before = parts.next();
            number(&first)?
        }
        None => last,
    };
    // A number must follow a name: `2024-01-05` is a date, not chunks.
    match before {
        Some(prefix) if !prefix.is_empty() && !prefix.bytes().all(|b| b.is_ascii_digit()) => {}
        _ => return Ok(None),
    }
    if first > last {
        return Err(format!("chunk numbers {first} to {last} run backwards"));
    }
    Ok(Some((first, last)))
}

/// Compares names with their numbers taken as numbers.
fn natural(a: &str, b: &str) -> Ordering {
    let (mut a, mut b) = (a.as_bytes(), b.as_bytes());
    let number = |text: &[u8]| text.iter().take_while(|byte| byte.is_ascii_digit()).count();
    loop {
        let (left, right) = (number(a), number(b));
        if left > 0 && right > 0 {
            let trimmed = |digits: &[u8]| digits.iter().position(|byte| *byte != b'0').unwrap_or(digits.len());
            let (x, y) = (&a[trimmed(&a[..left])..left], &b[trimmed(&b[..right])..right]);
            let order = x.len().cmp(&y.len()).then_with(|| x.cmp(y)).then_with(|| left.cmp(&right));
            if order != Ordering::Equal {
                return order;
            }
            (a, b) = (&a[left..], &b[right..]);
            continue;
        }
        match (a.split_first(), b.split_first()) {
            (None, None) => return Ordering::Equal,
            (None, _) => return Ordering::Less,
            (_, None) => return Ordering::Greater,
            (Some((x, rest)), Some((y, others))) if x == y => (a, b) = (rest, others),
            (Some((x, _)), Some((y, _))) => return x.cmp(y),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lay(paths: &[&str], root_as: RootAs) -> Layout {
        let object = |path: &&str| ObjectInfo {
            path: (*path).to_owned(),
            bytes: 1,
            identity: Identity::Unknown,
            modified_ms: 0,
        };
        lay_out(&paths.iter().map(object).collect::<Vec<_>>(), root_as, "root", &|_| None)
    }

    fn picture(layout: &Layout) -> String {
        let mut lines = vec![format!("{:?}", layout.taken_for)];
        for table in &layout.tables {
            for key in &table.keys {
                let files =
                    key.files.iter().map(|file| format!("{}[{}-{}]", file.path, file.first_chunk, file.last_chunk));
                let failed = if key.failure.is_some() { " refused" } else { "" };
                lines.push(format!("{}/{}: {}{failed}", table.table, key.key, files.collect::<Vec<_>>().join(" ")));
            }
        }
        lines.join("\n")
    }

    #[test]
    fn folders_of_a_root_are_tables_and_chunk_numbers_are_integers() {
        let found =
            lay(&["t/en/chunks-10000.parquet", "t/en/chunks-9999.parquet", "u/a/b/chunks-3-7.parquet"], RootAs::Detect);
        let expected = "Tables\nt/en: en/chunks-9999.parquet[9999-9999] en/chunks-10000.parquet[10000-10000]\n\
                        u/a/b: a/b/chunks-3-7.parquet[3-7]";
        assert_eq!(picture(&found), expected);
    }

    #[test]
    fn a_flat_folder_and_hive_folders_are_tables_and_hidden_names_are_left_alone() {
        let found = lay(&["a10.parquet", "a9.parquet", "_tmp/x.parquet", "notes.txt"], RootAs::Detect);
        assert_eq!(picture(&found), "Table\nroot/all: a9.parquet[0-0] a10.parquet[1-1]");
        let found = lay(&["d=1%2F2/x.parquet", "d=__HIVE_DEFAULT_PARTITION__/x.parquet"], RootAs::Detect);
        assert_eq!(
            picture(&found),
            "Table\nroot/d=1%2F2: d=1%2F2/x.parquet[0-0]\n\
            root/d=__HIVE_DEFAULT_PARTITION__: d=__HIVE_DEFAULT_PARTITION__/x.parquet[0-0]"
        );
    }

    #[test]
    fn overlapping_and_absurd_chunk_numbers_refuse_the_key() {
        assert!(picture(&lay(&["t/k/c-1-3.parquet", "t/k/c-3-4.parquet"], RootAs::Detect)).ends_with("refused"));
        assert!(picture(&lay(&["t/k/c-1.parquet", "t/k/c-01.parquet"], RootAs::Detect)).ends_with("refused"));
        assert!(picture(&lay(&["t/k/c-99999999999999999999.parquet"], RootAs::Detect)).ends_with("refused"));
        assert!(!picture(&lay(&["t/k/2024-01-05.parquet"], RootAs::Detect)).ends_with("refused"));
    }

    #[test]
    fn one_key_takes_every_depth() {
        assert_eq!(
            picture(&lay(&["a/x.parquet", "b.parquet"], RootAs::Key)),
            "Key\nroot/all: a/x.parquet[0-0] b.parquet[1-1]"
        );
    }
}
