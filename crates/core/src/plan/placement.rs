//! Decides where things live: which queue shard has a schedule's runs, and which ones had them.

use sha2::{Digest as _, Sha256};
use uuid::Uuid;

use crate::model::Schedule;

/// The queue shard of a policy, or of a schedule that has none: chosen by its uid, for ever.
pub fn shard_of(uid: Uuid, shards: u16) -> u16 {
    let digest = Sha256::digest(uid.as_bytes());
    let hash = digest.iter().take(7).fold(0_u64, |hash, byte| hash << 8 | u64::from(*byte));
    u16::try_from(hash % u64::from(shards.max(1))).unwrap_or_default()
}

/// The queue shard that owns a schedule's runs: its policy's, else its own.
pub fn home(schedule: &Schedule, shards: u16) -> u16 {
    shard_of(schedule.policy_uid.unwrap_or(schedule.uid), shards)
}

/// Every shard that must be told of a change, in this order: those in which the schedule lived before, as runs of it
/// may still wait there, and at last its home.
pub fn shards_to_tell(schedule: &Schedule, shards: u16) -> Vec<u16> {
    let mut told = schedule.former_homes.clone();
    told.push(home(schedule, shards));
    told
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shards_are_used_evenly_and_stay() {
        let mut count = [0_u32; 64];
        for uid in 0..6400 {
            count[usize::from(shard_of(Uuid::from_u128(uid), 64))] += 1;
        }
        assert!(count.iter().all(|n| (50..=160).contains(n)), "{count:?}");
        assert_eq!(shard_of(Uuid::nil(), 64), shard_of(Uuid::nil(), 64));
        assert_eq!(shard_of(Uuid::nil(), 1), 0);
    }
}
