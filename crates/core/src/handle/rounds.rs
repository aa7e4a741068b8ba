//! Who may start next under a policy: what keys and places hold back, and when it comes back.
//!
//! In: a bucket, its queue. Out: the next piece of work that may start; timers. Invariant: what is held back has somebody who
//! lets it go: a token or a place that comes back, a rate, or a change of the policy.

use std::cell::RefCell;
use std::sync::Arc;

use uuid::Uuid;

use super::bucket::Room;
use super::keys::{KeyHolds, KeyOf};
use super::ledger::Tokens;
use super::live::LiveRun;
use super::queue::{Group, Look, Next, Queue, Work};
use super::shard::{MonoTimer, Shard};
use crate::model::Now;

impl Shard {
    /// Sees to it that the bucket is looked at again when a rate lets something through: its own, if that is what holds
    /// everything back, or that of a key.
    pub(super) fn wake_for_rates(&mut self, policy: Option<Uuid>, is_full: bool, now: Now) {
        let (Some(uid), Some(bucket)) = (policy, self.ledger.buckets.get(&policy)) else { return };
        if self.queues.get(&policy).is_none_or(Queue::is_empty) {
            return;
        }
        // Of a bucket that is full, keys are asked when something comes back.
        let at_us = if is_full { bucket.next_permit_us(now) } else { bucket.keys.next_permit_us() };
        if let Some(at_us) = at_us {
            self.mono_timers.insert((at_us, MonoTimer::Permit(uid)));
        }
    }

    /// Lets those take turns again that were held back and may start now.
    pub(super) fn begin_round(&mut self, policy: Option<Uuid>, now: Now) {
        self.rooms.revive(policy);
        let is_bounded = self.ledger.is_bounded(policy);
        let (runs, tokens, sends_max) = (&self.ledger.runs, &self.ledger.tokens, self.options.sends_max);
        if let (Some(bucket), Some(queue)) =
            (self.ledger.buckets.get_mut(&policy), self.queues.get_mut(&policy))
        {
            let freed = (bucket.keys.take_freed(now), self.rooms.with_room());
            let wakes = RefCell::new(Vec::new());
            let (shared, rooms) = (&*bucket, &self.rooms);
            let left = |work: Work, group| match (group, runs.get(&work.run())) {
                (Group::Places(places), Some(run)) if !is_bounded => {
                    Room::of_starts(shared.counts.places().left_to(places, &run.sharer, sends_max))
                }
                (Group::Key(key), Some(run)) => {
                    let (of, units) = load_of(run, tokens, work);
                    let (name, sharer) = (run.key(of), &run.sharer.with(of));
                    let holds = shared.key_holds(name, sharer, units, now);
                    // A token lets those go that stay behind when it comes back. A rate has to be waited for.
                    let at_us = match holds {
                        None => shared.next_but_one_us(name, sharer, now),
                        Some(KeyHolds::Rate { at_us }) => Some(at_us),
                        Some(KeyHolds::Paused | KeyHolds::Full { .. } | KeyHolds::Above { .. }) => None,
                    };
                    wakes.borrow_mut().extend(at_us.map(|at_us| (key, at_us)));
                    match holds {
                        None => shared.left_to_key(name, sharer, now),
                        // What is left is kept for it.
                        Some(KeyHolds::Full { is_short: true, .. }) => shared.left_to_key(name, sharer, now),
                        // It stands aside, and holds up nobody.
                        Some(KeyHolds::Above { .. }) => Room::ALL,
                        Some(_) => Room::NONE,
                    }
                }
                (Group::Room(pool), _) => Room::of_starts(rooms.room(pool)),
                _ => Room::ALL,
            };
            queue.begin_round(freed, left, |work| {
                runs.get(&work.run()).map_or(1, |run| load_of(run, tokens, work).1)
            });
            wakes.into_inner().into_iter().for_each(|(key, at_us)| bucket.keys.wake(key, at_us));
        }
    }

    /// What is next under a policy, where so many tokens are free: no key has more than it may have, and where places bound it,
    /// nobody takes those of the others.
    pub(super) fn next_work(&mut self, policy: Option<Uuid>, free: u32, now: Now) -> Option<Next> {
        let (ledger, queue) = (&self.ledger, self.queues.get_mut(&policy)?);
        let (runs, tokens) = (&ledger.runs, &ledger.tokens);
        let bucket = ledger.buckets.get(&policy)?;
        let (is_bounded, sends_max) = (bucket.is_bounded(), self.options.sends_max);
        let (wakes, lacking) = (RefCell::new(Vec::new()), RefCell::new(Vec::new()));
        let rooms = &self.rooms;
        let look = |work: Work| {
            let Some(run) = runs.get(&work.run()) else { return Look::Takes(0) };
            let (of, units) = load_of(run, tokens, work);
            if units > 0 {
                if units > 1 && ledger.limit_of(policy).is_some_and(|limit| units > limit) {
                    return Look::Held(Group::AboveLimit);
                }
                if let Some(holds) = bucket.key_holds(run.key(of), &run.sharer.with(of), units, now) {
                    let group = run.lane(of).circle;
                    if let KeyHolds::Rate { at_us } = holds {
                        wakes.borrow_mut().push((group, at_us));
                    }
                    return match holds {
                        KeyHolds::Above { .. } => Look::Held(Group::AboveLimit),
                        KeyHolds::Full { is_short: true, .. } => Look::Short(group),
                        KeyHolds::Full { .. } | KeyHolds::Paused | KeyHolds::Rate { .. } => {
                            Look::Held(Group::Key(group))
                        }
                    };
                }
            }
            let places = bucket.counts.places();
            let shared = if is_bounded { None } else { places.holds(&run.sharer, sends_max) };
            if let Some(group) = shared {
                return Look::Held(Group::Places(group));
            }
            match run.pool().filter(|pool| rooms.room(*pool) == 0) {
                Some(pool) => {
                    lacking.borrow_mut().push((pool, Arc::clone(&run.spec)));
                    Look::Held(Group::Room(pool))
                }
                None => Look::Takes(units),
            }
        };
        let weight = |work: Work| {
            let rules = bucket.rules().filter(|rules| !rules.of.is_empty());
            rules.zip(runs.get(&work.run())).map_or(1, |(rules, run)| {
                let (of, _) = load_of(run, tokens, work);
                rules.weight_of(run.key(of))
            })
        };
        let next = queue.next(look, weight, free);
        for (pool, spec) in lacking.into_inner() {
            self.rooms.wait(pool, policy, &spec);
        }
        let wakes = wakes.into_inner();
        if !wakes.is_empty()
            && let Some(bucket) = self.ledger.buckets.get_mut(&policy)
        {
            wakes.into_iter().for_each(|(group, at_us)| bucket.keys.wake(group, at_us));
        }
        next
    }
}

/// As whose a piece of work counts, and how many tokens it takes: none where it holds them already, and is to be sent again.
pub(super) fn load_of<'a>(run: &'a LiveRun, tokens: &'a Tokens, work: Work) -> (&'a KeyOf, u32) {
    match work {
        Work::Retry(id, index) => match tokens.get(&(id, index)) {
            Some(token) if token.in_flight() => (&token.load.key, 0),
            Some(token) => (&token.load.key, token.load.units),
            None => (&KeyOf::Schedule, 0),
        },
        Work::Next(_, key) => match &run.sorted {
            Some(sorted) => sorted.next_of(key).unwrap_or((&KeyOf::Schedule, 1)),
            None => (&KeyOf::Schedule, run.units_max()),
        },
    }
}
