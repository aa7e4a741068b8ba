//! Why an event waits: each reason that an operator can be told.

use tollgate_core::handle::control::Control;
use tollgate_core::handle::{EventState, Explanation, Options, Reason};
use tollgate_core::model::*;

use crate::handle_world::*;
use crate::world::*;

fn explain(world: &World, id: RunId, index: u32) -> Explanation {
    world.shard.explain(id, index, world.now).unwrap()
}

#[test]
fn not_due_then_full_with_holders_then_its_turn() {
    let p = policy(1, at_most(2));
    let mut world = World::with_policy(&p);
    let s = spec(10, Some(&p));
    let id = world.emit(run(&s, START_US + SECOND_US, 100), &s);
    let early = explain(&world, id, 5);
    assert_eq!(early.state, EventState::Scheduled);
    assert_eq!(early.reasons, [Reason::NotDue { launch_us: START_US + SECOND_US }]);
    world.sleep_s(1);
    let sends = world.accept_all();
    world.sleep_s(7);
    let full = explain(&world, id, 5);
    assert_eq!((full.state, full.attempt, full.ahead), (EventState::Waiting, 0, Some(3)));
    assert_eq!(full.reasons, [Reason::PolicyFull { held: 2, limit: 2, units: 1 }]);
    assert_eq!(full.holders.len(), 2);
    assert_eq!((full.holders[0].age_us, full.holders[0].state), (7 * SECOND_US, EventState::Held));
    assert_eq!(full.holders[0].timer_us, Some(53 * SECOND_US));
    assert_eq!(full.holders[0].schedule, ("default".to_owned(), "s10".to_owned()));
    let held = explain(&world, id, 0);
    assert_eq!((held.state, held.attempt, held.holders.len()), (EventState::Held, 1, 1));
    assert!(held.reasons.is_empty());
    world.shard.release(done(&sends[0]), 1, world.now);
    assert_eq!(explain(&world, id, 5).reasons, [Reason::Turn]);
    assert_eq!(world.shard.explain(id, 0, world.now), None, "it has ended");
    assert_eq!(world.shard.explain(id, 100, world.now), None);
    assert_eq!(world.shard.outstanding(id), Some((1, 0)));
}

#[test]
fn the_rate_says_how_long_from_now() {
    let p = policy(1, Limits { max_in_flight: None, rate_per_s: Some(0.1), burst: Some(1) });
    let mut world = World::with_policy(&p);
    let s = spec(10, Some(&p));
    let id = world.emit(run(&s, START_US, 3), &s);
    assert_eq!(explain(&world, id, 1).reasons, [Reason::RateLimited { wait_us: 10 * SECOND_US }]);
    world.sleep_s(9);
    assert_eq!(explain(&world, id, 1).reasons, [Reason::RateLimited { wait_us: SECOND_US }]);
}

#[test]
fn back_off_retry_after_and_a_failing_run() {
    let options = Options { retrying_max: 1, sends_max: 2, ..Options::default() };
    let mut world = World::with(options, Vec::new());
    let s = spec(10, None);
    let id = world.emit(run(&s, START_US, 9), &s);
    let sends = world.take_sends();
    assert_eq!(explain(&world, id, 5).reasons, [Reason::SendsFull { sending: 2 }]);
    let answer =
        Sent::Refused { message: "429 slow down".into(), retry_after_ms: Some(20_000), permanent: false };
    world.answer(&sends[0], answer);
    world.sleep_s(5);
    let due_us = START_US + 20 * SECOND_US;
    let retrying = explain(&world, id, 0);
    assert_eq!((retrying.state, retrying.attempt), (EventState::Retrying, 1));
    let message = "429 slow down".to_owned();
    let wait_us = 15 * SECOND_US;
    let blocked = [Reason::TargetAskedToWait { wait_us }, Reason::RunRetrying { retrying: 1 }];
    assert_eq!(retrying.reasons[0], Reason::BackOff { due_us, attempt: 1, message });
    assert_eq!(retrying.reasons[1..], blocked);
    assert_eq!(explain(&world, id, 5).reasons, blocked);
}

#[test]
fn pauses_an_unknown_policy_and_a_run_ahead() {
    let mut p = policy(1, at_most(1));
    let mut world = World::new();
    let s = RunSpec { overlap: OverlapRule::BufferOne, ..spec(10, Some(&p)) };
    let id = world.emit(run(&s, START_US, 3), &s);
    assert_eq!(explain(&world, id, 0).reasons, [Reason::PolicyUnknown]);
    world.change_policy(&mut p, |p| p.pause = Some(pause()));
    world.tell(Control::PauseShard { pause: Some(pause()) });
    assert_eq!(explain(&world, id, 0).reasons, [Reason::AllPaused(pause()), Reason::PolicyPaused(pause())]);
    let mut row = fence(&s, START_US + 1, START_US + 1, Vec::new());
    (row.generation, row.pause) = (2, Some(pause()));
    let next = world.emit(run(&s, START_US + 1, 3), &s);
    world.tell(Control::ScheduleChanged {
        schedule: row,
        namespace: "default".into(),
        schedule_id: "s10".into(),
        policy_uid: Some(p.uid),
        onward: Vec::new(),
    });
    world.tell(Control::PauseShard { pause: None });
    world.change_policy(&mut p, |p| p.pause = None);
    world.sleep_s(1);
    let reasons = explain(&world, next, 0).reasons;
    assert_eq!(reasons, [Reason::SchedulePaused(pause()), Reason::Buffered { behind: id }]);
    assert_eq!(world.sends.len(), 0);
    let status = world.shard.status(world.now);
    assert_eq!((status.runs_launched, status.runs_upcoming, status.pause), (1, 1, None));
    let gauge = status.gauges.last().unwrap();
    assert_eq!((gauge.waiting, gauge.oldest_wait_us), (3, SECOND_US));
}

#[test]
fn what_goes_before_an_event_counts_priorities_turns_and_its_own_run() {
    let p = policy(1, at_most(1));
    let mut world = World::with_policy(&p);
    let (a, b, c, d) = (spec(10, Some(&p)), spec(11, Some(&p)), spec(12, Some(&p)), spec(13, Some(&p)));
    let id = world.emit(run(&a, START_US, 101), &a);
    assert_eq!(world.sends.len(), 1);
    world.emit(run(&b, START_US, 5), &b);
    world.emit(Run { priority: 9, ..run(&c, START_US, 7) }, &c);
    world.emit(Run { priority: 1, ..run(&d, START_US, 1000) }, &d);
    // 10 of its own run, 5 of the other schedule, 7 with priority, none of the lower one.
    assert_eq!(explain(&world, id, 11).ahead, Some(10 + 5 + 7));
    let mut turns = 0;
    loop {
        let send = world.accept_all().remove(0);
        if send.run == id && send.index == 11 {
            break;
        }
        turns += 1;
        world.succeed(&send);
    }
    assert!((22..=24).contains(&turns), "{turns} events went before it");
}

#[test]
fn busy_policies_hold_tokens_or_keep_events_waiting_or_have_just_started_some() {
    let policies: Vec<_> = (1..=3).map(|number| policy(number, at_most(1))).collect();
    let mut world = World::with(Options::default(), policies.clone());
    let busy = |world: &World| {
        let status = world.shard.busy_status(world.now);
        let named = status.gauges.iter().filter_map(|gauge| Some((gauge.policy.as_ref()?.uid, gauge.held)));
        (named.collect::<Vec<_>>(), status.runs_launched)
    };
    assert_eq!(busy(&world), (Vec::new(), 0));
    assert_eq!(world.shard.status(world.now).gauges.len(), 1 + policies.len());
    let s = spec(10, Some(&policies[1]));
    world.emit(run(&s, START_US, 2), &s);
    assert_eq!(busy(&world), (vec![(policies[1].uid, 1)], 1));
    world.work_off();
    assert_eq!(busy(&world), (vec![(policies[1].uid, 0)], 0), "it has started some within the last minute");
    world.sleep_s(120);
    assert_eq!(busy(&world), (Vec::new(), 0));
}

#[test]
fn the_gauges_speak_of_the_last_minute() {
    let p = policy(1, at_most(100));
    let mut world = World::with_policy(&p);
    let s = spec(10, Some(&p));
    world.emit(run(&s, START_US, 60), &s);
    world.work_off();
    let rate = |world: &World| world.shard.status(world.now).gauges[1].started_per_s;
    assert!((rate(&world) - 1.0).abs() < 1e-9);
    world.sleep_s(61);
    assert!(rate(&world).abs() < 1e-9);
}
