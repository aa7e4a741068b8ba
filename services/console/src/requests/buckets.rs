//! Remembers how full each bucket was.
//!
//! In: the buckets, every few seconds, from a sampler of this console and from visitors' pages. Out: the points of a policy.
//! Invariants: a value is kept when it changes, and the sampler asks for busy policies only, so that a quiet one costs nothing;
//! an hour at most, and bounded numbers of points and policies; what was not seen is a gap between points; a reading that takes
//! long is followed by a pause that is longer. Not here: anything durable: what a console remembers begins and ends with it.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use tollgate_clock::instant_now;
use tollgate_proto::v1;

use crate::requests::api::Api;
use crate::requests::console::Console;

/// How often the buckets are looked at.
const EVERY: Duration = Duration::from_secs(5);
/// Of the time, at most one part in this many is spent looking.
const PAUSE: u32 = 20;
/// The span that is remembered, in microseconds.
pub(crate) const SPAN_US: i64 = 3_600_000_000;
/// Without a reading for this time, there is a gap.
const GAP_US: i64 = 20_000_000;
/// The most points of each policy.
const POINTS_MAX: usize = 800;
/// The most policies.
const POLICIES_MAX: usize = 5_000;

/// A bucket as it was from a moment on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Point {
    /// From when.
    pub(crate) at_us: i64,
    /// Until when it was seen to be so.
    pub(crate) until_us: i64,
    /// Tokens held.
    pub(crate) held: u64,
    /// The policy's `max_in_flight`.
    pub(crate) limit: Option<u32>,
}

/// All policies.
#[derive(Debug, Default)]
pub(crate) struct Histories {
    rings: Mutex<BTreeMap<String, VecDeque<Point>>>,
}

impl Histories {
    /// Takes in what is so now.
    pub(crate) fn note(&self, now_us: i64, gauges: &[v1::PolicyGauge]) {
        let mut rings = self.rings.lock().unwrap_or_else(PoisonError::into_inner);
        for gauge in gauges.iter().filter(|gauge| !gauge.policy.is_empty()) {
            if rings.len() >= POLICIES_MAX && !rings.contains_key(&gauge.policy) {
                continue;
            }
            let ring = rings.entry(gauge.policy.clone()).or_default();
            add(ring, now_us, gauge.held_count, gauge.max_in_flight);
        }
        rings.retain(|_, ring| ring.back().is_some_and(|last| now_us - last.until_us < SPAN_US));
    }

    /// Takes in what is so now, where policies that are not among these hold nothing.
    pub(crate) fn note_busy(&self, now_us: i64, busy: &[v1::PolicyGauge]) {
        self.note(now_us, busy);
        let mut rings = self.rings.lock().unwrap_or_else(PoisonError::into_inner);
        for ring in rings.values_mut() {
            // Those that were noted just now stay as they are.
            if let Some(limit) = ring.back().map(|last| last.limit) {
                add(ring, now_us, 0, limit);
            }
        }
        // One that has been quiet for as long as is remembered makes room.
        rings.retain(|_, ring| {
            ring.len() > 1 || ring.back().is_some_and(|last| last.held > 0 || now_us - last.at_us < SPAN_US)
        });
    }

    /// What is remembered of a policy, oldest first.
    pub(crate) fn of(&self, policy: &str) -> Vec<Point> {
        let rings = self.rings.lock().unwrap_or_else(PoisonError::into_inner);
        rings.get(policy).map(|ring| ring.iter().copied().collect()).unwrap_or_default()
    }
}

fn add(ring: &mut VecDeque<Point>, now_us: i64, held: u64, limit: Option<u32>) {
    match ring.back_mut() {
        // Two who look at once may come in either order.
        Some(last) if last.until_us >= now_us => return,
        Some(last) if now_us - last.until_us < GAP_US => {
            last.until_us = now_us;
            if (last.held, last.limit) != (held, limit) {
                ring.push_back(Point { at_us: now_us, until_us: now_us, held, limit });
            }
        }
        _ => ring.push_back(Point { at_us: now_us, until_us: now_us, held, limit }),
    }
    while ring.len() > POINTS_MAX || ring.front().is_some_and(|first| first.until_us < now_us - SPAN_US) {
        ring.pop_front();
    }
}

/// Looks at the buckets every few seconds until the console stops.
pub(crate) async fn sample(console: Console) {
    // A console that must show a key sees only what its visitors see.
    if console.login.is_some() {
        return;
    }
    let api = Api::new(console.channel.clone(), "console", None);
    let mut pause = EVERY;
    loop {
        tokio::select! {
            () = console.stop.cancelled() => return,
            () = tokio::time::sleep(pause) => {}
        }
        let began = instant_now();
        // A handler that cannot be asked leaves a gap, which says enough.
        if let Ok(status) = api.busy().await {
            let now_us = console.clock.wall_us();
            if status.silent_handlers.is_empty() {
                console.histories.note_busy(now_us, &status.policies);
            } else {
                console.histories.note(now_us, &status.policies);
            }
        }
        pause = EVERY.max(began.elapsed() * PAUSE);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn gauge(held: u64, limit: u32) -> v1::PolicyGauge {
        v1::PolicyGauge {
            policy: "namespaces/a/policies/p".to_owned(),
            held_count: held,
            max_in_flight: Some(limit),
            ..v1::PolicyGauge::default()
        }
    }

    #[test]
    fn only_changes_and_gaps_make_points() {
        let histories = Histories::default();
        let second = 1_000_000;
        for (at, held) in [(0, 1), (5, 1), (10, 1), (15, 2), (20, 2), (60, 2)] {
            histories.note(at * second, &[gauge(held, 4)]);
        }
        let points = histories.of("namespaces/a/policies/p");
        let spans: Vec<_> = points.iter().map(|p| (p.at_us / second, p.until_us / second, p.held)).collect();
        assert_eq!(spans, [(0, 15, 1), (15, 20, 2), (60, 60, 2)]);
        histories.note(8 * SPAN_US, &[]);
        assert!(histories.of("namespaces/a/policies/p").is_empty());
    }

    #[test]
    fn who_is_not_among_the_busy_holds_nothing_and_is_forgotten_after_an_hour() {
        let (histories, second) = (Histories::default(), 1_000_000);
        histories.note_busy(0, &[gauge(3, 4)]);
        histories.note_busy(5 * second, &[]);
        histories.note_busy(10 * second, &[]);
        let points = || histories.of("namespaces/a/policies/p");
        let spans: Vec<_> =
            points().iter().map(|p| (p.at_us / second, p.until_us / second, p.held, p.limit)).collect();
        assert_eq!(spans, [(0, 5, 3, Some(4)), (5, 10, 0, Some(4))]);
        for at in (10..3 * SPAN_US / second).step_by(10) {
            histories.note_busy(at * second, &[]);
        }
        assert!(points().is_empty());
    }
}
