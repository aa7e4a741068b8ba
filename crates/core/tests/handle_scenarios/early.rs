//! Tokens taken a moment before the launch time: that the sends wait for it, and who must not take them.

use tollgate_core::handle::Options;
use tollgate_core::handle::change::{Outcome, TokenState};
use tollgate_core::handle::control::Control;
use tollgate_core::model::*;

use crate::handle_world::*;
use crate::world::*;

/// The last tick of 20 ms that lies 8 ms before.
const EARLY_US: i64 = 20_000;
const LAUNCH_US: i64 = START_US + 10 * SECOND_US;

/// To the moment at which tokens may be taken for `LAUNCH_US`.
fn sleep_until_early(world: &mut World) {
    assert_eq!((world.options.early_us, world.options.lazy_us), (8_000, EARLY_US));
    world.sleep_us(10 * SECOND_US - EARLY_US);
}

#[test]
fn what_is_acquired_early_is_sent_at_the_launch_time_without_a_commit() {
    let p = policy(1, at_most(10));
    let mut world = World::with_policy(&p);
    let s = spec(10, Some(&p));
    let id = world.emit(run(&s, LAUNCH_US, 2), &s);
    world.sleep_us(10 * SECOND_US - EARLY_US - 1);
    assert_eq!((world.held(&p), world.row(id).state), (0, RunState::Waiting));
    world.sleep_us(1);
    assert_eq!((world.sends.len(), world.held(&p), world.row(id).state), (0, 2, RunState::Running));
    assert_eq!(world.row(id).started_us, Some(LAUNCH_US), "people see when it could start");
    let deadline = world.shard.next_deadline();
    assert_eq!(deadline.due_us, Some(LAUNCH_US));
    // A commit under way for something else does not hold it up.
    let other = spec(11, Some(&p));
    world.store.emit(run(&other, START_US, 1), &other);
    world.shard.adopt(vec![run(&other, START_US, 1)], vec![other], world.now);
    assert!(world.shard.poll_commit(world.now).is_some());
    assert_eq!(world.shard.next_deadline().due_us, Some(LAUNCH_US));
    let launch = Now { wall_us: LAUNCH_US, mono_us: world.now.mono_us + EARLY_US };
    assert!(world.shard.due(Now { wall_us: LAUNCH_US - 1, ..launch }).is_empty());
    assert_eq!(world.shard.due(launch).len(), 2);
    assert!(world.shard.due(launch).is_empty(), "once");
}

#[test]
fn those_of_one_tick_take_their_tokens_in_one_commit() {
    let p = policy(1, at_most(100));
    let mut world = World::with_policy(&p);
    for (schedule, after_us) in (10..).zip((8_000..28_000).step_by(2_000)) {
        let s = spec(schedule, Some(&p));
        world.emit(run(&s, LAUNCH_US + after_us, 1), &s);
    }
    world.sleep_us(9 * SECOND_US);
    let before = world.shard.commits();
    world.sleep_us(SECOND_US - 1);
    assert_eq!((world.held(&p), world.shard.commits()), (0, before));
    world.sleep_us(1);
    assert_eq!((world.held(&p), world.shard.commits()), (10, before + 1));
    world.sleep_us(26_000);
    assert_eq!((world.take_sends().len(), world.shard.commits()), (10, before + 1), "sent from memory");
}

#[test]
fn what_is_due_finds_half_of_the_tokens() {
    let p = policy(1, at_most(10));
    let mut world = World::with_policy(&p);
    let ids: Vec<RunId> = (0..8)
        .map(|n| {
            let s = spec(10 + n, Some(&p));
            world.emit(run(&s, LAUNCH_US, 1), &s)
        })
        .collect();
    sleep_until_early(&mut world);
    assert_eq!(world.held(&p), 5);
    let due = spec(30, Some(&p));
    let now_us = world.now.wall_us;
    world.emit(run(&due, now_us, 5), &due);
    assert_eq!((world.take_sends().len(), world.held(&p)), (5, 10));
    world.sleep_us(EARLY_US);
    assert_eq!(world.take_sends().len(), 5, "the other three wait for a token");
    assert_eq!(ids.iter().filter(|id| world.row(**id).state == RunState::Running).count(), 5);
}

#[test]
fn nobody_goes_early_who_has_to_ask_then() {
    let p = policy(1, at_most(10));
    let rated = policy(2, Limits { max_in_flight: None, rate_per_s: Some(1000.0), burst: Some(1000) });
    let mut world = World::with(Options::default(), vec![p.clone(), rated.clone()]);
    // A run before it is unfinished, and may be finished by then.
    let mut overlapping = spec(10, Some(&p));
    overlapping.overlap = OverlapRule::Skip;
    let before = world.emit(run(&overlapping, START_US, 1), &overlapping);
    let sends = world.accept_all();
    assert_eq!((sends.len(), sends[0].run), (1, before));
    let mut waiting = vec![world.emit(run(&overlapping, LAUNCH_US, 1), &overlapping)];
    let large = spec(11, Some(&p));
    waiting.push(world.emit(run(&large, LAUNCH_US, 6), &large));
    let of_a_rate = spec(12, Some(&rated));
    waiting.push(world.emit(run(&of_a_rate, LAUNCH_US, 1), &of_a_rate));
    sleep_until_early(&mut world);
    assert!(waiting.iter().all(|id| world.row(*id).state == RunState::Waiting));
    world.succeed(&sends[0]);
    world.sleep_us(EARLY_US);
    assert!(waiting.iter().all(|id| world.row(*id).state == RunState::Running));
}

#[test]
fn of_a_spread_each_event_goes_early_by_itself() {
    let p = policy(1, at_most(10));
    let mut world = World::with_policy(&p);
    let mut s = spec(10, Some(&p));
    s.spread_s = Some(60);
    let id = world.emit(run(&s, LAUNCH_US, 2), &s);
    sleep_until_early(&mut world);
    assert_eq!((world.take_sends().len(), world.row(id).next_index), (0, 1));
    world.sleep_us(EARLY_US);
    assert_eq!((world.take_sends().len(), world.row(id).next_index), (1, 1));
    world.sleep_us(30 * SECOND_US - EARLY_US - 1);
    assert_eq!(world.row(id).next_index, 1);
    world.sleep_us(1);
    assert_eq!((world.take_sends().len(), world.row(id).next_index), (0, 2));
    world.sleep_us(EARLY_US);
    assert_eq!(world.take_sends().iter().map(|send| send.index).collect::<Vec<_>>(), [1]);
}

#[test]
fn what_falls_due_after_its_window_does_not_go_early() {
    let p = policy(1, at_most(10));
    let mut world = World::with_policy(&p);
    let mut s = spec(10, Some(&p));
    (s.spread_s, s.finish_by_s) = (Some(60), Some(30));
    let id = world.emit(run(&s, LAUNCH_US, 3), &s);
    world.sleep_s(10);
    world.accept_all().iter().for_each(|send| drop(world.succeed(send)));
    world.sleep_s(60);
    world.accept_all().iter().for_each(|send| drop(world.succeed(send)));
    assert_eq!(
        world.outcomes(id),
        [(0, 1, Outcome::Succeeded), (1, 1, Outcome::Succeeded), (2, 1, Outcome::Expired)]
    );
}

#[test]
fn a_pause_that_comes_first_gives_the_tokens_back() {
    let mut p = policy(1, at_most(10));
    let mut world = World::with_policy(&p);
    let s = spec(10, Some(&p));
    let id = world.emit(run(&s, LAUNCH_US, 2), &s);
    sleep_until_early(&mut world);
    assert_eq!(world.held(&p), 2);
    let pause = Pause { since_us: world.now.wall_us, reason: String::from("no"), actor: String::from("me") };
    world.change_policy(&mut p, |p| p.pause = Some(pause));
    world.sleep_s(60);
    assert_eq!((world.take_sends().len(), world.held(&p)), (0, 0));
    assert_eq!(world.store.tokens[&(id, 0)].state, TokenState::Waiting);
    world.change_policy(&mut p, |p| p.pause = None);
    let sends = world.accept_all();
    assert_eq!(sends.iter().map(|s| (s.index, s.attempt)).collect::<Vec<_>>(), [(0, 2), (1, 2)]);
    sends.iter().for_each(|send| drop(world.succeed(send)));
    assert_eq!(world.row(id).state, RunState::Finished);
}

#[test]
fn a_cancel_that_comes_first_ends_it() {
    let p = policy(1, at_most(10));
    let mut world = World::with_policy(&p);
    let s = spec(10, Some(&p));
    let id = world.emit(run(&s, LAUNCH_US, 1), &s);
    sleep_until_early(&mut world);
    world.tell(Control::CancelRun { run: id, reason: String::from("no more") });
    world.sleep_s(60);
    assert_eq!((world.take_sends().len(), world.held(&p)), (0, 0));
    assert_eq!(world.outcomes(id), [(0, 1, Outcome::Cancelled)]);
}

#[test]
fn after_a_crash_it_is_sent_at_its_time_and_counts_as_in_doubt() {
    let p = policy(1, at_most(10));
    let mut world = World::with_policy(&p);
    let s = spec(10, Some(&p));
    let id = world.emit(run(&s, LAUNCH_US, 1), &s);
    sleep_until_early(&mut world);
    world.restart_after_s(0);
    assert_eq!((world.take_sends().len(), world.held(&p)), (0, 1));
    world.sleep_us(EARLY_US);
    let sends = world.take_sends();
    assert_eq!(sends.iter().map(|s| (s.index, s.attempt)).collect::<Vec<_>>(), [(0, 2)]);
    assert_eq!(world.row(id).state, RunState::Running);
}

#[test]
fn a_planned_hand_over_does_not_wait_for_what_was_not_sent() {
    let p = policy(1, at_most(10));
    let mut world = World::with_policy(&p);
    let s = spec(10, Some(&p));
    world.emit(run(&s, LAUNCH_US, 1), &s);
    sleep_until_early(&mut world);
    assert!(world.hand_over(5_000).is_empty());
    world.sleep_us(EARLY_US);
    assert_eq!(world.take_sends().len(), 1);
}
