//! What every state store must do; one suite, run on each.

use super::embedded::EmbeddedStore;
use super::simulated::SimulatedStore;
use super::{Applied, Change, Compare, StateStore, range_all};

fn put(key: &str, value: &str) -> Change {
    Change::Put(key.into(), value.into())
}

async fn contract(store: &dyn StateStore) {
    let first = store.txn(&[Compare::Absent("a/1".into())], &[put("a/1", "x"), put("a/2", "y")]).await.unwrap();
    let Applied::Yes(first) = first else { panic!("the store is empty, so the key is absent: {first:?}") };
    assert_eq!(store.txn(&[Compare::Absent("a/1".into())], &[put("a/1", "z")]).await.unwrap(), Applied::Conflict);
    let entry = store.get("a/1").await.unwrap().unwrap();
    assert_eq!((entry.value.as_slice(), entry.revision), (&b"x"[..], first));
    assert_eq!(store.get("a").await.unwrap(), None, "a prefix is not a key");

    let second = store.txn(&[Compare::Revision("a/1".into(), first)], &[put("a/1", "w")]).await.unwrap();
    assert_eq!(second, Applied::Yes(first + 1));
    let stale = store.txn(&[Compare::Revision("a/1".into(), first)], &[put("a/1", "v"), put("b", "v")]).await.unwrap();
    assert_eq!(stale, Applied::Conflict);
    assert_eq!(store.get("b").await.unwrap(), None, "a refused transaction changes nothing");
    let absent = store.txn(&[Compare::Revision("none".into(), 1)], &[put("b", "v")]).await.unwrap();
    assert_eq!(absent, Applied::Conflict);

    for n in 0..7 {
        store.txn(&[], &[put(&format!("p/{n}"), "v")]).await.unwrap();
    }
    let page = store.range("p/", Some("p/2"), 3).await.unwrap();
    assert_eq!(page.iter().map(|entry| entry.key.as_str()).collect::<Vec<_>>(), ["p/3", "p/4", "p/5"]);
    assert_eq!(range_all(store, "p/").await.unwrap().len(), 7);
    store.txn(&[], &[Change::Delete("p/3".into())]).await.unwrap();
    assert_eq!(range_all(store, "p/").await.unwrap().len(), 6);
    assert_eq!(range_all(store, "a/").await.unwrap().len(), 2);
}

#[tokio::test]
async fn the_embedded_store_keeps_the_contract_and_its_content() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("state.redb");
    contract(&EmbeddedStore::open(&path).unwrap()).await;
    let again = EmbeddedStore::open(&path).unwrap();
    assert_eq!(again.get("a/1").await.unwrap().unwrap().value, b"w");
}

#[tokio::test]
async fn the_simulated_store_keeps_the_contract() {
    contract(&SimulatedStore::default()).await;
}
