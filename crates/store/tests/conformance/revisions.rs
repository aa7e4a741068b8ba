//! Revisions of resources: an older change never overtakes a later one.

use futures::future::join_all;
use tollgate_core::model::{DAY_US, Schedule};
use tollgate_store::plan::PlanWrite;
use tollgate_store::revision::{REVISIONS_KEPT_US, Revision};
use tollgate_store::{Store, StoreError};

use super::place::Place;
use super::samples::{NOON_US, delete, put, schedule};

fn revision(id: &str, (former, revision): (i64, i64), deleted: bool) -> Revision {
    let (namespace, kind) = ("default".to_owned(), "schedule".to_owned());
    Revision { namespace, kind, id: id.to_owned(), revision, former, deleted, updated_us: NOON_US }
}

fn revise(id: &str, numbers: (i64, i64), deleted: bool) -> PlanWrite {
    PlanWrite::Revise { revision: revision(id, numbers, deleted) }
}

async fn known(store: &dyn Store, id: &str) -> Option<Revision> {
    store.revisions("default", "schedule", &[id.to_owned()]).await.unwrap().pop()
}

fn assert_stale(answer: Result<(), StoreError>, (former, number): (i64, i64)) {
    let Err(StoreError::Conflict { what }) = answer else { panic!("not a conflict: {answer:?}") };
    assert!(what.contains(&format!("not at revision {former} any more, which {number} was")), "{what}");
}

pub(crate) async fn what_was_decided_on_another_revision_changes_nothing(place: &Place) {
    let store = place.open().await;
    let one = schedule("one");
    assert_eq!(known(&*store, "one").await, None);
    store.write_plan(vec![put(&one, None, Vec::new()), revise("one", (0, 5), false)]).await.unwrap();
    assert_eq!(known(&*store, "one").await, Some(revision("one", (0, 5), false)));
    for numbers in [(0, 6), (4, 6), (5, 5), (5, 4)] {
        let later = Schedule { generation: 2, events: 7, ..one.clone() };
        let writes = vec![put(&later, Some(1), Vec::new()), revise("one", numbers, false)];
        assert_stale(store.write_plan(writes).await, numbers);
        assert_stale(store.write_plan(vec![revise("one", numbers, false)]).await, numbers);
    }
    let stored = store.schedule("default", "one").await.unwrap().unwrap();
    assert_eq!((stored.generation, stored.events), (1, 1000));
    assert_eq!(known(&*store, "one").await, Some(revision("one", (0, 5), false)));
    store.write_plan(vec![revise("one", (5, 6), false)]).await.unwrap();
    assert_eq!(known(&*store, "one").await, Some(revision("one", (5, 6), false)));
}

pub(crate) async fn a_late_revision_does_not_revive_what_was_deleted(place: &Place) {
    let store = place.open().await;
    let one = schedule("one");
    store.write_plan(vec![put(&one, None, Vec::new()), revise("one", (0, 1), false)]).await.unwrap();
    store.write_plan(vec![delete(&one), revise("one", (1, 3), true)]).await.unwrap();
    let again = || put(&schedule("one"), None, Vec::new());
    assert_stale(store.write_plan(vec![again(), revise("one", (1, 2), false)]).await, (1, 2));
    assert!(store.schedule("default", "one").await.unwrap().is_none());
    assert_eq!(known(&*store, "one").await, Some(revision("one", (1, 3), true)));
    store.write_plan(vec![again(), revise("one", (3, 4), false)]).await.unwrap();
    assert!(store.schedule("default", "one").await.unwrap().is_some());
    assert_eq!(known(&*store, "one").await, Some(revision("one", (3, 4), false)));
}

pub(crate) async fn a_change_that_fails_leaves_no_revision(place: &Place) {
    let store = place.open().await;
    let one = schedule("one");
    store.write_plan(vec![put(&one, None, Vec::new())]).await.unwrap();
    let taken = vec![revise("one", (0, 1), false), put(&schedule("one"), None, Vec::new())];
    assert!(matches!(store.write_plan(taken).await, Err(StoreError::Conflict { .. })));
    assert_eq!(known(&*store, "one").await, None);
}

pub(crate) async fn one_stale_revision_of_several_writes_none(place: &Place) {
    let store = place.open().await;
    store.write_plan(vec![revise("b", (0, 2), false)]).await.unwrap();
    let [c, b, a] = ["c", "b", "a"].map(|id| revise(id, (0, 3), false));
    assert_stale(store.write_plan(vec![c, b, a]).await, (0, 3));
    assert_eq!((known(&*store, "a").await, known(&*store, "c").await), (None, None));
    let twice = store.write_plan(vec![revise("a", (0, 1), true), revise("a", (1, 2), false)]).await;
    assert_stale(twice, (1, 2));
    assert_eq!(known(&*store, "a").await, None);
    assert!(store.revisions("other", "schedule", &["b".to_owned()]).await.unwrap().is_empty());
    assert!(store.revisions("default", "policy", &["b".to_owned()]).await.unwrap().is_empty());
}

pub(crate) async fn of_many_at_once_one_follows_what_all_have_read(place: &Place) {
    let store = place.open().await;
    for round in 0..4 {
        let former = round * 100;
        // Two resources in either order: nobody waits for the other for ever.
        let calls = (1..=12).map(|number| {
            let numbers = (former, if number == 1 { former + 100 } else { former + number });
            let [a, b] = ["a", "b"].map(|id| revise(id, numbers, false));
            store.write_plan(if number % 2 == 0 { vec![a, b] } else { vec![b, a] })
        });
        let answers = join_all(calls).await;
        assert_eq!(answers.iter().filter(|answer| answer.is_ok()).count(), 1);
        let latest = [known(&*store, "a").await, known(&*store, "b").await].map(|one| one.unwrap().revision);
        assert!(latest[0] == latest[1] && latest[0] > former, "{latest:?}");
        if latest[0] != former + 100 {
            let last = ["a", "b"].map(|id| revise(id, (latest[0], former + 100), false));
            store.write_plan(last.to_vec()).await.unwrap();
        }
    }
}

pub(crate) async fn old_revisions_go(place: &Place) {
    let store = place.open().await;
    for (id, age_us) in [("old", REVISIONS_KEPT_US + 1), ("young", REVISIONS_KEPT_US)] {
        let revision = Revision { updated_us: NOON_US - age_us, ..revision(id, (0, 1), true) };
        store.write_plan(vec![PlanWrite::Revise { revision }]).await.unwrap();
    }
    assert_eq!(store.prune(NOON_US - 45 * DAY_US, NOON_US).await.unwrap().other, 1);
    assert_eq!(known(&*store, "old").await, None);
    assert!(known(&*store, "young").await.is_some());
}
