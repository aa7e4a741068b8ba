//! Who owns a shard: takeovers and the fence.

use futures::future::join_all;
use tollgate_core::handle::change::Changes;
use tollgate_store::CommitError;
use tollgate_store::handle::{Lease, Member};
use uuid::Uuid;

use super::place::Place;
use super::samples::{NOON_US, schedule, take, waiting};

fn changes() -> Changes {
    Changes { runs_new: vec![waiting(&schedule("one"), 7, NOON_US)], ..Changes::default() }
}

pub(crate) async fn takeover_race_has_one_winner(place: &Place) {
    let store = place.open().await;
    let seen = store.leases().await.unwrap()[7].clone();
    let names: Vec<String> = (0..6).map(|i| format!("process-{i}")).collect();
    let taken = join_all(names.iter().map(|name| store.take_shard(&seen, name))).await;
    let winners: Vec<Lease> = taken.into_iter().filter_map(Result::unwrap).collect();
    assert_eq!(winners.len(), 1);
    assert_eq!(winners[0].epoch, seen.epoch + 1);
    assert_eq!(store.leases().await.unwrap()[7], winners[0]);
}

pub(crate) async fn takeover_of_a_row_that_moved_fails(place: &Place) {
    let store = place.open().await;
    let owner = take(&*store, 7).await;
    let seen = store.leases().await.unwrap()[7].clone();
    store.commit(&owner, &changes()).await.unwrap();
    assert_eq!(store.leases().await.unwrap()[7], seen, "a commit leaves the row as it is");
    // Its owner has taken it anew, as it does when it did not know how a commit ended.
    let owner = store.take_shard(&seen, "owner").await.unwrap().expect("it is its own");
    assert_eq!(store.take_shard(&seen, "thief").await.unwrap(), None, "its owner lives");
    let seen = store.leases().await.unwrap()[7].clone();
    let thief = store.take_shard(&seen, "thief").await.unwrap().expect("the row is as it was seen");
    assert_eq!((thief.shard, thief.owner.as_str()), (7, "thief"));
    assert!(matches!(store.commit(&owner, &changes()).await, Err(CommitError::Fenced)));
}

pub(crate) async fn give_up_fences_the_former_owner(place: &Place) {
    let store = place.open().await;
    let owner = take(&*store, 7).await;
    store.give_up_shard(&owner).await.unwrap();
    let row = store.leases().await.unwrap()[7].clone();
    assert_eq!(row.owner, "");
    assert!(matches!(store.commit(&owner, &changes()).await, Err(CommitError::Fenced)));
    let next = store.take_shard(&row, "next").await.unwrap().expect("it is free");
    store.give_up_shard(&owner).await.unwrap();
    assert_eq!(store.leases().await.unwrap()[7], next, "only its owner gives a shard up");
}

pub(crate) async fn wrong_lease_is_fenced(place: &Place) {
    let store = place.open().await;
    let lease = take(&*store, 7).await;
    let forged = Lease { lease_id: Uuid::new_v4(), ..lease.clone() };
    assert!(matches!(store.commit(&forged, &changes()).await, Err(CommitError::Fenced)));
    let elsewhere = Lease { shard: 8, ..lease };
    assert!(matches!(store.commit(&elsewhere, &changes()).await, Err(CommitError::Fenced)));
}

/// An owner that does not know how a commit ended takes the shard over from itself: what is still on its way is fenced then, be
/// it the same process's.
pub(crate) async fn lease_from_oneself_fences_the_one_before(place: &Place) {
    let store = place.open().await;
    let before = take(&*store, 7).await;
    let seen = store.leases().await.unwrap()[7].clone();
    let lease = store.take_shard(&seen, &before.owner).await.unwrap().expect("it is its own");
    assert_ne!(lease.lease_id, before.lease_id);
    assert!(matches!(store.commit(&before, &changes()).await, Err(CommitError::Fenced)));
    assert!(store.load_shard(7).await.unwrap().runs.is_empty(), "a fenced commit writes nothing");
    store.commit(&lease, &changes()).await.unwrap();
    store.commit(&lease, &Changes::default()).await.unwrap();
    assert_eq!(store.leases().await.unwrap()[7], lease, "a commit leaves the row as it is");
}

pub(crate) async fn failed_commit_writes_nothing(place: &Place) {
    let store = place.open().await;
    let lease = take(&*store, 7).await;
    place.sql("ALTER TABLE skipped_triggers RENAME TO elsewhere").await;
    let one = schedule("one");
    let skipped = vec![super::samples::skipped(&one, NOON_US, tollgate_core::model::SkipReason::Overlap)];
    let error =
        store.commit(&lease, &Changes { skipped, ..changes() }).await.expect_err("a table is missing");
    assert!(matches!(error, CommitError::Failed(_)), "{error}");
    assert!(store.load_shard(7).await.unwrap().runs.is_empty());
    place.sql("ALTER TABLE elsewhere RENAME TO skipped_triggers").await;
    store.commit(&lease, &changes()).await.unwrap();
}

pub(crate) async fn members_come_and_go(place: &Place) {
    let store = place.open().await;
    let member = |process: &str, heartbeat| Member {
        process: process.to_owned(),
        roles: "handler,master".to_owned(),
        address: "http://10.0.0.1:7000".to_owned(),
        heartbeat,
    };
    store.heartbeat(&member("b", 1)).await.unwrap();
    store.heartbeat(&member("a", 1)).await.unwrap();
    store.heartbeat(&member("b", 2)).await.unwrap();
    assert_eq!(store.members().await.unwrap(), [member("a", 1), member("b", 2)]);
    store.forget_member("a").await.unwrap();
    assert_eq!(store.members().await.unwrap(), [member("b", 2)]);
}

/// Commits that come at once may share a transaction; each stands or falls alone.
pub(crate) async fn commits_of_many_shards_at_once_stand_or_fall_alone(place: &Place) {
    const STALE: u16 = 7;
    let store = place.open().await;
    let one = schedule("one");
    let mut leases = Vec::new();
    for shard in 0..40 {
        leases.push(take(&*store, shard).await);
    }
    let current = take(&*store, STALE).await;
    for (round, launch_us) in [NOON_US, NOON_US + 60_000_000].into_iter().enumerate() {
        let commits = leases.iter().map(async |lease| {
            let runs_new = vec![waiting(&one, lease.shard, launch_us)];
            let changes = Changes { runs_new, ..Changes::default() };
            (lease.shard, store.commit(lease, &changes).await)
        });
        for (shard, done) in join_all(commits).await {
            match done {
                Err(CommitError::Fenced) => assert_eq!((shard, round), (STALE, 0)),
                done => done.unwrap(),
            }
        }
        for shard in 0..40 {
            let expected = if shard == STALE { round } else { round + 1 };
            assert_eq!(store.load_shard(shard).await.unwrap().runs.len(), expected, "shard {shard}");
        }
        leases[usize::from(STALE)] = current.clone();
    }
}
