//! A run falls due while another of its schedule is unfinished.

use tollgate_core::expected_end::Expected;
use tollgate_core::handle::Reason;
use tollgate_core::handle::change::Outcome;
use tollgate_core::handle::release::Answer;
use tollgate_core::model::*;

use crate::handle_world::*;
use crate::world::*;

fn scene(overlap: OverlapRule) -> (World, RunSpec, RunId, RunId) {
    let p = policy(1, at_most(2));
    let mut world = World::with_policy(&p);
    let s = RunSpec { overlap, ..spec(10, Some(&p)) };
    let first = world.emit(run(&s, START_US, 3), &s);
    let second = world.emit(run(&s, START_US + MINUTE_US, 3), &s);
    (world, s, first, second)
}

#[test]
fn allow_runs_both() {
    let (mut world, _, first, second) = scene(OverlapRule::Allow);
    world.sleep_s(60);
    assert_eq!(world.work_off(), 6);
    assert_eq!((world.row(first).state, world.row(second).state), (RunState::Finished, RunState::Finished));
}

#[test]
fn skip_records_the_trigger_and_why() {
    let (mut world, s, first, second) = scene(OverlapRule::Skip);
    world.sleep_s(60);
    let row = world.row(second);
    assert_eq!((row.state, row.counts), (RunState::Skipped, Counts::default()));
    assert_eq!(row.reason, format!("overlap: the run {first} was unfinished"));
    let skipped = &world.store.skipped[&(s.schedule_uid, START_US + MINUTE_US)];
    assert_eq!((skipped.reason, skipped.recorded_us), (SkipReason::Overlap, START_US + MINUTE_US));
    assert_eq!(world.work_off(), 3);
    world.emit(run(&s, START_US + 2 * MINUTE_US, 1), &s);
    world.sleep_s(60);
    assert_eq!(world.work_off(), 1, "the next one runs");
}

#[test]
fn skip_holds_while_the_last_event_is_in_flight_and_after_a_restart() {
    let (mut world, _, _, second) = scene(OverlapRule::Skip);
    for _ in 0..2 {
        let send = world.accept_all().remove(0);
        world.succeed(&send);
    }
    world.restart_after_s(60);
    assert_eq!(world.row(second).state, RunState::Skipped);
}

#[test]
fn a_manual_run_overlaps_as_it_likes() {
    let (mut world, s, _, _) = scene(OverlapRule::Skip);
    let manual = world.emit(Run { kind: RunKind::Manual, ..run(&s, START_US + 1, 1) }, &s);
    world.sleep_us(1);
    assert_eq!(world.row(manual).state, RunState::Waiting);
    world.work_off();
    assert_eq!(world.row(manual).state, RunState::Finished);
}

#[test]
fn buffer_one_waits_and_further_ones_are_skipped() {
    let (mut world, s, first, second) = scene(OverlapRule::BufferOne);
    let third = world.emit(run(&s, START_US + 2 * MINUTE_US, 3), &s);
    let held = world.accept_all();
    world.sleep_s(50);
    for send in &held {
        world.extend((send.run, send.index), None, Some(600_000));
    }
    world.sleep_s(80);
    assert_eq!((world.row(second).state, world.row(third).state), (RunState::Waiting, RunState::Skipped));
    assert!(world.store.skipped.contains_key(&(s.schedule_uid, START_US + 2 * MINUTE_US)));
    world.restart_after_s(1);
    assert_eq!(world.sends.len(), 0, "still behind the first");
    for send in &held {
        assert_eq!(world.succeed(send), Answer::Released);
    }
    let last = world.accept_all();
    assert!(last.iter().all(|send| send.run == first) && last.len() == 1, "{last:?}");
    world.succeed(&last[0]);
    assert!(world.sends.iter().all(|send| send.run == second) && world.sends.len() == 2);
    assert_eq!(world.work_off(), 3);
}

#[test]
fn a_buffered_run_expires_at_the_end_of_its_own_window() {
    let p = policy(1, at_most(1));
    let mut world = World::with_policy(&p);
    let s = RunSpec { overlap: OverlapRule::BufferOne, finish_by_s: Some(90), ..spec(10, Some(&p)) };
    let first = world.emit(run(&s, START_US, 1), &s);
    let second = world.emit(run(&s, START_US + MINUTE_US, 5), &s);
    let third = world.emit(run(&s, START_US + 3 * MINUTE_US, 2), &s);
    let send = world.accept_all().remove(0);
    world.extend((first, 0), None, Some(3_600_000));
    world.sleep_s(149);
    assert_eq!(world.row(second).state, RunState::Waiting);
    world.sleep_s(1);
    assert_eq!(world.outcomes(second), [(0, 5, Outcome::Expired)]);
    assert_eq!(world.row(second).state, RunState::Finished);
    world.sleep_s(40);
    assert_eq!(world.row(third).state, RunState::Waiting, "its place in the buffer is free again");
    world.succeed(&send);
    assert_eq!(world.work_off(), 2);
}

#[test]
fn cancel_other_cancels_what_has_not_started() {
    let (mut world, _, first, second) = scene(OverlapRule::CancelOther);
    let held = world.accept_all();
    world.sleep_s(59);
    for send in &held {
        world.extend((send.run, send.index), None, Some(600_000));
    }
    world.sleep_s(1);
    assert_eq!(world.outcomes(first), [(2, 1, Outcome::Cancelled)]);
    assert_eq!(world.row(first).reason, format!("overlap: the run {second} fell due"));
    assert_eq!(
        world.row(second).state,
        RunState::Waiting,
        "the tokens are the old run's until they are released"
    );
    for send in &held {
        assert_eq!(world.succeed(send), Answer::Released);
    }
    assert_eq!(world.row(first).state, RunState::Cancelled);
    assert_eq!(world.work_off(), 3);
    assert_eq!(world.row(second).state, RunState::Finished);
}

#[test]
fn cancel_other_ends_events_that_wait_for_another_attempt() {
    let (mut world, _, first, _) = scene(OverlapRule::CancelOther);
    world.sleep_s(59);
    let send = world.take_sends().remove(0);
    world.answer(
        &send,
        Sent::Refused { message: "503".into(), retry_after_ms: Some(300_000), permanent: false },
    );
    world.sleep_s(1);
    let ended = world.ended(first, 0).unwrap();
    assert_eq!((ended.outcome, ended.attempt), (Outcome::Cancelled, 1));
}

#[test]
fn after_an_outage_the_oldest_run_goes_first() {
    let (mut world, _, first, second) = scene(OverlapRule::BufferOne);
    world.take_sends();
    world.restart_after_s(3600);
    assert!(world.sends.iter().all(|send| send.run == first));
    assert_eq!(world.row(second).state, RunState::Waiting);
}

/// Of a schedule that rests for 90 s after a run: the first run is due now, the second in a minute.
fn restful(overlap: OverlapRule) -> (World, RunSpec, [RunId; 2]) {
    let p = policy(1, at_most(2));
    let mut world = World::with_policy(&p);
    let s = RunSpec { overlap, delay_after_finish_s: Some(90), ..spec(10, Some(&p)) };
    let ids = [0, 1].map(|minute| world.emit(run(&s, START_US + minute * MINUTE_US, 3), &s));
    (world, s, ids)
}

#[test]
fn a_run_that_falls_due_in_the_rest_waits_for_its_end_also_after_a_restart() {
    let (mut world, s, [first, second]) = restful(OverlapRule::BufferOne);
    world.sleep_s(10);
    assert_eq!(world.work_off(), 3);
    assert_eq!(world.row(first).state, RunState::Finished);
    let until_us = START_US + 100 * SECOND_US;
    assert_eq!(world.store.schedules[&s.schedule_uid].rest_until_us, until_us);
    world.sleep_s(51);
    let why = world.shard.explain(second, 0, world.now).unwrap();
    assert_eq!(why.reasons, [Reason::Resting { until_us }]);
    let outlook = world.shard.outlooks(&[second], world.now).pop().unwrap().unwrap();
    assert!(matches!(outlook.end, Expected::At(end_us) if end_us >= until_us), "{outlook:?}");
    let third = world.emit(run(&s, START_US + 62 * SECOND_US, 3), &s);
    world.sleep_s(2);
    assert_eq!(world.row(third).state, RunState::Skipped, "one waits already");
    world.restart_after_s(30);
    world.sleep_us(7 * SECOND_US - 1);
    assert_eq!(world.take_sends().len(), 0, "it still rests");
    world.sleep_us(1);
    assert_eq!(world.work_off(), 3);
    assert_eq!((world.now.wall_us, world.row(second).state), (until_us, RunState::Finished));
    // Once nothing needs it, the shard forgets it.
    world.sleep_s(91);
    assert!(!world.store.schedules.contains_key(&s.schedule_uid));
}

#[test]
fn a_run_that_falls_due_in_the_rest_is_skipped_where_the_rule_says_so() {
    let (mut world, s, [_, second]) = restful(OverlapRule::Skip);
    assert_eq!(world.work_off(), 3);
    world.sleep_s(60);
    let row = world.row(second);
    assert_eq!(row.state, RunState::Skipped);
    assert_eq!(row.reason, "overlap: its schedule rested after the run before");
    assert_eq!(world.store.skipped[&(s.schedule_uid, row.launch_us)].reason, SkipReason::Overlap);
    // A skipped run is no run after which it rests.
    world.emit(run(&s, START_US + 90 * SECOND_US, 1), &s);
    world.sleep_s(30);
    assert_eq!(world.work_off(), 1);
}

#[test]
fn what_a_user_starts_does_not_wait_for_the_rest_and_the_rest_counts_from_its_end() {
    let (mut world, s, [_, second]) = restful(OverlapRule::BufferOne);
    assert_eq!(world.work_off(), 3);
    world.sleep_s(70);
    let manual = world.emit(Run { kind: RunKind::Manual, ..run(&s, START_US + 70 * SECOND_US, 1) }, &s);
    let send = world.accept_all().remove(0);
    assert_eq!(send.run, manual);
    world.sleep_s(25);
    assert_eq!((world.sends.len(), world.row(second).state), (0, RunState::Waiting), "it is unfinished");
    world.succeed(&send);
    world.sleep_s(89);
    assert_eq!(world.sends.len(), 0);
    world.sleep_s(1);
    assert_eq!(world.work_off(), 3);
}

#[test]
fn a_run_of_a_resting_schedule_takes_no_tokens_early() {
    let (mut world, _, _) = restful(OverlapRule::BufferOne);
    assert_eq!(world.work_off(), 3);
    world.sleep_us(MINUTE_US - 1);
    assert_eq!(world.store.in_flight(Some(policy(1, at_most(2)).uid)), 0);
    world.sleep_s(31);
    assert_eq!(world.work_off(), 3);
}
