//! Rows that hold secrets, and counts for quotas.

use std::sync::Arc;

use tollgate_core::model::{Payload, Run, RunState, Target};
use tollgate_store::Store;
use tollgate_store::seal::StoredSpec;

use super::place::Place;
use super::samples::{NOON_US, put, run, schedule};

async fn with_schedules(place: &Place, count: u32) -> Arc<dyn Store> {
    let store = place.open().await;
    let writes = (0..count).map(|n| put(&schedule(&format!("s{n}")), None, vec![])).collect();
    store.write_plan(writes).await.unwrap();
    store
}

async fn all_specs(store: &dyn Store) -> Vec<StoredSpec> {
    let mut all = Vec::new();
    for shard in 0..store.installation().await.unwrap().shards {
        all.extend(store.stored_specs(shard, None, 100).await.unwrap());
    }
    all
}

pub(crate) async fn stored_rows_come_in_pages_and_in_order(place: &Place) {
    let store = with_schedules(place, 5).await;
    let all = store.stored_schedules(None, 100).await.unwrap();
    assert_eq!(all.len(), 5);
    assert!(all.windows(2).all(|pair| pair[0].uid < pair[1].uid));
    let (mut paged, mut after) = (Vec::new(), None);
    loop {
        let page = store.stored_schedules(after, 2).await.unwrap();
        let Some(last) = page.last() else { break };
        after = Some(last.uid);
        paged.extend(page);
    }
    assert!(paged == all);
    assert_eq!(all_specs(&*store).await.len(), 5);
    let shard = all_specs(&*store).await[0].shard;
    let specs = store.stored_specs(shard, None, 100).await.unwrap();
    let first = &specs[0];
    let rest = store.stored_specs(shard, Some((first.schedule_uid, first.generation)), 100).await.unwrap();
    assert!(rest == specs[1..]);
}

pub(crate) async fn secrets_are_replaced_where_nobody_was_faster(place: &Place) {
    let store = with_schedules(place, 1).await;
    let change = |_: &mut Target, payload: &mut Payload| {
        payload.json = "\"sealed\"".to_owned();
    };
    let old = store.stored_schedules(None, 10).await.unwrap().remove(0);
    let (new, ()) = old.with(change).unwrap();
    assert_eq!(store.replace_schedules(vec![(old.clone(), new.clone())]).await.unwrap(), 1);
    assert_eq!(
        store.replace_schedules(vec![(old.clone(), new)]).await.unwrap(),
        0,
        "it is not as it was read"
    );
    let read = store.schedule("default", "s0").await.unwrap().unwrap();
    assert_eq!((read.payload.json.as_str(), read.generation, read.uid), ("\"sealed\"", 1, old.uid));

    let old = all_specs(&*store).await.remove(0);
    let (new, ()) = old.with(change).unwrap();
    assert_eq!(store.replace_specs(old.shard, vec![(old.clone(), new.clone())]).await.unwrap(), 1);
    assert_eq!(store.replace_specs(old.shard, vec![(old.clone(), new.clone())]).await.unwrap(), 0);
    assert!(all_specs(&*store).await == [new]);
    assert_eq!(store.scrub().await.unwrap(), !place.is_postgres());
}

pub(crate) async fn items_of_schedules_are_replaced_with_the_rest(place: &Place) {
    let store = place.open().await;
    let mut one = schedule("one");
    one.payload = one.payload.with_items("acme\t5\t1\n");
    store.write_plan(vec![put(&one, None, vec![])]).await.unwrap();
    let change = |_: &mut Target, payload: &mut Payload| {
        assert_eq!((&*payload.items, payload.units_max), ("acme\t5\t1\n", 5));
        payload.items = "sealed".into();
    };
    let old = store.stored_schedules(None, 10).await.unwrap().remove(0);
    let (new, ()) = old.with(change).unwrap();
    assert_eq!(store.replace_schedules(vec![(old.clone(), new.clone())]).await.unwrap(), 1);
    assert_eq!(store.replace_schedules(vec![(old, new)]).await.unwrap(), 0, "it is not as it was read");
    let read = store.schedule("default", "one").await.unwrap().unwrap();
    assert_eq!((&*read.payload.items, &read.payload.json), ("sealed", &one.payload.json));
    assert_eq!(read.payload.units_max, 5);
    let old = all_specs(&*store).await.remove(0);
    let (new, ()) = old.with(change).unwrap();
    assert_eq!(store.replace_specs(old.shard, vec![(old, new.clone())]).await.unwrap(), 1);
    assert!(all_specs(&*store).await == [new]);
}

pub(crate) async fn schedules_are_counted_as_far_as_asked(place: &Place) {
    let store = with_schedules(place, 5).await;
    for (namespace, up_to, count) in [("default", 100, 5), ("default", 3, 3), ("other", 100, 0)] {
        assert_eq!(store.schedules_count(namespace, up_to).await.unwrap(), count, "{namespace} {up_to}");
    }
}

pub(crate) async fn events_that_have_not_started_are_counted(place: &Place) {
    let store = with_schedules(place, 1).await;
    assert_eq!(store.waiting_events("default").await.unwrap(), 0);
    let one = schedule("one");
    let made = |n: i64, shard: u16, state: RunState, events: u32, next_index: u32| Run {
        state,
        events,
        next_index,
        ..run(&one, shard, NOON_US + n)
    };
    let runs = [
        made(1, 0, RunState::Emitted, 10, 0),
        made(2, 63, RunState::Waiting, 20, 0),
        made(3, 5, RunState::Running, 30, 29),
        made(4, 5, RunState::Finished, 40, 40),
        made(5, 6, RunState::Cancelled, 50, 5),
        Run { sorted_to: Some(55), ..made(6, 7, RunState::Running, 60, 50) },
    ];
    store.emit(&runs, &[]).await.unwrap();
    assert_eq!(store.waiting_events("default").await.unwrap(), 41);
    assert_eq!(store.waiting_events("other").await.unwrap(), 0);
}
