use std::time::Instant;

use super::super::Change;
use super::super::testing::{Etcd, Proxy, Traffic, options};
use super::*;

fn candidate(store: EtcdStore, holder: &str, ttl: u64) -> Candidate {
    let address = format!("http://{holder}:7000");
    Candidate { store, holder: holder.into(), address, ttl: Duration::from_secs(ttl) }
}

fn put(value: &str) -> [Change; 1] {
    [Change::Put("k".into(), value.into())]
}

#[tokio::test(flavor = "multi_thread")]
async fn a_leader_that_dies_is_followed_within_its_lease_and_fenced() {
    let etcd = Etcd::start();
    let store = etcd.store().await;
    assert_eq!(leader(&store).await.unwrap(), None);
    let (first, term) = candidate(store.clone(), "a", 2).campaign().await.unwrap();
    first.write(&[], &put("a")).await.unwrap();
    let named = Leader { epoch: Epoch(1), holder: "a".into(), address: "http://a:7000".into() };
    assert_eq!(leader(&store).await.unwrap(), Some(named.clone()));

    let next = candidate(etcd.store().await, "b", 2);
    let standby = tokio::spawn(async move { next.campaign().await });
    // Kept alive for longer than its lease.
    tokio::time::sleep(Duration::from_secs(4)).await;
    assert!(!standby.is_finished() && term.is_valid());
    assert_eq!(leader(&store).await.unwrap(), Some(named));

    let lost = term.lost();
    let died = Instant::now();
    drop(term);
    lost.await;
    let (second, term) = standby.await.unwrap().unwrap();
    // etcd looks for leases that are over every half second.
    assert!(died.elapsed() < Duration::from_secs(5), "{:?}", died.elapsed());
    assert!(term.is_valid());
    assert_eq!((first.epoch(), second.epoch()), (Epoch(1), Epoch(2)));
    assert!(second.revision() > first.revision());
    assert!(matches!(first.write(&[], &put("late")).await, Err(StateError::Fenced)));
    second.write(&[], &put("b")).await.unwrap();
    assert_eq!(store.get("k").await.unwrap().unwrap().value, b"b");
    assert_eq!(leader(&store).await.unwrap().unwrap().address, "http://b:7000");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_leader_that_resigns_is_followed_at_once() {
    let etcd = Etcd::start();
    let store = etcd.store().await;
    let (_, term) = candidate(store.clone(), "a", 30).campaign().await.unwrap();
    let next = Candidate { ttl: Duration::from_secs(10), ..candidate(store.clone(), "b", 10) };
    let standby = tokio::spawn(async move { next.campaign().await });
    tokio::time::sleep(Duration::from_millis(500)).await;
    assert!(!standby.is_finished());
    let resigned = Instant::now();
    term.resign().await.unwrap();
    assert!(!term.is_valid());
    term.lost().await;
    let (second, _term) = standby.await.unwrap().unwrap();
    // One second of random wait, and no part of either lease.
    assert!(resigned.elapsed() < Duration::from_secs(3), "{:?}", resigned.elapsed());
    assert_eq!(second.epoch(), Epoch(2));
    term.resign().await.unwrap();
    assert_eq!(leader(&store).await.unwrap().unwrap().holder, "b");
}

#[tokio::test(flavor = "multi_thread")]
async fn of_many_candidates_one_leads_at_a_time() {
    let etcd = Etcd::start();
    let store = etcd.store().await;
    let candidates: Vec<_> = (0..5)
        .map(|n| {
            let candidate = candidate(store.clone(), &format!("c{n}"), 2);
            tokio::spawn(async move {
                let (leadership, term) = candidate.campaign().await.unwrap();
                leadership.write(&[], &put(&candidate.holder)).await.unwrap();
                assert_eq!(leader(&candidate.store).await.unwrap().unwrap().holder, candidate.holder);
                term.resign().await.unwrap();
                leadership.epoch().0
            })
        })
        .collect();
    let mut epochs = Vec::new();
    for candidate in candidates {
        epochs.push(candidate.await.unwrap());
    }
    epochs.sort_unstable();
    assert_eq!(epochs, [1, 2, 3, 4, 5]);
    assert_eq!(leader(&store).await.unwrap(), None);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_leader_that_cannot_reach_etcd_loses_its_term_before_its_lease() {
    let etcd = Etcd::start();
    let (leadership, term) = candidate(etcd.store().await, "a", 4).campaign().await.unwrap();
    let lost = term.lost();
    assert!(term.is_valid());
    etcd.pause().await;
    let paused = Instant::now();
    lost.await;
    let after = paused.elapsed();
    // From 0.3 of the lease, for the keepalive before, to 0.6.
    assert!(after > Duration::from_secs(1) && after < Duration::from_secs(3), "{after:?}");
    assert!(!term.is_valid());
    etcd.resume();
    tokio::time::sleep(Duration::from_secs(2)).await;
    assert!(!term.is_valid(), "a lost term is not found again");
    // Without a successor what is at hand may still be finished.
    leadership.write(&[], &put("a")).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_claim_whose_answer_was_lost_is_found_by_looking() {
    let etcd = Etcd::start();
    let proxy = Proxy::start(etcd.address()).await;
    let store = EtcdStore::connect(options(&proxy.address)).await.unwrap();
    let (lease, _) = store.grant(Duration::from_secs(10)).await.unwrap();
    let claimant = candidate(store, "a", 10);
    proxy.set(Traffic::LosesAnswers);
    let claim = tokio::spawn(async move { claimant.claim_with(lease).await });
    tokio::time::sleep(Duration::from_millis(300)).await;
    proxy.set(Traffic::Passes);
    let leadership = claim.await.unwrap().unwrap().unwrap();
    assert_eq!(leadership.epoch(), Epoch(1));
    let direct = etcd.store().await;
    assert_eq!(leader(&direct).await.unwrap().unwrap().holder, "a");
    assert_eq!(direct.get(keys::EPOCH).await.unwrap().unwrap().revision, leadership.revision());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lease_that_is_gone_wins_nothing_and_ends_a_term() {
    let etcd = Etcd::start();
    let store = etcd.store().await;
    let claimant = candidate(store.clone(), "a", 2);
    let (lease, _) = store.grant(Duration::from_secs(2)).await.unwrap();
    store.revoke(lease).await.unwrap();
    store.revoke(lease).await.unwrap();
    assert!(!store.keep_alive(lease, Duration::from_secs(1)).await.unwrap());
    assert!(claimant.claim_with(lease).await.unwrap().is_none());

    let (_, term) = claimant.campaign().await.unwrap();
    store.revoke(term.lease).await.unwrap();
    let revoked = Instant::now();
    term.lost().await;
    // At the next keepalive, not at the deadline.
    assert!(revoked.elapsed() < Duration::from_millis(1_100), "{:?}", revoked.elapsed());
}

#[test]
fn a_deadline_moves_forward_and_not_once_it_has_passed() {
    let at = Duration::from_secs;
    let deadline = Deadline::new(at(10));
    assert_eq!(deadline.left(at(4)), Some(at(6)));
    deadline.extend(at(9), at(15));
    deadline.extend(at(9), at(12));
    assert_eq!(deadline.left(at(14)), Some(at(1)));
    assert_eq!(deadline.left(at(15)), None);
    deadline.extend(at(14), at(20));
    assert_eq!(deadline.left(at(1)), None, "lost is lost");
    let late = Deadline::new(at(10));
    late.extend(at(11), at(20));
    assert_eq!(late.left(at(11)), None, "an acknowledgement after the deadline is too late");
}
