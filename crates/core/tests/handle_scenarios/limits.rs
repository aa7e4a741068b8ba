//! max_in_flight, rate and burst, live changes of both, pauses, priority and turns, and how small a large batch stays.

use tollgate_core::handle::change::Outcome;
use tollgate_core::handle::control::Control;
use tollgate_core::handle::{EventState, Options};
use tollgate_core::model::*;

use crate::handle_world::*;
use crate::world::*;

#[test]
fn no_more_than_the_limit_is_in_flight_and_each_release_lets_one_through() {
    let p = policy(1, at_most(3));
    let mut world = World::with_policy(&p);
    let s = spec(10, Some(&p));
    let id = world.emit(run(&s, START_US, 8), &s);
    let sends = world.accept_all();
    assert_eq!(sends.iter().map(|s| s.index).collect::<Vec<_>>(), [0, 1, 2]);
    assert!(sends.iter().all(|s| s.explicit_release && s.attempt == 1 && s.events == 8));
    world.sleep_s(30);
    assert!(world.sends.is_empty(), "full");
    world.succeed(&sends[1]);
    assert_eq!(world.take_sends().iter().map(|s| s.index).collect::<Vec<_>>(), [3]);
    assert_eq!((world.held(&p), world.store.in_flight(Some(p.uid))), (3, 3));
    assert_eq!(world.row(id).next_index, 4);
}

#[test]
fn nothing_fires_before_its_launch_time() {
    let mut world = World::new();
    let s = spec(10, None);
    let id = world.emit(run(&s, START_US + 10 * SECOND_US, 2), &s);
    world.sleep_us(10 * SECOND_US - 1);
    assert_eq!((world.sends.len(), world.row(id).state), (0, RunState::Running), "acquired, and not sent");
    world.sleep_us(1);
    assert_eq!((world.sends.len(), world.row(id).state), (2, RunState::Running));
}

#[test]
fn a_run_that_is_read_twice_is_one_run() {
    let mut world = World::new();
    let s = spec(10, None);
    let emitted = run(&s, START_US, 2);
    let id = world.emit(emitted.clone(), &s);
    // A read that began before the first one was durable.
    world.shard.adopt(vec![emitted.clone()], vec![s.clone()], world.now);
    world.settle();
    assert_eq!(world.work_off(), 2);
    world.shard.adopt(vec![emitted], vec![s], world.now);
    world.settle();
    assert_eq!((world.work_off(), world.row(id).state), (0, RunState::Finished));
    assert_eq!(world.shard.runs_held(), 0);
}

#[test]
fn without_a_policy_the_answer_releases_and_only_deliveries_under_way_are_bounded() {
    let options = Options { sends_max: 5, ..Options::default() };
    let mut world = World::with(options, Vec::new());
    let s = spec(10, None);
    let id = world.emit(run(&s, START_US, 12), &s);
    assert_eq!(world.sends.len(), 4, "one place is left for whoever comes next");
    assert!(!world.sends[0].explicit_release);
    assert_eq!(world.work_off(), 12);
    assert_eq!((world.row(id).counts.succeeded, world.row(id).state), (12, RunState::Finished));
}

#[test]
fn a_policy_with_a_rate_only_lets_held_events_grow_but_not_deliveries() {
    let limits = Limits { max_in_flight: None, rate_per_s: Some(1e6), burst: Some(1_000_000) };
    let p = policy(1, limits);
    let options = Options { sends_max: 5, ..Options::default() };
    let mut world = World::with(options, vec![p.clone()]);
    world.sleep_s(1);
    let s = spec(10, Some(&p));
    world.emit(run(&s, START_US, 12), &s);
    assert_eq!(world.accept_all().len(), 4);
    assert_eq!(world.accept_all().len(), 4, "held events do not count");
    assert_eq!((world.sends.len(), world.held(&p)), (4, 12));
}

#[test]
fn a_rate_spaces_starts_and_a_burst_comes_after_rest() {
    let p = policy(1, Limits { max_in_flight: None, rate_per_s: Some(2.0), burst: Some(4) });
    let mut world = World::with_policy(&p);
    let s = spec(10, Some(&p));
    world.emit(run(&s, START_US, 100), &s);
    assert_eq!(world.sends.len(), 1, "a fresh bucket has no burst");
    world.sleep_s(10);
    assert_eq!(world.take_sends().len(), 21);
    world.tell(Control::PauseShard { pause: Some(pause()) });
    world.sleep_s(60);
    world.tell(Control::PauseShard { pause: None });
    assert_eq!(world.take_sends().len(), 4, "the burst");
    world.sleep_us(499_999);
    assert_eq!(world.take_sends().len(), 0);
    world.sleep_us(1);
    assert_eq!(world.take_sends().len(), 1);
}

#[test]
fn both_limits_hold_at_once() {
    let p = policy(1, Limits { max_in_flight: Some(3), rate_per_s: Some(1.0), burst: Some(10) });
    let mut world = World::with_policy(&p);
    world.sleep_s(100);
    let s = spec(10, Some(&p));
    world.emit(run(&s, START_US, 100), &s);
    let first = world.accept_all();
    assert_eq!(first.len(), 3, "tokens bound the burst");
    first
        .iter()
        .for_each(|send| assert_eq!(world.succeed(send), tollgate_core::handle::release::Answer::Released));
    assert_eq!(world.sends.len(), 3);
    assert_eq!(world.work_off(), 7, "what the burst still held");
    world.sleep_s(1);
    assert_eq!(world.work_off(), 1);
}

#[test]
fn a_restart_is_no_way_around_the_rate() {
    let p = policy(1, Limits { max_in_flight: None, rate_per_s: Some(0.1), burst: Some(50) });
    let mut world = World::with_policy(&p);
    world.sleep_s(600);
    let s = spec(10, Some(&p));
    world.emit(run(&s, START_US + 700 * SECOND_US, 100), &s);
    world.sleep_s(99);
    world.restart_after_s(3600);
    assert_eq!(world.sends.len(), 1);
}

#[test]
fn a_raised_rate_counts_from_the_change() {
    let mut p = policy(1, Limits { max_in_flight: None, rate_per_s: Some(0.001), burst: Some(1000) });
    let mut world = World::with_policy(&p);
    let s = spec(10, Some(&p));
    world.emit(run(&s, START_US, 1000), &s);
    assert_eq!(world.take_sends().len(), 1);
    world.sleep_s(100);
    world.change_policy(&mut p, |p| p.limits.rate_per_s = Some(10.0));
    assert_eq!(world.take_sends().len(), 0, "the hundred seconds before count at the old rate");
    world.sleep_s(1);
    assert!((9..=11).contains(&world.take_sends().len()));
}

#[test]
fn a_rate_that_is_new_starts_without_burst() {
    let mut p = policy(1, at_most(1));
    let mut world = World::with_policy(&p);
    let s = spec(10, Some(&p));
    world.emit(run(&s, START_US, 1000), &s);
    world.sleep_s(50);
    world.change_policy(&mut p, |p| {
        p.limits = Limits { max_in_flight: Some(500), rate_per_s: Some(10.0), burst: Some(400) };
    });
    assert_eq!(world.take_sends().len(), 1 + 1);
}

#[test]
fn a_paused_rate_does_not_keep_the_driver_awake() {
    let mut p = policy(1, Limits { max_in_flight: None, rate_per_s: Some(1000.0), burst: Some(1) });
    let mut world = World::with_policy(&p);
    let s = spec(10, Some(&p));
    world.emit(run(&s, START_US, 100), &s);
    world.change_policy(&mut p, |p| p.pause = Some(pause()));
    for launch in 1..50 {
        world.emit(run(&s, START_US + launch, 1), &s);
    }
    world.sleep_s(1);
    let deadline = world.shard.next_deadline();
    assert_eq!((deadline.wall_us, deadline.mono_us), (None, None));
    world.change_policy(&mut p, |p| p.pause = None);
    world.sleep_us(500_000);
    assert!((100..149).contains(&world.sends.len()) || world.sends.len() == 149, "{}", world.sends.len());
}

#[test]
fn a_lowered_limit_lets_the_surplus_run_out_and_a_raised_one_acts_at_once() {
    let mut p = policy(1, at_most(4));
    let mut world = World::with_policy(&p);
    let s = spec(10, Some(&p));
    world.emit(run(&s, START_US, 100), &s);
    let held = world.accept_all();
    world.change_policy(&mut p, |p| p.limits.max_in_flight = Some(2));
    for (send, left) in held.iter().zip([3, 2]) {
        world.succeed(send);
        assert_eq!((world.held(&p), world.sends.len()), (left, 0));
    }
    world.succeed(&held[2]);
    assert_eq!((world.held(&p), world.sends.len()), (2, 1));
    world.change_policy(&mut p, |p| p.limits.max_in_flight = Some(7));
    assert_eq!((world.held(&p), world.sends.len()), (7, 6));
    assert_eq!(world.store.policies[&p.uid].limits.max_in_flight, Some(7));
}

#[test]
fn an_older_policy_is_ignored() {
    let mut p = policy(1, at_most(1));
    let old = p.clone();
    let mut world = World::with_policy(&p);
    let s = spec(10, Some(&p));
    world.emit(run(&s, START_US, 9), &s);
    world.change_policy(&mut p, |p| p.limits.max_in_flight = Some(2));
    world.tell(Control::PolicyChanged { policy: old });
    assert_eq!(world.sends.len(), 2);
    assert_eq!(world.store.policies[&p.uid].generation, 2);
    assert!(world.store.inbox.is_empty(), "ignored messages go, too");
}

#[test]
fn an_unknown_policy_lets_nothing_through_until_the_shard_is_told() {
    let p = policy(1, at_most(2));
    let mut world = World::new();
    let s = spec(10, Some(&p));
    world.emit(run(&s, START_US, 9), &s);
    world.sleep_s(100);
    assert_eq!(world.sends.len(), 0);
    world.tell(Control::PolicyChanged { policy: p.clone() });
    assert_eq!(world.sends.len(), 2);
}

#[test]
fn a_deleted_policy_is_forgotten_a_day_later_once_no_run_needs_it() {
    let p = policy(1, at_most(2));
    let mut world = World::with_policy(&p);
    let s = spec(10, Some(&p));
    let id = world.emit(run(&s, START_US, 5), &s);
    world.tell(Control::PolicyDeleted { uid: p.uid });
    assert_eq!(world.work_off(), 5);
    assert_eq!(world.row(id).state, RunState::Finished);
    let late = world.emit(run(&s, START_US + 1, 5), &s);
    world.sleep_us(1);
    assert_eq!(world.take_sends().len(), 2, "what was made before and comes late runs under its last limits");
    world.restart_after_s(2 * 86_400);
    assert!(world.store.policies.contains_key(&p.uid), "its run still needs it");
    assert_eq!(world.work_off(), 5);
    assert_eq!(world.row(late).state, RunState::Finished);
    assert!(world.store.policies.contains_key(&p.uid));
    world.sleep_s(2 * 86_400);
    assert!(world.store.policies.is_empty() && world.store.policies_deleted.is_empty());
    assert_eq!(world.shard.remembered().policies, 0);
}

#[test]
fn a_deletion_that_comes_before_the_last_change_is_not_forgotten() {
    let mut world = World::new();
    let q = policy(2, at_most(2));
    world.tell(Control::PolicyDeleted { uid: q.uid });
    world.tell(Control::PolicyChanged { policy: q.clone() });
    assert!(world.store.policies_deleted.contains_key(&q.uid));
    world.restart_after_s(1);
    world.sleep_s(2 * 86_400);
    assert!(world.store.policies.is_empty());
    assert_eq!(world.shard.remembered().policies, 0);
}

/// Another schedule than `s`, at the same target or another one.
fn neighbour(s: &RunSpec, number: u128, url: &str) -> RunSpec {
    let Target::Http { mut http, release } = s.target.clone() else { unreachable!() };
    http.url = url.to_owned();
    RunSpec { target: Target::Http { http, release }, ..spec(number, None) }
}

#[test]
fn a_consumer_that_says_nothing_stops_no_other_schedule_without_a_policy() {
    let mut world = World::new();
    let s = spec(10, None);
    let id = world.emit(run(&s, START_US, 5_000), &s);
    let hung = world.take_sends();
    assert!((400..600).contains(&hung.len()), "about half of all places: {}", hung.len());
    for (number, url) in [(11, "http://elsewhere.example/x"), (12, "http://127.0.0.1/other")] {
        let other = neighbour(&s, number, url);
        world.emit(run(&other, START_US, 300), &other);
        let sent = world.take_sends();
        assert!(
            sent.len() > 50 && sent.iter().all(|send| send.spec == other.clone().into()),
            "{}",
            sent.len()
        );
        for send in &sent {
            world.answer(send, Sent::Accepted);
        }
        while !world.accept_all().is_empty() {}
    }
    // An unclear delivery needs no place while it waits to be sent again, and needs one then.
    let (mut next, mut all) = (hung, 0);
    while !next.is_empty() {
        all += next.len();
        for send in &next {
            world.answer(send, unclear());
        }
        next = world.take_sends();
    }
    assert!((1_000..1_600).contains(&all), "others of the run take their places, up to a thousand: {all}");
    world.sleep_s(4_000);
    let again = world.take_sends();
    assert!((400..600).contains(&again.len()) && again.iter().all(|s| s.attempt == 2), "{}", again.len());
    assert_eq!(world.row(id).state, RunState::Running);
}

#[test]
fn what_waits_for_a_place_to_be_sent_again_goes_on_under_a_limit_and_when_it_is_cancelled() {
    let mut p = policy(1, Limits { max_in_flight: None, rate_per_s: Some(1e6), burst: Some(1_000_000) });
    let options = Options { sends_max: 2, ..Options::default() };
    let mut world = World::with(options, vec![p.clone()]);
    world.sleep_s(1);
    let (s, t) = (spec(10, Some(&p)), spec(11, Some(&p)));
    let id = world.emit(run(&s, START_US, 2), &s);
    for send in world.take_sends() {
        world.answer(&send, unclear());
    }
    // The other schedule has both places when the first one's events are to be sent again.
    world.emit(run(&t, START_US + 1, 9), &t);
    assert_eq!(world.take_sends().len(), 2);
    world.sleep_s(4_000);
    assert_eq!(world.take_sends().len(), 0);
    assert_eq!(world.shard.event_state(id, 0), Some(EventState::Acquired));
    world.change_policy(&mut p, |p| p.limits = at_most(2));
    let again = world.take_sends();
    assert_eq!(again.iter().map(|s| (s.run, s.attempt)).collect::<Vec<_>>(), [(id, 2), (id, 2)]);
}

#[test]
fn pauses_of_policy_schedule_and_all_stop_starts_and_keep_what_runs() {
    for what in ["policy", "schedule", "all"] {
        let mut p = policy(1, at_most(2));
        let mut world = World::with_policy(&p);
        let s = spec(10, Some(&p));
        let id = world.emit(run(&s, START_US, 9), &s);
        let held = world.accept_all();
        let mut row = fence(&s, START_US, START_US, Vec::new());
        let uid = p.uid;
        let tell_schedule = |world: &mut World, row: &tollgate_core::handle::change::ShardSchedule| {
            world.tell(Control::ScheduleChanged {
                schedule: row.clone(),
                namespace: "default".into(),
                schedule_id: "s10".into(),
                policy_uid: Some(uid),
                onward: Vec::new(),
            });
        };
        match what {
            "policy" => world.change_policy(&mut p, |p| p.pause = Some(pause())),
            "schedule" => {
                (row.generation, row.pause) = (2, Some(pause()));
                tell_schedule(&mut world, &row);
            }
            _ => world.tell(Control::PauseShard { pause: Some(pause()) }),
        }
        assert_eq!(world.succeed(&held[0]), tollgate_core::handle::release::Answer::Released);
        world.sleep_s(5);
        assert_eq!((world.sends.len(), world.held(&p)), (0, 1), "{what}");
        world.restart_after_s(1);
        assert_eq!(world.sends.len(), 0, "{what}: a restart does not end a pause");
        match what {
            "policy" => world.change_policy(&mut p, |p| p.pause = None),
            "schedule" => {
                (row.generation, row.pause) = (3, None);
                tell_schedule(&mut world, &row);
            }
            _ => world.tell(Control::PauseShard { pause: None }),
        }
        assert_eq!((world.sends.len(), world.held(&p)), (1, 2), "{what}");
        assert_eq!(world.row(id).next_index, 3);
    }
}

#[test]
fn a_paused_schedule_does_not_stop_the_others_of_its_policy() {
    let p = policy(1, at_most(2));
    let mut world = World::with_policy(&p);
    let (s, t) = (spec(10, Some(&p)), spec(11, Some(&p)));
    let row =
        tollgate_core::handle::change::ShardSchedule { pause: Some(pause()), ..fence(&s, 0, 0, Vec::new()) };
    world.tell(Control::ScheduleChanged {
        schedule: row,
        namespace: "default".into(),
        schedule_id: "s10".into(),
        policy_uid: Some(p.uid),
        onward: Vec::new(),
    });
    world.emit(run(&s, START_US, 9), &s);
    let other = world.emit(run(&t, START_US, 9), &t);
    assert!(world.sends.len() == 2 && world.sends.iter().all(|send| send.run == other));
}

#[test]
fn priority_goes_first_and_the_lower_one_gets_what_is_left() {
    let p = policy(1, at_most(1));
    let mut world = World::with_policy(&p);
    let (low, high) = (spec(10, Some(&p)), spec(11, Some(&p)));
    let low_id = world.emit(run(&low, START_US, 3), &low);
    let first = world.accept_all();
    let high_id = world.emit(Run { priority: 9, ..run(&high, START_US, 3) }, &high);
    world.succeed(&first[0]);
    let mut order = Vec::new();
    loop {
        let sends = world.accept_all();
        let Some(send) = sends.first() else { break };
        order.push(send.run);
        world.succeed(send);
    }
    assert_eq!(order, [high_id, high_id, high_id, low_id, low_id]);
}

#[test]
fn a_batch_of_a_thousand_does_not_starve_one_of_ten() {
    let p = policy(1, at_most(4));
    let mut world = World::with_policy(&p);
    let (large, small) = (spec(10, Some(&p)), spec(11, Some(&p)));
    world.emit(run(&large, START_US, 1000), &large);
    let small_id = world.emit(run(&small, START_US, 10), &small);
    let mut started = 0;
    while world.row(small_id).state != RunState::Finished {
        for send in world.accept_all() {
            started += 1;
            world.succeed(&send);
        }
    }
    assert!(started <= 4 + 2 * 10 + 4, "the small batch is done after {started} events");
    assert_eq!(started + world.work_off(), 1010);
}

#[test]
fn ten_million_events_are_one_row_and_a_cancel_is_one_more() {
    let p = policy(1, at_most(8));
    let mut world = World::with_policy(&p);
    let s = spec(10, Some(&p));
    let id = world.emit(run(&s, START_US, EVENTS_MAX), &s);
    for _ in 0..100 {
        for send in world.accept_all() {
            world.succeed(&send);
        }
    }
    assert_eq!((world.store.runs.len(), world.store.tokens.len(), world.store.history.len()), (1, 8, 800));
    let status = world.shard.status(world.now);
    let waiting: u64 = status.gauges.iter().map(|g| g.waiting).sum();
    assert_eq!(waiting, u64::from(EVENTS_MAX) - 808);
    let held = world.accept_all();
    world.tell(Control::CancelRun { run: id, reason: "wrong list".into() });
    assert_eq!(world.store.history.len(), 801);
    assert_eq!(world.outcomes(id).last(), Some(&(808, EVENTS_MAX - 808, Outcome::Cancelled)));
    assert_eq!((world.row(id).state, world.row(id).reason.as_str()), (RunState::Running, "wrong list"));
    for send in held {
        world.succeed(&send);
    }
    assert_eq!(world.row(id).state, RunState::Cancelled);
    assert_eq!((world.row(id).counts.succeeded, world.row(id).counts.cancelled), (808, EVENTS_MAX - 808));
    assert_eq!((world.sends.len(), world.shard.runs_held()), (0, 0));
}

#[test]
fn a_spread_spaces_events_evenly_and_none_is_early() {
    let mut world = World::new();
    let s = RunSpec { spread_s: Some(60), ..spec(10, None) };
    let id = world.emit(run(&s, START_US, 6), &s);
    for index in 0..6 {
        let sends = world.accept_all();
        assert_eq!(sends.len(), 1);
        let launch_us = START_US + i64::from(index) * 10 * SECOND_US;
        assert_eq!((sends[0].index, sends[0].launch_us), (index, launch_us));
        world.sleep_us(10 * SECOND_US - 1);
        assert_eq!(world.sends.len(), 0);
        world.sleep_us(1);
    }
    assert_eq!(world.row(id).state, RunState::Finished);
}

#[test]
fn a_spread_of_ten_million_wakes_for_each_event_once_and_keeps_one_timer() {
    let mut world = World::new();
    let s = RunSpec { spread_s: Some(86_400), ..spec(10, None) };
    let id = world.emit(run(&s, START_US, EVENTS_MAX), &s);
    world.sleep_s(1);
    // 10,000,000 / 86,400 s: events 0 to 115 launch within the first second.
    assert_eq!(world.work_off(), 116);
    assert_eq!(world.row(id).next_index, 119, "those of the next 20 ms are acquired, and not sent");
    world.restart_after_s(1);
    assert_eq!(world.work_off(), 232 - 116);
}

#[test]
fn a_draining_owner_starts_nothing_and_takes_what_comes() {
    let p = policy(1, at_most(2));
    let mut world = World::with_policy(&p);
    let s = spec(10, Some(&p));
    world.emit(run(&s, START_US, 9), &s);
    let sends = world.take_sends();
    world.shard.drain();
    assert_eq!(world.shard.sending(), 2);
    world.answer(&sends[0], Sent::Accepted);
    world.answer(&sends[1], unclear());
    assert_eq!(world.shard.sending(), 0);
    world.succeed(&sends[0]);
    world.sleep_s(30);
    assert_eq!(world.sends.len(), 0);
    world.restart_after_s(0);
    assert_eq!(world.sends.len(), 2, "its successor goes on");
}
