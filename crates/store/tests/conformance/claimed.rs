//! Hand-overs under scan tasks: who has lost a task hands nothing over, whichever of the two is faster.

use std::time::Duration;

use sqlx::{AssertSqlSafe, Connection as _, Executor as _};
use tollgate_core::emit::{Task, Window};
use tollgate_core::model::{Run, Schedule, SkipReason};
use tollgate_store::Store;
use tollgate_store::columns::{Dialect, compose};
use tollgate_store::emit::{ClaimedTask, Emitted};
use uuid::Uuid;

use super::place::Place;
use super::samples::{NOON_US, SECOND_US, delete, put, run, schedule, skipped};

/// When the lease of who claims first runs out.
const LAPSED_US: i64 = NOON_US + 10;

/// Two tasks of one window that A has claimed, and what it has read under them.
async fn claimed_by_a(store: &dyn Store) -> (Uuid, Vec<ClaimedTask>, Vec<Run>) {
    let window = Window { start_us: NOON_US, end_us: NOON_US + 60 * SECOND_US };
    let task = |launch_expression: &str| Task {
        zone: "Europe/Berlin".to_owned(),
        launch_expression: launch_expression.to_owned(),
        slots: vec![0..=0],
    };
    store.open_window(window, &[task("H.1"), task("H.2")], NOON_US).await.unwrap();
    let (a, one) = (Uuid::new_v4(), schedule("one"));
    store.write_plan(vec![put(&one, None, vec![])]).await.unwrap();
    let claimed = store.claim_tasks(a, LAPSED_US, NOON_US, 2).await.unwrap();
    assert_eq!(claimed.len(), 2);
    (a, claimed, (0..9).map(|i| run(&one, (i % 3) as u16, NOON_US + i)).collect())
}

/// What B gets once A's lease has run out.
async fn taken_over(store: &dyn Store, b: Uuid, limit: u32) -> Vec<ClaimedTask> {
    store.claim_tasks(b, LAPSED_US + 10, LAPSED_US, limit).await.unwrap()
}

/// Nothing was left out.
fn all_new(new: u32) -> Option<Emitted> {
    Some(Emitted { new, left_out: false })
}

/// How many rows hand-overs have left.
async fn rows(place: &Place) -> i64 {
    place.number("SELECT (SELECT count(*) FROM runs) + (SELECT count(*) FROM skipped_triggers)").await
}

pub(crate) async fn who_has_lost_a_task_hands_nothing_over(place: &Place) {
    let store = place.open().await;
    let (a, claimed, runs) = claimed_by_a(&*store).await;
    let skips = [skipped(&schedule("one"), NOON_US, SkipReason::Missed)];
    let b = Uuid::new_v4();
    let taken = taken_over(&*store, b, 1).await;
    assert_eq!(taken, [ClaimedTask { again: true, ..claimed[0].clone() }]);
    for tasks in [&claimed[..], &claimed[..1]] {
        assert_eq!(store.emit_claimed(a, tasks, &runs, &skips).await.unwrap(), None, "{tasks:?}");
    }
    assert_eq!(rows(place).await, 0);
    // What B has, B hands over. What nobody took from A, A still may, however late.
    assert_eq!(store.emit_claimed(b, &taken, &runs[..4], &skips).await.unwrap(), all_new(4));
    assert_eq!(store.emit_claimed(a, &claimed[1..], &runs, &[]).await.unwrap(), all_new(5));
    // A task that is done is nobody's.
    store.complete_tasks(&taken, b, 4, NOON_US).await.unwrap();
    let late = [run(&schedule("other"), 1, NOON_US)];
    assert_eq!(store.emit_claimed(b, &taken, &late, &skips).await.unwrap(), None);
    assert_eq!(rows(place).await, 10);
}

/// One change in the same shard harms nothing. After a move, after several changes, and once the schedule has been deleted,
/// nobody knows which shards have got the launch meanwhile.
pub(crate) async fn what_has_changed_since_it_was_read_is_left_out(place: &Place) {
    let store = place.open().await;
    let (a, claimed, _) = claimed_by_a(&*store).await;
    let [once, twice, moved, deleted] = ["once", "twice", "moved", "deleted"].map(schedule);
    let all = [&once, &twice, &moved, &deleted];
    store.write_plan(all.map(|one| put(one, None, vec![])).to_vec()).await.unwrap();
    // All live in shard 5 from now on.
    let changed = [(&once, 2), (&twice, 3), (&moved, 2)]
        .map(|(one, generation)| put(&Schedule { generation, ..one.clone() }, Some(1), vec![]));
    store.write_plan(changed.to_vec()).await.unwrap();
    store.write_plan(vec![delete(&deleted)]).await.unwrap();
    let read = all.map(|one| run(one, if one.uid == moved.uid { 1 } else { 5 }, NOON_US));
    let left_out = Some(Emitted { new: 1, left_out: true });
    assert_eq!(store.emit_claimed(a, &claimed, &read, &[]).await.unwrap(), left_out);
    assert_eq!(store.launches_with_runs(once.uid, NOON_US, NOON_US + 1).await.unwrap(), [NOON_US]);
    assert_eq!(rows(place).await, 1);
}

/// Somebody on this database waits for a lock of somebody else.
async fn somebody_waits(place: &Place) {
    let waits = "SELECT count(*) FROM pg_stat_activity
        WHERE datname = current_database() AND wait_event_type = 'Lock'";
    let until_then = async {
        while place.number(waits).await == 0 {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(30), until_then).await.expect("nobody waits");
}

/// B has claimed A's tasks and has not committed when A comes to hand over: A waits, and learns it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_hand_over_that_waits_for_a_take_over_writes_nothing() {
    let place = Place::postgres().await;
    let store = place.open().await;
    let (a, claimed, runs) = claimed_by_a(&*store).await;
    let mut other = place.postgres_connection().await;
    let mut b = other.begin().await.unwrap();
    let claim = compose(include_str!("../../src/queries/tasks_claim.sql"), Dialect::Postgres);
    let taken = sqlx::query(AssertSqlSafe(claim.into_owned()))
        .bind(Uuid::new_v4())
        .bind(LAPSED_US + 10)
        .bind(LAPSED_US)
        .bind(1_i64)
        .fetch_all(&mut *b)
        .await
        .unwrap();
    assert_eq!(taken.len(), 1);
    let taking = async {
        somebody_waits(&place).await;
        b.commit().await.unwrap();
    };
    let (handed, ()) = futures::future::join(store.emit_claimed(a, &claimed, &runs, &[]), taking).await;
    assert_eq!(handed.unwrap(), None);
    assert_eq!(rows(&place).await, 0);
    place.remove().await;
}

/// A is handing over when its lease runs out: B gets the tasks only once that is decided, and both have the same runs.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nobody_takes_a_task_over_while_its_runs_are_handed_over() {
    let place = Place::postgres().await;
    let store = place.open().await;
    let (a, claimed, runs) = claimed_by_a(&*store).await;
    // Somebody keeps A from writing; it has looked at its tasks by then.
    let mut other = place.postgres_connection().await;
    other.execute("BEGIN; LOCK TABLE runs IN SHARE ROW EXCLUSIVE MODE").await.unwrap();
    let b = Uuid::new_v4();
    let taking = async {
        somebody_waits(&place).await;
        let taken = taken_over(&*store, b, 2).await;
        other.execute("ROLLBACK").await.unwrap();
        taken
    };
    let (handed, taken) = futures::future::join(store.emit_claimed(a, &claimed, &runs, &[]), taking).await;
    assert_eq!(taken, [], "A is not done with them");
    assert_eq!(handed.unwrap(), all_new(9));
    let taken = taken_over(&*store, b, 2).await;
    assert_eq!(taken.len(), 2);
    assert_eq!(store.emit_claimed(b, &taken, &runs, &[]).await.unwrap(), all_new(0), "they are there");
    assert_eq!(rows(&place).await, 9);
    place.remove().await;
}
