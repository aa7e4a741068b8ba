//! Runs that start at their schedule's own moment after the launch time: what goes by which of the two.

use tollgate_core::handle::change::{Outcome, ShardSchedule};
use tollgate_core::model::*;

use crate::change::{at, changed, keep, next};
use crate::handle_world::*;
use crate::world::*;

/// A spec whose runs start some minutes late, and by how much.
fn delayed(events: u32) -> (RunSpec, i64) {
    let s = RunSpec { start_within_s: Some(600), ..spec(10, None) };
    let delay_us = s.start_delay_us(&run(&s, START_US, events));
    assert!((MINUTE_US..600 * SECOND_US).contains(&delay_us), "{delay_us}");
    (s, delay_us)
}

#[test]
fn a_run_starts_after_its_delay_and_not_before() {
    let (s, delay_us) = delayed(2);
    let mut world = World::new();
    let id = world.emit(run(&s, START_US, 2), &s);
    assert_eq!(world.row(id).id, RunId::derive(s.schedule_uid, START_US), "its id is of the launch time");
    world.sleep_us(delay_us - 1);
    assert_eq!(world.sends.len(), 0);
    // An owner that takes over in between waits as well.
    world.restart_after_s(0);
    assert_eq!(world.sends.len(), 0);
    world.sleep_us(1);
    let sends = world.accept_all();
    assert_eq!(sends.iter().map(|send| send.launch_us).collect::<Vec<_>>(), [START_US + delay_us; 2]);
    assert_eq!(world.row(id).started_us, Some(START_US + delay_us));
}

#[test]
fn a_spread_begins_at_the_delay() {
    let (mut s, delay_us) = delayed(2);
    s.spread_s = Some(60);
    let mut world = World::new();
    world.emit(run(&s, START_US, 2), &s);
    world.sleep_us(delay_us);
    assert_eq!(world.accept_all().len(), 1);
    world.sleep_us(30 * SECOND_US - 1);
    assert_eq!(world.sends.len(), 0);
    world.sleep_us(1);
    assert_eq!(world.accept_all()[0].launch_us, START_US + delay_us + 30 * SECOND_US);
}

#[test]
fn the_only_event_of_a_run_has_its_place_in_the_spread() {
    let s = RunSpec { spread_s: Some(600), ..spec(10, None) };
    let delay_us = s.start_delay_us(&run(&s, START_US, 1));
    assert!(delay_us > 0);
    let mut world = World::new();
    world.emit(run(&s, START_US, 1), &s);
    world.sleep_us(delay_us - 1);
    assert_eq!(world.sends.len(), 0);
    world.sleep_us(1);
    assert_eq!(world.accept_all().len(), 1);
}

#[test]
fn what_a_user_starts_starts_now_and_a_backfill_as_its_launch_time_says() {
    let (s, delay_us) = delayed(1);
    let mut world = World::new();
    world.emit(Run { kind: RunKind::Manual, ..run(&s, START_US, 1) }, &s);
    assert_eq!(world.accept_all().len(), 1);
    let late = RunSpec { schedule_uid: uuid::Uuid::from_u128(10), ..s };
    world.emit(Run { kind: RunKind::Backfill, ..run(&late, START_US - MINUTE_US, 1) }, &late);
    assert_eq!(world.sends.len(), 0);
    world.sleep_us(delay_us - MINUTE_US);
    assert_eq!(world.accept_all().len(), 1);
}

/// The window counts from the launch time: what is over before the run starts leaves nothing to start.
#[test]
fn finish_by_goes_by_the_launch_time() {
    for (after_us, outcome) in [(-SECOND_US, Outcome::Expired), (SECOND_US, Outcome::Succeeded)] {
        let (mut s, delay_us) = delayed(1);
        s.finish_by_s = Some((delay_us + after_us).div_euclid(SECOND_US));
        let mut world = World::new();
        let id = world.emit(run(&s, START_US, 1), &s);
        world.sleep_us(delay_us + 2 * SECOND_US);
        world.work_off();
        assert_eq!(world.outcomes(id), [(0, 1, outcome)]);
    }
}

/// Whether a run overlaps another is decided when it starts.
#[test]
fn overlap_goes_by_the_start() {
    let (mut s, delay_us) = delayed(1);
    s.overlap = OverlapRule::Skip;
    let mut world = World::new();
    let first = world.emit(run(&s, START_US, 1), &s);
    let second = world.emit(run(&s, at(1), 1), &s);
    world.sleep_us(delay_us + MINUTE_US - SECOND_US);
    let held = world.accept_all();
    assert_eq!((held.len(), world.row(second).state), (1, RunState::Waiting));
    world.succeed(&held[0]);
    world.sleep_us(SECOND_US);
    assert_eq!((world.accept_all().len(), world.row(first).state), (1, RunState::Finished));
}

/// Between its launch time and its start a run is as its schedule was at the launch time; a pause holds it, a deletion ends
/// it.
#[test]
fn a_change_in_between_leaves_the_run_a_pause_holds_it_and_a_deletion_ends_it() {
    let (s, delay_us) = delayed(1);
    let mut world = World::new();
    let id = world.emit(run(&s, START_US, 1), &s);
    let upcoming = world.emit(run(&s, at(1), 1), &s);
    world.sleep_s(10);
    let (mut sooner, row) = next(&s, world.now, &[1]);
    sooner.start_within_s = None;
    keep(&mut world, &sooner);
    world.tell(changed(&sooner, row));
    assert_eq!((world.row(id).generation, world.row(upcoming).generation), (1, 2));
    world.sleep_s(50);
    let sends = world.accept_all();
    assert_eq!(sends.iter().map(|send| send.run).collect::<Vec<_>>(), [upcoming], "without its delay");
    world.succeed(&sends[0]);
    let (paused, row) = next(&sooner, world.now, &[]);
    keep(&mut world, &paused);
    world.tell(changed(&paused, ShardSchedule { pause: Some(pause()), ..row }));
    world.sleep_us(delay_us);
    assert_eq!(world.sends.len(), 0);
    let (resumed, row) = next(&paused, world.now, &[]);
    keep(&mut world, &resumed);
    world.tell(changed(&resumed, row));
    assert_eq!(world.accept_all().iter().map(|send| send.run).collect::<Vec<_>>(), [id]);

    let mut world = World::new();
    let id = world.emit(run(&s, START_US, 1), &s);
    world.sleep_s(10);
    let (gone, row) = next(&s, world.now, &[]);
    world.tell(changed(&gone, ShardSchedule { deleted: true, ..row }));
    assert_eq!(world.outcomes(id), [(0, 1, Outcome::Cancelled)]);
}
