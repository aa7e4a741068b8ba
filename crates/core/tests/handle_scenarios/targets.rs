//! Rates, waits and failures by target, within a namespace.

use tollgate_core::expected_end::{Expected, Never};
use tollgate_core::handle::control::Control;
use tollgate_core::handle::release::Answer;
use tollgate_core::handle::{Options, Send, TargetGauge};
use tollgate_core::model::*;
use uuid::Uuid;

use crate::handle_world::*;
use crate::world::*;

fn to(schedule: u128, namespace: &str, url: &str, policy: Option<&Policy>) -> RunSpec {
    let http = HttpTarget::plain(url.into(), 1000);
    let target = Target::Http { http, release: ReleaseMode::Explicit };
    let retry = RetryPolicy { attempts_max: 1_000, ..RetryPolicy::default() };
    RunSpec { namespace: namespace.into(), target, retry, ..spec(schedule, policy) }
}

fn gauges(world: &World) -> Vec<TargetGauge> {
    world.shard.status(world.now).targets
}

fn busy(world: &World) -> Vec<TargetGauge> {
    world.shard.busy_status(world.now).targets
}

fn gauge(world: &World, namespace: &str, target: &str) -> TargetGauge {
    let target = Some(target.to_owned());
    let mut found = gauges(world).into_iter().filter(|g| g.namespace == namespace && g.target == target);
    let gauge = found.next().unwrap_or_else(|| panic!("no {target:?} of {namespace} in {:?}", gauges(world)));
    assert_eq!(found.next(), None);
    gauge
}

/// Of the last minute: started, accepted, refused, unclear.
fn minute(gauge: &TargetGauge) -> [f64; 4] {
    [gauge.started_per_s, gauge.accepted_per_s, gauge.refused_per_s, gauge.unclear_per_s]
        .map(|per_s| (per_s * 60.0).round())
}

fn answer(world: &mut World, sends: &[Send], sent: &Sent) {
    sends.iter().for_each(|send| world.answer(send, sent.clone()));
}

fn said(message: &str) -> Sent {
    Sent::Refused { message: message.into(), retry_after_ms: None, permanent: false }
}

#[test]
fn two_schedules_of_one_target_are_counted_together_and_each_policy_by_itself() {
    let (p, q) = (policy(1, at_most(3)), policy(2, at_most(2)));
    let mut world = World::with(Default::default(), vec![p.clone(), q.clone()]);
    let a = to(10, "default", "http://shop:8080/orders", Some(&p));
    let b = to(11, "default", "http://shop:8080/bills?x=1", Some(&q));
    let c = to(12, "default", "http://mail/", Some(&q));
    world.emit(run(&a, START_US, 5), &a);
    let sends = world.take_sends();
    assert_eq!(sends.len(), 3);
    answer(&mut world, &sends, &Sent::Accepted);
    world.emit(run(&b, START_US, 2), &b);
    let sends = world.take_sends();
    answer(&mut world, &sends[..1], &Sent::Accepted);
    answer(&mut world, &sends[1..], &said("500: full"));
    world.emit(run(&c, START_US, 1), &c);
    let shop = gauge(&world, "default", "http://shop:8080");
    assert_eq!(minute(&shop), [4.0, 4.0, 1.0, 0.0]);
    assert_eq!((shop.held, shop.waiting, shop.retrying), (4, 3, 1), "2 of the first, 1 refused");
    assert_eq!(shop.last_error.as_ref().map(|error| error.words.as_str()), Some("500: full"));
    let mail = gauge(&world, "default", "http://mail");
    assert_eq!((minute(&mail), mail.held, mail.last_error), ([0.0; 4], 1, None));
    assert_eq!(gauges(&world).len(), 2);
    let by_policy: Vec<f64> =
        world.shard.status(world.now).gauges.iter().map(|g| (g.accepted_per_s * 60.0).round()).collect();
    assert_eq!(by_policy, [0.0, 3.0, 1.0]);
}

#[test]
fn the_same_target_of_two_namespaces_is_two() {
    let mut world = World::new();
    let (a, b) = (to(10, "a", "http://shop/", None), to(11, "b", "http://shop/", None));
    world.emit(run(&a, START_US, 2), &a);
    let sends = world.take_sends();
    answer(&mut world, &sends, &Sent::Accepted);
    world.emit(run(&b, START_US, 3), &b);
    let sends = world.take_sends();
    answer(&mut world, &sends, &said("503: not you"));
    let (a, b) = (gauge(&world, "a", "http://shop"), gauge(&world, "b", "http://shop"));
    assert_eq!((minute(&a), a.last_error), ([2.0, 2.0, 0.0, 0.0], None));
    assert_eq!((minute(&b), b.retrying), ([0.0, 0.0, 3.0, 0.0], 3));
}

/// Answers of several targets come in turn: what is counted next goes to its own.
#[test]
fn answers_that_come_in_turn_are_counted_where_they_belong() {
    let mut world = World::new();
    let specs = [(10, "http://a/"), (11, "http://b/"), (12, "http://c/")];
    let specs = specs.map(|(schedule, url)| to(schedule, "default", url, None));
    let runs: Vec<RunId> = specs.iter().map(|s| world.emit(run(s, START_US, 20), s)).collect();
    let sends = world.take_sends();
    let of = |id: RunId| sends.iter().filter(move |send| send.run == id);
    let now = world.now;
    for ((a, b), c) in of(runs[0]).zip(of(runs[1])).zip(of(runs[2])) {
        for (send, sent) in [(a, Sent::Accepted), (b, said("no")), (c, unclear())] {
            world.shard.sent(send.run, send.index, send.attempt, sent, now);
        }
    }
    world.flush();
    assert_eq!(minute(&gauge(&world, "default", "http://a")), [20.0, 20.0, 0.0, 0.0]);
    assert_eq!(minute(&gauge(&world, "default", "http://b")), [0.0, 0.0, 20.0, 0.0]);
    let c = gauge(&world, "default", "http://c");
    assert_eq!((minute(&c), c.held, c.retrying), ([20.0, 0.0, 0.0, 20.0], 20, 0), "they hold their tokens");
    assert_eq!(c.last_error.unwrap().words, "timed out");
}

/// The oldest wait counts from the launch time, not from the latest attempt.
#[test]
fn what_waits_waits_since_its_launch_and_a_target_stays_for_a_minute() {
    let p = policy(1, at_most(1));
    let mut world = World::with_policy(&p);
    let s = RunSpec {
        retry: RetryPolicy {
            attempts_max: 3,
            backoff_min_ms: 20_000,
            backoff_max_ms: 20_000,
            retry_lost: true,
        },
        ..to(10, "default", "http://shop/", Some(&p))
    };
    world.emit(run(&s, START_US, 1), &s);
    for _ in 0..2 {
        let sends = world.take_sends();
        answer(&mut world, &sends, &said("500"));
        world.sleep_s(20);
    }
    let shop = gauge(&world, "default", "http://shop");
    assert_eq!((shop.held, shop.waiting), (1, 0), "its third attempt is under way");
    let sends = world.take_sends();
    answer(&mut world, &sends, &said("500"));
    let shop = gauge(&world, "default", "http://shop");
    assert_eq!((shop.held, shop.waiting, minute(&shop)[2]), (0, 0, 3.0), "the event is dead, its run over");
    world.sleep_s(59);
    assert_eq!(busy(&world).len(), 1, "it answered in this minute");
    world.sleep_s(1);
    assert_eq!(gauges(&world), []);
    // Nothing of it was kept.
    let s = RunSpec { schedule_uid: Uuid::from_u128(11), ..s };
    world.emit(run(&s, world.now.wall_us, 2), &s);
    let sends = world.take_sends();
    world.sleep_s(7);
    let shop = gauge(&world, "default", "http://shop");
    assert_eq!((minute(&shop), shop.last_error, shop.oldest_wait_us), ([0.0; 4], None, 7 * SECOND_US));
    answer(&mut world, &sends, &said("500"));
    world.sleep_s(2);
    let shop = gauge(&world, "default", "http://shop");
    assert_eq!((shop.retrying, shop.oldest_wait_us), (1, 9 * SECOND_US), "from the launch");
}

/// A run that goes on keeps its target; those that launch after the change have the next one.
#[test]
fn a_target_that_is_changed_while_a_run_goes_on() {
    let p = policy(1, at_most(2));
    let mut world = World::with_policy(&p);
    let old = to(10, "default", "http://old/", Some(&p));
    world.emit(run(&old, START_US, 4), &old);
    let sends = world.accept_all();
    let new = RunSpec { generation: 2, ..to(10, "default", "http://new/", Some(&p)) };
    world.store.emit(run(&new, START_US + 60 * SECOND_US, 2), &new);
    world.tell(Control::ScheduleChanged {
        schedule: fence(&new, START_US + 1, START_US + 90 * SECOND_US, vec![START_US + 60 * SECOND_US]),
        namespace: "default".into(),
        schedule_id: "s10".into(),
        policy_uid: Some(p.uid),
        onward: Vec::new(),
    });
    world.read_runs();
    assert_eq!(gauges(&world).len(), 1, "the next run has not launched");
    world.sleep_us(SECOND_US);
    sends.iter().for_each(|send| assert_eq!(world.succeed(send), Answer::Released));
    let sends = world.accept_all();
    assert_eq!(minute(&gauge(&world, "default", "http://old")), [4.0, 4.0, 0.0, 0.0]);
    world.sleep_s(58);
    sends.iter().for_each(|send| assert_eq!(world.succeed(send), Answer::Released));
    world.sleep_s(1);
    let sends = world.take_sends();
    assert_eq!(sends.len(), 1, "as many as the schedule has now");
    answer(&mut world, &sends, &said("not yet"));
    assert_eq!(minute(&gauge(&world, "default", "http://new")), [0.0, 0.0, 1.0, 0.0]);
    let old = gauge(&world, "default", "http://old");
    assert_eq!((minute(&old), old.held + old.waiting), ([2.0, 2.0, 0.0, 0.0], 0));
}

/// A run that was closed and whose dead events are revived has its target again.
#[test]
fn what_is_tried_again_and_a_new_owner_know_their_targets() {
    let mut world = World::new();
    let s = RunSpec {
        retry: RetryPolicy { attempts_max: 1, ..RetryPolicy::default() },
        ..to(10, "a", "http://x/", None)
    };
    let id = world.emit(run(&s, START_US, 2), &s);
    let sends = world.take_sends();
    answer(&mut world, &sends, &said("gone"));
    world.sleep_s(61);
    assert_eq!(gauges(&world), []);
    world.tell(Control::RetryDead { run: id, indexes: Vec::new() });
    let x = gauge(&world, "a", "http://x");
    assert_eq!((x.held, x.waiting), (2, 0));
    world.restart_after_s(1);
    let x = gauge(&world, "a", "http://x");
    assert_eq!(
        (x.held, x.last_error.clone(), minute(&x)),
        (2, None, [0.0; 4]),
        "a new owner has heard nothing"
    );
    world.accept_all();
    assert_eq!(minute(&gauge(&world, "a", "http://x"))[1], 2.0);
}

/// A namespace with more targets than a shard tells apart leaves room for a neighbour that comes later; nothing of it is lost.
#[test]
fn a_namespace_with_too_many_targets_leaves_room_for_its_neighbours() {
    let mut world = World::with(Options { sends_max: 100_000, ..Default::default() }, Vec::new());
    let specs: Vec<RunSpec> =
        (0..1_500).map(|n| to(1_000 + n, "greedy", &format!("http://host-{n}/"), None)).collect();
    specs.iter().for_each(|s| world.store.emit(run(s, START_US, 1), s));
    world.read_runs();
    let sends = world.take_sends();
    assert_eq!(sends.len(), 1_500);
    answer(&mut world, &sends, &Sent::Accepted);
    let neighbour = to(10, "modest", "http://host-1/", None);
    world.emit(run(&neighbour, START_US, 3), &neighbour);
    let of_neighbour = world.take_sends();
    answer(&mut world, &of_neighbour, &said("no"));
    assert_eq!(minute(&gauge(&world, "modest", "http://host-1")), [0.0, 0.0, 3.0, 0.0]);
    let all = gauges(&world);
    let told: Vec<&TargetGauge> = all.iter().filter(|g| g.namespace == "greedy").collect();
    let others: Vec<&&TargetGauge> = told.iter().filter(|g| g.target.is_none()).collect();
    assert_eq!((told.len(), others.len()), (801, 1), "four fifths, and the others");
    assert_eq!((minute(others[0])[1], others[0].held), (700.0, 700));
    let accepted: f64 = told.iter().map(|g| minute(g)[1]).sum();
    assert_eq!(accepted, 1_500.0);
    // Those that go make room.
    sends.iter().for_each(|send| assert_eq!(world.succeed(send), Answer::Released));
    world.sleep_s(61);
    assert_eq!(gauges(&world).len(), 1, "the neighbour's");
    world.emit(run(&specs[1_400], world.now.wall_us, 1), &specs[1_400]);
    assert_eq!(gauge(&world, "greedy", "http://host-1400").held, 1);
}

/// Beside a schedule that gets through, all that waits may wait for a target that refuses.
#[test]
fn a_policy_of_which_only_refused_events_wait_says_so() {
    let p = policy(1, at_most(8));
    let mut world = World::with_policy(&p);
    let retry = RetryPolicy {
        attempts_max: 1_000,
        backoff_min_ms: 8_000,
        backoff_max_ms: 8_000,
        ..RetryPolicy::default()
    };
    let mut sick = RunSpec { retry, ..spec(10, Some(&p)) };
    if let Target::Http { http, .. } = &mut sick.target {
        http.url = "http://sick/".into();
    }
    let well = spec(11, Some(&p));
    world.emit(run(&sick, START_US, 2), &sick);
    let expected = |world: &World| world.shard.status(world.now).gauges.pop().unwrap().drained;
    for second in 0..40 {
        world.emit(run(&well, world.now.wall_us, 1), &well);
        for send in world.take_sends() {
            let is_sick = send.spec.schedule_uid == sick.schedule_uid;
            world.answer(&send, if is_sick { refused() } else { Sent::Accepted });
            if !is_sick {
                assert_eq!(world.succeed(&send), Answer::Released);
            }
        }
        if second == 0 {
            let Some(Expected::At(at_us)) = expected(&world) else { panic!("{:?}", expected(&world)) };
            let in_s = (at_us - world.now.wall_us) / SECOND_US;
            assert!((4..=8).contains(&in_s), "not before it is tried again: {in_s} s");
        }
        world.sleep_s(1);
    }
    let gauge = world.shard.status(world.now).gauges.pop().unwrap();
    assert!(gauge.accepted_per_s > 0.5 && gauge.waiting == gauge.retrying, "{gauge:?}");
    let never = || Some(Expected::Never(Never::TargetRefuses("http://sick".to_owned())));
    assert_eq!(expected(&world), never());
    // Events that wait for a token, and will get one, are another matter.
    let full = run(&well, world.now.wall_us + 1, 20);
    world.emit(full, &well);
    world.sleep_s(1);
    world.accept_all();
    assert_ne!(expected(&world), never());
}
