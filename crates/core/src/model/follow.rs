//! What follows a run: the next step of its chain.
//!
//! In: a run that has ended, and what its schedule says of that. Out: whether another run follows, and what that one knows of
//! the one before it. Invariant: the id of a run that follows is made of the id of the one before, so that there is one of it,
//! however often the end is told.

use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};
use uuid::Uuid;

use super::{
    ChainRoot, FinishCondition, OnFinish, OverlapRule, Predecessor, Run, RunId, RunKind, RunSpec, RunState,
    SECOND_US,
};

impl FinishCondition {
    /// Whether a run has ended like this.
    pub fn holds(self, run: &Run) -> bool {
        let not_listed = run.state == RunState::Skipped && run.events == 0;
        match self {
            Self::Always => run.state != RunState::Skipped || not_listed,
            Self::AllSucceeded => run.state == RunState::Finished && run.counts.succeeded == run.events,
            Self::AnyFailed => run.counts.badly() > 0 || not_listed,
        }
    }
}

/// The end of a run that another one follows, or that ends a chain for whose end somebody waits, until that is done.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunEnd {
    /// The namespace's id.
    pub namespace: String,
    /// The run, as the next one sees it.
    pub of: Predecessor,
    /// When it ended.
    pub ended_us: i64,
    /// The last cursor that its consumers gave.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cursor: Option<String>,
    /// What follows; nothing where the chain ends.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next: Option<OnFinish>,
}

impl RunEnd {
    /// What is to be done about the end of `run`, if anything is: nothing follows where it ended otherwise than its spec asks
    /// for, or is the last that its chain may have, or where its spec cannot be read.
    pub fn of(run: &Run, spec: Option<&RunSpec>) -> Option<Self> {
        let place = run.place();
        let follows = |on_finish: &&OnFinish| on_finish.when.holds(run) && place < Predecessor::PLACES_MAX;
        let next = spec.and_then(|spec| spec.on_finish.as_ref()).filter(follows).cloned();
        let root = match &run.predecessor {
            Some(before) => before.root,
            None if next.is_some() && spec.is_some_and(|spec| Self::is_waited_for(run, spec)) => {
                Some(ChainRoot { shard: run.shard, schedule_uid: run.schedule_uid, run: run.id })
            }
            None => None,
        };
        (next.is_some() || root.is_some()).then(|| Self {
            namespace: run.namespace.clone(),
            of: Predecessor {
                shard: run.named_shard(),
                run: run.id,
                schedule_id: run.schedule_id.clone(),
                place,
                state: run.state,
                counts: run.counts,
                root,
                items: next.as_ref().and_then(|next| next.items.clone()),
            },
            ended_us: run.finished_us.unwrap_or(run.launch_us),
            cursor: run.cursor_out.clone(),
            next,
        })
    }

    /// Whether the next run of a schedule waits for the end of the chain that `run` begins, or is skipped for it. A chain that a
    /// user begins overlaps as they like.
    fn is_waited_for(run: &Run, spec: &RunSpec) -> bool {
        run.kind == RunKind::Scheduled && matches!(spec.overlap, OverlapRule::Skip | OverlapRule::BufferOne)
    }

    /// When the run that follows is due. Never a whole second, which may be the launch time of a run of its schedule's own
    /// triggers.
    pub fn launch_us(&self) -> i64 {
        self.ended_us + i64::from(self.ended_us % SECOND_US == 0)
    }

    /// Whether nobody waits any more for the end of a chain whose first run has ended before, and was followed then, at
    /// `launch_us`: dead events of it have been tried again, and the chain may be at its end.
    pub fn gives_up(&self, root: ChainRoot, launch_us: i64) -> bool {
        root.run == self.of.run && launch_us != self.launch_us()
    }

    /// The id of the run of a schedule that follows.
    pub fn next_run(&self, schedule_uid: Uuid) -> RunId {
        let before = self.of.run.0;
        let digest = Sha256::new()
            .chain_update(b"follows")
            .chain_update(before.as_bytes())
            .chain_update(schedule_uid.as_bytes())
            .finalize();
        let mut bytes = *before.as_bytes();
        bytes[6..].copy_from_slice(&digest[..10]);
        RunId(Uuid::from_bytes(bytes))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::Counts;

    fn ended(state: RunState, counts: Counts) -> Run {
        Run { state, counts, events: 3, ..Run::default() }
    }

    #[test]
    fn each_end_has_an_answer() {
        use FinishCondition::{AllSucceeded, Always, AnyFailed};
        let counts =
            |succeeded, failed, cancelled| Counts { succeeded, failed, cancelled, ..Counts::default() };
        let three = |run: Run| [AllSucceeded, AnyFailed, Always].map(|when| when.holds(&run));
        assert_eq!(three(ended(RunState::Finished, counts(3, 0, 0))), [true, false, true]);
        assert_eq!(three(ended(RunState::Finished, counts(2, 1, 0))), [false, true, true]);
        for badly in [
            Counts { dead: 3, ..Counts::default() },
            Counts { expired: 3, ..Counts::default() },
            Counts { lost: 3, ..Counts::default() },
        ] {
            assert_eq!(three(ended(RunState::Finished, badly)), [false, true, true]);
        }
        assert_eq!(three(ended(RunState::Cancelled, counts(2, 0, 1))), [false, false, true]);
        assert_eq!(three(ended(RunState::Cancelled, counts(1, 1, 1))), [false, true, true]);
        // By its overlap rule it was no run; without its list it was one that failed.
        assert_eq!(three(ended(RunState::Skipped, counts(0, 0, 0))), [false, false, false]);
        let not_listed = Run { events: 0, ..ended(RunState::Skipped, counts(0, 0, 0)) };
        assert_eq!(three(not_listed), [false, true, true]);
    }
}
