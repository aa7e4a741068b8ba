//! Which shards this process owns, and how to reach their owners.

use std::collections::BTreeSet;
use std::sync::Arc;

use dashmap::DashMap;
use tokio::sync::{mpsc, oneshot};
use tollgate_core::handle::release::{Answer, Release};
use tollgate_core::handle::{Explanation, KeyCounts, Outlook, Status};
use tollgate_core::model::{RunId, Sent};
use tollgate_core::trouble::Sight;
use uuid::Uuid;

use crate::owner::Ahead;

/// Of a run: tokens in flight and events that wait for another attempt, and what is expected.
pub(crate) type Expected = ((u32, u32), Outlook);

/// What an owner task is told or asked.
#[derive(Debug)]
pub(crate) enum Input {
    /// There is something new in the store.
    Wake,
    /// There was nothing new in the store, at that moment (monotonic) or soon after it.
    NoNews { began_us: i64 },
    /// A consumer releases an event.
    Release { release: Release, namespace: Option<String>, reply: oneshot::Sender<Replied> },
    /// A consumer is still at work.
    Extend {
        run: RunId,
        index: u32,
        namespace: Option<String>,
        attempt: Option<u32>,
        ttl_ms: Option<i64>,
        reply: oneshot::Sender<Replied>,
    },
    /// A target has answered.
    Sent { run: RunId, index: u32, attempt: u32, sent: Sent },
    /// A delivery was not made after all: the lease could no longer be trusted.
    Unsent { run: RunId, index: u32, attempt: u32 },
    /// Workers have room for so many events of a pool that waited for it.
    RoomGiven { pool: u128, units: u32 },
    /// The run that follows by this message has been made, or is not to be.
    Followed { message: Uuid },
    /// The run that follows an end, and lives here.
    Ahead(Box<Ahead>),
    /// The keys of the items of a page, from that index on. `of`: the run, and the generation of its spec.
    KeysRead { of: (RunId, i64), first_index: u32, items: Vec<(String, u32)> },
    /// The page that holds an index cannot be read.
    KeysUnreadable { of: (RunId, i64), index: u32 },
    /// Something is asked.
    Ask(Question),
    /// Answered once everything that was in the store before has been taken in and is durable.
    Sync { reply: oneshot::Sender<()> },
}

/// What an owner is asked of its shard. It changes nothing in the store.
#[derive(Debug)]
pub(crate) enum Question {
    /// Why does an event wait?
    Explain { run: RunId, index: u32, reply: oneshot::Sender<Option<Explanation>> },
    /// Tokens in flight, events waiting for another attempt, and what is expected, of runs.
    Outstanding { runs: Vec<RunId>, reply: oneshot::Sender<Vec<Option<Expected>>> },
    /// What the events of each key of a policy hold and wait for.
    Keys { policy: Uuid, reply: oneshot::Sender<KeyCounts> },
    /// The shard at a glance.
    Status { busy_only: bool, reply: oneshot::Sender<Status> },
    /// What of the shard is not well. `unable`: pools that no worker is able to do.
    Sight { unable: Arc<BTreeSet<u128>>, reply: oneshot::Sender<Sight> },
    /// What has happened by the minute goes into the process's book; what has ended, out of the desk's.
    CountMinutes { reply: oneshot::Sender<()> },
}

/// An owner's answer to a consumer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Replied {
    /// The machine's.
    Answer(Answer),
    /// The event belongs to another namespace: as good as unknown.
    Foreign,
    /// The commit failed: nothing changed, try again.
    TryAgain,
}

/// The shards that this process owns. Cheap to clone.
#[derive(Clone, Debug, Default)]
pub(crate) struct Routes {
    owners: Arc<DashMap<u16, mpsc::UnboundedSender<Input>>>,
}

impl Routes {
    /// Tells a shard's owner, if it is in this process, that there is something new for it in the store. False if it is
    /// not.
    pub(crate) fn wake(&self, shard: u16) -> bool {
        self.tell(shard, Input::Wake)
    }

    /// Whether this process owns a shard.
    pub(crate) fn owns(&self, shard: u16) -> bool {
        self.owners.contains_key(&shard)
    }

    pub(crate) fn shards(&self) -> Vec<u16> {
        let mut shards: Vec<u16> = self.owners.iter().map(|entry| *entry.key()).collect();
        shards.sort_unstable();
        shards
    }

    /// False where the shard has no owner here.
    pub(crate) fn tell(&self, shard: u16, input: Input) -> bool {
        self.owners.get(&shard).is_some_and(|owner| owner.send(input).is_ok())
    }

    /// Asks an owner; none where the shard has no owner here, or it stops meanwhile.
    pub(crate) async fn ask<T>(
        &self,
        shard: u16,
        input: impl FnOnce(oneshot::Sender<T>) -> Input,
    ) -> Option<T> {
        let (reply, answer) = oneshot::channel();
        if !self.tell(shard, input(reply)) {
            return None;
        }
        answer.await.ok()
    }

    pub(crate) fn insert(&self, shard: u16, owner: mpsc::UnboundedSender<Input>) {
        self.owners.insert(shard, owner);
    }

    pub(crate) fn remove(&self, shard: u16) {
        self.owners.remove(&shard);
    }
}
