//! Retention.

use tollgate_core::emit::{Task, Window};
use tollgate_core::handle::change::{Changes, HistoryRow, Outcome};
use tollgate_core::model::{DAY_US, Run, RunState, Schedule, SkipReason};
use tollgate_store::history::{PRUNE_EVERY, prunes_specs_of};
use tollgate_store::keys::ApiKey;
use tollgate_store::plan::PlanWrite;

use super::place::Place;
use super::samples::{
    NOON_US, SECOND_US, audit, commit, delete, ended, finished, put, run, schedule, shard_schedule, skipped,
    waiting,
};

/// Retention of the tests: ten days before noon.
const BEFORE_US: i64 = NOON_US - 10 * DAY_US;

pub(crate) async fn old_history_goes(place: &Place) {
    let store = place.open().await;
    // Two prunings ahead make the partitions of the old days.
    for days in [-20, -10, 0] {
        store.prune(0, NOON_US + days * DAY_US).await.unwrap();
    }
    // Runs of one event each, that end as it does.
    let one = schedule("one");
    let ends = [-20, -40, -9, 0, 400].map(|days| NOON_US + days * DAY_US);
    let runs = ends.map(|end_us| Run { finished_us: Some(end_us), ..finished(&one, 5, end_us) });
    store.emit(&runs, &[]).await.unwrap();
    let row = |run: &Run| HistoryRow {
        finished_us: run.finished_us.unwrap(),
        ..ended(run.id, 0, Outcome::Succeeded)
    };
    let history = runs.iter().map(row).collect();
    commit(&*store, 5, Changes { history, ..Changes::default() }).await;
    let left = async || {
        let mut left = Vec::new();
        for run in &runs {
            left.push(store.history(5, run.id, 0, None, 10).await.unwrap() == [row(run)]);
        }
        left
    };
    assert_eq!(left().await, [true; 5]);
    let pruned = store.prune(BEFORE_US, NOON_US).await.unwrap();
    assert!(pruned.events >= 2, "{pruned:?}");
    assert_eq!(left().await, [false, false, true, true, true]);
    assert_eq!(store.prune(BEFORE_US, NOON_US).await.unwrap().events, 0);
}

pub(crate) async fn history_of_many_events_goes_with_its_run(place: &Place) {
    let store = place.open().await;
    let (one, old_us) = (schedule("one"), NOON_US - 20 * DAY_US);
    store.prune(0, old_us).await.unwrap();
    let old = finished(&one, 5, old_us);
    let open = Run { finished_us: None, ..waiting(&one, 5, old_us + 1) };
    store.emit(&[old.clone(), open.clone()], &[]).await.unwrap();
    let rows = |run: &Run, events: u32| -> Vec<HistoryRow> {
        // Every second one in a batch, that shares its row with no other, and every second one without.
        let outcome = |index| if index % 2 == 0 { Outcome::Succeeded } else { Outcome::Failed };
        let at = |index| HistoryRow { finished_us: old_us, ..ended(run.id, 300 * index, outcome(index)) };
        (0..events).map(at).collect()
    };
    let mut history = rows(&old, 2500);
    history.extend(rows(&open, 3));
    commit(&*store, 5, Changes { history, ..Changes::default() }).await;
    let pruned = store.prune(BEFORE_US, NOON_US).await.unwrap();
    assert_eq!(pruned.runs, 1);
    assert_eq!(store.history(5, old.id, 0, None, 10).await.unwrap(), []);
    if place.is_postgres() {
        assert_eq!(store.history(5, open.id, 0, None, 10).await.unwrap(), [], "by days");
    } else {
        assert_eq!(pruned.events, 2500, "in several transactions, and nothing of the run that goes on");
        assert_eq!(store.history(5, open.id, 0, None, 10).await.unwrap(), rows(&open, 3));
    }
}

pub(crate) async fn old_runs_go_when_finished(place: &Place) {
    let store = place.open().await;
    let one = schedule("one");
    let old_us = NOON_US - 20 * DAY_US;
    let old = finished(&one, 5, old_us);
    let cancelled = Run { state: RunState::Cancelled, ..finished(&one, 6, old_us + 1) };
    let skipped = Run { state: RunState::Skipped, ..finished(&one, 7, old_us + 2) };
    let open = Run { finished_us: None, ..waiting(&one, 5, old_us + 3) };
    // Whatever its times say, it has not ended.
    let running = Run { state: RunState::Running, ..finished(&one, 5, old_us + 5) };
    let late = Run { finished_us: Some(BEFORE_US), ..finished(&one, 5, old_us + 4) };
    store.emit(&[old, cancelled, skipped, open.clone(), late.clone(), running.clone()], &[]).await.unwrap();
    assert_eq!(store.prune(BEFORE_US, NOON_US).await.unwrap().runs, 3);
    let left = store.list_runs("default", &Default::default(), None, 10).await.unwrap();
    assert_eq!(left, [running, late, open]);
}

pub(crate) async fn old_skips_and_audit_go(place: &Place) {
    let store = place.open().await;
    let one = schedule("one");
    let launches = [NOON_US - 20 * DAY_US, NOON_US];
    store.emit(&[], &launches.map(|launch_us| skipped(&one, launch_us, SkipReason::Missed))).await.unwrap();
    let mut old = audit("namespaces/default/schedules/one");
    old.at_us = NOON_US - 20 * DAY_US;
    let young = audit("namespaces/default/schedules/one");
    let notes = [old, young.clone()].map(|audit| PlanWrite::Note { audit });
    store.write_plan(notes.to_vec()).await.unwrap();
    let pruned = store.prune(BEFORE_US, NOON_US).await.unwrap();
    assert_eq!((pruned.skipped, pruned.audit), (1, 1));
    assert_eq!(store.list_skipped(one.uid, None, 10).await.unwrap().len(), 1);
    assert_eq!(store.audit("default", &Default::default(), None, 10).await.unwrap(), [young]);
}

pub(crate) async fn ended_keys_go(place: &Place) {
    let store = place.open().await;
    let key = |id: &str, expires_us| ApiKey {
        id: id.to_owned(),
        name: id.to_owned(),
        namespace: None,
        scopes: vec!["read".to_owned()],
        hash: [7; 32],
        note: String::new(),
        created_us: NOON_US - 30 * DAY_US,
        expires_us,
        revoked_us: None,
    };
    let old_us = NOON_US - 20 * DAY_US;
    for key in
        [key("expired", Some(old_us)), key("revoked", None), key("young", Some(NOON_US)), key("live", None)]
    {
        store.create_key(&key, 2, audit("keys/x")).await.unwrap();
    }
    store.revoke_key("revoked", old_us, audit("keys/x")).await.unwrap();
    assert_eq!(store.prune(BEFORE_US, NOON_US).await.unwrap().other, 2);
    let left: Vec<String> = store.keys().await.unwrap().into_iter().map(|key| key.id).collect();
    assert_eq!(left, ["live", "young"]);
}

pub(crate) async fn windows_keep_the_frontier(place: &Place) {
    let store = place.open().await;
    let window = |minute: i64| {
        let start_us = NOON_US - 5 * DAY_US + minute * 60 * SECOND_US;
        Window { start_us, end_us: start_us + 60 * SECOND_US }
    };
    for minute in 0..5 {
        store.open_window(window(minute), &[], NOON_US).await.unwrap();
    }
    let task = Task { zone: String::new(), launch_expression: "I.60".to_owned(), slots: vec![0..=0] };
    store.open_window(window(5), &[task], NOON_US).await.unwrap();
    store.open_window(window(6), &[], NOON_US).await.unwrap();
    let before = store.frontier().await.unwrap();
    let pruned = store.prune(BEFORE_US, NOON_US).await.unwrap();
    assert_eq!(pruned.other, 4);
    assert_eq!(store.frontier().await.unwrap(), before, "however long the outage");
    assert_eq!(before.completed_until_us, Some(window(4).end_us));
}

pub(crate) async fn specs_go_when_nothing_needs_them(place: &Place) {
    let store = place.open().await;
    let old_us = NOON_US - 3 * DAY_US;
    let at = |id: &str, updated_us| Schedule { updated_us, ..schedule(id) };
    let (current, used, known, gone, fresh) = (
        at("current", old_us),
        at("used", old_us),
        at("known", old_us),
        at("gone", old_us),
        at("fresh", NOON_US),
    );
    let all = [&current, &used, &known, &gone, &fresh];
    store.write_plan(all.map(|schedule| put(schedule, None, vec![])).to_vec()).await.unwrap();
    store.write_plan([&used, &known, &gone, &fresh].map(delete).to_vec()).await.unwrap();
    let replaced = Schedule { generation: 2, ..current.clone() };
    store.write_plan(vec![put(&replaced, Some(1), vec![])]).await.unwrap();
    let changes = Changes {
        runs_new: vec![waiting(&used, 5, NOON_US)],
        schedules: vec![shard_schedule(&known)],
        ..Changes::default()
    };
    commit(&*store, 5, changes).await;
    let shards = store.installation().await.unwrap().shards;
    let turn_us = |shard| {
        let mut before_noon = (0..).map(|ago| NOON_US - ago * PRUNE_EVERY.as_micros() as i64);
        before_noon.find(|at_us| prunes_specs_of(shard, shards, *at_us)).unwrap()
    };
    assert_eq!(store.prune(BEFORE_US, turn_us(4)).await.unwrap().other, 0, "it is another shard's turn");
    assert_eq!(store.prune(BEFORE_US, turn_us(5)).await.unwrap().other, 2);
    let keys =
        [(current.uid, 1), (current.uid, 2), (used.uid, 1), (known.uid, 1), (gone.uid, 1), (fresh.uid, 1)];
    let mut left: Vec<(String, i64)> = store
        .specs(5, &keys)
        .await
        .unwrap()
        .into_iter()
        .map(|spec| (spec.schedule_id, spec.generation))
        .collect();
    left.sort();
    let expected = [("current", 2), ("fresh", 1), ("known", 1), ("used", 1)];
    assert_eq!(left, expected.map(|(id, generation)| (id.to_owned(), generation)));
}

pub(crate) async fn pruning_goes_on_beyond_a_batch(place: &Place) {
    let store = place.open().await;
    let one = schedule("one");
    let old_us = NOON_US - 20 * DAY_US;
    store.prune(0, old_us).await.unwrap();
    // All end at the same moment: what goes with a run is not told by its end.
    let at = |i| Run { finished_us: Some(old_us), ..finished(&one, 5, old_us - i) };
    let runs: Vec<Run> = (0..2500).map(at).collect();
    store.emit(&runs, &[]).await.unwrap();
    let row = |run: &Run| HistoryRow { finished_us: old_us, ..ended(run.id, 0, Outcome::Succeeded) };
    let history = runs.iter().map(row).collect();
    commit(&*store, 5, Changes { history, ..Changes::default() }).await;
    assert_eq!(store.prune(BEFORE_US, NOON_US).await.unwrap().runs, 2500);
    assert_eq!(place.number("SELECT count(*) FROM runs").await, 0);
    assert_eq!(place.number("SELECT count(*) FROM ended_events").await, 0);
}

pub(crate) async fn days_to_come_have_room(place: &Place) {
    let store = place.open().await;
    let later_us = NOON_US + 300 * DAY_US;
    store.prune(BEFORE_US, later_us).await.unwrap();
    let one = run(&schedule("one"), 5, NOON_US).id;
    let rows: Vec<HistoryRow> = (0..4_u32)
        .map(|day| HistoryRow {
            finished_us: later_us + (i64::from(day) - 1) * DAY_US,
            ..ended(one, day, if day % 2 == 0 { Outcome::Succeeded } else { Outcome::Failed })
        })
        .collect();
    for row in &rows {
        commit(&*store, 5, Changes { history: vec![row.clone()], ..Changes::default() }).await;
    }
    assert_eq!(store.history(5, one, 0, None, 10).await.unwrap(), rows);
    if place.is_postgres() {
        let by_default = "SELECT (SELECT count(*) FROM event_history_default) + (SELECT count(*) FROM ended_batches_default)";
        assert_eq!(place.number(by_default).await, 0);
        // The day of a row that came too early stays in the default partition, and goes row by row.
        let early_us = NOON_US + 400 * DAY_US;
        let early = [Outcome::Lost, Outcome::Succeeded].map(|outcome| HistoryRow {
            finished_us: early_us,
            ..ended(one, if outcome == Outcome::Lost { 9 } else { 8 }, outcome)
        });
        commit(&*store, 5, Changes { history: early.to_vec(), ..Changes::default() }).await;
        store.prune(BEFORE_US, early_us).await.unwrap();
        assert_eq!(place.number(by_default).await, 2);
        let pruned = store.prune(early_us + 5 * DAY_US, early_us + 6 * DAY_US).await.unwrap();
        assert!(pruned.events > 1);
        assert_eq!(place.number("SELECT count(*) FROM ended_events").await, 0);
    }
}
