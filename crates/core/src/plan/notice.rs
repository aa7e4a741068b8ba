//! What the queue shards must hear of a change of a schedule: written with the change, and kept until they have been told.

use std::ops::RangeInclusive;

use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};
use uuid::Uuid;

use crate::model::{Pause, Timing};

/// One change of one schedule, with all that is needed to tell of it later, even if the schedule has changed again meanwhile.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Notice {
    /// The schedule.
    pub schedule_uid: Uuid,
    /// That the change made; a deletion is a generation of its own.
    pub generation: i64,
    /// The namespace's id.
    pub namespace: String,
    /// The schedule's id.
    pub schedule_id: String,
    /// Its policy.
    pub policy_uid: Option<Uuid>,
    /// When the change was made.
    pub changed_us: i64,
    /// No window that ends later was open when the change was committed.
    pub until_us: i64,
    /// The shards that must be told, in this order: those in which the schedule lived, and at last its home.
    pub way: Vec<u16>,
    /// Events per trigger from now on.
    pub events: u32,
    /// Priority from now on.
    pub priority: u8,
    /// Why nothing of it may start, while it is paused.
    pub pause: Option<Pause>,
    /// It did not exist before.
    pub is_new: bool,
    /// It was paused before.
    pub was_paused: bool,
    /// When it fires from now on; none where it was deleted.
    pub timing: Option<Timing>,
}

impl Notice {
    /// The shard that is told first.
    pub fn first(&self) -> u16 {
        self.way.first().copied().unwrap_or_default()
    }
}

/// The id of the message that tells of a generation of a schedule or policy: telling it twice is harmless, and of two
/// generations the earlier one is read first.
pub fn message_id(uid: Uuid, generation: i64) -> Uuid {
    let digest = Sha256::new().chain_update(b"generation").chain_update(uid.as_bytes()).finalize();
    let mut bytes = [0_u8; 16];
    bytes[..8].copy_from_slice(&digest[..8]);
    bytes[8..].copy_from_slice(&generation.to_be_bytes());
    Uuid::from_bytes(bytes)
}

/// The ids of all messages that tell of a schedule or policy.
pub fn message_ids(uid: Uuid) -> RangeInclusive<Uuid> {
    message_id(uid, 0)..=message_id(uid, i64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_are_in_the_order_of_generations() {
        let (one, other) = (Uuid::from_u128(1), Uuid::from_u128(2));
        assert_eq!(message_id(one, 1), message_id(one, 1));
        assert!((0..300).all(|generation| message_id(one, generation) < message_id(one, generation + 1)));
        assert!((0..300).all(|generation| message_ids(one).contains(&message_id(one, generation))));
        assert!(!message_ids(one).contains(&message_id(other, 1)));
    }
}
