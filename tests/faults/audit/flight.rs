//! How many distinct events of a policy, and of each key under it, were in flight at once, from the sink's journal.

use std::collections::{HashMap, HashSet};

use super::{Evidence, Limit, Promise, Verdict};
use crate::journal::What;

/// What was acquired under an older limit may still come after so long: its token stays while nobody knows whether
/// its consumer has it.
const STILL_COMES_US: i64 = 120_000_000;

pub(super) fn check(evidence: &Evidence<'_>, verdict: &mut Verdict) {
    let mut in_flight: HashMap<&str, HashSet<u32>> = HashMap::new();
    let mut of_keys: HashMap<(&str, &str), HashSet<u32>> = HashMap::new();
    for entry in &evidence.journal.entries {
        let event = &evidence.journal.events[entry.event as usize];
        match entry.what {
            What::Arrived { enters: true, .. } => {
                if in_flight.get(event.policy.as_str()).is_some_and(|flight| flight.contains(&entry.event)) {
                    continue;
                }
                if let Some(limit) = evidence.ordered.key_limits.get(&event.policy) {
                    let of_key = of_keys.entry((&event.policy, &event.key)).or_default();
                    of_key.insert(entry.event);
                    let count = of_key.len();
                    if count > *limit as usize {
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
                    let flight = in_flight.entry(policy).or_default();
                    flight.insert(entry.event);
                    let Some(limit) = limit_at(&evidence.ordered.limits, policy, entry.at_us) else {
                        continue;
                    };
                    let count = flight.len() as u64;
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
                    in_flight.entry(policy).or_default().remove(&entry.event);
                }
                if let Some(of_key) = of_keys.get_mut(&(event.policy.as_str(), event.key.as_str())) {
                    of_key.remove(&entry.event);
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
