//! Workers that poll and are at work: between two polls nobody sees them, and they are able to do what they did.
//!
//! In: polls that were answered with events. Out: until when somebody with fitting labels is presumed to be there. Invariants: it
//! is bounded, and no namespace has all of it; what is past goes. Not here: workers that are connected (`book`), who has which
//! event (`taken`).

use std::collections::BTreeMap;

use tollgate_core::model::MINUTE_US;

use super::book::{Labels, QueueKey, TooManyKinds, fits};

/// For so long after a poll its worker is presumed to be at work, whatever it was given.
const PRESUMED_US: i64 = MINUTE_US;
/// The most queues, and those of a namespace.
const QUEUES_MAX: usize = 10_000;
const EACH_MAX: usize = 1_000;

/// When (monotonic) the last poll of each kind was answered with events, by queue and labels; of the last minute.
#[derive(Debug, Default)]
pub(super) struct Away(BTreeMap<QueueKey, BTreeMap<Labels, i64>>);

impl Away {
    /// A worker of this kind has been given events.
    pub(super) fn note(&mut self, (queue, labels): (QueueKey, Labels), now_us: i64) {
        if !self.0.contains_key(&queue) && !self.has_room(&queue, now_us) {
            return;
        }
        let kinds = self.0.entry(queue).or_default();
        kinds.retain(|_, at_us| *at_us > now_us - PRESUMED_US);
        if kinds.len() >= TooManyKinds::MAX && !kinds.contains_key(&labels) {
            let oldest = kinds.iter().min_by_key(|(_, at_us)| **at_us).map(|(labels, _)| labels.clone());
            oldest.and_then(|oldest| kinds.remove(&oldest));
        }
        kinds.insert(labels, now_us);
    }

    /// Whether there is room for another queue. A namespace that has its part gives up the queue that was polled longest ago.
    fn has_room(&mut self, queue: &QueueKey, now_us: i64) -> bool {
        let first = QueueKey { namespace: queue.namespace.clone(), queue: "".into() };
        let own = self.0.range(first..).take_while(|(other, _)| other.namespace == queue.namespace);
        let latest = |kinds: &BTreeMap<Labels, i64>| kinds.values().max().copied().unwrap_or(i64::MIN);
        let (mut count, mut oldest) = (0, None);
        for (other, kinds) in own {
            count += 1;
            if oldest.as_ref().is_none_or(|(at_us, _)| latest(kinds) < *at_us) {
                oldest = Some((latest(kinds), other.clone()));
            }
        }
        let is_past = oldest.as_ref().is_some_and(|(at_us, _)| *at_us <= now_us - PRESUMED_US);
        if count >= EACH_MAX || is_past {
            oldest.and_then(|(_, oldest)| self.0.remove(&oldest));
        }
        self.0.len() < QUEUES_MAX
    }

    /// Until when somebody is presumed to be at work who is able to do what requires these labels.
    pub(super) fn until_us(&self, queue: &QueueKey, requires: &[String]) -> Option<i64> {
        let kinds = self.0.get(queue)?.iter().filter(|(labels, _)| fits(labels, requires));
        Some(kinds.map(|(_, at_us)| *at_us).max()?.saturating_add(PRESUMED_US))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn queue(namespace: &str, number: usize) -> QueueKey {
        QueueKey { namespace: namespace.into(), queue: number.to_string().into() }
    }

    fn labels(text: &str) -> Labels {
        text.split_whitespace().map(str::to_owned).collect()
    }

    #[test]
    fn who_was_given_events_is_able_for_a_while() {
        let mut away = Away::default();
        let own = queue("team", 1);
        away.note((own.clone(), labels("cuda gpu")), 50);
        away.note((own.clone(), labels("gpu")), 90);
        assert_eq!(away.until_us(&own, &labels("cuda")), Some(50 + PRESUMED_US));
        assert_eq!(away.until_us(&own, &labels("gpu")), Some(90 + PRESUMED_US), "the latest counts");
        assert_eq!(away.until_us(&own, &labels("tpu")), None);
        assert_eq!(away.until_us(&queue("team", 2), &labels("")), None);
        away.note((own.clone(), labels("tpu")), 60 + PRESUMED_US);
        assert_eq!(away.until_us(&own, &labels("cuda")), None, "what is past goes");
    }

    #[test]
    fn it_is_bounded_and_no_namespace_has_all() {
        let mut away = Away::default();
        for number in 0..=TooManyKinds::MAX {
            away.note((queue("team", 0), labels(&format!("l{number}"))), 50);
        }
        assert_eq!(away.0[&queue("team", 0)].len(), TooManyKinds::MAX);
        assert_eq!(
            away.until_us(&queue("team", 0), &labels("l64")),
            Some(50 + PRESUMED_US),
            "the newest is in it"
        );
        for number in 1..=EACH_MAX {
            away.note((queue("team", number), labels("")), 100);
        }
        assert_eq!(away.0.len(), EACH_MAX);
        assert!(!away.0.contains_key(&queue("team", 0)), "the oldest has made room");
        for namespace in 1..20 {
            for number in 0..EACH_MAX {
                away.note((queue(&format!("n{namespace:02}"), number), labels("")), 2_000);
            }
        }
        assert_eq!(away.0.len(), QUEUES_MAX);
        away.note((queue("team", EACH_MAX + 1), labels("")), 3_000);
        assert!(away.0.contains_key(&queue("team", EACH_MAX + 1)), "in place of its own");
    }
}
