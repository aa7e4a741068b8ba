//! What went wrong, over all runs, and what of it is closed.

use tollgate_core::handle::change::{Changes, HistoryRow, Outcome};
use tollgate_core::model::{Counts, DAY_US, Run, RunId, RunState};
use tollgate_store::Store;
use tollgate_store::history::FailureFilter;
use uuid::Uuid;

use super::place::Place;
use super::samples::{NOON_US, commit, ended, run, schedule};

const BADLY: [Outcome; 4] = [Outcome::Dead, Outcome::Failed, Outcome::Expired, Outcome::Lost];

fn bad(name: &str, shard: u16, at: i64, counts: Counts) -> Run {
    let (state, finished_us) = (RunState::Finished, Some(NOON_US + at));
    Run { state, finished_us, counts, ..run(&schedule(name), shard, NOON_US - 1_000 + at) }
}

fn dead() -> Counts {
    Counts { succeeded: 1, dead: 1, ..Counts::default() }
}

async fn found(store: &dyn Store, filter: &FailureFilter) -> Vec<i64> {
    let runs = store.runs_failed("default", filter, None, 100).await.unwrap();
    runs.into_iter().map(|run| run.finished_us.unwrap() - NOON_US).collect()
}

pub(crate) async fn failed_runs_are_listed_latest_end_first(place: &Place) {
    let store = place.open().await;
    let policy_uid = Some(Uuid::now_v7());
    let runs = [
        bad("one", 5, 10, dead()),
        bad("one", 6, 20, Counts { expired: 3, ..Counts::default() }),
        Run { policy_uid, ..bad("two", 5, 30, Counts { failed: 1, ..Counts::default() }) },
        bad("two", 7, 40, Counts { lost: 1, ..Counts::default() }),
        bad("one", 5, 50, Counts { succeeded: 1, cancelled: 1, ..Counts::default() }),
        Run { finished_us: None, state: RunState::Running, ..bad("one", 5, 60, dead()) },
        Run { namespace: "other".to_owned(), ..bad("three", 5, 70, dead()) },
        // Ended at one moment.
        bad("four", 5, 20, dead()),
        bad("five", 6, 20, dead()),
    ];
    store.emit(&runs, &[]).await.unwrap();
    let all = FailureFilter::default();
    assert_eq!(found(&*store, &all).await, [40, 30, 20, 20, 20, 10]);
    let mut seen: Vec<(i64, RunId)> = Vec::new();
    loop {
        let page = store.runs_failed("default", &all, seen.last().copied(), 2).await.unwrap();
        if page.is_empty() {
            break;
        }
        assert!(page.len() <= 2);
        seen.extend(page.iter().map(|run| (run.finished_us.unwrap(), run.id)));
    }
    let mut expected = seen.clone();
    expected.sort();
    expected.reverse();
    expected.dedup();
    assert_eq!((seen.len(), &seen), (6, &expected), "in order, and none twice");
    let of_two = FailureFilter { schedule_uid: Some(runs[3].schedule_uid), ..all.clone() };
    assert_eq!(found(&*store, &of_two).await, [40]);
    assert_eq!(found(&*store, &FailureFilter { policy_uid, ..all.clone() }).await, [30]);
    let (from_us, until_us) = (Some(NOON_US + 20), Some(NOON_US + 30));
    assert_eq!(found(&*store, &FailureFilter { from_us, until_us, ..all.clone() }).await, [30, 20, 20, 20]);
    assert_eq!(store.runs_failed("other", &all, None, 9).await.unwrap(), runs[6..7]);
    assert!(store.runs_failed("nobody", &all, None, 9).await.unwrap().is_empty());
}

pub(crate) async fn closed_runs_are_left_out_until_they_end_again(place: &Place) {
    let store = place.open().await;
    let runs = [bad("one", 5, 10, dead()), bad("two", 5, 20, dead()), bad("three", 6, 30, dead())];
    store.emit(&runs, &[]).await.unwrap();
    let all = FailureFilter::default();
    let end_us = |run: &Run| run.finished_us.unwrap();
    let ids: Vec<RunId> = runs.iter().map(|run| run.id).collect();
    assert!(store.closed_failures(5, &ids).await.unwrap().is_empty());
    let first = (runs[0].id, end_us(&runs[0]));
    for _ in 0..2 {
        store.close_failures(5, &[first]).await.unwrap();
        assert_eq!(found(&*store, &all).await, [30, 20]);
    }
    store.close_failures(5, &[(runs[1].id, end_us(&runs[1]) - 1)]).await.unwrap();
    assert_eq!(found(&*store, &all).await, [30, 20], "it has ended later than what was closed");
    assert_eq!(found(&*store, &FailureFilter { closed: true, ..all.clone() }).await, [30, 20, 10]);
    let not_well = store.runs_not_well(5, NOON_US, 9).await.unwrap();
    assert_eq!(not_well, runs[1..2]);
    // An older end does not undo a later one, and another shard knows nothing of it.
    store.close_failures(5, &[(runs[0].id, end_us(&runs[0]) - 5)]).await.unwrap();
    assert_eq!(store.closed_failures(5, &[runs[0].id, runs[2].id]).await.unwrap(), [first]);
    store.close_failures(5, &[(runs[2].id, end_us(&runs[2]))]).await.unwrap();
    assert_eq!(found(&*store, &all).await, [30, 20]);
    let again = Run { finished_us: Some(end_us(&runs[0]) + 1), ..runs[0].clone() };
    commit(&*store, 5, Changes { runs_changed: vec![again], ..Changes::default() }).await;
    assert_eq!(found(&*store, &all).await, [30, 20, 11]);
    // What is known of a run goes with it.
    store.prune(NOON_US + DAY_US, NOON_US + 12 * DAY_US).await.unwrap();
    assert!(store.closed_failures(5, &ids).await.unwrap().is_empty());
    assert!(store.closed_failures(6, &ids).await.unwrap().is_empty());
}

pub(crate) async fn rows_that_failed_are_found_by_outcome(place: &Place) {
    let store = place.open().await;
    let one = run(&schedule("one"), 5, NOON_US).id;
    let range = HistoryRow { count: 5, ..ended(one, 2, Outcome::Expired) };
    let rows = [
        ended(one, 0, Outcome::Succeeded),
        ended(one, 1, Outcome::Dead),
        range,
        ended(one, 7, Outcome::Succeeded),
        ended(one, 8, Outcome::Lost),
        ended(one, 9, Outcome::Cancelled),
        ended(one, 10, Outcome::Dead),
    ];
    commit(&*store, 5, Changes { history: rows.to_vec(), ..Changes::default() }).await;
    let of = |places: &[usize]| places.iter().map(|at| rows[*at].clone()).collect::<Vec<_>>();
    let read = async |from, outcomes: &[Outcome], limit| {
        store.history_failed(5, one, from, outcomes, limit).await.unwrap()
    };
    assert_eq!(read(0, &BADLY, 9).await, of(&[1, 2, 4, 6]));
    assert_eq!(read(0, &BADLY, 2).await, of(&[1, 2]));
    assert_eq!(read(4, &BADLY, 9).await, of(&[2, 4, 6]), "4 is in the range of 2 to 6");
    assert_eq!(read(7, &BADLY, 9).await, of(&[4, 6]));
    assert_eq!(read(11, &BADLY, 9).await, of(&[]));
    assert_eq!(read(0, &[Outcome::Dead], 9).await, of(&[1, 6]));
    assert_eq!(read(2, &[Outcome::Dead, Outcome::Lost], 9).await, of(&[4, 6]));
    assert_eq!(read(0, &[Outcome::Succeeded], 9).await, of(&[]), "what went well is not looked for");
    assert!(store.history_failed(6, one, 0, &BADLY, 9).await.unwrap().is_empty());
}
