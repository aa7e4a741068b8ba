//! Results of events: written with the commit that ends the event, behind its fence; gone with their runs.

use tollgate_core::handle::change::{Changes, HistoryRow, Outcome, ResultRow};
use tollgate_core::model::{DAY_US, Run, RunId};
use tollgate_store::CommitError;

use super::place::Place;
use super::samples::{NOON_US, commit, ended, finished, run, schedule, take};

fn result(run: RunId, index: u32, body: &str) -> ResultRow {
    ResultRow { run, index, body: body.to_owned(), ended_us: NOON_US }
}

pub(crate) async fn results_are_written_with_their_ends_and_once(place: &Place) {
    let store = place.open().await;
    let (one, other) = (run(&schedule("one"), 5, NOON_US), run(&schedule("other"), 5, NOON_US));
    store.emit(&[one.clone(), other.clone()], &[]).await.unwrap();
    let old = take(&*store, 5).await;
    let history: Vec<HistoryRow> = (0..3).map(|index| ended(one.id, index, Outcome::Succeeded)).collect();
    let large = format!("\"{}\"", "é\u{1f600}\\u0000".repeat(20_000));
    let results =
        vec![result(one.id, 2, "[1, 2.50]"), result(one.id, 0, &large), result(other.id, 0, "{\"a\":\"\"}")];
    let changed = Run { result_bytes: 70, result_count: 4, ..one.clone() };
    let changes = Changes { history, results, runs_changed: vec![changed.clone()], ..Changes::default() };
    let lease = commit(&*store, 5, changes).await;
    let read = async |of: &Run, from, limit| store.results(5, of.id, from, limit).await.unwrap();
    let all = [(0, large.clone()), (2, "[1, 2.50]".to_owned())];
    assert_eq!(read(&one, 0, 10).await, all);
    assert_eq!((read(&one, 0, 1).await, read(&one, 1, 9).await), (all[..1].to_vec(), all[1..].to_vec()));
    assert_eq!(read(&other, 0, 10).await, [(0, "{\"a\":\"\"}".to_owned())]);
    assert!(store.results(6, one.id, 0, 10).await.unwrap().is_empty(), "of another shard");
    assert_eq!(store.runs(5, &[one.id]).await.unwrap(), [changed]);
    // What is told again, or by one who has lost the shard, changes nothing.
    let again =
        Changes { results: vec![result(one.id, 2, "9"), result(one.id, 1, "8")], ..Changes::default() };
    assert!(matches!(store.commit(&old, &again).await, Err(CommitError::Fenced)));
    assert_eq!(read(&one, 0, 10).await, all);
    store.commit(&lease, &again).await.unwrap();
    let bodies: Vec<String> = read(&one, 1, 10).await.into_iter().map(|(_, body)| body).collect();
    assert_eq!(bodies, ["8", "[1, 2.50]"]);
}

pub(crate) async fn results_go_with_their_runs(place: &Place) {
    let store = place.open().await;
    let one = schedule("one");
    let (old, young) = (finished(&one, 5, NOON_US - 9 * DAY_US), finished(&one, 5, NOON_US));
    let old = Run { finished_us: Some(NOON_US - 9 * DAY_US), ..old };
    let young = Run { finished_us: Some(NOON_US), ..young };
    store.emit(&[old.clone(), young.clone()], &[]).await.unwrap();
    let of = |run: &Run, ended_us| ResultRow { ended_us, ..result(run.id, 0, "1") };
    // Its run goes on for longer.
    let results = vec![of(&old, NOON_US - 9 * DAY_US), of(&young, NOON_US - 9 * DAY_US)];
    commit(&*store, 5, Changes { results, ..Changes::default() }).await;
    store.prune(NOON_US - 20 * DAY_US, NOON_US).await.unwrap();
    assert_eq!(store.results(5, old.id, 0, 9).await.unwrap().len(), 1);
    store.prune(NOON_US - DAY_US, NOON_US).await.unwrap();
    assert!(store.results(5, old.id, 0, 9).await.unwrap().is_empty());
    assert_eq!(store.results(5, young.id, 0, 9).await.unwrap().len(), 1);
}

pub(crate) async fn results_are_replaced_where_nobody_was_faster(place: &Place) {
    let store = place.open().await;
    let id = RunId::derive(uuid::Uuid::from_u128(1), NOON_US);
    let results = (0..3).map(|index| result(id, index, &format!("{index}"))).collect();
    commit(&*store, 5, Changes { results, ..Changes::default() }).await;
    let first = store.stored_results(5, None, 2).await.unwrap();
    assert_eq!(first.iter().map(|row| (row.run, row.index)).collect::<Vec<_>>(), [(id, 0), (id, 1)]);
    let rest = store.stored_results(5, Some((id, 1)), 2).await.unwrap();
    assert_eq!(rest.iter().map(|row| row.body.as_str()).collect::<Vec<_>>(), ["2"]);
    let mut rows: Vec<_> = first.into_iter().map(|row| (row, "new".to_owned())).collect();
    rows[1].0.body = "not as it is".to_owned();
    assert_eq!(store.replace_results(5, rows).await.unwrap(), 1);
    let bodies = store.results(5, id, 0, 9).await.unwrap();
    assert_eq!(bodies.iter().map(|(_, body)| body.as_str()).collect::<Vec<_>>(), ["new", "1", "2"]);
}
