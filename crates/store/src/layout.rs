//! Decides how many queue shards there are and are used, as a process knows it, and adds some to an installation that lives.
//!
//! In: the number that the store has, wherever the rows of queue shards are read. Out: one value for all of a process, which its
//! parts share. Invariants: how many there are only grows; processes of versions that place by the first number alone refuse to
//! start once shards were added. Not here: who owns the shards that were added, which placement decides as for any other; what
//! moves ([`crate::moves`]).

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use async_trait::async_trait;
use tollgate_core::plan::SHARDS_MAX;

use crate::StoreError;
use crate::plan::Audit;

/// The migration of the first version that reads where a schedule without a policy lives, where that is written down.
pub(crate) const WITH_LAYOUT: i64 = 34;

/// How many queue shards there are, and how many of them are used, as far as this process knows. All clones are one, which is
/// brought up to date whenever the store reads all leases.
#[derive(Clone, Debug)]
pub struct ShardCount(Arc<AtomicU32>);

impl ShardCount {
    pub(crate) fn new(shards: u16) -> Self {
        Self(Arc::new(AtomicU32::new(both(shards, shards))))
    }

    /// How many there are.
    pub fn now(&self) -> u16 {
        parts(self.0.load(Ordering::Acquire)).0
    }

    /// How many of them are used: what is new is spread over these.
    pub fn used(&self) -> u16 {
        parts(self.0.load(Ordering::Acquire)).1
    }

    /// The store has these numbers. What was read late does not take shards away.
    pub(crate) fn learn(&self, read: &[(i32, i32)]) -> u16 {
        let number = |read: i32| u16::try_from(read).unwrap_or_default();
        let Some((shards, used)) = read.first().map(|(shards, used)| (number(*shards), number(*used))) else {
            return self.now();
        };
        let newer =
            |known| (parts(known).0 <= shards && shards > 0).then(|| both(shards, used.clamp(1, shards)));
        let _known = self.0.fetch_update(Ordering::AcqRel, Ordering::Acquire, newer);
        self.now()
    }
}

fn both(shards: u16, used: u16) -> u32 {
    u32::from(shards) << 16 | u32::from(used)
}

fn parts(of: u32) -> (u16, u16) {
    let low = |of: u32| u16::try_from(of & 0xffff).unwrap_or_default();
    (low(of >> 16), low(of))
}

/// What lives in one queue shard.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ShardFill {
    /// Policies.
    pub policies: u64,
    /// Schedules.
    pub schedules: u64,
    /// Runs that have begun and not ended.
    pub runs: u64,
}

/// The part of a store that knows how many queue shards there are.
#[async_trait]
pub trait LayoutStore: Send + Sync {
    /// How many there are: the value that is kept up to date.
    fn shard_count(&self) -> ShardCount;
    /// Asks the store how many there are.
    async fn read_shards(&self) -> Result<u16, StoreError>;
    /// The same, once nobody is adding any: for whoever must reach all of them.
    async fn settled_shards(&self) -> Result<u16, StoreError>;
    /// Has `to` of them used from now on, and answers how many were. Where there are fewer, they are added: these have no owner,
    /// and are paused as the others are. Where so many are used already nothing is done, and nothing is noted. What lives in
    /// another one than it would choose among these moves, bit by bit ([`crate::moves`]). What the audit entry says of the two
    /// numbers comes from here.
    ///
    /// # Errors
    /// [`StoreError::Invalid`] for none, and for more than may be.
    async fn use_shards(&self, to: u16, audit: Audit) -> Result<u16, StoreError>;
    /// What lives in each of them, in order.
    async fn shard_fill(&self) -> Result<Vec<ShardFill>, StoreError>;
}

/// Refuses what cannot be.
pub(crate) fn judge_count(to: u16) -> Result<(), StoreError> {
    if (1..=SHARDS_MAX).contains(&to) {
        return Ok(());
    }
    let message = format!("{to} is not allowed, expected 1 to {SHARDS_MAX}");
    Err(StoreError::Invalid { field: "shards".to_owned(), message })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_number_only_grows_and_all_clones_have_it() {
        let count = ShardCount::new(64);
        let other = count.clone();
        assert_eq!((other.learn(&[(256, 200)]), count.now(), count.used()), (256, 256, 200));
        assert_eq!((count.learn(&[(64, 64)]), count.learn(&[]), count.learn(&[(-1, 3)])), (256, 256, 256));
        assert_eq!((other.used(), other.learn(&[(256, 64)]), other.used()), (200, 256, 64));
    }

    #[test]
    fn what_is_refused_names_the_value_and_what_is_allowed() {
        let said = |to| judge_count(to).map_err(|error| error.to_string());
        assert!([1, 64, 1_024].into_iter().all(|to| said(to).is_ok()));
        assert_eq!(said(1_025), Err("shards: 1025 is not allowed, expected 1 to 1024".to_owned()));
        assert!(said(0).is_err());
    }
}
