//! What the queue shards must hear of a change of a schedule or policy: written with the change, and kept until they have been
//! told.

use std::ops::RangeInclusive;

use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};
use uuid::Uuid;

use crate::handle::control::Control;
use crate::model::{Pause, Policy, Timing};

/// One change of one schedule or policy, with all that is needed to tell of it later, whatever happens to it meanwhile.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Notice {
    /// The schedule or policy.
    #[serde(rename = "schedule_uid")]
    pub uid: Uuid,
    /// That the change made; a deletion is a generation of its own.
    pub generation: i64,
    /// The namespace's id.
    pub namespace: String,
    /// The schedule's or policy's id.
    #[serde(rename = "schedule_id")]
    pub id: String,
    /// When the change was made.
    pub changed_us: i64,
    /// The shards that must be told, in this order: those in which a schedule lived, and at last its home. A policy has one home.
    pub way: Vec<u16>,
    /// It did not exist before.
    pub is_new: bool,
    /// What has changed.
    #[serde(flatten)]
    pub news: News,
}

/// What a notice is about. Notices of schedules have been stored before those of policies were, so no tag tells them apart.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum News {
    /// A schedule. What is told of it depends on the windows that are open by then.
    Schedule(ScheduleNews),
    /// A policy.
    Policy {
        /// What its shard is told.
        control: Control,
    },
}

/// A schedule as it is after a change.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ScheduleNews {
    /// Its policy.
    pub policy_uid: Option<Uuid>,
    /// No window that ends later was open when the change was committed.
    pub until_us: i64,
    /// Events per trigger from now on.
    pub events: u32,
    /// Priority from now on.
    pub priority: u8,
    /// Why nothing of it may start, while it is paused.
    pub pause: Option<Pause>,
    /// It was paused before.
    pub was_paused: bool,
    /// When it fires from now on; none where it was deleted.
    pub timing: Option<Timing>,
}

impl Notice {
    /// Of a policy that was made or changed.
    pub fn of_policy(policy: &Policy) -> Self {
        let control = Control::PolicyChanged { policy: policy.clone() };
        Self::about_policy(policy, policy.generation, policy.updated_us, control)
    }

    /// Of a policy that was deleted.
    pub fn of_deleted_policy(policy: &Policy, at_us: i64) -> Self {
        Self::about_policy(policy, policy.generation + 1, at_us, Control::PolicyDeleted { uid: policy.uid })
    }

    fn about_policy(policy: &Policy, generation: i64, changed_us: i64, control: Control) -> Self {
        Self {
            uid: policy.uid,
            generation,
            namespace: policy.namespace.clone(),
            id: policy.id.clone(),
            changed_us,
            way: vec![policy.shard],
            is_new: generation == 1,
            news: News::Policy { control },
        }
    }

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
#[expect(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::*;
    use crate::handle::testing::policy;

    #[test]
    fn messages_are_in_the_order_of_generations() {
        let (one, other) = (Uuid::from_u128(1), Uuid::from_u128(2));
        assert_eq!(message_id(one, 1), message_id(one, 1));
        assert!((0..300).all(|generation| message_id(one, generation) < message_id(one, generation + 1)));
        assert!((0..300).all(|generation| message_ids(one).contains(&message_id(one, generation))));
        assert!(!message_ids(one).contains(&message_id(other, 1)));
    }

    /// A row that a version before has left, which had notices of schedules alone.
    const STORED: &str = r#"{"schedule_uid":"00000000-0000-0000-0000-000000000007","generation":3,"namespace":"default",
        "schedule_id":"nightly","policy_uid":null,"changed_us":10,"until_us":20,"way":[4,5],"events":2,"priority":5,
        "pause":null,"is_new":false,"was_paused":true,"timing":null}"#;

    #[test]
    fn notices_of_versions_before_are_read() {
        let read: Notice = serde_json::from_str(STORED).unwrap();
        assert_eq!((read.uid, read.generation, read.id.as_str()), (Uuid::from_u128(7), 3, "nightly"));
        let News::Schedule(news) = &read.news else { panic!("{read:?}") };
        assert_eq!((news.until_us, news.events, news.was_paused, &news.timing), (20, 2, true, &None));
        let (again, stored): (serde_json::Value, serde_json::Value) =
            (serde_json::to_value(&read).unwrap(), serde_json::from_str(STORED).unwrap());
        assert_eq!(again, stored, "and a version before reads those of today");
    }

    #[test]
    fn notices_of_policies_are_read_as_they_were_written_or_not_at_all() {
        let policy = policy(3);
        for notice in [Notice::of_policy(&policy), Notice::of_deleted_policy(&policy, 9)] {
            let text = serde_json::to_string(&notice).unwrap();
            assert_eq!(serde_json::from_str::<Notice>(&text).unwrap(), notice);
            // Neither is a schedule's that has lost a field taken for a policy's.
            assert!(serde_json::from_str::<Notice>(&text.replace("control", "other")).is_err());
        }
        assert!(serde_json::from_str::<Notice>(&STORED.replace("until_us", "other")).is_err());
    }
}
