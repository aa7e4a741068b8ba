//! How many tokens the distinct events of a policy, and of each key under it, took that were in flight at once, from the sink's
//! journal.

use std::collections::{HashMap, HashSet};

use super::{Evidence, Limit, Promise, Verdict};
use crate::journal::What;

/// What was acquired under an older limit may still come after so long: its token stays while nobody knows whether
/// its consumer has it.
const STILL_COMES_US: i64 = 120_000_000;

/// Events in flight, and the tokens that they take.
#[derive(Default)]
struct Flight {
    events: HashSet<u32>,
    tokens: u64,
}

impl Flight {
    fn enter(&mut self, event: u32, units: u64) -> u64 {
        if self.events.insert(event) {
            self.tokens += units;
        }
        self.tokens
    }

    fn leave(&mut self, event: u32, units: u64) {
        if self.events.remove(&event) {
            self.tokens -= units;
        }
    }
}

pub(super) fn check(evidence: &Evidence<'_>, verdict: &mut Verdict) {
    let mut in_flight: HashMap<&str, Flight> = HashMap::new();
    let mut of_keys: HashMap<(&str, &str), Flight> = HashMap::new();
    for entry in &evidence.journal.entries {
        let event = &evidence.journal.events[entry.event as usize];
        let units = evidence.ordered.units_of(&event.schedule, event.index);
        match entry.what {
            What::Arrived { enters: true, .. } => {
                if in_flight
                    .get(event.policy.as_str())
                    .is_some_and(|flight| flight.events.contains(&entry.event))
                {
                    continue;
                }
                if let Some(limit) = evidence.ordered.key_limits.get(&event.policy) {
                    let of_key = of_keys.entry((&event.policy, &event.key)).or_default();
                    let count = of_key.enter(entry.event, units);
                    if count > u64::from(*limit) {
                        verdict.breach(Promise::AboveM, || {
                            let (key, policy) = (&event.key, &event.policy);
                            format!(
                                "{count} in flight of the key {key:?} of {limit} under {policy}: {}",
                                event.id
                            )
                        });
                    }
                }
                for policy in with_above(evidence, &event.policy) {
                    let count = in_flight.entry(policy).or_default().enter(entry.event, units);
                    let Some(limit) = limit_at(&evidence.ordered.limits, policy, entry.at_us) else {
                        continue;
                    };
                    let most = verdict.in_flight_max.entry(policy.to_owned()).or_default();
                    if count > most.0 {
                        *most = (count, limit);
                    }
                    if count > limit {
                        verdict.above_m_max = verdict.above_m_max.max(count - limit);
                        verdict.breach(Promise::AboveM, || {
                            let (at_us, id) = (entry.at_us, &event.id);
                            format!("{count} in flight under {policy} of {limit} at {at_us}: {id}")
                        });
                    }
                }
            }
            What::Left => {
                for policy in with_above(evidence, &event.policy) {
                    in_flight.entry(policy).or_default().leave(entry.event, units);
                }
                if let Some(of_key) = of_keys.get_mut(&(event.policy.as_str(), event.key.as_str())) {
                    of_key.leave(entry.event, units);
                }
            }
            _ => {}
        }
    }
}

/// A policy, and those above it.
fn with_above<'a>(evidence: &'a Evidence<'_>, policy: &'a str) -> impl Iterator<Item = &'a str> {
    std::iter::successors(Some(policy), |policy| evidence.ordered.above.get(*policy).map(String::as_str))
}

/// The largest limit under which an event that comes now may have been acquired.
fn limit_at(limits: &[Limit], policy: &str, at_us: i64) -> Option<u64> {
    let holds = |limit: &&Limit| {
        limit.policy == policy
            && limit.from_us <= at_us
            && limit.until_us.saturating_add(STILL_COMES_US) >= at_us
    };
    limits.iter().filter(holds).map(|limit| limit.max.into()).max()
}
