//! A schedule whose policy lives in another shard moves there; what has started stays.

use tollgate_core::handle::change::ShardSchedule;
use tollgate_core::handle::control::{Control, Message};
use tollgate_core::handle::{MessageNeeds, Shard};
use tollgate_core::model::*;

use crate::change::{at, changed, keep, next};
use crate::handle_world::*;
use crate::world::*;

/// A policy of another shard: the schedule moves there.
fn moved(spec: &RunSpec, schedule: ShardSchedule) -> Control {
    on_the_way(spec, schedule, vec![1])
}

pub(crate) fn on_the_way(spec: &RunSpec, schedule: ShardSchedule, onward: Vec<u16>) -> Control {
    let Control::ScheduleChanged { schedule, namespace, schedule_id, policy_uid, .. } =
        changed(spec, schedule)
    else {
        unreachable!()
    };
    Control::ScheduleChanged { schedule, namespace, schedule_id, policy_uid, onward }
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
    assert_eq!(world.forwards.len(), 2);
    let (shard, schedule, onward) = forwarded(&world);
    assert_eq!((shard, onward), (1, Vec::new()));
    assert_eq!(schedule.launches_us, [at(2), at(3), at(4)], "the first has started and stays");
    // By a message of its own: the change may have been passed on before, in vain, and stays as it was then.
    assert_eq!(schedule.cursor, None);
    let (shard, left) = &world.forwards[0];
    assert!(
        matches!(&left.control, Control::CursorLeft { cursor, .. } if *shard == 1 && cursor == "c"),
        "{left:?}"
    );
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
    let context = world.store.context(&MessageNeeds::of(&message.control));
    world.shard.control(message, context, world.now);
    let first = world.shard.poll_commit(world.now).unwrap();
    assert!(first.changes.forwards.is_empty() && first.changes.inbox_done.is_empty());
    assert_eq!(first.changes.runs_withdrawn, [id]);
    world.store.apply(&first.changes);
    // The owner dies here: its successor finds the message again and hands over.
    world.shard = Shard::new(0, world.options.clone(), world.store.state(), 3, world.now);
    let message = world.store.inbox.values().next().cloned().unwrap();
    world.shard.begin_read();
    let context = world.store.context(&MessageNeeds::of(&message.control));
    world.shard.control(message.clone(), context, world.now);
    world.settle();
    assert_eq!(world.forwards.len(), 1);
    assert_eq!(world.forwards[0].1.id, message.id, "the same id, so that posting it twice changes nothing");
    assert!(world.store.inbox.is_empty());
    world.sleep_s(120);
    assert_eq!(world.sends.len(), 0);
}

/// What was passed on last: to which shard, what, and where it goes from there.
fn forwarded(world: &World) -> (u16, &ShardSchedule, Vec<u16>) {
    let (shard, message) = world.forwards.last().unwrap();
    let Control::ScheduleChanged { schedule, onward, .. } = &message.control else { panic!("{message:?}") };
    (*shard, schedule, onward.clone())
}

#[test]
fn each_shard_on_the_way_gives_up_and_tells_the_next_one() {
    let mut world = World::new();
    let s = spec(10, None);
    let cancelled = world.emit(run(&s, at(1), 2), &s);
    let waiting = world.emit(run(&s, at(2), 2), &s);
    world.tell(Control::CancelRun { run: cancelled, reason: String::new() });
    let (second, row) = next(&s, world.now, &[1, 2]);
    world.tell(on_the_way(&second, row, vec![2, 1]));
    let (shard, schedule, onward) = forwarded(&world);
    assert_eq!((shard, onward), (2, vec![1]));
    assert_eq!(schedule.launches_us, [at(2)], "a run that was cancelled before its time does not come again");
    assert!(!world.store.runs.contains_key(&waiting));
    // Later changes come by here, too, and go on without what has been here.
    world.restart_after_s(1);
    let (third, row) = next(&second, world.now, &[1, 2, 3]);
    world.tell(on_the_way(&third, row, vec![2, 1]));
    assert_eq!(forwarded(&world).1.launches_us, [at(2), at(3)]);
}

#[test]
fn a_shard_on_the_way_keeps_no_cursor_and_does_not_bring_back_an_old_one() {
    let mut world = World::new();
    let s = spec(10, Some(&policy(1, at_most(1))));
    world.tell(Control::PolicyChanged { policy: policy(1, at_most(1)) });
    world.emit(run(&s, START_US, 2), &s);
    let send = world.accept_all().remove(0);
    let (second, row) = next(&s, world.now, &[]);
    world.tell(moved(&second, row));
    assert_eq!(forwarded(&world).1.cursor, None);
    world.release(tollgate_core::handle::release::Release { cursor: Some("c".into()), ..done(&send) });
    let (shard, Message { control, .. }) = world.forwards.last().unwrap();
    let left =
        Control::CursorLeft { schedule_uid: s.schedule_uid, cursor: "c".into(), left_us: Some(START_US) };
    assert_eq!((*shard, control), (1, &left), "it goes to where the next run is");
    let (third, row) = next(&second, world.now, &[]);
    world.tell(moved(&third, row));
    assert_eq!(forwarded(&world).1.cursor, None);
}

#[test]
fn a_cursor_that_was_left_elsewhere_reaches_the_next_run() {
    let mut world = World::new();
    let s = spec(10, None);
    let (second, row) = next(&s, world.now, &[1]);
    keep(&mut world, &second);
    world.tell(changed(&second, row));
    world.tell(Control::CursorLeft { schedule_uid: s.schedule_uid, cursor: "c".into(), left_us: None });
    world.restart_after_s(61);
    assert_eq!(world.accept_all().remove(0).cursor.as_deref(), Some("c"));
}

#[test]
fn a_way_that_ends_where_it_was_overtaken_makes_no_run_twice() {
    let mut world = World::new();
    let s = spec(10, None);
    let (second, row_2) = next(&s, world.now, &[1, 2]);
    let (third, row_3) = next(&second, world.now, &[2]);
    keep(&mut world, &second);
    keep(&mut world, &third);
    world.tell(changed(&third, ShardSchedule { changed_us: row_3.changed_us + 1, ..row_3 }));
    // The schedule had been moved away before it came back.
    world.tell(moved(&second, row_2));
    assert_eq!(forwarded(&world).1.launches_us, [at(1)], "the other launch is here");
    assert_eq!(world.store.runs.len(), 1);
    assert_eq!(world.store.schedules[&s.schedule_uid].home, None, "it lives here all the same");
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

#[test]
fn schedules_that_move_at_once_go_with_one_commit() {
    let mut world = World::new();
    let specs: Vec<_> = (10..15).map(|number| spec(number, None)).collect();
    for s in &specs {
        world.emit(run(s, at(1), 2), s);
    }
    world.shard.begin_read();
    for s in &specs {
        let (new, row) = next(s, world.now, &[1]);
        let message = world.post(moved(&new, row));
        let context = world.store.context(&MessageNeeds::of(&message.control));
        world.shard.control(message, context, world.now);
    }
    let before = world.shard.commits();
    world.settle();
    assert_eq!((world.forwards.len(), world.shard.commits() - before), (5, 2));
}

#[test]
fn a_schedule_that_rests_goes_on_resting_where_it_goes() {
    let mut world = World::new();
    let s = RunSpec { overlap: OverlapRule::BufferOne, delay_after_finish_s: Some(90), ..spec(10, None) };
    world.emit(run(&s, START_US, 1), &s);
    assert_eq!(world.work_off(), 1);
    let (second, row) = next(&s, world.now, &[1]);
    keep(&mut world, &second);
    world.tell(moved(&second, row));
    let rest_until_us = START_US + 90 * SECOND_US;
    assert_eq!(forwarded(&world).1.rest_until_us, rest_until_us);
    let mut there = World::new();
    keep(&mut there, &second);
    there.tell(changed(&second, forwarded(&world).1.clone()));
    there.sleep_s(89);
    assert_eq!(there.sends.len(), 0);
    there.sleep_s(1);
    assert_eq!(there.take_sends().len(), 1);
}
