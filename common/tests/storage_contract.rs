//! What every store keeps, whatever is behind it: run on a local disk, and on a real S3 server where there is one.
//!
//! The S3 part starts SeaweedFS through `tests/services/s3.sh` and runs this test again with its variables set. Without
//! the server's program it is left out with a printed reason, unless `BALER_REQUIRE_S3=1`.

use std::io::Write;
use std::path::PathBuf;
use std::process::Command;
use std::sync::Barrier;
use std::sync::atomic::{AtomicUsize, Ordering};

use baler_common::model::error::FailureClass;
use baler_common::model::object::Identity;
use baler_common::runtime::storage::{Creation, Store};

/// Set by the script: the root in which the contract is tried.
const S3_VARIABLE: &str = "BALER_TEST_S3";

#[test]
fn a_local_disk_keeps_the_contract() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    keeps_the_contract(folder.path().to_str().expect("a UTF-8 path"));
}

#[test]
fn an_s3_server_keeps_the_contract() {
    if let Ok(location) = std::env::var(S3_VARIABLE) {
        return keeps_the_contract(&location);
    }
    let script = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../tests/services/s3.sh");
    let found = Command::new(&script).arg("find").output().expect("the script runs");
    if !found.status.success() {
        let reason = String::from_utf8_lossy(&found.stderr);
        assert_ne!(std::env::var("BALER_REQUIRE_S3").as_deref(), Ok("1"), "{reason}");
        eprintln!("left out: {}", reason.trim());
        return;
    }
    let status = Command::new(&script)
        .arg("run")
        .arg(std::env::current_exe().expect("the path of this test"))
        .args(["--exact", "an_s3_server_keeps_the_contract", "--nocapture"])
        .status()
        .expect("the script runs");
    assert!(status.success(), "the contract is not kept on S3");
}

fn keeps_the_contract(location: &str) {
    type Check = fn(&Store);
    let checks: [(&str, Check); 15] = [
        ("nothing", nothing_is_there_at_first),
        ("put", put_makes_and_replaces),
        ("put-new", put_new_never_replaces),
        ("put-new-again", put_new_of_the_same_content_is_done_already),
        ("race", one_of_sixteen_racing_creates_wins),
        ("small", a_small_sink_is_stored_whole),
        ("empty", an_empty_sink_is_an_empty_object),
        ("large", a_large_sink_is_stored_whole),
        ("aborted", an_aborted_sink_leaves_nothing),
        ("list", a_listing_is_sorted_recursive_and_below_its_folder),
        ("ranges", ranges_are_exact_and_end_with_the_object),
        ("changed", a_replaced_object_is_not_read_on),
        ("gone", a_removed_object_is_missing),
        ("publish", publish_is_create_only),
        ("names", names_are_kept_or_refused),
    ];
    for (name, check) in checks {
        let store = Store::open("target", &format!("{}/{name}", location.trim_end_matches('/')), true).expect(name);
        println!("{location}: {name}");
        check(&store);
    }
}

fn content(bytes: usize, seed: u64) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    (0..bytes)
        .map(|_| {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            (state >> 32) as u8
        })
        .collect()
}

fn read(store: &Store, path: &str) -> Vec<u8> {
    store.read(path).expect("it is readable").expect("it exists").to_vec()
}

fn nothing_is_there_at_first(store: &Store) {
    assert_eq!(store.list(""), Ok(vec![]));
    assert_eq!(store.list("a/b"), Ok(vec![]));
    assert_eq!(store.head("a/b"), Ok(None));
    assert_eq!(store.read("a/b"), Ok(None));
    assert_eq!(store.delete("a/b"), Ok(()));
}

fn put_makes_and_replaces(store: &Store) {
    store.put("lists/one.jsonl", b"first").expect("made");
    store.put("lists/one.jsonl", b"second, longer").expect("replaced");
    assert_eq!(read(store, "lists/one.jsonl"), b"second, longer");
    assert_eq!(store.list("").expect("listed").len(), 1);
}

fn put_new_never_replaces(store: &Store) {
    assert_eq!(store.put_new("m/1.json", b"first"), Ok(Creation::Created));
    assert_eq!(store.put_new("m/1.json", b"other"), Ok(Creation::Exists));
    assert_eq!(read(store, "m/1.json"), b"first");
    assert_eq!(store.list("").expect("listed").len(), 1);
}

/// As after an answer that was lost: the caller cannot tell, and need not.
fn put_new_of_the_same_content_is_done_already(store: &Store) {
    assert_eq!(store.put_new("m/1.json", b"same"), Ok(Creation::Created));
    assert_eq!(store.put_new("m/1.json", b"same"), Ok(Creation::Created));
    assert_eq!(read(store, "m/1.json"), b"same");
}

fn one_of_sixteen_racing_creates_wins(store: &Store) {
    for round in 0..4 {
        let path = format!("race/{round}");
        let (barrier, winners) = (Barrier::new(16), AtomicUsize::new(0));
        std::thread::scope(|scope| {
            for racer in 0..16 {
                let (store, path, barrier, winners) = (store.clone(), &path, &barrier, &winners);
                scope.spawn(move || {
                    barrier.wait();
                    let mine = format!("racer {racer}");
                    if store.put_new(path, mine.as_bytes()).expect("an answer") == Creation::Created {
                        winners.fetch_add(1, Ordering::Relaxed);
                        assert_eq!(read(&store, path), mine.as_bytes());
                    }
                });
            }
        });
        assert_eq!(winners.load(Ordering::Relaxed), 1, "round {round}");
    }
    assert_eq!(store.list("race").expect("listed").len(), 4, "nothing else is left");
}

fn a_sink_stores(store: &Store, path: &str, content: &[u8], step: usize) {
    let mut sink = store.create(path).expect("created");
    for piece in content.chunks(step.max(1)) {
        sink.write_all(piece).expect("written");
    }
    assert_eq!(sink.bytes_written(), content.len() as u64);
    let stored = sink.finish().expect("finished");
    assert_eq!(stored.bytes, content.len() as u64);
    let head = store.head(path).expect("an answer").expect("it exists");
    assert_eq!(head.bytes, content.len() as u64);
    assert_eq!(head.identity, stored.identity, "{path}");
    assert!(read(store, path) == content, "{path} reads back as it was written");
}

fn a_small_sink_is_stored_whole(store: &Store) {
    a_sink_stores(store, "staging/1.part", &content(70_001, 1), 1_000);
    a_sink_stores(store, "2.part", b"x", 1);
}

fn an_empty_sink_is_an_empty_object(store: &Store) {
    a_sink_stores(store, "staging/0.part", b"", 1);
}

fn a_large_sink_is_stored_whole(store: &Store) {
    for bytes in [8 << 20, (8 << 20) + 1, (45 << 20) + 7] {
        a_sink_stores(store, &format!("staging/{bytes}.part"), &content(bytes, 2), 3_000_017);
    }
}

fn an_aborted_sink_leaves_nothing(store: &Store) {
    for bytes in [10, 20 << 20] {
        let mut sink = store.create("staging/1.part").expect("created");
        sink.write_all(&content(bytes, 3)).expect("written");
        sink.abort();
        assert_eq!(store.head("staging/1.part"), Ok(None));
    }
    assert_eq!(store.list(""), Ok(vec![]));
}

fn a_listing_is_sorted_recursive_and_below_its_folder(store: &Store) {
    for path in ["en/b.parquet", "en/a.parquet", "en/x/y/z.parquet", "en2/a.parquet", "enough", "top.parquet"] {
        store.put(path, path.as_bytes()).expect(path);
    }
    let paths =
        |folder: &str| -> Vec<String> { store.list(folder).expect(folder).into_iter().map(|info| info.path).collect() };
    let all = ["en/a.parquet", "en/b.parquet", "en/x/y/z.parquet", "en2/a.parquet", "enough", "top.parquet"];
    assert_eq!(paths(""), all);
    assert_eq!(paths("en"), all[..3]);
    assert_eq!(paths("en/"), all[..3]);
    assert_eq!(paths("en/x"), all[2..3]);
    for info in store.list("").expect("listed") {
        assert_eq!(info.bytes, info.path.len() as u64);
        let head = store.head(&info.path).expect("an answer").expect("it exists");
        assert_eq!(head.identity, info.identity, "a listing and a look say the same identity");
        assert_ne!(info.identity, Identity::Unknown);
        assert!(info.modified_ms > 1_600_000_000_000, "{}", info.modified_ms);
    }
    let beneath = store.beneath("source", "en", false).expect("opened");
    let paths: Vec<String> = beneath.list("").expect("listed").into_iter().map(|info| info.path).collect();
    assert_eq!(paths, ["a.parquet", "b.parquet", "x/y/z.parquet"]);
    assert_eq!(read(&beneath, "x/y/z.parquet"), b"en/x/y/z.parquet");
}

fn ranges_are_exact_and_end_with_the_object(store: &Store) {
    let whole = content((34 << 20) + 5, 4);
    a_sink_stores(store, "a.parquet", &whole, 1 << 20);
    let info = store.head("a.parquet").expect("an answer").expect("it exists");
    let source = store.source("a.parquet", info.bytes, &info.identity).expect("opened");
    let end = whole.len();
    for range in [0..0, 0..1, 5..100, end - 8..end, end..end, 0..end, (1 << 20)..(33 << 20)] {
        let found = source.read(range.start as u64..range.end as u64).expect("read");
        assert!(found == whole[range.clone()], "{range:?}");
    }
    let beyond = source.read(end as u64 - 1..end as u64 + 1).expect_err("beyond the end");
    assert_eq!(beyond.class, FailureClass::InputCorrupt);
    assert_eq!(source.check_unchanged(), Ok(()));
}

fn a_replaced_object_is_not_read_on(store: &Store) {
    store.put("a.parquet", b"the first content").expect("made");
    let info = store.head("a.parquet").expect("an answer").expect("it exists");
    store.put("a.parquet", b"the other content").expect("replaced");
    let refused = store
        .source("a.parquet", info.bytes, &info.identity)
        .and_then(|source| source.read(0..4))
        .expect_err("it is another content of the same size");
    assert_eq!(refused.class, FailureClass::InputChanged, "{refused}");
    store.put("a.parquet", b"longer than it was before").expect("replaced");
    let refused = store
        .source("a.parquet", info.bytes, &Identity::Unknown)
        .and_then(|source| source.read(0..4))
        .expect_err("it has another size");
    assert_eq!(refused.class, FailureClass::InputChanged, "{refused}");
}

fn a_removed_object_is_missing(store: &Store) {
    store.put("a.parquet", b"content").expect("made");
    let info = store.head("a.parquet").expect("an answer").expect("it exists");
    store.delete("a.parquet").expect("deleted");
    assert_eq!(store.delete("a.parquet"), Ok(()));
    let refused = store
        .source("a.parquet", info.bytes, &info.identity)
        .and_then(|source| source.read(0..4))
        .expect_err("it is gone");
    assert_eq!(refused.class, FailureClass::InputMissing, "{refused}");
}

fn publish_is_create_only(store: &Store) {
    let verified = content(9 << 20, 5);
    a_sink_stores(store, "_baler/staging/1.part", &verified, 1 << 20);
    assert_eq!(store.publish("_baler/staging/1.part", "en/chunks-0000-0003.parquet"), Ok(Creation::Created));
    assert!(read(store, "en/chunks-0000-0003.parquet") == verified);
    // Again, as after an answer that was lost: the caller compares what is there.
    assert_eq!(store.publish("_baler/staging/1.part", "en/chunks-0000-0003.parquet"), Ok(Creation::Exists));
    a_sink_stores(store, "_baler/staging/2.part", b"another", 10);
    assert_eq!(store.publish("_baler/staging/2.part", "en/chunks-0000-0003.parquet"), Ok(Creation::Exists));
    assert!(read(store, "en/chunks-0000-0003.parquet") == verified, "it is as it was");
    assert_eq!(read(store, "_baler/staging/2.part"), b"another", "a refused object stays");
    let missing = store.publish("_baler/staging/3.part", "en/4.parquet").expect_err("nothing to publish");
    assert_eq!(missing.class, FailureClass::InputMissing, "{missing}");
}

fn names_are_kept_or_refused(store: &Store) {
    let nfc_and_nfd = ["caf\u{e9}.parquet", "cafe\u{301}.parquet"];
    let kept = ["k=a b/1.parquet", "k=%2e%2e/1.parquet", "k=a#1/+&;.parquet", "\u{202e}rtl/\u{1f600}.parquet"];
    for path in kept.iter().chain(&nfc_and_nfd) {
        store.put(path, path.as_bytes()).expect(path);
    }
    for path in kept.iter().chain(&nfc_and_nfd) {
        assert_eq!(read(store, path), path.as_bytes());
    }
    let mut listed: Vec<String> = store.list("").expect("listed").into_iter().map(|info| info.path).collect();
    let mut expected: Vec<&str> = kept.iter().chain(&nfc_and_nfd).copied().collect();
    listed.sort();
    expected.sort();
    assert_eq!(listed, expected);
    let long = format!("{}/x", "n".repeat(1_100));
    for path in ["../outside", "a/../../outside", "./a", "a//b", "a/./b", "/absolute", "a\0b", "a\nb", "", &long] {
        for (doing, refused) in [
            ("put", store.put(path, b"x").err()),
            ("put_new", store.put_new(path, b"x").err()),
            ("create", store.create(path).err()),
            ("read", store.read(path).err()),
            ("delete", store.delete(path).err()),
        ] {
            let refused = refused.unwrap_or_else(|| panic!("{doing} of {path:?} is refused"));
            assert_eq!(refused.class, FailureClass::Policy, "{doing} of {path:?}: {refused}");
        }
    }
    assert_eq!(store.list("").expect("listed").len(), expected.len());
}
