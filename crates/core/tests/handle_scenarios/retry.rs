//! Failures: back-off, attempts, dead events and their revival, unclear deliveries, Retry-After, windows.

use tollgate_core::handle::change::{Outcome, TokenState};
use tollgate_core::handle::control::Control;
use tollgate_core::handle::release::{Answer, ReleaseOutcome};
use tollgate_core::handle::{MessageNeeds, Options};
use tollgate_core::model::*;

use crate::handle_world::*;
use crate::world::*;

#[test]
fn a_refused_event_waits_without_its_token_backs_off_and_dies() {
    let p = policy(1, at_most(1));
    let mut world = World::with_policy(&p);
    let s = spec(10, Some(&p));
    let id = world.emit(run(&s, START_US, 1), &s);
    for (attempt, min_us, max_us) in [(1, 500_000, 1_000_000), (2, 1_000_000, 2_000_000)] {
        let send = world.take_sends().remove(0);
        assert_eq!((send.index, send.attempt), (0, attempt));
        world.answer(&send, refused());
        let row = world.store.tokens[&(id, 0)].clone();
        assert_eq!((row.state, row.failures, row.message.as_str()), (TokenState::Waiting, attempt, "503"));
        assert_eq!(world.held(&p), 0, "the token is free");
        let wait_us = row.due_us - world.now.wall_us;
        assert!((min_us..=max_us).contains(&wait_us), "attempt {attempt} waits {wait_us} us");
        world.sleep_us(wait_us - 1);
        assert_eq!(world.sends.len(), 0);
        world.sleep_us(1);
    }
    let send = world.take_sends().remove(0);
    world.answer(&send, refused());
    let ended = world.ended(id, 0).unwrap();
    assert_eq!((ended.outcome, ended.attempt, ended.message.as_str()), (Outcome::Dead, 3, "503"));
    assert_eq!((world.row(id).state, world.row(id).counts.dead), (RunState::Finished, 1));
}

#[test]
fn the_back_off_doubles_up_to_its_maximum_and_the_jitter_differs() {
    let retry =
        RetryPolicy { attempts_max: 60, backoff_min_ms: 1000, backoff_max_ms: 8000, retry_lost: true };
    let s = RunSpec { retry, ..spec(10, None) };
    let mut world = World::new();
    let id = world.emit(run(&s, START_US, 2), &s);
    let mut waits = Vec::new();
    for _ in 0..59 {
        for send in world.take_sends() {
            world.answer(&send, refused());
            waits.push(world.store.tokens[&(id, send.index)].due_us - world.now.wall_us);
        }
        world.sleep_s(8);
    }
    assert_eq!(waits.len(), 118);
    assert!(waits[20..].iter().all(|w| (4_000_000..=8_000_000).contains(w)), "{waits:?}");
    let different: std::collections::BTreeSet<_> = waits.iter().collect();
    assert!(different.len() > 100);
}

#[test]
fn a_permanent_refusal_is_dead_at_once() {
    let mut world = World::new();
    let s = spec(10, None);
    let id = world.emit(run(&s, START_US, 1), &s);
    let send = world.take_sends().remove(0);
    world.answer(
        &send,
        Sent::Refused { message: "private address".into(), retry_after_ms: None, permanent: true },
    );
    assert_eq!(world.ended(id, 0).map(|r| (r.outcome, r.attempt)), Some((Outcome::Dead, 1)));
}

#[test]
fn a_retry_outlives_a_restart_with_its_attempt_and_its_failures() {
    let p = policy(1, at_most(1));
    let mut world = World::with_policy(&p);
    let s = spec(10, Some(&p));
    let id = world.emit(run(&s, START_US, 1), &s);
    let send = world.take_sends().remove(0);
    world.answer(&send, refused());
    world.restart_after_s(0);
    assert_eq!(world.sends.len(), 0, "it is not due");
    world.restart_after_s(3600);
    let send = world.take_sends().remove(0);
    assert_eq!((send.run, send.attempt), (id, 2));
    assert_eq!(world.store.tokens[&(id, 0)].failures, 1);
    assert_eq!(world.held(&p), 1);
}

#[test]
fn retries_go_before_new_events_of_their_schedule() {
    let p = policy(1, at_most(1));
    let mut world = World::with_policy(&p);
    let s = spec(10, Some(&p));
    world.emit(run(&s, START_US, 3), &s);
    let first = world.take_sends().remove(0);
    world.answer(&first, refused());
    let second = world.take_sends().remove(0);
    assert_eq!((second.index, second.attempt), (1, 1), "the freed token goes to the next event");
    world.answer(&second, Sent::Accepted);
    world.sleep_s(5);
    world.succeed(&second);
    assert_eq!(world.sends.iter().map(|s| (s.index, s.attempt)).collect::<Vec<_>>(), [(0, 2)]);
}

#[test]
fn retry_after_is_honoured_and_stops_only_its_schedule() {
    let p = policy(1, at_most(1));
    let mut world = World::with_policy(&p);
    let (s, t) = (spec(10, Some(&p)), spec(11, Some(&p)));
    let id = world.emit(run(&s, START_US, 5), &s);
    let send = world.take_sends().remove(0);
    world.answer(
        &send,
        Sent::Refused { message: "429".into(), retry_after_ms: Some(30_000), permanent: false },
    );
    let other = world.emit(run(&t, START_US, 2), &t);
    assert_eq!(world.sends.iter().map(|s| s.run).collect::<Vec<_>>(), [other]);
    assert_eq!(world.work_off(), 2);
    world.sleep_us(30 * SECOND_US - 1);
    assert_eq!(world.sends.len(), 0);
    world.sleep_us(1);
    assert_eq!(world.sends.iter().map(|s| (s.run, s.index)).collect::<Vec<_>>(), [(id, 0)]);
    assert_eq!(world.work_off(), 5);
}

/// One event of a batch that the consumer refused waits as it was asked to, and no other does.
#[test]
fn the_wish_for_one_event_of_a_batch_stops_no_other() {
    let p = policy(1, at_most(1));
    let mut world = World::with_policy(&p);
    let s = spec(10, Some(&p));
    let id = world.emit(run(&s, START_US, 5), &s);
    let send = world.take_sends().remove(0);
    world.answer(&send, Sent::RefusedAlone { message: "busy".into(), retry_after_ms: Some(30_000) });
    assert_eq!(world.sends.iter().map(|s| (s.run, s.index)).collect::<Vec<_>>(), [(id, 1)]);
    assert_eq!(world.work_off(), 4);
    world.sleep_us(30 * SECOND_US - 1);
    assert_eq!(world.sends.len(), 0);
    world.sleep_us(1);
    assert_eq!(world.sends.iter().map(|s| (s.index, s.attempt)).collect::<Vec<_>>(), [(0, 2)]);
    assert_eq!(world.work_off(), 1);
}

#[test]
fn a_retry_after_without_end_does_not_overflow() {
    let mut world = World::new();
    let s = spec(10, None);
    world.emit(run(&s, START_US, 2), &s);
    let sends = world.take_sends();
    let wish = Some(i64::MAX);
    world.answer(&sends[0], Sent::Refused { message: "429".into(), retry_after_ms: wish, permanent: false });
    world.answer(&sends[1], Sent::Unclear { message: "502".into(), retry_after_ms: wish });
    world.sleep_s(3600);
    assert_eq!(world.sends.len(), 0);
}

#[test]
fn a_failing_run_stops_starting_events_and_goes_on_when_retries_are_through() {
    let options = Options { retrying_max: 3, ..Options::default() };
    let mut world = World::with(options, Vec::new());
    let s = RunSpec {
        retry: RetryPolicy {
            attempts_max: 10,
            backoff_min_ms: 10_000,
            backoff_max_ms: 10_000,
            retry_lost: true,
        },
        ..spec(10, None)
    };
    world.emit(run(&s, START_US, 5000), &s);
    let first = world.take_sends();
    assert_eq!(first.len(), 525);
    for send in &first[..3] {
        world.answer(send, refused());
    }
    assert_eq!(world.sends.len(), 2, "two freed places before the third failure");
    for send in &first[3..] {
        world.answer(send, Sent::Accepted);
    }
    assert_eq!(world.sends.len(), 2, "nothing new while three wait");
    world.sleep_s(10);
    assert_eq!(world.work_off(), 5000 - 522);
}

#[test]
fn retrying_a_dead_event_keeps_its_id_and_its_attempts_grow() {
    let mut world = World::new();
    let s = spec(10, None);
    let id = world.emit(run(&s, START_US, 3), &s);
    for _ in 0..3 {
        for send in world.take_sends() {
            let sent = if send.index == 0 { Sent::Accepted } else { refused() };
            world.answer(&send, sent);
        }
        world.sleep_s(10);
    }
    assert_eq!((world.row(id).state, world.row(id).counts.dead), (RunState::Finished, 2));
    world.tell(Control::RetryDead { run: id, indexes: vec![2] });
    assert_eq!(world.sends.iter().map(|s| (s.index, s.attempt)).collect::<Vec<_>>(), [(2, 4)]);
    assert_eq!((world.row(id).state, world.row(id).counts.dead), (RunState::Running, 1));
    assert!(world.ended(id, 2).is_none());
    world.tell(Control::RetryDead { run: id, indexes: Vec::new() });
    assert_eq!(world.work_off(), 2);
    assert_eq!((world.row(id).state, world.row(id).counts.succeeded), (RunState::Finished, 3));
    world.tell(Control::RetryDead { run: id, indexes: Vec::new() });
    assert_eq!((world.sends.len(), world.row(id).state), (0, RunState::Finished), "nothing is dead");
}

#[test]
fn a_second_retry_of_the_dead_with_what_was_read_before_the_first_changes_nothing() {
    let mut world = World::new();
    let s = RunSpec { retry: RetryPolicy { attempts_max: 1, ..RetryPolicy::default() }, ..spec(10, None) };
    let id = world.emit(run(&s, START_US, 2), &s);
    for send in world.take_sends() {
        world.answer(&send, refused());
    }
    let (one, two) =
        (Control::RetryDead { run: id, indexes: vec![0] }, Control::RetryDead { run: id, indexes: vec![] });
    let messages = [world.post(one), world.post(two)];
    world.shard.begin_read();
    let contexts = messages.clone().map(|m| world.store.context(&MessageNeeds::of(&m.control)));
    let [first, stale] = contexts;
    let [one, two] = messages;
    world.shard.control(one, first, world.now);
    world.settle();
    assert_eq!(world.work_off(), 1);
    assert_eq!(world.row(id).counts.succeeded, 1);
    world.shard.control(two.clone(), stale, world.now);
    world.settle();
    assert_eq!(world.outcomes(id), [(0, 1, Outcome::Succeeded), (1, 1, Outcome::Dead)]);
    assert_eq!(world.row(id).counts, Counts { succeeded: 1, dead: 1, ..Counts::default() });
    // The message is still there, and the next read carries it out.
    world.shard.begin_read();
    let fresh = world.store.context(&MessageNeeds::of(&two.control));
    world.shard.control(two, fresh, world.now);
    world.settle();
    assert_eq!(world.work_off(), 1);
    assert_eq!(world.row(id).counts, Counts { succeeded: 2, ..Counts::default() });
    assert!(world.store.inbox.is_empty());
}

#[test]
fn an_unclear_delivery_keeps_its_token_and_is_sent_again() {
    let p = policy(1, at_most(1));
    let mut world = World::with_policy(&p);
    let s = spec(10, Some(&p));
    let id = world.emit(run(&s, START_US, 2), &s);
    let send = world.take_sends().remove(0);
    world.answer(&send, unclear());
    assert_eq!((world.held(&p), world.sends.len()), (1, 0));
    world.sleep_s(1);
    let again = world.take_sends().remove(0);
    assert_eq!((again.run, again.index, again.attempt), (id, 0, 2));
    assert_eq!(world.store.in_flight(Some(p.uid)), 1);
    world.answer(&again, Sent::Accepted);
    assert_eq!(world.succeed(&again), Answer::Released);
    assert_eq!(world.sends.len(), 1);
}

#[test]
fn a_refusal_after_an_unclear_delivery_proves_nothing_about_the_first() {
    let p = policy(1, at_most(1));
    let mut world = World::with_policy(&p);
    let s = spec(10, Some(&p));
    let id = world.emit(run(&s, START_US, 2), &s);
    let send = world.take_sends().remove(0);
    world.answer(&send, unclear());
    world.sleep_s(1);
    let again = world.take_sends().remove(0);
    world.answer(&again, refused());
    assert_eq!(
        (world.held(&p), world.sends.len()),
        (1, 0),
        "the consumer may be at work on the first delivery"
    );
    assert_eq!(world.store.tokens[&(id, 0)].state, TokenState::Acquired);
    // Nor does a restart settle it.
    world.restart_after_s(0);
    let third = world.take_sends().remove(0);
    assert_eq!(third.attempt, 3);
    let permanent = Sent::Refused { message: "410".into(), retry_after_ms: None, permanent: true };
    world.answer(&third, permanent);
    assert_eq!((world.held(&p), world.sends.len()), (1, 0));
    assert_eq!(world.store.tokens[&(id, 0)].state, TokenState::Held);
    // The consumer had it all the time.
    assert_eq!(
        world.release(tollgate_core::handle::release::Release { attempt: None, ..done(&send) }),
        Answer::Released
    );
    assert_eq!(world.sends.len(), 1);
}

#[test]
fn after_the_last_unclear_delivery_only_release_or_time_frees_the_token() {
    let p = policy(1, at_most(1));
    let mut world = World::with_policy(&p);
    let s = spec(10, Some(&p));
    let id = world.emit(run(&s, START_US, 2), &s);
    for attempt in 1..=3 {
        let send = world.take_sends().remove(0);
        assert_eq!((send.index, send.attempt), (0, attempt));
        world.answer(&send, unclear());
        world.sleep_s(2);
    }
    assert_eq!((world.sends.len(), world.store.tokens[&(id, 0)].state), (0, TokenState::Held));
    world.sleep_s(66);
    assert_eq!(world.held(&p), 1);
    world.sleep_s(4);
    assert_eq!(world.ended(id, 0).map(|r| r.outcome), Some(Outcome::Lost));
    assert_eq!(world.sends.iter().map(|s| s.index).collect::<Vec<_>>(), [1]);
}

#[test]
fn unclear_deliveries_are_not_repeated_during_a_pause() {
    let mut p = policy(1, at_most(1));
    let mut world = World::with_policy(&p);
    let s = spec(10, Some(&p));
    world.emit(run(&s, START_US, 1), &s);
    let send = world.take_sends().remove(0);
    world.answer(&send, unclear());
    world.change_policy(&mut p, |p| p.pause = Some(pause()));
    world.sleep_s(60);
    assert_eq!((world.sends.len(), world.held(&p)), (0, 1));
    world.change_policy(&mut p, |p| p.pause = None);
    world.sleep_s(1);
    assert_eq!(world.sends.len(), 1);
}

#[test]
fn a_release_as_retry_counts_as_a_failure() {
    let p = policy(1, at_most(1));
    let mut world = World::with_policy(&p);
    let s = spec(10, Some(&p));
    let id = world.emit(run(&s, START_US, 1), &s);
    for attempt in 1..=3 {
        world.sleep_s(3);
        let send = world.accept_all().remove(0);
        assert_eq!(send.attempt, attempt);
        let mut release = done(&send);
        (release.outcome, release.message) = (ReleaseOutcome::Retry, "no disk".into());
        assert_eq!(world.release(release), Answer::Released);
    }
    let ended = world.ended(id, 0).unwrap();
    assert_eq!((ended.outcome, ended.message.as_str()), (Outcome::Dead, "no disk"));
}

#[test]
fn what_has_not_started_by_the_end_of_the_window_expires_as_one_range() {
    let p = policy(1, at_most(2));
    let mut world = World::with_policy(&p);
    let s = RunSpec { finish_by_s: Some(30), ..spec(10, Some(&p)) };
    let id = world.emit(run(&s, START_US, 1_000_000), &s);
    let held = world.accept_all();
    world.sleep_us(30 * SECOND_US - 1);
    assert_eq!(world.store.history.len(), 0);
    world.sleep_us(1);
    assert_eq!(world.outcomes(id), [(2, 999_998, Outcome::Expired)]);
    for send in held {
        assert_eq!(world.succeed(&send), Answer::Released, "what has started may end");
    }
    assert_eq!((world.row(id).state, world.sends.len()), (RunState::Finished, 0));
}

#[test]
fn a_window_that_ended_while_tollgate_was_down_expires_and_sends_nothing() {
    let mut world = World::new();
    let s = RunSpec { finish_by_s: Some(30), ..spec(10, None) };
    let id = world.emit(run(&s, START_US + SECOND_US, 5), &s);
    world.restart_after_s(600);
    assert_eq!((world.sends.len(), world.outcomes(id)), (0, vec![(0, 5, Outcome::Expired)]));
    let backfill = Run { kind: RunKind::Backfill, ..run(&s, START_US - DAY_US, 2) };
    world.emit(backfill, &s);
    assert_eq!(world.work_off(), 2, "a backfill's window is not in its past");
}

#[test]
fn an_event_in_back_off_does_not_expire() {
    let s = RunSpec { finish_by_s: Some(1), ..spec(10, None) };
    let mut world = World::new();
    let id = world.emit(run(&s, START_US, 1), &s);
    let send = world.take_sends().remove(0);
    world
        .answer(&send, Sent::Refused { message: "503".into(), retry_after_ms: Some(5000), permanent: false });
    world.sleep_s(5);
    assert_eq!(world.work_off(), 1);
    assert_eq!(world.row(id).counts.succeeded, 1);
}
