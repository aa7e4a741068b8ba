//! Decides where things live: which queue shard has a schedule's runs, and which ones had them.

use sha2::{Digest as _, Sha256};
use uuid::Uuid;

use crate::model::Schedule;

/// The most queue shards that an installation may have.
pub const SHARDS_MAX: u16 = 1_024;

/// How many queue shards there are, for whoever places something.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Layout {
    /// How many there were when the installation was made. A home that nobody wrote down is computed by it, for ever.
    pub base: u16,
    /// How many there are now: what is new is spread over these.
    pub now: u16,
}

/// The queue shard that a uid chooses among so many.
pub fn shard_of(uid: Uuid, shards: u16) -> u16 {
    let digest = Sha256::digest(uid.as_bytes());
    let hash = digest.iter().take(7).fold(0_u64, |hash, byte| hash << 8 | u64::from(*byte));
    u16::try_from(hash % u64::from(shards.max(1))).unwrap_or_default()
}

/// The queue shard that owns a schedule's runs: the one that is written down, else the one that its policy's uid, or its own,
/// chooses among the `base`.
pub fn home(schedule: &Schedule, base: u16) -> u16 {
    schedule.shard.unwrap_or_else(|| shard_of(schedule.policy_uid.unwrap_or(schedule.uid), base))
}

/// A schedule is under this policy from now on: its runs live where the policy's row says. One that was without a policy
/// `before`, and still is, stays where it lives; one that is new without a policy, or has lost its own, chooses among all shards.
pub fn put_under(
    schedule: &mut Schedule,
    policy: Option<(Uuid, u16)>,
    before: Option<&Schedule>,
    layout: Layout,
) {
    let stays = before.filter(|before| before.policy_uid.is_none());
    let shard = match (policy, stays) {
        (Some((_, shard)), _) => shard,
        (None, Some(before)) => home(before, layout.base),
        (None, None) => shard_of(schedule.uid, layout.now),
    };
    schedule.policy_uid = policy.map(|(uid, _)| uid);
    schedule.shard = None;
    schedule.shard = Some(shard).filter(|shard| *shard != home(schedule, layout.base));
}

/// Every shard that must be told of a change, in this order: those in which the schedule lived before, as runs of it
/// may still wait there, and at last its home.
pub fn shards_to_tell(schedule: &Schedule, base: u16) -> Vec<u16> {
    let mut told = schedule.former_homes.clone();
    told.push(home(schedule, base));
    told
}

#[cfg(test)]
mod tests {
    use super::*;

    const AT_FIRST: Layout = Layout { base: 64, now: 64 };
    const ADDED: Layout = Layout { base: 64, now: 256 };

    fn schedule(uid: u128) -> Schedule {
        let schedule = crate::plan::warnings::tests::schedule(crate::model::Trigger::At { at_us: 0 });
        Schedule { uid: Uuid::from_u128(uid), ..schedule }
    }

    /// The first uid that chooses another shard among 256 than among 64.
    fn spread_out() -> u128 {
        (1..).find(|uid| shard_of(Uuid::from_u128(*uid), 256) >= 64).unwrap_or_default()
    }

    #[test]
    fn a_schedule_lives_where_its_policy_does() {
        let (uid, hashed) = (Uuid::from_u128(7), shard_of(Uuid::from_u128(7), 64));
        let mut schedule = schedule(1);
        for layout in [AT_FIRST, ADDED] {
            for (shard, stored) in [(hashed, None), (hashed ^ 1, Some(hashed ^ 1)), (200, Some(200))] {
                put_under(&mut schedule, Some((uid, shard)), None, layout);
                assert_eq!((home(&schedule, 64), schedule.shard), (shard, stored));
            }
        }
        put_under(&mut schedule, None, None, AT_FIRST);
        assert_eq!((home(&schedule, 64), schedule.shard), (shard_of(schedule.uid, 64), None));
    }

    #[test]
    fn what_is_there_stays_when_shards_are_added_and_what_is_new_is_spread_over_all() {
        let mut old = schedule(spread_out());
        put_under(&mut old, None, None, AT_FIRST);
        let first = home(&old, 64);
        assert!(first < 64 && old.shard.is_none());
        let mut changed = old.clone();
        put_under(&mut changed, None, Some(&old), ADDED);
        assert_eq!(changed, old, "it stays");
        let mut new = schedule(spread_out());
        put_under(&mut new, None, None, ADDED);
        let spread = shard_of(new.uid, 256);
        assert_eq!((home(&new, 64), new.shard), (spread, Some(spread)));
        let mut changed = new.clone();
        put_under(&mut changed, None, Some(&new), Layout { base: 64, now: 1_024 });
        assert_eq!(changed, new, "so does one that was made since");
    }

    #[test]
    fn a_schedule_that_loses_its_policy_chooses_among_all_shards() {
        let mut under = schedule(spread_out());
        put_under(&mut under, Some((Uuid::from_u128(7), 3)), None, ADDED);
        let mut without = under.clone();
        put_under(&mut without, None, Some(&under), ADDED);
        assert_eq!(home(&without, 64), shard_of(without.uid, 256));
        let mut back = without.clone();
        put_under(&mut back, Some((Uuid::from_u128(7), 3)), Some(&without), ADDED);
        assert_eq!(home(&back, 64), 3);
    }

    #[test]
    fn a_home_is_read_as_it_was_stored_before_homes_were_written_down() {
        let mut schedule = schedule(1);
        let stored = |schedule: &Schedule| serde_json::to_value(schedule).map_err(|e| e.to_string());
        assert!(stored(&schedule).is_ok_and(|stored| stored.get("policy_shard").is_none()));
        schedule.shard = Some(200);
        let text = stored(&schedule);
        assert!(text.as_ref().is_ok_and(|stored| stored["policy_shard"] == 200));
        let read = text.and_then(|text| serde_json::from_value::<Schedule>(text).map_err(|e| e.to_string()));
        assert_eq!(read.map(|read| home(&read, 64)), Ok(200));
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
