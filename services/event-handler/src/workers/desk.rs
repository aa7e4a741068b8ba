//! Has room at workers ready for the owners of queue shards, and hands events over to workers.
//!
//! In: workers that come, say something and go; asks for room; events. Out: room, and what became of each event.
//! Invariants: each unit of room is at one worker, and one owner's or one event's; what nobody uses goes back, whoever dies; of
//! an event that has not been written to its worker's stream it is known that the worker does not have it, of any other that it
//! has not accepted nobody knows. Not here: who is next (`book`), streams and calls, other processes (`elsewhere`).

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::{mpsc, oneshot};
use tokio::time::Instant;
use tollgate_clock::Clock;
use tollgate_core::handle::RoomAsk;
use tollgate_core::model::PullTarget;
use tollgate_proto::v1;

use super::book::{Asker, Book, Given, Labels, QueueKey, TooManyKinds, WorkerId};
use super::elsewhere::Elsewhere;
use crate::routes::{Input, Routes};

/// The most workers of a process.
const WORKERS_MAX: usize = 20_000;
/// Of what all others leave of them, one part in this many is left free by each namespace.
const LEFT_TO_OTHERS: usize = 4;
/// How many of its events are named of a worker.
const NAMED_MAX: usize = 10;

/// What became of an event that was to be handed over.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// The worker has it.
    Accepted,
    /// The worker does not have it.
    NotSent(String),
    /// Nobody knows.
    Unclear(String),
}

/// An event on its way to a worker.
#[derive(Debug)]
pub(super) struct Handed {
    pub(super) event: v1::WorkEvent,
    pub(super) way: Arc<Way>,
    pub(super) reply: oneshot::Sender<Outcome>,
}

/// How far an event has come: it is written or withdrawn, and never both.
#[derive(Debug, Default)]
pub(super) struct Way(AtomicU8);

impl Way {
    const WRITTEN: u8 = 1;
    const WITHDRAWN: u8 = 2;

    /// It is about to be written. False where it has been withdrawn.
    pub(super) fn write(&self) -> bool {
        self.0.compare_exchange(0, Self::WRITTEN, Ordering::AcqRel, Ordering::Acquire).is_ok()
    }

    /// It is not to be written. False where it has been.
    fn withdraw(&self) -> bool {
        self.0.compare_exchange(0, Self::WITHDRAWN, Ordering::AcqRel, Ordering::Acquire).is_ok()
    }
}

/// Who a worker says that it is.
#[derive(Clone, Debug)]
pub(super) struct Profile {
    pub(super) queue: QueueKey,
    pub(super) labels: Labels,
    pub(super) name: String,
    pub(super) polls: bool,
}

/// Why a worker is not taken in.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum Refused {
    /// There are too many.
    #[error("too many workers of this namespace are connected to this process; try again, or connect to another")]
    TooMany,
    /// They differ too much.
    #[error("the workers of this queue have {0} different sets of labels already")]
    TooManyKinds(usize),
    /// The process is about to end.
    #[error("this process is about to end; connect to another")]
    Ending,
}

/// What a worker has of one event.
#[derive(Debug)]
struct Held {
    attempt: u32,
    since_us: i64,
    /// Units of its room: two where it was given the event once more before it was done with it.
    units: u32,
    /// Hears whether it accepts.
    reply: Option<oneshot::Sender<Outcome>>,
}

#[derive(Debug)]
struct Session {
    profile: Profile,
    to: mpsc::UnboundedSender<Handed>,
    events: HashMap<String, Held>,
    connected_us: i64,
    sign_us: i64,
    given: u64,
}

/// Where a unit of room is.
#[derive(Debug)]
enum Place {
    Here(WorkerId),
    Elsewhere(super::elsewhere::Lent),
}

/// What events of a pool need.
#[derive(Clone, Debug)]
pub(super) struct PoolOf {
    pub(super) queue: QueueKey,
    pub(super) requires: Labels,
    /// When a worker was last known to be able to do them, or they came (monotonic).
    pub(super) known_us: i64,
}

#[derive(Debug, Default)]
struct State {
    book: Book,
    sessions: HashMap<WorkerId, Session>,
    by_namespace: BTreeMap<Arc<str>, usize>,
    pools: HashMap<u128, PoolOf>,
    /// Room that owners have and no event has yet.
    units: BTreeMap<(u128, u16), VecDeque<Place>>,
    /// Calls of other processes that wait for room.
    calls: HashMap<u64, mpsc::UnboundedSender<WorkerId>>,
    next: u64,
    ending: bool,
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
        Self(Arc::new(Inner { state: Mutex::default(), routes, clock, elsewhere }))
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn now_us(&self) -> i64 {
        self.0.clock.mono_us()
    }

    pub(crate) fn elsewhere(&self) -> &Elsewhere {
        &self.0.elsewhere
    }

    // Owners.

    /// An owner asks for room: how much it has at once. What it lacks comes as [`Input::RoomGiven`].
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
        drop(state);
        if given < ask.want {
            self.0.elsewhere.look(self, ask.pool, &of);
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
        (until, deadline): (Instant, Duration),
    ) -> Outcome {
        match unit.place.take() {
            Some(Place::Here(worker)) => {
                let outcome = self.give_here(worker, event, until).await;
                if matches!(outcome, Outcome::NotSent(_)) {
                    self.free(Place::Here(worker));
                }
                outcome
            }
            Some(Place::Elsewhere(lent)) => self.0.elsewhere.give(lent, event, (until, deadline)).await,
            None => Outcome::NotSent("no worker has room for it".to_owned()),
        }
    }

    /// To a worker of this process of which room was taken.
    pub(super) async fn give_here(&self, worker: WorkerId, event: v1::WorkEvent, until: Instant) -> Outcome {
        let (reply, answer) = oneshot::channel();
        let way = Arc::new(Way::default());
        {
            let state = self.state();
            let Some(session) = state.sessions.get(&worker) else {
                return Outcome::NotSent("its worker has gone".to_owned());
            };
            let handed = Handed { event, way: way.clone(), reply };
            if session.to.send(handed).is_err() {
                return Outcome::NotSent("its worker has gone".to_owned());
            }
        }
        match tokio::time::timeout_at(until, answer).await {
            Ok(Ok(outcome)) => outcome,
            Ok(Err(_)) | Err(_) if way.withdraw() => {
                Outcome::NotSent("it could not be written to its worker's stream in time".to_owned())
            }
            Ok(Err(_)) => Outcome::Unclear("its worker's stream broke before it was accepted".to_owned()),
            Err(_) => Outcome::Unclear("its worker did not accept it in time".to_owned()),
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
    fn tell(&self, state: &mut State, given: Vec<Given>) {
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

    // Workers.

    /// A worker is there. Its id, and what it is given.
    pub(super) fn join(
        &self,
        profile: Profile,
        capacity: u32,
    ) -> Result<(WorkerId, mpsc::UnboundedReceiver<Handed>), Refused> {
        let mut state = self.state();
        if state.ending {
            return Err(Refused::Ending);
        }
        let namespace = profile.queue.namespace.clone();
        let own = state.by_namespace.get(&namespace).copied().unwrap_or_default();
        let free = WORKERS_MAX.saturating_sub(state.sessions.len() - own);
        if own >= free - free / LEFT_TO_OTHERS {
            return Err(Refused::TooMany);
        }
        state.next += 1;
        let (id, now_us) = (state.next, self.now_us());
        let (to, from) = mpsc::unbounded_channel();
        let of = (profile.queue.clone(), profile.labels.clone());
        let session =
            Session { profile, to, events: HashMap::new(), connected_us: now_us, sign_us: now_us, given: 0 };
        state.sessions.insert(id, session);
        match state.book.join(id, of, capacity) {
            Ok(given) => {
                *state.by_namespace.entry(namespace).or_default() += 1;
                self.tell(&mut state, given);
                Ok((id, from))
            }
            Err(TooManyKinds) => {
                state.sessions.remove(&id);
                Err(Refused::TooManyKinds(TooManyKinds::MAX))
            }
        }
    }

    /// A worker has gone. Nobody knows of what was written to it and it has not accepted.
    pub(super) fn leave(&self, id: WorkerId) {
        let now_us = self.now_us();
        let mut state = self.state();
        state.book.leave(id);
        let Some(session) = state.sessions.remove(&id) else { return };
        // What it was able to do is not without a worker before others have had time to come.
        for pool in state.book.waiting(&session.profile.queue) {
            state.is_known(pool, now_us);
        }
        let namespace = &session.profile.queue.namespace;
        if let Some(count) = state.by_namespace.get_mut(namespace) {
            *count -= 1;
            if *count == 0 {
                state.by_namespace.remove(namespace);
            }
        }
    }

    /// A worker does so many events at once from now on.
    pub(super) fn resize(&self, id: WorkerId, capacity: u32) {
        let mut state = self.state();
        let given = state.book.resize(id, capacity);
        self.tell(&mut state, given);
    }

    /// A worker has said something.
    pub(super) fn sign(&self, id: WorkerId) {
        let now_us = self.now_us();
        if let Some(session) = self.state().sessions.get_mut(&id) {
            session.sign_us = now_us;
        }
    }

    /// An event is being written to its worker, which is to accept it.
    pub(super) fn written(&self, id: WorkerId, handed: Handed) {
        let now_us = self.now_us();
        let mut state = self.state();
        let Some(session) = state.sessions.get_mut(&id) else { return };
        session.given += 1;
        let v1::WorkEvent { name, attempt, .. } = handed.event;
        let held = Held { attempt, since_us: now_us, units: 1, reply: Some(handed.reply) };
        let units = session.events.get(&name).map_or(1, |before| before.units + 1);
        session.events.insert(name, Held { units, ..held });
    }

    /// A worker accepts an event.
    ///
    /// # Errors
    /// What is wrong: it was not given the event under this attempt.
    pub(super) fn accept(&self, id: WorkerId, name: &str, attempt: u32) -> Result<(), &'static str> {
        let mut state = self.state();
        let held = state.sessions.get_mut(&id).and_then(|session| session.events.get_mut(name));
        match held {
            None => Err("an event that this stream was given and the worker is not done with"),
            Some(held) if attempt > held.attempt => Err("an event under an attempt that this stream was given"),
            // One under an earlier attempt, or after its time, has been given once more: this says nothing of that.
            Some(held) if attempt < held.attempt => Ok(()),
            Some(held) => {
                if let Some(reply) = held.reply.take() {
                    // Nobody waits for it any more if it comes too late.
                    let _late = reply.send(Outcome::Accepted);
                }
                Ok(())
            }
        }
    }

    /// A worker is done with an event: it has accepted it, if it has not said so, and its room is there again.
    pub(super) fn done(&self, id: WorkerId, name: &str) {
        let mut state = self.state();
        let Some(session) = state.sessions.get_mut(&id) else { return };
        let Some(held) = session.events.remove(name) else { return };
        if let Some(reply) = held.reply {
            let _late = reply.send(Outcome::Accepted);
        }
        for _ in 0..held.units {
            let given = state.book.free(id);
            self.tell(&mut state, given);
        }
    }

    /// How many units of a worker's room are somebody's and have no event yet.
    pub(super) fn promised(&self, id: WorkerId) -> usize {
        let state = self.state();
        let taken = state.book.of(id).map_or(0, |(_, taken, _)| taken as usize);
        let held = state.sessions.get(&id).map_or(0, |session| session.events.len());
        taken.saturating_sub(held)
    }

    /// The process is about to end: no worker is given anything more.
    pub(crate) fn end(&self) {
        let mut state = self.state();
        state.ending = true;
        for id in state.sessions.keys().copied().collect::<Vec<_>>() {
            let _nobody = state.book.resize(id, 0);
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

    /// Room of a worker here that was taken for another process goes back.
    pub(super) fn free_here(&self, worker: WorkerId) {
        self.free(Place::Here(worker));
    }

    /// Whether a worker of this process is able to do events of a pool.
    pub(super) fn is_able(&self, of: &PoolOf) -> bool {
        self.state().book.is_able(&of.queue, &of.requires)
    }

    /// How much room owners here lack of a pool.
    pub(super) fn lacking(&self, pool: u128, of: &PoolOf) -> u32 {
        self.state().book.lacking(pool, &of.queue)
    }

    /// Room at a worker of another process, for whoever waits first.
    pub(super) fn arrives(&self, pool: u128, lent: super::elsewhere::Lent) {
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

    // People.

    /// Pools of which something has waited so long, in microseconds, without any worker that is able to do it.
    pub(crate) fn unable(&self, for_us: i64) -> Vec<(u128, PoolOf)> {
        let until_us = self.now_us() - for_us;
        let state = self.state();
        let is_unable = |(pool, of): &(&u128, &PoolOf)| {
            of.known_us <= until_us
                && state.book.lacking(**pool, &of.queue) > 0
                && !state.book.is_able(&of.queue, &of.requires)
        };
        state.pools.iter().filter(is_unable).map(|(pool, of)| (*pool, of.clone())).collect()
    }

    /// The workers of a namespace, or of one queue of it, by queue and name.
    pub(super) fn list(&self, namespace: &str, queue: Option<&str>) -> Vec<v1::Worker> {
        let now = self.0.clock.now();
        let wall = |mono_us: i64| tollgate_proto::convert::timestamp(now.wall_us - (now.mono_us - mono_us));
        let state = self.state();
        let own = state.sessions.iter().filter(|(_, session)| {
            let of = &session.profile.queue;
            *of.namespace == *namespace && queue.is_none_or(|queue| *of.queue == *queue)
        });
        let mut workers: Vec<_> = own
            .map(|(id, session)| {
                let (capacity, _, room) = state.book.of(*id).unwrap_or_default();
                let mut events: Vec<_> =
                    session.events.iter().map(|(name, held)| (held.since_us, name)).collect();
                events.sort_unstable();
                let Profile { queue, labels, name, polls } = &session.profile;
                v1::Worker {
                    queue: format!("namespaces/{}/queues/{}", queue.namespace, queue.queue),
                    id: id.to_string(),
                    worker: name.clone(),
                    labels: labels.to_vec(),
                    capacity,
                    room,
                    events_count: u32::try_from(events.len()).unwrap_or(u32::MAX),
                    events: events.into_iter().take(NAMED_MAX).map(|(_, name)| name.clone()).collect(),
                    connect_time: Some(wall(session.connected_us)),
                    last_sign_time: Some(wall(session.sign_us)),
                    polls: *polls,
                    given_count: session.given,
                }
            })
            .collect();
        workers.sort_by(|a, b| (&a.queue, &a.worker, &a.id).cmp(&(&b.queue, &b.worker, &b.id)));
        workers
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
    fn is_known(&mut self, pool: u128, now_us: i64) {
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
