//! Trees of policies: an event takes a token of its policy and of each one above, or none; floors, weights, what is
//! lent; messages in any order.

use std::collections::BTreeMap;

use tollgate_core::expected_end::{Expected, Never};
use tollgate_core::handle::control::Control;
use tollgate_core::handle::{Reason, Send};
use tollgate_core::model::*;
use uuid::Uuid;

use crate::handle_world::*;
use crate::world::*;

fn with_floor(floor: u32, weight: u32, mut policy: Policy) -> Policy {
    policy.parent.iter_mut().for_each(|parent| (parent.floor, parent.weight) = (floor, weight));
    policy
}

/// A run of so many events under a policy.
fn due(world: &mut World, schedule: u128, policy: &Policy, events: u32) -> RunId {
    let spec = spec(schedule, Some(policy));
    world.emit(run(&spec, START_US, events), &spec)
}

/// How many of these are under each policy.
fn by_policy(sends: &[Send]) -> BTreeMap<String, usize> {
    let mut counts = BTreeMap::new();
    for send in sends {
        *counts.entry(send.spec.policy_id.clone().unwrap()).or_default() += 1;
    }
    counts
}

fn counts<const N: usize>(of: [(&str, usize); N]) -> BTreeMap<String, usize> {
    of.map(|(policy, count)| (policy.to_owned(), count)).into()
}

/// Tokens held by a policy's own events, and by those below.
fn held(world: &World, policy: &Policy) -> (u32, u32) {
    let gauges = world.shard.status(world.now).gauges;
    let gauge = gauges.into_iter().find(|gauge| gauge.policy.as_ref().is_some_and(|p| p.uid == policy.uid));
    gauge.map_or((0, 0), |gauge| (gauge.held, gauge.below))
}

#[test]
fn an_event_takes_a_token_of_each_policy_above_or_none() {
    let root = policy(1, at_most(5));
    let middle = below(&root, 2, at_most(4));
    let (a, b) = (below(&middle, 3, at_most(3)), below(&middle, 4, no_limit()));
    let mut world = World::with_policies(&[&root, &middle, &a, &b]);
    due(&mut world, 10, &a, 50);
    assert_eq!(world.accept_all().len(), 3, "its own limit");
    due(&mut world, 11, &b, 50);
    let of_b = world.accept_all();
    assert_eq!(by_policy(&of_b), counts([("p4", 1)]), "that of the one above");
    due(&mut world, 12, &root, 50);
    assert_eq!(
        by_policy(&world.accept_all()),
        counts([("p1", 1)]),
        "that of the root, which has events of its own"
    );
    assert_eq!([&root, &middle, &a, &b].map(|p| held(&world, p)), [(1, 4), (0, 4), (3, 0), (1, 0)]);
    // What comes back below goes to who may have it.
    world.succeed(&of_b[0]);
    assert_eq!(world.accept_all().len(), 1);
    let (own, of_others) = held(&world, &root);
    assert_eq!(own + of_others, 5);
}

#[test]
fn an_owner_that_takes_over_counts_what_is_held_below() {
    let root = policy(1, at_most(4));
    let (a, b) = (below(&root, 2, no_limit()), below(&root, 3, no_limit()));
    let mut world = World::with_policies(&[&root, &a, &b]);
    due(&mut world, 10, &a, 3);
    let sends = world.accept_all();
    world.restart_after_s(3);
    assert_eq!(held(&world, &root), (0, 3));
    due(&mut world, 11, &b, 9);
    assert_eq!(world.accept_all().len(), 1);
    world.succeed(&sends[0]);
    assert_eq!(by_policy(&world.accept_all()), counts([("p3", 1)]));
}

#[test]
fn a_floor_is_lent_and_met_as_tokens_come_back() {
    let root = policy(1, at_most(10));
    let big = below(&root, 2, no_limit());
    let small = with_floor(4, 1, below(&root, 3, no_limit()));
    let mut world = World::with_policies(&[&root, &big, &small]);
    due(&mut world, 10, &big, 1_000);
    let lent = world.accept_all();
    assert_eq!(lent.len(), 10, "nothing lies idle");
    due(&mut world, 11, &small, 1_000);
    assert_eq!(world.accept_all().len(), 0, "nothing is taken back by force");
    for send in &lent[..4] {
        world.succeed(send);
    }
    assert_eq!(
        by_policy(&world.accept_all()),
        counts([("p3", 4)]),
        "what comes back goes to the floor first"
    );
    // Above the floor, turns are as their weights: what it had by its floor counts.
    for send in &lent[4..] {
        world.succeed(send);
    }
    let more = by_policy(&world.accept_all());
    assert_eq!(more.values().sum::<usize>(), 6);
    assert!(more["p2"] >= 3, "{more:?}");
    assert_eq!(held(&world, &root), (0, 10));
}

#[test]
fn a_shared_budget_is_used_whole_as_long_as_anything_waits() {
    let root = policy(1, at_most(20));
    let middle = with_floor(6, 1, below(&root, 2, no_limit()));
    let leaves = [
        with_floor(4, 1, below(&middle, 3, no_limit())),
        below(&middle, 4, at_most(7)),
        with_floor(2, 5, below(&root, 5, no_limit())),
        below(&root, 6, at_most(3)),
    ];
    let mut world = World::with_policies(&[&root, &middle, &leaves[0], &leaves[1], &leaves[2], &leaves[3]]);
    for (schedule, leaf) in (10..).zip(&leaves) {
        due(&mut world, schedule, leaf, 300);
    }
    let mut waiting = counts([("p3", 300), ("p4", 300), ("p5", 300), ("p6", 300)]);
    let mut under_way: Vec<Send> = Vec::new();
    for turn in 0_usize.. {
        let started = world.accept_all();
        by_policy(&started)
            .into_iter()
            .for_each(|(policy, count)| *waiting.get_mut(&policy).unwrap() -= count);
        under_way.extend(started);
        let at_work = by_policy(&under_way);
        let may_start = |policy: &str, limit| {
            waiting[policy] > 0 && at_work.get(policy).is_none_or(|count| *count < limit)
        };
        let may_start =
            [("p3", 20), ("p4", 7), ("p5", 20), ("p6", 3)].map(|(policy, limit)| may_start(policy, limit));
        assert!(under_way.len() == 20 || may_start == [false; 4], "{at_work:?} at work, {waiting:?} wait");
        assert_eq!(held(&world, &root), (0, u32::try_from(under_way.len()).unwrap()));
        if under_way.is_empty() {
            break;
        }
        // As many come back at once as chance has it, of whichever policy.
        for _ in 0..=turn * 7 % 5 {
            if !under_way.is_empty() {
                world.succeed(&under_way.remove(turn * 13 % under_way.len()));
            }
        }
    }
    assert!(waiting.values().all(|count| *count == 0), "{waiting:?}");
}

#[test]
fn turns_go_by_weight_and_by_policy_not_by_schedule() {
    let root = policy(1, at_most(8));
    let one = below(&root, 2, no_limit());
    let three = with_floor(0, 3, below(&root, 3, no_limit()));
    let mut world = World::with_policies(&[&root, &one, &three]);
    // Many schedules of one weigh no more than one of another.
    for schedule in 10..30 {
        due(&mut world, schedule, &one, 100);
    }
    let mut under_way = world.accept_all();
    due(&mut world, 30, &three, 2_000);
    let mut started = BTreeMap::new();
    for _ in 0..400 {
        let first = under_way.remove(0);
        world.succeed(&first);
        let next = world.accept_all();
        by_policy(&next).into_iter().for_each(|(policy, count)| *started.entry(policy).or_default() += count);
        under_way.extend(next);
    }
    let (one, three): (usize, usize) = (started["p2"], started["p3"]);
    assert!(one + three == 400 && one.abs_diff(100) <= 4, "{one} and {three}");
}

#[test]
fn a_policy_at_its_own_limit_holds_up_no_other() {
    let root = policy(1, at_most(10));
    let narrow = with_floor(5, 10, below(&root, 2, at_most(1)));
    let wide = below(&root, 3, no_limit());
    let mut world = World::with_policies(&[&root, &narrow, &wide]);
    due(&mut world, 10, &narrow, 50);
    due(&mut world, 11, &wide, 50);
    let sends = world.accept_all();
    assert_eq!(by_policy(&sends), counts([("p2", 1), ("p3", 9)]));
    let of_narrow = sends.iter().find(|send| send.spec.policy_id.as_deref() == Some("p2")).unwrap();
    world.succeed(of_narrow);
    assert_eq!(by_policy(&world.accept_all()), counts([("p2", 1)]));
}

#[test]
fn the_rate_of_a_policy_above_spaces_what_starts_below() {
    let rate = Limits { max_in_flight: None, rate_per_s: Some(2.0), burst: Some(1) };
    let root = policy(1, rate);
    let (a, b) = (below(&root, 2, at_most(100)), below(&root, 3, at_most(100)));
    let mut world = World::with_policies(&[&root, &a, &b]);
    due(&mut world, 10, &a, 50);
    due(&mut world, 11, &b, 50);
    assert_eq!(world.accept_all().len(), 1);
    let mut all = Vec::new();
    for _ in 0..20 {
        world.sleep_us(SECOND_US / 2 + 10);
        let sends = world.accept_all();
        assert_eq!(sends.len(), 1);
        all.extend(sends);
    }
    assert_eq!(by_policy(&all), counts([("p2", 10), ("p3", 10)]));
    // Nothing is bounded by tokens above, and its own bound holds.
    assert_eq!(held(&world, &root), (0, 21));
}

#[test]
fn a_pause_above_stops_what_has_been_taken_ahead_and_says_so() {
    let mut root = policy(1, at_most(100));
    let a = below(&root, 2, no_limit());
    let mut world = World::with_policies(&[&root, &a]);
    let spec = spec(10, Some(&a));
    let launch_us = START_US + 10 * SECOND_US;
    let id = world.emit(run(&spec, launch_us, 3), &spec);
    let early_us = world.options.early_us;
    world.sleep_us(10 * SECOND_US - early_us / 2);
    assert_eq!(held(&world, &root), (0, 3), "they are taken ahead of the launch");
    world.change_policy(&mut root, |root| root.pause = Some(pause()));
    world.sleep_s(5);
    assert_eq!((world.take_sends().len(), held(&world, &root)), (0, (0, 0)));
    let why = world.shard.explain(id, 0, world.now).unwrap();
    let above = Reason::Above { policy: "p1".into(), holds: Box::new(Reason::PolicyPaused(pause())) };
    assert!(why.reasons.contains(&above), "{why:?}");
    let end = world.shard.outlooks(&[id], world.now)[0].clone().unwrap().end;
    assert_eq!(end, Expected::Never(Never::PolicyPaused("p1".into())));
    let sight = world.shard.sight(world.now);
    assert_eq!(sight.buckets.iter().map(|b| (b.policy.as_str(), b.waiting)).collect::<Vec<_>>(), [("p1", 3)]);
    world.change_policy(&mut root, |root| root.pause = None);
    assert_eq!(world.accept_all().len(), 3);
}

#[test]
fn why_names_the_policy_above_and_who_holds_its_tokens() {
    let root = policy(1, at_most(2));
    let (a, b) = (below(&root, 2, at_most(2)), below(&root, 3, no_limit()));
    let mut world = World::with_policies(&[&root, &a, &b]);
    let of_a = due(&mut world, 10, &a, 5);
    world.accept_all();
    let of_b = due(&mut world, 11, &b, 5);
    let why = world.shard.explain(of_b, 0, world.now).unwrap();
    let full = Reason::PolicyFull { held: 2, limit: 2, units: 1 };
    assert_eq!(why.reasons, [Reason::Above { policy: "p1".into(), holds: Box::new(full.clone()) }]);
    assert_eq!(why.holders.iter().map(|holder| holder.run).collect::<Vec<_>>(), [of_a, of_a]);
    let why = world.shard.explain(of_a, 4, world.now).unwrap();
    assert_eq!(why.reasons[0], full, "its own limit comes first");
}

#[test]
fn messages_may_come_in_any_order() {
    let root = policy(1, at_most(2));
    let middle = below(&root, 2, no_limit());
    let leaf = below(&middle, 3, no_limit());
    let mut world = World::new();
    due(&mut world, 10, &leaf, 9);
    for policy in [&leaf, &middle] {
        world.tell(Control::PolicyChanged { policy: policy.clone() });
        assert_eq!(world.accept_all().len(), 0, "nobody knows what is above");
    }
    world.tell(Control::PolicyChanged { policy: root.clone() });
    assert_eq!(world.accept_all().len(), 2);
    assert_eq!([&root, &middle, &leaf].map(|p| held(&world, p)), [(0, 2), (0, 2), (2, 0)]);
}

#[test]
fn another_parent_takes_its_tokens_with_it() {
    let (one, two) = (policy(1, at_most(2)), policy(2, at_most(3)));
    let mut a = below(&one, 3, no_limit());
    let b = below(&two, 4, no_limit());
    let mut world = World::with_policies(&[&one, &two, &a, &b]);
    due(&mut world, 10, &a, 50);
    let sends = world.accept_all();
    let parent = b.parent.clone();
    world.change_policy(&mut a, |a| a.parent = parent);
    assert_eq!([&one, &two].map(|p| held(&world, p)), [(0, 0), (0, 3)], "it has gone on under the other one");
    due(&mut world, 11, &b, 50);
    assert_eq!(world.accept_all().len(), 1);
    world.succeed(&sends[0]);
    assert_eq!(world.accept_all().len(), 1);
    // Alone it is what it was before there was a tree.
    world.change_policy(&mut a, |a| (a.parent, a.limits) = (None, at_most(20)));
    world.accept_all();
    assert_eq!(held(&world, &a), (20, 0));
}

#[test]
fn a_parent_goes_after_what_is_below_it() {
    let root = policy(1, at_most(2));
    let leaf = below(&root, 2, no_limit());
    let mut world = World::with_policies(&[&root, &leaf]);
    due(&mut world, 10, &leaf, 9);
    let sends = world.accept_all();
    for uid in [1, 2] {
        world.tell(Control::PolicyDeleted { uid: Uuid::from_u128(uid) });
    }
    for _ in 0..3 {
        for send in &sends {
            world.extend((send.run, send.index), None, None);
        }
        world.sleep_s(30);
    }
    assert_eq!(held(&world, &root), (0, 2), "its runs go on under both");
    let (mut next, mut started) = (sends, 2);
    while !next.is_empty() {
        for send in &next {
            world.succeed(send);
        }
        next = world.accept_all();
        started += next.len();
    }
    assert_eq!(started, 9);
    world.sleep_s(3 * 86_400);
    assert_eq!(world.shard.remembered().policies, 0);
}
