//! What became of deliveries: the latest of each event, until they are old.

use tollgate_core::model::{DAY_US, RunId, Sent};
use tollgate_store::attempts::{ATTEMPTS_KEPT, AttemptRow};
use uuid::Uuid;

use super::place::Place;
use super::samples::NOON_US;

fn run() -> RunId {
    RunId::derive(Uuid::from_u128(1), NOON_US)
}

fn made(index: u32, attempt: u32) -> AttemptRow {
    let message = format!("HTTP 503: \0 \"é\" of {attempt}");
    let sent = match attempt % 3 {
        0 => Sent::Accepted,
        1 => Sent::Refused { message, retry_after_ms: Some(7), permanent: false },
        _ => Sent::Unclear { message, retry_after_ms: None },
    };
    AttemptRow { run: run(), index, attempt, start_us: NOON_US + i64::from(attempt), took_us: 1_234, sent }
}

pub(crate) async fn attempts_are_kept_as_many_as_may_be(place: &Place) {
    let store = place.open().await;
    store.put_attempts(&[]).await.unwrap();
    store.put_attempts(&[made(0, 1), made(0, 2), made(3, 1)]).await.unwrap();
    assert_eq!(store.attempts(run(), 0).await.unwrap(), [made(0, 1), made(0, 2)]);
    assert_eq!(store.attempts(run(), 3).await.unwrap(), [made(3, 1)]);
    assert!(store.attempts(run(), 1).await.unwrap().is_empty());
    // Those that are written again, and those that come late, change nothing.
    let all: Vec<AttemptRow> = (1..=ATTEMPTS_KEPT + 5).map(|attempt| made(0, attempt)).collect();
    store.put_attempts(&all).await.unwrap();
    store.put_attempts(&all[..4]).await.unwrap();
    assert_eq!(store.attempts(run(), 0).await.unwrap(), all[5..]);
    assert_eq!(store.attempts(run(), 3).await.unwrap(), [made(3, 1)]);
    place.sql("UPDATE event_attempts SET sent = '{}' WHERE idx = 3").await;
    let error = store.attempts(run(), 3).await.unwrap_err().to_string();
    assert!(error.contains("event_attempts") && error.contains("sent"), "{error}");
}

pub(crate) async fn attempts_go_when_they_are_old(place: &Place) {
    let store = place.open().await;
    let old = |attempt| AttemptRow { start_us: NOON_US - 9 * DAY_US, ..made(0, attempt) };
    let rows: Vec<AttemptRow> = (1..=9).map(old).chain([made(0, 10), made(1, 1)]).collect();
    store.put_attempts(&rows).await.unwrap();
    store.prune(NOON_US - 10 * DAY_US, NOON_US).await.unwrap();
    assert_eq!(store.attempts(run(), 0).await.unwrap().len(), 10);
    store.prune(NOON_US - DAY_US, NOON_US).await.unwrap();
    assert_eq!(store.attempts(run(), 0).await.unwrap(), [made(0, 10)]);
    assert_eq!(store.attempts(run(), 1).await.unwrap(), [made(1, 1)]);
}
