//! Gives the live files of a table compacted in place their plain names, by an exchange of directories: for readers that
//! list the folder and know no manifest. Local disks only.
//!
//! ```text
//! 1. beside T a folder S is built: hard links to the live files under their logical names, and to all that is not data
//! 2. T/_baler moves into S, and T and S change places in one call of the kernel
//! 3. what was superseded moves from the old tree to T/_baler/previous/; what came meanwhile moves into T
//! 4. a generation lists the live files under their plain names
//! ```
//! A directory that was opened before the exchange stays the old one, so a reader in the middle of a listing may mix the
//! two. A process that dies is taken up by [`recover`] and [`is_begun`]: whoever wants to change the table next finishes the
//! exchange first, because until 4 a listing shows the live files a second time, under their plain names.
//! What remains of the old tree, `.{name}.baler-swap`, holds second links only; the sweep removes it.
//!
//! Stores that were opened on the table before are those of the old tree afterwards: open them again.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use baler_common::model::error::{Failure, FailureClass};
use baler_common::runtime::killpoint::killpoint;
use baler_common::runtime::storage::Store;
use rustix::fs::{CWD, RenameFlags, renameat_with};

use super::checks::{self, Checks, RowCounter};
use super::generation::{self, Figures, Generation, ListedFile, MadeBy, SupersededFile, Why};
use super::previous::{self, PREVIOUS};
use super::{CONTROL, DirectoryTable, inconsistent, lists};
use crate::plan::PublishMode;
use crate::table::CommitToken;

/// A table whose plain names are its live files now.
#[derive(Debug, Clone, PartialEq)]
pub struct Swapped {
    pub generation: Generation,
    pub checks: Checks,
}

/// The folder beside the table that the exchange works with.
pub fn sibling(table: &Path) -> Option<PathBuf> {
    let name = table.file_name()?.to_str()?;
    Some(table.parent()?.join(format!(".{name}.baler-swap")))
}

/// Exchanges the table in the folder `path`, whose newest generation must have been compacted in place. `Ok(None)` when
/// every live file has its plain name already.
pub fn swap(path: &Path, now_ms: i64, count_rows: &RowCounter<'_>) -> Result<Option<Swapped>, Failure> {
    recover(path)?;
    let newest = newest_of(path)?;
    let side = sibling(path).ok_or_else(|| inconsistent("a folder without a name or parent cannot be exchanged"))?;
    if newest.publish != PublishMode::InPlace {
        return Err(inconsistent("only a table that was compacted in place can be exchanged"));
    }
    if newest.live.iter().all(|file| file.object == file.path) {
        return Ok(None);
    }
    if !is_exchanged(path, &newest) {
        build(path, &side, &newest)?;
        killpoint("swap-built");
        exchange(path, &side)?;
    }
    killpoint("swap-exchanged");
    let aside = empty_old_tree(path, &side, &newest)?;
    killpoint("swap-moved");
    let table = DirectoryTable::new(open(path)?, "");
    let generation = swapped(&table, &newest, &aside, now_ms)?;
    if !generation::create(&table, &generation)? {
        return Err(inconsistent(format!("another commit made generation {}: look again", generation.generation)));
    }
    killpoint("swap-generation");
    let checks = checks::run(&table, None, &generation, Some(&newest), count_rows)?;
    checks::write(&table, &checks)?;
    lists::write_all(&table, &generation)?;
    Ok(Some(Swapped { generation, checks }))
}

/// Whether an exchange of the table's newest generation was begun and not ended: live files have second links, in the
/// folder beside the table or under their plain names. [`swap`] goes on with it. To be called after [`recover`].
pub fn is_begun(path: &Path) -> Result<bool, Failure> {
    let Some(side) = sibling(path).filter(|side| side.is_dir()) else { return Ok(false) };
    if !path.join(CONTROL).is_dir() {
        return Ok(false);
    }
    let Some(newest) = generation::newest(&DirectoryTable::new(open(path)?, ""))? else { return Ok(false) };
    let is_linked = |file: &ListedFile, tree: &Path| {
        let object = inode(&path.join(&file.object));
        object.is_some() && object == inode(&tree.join(&file.path))
    };
    let mut apart = newest.live.iter().filter(|file| file.object != file.path);
    Ok(newest.publish == PublishMode::InPlace && apart.any(|file| is_linked(file, &side) || is_linked(file, path)))
}

/// What to say of a table in the middle of an exchange, and what to do.
pub const CUT_SHORT: &str = "an exchange of folders (--swap) was cut short: the next `baler compact` in place, `revert` or \
                             `gc --delete` finishes it";

/// Refuses a table in the middle of an exchange, wherever its control folder lies.
///
/// # Errors
/// [`CUT_SHORT`], or the newest generation cannot be read.
pub fn check_whole(path: &Path) -> Result<(), Failure> {
    if is_between_renames(path) || is_begun(path)? {
        return Err(Failure::new(FailureClass::Policy, CUT_SHORT).in_file(path.display().to_string()));
    }
    Ok(())
}

/// Whether the table's control folder lies beside it, where an exchange that died between its two renames left it.
pub fn is_between_renames(path: &Path) -> bool {
    sibling(path).is_some_and(|side| side.join(CONTROL).exists() && !path.join(CONTROL).exists())
}

/// Goes on with an exchange that was cut short between its two renames. To be called before the table is opened: until
/// then the control folder may lie in the other tree.
pub fn recover(path: &Path) -> Result<(), Failure> {
    let Some(side) = sibling(path) else { return Ok(()) };
    let (here, there) = (path.join(CONTROL).exists(), side.join(CONTROL).exists());
    match (here, there) {
        (false, true) => exchange_trees(path, &side),
        (true, true) => {
            Err(inconsistent("both trees of an exchange have a control folder: see which one is the table")
                .in_file(side.display().to_string()))
        }
        _ => Ok(()),
    }
}

fn open(path: &Path) -> Result<Store, Failure> {
    let text = path.to_str().ok_or_else(|| inconsistent("the table's path is not UTF-8"))?;
    Store::open("target", text, false)
}

fn newest_of(path: &Path) -> Result<Generation, Failure> {
    let table = DirectoryTable::new(open(path)?, "");
    generation::newest(&table)?.ok_or_else(|| inconsistent("the table has no generation: compact it in place first"))
}

/// Whether the tree at `path` is the new one already: outputs have their plain names.
fn is_exchanged(path: &Path, newest: &Generation) -> bool {
    newest.live.iter().filter(|file| file.object != file.path).all(|file| {
        let plain = inode(&path.join(&file.path));
        plain.is_some() && plain == inode(&path.join(&file.object))
    })
}

fn inode(path: &Path) -> Option<(u64, u64)> {
    fs::symlink_metadata(path).ok().map(|metadata| (metadata.dev(), metadata.ino()))
}

/// Builds the new tree beside the table; a part of it that is there already is as good.
fn build(path: &Path, side: &Path, newest: &Generation) -> Result<(), Failure> {
    let superseded = superseded_paths(newest);
    let mut wanted: BTreeMap<String, String> =
        newest.live.iter().map(|file| (file.path.clone(), file.object.clone())).collect();
    for relative in tree(path)? {
        if !superseded.contains_key(relative.as_str()) {
            wanted.entry(relative.clone()).or_insert(relative);
        }
    }
    fs::create_dir_all(side).map_err(|error| failed(&error, "make", side))?;
    for (to, from) in &wanted {
        link(&path.join(from), &side.join(to))?;
    }
    match tree(side)?.into_iter().find(|found| !wanted.contains_key(found)) {
        None => Ok(()),
        Some(stranger) => Err(inconsistent("an earlier exchange left this: delete the folder, then run again")
            .in_file(side.join(stranger).display().to_string())),
    }
}

fn exchange(path: &Path, side: &Path) -> Result<(), Failure> {
    rename(&path.join(CONTROL), &side.join(CONTROL))?;
    killpoint("swap-between");
    exchange_trees(path, side)
}

fn exchange_trees(path: &Path, side: &Path) -> Result<(), Failure> {
    renameat_with(CWD, path, CWD, side, RenameFlags::EXCHANGE).map_err(|error| failed(&error.into(), "exchange", path))
}

/// Superseded files that lie under plain names, by these.
fn superseded_paths(newest: &Generation) -> BTreeMap<&str, &ListedFile> {
    let plain = newest.superseded.iter().filter(|entry| !entry.file.object.starts_with(&format!("{CONTROL}/")));
    plain.map(|entry| (entry.file.object.as_str(), &entry.file)).collect()
}

/// Moves what was superseded out of the old tree, and what came after the building into the new one. Gives the new place
/// of each superseded file, those of an earlier call included.
fn empty_old_tree(path: &Path, side: &Path, newest: &Generation) -> Result<BTreeMap<String, String>, Failure> {
    let number = newest.generation.saturating_add(1);
    let mut aside = BTreeMap::new();
    for (object, file) in superseded_paths(newest) {
        let to = previous::aside_path(number, &file.path, file.bytes, &file.identity);
        let old = side.join(object);
        if old.exists() && !path.join(&to).exists() {
            make_folder(&path.join(&to))?;
            rename(&old, &path.join(&to))?;
        }
        if path.join(&to).exists() {
            aside.insert(object.to_owned(), to);
        }
    }
    for relative in tree(side)? {
        let (old, new) = (side.join(&relative), path.join(&relative));
        if !new.exists() {
            make_folder(&new)?;
            rename(&old, &new)?;
        }
    }
    Ok(aside)
}

/// The generation that lists the live files under their plain names.
fn swapped(
    table: &DirectoryTable,
    newest: &Generation,
    aside: &BTreeMap<String, String>,
    now_ms: i64,
) -> Result<Generation, Failure> {
    let number = newest.generation.saturating_add(1);
    let mut generation = Generation {
        generation: number,
        parent: newest.generation,
        token: CommitToken { compaction: format!("swap-{}", newest.generation), plan: newest.token.plan.clone() },
        created_ms: now_ms,
        made_by: MadeBy::Swap,
        before: Figures::of(&newest.live),
        listed_before: newest.live.len() as u64,
        added: 0,
        removed: 0,
        duplicate_rows: 0,
        kept_keys: Vec::new(),
        ..newest.clone()
    };
    for entry in &mut generation.superseded {
        if let Some(to) = aside.get(&entry.file.object) {
            entry.file.object = to.clone();
        }
    }
    for file in &mut generation.live {
        if file.object != file.path {
            let old = ListedFile { ..file.clone() };
            generation.superseded.push(SupersededFile { file: old, why: Why::Replaced, superseded_in: number });
            file.object = file.path.clone();
            file.since = number;
            generation.added += 1;
            generation.removed += 1;
        }
        file.identity = look(table, &file.object)?;
    }
    for entry in &mut generation.superseded {
        let moved = entry.superseded_in == number || entry.file.object.starts_with(PREVIOUS);
        if moved && let Some(found) = table.head(&entry.file.object)? {
            entry.file.identity = found.identity;
        }
    }
    generation.superseded.sort_by(|a, b| a.file.object.cmp(&b.file.object));
    Ok(generation)
}

fn look(table: &DirectoryTable, object: &str) -> Result<baler_common::model::object::Identity, Failure> {
    let found = table.head(object)?.ok_or_else(|| {
        inconsistent("the exchanged file is not there: something else writes here").in_file(table.describe(object))
    })?;
    Ok(found.identity)
}

/// Regular files of a tree but those of its control folder, by their paths in it. Links are left where they are.
fn tree(root: &Path) -> Result<Vec<String>, Failure> {
    let mut found = Vec::new();
    let mut folders = vec![String::new()];
    while let Some(folder) = folders.pop() {
        let at = root.join(&folder);
        for entry in fs::read_dir(&at).map_err(|error| failed(&error, "list", &at))? {
            let entry = entry.map_err(|error| failed(&error, "list", &at))?;
            let name = entry.file_name();
            let name = name.to_str().ok_or_else(|| inconsistent("a name is not UTF-8: rename it"))?;
            let relative = if folder.is_empty() { name.to_owned() } else { format!("{folder}/{name}") };
            let kind = entry.file_type().map_err(|error| failed(&error, "look at", &entry.path()))?;
            if kind.is_dir() && relative != CONTROL {
                folders.push(relative);
            } else if kind.is_file() {
                found.push(relative);
            }
        }
    }
    found.sort();
    Ok(found)
}

/// A second name for a file; the same file there already is as good.
fn link(from: &Path, to: &Path) -> Result<(), Failure> {
    make_folder(to)?;
    match fs::hard_link(from, to) {
        Ok(()) => Ok(()),
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
            let inode = |path: &Path| {
                fs::symlink_metadata(path)
                    .map(|metadata| (metadata.dev(), metadata.ino()))
                    .map_err(|error| failed(&error, "look at", path))
            };
            if inode(from)? == inode(to)? { Ok(()) } else { Err(failed(&error, "link", to)) }
        }
        Err(error) => Err(failed(&error, "link", from)),
    }
}

fn make_folder(of: &Path) -> Result<(), Failure> {
    let Some(folder) = of.parent() else { return Ok(()) };
    fs::create_dir_all(folder).map_err(|error| failed(&error, "make", folder))
}

fn rename(from: &Path, to: &Path) -> Result<(), Failure> {
    renameat_with(CWD, from, CWD, to, RenameFlags::NOREPLACE).map_err(|error| failed(&error.into(), "move", from))?;
    for path in [from, to] {
        if let Some(folder) = path.parent() {
            let folder_file = fs::File::open(folder).map_err(|error| failed(&error, "open", folder))?;
            folder_file.sync_all().map_err(|error| failed(&error, "sync", folder))?;
        }
    }
    Ok(())
}

fn failed(error: &io::Error, doing: &str, path: &Path) -> Failure {
    let class = match error.kind() {
        io::ErrorKind::NotFound => FailureClass::InputMissing,
        io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem | io::ErrorKind::CrossesDevices => {
            FailureClass::Policy
        }
        _ => FailureClass::Transient,
    };
    Failure::new(class, format!("{doing}: {error}")).in_file(path.display().to_string())
}

#[cfg(test)]
mod tests;
