//! What the events of each key of a policy hold and wait for: answers for operators, read from memory.

use std::collections::BTreeMap;

use uuid::Uuid;

use super::keys::KeyOf;
use super::shard::Shard;
use crate::model::Now;

/// The most keys of an answer, besides those that the policy names.
const SHOWN_MAX: usize = 1_000;

/// What the events of one key have.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct KeyCount {
    /// The key; empty for events without one.
    pub key: String,
    /// Tokens held.
    pub held: u32,
    /// Events that are due and hold no token.
    pub waiting: u64,
    /// When the oldest fell due that has not started.
    pub since_us: Option<i64>,
}

/// The keys of a policy.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct KeyCounts {
    /// Those with most waiting events first.
    pub keys: Vec<KeyCount>,
    /// How many there are.
    pub all: usize,
    /// Events that wait, and whose keys have not been read.
    pub unread: u64,
}

impl Shard {
    /// What the events of each key of a policy hold and wait for. Takes time in proportion to its tokens and its runs, and to the
    /// keys of these.
    pub fn key_counts(&self, policy: Uuid, now: Now) -> KeyCounts {
        let mut keys: BTreeMap<String, KeyCount> = BTreeMap::new();
        let mut unread = 0;
        for run in self.ledger.runs.under(Some(policy)).filter_map(|id| self.ledger.runs.get(&id)) {
            for (_, token) in self.ledger.tokens.of(run.row.id) {
                let of = keys.entry(run.key(&token.load.key).to_owned()).or_default();
                of.held += if token.in_flight() { token.load.units } else { 0 };
                of.waiting += u64::from(!token.in_flight() && token.row.due_us <= now.wall_us);
            }
            if !run.launched || run.cancelled {
                continue;
            }
            let due = self.due_now(run, now);
            let mut wait = |of: &KeyOf, events: u64, since_us: i64| {
                if events > 0 {
                    let of = keys.entry(run.key(of).to_owned()).or_default();
                    of.waiting += events;
                    of.since_us = Some(of.since_us.map_or(since_us, |oldest| oldest.min(since_us)));
                }
            };
            let Some(sorted) = &run.sorted else {
                wait(&KeyOf::Schedule, due, run.launch_of(run.row.next_index));
                continue;
            };
            sorted.lines().for_each(|(of, events, first)| wait(of, events.into(), run.launch_of(first)));
            unread += due.saturating_sub(sorted.known().into());
        }
        let all = keys.len();
        let mut keys: Vec<KeyCount> =
            keys.into_iter().map(|(key, count)| KeyCount { key, ..count }).collect();
        keys.sort_by_key(|key| (std::cmp::Reverse(key.waiting), std::cmp::Reverse(key.held)));
        let rules = self.ledger.buckets.get(&Some(policy)).and_then(|bucket| bucket.rules());
        let rest = keys.split_off(keys.len().min(SHOWN_MAX));
        keys.extend(
            rest.into_iter().filter(|key| rules.is_some_and(|rules| rules.of.contains_key(&key.key))),
        );
        KeyCounts { keys, all, unread }
    }
}
