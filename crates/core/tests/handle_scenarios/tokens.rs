//! Time to live, heartbeats, suspicion and reclaim; restarts in every state; clocks that jump.

use tollgate_core::handle::change::{Outcome, TokenState};
use tollgate_core::handle::control::Control;
use tollgate_core::handle::release::{Answer, Release};
use tollgate_core::handle::{EventState, Options};
use tollgate_core::model::*;

use crate::handle_world::*;
use crate::world::*;

fn sqs() -> Target {
    let sqs = SqsTarget {
        queue_url: "http://127.0.0.1/q".into(),
        region: None,
        endpoint_url: None,
        message_group_id: None,
        group_by_key: false,
        deadline_ms: 1000,
    };
    Target::Sqs { sqs, release: ReleaseMode::TargetDefault }
}

fn kafka() -> Target {
    let kafka = KafkaTarget {
        bootstrap_servers: "kafka.example:9092".into(),
        topic: "t".into(),
        key: None,
        headers: [].into(),
        content_mode: ContentMode::Structured,
        deadline_ms: KafkaTarget::DEADLINE_DEFAULT_MS,
    };
    Target::Kafka { kafka, release: ReleaseMode::TargetDefault }
}

#[test]
fn held_then_suspect_then_reclaimed_and_tried_again() {
    let p = policy(1, at_most(1));
    let mut world = World::with_policy(&p);
    let s = spec(10, Some(&p));
    let id = world.emit(run(&s, START_US, 2), &s);
    let send = world.accept_all().remove(0);
    world.sleep_us(60 * SECOND_US - 1);
    assert_eq!(world.shard.event_state(id, 0), Some(EventState::Held));
    world.sleep_us(1);
    assert_eq!(world.shard.event_state(id, 0), Some(EventState::Suspect));
    assert_eq!(world.shard.status(world.now).gauges[1].suspect, 1);
    world.sleep_us(10 * SECOND_US - 1);
    assert_eq!((world.shard.event_state(id, 0), world.held(&p)), (Some(EventState::Suspect), 1));
    world.sleep_us(1);
    assert_eq!(world.shard.event_state(id, 0), Some(EventState::Retrying));
    assert_eq!(world.shard.status(world.now).gauges[1].suspect, 0);
    assert_eq!(world.sends.iter().map(|s| s.index).collect::<Vec<_>>(), [1], "its token is another's now");
    assert_eq!(world.succeed(&send), Answer::Late);
    assert_eq!(world.work_off(), 1);
    world.sleep_s(2);
    assert_eq!(world.accept_all().iter().map(|s| (s.index, s.attempt)).collect::<Vec<_>>(), [(0, 2)]);
    assert_eq!(world.succeed(&send), Answer::Late, "the first attempt is over");
}

#[test]
fn nothing_is_reclaimed_before_the_inbox_has_been_read_after_its_time_came() {
    let p = policy(1, at_most(2));
    let mut world = World::with_policy(&p);
    let s = spec(10, Some(&p));
    let id = world.emit(run(&s, START_US, 2), &s);
    let send = world.accept_all().remove(0);
    world.sleep_s(65);
    world.inbox_is_read = false;
    world.sleep_s(10);
    assert_eq!(world.shard.event_state(id, 0), Some(EventState::Suspect), "a release may wait unread");
    world.tell(Control::Release { release: done(&send) });
    assert_eq!(world.ended(id, 0).unwrap().outcome, Outcome::Succeeded);
    assert_eq!(world.shard.event_state(id, 1), Some(EventState::Suspect));
    world.inbox_is_read = true;
    world.sleep_us(SECOND_US / 10);
    assert_eq!(world.shard.event_state(id, 1), Some(EventState::Retrying));
}

#[test]
fn a_reclaimed_event_ends_as_lost_where_its_schedule_says_so() {
    let p = policy(1, at_most(1));
    let mut world = World::with_policy(&p);
    let mut s = spec(10, Some(&p));
    s.retry.retry_lost = false;
    let id = world.emit(run(&s, START_US, 1), &s);
    let send = world.accept_all().remove(0);
    world.sleep_s(70);
    let ended = world.ended(id, 0).unwrap();
    assert_eq!((ended.outcome, ended.message.as_str()), (Outcome::Lost, "no sign of the consumer for 70 s"));
    assert_eq!((world.row(id).counts.lost, world.row(id).state), (1, RunState::Finished));
    assert_eq!(world.succeed(&send), Answer::NotHeld);
}

#[test]
fn a_heartbeat_keeps_a_token_and_heals_a_suspect() {
    let p = policy(1, at_most(1));
    let mut world = World::with_policy(&p);
    let s = spec(10, Some(&p));
    let id = world.emit(run(&s, START_US, 1), &s);
    let send = world.accept_all().remove(0);
    for _ in 0..5 {
        world.sleep_s(65);
        assert_eq!(world.shard.event_state(id, 0), Some(EventState::Suspect));
        let answer = world.extend((id, 0), Some(1), None);
        assert_eq!(answer, Answer::Extended { remaining_ms: 60_000 });
        assert_eq!(world.shard.event_state(id, 0), Some(EventState::Held));
        assert_eq!(world.shard.status(world.now).gauges[1].suspect, 0);
    }
    let answer = world.extend((id, 0), None, Some(200_000));
    assert_eq!(answer, Answer::Extended { remaining_ms: 200_000 });
    world.sleep_s(199);
    assert_eq!(world.shard.event_state(id, 0), Some(EventState::Held));
    assert_eq!(world.store.tokens[&(id, 0)].heartbeat_ttl_ms, Some(200_000), "it outlives a restart");
    assert_eq!(world.succeed(&send), Answer::Released);
    assert_eq!(world.extend((id, 0), None, None), Answer::NotHeld);
}

#[test]
fn heartbeats_of_an_earlier_attempt_are_late() {
    let p = policy(1, at_most(1));
    let mut world = World::with_policy(&p);
    let s = spec(10, Some(&p));
    let id = world.emit(run(&s, START_US, 1), &s);
    world.accept_all();
    world.sleep_s(70);
    assert_eq!(world.extend((id, 0), Some(1), None), Answer::Late, "it waits for attempt 2");
    world.sleep_s(2);
    world.accept_all();
    assert_eq!(world.extend((id, 0), Some(1), None), Answer::Late);
    assert_eq!(world.extend((id, 0), Some(2), None), Answer::Extended { remaining_ms: 60_000 });
}

#[test]
fn a_message_may_lie_in_its_queue_for_long_and_counts_from_the_first_heartbeat() {
    let p = policy(1, at_most(1));
    let mut world = World::with_policy(&p);
    let s = RunSpec { target: sqs(), ..spec(10, Some(&p)) };
    let id = world.emit(run(&s, START_US, 1), &s);
    world.accept_all();
    world.sleep_s(599);
    assert_eq!(world.shard.event_state(id, 0), Some(EventState::Held));
    let answer = world.extend((id, 0), None, None);
    assert_eq!(
        answer,
        Answer::Extended { remaining_ms: 60_000 },
        "from now on the consumer is expected to speak"
    );
    world.sleep_s(60);
    assert_eq!(world.shard.event_state(id, 0), Some(EventState::Suspect));
    world.sleep_s(10);
    assert_eq!(world.shard.event_state(id, 0), Some(EventState::Retrying));
}

#[test]
fn the_policy_may_say_from_when_the_time_counts() {
    for (ttl_from, target, ttl_s) in [
        (TtlFrom::Delivery, sqs(), 60),
        (TtlFrom::FirstHeartbeat, spec(1, None).target, 600),
        (TtlFrom::TargetDefault, sqs(), 600),
        (TtlFrom::TargetDefault, kafka(), 600),
        (TtlFrom::TargetDefault, spec(1, None).target, 60),
    ] {
        let p = Policy { ttl_from, ..policy(1, at_most(1)) };
        let mut world = World::with_policy(&p);
        let s = RunSpec { target, ..spec(10, Some(&p)) };
        let id = world.emit(run(&s, START_US, 1), &s);
        world.accept_all();
        world.sleep_us(ttl_s * SECOND_US - 1);
        assert_eq!(world.shard.event_state(id, 0), Some(EventState::Held), "{ttl_from:?} {ttl_s}");
        world.sleep_us(1);
        assert_eq!(world.shard.event_state(id, 0), Some(EventState::Suspect), "{ttl_from:?} {ttl_s}");
    }
}

#[test]
fn reclaim_never_waits_for_an_operator() {
    let p = Policy { reclaim: Reclaim::Never, ..policy(1, at_most(1)) };
    let mut world = World::with_policy(&p);
    let s = spec(10, Some(&p));
    let id = world.emit(run(&s, START_US, 2), &s);
    let send = world.accept_all().remove(0);
    world.sleep_s(30 * 86_400);
    assert_eq!((world.shard.event_state(id, 0), world.held(&p)), (Some(EventState::Suspect), 1));
    world.restart_after_s(86_400);
    world.sleep_s(86_400);
    assert_eq!((world.shard.event_state(id, 0), world.sends.len()), (Some(EventState::Suspect), 0));
    world.tell(Control::Release { release: Release { attempt: None, ..done(&send) } });
    assert_eq!(world.ended(id, 0).map(|r| r.outcome), Some(Outcome::Succeeded));
    assert_eq!(world.sends.len(), 1);
}

#[test]
fn a_policy_that_begins_to_reclaim_reclaims_what_is_suspect_already() {
    let mut p = Policy { reclaim: Reclaim::Never, ..policy(1, at_most(1)) };
    let mut world = World::with_policy(&p);
    let s = spec(10, Some(&p));
    let id = world.emit(run(&s, START_US, 1), &s);
    world.accept_all();
    world.sleep_s(600);
    assert_eq!(world.shard.event_state(id, 0), Some(EventState::Suspect));
    world.change_policy(&mut p, |p| p.reclaim = Reclaim::AfterTtl);
    world.sleep_s(10);
    assert_eq!(world.shard.event_state(id, 0), Some(EventState::Acquired), "reclaimed and sent again");
}

#[test]
fn a_changed_time_to_live_takes_effect_at_once_both_ways() {
    let mut p = policy(1, at_most(1));
    let mut world = World::with_policy(&p);
    let s = spec(10, Some(&p));
    let id = world.emit(run(&s, START_US, 1), &s);
    world.accept_all();
    world.sleep_s(20);
    world.change_policy(&mut p, |p| p.token_ttl_ms = 15_000);
    assert_eq!(world.shard.event_state(id, 0), Some(EventState::Suspect));
    world.change_policy(&mut p, |p| p.token_ttl_ms = 100_000);
    assert_eq!(world.shard.event_state(id, 0), Some(EventState::Held));
    assert_eq!(world.shard.status(world.now).gauges[1].suspect, 0);
    world.sleep_s(79);
    assert_eq!(world.shard.event_state(id, 0), Some(EventState::Held));
    world.sleep_s(1);
    assert_eq!(world.shard.event_state(id, 0), Some(EventState::Suspect));
}

#[test]
fn restarts_in_every_state_keep_tokens_attempts_and_the_limit() {
    let p = policy(1, at_most(3));
    let mut world = World::with_policy(&p);
    let s = spec(10, Some(&p));
    let id = world.emit(run(&s, START_US, 10), &s);
    let sends = world.take_sends();
    // 0 stays acquired, 1 is held, 2 waits for its second attempt; 3 took its token.
    world.answer(&sends[1], Sent::Accepted);
    world.answer(&sends[2], refused());
    world.sleep_us(50_000);
    let states: Vec<_> = world.store.tokens.values().map(|t| t.state).collect();
    assert_eq!(states, [TokenState::Acquired, TokenState::Held, TokenState::Waiting, TokenState::Acquired]);
    world.take_sends();
    world.restart_after_s(3 * 86_400);
    let again: Vec<_> = world.sends.iter().map(|s| (s.index, s.attempt)).collect();
    assert_eq!(again, [(0, 2), (3, 2)], "what nobody knows is sent again; the others wait for a token");
    assert_eq!((world.held(&p), world.store.in_flight(Some(p.uid))), (3, 3));
    assert_eq!(world.shard.event_state(id, 1), Some(EventState::Held), "down-time expires nothing");
    world.sleep_s(59);
    assert_eq!(world.shard.event_state(id, 1), Some(EventState::Held));
    world.accept_all();
    assert_eq!(world.release(done(&sends[1])), Answer::Released);
    assert_eq!(world.sends.iter().map(|s| (s.index, s.attempt)).collect::<Vec<_>>(), [(2, 2)]);
    assert_eq!(world.release(done(&sends[0])), Answer::Late, "attempt 1 is over");
}

#[test]
fn a_wall_clock_that_jumps_expires_no_token() {
    for jump_s in [-400 * 86_400, -3600, 3600, 400 * 86_400] {
        let p = policy(1, at_most(2));
        let mut world = World::with_policy(&p);
        let s = spec(10, Some(&p));
        let id = world.emit(run(&s, START_US, 5), &s);
        let sends = world.accept_all();
        world.sleep_s(10);
        world.now.wall_us += jump_s * SECOND_US;
        world.sleep_s(49);
        assert_eq!(world.shard.event_state(id, 0), Some(EventState::Held), "{jump_s} s");
        world.sleep_s(1);
        assert_eq!(world.shard.event_state(id, 0), Some(EventState::Suspect), "{jump_s} s");
        assert_eq!(world.succeed(&sends[0]), Answer::Released, "a release in the suspect phase is normal");
        world.now.wall_us = START_US + 60 * SECOND_US;
        world.sleep_s(1);
        assert_eq!(world.sends.len(), 1);
    }
}

#[test]
fn a_release_that_overtakes_the_targets_answer_counts() {
    let p = policy(1, at_most(1));
    let mut world = World::with_policy(&p);
    let s = spec(10, Some(&p));
    let id = world.emit(run(&s, START_US, 2), &s);
    let send = world.take_sends().remove(0);
    assert_eq!(world.succeed(&send), Answer::Released);
    for late in [Sent::Accepted, refused(), unclear()] {
        world.answer(&send, late);
    }
    assert_eq!(world.outcomes(id), [(0, 1, Outcome::Succeeded)]);
    assert_eq!(world.held(&p), 1);
    assert_eq!(world.work_off(), 1);
}

#[test]
fn a_heartbeat_may_overtake_the_targets_answer_too() {
    let p = policy(1, at_most(1));
    let mut world = World::with_policy(&p);
    let s = spec(10, Some(&p));
    let id = world.emit(run(&s, START_US, 1), &s);
    assert_eq!(world.extend((id, 0), None, Some(90_000)), Answer::Extended { remaining_ms: 90_000 });
    world.accept_all();
    world.sleep_s(89);
    assert_eq!(world.shard.event_state(id, 0), Some(EventState::Held));
    world.sleep_s(1);
    assert_eq!(world.shard.event_state(id, 0), Some(EventState::Suspect));
}

#[test]
fn a_cancelled_run_resends_nothing_after_a_restart() {
    let p = policy(1, at_most(2));
    let mut world = World::with_policy(&p);
    let s = spec(10, Some(&p));
    let id = world.emit(run(&s, START_US, 9), &s);
    let sends = world.take_sends();
    world.answer(&sends[0], unclear());
    world.tell(Control::CancelRun { run: id, reason: String::new() });
    world.restart_after_s(5);
    assert_eq!((world.sends.len(), world.held(&p)), (0, 2), "in flight until it is released or reclaimed");
    assert_eq!(world.succeed(&sends[1]), Answer::Released);
    world.sleep_s(70);
    assert_eq!((world.row(id).state, world.held(&p)), (RunState::Cancelled, 0));
    assert_eq!(world.row(id).counts, Counts { succeeded: 1, cancelled: 8, ..Counts::default() });
    assert_eq!(world.row(id).reason, "cancelled");
}

#[test]
fn a_heartbeat_with_a_time_to_live_of_its_own_is_answered_once_that_is_durable() {
    let p = policy(1, at_most(1));
    let mut world = World::with_policy(&p);
    let s = spec(10, Some(&p));
    let id = world.emit(run(&s, START_US, 1), &s);
    world.accept_all();
    assert_eq!(world.shard.extend((id, 0), Some(1), Some(90_000), 1, world.now), None);
    assert_eq!(world.shard.extend((id, 0), Some(1), None, 2, world.now), None, "the same, before the commit");
    let commit = world.shard.poll_commit(world.now).unwrap();
    assert_eq!(world.shard.extend((id, 0), Some(1), None, 3, world.now), None, "while it is under way");
    assert!(world.replies.is_empty());
    world.store.apply(&commit.changes);
    let answered: Vec<_> = world.shard.committed(world.now).into_iter().collect();
    assert_eq!(answered.len(), 2);
    world.settle();
    let extended = Answer::Extended { remaining_ms: 90_000 };
    assert_eq!(world.replies, [(3, extended.clone())]);
    let unchanged = world.shard.extend((id, 0), Some(1), None, 4, world.now);
    assert_eq!(unchanged, Some(extended), "nothing to write: at once");
    world.restart_after_s(1);
    world.sleep_s(89);
    assert_eq!(world.shard.event_state(id, 0), Some(EventState::Held));
    world.sleep_s(1);
    assert_eq!(world.shard.event_state(id, 0), Some(EventState::Suspect));
}

#[test]
fn an_answer_hurries_the_commit_only_where_somebody_waits_for_the_token() {
    let options = Options { sends_max: 1, ..Options::default() };
    let lazy_us = options.lazy_us;
    let mut world = World::with(options, Vec::new());
    let s = spec(10, None);
    let id = world.emit(run(&s, START_US, 2), &s);
    let first = world.take_sends().remove(0);
    world.shard.sent(first.run, first.index, first.attempt, Sent::Accepted, world.now);
    world.settle();
    let second = world.take_sends().remove(0);
    assert_eq!((second.index, world.row(id).counts.succeeded), (1, 1), "the second event waited for it");
    world.shard.sent(second.run, second.index, second.attempt, Sent::Accepted, world.now);
    world.settle();
    assert_eq!(world.row(id).state, RunState::Running, "nobody waits");
    let due_us = world.shard.next_deadline().mono_us.unwrap();
    let due_wall_us = due_us - world.now.mono_us + world.now.wall_us;
    assert_eq!(due_wall_us % lazy_us, 0, "a moment that is the same in all shards");
    assert!(due_us > world.now.mono_us && due_us <= world.now.mono_us + lazy_us);
    world.sleep_us(lazy_us);
    assert_eq!(world.row(id).state, RunState::Finished);
}
