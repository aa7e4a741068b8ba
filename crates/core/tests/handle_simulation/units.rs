//! Events that take several tokens: how masters make them, as what they count by the specs alone, and who goes before whom.

use tollgate_core::handle::change::{Changes, TokenState};
use tollgate_core::handle::{Reason, Shard};
use tollgate_core::model::*;

use crate::check::KEYS;
use crate::handle_world::{Store, loads_of};
use crate::model::{Key, Model};
use crate::owner::Owner;
use crate::random::Random;
use crate::totals::Seen;
use crate::tree::{self, way_up};
use crate::troubles::Troubles;
use crate::world::{At, Event, World};
use std::collections::{BTreeMap, BTreeSet};

/// How many events of a run may wait for another attempt, in some worlds.
pub(crate) const RETRYING_FEW: u32 = 2;
/// The most tokens that an event takes.
const MOST: u32 = 5;

/// As what an event counts.
#[derive(Clone, Debug)]
pub(crate) struct Load {
    pub(crate) key: String,
    pub(crate) units: u32,
    /// The most that an event of its run takes.
    pub(crate) most: u32,
    /// It has an item, which an owner that takes over has not read.
    pub(crate) by_item: bool,
}

/// As what an event counts, by the spec of its run.
pub(crate) fn load_of(store: &Store, (run, index): Key) -> Load {
    let of = |run: &Run| Some((run.clone(), store.specs.get(&(run.schedule_uid, run.generation))?));
    let Some((run, spec)) = store.runs.get(&run).and_then(of) else {
        return Load { key: String::new(), units: 1, most: 1, by_item: false };
    };
    let items = loads_of(spec);
    let (key, said) = items.get(index as usize).cloned().unwrap_or_default();
    let key = if key.is_empty() { spec.key().to_owned() } else { key };
    if run.policy_uid.is_none() {
        return Load { key, units: 1, most: 1, by_item: false };
    }
    let units = if said == 0 { spec.units } else { said };
    let most = items.iter().map(|(_, units)| *units).max().unwrap_or_default().max(spec.units);
    Load { key, units, most, by_item: !items.is_empty() }
}

/// Most events take one token.
pub(crate) fn some(random: &mut Random) -> u32 {
    if random.percent(60) { 1 } else { random.within(2, i64::from(MOST) + 1) as u32 }
}

/// The keys and the units of so many items; half of the lists say nothing of units.
pub(crate) fn some_loads(random: &mut Random, events: u32, has_units: bool) -> Vec<(&'static str, u32)> {
    let says = has_units && random.percent(50);
    let mut load = || {
        let key = random.pick(&KEYS).copied().unwrap_or_default();
        (key, if says && random.percent(70) { some(random) } else { 0 })
    };
    (0..events).map(|_| load()).collect()
}

/// Below `end`; where events take several tokens, most limits are enough for one.
pub(crate) fn some_limit(world: &mut World, end: i64) -> u32 {
    let least = if world.troubles.units && world.random.percent(70) { i64::from(MOST) } else { 1 };
    world.random.within(least, least + end - 1) as u32
}

impl World {
    pub(crate) fn limits(&mut self) -> Limits {
        let rate = self.random.percent(25);
        Limits {
            max_in_flight: (!rate || self.random.percent(60)).then(|| some_limit(self, 6)),
            rate_per_s: rate.then(|| self.random.within(1, 20) as f64),
            burst: self.random.percent(50).then_some(5),
        }
    }

    /// Half of the policies say nothing of keys.
    pub(crate) fn key_rules(&mut self) -> KeyRules {
        if self.random.percent(50) {
            return KeyRules::default();
        }
        let each = self.random.percent(80).then(|| Limits {
            max_in_flight: Some(some_limit(self, 4)),
            rate_per_s: self.random.percent(20).then(|| self.random.within(1, 20) as f64),
            burst: None,
        });
        let rule = KeyRule {
            limits: Limits { max_in_flight: Some(some_limit(self, 4)), ..Limits::default() },
            weight: self.random.within(1, 4) as u32,
            paused: self.troubles.pauses && self.random.percent(20),
            reason: String::new(),
        };
        let of = if self.random.percent(40) {
            BTreeMap::from([("acme".to_owned(), rule)])
        } else {
            BTreeMap::new()
        };
        KeyRules { each, of }
    }

    /// The keys of some items have been read. Whatever life of the owner asked for them, they are the same.
    pub(crate) fn keys_read(&mut self, at: At, of: (RunId, i64), first: u32, items: Vec<(String, u32)>) {
        if self.is_cut(at.slot) {
            self.after(300_000, Event::Keys(at, of, first, items));
            return;
        }
        let (now, row) = (self.now_at(at.slot), self.leases[usize::from(at.shard)].lease_id);
        let is_present = self.owner(at).is_some_and(|owner| owner.lease.lease_id == row);
        if let Some(core) = self.owner(at).and_then(Owner::open) {
            let count = items.len() as u32;
            core.keys_read(of, first, items, now);
            if is_present {
                self.model.read(of.0, first, count);
            }
            self.count(Seen::KeysRead);
            self.touch(at);
        }
    }
}

/// Nothing is paused, and no limit is below what an event takes.
pub(crate) fn in_peace(mut policy: Policy, has_units: bool) -> Policy {
    policy.pause = None;
    policy.keys.of.values_mut().for_each(|rule| rule.paused = false);
    let rules = policy.keys.of.values_mut().map(|rule| &mut rule.limits);
    let all = rules.chain(&mut policy.keys.each).chain([&mut policy.limits]);
    for limit in all.filter_map(|limits| limits.max_in_flight.as_mut()).filter(|_| has_units) {
        *limit = (*limit).max(MOST);
    }
    policy
}

/// The state of which this reason tells.
pub(crate) fn seen_in(reason: &Reason) -> Option<Seen> {
    match reason {
        Reason::Buffered { .. } => Some(Seen::Buffered),
        Reason::BehindChain { .. } => Some(Seen::BehindChain),
        Reason::AboveLimit { .. } => Some(Seen::AboveLimit),
        Reason::NoRoom { .. } => Some(Seen::NoRoom),
        Reason::TokensKept { .. } => Some(Seen::TokensKept),
        Reason::Above { holds, .. } => seen_in(holds),
        _ => None,
    }
}

/// The events that take tokens with these changes: `store` is as it was before them.
fn taking<'a>(store: &'a Store, changes: &'a Changes) -> impl Iterator<Item = Key> {
    let has_none = |key: &Key| store.tokens.get(key).is_none_or(|row| row.state == TokenState::Waiting);
    let rows = changes.tokens_put.iter().filter(|row| row.state != TokenState::Waiting);
    rows.map(|row| (row.run, row.index)).filter(has_none)
}

/// Whether an event that takes several tokens is put down.
pub(crate) fn takes_several(store: &Store, changes: &Changes) -> bool {
    let mut rows = changes.tokens_put.iter().filter(|row| row.state != TokenState::Waiting);
    rows.any(|row| load_of(store, (row.run, row.index)).units > 1)
}

/// Nothing starts under a policy while something more urgent of the same key waits there that wants nothing but tokens, and has a
/// policy and a key in which there are enough for it, once they come back.
pub(crate) fn check_urgent(store: &Store, changes: &Changes, troubles: &Troubles) {
    let is_quiet = changes.policies.is_empty() && changes.schedules.is_empty();
    if !is_quiet || troubles.consumers || troubles.clocks {
        return;
    }
    for (id, index) in taking(store, changes) {
        let Some(run) = store.runs.get(&id).filter(|run| run.policy_uid.is_some()) else { continue };
        let load = load_of(store, (id, index));
        let first = store.runs.values().filter(|other| {
            other.policy_uid == run.policy_uid
                && other.priority > run.priority
                && waits_for_tokens(store, other, &load.key)
                && coming_again(store, changes, other.id) < RETRYING_FEW
        });
        for first in first {
            let now = changes.runs_changed.iter().find(|changed| changed.id == first.id).unwrap_or(first);
            let goes_on = now.next_index == now.events || now.state != RunState::Running;
            assert!(goes_on, "{id} {index} starts before {first:?}, which is more urgent");
        }
    }
}

/// How many events of a run have been tried and may wait for another attempt: with so many, a run starts no more.
fn coming_again(store: &Store, changes: &Changes, run: RunId) -> u32 {
    let stored = store.tokens.range((run, 0)..=(run, u32::MAX)).map(|(_, row)| row);
    let rows = stored.chain(changes.tokens_put.iter().filter(|row| row.run == run));
    let tried = rows.filter(|row| row.attempt > 1 || row.state == TokenState::Waiting);
    tried.map(|row| row.index).collect::<BTreeSet<u32>>().len() as u32
}

/// With nothing pending, nothing waits for tokens while there are enough for whatever it may be kept for.
pub(crate) fn check_goes_on(
    (store, model): (&Store, &Model),
    troubles: &Troubles,
    (machine, now): (&Shard, Now),
) {
    if troubles.consumers || troubles.clocks || troubles.senders || store.pause.pause.is_some() {
        return;
    }
    let held = tree::held(store, |uid| model.counted(Some(uid)).1);
    for run in store.runs.values() {
        let load = load_of(store, (run.id, run.next_index));
        if !waits_for_tokens(store, run, &load.key)
            || coming_again(store, &Changes::default(), run.id) >= RETRYING_FEW
        {
            continue;
        }
        let way = way_up(run.policy_uid.unwrap_or_default(), &store.policies);
        let in_tree = |other: &Run| {
            let uid = other.policy_uid.unwrap_or_default();
            way.last() == way_up(uid, &store.policies).last() && other.next_index < other.events
        };
        let most = |other: &Run| load_of(store, (other.id, 0)).most;
        let most = store.runs.values().filter(|other| in_tree(other)).map(most).max().unwrap_or_default();
        let fits = |limits: &Limits, held: u32| limits.max_in_flight.is_none_or(|limit| held + most <= limit);
        let is_free = way.iter().all(|uid| fits(&store.policies[uid].limits, held[uid]));
        let policy = &store.policies[&way[0]];
        let of_key = model.in_flight_of(run.policy_uid, &load.key);
        let has_key = fits(&policy.keys.limits_of(&load.key), of_key) && !model.has_unread(run.policy_uid);
        let why = || machine.explain(run.id, run.next_index, now);
        assert!(
            !is_free || !has_key,
            "though {most} tokens are free, {run:?} waits: {:?} of {policy:?}",
            why()
        );
    }
}

/// Whether nothing but tokens keeps the next event of a run from starting, as far as a store knows; false in doubt.
fn waits_for_tokens(store: &Store, run: &Run, key: &str) -> bool {
    let Some(policy) = run.policy_uid.and_then(|uid| store.policies.get(&uid)) else { return false };
    let spec = &store.specs[&(run.schedule_uid, run.generation)];
    let load = load_of(store, (run.id, run.next_index));
    let way = way_up(policy.uid, &store.policies).into_iter().map(|uid| store.policies.get(&uid));
    let fits = |limits: &Limits| {
        limits.rate_per_s.is_none() && limits.max_in_flight.is_none_or(|limit| load.units <= limit)
    };
    let is_open = |policy: Option<&Policy>| policy.is_some_and(|p| p.pause.is_none() && fits(&p.limits));
    run.state == RunState::Running
        && run.reason.is_empty()
        && run.next_index < run.events
        && spec.spread_s.is_none()
        && spec.finish_by_s.is_none()
        && spec.target.pull().is_none()
        && !load.by_item
        && load.key == key
        && policy.keys.pause_of(key).is_none()
        && fits(&policy.keys.limits_of(key))
        && way.into_iter().all(is_open)
        && store.schedules.get(&run.schedule_uid).is_none_or(|schedule| schedule.pause.is_none())
}
