//! Messages to a shard's owner that must not be lost: they wait in the shard's inbox until a commit carries
//! them out. They may arrive in any order and more than once.

use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};
use uuid::Uuid;

use super::change::ShardSchedule;
use super::release::Release;
use crate::model::{ChainRoot, Pause, Policy, RunEnd, RunId, Sent};

/// A message with the id under which it is stored, which makes posting it twice harmless.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Message {
    /// Chosen by the sender.
    pub id: Uuid,
    /// What to do.
    pub control: Control,
}

impl Message {
    /// A message that is read before all others, however many wait: its id sorts first. `random` tells it from others
    /// of its kind.
    pub fn first(random: u64, control: Control) -> Self {
        Self { id: Uuid::from_u128(u128::from(random)), control }
    }

    /// A release that its owner could not be asked for. All of one attempt have one id, so that the first one is kept; they
    /// are read before what else waits, those of one event in the order of its attempts.
    pub fn release(release: Release) -> Self {
        let event = Sha256::new()
            .chain_update(b"release")
            .chain_update(release.run.0.as_bytes())
            .chain_update(release.index.to_be_bytes())
            .finalize();
        let mut bytes = [0_u8; 16];
        // After those of `first`, which have eight zeros.
        bytes[4] = 1;
        bytes[5..12].copy_from_slice(&event[..7]);
        bytes[12..].copy_from_slice(&release.attempt.unwrap_or_default().to_be_bytes());
        Self { id: Uuid::from_bytes(bytes), control: Control::Release { release } }
    }

    /// The end of a chain, for the shard in which it began. One chain has one message.
    pub fn chain_ended(root: ChainRoot) -> Self {
        let digest = Sha256::new().chain_update(b"chain").chain_update(root.run.0.as_bytes()).finalize();
        let mut bytes = [u8::MAX; 16];
        bytes[4..].copy_from_slice(&digest[..12]);
        let control = Control::ChainEnded { schedule_uid: root.schedule_uid, run: root.run };
        Self { id: Uuid::from_bytes(bytes), control }
    }

    /// The end of a run that another one follows: for the run's own shard. It is read after what else waits; one end has one id.
    pub fn run_ended(end: RunEnd) -> Self {
        let digest = Sha256::new()
            .chain_update(b"ended")
            .chain_update(end.of.run.0.as_bytes())
            .chain_update(end.ended_us.to_be_bytes())
            .finalize();
        let mut bytes = [u8::MAX; 16];
        bytes[4..].copy_from_slice(&digest[..12]);
        Self { id: Uuid::from_bytes(bytes), control: Control::RunEnded { end } }
    }

    /// Whether no release has an id from this one on: neither those of today nor those of versions before, which sort by
    /// the time at which they were made.
    pub fn is_beyond_releases(id: Uuid) -> bool {
        // The latter until 2039.
        id.as_bytes()[0] >= 2
    }
}

/// A delivery that has begun, and whose answer has not come.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct UnderWay {
    /// The run.
    pub run: RunId,
    /// The event's index.
    pub index: u32,
    /// Which delivery.
    pub attempt: u32,
    /// An earlier delivery is unclear, so that a refusal of this one proves nothing.
    pub doubtful: bool,
    /// How long the answer is waited for, in milliseconds. 0: no longer, and nobody knows what became of the delivery.
    /// Less: it did not leave; versions before this one take that for 0.
    pub grace_ms: i64,
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
    /// A policy was deleted; it is forgotten a day later, once no run needs it any more. May come before its last change.
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
        /// The shards that must be told after this one, in this order. The last one is the schedule's home; all
        /// others owned it before, and each gives up what it has not started before the next one is told. Empty: the
        /// schedule lives here.
        #[serde(default)]
        onward: Vec<u16>,
    },
    /// A run that stayed behind when its schedule moved here leaves a cursor for the schedule's next run. It may come
    /// before the change that brings the schedule here.
    CursorLeft {
        /// The schedule.
        schedule_uid: Uuid,
        /// What the consumer gave.
        cursor: String,
        /// When ([`ShardSchedule::cursor_us`]). Versions before this one do not say: when it is read.
        #[serde(default)]
        left_us: Option<i64>,
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
    /// Nothing of this shard may start, or may again. The message's id orders it: one with a smaller id than the
    /// latest that was carried out is passed over.
    PauseShard {
        /// Set to pause, absent to resume.
        pause: Option<Pause>,
    },
    /// A release that reached a process which could not reach the owner.
    Release {
        /// What was released and how.
        release: Release,
    },
    /// A run of this shard has ended that another one follows, or that ends a chain. The message goes once the one is launched,
    /// or the shard is told in which the chain began.
    RunEnded {
        /// Which run, how, and what follows.
        end: RunEnd,
    },
    /// A chain has ended that began in this shard.
    ChainEnded {
        /// The schedule of its first run.
        schedule_uid: Uuid,
        /// Its first run.
        run: RunId,
    },
    /// Something has come to this shard from another one, with all that the store has of it.
    Arrived {
        /// Whoever took the shard over later than with this epoch has loaded it.
        epoch: i64,
    },
    /// Deliveries that the shard's former owner has begun, and whose answers it still waits for. They are not made
    /// again before their time is over.
    UnderWay {
        /// Which.
        deliveries: Vec<UnderWay>,
    },
    /// The answer to a delivery that a former owner has made.
    Sent {
        /// The run.
        run: RunId,
        /// The event's index.
        index: u32,
        /// The delivery.
        attempt: u32,
        /// What the target said.
        sent: Sent,
    },
}

impl Control {
    /// The runs that it is about, as far as it is about single ones.
    pub fn runs(&self) -> Vec<RunId> {
        match self {
            Self::CancelRun { run, .. } | Self::RetryDead { run, .. } | Self::Sent { run, .. } => vec![*run],
            Self::Release { release } => vec![release.run],
            Self::UnderWay { deliveries } => deliveries.iter().map(|one| one.run).collect(),
            _ => Vec::new(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::handle::release::ReleaseOutcome;
    use crate::plan::message_id;

    #[test]
    fn releases_are_read_after_notes_and_before_changes() {
        let release = |index: u32, attempt: u32, outcome: ReleaseOutcome| {
            let run = RunId(Uuid::from_u128(7));
            let (message, next_check_us, cursor, result) = (String::new(), None, None, None);
            let attempt = Some(attempt);
            Message::release(Release { run, index, attempt, outcome, message, next_check_us, cursor, result })
                .id
        };
        let id = release(3, 1, ReleaseOutcome::Succeeded);
        assert_eq!(id, release(3, 1, ReleaseOutcome::Retry));
        assert!((1..300).all(|attempt| {
            let outcome = ReleaseOutcome::Failed;
            release(3, attempt, outcome) < release(3, attempt + 1, outcome)
        }));
        let ids: std::collections::BTreeSet<Uuid> =
            (0..1_000).map(|index| release(index, 1, ReleaseOutcome::Failed)).collect();
        assert_eq!(ids.len(), 1_000);
        // As versions before made them, by the time: of November 2026.
        let by_time = Uuid::from_u128(0x019a_b0c5_f400_7000_8000_0000_0000_0000);
        let note = Message::first(u64::MAX, Control::PauseShard { pause: None }).id;
        assert!(ids.iter().all(|id| note < *id && *id < by_time && !Message::is_beyond_releases(*id)));
        assert!(!Message::is_beyond_releases(by_time));
        let beyond = |uid: u128| Message::is_beyond_releases(message_id(Uuid::from_u128(uid), 1));
        assert!((0..100).filter(|uid| beyond(*uid)).count() > 90);
    }
}
