//! Events that take several tokens: what they count as, who waits for them, and who does not.

use std::collections::BTreeMap;

use tollgate_core::handle::change::{Outcome, ShardSchedule};
use tollgate_core::handle::control::Control;
use tollgate_core::handle::{Reason, Send};
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

/// A schedule of which each event takes so many tokens.
fn taking(schedule: u128, policy: &Policy, units: u32) -> RunSpec {
    RunSpec { units, ..spec(schedule, Some(policy)) }
}

fn of_key(key: &str, spec: RunSpec) -> RunSpec {
    RunSpec { key: Some(key.to_owned()), ..spec }
}

impl World {
    /// So many events of a schedule are due.
    fn due(&mut self, spec: &RunSpec, events: u32) -> RunId {
        self.emit(run(spec, START_US, events), spec)
    }

    /// As [`World::due`], of this priority.
    fn due_with(&mut self, spec: &RunSpec, priority: u8) -> RunId {
        self.emit(Run { priority, ..run(spec, START_US, 1) }, spec)
    }

    /// Everything that has been accepted is done. What started then.
    fn done_with(&mut self, sends: &[Send]) -> Vec<Send> {
        for send in sends {
            self.succeed(send);
        }
        self.accept_all()
    }

    fn why(&self, id: RunId, index: u32) -> Vec<Reason> {
        self.shard.explain(id, index, self.now).unwrap().reasons
    }
}

/// The schedules of these, in order.
fn of(sends: &[Send]) -> Vec<&str> {
    sends.iter().map(|send| send.spec.schedule_id.as_str()).collect()
}

#[test]
fn an_event_takes_its_tokens_of_the_policy_and_of_the_one_above() {
    let root = policy(1, at_most(8));
    let leaf = below(&root, 2, at_most(20));
    let mut world = World::with_policies(&[&root, &leaf]);
    let id = world.due(&taking(10, &leaf, 3), 9);
    let sends = world.accept_all();
    assert_eq!((sends.len(), world.held(&leaf), world.below(&root)), (2, 6, 6));
    let full = Reason::PolicyFull { held: 6, limit: 8, units: 3 };
    assert_eq!(world.why(id, 2), [Reason::Above { policy: "p1".into(), holds: Box::new(full) }]);
    // Two are left, which are kept for it.
    let small = world.due(&taking(11, &leaf, 1), 1);
    assert_eq!(world.accept_all().len(), 0);
    let kept = Reason::TokensKept { run: id, units: 3 };
    assert_eq!(world.why(small, 0), [Reason::Above { policy: "p1".into(), holds: Box::new(kept) }]);
    assert_eq!(of(&world.done_with(&sends[..1])), ["s10", "s11"]);
    assert_eq!(world.below(&root), 7);
}

#[test]
fn a_rate_counts_an_event_once_whatever_it_takes() {
    let rate = Limits { max_in_flight: Some(1_000), rate_per_s: Some(2.0), burst: Some(1) };
    let each = Limits { max_in_flight: None, rate_per_s: Some(2.0), burst: Some(1) };
    let keys = KeyRules { each: Some(each), of: BTreeMap::new() };
    for p in [policy(1, rate), Policy { keys, ..policy(1, at_most(1_000)) }] {
        let mut world = World::with_policy(&p);
        world.due(&taking(10, &p, 50), 20);
        assert_eq!(world.accept_all().len(), 1);
        for started in 2..=9 {
            world.sleep_us(SECOND_US / 2 + 10);
            assert_eq!((world.accept_all().len(), world.held(&p)), (1, 50 * started));
        }
    }
}

#[test]
fn who_is_next_waits_for_all_its_tokens_and_the_more_urgent_go_before() {
    let p = policy(1, at_most(10));
    let mut world = World::with_policy(&p);
    let under_way = {
        world.due(&taking(10, &p, 1), 8);
        world.accept_all()
    };
    let large = world.due(&taking(11, &p, 5), 1);
    let small = world.due(&taking(12, &p, 1), 40);
    let least = world.due_with(&taking(13, &p, 1), 2);
    assert_eq!(world.accept_all().len(), 0, "two are free, and kept");
    assert_eq!(world.why(large, 0), [Reason::PolicyFull { held: 8, limit: 10, units: 5 }]);
    for behind in [small, least] {
        assert_eq!(world.why(behind, 0)[0], Reason::TokensKept { run: large, units: 5 });
    }
    world.due_with(&taking(14, &p, 2), 7);
    let urgent = world.accept_all();
    assert_eq!((of(&urgent), world.held(&p)), (vec!["s14"], 10));
    assert_eq!(world.done_with(&under_way[..3]).len(), 0, "three are free");
    assert_eq!(world.done_with(&under_way[3..4]).len(), 0, "four are free");
    assert_eq!(of(&world.done_with(&under_way[4..5])), ["s11"]);
    assert_eq!(of(&world.done_with(&urgent)), ["s12", "s12"]);
}

#[test]
fn small_ones_of_a_full_key_do_not_starve_a_large_one() {
    let root = policy(1, at_most(10));
    let rule = KeyRule { limits: at_most(1), ..KeyRule::default() };
    let rules = KeyRules { each: None, of: BTreeMap::from([("small".to_owned(), rule)]) };
    let alone = Policy { keys: rules.clone(), ..root.clone() };
    let leaf = Policy { keys: rules, ..below(&root, 2, no_limit()) };
    for (policies, of_all) in [(vec![&alone], &alone), (vec![&root, &leaf], &leaf)] {
        let mut world = World::with_policies(&policies);
        world.due(&of_key("small", taking(10, of_all, 1)), 50);
        let mut under_way = world.accept_all();
        world.due(&of_key("large", taking(11, of_all, 10)), 1);
        let mut before = 0;
        while of(&under_way) != ["s11"] {
            under_way = world.done_with(&under_way);
            before += 1;
        }
        assert!(before <= 2, "{before} before it");
    }
}

#[test]
fn a_policy_below_with_few_events_does_not_starve_a_large_one_beside_it() {
    // Each of them comes when the one before is done, so that its policy takes no turns in between.
    for (large_at, small_at) in [(2, 3), (3, 2)] {
        let root = policy(1, at_most(10));
        let (a, b) = (below(&root, large_at, no_limit()), below(&root, small_at, no_limit()));
        let mut world = World::with_policies(&[&root, &a, &b]);
        world.due(&taking(10, &b, 1), 1);
        let mut under_way = world.accept_all();
        world.due(&taking(9, &a, 10), 1);
        let mut before = 0;
        while of(&under_way) != ["s9"] {
            world.due(&taking(11 + before, &b, 1), 1);
            under_way.extend(world.accept_all());
            under_way = world.done_with(&under_way);
            before += 1;
        }
        assert!(before <= 2, "{before} before it, under {large_at}");
    }
}

#[test]
fn in_a_tree_tokens_are_kept_where_they_are_short_and_those_beside_go_on() {
    let root = policy(1, at_most(20));
    let narrow = below(&root, 2, at_most(6));
    let wide = below(&root, 3, no_limit());
    let (one, other) = (below(&narrow, 4, no_limit()), below(&narrow, 5, no_limit()));
    let mut world = World::with_policies(&[&root, &narrow, &wide, &one, &other]);
    world.due(&taking(10, &one, 1), 3);
    let first = world.accept_all();
    let large = world.due(&taking(11, &one, 5), 1);
    assert_eq!(world.accept_all().len(), 0);
    let small = world.due(&taking(12, &other, 1), 5);
    assert_eq!(world.accept_all().len(), 0, "three of the narrow one are free, and kept");
    let kept = Reason::TokensKept { run: large, units: 5 };
    assert_eq!(world.why(small, 0), [Reason::Above { policy: "p2".into(), holds: Box::new(kept) }]);
    world.due(&taking(13, &wide, 1), 30);
    assert_eq!((world.accept_all().len(), world.below(&root)), (17, 20), "beside it all goes on");
    assert_eq!(world.done_with(&first[..1]).len(), 1, "what the root has back is not kept for it");
    assert_eq!(world.done_with(&first[1..2]).len(), 0, "now it is");
    assert_eq!((world.held(&wide), world.held(&one)), (18, 1));
}

#[test]
fn what_is_left_of_a_key_is_kept_for_the_first_that_waits_for_it() {
    let p = by_key(100, 5);
    let mut world = World::with_policy(&p);
    world.due(&of_key("acme", taking(10, &p, 1)), 3);
    let first = world.accept_all();
    let large = world.due(&of_key("acme", taking(11, &p, 4)), 1);
    let small = world.due(&of_key("acme", taking(12, &p, 1)), 5);
    world.due(&of_key("zeta", taking(13, &p, 1)), 9);
    assert_eq!(of(&world.accept_all()), ["s13"; 5], "another key goes on");
    assert_eq!(world.why(large, 0), [Reason::KeyFull { key: "acme".into(), held: 3, limit: 5, units: 4 }]);
    assert_eq!(world.why(small, 0), [Reason::TokensKept { run: large, units: 4 }]);
    // More urgent work of the key goes before.
    world.due_with(&of_key("acme", taking(14, &p, 1)), 8);
    assert_eq!(of(&world.accept_all()), ["s14"]);
    assert_eq!(world.done_with(&first[..2]).len(), 0, "three are free");
    assert_eq!(of(&world.done_with(&first[2..])), ["s11"], "four are, and it takes them");
}

#[test]
fn what_is_left_of_a_key_is_kept_for_the_next_of_a_run_before_those_that_are_less_urgent() {
    let p = by_key(100, 6);
    let mut world = World::with_policy(&p);
    let urgent = of_key("acme", taking(10, &p, 4));
    world.emit(Run { priority: 9, ..run(&urgent, START_US, 3) }, &urgent);
    let mut under_way = world.accept_all();
    world.due_with(&of_key("acme", taking(11, &p, 1)), 0);
    assert_eq!(world.accept_all().len(), 0);
    for _ in 0..2 {
        under_way = world.done_with(&under_way);
        assert_eq!(of(&under_way)[0], "s10");
        let rest = world.row(under_way[0].run).events - world.row(under_way[0].run).next_index;
        assert_eq!(
            under_way.len(),
            if rest > 0 { 1 } else { 2 },
            "with {rest} to come: {:?}",
            of(&under_way)
        );
    }
}

/// What keeps a large event from taking what is kept for it.
type Leaves = fn(&mut World, RunId, &RunSpec);

const LEAVES: [(&str, Leaves); 4] = [
    ("cancelled", |world, run, _| world.tell(Control::CancelRun { run, reason: "no".into() })),
    ("paused", |world, _, spec| {
        let schedule = ShardSchedule {
            generation: 2,
            pause: Some(pause()),
            ..fence(spec, START_US, START_US, Vec::new())
        };
        world.tell(Control::ScheduleChanged {
            schedule,
            namespace: "default".into(),
            schedule_id: spec.schedule_id.clone(),
            policy_uid: spec.policy_uid,
            onward: Vec::new(),
        });
    }),
    ("expired", |world, _, _| world.sleep_s(40)),
    ("withdrawn by a pause of its key", |world, _, spec| {
        let mut p = world.store.policies[&spec.policy_uid.unwrap()].clone();
        let paused = KeyRule { paused: true, ..KeyRule::default() };
        world.change_policy(&mut p, |p| {
            p.keys.of.insert("large".into(), paused);
        });
    }),
];

fn windowed(spec: RunSpec) -> RunSpec {
    RunSpec { finish_by_s: Some(30), ..spec }
}

#[test]
fn when_the_large_one_leaves_the_others_go_on_at_once() {
    let rules = KeyRules { each: Some(at_most(100)), of: BTreeMap::new() };
    let alone = Policy { keys: rules.clone(), ..policy(1, at_most(4)) };
    let root = policy(1, at_most(4));
    let leaf = Policy { keys: rules, ..below(&root, 2, no_limit()) };
    let beside = below(&root, 3, no_limit());
    for (how, leaves) in LEAVES {
        for (policies, of_large, of_small) in [
            (vec![&alone], &alone, &alone),
            (vec![&root, &leaf, &beside], &leaf, &leaf),
            (vec![&root, &leaf, &beside], &leaf, &beside),
        ] {
            let mut world = World::with_policies(&policies);
            world.due(&of_key("first", taking(10, of_large, 1)), 3);
            assert_eq!(world.accept_all().len(), 3);
            let spec = windowed(of_key("large", taking(11, of_large, 4)));
            let large = world.due(&spec, 1);
            let small = of_key("small", taking(12, of_small, 1));
            world.due(&small, 5);
            assert_eq!(world.accept_all().len(), 0, "{how}");
            leaves(&mut world, large, &spec);
            assert_eq!(of(&world.accept_all()), ["s12"], "{how}, {} policies", policies.len());
        }
    }
}

#[test]
fn when_the_large_one_of_a_key_leaves_the_others_of_it_go_on_at_once() {
    let p = by_key(100, 4);
    for (how, leaves) in &LEAVES[..3] {
        let mut world = World::with_policy(&p);
        world.due(&of_key("acme", taking(10, &p, 1)), 3);
        assert_eq!(world.accept_all().len(), 3);
        let spec = windowed(of_key("acme", taking(11, &p, 4)));
        let large = world.due(&spec, 1);
        world.due(&of_key("acme", taking(12, &p, 1)), 5);
        assert_eq!(world.accept_all().len(), 0, "{how}");
        leaves(&mut world, large, &spec);
        assert_eq!(of(&world.accept_all()), ["s12"], "{how}");
    }
}

#[test]
fn a_policy_that_moves_away_with_the_large_one_holds_up_nobody() {
    let (root, other) = (policy(1, at_most(4)), policy(5, at_most(2)));
    let mut moving = below(&root, 2, no_limit());
    let beside = below(&root, 3, no_limit());
    let mut world = World::with_policies(&[&root, &other, &moving, &beside]);
    world.due(&taking(10, &beside, 1), 3);
    world.accept_all();
    let large = world.due(&taking(11, &moving, 3), 1);
    world.due(&taking(12, &beside, 1), 5);
    assert_eq!(world.accept_all().len(), 0);
    let above = below(&other, 9, no_limit()).parent;
    world.change_policy(&mut moving, |p| p.parent = above);
    assert_eq!(of(&world.accept_all()), ["s12"]);
    let above_limit = Reason::AboveLimit { units: 3, limit: 2, key: None };
    assert_eq!(world.why(large, 0), [Reason::Above { policy: "p5".into(), holds: Box::new(above_limit) }]);
}

#[test]
fn what_takes_more_than_a_limit_stands_aside_with_its_lane_until_one_is_raised() {
    let root = policy(1, at_most(10));
    let mut leaf = below(&root, 2, at_most(10));
    leaf.keys = KeyRules { each: Some(at_most(10)), of: BTreeMap::new() };
    let raise: [fn(&mut World, &mut Policy, &mut Policy); 3] = [
        |world, root, _| world.change_policy(root, |p| p.limits = at_most(4)),
        |world, _, leaf| world.change_policy(leaf, |p| p.limits = at_most(4)),
        |world, _, leaf| world.change_policy(leaf, |p| p.keys.each = Some(at_most(4))),
    ];
    for (case, lower) in raise.into_iter().enumerate() {
        let (mut root, mut leaf) = (root.clone(), leaf.clone());
        let before = (root.clone(), leaf.clone());
        let mut world = World::with_policies(&[&root, &leaf]);
        lower(&mut world, &mut root, &mut leaf);
        let large = of_key("acme", taking(10, &leaf, 5));
        let id = world.due(&large, 2);
        let second = world.emit(run(&RunSpec { units: 1, ..large.clone() }, START_US + 1, 1), &large);
        world.sleep_us(10);
        assert_eq!(world.accept_all().len(), 0, "{case}: its lane waits behind it");
        world.due(&of_key("acme", taking(11, &leaf, 1)), 2);
        world.due(&of_key("zeta", taking(12, &leaf, 1)), 2);
        let others = world.accept_all();
        assert_eq!(others.len(), 4, "{case}: {:?}", of(&others));
        let key = (case == 2).then(|| "acme".to_owned());
        let why = Reason::AboveLimit { units: 5, limit: 4, key };
        let above = |why: Reason| Reason::Above { policy: "p1".into(), holds: Box::new(why) };
        assert_eq!(world.why(id, 0)[0], if case == 0 { above(why) } else { why }, "{case}");
        world.done_with(&others);
        world.change_policy(&mut root, |p| p.limits = before.0.limits.clone());
        world.change_policy(&mut leaf, |p| (p.limits, p.keys) = (before.1.limits, before.1.keys));
        assert_eq!(world.accept_all().len(), 2, "{case}: it starts when the limit is raised");
        assert_eq!((world.row(id).next_index, world.row(second).next_index), (2, 0));
    }
}

#[test]
fn keys_take_turns_by_tokens_and_weight() {
    let mut p = by_key(30, 1_000);
    for (key, weight) in [("once", 1), ("twice", 2)] {
        p.keys.of.insert(key.into(), KeyRule { weight, ..KeyRule::default() });
    }
    let mut world = World::with_policy(&p);
    world.due(&of_key("ten", taking(10, &p, 10)), 1_000);
    world.due(&of_key("once", taking(11, &p, 1)), 1_000);
    world.due(&of_key("twice", taking(12, &p, 1)), 1_000);
    let mut tokens: BTreeMap<String, u32> = BTreeMap::new();
    let mut under_way = world.accept_all();
    for _ in 0..800 {
        let first = under_way.remove(0);
        let next = world.done_with(&[first]);
        for send in &next {
            *tokens.entry(send.spec.key().to_owned()).or_default() += send.spec.units;
        }
        under_way.extend(next);
        assert!(world.held(&p) <= 30);
    }
    let (ten, once, twice) = (tokens["ten"], tokens["once"], tokens["twice"]);
    assert!(ten.abs_diff(once) <= 40 && twice.abs_diff(2 * once) <= 60, "{tokens:?}");
}

#[test]
fn policies_of_a_tree_take_turns_by_tokens_and_weight() {
    let root = policy(1, at_most(30));
    let (ten, once) = (below(&root, 2, no_limit()), below(&root, 3, no_limit()));
    let mut twice = below(&root, 4, no_limit());
    twice.parent.iter_mut().for_each(|parent| parent.weight = 2);
    let mut world = World::with_policies(&[&root, &ten, &once, &twice]);
    world.due(&taking(10, &ten, 10), 1_000);
    world.due(&taking(11, &once, 1), 1_000);
    world.due(&taking(12, &twice, 1), 1_000);
    let mut tokens: BTreeMap<String, u32> = BTreeMap::new();
    let mut under_way = world.accept_all();
    for _ in 0..800 {
        let first = under_way.remove(0);
        let next = world.done_with(&[first]);
        for send in &next {
            *tokens.entry(send.spec.schedule_id.clone()).or_default() += send.spec.units;
        }
        under_way.extend(next);
        assert!(world.below(&root) <= 30);
    }
    let (ten, once, twice) = (tokens["s10"], tokens["s11"], tokens["s12"]);
    assert!(ten.abs_diff(once) <= 40 && twice.abs_diff(2 * once) <= 60, "{tokens:?}");
}

/// A schedule whose items say how many tokens their events take, and those that do not.
fn weighed(schedule: u128, policy: &Policy, units: u32, loads: &[(&str, u32)]) -> RunSpec {
    let mut spec = taking(schedule, policy, units);
    spec.payload = Payload::default().with_items(weighed_items(loads.iter().copied()));
    spec
}

#[test]
fn items_that_say_units_are_read_where_the_policy_has_no_key_rules_and_again_after_a_takeover() {
    let p = policy(1, at_most(12));
    let mut world = World::with_policy(&p);
    let spec = weighed(10, &p, 2, &[("a", 1), ("b", 0), ("c", 5), ("a", 1), ("d", 4)]);
    let id = world.due(&spec, 5);
    assert_eq!(world.accept_all().len(), 0, "nothing is known yet");
    world.read_keys(2);
    let sends = world.accept_all();
    let mut indexes: Vec<u32> = sends.iter().map(|send| send.index).collect();
    indexes.sort_unstable();
    assert_eq!((indexes, world.held(&p)), (vec![0, 1, 2, 3], 9), "three are free, and the last takes four");
    assert_eq!(world.row(id).sorted_to, Some(5));
    world.restart_after_s(1);
    assert_eq!(world.held(&p), 20, "each of the four counts as the most that one takes");
    let other = world.due(&taking(11, &p, 2), 3);
    assert_eq!(world.accept_all().len(), 0);
    world.read_keys(5);
    let more = world.accept_all();
    assert!(world.held(&p) <= 12 && world.held(&p) == 9 + 2 * more.len() as u32, "{:?}", of(&more));
    let mut under_way: Vec<Send> = sends.into_iter().chain(more).collect();
    while !under_way.is_empty() {
        let first = under_way.remove(0);
        under_way.extend(world.done_with(&[first]));
        assert!(world.held(&p) <= 12);
    }
    assert_eq!((world.row(id).counts.succeeded, world.row(other).counts.succeeded), (5, 3));
}

#[test]
fn an_event_that_is_tried_again_takes_its_tokens_again_and_one_that_is_sent_again_takes_none() {
    let p = policy(1, at_most(5));
    let mut world = World::with_policy(&p);
    let spec = taking(10, &p, 4);
    let id = world.due(&spec, 1);
    let send = world.take_sends().remove(0);
    world.answer(&send, refused());
    assert_eq!(world.held(&p), 0);
    world.due(&taking(11, &p, 1), 2);
    let small = world.accept_all();
    assert_eq!(small.len(), 2);
    world.sleep_s(20);
    assert_eq!((world.accept_all().len(), world.held(&p)), (0, 2), "three are free");
    world.due(&taking(12, &p, 1), 9);
    assert_eq!(world.accept_all().len(), 0, "and kept");
    assert!(world.why(id, 0).contains(&Reason::PolicyFull { held: 2, limit: 5, units: 4 }));
    world.succeed(&small[0]);
    let again = world.take_sends().remove(0);
    assert_eq!((again.run, again.attempt, world.held(&p)), (id, 2, 5));
    world.answer(&again, unclear());
    world.restart_after_s(1);
    world.sleep_s(20);
    let sent = world.take_sends();
    let resent = sent.iter().find(|send| send.run == id).unwrap();
    assert!(resent.attempt > 2 && world.held(&p) == 5, "{resent:?}");
    world.answer(resent, Sent::Accepted);
    assert_eq!(world.done_with(std::slice::from_ref(resent)).len(), 4);
    assert_eq!(world.outcomes(id), [(0, 1, Outcome::Succeeded)]);
}

#[test]
fn early_starts_leave_half_of_the_tokens() {
    let p = policy(1, at_most(20));
    for (units, early) in [(5, true), (6, false)] {
        let mut world = World::with_policy(&p);
        let spec = taking(10, &p, units);
        world.emit(run(&spec, START_US + 10 * SECOND_US, 2), &spec);
        world.sleep_us(10 * SECOND_US - world.options.early_us / 2);
        assert_eq!(world.held(&p), if early { 2 * units } else { 0 });
        world.sleep_s(1);
        assert_eq!((world.take_sends().len(), world.held(&p)), (2, 2 * units));
    }
    let items = weighed(11, &p, 1, &[("a", 1)]);
    let mut world = World::with_policy(&p);
    world.emit(run(&items, START_US + 10 * SECOND_US, 1), &items);
    world.sleep_us(10 * SECOND_US - world.options.early_us / 2);
    assert_eq!(world.held(&p), 0, "what its items say is read when it launches");
}
