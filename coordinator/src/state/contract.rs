//! What every state store must do; one suite, run on each.

use std::sync::Arc;

use super::embedded::EmbeddedStore;
use super::simulated::SimulatedStore;
use super::testing::Etcd;
use super::{
    Applied, Change, Compare, Entry, Page, StateError, StateStore, TXN_BYTES_MAX, TXN_ENTRIES_MAX, TXN_ENTRY_BYTES,
    range_all, range_at,
};

fn put(key: &str, value: &str) -> Change {
    Change::Put(key.into(), value.into())
}

fn delete(key: &str) -> Change {
    Change::Delete(key.into())
}

fn keys(entries: &[Entry]) -> Vec<&str> {
    entries.iter().map(|entry| entry.key.as_str()).collect()
}

async fn applied(store: &dyn StateStore, compares: &[Compare], changes: &[Change]) -> u64 {
    match store.txn(compares, changes).await.unwrap() {
        Applied::Yes(revision) => revision,
        other => panic!("{compares:?} {changes:?}: {other:?}"),
    }
}

async fn conflicts(store: &dyn StateStore, compare: Compare) {
    let changes = [put("conflicts", "v"), delete("a/1")];
    assert_eq!(store.txn(std::slice::from_ref(&compare), &changes).await.unwrap(), Applied::Conflict, "{compare:?}");
    assert_eq!(store.get("conflicts").await.unwrap(), None, "a refused transaction changes nothing");
}

/// The suite. The store is empty before it.
async fn contract(store: Arc<dyn StateStore>) {
    transactions(store.as_ref()).await;
    deleted_keys(store.as_ref()).await;
    ranges(store.as_ref()).await;
    pages_of_one_revision(store.as_ref()).await;
    limits(store.as_ref()).await;
    concurrent_writers(store).await;
}

async fn transactions(store: &dyn StateStore) {
    let first = applied(store, &[Compare::Absent("a/1".into())], &[put("a/1", "x"), put("a/2", "y")]).await;
    conflicts(store, Compare::Absent("a/1".into())).await;
    let entry = store.get("a/1").await.unwrap().unwrap();
    assert_eq!((entry.key.as_str(), entry.value.as_slice(), entry.revision), ("a/1", &b"x"[..], first));
    assert_eq!(store.get("a/2").await.unwrap().unwrap().revision, first, "one transaction is one revision");
    assert_eq!(store.get("a").await.unwrap(), None, "a prefix is not a key");

    let second = applied(store, &[Compare::Revision("a/1".into(), first)], &[put("a/1", "w")]).await;
    assert!(second > first);
    assert_eq!(store.get("a/1").await.unwrap().unwrap().revision, second);
    assert_eq!(store.get("a/2").await.unwrap().unwrap().revision, first, "another key keeps its revision");
    conflicts(store, Compare::Revision("a/1".into(), first)).await;
    conflicts(store, Compare::Revision("none".into(), 1)).await;
    conflicts(store, Compare::Revision("none".into(), 0)).await;
    conflicts(store, Compare::Revision("a/1".into(), u64::MAX)).await;
    let one_of_two = [Compare::Revision("a/1".into(), second), Compare::Absent("a/2".into())];
    assert_eq!(store.txn(&one_of_two, &[put("b", "v")]).await.unwrap(), Applied::Conflict);
    assert_eq!(store.get("a/1").await.unwrap().unwrap().value, b"w");
}

async fn deleted_keys(store: &dyn StateStore) {
    let first = applied(store, &[], &[put("d", "1")]).await;
    let deleted = applied(store, &[Compare::Revision("d".into(), first)], &[delete("d")]).await;
    assert!(deleted > first);
    assert_eq!(store.get("d").await.unwrap(), None);
    conflicts(store, Compare::Revision("d".into(), first)).await;
    conflicts(store, Compare::Revision("d".into(), deleted)).await;
    let again = applied(store, &[Compare::Absent("d".into())], &[put("d", "2")]).await;
    assert!(again > deleted);
    conflicts(store, Compare::Revision("d".into(), first)).await;
    applied(store, &[Compare::Revision("d".into(), again)], &[delete("d"), delete("never")]).await;
}

async fn ranges(store: &dyn StateStore) {
    for n in 0..7 {
        applied(store, &[], &[put(&format!("p/{n}"), "v")]).await;
    }
    applied(store, &[], &[put("p", "before"), put("p0", "after")]).await;
    let page = store.range("p/", Some("p/2"), 3, None).await.unwrap();
    assert_eq!((keys(&page.entries), page.more), (vec!["p/3", "p/4", "p/5"], true));
    let page = store.range("p/", Some("p/3"), 3, None).await.unwrap();
    assert_eq!((keys(&page.entries), page.more), (vec!["p/4", "p/5", "p/6"], false));
    assert_eq!(keys(&store.range("p/", Some("a"), 1, None).await.unwrap().entries), ["p/0"]);
    assert_eq!(store.range("p/", Some("p/6"), 3, None).await.unwrap().entries, []);
    assert_eq!(store.range("p/", Some("q"), 3, None).await.unwrap().entries, []);
    let none = store.range("p/", None, 0, None).await.unwrap();
    assert_eq!((none.entries.len(), none.more), (0, true));
    assert_eq!(range_all(store, "p/").await.unwrap().len(), 7);
    applied(store, &[], &[delete("p/3"), delete("p"), delete("p0")]).await;
    assert_eq!(keys(&range_all(store, "p/").await.unwrap()), ["p/0", "p/1", "p/2", "p/4", "p/5", "p/6"]);
    assert_eq!(range_all(store, "a/").await.unwrap().len(), 2);
    assert_eq!(range_all(store, "").await.unwrap().len(), 8);
    assert_eq!(range_all(store, "nothing/").await.unwrap(), []);
}

/// An earlier revision is shown as it was, or refused: never mixed with a later one.
async fn pages_of_one_revision(store: &dyn StateStore) {
    for n in 0..4 {
        applied(store, &[], &[put(&format!("s/{n}"), "old")]).await;
    }
    let first = store.range("s/", None, 2, None).await.unwrap();
    assert!(first.more);
    let same = store.range("s/", Some("s/1"), 2, Some(first.revision)).await.unwrap();
    assert_eq!((keys(&same.entries), same.revision, same.more), (vec!["s/2", "s/3"], first.revision, false));

    let later = applied(store, &[], &[put("s/2", "new"), delete("s/3"), put("s/4", "new")]).await;
    match store.range("s/", Some("s/1"), 9, Some(first.revision)).await {
        Ok(page) => assert_eq!(page, same),
        Err(StateError::Compacted(revision)) => assert_eq!(revision, first.revision),
        Err(error) => panic!("{error}"),
    }
    assert_eq!(keys(&range_at(store, "s/", Some(later)).await.unwrap()), ["s/0", "s/1", "s/2", "s/4"]);
    let Page { entries, .. } = store.range("s/", Some("s/1"), 9, Some(later)).await.unwrap();
    assert!(entries.iter().all(|entry| entry.value == b"new" && entry.revision == later));
    store.range("s/", None, 9, Some(later + 1_000)).await.unwrap_err();
}

async fn limits(store: &dyn StateStore) {
    let compares: Vec<Compare> = (0..TXN_ENTRIES_MAX).map(|n| Compare::Absent(format!("l/{n}"))).collect();
    let changes: Vec<Change> = (0..TXN_ENTRIES_MAX).map(|n| put(&format!("l/{n}"), "v")).collect();
    applied(store, &compares, &changes).await;
    assert_eq!(range_all(store, "l/").await.unwrap().len(), 128);
    applied(store, &[], &(0..TXN_ENTRIES_MAX).map(|n| delete(&format!("l/{n}"))).collect::<Vec<_>>()).await;

    let refused = async |compares: &[Compare], changes: &[Change]| match store.txn(compares, changes).await {
        Err(StateError::Limit(reason)) => reason,
        other => panic!("{} compares, {} changes: {other:?}", compares.len(), changes.len()),
    };
    let one_more = [&compares[..], &[Compare::Absent("l/more".into())]].concat();
    assert_eq!(refused(&one_more, &[]).await, "129 conditions are more than 128");
    let one_more = [&changes[..], &[put("l/more", "v")]].concat();
    assert_eq!(refused(&[], &one_more).await, "129 changes are more than 128");
    assert_eq!(refused(&[], &[put("l/1", "v"), delete("l/1")]).await, "l/1 is changed twice");

    let value = vec![7; TXN_BYTES_MAX - TXN_ENTRY_BYTES - "l/big".len()];
    applied(store, &[], &[Change::Put("l/big".into(), value.clone())]).await;
    assert_eq!(store.get("l/big").await.unwrap().unwrap().value, value);
    let larger = [value, vec![7]].concat();
    let reason = refused(&[], &[Change::Put("l/big".into(), larger)]).await;
    assert_eq!(reason, "1572865 bytes are more than 1572864");
    assert_eq!(range_all(store, "l/").await.unwrap().len(), 1, "what is refused changes nothing");
}

/// Many add one to the same counter by compare and set: none is lost, none counts twice.
async fn concurrent_writers(store: Arc<dyn StateStore>) {
    const WRITERS: u64 = 16;
    const EACH: u64 = 4;
    let add_one = |store: Arc<dyn StateStore>| async move {
        for _ in 0..EACH {
            loop {
                let entry = store.get("counter").await.unwrap();
                let (compare, count) = match &entry {
                    None => (Compare::Absent("counter".into()), 0),
                    Some(entry) => (
                        Compare::Revision("counter".into(), entry.revision),
                        u64::from_le_bytes(entry.value[..].try_into().unwrap()),
                    ),
                };
                let change = Change::Put("counter".into(), (count + 1).to_le_bytes().to_vec());
                match store.txn(&[compare], &[change]).await.unwrap() {
                    Applied::Yes(_) => break,
                    Applied::Conflict => tokio::task::yield_now().await,
                    Applied::Unknown => panic!("no answer is lost here"),
                }
            }
        }
    };
    let writers: Vec<_> = (0..WRITERS).map(|_| tokio::spawn(add_one(Arc::clone(&store)))).collect();
    for writer in writers {
        writer.await.unwrap();
    }
    let counter = store.get("counter").await.unwrap().unwrap();
    assert_eq!(u64::from_le_bytes(counter.value[..].try_into().unwrap()), WRITERS * EACH);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_embedded_store_keeps_the_contract_and_its_content() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("state.redb");
    contract(Arc::new(EmbeddedStore::open(&path).unwrap())).await;
    let again = EmbeddedStore::open(&path).unwrap();
    assert_eq!(again.get("a/1").await.unwrap().unwrap().value, b"w");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_simulated_store_keeps_the_contract() {
    contract(Arc::new(SimulatedStore::default())).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn etcd_keeps_the_contract_and_its_content() {
    let mut etcd = Etcd::start();
    contract(Arc::new(etcd.store().await)).await;
    etcd.kill();
    etcd.restart();
    assert_eq!(etcd.store().await.get("a/1").await.unwrap().unwrap().value, b"w");
}
