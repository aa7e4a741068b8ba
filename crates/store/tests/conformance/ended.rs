//! Events that ended well in one commit, which share rows.

use tollgate_core::handle::change::{Changes, HistoryRow, Outcome};
use tollgate_core::model::RunId;
use tollgate_store::{Store, StoreError};

use crate::place::Place;
use crate::samples::*;

/// An event as most end: at the first attempt, without a message.
fn succeeded(run: RunId, index: u32) -> HistoryRow {
    let finished_us = NOON_US + i64::from(index % 7);
    HistoryRow { attempt: 1, message: String::new(), finished_us, ..ended(run, index, Outcome::Succeeded) }
}

async fn write(store: &dyn Store, history: Vec<HistoryRow>) {
    commit(store, 5, Changes { history, ..Changes::default() }).await;
}

async fn batches(place: &Place) -> i64 {
    place.number("SELECT count(*) FROM ended_batches").await
}

pub(crate) async fn events_that_succeed_share_rows(place: &Place) {
    let store = place.open().await;
    let [one, two] = ["one", "two"].map(|id| run(&schedule(id), 5, NOON_US).id);
    let mut rows: Vec<HistoryRow> = (0..60).map(|index| succeeded(one, index)).collect();
    rows[3] = ended(one, 3, Outcome::Succeeded);
    rows[4] = HistoryRow { acquired_us: None, delivered_us: None, attempt: 3, ..rows[4].clone() };
    rows[5] = ended(one, 5, Outcome::Dead);
    rows[6] = HistoryRow { message: "\"quoted\",\n[1]".to_owned(), ..rows[6].clone() };
    let other = succeeded(two, 9);
    write(&*store, rows.iter().rev().cloned().chain([other.clone()]).collect()).await;
    assert_eq!((batches(place).await, place.number("SELECT count(*) FROM event_history").await), (3, 1));
    assert_eq!(store.history(5, one, 0, None, 100).await.unwrap(), rows);
    assert_eq!(store.history(5, one, 0, None, 7).await.unwrap(), rows[..7]);
    assert_eq!(store.history(5, one, 57, None, 7).await.unwrap(), rows[57..]);
    assert_eq!(store.history(5, two, 0, None, 100).await.unwrap(), [other]);
    let well: Vec<HistoryRow> =
        rows.iter().filter(|row| row.outcome == Outcome::Succeeded).cloned().collect();
    assert_eq!(store.history(5, one, 0, Some(Outcome::Succeeded), 100).await.unwrap(), well);
    assert_eq!(store.history(5, one, 0, Some(Outcome::Dead), 100).await.unwrap(), rows[5..6]);
    assert!(store.history(6, one, 0, None, 100).await.unwrap().is_empty());
    // One that had died is tried again, and succeeds.
    let again = HistoryRow { finished_us: NOON_US + 99, ..succeeded(one, 5) };
    let changes =
        Changes { history_gone: vec![(one, 5)], history: vec![again.clone()], ..Changes::default() };
    commit(&*store, 5, changes).await;
    rows[5] = again;
    assert_eq!(store.history(5, one, 0, None, 100).await.unwrap(), rows);
}

/// Events of one commit are far from each other, and between those of others.
pub(crate) async fn each_event_is_found_among_overlapping_batches(place: &Place) {
    const EVENTS: u32 = 3_000;
    let store = place.open().await;
    let one = run(&schedule("one"), 5, NOON_US).id;
    // Every third event in each of three rounds of commits of up to 200, and some of them late, in a commit of their own.
    let is_late = |index: &u32| index.is_multiple_of(97);
    for round in 0..3 {
        let on_time: Vec<u32> = (round..EVENTS).step_by(3).filter(|index| !is_late(index)).collect();
        for together in on_time.chunks(200) {
            write(&*store, together.iter().map(|index| succeeded(one, *index)).collect()).await;
        }
    }
    write(&*store, (0..EVENTS).filter(is_late).map(|index| succeeded(one, index)).collect()).await;
    let rows = batches(place).await;
    assert!((40..100).contains(&rows), "{rows}");
    let wide = place.number("SELECT count(*) FROM ended_batches WHERE last_idx - first_idx > 511").await;
    assert_eq!(wide, 0);
    for index in (0..EVENTS).step_by(61).chain(1_400..1_500) {
        assert_eq!(store.history(5, one, index, None, 1).await.unwrap(), [succeeded(one, index)]);
    }
    for (from, limit) in [(0, 10), (1, 500), (777, 1_000), (2_990, 100), (0, EVENTS)] {
        let page = store.history(5, one, from, None, limit).await.unwrap();
        let wanted: Vec<HistoryRow> =
            (from..EVENTS.min(from + limit)).map(|index| succeeded(one, index)).collect();
        assert_eq!(page, wanted, "{limit} from {from}");
    }
    assert!(store.history(5, one, EVENTS, None, 10).await.unwrap().is_empty());
}

pub(crate) async fn people_see_a_line_an_event(place: &Place) {
    let store = place.open().await;
    let one = run(&schedule("one"), 5, NOON_US).id;
    let mut rows: Vec<HistoryRow> = (0..40).map(|index| succeeded(one, index)).collect();
    rows[7] = HistoryRow { message: "it's done".to_owned(), attempt: 2, ..rows[7].clone() };
    rows[8] = HistoryRow { delivered_us: None, ..rows[8].clone() };
    rows.push(ended(one, 40, Outcome::Dead));
    let range = HistoryRow { count: 5, ..ended(one, 41, Outcome::Expired) };
    write(&*store, rows.iter().cloned().chain([range]).collect()).await;
    let count = async |condition: &str| {
        place.number(&format!("SELECT count(*) FROM ended_events WHERE {condition}")).await
    };
    assert_eq!(count("shard_id = 5").await, 46);
    for row in &rows {
        let delivered = row.delivered_us.map_or("IS NULL".to_owned(), |us| format!("= {us}"));
        let condition = format!(
            "idx = {} AND outcome = '{}' AND attempt = {} AND acquired_us = {} AND delivered_us {delivered} AND finished_us = {} \
             AND message = '{}'",
            row.index,
            if row.outcome == Outcome::Dead { "DEAD" } else { "SUCCEEDED" },
            row.attempt,
            row.acquired_us.unwrap(),
            row.finished_us,
            row.message.replace('\'', "''"),
        );
        assert_eq!(count(&condition).await, 1, "{condition}");
    }
    assert_eq!(count("outcome = 'EXPIRED' AND idx >= 41 AND idx < 46").await, 5);
}

pub(crate) async fn a_corrupt_batch_is_named(place: &Place) {
    let store = place.open().await;
    let [one, two] = ["one", "two"].map(|id| run(&schedule(id), 5, NOON_US).id);
    for run in [one, two] {
        write(&*store, (10..30).map(|index| succeeded(run, index)).collect()).await;
    }
    let sound = store.history(5, two, 0, None, 100).await.unwrap();
    for ends in [
        "",
        "[[0,1]]",
        "[[1,0,0,0],[19,0,0,0]]",
        "[[0,0,0,0],[18,0,0,0]]",
        "[[0,0,0,0],[19,0,0,0],[19,0,0,0]]",
    ] {
        let wrong = format!("UPDATE ended_batches SET ends = '{ends}' WHERE first_idx = 10 AND run_id = ");
        let id = one.0.simple();
        let key = if place.is_postgres() { format!("'{id}'") } else { format!("x'{id}'") };
        place.sql(&format!("{wrong}{key}")).await;
        let found = store.history(5, one, 15, None, 1).await;
        let Err(StoreError::Corrupt { table: "ended_batches", column, .. }) = found else {
            panic!("{ends}: {found:?}")
        };
        assert_eq!(column, "ends");
        assert_eq!(store.history(5, two, 0, None, 100).await.unwrap(), sound);
    }
}
