//! Room at workers that are connected to other processes, and the room here that other processes have taken.
//!
//! In: pools for which owners here lack room; calls of other processes. Out: room, and what became of events that were given by
//! way of another process. Invariants: other processes are asked only while somebody here waits, by one call at a time for each
//! process and pool; room that is lent out goes back by itself where no event comes for it. Everything is best effort with a
//! deadline: an event of which nobody can say what became is unclear.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::mpsc;
use tokio::time::Instant;
use tollgate_clock::instant_now;
use tollgate_proto::v1;
use tollgate_proto::v1::give_event_response::Outcome as Told;
use tonic::Status;

use super::book::{QueueKey, WorkerId};
use super::desk::{Desk, PoolOf};
use super::handing::Outcome;
use super::lack::Lack;
use crate::peers::{Asked, Peers};

/// How long another process waits for room before it answers.
const WAIT: Duration = Duration::from_millis(1_500);
/// How long a process that does not answer is left alone.
const REST: Duration = Duration::from_secs(1);
/// How long room that is lent out is kept for an event.
const LENT: Duration = Duration::from_secs(5);
/// How much longer an answer about an event may take than the event may.
const ON_THE_WAY: Duration = Duration::from_secs(1);
/// The most room of one call.
const WANT_MAX: u32 = 1_000;

/// A unit of room at a worker of another process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Lent {
    process: String,
    room: u64,
}

/// See the head of this file. Clones share everything.
#[derive(Clone)]
pub(crate) struct Elsewhere {
    peers: Peers,
    process: String,
    /// Of which processes room of which pools is being asked.
    asking: Arc<Mutex<HashSet<(u128, String)>>>,
    /// What the workers of other processes lack for the pools that are being asked for.
    lacks: Arc<Mutex<BTreeMap<(u128, String), Lack>>>,
    /// Room here that other processes have taken.
    lending: Arc<Mutex<HashMap<u64, WorkerId>>>,
    next: Arc<AtomicU64>,
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

    /// Asks all other processes for room of a pool, as long as somebody here lacks some.
    pub(super) fn look(&self, desk: &Desk, pool: u128, of: &PoolOf) {
        for process in self.peers.others() {
            if lock(&self.asking).insert((pool, process.clone())) {
                tokio::spawn(self.clone().ask(desk.clone(), (pool, of.clone()), process));
            }
        }
    }

    async fn ask(self, desk: Desk, (pool, of): (u128, PoolOf), process: String) {
        let key = (pool, process.clone());
        loop {
            let lacking = {
                let mut asking = lock(&self.asking);
                let lacking = desk.lacking(pool, &of);
                if lacking == 0 || !self.peers.knows(&process) {
                    asking.remove(&key);
                    lock(&self.lacks).remove(&key);
                    return;
                }
                lacking
            };
            let request = v1::TakeRoomRequest {
                process: self.process.clone(),
                namespace: of.queue.namespace.to_string(),
                queue: of.queue.queue.to_string(),
                requires: of.requires.to_vec(),
                want: lacking.min(WANT_MAX),
                wait_ms: u32::try_from(WAIT.as_millis()).unwrap_or(u32::MAX),
                pool: pool.to_be_bytes().to_vec(),
            };
            match self.peers.take_room(&process, request).await {
                Asked::Answer(answer) => {
                    if answer.able {
                        desk.able_elsewhere(pool);
                        lock(&self.lacks).remove(&key);
                    } else {
                        let lack = Lack::told(answer.workers_count, answer.missing, answer.near);
                        lock(&self.lacks).insert(key.clone(), lack);
                    }
                    let lent = answer.rooms.into_iter().map(|room| Lent { process: process.clone(), room });
                    lent.for_each(|lent| desk.arrives(pool, lent));
                }
                Asked::Nobody | Asked::Unclear => tokio::time::sleep(REST).await,
            }
        }
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
        let left = until.saturating_duration_since(instant_now()).min(deadline);
        let deadline_ms = u32::try_from(left.as_millis()).unwrap_or(u32::MAX);
        let request = v1::GiveEventRequest { room: lent.room, event: Some(event), deadline_ms };
        match self.peers.give_event(&lent.process, request, left + ON_THE_WAY).await {
            Asked::Answer(answer) => match answer.outcome() {
                Told::Accepted => Outcome::Accepted,
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

    // What other processes ask.

    /// Room here for another process, as soon as there is some.
    pub(crate) async fn lend(
        &self,
        desk: &Desk,
        request: v1::TakeRoomRequest,
    ) -> Result<v1::TakeRoomResponse, Status> {
        let pool = <[u8; 16]>::try_from(request.pool.as_slice());
        let pool = u128::from_be_bytes(pool.map_err(|_| Status::invalid_argument("pool: 16 bytes"))?);
        let queue = QueueKey { namespace: request.namespace.into(), queue: request.queue.into() };
        let of = PoolOf { queue, requires: request.requires.into(), known_us: 0 };
        let want = request.want.min(WANT_MAX);
        let mut call = Call::begin(desk, (pool, of), want);
        if call.workers.is_empty() {
            let wait = Duration::from_millis(request.wait_ms.into()).min(WAIT);
            if let Ok(Some(worker)) = tokio::time::timeout(wait, call.from.recv()).await {
                call.workers.push(worker);
            }
        }
        let able = desk.is_able(&call.of.1);
        let lack = if able { Lack::default() } else { desk.lack(&call.of.1) };
        let rooms = self.lent_out(desk, call.end());
        let (workers_count, missing, near) = lack.tell();
        Ok(v1::TakeRoomResponse { rooms, able, workers_count, missing, near })
    }

    fn lent_out(&self, desk: &Desk, workers: Vec<WorkerId>) -> Vec<u64> {
        if workers.is_empty() {
            return Vec::new();
        }
        let rooms: Vec<u64> = workers.iter().map(|_| self.next.fetch_add(1, Ordering::Relaxed)).collect();
        lock(&self.lending).extend(rooms.iter().copied().zip(workers));
        let (lender, desk, due) = (self.clone(), desk.clone(), rooms.clone());
        tokio::spawn(async move {
            tokio::time::sleep(LENT).await;
            lender.returned(&desk, &due);
        });
        rooms
    }

    /// Room that was lent out is free again.
    pub(crate) fn returned(&self, desk: &Desk, rooms: &[u64]) {
        for room in rooms {
            let worker = lock(&self.lending).remove(room);
            if let Some(worker) = worker {
                desk.free_here(worker);
            }
        }
    }

    /// An event for a worker here, from another process that has taken room of it.
    pub(crate) async fn take_in(&self, desk: &Desk, request: v1::GiveEventRequest) -> v1::GiveEventResponse {
        let worker = lock(&self.lending).remove(&request.room);
        let outcome = match (worker, request.event) {
            (Some(worker), Some(event)) => {
                let until = instant_now() + Duration::from_millis(request.deadline_ms.into());
                let outcome = desk.give_here(worker, event, until).await;
                if matches!(outcome, Outcome::NotSent(_)) {
                    desk.free_here(worker);
                }
                outcome
            }
            _ => Outcome::NotSent("the room that was taken for it has gone back".to_owned()),
        };
        let (told, message) = match outcome {
            Outcome::Accepted => (Told::Accepted, String::new()),
            Outcome::NotSent(message) => (Told::NotSent, message),
            Outcome::Unclear(message) => (Told::Unclear, message),
        };
        v1::GiveEventResponse { outcome: told.into(), message }
    }
}

/// A call of another process that waits for room. What it has and does not take goes back.
struct Call {
    desk: Desk,
    of: (u128, PoolOf),
    id: u64,
    workers: Vec<WorkerId>,
    from: mpsc::UnboundedReceiver<WorkerId>,
}

impl Call {
    fn begin(desk: &Desk, of: (u128, PoolOf), want: u32) -> Self {
        let (id, workers, from) = desk.call((of.0, &of.1), want);
        Self { desk: desk.clone(), of, id, workers, from }
    }

    /// It waits no longer: what it has.
    fn end(mut self) -> Vec<WorkerId> {
        self.desk.call_ends(self.id, (self.of.0, &self.of.1));
        while let Ok(worker) = self.from.try_recv() {
            self.workers.push(worker);
        }
        std::mem::take(&mut self.workers)
    }
}

impl Drop for Call {
    fn drop(&mut self) {
        self.desk.call_ends(self.id, (self.of.0, &self.of.1));
        while let Ok(worker) = self.from.try_recv() {
            self.workers.push(worker);
        }
        self.workers.drain(..).for_each(|worker| self.desk.free_here(worker));
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
