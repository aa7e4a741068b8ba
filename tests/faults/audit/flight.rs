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
        let flight = in_flight.entry(&event.policy).or_default();
        match entry.what {
            What::Arrived { enters: true, .. } => {
                if !flight.insert(entry.event) {
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
                let Some(limit) = limit_at(&evidence.ordered.limits, &event.policy, entry.at_us) else {
                    continue;
                };
                let count = flight.len() as u64;
                let most = verdict.in_flight_max.entry(event.policy.clone()).or_default();
                if count > most.0 {
                    *most = (count, limit);
                }
                if count > limit {
                    verdict.above_m_max = verdict.above_m_max.max(count - limit);
                    verdict.breach(Promise::AboveM, || {
                        format!(
                            "{count} in flight under {} of {limit} at {}: {}",
                            event.policy, entry.at_us, event.id
                        )
                    });
                }
            }
            What::Left => {
                flight.remove(&entry.event);
                if let Some(of_key) = of_keys.get_mut(&(event.policy.as_str(), event.key.as_str())) {
                    of_key.remove(&entry.event);
                }
            }
            _ => {}
        }
    }
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
