//! Limits by key: each key has its own, none holds up another, and keys take turns; a rate that is high.

use std::collections::{BTreeMap, BTreeSet};

use tollgate_core::expected_end::{Expected, Never};
use tollgate_core::handle::control::Control;
use tollgate_core::handle::release::Answer;
use tollgate_core::handle::{EventState, Reason, Send};
use tollgate_core::model::*;

use crate::handle_world::*;
use crate::world::*;

/// A policy of so many tokens, of which each key may have so many.
fn by_key(limit: u32, of_each: u32) -> Policy {
    Policy {
        keys: KeyRules { each: Some(at_most(of_each)), of: BTreeMap::new() },
        ..policy(1, at_most(limit))
    }
}

fn of_key(schedule: u128, key: &str, policy: &Policy) -> RunSpec {
    let key = Some(key).filter(|key| !key.is_empty()).map(str::to_owned);
    RunSpec { key, ..spec(schedule, Some(policy)) }
}

fn keys(sends: &[Send]) -> Vec<&str> {
    sends.iter().map(|send| send.spec.key()).collect()
}

fn rule(rule: KeyRule) -> BTreeMap<String, KeyRule> {
    BTreeMap::from([("acme".to_owned(), rule)])
}

#[test]
fn a_key_at_its_limit_holds_up_no_other() {
    let p = by_key(10, 2);
    let mut world = World::with_policy(&p);
    let (acme, zeta, pool) = (of_key(10, "acme", &p), of_key(11, "zeta", &p), of_key(12, "", &p));
    world.emit(run(&acme, START_US, 50), &acme);
    // Two schedules of one key share its limit, and so do those without one.
    let second = of_key(13, "acme", &p);
    world.emit(run(&second, START_US, 50), &second);
    assert_eq!(keys(&world.accept_all()), ["acme", "acme"]);
    world.emit(run(&zeta, START_US, 50), &zeta);
    world.emit(run(&pool, START_US, 50), &pool);
    let also = of_key(14, "", &p);
    world.emit(run(&also, START_US, 50), &also);
    let sends = world.accept_all();
    assert_eq!(keys(&sends), ["zeta", "zeta", "", ""]);
    assert_eq!(world.held(&p), 6, "four tokens are left");
    world.succeed(&sends[1]);
    assert_eq!(keys(&world.take_sends()), ["zeta"], "what one key gives back is its own");
    world.succeed(&sends[3]);
    assert_eq!(keys(&world.take_sends()), [""]);
}

#[test]
fn an_owner_that_takes_over_counts_what_each_key_holds() {
    let p = by_key(10, 2);
    let mut world = World::with_policy(&p);
    let (acme, zeta) = (of_key(10, "acme", &p), of_key(11, "zeta", &p));
    world.emit(run(&acme, START_US, 9), &acme);
    world.emit(run(&zeta, START_US, 1), &zeta);
    let sends = world.accept_all();
    assert_eq!(sends.len(), 3);
    world.restart_after_s(3);
    let more = of_key(12, "zeta", &p);
    world.emit(run(&more, START_US, 9), &more);
    assert_eq!(keys(&world.accept_all()), ["zeta"], "acme has two, and zeta one more");
    world.succeed(&sends[0]);
    assert_eq!(keys(&world.take_sends()), ["acme"]);
}

#[test]
fn an_event_that_holds_its_token_is_sent_again_though_its_key_is_full() {
    // A rate alone bounds all of them, so that what is sent again needs a place, and takes its turn.
    let limits = Limits { max_in_flight: None, rate_per_s: Some(1000.0), burst: Some(1000) };
    let p = Policy { limits, ..by_key(1, 1) };
    let mut world = World::with_policy(&p);
    world.sleep_s(5);
    let s = of_key(10, "acme", &p);
    let id = world.emit(run(&s, START_US, 3), &s);
    let sends = world.take_sends();
    assert_eq!(sends.len(), 1);
    world.answer(&sends[0], unclear());
    world.sleep_s(20);
    let again = world.take_sends();
    assert_eq!(again.iter().map(|send| (send.index, send.attempt)).collect::<Vec<_>>(), [(0, 2)]);
    world.answer(&again[0], Sent::Accepted);
    world.succeed(&again[0]);
    assert_eq!(world.take_sends().iter().map(|send| send.index).collect::<Vec<_>>(), [1]);
    assert_eq!(world.row(id).counts.succeeded, 1);
}

#[test]
fn the_rate_of_a_key_spaces_its_starts_alone() {
    let each = Limits { max_in_flight: None, rate_per_s: Some(1.0), burst: Some(3) };
    let p = Policy { keys: KeyRules { each: Some(each), of: BTreeMap::new() }, ..policy(1, at_most(1_000)) };
    let mut world = World::with_policy(&p);
    let (acme, zeta) = (of_key(10, "acme", &p), of_key(11, "zeta", &p));
    let id = world.emit(run(&acme, START_US, 100), &acme);
    assert_eq!(world.take_sends().len(), 1, "a key that has just come has no burst");
    let reason = world.shard.explain(id, 50, world.now).unwrap().reasons;
    assert_eq!(reason, [Reason::KeyRateLimited { key: "acme".into(), wait_us: SECOND_US }]);
    world.sleep_us(10 * SECOND_US + 10);
    assert_eq!(world.take_sends().len(), 10);
    world.emit(run(&zeta, START_US, 2), &zeta);
    assert_eq!(keys(&world.take_sends()), ["zeta"]);
    world.sleep_us(SECOND_US - 20);
    assert_eq!(keys(&world.take_sends()), Vec::<&str>::new());
    world.sleep_us(40);
    assert_eq!(
        world.take_sends().iter().map(|send| send.spec.key()).collect::<BTreeSet<_>>(),
        ["acme", "zeta"].into()
    );
}

#[test]
fn what_is_said_of_one_key_holds_at_once() {
    let mut p = by_key(100, 2);
    let mut world = World::with_policy(&p);
    let (acme, zeta) = (of_key(10, "acme", &p), of_key(11, "zeta", &p));
    world.emit(run(&acme, START_US, 50), &acme);
    world.emit(run(&zeta, START_US, 50), &zeta);
    assert_eq!(world.accept_all().len(), 4);
    let five = KeyRule { limits: at_most(5), ..KeyRule::default() };
    world.change_policy(&mut p, |p| p.keys.of = rule(five));
    assert_eq!(keys(&world.accept_all()), ["acme"; 3]);
    let paused = KeyRule { paused: true, reason: "they asked".into(), ..KeyRule::default() };
    world.change_policy(&mut p, |p| (p.keys.each, p.keys.of) = (Some(at_most(6)), rule(paused)));
    assert_eq!(keys(&world.accept_all()), ["zeta"; 4]);
    world.change_policy(&mut p, |p| p.keys = KeyRules::default());
    assert_eq!(world.accept_all().len(), 89, "all that the policy lets through");
    world.change_policy(&mut p, |p| p.keys.each = Some(at_most(1)));
    assert_eq!((world.accept_all().len(), world.held(&p)), (0, 100), "what is held stays");
}

#[test]
fn keys_take_turns_however_many_schedules_they_have() {
    let mut p = by_key(1, 1);
    p.keys.of = rule(KeyRule { weight: 2, ..KeyRule::default() });
    let mut world = World::with_policy(&p);
    for schedule in 10..30 {
        let s = of_key(schedule, "many", &p);
        world.emit(run(&s, START_US, 5), &s);
    }
    for (schedule, key) in [(50, "acme"), (51, "zeta")] {
        let s = of_key(schedule, key, &p);
        world.emit(run(&s, START_US, 8), &s);
    }
    // The first one started when nobody else was there.
    let sends = world.accept_all();
    world.succeed(&sends[0]);
    let mut order = Vec::new();
    for _ in 0..12 {
        let sends = world.accept_all();
        order.extend(keys(&sends).into_iter().map(str::to_owned));
        world.succeed(&sends[0]);
    }
    let expected = ["many", "acme", "acme", "zeta"].repeat(3);
    assert_eq!(order, expected);
}

#[test]
fn who_asks_why_is_told_the_key_and_its_holders() {
    let mut p = by_key(10, 1);
    let mut world = World::with_policy(&p);
    let (acme, zeta) = (of_key(10, "acme", &p), of_key(11, "zeta", &p));
    let id = world.emit(run(&acme, START_US, 5), &acme);
    world.emit(run(&zeta, START_US, 5), &zeta);
    world.accept_all();
    let why = world.shard.explain(id, 3, world.now).unwrap();
    assert_eq!(why.state, EventState::Waiting);
    assert_eq!(why.reasons, [Reason::KeyFull { key: "acme".into(), held: 1, limit: 1, units: 1 }]);
    assert_eq!(why.holders.iter().map(|holder| (holder.run, holder.index)).collect::<Vec<_>>(), [(id, 0)]);
    world.change_policy(&mut p, |p| {
        p.keys.of = rule(KeyRule { paused: true, reason: "they asked".into(), ..KeyRule::default() });
    });
    let why = world.shard.explain(id, 3, world.now).unwrap();
    assert_eq!(why.reasons, [Reason::KeyPaused { key: "acme".into(), reason: "they asked".into() }]);
    let outlook = world.shard.outlooks(&[id], world.now).remove(0).unwrap();
    let never = Never::KeyPaused { policy: p.id.clone(), key: "acme".into() };
    assert_eq!(never.in_words(), "never, while the key \"acme\" of p1 is paused");
    assert_eq!(outlook.end, Expected::Never(never));
}

#[test]
fn what_is_acquired_early_keeps_to_its_key_too() {
    let p = by_key(1_000, 4);
    let mut world = World::with_policy(&p);
    let s = of_key(10, "acme", &p);
    world.emit(run(&s, START_US + 10 * SECOND_US, 9), &s);
    world.sleep_us(10 * SECOND_US - 1);
    assert_eq!((world.held(&p), world.sends.len()), (0, 0), "more than half of what the key may have");
    world.sleep_us(1);
    assert_eq!(world.take_sends().len(), 4);
}

#[test]
fn who_is_let_go_by_its_key_and_cancelled_leaves_its_turn_to_the_next() {
    let p = by_key(2, 1);
    let mut world = World::with_policy(&p);
    let acme = [10, 11, 12].map(|schedule| of_key(schedule, "acme", &p));
    let runs = acme.each_ref().map(|s| world.emit(run(s, START_US, 1), s));
    let zeta = of_key(20, "zeta", &p);
    world.emit(run(&zeta, START_US, 1), &zeta);
    let first = world.accept_all();
    assert_eq!(keys(&first), ["acme", "zeta"], "all tokens are held");
    // What is more urgent takes the token that comes back, so that the second of the key is let go and does not start.
    let hot = of_key(30, "hot", &p);
    world.emit(Run { priority: 9, ..run(&hot, START_US, 1) }, &hot);
    world.succeed(&first[0]);
    assert_eq!(keys(&world.accept_all()), ["hot"]);
    world.tell(Control::CancelRun { run: runs[1], reason: String::new() });
    world.succeed(&first[1]);
    assert_eq!(world.accept_all().iter().map(|send| send.run).collect::<Vec<_>>(), [runs[2]]);
}

/// Owners look every few milliseconds; what the rate lets through in between starts with the next look.
#[test]
fn a_high_rate_without_a_burst_is_reached_and_rest_is_worth_one_second() {
    let p = policy(1, Limits { max_in_flight: None, rate_per_s: Some(5_000.0), burst: None });
    let mut world = World::with_policy(&p);
    let s = spec(10, Some(&p));
    world.emit(run(&s, START_US, 100_000), &s);
    world.work_off();
    let mut started = 0;
    for _ in 0..100 {
        world.pass(10_000);
        world.settle();
        started += world.work_off();
    }
    assert!((4_990..=5_010).contains(&started), "{started} in a second");
    world.pass(60 * SECOND_US);
    world.settle();
    assert_eq!(world.work_off(), 5_000);
}

#[test]
fn what_holds_its_token_is_sent_again_before_one_that_waits_for_its_key() {
    // A rate alone bounds all of them, so that what is sent again stands in its lane; a clock that is set back makes what is
    // refused later due before.
    let limits = Limits { max_in_flight: None, rate_per_s: Some(1000.0), burst: Some(1000) };
    let p = Policy { limits, ..by_key(1, 2) };
    let mut world = World::with_policy(&p);
    world.sleep_s(5);
    let s = of_key(10, "acme", &p);
    let id = world.emit(run(&s, START_US, 4), &s);
    let sends = world.take_sends();
    assert_eq!(sends.len(), 2);
    world.answer(&sends[0], refused());
    let third = world.take_sends().remove(0);
    world.answer(&third, Sent::Accepted);
    world.sleep_s(20);
    assert_eq!(world.succeed(&third), Answer::Released);
    let again = world.take_sends().remove(0);
    assert_eq!((again.index, again.attempt), (0, 2), "refused once, it holds a token");
    world.now.wall_us -= 24 * SECOND_US;
    world.answer(&sends[1], refused());
    assert_eq!(world.accept_all().len(), 1, "the last one has the token");
    world.sleep_s(10);
    world.answer(&again, unclear());
    world.sleep_s(20);
    let resent: Vec<u32> = world.take_sends().iter().map(|send| send.index).collect();
    assert_eq!(resent, [0], "{:?}", world.shard.explain(id, 1, world.now));
}
