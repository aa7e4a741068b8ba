//! What an owner commits, and what its successor loads.

use std::collections::BTreeSet;

use tollgate_core::handle::change::{Changes, ShardPause, ShardSchedule, TokenRow, TokenState};
use tollgate_core::model::{Counts, Policy, Run, RunId, RunSpec, RunState, Schedule};
use tollgate_store::handle::{Lease, LoadedShard, UntakenRuns};
use tollgate_store::{Store, StoreError};
use uuid::Uuid;

use super::place::Place;
use super::samples::{
    NOON_US, commit, message, pause, policy, put, run, schedule, shard_schedule, take, token, waiting,
};

async fn load(store: &dyn Store) -> LoadedShard {
    store.load_shard(5).await.unwrap()
}

/// Another commit of the same owner.
async fn again(store: &dyn Store, lease: &Lease, changes: Changes) {
    store.commit(lease, &changes).await.unwrap();
}

fn changes() -> Changes {
    Changes::default()
}

pub(crate) async fn runs_round_trip(place: &Place) {
    let store = place.open().await;
    let one = Schedule { policy_uid: Some(Uuid::new_v4()), ..schedule("one") };
    let full = Run {
        state: RunState::Running,
        reason: "why\u{0}not".to_owned(),
        next_index: 900,
        counts: Counts { succeeded: 1, failed: 2, dead: 3, expired: 4, cancelled: 5, lost: 6 },
        cursor_in: Some("in".to_owned()),
        cursor_out: Some(String::new()),
        started_us: Some(NOON_US + 1),
        finished_us: Some(NOON_US + 2),
        ..run(&one, 5, NOON_US)
    };
    let plain = waiting(&one, 5, NOON_US + 1);
    commit(&*store, 5, Changes { runs_new: vec![full.clone(), plain.clone()], ..changes() }).await;
    let stored = Run { reason: "why\u{fffd}not".to_owned(), ..full };
    let mut loaded = load(&*store).await.runs;
    loaded.sort_by_key(|run| run.launch_us);
    assert_eq!(loaded, [stored.clone(), plain.clone()], "only a NUL is replaced");
    assert_eq!(store.runs(5, &[plain.id, RunId(Uuid::nil())]).await.unwrap(), [plain]);
}

pub(crate) async fn run_changes_round_trip(place: &Place) {
    let store = place.open().await;
    let one = schedule("one");
    let before = run(&one, 5, NOON_US);
    store.emit(std::slice::from_ref(&before), &[]).await.unwrap();
    let after = Run {
        generation: 2,
        policy_uid: Some(Uuid::new_v4()),
        events: 7,
        priority: 9,
        state: RunState::Cancelled,
        reason: "by ada".to_owned(),
        next_index: 7,
        counts: Counts { cancelled: 7, ..Counts::default() },
        cursor_in: Some("a".to_owned()),
        cursor_out: Some("b".to_owned()),
        started_us: Some(NOON_US),
        finished_us: Some(NOON_US + 1),
        ..before
    };
    let early = Run { next_index: 3, ..after.clone() };
    commit(&*store, 5, Changes { runs_changed: vec![early, after.clone()], ..changes() }).await;
    assert_eq!(store.runs(5, &[after.id]).await.unwrap(), [after], "the last change counts");
    assert!(load(&*store).await.runs.is_empty(), "it has ended");
}

pub(crate) async fn existing_run_stays(place: &Place) {
    let store = place.open().await;
    let one = waiting(&schedule("one"), 5, NOON_US);
    let lease = commit(&*store, 5, Changes { runs_new: vec![one.clone()], ..changes() }).await;
    let other = Run { events: 3, ..one.clone() };
    again(&*store, &lease, Changes { runs_new: vec![other], ..changes() }).await;
    assert_eq!(load(&*store).await.runs, [one]);
}

pub(crate) async fn a_run_may_be_new_and_change_in_one_commit(place: &Place) {
    let store = place.open().await;
    let [one, other] = [0, 1_000].map(|after_us| waiting(&schedule("one"), 5, NOON_US + after_us));
    let changed = |run: &Run| Run { state: RunState::Running, reason: "by now".to_owned(), ..run.clone() };
    let both = |run: &Run| Changes {
        runs_new: vec![run.clone()],
        runs_changed: vec![changed(run)],
        inbox_new: vec![message()],
        ..changes()
    };
    let lease = commit(&*store, 5, both(&one)).await;
    assert_eq!(load(&*store).await.runs, [changed(&one)]);
    // Also where it is there already, and another one is not.
    let again_one = both(&Run { events: 3, ..one.clone() });
    let all = Changes {
        runs_new: [again_one.runs_new.clone(), vec![other.clone()]].concat(),
        runs_changed: [again_one.runs_changed.clone(), vec![changed(&other)]].concat(),
        ..again_one
    };
    again(&*store, &lease, all).await;
    assert_eq!(load(&*store).await.runs, [Run { events: 3, ..changed(&one) }, changed(&other)]);
    assert_eq!(store.inbox(5, 10).await.unwrap().len(), 2);
}

pub(crate) async fn withdrawn_run_may_come_again(place: &Place) {
    let store = place.open().await;
    let one = waiting(&schedule("one"), 5, NOON_US);
    let lease = commit(&*store, 5, Changes { runs_new: vec![one.clone()], ..changes() }).await;
    let other = Run { events: 3, ..one.clone() };
    let withdrawn = Changes { runs_withdrawn: vec![one.id], runs_new: vec![other.clone()], ..changes() };
    again(&*store, &lease, withdrawn).await;
    assert_eq!(load(&*store).await.runs, [other]);
    again(&*store, &lease, Changes { runs_withdrawn: vec![one.id], ..changes() }).await;
    assert!(store.runs(5, &[one.id]).await.unwrap().is_empty());
}

pub(crate) async fn change_does_not_bring_a_withdrawn_run_back(place: &Place) {
    let store = place.open().await;
    let one = waiting(&schedule("one"), 5, NOON_US);
    let lease = commit(&*store, 5, Changes { runs_new: vec![one.clone()], ..changes() }).await;
    let both = Changes { runs_changed: vec![one.clone()], runs_withdrawn: vec![one.id], ..changes() };
    again(&*store, &lease, both).await;
    assert!(store.runs(5, &[one.id]).await.unwrap().is_empty());
}

pub(crate) async fn tokens_round_trip(place: &Place) {
    let store = place.open().await;
    let one = waiting(&schedule("one"), 5, NOON_US);
    let held = TokenRow {
        state: TokenState::Held,
        attempt: 3,
        failures: 2,
        checks: 1,
        delivered_us: Some(NOON_US + 9),
        heartbeat_ttl_ms: Some(60_000),
        message: "503 é\u{1f9fe}".to_owned(),
        ..token(one.id, 1)
    };
    let tokens = vec![token(one.id, 0), held.clone()];
    let lease =
        commit(&*store, 5, Changes { runs_new: vec![one.clone()], tokens_put: tokens.clone(), ..changes() })
            .await;
    assert_eq!(load(&*store).await.tokens, tokens);
    let later = TokenRow { state: TokenState::Waiting, due_us: NOON_US + 99, acquired_us: 7, ..held };
    let earlier = TokenRow { attempt: 77, ..later.clone() };
    again(&*store, &lease, Changes { tokens_put: vec![earlier, later.clone()], ..changes() }).await;
    assert_eq!(load(&*store).await.tokens, [tokens[0].clone(), later]);
}

pub(crate) async fn tokens_go_by_whole_key(place: &Place) {
    let store = place.open().await;
    let one = schedule("one");
    let runs = [waiting(&one, 5, NOON_US), waiting(&one, 5, NOON_US + 1)];
    let tokens: Vec<TokenRow> =
        runs.iter().flat_map(|run| (0..3000).map(|index| token(run.id, index))).collect();
    let lease =
        commit(&*store, 5, Changes { runs_new: runs.to_vec(), tokens_put: tokens, ..changes() }).await;
    let gone: Vec<(RunId, u32)> = (0..2999).map(|index| (runs[index as usize % 2].id, index)).collect();
    again(&*store, &lease, Changes { tokens_gone: gone.clone(), ..changes() }).await;
    let left: BTreeSet<(RunId, u32)> =
        load(&*store).await.tokens.iter().map(|token| (token.run, token.index)).collect();
    assert_eq!(left.len(), 6000 - gone.len());
    assert!(gone.iter().all(|key| !left.contains(key)));
}

pub(crate) async fn schedules_and_policies_round_trip(place: &Place) {
    let store = place.open().await;
    let (one, two) = (shard_schedule(&schedule("one")), shard_schedule(&schedule("two")));
    let (p, q) = (policy("p"), policy("q"));
    let first = Changes {
        schedules: vec![one.clone(), two.clone()],
        policies: vec![p.clone(), q.clone()],
        ..changes()
    };
    let lease = commit(&*store, 5, first).await;
    again(&*store, &lease, Changes { policies_deleted: vec![(p.uid, NOON_US), (q.uid, 9)], ..changes() })
        .await;
    assert_eq!(load(&*store).await.policies_deleted.len(), 2);
    let changed = ShardSchedule { generation: 2, cursor: Some("8".to_owned()), pause: None, ..one };
    let wider = Policy { generation: 2, token_ttl_ms: 1, ..p };
    let second = Changes {
        schedules: vec![changed.clone()],
        schedules_gone: vec![two.uid],
        policies: vec![wider.clone()],
        policies_gone: vec![q.uid],
        ..changes()
    };
    again(&*store, &lease, second).await;
    let loaded = load(&*store).await;
    assert_eq!(
        loaded.policies_deleted,
        [(wider.uid, NOON_US)],
        "a change that comes late changes nothing of that"
    );
    assert_eq!((loaded.schedules, loaded.policies), (vec![changed], vec![wider]));
}

pub(crate) async fn pause_round_trips(place: &Place) {
    let store = place.open().await;
    assert_eq!(load(&*store).await.pause, ShardPause::default());
    let paused = ShardPause { order: Uuid::now_v7(), pause: Some(pause("flood")) };
    let lease = commit(&*store, 5, Changes { pause: Some(paused.clone()), ..changes() }).await;
    assert_eq!(load(&*store).await.pause, paused);
    again(&*store, &lease, changes()).await;
    assert_eq!(load(&*store).await.pause, paused, "no change changes nothing");
    let resumed = ShardPause { order: Uuid::now_v7(), pause: None };
    again(&*store, &lease, Changes { pause: Some(resumed.clone()), ..changes() }).await;
    assert_eq!(load(&*store).await.pause, resumed, "a resume has its place in the order, too");
    place
        .sql(r#"UPDATE queue_shards SET pause = '{"reason":"old","actor":"me","since_us":7}' WHERE shard_id = 5"#)
        .await;
    let old = load(&*store).await.pause;
    assert_eq!((old.order, old.pause.map(|pause| pause.reason)), (Uuid::nil(), Some("old".to_owned())));
}

pub(crate) async fn specs_come_with_runs_and_not_with_schedules(place: &Place) {
    let store = place.open().await;
    let first = schedule("one");
    let second = Schedule { generation: 2, ..first.clone() };
    let other = schedule("other");
    store.write_plan(vec![put(&first, None, vec![]), put(&other, None, vec![])]).await.unwrap();
    store.write_plan(vec![put(&second, Some(1), vec![])]).await.unwrap();
    let run = waiting(&first, 5, NOON_US);
    let changes = Changes { runs_new: vec![run], schedules: vec![shard_schedule(&second)], ..changes() };
    commit(&*store, 5, changes).await;
    let specs = load(&*store).await.specs;
    assert_eq!(specs, [RunSpec::of(&first)], "nothing of the other generation runs");
    let asked = [(other.uid, 1), (other.uid, 2), (first.uid, 2)];
    assert_eq!(store.specs(5, &asked).await.unwrap().len(), 2);
    assert!(store.specs(6, &asked).await.unwrap().is_empty());
}

pub(crate) async fn emitted_runs_come_by_launch(place: &Place) {
    let store = place.open().await;
    let one = schedule("one");
    store.write_plan(vec![put(&one, None, vec![])]).await.unwrap();
    let mut runs: Vec<Run> = [4, 1, 3, 2, 0].iter().map(|offset| run(&one, 5, NOON_US + offset)).collect();
    runs.push(waiting(&one, 5, NOON_US - 1));
    runs.push(run(&one, 6, NOON_US));
    store.emit(&runs, &[]).await.unwrap();
    let UntakenRuns { runs: found, specs, .. } =
        store.emitted_runs(5, i64::MIN..NOON_US + 4, 3).await.unwrap();
    assert_eq!(found.iter().map(|run| run.launch_us - NOON_US).collect::<Vec<_>>(), [0, 1, 2]);
    assert_eq!(specs, [RunSpec::of(&one)]);
    let found = store.emitted_runs(5, i64::MIN..NOON_US + 4, 10).await.unwrap().runs;
    assert_eq!(found.len(), 4, "none at the end of the range");
    let found = store.emitted_runs(5, NOON_US + 2..NOON_US + 4, 10).await.unwrap().runs;
    assert_eq!(found.iter().map(|run| run.launch_us - NOON_US).collect::<Vec<_>>(), [2, 3]);
}

pub(crate) async fn shards_with_news_are_those_with_something_to_read(place: &Place) {
    let store = place.open().await;
    let one = schedule("one");
    store.write_plan(vec![put(&one, None, vec![])]).await.unwrap();
    assert!(store.shards_with_news(i64::MAX).await.unwrap().is_empty());
    let runs = [run(&one, 7, NOON_US), run(&one, 5, NOON_US + 1), waiting(&one, 6, NOON_US)];
    store.emit(&runs, &[]).await.unwrap();
    let (read, left) = (message(), message());
    store.post(9, std::slice::from_ref(&read)).await.unwrap();
    store.post(8, &[left]).await.unwrap();
    assert_eq!(
        store.shards_with_news(NOON_US).await.unwrap(),
        [8, 9],
        "a launch at the end is not before it"
    );
    assert_eq!(store.shards_with_news(NOON_US + 1).await.unwrap(), [7, 8, 9]);
    assert_eq!(store.shards_with_news(NOON_US + 2).await.unwrap(), [5, 7, 8, 9]);
    commit(&*store, 9, Changes { inbox_done: vec![read.id], ..changes() }).await;
    assert_eq!(store.shards_with_news(NOON_US + 2).await.unwrap(), [5, 7, 8]);
}

pub(crate) async fn corrupt_run_is_left_out(place: &Place) {
    let store = place.open().await;
    let (good, bad) = (waiting(&schedule("good"), 5, NOON_US), waiting(&schedule("bad"), 5, NOON_US));
    let tokens = vec![token(good.id, 0), token(bad.id, 0)];
    commit(
        &*store,
        5,
        Changes { runs_new: vec![good.clone(), bad.clone()], tokens_put: tokens, ..changes() },
    )
    .await;
    place.sql("UPDATE runs SET priority = 99 WHERE schedule_id = 'bad'").await;
    let loaded = load(&*store).await;
    assert_eq!((loaded.runs, loaded.tokens), (vec![good.clone()], vec![token(good.id, 0)]));
    assert_eq!(loaded.left_out, [bad.id]);
    let error = store.runs(5, &[bad.id]).await.expect_err("it is corrupt");
    let StoreError::Corrupt { table: "runs", key, column: "priority", .. } = &error else {
        panic!("{error}")
    };
    assert!(key.contains(&bad.id.to_string()));
}

pub(crate) async fn corrupt_emitted_run_is_left_out(place: &Place) {
    let store = place.open().await;
    let (good, bad) = (run(&schedule("good"), 5, NOON_US), run(&schedule("bad"), 5, NOON_US));
    store.emit(&[good.clone(), bad], &[]).await.unwrap();
    place.sql("UPDATE runs SET kind = 'NONSENSE' WHERE schedule_id = 'bad'").await;
    assert_eq!(store.emitted_runs(5, i64::MIN..NOON_US + 1, 10).await.unwrap().runs, [good]);
}

/// Of any number of runs that cannot be read, none is in the way of those that can be.
pub(crate) async fn unreadable_runs_are_set_aside_and_found_again(place: &Place) {
    let store = place.open().await;
    let (good, bad) = (schedule("good"), schedule("bad"));
    let mut runs: Vec<Run> = (0..5).map(|offset| run(&bad, 5, NOON_US + offset)).collect();
    runs.push(run(&good, 5, NOON_US + 9));
    store.emit(&runs, &[]).await.unwrap();
    place.sql("UPDATE runs SET kind = 'NONSENSE' WHERE schedule_id = 'bad'").await;
    let mut found = Vec::new();
    for rows in [2, 2, 2, 0] {
        let read = store.emitted_runs(5, i64::MIN..NOON_US + 10, 2).await.unwrap();
        assert_eq!(read.rows, rows);
        if let Some(run) = read.runs.first() {
            found.push(run.id);
            let taken = Run { state: RunState::Waiting, ..run.clone() };
            commit(&*store, 5, Changes { runs_changed: vec![taken], ..changes() }).await;
        }
    }
    assert_eq!(found, [runs[5].id]);
    assert!(!store.shards_with_news(i64::MAX).await.unwrap().contains(&5), "nobody is called for them");
    // Page by page, and named as long as they cannot be read.
    let first = store.unreadable_runs(5, RunId::default(), 3).await.unwrap();
    assert_eq!((first.rows, first.runs.len()), (3, 0));
    let second = store.unreadable_runs(5, first.last.unwrap(), 3).await.unwrap();
    assert_eq!((second.rows, second.runs.len()), (2, 0));
    let named = store.corrupt_rows().iter().filter(|row| row.table == "runs").count();
    assert_eq!(named, 5);
    assert!(store.load_shard(5).await.unwrap().runs.iter().all(|run| run.id == runs[5].id));
    place.sql("UPDATE runs SET kind = 'MANUAL' WHERE schedule_id = 'bad'").await;
    let read = store.unreadable_runs(5, RunId::default(), 9).await.unwrap();
    assert_eq!(read.runs.len(), 5);
    assert!(read.runs.iter().all(|run| run.state == RunState::Unreadable), "{:?}", read.runs);
    assert!(store.corrupt_rows().iter().all(|row| row.table != "runs"));
}

pub(crate) async fn corrupt_policy_is_left_out(place: &Place) {
    let store = place.open().await;
    let p = policy("p");
    commit(&*store, 5, Changes { policies: vec![p.clone()], ..changes() }).await;
    place.sql("UPDATE shard_policies SET body = 'x'").await;
    let loaded = store.load_shard(5).await.unwrap();
    assert!(loaded.policies.is_empty(), "its events wait: an unknown policy lets nothing through");
    let named = store.corrupt_rows();
    assert_eq!((named.len(), named[0].table, named[0].shard), (1, "shard_policies", Some(5)), "{named:?}");
    assert!(named[0].key.contains(&p.uid.to_string()), "{named:?}");
    place.sql("DELETE FROM shard_policies").await;
    store.load_shard(5).await.unwrap();
    assert_eq!(store.corrupt_rows(), [], "what is put right is not named any longer");
}

/// One corrupt row of each kind: what remains of it, and that it is named.
pub(crate) async fn corrupt_rows_are_named_and_count(place: &Place) {
    let store = place.open().await;
    let runs = ["good", "bad", "strange"].map(|id| waiting(&schedule(id), 5, NOON_US));
    let tokens = runs.iter().flat_map(|run| [token(run.id, 0), token(run.id, 1)]).collect();
    let schedules = vec![shard_schedule(&schedule("good")), shard_schedule(&schedule("bad"))];
    let whole = Changes { runs_new: runs.to_vec(), tokens_put: tokens, schedules, ..changes() };
    commit(&*store, 5, whole).await;
    let [good, bad, strange] = &runs;
    place.sql("UPDATE runs SET next_index = -1 WHERE schedule_id = 'bad'").await;
    place.sql("UPDATE runs SET state = 'DANCING' WHERE schedule_id = 'strange'").await;
    place.sql("UPDATE tokens SET state = 'LOST' WHERE idx = 1").await;
    place.sql("UPDATE shard_schedules SET body = '{' WHERE body LIKE '%'").await;
    place.sql("UPDATE queue_shards SET pause = 'no' WHERE shard_id = 5").await;
    let loaded = store.load_shard(5).await.unwrap();
    assert_eq!(loaded.runs, std::slice::from_ref(good));
    let stands_in = &loaded.tokens[1];
    assert_eq!(loaded.tokens.len(), 2);
    assert_eq!((stands_in.index, stands_in.state), (1, TokenState::Held), "it counts until it is released");
    assert!(stands_in.heartbeat_ttl_ms > Some(86_400_000 * 365), "no silence ends it");
    assert_eq!(loaded.counted, [(good.policy_uid, 4)], "tokens of runs that cannot be read count");
    assert_eq!(loaded.schedules.len(), 2);
    assert!(loaded.schedules.iter().all(|schedule| schedule.pause.is_some() && schedule.generation == 1));
    assert!(loaded.pause.pause.is_some(), "the shard stands still until it is resumed");
    let named: Vec<(&str, String)> =
        store.corrupt_rows().into_iter().map(|row| (row.table, row.key)).collect();
    for (table, key) in [("runs", bad.id), ("runs", strange.id), ("tokens", good.id)] {
        let key = key.to_string();
        assert!(named.iter().any(|row| row.0 == table && row.1.contains(&key)), "{table} {key}: {named:?}");
    }
    let count = |table: &str| named.iter().filter(|row| row.0 == table).count();
    assert_eq!(["tokens", "shard_schedules", "queue_shards"].map(count), [3, 2, 1], "{named:?}");
}

pub(crate) async fn shards_do_not_see_each_other(place: &Place) {
    let store = place.open().await;
    let one = waiting(&schedule("one"), 6, NOON_US);
    let whole = Changes {
        runs_new: vec![one.clone()],
        tokens_put: vec![token(one.id, 0)],
        policies: vec![policy("p")],
        schedules: vec![shard_schedule(&schedule("one"))],
        ..changes()
    };
    commit(&*store, 6, whole).await;
    let loaded = load(&*store).await;
    assert!(loaded.runs.is_empty() && loaded.tokens.is_empty());
    assert!(loaded.policies.is_empty() && loaded.schedules.is_empty());
    assert!(store.runs(5, &[one.id]).await.unwrap().is_empty());
    commit(&*store, 5, Changes { tokens_gone: vec![(one.id, 0)], runs_withdrawn: vec![one.id], ..changes() })
        .await;
    assert_eq!(store.load_shard(6).await.unwrap().tokens.len(), 1);
}

pub(crate) async fn dropped_commit_is_whole(place: &Place) {
    let store = place.open().await;
    let one = schedule("one");
    let mut lease = take(&*store, 5).await;
    for i in 0..40 {
        let run = waiting(&one, 5, NOON_US + i);
        let changes = Changes { tokens_put: vec![token(run.id, 0)], runs_new: vec![run], ..changes() };
        // The caller goes away in the middle.
        let patience = std::time::Duration::from_micros(50 * i as u64);
        if tokio::time::timeout(patience, store.commit(&lease, &changes)).await.is_err() {
            // Its outcome is not known: what an owner does then.
            loop {
                let seen = store.leases().await.unwrap()[5].clone();
                if let Some(taken) = store.take_shard(&seen, "me").await.unwrap() {
                    lease = taken;
                    break;
                }
            }
        }
        let loaded = load(&*store).await;
        assert_eq!(loaded.runs.len(), loaded.tokens.len());
    }
    let run = waiting(&one, 5, NOON_US - 1);
    again(&*store, &lease, Changes { runs_new: vec![run], ..changes() }).await;
}
