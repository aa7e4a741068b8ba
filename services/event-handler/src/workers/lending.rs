//! Room here for other processes, and theirs for the owners here.
//!
//! In: pools for which owners here lack room; calls of other processes. Out: room, and what became of events that came by way
//! of another process. Invariants: another process is asked only while somebody here waits, by one call at a time for each pool;
//! room that is lent out goes back by itself where no event comes for it; the time of an event that comes for it counts from when
//! it was lent, where the other process says so; nothing is written for which room was lent before the machine stood still. Not
//! here: the calls ([`super::elsewhere`]).

use std::sync::atomic::Ordering;
use std::time::Duration;

use tokio::sync::mpsc;
use tollgate_clock::instant_now;
use tollgate_proto::v1;
use tollgate_proto::v1::give_event_response::Outcome as Told;
use tonic::Status;

use super::book::{PoolOf, QueueKey, WorkerId};
use super::desk::Desk;
use super::elsewhere::{Lending, Lent, lock};
use super::handing::{Limit, Outcome};
use super::lack::Lack;
use crate::peers::Asked;

/// How long another process waits for room before it answers.
const WAIT: Duration = Duration::from_millis(1_500);
/// How long a process that does not answer is left alone.
const REST: Duration = Duration::from_secs(1);
/// How long room that is lent out is kept for an event.
const LENT: Duration = Duration::from_secs(5);
/// The most room of one call.
const WANT_MAX: u32 = 1_000;

impl Desk {
    /// Asks all other processes for room of a pool, as long as somebody here lacks some.
    pub(crate) fn look_elsewhere(&self, pool: u128) {
        let Some(of) = self.pool(pool) else { return };
        let elsewhere = self.elsewhere();
        for process in elsewhere.peers.others() {
            if lock(&elsewhere.asking).insert((pool, process.clone())) {
                tokio::spawn(self.clone().take_from(process, (pool, of.clone())));
            }
        }
    }

    async fn take_from(self, process: String, (pool, of): (u128, PoolOf)) {
        let elsewhere = self.elsewhere();
        let key = (pool, process.clone());
        loop {
            let lacking = {
                let mut asking = lock(&elsewhere.asking);
                let lacking = self.lacking(pool, &of);
                if lacking == 0 || !elsewhere.peers.knows(&process) {
                    asking.remove(&key);
                    lock(&elsewhere.lacks).remove(&key);
                    return;
                }
                lacking
            };
            let request = v1::TakeRoomRequest {
                process: elsewhere.process.clone(),
                namespace: of.queue.namespace.to_string(),
                queue: of.queue.queue.to_string(),
                requires: of.requires.to_vec(),
                want: lacking.min(WANT_MAX),
                wait_ms: u32::try_from(WAIT.as_millis()).unwrap_or(u32::MAX),
                pool: pool.to_be_bytes().to_vec(),
            };
            match elsewhere.peers.take_room(&process, request).await {
                Asked::Answer(answer) => {
                    if answer.able {
                        self.able_elsewhere(pool);
                        lock(&elsewhere.lacks).remove(&key);
                    } else {
                        let lack = Lack::told(answer.workers_count, answer.missing, answer.near);
                        lock(&elsewhere.lacks).insert(key.clone(), lack);
                    }
                    let came = instant_now();
                    let lent = |room| Lent { process: process.clone(), room, came };
                    let lent = answer.rooms.into_iter().map(lent);
                    lent.for_each(|lent| self.arrives(pool, lent));
                }
                Asked::Nobody | Asked::Unclear => tokio::time::sleep(REST).await,
            }
        }
    }

    /// Room here for another process, as soon as there is some.
    pub(crate) async fn lend(&self, request: v1::TakeRoomRequest) -> Result<v1::TakeRoomResponse, Status> {
        let pool = <[u8; 16]>::try_from(request.pool.as_slice());
        let pool = u128::from_be_bytes(pool.map_err(|_| Status::invalid_argument("pool: 16 bytes"))?);
        let queue = QueueKey { namespace: request.namespace.into(), queue: request.queue.into() };
        let of = PoolOf { queue, requires: request.requires.into(), known_us: 0 };
        let want = request.want.min(WANT_MAX);
        let mut call = Call::begin(self, (pool, of), want);
        if call.workers.is_empty() {
            let wait = Duration::from_millis(request.wait_ms.into()).min(WAIT);
            if let Ok(Some(worker)) = tokio::time::timeout(wait, call.from.recv()).await {
                call.workers.push(worker);
            }
        }
        let able = self.is_able(&call.of.1);
        let lack = if able { Lack::default() } else { self.lack(&call.of.1) };
        let rooms = self.lent_out(call.end());
        let (workers_count, missing, near) = lack.tell();
        Ok(v1::TakeRoomResponse { rooms, able, workers_count, missing, near })
    }

    fn lent_out(&self, workers: Vec<WorkerId>) -> Vec<u64> {
        if workers.is_empty() {
            return Vec::new();
        }
        let rooms: Vec<u64> = {
            let next = &self.elsewhere().next;
            workers.iter().map(|_| next.fetch_add(1, Ordering::Relaxed)).collect()
        };
        // Before the answer leaves: whoever takes the room knows only that it was lent before the answer came.
        let (stops, since) = (self.stops(), instant_now());
        let lending = workers.into_iter().map(|worker| Lending { worker, since, stops });
        lock(&self.elsewhere().lending).extend(rooms.iter().copied().zip(lending));
        let (desk, due) = (self.clone(), rooms.clone());
        tokio::spawn(async move {
            tokio::time::sleep(LENT).await;
            desk.returned(&due);
        });
        rooms
    }

    /// Room that was lent out is free again.
    pub(crate) fn returned(&self, rooms: &[u64]) {
        for room in rooms {
            let lending = lock(&self.elsewhere().lending).remove(room);
            if let Some(Lending { worker, .. }) = lending {
                self.free_here(worker);
            }
        }
    }

    /// An event for a worker here, from another process that has taken room of it.
    pub(crate) async fn take_in(&self, request: v1::GiveEventRequest) -> v1::GiveEventResponse {
        let now = instant_now();
        let lending = lock(&self.elsewhere().lending).remove(&request.room);
        let outcome = match (lending, request.event) {
            (Some(Lending { worker, since, stops }), Some(event)) => {
                let millis = |ms: u32| Duration::from_millis(ms.into());
                // The call may have been long under way.
                let from_call = now + millis(request.deadline_ms);
                let until = request.since_lent_ms.map_or(from_call, |ms| from_call.min(since + millis(ms)));
                self.give_here(worker, event, Limit::Lent(until, stops)).await
            }
            (Some(Lending { worker, .. }), None) => {
                self.free_here(worker);
                Outcome::NotSent("there is no event".to_owned())
            }
            _ => Outcome::NotSent("the room that was taken for it has gone back".to_owned()),
        };
        let (told, message, by) = match outcome {
            Outcome::Accepted(by) => (Told::Accepted, String::new(), by),
            Outcome::NotSent(message) => (Told::NotSent, message, None),
            Outcome::Unclear(message) => (Told::Unclear, message, None),
        };
        let polls = by.is_some();
        let (worker, labels) = by.map(|by| (by.name, by.labels.to_vec())).unwrap_or_default();
        v1::GiveEventResponse { outcome: told.into(), message, polls, worker, labels }
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
