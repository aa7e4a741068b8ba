//! Deliveries that did not leave the process: no failure is counted, and yet no event lives for ever.

use tollgate_core::handle::Options;
use tollgate_core::handle::change::{Outcome, ShardSchedule, TokenState};
use tollgate_core::handle::control::Control;
use tollgate_core::handle::release::{Release, ReleaseOutcome};
use tollgate_core::model::*;

use crate::change::{changed, keep, next};
use crate::handle_world::*;
use crate::world::*;

fn not_sent() -> Sent {
    Sent::NotSent { message: "no place".into(), retry_after_ms: None }
}

#[test]
fn what_was_not_sent_counts_as_no_failure_and_gives_its_token_back() {
    let p = policy(1, at_most(1));
    let mut world = World::with_policy(&p);
    let retry = RetryPolicy { attempts_max: 2, ..RetryPolicy::default() };
    let s = RunSpec { retry, ..spec(10, Some(&p)) };
    let id = world.emit(run(&s, START_US, 1), &s);
    // Far more often than it may fail.
    for attempt in 1..=50 {
        let send = world.take_sends().remove(0);
        assert_eq!(send.attempt, attempt);
        world.answer(&send, not_sent());
        let row = world.store.tokens[&(id, 0)].clone();
        assert_eq!((row.state, row.failures, row.message.as_str()), (TokenState::Waiting, 0, "no place"));
        assert_eq!(world.held(&p), 0, "the token is free");
        let wait_us = row.due_us - world.now.wall_us;
        assert!((500_000..=30 * SECOND_US).contains(&wait_us), "{wait_us}");
        world.sleep_us(wait_us);
    }
    let send = world.take_sends().remove(0);
    world.answer(&send, refused());
    assert_eq!(world.store.tokens[&(id, 0)].failures, 1, "the target's own counts");
    world.sleep_s(5);
    let send = world.take_sends().remove(0);
    world.answer(&send, refused());
    assert_eq!(world.ended(id, 0).map(|row| row.outcome), Some(Outcome::Dead));
}

#[test]
fn what_is_never_sent_ends_after_a_day() {
    let mut world = World::new();
    let s = spec(10, None);
    let id = world.emit(run(&s, START_US, 1), &s);
    let mut tried = 0;
    while world.ended(id, 0).is_none() {
        for send in world.take_sends() {
            tried += 1;
            world.answer(&send, not_sent());
        }
        world.sleep_s(30);
        assert!(world.now.wall_us < START_US + 2 * DAY_US, "it goes on for ever");
    }
    let ended = world.ended(id, 0).unwrap();
    assert_eq!((ended.outcome, ended.message.as_str()), (Outcome::Dead, "no place"));
    assert!(world.now.wall_us >= START_US + DAY_US && tried > 2_000, "{tried}");
}

#[test]
fn what_was_never_sent_expires_with_its_window() {
    let mut world = World::new();
    let s = RunSpec { finish_by_s: Some(20), ..spec(10, None) };
    let id = world.emit(run(&s, START_US, 1), &s);
    for _ in 0..60 {
        for send in world.take_sends() {
            world.answer(&send, not_sent());
        }
        world.sleep_s(1);
    }
    assert_eq!(world.ended(id, 0).map(|row| row.outcome), Some(Outcome::Expired));
}

#[test]
fn a_token_in_doubt_stays_though_the_next_attempt_did_not_leave() {
    let p = policy(1, at_most(1));
    let mut world = World::with_policy(&p);
    let s = spec(10, Some(&p));
    let id = world.emit(run(&s, START_US, 1), &s);
    let send = world.take_sends().remove(0);
    world.answer(&send, unclear());
    for attempt in 2..=10 {
        world.sleep_s(30);
        let send = world.take_sends().remove(0);
        assert_eq!(send.attempt, attempt);
        world.answer(&send, not_sent());
        assert_eq!(world.held(&p), 1, "its consumer may be at work");
    }
    world.sleep_s(30);
    let send = world.take_sends().remove(0);
    world.answer(&send, Sent::Accepted);
    assert_eq!(world.store.tokens[&(id, 0)].failures, 1);
    world.succeed(&send);
    assert_eq!(world.row(id).counts.succeeded, 1);
}

#[test]
fn a_pause_that_a_target_asked_for_parks_its_schedule() {
    let mut world = World::with(Options { sends_max: 1, ..Options::default() }, Vec::new());
    let s = spec(10, None);
    world.emit(run(&s, START_US, 3), &s);
    let send = world.take_sends().remove(0);
    world.answer(&send, Sent::NotSent { message: "a pause".into(), retry_after_ms: Some(20_000) });
    world.sleep_us(20 * SECOND_US - 1);
    assert_eq!(world.sends.len(), 0);
    world.sleep_us(1);
    assert_eq!(world.sends.len(), 1);
}

/// A pause of a day is not the new target's.
#[test]
fn another_target_ends_the_pause_that_the_former_one_asked_for() {
    let other = Target::Http {
        http: HttpTarget::plain("https://other.example/".into(), 1_000),
        release: ReleaseMode::TargetDefault,
    };
    for (target, goes_on) in [(None, false), (Some(other), true)] {
        let mut world = World::new();
        let s = spec(10, None);
        keep(&mut world, &s);
        world.tell(changed(
            &s,
            fence(&s, START_US, START_US + 60 * SECOND_US, vec![START_US + 10 * SECOND_US]),
        ));
        world.emit(run(&s, START_US, 1), &s);
        let send = world.take_sends().remove(0);
        let (message, retry_after_ms) = ("full".into(), Some(86_400_000));
        world.answer(&send, Sent::Refused { message, retry_after_ms, permanent: false });
        let (mut new, row) = next(&s, world.now, &[]);
        let row = ShardSchedule { launches_us: vec![START_US + 10 * SECOND_US], ..row };
        if let Some(target) = target {
            new.target = target;
        }
        keep(&mut world, &new);
        world.tell(changed(&new, row));
        world.sleep_s(10);
        assert_eq!(!world.take_sends().is_empty(), goes_on);
    }
}

/// A former owner may still send the attempt before.
#[test]
fn an_attempt_does_not_overtake_one_that_a_former_owner_may_send() {
    let p = policy(1, at_most(1));
    let mut world = World::with_policy(&p);
    let s = spec(10, Some(&p));
    let id = world.emit(run(&s, START_US, 1), &s);
    assert_eq!(world.take_sends().len(), 1);
    assert_eq!(world.hand_over(60_000)[0].grace_ms, 2_000);
    assert_eq!(world.shard.attempt_under_way(id, 0), Some(1));
    let release = Release {
        run: id,
        index: 0,
        attempt: None,
        outcome: ReleaseOutcome::Retry,
        message: String::new(),
        next_check_us: None,
        cursor: None,
        result: None,
    };
    world.tell(Control::Release { release });
    assert_eq!((world.shard.attempt_under_way(id, 0), world.held(&p)), (None, 0));
    world.sleep_us(2 * SECOND_US - 1);
    assert_eq!(world.sends.len(), 0, "the former owner's deadline is not over");
    world.sleep_us(1);
    assert_eq!(world.sends.len(), 1);
}
