//! What lives in one queue shard and belongs into another one: it moves as a whole, or not at all, and is found afterwards.

use std::collections::{BTreeMap, BTreeSet};

use tollgate_core::handle::change::{Changes, Outcome, ShardSchedule};
use tollgate_core::handle::control::{Control, Message, UnderWay};
use tollgate_core::model::{Counts, Parent, Policy, Run, RunId, RunState, Schedule};
use tollgate_core::plan::shard_of;
use tollgate_store::items::StoredSubmission;
use tollgate_store::moves::{Moved, Resident, ResidentKind, Stray};
use tollgate_store::plan::PlanWrite;
use tollgate_store::{Store, StoreError};
use uuid::Uuid;

use super::place::Place;
use super::samples::{
    NOON_US, audit, commit, ended, finished, message, policy, put, put_policy, release, run, schedule,
    shard_schedule, take, token, waiting,
};

pub(crate) const FROM: u16 = 3;
pub(crate) const USED: u16 = 256;

/// A policy in the first shard that belongs into another one.
fn misplaced(id: &str) -> (Policy, u16) {
    loop {
        let made = policy(id);
        let to = shard_of(made.uid, USED);
        if to != FROM {
            return (made, to);
        }
    }
}

/// A schedule that lives in the first shard.
fn put_here(schedule: &Schedule) -> PlanWrite {
    match put(schedule, None, vec![]) {
        PlanWrite::PutSchedule { schedule, expected_generation, lived_in, children, audit, .. } => {
            PlanWrite::PutSchedule { schedule, expected_generation, lived_in, children, shard: FROM, audit }
        }
        other => other,
    }
}

fn under(id: &str, policy: &Policy) -> Schedule {
    Schedule {
        policy: Some(policy.id.clone()),
        policy_uid: Some(policy.uid),
        former_homes: vec![],
        shard: Some(FROM),
        ..schedule(id)
    }
}

async fn residents(store: &dyn Store) -> Vec<Resident> {
    store.residents_to_move(100).await.unwrap().remove(&FROM).unwrap_or_default()
}

pub(crate) async fn go(store: &dyn Store, under_way: &[UnderWay]) -> Moved {
    let lease = take(store, FROM).await;
    let residents = residents(store).await;
    store
        .move_residents(&lease, &residents, under_way, NOON_US)
        .await
        .unwrap()
        .expect("the lease is this one")
}

/// A schedule as the shard knows it in which it lives.
fn at_home(schedule: &Schedule) -> ShardSchedule {
    ShardSchedule { home: None, ..shard_schedule(schedule) }
}

/// A tree of two policies, with a schedule under the lower one, and that schedule's runs.
pub(crate) struct Tree {
    root: Policy,
    child: Policy,
    pub(crate) schedule: Schedule,
    pub(crate) to: u16,
    pub(crate) open: Run,
    emitted: Run,
    over: Run,
}

pub(crate) async fn tree(store: &dyn Store) -> Tree {
    let (root, to) = misplaced("root");
    let namespace = root.namespace.clone();
    let parent = Parent { uid: root.uid, namespace, id: root.id.clone(), floor: 0, weight: 1 };
    let child = Policy { parent: Some(Box::new(parent)), ..policy("child") };
    let schedule = under("s", &child);
    let writes = vec![put_policy(&root, None), put_policy(&child, None), put_here(&schedule)];
    store.write_plan(writes).await.unwrap();
    let [open, emitted, over] = [
        Run { state: RunState::Running, ..waiting(&schedule, FROM, NOON_US) },
        run(&schedule, FROM, NOON_US + 1),
        finished(&schedule, FROM, NOON_US - 1),
    ];
    let changes = Changes {
        runs_new: vec![open.clone(), emitted.clone(), over.clone()],
        tokens_put: vec![token(open.id, 4)],
        history: vec![ended(open.id, 0, Outcome::Dead), ended(over.id, 0, Outcome::Dead)],
        policies: vec![root.clone(), child.clone()],
        schedules: vec![at_home(&schedule)],
        ..Changes::default()
    };
    commit(store, FROM, changes).await;
    Tree { root, child, schedule, to, open, emitted, over }
}

pub(crate) async fn a_tree_moves_with_all_that_stands_under_it(place: &Place) {
    let store = place.open().await;
    let tree = tree(&*store).await;
    assert!(store.residents_to_move(100).await.unwrap().is_empty(), "nobody has said how many are used");
    store.use_shards(USED, audit("shards")).await.unwrap();
    assert_eq!(
        residents(&*store).await,
        [Resident { to: tree.to, uid: tree.root.uid, kind: ResidentKind::Tree }]
    );
    let epoch = store.leases().await.unwrap()[usize::from(tree.to)].epoch;
    let cancel = |run: &Run| Message {
        id: Uuid::now_v7(),
        control: Control::CancelRun { run: run.id, reason: "late".to_owned() },
    };
    let (with_it, stays) = (cancel(&tree.open), cancel(&tree.over));
    let released = release(tree.open.id, 4);
    store.post(FROM, &[with_it.clone(), released.clone(), stays.clone(), message()]).await.unwrap();
    let one = |run| UnderWay { run, index: 4, attempt: 1, doubtful: false, grace_ms: 500 };
    let moved = go(&*store, &[one(tree.open.id), one(tree.over.id)]).await;
    let runs: BTreeMap<RunId, u16> = [(tree.open.id, tree.to), (tree.emitted.id, tree.to)].into();
    assert_eq!(moved, Moved { residents: 1, runs: runs.clone(), to: vec![tree.to] });

    let left = store.load_shard(FROM).await.unwrap();
    assert!(left.runs.is_empty() && left.tokens.is_empty() && left.policies.is_empty());
    assert!(left.schedules.is_empty());
    let there = store.load_shard(tree.to).await.unwrap();
    let open = Run { shard: tree.to, born_shard: Some(FROM), ..tree.open.clone() };
    assert_eq!((there.runs, there.tokens.len()), (vec![open], 1));
    let policies: BTreeMap<Uuid, (u16, i64)> =
        there.policies.iter().map(|policy| (policy.uid, (policy.shard, policy.generation))).collect();
    assert_eq!(policies, [(tree.root.uid, (tree.to, 1)), (tree.child.uid, (tree.to, 1))].into());
    assert_eq!(there.schedules, [at_home(&tree.schedule)]);
    let emitted = store.emitted_runs(tree.to, i64::MIN..i64::MAX, 10).await.unwrap();
    assert_eq!((emitted.runs[0].id, emitted.runs[0].named_shard()), (tree.emitted.id, FROM));
    assert_eq!(store.dead_events(tree.to, tree.open.id, &[], 10).await.unwrap().len(), 1);
    // What has ended stays.
    let all = [tree.open.id, tree.emitted.id, tree.over.id];
    assert_eq!(store.runs(FROM, &all).await.unwrap(), [tree.over]);
    assert_eq!(store.moved_runs(FROM, &all).await.unwrap(), runs);
    let gone = store.moved_homes(FROM).await.unwrap();
    let uids = [tree.root.uid, tree.child.uid, tree.schedule.uid];
    assert_eq!(gone, uids.map(|uid| (uid, tree.to)).into());
    let told: Vec<Control> =
        store.inbox(tree.to, 10).await.unwrap().into_iter().map(|message| message.control).collect();
    assert_eq!(told[0], Control::Arrived { epoch });
    assert!(told.contains(&with_it.control), "what is recorded about it comes along");
    assert!(told.contains(&released.control), "{told:?}");
    let left = store.inbox(FROM, 10).await.unwrap();
    assert!(left.len() == 2 && left.contains(&stays), "{left:?}");
    assert!(told.contains(&Control::UnderWay { deliveries: vec![one(tree.open.id)] }), "{told:?}");
    let stored = store.schedule("default", "s").await.unwrap().unwrap();
    assert_eq!((stored.shard, stored.generation), (Some(tree.to), 1));
    let stored = store.policy("default", "child").await.unwrap().unwrap();
    assert_eq!((stored.shard, stored.generation), (tree.to, 1));
    assert!(residents(&*store).await.is_empty(), "all is where it belongs");
}

pub(crate) async fn what_has_moved_may_come_back(place: &Place) {
    let store = place.open().await;
    let tree = tree(&*store).await;
    store.use_shards(USED, audit("shards")).await.unwrap();
    go(&*store, &[]).await;
    // By the first number nothing would be here.
    store.use_shards(1, audit("shards")).await.unwrap();
    let lease = take(&*store, tree.to).await;
    let residents = store.residents_to_move(100).await.unwrap().remove(&tree.to).unwrap();
    assert_eq!(residents, [Resident { to: 0, uid: tree.root.uid, kind: ResidentKind::Tree }]);
    let back = [Resident { to: FROM, ..residents[0] }];
    let moved = store.move_residents(&lease, &back, &[], NOON_US).await.unwrap().unwrap();
    assert_eq!((moved.residents, moved.runs.len(), moved.to), (1, 2, vec![FROM]));
    assert!(store.moved_homes(FROM).await.unwrap().is_empty());
    assert!(store.moved_runs(FROM, &[tree.open.id]).await.unwrap().is_empty());
    assert_eq!(store.moved_homes(tree.to).await.unwrap().len(), 3);
    let here = store.load_shard(FROM).await.unwrap();
    assert_eq!((here.runs.len(), here.runs[0].named_shard(), here.policies.len()), (1, FROM, 2));
}

/// Of policies and schedules when nothing so old is left; of runs when they are not there any more.
pub(crate) async fn where_things_have_gone_is_forgotten_with_the_history(place: &Place) {
    let store = place.open().await;
    let tree = tree(&*store).await;
    store.use_shards(USED, audit("shards")).await.unwrap();
    go(&*store, &[]).await;
    let runs = [tree.open.id, tree.emitted.id];
    store.prune(NOON_US, NOON_US).await.unwrap();
    assert_eq!(store.moved_homes(FROM).await.unwrap().len(), 3, "it is as young");
    store.prune(NOON_US + 1, NOON_US).await.unwrap();
    assert!(store.moved_homes(FROM).await.unwrap().is_empty());
    assert_eq!(store.moved_runs(FROM, &runs).await.unwrap().len(), 2, "they are open");
    let mut ended = Run { shard: tree.to, born_shard: Some(FROM), ..tree.open.clone() };
    (ended.state, ended.finished_us) = (RunState::Finished, Some(NOON_US));
    commit(&*store, tree.to, Changes { runs_changed: vec![ended], ..Changes::default() }).await;
    for _ in 0..2 {
        store.prune(NOON_US + 1, NOON_US).await.unwrap();
    }
    assert_eq!(store.moved_runs(FROM, &runs).await.unwrap(), [(tree.emitted.id, tree.to)].into());
}

pub(crate) async fn what_is_on_its_way_keeps_its_policy(place: &Place) {
    let store = place.open().await;
    let tree = tree(&*store).await;
    store.use_shards(USED, audit("shards")).await.unwrap();
    let (other, _) = misplaced("other");
    store.write_plan(vec![put_policy(&other, None)]).await.unwrap();
    // A run that was made under another policy than its schedule has now.
    let stray = Run { policy_uid: Some(other.uid), ..waiting(&tree.schedule, FROM, NOON_US + 7) };
    commit(&*store, FROM, Changes { runs_new: vec![stray.clone()], ..Changes::default() }).await;
    assert_eq!(go(&*store, &[]).await, Moved::default(), "neither of the two");
    let end = Run { state: RunState::Finished, finished_us: Some(NOON_US + 9), ..stray };
    commit(&*store, FROM, Changes { runs_changed: vec![end], ..Changes::default() }).await;
    // A run whose list is being fetched.
    let listing = Run { state: RunState::Listing, events: 0, ..run(&tree.schedule, FROM, NOON_US + 8) };
    commit(&*store, FROM, Changes { runs_new: vec![listing.clone()], ..Changes::default() }).await;
    assert_eq!(go(&*store, &[]).await.residents, 1, "the other one only");
    let end = Run { state: RunState::Cancelled, finished_us: Some(NOON_US + 9), ..listing };
    commit(&*store, FROM, Changes { runs_changed: vec![end], ..Changes::default() }).await;
    assert_eq!(go(&*store, &[]).await.residents, 1);
    assert!(residents(&*store).await.is_empty());
}

pub(crate) async fn only_the_owner_moves_what_is_there(place: &Place) {
    let store = place.open().await;
    tree(&*store).await;
    store.use_shards(USED, audit("shards")).await.unwrap();
    let former = take(&*store, FROM).await;
    take(&*store, FROM).await;
    let all = residents(&*store).await;
    assert_eq!(store.move_residents(&former, &all, &[], NOON_US).await.unwrap(), None);
    assert_eq!(residents(&*store).await, all);
    assert_eq!(store.load_shard(FROM).await.unwrap().runs.len(), 1);
}

pub(crate) async fn what_comes_late_is_handed_on_once(place: &Place) {
    let store = place.open().await;
    let tree = tree(&*store).await;
    store.use_shards(USED, audit("shards")).await.unwrap();
    go(&*store, &[]).await;
    // By somebody who has read the schedule before; one of the runs is there already.
    let late = run(&tree.schedule, FROM, NOON_US + 5);
    store.emit(&[late.clone(), tree.emitted.clone()], &[]).await.unwrap();
    let told = message();
    store.post(FROM, std::slice::from_ref(&told)).await.unwrap();
    let mut stray = Stray { messages: vec![told.clone()], ..Stray::default() };
    [&late, &tree.emitted].into_iter().for_each(|run| stray.add(run.id, run.schedule_uid));
    let former = take(&*store, FROM).await;
    let lease = take(&*store, FROM).await;
    store.hand_on(&former, tree.to, stray.clone(), NOON_US).await.unwrap();
    assert_eq!(store.inbox(FROM, 10).await.unwrap(), std::slice::from_ref(&told), "another one owns it");
    for _ in 0..2 {
        store.hand_on(&lease, tree.to, stray.clone(), NOON_US).await.unwrap();
    }
    assert!(store.emitted_runs(FROM, i64::MIN..i64::MAX, 10).await.unwrap().runs.is_empty());
    let there = store.emitted_runs(tree.to, i64::MIN..i64::MAX, 10).await.unwrap();
    assert_eq!(there.runs.iter().map(|run| run.id).collect::<Vec<_>>(), [tree.emitted.id, late.id]);
    assert_eq!((there.runs[1].named_shard(), there.specs.len()), (FROM, 1));
    assert!(store.inbox(FROM, 10).await.unwrap().is_empty());
    assert!(store.inbox(tree.to, 10).await.unwrap().contains(&told));
    assert_eq!(store.moved_runs(FROM, &[late.id]).await.unwrap(), [(late.id, tree.to)].into());
}

/// A schedule without a policy goes by its own uid; one that somebody has written to where its policy was goes after it.
pub(crate) async fn schedules_go_alone_where_they_are_alone(place: &Place) {
    let store = place.open().await;
    let tree = tree(&*store).await;
    store.use_shards(USED, audit("shards")).await.unwrap();
    let free = loop {
        let made = Schedule { shard: Some(FROM), former_homes: vec![], ..schedule("free") };
        if shard_of(made.uid, USED) != FROM {
            break made;
        }
    };
    store.write_plan(vec![put_here(&free)]).await.unwrap();
    let own = waiting(&free, FROM, NOON_US);
    commit(&*store, FROM, Changes { runs_new: vec![own.clone()], ..Changes::default() }).await;
    assert_eq!(go(&*store, &[]).await.residents, 2);
    let to = shard_of(free.uid, USED);
    assert_eq!(store.load_shard(to).await.unwrap().runs.iter().filter(|run| run.id == own.id).count(), 1);
    let late = under("late", &tree.child);
    store.write_plan(vec![put_here(&late)]).await.unwrap();
    assert_eq!(
        residents(&*store).await,
        [Resident { to: tree.to, uid: late.uid, kind: ResidentKind::LeftBehind }]
    );
    assert_eq!(go(&*store, &[]).await.residents, 1);
    let stored = store.schedule("default", "late").await.unwrap().unwrap();
    assert_eq!(stored.shard, Some(tree.to));
    let told = store.inbox(to, 10).await.unwrap();
    assert!(told.iter().any(|message| matches!(message.control, Control::Arrived { .. })), "{told:?}");
}

/// Whoever has read a schedule before it moved writes nothing: its home would be the former one again.
pub(crate) async fn what_was_read_before_a_move_is_not_written(place: &Place) {
    let store = place.open().await;
    let tree = tree(&*store).await;
    store.use_shards(USED, audit("shards")).await.unwrap();
    go(&*store, &[]).await;
    let writes = |lived: u16| {
        let next = Schedule { generation: 2, ..tree.schedule.clone() };
        match put_here(&next) {
            PlanWrite::PutSchedule { schedule, children, shard, audit, .. } => PlanWrite::PutSchedule {
                schedule,
                expected_generation: Some(1),
                lived_in: Some(lived),
                children,
                shard,
                audit,
            },
            other => other,
        }
    };
    let error = store.write_plan(vec![writes(FROM)]).await.expect_err("it was read before");
    let said = "schedule \"s\" has moved to another queue shard meanwhile";
    assert!(matches!(&error, StoreError::Conflict { what } if what == said), "{error}");
    let stored = store.schedule("default", "s").await.unwrap().unwrap();
    assert_eq!((stored.generation, stored.shard), (1, Some(tree.to)));
    store.write_plan(vec![writes(tree.to)]).await.unwrap();
    let next = Policy { generation: 2, ..tree.child.clone() };
    // A new one would live where its parent was.
    let new = Policy { parent: tree.child.parent.clone(), ..policy("new") };
    for (policy, before) in [(&next, Some(1)), (&new, None)] {
        let error = store.write_plan(vec![put_policy(policy, before)]).await.expect_err("it was read before");
        let has_moved =
            matches!(&error, StoreError::Conflict { what } if what.contains("another queue shard"));
        assert!(has_moved, "{error}");
    }
    let next = Policy { shard: tree.to, ..next };
    store.write_plan(vec![put_policy(&next, Some(1))]).await.unwrap();
}

/// A schedule that is put back where its policy was: what the shard knows that it goes to stays, where it is newer.
pub(crate) async fn what_a_shard_knows_of_a_schedule_stays(place: &Place) {
    let store = place.open().await;
    let tree = tree(&*store).await;
    store.use_shards(USED, audit("shards")).await.unwrap();
    go(&*store, &[]).await;
    let elsewhere = |home, generation| ShardSchedule { home, generation, ..shard_schedule(&tree.schedule) };
    let left_behind = async || {
        let now = store.schedule("default", "s").await.unwrap().unwrap();
        let next = Schedule { shard: Some(FROM), generation: now.generation + 1, ..now.clone() };
        let write = match put_here(&next) {
            PlanWrite::PutSchedule { schedule, children, shard, audit, .. } => PlanWrite::PutSchedule {
                schedule,
                expected_generation: Some(now.generation),
                lived_in: None,
                children,
                shard,
                audit,
            },
            other => other,
        };
        store.write_plan(vec![write]).await.unwrap();
    };
    // It is told along its way: the former shard gives it up once more, and the one where it lives has it.
    left_behind().await;
    commit(&*store, FROM, Changes { schedules: vec![elsewhere(Some(tree.to), 2)], ..Changes::default() })
        .await;
    commit(&*store, tree.to, Changes { schedules: vec![elsewhere(None, 2)], ..Changes::default() }).await;
    assert_eq!(go(&*store, &[]).await.residents, 1);
    assert_eq!(store.load_shard(tree.to).await.unwrap().schedules, [elsewhere(None, 2)]);
    // The one that it goes to has given it up before, and one of its runs goes on there: it waits for that.
    left_behind().await;
    commit(&*store, FROM, Changes { schedules: vec![elsewhere(None, 3)], ..Changes::default() }).await;
    commit(&*store, tree.to, Changes { schedules: vec![elsewhere(Some(FROM), 3)], ..Changes::default() })
        .await;
    assert_eq!(go(&*store, &[]).await.residents, 0);
    let emitted = store.emitted_runs(tree.to, i64::MIN..i64::MAX, 10).await.unwrap().runs;
    let open = store.load_shard(tree.to).await.unwrap().runs.into_iter().chain(emitted);
    let ends = open.map(|run| Run { state: RunState::Finished, finished_us: Some(NOON_US + 9), ..run });
    commit(&*store, tree.to, Changes { runs_changed: ends.collect(), ..Changes::default() }).await;
    assert_eq!(go(&*store, &[]).await.residents, 1);
    assert_eq!(store.load_shard(tree.to).await.unwrap().schedules, [elsewhere(None, 3)]);
}

pub(crate) async fn submissions_are_found_where_their_runs_are(place: &Place) {
    let store = place.open().await;
    let tree = tree(&*store).await;
    store.use_shards(USED, audit("shards")).await.unwrap();
    let of = |request_id: &str, run: &Run| StoredSubmission {
        schedule_uid: tree.schedule.uid,
        request_id: request_id.to_owned(),
        shard: FROM,
        run: run.id,
        launch_us: run.launch_us,
        asked: "{}".to_owned(),
        created_us: NOON_US,
        items: 0,
        digest: Default::default(),
        units_max: 0,
        made_us: None,
    };
    let (made, open) = (of("made", &tree.open), of("open", &run(&tree.schedule, FROM, NOON_US + 30)));
    assert!(store.begin_submission(&made, "").await.unwrap());
    store.submission_made(&made, NOON_US).await.unwrap();
    assert!(store.begin_submission(&open, "").await.unwrap());
    store.close_failures(FROM, &[(tree.open.id, NOON_US)]).await.unwrap();
    assert_eq!(go(&*store, &[]).await.residents, 0, "items may still come");
    let lease = take(&*store, FROM).await;
    let all = residents(&*store).await;
    let later_us = NOON_US + 3_600_000_000;
    let moved = store.move_residents(&lease, &all, &[], later_us).await.unwrap().unwrap();
    assert_eq!(moved.residents, 1, "nobody goes on with it");
    let shard_of = async |id| store.submission(tree.schedule.uid, id).await.unwrap().unwrap().shard;
    assert_eq!((shard_of("made").await, shard_of("open").await), (tree.to, FROM));
    let closed = format!("SELECT CAST(count(*) AS bigint) FROM closed_failures WHERE shard_id = {}", tree.to);
    assert_eq!(place.number(&closed).await, 1);
}

/// Free schedules of one shard that belong into the same one.
async fn free(store: &dyn Store, count: usize) -> (Vec<Schedule>, u16) {
    let (mut all, mut to): (Vec<Schedule>, u16) = (Vec::new(), 0);
    while all.len() < count {
        let made =
            Schedule { shard: Some(FROM), former_homes: vec![], ..schedule(&format!("free{}", all.len())) };
        let home = shard_of(made.uid, USED);
        if all.is_empty() && home != FROM {
            to = home;
        }
        if home == to && home != FROM {
            store.write_plan(vec![put_here(&made)]).await.unwrap();
            all.push(made);
        }
    }
    (all, to)
}

/// A run of a schedule of which so many events have ended.
fn long(schedule: &Schedule, ended: u32) -> Run {
    let counts = Counts { succeeded: ended, ..Counts::default() };
    Run { counts, events: 2 * ended, state: RunState::Running, ..waiting(schedule, FROM, NOON_US) }
}

pub(crate) async fn what_would_take_long_goes_in_parts_or_stays(place: &Place) {
    let store = place.open().await;
    store.use_shards(USED, audit("shards")).await.unwrap();
    let (all, _) = free(&*store, 4).await;
    let runs =
        vec![long(&all[0], 19_000), long(&all[1], 19_000), long(&all[2], 19_000), long(&all[3], 20_000)];
    commit(&*store, FROM, Changes { runs_new: runs, ..Changes::default() }).await;
    assert_eq!(go(&*store, &[]).await.residents, 2, "50,000 rows are enough");
    assert_eq!(go(&*store, &[]).await.residents, 1);
    assert_eq!(go(&*store, &[]).await.residents, 0, "one run is too long");
    assert_eq!(
        residents(&*store).await.iter().map(|resident| resident.uid).collect::<Vec<_>>(),
        [all[3].uid]
    );
}

pub(crate) async fn a_run_that_is_there_already_holds_back_its_own_only(place: &Place) {
    let store = place.open().await;
    store.use_shards(USED, audit("shards")).await.unwrap();
    let (all, to) = free(&*store, 2).await;
    let runs = vec![long(&all[0], 5), long(&all[1], 5)];
    let twin = Run { shard: to, ..runs[0].clone() };
    commit(&*store, FROM, Changes { runs_new: runs, ..Changes::default() }).await;
    commit(&*store, to, Changes { runs_new: vec![twin], ..Changes::default() }).await;
    assert_eq!(go(&*store, &[]).await.residents, 1);
    assert_eq!(
        residents(&*store).await.iter().map(|resident| resident.uid).collect::<Vec<_>>(),
        [all[0].uid]
    );
}

/// Of one shard something may go to many: to some of them at once, and all in the end.
pub(crate) async fn a_handover_gives_to_a_few_shards(place: &Place) {
    let store = place.open().await;
    store.use_shards(USED, audit("shards")).await.unwrap();
    let mut homes = BTreeSet::new();
    for number in 0..20 {
        let made = Schedule { shard: Some(FROM), former_homes: vec![], ..schedule(&format!("one{number}")) };
        homes.insert(shard_of(made.uid, USED));
        store.write_plan(vec![put_here(&made)]).await.unwrap();
    }
    homes.remove(&FROM);
    let mut reached = BTreeSet::new();
    while reached.len() < homes.len() {
        let moved = go(&*store, &[]).await;
        assert!((1..=8).contains(&moved.to.len()), "{moved:?}");
        reached.extend(moved.to);
    }
    assert!(reached == homes && homes.len() > 8, "{homes:?}");
}
