//! Answers of targets that no commit has recorded: should the machine be lost with its commit, the next one is told of
//! them, so that nothing is delivered twice that the process knows to have arrived.
//!
//! Only deliveries that were taken are kept. All others are made again in any case.

use super::DeliveryKey;
use crate::model::RunId;

/// Deliveries that were taken.
#[derive(Debug, Default)]
pub(super) struct UnrecordedAnswers {
    fresh: Vec<DeliveryKey>,
    committing: Vec<DeliveryKey>,
}

impl UnrecordedAnswers {
    /// A target took it.
    pub(super) fn accepted(&mut self, run: RunId, index: u32, attempt: u32) {
        self.fresh.push((run, index, attempt));
    }

    /// A commit begins that records all of them.
    pub(super) fn commit_begins(&mut self) {
        self.committing.append(&mut self.fresh);
    }

    /// That commit is durable.
    pub(super) fn recorded(&mut self) {
        self.committing.clear();
    }

    /// What the commit under way would have recorded, and what came since. The next commit records it.
    pub(super) fn all(&mut self) -> Vec<DeliveryKey> {
        self.committing.append(&mut self.fresh);
        std::mem::swap(&mut self.committing, &mut self.fresh);
        self.fresh.clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_not_recorded_is_told_again() {
        let (mut answers, run) = (UnrecordedAnswers::default(), RunId::derive(uuid::Uuid::nil(), 1));
        answers.accepted(run, 0, 1);
        answers.commit_begins();
        answers.recorded();
        answers.accepted(run, 1, 1);
        answers.commit_begins();
        answers.accepted(run, 2, 3);
        assert_eq!(answers.all(), [(run, 1, 1), (run, 2, 3)]);
        assert_eq!(answers.all(), [(run, 1, 1), (run, 2, 3)], "until a commit has recorded it");
        answers.commit_begins();
        answers.recorded();
        assert!(answers.all().is_empty());
    }
}
