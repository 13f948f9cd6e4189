use super::super::leadership::Leadership;
use super::super::testing::{Etcd, Proxy, Traffic, options};
use super::super::{StateStore, range_all, range_at};
use super::*;
use std::sync::Arc;

fn put(key: &str, value: impl Into<Vec<u8>>) -> Change {
    Change::Put(key.into(), value.into())
}

async fn applied(store: &dyn StateStore, changes: &[Change]) -> u64 {
    match store.txn(&[], changes).await.unwrap() {
        Applied::Yes(revision) => revision,
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn two_prefixes_are_two_stores() {
    let etcd = Etcd::start();
    let one = etcd.store().await;
    let other = EtcdStore::connect(EtcdOptions { prefix: "/baler-2/".into(), ..etcd.options() }).await.unwrap();
    applied(&one, &[put("1/k", "one")]).await;
    applied(&other, &[put("1/k", "other")]).await;
    assert_eq!(one.get("1/k").await.unwrap().unwrap().value, b"one");
    assert_eq!(range_all(&one, "").await.unwrap().len(), 1);
    let plain = EtcdStore::connect(EtcdOptions { prefix: "/".into(), ..etcd.options() }).await.unwrap();
    let keys: Vec<String> = range_all(&plain, "").await.unwrap().into_iter().map(|entry| entry.key).collect();
    assert_eq!(keys, ["baler-2/1/k", "baler/1/k"]);
}

#[tokio::test]
async fn pages_of_a_range_are_of_one_revision_however_many() {
    let etcd = Etcd::start();
    let mut store = etcd.store().await;
    for first in (0..5_100).step_by(100) {
        let changes: Vec<Change> = (first..first + 100).map(|n| put(&format!("j/{n:06}"), vec![1; 900])).collect();
        applied(&store, &changes).await;
    }
    let before = store.range("j/", None, usize::MAX, None).await.unwrap();
    assert_eq!((before.entries.len(), before.more), (PAGE_MAX, true));
    applied(&store, &[put("j/005050", "later"), Change::Delete("j/005051".into())]).await;
    let old = range_at(&store, "j/", Some(before.revision)).await.unwrap();
    assert_eq!(old.len(), 5_100);
    assert!(old.iter().all(|entry| entry.value == [1; 900]));
    assert_eq!(range_all(&store, "j/").await.unwrap().len(), 5_099);

    // Pages that do not fit into an answer are cut until they do.
    store.kv = store.client.kv_client().max_decoding_message_size(1_000_000);
    let cut = store.range("j/", None, usize::MAX, None).await.unwrap();
    assert_eq!((cut.entries.len(), cut.more), (625, true));
    assert_eq!(range_all(&store, "j/").await.unwrap().len(), 5_099);
    store.kv = store.client.kv_client().max_decoding_message_size(500);
    let error = store.range("j/", None, 1, None).await.unwrap_err().to_string();
    assert!(error.contains("one entry is larger than an answer may be"), "{error}");
}

#[tokio::test]
async fn a_compacted_revision_is_told_apart() {
    let etcd = Etcd::start();
    let store = etcd.store().await;
    let old = applied(&store, &[put("k", "1")]).await;
    let new = applied(&store, &[put("k", "2")]).await;
    store.client.kv_client().compact(i64::try_from(new).unwrap(), None).await.unwrap();
    assert!(matches!(range_at(&store, "", Some(old)).await, Err(StateError::Compacted(revision)) if revision == old));
    assert_eq!(range_all(&store, "").await.unwrap()[0].value, b"2");
    assert!(matches!(range_at(&store, "", Some(0)).await, Err(StateError::Io(_))));
}

#[tokio::test]
async fn a_lost_answer_is_unknown_and_resolved_by_looking() {
    let etcd = Etcd::start();
    let proxy = Proxy::start(etcd.address()).await;
    let direct = etcd.store().await;
    for (traffic, landed) in [(Traffic::LosesAnswers, true), (Traffic::LosesRequests, false)] {
        let store = EtcdStore::connect(options(&proxy.address)).await.unwrap();
        let leader = Leadership::take(Arc::new(store.clone()), "test", random_u64()).await.unwrap();
        direct.txn(&[], &[Change::Delete("k".into())]).await.unwrap();

        proxy.set(traffic);
        let answer = store.txn(&[Compare::Absent("k".into())], &[put("k", "lost")]).await.unwrap();
        assert_eq!(answer, Applied::Unknown);
        assert_eq!(direct.get("k").await.unwrap().is_some(), landed);

        let written = tokio::spawn(async move { leader.write(&[], &[put("r", "1"), put("r2", "1")]).await });
        tokio::time::sleep(Duration::from_millis(700)).await;
        assert_eq!(direct.get("r").await.unwrap().is_some(), landed);
        proxy.set(Traffic::Passes);
        let revision = written.await.unwrap().unwrap();
        let entry = direct.get("r").await.unwrap().unwrap();
        assert_eq!((entry.value.as_slice(), entry.revision), (&b"1"[..], revision));
        direct.txn(&[], &[Change::Delete("r".into())]).await.unwrap();
    }
}

#[tokio::test]
async fn a_leader_that_was_overtaken_while_its_answer_was_lost_is_fenced() {
    let etcd = Etcd::start();
    let proxy = Proxy::start(etcd.address()).await;
    let store = Arc::new(EtcdStore::connect(options(&proxy.address)).await.unwrap());
    let leader = Leadership::take(store, "first", 1).await.unwrap();
    proxy.set(Traffic::LosesRequests);
    let written = tokio::spawn(async move { leader.write(&[], &[put("r", "first")]).await });
    tokio::time::sleep(Duration::from_millis(500)).await;
    let direct = Arc::new(etcd.store().await);
    Leadership::take(direct.clone(), "second", 2).await.unwrap();
    proxy.set(Traffic::Passes);
    assert!(matches!(written.await.unwrap(), Err(StateError::Fenced)));
    assert_eq!(direct.get("r").await.unwrap(), None);
}

#[tokio::test]
async fn a_restart_of_etcd_is_waited_for() {
    let mut etcd = Etcd::start();
    let store = etcd.store().await;
    let leader = Leadership::take(Arc::new(store.clone()), "test", 1).await.unwrap();
    etcd.kill();
    let written = tokio::spawn(async move { leader.write(&[], &[put("k", "v")]).await });
    tokio::time::sleep(Duration::from_secs(1)).await;
    etcd.restart();
    let revision = written.await.unwrap().unwrap();
    assert_eq!(store.get("k").await.unwrap().unwrap().revision, revision);
}

#[tokio::test]
async fn a_member_that_is_down_is_gone_around() {
    let etcd = Etcd::start();
    let mut options = etcd.options();
    // Nothing listens on the first.
    options.endpoints.insert(0, "http://127.0.0.1:1".into());
    let store = EtcdStore::connect(options).await.unwrap();
    for n in 0..40_u8 {
        applied(&store, &[put("k", [n])]).await;
        assert_eq!(store.get("k").await.unwrap().unwrap().value, [n]);
    }
}

#[tokio::test]
async fn an_etcd_that_does_not_answer_is_named() {
    let nowhere = EtcdOptions { retry_for: Duration::from_millis(300), ..options("127.0.0.1:1") };
    let error = EtcdStore::connect(nowhere).await.unwrap_err().to_string();
    assert!(error.starts_with("etcd at http://127.0.0.1:1: no answer for 300ms: "), "{error}");

    let etcd = Etcd::start();
    let mut store = etcd.store().await;
    store.options.retry_for = Duration::from_millis(500);
    store.options.call_timeout = Duration::from_millis(200);
    etcd.pause().await;
    let error = store.get("k").await.unwrap_err().to_string();
    assert!(error.contains("no answer for 500ms: no answer within 200ms"), "{error}");
    assert_eq!(store.txn(&[], &[put("k", "v")]).await.unwrap(), Applied::Unknown);
    etcd.resume();
}

#[tokio::test]
async fn a_user_is_logged_in_and_a_wrong_one_refused() {
    let etcd = Etcd::start();
    let mut auth = etcd.store().await.client.auth_client();
    auth.user_add("root", "s3cret", None).await.unwrap();
    auth.role_add("root").await.unwrap();
    auth.user_grant_role("root", "root").await.unwrap();
    auth.auth_enable().await.unwrap();
    let with = |name: &str, password: &str| EtcdOptions {
        user: Some(EtcdUser { name: name.into(), password: password.into() }),
        ..etcd.options()
    };
    let store = EtcdStore::connect(with("root", "s3cret")).await.unwrap();
    applied(&store, &[put("k", "v")]).await;
    assert!(!format!("{store:?}").contains("s3cret"));
    for options in [with("root", "wr0ng"), with("nobody", "s3cret"), etcd.options()] {
        let error = EtcdStore::connect(options).await.unwrap_err().to_string();
        assert!(error.starts_with("etcd at http://127.0.0.1:") && !error.contains("wr0ng"), "{error}");
    }
}

#[tokio::test]
async fn both_ends_show_a_certificate() {
    let (etcd, tls) = Etcd::start_with_tls();
    let with = |tls: EtcdTls| EtcdOptions {
        endpoints: vec![format!("https://{}", etcd.address())],
        tls: Some(tls),
        ..etcd.options()
    };
    let store = EtcdStore::connect(with(tls.clone())).await.unwrap();
    applied(&store, &[put("k", "v")]).await;

    let (_other, stranger) = Etcd::start_with_tls();
    let without = EtcdTls { identity: None, ..tls.clone() };
    let of_a_stranger = EtcdTls { identity: stranger.identity, ..tls.clone() };
    let wrong_authority = EtcdTls { ca: stranger.ca, ..tls };
    for (wrong, what) in [(without, "none"), (of_a_stranger, "a stranger's"), (wrong_authority, "authority")] {
        let options = EtcdOptions { retry_for: Duration::from_millis(300), ..with(wrong) };
        let error = EtcdStore::connect(options).await.unwrap_err().to_string();
        assert!(error.starts_with("etcd at https://127.0.0.1:"), "{what}: {error}");
        println!("{what}: {error}");
    }
}

#[tokio::test]
async fn options_that_cannot_be_right_are_refused_with_the_reason() {
    let tls = EtcdTls { ca: "/nowhere/ca.pem".into(), identity: None };
    let base = EtcdOptions::new(vec!["http://h:1".into()]);
    for (options, reason) in [
        (EtcdOptions { endpoints: vec![], ..base.clone() }, "no endpoint"),
        (EtcdOptions { endpoints: vec!["h:1".into()], ..base.clone() }, "neither http:// nor https://"),
        (EtcdOptions { endpoints: vec!["http://u:p@h:1".into()], ..base.clone() }, "options of their own"),
        (EtcdOptions { endpoints: vec!["https://h:1".into()], ..base.clone() }, "certificate of its authority"),
        (EtcdOptions { tls: Some(tls.clone()), ..base.clone() }, "TLS needs https"),
        (
            EtcdOptions { endpoints: vec!["https://h:1".into()], tls: Some(tls), ..base.clone() },
            "read /nowhere/ca.pem: ",
        ),
        (EtcdOptions { prefix: String::new(), ..base.clone() }, "0 bytes"),
        (EtcdOptions { prefix: "p".repeat(129), ..base }, "129 bytes"),
    ] {
        let error = EtcdStore::connect(options).await.unwrap_err();
        assert!(matches!(&error, StateError::Etcd { message, .. } if message.contains(reason)), "{reason}: {error}");
    }
}

#[test]
fn what_a_status_means_for_a_transaction() {
    let shown = [
        (Code::InvalidArgument, "etcdserver: too many operations in txn request"),
        (Code::ResourceExhausted, "etcdserver: mvcc: database space exceeded"),
        (Code::ResourceExhausted, "etcdserver: too many requests"),
        (Code::PermissionDenied, "etcdserver: permission denied"),
        (Code::NotFound, "etcdserver: requested lease not found"),
        (Code::OutOfRange, "etcdserver: mvcc: required revision has been compacted"),
        (Code::OutOfRange, "etcdserver: mvcc: required revision is a future revision"),
        (Code::Unavailable, "etcdserver: leader changed"),
        (Code::Unavailable, "etcdserver: request timed out"),
        (Code::DeadlineExceeded, "context deadline exceeded"),
        (Code::Cancelled, "Timeout expired"),
        (Code::Unknown, "transport error"),
        (Code::Internal, "h2 protocol error"),
    ]
    .map(|(code, message)| format!("{:?}", Trouble::of_status(&Status::new(code, message))));
    assert_eq!(
        shown,
        [
            "Refused(\"etcdserver: too many operations in txn request\")",
            "Refused(\"etcdserver: mvcc: database space exceeded\")",
            "NotTaken(\"etcdserver: too many requests\")",
            "Refused(\"etcdserver: permission denied\")",
            "LeaseGone",
            "Compacted",
            "Refused(\"etcdserver: mvcc: required revision is a future revision\")",
            "Lost(\"etcdserver: leader changed\")",
            "Lost(\"etcdserver: request timed out\")",
            "Lost(\"context deadline exceeded\")",
            "Lost(\"Timeout expired\")",
            "Lost(\"transport error\")",
            "Lost(\"h2 protocol error\")",
        ]
    );
}

#[test]
fn a_range_ends_behind_its_prefix() {
    assert_eq!(end_of("/baler/"), b"/baler0");
    assert_eq!(end_of("a\u{7f}"), b"a\x80");
}
