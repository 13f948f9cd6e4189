use std::os::unix::fs::{PermissionsExt, symlink};
use std::sync::atomic::AtomicBool;

use super::*;

fn folder() -> tempfile::TempDir {
    tempfile::tempdir().expect("a temporary folder")
}

/// The root, walked by the kernel and by segments.
fn roots(path: &Path) -> [LocalRoot; 2] {
    [Walk::Kernel, Walk::Segments].map(|walk| LocalRoot { walk, ..LocalRoot::open(path, true).expect("opened") })
}

fn class<T>(result: Result<T, Failure>) -> Option<FailureClass> {
    result.err().map(|failure| failure.class)
}

#[test]
fn a_link_is_never_followed() {
    let (inside, outside) = (folder(), folder());
    std::fs::write(outside.path().join("secret.parquet"), "secret").expect("written");
    symlink(outside.path().join("secret.parquet"), inside.path().join("file.parquet")).expect("linked");
    symlink(outside.path(), inside.path().join("folder")).expect("linked");
    symlink("file.parquet", inside.path().join("loop.parquet")).expect("linked");
    symlink("nowhere", inside.path().join("dangling.parquet")).expect("linked");
    for root in roots(inside.path()) {
        for path in ["file.parquet", "folder/secret.parquet", "loop.parquet", "dangling.parquet"] {
            assert_eq!(class(root.head(path)), Some(FailureClass::Policy), "{path}");
            assert_eq!(class(root.read(path)), Some(FailureClass::Policy), "{path}");
            assert_eq!(class(root.source(path, 6, &Identity::Unknown)), Some(FailureClass::Policy), "{path}");
        }
        assert_eq!(class(root.put("folder/new", b"x")), Some(FailureClass::Policy));
        assert_eq!(class(root.put_new("folder/sub/new", b"x")), Some(FailureClass::Policy));
        assert_eq!(class(root.create("folder/new")), Some(FailureClass::Policy));
        assert_eq!(class(root.delete("folder/secret.parquet")), Some(FailureClass::Policy));
        assert_eq!(class(root.beneath("folder", false)), Some(FailureClass::Policy));
        assert_eq!(class(root.beneath("folder/x", true)), Some(FailureClass::Policy));
        assert_eq!(class(root.list("folder")), Some(FailureClass::Policy));
    }
    assert_eq!(std::fs::read_dir(outside.path()).expect("listed").count(), 1, "nothing was written outside");
}

#[test]
fn links_and_special_files_are_listed_so_that_they_are_refused_by_name() {
    let (inside, outside) = (folder(), folder());
    std::fs::write(outside.path().join("a.parquet"), "x").expect("written");
    symlink(outside.path(), inside.path().join("en")).expect("linked");
    symlink("nowhere", inside.path().join("dangling.parquet")).expect("linked");
    symlink("nowhere", inside.path().join("note")).expect("linked");
    rustix::fs::mknodat(rustix::fs::CWD, inside.path().join("pipe.parquet"), FileType::Fifo, Mode::RWXU, 0)
        .expect("a pipe");
    let root = LocalRoot::open(inside.path(), false).expect("opened");
    let mut listed = root.list("").expect("listed");
    listed.sort_by(|a, b| a.path.cmp(&b.path));
    let paths: Vec<&str> = listed.iter().map(|info| info.path.as_str()).collect();
    assert_eq!(paths, ["dangling.parquet", "en/behind-a-link.parquet", "pipe.parquet"]);
    for info in &listed {
        assert_eq!((info.bytes, &info.identity), (0, &Identity::Unknown));
        let failure = root.source(&info.path, 0, &info.identity).expect_err("refused");
        assert_eq!(failure.class, FailureClass::Policy, "{failure}");
        assert!(failure.file.ends_with(&info.path), "{failure}");
    }
}

#[test]
fn a_pipe_named_like_a_table_does_not_block() {
    let inside = folder();
    rustix::fs::mknodat(rustix::fs::CWD, inside.path().join("x.parquet"), FileType::Fifo, Mode::RWXU, 0)
        .expect("a pipe");
    for root in roots(inside.path()) {
        assert_eq!(class(root.read("x.parquet")), Some(FailureClass::Policy));
        assert_eq!(class(root.create("x.parquet")), Some(FailureClass::Transient));
    }
}

#[test]
fn a_folder_swapped_for_a_link_leads_nowhere() {
    let (inside, outside) = (folder(), folder());
    std::fs::create_dir(inside.path().join("real")).expect("made");
    std::fs::write(inside.path().join("real/a"), "inside").expect("written");
    std::fs::write(outside.path().join("a"), "secret").expect("written");
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let (real, away) = (inside.path().join("real"), inside.path().join("away"));
            while !stop.load(Ordering::Relaxed) {
                std::fs::rename(&real, &away).expect("moved away");
                symlink(outside.path(), &real).expect("linked");
                std::fs::remove_file(&real).expect("unlinked");
                std::fs::rename(&away, &real).expect("moved back");
            }
        });
        let mut seen = 0;
        for root in roots(inside.path()) {
            for _ in 0..3_000 {
                match root.read("real/a") {
                    Ok(Some(content)) => {
                        assert_eq!(content, "inside".as_bytes());
                        seen += 1;
                    }
                    Ok(None) => {}
                    Err(failure) => assert_eq!(failure.class, FailureClass::Policy, "{failure}"),
                }
            }
        }
        stop.store(true, Ordering::Relaxed);
        assert_ne!(seen, 0);
    });
}

#[test]
fn staging_names_are_hidden_and_swept_when_old() {
    let inside = folder();
    let root = LocalRoot::open(inside.path(), false).expect("opened");
    root.put("a/list", b"x").expect("put");
    std::fs::write(inside.path().join("a/.1-2-3.baler-new"), "left by a crash").expect("written");
    let paths: Vec<String> = root.list("").expect("listed").into_iter().map(|info| info.path).collect();
    assert_eq!(paths, ["a/list"]);
    assert_eq!(root.sweep_staging("a", Duration::from_secs(3_600)), Ok(0));
    assert_eq!(root.sweep_staging("a", Duration::ZERO), Ok(1));
    assert_eq!(root.sweep_staging("missing", Duration::ZERO), Ok(0));
    assert_eq!(std::fs::read_dir(inside.path().join("a")).expect("listed").count(), 1);
}

#[test]
fn names_that_are_not_text_are_listed_and_refused() {
    use std::os::unix::ffi::OsStrExt;
    let inside = folder();
    let name = std::ffi::OsStr::from_bytes(b"bad\xed\xa0\x80.parquet");
    std::fs::create_dir(inside.path().join(std::ffi::OsStr::from_bytes(b"k\xff"))).expect("made");
    std::fs::write(inside.path().join(name), "x").expect("written");
    std::fs::write(inside.path().join(std::ffi::OsStr::from_bytes(b"k\xff/a.parquet")), "x").expect("written");
    std::fs::write(inside.path().join("new\nline.parquet"), "x").expect("written");
    let root = LocalRoot::open(inside.path(), false).expect("opened");
    let listed = root.list("").expect("listed");
    assert_eq!(listed.len(), 3);
    for info in listed {
        assert_eq!(info.identity, Identity::Unknown, "{:?}", info.path);
        assert_eq!(class(root.source(&info.path, 0, &info.identity)), Some(FailureClass::Policy), "{:?}", info.path);
    }
}

#[test]
fn a_file_that_shrinks_or_lies_about_its_size_is_noticed() {
    let inside = folder();
    let path = inside.path().join("a");
    std::fs::write(&path, "0123456789").expect("written");
    let root = LocalRoot::open(inside.path(), false).expect("opened");
    let info = root.head("a").expect("an answer").expect("it exists");
    assert_eq!(class(root.source("a", 11, &Identity::Unknown)), Some(FailureClass::InputChanged));
    let source = root.source("a", 10, &info.identity).expect("opened");
    std::fs::OpenOptions::new().write(true).open(&path).expect("opened").set_len(5).expect("shortened");
    assert_eq!(class(source.read(0..10)), Some(FailureClass::InputChanged));
    assert_eq!(class(source.check_unchanged()), Some(FailureClass::InputChanged));
}

#[test]
fn a_file_of_impossible_size_does_not_end_the_process() {
    let inside = folder();
    let file = std::fs::File::create(inside.path().join("a")).expect("made");
    let bytes = 1 << 43;
    if file.set_len(bytes).is_err() {
        return;
    }
    let root = LocalRoot::open(inside.path(), false).expect("opened");
    let source = LocalSource::new(root.open_regular("a").expect("opened").expect("there"), u64::MAX, Identity::Unknown);
    assert_eq!(class(source.read(0..u64::MAX)), Some(FailureClass::Policy));
}

#[test]
fn a_sink_that_is_dropped_leaves_nothing() {
    let inside = folder();
    let root = LocalRoot::open(inside.path(), false).expect("opened");
    let mut sink = root.create("s/1.part").expect("created");
    sink.write_all(b"some").expect("written");
    assert_eq!(class(root.create("s/1.part")), Some(FailureClass::Transient), "the name is taken");
    drop(sink);
    assert_eq!(root.list(""), Ok(vec![]));
}

#[test]
fn a_full_disk_is_named_and_may_pass() {
    let failure = failed(&Errno::NOSPC.into(), Doing::Write, "write", "/x");
    assert_eq!(failure.to_string(), "TRANSIENT: /x: write: no space left on device: free some space and run again");
    let inside = folder();
    symlink("/dev/full", inside.path().join("full")).expect("linked");
    let full = std::fs::OpenOptions::new().write(true).open("/dev/full").expect("opened");
    let directory = std::fs::File::open(inside.path()).expect("opened");
    let mut sink = LocalSink::new(full, directory.into(), "full", "full".to_owned());
    sink.write_all(b"some").expect("gathered");
    let failure = sink.finish().expect_err("the disk is full");
    assert_eq!(failure.class, FailureClass::Transient);
    assert!(failure.message.contains("free some space"), "{failure}");
}

#[test]
fn what_may_not_be_read_or_written_is_policy() {
    if rustix::process::geteuid().is_root() {
        eprintln!("left out: root may read and write everything");
        return;
    }
    let inside = folder();
    let path = inside.path().join("a");
    std::fs::write(&path, "x").expect("written");
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o000)).expect("set");
    let root = LocalRoot::open(inside.path(), false).expect("opened");
    assert_eq!(class(root.read("a")), Some(FailureClass::Policy));
    std::fs::set_permissions(inside.path(), std::fs::Permissions::from_mode(0o555)).expect("set");
    assert_eq!(class(root.put("b", b"x")), Some(FailureClass::Policy));
    std::fs::set_permissions(inside.path(), std::fs::Permissions::from_mode(0o755)).expect("set");
}

#[test]
fn a_file_in_the_place_of_a_folder_is_policy() {
    let inside = folder();
    for root in roots(inside.path()) {
        root.put("a", b"x").expect("put");
        assert_eq!(class(root.put("a/b", b"x")), Some(FailureClass::Policy));
        assert_eq!(class(root.read("a/b")), Some(FailureClass::Policy));
        root.put("d/b", b"x").expect("put");
        assert_eq!(class(root.read("d")), Some(FailureClass::Policy));
        assert_eq!(class(root.put("d", b"x")), Some(FailureClass::Policy));
    }
    assert_eq!(std::fs::read_dir(inside.path()).expect("listed").count(), 2, "no staging file is left");
}
