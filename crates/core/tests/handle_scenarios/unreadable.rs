//! Runs whose specs cannot be read: marked, out of everybody's way, and taken in once they can be.

use tollgate_core::handle::change::Outcome;
use tollgate_core::handle::control::Control;
use tollgate_core::model::*;

use crate::handle_world::*;
use crate::world::*;

/// A run whose spec is not there.
fn without_spec(world: &mut World, s: &RunSpec, launch_us: i64) -> RunId {
    let emitted = run(s, launch_us, 3);
    let id = emitted.id;
    world.store.runs.insert(id, emitted);
    world.read_runs();
    id
}

#[test]
fn a_run_is_marked_and_goes_on_once_its_spec_can_be_read() {
    let mut world = World::new();
    let s = spec(10, None);
    let id = without_spec(&mut world, &s, START_US);
    assert_eq!(world.row(id).state, RunState::Unreadable);
    assert!(world.row(id).reason.contains("generation 1"), "{:?}", world.row(id));
    assert!(world.store.emitted(i64::MAX).0.is_empty(), "it is in nobody's way");
    world.read_runs();
    world.restart_after_s(1);
    assert_eq!((world.sends.len(), world.row(id).state), (0, RunState::Unreadable));
    world.store.specs.insert((s.schedule_uid, 1), s);
    world.read_runs();
    assert_eq!(world.work_off(), 3);
    assert_eq!((world.row(id).state, world.row(id).reason.as_str()), (RunState::Finished, ""));
}

#[test]
fn it_can_be_cancelled() {
    let mut world = World::new();
    let s = spec(10, None);
    let id = without_spec(&mut world, &s, START_US);
    world.tell(Control::CancelRun { run: id, reason: "enough".into() });
    assert_eq!(world.outcomes(id), [(0, 3, Outcome::Cancelled)]);
    assert_eq!((world.row(id).state, world.row(id).reason.as_str()), (RunState::Cancelled, "enough"));
    world.store.specs.insert((s.schedule_uid, 1), s);
    world.read_runs();
    assert_eq!((world.work_off(), world.shard.runs_held()), (0, 0));
}

#[test]
fn a_change_of_its_schedule_replaces_it() {
    let mut world = World::new();
    let s = spec(10, None);
    let (stays, goes) = (START_US + 10 * SECOND_US, START_US + 20 * SECOND_US);
    let (stays_id, goes_id) = (without_spec(&mut world, &s, stays), without_spec(&mut world, &s, goes));
    let next = RunSpec { generation: 2, ..s };
    world.store.specs.insert((next.schedule_uid, 2), next.clone());
    world.tell(Control::ScheduleChanged {
        schedule: fence(&next, START_US, START_US + MINUTE_US, vec![stays]),
        namespace: "default".into(),
        schedule_id: "s10".into(),
        policy_uid: None,
        onward: Vec::new(),
    });
    world.read_runs();
    assert!(!world.store.runs.contains_key(&goes_id), "withdrawn");
    world.sleep_s(30);
    assert_eq!(world.work_off(), 1);
    assert_eq!((world.row(stays_id).generation, world.row(stays_id).state), (2, RunState::Finished));
}
