//! What became of events by the minute.

use tollgate_core::model::{DAY_US, MINUTE_US, MinuteCounts, MinuteRow};
use tollgate_store::Store;
use tollgate_store::minutes::Whose;
use uuid::Uuid;

use super::place::Place;
use super::samples::NOON_US;

const HOUR_US: i64 = 60 * MINUTE_US;

fn counts(due: u64, waiting: u64) -> MinuteCounts {
    MinuteCounts {
        due,
        started: 2 * due,
        retried: 3 * due,
        succeeded: 4 * due,
        failed: 5 * due,
        dead: 6 * due,
        expired: 7 * due,
        cancelled: 8 * due,
        lost: 9 * due,
        waiting,
        held: 2 * waiting,
    }
}

/// Of a shard's whole namespace, in the minute that begins so many minutes after noon.
fn row(shard: u16, minute: i64, epoch: i64, counts: MinuteCounts) -> MinuteRow {
    let minute_us = NOON_US + minute * MINUTE_US;
    MinuteRow {
        shard,
        policy_uid: None,
        namespace: "default".to_owned(),
        minute_us,
        epoch,
        until_us: minute_us + MINUTE_US,
        counts,
    }
}

/// All steps from two days before noon to two after.
async fn read(store: &dyn Store, whose: &Whose, step_us: i64) -> Vec<(i64, MinuteCounts)> {
    let range_us = NOON_US - 60 * DAY_US..NOON_US + 60 * DAY_US;
    let steps = store.minutes(whose, range_us, step_us).await.unwrap();
    steps.into_iter().map(|(at_us, counts)| ((at_us - NOON_US) / MINUTE_US, counts)).collect()
}

pub(crate) async fn what_is_written_again_counts_once(place: &Place) {
    let store = place.open().await;
    let first = row(5, 0, 1, counts(3, 4));
    store.put_minutes(&[]).await.unwrap();
    store.put_minutes(std::slice::from_ref(&first)).await.unwrap();
    store.put_minutes(&[first]).await.unwrap();
    assert_eq!(read(&*store, &Whose::All, MINUTE_US).await, [(0, counts(3, 4))]);
    // Later there is more of it, and less waits.
    store.put_minutes(&[row(5, 0, 1, counts(7, 1)), row(5, 2, 1, counts(1, 0))]).await.unwrap();
    assert_eq!(read(&*store, &Whose::All, MINUTE_US).await, [(0, counts(7, 1)), (2, counts(1, 0))]);
    let range_us = NOON_US + 1..NOON_US + 2 * MINUTE_US;
    assert_eq!(store.minutes(&Whose::All, range_us, MINUTE_US).await.unwrap(), []);
}

pub(crate) async fn owners_of_one_minute_are_added_up(place: &Place) {
    let store = place.open().await;
    // The shard changes hands within the minute; another shard has its own owner.
    let rows = [row(5, 0, 1, counts(3, 4)), row(5, 0, 2, counts(5, 2)), row(6, 0, 9, counts(1, 10))];
    store.put_minutes(&rows).await.unwrap();
    assert_eq!(read(&*store, &Whose::All, MINUTE_US).await, [(0, counts(9, 14))]);
    // A step has the most that waited in one of its minutes.
    store.put_minutes(&[row(5, 3, 2, counts(1, 20)), row(6, 4, 9, counts(1, 5))]).await.unwrap();
    assert_eq!(read(&*store, &Whose::All, 5 * MINUTE_US).await, [(0, counts(11, 20))]);
}

pub(crate) async fn what_a_policy_holds_counts_once_where_it_moves(place: &Place) {
    let store = place.open().await;
    let uid = Uuid::from_u128(7);
    let of = |shard, namespace: &str, counts| MinuteRow {
        policy_uid: Some(uid),
        namespace: namespace.to_owned(),
        ..row(shard, 0, 1, counts)
    };
    let rows = [of(5, "a", counts(3, 4)), of(6, "a", counts(2, 3)), of(6, "b", counts(1, 1))];
    store.put_minutes(&rows).await.unwrap();
    let policy = Whose::Policy(uid);
    // What became of events is added up; of what waits and is held, each namespace has its most.
    assert_eq!(read(&*store, &policy, MINUTE_US).await, [(0, counts(6, 5))]);
}

pub(crate) async fn minutes_are_found_by_whose_they_are(place: &Place) {
    let store = place.open().await;
    let (uid, other) = (Uuid::from_u128(7), Uuid::from_u128(8));
    let of = |policy_uid, namespace: &str, due| MinuteRow {
        policy_uid,
        namespace: namespace.to_owned(),
        ..row(5, 0, 1, counts(due, 0))
    };
    let rows = [
        of(None, "a", 10),
        of(None, "b", 20),
        of(Some(uid), "a", 4),
        of(Some(other), "a", 5),
        of(Some(other), "b", 0),
    ];
    store.put_minutes(&rows).await.unwrap();
    let due = async |whose: Whose| {
        read(&*store, &whose, MINUTE_US).await.iter().map(|(_, counts)| counts.due).collect::<Vec<_>>()
    };
    assert_eq!(due(Whose::All).await, [30]);
    assert_eq!(due(Whose::Namespace("a".to_owned())).await, [10]);
    assert_eq!(due(Whose::Namespace("c".to_owned())).await, [0_u64; 0]);
    assert_eq!(due(Whose::Policy(uid)).await, [4]);
    assert_eq!(due(Whose::Policy(Uuid::from_u128(9))).await, [0_u64; 0]);
}

/// Two days and some hours of minutes, in two shards.
fn long(from: i64, to: i64) -> Vec<MinuteRow> {
    let minutes = (from..to).step_by(7);
    minutes.flat_map(|minute| [row(5, minute, 1, counts(1, 3)), row(6, minute, 1, counts(2, 4))]).collect()
}

fn sum(steps: &[(i64, MinuteCounts)]) -> MinuteCounts {
    let mut sum = MinuteCounts::default();
    steps.iter().for_each(|(_, counts)| sum += *counts);
    (sum.waiting, sum.held) = (0, 0);
    sum
}

pub(crate) async fn minutes_become_hours_and_nothing_is_lost(place: &Place) {
    let store = place.open().await;
    store.put_minutes(&long(-3 * 1_440 - 30, 0)).await.unwrap();
    let (minutes, hours) =
        (read(&*store, &Whose::All, MINUTE_US).await, read(&*store, &Whose::All, HOUR_US).await);
    let pruned = store.prune(0, NOON_US).await.unwrap();
    assert!(pruned.other > 250, "{pruned:?}");
    // By the hour it is what it was before, and of the last two days also by the minute.
    assert_eq!(read(&*store, &Whose::All, HOUR_US).await, hours);
    let after = read(&*store, &Whose::All, MINUTE_US).await;
    assert_eq!(sum(&after), sum(&minutes));
    let young = |steps: &[(i64, MinuteCounts)]| {
        steps.iter().filter(|(minute, _)| *minute >= -2 * 1_440).copied().collect::<Vec<_>>()
    };
    assert_eq!(young(&after), young(&minutes));
    assert!(after.iter().all(|(minute, _)| *minute >= -2 * 1_440 || minute % 60 == 0), "{after:?}");
    assert_eq!(store.prune(0, NOON_US).await.unwrap().other, 0);
    // What an owner could not write for two days comes to its hour.
    let late = row(5, -3 * 1_440 + 1, 2, counts(100, 1));
    store.put_minutes(&[late]).await.unwrap();
    store.prune(0, NOON_US).await.unwrap();
    let now = read(&*store, &Whose::All, HOUR_US).await;
    let (at, before) = hours.iter().find(|(minute, _)| *minute == -3 * 1_440).unwrap();
    let with_late = now.iter().find(|(minute, _)| minute == at).unwrap().1;
    assert_eq!((with_late.due, with_late.waiting), (before.due + 100, before.waiting));
}

pub(crate) async fn several_sweeps_at_once_count_once(place: &Place) {
    let store = place.open().await;
    store.prune(0, NOON_US).await.unwrap();
    store.put_minutes(&long(-3 * 1_440, -2 * 1_440)).await.unwrap();
    let before = sum(&read(&*store, &Whose::All, HOUR_US).await);
    let sweeps = (0..4).map(|_| store.prune(0, NOON_US));
    for swept in futures::future::join_all(sweeps).await {
        swept.unwrap();
    }
    let after = read(&*store, &Whose::All, HOUR_US).await;
    assert_eq!((sum(&after), after.len()), (before, 24));
}

pub(crate) async fn old_minutes_go(place: &Place) {
    let store = place.open().await;
    let old = |days: i64, epoch| row(5, -days * 1_440, epoch, counts(1, 0));
    store.put_minutes(&[old(50, 1), old(44, 1), old(1, 1), old(0, 1)]).await.unwrap();
    store.prune(NOON_US - 45 * DAY_US, NOON_US).await.unwrap();
    let days =
        |steps: Vec<(i64, MinuteCounts)>| steps.iter().map(|(minute, _)| minute / 1_440).collect::<Vec<_>>();
    assert_eq!(days(read(&*store, &Whose::All, MINUTE_US).await), [-44, -1, 0]);
    store.prune(NOON_US - DAY_US + 1, NOON_US).await.unwrap();
    assert_eq!(days(read(&*store, &Whose::All, MINUTE_US).await), [0]);
}

pub(crate) async fn what_fell_due_is_known_by_shard(place: &Place) {
    let store = place.open().await;
    let half = MinuteRow { until_us: NOON_US + 30, ..row(5, 0, 2, counts(1, 0)) };
    store.put_minutes(&[row(5, -9, 1, counts(1, 0)), half, row(6, 4, 1, counts(1, 0))]).await.unwrap();
    let until = async |shard, since_us| store.minutes_until_us(shard, since_us).await.unwrap();
    assert_eq!(until(5, NOON_US - DAY_US).await, Some(NOON_US + 30));
    assert_eq!(until(6, NOON_US - DAY_US).await, Some(NOON_US + 5 * MINUTE_US));
    assert_eq!((until(6, NOON_US + DAY_US).await, until(7, NOON_US - DAY_US).await), (None, None));
}
