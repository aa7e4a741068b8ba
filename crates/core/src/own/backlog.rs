//! Decides how much of what waits in the store a shard's owner takes in at once.
//!
//! In: that a read left something, and which commit makes durable what it brought. Out: how much the next one takes, and when.
//! Invariants: what is taken in by one commit is little, since on SQLite everybody's commits wait for it; of a process, a few
//! shards at a time take more, the others little, and none stands still. Not here: reading.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};

/// How much one read takes.
#[derive(Clone, Copy, Debug)]
pub struct Sizes {
    /// Runs that a shard takes in at once while others have the turns.
    pub few: u32,
    /// Runs that a shard takes in at once when it is its turn.
    pub many: u32,
    /// Messages that one read looks at.
    pub messages: u32,
    /// The first read of an owner: what its predecessor has left for it, notes of deliveries under way and their answers, is to
    /// be among what it reads before it decides anything.
    pub messages_first: u32,
    /// How many shards of a process have a turn.
    pub turns: usize,
}

impl Default for Sizes {
    fn default() -> Self {
        Self { few: 32, many: 256, messages: 256, messages_first: 2_000, turns: 4 }
    }
}

/// The turns of a process; clones share them.
#[derive(Clone, Debug)]
pub struct ReadTurns {
    sizes: Sizes,
    taken: Arc<AtomicUsize>,
}

/// A turn, until it is dropped.
#[derive(Debug)]
struct Turn(Arc<AtomicUsize>);

impl ReadTurns {
    /// All of them are free.
    pub fn new(sizes: Sizes) -> Self {
        Self { sizes, taken: Arc::default() }
    }

    fn take(&self) -> Option<Turn> {
        let turns = self.sizes.turns;
        let taken = self.taken.fetch_update(SeqCst, SeqCst, |taken| (taken < turns).then_some(taken + 1));
        taken.is_ok().then(|| Turn(Arc::clone(&self.taken)))
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        self.0.fetch_sub(1, SeqCst);
    }
}

/// What one read takes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReadSize {
    /// The most runs, and as many of those of `recent_us` where that is not enough for what launched before.
    pub runs_max: u32,
    /// How many messages are looked at.
    pub messages_max: u32,
    /// Launch times: from a moment ago to the end of what is loaded.
    pub recent_us: Range<i64>,
}

/// What reads have left.
#[derive(Debug)]
pub(super) struct Backlog {
    turns: ReadTurns,
    has_read: bool,
    /// The last read did not read everything.
    is_left: bool,
    /// The number of the commit that makes durable what was read before.
    after: u64,
    turn: Option<Turn>,
}

impl Backlog {
    pub(super) fn new(turns: ReadTurns) -> Self {
        Self { turns, has_read: false, is_left: false, after: 0, turn: None }
    }

    /// Whether the next read may begin now that `commits` commits are durable: what is read meanwhile would make a large one.
    pub(super) fn may_read(&self, commits: u64) -> bool {
        commits >= self.after
    }

    /// A read begins.
    pub(super) fn begin(&mut self, recent_us: Range<i64>) -> ReadSize {
        // It goes round: the shard that had one has given it back.
        self.turn = None;
        if self.is_left {
            self.turn = self.turns.take();
        }
        let sizes = self.turns.sizes;
        let runs_max = if self.turn.is_some() { sizes.many } else { sizes.few };
        let is_first = !std::mem::replace(&mut self.has_read, true);
        let messages_max = if is_first { sizes.messages_first } else { sizes.messages };
        ReadSize { runs_max, messages_max, recent_us }
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

    fn runs_max(backlog: &mut Backlog) -> u32 {
        backlog.begin(0..1).runs_max
    }

    #[test]
    fn the_first_read_looks_at_more_messages() {
        let sizes = Sizes::default();
        let mut backlog = Backlog::new(ReadTurns::new(sizes));
        let read: Vec<u32> = (0..3).map(|_| backlog.begin(0..1).messages_max).collect();
        assert_eq!(read, [sizes.messages_first, sizes.messages, sizes.messages]);
    }

    #[test]
    fn few_shards_take_in_many_runs_at_once_and_none_stands_still() {
        let Sizes { few, many, turns: max, .. } = Sizes::default();
        let turns = ReadTurns::new(Sizes::default());
        let mut shards: Vec<Backlog> = (0..max + 2).map(|_| Backlog::new(turns.clone())).collect();
        for shard in &mut shards {
            assert_eq!(runs_max(shard), few, "nobody knows yet that more waits");
            shard.taken_in(Some(3));
            assert!(!shard.may_read(2) && shard.may_read(3), "one part after the other");
        }
        let taken: Vec<u32> = shards.iter_mut().map(runs_max).collect();
        assert_eq!(taken, [vec![many; max], vec![few; 2]].concat());
        shards[0].taken_in(None);
        assert!(shards[0].may_read(0));
        assert_eq!(runs_max(&mut shards[max]), many, "one has all that it wanted");
        drop(shards);
        assert_eq!(turns.taken.load(SeqCst), 0);
    }
}
