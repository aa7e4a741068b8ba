//! Decides how much of what waits in the store a shard's owner takes in at once.
//!
//! In: that a read left something, and which commit makes durable what it brought. Out: how much the next one takes, and when.
//! Invariants: what is taken in by one commit is little, since on SQLite everybody's commits wait for it; of a process, a few
//! shards at a time take more, the others little, and none stands still. Not here: reading.

use std::ops::Range;
use std::sync::Arc;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// Runs that a shard takes in at once while others have the turns.
const FEW: u32 = 32;
/// Runs that a shard takes in at once when it is its turn.
const MANY: u32 = 256;
/// Messages that one read looks at.
const MESSAGES: u32 = 256;
/// The first read of an owner: what its predecessor has left for it, notes of deliveries under way and their answers, is to be
/// among what it reads before it decides anything.
const MESSAGES_FIRST: u32 = 2_000;
/// So many shards have a turn.
const TURNS: usize = 4;

/// The turns of a process.
pub(crate) fn turns() -> Arc<Semaphore> {
    Arc::new(Semaphore::new(TURNS))
}

/// What one read takes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Part {
    /// So many runs at most, and as many of those of `recent_us` where that is not enough for what launched before.
    pub(super) runs_max: u32,
    /// So many messages are looked at.
    pub(super) messages_max: u32,
    /// Launch times: from a moment ago to the end of what is loaded.
    pub(super) recent_us: Range<i64>,
}

/// What reads have left.
#[derive(Debug, Default)]
pub(super) struct Backlog {
    has_read: bool,
    /// The last read did not read everything.
    is_left: bool,
    /// The number of the commit that makes durable what was read before.
    after: u64,
    turn: Option<OwnedSemaphorePermit>,
}

impl Backlog {
    pub(super) fn is_left(&self) -> bool {
        self.is_left
    }

    /// Whether the next read may begin when so many commits are durable: what is read meanwhile would make a large one.
    pub(super) fn may_read(&self, commits: u64) -> bool {
        commits >= self.after
    }

    /// A read begins.
    pub(super) fn begin(&mut self, turns: &Arc<Semaphore>, recent_us: Range<i64>) -> Part {
        // It goes round: whoever had one has given it back.
        self.turn = None;
        if self.is_left {
            self.turn = Arc::clone(turns).try_acquire_owned().ok();
        }
        let runs_max = if self.turn.is_some() { MANY } else { FEW };
        let messages_max =
            if std::mem::replace(&mut self.has_read, true) { MESSAGES } else { MESSAGES_FIRST };
        Part { runs_max, messages_max, recent_us }
    }

    /// What was read has been taken in. `after`: where the read left something, the commit that makes it durable.
    pub(super) fn taken_in(&mut self, after: Option<u64>) {
        self.is_left = after.is_some();
        self.after = after.unwrap_or_default();
        if !self.is_left {
            self.turn = None;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn runs_max(backlog: &mut Backlog, turns: &Arc<Semaphore>) -> u32 {
        backlog.begin(turns, 0..1).runs_max
    }

    #[test]
    fn the_first_read_looks_at_more_messages() {
        let (turns, mut backlog) = (turns(), Backlog::default());
        let read: Vec<u32> = (0..3).map(|_| backlog.begin(&turns, 0..1).messages_max).collect();
        assert_eq!(read, [MESSAGES_FIRST, MESSAGES, MESSAGES]);
    }

    #[test]
    fn few_shards_take_in_many_runs_at_once_and_none_stands_still() {
        let turns = turns();
        let mut shards: Vec<Backlog> = (0..TURNS + 2).map(|_| Backlog::default()).collect();
        for shard in &mut shards {
            assert_eq!(runs_max(shard, &turns), FEW, "nobody knows yet that more waits");
            shard.taken_in(Some(3));
            assert!(!shard.may_read(2) && shard.may_read(3), "one part after the other");
        }
        let taken: Vec<u32> = shards.iter_mut().map(|shard| runs_max(shard, &turns)).collect();
        assert_eq!(taken, [vec![MANY; TURNS], vec![FEW; 2]].concat());
        shards[0].taken_in(None);
        assert!(shards[0].may_read(0));
        assert_eq!(runs_max(&mut shards[TURNS], &turns), MANY, "one has all that it wanted");
        drop(shards);
        assert_eq!(turns.available_permits(), TURNS);
    }
}
