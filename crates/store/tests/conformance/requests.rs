//! Runs that are made by hand, and the requests that they answer.

use futures::future::join_all;
use tollgate_core::model::{DAY_US, Run};
use tollgate_store::plan::{ByHand, REQUESTS_KEPT_US, Request, RequestStep};
use tollgate_store::{Store, StoreError};
use uuid::Uuid;

use super::place::Place;
use super::samples::{NOON_US, audit, run, schedule};

fn request(id: &str, schedule_uid: Uuid, progress: &str) -> Request {
    Request {
        schedule_uid,
        id: id.to_owned(),
        content: r#"{"events":7}"#.to_owned(),
        progress: progress.to_owned(),
        made: 0,
        created_us: NOON_US,
    }
}

fn by_hand(runs: &[Run], request: Request, from: Option<&str>) -> ByHand {
    let step = RequestStep { request, from: from.map(str::to_owned) };
    ByHand { runs: runs.to_vec(), request: Some(step), ..ByHand::default() }
}

async fn count(store: &dyn Store) -> (usize, usize) {
    let runs = store.list_runs("default", &Default::default(), None, 100).await.unwrap();
    let notes = store.audit("default", &Default::default(), None, 100).await.unwrap();
    (runs.len(), notes.len())
}

pub(crate) async fn a_request_is_answered_once(place: &Place) {
    let store = place.open().await;
    let one = schedule("one");
    assert_eq!(store.request(one.uid, "x").await.unwrap(), None);
    let made = ByHand {
        audit: Some(audit("namespaces/default/schedules/one")),
        only_new: true,
        ..by_hand(&[run(&one, 5, NOON_US)], request("x", one.uid, "1"), None)
    };
    assert_eq!(store.emit_by_hand(made).await.unwrap(), Some(1));
    let known = Request { made: 1, ..request("x", one.uid, "1") };
    assert_eq!(store.request(one.uid, "x").await.unwrap(), Some(known.clone()));
    let again = ByHand {
        audit: Some(audit("namespaces/default/schedules/one")),
        ..by_hand(&[run(&one, 5, NOON_US + 1)], request("x", one.uid, "2"), None)
    };
    assert_eq!(store.emit_by_hand(again).await.unwrap(), None);
    assert_eq!(count(&*store).await, (1, 1), "nothing of it is written");
    assert_eq!(store.request(one.uid, "x").await.unwrap(), Some(known));
    let other = schedule("other");
    let of_other = by_hand(&[run(&other, 5, NOON_US)], request("x", other.uid, "1"), None);
    assert_eq!(store.emit_by_hand(of_other).await.unwrap(), Some(1), "each schedule has its own");
}

pub(crate) async fn a_request_goes_on_from_where_it_was(place: &Place) {
    let store = place.open().await;
    let one = schedule("one");
    let runs: Vec<Run> = (0..3).map(|at| run(&one, 5, NOON_US + at)).collect();
    let first = by_hand(&runs[..1], request("x", one.uid, "1"), None);
    assert_eq!(store.emit_by_hand(first).await.unwrap(), Some(1));
    let late = by_hand(&runs[1..], request("x", one.uid, "3"), Some("2"));
    assert_eq!(store.emit_by_hand(late).await.unwrap(), None);
    assert_eq!(count(&*store).await.0, 1);
    let next = by_hand(&runs, request("x", one.uid, "2"), Some("1"));
    assert_eq!(store.emit_by_hand(next).await.unwrap(), Some(2), "one is there");
    let known = Request { made: 3, ..request("x", one.uid, "2") };
    assert_eq!(store.request(one.uid, "x").await.unwrap(), Some(known));
}

pub(crate) async fn what_cannot_be_handed_over_leaves_no_request(place: &Place) {
    let store = place.open().await;
    let one = schedule("one");
    let there = run(&one, 5, NOON_US);
    store.emit(std::slice::from_ref(&there), &[]).await.unwrap();
    let both = [there, run(&one, 5, NOON_US + 1)];
    let taken = ByHand { only_new: true, ..by_hand(&both, request("x", one.uid, "1"), None) };
    let refused = store.emit_by_hand(taken).await;
    assert!(matches!(refused, Err(StoreError::Conflict { .. })), "{refused:?}");
    let gone = ByHand {
        policy: Some((Uuid::new_v4(), "gone".to_owned())),
        ..by_hand(&both, request("x", one.uid, "1"), None)
    };
    let refused = store.emit_by_hand(gone).await;
    assert!(matches!(refused, Err(StoreError::NotFound { .. })), "{refused:?}");
    assert_eq!(store.request(one.uid, "x").await.unwrap(), None);
    assert_eq!(count(&*store).await, (1, 0));
}

pub(crate) async fn of_many_at_once_one_answers_a_request(place: &Place) {
    let store = place.open().await;
    let one = schedule("one");
    let calls = (0..12).map(|at| {
        let progress = at.to_string();
        store.emit_by_hand(by_hand(&[run(&one, 5, NOON_US + at)], request("x", one.uid, &progress), None))
    });
    let answers: Vec<Option<u32>> = join_all(calls).await.into_iter().map(Result::unwrap).collect();
    assert_eq!(answers.iter().flatten().sum::<u32>(), 1, "{answers:?}");
    assert_eq!(count(&*store).await.0, 1);
    let winner = answers.iter().position(Option::is_some).unwrap();
    assert_eq!(store.request(one.uid, "x").await.unwrap().unwrap().progress, winner.to_string());
}

pub(crate) async fn old_requests_go(place: &Place) {
    let store = place.open().await;
    let one = schedule("one");
    for (id, created_us) in [("old", NOON_US - REQUESTS_KEPT_US - 1), ("young", NOON_US - REQUESTS_KEPT_US)] {
        let asked = Request { created_us, ..request(id, one.uid, "1") };
        assert_eq!(store.emit_by_hand(by_hand(&[], asked, None)).await.unwrap(), Some(0));
    }
    // Whatever is kept of the history.
    assert_eq!(store.prune(NOON_US - 45 * DAY_US, NOON_US).await.unwrap().other, 1);
    assert_eq!(store.request(one.uid, "old").await.unwrap(), None);
    assert!(store.request(one.uid, "young").await.unwrap().is_some());
}
