//! Revisions of resources that are changed by commands: an older command never overtakes a later one.

use futures::future::join_all;
use tollgate_core::model::{DAY_US, Schedule};
use tollgate_store::plan::PlanWrite;
use tollgate_store::revision::{REVISIONS_KEPT_US, Revision};
use tollgate_store::{Store, StoreError};

use super::place::Place;
use super::samples::{NOON_US, delete, put, schedule};

fn revision(id: &str, revision: i64, deleted: bool) -> Revision {
    let (namespace, kind) = ("default".to_owned(), "schedule".to_owned());
    Revision { namespace, kind, id: id.to_owned(), revision, deleted, updated_us: NOON_US }
}

fn revise(id: &str, number: i64, deleted: bool) -> PlanWrite {
    PlanWrite::Revise { revision: revision(id, number, deleted) }
}

async fn known(store: &dyn Store, id: &str) -> Option<Revision> {
    store.revisions("default", "schedule", &[id.to_owned()]).await.unwrap().pop()
}

fn assert_stale(answer: Result<(), StoreError>, number: i64) {
    let Err(StoreError::Conflict { what }) = answer else { panic!("not a conflict: {answer:?}") };
    assert!(what.contains(&format!("revision {number}, or a later one")), "{what}");
}

pub(crate) async fn an_older_revision_changes_nothing(place: &Place) {
    let store = place.open().await;
    let one = schedule("one");
    assert_eq!(known(&*store, "one").await, None);
    store.write_plan(vec![put(&one, None, Vec::new()), revise("one", 5, false)]).await.unwrap();
    assert_eq!(known(&*store, "one").await, Some(revision("one", 5, false)));
    for number in [5, 4] {
        let later = Schedule { generation: 2, events: 7, ..one.clone() };
        let writes = vec![put(&later, Some(1), Vec::new()), revise("one", number, false)];
        assert_stale(store.write_plan(writes).await, number);
    }
    let stored = store.schedule("default", "one").await.unwrap().unwrap();
    assert_eq!((stored.generation, stored.events), (1, 1000));
    assert_eq!(known(&*store, "one").await, Some(revision("one", 5, false)));
}

pub(crate) async fn a_late_revision_does_not_revive_what_was_deleted(place: &Place) {
    let store = place.open().await;
    let one = schedule("one");
    store.write_plan(vec![put(&one, None, Vec::new()), revise("one", 1, false)]).await.unwrap();
    store.write_plan(vec![delete(&one), revise("one", 3, true)]).await.unwrap();
    assert_stale(
        store.write_plan(vec![put(&schedule("one"), None, Vec::new()), revise("one", 2, false)]).await,
        2,
    );
    assert!(store.schedule("default", "one").await.unwrap().is_none());
    assert_eq!(known(&*store, "one").await, Some(revision("one", 3, true)));
    store.write_plan(vec![put(&schedule("one"), None, Vec::new()), revise("one", 4, false)]).await.unwrap();
    assert!(store.schedule("default", "one").await.unwrap().is_some());
    assert_eq!(known(&*store, "one").await, Some(revision("one", 4, false)));
}

pub(crate) async fn a_change_that_fails_leaves_no_revision(place: &Place) {
    let store = place.open().await;
    let one = schedule("one");
    store.write_plan(vec![put(&one, None, Vec::new())]).await.unwrap();
    let taken = vec![revise("one", 1, false), put(&schedule("one"), None, Vec::new())];
    assert!(matches!(store.write_plan(taken).await, Err(StoreError::Conflict { .. })));
    assert_eq!(known(&*store, "one").await, None);
}

pub(crate) async fn one_stale_revision_of_several_writes_none(place: &Place) {
    let store = place.open().await;
    store.write_plan(vec![revise("b", 2, false)]).await.unwrap();
    assert_stale(
        store.write_plan(vec![revise("c", 1, false), revise("b", 2, false), revise("a", 1, false)]).await,
        2,
    );
    assert_eq!((known(&*store, "a").await, known(&*store, "c").await), (None, None));
    let twice = store.write_plan(vec![revise("a", 2, true), revise("a", 2, false)]).await;
    assert_stale(twice, 2);
    store.write_plan(vec![revise("a", 1, true), revise("a", 2, false)]).await.unwrap();
    assert_eq!(known(&*store, "a").await, Some(revision("a", 2, false)), "the last of one transaction");
    assert!(store.revisions("other", "schedule", &["a".to_owned()]).await.unwrap().is_empty());
    assert!(store.revisions("default", "policy", &["a".to_owned()]).await.unwrap().is_empty());
}

pub(crate) async fn whoever_is_first_the_highest_revision_stays(place: &Place) {
    let store = place.open().await;
    let order = [7, 2, 12, 1, 9, 4, 11, 3, 10, 6, 8, 5];
    // Two resources in either order: nobody waits for the other for ever.
    let calls = order.iter().map(|number| {
        let (a, b) = (revise("a", *number, false), revise("b", *number, number % 2 == 0));
        store.write_plan(if number % 2 == 0 { vec![a, b] } else { vec![b, a] })
    });
    for (number, answer) in order.iter().zip(join_all(calls).await) {
        if answer.is_err() {
            assert_stale(answer, *number);
        }
    }
    assert_eq!(known(&*store, "a").await, Some(revision("a", 12, false)));
    assert_eq!(known(&*store, "b").await, Some(revision("b", 12, true)));
}

pub(crate) async fn old_revisions_go(place: &Place) {
    let store = place.open().await;
    for (id, age_us) in [("old", REVISIONS_KEPT_US + 1), ("young", REVISIONS_KEPT_US)] {
        let revision = Revision { updated_us: NOON_US - age_us, ..revision(id, 1, true) };
        store.write_plan(vec![PlanWrite::Revise { revision }]).await.unwrap();
    }
    assert_eq!(store.prune(NOON_US - 45 * DAY_US, NOON_US).await.unwrap().other, 1);
    assert_eq!(known(&*store, "old").await, None);
    assert!(known(&*store, "young").await.is_some());
}
