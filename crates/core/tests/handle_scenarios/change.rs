//! Schedules that change inside the emitted horizon, cancels, and moves to another shard.

use tollgate_core::handle::MessageNeeds;
use tollgate_core::handle::change::{Outcome, ShardSchedule};
use tollgate_core::handle::control::Control;
use tollgate_core::model::*;

use crate::handle_world::*;
use crate::world::*;

const UNTIL_US: i64 = START_US + 5 * MINUTE_US;

pub(crate) fn at(minute: i64) -> i64 {
    START_US + minute * MINUTE_US
}

/// The generation after `spec`'s, which launches at these minutes of the emitted horizon.
pub(crate) fn next(spec: &RunSpec, now: Now, minutes: &[i64]) -> (RunSpec, ShardSchedule) {
    let new = RunSpec { generation: spec.generation + 1, ..spec.clone() };
    let row = fence(&new, now.wall_us, UNTIL_US, minutes.iter().map(|m| at(*m)).collect());
    (new, row)
}

pub(crate) fn changed(spec: &RunSpec, schedule: ShardSchedule) -> Control {
    Control::ScheduleChanged {
        schedule,
        namespace: "default".into(),
        schedule_id: spec.schedule_id.clone(),
        policy_uid: spec.policy_uid,
        onward: Vec::new(),
    }
}

pub(crate) fn keep(world: &mut World, spec: &RunSpec) {
    world.store.specs.insert((spec.schedule_uid, spec.generation), spec.clone());
}

#[test]
fn a_new_schedule_fires_inside_the_horizon_that_was_emitted_without_it() {
    let mut world = World::new();
    let s = spec(10, None);
    keep(&mut world, &s);
    world.tell(changed(&s, ShardSchedule { events: 3, ..fence(&s, START_US, UNTIL_US, vec![at(1), at(3)]) }));
    assert_eq!(world.store.runs.len(), 2);
    world.sleep_s(60);
    assert_eq!(world.work_off(), 3);
    // The emitter comes by as well.
    world.emit(run(&s, at(1), 3), &s);
    world.emit(run(&s, at(3), 3), &s);
    world.sleep_s(120);
    assert_eq!((world.work_off(), world.store.runs.len()), (3, 2));
}

#[test]
fn a_changed_schedule_withdraws_keeps_and_adds_runs() {
    let p = policy(1, at_most(1));
    let mut world = World::with_policy(&p);
    let s = spec(10, Some(&p));
    let gone = world.emit(run(&s, at(1), 3), &s);
    let kept = world.emit(run(&s, at(2), 3), &s);
    let (mut new, mut row) = next(&s, world.now, &[2, 4]);
    (new.policy_uid, new.payload.json, row.events, row.priority) = (None, "7".into(), 5, 8);
    keep(&mut world, &new);
    world.tell(changed(&new, row));
    assert!(!world.store.runs.contains_key(&gone));
    let run = world.row(kept);
    assert_eq!((run.generation, run.events, run.priority, run.policy_uid), (2, 5, 8, None));
    world.sleep_s(120);
    assert_eq!(world.sends[0].spec.payload.json, "7");
    assert_eq!(world.work_off(), 5);
    world.sleep_s(120);
    assert_eq!(world.work_off(), 5);
}

#[test]
fn what_has_started_or_fell_due_before_the_change_stays_as_it_was() {
    let p = policy(1, at_most(1));
    let mut world = World::with_policy(&p);
    let s = spec(10, Some(&p));
    let started = world.emit(run(&s, at(0), 2), &s);
    let due = world.emit(run(&s, at(1), 2), &s);
    world.sleep_s(60);
    let held = world.accept_all().remove(0);
    let (new, row) = next(&s, world.now, &[]);
    keep(&mut world, &new);
    world.tell(changed(&new, row));
    assert_eq!((world.row(started).generation, world.row(due).generation), (1, 1));
    world.succeed(&held);
    assert_eq!(world.work_off(), 3);
}

#[test]
fn a_stale_emission_after_the_change_is_dropped_or_put_right() {
    let mut world = World::new();
    let s = spec(10, None);
    let (new, row) = next(&s, world.now, &[2]);
    keep(&mut world, &new);
    world.tell(changed(&new, ShardSchedule { events: 4, ..row }));
    let gone = world.emit(run(&s, at(1), 3), &s);
    let kept = world.emit(run(&s, at(2), 3), &s);
    assert!(!world.store.runs.contains_key(&gone));
    assert_eq!((world.row(kept).generation, world.row(kept).events), (2, 4));
    world.restart_after_s(0);
    let gone = world.emit(run(&s, at(3), 3), &s);
    assert!(!world.store.runs.contains_key(&gone), "the fence outlives a restart");
    // What a later window has emitted is of the new generation.
    let later = world.emit(run(&new, UNTIL_US + MINUTE_US, 3), &new);
    assert_eq!(world.row(later).state, RunState::Waiting);
}

#[test]
fn an_emission_that_overtakes_its_message_is_taken_as_it_is() {
    let mut world = World::new();
    let s = spec(10, None);
    let (new, row) = next(&s, world.now, &[1]);
    let id = world.emit(run(&new, at(1), 1), &new);
    world.tell(changed(&new, row));
    assert_eq!(world.row(id).state, RunState::Waiting);
    world.sleep_s(60);
    assert_eq!(world.work_off(), 1);
}

#[test]
fn generations_out_of_order_leave_the_newest() {
    let mut world = World::new();
    let s = spec(10, None);
    let (second, row_2) = next(&s, world.now, &[1, 2, 3]);
    world.sleep_s(90);
    let (third, row_3) = next(&second, world.now, &[4]);
    keep(&mut world, &second);
    keep(&mut world, &third);
    world.tell(changed(&third, row_3));
    world.tell(changed(&second, row_2));
    let launches: Vec<_> = world.store.runs.values().map(|r| (r.launch_us, r.generation)).collect();
    assert_eq!(launches, [(at(1), 2), (at(4), 3)], "the second generation fired until the third came");
    assert_eq!(world.work_off(), 1);
}

#[test]
fn a_late_word_of_an_overtaken_generation_leaves_what_the_next_ones_emitter_handed_over() {
    let mut world = World::new();
    let s = spec(10, None);
    let (second, row_2) = next(&s, world.now, &[1, 2]);
    world.sleep_s(1);
    let (third, row_3) = next(&second, world.now, &[]);
    keep(&mut world, &second);
    keep(&mut world, &third);
    // The third generation was told before the window was opened, the second after it.
    let unread = run(&third, at(2), 2);
    world.store.emit(unread.clone(), &third);
    world.tell(changed(&second, row_2));
    world.tell(changed(&third, ShardSchedule { until_us: row_3.changed_us, ..row_3 }));
    world.read_runs();
    let launches: Vec<_> = world.store.runs.values().map(|r| (r.id, r.generation)).collect();
    assert_eq!(launches, [(unread.id, 3)]);
}

#[test]
fn a_deleted_schedule_fires_no_more_and_cancels_what_waits() {
    let p = policy(1, at_most(1));
    let mut world = World::with_policy(&p);
    let s = spec(10, Some(&p));
    let running = world.emit(run(&s, at(0), 3), &s);
    let upcoming = world.emit(run(&s, at(1), 3), &s);
    let held = world.accept_all().remove(0);
    let (new, row) = next(&s, world.now, &[]);
    world.tell(changed(&new, ShardSchedule { deleted: true, ..row }));
    assert!(!world.store.runs.contains_key(&upcoming));
    assert_eq!(world.outcomes(running), [(1, 2, Outcome::Cancelled)]);
    assert_eq!(world.row(running).reason, "its schedule was deleted");
    world.succeed(&held);
    assert_eq!(world.row(running).state, RunState::Cancelled);
    let stale = world.emit(run(&s, at(2), 3), &s);
    assert!(!world.store.runs.contains_key(&stale));
    world.sleep_s(600);
    assert_eq!(world.sends.len(), 0);
}

#[test]
fn what_fell_due_before_its_schedule_was_deleted_ends_in_a_recorded_state() {
    let mut world = World::new();
    let s = spec(10, None);
    world.sleep_s(90);
    let (new, row) = next(&s, world.now, &[]);
    world.tell(changed(&new, ShardSchedule { deleted: true, ..row }));
    // The owner reads them only now.
    let due = world.emit(run(&s, at(1), 3), &s);
    let manual = world.emit(Run { kind: RunKind::Manual, ..run(&s, at(2), 2) }, &s);
    for (id, events) in [(due, 3), (manual, 2)] {
        assert_eq!(world.row(id).state, RunState::Cancelled);
        assert_eq!(world.outcomes(id), [(0, events, Outcome::Cancelled)]);
    }
    assert_eq!(world.sends.len(), 0);
}

#[test]
fn a_run_keeps_the_window_of_its_own_generation() {
    let p = policy(1, at_most(1));
    let mut world = World::with_policy(&p);
    let blocker = spec(11, Some(&p));
    world.emit(run(&blocker, START_US, 1), &blocker);
    let held = world.accept_all().remove(0);
    world.extend((held.run, 0), None, Some(3_600_000));
    let s = RunSpec { finish_by_s: Some(30), ..spec(10, Some(&p)) };
    let id = world.emit(run(&s, START_US + 1, 2), &s);
    let (mut new, row) = next(&s, world.now, &[]);
    new.finish_by_s = Some(300);
    keep(&mut world, &new);
    world.sleep_s(10);
    world.tell(changed(&new, ShardSchedule { launches_us: vec![START_US + 1], ..row }));
    world.sleep_s(60);
    assert_eq!(world.row(id).state, RunState::Waiting);
    world.sleep_s(240);
    assert_eq!(world.row(id).counts.expired, 1, "the new window has ended");
}

#[test]
fn a_change_read_before_a_run_of_it_was_made_does_not_make_it_twice() {
    let mut world = World::new();
    let s = spec(10, None);
    let (second, row_2) = next(&s, world.now, &[1]);
    let (third, row_3) = next(&second, world.now, &[1]);
    keep(&mut world, &second);
    keep(&mut world, &third);
    let (two, three) = (world.post(changed(&second, row_2)), world.post(changed(&third, row_3)));
    world.shard.begin_read();
    let contexts = [&two, &three].map(|m| world.store.context(&MessageNeeds::of(&m.control)));
    let [of_two, of_three] = contexts;
    world.shard.control(two, of_two, world.now);
    world.settle();
    world.sleep_s(60);
    assert_eq!(world.work_off(), 1);
    world.shard.control(three, of_three, world.now);
    world.settle();
    world.sleep_s(60);
    assert_eq!(world.work_off(), 0, "the run of that launch time has been");
}

#[test]
fn a_cancel_reaches_upcoming_unread_and_running_runs() {
    let mut world = World::new();
    let s = spec(10, None);
    let upcoming = world.emit(run(&s, at(1), 3), &s);
    world.tell(Control::CancelRun { run: upcoming, reason: "no".into() });
    assert_eq!((world.row(upcoming).state, world.row(upcoming).counts.cancelled), (RunState::Cancelled, 3));
    let unread = run(&s, at(2), 3);
    world.store.emit(unread.clone(), &s);
    world.tell(Control::CancelRun { run: unread.id, reason: "no".into() });
    assert_eq!(world.row(unread.id).state, RunState::Cancelled);
    world.tell(Control::CancelRun { run: unread.id, reason: "again".into() });
    assert_eq!(world.row(unread.id).reason, "no");
    world.sleep_s(600);
    assert_eq!((world.sends.len(), world.shard.runs_held()), (0, 0));
}

#[test]
fn a_cancel_of_a_run_that_a_change_withdraws_leaves_no_row() {
    for adopted in [true, false] {
        let mut world = World::new();
        let s = spec(10, None);
        let (new, row) = next(&s, world.now, &[3]);
        keep(&mut world, &new);
        let upcoming = run(&s, at(2), 3);
        world.store.emit(upcoming.clone(), &s);
        let cancel = Control::CancelRun { run: upcoming.id, reason: "no".into() };
        let messages = [changed(&new, row), cancel].map(|control| world.post(control));
        world.shard.begin_read();
        let read = messages.map(|message| {
            let context = world.store.context(&MessageNeeds::of(&message.control));
            (message, context)
        });
        if adopted {
            world.shard.adopt(vec![upcoming.clone()], vec![s.clone()], world.now);
        }
        for (message, context) in read {
            world.shard.control(message, context, world.now);
        }
        world.settle();
        assert!(!world.store.runs.contains_key(&upcoming.id), "{adopted}");
        world.sleep_s(600);
        assert_eq!(world.sends.len(), 1, "the run of the new generation");
    }
}

#[test]
fn many_changes_in_any_order_leave_each_generation_its_own_time() {
    let generations = |order: [usize; 3]| {
        let mut world = World::new();
        let s = spec(10, None);
        let mut messages = Vec::new();
        let mut latest = s.clone();
        for minutes in [&[1_i64, 2, 3, 4][..], &[2, 3], &[3, 4]] {
            let (new, row) = next(&latest, world.now, minutes);
            keep(&mut world, &new);
            messages.push(changed(&new, row));
            latest = new;
            world.now.wall_us += 80 * SECOND_US;
            world.now.mono_us += 80 * SECOND_US;
        }
        // An emitter of the first generation was slow.
        world.store.emit(run(&s, at(2), 1), &s);
        world.store.emit(run(&s, at(4), 1), &s);
        let posted: Vec<_> = order.iter().map(|i| world.post(messages[*i].clone())).collect();
        world.shard.begin_read();
        for message in posted {
            let context = world.store.context(&MessageNeeds::of(&message.control));
            world.shard.control(message, context, world.now);
        }
        world.settle();
        world.read_runs();
        world.work_off();
        world.sleep_s(600);
        world.work_off();
        world.store.runs.values().map(|r| (r.launch_us, r.generation, r.state)).collect::<Vec<_>>()
    };
    // The second generation held from minute 0 to 1:20, the third to 2:40, and the fourth from then on.
    let expected =
        [(at(1), 2, RunState::Finished), (at(2), 3, RunState::Finished), (at(3), 4, RunState::Finished)];
    let expected = [&expected[..], &[(at(4), 4, RunState::Finished)]].concat();
    for order in [[0, 1, 2], [0, 2, 1], [1, 0, 2], [1, 2, 0], [2, 0, 1], [2, 1, 0]] {
        assert_eq!(generations(order), expected, "{order:?}");
    }
}

#[test]
fn a_stale_emission_is_measured_by_the_next_generation_not_by_the_latest() {
    let mut world = World::new();
    let s = spec(10, None);
    let (second, row) = next(&s, world.now, &[]);
    keep(&mut world, &second);
    world.tell(changed(&second, row));
    world.sleep_s(90);
    let (third, row) = next(&second, world.now, &[4]);
    keep(&mut world, &third);
    world.tell(changed(&third, row));
    // It was read before both changes, and falls between them.
    let stale = world.emit(run(&s, at(1), 1), &s);
    assert!(!world.store.runs.contains_key(&stale));
    assert_eq!(world.work_off(), 0);
    world.restart_after_s(0);
    world.emit(run(&s, at(1), 1), &s);
    assert_eq!(world.work_off(), 0, "nor after a restart");
}

#[test]
fn specs_that_no_run_needs_are_forgotten() {
    let mut world = World::new();
    let long = "x".repeat(1000);
    for schedule in 0..500_u128 {
        let s = RunSpec { payload: Payload::of(long.clone()), ..spec(1000 + schedule, None) };
        world.emit(run(&s, START_US, 1), &s);
        // The delivery, which holds the spec, lasts longer than the run.
        world.work_off();
    }
    world.shard.begin_read();
    let kept = format!("{:?}", world.shard).matches(&long).count();
    assert!(kept < 200, "{kept} of 500 specs are kept");
}

#[test]
fn what_was_changed_is_forgotten_a_day_later_and_its_spec_at_once() {
    let mut world = World::new();
    for number in 0..500 {
        let s = RunSpec { generation: 2, ..spec(1_000 + number, None) };
        world.store.specs.insert((s.schedule_uid, 2), s.clone());
        let mut row = fence(&s, world.now.wall_us, world.now.wall_us + MINUTE_US, Vec::new());
        row.generation = 2;
        // Of some, the next run needs something.
        match number {
            0 => row.pause = Some(pause()),
            1 => row.cursor = Some("page 7".to_owned()),
            _ => {}
        }
        world.tell(Control::ScheduleChanged {
            schedule: row,
            namespace: "default".into(),
            schedule_id: s.schedule_id,
            policy_uid: None,
            onward: Vec::new(),
        });
    }
    world.shard.begin_read();
    let remembered = world.shard.remembered();
    assert_eq!((remembered.schedules, remembered.specs), (500, 0));
    world.restart_after_s(1);
    assert_eq!(world.shard.remembered().specs, 0);
    world.sleep_s(86_400 + 120);
    world.flush();
    assert_eq!((world.shard.remembered().schedules, world.store.schedules.len()), (2, 2));
}

#[test]
fn a_stale_run_that_comes_late_brings_the_spec_of_the_current_generation() {
    let mut world = World::new();
    let (old, new) = (spec(10, None), RunSpec { generation: 2, finish_by_s: Some(600), ..spec(10, None) });
    world.store.specs.insert((new.schedule_uid, 2), new.clone());
    let launch_us = START_US + 10 * SECOND_US;
    let mut row = fence(&new, START_US, START_US + MINUTE_US, vec![launch_us]);
    (row.generation, row.events) = (2, 4);
    // The message came before the run, whose emitter was late; the run it made itself is known.
    world.tell(Control::ScheduleChanged {
        schedule: row,
        namespace: "default".into(),
        schedule_id: "s10".into(),
        policy_uid: None,
        onward: Vec::new(),
    });
    world.sleep_s(20);
    assert_eq!(world.work_off(), 4);
    world.shard.begin_read();
    assert_eq!(world.shard.remembered().specs, 0);
    let late_us = START_US + 30 * SECOND_US;
    let mut row = world.store.schedules[&new.schedule_uid].clone();
    row.launches_us.push(late_us);
    world.store.schedules.insert(row.uid, row);
    world.restart_after_s(0);
    let id = world.emit(run(&old, late_us, 1), &old);
    world.sleep_s(40);
    assert_eq!((world.work_off(), world.row(id).generation), (4, 2));
}
