//! How late healthy work came beside each fault, and whether it stood still for what was somebody else's business.

use std::collections::{BTreeMap, HashSet};

use super::{Evidence, Lateness, Promise, Verdict, Watch};
use crate::journal::{Event, What};
use crate::sink::kind::HEALTHY;

/// What is somebody else's business holds healthy work up for less than this, also on a machine that has much to do; and for less
/// than it seems where the campaign itself is late.
const STOPPED_US: i64 = 4_000_000;
/// The consequences of a fault last for a while.
const AFTER_US: i64 = 4_000_000;

/// A healthy event that came.
struct Sample<'a> {
    event: &'a Event,
    late_us: i64,
}

pub(super) fn check(evidence: &Evidence<'_>, verdict: &mut Verdict) {
    let samples = samples(evidence);
    let mut by_kind: BTreeMap<&str, Vec<i64>> = BTreeMap::new();
    for watch in evidence.watches {
        let beside = by_kind.entry(&watch.kind).or_default();
        let meanwhile =
            |sample: &&Sample<'_>| (watch.from_us..watch.until_us).contains(&sample.event.launch_us);
        for sample in samples.iter().filter(meanwhile) {
            if is_near(watch, sample.event) {
                beside.push(sample.late_us);
            }
            let lag_us = evidence.lags.around(sample.event.launch_us + sample.late_us);
            if watch.spares_others && sample.late_us > STOPPED_US + lag_us {
                verdict.breach(Promise::Neighbour, || {
                    format!("{} us late beside {:?}: {:?}", sample.late_us, watch.kind, sample.event)
                });
            }
        }
    }
    verdict.neighbours = by_kind.into_iter().map(|(kind, late)| (kind.to_owned(), lateness(late))).collect();
    let is_calm = |sample: &&Sample<'_>| {
        let launch_us = sample.event.launch_us;
        evidence
            .watches
            .iter()
            .all(|watch| launch_us < watch.from_us - AFTER_US || launch_us > watch.until_us + AFTER_US)
    };
    verdict.calm = lateness(samples.iter().filter(is_calm).map(|sample| sample.late_us).collect());
}

/// The first delivery of each.
fn samples<'a>(evidence: &Evidence<'a>) -> Vec<Sample<'a>> {
    let mut known: HashSet<u32> = HashSet::new();
    let mut samples = Vec::new();
    for entry in &evidence.journal.entries {
        let event = &evidence.journal.events[entry.event as usize];
        if event.schedule.starts_with(HEALTHY)
            && matches!(entry.what, What::Arrived { .. })
            && known.insert(entry.event)
        {
            samples.push(Sample { event, late_us: entry.at_us - event.launch_us });
        }
    }
    samples
}

fn is_near(watch: &Watch, event: &Event) -> bool {
    watch.shards.as_ref().is_none_or(|shards| event.shard().is_some_and(|shard| shards.contains(&shard)))
}

fn lateness(mut late_us: Vec<i64>) -> Lateness {
    late_us.sort_unstable();
    let part = |of_hundred: usize| {
        let place = (late_us.len() * of_hundred).div_ceil(100).saturating_sub(1);
        late_us.get(place).copied().unwrap_or_default() / 1_000
    };
    Lateness { events: late_us.len(), median_ms: part(50), p99_ms: part(99), max_ms: part(100) }
}
