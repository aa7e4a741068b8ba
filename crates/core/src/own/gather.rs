//! When to begin a commit: a larger one costs hardly more, so an owner whose targets answer fast waits for a few answers.
//!
//! It waits until half of the deliveries under way have been answered, but not longer than a commit takes. Where commits take
//! long, as the database is far away, it waits for nearly all, for half of a commit, and 4 ms, at most: else those that are
//! under way by halves each wait for two commits, their own and the others'. Where the wait does not bring them, because the
//! targets are slow, it does not wait for a while. Nothing waits while no delivery is under way: what falls due, and what
//! consumers release, is committed at once.

/// The longest wait where commits are short, in microseconds.
const WAIT_MAX_US: i64 = 2_000;
/// A commit that takes as long is a long one.
const LONG_US: i64 = 4_000;
/// The longest wait with those.
const WAIT_LONG_MAX_US: i64 = 4_000;
/// With long ones it waits for so many answers for each delivery that has none.
const NEARLY_ALL: usize = 7;
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
        let wanted = if self.is_long() { sending * NEARLY_ALL } else { sending };
        self.waits = self.answers > 0 && self.answers < wanted && self.at_once == 0;
        if self.until_us().is_some_and(|until_us| now_us >= until_us) {
            (self.waits, self.at_once) = (false, AT_ONCE);
        }
        !self.waits
    }

    /// Until when it waits, where it does.
    pub(super) fn until_us(&self) -> Option<i64> {
        let since_us = self.since_us.filter(|_| self.waits)?;
        let (wait_us, most_us) =
            if self.is_long() { (self.took_us / 2, WAIT_LONG_MAX_US) } else { (self.took_us, WAIT_MAX_US) };
        Some(since_us + wait_us.min(most_us))
    }

    fn is_long(&self) -> bool {
        self.took_us >= LONG_US
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
        after_a_commit_of(1_000)
    }

    fn after_a_commit_of(took_us: i64) -> (Gather, i64) {
        let mut gather = Gather::default();
        gather.commit_begins(7);
        gather.commit_ends(7 + took_us);
        (gather, 7 + took_us)
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
    fn waits_for_nearly_all_where_commits_are_long() {
        let (mut gather, now_us) = after_a_commit_of(6_000);
        (0..32).for_each(|_| gather.answered(now_us));
        assert!(!gather.is_enough(32, now_us));
        assert_eq!(gather.until_us(), Some(now_us + 3_000));
        (0..24).for_each(|_| gather.answered(now_us));
        assert!(gather.is_enough(8, now_us));
        let (mut gather, now_us) = after_a_commit_of(6_000);
        gather.answered(now_us);
        assert!(!gather.is_enough(1, now_us));
        assert!(gather.is_enough(1, now_us + 3_000), "no longer than half of a commit");
        assert!(gather.is_enough(0, now_us));
        let (mut gather, now_us) = after_a_commit_of(2_000_000);
        gather.answered(now_us);
        assert!(!gather.is_enough(1, now_us));
        assert_eq!(gather.until_us(), Some(now_us + WAIT_LONG_MAX_US), "however long that took");
    }

    #[test]
    fn what_is_due_does_not_wait() {
        let (mut gather, now_us) = after_a_commit_of_1_ms();
        gather.answered(now_us);
        assert!(gather.is_enough(0, now_us), "no delivery is under way");
    }
}
