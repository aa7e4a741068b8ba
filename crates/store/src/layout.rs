//! Decides how many queue shards there are, as a process knows it, and adds some to an installation that lives.
//!
//! In: the number that the store has, wherever the rows of queue shards are read. Out: one value for all of a process, which its
//! parts share. Invariants: the number only grows; what has been placed stays where it is; processes of versions that place by
//! the first number alone refuse to start once shards were added. Not here: who owns the shards that were added, which
//! placement decides as for any other.

use std::sync::Arc;
use std::sync::atomic::{AtomicU16, Ordering};

use async_trait::async_trait;
use tollgate_core::plan::SHARDS_MAX;

use crate::StoreError;
use crate::plan::Audit;

/// The migration of the first version that reads where a schedule without a policy lives, where that is written down.
pub(crate) const WITH_LAYOUT: i64 = 34;

/// How many queue shards there are, as far as this process knows. All clones are one, which is brought up to date whenever the
/// store reads all leases.
#[derive(Clone, Debug)]
pub struct ShardCount(Arc<AtomicU16>);

impl ShardCount {
    pub(crate) fn new(shards: u16) -> Self {
        Self(Arc::new(AtomicU16::new(shards)))
    }

    /// The number.
    pub fn now(&self) -> u16 {
        self.0.load(Ordering::Acquire)
    }

    /// The store has this number. What was read late does not take shards away.
    pub(crate) fn learn(&self, read: &[i32]) -> u16 {
        let shards = read.first().and_then(|shards| u16::try_from(*shards).ok()).unwrap_or_default();
        self.0.fetch_max(shards, Ordering::AcqRel).max(shards)
    }
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
    /// Makes `to` of them, from now on, and answers how many there were. Those that are new have no owner, and are paused as the
    /// others are. Where there are so many already nothing is done, and nothing is noted. What the audit entry says of the two
    /// numbers comes from here.
    ///
    /// # Errors
    /// [`StoreError::Invalid`] for fewer than there are, and more than may be.
    async fn add_shards(&self, to: u16, audit: Audit) -> Result<u16, StoreError>;
    /// What lives in each of them, in order.
    async fn shard_fill(&self) -> Result<Vec<ShardFill>, StoreError>;
}

/// Refuses what cannot be.
pub(crate) fn judge_count(to: u16, now: u16) -> Result<(), StoreError> {
    let allowed = format!("{now} to {SHARDS_MAX}");
    let message = match to {
        _ if to < now => format!(
            "{to} is not allowed, expected {allowed}: there are {now} queue shards, and none is taken away again"
        ),
        _ if to > SHARDS_MAX => format!("{to} is not allowed, expected {allowed}"),
        _ => return Ok(()),
    };
    Err(StoreError::Invalid { field: "shards".to_owned(), message })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_number_only_grows_and_all_clones_have_it() {
        let count = ShardCount::new(64);
        let other = count.clone();
        assert_eq!((other.learn(&[256]), count.now()), (256, 256));
        assert_eq!(
            (count.learn(&[64]), count.learn(&[]), count.learn(&[-1]), other.now()),
            (256, 256, 256, 256)
        );
    }

    #[test]
    fn what_is_refused_names_the_value_and_what_is_allowed() {
        let said = |to| judge_count(to, 64).map_err(|error| error.to_string());
        assert!([64, 65, 1_024].into_iter().all(|to| said(to).is_ok()));
        assert_eq!(said(1_025), Err("shards: 1025 is not allowed, expected 64 to 1024".to_owned()));
        let fewer = "shards: 32 is not allowed, expected 64 to 1024: there are 64 queue shards, and none is taken away again";
        assert_eq!(said(32), Err(fewer.to_owned()));
    }
}
