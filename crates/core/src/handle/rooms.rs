//! Room at workers: of events that workers pull, only so many start as the workers who are able to do them have room for.
//!
//! In: what waits for room, room that was given. Out: for what room is asked, room that was not used. A pool is a queue of a
//! namespace with what its events require: any worker that is able to do one of its events is able to do all. Invariants: no
//! event of a pool takes a token, or is sent again, without room for it; room that nothing makes use of goes back with the next
//! poll; room is asked for only where tokens are free, so that none is kept from others; nobody walks pools that are not its
//! own. Not here: which worker gets an event.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound::{Excluded, Unbounded};
use std::sync::Arc;

use uuid::Uuid;

use super::exchange::{Pulled, Send};
use super::live::LiveRun;
use super::queue::{Group, Queue};
use super::shard::Shard;
use super::steps::Counted as _;
use super::targets::TargetId;
use crate::model::{Now, PullTarget, RunId, RunSpec};

/// The most room that is asked for at once.
const WANT_MAX: u32 = 1_000;

/// What a shard says of the room that it could make use of.
#[derive(Clone, Debug)]
pub struct RoomAsk {
    /// Stands for the queue, within its namespace, and what is required.
    pub pool: u128,
    /// A spec of the pool: its namespace and its target.
    pub spec: Arc<RunSpec>,
    /// For how many events; 0: for none as things stand.
    pub want: u32,
}

impl RoomAsk {
    /// The queue, and what is required of its workers.
    pub fn pull(&self) -> Option<&PullTarget> {
        self.spec.target.pull()
    }
}

/// What waits for room of one pool, and what there is.
#[derive(Debug)]
struct Pool {
    spec: Arc<RunSpec>,
    /// Room that was given and is not used yet.
    room: u32,
    /// Room that was asked for and has not come: it is given as soon as there is some.
    asked: u32,
    /// The policies of which something waits.
    waiting: BTreeSet<Option<Uuid>>,
    /// Who had the last turn.
    last: Option<Option<Uuid>>,
    /// How many of them have had no turn since room came.
    untried: usize,
    /// Events that hold their tokens and are to be sent again.
    again: BTreeSet<(RunId, u32)>,
}

/// See the head of this file.
#[derive(Debug, Default)]
pub(super) struct Rooms {
    pools: BTreeMap<TargetId, Pool>,
    /// Pools for which room is to be asked.
    asks: BTreeSet<TargetId>,
    /// Pools that have room, or have had some since that was last looked for.
    given: BTreeSet<TargetId>,
    /// Pools of which something waits under a policy that had no tokens when there was room, or could make no use of it.
    vain: BTreeMap<Option<Uuid>, BTreeSet<TargetId>>,
}

impl Rooms {
    /// How many more events of a pool may start.
    pub(super) fn room(&self, pool: TargetId) -> u32 {
        self.pools.get(&pool).map_or(0, |pool| pool.room)
    }

    /// Pools that may have room.
    pub(super) fn with_room(&self) -> Vec<TargetId> {
        self.given.iter().counted().copied().collect()
    }

    /// Whether room is to be asked for before anything is committed.
    pub(super) fn is_asking(&self) -> bool {
        !self.asks.is_empty()
    }

    /// Something under a policy waits for room of a pool.
    pub(super) fn wait(&mut self, pool: TargetId, policy: Option<Uuid>, spec: &Arc<RunSpec>) {
        self.pool(pool, spec).waiting.insert(policy);
        self.asks.insert(pool);
    }

    fn pool(&mut self, pool: TargetId, spec: &Arc<RunSpec>) -> &mut Pool {
        self.pools.entry(pool).or_insert_with(|| Pool {
            spec: Arc::clone(spec),
            room: 0,
            asked: 0,
            waiting: BTreeSet::new(),
            last: None,
            untried: 0,
            again: BTreeSet::new(),
        })
    }

    /// How many events of a run hold their tokens and wait for room.
    pub(super) fn again(&self, pool: TargetId, run: RunId) -> usize {
        self.pools.get(&pool).map_or(0, |pool| pool.again.range((run, 0)..=(run, u32::MAX)).count())
    }

    /// An event of a pool is sent.
    pub(super) fn take(&mut self, pool: TargetId) {
        if let Some(pool) = self.pools.get_mut(&pool) {
            pool.room = pool.room.saturating_sub(1);
        }
    }

    /// An event for which room was taken is not sent after all.
    pub(super) fn put_back(&mut self, pool: TargetId, spec: &Arc<RunSpec>) {
        self.pool(pool, spec).room += 1;
        self.given.insert(pool);
    }

    /// Something of a policy may start, as far as its tokens go.
    pub(super) fn revive(&mut self, policy: Option<Uuid>) {
        if let Some(pools) = self.vain.remove(&policy) {
            self.asks.extend(pools);
        }
    }

    /// A pool of which nothing waits, and which has no room, is forgotten. Whether it was.
    fn tidy(&mut self, pool: TargetId) -> bool {
        let is_idle = |pool: &Pool| pool.room == 0 && pool.waiting.is_empty() && pool.again.is_empty();
        let forgotten = self.pools.get(&pool).is_some_and(is_idle);
        if forgotten {
            self.pools.remove(&pool);
        }
        forgotten
    }
}

impl LiveRun {
    /// The pool of which its events need room, where workers pull them.
    pub(super) fn pool(&self) -> Option<TargetId> {
        self.spec.target.pull().map(|_| self.sharer.target())
    }
}

impl Shard {
    /// For what room is wanted. To be asked after [`Shard::poll_commit`], which comes to nothing as long as something is asked
    /// for; what there is goes to [`Shard::room_given`].
    pub fn rooms_asked(&mut self, now: Now) -> Vec<RoomAsk> {
        let asks = std::mem::take(&mut self.rooms.asks);
        if self.pause.pause.is_some() || self.draining {
            asks.into_iter().for_each(|pool| self.ask_later(pool, now));
            return Vec::new();
        }
        asks.into_iter().filter_map(|pool| self.room_ask(pool, now)).collect()
    }

    /// Nothing starts for now: room is asked for once something may.
    fn ask_later(&mut self, id: TargetId, now: Now) {
        let Some(pool) = self.rooms.pools.get_mut(&id) else { return };
        for policy in pool.waiting.iter().counted() {
            self.rooms.vain.entry(*policy).or_default().insert(id);
        }
        for key in std::mem::take(&mut pool.again) {
            if self.is_to_be_sent_again(key) {
                self.resend(key, now);
            }
        }
    }

    /// An event may have been released, or have given its token back, since it began to wait for room.
    fn is_to_be_sent_again(&self, key: (RunId, u32)) -> bool {
        self.ledger.tokens.get(&key).is_some_and(|token| token.again_us().is_some())
    }

    fn room_ask(&mut self, id: TargetId, now: Now) -> Option<RoomAsk> {
        let pool = self.rooms.pools.get_mut(&id)?;
        let (queues, sends_max) = (&self.queues, self.options.sends_max);
        let is_held =
            |policy: &Option<Uuid>| queues.get(policy).is_some_and(|queue| queue.holds(Group::Room(id)));
        pool.waiting.retain(is_held);
        let mut want = u32::try_from(pool.again.len()).unwrap_or(u32::MAX);
        for policy in pool.waiting.iter().counted() {
            let capacity = self.ledger.bucket(*policy, now).capacity(now, sends_max);
            let starts = capacity.starts.min(capacity.tokens);
            if starts == 0 {
                self.rooms.vain.entry(*policy).or_default().insert(id);
            }
            want = want.saturating_add(starts);
        }
        pool.asked = want.min(WANT_MAX);
        let ask = RoomAsk { pool: id, spec: Arc::clone(&pool.spec), want: pool.asked };
        self.rooms.tidy(id);
        Some(ask)
    }

    /// So many more events of a pool may start. What is not used of it is to be asked for with [`Shard::room_left`]. False where
    /// nothing waits for it: it is not taken.
    pub fn room_given(&mut self, id: u128, room: u32, now: Now) -> bool {
        let Some(pool) = self.rooms.pools.get_mut(&id) else { return false };
        pool.room += room;
        pool.asked = pool.asked.saturating_sub(room);
        self.rooms.given.insert(id);
        // Whoever holds its token first.
        while let Some(pool) = self.rooms.pools.get_mut(&id).filter(|pool| pool.room > 0)
            && let Some(key) = pool.again.pop_first()
        {
            if self.is_to_be_sent_again(key) {
                self.resend(key, now);
            }
        }
        if let Some(pool) = self.rooms.pools.get_mut(&id) {
            pool.untried = pool.waiting.len();
        }
        self.offer(id, now);
        true
    }

    /// As many policies as can make use of a pool's room have their turn next, those first that come after the one that was last.
    /// Whether any has.
    fn offer(&mut self, id: TargetId, now: Now) -> bool {
        let Some(pool) = self.rooms.pools.get_mut(&id) else { return false };
        let (mut left, mut offered) = (pool.room, false);
        while left > 0 && pool.untried > 0 {
            pool.untried -= 1;
            let later = pool.waiting.range((pool.last.map_or(Unbounded, Excluded), Unbounded)).next();
            let Some(policy) = later.or(pool.waiting.first()).copied() else { break };
            pool.last = Some(policy);
            let capacity = self.ledger.bucket(policy, now).capacity(now, self.options.sends_max);
            let starts = capacity.starts.min(capacity.tokens);
            if starts > 0 {
                left = left.saturating_sub(starts);
                self.ledger.ready.insert(policy);
                offered = true;
            }
        }
        offered
    }

    /// What has made no use of room leaves it to others that wait for it here. Whether there are any.
    pub(super) fn offer_further(&mut self, now: Now) -> bool {
        let mut offered = false;
        for pool in self.rooms.with_room() {
            offered |= self.offer(pool, now);
        }
        offered
    }

    /// Where all that was asked for is used, there may be more of which use can be made.
    pub(super) fn ask_further(&mut self) {
        let Rooms { pools, asks, given, .. } = &mut self.rooms;
        let used = |id: &TargetId| pools.get(id).is_some_and(|pool| pool.room + pool.asked == 0);
        let further: Vec<_> = given.iter().counted().copied().filter(used).collect();
        for id in further {
            given.remove(&id);
            asks.insert(id);
        }
    }

    /// By pool, room that nothing has made use of; 0 of one of which nothing waits any more.
    pub fn room_left(&mut self) -> Vec<(u128, u32)> {
        let mut left = Vec::new();
        for id in std::mem::take(&mut self.rooms.given) {
            let Some(pool) = self.rooms.pools.get_mut(&id) else { continue };
            let room = std::mem::take(&mut pool.room);
            if room > 0 {
                pool.asked = 0;
                left.push((id, room));
                for policy in pool.waiting.iter().counted() {
                    self.rooms.vain.entry(*policy).or_default().insert(id);
                }
            }
            if self.rooms.tidy(id) && room == 0 {
                left.push((id, 0));
            }
        }
        left
    }

    /// Whether an event that holds its token and is to be sent again has to wait for room. It is sent once there is some.
    pub(super) fn waits_for_room(&mut self, key: (RunId, u32)) -> bool {
        let Some(run) = self.ledger.runs.get(&key.0) else { return false };
        let Some(id) = run.pool().filter(|pool| self.rooms.room(*pool) == 0) else { return false };
        let spec = Arc::clone(&run.spec);
        let pool = self.rooms.pool(id, &spec);
        pool.again.insert(key);
        self.rooms.asks.insert(id);
        true
    }

    /// The event of a delivery that is not made after all leaves its room to others.
    pub(super) fn put_back_room(&mut self, send: &Send) {
        if let Some(Pulled { pool, .. }) = send.pulled {
            self.rooms.put_back(pool, &send.spec);
        }
    }

    /// Whether an event of a run waits for a worker that has room.
    pub(super) fn lacks_room(&self, run: &LiveRun) -> bool {
        let policy = run.row.policy_uid;
        let held =
            |pool| self.queues.get(&policy).is_some_and(|queue: &Queue| queue.holds(Group::Room(pool)));
        run.pool().is_some_and(held)
    }
}
