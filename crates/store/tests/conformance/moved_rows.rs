//! What stands under a run in any table goes with it to another queue shard.

use std::collections::BTreeMap;

use tollgate_core::handle::batch::TokenBatch;
use tollgate_core::handle::change::{Changes, Outcome, ResultRow, Unstarted};
use tollgate_core::handle::control::Message;
use tollgate_core::items::{Item, ItemsDigest, Pager};
use tollgate_core::model::{OnFinish, RunEnd};
use tollgate_store::items::StoredSubmission;

use super::chains::end;
use super::moves::{FROM, USED, go, tree};
use super::place::Place;
use super::samples::{NOON_US, audit, commit, ended};

/// Every table whose rows are of a run.
const TABLES: [&str; 11] = [
    "closed_failures",
    "ended_batches",
    "event_history",
    "event_results",
    "item_pages",
    "item_runs",
    "runs",
    "submissions",
    "token_batches",
    "tokens",
    "unstarted_events",
];

/// How many tables, besides where runs have gone, have rows of a run and are none of these.
async fn others(place: &Place) -> i64 {
    let columns = if place.is_postgres() {
        "SELECT table_name AS name, column_name AS col FROM information_schema.columns \
         JOIN information_schema.tables USING (table_schema, table_name) \
         WHERE table_schema = current_schema() AND table_type = 'BASE TABLE' AND NOT EXISTS \
             (SELECT 1 FROM pg_inherits WHERE inhrelid = quote_ident(table_name)::regclass)"
    } else {
        "SELECT tables.name, columns.name AS col FROM sqlite_schema AS tables \
         JOIN pragma_table_info(tables.name) AS columns WHERE tables.type = 'table'"
    };
    let known = TABLES.map(|table| format!("'{table}'")).join(", ");
    let text = format!(
        "SELECT CAST(count(*) AS bigint) FROM (SELECT name FROM ({columns}) AS all_of \
         WHERE col IN ('shard_id', 'run_id') GROUP BY name HAVING count(*) = 2) AS of_runs \
         WHERE name NOT IN ({known}, 'moved_runs')"
    );
    place.number(&text).await
}

pub(crate) async fn every_row_of_a_run_moves(place: &Place) {
    let store = place.open().await;
    assert_eq!(others(place).await, 0, "a table with rows of runs that do not move");
    let tree = tree(&*store).await;
    let run = tree.open.id;
    let changes = Changes {
        batches_new: vec![TokenBatch::of(run, 10, NOON_US)],
        unstarted_put: vec![Unstarted { run, first: 0, bits: vec![2] }],
        history: vec![ended(run, 7, Outcome::Succeeded)],
        results: vec![ResultRow { run, index: 7, body: "1".to_owned(), ended_us: NOON_US }],
        ..Changes::default()
    };
    commit(&*store, FROM, changes).await;
    let submission = StoredSubmission {
        schedule_uid: tree.schedule.uid,
        request_id: "r".to_owned(),
        shard: FROM,
        run,
        launch_us: tree.open.launch_us,
        asked: "{}".to_owned(),
        created_us: NOON_US,
        items: 0,
        digest: ItemsDigest::default(),
        units_max: 0,
        made_us: None,
    };
    assert!(store.begin_submission(&submission, "{}").await.unwrap());
    let mut pager = Pager::resume(0, ItemsDigest::default());
    let full = pager.push(&Item { key: "k".to_owned(), units: 1, data: "1".to_owned() });
    let pages = full.into_iter().chain(pager.finish()).collect();
    let to = (1, pager.digest(), pager.units_max());
    assert!(store.add_item_pages(&submission, pages, to, NOON_US).await.unwrap());
    let made = StoredSubmission { items: to.0, digest: to.1, units_max: to.2, ..submission };
    store.submission_made(&made, NOON_US).await.unwrap();
    store.close_failures(FROM, &[(run, NOON_US)]).await.unwrap();

    let id = if place.is_postgres() { format!("'{}'", run.0) } else { format!("x'{}'", run.0.simple()) };
    let counts = async |shard: u16| {
        let mut counts = BTreeMap::new();
        for table in TABLES {
            let rows = format!(
                "SELECT CAST(count(*) AS bigint) FROM {table} WHERE shard_id = {shard} AND run_id = {id}"
            );
            counts.insert(table, place.number(&rows).await);
        }
        counts
    };
    let before = counts(FROM).await;
    assert!(before.values().all(|rows| *rows > 0), "{before:?}");
    store.use_shards(USED, audit("shards")).await.unwrap();
    assert_eq!(go(&*store, &[]).await.residents, 1);
    let left = counts(FROM).await;
    assert!(left.values().all(|rows| *rows == 0), "{left:?}");
    assert_eq!(counts(tree.to).await, before);
}

/// A schedule that is to follow the end of a run stays until it has: whoever launches it has read where it lives.
pub(crate) async fn what_is_to_follow_an_end_stays(place: &Place) {
    let store = place.open().await;
    let tree = tree(&*store).await;
    store.use_shards(USED, audit("shards")).await.unwrap();
    let next = end().next.map(|next| OnFinish { schedule: tree.schedule.id.clone(), ..next });
    let told = Message::run_ended(RunEnd { namespace: tree.schedule.namespace.clone(), next, ..end() });
    // In whatever shard it has ended.
    store.post(9, std::slice::from_ref(&told)).await.unwrap();
    assert_eq!(go(&*store, &[]).await.residents, 0);
    commit(&*store, 9, Changes { inbox_done: vec![told.id], ..Changes::default() }).await;
    assert_eq!(go(&*store, &[]).await.residents, 1);
}
