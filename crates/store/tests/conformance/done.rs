//! Schedules that may be done.

use tollgate_core::model::{Run, RunState, Schedule, Trigger, WhenDone};
use tollgate_core::plan::done::RunsLeft;
use tollgate_store::Store;
use tollgate_store::plan::DonePage;
use uuid::Uuid;

use super::place::Place;
use super::samples::{NOON_US, SECOND_US, delete, finished, put, run, schedule};

/// Its only shot is at noon and so many seconds; it may go a second later.
fn shot(id: &str, after_noon_s: i64) -> Schedule {
    let mut shot = schedule(id);
    shot.timing.triggers = vec![Trigger::At { at_us: NOON_US + after_noon_s * SECOND_US }];
    shot.when_done = WhenDone::Delete { after_s: 1 };
    shot.updated_us = 0;
    shot
}

fn ids(page: &DonePage) -> Vec<&str> {
    page.schedules.iter().map(|schedule| schedule.id.as_str()).collect()
}

async fn found(store: &dyn Store, after_noon_s: i64) -> Vec<String> {
    let page = store.schedules_done(NOON_US + after_noon_s * SECOND_US, None, 10).await.unwrap();
    page.schedules.into_iter().map(|schedule| schedule.id).collect()
}

pub(crate) async fn schedules_that_may_be_done_are_found_page_by_page(place: &Place) {
    let store = place.open().await;
    let shots = [shot("c", 3), shot("a", 1), shot("b", 2), shot("d", 9)];
    let kept = Schedule { when_done: WhenDone::Keep, ..shot("kept", 1) };
    for one in shots.iter().chain([&kept]) {
        store.write_plan(vec![put(one, None, vec![])]).await.unwrap();
    }
    let until_us = NOON_US + 5 * SECOND_US;
    let first = store.schedules_done(until_us, None, 2).await.unwrap();
    assert_eq!(ids(&first), ["a", "b"]);
    assert_eq!(first.schedules[0], shots[1]);
    let rest = store.schedules_done(until_us, first.next, 2).await.unwrap();
    assert_eq!((ids(&rest), rest.next), (vec!["c"], None));
    // One that is changed is as it is now, and one that is gone is gone.
    let later = Schedule { generation: 2, ..shot("a", 7) };
    let later = Schedule { uid: shots[1].uid, ..later };
    store.write_plan(vec![put(&later, Some(1), vec![])]).await.unwrap();
    store.write_plan(vec![delete(&shots[2])]).await.unwrap();
    assert_eq!(found(&*store, 5).await, ["c"]);
    assert_eq!(found(&*store, 8).await, ["c", "a"]);
    let put_off = [
        (shots[0].uid, 1, Some(NOON_US + 100 * SECOND_US)),
        (shots[1].uid, 1, None),
        (shots[3].uid, 1, None),
    ];
    store.put_off(&put_off).await.unwrap();
    assert_eq!(found(&*store, 50).await, ["a"], "it has changed since");
    assert_eq!(found(&*store, 100).await, ["a", "c"]);
}

pub(crate) async fn runs_that_are_left_are_counted(place: &Place) {
    let store = place.open().await;
    let (one, two, none) = (schedule("one"), schedule("two"), schedule("none"));
    let runs = [
        finished(&one, 5, NOON_US),
        Run { finished_us: Some(NOON_US + 9 * SECOND_US), ..finished(&one, 6, NOON_US + 1) },
        finished(&two, 5, NOON_US),
        run(&two, 5, NOON_US + 2),
        Run { state: RunState::Running, ..run(&two, 7, NOON_US + 3) },
    ];
    store.emit(&runs, &[]).await.unwrap();
    let left = store.runs_left(&[one.uid, two.uid, none.uid, Uuid::nil()]).await.unwrap();
    assert_eq!(left.len(), 2);
    assert_eq!(left[&one.uid], RunsLeft { unfinished: 0, last_finished_us: Some(NOON_US + 9 * SECOND_US) });
    assert_eq!((left[&two.uid].unfinished, left[&two.uid].last_finished_us), (2, runs[2].finished_us));
}
