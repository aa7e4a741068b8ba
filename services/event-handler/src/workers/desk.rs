//! Has room at workers ready for the owners of queue shards, and hands events over to workers.
//!
//! In: workers that come, say something and go; asks for room; events. Out: room, and what became of each event.
//! Invariants: each unit of room is at one worker, and one owner's or one event's; what nobody uses goes back, whoever dies; of
//! an event that has not been written to its worker's stream it is known that the worker does not have it, of any other that it
//! has not accepted nobody knows. Not here: who is next (`book`), the way of one event to a worker here (`giving`), streams and
//! calls, other processes (`elsewhere`).

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::mpsc;
use tollgate_clock::Clock;
use tollgate_core::handle::RoomAsk;
use tollgate_core::model::{Now, PullTarget};
use tollgate_proto::v1;
use tollgate_target::Leave;

use super::away::Away;
use super::book::{Asker, Book, Given, PoolOf, QueueKey, WorkerId};
use super::elsewhere::{Elsewhere, Lent};
use super::handing::{Limit, Outcome};
use super::sessions::Session;
use super::taken::Taken;
use crate::routes::{Input, Routes};

/// Where a unit of room is.
#[derive(Debug)]
enum Place {
    Here(WorkerId),
    Elsewhere(Lent),
}

#[derive(Debug, Default)]
pub(super) struct State {
    pub(super) book: Book,
    pub(super) sessions: HashMap<WorkerId, Session>,
    pub(super) by_namespace: BTreeMap<Arc<str>, usize>,
    pub(super) pools: HashMap<u128, PoolOf>,
    pub(super) away: Away,
    /// Room that owners have and no event has yet.
    units: BTreeMap<(u128, u16), VecDeque<Place>>,
    /// Calls of other processes that wait for room.
    calls: HashMap<u64, mpsc::UnboundedSender<WorkerId>>,
    pub(super) next: u64,
    pub(super) ending: bool,
}

/// See the head of this file. Clones share everything.
#[derive(Clone, Debug)]
pub(crate) struct Desk(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    state: Mutex<State>,
    routes: Routes,
    clock: Clock,
    elsewhere: Elsewhere,
    taken: Mutex<Taken>,
    /// Whether there is anything in it: where nobody polls, nobody looks.
    has_polls: AtomicBool,
}

/// A unit of room for one event; given back when dropped, unless the event has it.
#[derive(Debug)]
pub(crate) struct RoomUnit {
    desk: Desk,
    place: Option<Place>,
}

impl Drop for RoomUnit {
    fn drop(&mut self) {
        if let Some(place) = self.place.take() {
            self.desk.free(place);
        }
    }
}

impl Desk {
    pub(crate) fn new(routes: Routes, clock: Clock, elsewhere: Elsewhere) -> Self {
        let (state, taken, has_polls) = (Mutex::default(), Mutex::default(), AtomicBool::new(false));
        Self(Arc::new(Inner { state, routes, clock, elsewhere, taken, has_polls }))
    }

    pub(super) fn state(&self) -> MutexGuard<'_, State> {
        self.0.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn now(&self) -> Now {
        self.0.clock.now()
    }

    pub(super) fn now_us(&self) -> i64 {
        self.0.clock.mono_us()
    }

    /// How often the machine may have stood still.
    pub(super) fn stops(&self) -> u64 {
        self.0.clock.stops()
    }

    pub(super) fn taken(&self) -> MutexGuard<'_, Taken> {
        self.0.taken.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn has_polls(&self) -> &AtomicBool {
        &self.0.has_polls
    }

    pub(super) fn owns(&self, shard: u16) -> bool {
        self.0.routes.owns(shard)
    }

    pub(crate) fn elsewhere(&self) -> &Elsewhere {
        &self.0.elsewhere
    }

    // Owners.

    /// An owner asks for room: how much it has at once. What it lacks comes as [`Input::RoomGiven`]; it may be elsewhere.
    pub(crate) fn ask(&self, shard: u16, ask: &RoomAsk) -> u32 {
        let Some(pull) = ask.pull() else { return 0 };
        let mut state = self.state();
        let of = state.pool(ask.pool, &ask.spec.namespace, pull, self.now_us());
        let asker = Asker::Shard(shard);
        let workers = state.book.ask(asker, (ask.pool, &of.queue, &of.requires), ask.want);
        let given = u32::try_from(workers.len()).unwrap_or(u32::MAX);
        if given > 0 {
            let units = state.units.entry((ask.pool, shard)).or_default();
            units.extend(workers.into_iter().map(Place::Here));
        }
        if ask.want == 0 {
            state.tidy(ask.pool, &of.queue);
        }
        given
    }

    /// An owner makes no use of some room of a pool, and waits for none.
    pub(crate) fn put_back(&self, shard: u16, pool: u128, units: u32) {
        let mut back = Vec::new();
        {
            let mut state = self.state();
            if let Some(of) = state.pools.get(&pool).cloned() {
                state.book.unask(Asker::Shard(shard), pool, &of.queue);
            }
            if let Some(own) = state.units.get_mut(&(pool, shard)) {
                let first = own.len().saturating_sub(units as usize);
                back.extend(own.drain(first..));
                if own.is_empty() {
                    state.units.remove(&(pool, shard));
                }
            }
            if let Some(of) = state.pools.get(&pool).cloned() {
                state.tidy(pool, &of.queue);
            }
        }
        back.into_iter().for_each(|place| self.free(place));
    }

    /// The room for the next event of a pool that an owner sends.
    pub(crate) fn unit(&self, shard: u16, pool: u128) -> Option<RoomUnit> {
        let mut state = self.state();
        let own = state.units.get_mut(&(pool, shard))?;
        let place = own.pop_front();
        if own.is_empty() {
            state.units.remove(&(pool, shard));
        }
        place.map(|place| RoomUnit { desk: self.clone(), place: Some(place) })
    }

    /// An owner's machine has ended: it has no room, and waits for none.
    pub(crate) fn forget(&self, shard: u16) {
        let mut back = Vec::new();
        {
            let mut state = self.state();
            let asked: Vec<_> = state.pools.iter().map(|(pool, of)| (*pool, of.queue.clone())).collect();
            for (pool, queue) in asked {
                state.book.unask(Asker::Shard(shard), pool, &queue);
                back.extend(state.units.remove(&(pool, shard)).into_iter().flatten());
                state.tidy(pool, &queue);
            }
        }
        back.into_iter().for_each(|place| self.free(place));
    }

    /// Hands an event over. The room is its worker's business from then on, unless the worker does not have the event.
    pub(crate) async fn give(
        &self,
        mut unit: RoomUnit,
        event: v1::WorkEvent,
        (leave, deadline): (&Leave, Duration),
    ) -> Outcome {
        match unit.place.take() {
            Some(Place::Here(worker)) => {
                self.give_here(worker, event, Limit::Own(leave.clone(), deadline)).await
            }
            Some(Place::Elsewhere(lent)) => {
                self.0.elsewhere.give(lent, event, (leave.until(deadline), deadline)).await
            }
            None => Outcome::NotSent("no worker has room for it".to_owned()),
        }
    }

    fn free(&self, place: Place) {
        match place {
            Place::Here(worker) => {
                let mut state = self.state();
                let given = state.book.free(worker);
                self.tell(&mut state, given);
            }
            Place::Elsewhere(lent) => self.0.elsewhere.give_back(lent),
        }
    }

    /// Tells those who waited what room they have. What of them has gone leaves its room to the others.
    pub(super) fn tell(&self, state: &mut State, given: Vec<Given>) {
        let mut waiting = VecDeque::from(given);
        let mut told: BTreeMap<(u16, u128), u32> = BTreeMap::new();
        while let Some(Given { asker, pool, worker }) = waiting.pop_front() {
            let is_there = match asker {
                Asker::Shard(shard) => {
                    let is_there = self.0.routes.owns(shard);
                    if is_there {
                        state.units.entry((pool, shard)).or_default().push_back(Place::Here(worker));
                        *told.entry((shard, pool)).or_default() += 1;
                    }
                    is_there
                }
                Asker::Call(call) => state.calls.get(&call).is_some_and(|to| to.send(worker).is_ok()),
            };
            if !is_there {
                waiting.extend(state.book.free(worker));
            }
            state.is_known(pool, self.now_us());
        }
        for ((shard, pool), units) in told {
            self.0.routes.tell(shard, Input::RoomGiven { pool, units });
        }
    }

    // Other processes.

    /// A call of another process asks for room. It has what there is, and what comes, until [`Desk::call_ends`].
    pub(super) fn call(
        &self,
        (pool, of): (u128, &PoolOf),
        want: u32,
    ) -> (u64, Vec<WorkerId>, mpsc::UnboundedReceiver<WorkerId>) {
        let mut state = self.state();
        state.next += 1;
        let (call, (to, from)) = (state.next, mpsc::unbounded_channel());
        let workers = state.book.ask(Asker::Call(call), (pool, &of.queue, &of.requires), want);
        state.calls.insert(call, to);
        (call, workers, from)
    }

    pub(super) fn call_ends(&self, call: u64, (pool, of): (u128, &PoolOf)) {
        let mut state = self.state();
        state.book.unask(Asker::Call(call), pool, &of.queue);
        state.calls.remove(&call);
    }

    /// Room of a worker here goes back that was taken, and has no event.
    pub(super) fn free_here(&self, worker: WorkerId) {
        self.free(Place::Here(worker));
    }

    /// Whether a worker of this process is able to do events of a pool, or one that polled it or has an event of its shards.
    pub(super) fn is_able(&self, of: &PoolOf) -> bool {
        let now = self.now();
        let (is_there, away_us) = {
            let state = self.state();
            (state.book.is_able(&of.queue, &of.requires), state.away.until_us(&of.queue, &of.requires))
        };
        let known_us = || away_us.max(self.taken().until_us(&of.queue, &of.requires, now));
        is_there || known_us().is_some_and(|us| us >= now.mono_us)
    }

    /// What events of a pool need that something waits for here.
    pub(super) fn pool(&self, pool: u128) -> Option<PoolOf> {
        self.state().pools.get(&pool).cloned()
    }

    /// How much room owners here lack of a pool.
    pub(super) fn lacking(&self, pool: u128, of: &PoolOf) -> u32 {
        self.state().book.lacking(pool, &of.queue)
    }

    /// Room at a worker of another process, for whoever waits first.
    pub(super) fn arrives(&self, pool: u128, lent: Lent) {
        let mut state = self.state();
        let Some(of) = state.pools.get(&pool).cloned() else {
            drop(state);
            return self.0.elsewhere.give_back(lent);
        };
        let mut lent = Some(lent);
        while let Some(Asker::Shard(shard)) = state.book.next_for(pool, &of.queue) {
            if !self.0.routes.owns(shard) {
                continue;
            }
            if let Some(lent) = lent.take() {
                state.units.entry((pool, shard)).or_default().push_back(Place::Elsewhere(lent));
                self.0.routes.tell(shard, Input::RoomGiven { pool, units: 1 });
            }
            break;
        }
        state.is_known(pool, self.now_us());
        drop(state);
        if let Some(lent) = lent {
            self.0.elsewhere.give_back(lent);
        }
    }

    /// A worker of another process is able to do events of a pool.
    pub(super) fn able_elsewhere(&self, pool: u128) {
        let now_us = self.now_us();
        self.state().is_known(pool, now_us);
    }
}

impl State {
    fn pool(&mut self, pool: u128, namespace: &str, pull: &PullTarget, now_us: i64) -> PoolOf {
        let new = || PoolOf {
            queue: QueueKey { namespace: namespace.into(), queue: pull.queue().into() },
            requires: pull.requires().into(),
            known_us: now_us,
        };
        self.pools.entry(pool).or_insert_with(new).clone()
    }

    /// A worker is able to do events of a pool.
    pub(super) fn is_known(&mut self, pool: u128, now_us: i64) {
        if let Some(of) = self.pools.get_mut(&pool) {
            of.known_us = now_us;
        }
    }

    /// A pool of which nobody waits, and nobody has room, is forgotten.
    fn tidy(&mut self, pool: u128, queue: &QueueKey) {
        let is_idle = self.book.lacking(pool, queue) == 0;
        if is_idle && self.units.range((pool, 0)..=(pool, u16::MAX)).next().is_none() {
            self.pools.remove(&pool);
        }
    }
}
