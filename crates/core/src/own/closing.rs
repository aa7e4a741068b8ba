//! Giving a shard up on purpose, without making anybody wait for a slow consumer.
//!
//! Nothing new starts; answers that come within a moment are committed as usual. Then a note about the deliveries still
//! under way goes into the shard's own inbox, the lease is given up, and the others are told. This process goes on
//! waiting for those answers, and reports each to the inbox ([`Report`]); the next owner does not make these deliveries again
//! meanwhile. Invariants: the note is durable before the lease is given up; everything that the machine took in is
//! durable before that, too; nothing leaves later that has not left when the note is written.

use std::collections::BTreeMap;

use crate::handle::control::{Control, UnderWay};
use crate::model::{RunId, Sent};

/// How long a shard is kept for answers under way, in microseconds.
const MOMENT_US: i64 = 300_000;
/// How long a shard whose last changes cannot be committed is kept before it is left to its lease, in microseconds.
const LAST_COMMIT_US: i64 = 3_000_000;

/// An owner that is about to give its shard up.
#[derive(Debug)]
pub(super) struct Closing {
    until_us: i64,
    /// No input is taken any more.
    pub(super) is_closed: bool,
}

impl Closing {
    pub(super) fn begin(now_us: i64) -> Self {
        Self { until_us: now_us + MOMENT_US, is_closed: false }
    }

    /// Closes it, if no delivery is under way or the time is up. True where that is new.
    pub(super) fn closes(&mut self, sending: usize, now_us: i64) -> bool {
        let closes = !self.is_closed && (now_us >= self.until_us || sending == 0);
        self.is_closed |= closes;
        closes
    }

    /// Whether its last changes have had their time.
    pub(super) fn is_over(&self, now_us: i64) -> bool {
        now_us >= self.until_us + LAST_COMMIT_US
    }

    /// When to look again.
    pub(super) fn deadline_us(&self) -> i64 {
        if self.is_closed { self.until_us + LAST_COMMIT_US } else { self.until_us }
    }
}

/// Deliveries that this process has made for a shard that it gave up, and whose answers it still waits for.
#[derive(Debug)]
pub struct Report {
    waiting: BTreeMap<(RunId, u32), UnderWay>,
    until_us: i64,
}

impl Report {
    /// Of those that the note names, these are its own.
    pub fn new(own: impl IntoIterator<Item = UnderWay>, now_us: i64) -> Self {
        let waiting: BTreeMap<_, _> = own.into_iter().map(|one| ((one.run, one.index), one)).collect();
        let longest_ms = waiting.values().map(|one| one.grace_ms).max().unwrap_or_default();
        Self { waiting, until_us: now_us.saturating_add(longest_ms.saturating_mul(1_000)) }
    }

    /// Nobody waits for answers any more after that.
    pub fn hurry(&mut self, until_us: i64) {
        self.until_us = self.until_us.min(until_us);
    }

    /// Until when it waits; none where there is nothing to wait for.
    pub fn until_us(&self) -> Option<i64> {
        (!self.waiting.is_empty()).then_some(self.until_us)
    }

    /// What the shard's inbox is to be told of an answer. None: the delivery was not made after all.
    pub fn answered(&mut self, run: RunId, index: u32, attempt: u32, sent: Option<Sent>) -> Option<Control> {
        // The answer of an earlier attempt says nothing of this one.
        if self.waiting.get(&(run, index))?.attempt != attempt {
            return None;
        }
        let one = self.waiting.remove(&(run, index))?;
        Some(match sent {
            // Versions before this one do not know the answer, and take this for one that does not come any more.
            None | Some(Sent::NotSent { .. }) => {
                Control::UnderWay { deliveries: vec![UnderWay { grace_ms: -1, ..one }] }
            }
            // Nor do they know this one, which is the same but for what it holds back.
            Some(Sent::RefusedAlone { message, .. }) => {
                let sent = Sent::Refused { message, retry_after_ms: None, permanent: false };
                Control::Sent { run, index, attempt, sent }
            }
            Some(sent) => Control::Sent { run, index, attempt, sent },
        })
    }

    /// The end: what the inbox is to be told of those that were not answered. Nobody waits for them any more.
    pub fn rest(self) -> Option<Control> {
        let deliveries: Vec<UnderWay> =
            self.waiting.into_values().map(|one| UnderWay { grace_ms: 0, ..one }).collect();
        (!deliveries.is_empty()).then_some(Control::UnderWay { deliveries })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_before_get_answers_that_they_know() {
        let run = RunId::derive(uuid::Uuid::nil(), 1);
        let one = |index| UnderWay { run, index, attempt: 1, doubtful: false, grace_ms: 10 };
        let mut report = Report::new([one(0), one(1)], 1_000);
        let alone = Sent::RefusedAlone { message: "busy".to_owned(), retry_after_ms: Some(9) };
        // What it wishes would hold back all of its schedule there.
        let sent = Sent::Refused { message: "busy".to_owned(), retry_after_ms: None, permanent: false };
        assert_eq!(
            report.answered(run, 0, 1, Some(alone)),
            Some(Control::Sent { run, index: 0, attempt: 1, sent })
        );
        let unsent = Sent::NotSent { message: String::new(), retry_after_ms: None };
        let given_up = Control::UnderWay { deliveries: vec![UnderWay { grace_ms: -1, ..one(1) }] };
        assert_eq!(report.answered(run, 1, 1, Some(unsent)), Some(given_up));
    }

    #[test]
    fn each_delivery_that_is_waited_for_is_reported_once() {
        let run = RunId::derive(uuid::Uuid::nil(), 1);
        let one = |index, attempt, grace_ms| UnderWay { run, index, attempt, doubtful: false, grace_ms };
        let mut report = Report::new([one(0, 2, 10), one(1, 1, 20), one(2, 1, 5)], 1_000);
        assert_eq!(report.until_us(), Some(21_000));
        assert_eq!(report.answered(run, 0, 1, Some(Sent::Accepted)), None, "an earlier attempt's");
        let sent = Control::Sent { run, index: 0, attempt: 2, sent: Sent::Accepted };
        assert_eq!(report.answered(run, 0, 2, Some(Sent::Accepted)), Some(sent));
        assert_eq!(report.answered(run, 0, 2, Some(Sent::Accepted)), None);
        let none = |index, grace_ms| Some(Control::UnderWay { deliveries: vec![one(index, 1, grace_ms)] });
        assert_eq!(report.answered(run, 1, 1, None), none(1, -1));
        report.hurry(7_000);
        assert_eq!((report.until_us(), report.rest()), (Some(7_000), none(2, 0)));
    }
}
