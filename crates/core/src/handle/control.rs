//! Messages to a shard's owner that must not be lost: they wait in the shard's inbox until a commit carries
//! them out. They may arrive in any order and more than once.

use serde::{Deserialize, Serialize};
use uuid::Uuid;

use super::change::ShardSchedule;
use crate::model::{Pause, Policy, RunId};

/// A message with the id under which it is stored, which makes posting it twice harmless.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Message {
    /// Chosen by the sender.
    pub id: Uuid,
    /// What to do.
    pub control: Control,
}

/// What a message asks for.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "kind")]
pub enum Control {
    /// A policy was made or changed. Older generations than the known one are ignored.
    PolicyChanged {
        /// As it is now.
        policy: Policy,
    },
    /// A policy was deleted; it is forgotten when no run needs it any more.
    PolicyDeleted {
        /// Which one.
        uid: Uuid,
    },
    /// A schedule was made, changed, paused, resumed or deleted inside the emitted horizon.
    /// Older generations than the known one are ignored.
    ScheduleChanged {
        /// The new fence, launch times and pause.
        schedule: ShardSchedule,
        /// For the runs to be made: the namespace's id.
        namespace: String,
        /// For the runs to be made: the schedule's id.
        schedule_id: String,
        /// For the runs to be made: the policy.
        policy_uid: Option<Uuid>,
        /// The shard that owns the schedule from this generation on, where that is another one.
        moved_to: Option<u16>,
    },
    /// Cancel what a run has not started.
    CancelRun {
        /// Which run.
        run: RunId,
        /// For people.
        reason: String,
    },
    /// Try dead events of a run again.
    RetryDead {
        /// Which run.
        run: RunId,
        /// Which events; empty means all that are dead.
        indexes: Vec<u32>,
    },
    /// Nothing of this shard may start, or may again.
    PauseShard {
        /// Set to pause, absent to resume.
        pause: Option<Pause>,
    },
    /// A release that reached a process which could not reach the owner.
    Release {
        /// What was released and how.
        release: super::release::Release,
    },
}
