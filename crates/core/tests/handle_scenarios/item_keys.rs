//! Limits by the keys of items: each event counts as its own, none holds up another of its run, and nothing starts before it is
//! known what each key holds.

use std::collections::BTreeMap;

use tollgate_core::handle::change::Outcome;
use tollgate_core::handle::release::Answer;
use tollgate_core::handle::{KeysWanted, Options, Reason, Send};
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

/// A schedule of the key `house`, whose events have items of these keys.
fn listed(policy: &Policy, keys: &[(&str, usize)]) -> (RunSpec, u32) {
    let keys: Vec<&str> = keys.iter().flat_map(|(key, count)| std::iter::repeat_n(*key, *count)).collect();
    let mut spec = RunSpec { key: Some("house".to_owned()), ..spec(10, Some(policy)) };
    spec.payload = Payload::default().with_items(items(keys.iter().copied()));
    (spec, u32::try_from(keys.len()).unwrap())
}

fn key_of(send: &Send) -> String {
    let (key, _) = loads_of(&send.spec).remove(send.index as usize);
    if key.is_empty() { send.spec.key().to_owned() } else { key }
}

/// How many of each key are among these.
fn counted(sends: &[Send]) -> BTreeMap<String, usize> {
    let mut counts = BTreeMap::new();
    sends.iter().for_each(|send| *counts.entry(key_of(send)).or_default() += 1);
    counts
}

fn counts<const N: usize>(of: [(&str, usize); N]) -> BTreeMap<String, usize> {
    of.map(|(key, count)| (key.to_owned(), count)).into()
}

impl World {
    /// Reads the keys that the machine wants, in pages of so many, until it wants no more. How many pages that were.
    pub(crate) fn read_keys(&mut self, page: u32) -> usize {
        let mut pages = 0;
        loop {
            self.flush();
            let wanted = self.shard.keys_wanted();
            if wanted.is_empty() {
                return pages;
            }
            for KeysWanted { run, index, spec, .. } in wanted {
                let first = index - index % page;
                let items = loads_of(&spec).into_iter().skip(first as usize).take(page as usize).collect();
                self.shard.keys_read((run, spec.generation), first, items, self.now);
                pages += 1;
            }
        }
    }

    /// Works everything off, reading keys as they are wanted; never is more held of a key than this.
    fn work_off_by_key(&mut self, most: usize) -> usize {
        let (mut held, mut worked) = (Vec::new(), 0);
        loop {
            self.read_keys(100);
            let sends = self.accept_all();
            if sends.is_empty() && held.is_empty() {
                return worked;
            }
            held.extend(sends);
            assert!(counted(&held).values().all(|count| *count <= most), "{:?}", counted(&held));
            for send in held.drain(..held.len().div_ceil(2)) {
                assert_eq!(self.succeed(&send), Answer::Released);
                worked += 1;
            }
        }
    }
}

#[test]
fn a_full_key_is_passed_over_in_its_own_run() {
    let p = by_key(10, 2);
    let mut world = World::with_policy(&p);
    let (spec, events) = listed(&p, &[("acme", 500), ("zeta", 3), ("", 4)]);
    let id = world.emit(run(&spec, START_US, events), &spec);
    assert!(world.take_sends().is_empty(), "no key is known yet");
    let why = world.shard.explain(id, 0, world.now).unwrap();
    assert_eq!(why.reasons, [Reason::KeysUnread]);
    assert_eq!(world.read_keys(100), 6, "as few events can start, all of it is read");
    let mut sends = world.accept_all();
    assert_eq!(counted(&sends), counts([("acme", 2), ("zeta", 2), ("house", 2)]));
    let why = world.shard.explain(id, 400, world.now).unwrap();
    assert_eq!(why.reasons[0], Reason::KeyFull { key: "acme".into(), held: 2, limit: 2, units: 1 });
    assert!(why.holders.iter().all(|holder| holder.index < 2) && why.holders.len() == 2, "{why:?}");
    assert!(world.shard.explain(id, 500, world.now).is_some_and(|why| why.reasons.is_empty()), "it is held");
    let zeta = sends.iter().position(|send| key_of(send) == "zeta").unwrap();
    world.succeed(&sends.remove(zeta));
    sends.extend(world.accept_all());
    assert_eq!(counted(&sends), counts([("acme", 2), ("zeta", 2), ("house", 2)]));
    let known = world.shard.key_counts(p.uid, world.now);
    let of =
        |key: &str| known.keys.iter().find(|count| count.key == key).map(|count| (count.held, count.waiting));
    assert_eq!([of("acme"), of("zeta"), of("house")], [Some((2, 498)), Some((2, 0)), Some((2, 2))]);
    assert_eq!((known.all, known.unread), (3, 0));
    for send in sends {
        world.succeed(&send);
    }
    assert_eq!(world.work_off_by_key(2), events as usize - 7);
    assert_eq!((world.row(id).state, world.row(id).counts.succeeded), (RunState::Finished, events));
    assert!(world.store.unstarted.is_empty());
}

#[test]
fn keys_of_one_run_take_turns_by_weight() {
    let mut p = by_key(8, 8);
    p.keys.of.insert("acme".into(), KeyRule { weight: 3, ..KeyRule::default() });
    let mut world = World::with_policy(&p);
    let (spec, events) = listed(&p, &[("zeta", 40), ("acme", 40)]);
    world.emit(run(&spec, START_US, events), &spec);
    world.read_keys(100);
    let sends = world.accept_all();
    assert_eq!(counted(&sends), counts([("acme", 6), ("zeta", 2)]));
}

#[test]
fn one_key_of_a_run_is_paused_and_goes_on() {
    let mut p = by_key(10, 3);
    p.keys
        .of
        .insert("acme".into(), KeyRule { paused: true, reason: "they asked".into(), ..KeyRule::default() });
    let mut world = World::with_policy(&p);
    let (spec, events) = listed(&p, &[("acme", 5), ("zeta", 5)]);
    let id = world.emit(run(&spec, START_US, events), &spec);
    world.read_keys(4);
    assert_eq!(counted(&world.accept_all()), counts([("zeta", 3)]));
    let why = world.shard.explain(id, 1, world.now).unwrap();
    assert_eq!(why.reasons[0], Reason::KeyPaused { key: "acme".into(), reason: "they asked".into() });
    world.change_policy(&mut p, |p| p.keys.of.clear());
    assert_eq!(counted(&world.accept_all()), counts([("acme", 3)]));
}

#[test]
fn the_rate_of_a_key_spaces_the_events_of_a_run() {
    let each = Limits { max_in_flight: None, rate_per_s: Some(1.0), burst: None };
    let p = Policy { keys: KeyRules { each: Some(each), of: BTreeMap::new() }, ..policy(1, at_most(100)) };
    let mut world = World::with_policy(&p);
    let (spec, events) = listed(&p, &[("acme", 5), ("zeta", 5)]);
    world.emit(run(&spec, START_US, events), &spec);
    world.read_keys(100);
    assert_eq!(counted(&world.accept_all()), counts([("acme", 1), ("zeta", 1)]));
    world.sleep_us(2 * SECOND_US + 10);
    assert_eq!(counted(&world.accept_all()), counts([("acme", 2), ("zeta", 2)]));
}

#[test]
fn rules_that_come_in_the_middle_wait_for_the_keys_of_what_is_held() {
    let mut p = policy(1, at_most(10));
    let mut world = World::with_policy(&p);
    let (spec, events) = listed(&p, &[("acme", 6), ("zeta", 20)]);
    let id = world.emit(run(&spec, START_US, events), &spec);
    let sends = world.accept_all();
    assert_eq!((sends.len(), world.row(id).sorted_to), (10, None), "without rules, no key is read");
    assert!(world.shard.keys_wanted().is_empty());
    world.change_policy(&mut p, |p| p.keys.each = Some(at_most(5)));
    // Who gives a token back makes room, and nobody knows for whom.
    assert_eq!(world.succeed(&sends[0]), Answer::Released);
    assert_eq!(world.succeed(&sends[9]), Answer::Released);
    assert!(world.take_sends().is_empty());
    assert_eq!(world.shard.explain(id, 25, world.now).unwrap().reasons[0], Reason::KeysUnread);
    world.read_keys(4);
    assert_eq!(counted(&world.accept_all()), counts([("zeta", 2)]), "acme has five, and zeta had three");
    // And go: nothing holds a key back any more.
    world.change_policy(&mut p, |p| p.keys.each = None);
    world.read_keys(4);
    for send in &sends[1..9] {
        assert_eq!(world.succeed(send), Answer::Released);
    }
    world.read_keys(4);
    assert_eq!(world.accept_all().len(), 8);
}

#[test]
fn an_owner_that_takes_over_knows_what_each_key_holds_before_anything_starts() {
    let p = by_key(10, 2);
    let mut world = World::with_policy(&p);
    let (spec, events) = listed(&p, &[("acme", 300), ("zeta", 5), ("beta", 5)]);
    let id = world.emit(run(&spec, START_US, events), &spec);
    world.read_keys(100);
    let sends = world.accept_all();
    assert_eq!(counted(&sends), counts([("acme", 2), ("zeta", 2), ("beta", 2)]));
    world.restart_after_s(3);
    // What is released meanwhile makes no room for one of which nobody knows the key.
    let beta = sends.iter().find(|send| key_of(send) == "beta").unwrap();
    assert_eq!(world.succeed(beta), Answer::Released);
    assert!(world.take_sends().is_empty());
    world.read_keys(100);
    let more = world.accept_all();
    assert_eq!(counted(&more), counts([("beta", 1)]));
    for send in sends.iter().filter(|send| key_of(send) != "beta").chain(&more) {
        assert_eq!(world.succeed(send), Answer::Released);
    }
    let rest = sends.iter().rfind(|send| key_of(send) == "beta").unwrap();
    assert_eq!(world.succeed(rest), Answer::Released);
    assert_eq!(world.work_off_by_key(2), events as usize - 7, "each event once");
    assert_eq!((world.row(id).state, world.row(id).counts.succeeded), (RunState::Finished, events));
}

#[test]
fn a_run_that_is_cancelled_ends_each_event_once() {
    let p = by_key(10, 2);
    let mut world = World::with_policy(&p);
    let (spec, events) = listed(&p, &[("acme", 6), ("zeta", 6), ("acme", 6)]);
    let id = world.emit(run(&spec, START_US, events), &spec);
    world.read_keys(8);
    let sends = world.accept_all();
    world.tell(tollgate_core::handle::control::Control::CancelRun { run: id, reason: "enough".into() });
    world.flush();
    let cancelled = [(2, 4, Outcome::Cancelled), (8, 10, Outcome::Cancelled)];
    assert_eq!(world.outcomes(id), cancelled);
    for send in sends {
        assert_eq!(world.succeed(&send), Answer::Released);
    }
    world.flush();
    assert_eq!((world.row(id).state, world.row(id).counts.cancelled), (RunState::Cancelled, 14));
    assert!(world.store.unstarted.is_empty() && world.shard.keys_wanted().is_empty());
}

#[test]
fn what_has_not_started_within_the_window_expires_wherever_it_stands() {
    let p = by_key(10, 2);
    let mut world = World::with_policy(&p);
    let (spec, events) = listed(&p, &[("acme", 6), ("zeta", 1), ("acme", 6)]);
    let spec = RunSpec { finish_by_s: Some(30), ..spec };
    let id = world.emit(run(&spec, START_US, events), &spec);
    world.read_keys(8);
    world.accept_all();
    world.sleep_s(40);
    assert_eq!(world.outcomes(id), [(2, 4, Outcome::Expired), (7, 6, Outcome::Expired)]);
    assert!(world.store.unstarted.is_empty());
}

#[test]
fn an_item_that_cannot_be_read_counts_as_its_schedules_key() {
    let p = by_key(10, 2);
    let mut world = World::with_policy(&p);
    let (spec, events) = listed(&p, &[("acme", 5)]);
    let id = world.emit(run(&spec, START_US, events), &spec);
    for index in 0..events {
        let wanted = world.shard.keys_wanted();
        assert_eq!(wanted.iter().map(|wanted| wanted.index).collect::<Vec<_>>(), [index]);
        world.shard.keys_unreadable((id, spec.generation), index, world.now);
        world.flush();
    }
    assert_eq!(world.accept_all().len(), 2);
    let why = world.shard.explain(id, 4, world.now).unwrap();
    assert_eq!(why.reasons[0], Reason::KeyFull { key: "house".into(), held: 2, limit: 2, units: 1 });
}

#[test]
fn no_further_keys_are_read_than_the_bound_allows() {
    let p = by_key(10, 2);
    let options = Options { sorted_max: 100, ..Options::default() };
    let mut world = World::with(options, vec![p.clone()]);
    let mixed: Vec<(&str, usize)> =
        (0..1_000).map(|n| (if n % 2 == 0 { "acme" } else { "zeta" }, 1)).collect();
    let (spec, events) = listed(&p, &mixed);
    let id = world.emit(run(&spec, START_US, events), &spec);
    assert!(world.read_keys(20) <= 6, "a range an event");
    assert_eq!(world.shard.key_counts(p.uid, world.now).unread, 880);
    let sends = world.accept_all();
    assert_eq!(counted(&sends), counts([("acme", 2), ("zeta", 2)]));
    sends.iter().for_each(|send| assert_eq!(world.succeed(send), Answer::Released));
    assert_eq!(world.work_off_by_key(2), 996, "it is gone on with as room comes");
    assert_eq!(world.row(id).counts.succeeded, 1_000);
}

#[test]
fn an_event_that_is_tried_again_waits_for_its_own_key() {
    let p = by_key(10, 1);
    let mut world = World::with_policy(&p);
    let (spec, events) = listed(&p, &[("acme", 2), ("zeta", 1)]);
    world.emit(run(&spec, START_US, events), &spec);
    world.read_keys(100);
    let sends = world.take_sends();
    assert_eq!(counted(&sends), counts([("acme", 1), ("zeta", 1)]));
    let acme = sends.iter().find(|send| key_of(send) == "acme").unwrap();
    world.answer(acme, refused());
    assert_eq!(
        world.accept_all().iter().map(|send| send.index).collect::<Vec<_>>(),
        [1],
        "the next of its key"
    );
    world.sleep_s(20);
    assert!(world.take_sends().is_empty(), "its key is full");
    world.restart_after_s(1);
    world.read_keys(100);
    world.sleep_s(20);
    let again: Vec<(u32, u32)> = world.take_sends().iter().map(|send| (send.index, send.attempt)).collect();
    assert!(again.iter().all(|(index, _)| *index != 0), "{again:?}");
}

#[test]
fn a_page_of_an_earlier_generation_is_not_taken() {
    let p = by_key(10, 2);
    let mut world = World::with_policy(&p);
    let (spec, events) = listed(&p, &[("acme", 5)]);
    let id = world.emit(run(&spec, START_US, events), &spec);
    assert_eq!(world.shard.keys_wanted().len(), 1);
    world.shard.keys_read((id, spec.generation + 1), 0, vec![("zeta".into(), 0); 5], world.now);
    world.flush();
    assert!(world.take_sends().is_empty());
    world.shard.keys_read((id, spec.generation), 0, vec![("acme".into(), 0); 5], world.now);
    world.flush();
    assert_eq!(world.take_sends().len(), 2);
}

#[test]
fn a_run_that_is_spread_sorts_what_is_due() {
    let p = by_key(10, 5);
    let mut world = World::with_policy(&p);
    let (spec, events) = listed(&p, &[("acme", 5), ("zeta", 5)]);
    let spec = RunSpec { spread_s: Some(10), ..spec };
    let id = world.emit(run(&spec, START_US, events), &spec);
    world.read_keys(100);
    assert_eq!((world.accept_all().len(), world.row(id).sorted_to), (1, Some(1)));
    world.sleep_us(3 * SECOND_US + 10);
    assert_eq!((world.accept_all().len(), world.row(id).sorted_to), (3, Some(4)));
    world.sleep_s(10);
    assert_eq!((world.accept_all().len(), world.row(id).sorted_to), (6, Some(10)));
}
