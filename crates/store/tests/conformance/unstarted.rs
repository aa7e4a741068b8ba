//! Runs that start their events key by key.

use tollgate_core::handle::batch::TokenBatch;
use tollgate_core::handle::change::{Changes, UNSTARTED_EVENTS, Unstarted};
use tollgate_core::model::{Run, RunState};

use crate::place::Place;
use crate::samples::*;

const EVENTS: u32 = 3 * UNSTARTED_EVENTS;

/// A run of which the first two stretches have been sorted, and how they stand.
fn sorted() -> (Run, [Unstarted; 2]) {
    let run = Run {
        state: RunState::Running,
        events: EVENTS,
        next_index: 5,
        sorted_to: Some(2 * UNSTARTED_EVENTS),
        units_max: 17,
        ..waiting(&schedule("sorted"), 5, NOON_US)
    };
    let stretch = |first: u32, bits: &[u8]| Unstarted { run: run.id, first, bits: bits.to_vec() };
    let stretches = [stretch(0, &[0b1010, 0, 0x80]), stretch(UNSTARTED_EVENTS, &[255; 256])];
    (run, stretches)
}

pub(crate) async fn unstarted_round_trip(place: &Place) {
    let store = place.open().await;
    let (run, [first, second]) = sorted();
    assert_eq!(first.indexes().collect::<Vec<_>>(), [1, 3, 23]);
    let put = vec![first.clone(), second.clone()];
    let changes = Changes { runs_new: vec![run.clone()], unstarted_put: put.clone(), ..Changes::default() };
    let lease = commit(&*store, 5, changes).await;
    let loaded = store.load_shard(5).await.unwrap();
    assert_eq!((loaded.runs, loaded.unstarted), (vec![run.clone()], put.clone()));
    assert_eq!(store.unstarted(5, run.id, 0, 10).await.unwrap(), put);
    let from_second = store.unstarted(5, run.id, UNSTARTED_EVENTS + 7, 10).await.unwrap();
    assert_eq!(from_second, std::slice::from_ref(&second));
    assert_eq!(store.unstarted(5, run.id, 0, 1).await.unwrap(), std::slice::from_ref(&first));
    let later = Unstarted { bits: vec![0b1000], ..first.clone() };
    let changes = Changes {
        runs_changed: vec![Run { next_index: 7, sorted_to: Some(EVENTS), ..run.clone() }],
        unstarted_put: vec![later.clone()],
        unstarted_gone: vec![(run.id, UNSTARTED_EVENTS)],
        ..Changes::default()
    };
    store.commit(&lease, &changes).await.unwrap();
    let loaded = store.load_shard(5).await.unwrap();
    assert_eq!((&loaded.runs, loaded.unstarted), (&changes.runs_changed, vec![later]));
    // What goes and comes in one commit is there.
    let both = Changes {
        unstarted_put: vec![first.clone()],
        unstarted_gone: vec![(run.id, 0), (run.id, UNSTARTED_EVENTS)],
        ..Changes::default()
    };
    store.commit(&lease, &both).await.unwrap();
    assert_eq!(store.load_shard(5).await.unwrap().unstarted, [first]);
    // Once all have started, nothing is left to be told apart.
    let all = Run { next_index: EVENTS, sorted_to: Some(EVENTS), ..run.clone() };
    let changes =
        Changes { runs_changed: vec![all.clone()], unstarted_gone: vec![(run.id, 0)], ..Changes::default() };
    store.commit(&lease, &changes).await.unwrap();
    let loaded = store.load_shard(5).await.unwrap();
    assert_eq!((loaded.runs, loaded.unstarted.len()), (vec![Run { sorted_to: None, ..all }], 0));
}

/// A process of the version before reads only `next_index`, which is no index then: it must take the run for unreadable.
pub(crate) async fn a_sorted_run_is_unreadable_without_its_column(place: &Place) {
    let store = place.open().await;
    let (run, stretches) = sorted();
    let changes = Changes { runs_new: vec![run], unstarted_put: stretches.to_vec(), ..Changes::default() };
    commit(&*store, 5, changes).await;
    place.sql("UPDATE runs SET sorted_to = NULL").await;
    assert!(store.load_shard(5).await.unwrap().runs.is_empty());
    let found = store.corrupt_rows();
    assert!(found.iter().any(|row| row.table == "runs" && row.column == "next_index"), "{found:?}");
}

pub(crate) async fn a_run_whose_unstarted_events_cannot_be_read_does_not_go_on(place: &Place) {
    let store = place.open().await;
    let (run, stretches) = sorted();
    let changes = Changes {
        runs_new: vec![run.clone()],
        unstarted_put: stretches.to_vec(),
        tokens_put: vec![token(run.id, 0)],
        ..Changes::default()
    };
    commit(&*store, 5, changes).await;
    place.sql("UPDATE unstarted_events SET first_idx = 7 WHERE first_idx = 0").await;
    let loaded = store.load_shard(5).await.unwrap();
    assert!(loaded.runs.is_empty(), "{:?}", loaded.runs);
    assert_eq!(loaded.counted, [(run.policy_uid, 1)], "its token counts");
    let found = store.corrupt_rows();
    assert!(found.iter().any(|row| row.table == "unstarted_events"), "{found:?}");
}

/// Where events start key by key, those of one batch may lie between those of another.
pub(crate) async fn batches_may_lie_between_each_others_events(place: &Place) {
    let store = place.open().await;
    let (run, _) = sorted();
    let batch = |first: u32, count: u32, gone: &[u8]| {
        let bits = (gone.to_vec(), vec![0; gone.len()]);
        TokenBatch::restore((run.id, first, count), (NOON_US, None), bits).unwrap()
    };
    let batches = vec![batch(0, 9, &[0b1111_1110, 0]), batch(1, 3, &[0])];
    let changes = Changes { runs_new: vec![run.clone()], batches_new: batches.clone(), ..Changes::default() };
    commit(&*store, 5, changes).await;
    assert_eq!(store.load_shard(5).await.unwrap().batches, batches);
    for (from, limit, expected) in
        [(0, 2, vec![0, 1]), (0, 9, vec![0, 1, 2, 3, 8]), (2, 2, vec![2, 3]), (4, 5, vec![8])]
    {
        let listed = store.tokens(5, run.id, from, limit).await.unwrap();
        assert_eq!(listed.iter().map(|row| row.index).collect::<Vec<_>>(), expected, "{from} {limit}");
    }
}
