//! Targets at a glance: those of all shards and processes as one list, the sick first, of bounded length.
//!
//! Invariant: what one namespace has at a target is never added to another's.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use tollgate_core::handle::TargetGauge;
use tollgate_proto::convert;
use tollgate_proto::v1;

use crate::Shared;

/// Of how many targets a process tells another.
pub(super) const OF_PROCESS_MAX: usize = 1_000;
/// Of how many an answer tells.
pub(super) const OF_ANSWER_MAX: usize = 200;

/// Targets by namespace and address.
#[derive(Debug, Default)]
pub(super) struct Targets(BTreeMap<(String, String), v1::TargetGauge>);

impl Targets {
    /// Adds what another shard or process says.
    pub(super) fn add(&mut self, gauge: v1::TargetGauge) {
        let key = (gauge.parent.clone(), gauge.target.clone());
        match self.0.get_mut(&key) {
            Some(sum) => join(sum, gauge),
            None => {
                self.0.insert(key, gauge);
            }
        }
    }

    /// Those that refuse first, then those that most waits for; and how many are left out.
    pub(super) fn worst_first(self, most: usize) -> (Vec<v1::TargetGauge>, u32) {
        let mut all: Vec<v1::TargetGauge> = self.0.into_values().collect();
        for gauge in &mut all {
            gauge.refusing = is_refusing(gauge);
        }
        // What is otherwise alike stays in the order of the names.
        all.sort_by_key(|gauge| {
            (Reverse(gauge.refusing), Reverse(gauge.waiting_count), Reverse(gauge.held_count))
        });
        let left_out = all.len().saturating_sub(most);
        all.truncate(most);
        (all, u32::try_from(left_out).unwrap_or(u32::MAX))
    }
}

fn is_refusing(gauge: &v1::TargetGauge) -> bool {
    let fails = gauge.refused_per_second + gauge.unclear_per_second > 0.0;
    let comes_again = gauge.retrying_count > 0 && !gauge.last_error.is_empty();
    gauge.accepted_per_second == 0.0 && (fails || comes_again)
}

/// Two lines about one target, as one.
fn join(sum: &mut v1::TargetGauge, gauge: v1::TargetGauge) {
    let wait = |gauge: &v1::TargetGauge| gauge.oldest_wait.map_or((0, 0), |wait| (wait.seconds, wait.nanos));
    let failed = |gauge: &v1::TargetGauge| gauge.last_error_time.map(|time| (time.seconds, time.nanos));
    sum.held_count += gauge.held_count;
    sum.waiting_count += gauge.waiting_count;
    sum.retrying_count += gauge.retrying_count;
    sum.started_per_second += gauge.started_per_second;
    sum.accepted_per_second += gauge.accepted_per_second;
    sum.refused_per_second += gauge.refused_per_second;
    sum.unclear_per_second += gauge.unclear_per_second;
    if wait(&gauge) > wait(sum) {
        sum.oldest_wait = gauge.oldest_wait;
    }
    if failed(&gauge) > failed(sum) {
        (sum.last_error, sum.last_error_time) = (gauge.last_error, gauge.last_error_time);
    }
}

impl Shared {
    /// A target as callers see it.
    pub(super) fn show_target(&self, gauge: TargetGauge) -> v1::TargetGauge {
        let error = gauge.last_error.as_ref();
        let words = error.map(|error| self.without_seal(error.event, error.words.clone()));
        v1::TargetGauge {
            parent: format!("namespaces/{}", gauge.namespace),
            target: gauge.target.unwrap_or_default(),
            held_count: gauge.held,
            waiting_count: gauge.waiting,
            oldest_wait: Some(convert::duration_of_ms(gauge.oldest_wait_us / 1000)),
            retrying_count: gauge.retrying,
            started_per_second: gauge.started_per_s,
            accepted_per_second: gauge.accepted_per_s,
            refused_per_second: gauge.refused_per_s,
            unclear_per_second: gauge.unclear_per_s,
            last_error: words.unwrap_or_default(),
            last_error_time: error.map(|error| convert::timestamp(error.at_us)),
            // Known once all shards have spoken.
            refusing: false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn gauge(parent: &str, target: &str) -> v1::TargetGauge {
        v1::TargetGauge { parent: parent.to_owned(), target: target.to_owned(), ..Default::default() }
    }

    #[test]
    fn shards_are_added_up_and_namespaces_are_not() {
        let mut targets = Targets::default();
        let part = |seconds: i64, accepted_per_second| v1::TargetGauge {
            waiting_count: 2,
            accepted_per_second,
            refused_per_second: 1.0,
            last_error: format!("at {seconds}"),
            last_error_time: Some(convert::timestamp(seconds * 1_000_000)),
            oldest_wait: Some(convert::duration_of_ms(seconds * 1_000)),
            ..gauge("namespaces/a", "http://x")
        };
        targets.add(part(3, 0.0));
        targets.add(part(7, 0.5));
        targets.add(v1::TargetGauge { parent: "namespaces/b".to_owned(), ..part(5, 0.0) });
        let (all, left_out) = targets.worst_first(OF_ANSWER_MAX);
        let seen: Vec<_> = all.iter().map(|g| (g.parent.as_str(), g.waiting_count, g.refusing)).collect();
        assert_eq!(
            (seen, left_out),
            (vec![("namespaces/b", 2, true), ("namespaces/a", 4, false)], 0),
            "one shard's target takes something"
        );
        let a = &all[1];
        assert_eq!((a.last_error.as_str(), a.oldest_wait.map(|w| w.seconds)), ("at 7", Some(7)));
        assert_eq!((a.accepted_per_second, a.refused_per_second), (0.5, 2.0));
    }

    #[test]
    fn the_refusing_come_first_and_then_the_longest_queues() {
        let mut targets = Targets::default();
        let waits = |target, waiting_count| v1::TargetGauge {
            waiting_count,
            accepted_per_second: 1.0,
            ..gauge("namespaces/a", target)
        };
        [waits("http://a", 5), waits("http://b", 900), waits("http://c", 0)]
            .into_iter()
            .for_each(|g| targets.add(g));
        let backs_off = v1::TargetGauge {
            retrying_count: 1,
            waiting_count: 1,
            last_error: "no".to_owned(),
            ..gauge("namespaces/a", "http://d")
        };
        targets.add(backs_off);
        // Consumers that ask to look again have not failed.
        targets.add(v1::TargetGauge { retrying_count: 2, ..gauge("namespaces/a", "http://e") });
        let (all, left_out) = targets.worst_first(4);
        let order: Vec<&str> = all.iter().map(|gauge| gauge.target.as_str()).collect();
        assert_eq!((order, left_out), (vec!["http://d", "http://b", "http://a", "http://c"], 1));
    }
}
