//! Who may start next under a policy: what keys and places hold back, and when it comes back.
//!
//! In: a bucket, its queue. Out: the next piece of work that may start; timers. Invariant: what is held back has somebody who
//! lets it go: a token or a place that comes back, a rate, or a change of the policy.

use std::cell::RefCell;

use uuid::Uuid;

use super::keys::{KeyHolds, KeyOf};
use super::ledger::Tokens;
use super::live::{LiveRun, LiveToken};
use super::queue::{Group, Queue, Work};
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
        let is_bounded = self.ledger.is_bounded(policy);
        let (runs, tokens, sends_max) = (&self.ledger.runs, &self.ledger.tokens, self.options.sends_max);
        if let (Some(bucket), Some(queue)) =
            (self.ledger.buckets.get_mut(&policy), self.queues.get_mut(&policy))
        {
            let freed = bucket.keys.take_freed(now);
            let wakes = RefCell::new(Vec::new());
            let shared = &*bucket;
            queue.begin_round(freed, |work, group| match (group, runs.get(&work.run())) {
                (Group::Places(places), Some(run)) if !is_bounded => {
                    shared.counts.places().left_to(places, &run.sharer, sends_max)
                }
                (Group::Key(key), Some(run)) => {
                    let of = key_of(run, tokens, work);
                    let (name, sharer) = (run.key(of), &run.sharer.with(of));
                    let holds = shared.key_holds(name, sharer, now);
                    // A token lets those go that stay behind when it comes back. A rate has to be waited for.
                    let at_us = match holds {
                        None => shared.next_but_one_us(name, sharer, now),
                        Some(KeyHolds::Rate { at_us }) => Some(at_us),
                        Some(KeyHolds::Paused | KeyHolds::Full { .. }) => None,
                    };
                    wakes.borrow_mut().extend(at_us.map(|at_us| (key, at_us)));
                    if holds.is_none() { shared.left_to_key(name, sharer, now) } else { 0 }
                }
                _ => u32::MAX,
            });
            wakes.into_inner().into_iter().for_each(|(key, at_us)| bucket.keys.wake(key, at_us));
        }
    }

    /// What may start next under a policy: no key has more than it may have, and where places bound it, nobody takes those of
    /// the others.
    pub(super) fn next_work(&mut self, policy: Option<Uuid>, now: Now) -> Option<Work> {
        let is_bounded = self.ledger.is_bounded(policy);
        let (ledger, queue) = (&mut self.ledger, self.queues.get_mut(&policy)?);
        let (runs, tokens) = (&ledger.runs, &ledger.tokens);
        let bucket = ledger.buckets.get_mut(&policy)?;
        let sends_max = self.options.sends_max;
        let wakes = RefCell::new(Vec::new());
        let holds = |work: Work| {
            let run = runs.get(&work.run())?;
            let of = key_of(run, tokens, work);
            if !holds_token(tokens, work)
                && let Some(holds) = bucket.key_holds(run.key(of), &run.sharer.with(of), now)
            {
                let group = run.lane(of).key;
                if let KeyHolds::Rate { at_us } = holds {
                    wakes.borrow_mut().push((group, at_us));
                }
                return Some(Group::Key(group));
            }
            let places = bucket.counts.places();
            if is_bounded { None } else { places.holds(&run.sharer, sends_max).map(Group::Places) }
        };
        let weight = |circle: &str| bucket.rules().map_or(1, |rules| rules.weight_of(circle));
        let work = queue.next(holds, weight);
        wakes.into_inner().into_iter().for_each(|(group, at_us)| bucket.keys.wake(group, at_us));
        work
    }
}

/// Whether a piece of work holds its token already: it is to be sent again.
fn holds_token(tokens: &Tokens, work: Work) -> bool {
    match work {
        Work::Retry(run, index) => tokens.get(&(run, index)).is_some_and(LiveToken::in_flight),
        Work::Next(..) => false,
    }
}

/// As whose a piece of work counts.
fn key_of<'a>(run: &'a LiveRun, tokens: &'a Tokens, work: Work) -> &'a KeyOf {
    match work {
        Work::Retry(run, index) => tokens.get(&(run, index)).map_or(&KeyOf::Schedule, |token| &token.key),
        Work::Next(_, key) => {
            let line = run.sorted.as_ref().and_then(|sorted| sorted.line(key));
            line.map_or(&KeyOf::Schedule, |(key, _)| key)
        }
    }
}
