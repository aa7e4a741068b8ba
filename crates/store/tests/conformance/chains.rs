//! Chains: what follows a schedule stays as long as that names it; an end of a run waits in its shard until it has been followed.

use tollgate_core::handle::change::Changes;
use tollgate_core::handle::control::{Control, Message};
use tollgate_core::model::{
    ChainRoot, Counts, FinishCondition, OnFinish, Predecessor, Run, RunEnd, RunId, RunKind, RunState,
    Schedule,
};
use tollgate_store::{CommitError, Store, StoreError};
use uuid::Uuid;

use super::place::Place;
use super::samples::{NOON_US, commit, delete, put, run, schedule, take};

fn before(id: &str, next: &str) -> Schedule {
    let when = FinishCondition::AnyFailed;
    Schedule {
        on_finish: Some(OnFinish { schedule: next.to_owned(), when, events: Some(3), items: None }),
        ..schedule(id)
    }
}

fn predecessor() -> Predecessor {
    let run = RunId::derive(Uuid::from_u128(7), NOON_US);
    Predecessor {
        shard: 5,
        run,
        schedule_id: "load".to_owned(),
        place: 2,
        state: RunState::Finished,
        counts: Counts { succeeded: 4, lost: 1, ..Counts::default() },
        root: Some(ChainRoot { shard: 6, schedule_uid: Uuid::from_u128(7), run }),
        items: Some(Box::new(tollgate_core::model::ResultItems {
            key_field: "tenant".to_owned(),
            ..Default::default()
        })),
    }
}

pub(crate) fn end() -> RunEnd {
    let next = before("x", "report").on_finish;
    RunEnd { namespace: "default".to_owned(), of: predecessor(), ended_us: NOON_US, cursor: None, next }
}

async fn is_refused(store: &dyn Store, gone: &[&Schedule], expected: &str) {
    let writes = gone.iter().map(|schedule| delete(schedule)).collect();
    let error = store.write_plan(writes).await.expect_err("another one names it");
    assert!(matches!(&error, StoreError::InUse { what } if what == expected), "{error}");
}

pub(crate) async fn what_follows_is_there_and_stays(place: &Place) {
    let store = place.open().await;
    let (load, report) = (before("load", "report"), schedule("report"));
    let error = store.write_plan(vec![put(&load, None, vec![])]).await.expect_err("nothing is there");
    assert!(matches!(&error, StoreError::NotFound { what } if what == "schedule \"report\""), "{error}");
    assert_eq!(store.schedule("default", "load").await.unwrap(), None);
    let elsewhere = Schedule { namespace: "other".to_owned(), ..schedule("report") };
    store.write_plan(vec![put(&elsewhere, None, vec![])]).await.unwrap();
    store.write_plan(vec![put(&load, None, vec![])]).await.expect_err("it is in another namespace");
    // In one transaction, in any order.
    store.write_plan(vec![put(&load, None, vec![]), put(&report, None, vec![])]).await.unwrap();
    assert_eq!(store.schedule("default", "load").await.unwrap(), Some(load.clone()));
    is_refused(&*store, &[&report], r#"schedule "report" follows the schedules "load""#).await;
    store.write_plan(vec![delete(&elsewhere)]).await.unwrap();
    // Both at once, or once it is named no more.
    store.write_plan(vec![delete(&report), delete(&load)]).await.unwrap();
    assert_eq!(store.schedules("default", &["load".to_owned(), "report".to_owned()]).await.unwrap(), []);
    let load = Schedule { uid: Uuid::new_v4(), ..load };
    let report = Schedule { uid: Uuid::new_v4(), ..report };
    store.write_plan(vec![put(&report, None, vec![]), put(&load, None, vec![])]).await.unwrap();
    let alone = Schedule { on_finish: None, generation: 2, ..load };
    store.write_plan(vec![put(&alone, Some(1), vec![])]).await.unwrap();
    store.write_plan(vec![delete(&report)]).await.unwrap();
}

pub(crate) async fn chains_are_walked_upwards(place: &Place) {
    let store = place.open().await;
    let all = [schedule("d"), before("c", "d"), before("b", "c"), before("a", "b"), before("other", "c")];
    for one in &all {
        store.write_plan(vec![put(one, None, vec![])]).await.unwrap();
    }
    let places = async |id| store.places_before("default", id).await.unwrap();
    assert_eq!([places("a").await, places("c").await, places("d").await, places("none").await], [0, 2, 3, 0]);
    assert_eq!(store.followed_by("default", "c", 10).await.unwrap(), ["b", "other"]);
    assert_eq!(store.followed_by("default", "c", 1).await.unwrap(), ["b"]);
    assert_eq!(store.followed_by("other", "c", 10).await.unwrap(), [] as [&str; 0]);
    // Two who write at the same moment may make a circle.
    place.sql("UPDATE schedules SET next_id = 'a' WHERE id = 'd'").await;
    assert_eq!(places("a").await, 8);
}

pub(crate) async fn an_end_waits_until_it_has_been_followed(place: &Place) {
    let store = place.open().await;
    let message = Message::run_ended(end());
    let changes = Changes { inbox_new: vec![message.clone()], ..Changes::default() };
    let old = take(&*store, 5).await;
    let lease = commit(&*store, 5, changes.clone()).await;
    // Told once more, as its run has come back: it stays one.
    store.commit(&lease, &changes).await.unwrap();
    assert_eq!(store.inbox(5, 10).await.unwrap(), std::slice::from_ref(&message));
    assert_eq!(store.shards_with_news(0).await.unwrap(), [5]);
    let other = Changes {
        inbox_new: vec![Message::run_ended(RunEnd { ended_us: 1, ..end() })],
        ..Changes::default()
    };
    assert!(matches!(store.commit(&old, &other).await, Err(CommitError::Fenced)));
    // It is read after what else waits, and may go in the commit that brings another one.
    let pause = Message { id: Uuid::now_v7(), control: Control::PauseShard { pause: None } };
    store.post(5, std::slice::from_ref(&pause)).await.unwrap();
    assert_eq!(store.inbox(5, 10).await.unwrap(), [pause.clone(), message.clone()]);
    let done = Changes { inbox_done: vec![message.id, pause.id], ..other };
    store.commit(&lease, &done).await.unwrap();
    assert_eq!(store.inbox(5, 10).await.unwrap(), done.inbox_new);
}

pub(crate) async fn what_follows_is_launched_once(place: &Place) {
    let store = place.open().await;
    let (load, report) = (before("load", "report"), schedule("report"));
    store.write_plan(vec![put(&report, None, vec![]), put(&load, None, vec![])]).await.unwrap();
    let found = store.following("default", &["report".to_owned(), "none".to_owned()]).await.unwrap();
    assert_eq!(found, std::slice::from_ref(&report));
    let next = Run {
        id: end().next_run(report.uid),
        kind: RunKind::Followed,
        predecessor: Some(Box::new(predecessor())),
        cursor_in: Some("42".to_owned()),
        ..run(&report, 5, NOON_US + 1)
    };
    assert_eq!(store.launch_of(&[4, 5], next.id).await.unwrap(), None);
    assert_eq!(store.launch(std::slice::from_ref(&next), &[]).await.unwrap(), 1);
    let again = Run { launch_us: NOON_US + 2, ..next.clone() };
    assert_eq!(store.launch(&[again], &[]).await.unwrap(), 0);
    assert_eq!(store.launch_of(&[4, 5], next.id).await.unwrap(), Some(NOON_US + 1));
    assert_eq!(store.launch_of(&[4], next.id).await.unwrap(), None);
    assert_eq!(store.runs(next.shard, &[next.id]).await.unwrap(), [next]);
}

pub(crate) async fn the_end_of_a_chain_is_told_once(place: &Place) {
    let store = place.open().await;
    let root = predecessor().root.unwrap();
    store.tell_ended(root).await.unwrap();
    store.tell_ended(root).await.unwrap();
    assert_eq!(store.inbox(6, 10).await.unwrap(), [Message::chain_ended(root)]);
}
