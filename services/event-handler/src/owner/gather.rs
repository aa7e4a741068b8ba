//! When to begin a commit: a larger one costs hardly more, so an owner whose targets answer fast waits for a few answers.
//!
//! It waits until half of the deliveries under way have been answered, but not longer than a commit takes; and where that
//! does not bring them, because the targets are slow, it does not wait for a while. Nothing waits while no delivery is
//! under way: what falls due, and what consumers release, is committed at once.

use std::time::Duration;

use tokio::time::Instant;

/// The longest wait.
const WAIT_MAX: Duration = Duration::from_millis(2);
/// After a wait in vain, so many commits begin at once.
const AT_ONCE: u32 = 32;

/// What has been gathered since the last commit began.
#[derive(Debug, Default)]
pub(super) struct Gather {
    answers: usize,
    /// When the first of them came, or the commit before ended.
    since: Option<Instant>,
    began: Option<Instant>,
    /// How long the last commit took.
    took: Duration,
    at_once: u32,
    waits: bool,
}

impl Gather {
    /// A target has answered.
    pub(super) fn answered(&mut self, now: Instant) {
        self.answers += 1;
        self.since.get_or_insert(now);
    }

    /// Whether to commit what there is, with so many deliveries under way.
    pub(super) fn is_enough(&mut self, sending: usize, now: Instant) -> bool {
        self.waits = self.answers > 0 && self.answers < sending && self.at_once == 0;
        if self.until().is_some_and(|until| now >= until) {
            (self.waits, self.at_once) = (false, AT_ONCE);
        }
        !self.waits
    }

    /// Until when it waits, where it does.
    pub(super) fn until(&self) -> Option<Instant> {
        let since = self.since.filter(|_| self.waits)?;
        Some(since + self.took.min(WAIT_MAX))
    }

    /// A commit begins, with all that was gathered.
    pub(super) fn commit_begins(&mut self, now: Instant) {
        self.at_once = self.at_once.saturating_sub(1);
        (self.answers, self.since, self.began, self.waits) = (0, None, Some(now), false);
    }

    /// It is durable: what came meanwhile counts from now on.
    pub(super) fn commit_ends(&mut self, now: Instant) {
        self.took = self.began.take().map_or(self.took, |began| now - began);
        self.since = self.since.map(|_| now);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn after_a_commit_of_1_ms() -> (Gather, Instant) {
        let (mut gather, now) = (Gather::default(), Instant::now());
        gather.commit_begins(now);
        let end = now + Duration::from_millis(1);
        gather.commit_ends(end);
        (gather, end)
    }

    #[test]
    fn waits_for_half_of_the_answers() {
        let (mut gather, now) = after_a_commit_of_1_ms();
        assert!(gather.is_enough(64, now), "nothing to wait for");
        (0..31).for_each(|_| gather.answered(now));
        assert!(!gather.is_enough(33, now));
        assert_eq!(gather.until(), Some(now + Duration::from_millis(1)));
        gather.answered(now);
        assert!(gather.is_enough(32, now));
        assert_eq!(gather.until(), None);
    }

    #[test]
    fn waits_no_longer_than_a_commit_and_then_not_for_a_while() {
        let (mut gather, now) = after_a_commit_of_1_ms();
        gather.answered(now);
        assert!(!gather.is_enough(63, now));
        let late = now + Duration::from_millis(1);
        assert!(gather.is_enough(63, late));
        for _ in 0..AT_ONCE {
            gather.commit_begins(late);
            gather.commit_ends(late + Duration::from_millis(1));
            gather.answered(late);
        }
        assert!(!gather.is_enough(63, late), "it tries again");
    }

    #[test]
    fn what_is_due_does_not_wait() {
        let (mut gather, now) = after_a_commit_of_1_ms();
        gather.answered(now);
        assert!(gather.is_enough(0, now), "no delivery is under way");
    }
}
