//! Events that workers pull: none takes a token before a worker has room for it, and no room is kept from anybody.

use tollgate_core::expected_end::Expected;
use tollgate_core::handle::control::Control;
use tollgate_core::handle::release::{Release, ReleaseOutcome};
use tollgate_core::handle::{Options, Reason};
use tollgate_core::model::*;

use crate::handle_world::*;
use crate::world::*;

const GPU: &str = "pull:render [gpu]";
const ANY: &str = "pull:render";

fn pulled(schedule: u128, policy: Option<&Policy>, requires: &[&str]) -> RunSpec {
    let requires = requires.iter().map(|&label| label.to_owned()).collect();
    let pull = PullTarget::new("render".to_owned(), requires, 10_000);
    RunSpec { target: Target::Pull { pull, release: ReleaseMode::TargetDefault }, ..spec(schedule, policy) }
}

#[test]
fn so_many_start_as_there_are_tokens_and_as_workers_have_room_for() {
    let p = policy(1, at_most(5));
    let mut world = World::with_policy(&p);
    let s = pulled(10, Some(&p), &["gpu"]);
    let id = world.emit(run(&s, START_US, 100), &s);
    assert_eq!((world.take_sends().len(), world.held(&p)), (0, 0), "no worker, no token");
    let reasons = world.shard.explain(id, 0, world.now).unwrap().reasons;
    let [Reason::NoRoom { queue, requires, .. }] = reasons.as_slice() else { panic!("{reasons:?}") };
    assert_eq!((queue.as_str(), requires.as_slice()), ("render", ["gpu".to_owned()].as_slice()));
    world.room_comes(ANY, 9);
    assert_eq!(world.held(&p), 0, "others are not able to do it");
    world.room_comes(GPU, 2);
    assert_eq!((world.take_sends().len(), world.held(&p), world.room[GPU]), (2, 2, 0));
    world.room_comes(GPU, 10);
    assert_eq!((world.held(&p), world.room[GPU]), (5, 7), "what no token is there for, others may have");
    let sends = world.accept_all();
    assert_eq!(sends.len(), 3);
    assert!(sends.iter().all(|send| send.pulled.is_some_and(|by| by.token_ttl_ms == Some(60_000))));
    world.succeed(&sends[0]);
    assert_eq!((world.take_sends().len(), world.room[GPU]), (1, 6), "a token that comes back asks for room");
}

#[test]
fn no_end_is_expected_while_no_worker_has_room() {
    let p = policy(1, at_most(5));
    let mut world = World::with_policy(&p);
    let s = pulled(10, Some(&p), &["gpu"]);
    let id = world.emit(run(&s, START_US, 3), &s);
    let end =
        |world: &World| world.shard.outlooks(&[id], world.now).pop().flatten().map(|outlook| outlook.end);
    let drained = |world: &World| {
        let gauges = world.shard.status(world.now).gauges;
        gauges.into_iter().find(|gauge| gauge.policy.is_some()).and_then(|gauge| gauge.drained)
    };
    let unserved = Expected::NotKnown("not known while no worker has room for it");
    assert_eq!((end(&world), drained(&world)), (Some(unserved.clone()), Some(unserved.clone())));
    world.room_comes(GPU, 1);
    let send = world.accept_all().remove(0);
    assert_ne!(drained(&world), Some(unserved.clone()), "a worker has one of them");
    world.succeed(&send);
    assert_eq!(drained(&world), Some(unserved), "and nothing any more");
}

#[test]
fn all_of_a_run_is_done_whatever_room_there_is() {
    for (tokens, room) in [(1, 1), (3, 7), (7, 3), (50, 1), (1, 50)] {
        let p = policy(1, at_most(tokens));
        let mut world = World::with_policy(&p);
        let s = pulled(10, Some(&p), &[]);
        world.emit(run(&s, START_US, 60), &s);
        world.room_comes(ANY, room);
        let mut done = 0;
        loop {
            let sends = world.accept_all();
            if sends.is_empty() {
                break;
            }
            assert!(world.held(&p) <= tokens.min(room), "{tokens} {room}");
            for send in sends {
                world.succeed(&send);
                world.room_comes(ANY, 1);
                done += 1;
            }
        }
        assert_eq!((done, world.room[ANY]), (60, room), "{tokens} {room}");
    }
}

#[test]
fn who_waits_for_a_worker_stands_in_nobody_s_way() {
    let p = policy(1, at_most(2));
    let mut world = World::with_policy(&p);
    let (first, other) = (pulled(10, Some(&p), &["gpu"]), spec(11, Some(&p)));
    world.emit(run(&first, START_US - 1, 9), &first);
    world.emit(run(&other, START_US, 4), &other);
    assert_eq!(world.accept_all().len(), 2, "those of the other schedule have the tokens");
    // Both tokens are held: room is of no use, and nobody asks for it any more before one comes back.
    world.room_comes(GPU, 5);
    assert_eq!((world.take_sends().len(), world.room[GPU]), (0, 5));
    assert_eq!(world.work_off(), 0);
}

#[test]
fn tokens_that_come_back_after_room_was_there_in_vain_ask_for_it() {
    let p = policy(1, at_most(1));
    let mut world = World::with_policy(&p);
    let (first, other) = (pulled(10, Some(&p), &[]), spec(11, Some(&p)));
    world.emit(run(&first, START_US - 1, 3), &first);
    world.emit(run(&other, START_US, 1), &other);
    let held = world.accept_all();
    assert_eq!(held.len(), 1);
    world.room_comes(ANY, 2);
    assert_eq!(world.room[ANY], 2);
    world.succeed(&held[0]);
    assert_eq!((world.take_sends().len(), world.room[ANY]), (1, 1));
}

#[test]
fn policies_take_turns_where_room_is_short() {
    let policies = [1, 2, 3].map(|number| policy(number, at_most(50)));
    let mut world = World::with(Options::default(), policies.to_vec());
    for (number, p) in (10..).zip(&policies) {
        let s = pulled(number, Some(p), &[]);
        world.emit(run(&s, START_US, 50), &s);
    }
    for _ in 0..30 {
        world.room_comes(ANY, 1);
    }
    for p in &policies {
        assert_eq!(world.held(p), 10);
    }
}

#[test]
fn an_unclear_event_waits_for_room_and_for_no_second_token() {
    let p = policy(1, at_most(1));
    let mut world = World::with_policy(&p);
    let s = pulled(10, Some(&p), &[]);
    world.emit(run(&s, START_US, 2), &s);
    world.room_comes(ANY, 1);
    let [send] = world.take_sends().try_into().unwrap();
    world.answer(&send, unclear());
    world.sleep_s(10);
    assert_eq!(
        (world.take_sends().len(), world.held(&p)),
        (0, 1),
        "its token is held, and no worker has room"
    );
    world.room_comes(ANY, 1);
    let [again] = world.take_sends().try_into().unwrap();
    assert_eq!((again.index, again.attempt, world.held(&p)), (send.index, 2, 1));
    world.answer(&again, Sent::Accepted);
    world.room_comes(ANY, 1);
    assert_eq!(world.room[ANY], 1, "the other event has no token");
    world.succeed(&again);
    assert_eq!(world.take_sends().len(), 1);
}

#[test]
fn what_gives_its_token_back_while_it_waits_for_room_does_not_take_another_ones() {
    let p = policy(1, at_most(1));
    let mut world = World::with_policy(&p);
    let s = pulled(10, Some(&p), &[]);
    world.emit(run(&s, START_US, 2), &s);
    world.room_comes(ANY, 1);
    let [send] = world.take_sends().try_into().unwrap();
    world.answer(&send, unclear());
    world.sleep_s(10);
    assert!(world.take_sends().is_empty());
    // Its worker had it after all, and wants it tried again: it waits without a token.
    let retry = Release { outcome: ReleaseOutcome::Retry, attempt: None, ..done(&send) };
    world.release(retry);
    world.room_comes(ANY, 2);
    assert_eq!((world.take_sends().len(), world.held(&p)), (1, 1));
    world.sleep_s(20);
    assert_eq!((world.take_sends().len(), world.held(&p)), (0, 1));
}

#[test]
fn unclear_events_without_a_policy_wait_for_room_too() {
    let mut world = World::new();
    let s = pulled(10, None, &[]);
    world.emit(run(&s, START_US, 3), &s);
    world.room_comes(ANY, 3);
    let sends = world.take_sends();
    assert_eq!(sends.len(), 3);
    for send in &sends {
        assert!(send.explicit_release, "a worker says when it is done");
        world.answer(send, unclear());
    }
    world.sleep_s(10);
    assert!(world.take_sends().is_empty());
    world.room_comes(ANY, 2);
    assert_eq!(world.take_sends().len(), 2);
    world.room_comes(ANY, 1);
    assert_eq!(world.take_sends().iter().map(|send| send.attempt).collect::<Vec<_>>(), [2]);
}

#[test]
fn what_is_paused_asks_for_room_when_it_goes_on() {
    let p = policy(1, at_most(5));
    let mut world = World::with_policy(&p);
    let s = pulled(10, Some(&p), &[]);
    world.tell(Control::PauseShard { pause: Some(pause()) });
    world.emit(run(&s, START_US, 5), &s);
    world.room_comes(ANY, 3);
    assert!(world.take_sends().is_empty());
    world.tell(Control::PauseShard { pause: None });
    assert_eq!(world.take_sends().len(), 3);
    world.tell(Control::PauseShard { pause: Some(pause()) });
    world.room_comes(ANY, 1);
    assert_eq!((world.take_sends().len(), world.room[ANY]), (0, 1), "room is not kept meanwhile");
    world.tell(Control::PauseShard { pause: None });
    assert_eq!(world.take_sends().len(), 1);
}

#[test]
fn the_next_owner_asks_anew() {
    let p = policy(1, at_most(5));
    let mut world = World::with_policy(&p);
    let s = pulled(10, Some(&p), &[]);
    let id = world.emit(run(&s, START_US, 5), &s);
    world.room_comes(ANY, 1);
    assert_eq!(world.accept_all().len(), 1);
    world.asked.clear();
    world.restart_after_s(1);
    assert_eq!(world.asked.values().map(|(_, want, lacks)| (*want, *lacks)).collect::<Vec<_>>(), [(4, 4)]);
    world.room_comes(ANY, 4);
    assert_eq!((world.take_sends().len(), world.row(id).next_index), (4, 5));
}

#[test]
fn what_is_cancelled_wants_no_room_any_more() {
    let p = policy(1, at_most(5));
    let mut world = World::with_policy(&p);
    let s = pulled(10, Some(&p), &[]);
    let id = world.emit(run(&s, START_US, 5), &s);
    world.tell(Control::CancelRun { run: id, reason: String::new() });
    world.room_comes(ANY, 4);
    assert_eq!((world.take_sends().len(), world.room[ANY]), (0, 4));
    let next = world.emit(run(&s, START_US + 1, 2), &s);
    world.sleep_s(1);
    assert_eq!((world.take_sends().len(), world.row(next).next_index, world.room[ANY]), (2, 2, 2));
}

#[test]
fn an_event_that_is_released_before_it_is_sent_leaves_its_room() {
    let p = policy(1, at_most(1));
    let mut world = World::with_policy(&p);
    let s = pulled(10, Some(&p), &[]);
    world.emit(run(&s, START_US, 1), &s);
    world.room_comes(ANY, 1);
    let [send] = world.take_sends().try_into().unwrap();
    world.answer(&send, unclear());
    world.room_comes(ANY, 1);
    // It is to be sent again, and its worker releases it while that is being committed.
    let due_us = world.shard.next_deadline().mono_us.unwrap() - world.now.mono_us;
    world.pass(due_us.max(0));
    world.shard.caught_up(world.now.mono_us);
    assert!(world.shard.poll_commit(world.now).is_none());
    let asks = world.shard.rooms_asked(world.now);
    let [ask] = asks.as_slice() else { panic!("{asks:?}") };
    world.shard.room_given(ask.pool, 1, world.now);
    *world.room.get_mut(ANY).unwrap() -= 1;
    assert!(world.shard.poll_commit(world.now).is_none());
    assert!(world.shard.rooms_asked(world.now).iter().all(|ask| ask.want == 0));
    let commit = world.shard.poll_commit(world.now).unwrap();
    assert!(world.shard.room_left().iter().all(|(_, units)| *units == 0));
    world.store.apply(&commit.changes);
    let release = Release { attempt: None, ..done(&send) };
    world.shard.release(release, 1, world.now);
    assert!(world.shard.committed(world.now).is_empty(), "nobody wants it any more");
    world.settle();
    assert_eq!(world.room[ANY], 1);
}

#[test]
fn keys_and_trees_hold_for_workers_too() {
    let parent = policy(1, at_most(3));
    let children = [2, 3].map(|uid| below(&parent, uid, at_most(2)));
    let mut world = World::with_policies(&[&parent, &children[0], &children[1]]);
    for (number, p) in (10..).zip(&children) {
        let s = pulled(number, Some(p), &[]);
        world.emit(run(&s, START_US, 9), &s);
    }
    world.room_comes(ANY, 1);
    world.room_comes(ANY, 9);
    assert_eq!((world.below(&parent), world.room[ANY]), (3, 7));
    let sends = world.accept_all();
    world.succeed(&sends[0]);
    assert_eq!((world.below(&parent), world.room[ANY]), (3, 6));
}

#[test]
fn what_falls_due_in_a_moment_takes_room_a_moment_ahead() {
    let p = policy(1, at_most(4));
    let mut world = World::with_policy(&p);
    let s = pulled(10, Some(&p), &[]);
    world.room_comes(ANY, 2);
    world.emit(run(&s, START_US + SECOND_US, 2), &s);
    world.sleep_us(SECOND_US - 1);
    assert_eq!((world.take_sends().len(), world.room[ANY], world.held(&p)), (0, 0, 2));
    world.sleep_us(1);
    assert_eq!(world.take_sends().len(), 2);
}

#[test]
fn of_an_event_that_a_worker_has_it_is_known_how_long_silence_is_allowed() {
    let p = Policy { token_ttl_ms: 20_000, ..policy(1, at_most(5)) };
    let mut world = World::with_policy(&p);
    let s = pulled(10, Some(&p), &["gpu"]);
    let id = world.emit(run(&s, START_US, 3), &s);
    assert!(world.shard.pulled(id, 0).is_none(), "it waits");
    world.room_comes(GPU, 1);
    let send = world.accept_all().remove(0);
    let of = world.shard.pulled(id, send.index).unwrap();
    assert_eq!(
        (of.target.queue(), of.target.requires(), of.attempt),
        ("render", ["gpu".to_owned()].as_slice(), 1)
    );
    assert_eq!((of.namespace, of.silence_ms), (s.namespace.as_str(), 20_000 + p.suspect_ms));
    world.extend((id, send.index), None, Some(50_000));
    assert_eq!(
        world.shard.pulled(id, send.index).unwrap().silence_ms,
        50_000 + p.suspect_ms,
        "as its heartbeat wished"
    );
    let kinds = world.shard.kinds_at_work();
    assert_eq!(
        kinds.iter().map(|(_, pull, ms)| (pull.queue(), *ms)).collect::<Vec<_>>(),
        [("render", 50_000 + p.suspect_ms)]
    );
    world.succeed(&send);
    assert!(world.shard.pulled(id, send.index).is_none() && world.shard.kinds_at_work().is_empty());
    let pushed = spec(11, Some(&p));
    let id = world.emit(run(&pushed, START_US, 1), &pushed);
    world.accept_all();
    assert!(world.shard.pulled(id, 0).is_none(), "a consumer that was called");
}
