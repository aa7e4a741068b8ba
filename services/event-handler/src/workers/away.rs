//! Workers that poll and are at work: between two polls nobody sees them, and they are able to do what they did.
//!
//! In: polls that were answered with events. Out: until when somebody with fitting labels is presumed to be there. Invariant: it
//! is bounded, whatever workers say of themselves; what is past goes. Not here: workers that are connected (`book`).

use std::collections::BTreeMap;

use super::book::{Labels, QueueKey, TooManyKinds, fits};

/// The most queues.
const QUEUES_MAX: usize = 10_000;

/// Until when (monotonic) the last one of each kind may be at work, by queue and labels.
#[derive(Debug, Default)]
pub(super) struct Away(BTreeMap<QueueKey, BTreeMap<Labels, i64>>);

impl Away {
    /// A worker of this kind has been given events.
    pub(super) fn note(&mut self, (queue, labels): (QueueKey, Labels), until_us: i64, now_us: i64) {
        if self.0.len() >= QUEUES_MAX && !self.0.contains_key(&queue) {
            self.0.retain(|_, kinds| kinds.values().any(|until| *until > now_us));
            if self.0.len() >= QUEUES_MAX {
                return;
            }
        }
        let kinds = self.0.entry(queue).or_default();
        kinds.retain(|_, until| *until > now_us);
        if kinds.len() < TooManyKinds::MAX || kinds.contains_key(&labels) {
            let until = kinds.entry(labels).or_insert(until_us);
            *until = until_us.max(*until);
        }
    }

    /// Until when somebody may be at work who is able to do what requires these labels.
    pub(super) fn until_us(&self, queue: &QueueKey, requires: &[String]) -> Option<i64> {
        let kinds = self.0.get(queue)?.iter();
        kinds.filter(|(labels, _)| fits(labels, requires)).map(|(_, until)| *until).max()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn queue(number: usize) -> QueueKey {
        QueueKey { namespace: "team".into(), queue: number.to_string().into() }
    }

    fn labels(text: &str) -> Labels {
        text.split_whitespace().map(str::to_owned).collect()
    }

    #[test]
    fn who_was_given_events_is_able_until_their_tokens_end() {
        let mut away = Away::default();
        away.note((queue(1), labels("cuda gpu")), 50, 0);
        away.note((queue(1), labels("gpu")), 90, 0);
        away.note((queue(1), labels("cuda gpu")), 40, 0);
        assert_eq!(away.until_us(&queue(1), &labels("cuda")), Some(50), "the latest counts");
        assert_eq!(away.until_us(&queue(1), &labels("gpu")), Some(90));
        assert_eq!(away.until_us(&queue(1), &labels("tpu")), None);
        assert_eq!(away.until_us(&queue(2), &labels("")), None);
        away.note((queue(1), labels("tpu")), 99, 60);
        assert_eq!(away.until_us(&queue(1), &labels("cuda")), None, "what is past goes");
    }

    #[test]
    fn it_is_bounded() {
        let mut away = Away::default();
        for number in 0..=TooManyKinds::MAX {
            away.note((queue(0), labels(&format!("l{number}"))), 50, 0);
        }
        assert_eq!(away.0[&queue(0)].len(), TooManyKinds::MAX);
        for number in 1..=QUEUES_MAX {
            away.note((queue(number), labels("")), 50, 0);
        }
        assert_eq!(away.0.len(), QUEUES_MAX);
        away.note((queue(QUEUES_MAX), labels("")), 90, 60);
        assert_eq!(away.0.len(), 1, "those of the past make room");
    }
}
