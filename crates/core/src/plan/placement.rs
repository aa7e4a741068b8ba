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
    match (schedule.policy_uid, schedule.policy_shard) {
        (Some(_), Some(shard)) => shard,
        (policy, _) => shard_of(policy.unwrap_or(schedule.uid), shards),
    }
}

/// A schedule is under this policy from now on: its runs live where the policy's row says.
pub fn put_under(schedule: &mut Schedule, policy: Option<(Uuid, u16)>, shards: u16) {
    schedule.policy_uid = policy.map(|(uid, _)| uid);
    let elsewhere = policy.filter(|(uid, shard)| *shard != shard_of(*uid, shards));
    schedule.policy_shard = elsewhere.map(|(_, shard)| shard);
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
    fn a_schedule_lives_where_its_policy_does() {
        let (uid, hashed) = (Uuid::from_u128(7), shard_of(Uuid::from_u128(7), 64));
        let mut schedule = crate::plan::warnings::tests::schedule(crate::model::Trigger::At { at_us: 0 });
        for (shard, stored) in [(hashed, None), (hashed ^ 1, Some(hashed ^ 1))] {
            put_under(&mut schedule, Some((uid, shard)), 64);
            assert_eq!((home(&schedule, 64), schedule.policy_shard), (shard, stored));
        }
        put_under(&mut schedule, None, 64);
        assert_eq!(home(&schedule, 64), shard_of(schedule.uid, 64));
    }

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
