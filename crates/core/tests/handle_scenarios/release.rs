//! Releases: outcomes, answers, repetition, next_check_time and its guards, cursors, and what durable means.

use tollgate_core::handle::change::{Outcome, TokenState};
use tollgate_core::handle::control::Control;
use tollgate_core::handle::release::{Answer, Release, ReleaseOutcome};
use tollgate_core::handle::{Effect, Send, Shard};
use tollgate_core::model::*;

use crate::handle_world::*;
use crate::world::*;

fn held(events: u32) -> (World, RunId, Send, Policy, RunSpec) {
    let p = policy(1, at_most(1));
    let mut world = World::with_policy(&p);
    let s = spec(10, Some(&p));
    let id = world.emit(run(&s, START_US, events), &s);
    let send = world.accept_all().remove(0);
    (world, id, send, p, s)
}

#[test]
fn outcomes_are_recorded_with_message_and_times() {
    for (outcome, ended) in
        [(ReleaseOutcome::Succeeded, Outcome::Succeeded), (ReleaseOutcome::Failed, Outcome::Failed)]
    {
        let (mut world, id, send, _, _) = held(1);
        world.sleep_s(3);
        assert_eq!(
            world.release(Release { outcome, message: "3 rows".into(), ..done(&send) }),
            Answer::Released
        );
        let row = world.ended(id, 0).unwrap();
        assert_eq!((row.outcome, row.message.as_str(), row.attempt), (ended, "3 rows", 1));
        assert_eq!((row.acquired_us, row.delivered_us), (Some(START_US), Some(START_US)));
        assert_eq!(row.finished_us, START_US + 3 * SECOND_US);
        let run = world.row(id);
        assert_eq!((run.started_us, run.finished_us), (Some(START_US), Some(START_US + 3 * SECOND_US)));
        assert_eq!(run.state, RunState::Finished);
    }
}

#[test]
fn a_second_release_and_one_of_an_unknown_event_change_nothing() {
    let (mut world, id, send, p, _) = held(3);
    assert_eq!(world.succeed(&send), Answer::Released);
    let before = world.store.clone();
    assert_eq!(world.succeed(&send), Answer::NotHeld);
    assert_eq!(world.release(Release { index: 2, ..done(&send) }), Answer::NotHeld);
    assert_eq!(world.release(Release { run: RunId::derive(p.uid, 1), ..done(&send) }), Answer::NotHeld);
    assert_eq!(world.release(Release { index: 1, attempt: Some(2), ..done(&send) }), Answer::Late);
    assert_eq!(world.store.tokens, before.tokens);
    assert_eq!(world.store.history, before.history);
    assert_eq!(world.row(id), &before.runs[&id]);
    assert_eq!(world.held(&p), 1);
}

#[test]
fn no_answer_speaks_of_a_release_that_is_not_durable() {
    let (mut world, _, send, p, _) = held(1);
    assert_eq!(world.shard.release(done(&send), 1, world.now), None);
    // The same again, while the first waits for its commit, and while that is under way.
    assert_eq!(world.shard.release(done(&send), 2, world.now), None);
    let commit = world.shard.poll_commit(world.now).unwrap();
    assert_eq!(world.shard.release(done(&send), 3, world.now), None);
    // The commit fails: nobody was told anything, and the token is still held.
    drop(commit);
    world.restart_after_s(0);
    assert_eq!(world.held(&p), 1);
    assert_eq!(world.shard.release(done(&send), 4, world.now), None);
    assert_eq!(world.shard.release(done(&send), 5, world.now), None);
    world.settle();
    assert_eq!(world.replies, [(4, Answer::Released), (5, Answer::NotHeld)]);
    assert_eq!(world.shard.release(done(&send), 6, world.now), Some(Answer::NotHeld));
}

#[test]
fn a_freed_token_is_handed_on_in_the_commit_that_frees_it() {
    let (mut world, id, send, p, _) = held(2);
    assert_eq!(world.shard.release(done(&send), 1, world.now), None);
    let commit = world.shard.poll_commit(world.now).unwrap();
    let changes = world.store.flat(&commit.changes);
    assert_eq!(changes.tokens_gone, [(id, 0)]);
    assert_eq!(changes.tokens_put.iter().map(|t| t.index).collect::<Vec<_>>(), [1]);
    assert!(world.shard.poll_commit(world.now).is_none(), "one commit at a time");
    world.store.apply(&commit.changes);
    let effects = world.shard.committed(world.now);
    let replies =
        effects.iter().filter(|e| matches!(e, Effect::Reply { reply: 1, answer: Answer::Released }));
    assert_eq!(replies.count(), 1);
    assert!(effects.iter().any(|e| matches!(e, Effect::Send(send) if send.index == 1 && send.attempt == 1)));
    assert_eq!(world.store.in_flight(Some(p.uid)), 1);
}

#[test]
fn a_delivery_that_was_released_meanwhile_is_not_made() {
    let (mut world, id, send, _, _) = held(1);
    world.sleep_s(70);
    assert_eq!(world.store.tokens[&(id, 0)].state, TokenState::Waiting);
    // Its second attempt is being committed when the consumer of the first one releases whatever is in flight.
    world.now.wall_us += 10 * SECOND_US;
    world.now.mono_us += 10 * SECOND_US;
    let commit = world.shard.poll_commit(world.now).unwrap();
    assert_eq!(world.shard.release(Release { attempt: None, ..done(&send) }, 1, world.now), None);
    world.store.apply(&commit.changes);
    assert_eq!(world.shard.committed(world.now).len(), 0);
    world.settle();
    assert_eq!(world.replies, [(1, Answer::Released)]);
    assert_eq!(world.row(id).state, RunState::Finished);
}

#[test]
fn next_check_time_rounds_up_frees_the_token_and_brings_the_same_event_again() {
    let (mut world, id, send, p, _) = held(1);
    let check_us = START_US + 90 * SECOND_US;
    let at_us = START_US + 2 * MINUTE_US;
    let release = Release { next_check_us: Some(check_us), message: "not yet".into(), ..done(&send) };
    assert_eq!(world.release(release), Answer::ComesAgain { at_us });
    assert_eq!(world.held(&p), 0);
    world.restart_after_s(1);
    world.sleep_us(at_us - world.now.wall_us - 1);
    assert_eq!(world.sends.len(), 0);
    world.sleep_us(1);
    let again = world.accept_all().remove(0);
    assert_eq!((again.run, again.index, again.attempt), (id, 0, 2));
    let row = &world.store.tokens[&(id, 0)];
    assert_eq!((row.checks, row.failures), (1, 0));
    assert_eq!(world.succeed(&again), Answer::Released);
    assert_eq!(world.row(id).counts.succeeded, 1);
}

#[test]
fn a_check_on_the_slot_itself_is_not_moved() {
    let (mut world, _, send, _, _) = held(1);
    let at_us = START_US + MINUTE_US;
    assert_eq!(
        world.release(Release { next_check_us: Some(at_us), ..done(&send) }),
        Answer::ComesAgain { at_us }
    );
}

#[test]
fn guards_refuse_a_check_and_the_token_stays() {
    let (mut world, id, send, p, _) = held(1);
    let cases = [
        (START_US, "it lies in the past"),
        (START_US - SECOND_US, "it lies in the past"),
        (START_US + 3601 * SECOND_US, "it lies 3601 s ahead, check_again.horizon allows 3600 s"),
    ];
    for (check_us, text) in cases {
        let cursor = Some("must not be kept".to_owned());
        let answer = world.release(Release { next_check_us: Some(check_us), cursor, ..done(&send) });
        let Answer::Refused { message } = answer else { panic!("{answer:?}") };
        assert!(message.contains("next_check_time") && message.contains(text), "{message}");
        assert_eq!((world.held(&p), world.row(id).cursor_out.clone()), (1, None));
    }
    let mut send = send;
    for check in 1..=2 {
        let next_check_us = Some(world.now.wall_us + SECOND_US);
        let answer = world.release(Release { next_check_us, ..done(&send) });
        assert!(matches!(answer, Answer::ComesAgain { .. }), "check {check}: {answer:?}");
        world.sleep_s(60);
        send = world.accept_all().remove(0);
    }
    let next_check_us = Some(world.now.wall_us + SECOND_US);
    let answer = world.release(Release { next_check_us, ..done(&send) });
    let Answer::Refused { message } = answer else { panic!("{answer:?}") };
    assert!(message.contains("come 2 times") && message.contains("allows 2"), "{message}");
    assert_eq!(world.succeed(&send), Answer::Released, "it may still be released");
}

/// A shard whose consumer has an event, and whose guards close it.
fn closing() -> (World, RunId, Send, Policy) {
    let p = policy(1, at_most(1));
    let mut world = World::with_policy(&p);
    let mut s = spec(10, Some(&p));
    s.check_again.on_guard = OnGuard::Close;
    let id = world.emit(run(&s, START_US, 1), &s);
    let send = world.accept_all().remove(0);
    (world, id, send, p)
}

#[test]
fn a_guard_may_close_the_event_instead() {
    let (mut world, id, mut send, p) = closing();
    let past = Release { next_check_us: Some(START_US), ..done(&send) };
    assert!(matches!(world.release(past), Answer::Refused { .. }), "no guard: a mistake");
    for _ in 0..2 {
        let next_check_us = Some(world.now.wall_us + SECOND_US);
        world.release(Release { next_check_us, ..done(&send) });
        world.sleep_s(60);
        send = world.accept_all().remove(0);
    }
    let next_check_us = Some(world.now.wall_us + SECOND_US);
    let release =
        Release { next_check_us, message: "not yet".into(), cursor: Some("7".into()), ..done(&send) };
    assert_eq!(world.release(release), Answer::Released);
    assert_eq!((world.held(&p), world.row(id).cursor_out.as_deref()), (0, Some("7")));
    assert_eq!(world.outcomes(id), [(0, 1, Outcome::Failed)]);
    let message = &world.ended(id, 0).unwrap().message;
    assert!(message.starts_with("not yet; next_check_time") && message.contains("allows 2"), "{message}");
}

#[test]
fn a_recorded_release_is_closed_by_its_guard_too() {
    for (ahead_s, outcome) in [(3_601, Some(Outcome::Failed)), (60, None)] {
        let (mut world, id, send, p) = closing();
        let next_check_us = Some(world.now.wall_us + ahead_s * SECOND_US);
        world.tell(Control::Release { release: Release { next_check_us, ..done(&send) } });
        assert_eq!(world.held(&p), 0);
        assert_eq!(world.outcomes(id).first().map(|ended| ended.2), outcome);
    }
}

/// The event that comes again gets what its consumer left then, or what another run's has left since.
#[test]
fn what_comes_again_gets_the_latest_cursor_and_the_count_of_its_checks() {
    let p = policy(1, at_most(2));
    let mut world = World::with_policy(&p);
    let s = spec(10, Some(&p));
    world.emit(run(&s, START_US, 1), &s);
    let first = world.accept_all().remove(0);
    assert_eq!((first.checks, first.cursor.as_deref()), (0, None));
    let again = |world: &mut World, send: &Send, cursor: Option<&str>| {
        let next_check_us = Some(world.now.wall_us + SECOND_US);
        world.release(Release { next_check_us, cursor: cursor.map(str::to_owned), ..done(send) });
    };
    again(&mut world, &first, Some("page 1"));
    world.restart_after_s(60);
    let second = world.accept_all().remove(0);
    assert_eq!((second.checks, second.cursor.as_deref()), (1, Some("page 1")));
    // It fails: what is tried again is no further check.
    world.release(Release { outcome: ReleaseOutcome::Retry, ..done(&second) });
    world.sleep_s(60);
    let retried = world.accept_all().remove(0);
    assert_eq!((retried.checks, retried.cursor.as_deref()), (1, Some("page 1")));
    again(&mut world, &retried, None);
    let now_us = world.now.wall_us;
    world.emit(run(&s, now_us, 1), &s);
    let other = world.accept_all().remove(0);
    assert_eq!((other.checks, other.cursor.as_deref()), (0, Some("page 1")));
    world.release(Release { cursor: Some("page 2".into()), ..done(&other) });
    world.sleep_s(60);
    let third = world.accept_all().remove(0);
    assert_eq!((third.run, third.checks, third.cursor.as_deref()), (first.run, 2, Some("page 2")));
}

#[test]
fn a_cursor_goes_to_the_next_run_and_outlives_a_restart() {
    let (mut world, id, send, _, s) = held(1);
    assert_eq!(send.cursor, None);
    world.release(Release { cursor: Some("page 7".into()), ..done(&send) });
    assert_eq!(world.row(id).cursor_out.as_deref(), Some("page 7"));
    world.restart_after_s(1);
    let next = world.emit(run(&s, START_US + 2 * SECOND_US, 2), &s);
    world.sleep_s(3);
    let send = world.accept_all().remove(0);
    assert_eq!((send.run, send.cursor.as_deref()), (next, Some("page 7")));
    assert_eq!(world.row(next).cursor_in.as_deref(), Some("page 7"));
    // A cursor that comes during the run is the next run's.
    world.release(Release { cursor: Some("page 8".into()), ..done(&send) });
    assert_eq!(world.take_sends()[0].cursor.as_deref(), Some("page 7"));
}

#[test]
fn a_cursor_does_not_hide_a_change_of_its_schedule() {
    let (mut world, _, send, p, s) = held(1);
    world.release(Release { cursor: Some("page 7".into()), ..done(&send) });
    // The message that made the schedule comes late, with a launch time that no emitter has handed over.
    let launch_us = START_US + 5 * SECOND_US;
    world.tell(Control::ScheduleChanged {
        schedule: fence(&s, START_US, START_US + 10 * SECOND_US, vec![launch_us]),
        namespace: "default".into(),
        schedule_id: "s10".into(),
        policy_uid: Some(p.uid),
        onward: Vec::new(),
    });
    world.sleep_s(5);
    let send = world.take_sends().remove(0);
    assert_eq!((send.launch_us, send.cursor.as_deref()), (launch_us, Some("page 7")));
}

#[test]
fn a_release_through_the_inbox_is_carried_out_once() {
    let (mut world, id, send, _, _) = held(2);
    let message = world.post(Control::Release { release: done(&send) });
    let context = tollgate_core::handle::Context::default();
    world.shard.begin_read();
    world.shard.control(message.clone(), context.clone(), world.now);
    // A read that began earlier still shows it.
    world.shard.control(message.clone(), context.clone(), world.now);
    world.settle();
    world.shard.control(message, context, world.now);
    world.settle();
    assert_eq!(world.outcomes(id), [(0, 1, Outcome::Succeeded)]);
    assert!(world.store.inbox.is_empty());
}

/// It was recorded just before its consumer was given up.
#[test]
fn a_recorded_release_ends_an_event_that_was_reclaimed() {
    let (mut world, id, send, p, _) = held(1);
    world.sleep_s(70);
    assert_eq!((world.store.tokens[&(id, 0)].state, world.held(&p)), (TokenState::Waiting, 0));
    world.tell(Control::Release { release: done(&send) });
    assert_eq!(world.outcomes(id), [(0, 1, Outcome::Succeeded)]);
    world.sleep_s(600);
    assert_eq!((world.sends.len(), world.row(id).state), (0, RunState::Finished));
}

/// It was answered as recorded: its moment has passed since, which is no reason to keep the token.
#[test]
fn a_recorded_release_comes_again_though_its_moment_has_passed() {
    let (mut world, id, send, p, _) = held(1);
    let check_us = world.now.wall_us + SECOND_US;
    world.sleep_s(20);
    let cursor = Some("page 7".to_owned());
    let release = Release { next_check_us: Some(check_us), cursor, ..done(&send) };
    world.tell(Control::Release { release });
    assert_eq!((world.held(&p), world.row(id).cursor_out.clone()), (0, Some("page 7".to_owned())));
    world.sleep_s(60);
    let mut again = world.accept_all().remove(0);
    assert_eq!((again.index, again.attempt), (0, 2));
    // A version before looked at no guard. The event ends as its consumer said.
    for check in 2..=3 {
        assert_eq!(world.held(&p), 1, "check {check}");
        let next_check_us = Some(world.now.wall_us + SECOND_US);
        world.tell(Control::Release { release: Release { next_check_us, ..done(&again) } });
        assert_eq!(world.held(&p), 0, "check {check}");
        world.sleep_s(60);
        again = world.accept_all().pop().unwrap_or(again);
    }
    assert_eq!(world.outcomes(id), [(0, 1, Outcome::Succeeded)]);
}

#[test]
fn a_release_whose_commit_was_durable_after_all_is_not_lost() {
    let (mut world, id, send, p, _) = held(1);
    assert_eq!(world.shard.release(done(&send), 1, world.now), None);
    let commit = world.shard.poll_commit(world.now).unwrap();
    world.store.apply(&commit.changes);
    // The answer of the commit is lost: the owner takes over from itself.
    world.shard = Shard::new(0, world.options.clone(), world.store.state(), 9, world.now);
    assert_eq!(world.succeed(&send), Answer::NotHeld);
    assert_eq!((world.row(id).state, world.held(&p)), (RunState::Finished, 0));
}

#[test]
fn a_cancelled_event_does_not_come_again() {
    let (mut world, id, send, _, _) = held(3);
    world.tell(Control::CancelRun { run: id, reason: "stop".into() });
    let next_check_us = Some(world.now.wall_us + SECOND_US);
    world.release(Release { next_check_us, ..done(&send) });
    assert_eq!(world.row(id).state, RunState::Cancelled);
    assert_eq!(world.outcomes(id), [(0, 1, Outcome::Cancelled), (1, 2, Outcome::Cancelled)]);
    world.sleep_s(120);
    assert_eq!(world.sends.len(), 0);
}

/// The owner dies; the next one has read the inbox and sends again before a release of the first attempt gets there.
fn sent_again() -> (World, RunId, Send, Send, Policy) {
    let p = policy(1, at_most(1));
    let mut world = World::with_policy(&p);
    let s = spec(10, Some(&p));
    let id = world.emit(run(&s, START_US, 2), &s);
    let first = world.take_sends().remove(0);
    world.restart_after_s(1);
    let second = world.take_sends().remove(0);
    assert_eq!((second.index, second.attempt), (0, 2));
    (world, id, first, second, p)
}

#[test]
fn a_release_that_was_recorded_counts_although_the_event_has_been_sent_again() {
    let (mut world, id, first, second, _) = sent_again();
    world.tell(Control::Release { release: done(&first) });
    assert_eq!(world.ended(id, 0).map(|row| (row.outcome, row.attempt)), Some((Outcome::Succeeded, 2)));
    assert_eq!(world.take_sends().iter().map(|s| s.index).collect::<Vec<_>>(), [1], "its token is free");
    world.answer(&second, Sent::Accepted);
    assert_eq!(world.release(done(&second)), Answer::NotHeld);
}

/// It would be one more at work than its policy allows.
#[test]
fn what_was_given_back_is_not_taken_from_who_has_it_by_now() {
    let gives_back = [
        |first: &Send, _: i64| Release { outcome: ReleaseOutcome::Retry, ..done(first) },
        |first: &Send, now_us: i64| Release { next_check_us: Some(now_us + SECOND_US), ..done(first) },
    ];
    for gives_back in gives_back {
        let (mut world, id, first, second, p) = sent_again();
        world.answer(&second, Sent::Accepted);
        let release = gives_back(&first, world.now.wall_us);
        world.tell(Control::Release { release: Release { cursor: Some("page 7".to_owned()), ..release } });
        world.sleep_s(20);
        assert_eq!((world.held(&p), world.sends.len()), (1, 0), "it keeps its token, and nothing else goes");
        assert_eq!(world.row(id).cursor_out.as_deref(), Some("page 7"));
        assert_eq!(world.release(done(&second)), Answer::Released);
        assert_eq!(world.ended(id, 0).map(|row| (row.outcome, row.attempt)), Some((Outcome::Succeeded, 2)));
    }
}

#[test]
fn what_was_given_back_leaves_no_doubt_behind_it() {
    let p = policy(1, at_most(1));
    let mut world = World::with_policy(&p);
    let s = spec(10, Some(&p));
    let id = world.emit(run(&s, START_US, 1), &s);
    let first = world.take_sends().remove(0);
    world.answer(&first, unclear());
    world.sleep_s(60);
    let second = world.take_sends().remove(0);
    world.tell(Control::Release { release: Release { outcome: ReleaseOutcome::Retry, ..done(&first) } });
    world.answer(&second, refused());
    assert_eq!((world.held(&p), world.store.tokens[&(id, 0)].state), (0, TokenState::Waiting));
    world.sleep_s(60);
    assert_eq!(world.take_sends().remove(0).attempt, 3);
}

#[test]
fn nothing_is_sent_again_before_the_inbox_has_been_read() {
    let p = policy(1, at_most(1));
    let mut world = World::with_policy(&p);
    let s = spec(10, Some(&p));
    let id = world.emit(run(&s, START_US, 1), &s);
    let first = world.take_sends().remove(0);
    world.answer(&first, unclear());
    world.inbox_is_read = false;
    world.sleep_s(60);
    assert_eq!(world.sends.len(), 0);
    world.tell(Control::Release { release: done(&first) });
    world.inbox_is_read = true;
    world.sleep_s(60);
    assert_eq!((world.sends.len(), world.row(id).state), (0, RunState::Finished));
}

#[test]
fn an_inbox_that_was_read_late_puts_off_what_is_to_be_sent_again() {
    let mut world = World::new();
    let s = spec(10, None);
    world.emit(run(&s, START_US, 1), &s);
    let first = world.take_sends().remove(0);
    world.answer(&first, unclear());
    world.inbox_is_read = false;
    world.sleep_s(60);
    assert_eq!(world.sends.len(), 0);
    world.inbox_is_read = true;
    world.sleep_s(1);
    assert_eq!(world.take_sends().iter().map(|s| s.attempt).collect::<Vec<_>>(), [2]);
}
