//! Reads of what has ended.

use tollgate_core::handle::change::{Changes, HistoryRow, Outcome, TokenRow};
use tollgate_core::model::{Counts, Run, RunId, RunState, Schedule, SkipReason};
use tollgate_core::trouble::drift::Took;
use tollgate_store::Store;
use tollgate_store::history::{RunFilter, RunIds};
use uuid::Uuid;

use super::place::Place;
use super::samples::{NOON_US, commit, ended, run, schedule, skipped, token, waiting};

fn range(run: RunId, index: u32, count: u32) -> HistoryRow {
    HistoryRow {
        count,
        attempt: 0,
        acquired_us: None,
        delivered_us: None,
        ..ended(run, index, Outcome::Expired)
    }
}

/// Events 0 to 9: single ones, one range, and a gap at 7.
async fn some(store: &dyn Store) -> (RunId, Vec<HistoryRow>) {
    let one = run(&schedule("one"), 5, NOON_US).id;
    let rows = vec![
        ended(one, 0, Outcome::Succeeded),
        ended(one, 1, Outcome::Dead),
        range(one, 2, 5),
        ended(one, 8, Outcome::Lost),
        ended(one, 9, Outcome::Dead),
    ];
    commit(store, 5, Changes { history: rows.iter().rev().cloned().collect(), ..Changes::default() }).await;
    (one, rows)
}

pub(crate) async fn history_round_trips_in_order(place: &Place) {
    let store = place.open().await;
    let (one, rows) = some(&*store).await;
    assert_eq!(store.history(5, one, 0, None, 10).await.unwrap(), rows);
    assert_eq!(store.history(5, one, 0, None, 2).await.unwrap(), rows[..2]);
    assert!(store.history(6, one, 0, None, 10).await.unwrap().is_empty());
    let other = run(&schedule("two"), 5, NOON_US).id;
    assert!(store.history(5, other, 0, None, 10).await.unwrap().is_empty());
}

pub(crate) async fn history_starts_with_the_covering_range(place: &Place) {
    let store = place.open().await;
    let (one, rows) = some(&*store).await;
    assert_eq!(store.history(5, one, 2, None, 10).await.unwrap(), rows[2..]);
    assert_eq!(store.history(5, one, 6, None, 10).await.unwrap(), rows[2..], "4 is in the range of 2 to 6");
    assert_eq!(store.history(5, one, 7, None, 10).await.unwrap(), rows[3..]);
    assert_eq!(store.history(5, one, 9, None, 10).await.unwrap(), rows[4..]);
    assert!(store.history(5, one, 10, None, 10).await.unwrap().is_empty());
}

pub(crate) async fn history_filters_by_outcome(place: &Place) {
    let store = place.open().await;
    let (one, rows) = some(&*store).await;
    let dead = store.history(5, one, 0, Some(Outcome::Dead), 10).await.unwrap();
    assert_eq!(dead, [rows[1].clone(), rows[4].clone()]);
    assert_eq!(store.history(5, one, 4, Some(Outcome::Expired), 10).await.unwrap(), rows[2..3]);
    assert_eq!(store.history(5, one, 4, Some(Outcome::Dead), 10).await.unwrap(), rows[4..]);
}

pub(crate) async fn dead_events_are_found_and_leave(place: &Place) {
    let store = place.open().await;
    let (one, rows) = some(&*store).await;
    assert_eq!(store.dead_events(5, one, &[], 10).await.unwrap(), [rows[1].clone(), rows[4].clone()]);
    assert_eq!(store.dead_events(5, one, &[], 1).await.unwrap(), rows[1..2]);
    assert_eq!(store.dead_events(5, one, &[9, 0, 55], 10).await.unwrap(), rows[4..]);
    let gone = Changes { history_gone: vec![(one, 9), (one, 0)], ..Changes::default() };
    commit(&*store, 5, gone).await;
    assert_eq!(store.dead_events(5, one, &[], 10).await.unwrap(), rows[1..2]);
    assert_eq!(store.history(5, one, 0, None, 10).await.unwrap(), rows[..4], "only dead events leave");
    // It may die again.
    let again = HistoryRow { finished_us: NOON_US + 99, ..rows[4].clone() };
    let changes =
        Changes { history_gone: vec![(one, 9)], history: vec![again.clone()], ..Changes::default() };
    commit(&*store, 5, changes).await;
    assert_eq!(store.dead_events(5, one, &[9], 10).await.unwrap(), [again]);
}

pub(crate) async fn history_insert_is_idempotent(place: &Place) {
    let store = place.open().await;
    let (one, rows) = some(&*store).await;
    commit(&*store, 5, Changes { history: rows.clone(), ..Changes::default() }).await;
    assert_eq!(store.history(5, one, 0, None, 10).await.unwrap(), rows);
}

pub(crate) async fn tokens_are_paged(place: &Place) {
    let store = place.open().await;
    let one = waiting(&schedule("one"), 5, NOON_US);
    let tokens: Vec<TokenRow> = (0..10).map(|index| token(one.id, index)).collect();
    commit(
        &*store,
        5,
        Changes { runs_new: vec![one.clone()], tokens_put: tokens.clone(), ..Changes::default() },
    )
    .await;
    assert_eq!(store.tokens(5, one.id, 0, 4).await.unwrap(), tokens[..4]);
    assert_eq!(store.tokens(5, one.id, 8, 4).await.unwrap(), tokens[8..]);
    assert!(store.tokens(6, one.id, 0, 4).await.unwrap().is_empty());
}

async fn listed(store: &dyn Store, filter: RunFilter) -> Vec<i64> {
    let found = store.list_runs("default", &filter, None, 100).await.unwrap();
    found.iter().map(|run| run.launch_us - NOON_US).collect()
}

/// What a filter selects, page by page.
async fn pages(store: &dyn Store, filter: RunFilter) -> Vec<(i64, RunId)> {
    let mut seen: Vec<(i64, RunId)> = Vec::new();
    loop {
        let page = store.list_runs("default", &filter, seen.last().copied(), 3).await.unwrap();
        if page.is_empty() {
            return seen;
        }
        seen.extend(page.iter().map(|run| (run.launch_us, run.id)));
    }
}

pub(crate) async fn runs_are_listed_from_either_end(place: &Place) {
    let store = place.open().await;
    let schedules: Vec<_> = (0..4).map(|i| schedule(&format!("s-{i}"))).collect();
    // Several at each moment, in different shards.
    let mut runs: Vec<Run> =
        (0..20_u16).map(|i| run(&schedules[usize::from(i % 4)], i % 7, NOON_US + i64::from(i / 4))).collect();
    for waiting in &mut runs[8..16] {
        waiting.state = RunState::Waiting;
    }
    store.emit(&runs, &[]).await.unwrap();
    let (of_one, open) = (Some(schedules[1].uid), vec![RunState::Waiting]);
    let ids = Some(RunIds { shard: None, from: RunId(Uuid::nil()), to: RunId(Uuid::max()) });
    let all = RunFilter::default();
    let filters = [
        all.clone(),
        RunFilter { schedule_uid: of_one, ..all.clone() },
        RunFilter { states: open, ..all.clone() },
        RunFilter { ids, ..all },
    ];
    for filter in filters {
        let fits = |run: &&Run| {
            filter.schedule_uid.is_none_or(|uid| run.schedule_uid == uid)
                && (filter.states.is_empty() || filter.states.contains(&run.state))
        };
        let mut expected: Vec<_> = runs.iter().filter(fits).map(|run| (run.launch_us, run.id)).collect();
        assert!(expected.len() > 3, "more than a page");
        expected.sort();
        assert_eq!(pages(&*store, RunFilter { rising: true, ..filter.clone() }).await, expected);
        expected.reverse();
        assert_eq!(pages(&*store, filter).await, expected);
    }
    assert!(store.list_runs("other", &RunFilter::default(), None, 10).await.unwrap().is_empty());
}

pub(crate) async fn runs_are_filtered(place: &Place) {
    let store = place.open().await;
    let (one, other) = (schedule("one"), schedule("other"));
    let mut runs: Vec<Run> = (0..5).map(|i| run(&one, 5, NOON_US + i)).collect();
    runs[1].state = RunState::Waiting;
    runs[2].state = RunState::Finished;
    runs.push(run(&other, 6, NOON_US + 9));
    store.emit(&runs, &[]).await.unwrap();
    let all = RunFilter::default();
    let of_one = RunFilter { schedule_uid: Some(one.uid), ..all.clone() };
    assert_eq!(listed(&*store, of_one.clone()).await, [4, 3, 2, 1, 0]);
    let span = RunFilter { from_us: Some(NOON_US + 1), to_us: Some(NOON_US + 3), ..all.clone() };
    assert_eq!(listed(&*store, span.clone()).await, [2, 1]);
    let states = vec![RunState::Waiting, RunState::Emitted];
    assert_eq!(listed(&*store, RunFilter { states: states.clone(), ..all }).await, [9, 4, 3, 1, 0]);
    assert_eq!(listed(&*store, RunFilter { states, schedule_uid: Some(one.uid), ..span }).await, [1]);
    assert!(
        store.list_runs("other", &of_one, None, 10).await.unwrap().is_empty(),
        "another namespace's schedule"
    );
}

pub(crate) async fn runs_are_found_by_the_beginning_of_their_ids(place: &Place) {
    let store = place.open().await;
    let one = schedule("one");
    let runs: Vec<Run> = (0..40_u16).map(|i| run(&one, i % 7, NOON_US + i64::from(i))).collect();
    store.emit(&runs, &[]).await.unwrap();
    for wanted in [&runs[0], &runs[17], &runs[39]] {
        let id = wanted.id.0.simple().to_string();
        let end =
            |fill: char| RunId(Uuid::parse_str(&format!("{id:.5}{}", fill.to_string().repeat(27))).unwrap());
        let ids = RunIds { shard: None, from: end('0'), to: end('f') };
        let with = |ids: RunIds| RunFilter { ids: Some(ids), ..RunFilter::default() };
        let mut alike: Vec<i64> = runs
            .iter()
            .filter(|run| run.id.0.simple().to_string()[..5] == id[..5])
            .map(|run| run.launch_us - NOON_US)
            .collect();
        alike.reverse();
        assert!(alike.contains(&(wanted.launch_us - NOON_US)));
        assert_eq!(listed(&*store, with(ids)).await, alike);
        let own = RunIds { shard: Some(wanted.shard), ..ids };
        assert!(listed(&*store, with(own)).await.contains(&(wanted.launch_us - NOON_US)));
        let other = RunIds { shard: Some(wanted.shard + 1), ..ids };
        assert!(!listed(&*store, with(other)).await.contains(&(wanted.launch_us - NOON_US)));
        let states = vec![RunState::Waiting];
        assert!(listed(&*store, RunFilter { states, ..with(ids) }).await.is_empty());
        assert!(
            store.list_runs("other", &with(ids), None, 10).await.unwrap().is_empty(),
            "another namespace's"
        );
    }
}

pub(crate) async fn runs_of_a_policy_are_found(place: &Place) {
    let store = place.open().await;
    let (one, policy) = (schedule("one"), Uuid::from_u128(7));
    let of_policy = |i: i64| Run { policy_uid: Some(policy), ..run(&one, 5, NOON_US + i) };
    let mut runs: Vec<Run> = (0..6).map(of_policy).collect();
    runs[0].state = RunState::Running;
    runs[1].state = RunState::Waiting;
    for (ended, at_us) in [(2, 20), (3, 10)] {
        runs[ended].state = RunState::Finished;
        runs[ended].finished_us = Some(NOON_US + at_us);
    }
    runs[4].state = RunState::Running;
    runs[5].policy_uid = None;
    runs[5].state = RunState::Running;
    store.emit(&runs, &[]).await.unwrap();
    let launches = |runs: Vec<Run>| runs.into_iter().map(|run| run.launch_us - NOON_US).collect::<Vec<_>>();
    let open = async |shard, before_us, limit| {
        launches(store.policy_runs_open(shard, policy, before_us, limit).await.unwrap())
    };
    assert_eq!(open(5, i64::MAX, 9).await, [0, 1, 4]);
    assert_eq!(open(5, NOON_US + 4, 9).await, [0, 1]);
    assert_eq!(open(5, i64::MAX, 1).await, [0]);
    assert!(open(6, i64::MAX, 9).await.is_empty());
    let ended = async |since_us| launches(store.policy_runs_ended(5, policy, since_us, 9).await.unwrap());
    assert_eq!(ended(NOON_US).await, [2, 3]);
    assert_eq!(ended(NOON_US + 11).await, [2]);
    let states = vec![RunState::Running];
    let filter = RunFilter { policy_uid: Some(policy), ..RunFilter::default() };
    assert_eq!(listed(&*store, filter.clone()).await, [4, 3, 2, 1, 0]);
    assert_eq!(listed(&*store, RunFilter { states: states.clone(), ..filter.clone() }).await, [4, 0]);
    let all_open = RunFilter { states, ..RunFilter::default() };
    assert_eq!(listed(&*store, all_open.clone()).await, [5, 4, 0]);
    let of_other = RunFilter { schedule_uid: Some(schedule("other").uid), ..all_open };
    assert!(listed(&*store, of_other).await.is_empty());
    let of_one = RunFilter { schedule_uid: Some(one.uid), ..filter };
    assert_eq!(listed(&*store, of_one).await, [4, 3, 2, 1, 0]);
}

pub(crate) async fn runs_that_ended_badly_are_found(place: &Place) {
    let store = place.open().await;
    let one = schedule("one");
    let ended = |i: i64, counts: Counts| {
        let (state, finished_us) = (RunState::Finished, Some(NOON_US + 10 * i));
        Run { state, finished_us, counts, ..run(&one, 5, NOON_US + i) }
    };
    let runs = [
        ended(0, Counts { dead: 1, ..Counts::default() }),
        ended(1, Counts { succeeded: 1, ..Counts::default() }),
        ended(2, Counts { expired: 1, ..Counts::default() }),
        ended(3, Counts { cancelled: 1, ..Counts::default() }),
        ended(4, Counts { failed: 1, ..Counts::default() }),
        ended(5, Counts { lost: 1, ..Counts::default() }),
        Run {
            finished_us: None,
            state: RunState::Running,
            ..ended(6, Counts { dead: 1, ..Counts::default() })
        },
        Run { shard: 6, ..ended(7, Counts { dead: 1, ..Counts::default() }) },
    ];
    store.emit(&runs, &[]).await.unwrap();
    let found = async |since_us, limit| {
        let found = store.runs_not_well(5, since_us, limit).await.unwrap();
        found.into_iter().map(|run| run.launch_us - NOON_US).collect::<Vec<_>>()
    };
    assert_eq!(found(NOON_US, 9).await, [5, 4, 2, 0]);
    assert_eq!(found(NOON_US + 1, 9).await, [5, 4, 2]);
    assert_eq!(found(NOON_US + 40, 9).await, [5, 4]);
    assert_eq!(found(NOON_US, 1).await, [5]);
    assert_eq!(found(NOON_US + 51, 9).await, [0; 0]);
}

pub(crate) async fn runs_that_ended_come_latest_end_first(place: &Place) {
    let store = place.open().await;
    let (one, two) = (schedule("one"), schedule("two"));
    let ended = |of: &Schedule, i: i64, end: i64| {
        let (state, finished_us) = (RunState::Finished, Some(NOON_US + end));
        Run { state, finished_us, ..run(of, 5, NOON_US + i) }
    };
    let runs = [
        ended(&one, 0, 30),
        ended(&two, 1, 50),
        Run { counts: Counts { dead: 1, ..Counts::default() }, ..ended(&one, 2, 20) },
        Run { state: RunState::Cancelled, ..ended(&two, 3, 40) },
        Run { state: RunState::Running, finished_us: None, ..ended(&one, 4, 0) },
        Run { shard: 6, ..ended(&one, 5, 60) },
    ];
    store.emit(&runs, &[]).await.unwrap();
    let found = async |since_us, limit| {
        let found = store.runs_ended(5, since_us, limit).await.unwrap();
        found.into_iter().map(|run| run.launch_us - NOON_US).collect::<Vec<_>>()
    };
    assert_eq!(found(NOON_US, 9).await, [1, 3, 0, 2]);
    assert_eq!(found(NOON_US + 30, 9).await, [1, 3, 0]);
    assert_eq!(found(NOON_US, 2).await, [1, 3]);
    assert_eq!(found(NOON_US + 51, 9).await, [0; 0]);
}

/// How long its latest runs took is read so: as many as are asked for, whatever else is there.
pub(crate) async fn the_latest_runs_of_a_schedule_are_found(place: &Place) {
    let store = place.open().await;
    let (one, two) = (schedule("one"), schedule("two"));
    let mut runs: Vec<Run> = (0..40_i64)
        .flat_map(|i| [run(&one, 5, NOON_US + i), run(&two, 5, NOON_US + i)])
        .map(|run| Run { started_us: Some(run.launch_us + 3), finished_us: Some(run.launch_us + 9), ..run })
        .map(|run| Run { state: RunState::Finished, ..run })
        .collect();
    // Where it lived before; one that waits, and one that failed.
    runs.extend((40..45_i64).map(|i| run(&one, 6, NOON_US + i)));
    runs.push(Run { state: RunState::Waiting, ..run(&one, 5, NOON_US + 50) });
    let counts = Counts { failed: 1, ..Counts::default() };
    runs.push(Run { state: RunState::Finished, counts, ..run(&one, 5, NOON_US + 51) });
    store.emit(&runs, &[]).await.unwrap();
    let found = async |until, limit| {
        let found = store.schedule_runs(5, one.uid, NOON_US + until, limit).await.unwrap();
        assert!(found.iter().all(|run| run.schedule_uid == one.uid && run.shard == 5));
        found.into_iter().map(|run| run.launch_us - NOON_US).collect::<Vec<_>>()
    };
    assert_eq!(found(99, 4).await, [51, 50, 39, 38]);
    assert_eq!(found(50, 2).await, [50, 39]);
    assert_eq!(found(39, 3).await, [39, 38, 37]);
    assert_eq!(found(2, 9).await, [2, 1, 0]);
    assert_eq!(found(-1, 9).await, [0; 0]);
    let took: Vec<Took> = store
        .schedule_runs(5, one.uid, NOON_US + 99, 62)
        .await
        .unwrap()
        .iter()
        .filter_map(Took::of)
        .collect();
    assert_eq!(took.len(), 40, "of those that have ended well");
    let events = runs[0].events;
    let (started_us, finished_us) = (NOON_US + 42, NOON_US + 48);
    assert_eq!(took[0], Took { events, started_us, finished_us });
    assert!(store.schedule_runs(7, one.uid, NOON_US + 99, 9).await.unwrap().is_empty());
    // What is only compared is named by those who need it.
    place.sql(&format!("UPDATE runs SET priority = 99 WHERE launch_us = {}", NOON_US + 38)).await;
    assert_eq!(found(39, 3).await, [39, 37]);
    let ended = store.runs_ended(5, NOON_US, 100).await.unwrap();
    assert!(ended.len() == 78 && store.corrupt_rows().is_empty(), "{}", ended.len());
}

pub(crate) async fn skipped_are_paged(place: &Place) {
    let store = place.open().await;
    let one = schedule("one");
    let rows: Vec<_> = (0..5).rev().map(|i| skipped(&one, NOON_US + i, SkipReason::Overlap)).collect();
    commit(&*store, 5, Changes { skipped: rows.clone(), ..Changes::default() }).await;
    assert_eq!(store.list_skipped(one.uid, None, 2).await.unwrap(), rows[..2]);
    assert_eq!(store.list_skipped(one.uid, Some(rows[1].launch_us), 9).await.unwrap(), rows[2..]);
    assert!(store.list_skipped(schedule("x").uid, None, 9).await.unwrap().is_empty());
}
