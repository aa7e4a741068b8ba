//! Windows, scan tasks, scans, the hand-over of runs.

use futures::future::join_all;
use tollgate_core::emit::{Task, Window};
use tollgate_core::model::{Run, RunState, Schedule, SkipReason};
use tollgate_core::plan::Child;
use tollgate_core::trouble::Missed;
use tollgate_store::Store;
use tollgate_store::emit::{Checkpoint, ClaimedTask, Frontier, ScanPage, ScannedChild};
use uuid::Uuid;

use super::place::Place;
use super::samples::{NOON_US, SECOND_US, child, put, run, schedule, skipped};

const MINUTE_US: i64 = 60 * SECOND_US;

fn window(minute: i64) -> Window {
    Window { start_us: NOON_US + minute * MINUTE_US, end_us: NOON_US + (minute + 1) * MINUTE_US }
}

fn task(launch_expression: &str, slots: &[std::ops::RangeInclusive<i32>]) -> Task {
    Task {
        zone: "Europe/Berlin".to_owned(),
        launch_expression: launch_expression.to_owned(),
        slots: slots.to_vec(),
    }
}

async fn claim(store: &dyn Store, lease: Uuid, limit: u32) -> Vec<ClaimedTask> {
    store.claim_tasks(lease, NOON_US + 10, NOON_US, limit).await.unwrap()
}

pub(crate) async fn frontier_starts_empty_and_moves(place: &Place) {
    let store = place.open().await;
    assert_eq!(store.frontier().await.unwrap(), Frontier::default());
    assert_eq!(store.emitted_until_us().await.unwrap(), None);
    store.open_window(window(0), &[task("H.1", &[0..=0])], NOON_US).await.unwrap();
    let frontier = store.frontier().await.unwrap();
    assert_eq!(frontier, Frontier { opened_until_us: Some(window(0).end_us), completed_until_us: None });
    assert_eq!(store.emitted_until_us().await.unwrap(), Some(window(0).start_us));
    let lease = Uuid::new_v4();
    let claimed = claim(&*store, lease, 10).await;
    store.complete_tasks(&claimed, lease, 3, NOON_US).await.unwrap();
    assert_eq!(store.frontier().await.unwrap().completed_until_us, Some(window(0).end_us));
    assert_eq!(store.emitted_until_us().await.unwrap(), Some(window(0).end_us));
}

pub(crate) async fn window_opens_once(place: &Place) {
    let store = place.open().await;
    let tasks = [task("H.1", &[0..=4, 50..=59]), task("H.2", &[0..=0])];
    assert!(store.open_window(window(0), &tasks, NOON_US).await.unwrap());
    assert!(!store.open_window(window(0), &tasks, NOON_US + 1).await.unwrap());
    let lease = Uuid::new_v4();
    let claimed = claim(&*store, lease, 10).await;
    assert_eq!(claimed.iter().map(|claimed| claimed.task.clone()).collect::<Vec<_>>(), tasks);
    assert!(claimed.iter().all(|claimed| claimed.window == window(0) && claimed.checkpoint.is_none()));
    store.complete_tasks(&claimed, lease, 0, NOON_US).await.unwrap();
    assert!(!store.open_window(window(0), &tasks, NOON_US).await.unwrap(), "it is complete");
    assert!(claim(&*store, lease, 10).await.is_empty());
}

pub(crate) async fn window_without_tasks_is_complete(place: &Place) {
    let store = place.open().await;
    assert!(store.open_window(window(0), &[], NOON_US + 7).await.unwrap());
    let rows = store.windows(5).await.unwrap();
    assert_eq!(rows.len(), 1);
    assert_eq!((rows[0].completed_us, rows[0].tasks), (Some(NOON_US + 7), 0));
}

pub(crate) async fn tasks_are_claimed_once(place: &Place) {
    let store = place.open().await;
    let tasks: Vec<Task> = (0..20).map(|hour| task(&format!("H.{hour}"), &[0..=0])).collect();
    store.open_window(window(1), &tasks[..10], NOON_US).await.unwrap();
    store.open_window(window(0), &tasks[10..], NOON_US).await.unwrap();
    let first = claim(&*store, Uuid::new_v4(), 3).await;
    assert_eq!(first.len(), 3);
    assert!(first.iter().all(|claimed| claimed.window == window(0)), "the oldest window comes first");
    let claims = join_all((0..5).map(|_| claim(&*store, Uuid::new_v4(), 5))).await;
    let mut keys: Vec<(i64, String)> = first
        .iter()
        .chain(claims.iter().flatten())
        .map(|claimed| (claimed.window.start_us, claimed.task.launch_expression.clone()))
        .collect();
    keys.extend(
        claim(&*store, Uuid::new_v4(), 20)
            .await
            .iter()
            .map(|claimed| (claimed.window.start_us, claimed.task.launch_expression.clone())),
    );
    assert_eq!(keys.len(), 20, "none is claimed twice");
    keys.sort();
    keys.dedup();
    assert_eq!(keys.len(), 20, "all are claimed");
    assert!(claim(&*store, Uuid::new_v4(), 20).await.is_empty());
}

pub(crate) async fn lease_of_a_task_runs_out(place: &Place) {
    let store = place.open().await;
    store.open_window(window(0), &[task("H.1", &[0..=0])], NOON_US).await.unwrap();
    let (slow, fast) = (Uuid::new_v4(), Uuid::new_v4());
    let claimed = store.claim_tasks(slow, NOON_US + 10, NOON_US, 1).await.unwrap();
    assert!(store.claim_tasks(fast, NOON_US + 20, NOON_US + 9, 1).await.unwrap().is_empty());
    let again = store.claim_tasks(fast, NOON_US + 20, NOON_US + 10, 1).await.unwrap();
    assert_eq!((claimed[0].again, again.len(), again[0].again), (false, 1, true));
    // Who has lost its lease completes nothing.
    store.complete_tasks(&claimed, slow, 5, NOON_US).await.unwrap();
    assert_eq!(store.frontier().await.unwrap().completed_until_us, None);
    store.complete_tasks(&again, fast, 7, NOON_US).await.unwrap();
    assert_eq!(store.windows(1).await.unwrap()[0].runs, 7);
}

pub(crate) async fn tasks_are_given_back(place: &Place) {
    let store = place.open().await;
    let tasks = [task("H.1", &[0..=0]), task("H.2", &[0..=0]), task("H.3", &[0..=0])];
    store.open_window(window(0), &tasks, NOON_US).await.unwrap();
    let (failed, other, next) = (Uuid::new_v4(), Uuid::new_v4(), Uuid::new_v4());
    let given_back = claim(&*store, failed, 1).await;
    claim(&*store, other, 1).await;
    store.release_tasks(failed, NOON_US + 1).await.unwrap();
    store.checkpoint(&given_back[0], failed, (1, Uuid::nil(), 0)).await.unwrap();
    assert_eq!(store.emit_claimed(failed, &given_back, &[], &[]).await.unwrap(), None, "it is nobody's");
    let claimed = store.claim_tasks(next, NOON_US + 20, NOON_US + 1, 3).await.unwrap();
    let seen: Vec<_> =
        claimed.iter().map(|c| (c.task.launch_expression.as_str(), c.again, c.checkpoint)).collect();
    assert_eq!(seen, [("H.1", true, None), ("H.3", false, None)]);
}

pub(crate) async fn checkpoint_is_kept_while_the_lease_is(place: &Place) {
    let store = place.open().await;
    store.open_window(window(0), &[task("H.1", &[0..=9])], NOON_US).await.unwrap();
    let (slow, fast) = (Uuid::new_v4(), Uuid::new_v4());
    let claimed = claim(&*store, slow, 1).await;
    let place_in_order = (3, Uuid::from_u128(5), 2);
    store.checkpoint(&claimed[0], slow, place_in_order).await.unwrap();
    store.checkpoint(&claimed[0], fast, (9, Uuid::nil(), 0)).await.unwrap();
    let again = store.claim_tasks(fast, NOON_US + 20, NOON_US + 10, 1).await.unwrap();
    assert_eq!(again[0].checkpoint, Some(place_in_order));
}

pub(crate) async fn window_is_complete_with_its_last_task(place: &Place) {
    let store = place.open().await;
    let tasks = [task("H.1", &[0..=0]), task("H.2", &[0..=0])];
    store.open_window(window(0), &tasks, NOON_US).await.unwrap();
    let lease = Uuid::new_v4();
    let claimed = claim(&*store, lease, 2).await;
    store.complete_tasks(&claimed[..1], lease, 4, NOON_US + 1).await.unwrap();
    assert_eq!(store.windows(5).await.unwrap()[0].completed_us, None);
    store.complete_tasks(&claimed[1..], lease, 6, NOON_US + 2).await.unwrap();
    let row = store.windows(5).await.unwrap()[0];
    assert_eq!((row.completed_us, row.tasks, row.runs), (Some(NOON_US + 2), 2, 10));
    assert_eq!(place.number("SELECT count(*) FROM scan_tasks").await, 0);
}

pub(crate) async fn concurrent_completion_completes_the_window(place: &Place) {
    let store = place.open().await;
    for minute in 0..10 {
        let tasks: Vec<Task> = (0..4).map(|hour| task(&format!("H.{hour}"), &[0..=0])).collect();
        store.open_window(window(minute), &tasks, NOON_US).await.unwrap();
        let lease = Uuid::new_v4();
        let claimed = claim(&*store, lease, 4).await;
        // Whether they emitted anything or not.
        let runs = u32::from(minute % 2 == 0);
        let done =
            claimed.iter().map(|one| store.complete_tasks(std::slice::from_ref(one), lease, runs, NOON_US));
        for done in join_all(done).await {
            done.unwrap();
        }
        assert_eq!(store.frontier().await.unwrap().completed_until_us, Some(window(minute).end_us));
    }
    let runs: u32 = store.windows(10).await.unwrap().iter().map(|row| row.runs).sum();
    assert_eq!(runs, 20);
}

pub(crate) async fn window_behind_an_open_one_does_not_count(place: &Place) {
    let store = place.open().await;
    for minute in [0, 2, 3] {
        store.open_window(window(minute), &[], NOON_US).await.unwrap();
    }
    store.open_window(window(1), &[task("H.1", &[0..=0])], NOON_US).await.unwrap();
    let frontier = store.frontier().await.unwrap();
    assert_eq!(frontier.completed_until_us, Some(window(0).end_us));
    assert_eq!(frontier.opened_until_us, Some(window(3).end_us));
    let rows = store.windows(2).await.unwrap();
    let starts: Vec<i64> = rows.iter().map(|row| row.window.start_us).collect();
    assert_eq!(starts, [window(1).start_us, window(3).start_us, window(2).start_us]);
}

pub(crate) async fn announced_window_gets_its_tasks_later(place: &Place) {
    let store = place.open().await;
    assert!(store.announce_window(window(0), NOON_US).await.unwrap());
    assert!(!store.announce_window(window(0), NOON_US).await.unwrap(), "it is announced");
    let row = store.windows(5).await.unwrap()[0];
    assert_eq!((row.planned, row.completed_us), (false, None));
    let frontier = store.frontier().await.unwrap();
    assert_eq!(frontier.completed_until_us, None, "without tasks is not without work");
    assert!(store.open_window(window(0), &[task("H.1", &[0..=0])], NOON_US).await.unwrap());
    assert!(
        !store.open_window(window(0), &[task("H.2", &[0..=0])], NOON_US).await.unwrap(),
        "it has its tasks"
    );
    let row = store.windows(5).await.unwrap()[0];
    assert_eq!((row.planned, row.tasks, row.tasks_left), (true, 1, 1));
    let lease = Uuid::new_v4();
    let claimed = claim(&*store, lease, 10).await;
    store.complete_tasks(&claimed, lease, 0, NOON_US).await.unwrap();
    assert_eq!(store.windows(5).await.unwrap()[0].tasks_left, 0);
}

pub(crate) async fn announcement_does_not_go_back(place: &Place) {
    let store = place.open().await;
    assert!(store.announce_window(window(5), NOON_US).await.unwrap());
    let half = Window { start_us: window(5).start_us + 1, ..window(5) };
    assert!(!store.announce_window(half, NOON_US).await.unwrap(), "it overlaps the newest");
    assert!(!store.announce_window(window(4), NOON_US).await.unwrap(), "it lies before the newest");
    assert!(!store.announce_window(window(7), NOON_US).await.unwrap(), "it leaves a gap");
    assert!(store.announce_window(window(6), NOON_US).await.unwrap());
}

/// Emitters whose clocks differ begin on an empty store at once.
pub(crate) async fn first_windows_leave_no_gap(place: &Place) {
    let store = place.open().await;
    let announced = join_all((0..12).map(|n| {
        let store = store.clone();
        async move { store.announce_window(window(n * 3), NOON_US).await.unwrap() }
    }));
    assert_eq!(announced.await.iter().filter(|new| **new).count(), 1);
    assert_eq!(store.windows(5).await.unwrap().len(), 1);
}

/// Sixty schedules; number i fires at minute i of hours 1 and 2, twice.
async fn sixty(store: &dyn Store) -> Vec<Uuid> {
    let schedules: Vec<_> = (0..60).map(|i| schedule(&format!("s-{i:02}"))).collect();
    let writes = schedules.iter().zip(0..).map(|(schedule, minute)| {
        put(schedule, None, vec![child("H.1", minute), child("H.2", minute), child("H.1", minute)])
    });
    store.write_plan(writes.collect()).await.unwrap();
    schedules.iter().map(|schedule| schedule.uid).collect()
}

/// A page of a scan of one task.
async fn page(store: &dyn Store, task: &Task, checkpoint: Option<Checkpoint>, limit: u32) -> ScanPage {
    let mut pages = store.scan(&[(task, checkpoint)], limit).await.unwrap();
    assert_eq!(pages.len(), 1);
    pages.remove(0)
}

/// All that one page of a scan reads.
async fn scan(store: &dyn Store, task: &Task) -> Vec<ScannedChild> {
    let page = page(store, task, None, 1000).await;
    assert_eq!((page.next, page.corrupt), (None, 0));
    page.children
}

fn slots(children: &[ScannedChild]) -> Vec<i32> {
    children.iter().map(|scanned| scanned.child.slot).collect()
}

pub(crate) async fn scan_reads_exactly_the_slots(place: &Place) {
    let store = place.open().await;
    sixty(&*store).await;
    let found = scan(&*store, &task("H.1", &[58..=59, 3..=4, 5..=5])).await;
    assert_eq!(slots(&found), [3, 3, 4, 4, 5, 5, 58, 58, 59, 59]);
    assert!(found.iter().all(|scanned| scanned.child == child("H.1", scanned.child.slot)));
    assert!(scan(&*store, &task("H.3", &[0..=59])).await.is_empty());
    let elsewhere = Task { zone: "UTC".to_owned(), ..task("H.1", &[0..=59]) };
    assert!(scan(&*store, &elsewhere).await.is_empty());
    let all = scan(&*store, &task("H.1", &[i32::MIN..=i32::MAX])).await;
    assert_eq!(all.len(), 120);
}

pub(crate) async fn scan_goes_on_after_a_checkpoint(place: &Place) {
    let store = place.open().await;
    sixty(&*store).await;
    let task = task("H.1", &[0..=9, 20..=29]);
    let whole = scan(&*store, &task).await;
    assert_eq!(whole.len(), 40);
    let key = |scanned: &ScannedChild| (scanned.child.slot, scanned.schedule.uid, scanned.ordinal);
    let mut checkpoint = None;
    let mut pieces = Vec::new();
    loop {
        let page = page(&*store, &task, checkpoint, 7).await;
        pieces.extend(page.children.iter().map(key));
        checkpoint = page.next;
        if checkpoint.is_none() || pieces.len() > whole.len() {
            break;
        }
    }
    assert_eq!(pieces, whole.iter().map(key).collect::<Vec<_>>());
    assert!(pieces.is_sorted());
}

pub(crate) async fn scan_reads_several_tasks(place: &Place) {
    let store = place.open().await;
    sixty(&*store).await;
    let tasks = [
        task("H.2", &[7..=9]),
        task("H.3", &[0..=59]),
        task("H.1", &[0..=0, 5..=9, 50..=59]),
        task("H.1", &[30..=30]),
        task("H.1", &[0..=1]),
    ];
    let half_way = page(&*store, &tasks[4], None, 3).await.next;
    assert_eq!(half_way.map(|(slot, ..)| slot), Some(1));
    let from: Vec<_> = tasks.iter().zip([None, None, None, None, half_way]).collect();
    for limit in [1, 3, 4, 7, 100] {
        let pages = store.scan(&from, limit).await.unwrap();
        assert_eq!(pages.len(), tasks.len());
        for (&(task, checkpoint), got) in from.iter().zip(pages) {
            let alone = page(&*store, task, checkpoint, limit).await;
            let key = |scanned: &ScannedChild| (scanned.child.clone(), scanned.schedule.uid, scanned.ordinal);
            let keys = |page: &ScanPage| page.children.iter().map(key).collect::<Vec<_>>();
            assert_eq!((keys(&got), got.next), (keys(&alone), alone.next), "{limit} of {task:?}");
            assert!(got.children.len() <= limit as usize);
        }
    }
    let all = store.scan(&from, 100).await.unwrap();
    let count = all.iter().map(|page| page.children.len()).collect::<Vec<_>>();
    assert_eq!(count, [3, 0, 32, 2, 1]);
    assert!(all.iter().all(|page| page.next.is_none()));
    assert!(store.scan(&[], 5).await.unwrap().is_empty());
}

pub(crate) async fn scan_brings_the_schedule(place: &Place) {
    let store = place.open().await;
    let one = schedule("one");
    store.write_plan(vec![put(&one, None, vec![child("H.1", 3)])]).await.unwrap();
    let found = scan(&*store, &task("H.1", &[3..=3])).await;
    assert_eq!((found.len(), found[0].shard, found[0].ordinal), (1, 5, 0));
    assert_eq!(found[0].schedule.timing, one.timing);
    assert_eq!(
        (found[0].schedule.uid, found[0].schedule.events, found[0].schedule.generation),
        (one.uid, 1000, 1)
    );
}

pub(crate) async fn scan_leaves_a_corrupt_schedule_out(place: &Place) {
    let store = place.open().await;
    store
        .write_plan(vec![
            put(&schedule("bad"), None, vec![child("H.1", 3)]),
            put(&schedule("good"), None, vec![child("H.1", 3)]),
        ])
        .await
        .unwrap();
    place.sql("UPDATE schedules SET spec = 'x' WHERE id = 'bad'").await;
    let mut found = Vec::new();
    let (mut checkpoint, mut corrupt, mut pages) = (None, 0, 0);
    loop {
        let page = page(&*store, &task("H.1", &[3..=3]), checkpoint, 1).await;
        found.extend(page.children.into_iter().map(|scanned| scanned.schedule.id));
        (corrupt, pages) = (corrupt + page.corrupt, pages + 1);
        checkpoint = page.next;
        if checkpoint.is_none() || pages > 3 {
            break;
        }
    }
    assert_eq!(
        (found, corrupt, pages),
        (vec!["good".to_owned()], 1, 3),
        "a page of corrupt rows is not the end"
    );
}

pub(crate) async fn registry_lists_eligible_intervals_and_shots(place: &Place) {
    let store = place.open().await;
    let bare = |launch_expression: &str| Child { zone: String::new(), ..child(launch_expression, 0) };
    let children = vec![child("H.1", 0), child("H.2", 0), child("M.1.1", 0), bare("I.300"), bare("A.494444")];
    store.write_plan(vec![put(&schedule("one"), None, children)]).await.unwrap();
    let found = store.registry(&["H.2".to_owned(), "W.1.1".to_owned()]).await.unwrap();
    let expected = [("", "A.494444"), ("", "I.300"), ("Europe/Berlin", "H.2")];
    assert_eq!(found, expected.map(|(zone, expression)| (zone.to_owned(), expression.to_owned())));
    assert_eq!(store.zones().await.unwrap(), ["", "Europe/Berlin"]);
}

pub(crate) async fn emit_is_idempotent(place: &Place) {
    let store = place.open().await;
    let one = schedule("one");
    let runs: Vec<Run> = (0..100).map(|i| run(&one, (i % 3) as u16, NOON_US + i)).collect();
    assert_eq!(store.emit(&runs[..60], &[]).await.unwrap(), 60);
    let changed: Vec<Run> =
        runs.iter().map(|run| Run { events: 5, state: RunState::Waiting, ..run.clone() }).collect();
    assert_eq!(store.emit(&changed, &[]).await.unwrap(), 40);
    let first = store.runs(0, &[runs[0].id]).await.unwrap();
    assert_eq!(first, runs[..1], "what was there stays as it was");
    assert_eq!(place.number("SELECT count(*) FROM runs").await, 100);
    assert_eq!(store.emit(&[], &[]).await.unwrap(), 0);
}

pub(crate) async fn launches_with_runs_are_found(place: &Place) {
    let store = place.open().await;
    let (one, other) = (schedule("one"), schedule("other"));
    let runs = [
        run(&one, 1, NOON_US),
        run(&one, 2, NOON_US + 5),
        run(&one, 1, NOON_US + 9),
        run(&other, 1, NOON_US + 6),
    ];
    store.emit(&runs, &[]).await.unwrap();
    let found = store.launches_with_runs(one.uid, NOON_US, NOON_US + 9).await.unwrap();
    assert_eq!(found, [NOON_US, NOON_US + 5]);
}

pub(crate) async fn missed_triggers_are_counted_by_schedule(place: &Place) {
    let store = place.open().await;
    let (one, other, paused) = (schedule("one"), schedule("other"), schedule("paused"));
    let all = [&one, &other, &paused].map(|schedule| put(schedule, None, Vec::new()));
    store.write_plan(all.to_vec()).await.unwrap();
    let mut skips: Vec<_> = (0..3).map(|i| skipped(&one, NOON_US + i, SkipReason::Missed)).collect();
    skips.extend((0..4).map(|i| skipped(&other, NOON_US + i, SkipReason::Missed)));
    skips.extend((0..9).map(|i| skipped(&paused, NOON_US + i, SkipReason::Paused)));
    skips.push(skipped(&schedule("deleted"), NOON_US, SkipReason::Missed));
    store.emit(&[], &skips).await.unwrap();
    let found = async |since_us, limit| store.missed_triggers(since_us, limit).await.unwrap();
    let missed = |schedule: &Schedule, triggers, first_launch_us| Missed {
        namespace: "default".to_owned(),
        schedule: schedule.id.clone(),
        policy: String::new(),
        triggers,
        first_launch_us,
    };
    assert_eq!(found(NOON_US, 9).await, [missed(&other, 4, NOON_US), missed(&one, 3, NOON_US)]);
    assert_eq!(found(NOON_US, 1).await, [missed(&other, 1, NOON_US + 3)], "the latest");
    // A trigger of the samples is recorded a microsecond after its launch time.
    assert_eq!(found(NOON_US + 4, 9).await, [missed(&other, 1, NOON_US + 3)]);
}

pub(crate) async fn skips_are_recorded_once_and_forgotten(place: &Place) {
    let store = place.open().await;
    let one = schedule("one");
    let missed = skipped(&one, NOON_US, SkipReason::Missed);
    store.emit(&[], std::slice::from_ref(&missed)).await.unwrap();
    let later: Vec<_> = (0..4).map(|i| skipped(&one, NOON_US + i, SkipReason::Paused)).collect();
    store.emit(&[], &later).await.unwrap();
    let recorded = store.list_skipped(one.uid, None, 10).await.unwrap();
    assert_eq!(recorded.len(), 4);
    assert_eq!(recorded[3], missed, "what was recorded stays");
    store.forget_skipped(one.uid, SkipReason::Paused, NOON_US + 1, NOON_US + 3).await.unwrap();
    let left: Vec<i64> =
        store.list_skipped(one.uid, None, 10).await.unwrap().iter().map(|row| row.launch_us).collect();
    assert_eq!(left, [NOON_US + 1, NOON_US]);
    store.forget_skipped(one.uid, SkipReason::Paused, NOON_US - 9, NOON_US).await.unwrap();
    assert_eq!(store.list_skipped(one.uid, None, 10).await.unwrap().len(), 2, "another reason stays");
}
