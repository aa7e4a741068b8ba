//! A schedule whose policy lives in another shard moves there; what has started stays.

use tollgate_core::handle::change::ShardSchedule;
use tollgate_core::handle::control::{Control, Message};
use tollgate_core::handle::{Needs, Shard};
use tollgate_core::model::*;

use crate::change::{at, changed, keep, next};
use crate::handle_world::*;
use crate::world::*;

/// A policy of another shard: the schedule moves there.
fn moved(spec: &RunSpec, schedule: ShardSchedule) -> Control {
    let Control::ScheduleChanged { schedule, namespace, schedule_id, policy_uid, .. } =
        changed(spec, schedule)
    else {
        unreachable!()
    };
    Control::ScheduleChanged { schedule, namespace, schedule_id, policy_uid, moved_to: Some(1) }
}

#[test]
fn a_moved_schedule_hands_over_what_has_not_started() {
    let p = policy(1, at_most(1));
    let mut world = World::with_policy(&p);
    let s = spec(10, Some(&p));
    let started = world.emit(run(&s, at(1), 2), &s);
    let waiting = world.emit(run(&s, at(2), 2), &s);
    let unread = run(&s, at(3), 2);
    world.store.emit(unread.clone(), &s);
    let changed_us = world.now;
    world.sleep_s(61);
    let send = world.accept_all().remove(0);
    let (new, row) = next(&s, changed_us, &[1, 2, 3, 4]);
    keep(&mut world, &new);
    world.release(tollgate_core::handle::release::Release { cursor: Some("c".into()), ..done(&send) });
    world.tell(moved(&new, row));
    assert_eq!(world.forwards.len(), 1);
    let (shard, Message { control: Control::ScheduleChanged { schedule, moved_to, .. }, .. }) =
        &world.forwards[0]
    else {
        panic!("{:?}", world.forwards)
    };
    assert_eq!((*shard, *moved_to), (1, None));
    assert_eq!(schedule.launches_us, [at(2), at(3), at(4)], "the first has started and stays");
    assert_eq!(schedule.cursor.as_deref(), Some("c"));
    assert!(!world.store.runs.contains_key(&waiting));
    world.read_runs();
    assert!(!world.store.runs.contains_key(&unread.id), "an emission to the old shard is dropped");
    assert_eq!(world.work_off(), 1);
    assert_eq!(world.row(started).state, RunState::Finished);
    assert!(world.store.inbox.is_empty());
}

#[test]
fn nothing_is_handed_over_before_it_is_durable_that_it_will_not_start_here() {
    let mut world = World::new();
    let s = spec(10, None);
    let id = world.emit(run(&s, at(1), 2), &s);
    let (new, row) = next(&s, world.now, &[1]);
    let message = world.post(moved(&new, row));
    world.shard.begin_read();
    let context = world.store.context(&Needs::of(&message.control));
    world.shard.control(message, context, world.now);
    let first = world.shard.poll_commit(world.now).unwrap();
    assert!(first.changes.forwards.is_empty() && first.changes.inbox_done.is_empty());
    assert_eq!(first.changes.runs_withdrawn, [id]);
    world.store.apply(&first.changes);
    // The owner dies here: its successor finds the message again and hands over.
    world.shard = Shard::new(0, world.options.clone(), world.store.state(), 3, world.now);
    let message = world.store.inbox.values().next().cloned().unwrap();
    world.shard.begin_read();
    let context = world.store.context(&Needs::of(&message.control));
    world.shard.control(message.clone(), context, world.now);
    world.settle();
    assert_eq!(world.forwards.len(), 1);
    assert_eq!(world.forwards[0].1.id, message.id, "the same id, so that posting it twice changes nothing");
    assert!(world.store.inbox.is_empty());
    world.sleep_s(120);
    assert_eq!(world.sends.len(), 0);
}

/// What was forwarded last: to which shard, and the message.
fn forwarded(world: &World) -> (u16, &Message, &ShardSchedule, Option<u16>) {
    let (shard, message) = world.forwards.last().unwrap();
    let Control::ScheduleChanged { schedule, moved_to, .. } = &message.control else { panic!("{message:?}") };
    (*shard, message, schedule, *moved_to)
}

#[test]
fn a_shard_that_takes_a_schedule_over_tells_the_former_one_of_later_changes() {
    let mut world = World::new();
    let s = spec(10, None);
    let (second, row) = next(&s, world.now, &[1]);
    keep(&mut world, &second);
    // What shard 1 hands over.
    world.tell(changed(&second, ShardSchedule { former: vec![0, 1], ..row }));
    assert!(world.forwards.is_empty());
    world.restart_after_s(1);
    let (third, row) = next(&second, world.now, &[1]);
    keep(&mut world, &third);
    world.tell(changed(&third, ShardSchedule { pause: Some(pause()), ..row }));
    let (shard, message, schedule, moved_to) = forwarded(&world);
    assert_eq!((shard, moved_to, schedule.generation), (1, Some(0), 3));
    assert_eq!((schedule.pause.as_ref(), schedule.launches_us.len()), (Some(&pause()), 0));
    // It answers with the same message, which changes nothing.
    let before = world.store.clone();
    let echo = Message {
        id: message.id,
        control: changed(&third, ShardSchedule { former: vec![1], ..schedule.clone() }),
    };
    world.store.inbox.insert(echo.id, echo.clone());
    world.shard.begin_read();
    world.shard.control(echo, tollgate_core::handle::Context::default(), world.now);
    world.settle();
    assert_eq!((world.store.runs, world.forwards.len()), (before.runs, 1));
}

#[test]
fn a_hand_over_that_was_overtaken_still_tells_the_former_shard() {
    let mut world = World::new();
    let s = spec(10, None);
    let (second, row_2) = next(&s, world.now, &[]);
    let (third, row_3) = next(&second, world.now, &[]);
    world.tell(changed(&third, ShardSchedule { deleted: true, changed_us: row_3.changed_us + 1, ..row_3 }));
    world.tell(changed(&second, ShardSchedule { former: vec![1], ..row_2 }));
    let (shard, _, schedule, moved_to) = forwarded(&world);
    assert_eq!((shard, moved_to, schedule.generation, schedule.deleted), (1, Some(0), 3, true));
}

#[test]
fn what_stayed_behind_is_paused_resumed_and_cancelled_with_its_schedule() {
    let p = policy(1, at_most(1));
    let mut world = World::with_policy(&p);
    let s = spec(10, Some(&p));
    let id = world.emit(run(&s, START_US, 5), &s);
    let send = world.accept_all().remove(0);
    let (second, row) = next(&s, world.now, &[]);
    world.tell(moved(&second, ShardSchedule { pause: Some(pause()), ..row }));
    world.succeed(&send);
    assert_eq!(world.sends.len(), 0);
    world.sleep_s(1);
    let (third, row) = next(&second, world.now, &[]);
    world.tell(moved(&third, row));
    let send = world.accept_all().remove(0);
    assert_eq!((send.run, send.index), (id, 1), "resumed");
    world.sleep_s(1);
    let (fourth, row) = next(&third, world.now, &[]);
    world.tell(moved(&fourth, ShardSchedule { deleted: true, ..row }));
    world.succeed(&send);
    assert_eq!(world.row(id).state, RunState::Cancelled);
    assert_eq!(world.row(id).counts, Counts { succeeded: 2, cancelled: 3, ..Counts::default() });
}
