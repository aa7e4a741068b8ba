//! Runs whose items are fetched: their owner takes none in before its items are there, whatever becomes of the schedule.

use std::sync::Arc;

use tollgate_core::handle::change::ShardSchedule;
use tollgate_core::handle::control::Control;
use tollgate_core::model::*;

use crate::change::{at, changed, keep, next};
use crate::handle_world::*;
use crate::world::*;

fn with_list(mut spec: RunSpec, url: &str) -> RunSpec {
    spec.payload.from = Some(Arc::new(ItemsFrom::http(url.to_owned())));
    spec
}

fn listed(schedule: u128) -> RunSpec {
    with_list(spec(schedule, None), "http://a/list")
}

fn listing(spec: &RunSpec, launch_us: i64) -> Run {
    Run { state: RunState::Listing, ..run(spec, launch_us, 0) }
}

/// What the fetcher does once all items are in pages; with none it leaves the run to its owner.
fn hand_over(world: &mut World, id: RunId, events: u32) {
    let row = world.store.runs.get_mut(&id).unwrap();
    assert_eq!((row.state, row.events), (RunState::Listing, 0), "{row:?}");
    (row.state, row.events) = (RunState::Emitted, events);
    world.read_runs();
}

fn state(world: &World, id: RunId) -> (RunState, i64, u32) {
    let row = world.row(id);
    (row.state, row.generation, row.events)
}

#[test]
fn a_run_goes_on_with_its_items_and_not_without() {
    let mut world = World::new();
    let s = listed(10);
    let id = world.emit(listing(&s, at(1)), &s);
    assert_eq!((state(&world, id), world.shard.runs_held()), ((RunState::Listing, 1, 0), 0));
    // Handed over without any, and nothing has changed: it waits on.
    hand_over(&mut world, id, 0);
    assert_eq!((state(&world, id), world.shard.runs_held()), ((RunState::Listing, 1, 0), 0));
    world.sleep_s(120);
    assert_eq!(world.work_off(), 0);
    hand_over(&mut world, id, 3);
    assert_eq!(world.work_off(), 3);
    assert_eq!(state(&world, id), (RunState::Finished, 1, 3));
}

#[test]
fn a_new_schedule_s_runs_are_made_waiting_for_their_items() {
    let mut world = World::new();
    let s = listed(10);
    keep(&mut world, &s);
    world.tell(changed(&s, ShardSchedule { events: 0, ..fence(&s, START_US, at(5), vec![at(1), at(3)]) }));
    let made: Vec<RunId> = world.store.runs.keys().copied().collect();
    assert_eq!(made.len(), 2);
    assert!(made.iter().all(|id| state(&world, *id) == (RunState::Listing, 1, 0)));
    // The emitter comes by as well.
    assert_eq!(world.emit(listing(&s, at(1)), &s), made[0]);
    hand_over(&mut world, made[0], 2);
    world.sleep_s(240);
    assert_eq!((world.work_off(), world.store.runs.len()), (2, 2));
    assert_eq!(state(&world, made[1]), (RunState::Listing, 1, 0));
}

#[test]
fn items_that_were_fetched_hold_for_the_same_list_alone() {
    for (url, kept) in [("http://a/list", true), ("http://a/other", false)] {
        let mut world = World::new();
        let s = listed(10);
        let id = world.emit(listing(&s, at(2)), &s);
        hand_over(&mut world, id, 3);
        assert_eq!(state(&world, id), (RunState::Waiting, 1, 3));
        let (new, row) = next(&with_list(s, url), world.now, &[2]);
        keep(&mut world, &new);
        world.tell(changed(&new, ShardSchedule { events: 0, ..row }));
        let expected = if kept { (RunState::Waiting, 2, 3) } else { (RunState::Listing, 2, 0) };
        assert_eq!(state(&world, id), expected, "{url}");
        if !kept {
            assert_eq!(world.shard.runs_held(), 0);
            world.restart_after_s(1);
            hand_over(&mut world, id, 4);
        }
        world.sleep_s(180);
        assert_eq!(world.work_off(), if kept { 3 } else { 4 });
    }
}

#[test]
fn a_list_may_come_and_go_before_the_launch() {
    let mut world = World::new();
    let s = spec(10, None);
    let id = world.emit(run(&s, at(2), 5), &s);
    let (listed, row) = next(&with_list(s.clone(), "http://a/list"), world.now, &[2]);
    keep(&mut world, &listed);
    world.tell(changed(&listed, ShardSchedule { events: 0, ..row }));
    assert_eq!(state(&world, id), (RunState::Listing, 2, 0));
    let plain = RunSpec { payload: Payload::default(), ..listed };
    let (plain, row) = next(&plain, world.now, &[2]);
    keep(&mut world, &plain);
    world.tell(changed(&plain, ShardSchedule { events: 7, ..row }));
    if world.row(id).state == RunState::Listing {
        hand_over(&mut world, id, 0);
    }
    assert_eq!(state(&world, id), (RunState::Waiting, 3, 7));
    world.sleep_s(120);
    assert_eq!(world.work_off(), 7);
}

#[test]
fn a_run_that_waits_is_cancelled_deleted_and_withdrawn() {
    let mut world = World::new();
    let (s, other) = (listed(10), listed(11));
    let cancelled = world.emit(listing(&s, at(1)), &s);
    world.tell(Control::CancelRun { run: cancelled, reason: "no".into() });
    assert_eq!(state(&world, cancelled), (RunState::Cancelled, 1, 0));
    assert_eq!((world.row(cancelled).reason.as_str(), world.outcomes(cancelled).len()), ("no", 0));
    assert!(world.row(cancelled).finished_us.is_some());
    // Its next generation does not fire then.
    let withdrawn = world.emit(listing(&s, at(3)), &s);
    let (new, row) = next(&s, world.now, &[4]);
    keep(&mut world, &new);
    world.tell(changed(&new, ShardSchedule { events: 0, ..row }));
    hand_over(&mut world, withdrawn, 0);
    assert!(!world.store.runs.contains_key(&withdrawn), "{:?}", world.store.runs);
    let deleted = world.emit(listing(&other, at(3)), &other);
    let (gone, row) = next(&other, world.now, &[]);
    world.tell(changed(&gone, ShardSchedule { deleted: true, ..row }));
    hand_over(&mut world, deleted, 0);
    assert!(world.store.runs.get(&deleted).is_none_or(|run| run.state == RunState::Cancelled));
    world.sleep_s(600);
    assert_eq!((world.work_off(), world.shard.runs_held()), (0, 0));
}

/// What is said of a run in the moment in which it is set aside is not lost.
#[test]
fn a_cancel_at_once_reaches_a_run_that_was_just_set_aside() {
    let mut world = World::new();
    let s = listed(10);
    let id = world.emit(listing(&s, at(1)), &s);
    world.store.runs.get_mut(&id).unwrap().state = RunState::Emitted;
    let posted = world.post(Control::CancelRun { run: id, reason: "no".into() });
    world.shard.begin_read();
    let (runs, specs) = world.store.emitted(i64::MAX);
    let context = world.store.context(&tollgate_core::handle::MessageNeeds::of(&posted.control));
    world.shard.adopt(runs, specs, world.now);
    world.shard.control(posted.clone(), context, world.now);
    world.settle();
    assert_eq!(state(&world, id), (RunState::Listing, 1, 0));
    assert!(world.store.inbox.contains_key(&posted.id), "it is read again");
    world.shard.begin_read();
    let context = world.store.context(&tollgate_core::handle::MessageNeeds::of(&posted.control));
    world.shard.control(posted, context, world.now);
    world.settle();
    assert_eq!(state(&world, id), (RunState::Cancelled, 1, 0));
}
