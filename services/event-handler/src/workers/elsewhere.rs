//! Room at workers that are connected to other processes, and the room here that other processes have taken.
//!
//! In: pools for which owners here lack room; calls of other processes. Out: room, and what became of events that were given by
//! way of another process. Invariants: other processes are asked only while somebody here waits, by one call at a time for each
//! process and pool; room that is lent out goes back by itself where no event comes for it. Everything is best effort with a
//! deadline: an event of which nobody can say what became is unclear. An event's time at another process counts from when its
//! room was lent, by that one's clock: however late the call comes, it is not written after its deadline here. Nor is it once
//! that process knows that its machine may have stood still since.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::time::Instant;
use tollgate_clock::instant_now;
use tollgate_proto::v1;
use tollgate_proto::v1::give_event_response::Outcome as Told;

use super::book::WorkerId;
use super::handing::Outcome;
use super::lack::Lack;
use super::taken::Poller;
use crate::peers::{Asked, Peers};

/// How much longer an answer about an event may take than the event may.
const ON_THE_WAY: Duration = Duration::from_secs(1);

/// A unit of room at a worker of another process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Lent {
    pub(super) process: String,
    pub(super) room: u64,
    /// When it had come here: that is after it was lent.
    pub(super) came: Instant,
}

impl Lent {
    /// What asks its process to give this event to its worker, now, by `until` at the latest.
    pub(super) fn request(
        &self,
        event: v1::WorkEvent,
        (until, deadline): (Instant, Duration),
        now: Instant,
    ) -> v1::GiveEventRequest {
        let millis = |span: Duration| u32::try_from(span.as_millis()).unwrap_or(u32::MAX);
        v1::GiveEventRequest {
            room: self.room,
            event: Some(event),
            deadline_ms: millis(until.saturating_duration_since(now).min(deadline)),
            // It was lent before it came, so this ends there no later than it does here.
            since_lent_ms: Some(millis(until.saturating_duration_since(self.came))),
        }
    }
}

/// Room at a worker here that another process has taken.
#[derive(Clone, Copy, Debug)]
pub(super) struct Lending {
    pub(super) worker: WorkerId,
    pub(super) since: Instant,
    /// How often the machine had stood still by then.
    pub(super) stops: u64,
}

/// See the head of this file. Clones share everything.
#[derive(Clone)]
pub(crate) struct Elsewhere {
    pub(super) peers: Peers,
    pub(super) process: String,
    /// Of which processes room of which pools is being asked.
    pub(super) asking: Arc<Mutex<HashSet<(u128, String)>>>,
    /// What the workers of other processes lack for the pools that are being asked for.
    pub(super) lacks: Arc<Mutex<BTreeMap<(u128, String), Lack>>>,
    /// Room here that other processes have taken.
    pub(super) lending: Arc<Mutex<HashMap<u64, Lending>>>,
    pub(super) next: Arc<AtomicU64>,
}

impl std::fmt::Debug for Elsewhere {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Elsewhere").field("process", &self.process).finish_non_exhaustive()
    }
}

impl Elsewhere {
    pub(crate) fn new(peers: Peers, process: String) -> Self {
        let next = Arc::new(AtomicU64::new(1));
        Self { peers, process, asking: Arc::default(), lacks: Arc::default(), lending: Arc::default(), next }
    }

    /// What the workers of each other process that has answered lack for events of a pool.
    pub(super) fn lack(&self, pool: u128) -> Vec<Lack> {
        let lacks = lock(&self.lacks);
        let own = lacks.range((pool, String::new())..).take_while(|((of, _), _)| *of == pool);
        own.map(|(_, lack)| lack.clone()).collect()
    }

    /// Gives an event to the worker of another process of which room was taken.
    pub(super) async fn give(
        &self,
        lent: Lent,
        event: v1::WorkEvent,
        (until, deadline): (Instant, Duration),
    ) -> Outcome {
        let now = instant_now();
        let left = until.saturating_duration_since(now).min(deadline);
        let request = lent.request(event, (until, deadline), now);
        match self.peers.give_event(&lent.process, request, left + ON_THE_WAY).await {
            Asked::Answer(answer) => match answer.outcome() {
                Told::Accepted => Outcome::Accepted(
                    answer.polls.then(|| Poller { name: answer.worker, labels: answer.labels.into() }),
                ),
                Told::NotSent => Outcome::NotSent(answer.message),
                Told::Unclear | Told::Unspecified => Outcome::Unclear(answer.message),
            },
            Asked::Nobody => Outcome::NotSent("the process of its worker cannot be reached".to_owned()),
            Asked::Unclear => Outcome::Unclear("the process of its worker did not answer".to_owned()),
        }
    }

    /// Room of another process is not used.
    pub(super) fn give_back(&self, lent: Lent) {
        let peers = self.peers.clone();
        // It goes back by itself where this does not arrive.
        tokio::spawn(async move { peers.return_room(&lent.process, vec![lent.room]).await });
    }
}

pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
