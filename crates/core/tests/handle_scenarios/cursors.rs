//! Cursors of a schedule that moves: of two, the one left later counts, whatever arrives first, and however often.

use tollgate_core::handle::change::ShardSchedule;
use tollgate_core::handle::control::{Control, Message};
use tollgate_core::handle::release::Release;
use tollgate_core::handle::{MessageNeeds, Send};
use tollgate_core::model::*;

use crate::change::{changed, next};
use crate::handle_world::*;
use crate::moves::on_the_way;
use crate::world::*;

fn leave(send: &Send, cursor: &str) -> Release {
    Release { cursor: Some(cursor.into()), ..done(send) }
}

/// A message gets into the world's inbox, and its owner reads it.
fn deliver(world: &mut World, message: &Message) {
    world.store.inbox.insert(message.id, message.clone());
    world.shard.begin_read();
    let context = world.store.context(&MessageNeeds::of(&message.control));
    world.shard.control(message.clone(), context, world.now);
    world.settle();
}

/// What the schedule's next run there gets.
fn kept(world: &World, spec: &RunSpec) -> Option<String> {
    world.store.schedules.get(&spec.schedule_uid).and_then(|row: &ShardSchedule| row.cursor.clone())
}

/// A shard gives the schedule up on this way, with one cursor; another run there leaves a second one while that is
/// being committed. What it has posted: the change, which carries the first cursor as those of versions before do, and the second
/// cursor.
fn given_up(s: &RunSpec, way: &[u16]) -> (Message, Message) {
    let p = policy(1, at_most(2));
    let mut world = World::with_policy(&p);
    world.emit(run(s, START_US, 2), s);
    let sends = world.accept_all();
    world.release(leave(&sends[0], "first"));
    world.sleep_s(1);
    let (second, row) = next(s, world.now, &[]);
    let message = world.post(on_the_way(&second, row, way.to_vec()));
    world.shard.begin_read();
    let context = world.store.context(&MessageNeeds::of(&message.control));
    world.shard.control(message, context, world.now);
    let first = world.shard.poll_commit(world.now).unwrap();
    assert!(first.changes.forwards.is_empty());
    assert_eq!(world.shard.release(leave(&sends[1], "second"), 42, world.now), None);
    world.store.apply(&first.changes);
    world.shard.committed(world.now);
    world.settle();
    let (mut change, mut left) = (None, Vec::new());
    for (shard, message) in world.forwards {
        match &message.control {
            Control::CursorLeft { .. } if shard == *way.last().unwrap() => left.push(message),
            Control::ScheduleChanged { .. } if shard == way[0] => change = Some(message),
            _ => panic!("{shard}: {message:?}"),
        }
    }
    // Whichever is told first: the one that was left later counts.
    left.sort_by_key(|message| match &message.control {
        Control::CursorLeft { left_us, .. } => *left_us,
        _ => None,
    });
    let (mut change, [first, second]) = (change.unwrap(), <[Message; 2]>::try_from(left).unwrap());
    if let Control::ScheduleChanged { schedule, .. } = &mut change.control
        && let Control::CursorLeft { cursor, left_us, .. } = first.control
    {
        (schedule.cursor, schedule.cursor_us) = (Some(cursor), left_us.unwrap());
    }
    (change, second)
}

#[test]
fn a_cursor_is_not_set_back_by_a_change_that_is_told_again() {
    let p = policy(1, at_most(2));
    let s = spec(10, Some(&p));
    let (change, left) = given_up(&s, &[1]);
    let mut world = World::with_policy(&p);
    world.sleep_s(2);
    let id = world.emit(run(&s, START_US, 1), &s);
    deliver(&mut world, &change);
    let send = world.accept_all().remove(0);
    assert_eq!(send.run, id);
    world.release(leave(&send, "third"));
    assert_eq!(kept(&world, &s).as_deref(), Some("third"));
    // Its commit had failed after it had been posted, or a former owner has thawed.
    for message in [&change, &left, &change] {
        deliver(&mut world, message);
        assert_eq!(kept(&world, &s).as_deref(), Some("third"), "{message:?}");
    }
}

#[test]
fn a_cursor_may_overtake_the_change_that_it_follows() {
    let p = policy(1, at_most(2));
    let s = spec(10, Some(&p));
    let (change, left) = given_up(&s, &[1]);
    for order in [[&left, &change], [&change, &left]] {
        let mut world = World::with_policy(&p);
        order.iter().for_each(|message| deliver(&mut world, message));
        assert_eq!(kept(&world, &s).as_deref(), Some("second"), "{order:?}");
        let second = RunSpec { generation: 2, ..s.clone() };
        world.emit(run(&second, START_US + MINUTE_US, 1), &second);
        world.sleep_s(60);
        assert_eq!(world.take_sends().remove(0).cursor.as_deref(), Some("second"));
    }
}

#[test]
fn a_cursor_overtakes_a_change_on_a_longer_way() {
    let p = policy(1, at_most(2));
    let s = spec(10, Some(&p));
    let (change, left) = given_up(&s, &[2, 1]);
    // The shard between has heard of the cursor first, as if the schedule lived there.
    let mut between = World::with_policy(&p);
    deliver(&mut between, &left);
    deliver(&mut between, &change);
    assert_eq!(kept(&between, &s), None);
    let passed_on = std::mem::take(&mut between.forwards);
    assert!(passed_on.iter().any(|(_, message)| message.id == change.id), "{passed_on:?}");
    let mut home = World::with_policy(&p);
    passed_on.iter().for_each(|(_, message)| deliver(&mut home, message));
    assert_eq!(kept(&home, &s).as_deref(), Some("second"));
}

#[test]
fn a_change_that_was_overtaken_brings_its_cursor_to_where_the_schedule_lives() {
    let p = policy(1, at_most(2));
    let s = spec(10, Some(&p));
    let (change, _) = given_up(&s, &[1]);
    let third = RunSpec { generation: 3, ..s.clone() };
    for (home, is_left) in [(None, false), (Some(2), false), (None, true)] {
        let mut world = World::with_policy(&p);
        world.sleep_s(2);
        let row = fence(&third, world.now.wall_us, world.now.wall_us, Vec::new());
        world.tell(home.map_or_else(
            || changed(&third, row.clone()),
            |home| on_the_way(&third, row.clone(), vec![home]),
        ));
        if is_left {
            let cursor = "third".to_owned();
            world.tell(Control::CursorLeft { schedule_uid: s.schedule_uid, cursor, left_us: None });
        }
        world.forwards.clear();
        deliver(&mut world, &change);
        let left = world.forwards.pop().map(|(shard, message)| (shard, message.control));
        let cursor = "first".to_owned();
        let onward = Control::CursorLeft { schedule_uid: s.schedule_uid, cursor, left_us: Some(START_US) };
        assert_eq!(left, home.map(|home| (home, onward)));
        let expected = if is_left { Some("third") } else { Some("first").filter(|_| home.is_none()) };
        assert_eq!(kept(&world, &s).as_deref(), expected);
    }
}

#[test]
fn a_cursor_comes_though_the_schedule_is_forgotten_and_not_though_it_is_deleted() {
    let mut world = World::new();
    let s = spec(10, None);
    let left = || Control::CursorLeft { schedule_uid: s.schedule_uid, cursor: "c".into(), left_us: None };
    let (second, row) = next(&s, world.now, &[]);
    world.tell(changed(&second, row));
    world.sleep_s(2 * 86_400);
    assert!(world.store.schedules.is_empty(), "nobody needs it any more");
    world.tell(left());
    assert_eq!(kept(&world, &s).as_deref(), Some("c"));
    world.restart_after_s(1);
    world.emit(run(&s, world.now.wall_us, 1), &s);
    assert_eq!(world.accept_all().remove(0).cursor.as_deref(), Some("c"));
    let (third, row) = next(&second, world.now, &[]);
    world.tell(changed(&third, ShardSchedule { deleted: true, until_us: 0, ..row }));
    world.tell(left());
    world.sleep_s(2 * 86_400);
    assert!(world.store.schedules.is_empty());
}
