//! When to begin a commit: a larger one costs hardly more, so an owner whose targets answer fast waits for a few answers.
//!
//! It waits until half of the deliveries under way have been answered, but not longer than a commit takes; and where that
//! does not bring them, because the targets are slow, it does not wait for a while. Nothing waits while no delivery is
//! under way: what falls due, and what consumers release, is committed at once.

/// The longest wait, in microseconds.
const WAIT_MAX_US: i64 = 2_000;
/// After a wait in vain, this many commits begin at once.
const AT_ONCE: u32 = 32;

/// What has been gathered since the last commit began.
#[derive(Debug, Default)]
pub(super) struct Gather {
    answers: usize,
    /// When the first of them came, or the commit before ended.
    since_us: Option<i64>,
    began_us: Option<i64>,
    /// How long the last commit took.
    took_us: i64,
    at_once: u32,
    waits: bool,
}

impl Gather {
    /// A target has answered.
    pub(super) fn answered(&mut self, now_us: i64) {
        self.answers += 1;
        self.since_us.get_or_insert(now_us);
    }

    /// Whether to commit what there is, while `sending` deliveries are under way.
    pub(super) fn is_enough(&mut self, sending: usize, now_us: i64) -> bool {
        self.waits = self.answers > 0 && self.answers < sending && self.at_once == 0;
        if self.until_us().is_some_and(|until_us| now_us >= until_us) {
            (self.waits, self.at_once) = (false, AT_ONCE);
        }
        !self.waits
    }

    /// Until when it waits, where it does.
    pub(super) fn until_us(&self) -> Option<i64> {
        let since_us = self.since_us.filter(|_| self.waits)?;
        Some(since_us + self.took_us.min(WAIT_MAX_US))
    }

    /// A commit begins, with all that was gathered.
    pub(super) fn commit_begins(&mut self, now_us: i64) {
        self.at_once = self.at_once.saturating_sub(1);
        (self.answers, self.since_us, self.began_us, self.waits) = (0, None, Some(now_us), false);
    }

    /// It is durable: what came meanwhile counts from now on.
    pub(super) fn commit_ends(&mut self, now_us: i64) {
        self.took_us = self.began_us.take().map_or(self.took_us, |began_us| now_us - began_us);
        self.since_us = self.since_us.map(|_| now_us);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn after_a_commit_of_1_ms() -> (Gather, i64) {
        let mut gather = Gather::default();
        gather.commit_begins(7);
        gather.commit_ends(1_007);
        (gather, 1_007)
    }

    #[test]
    fn waits_for_half_of_the_answers() {
        let (mut gather, now_us) = after_a_commit_of_1_ms();
        assert!(gather.is_enough(64, now_us), "nothing to wait for");
        (0..31).for_each(|_| gather.answered(now_us));
        assert!(!gather.is_enough(33, now_us));
        assert_eq!(gather.until_us(), Some(now_us + 1_000));
        gather.answered(now_us);
        assert!(gather.is_enough(32, now_us));
        assert_eq!(gather.until_us(), None);
    }

    #[test]
    fn waits_no_longer_than_a_commit_and_then_not_for_a_while() {
        let (mut gather, now_us) = after_a_commit_of_1_ms();
        gather.answered(now_us);
        assert!(!gather.is_enough(63, now_us));
        let late_us = now_us + 1_000;
        assert!(gather.is_enough(63, late_us));
        for _ in 0..AT_ONCE {
            gather.commit_begins(late_us);
            gather.commit_ends(late_us + 1_000);
            gather.answered(late_us);
        }
        assert!(!gather.is_enough(63, late_us), "it tries again");
    }

    #[test]
    fn what_is_due_does_not_wait() {
        let (mut gather, now_us) = after_a_commit_of_1_ms();
        gather.answered(now_us);
        assert!(gather.is_enough(0, now_us), "no delivery is under way");
    }
}
