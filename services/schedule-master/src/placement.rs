//! Decides where things live, and makes ids.

use std::sync::Mutex;

use sha2::{Digest as _, Sha256};
use tollgate_core::model::{SECOND_US, Schedule};
use uuid::{ContextV7, Timestamp, Uuid};

/// The queue shard of a policy, or of a schedule that has none: chosen by its uid, for ever.
pub fn shard_of(uid: Uuid, shards: u16) -> u16 {
    let digest = Sha256::digest(uid.as_bytes());
    let hash = digest.iter().take(7).fold(0_u64, |hash, byte| hash << 8 | u64::from(*byte));
    u16::try_from(hash % u64::from(shards.max(1))).unwrap_or_default()
}

/// The queue shard that owns a schedule's runs: its policy's, else its own.
pub(crate) fn home(schedule: &Schedule, shards: u16) -> u16 {
    shard_of(schedule.policy_uid.unwrap_or(schedule.uid), shards)
}

/// Makes ids that sort by time (UUID v7), also those of one millisecond.
pub(crate) struct Ids(Mutex<ContextV7>);

impl Default for Ids {
    fn default() -> Self {
        Self(Mutex::new(ContextV7::new()))
    }
}

impl Ids {
    /// A new id for this moment.
    pub(crate) fn at(&self, at_us: i64) -> Uuid {
        let seconds = u64::try_from(at_us.div_euclid(SECOND_US)).unwrap_or_default();
        let nanos = u32::try_from(at_us.rem_euclid(SECOND_US) * 1000).unwrap_or_default();
        Uuid::new_v7(Timestamp::from_unix(&self.0, seconds, nanos))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shards_are_used_evenly_and_stay() {
        let ids = Ids::default();
        let mut count = [0_u32; 64];
        for _ in 0..6400 {
            count[usize::from(shard_of(ids.at(1_780_000_000_000_000), 64))] += 1;
        }
        assert!(count.iter().all(|n| (50..=160).contains(n)), "{count:?}");
        assert_eq!(shard_of(Uuid::nil(), 64), shard_of(Uuid::nil(), 64));
        assert_eq!(shard_of(Uuid::nil(), 1), 0);
    }

    #[test]
    fn ids_of_one_moment_ascend() {
        let ids = Ids::default();
        let made: Vec<Uuid> = (0..1000).map(|_| ids.at(1_780_000_000_000_000)).collect();
        assert!(made.is_sorted());
        assert!(made.windows(2).all(|pair| pair[0] != pair[1]));
        assert!(ids.at(1_780_000_000_001_000) > made[999]);
    }
}
