//! Keys: how much of a policy's tokens the events of one key may have, and who of them is held back.
//!
//! In: what a policy says of its keys, what is held of each, a moment. Out: whether one more event of a key may start.
//! Invariants: of a key, held tokens never rise above its limit; only what is freed of a key lets those go on that wait for it:
//! nobody walks the other keys. Not here: the order in which keys take turns, which is the queue's.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::bucket::{Bucket, Level, Room};
use super::places::Sharer;
use super::steps::Counted as _;
use crate::model::{DAY_US, KeyRules, Limits, Now, RunId};

/// Below so many, rates of keys that have rested are not looked for to be forgotten.
const RATES_MIN: usize = 64;
/// What has not been used for so long is as if it had never been.
const REST_US: i64 = DAY_US;

/// The key of items; the events that have it share it.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct ItemKey {
    pub name: String,
    pub stand_in: u128,
}

/// As whose an event counts.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) enum KeyOf {
    /// Its schedule's key, or none.
    #[default]
    Schedule,
    /// That of its item.
    Item(Arc<ItemKey>),
    /// That of its item, which has not been read.
    Unread,
}

/// As what an event counts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Load {
    pub key: KeyOf,
    /// How many tokens it takes. Of one whose item has not been read, the most that it may.
    pub units: u32,
}

/// What holds the events of a key back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum KeyHolds {
    /// It is paused.
    Paused,
    /// Its events hold as many tokens as it may have, or so many that fewer are left than the next one takes.
    Full {
        /// How many it may have.
        limit: u32,
        /// Some are left: they are kept for it.
        is_short: bool,
    },
    /// The next event takes more tokens than it may ever have.
    Above {
        /// How many it may have.
        limit: u32,
    },
    /// Its rate lets nothing through before then (monotonic).
    Rate {
        /// When it does.
        at_us: i64,
    },
}

/// What is known of the keys of one bucket, besides the tokens that they hold.
#[derive(Debug, Default)]
pub(super) struct BucketKeys {
    /// How much the rate of each key lets through that has one, and has been used.
    rates: BTreeMap<u128, Level>,
    /// Above so many of them, those that have rested are looked for: twice as many as the last look has left.
    rates_max: usize,
    /// Of these keys something may start that could not.
    freed: BTreeSet<u128>,
    /// Of all of them.
    all_freed: bool,
    /// When rates let something through again (monotonic).
    permits: BTreeSet<(i64, u128)>,
    /// Runs that start their events key by key, and have some whose keys are not asked for until nothing else may start.
    pub unread: BTreeSet<RunId>,
}

/// The keys of which something may start that could not.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Freed {
    All,
    Some(BTreeSet<u128>),
}

/// What stands for a key among the groups of a queue: events without a key are one group, too.
pub(super) fn group(sharer: &Sharer) -> u128 {
    sharer.key().unwrap_or_default()
}

impl BucketKeys {
    /// A token of a key has come back.
    pub(super) fn free(&mut self, key: u128) {
        if !self.all_freed {
            self.freed.insert(key);
        }
    }

    /// Everything may be otherwise than it was.
    pub(super) fn free_all(&mut self) {
        self.freed.clear();
        self.permits.clear();
        self.all_freed = true;
    }

    /// The keys of which something may start since the last call.
    pub(super) fn take_freed(&mut self, now: Now) -> Freed {
        while let Some(&(at_us, key)) = self.permits.first().filter(|(at_us, _)| *at_us <= now.mono_us) {
            self.permits.remove(&(at_us, key));
            self.free(key);
        }
        let freed = std::mem::take(&mut self.freed);
        if std::mem::take(&mut self.all_freed) { Freed::All } else { Freed::Some(freed) }
    }

    /// The rate of a key lets something through then (monotonic).
    pub(super) fn wake(&mut self, key: u128, at_us: i64) {
        // A microsecond later, so that what is calculated then is not just below one event.
        self.permits.insert((at_us + 1, key));
    }

    /// When the first rate lets something through (monotonic).
    pub(super) fn next_permit_us(&self) -> Option<i64> {
        self.permits.first().map(|(at_us, _)| *at_us)
    }

    /// An event of a key starts.
    pub(super) fn spend(&mut self, key: u128, limits: &Limits, now: Now) {
        let Some(rate) = limits.rate_per_s else { return };
        if self.rates.len() > self.rates_max {
            let is_rested = |level: &Level| level.at_us() <= now.mono_us - REST_US;
            let rested = self.rates.iter().counted().filter(|(_, level)| is_rested(level));
            for key in rested.map(|(key, _)| *key).collect::<Vec<_>>() {
                self.rates.remove(&key);
            }
            self.rates_max = RATES_MIN.max(2 * self.rates.len());
        }
        let level = self.rates.entry(key).or_insert_with(|| Level::new(now));
        level.refill(rate, limits.burst(), now);
        level.spend();
    }

    /// How many more events the rate of a key lets through.
    fn level(&self, key: u128, limits: &Limits, rate: f64, now: Now) -> Level {
        let mut level = self.rates.get(&key).cloned().unwrap_or_else(|| Level::new(now));
        level.refill(rate, limits.burst(), now);
        level
    }
}

impl Bucket {
    /// What is said of the keys of its events, where anything is.
    pub(super) fn rules(&self) -> Option<&KeyRules> {
        self.policy.as_ref().map(|policy| &policy.keys).filter(|rules| !rules.is_empty())
    }

    /// Whether the keys of some of its tokens are to be read before anything more starts.
    pub(super) fn is_unread(&self) -> bool {
        self.counts.unread() > 0 && self.rules().is_some()
    }

    /// What holds back the next event of a key, which takes so many tokens.
    pub(super) fn key_holds(&self, key: &str, sharer: &Sharer, units: u32, now: Now) -> Option<KeyHolds> {
        let rules = self.rules()?;
        if rules.pause_of(key).is_some() {
            return Some(KeyHolds::Paused);
        }
        let limits = rules.limits_of(key);
        if let Some(limit) = limits.max_in_flight {
            if units > limit.max(1) {
                return Some(KeyHolds::Above { limit });
            }
            let held = self.counts.held_of(sharer.key());
            if held.saturating_add(units) > limit {
                return Some(KeyHolds::Full { limit, is_short: held < limit });
            }
        }
        let rate = limits.rate_per_s?;
        let level = self.keys.level(group(sharer), &limits, rate, now);
        level.next_us(rate, now).map(|at_us| KeyHolds::Rate { at_us })
    }

    /// Whether nothing of a key may start for now; what it is may not have been read.
    pub(super) fn may_be_paused(&self, key: &str, of: &KeyOf) -> bool {
        self.rules().is_some_and(|rules| *of == KeyOf::Unread || rules.pause_of(key).is_some())
    }

    /// Whether so many tokens of a key may be taken before their time: as [`Bucket::allows_early`] for all of the bucket.
    pub(super) fn allows_key_early(&self, key: &str, sharer: &Sharer, tokens: u32) -> bool {
        let Some(rules) = self.rules() else { return true };
        let limits = rules.limits_of(key);
        let held = self.counts.held_of(sharer.key()).saturating_add(tokens);
        rules.pause_of(key).is_none()
            && limits.rate_per_s.is_none()
            && limits.max_in_flight.is_none_or(|limit| held <= limit / 2)
    }

    /// A token of an event has come back.
    pub(super) fn freed(&mut self, sharer: &Sharer) {
        if self.rules().is_some() {
            self.keys.free(group(sharer));
        }
    }

    /// What is left to the events of a key that nothing holds back.
    pub(super) fn left_to_key(&self, key: &str, sharer: &Sharer, now: Now) -> Room {
        let limits = self.rules().map(|rules| rules.limits_of(key)).unwrap_or_default();
        let held = self.counts.held_of(sharer.key());
        let tokens = limits.max_in_flight.map_or(u32::MAX, |limit| limit.saturating_sub(held));
        let starts = limits
            .rate_per_s
            .map_or(u32::MAX, |rate| self.keys.level(group(sharer), &limits, rate, now).permits());
        Room { tokens, starts }
    }

    /// When the rate of a key lets an event through once those have started that it lets through now (monotonic).
    pub(super) fn next_but_one_us(&self, key: &str, sharer: &Sharer, now: Now) -> Option<i64> {
        let limits = self.rules()?.limits_of(key);
        let rate = limits.rate_per_s?;
        let mut level = self.keys.level(group(sharer), &limits, rate, now);
        level.empty();
        level.next_us(rate, now)
    }

    /// An event of a key starts.
    pub(super) fn spend_of(&mut self, key: &str, sharer: &Sharer, now: Now) {
        let Some(rules) = self.rules() else { return };
        let limits = rules.limits_of(key);
        self.keys.spend(group(sharer), &limits, now);
    }
}

#[cfg(test)]
mod tests {
    use super::super::steps::steps;
    use super::*;
    use crate::model::SECOND_US;

    #[test]
    fn many_keys_with_a_rate_are_walked_rarely_and_forgotten_when_they_rest() {
        let limits = Limits { max_in_flight: None, rate_per_s: Some(1.0), burst: None };
        let mut keys = BucketKeys::default();
        let before = steps();
        for key in 1..=20_000_u32 {
            let mono_us = i64::from(key) * 10;
            keys.spend(key.into(), &limits, Now { wall_us: 0, mono_us });
        }
        assert!(steps() - before < 5 * 20_000, "{}", steps() - before);
        assert_eq!(keys.rates.len(), 20_000, "all of them were used lately");
        for key in 1..=40_000_u32 {
            let mono_us = 2 * REST_US + i64::from(key % 10) * SECOND_US;
            keys.spend((key % 10).into(), &limits, Now { wall_us: 0, mono_us });
            keys.spend((20_000 + key).into(), &limits, Now { wall_us: 0, mono_us });
        }
        assert!(keys.rates.len() <= 40_010, "those of the day before are gone: {}", keys.rates.len());
    }
}
