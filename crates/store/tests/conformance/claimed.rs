//! Hand-overs under scan tasks: who has lost a task hands nothing over, whichever of the two is faster.

use std::time::Duration;

use sqlx::{AssertSqlSafe, Connection as _, Executor as _};
use tollgate_core::emit::{Task, Window};
use tollgate_core::model::{Run, Schedule, SkipReason};
use tollgate_store::Store;
use tollgate_store::columns::{Dialect, compose};
use tollgate_store::emit::ClaimedTask;
use uuid::Uuid;

use super::place::Place;
use super::samples::{NOON_US, SECOND_US, put, run, schedule, skipped};

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
    let claimed = store.claim_tasks(a, LAPSED_US, NOON_US, 2).await.unwrap();
    assert_eq!(claimed.len(), 2);
    (a, claimed, (0..9).map(|i| run(&one, (i % 3) as u16, NOON_US + i)).collect())
}

/// What B gets once A's lease has run out.
async fn taken_over(store: &dyn Store, b: Uuid, limit: u32) -> Vec<ClaimedTask> {
    store.claim_tasks(b, LAPSED_US + 10, LAPSED_US, limit).await.unwrap()
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
    assert_eq!(store.emit_claimed(b, &taken, &runs[..4], &skips).await.unwrap(), Some(4));
    assert_eq!(store.emit_claimed(a, &claimed[1..], &runs, &[]).await.unwrap(), Some(5));
    // A task that is done is nobody's.
    store.complete_tasks(&taken, b, 4, NOON_US).await.unwrap();
    let late = [run(&schedule("other"), 1, NOON_US)];
    assert_eq!(store.emit_claimed(b, &taken, &late, &skips).await.unwrap(), None);
    assert_eq!(rows(place).await, 10);
}

/// A schedule has moved from shard 1 since it was read, or a moment before it was: a launch has one run, whoever is first.
pub(crate) async fn what_has_a_run_in_another_shard_is_left_out(place: &Place) {
    let store = place.open().await;
    let (a, claimed, _) = claimed_by_a(&*store).await;
    let before = schedule("moved");
    let after = Schedule { generation: 2, former_homes: vec![1], updated_us: NOON_US, ..before.clone() };
    store.write_plan(vec![put(&before, None, vec![])]).await.unwrap();
    store.write_plan(vec![put(&after, Some(1), vec![])]).await.unwrap();
    let old = |launch: i64| run(&before, 1, NOON_US + launch);
    let new = |launch: i64| run(&after, 5, NOON_US + launch);
    let emit = async |runs: &[Run]| store.emit_claimed(a, &claimed, runs, &[]).await.unwrap();
    assert_eq!(emit(&[old(0)]).await, Some(1), "no other shard has it");
    assert_eq!(emit(&[new(0), new(1)]).await, Some(1));
    assert_eq!(emit(&[old(0), old(1), old(2), new(2)]).await, Some(1), "of two, the later generation's");
    assert_eq!(emit(&[new(2), old(3)]).await, Some(1), "it is there already");
    let runs = "SELECT count(*) FROM runs";
    assert_eq!(place.number(runs).await, 4);
    assert_eq!(place.number(&format!("{runs} WHERE shard_id = 5 AND generation = 2")).await, 2);
    // One that has not moved since it was read, and long before, is not looked for.
    let late = 2 * 3_600 * SECOND_US;
    assert_eq!(emit(&[new(late)]).await, Some(1));
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
    assert_eq!(handed.unwrap(), Some(9));
    let taken = taken_over(&*store, b, 2).await;
    assert_eq!(taken.len(), 2);
    assert_eq!(store.emit_claimed(b, &taken, &runs, &[]).await.unwrap(), Some(0), "they are there");
    assert_eq!(rows(&place).await, 9);
    place.remove().await;
}
