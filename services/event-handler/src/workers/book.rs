//! Decides which worker is given the next event, and who of those that wait gets room that comes free.
//!
//! In: workers that come, go and change; asks for room. Out: units of room, each at one worker, and who is to have them.
//! Invariants: a worker is never given more than its capacity; of the workers that are able to do an event, those go first that
//! are able to do little else, then those that have the least to do, then those that waited longest; room goes to those who wait,
//! pool by pool and within a pool one after the other; kinds of workers that do not fit are not looked at one by one. Not here:
//! streams, calls, time.

use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::sync::Arc;

use super::lack::Lack;

/// The most kinds of workers of a queue: sets of labels.
const KINDS_MAX: usize = 64;

/// A worker, as long as it is there.
pub(super) type WorkerId = u64;

/// A queue within its namespace.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct QueueKey {
    pub(super) namespace: Arc<str>,
    pub(super) queue: Arc<str>,
}

/// Labels, in order, each once.
pub(super) type Labels = Arc<[String]>;

/// What events of a pool need.
#[derive(Clone, Debug)]
pub(super) struct PoolOf {
    pub(super) queue: QueueKey,
    pub(super) requires: Labels,
    /// When a worker was last known to be able to do them, or they came (monotonic).
    pub(super) known_us: i64,
}

/// Who asks for room.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) enum Asker {
    /// A queue shard of this process.
    Shard(u16),
    /// A call of another process.
    Call(u64),
}

/// A unit of room for somebody who waited for it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Given {
    pub(super) asker: Asker,
    pub(super) pool: u128,
    pub(super) worker: WorkerId,
}

/// Why a worker cannot be taken in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct TooManyKinds;

impl TooManyKinds {
    /// How many there may be.
    pub(super) const MAX: usize = KINDS_MAX;
}

/// Its place among those of its kind that have room: the fuller, the later.
type Place = (u32, u64, WorkerId);

#[derive(Debug)]
struct Worker {
    queue: QueueKey,
    labels: Labels,
    capacity: u32,
    /// Units of its room that are somebody's, or hold an event.
    taken: u32,
    /// When it had its last turn.
    turn: u64,
}

impl Worker {
    fn room(&self) -> u32 {
        self.capacity.saturating_sub(self.taken)
    }

    fn place(&self, id: WorkerId) -> Place {
        let full = u64::from(self.taken) * 1_000 / u64::from(self.capacity.max(1));
        (u32::try_from(full).unwrap_or(u32::MAX), self.turn, id)
    }
}

#[derive(Debug, Default)]
struct Kind {
    workers: u32,
    /// Those that have room.
    free: BTreeSet<Place>,
}

/// Those that wait for room of one pool.
#[derive(Debug)]
struct Waiting {
    requires: Labels,
    /// How many units each lacks.
    lacks: HashMap<Asker, u32>,
    /// In the order of their turns.
    order: VecDeque<Asker>,
}

#[derive(Debug, Default)]
struct Queue {
    /// By how many labels they have, then by these.
    kinds: BTreeMap<(usize, Labels), Kind>,
    waiting: BTreeMap<u128, Waiting>,
    /// The pool that had the last turn.
    last: u128,
}

/// See the head of this file.
#[derive(Debug, Default)]
pub(super) struct Book {
    workers: HashMap<WorkerId, Worker>,
    queues: BTreeMap<QueueKey, Queue>,
    turns: u64,
}

impl Book {
    /// A worker is there, with this capacity. Who is given room now.
    ///
    /// # Errors
    /// Its queue has too many kinds of workers already.
    pub(super) fn join(
        &mut self,
        id: WorkerId,
        (queue, labels): (QueueKey, Labels),
        capacity: u32,
    ) -> Result<Vec<Given>, TooManyKinds> {
        let kinds = &mut self.queues.entry(queue.clone()).or_default().kinds;
        let kind = (labels.len(), labels.clone());
        if kinds.len() >= KINDS_MAX && !kinds.contains_key(&kind) {
            return Err(TooManyKinds);
        }
        kinds.entry(kind).or_default().workers += 1;
        self.turns += 1;
        self.workers.insert(id, Worker { queue, labels, capacity: 0, taken: 0, turn: self.turns });
        Ok(self.resize(id, capacity))
    }

    /// A worker has gone, with all that it had.
    pub(super) fn leave(&mut self, id: WorkerId) {
        self.set(id, |worker| worker.capacity = 0);
        let Some(worker) = self.workers.remove(&id) else { return };
        let Some(queue) = self.queues.get_mut(&worker.queue) else { return };
        let kind = (worker.labels.len(), worker.labels);
        if let Some(found) = queue.kinds.get_mut(&kind) {
            found.workers -= 1;
            if found.workers == 0 {
                queue.kinds.remove(&kind);
            }
        }
        self.tidy(&worker.queue);
    }

    /// A worker does more, or less, at once. Who is given room now.
    pub(super) fn resize(&mut self, id: WorkerId, capacity: u32) -> Vec<Given> {
        self.set(id, |worker| worker.capacity = capacity);
        self.share_out(id)
    }

    /// A unit of a worker's room is free. Who is given it.
    pub(super) fn free(&mut self, id: WorkerId) -> Vec<Given> {
        self.set(id, |worker| worker.taken = worker.taken.saturating_sub(1));
        self.share_out(id)
    }

    /// Somebody asks for room of a pool: what there is at once. For what is lacking it waits, until it asks for none.
    pub(super) fn ask(
        &mut self,
        asker: Asker,
        (pool, queue, requires): (u128, &QueueKey, &Labels),
        want: u32,
    ) -> Vec<WorkerId> {
        let mut workers = Vec::new();
        while (workers.len() as u64) < u64::from(want)
            && let Some(worker) = self.take(queue, requires)
        {
            workers.push(worker);
        }
        let lacks = want - u32::try_from(workers.len()).unwrap_or(want);
        if lacks == 0 {
            self.unask(asker, pool, queue);
            return workers;
        }
        let waiting = self.queues.entry(queue.clone()).or_default().waiting.entry(pool);
        let waiting = waiting.or_insert_with(|| Waiting {
            requires: requires.clone(),
            lacks: HashMap::new(),
            order: VecDeque::new(),
        });
        if waiting.lacks.insert(asker, lacks).is_none() {
            waiting.order.push_back(asker);
        }
        workers
    }

    /// Somebody waits for room of a pool no longer.
    pub(super) fn unask(&mut self, asker: Asker, pool: u128, queue: &QueueKey) {
        let Some(found) = self.queues.get_mut(queue) else { return };
        if let Some(waiting) = found.waiting.get_mut(&pool)
            && waiting.lacks.remove(&asker).is_some()
        {
            waiting.order.retain(|other| *other != asker);
            if waiting.order.is_empty() {
                found.waiting.remove(&pool);
            }
        }
        self.tidy(queue);
    }

    /// How much room all that wait for a pool lack.
    pub(super) fn lacking(&self, pool: u128, queue: &QueueKey) -> u32 {
        let waiting = self.queues.get(queue).and_then(|queue| queue.waiting.get(&pool));
        waiting.map_or(0, |waiting| waiting.lacks.values().fold(0, |sum, lacks| sum.saturating_add(*lacks)))
    }

    /// The pools of a queue of which something waits.
    pub(super) fn waiting(&self, queue: &QueueKey) -> Vec<u128> {
        self.queues.get(queue).map(|queue| queue.waiting.keys().copied().collect()).unwrap_or_default()
    }

    /// Who is next for a unit of room of this pool that is at no worker of this process.
    pub(super) fn next_for(&mut self, pool: u128, queue: &QueueKey) -> Option<Asker> {
        let found = self.queues.get_mut(queue)?;
        let asker = found.next_of(pool);
        self.tidy(queue);
        asker
    }

    /// Whether a worker of a queue is able to do what requires these labels, however much it has to do.
    pub(super) fn is_able(&self, queue: &QueueKey, requires: &[String]) -> bool {
        let able = |queue: &Queue| queue.kinds.keys().any(|(_, labels)| fits(labels, requires));
        self.queues.get(queue).is_some_and(able)
    }

    /// What the workers of a queue lack for what requires these labels.
    pub(super) fn lack(&self, queue: &QueueKey, requires: &[String]) -> Lack {
        let kinds = self.queues.get(queue).into_iter().flat_map(|queue| &queue.kinds);
        Lack::of(kinds.map(|((_, labels), kind)| (&**labels, kind.workers)), requires)
    }

    /// What a worker may have, what it has, and its room.
    pub(super) fn of(&self, id: WorkerId) -> Option<(u32, u32, u32)> {
        self.workers.get(&id).map(|worker| (worker.capacity, worker.taken, worker.room()))
    }

    fn take(&mut self, queue: &QueueKey, requires: &[String]) -> Option<WorkerId> {
        let kinds = &self.queues.get(queue)?.kinds;
        let mut able = kinds.iter().filter(|((_, labels), _)| fits(labels, requires));
        let (_, _, id) = *able.find_map(|(_, kind)| kind.free.first())?;
        self.take_of(id);
        Some(id)
    }

    fn take_of(&mut self, id: WorkerId) {
        self.turns += 1;
        let turn = self.turns;
        self.set(id, |worker| (worker.taken, worker.turn) = (worker.taken + 1, turn));
    }

    /// Gives a worker's room to those that wait.
    fn share_out(&mut self, id: WorkerId) -> Vec<Given> {
        let mut given = Vec::new();
        while let Some(worker) = self.workers.get(&id).filter(|worker| worker.room() > 0) {
            let (queue, labels) = (worker.queue.clone(), worker.labels.clone());
            let Some((pool, asker)) = self.queues.get_mut(&queue).and_then(|queue| queue.next_able(&labels))
            else {
                break;
            };
            self.take_of(id);
            given.push(Given { asker, pool, worker: id });
        }
        given
    }

    fn set(&mut self, id: WorkerId, change: impl FnOnce(&mut Worker)) {
        let Some(worker) = self.workers.get_mut(&id) else { return };
        let kinds = self.queues.get_mut(&worker.queue).map(|queue| &mut queue.kinds);
        let kind = kinds.and_then(|kinds| kinds.get_mut(&(worker.labels.len(), worker.labels.clone())));
        let Some(kind) = kind else { return };
        if worker.room() > 0 {
            kind.free.remove(&worker.place(id));
        }
        change(worker);
        if worker.room() > 0 {
            kind.free.insert(worker.place(id));
        }
    }

    fn tidy(&mut self, queue: &QueueKey) {
        let is_idle = |queue: &Queue| queue.kinds.is_empty() && queue.waiting.is_empty();
        if self.queues.get(queue).is_some_and(is_idle) {
            self.queues.remove(queue);
        }
    }
}

impl Queue {
    /// Whose turn it is of those that a worker with these labels may work for: one pool after the other.
    fn next_able(&mut self, labels: &[String]) -> Option<(u128, Asker)> {
        let last = self.last;
        let later = self.waiting.range(last.saturating_add(1)..);
        let earlier = self.waiting.range(..=last);
        let mut able = later.chain(earlier).filter(|(_, waiting)| fits(labels, &waiting.requires));
        let pool = *able.next()?.0;
        self.last = pool;
        Some((pool, self.next_of(pool)?))
    }

    fn next_of(&mut self, pool: u128) -> Option<Asker> {
        let waiting = self.waiting.get_mut(&pool)?;
        let asker = waiting.order.pop_front()?;
        if let Some(lacks) = waiting.lacks.get_mut(&asker) {
            *lacks -= 1;
            if *lacks == 0 {
                waiting.lacks.remove(&asker);
            } else {
                waiting.order.push_back(asker);
            }
        }
        if waiting.order.is_empty() {
            self.waiting.remove(&pool);
        }
        Some(asker)
    }
}

/// Whether somebody with these labels has all that is required; both are in order.
pub(super) fn fits(labels: &[String], requires: &[String]) -> bool {
    requires.iter().all(|label| labels.binary_search(label).is_ok())
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]
    use super::*;

    fn queue() -> QueueKey {
        QueueKey { namespace: "team".into(), queue: "render".into() }
    }

    fn labels(text: &str) -> Labels {
        text.split_whitespace().map(str::to_owned).collect()
    }

    /// A pool for each set of labels.
    fn pool(requires: &str) -> u128 {
        requires.bytes().fold(7, |sum, byte| sum * 31 + u128::from(byte))
    }

    impl Book {
        fn joins(&mut self, id: WorkerId, able: &str, capacity: u32) -> Vec<Given> {
            self.join(id, (queue(), labels(able)), capacity).unwrap()
        }

        fn asks(&mut self, shard: u16, requires: &str, want: u32) -> Vec<WorkerId> {
            let of = labels(requires);
            self.ask(Asker::Shard(shard), (pool(requires), &queue(), &of), want)
        }
    }

    fn to(given: &[Given]) -> Vec<u16> {
        let shard = |given: &Given| match given.asker {
            Asker::Shard(shard) => shard,
            Asker::Call(_) => u16::MAX,
        };
        given.iter().map(shard).collect()
    }

    #[test]
    fn who_is_able_to_do_little_else_goes_first_then_who_has_least_to_do() {
        let mut book = Book::default();
        book.joins(1, "eu gpu", 2);
        book.joins(2, "gpu", 2);
        book.joins(3, "", 1);
        book.joins(4, "gpu", 4);
        assert_eq!(book.asks(0, "gpu", 8), [2, 4, 4, 2, 4, 4, 1, 1], "by halves and quarters");
        assert_eq!(book.asks(0, "", 2), [3], "and one is lacking");
        assert_eq!(book.lacking(pool(""), &queue()), 1);
        assert_eq!(to(&book.free(1)), [0], "who is able to do more does it, too");
        assert_eq!(book.of(1), Some((2, 2, 0)));
    }

    #[test]
    fn who_waits_is_given_what_comes_free_pool_by_pool_and_one_after_the_other() {
        let mut book = Book::default();
        for shard in [1, 2] {
            assert!(book.asks(shard, "gpu", 2).is_empty());
        }
        assert!(book.asks(3, "", 1).is_empty());
        assert!(book.asks(9, "arm", 5).is_empty());
        let given = book.joins(1, "gpu", 10);
        let mut shards = to(&given);
        assert_eq!(shards.len(), 5, "nothing for what it is not able to do");
        shards.sort_unstable();
        assert_eq!(shards, [1, 1, 2, 2, 3]);
        let of_gpu: Vec<_> = given.iter().filter(|given| given.pool == pool("gpu")).cloned().collect();
        assert_eq!(to(&of_gpu), [1, 2, 1, 2], "in turns");
        assert_eq!(book.of(1), Some((10, 5, 5)));
        assert!(book.is_able(&queue(), &labels("gpu")) && !book.is_able(&queue(), &labels("arm")));
    }

    #[test]
    fn a_worker_never_has_more_than_its_capacity_and_leaves_nothing_behind() {
        let mut book = Book::default();
        book.joins(1, "", 3);
        assert_eq!(book.asks(0, "", 2).len(), 2);
        assert!(book.resize(1, 1).is_empty());
        assert_eq!((book.of(1), book.asks(0, "", 1)), (Some((1, 2, 0)), vec![]));
        assert!(book.free(1).is_empty(), "it has one too many still");
        assert_eq!(to(&book.free(1)), [0]);
        assert!(book.resize(1, 0).is_empty() && book.free(1).is_empty() && book.asks(0, "", 1).is_empty());
        book.leave(1);
        assert!(book.free(1).is_empty(), "it has gone");
        book.unask(Asker::Shard(0), pool(""), &queue());
        assert!(book.queues.is_empty() && book.workers.is_empty(), "{book:?}");
    }

    #[test]
    fn kinds_of_workers_are_bounded_and_workers_of_a_kind_are_not() {
        let mut book = Book::default();
        for kind in 0..KINDS_MAX as u64 {
            book.joins(kind, &format!("l{kind}"), 1);
        }
        assert_eq!(book.join(100, (queue(), labels("other")), 1), Err(TooManyKinds));
        book.joins(101, "l1", 1);
        book.leave(5);
        book.joins(102, "other", 1);
    }

    #[test]
    fn thousands_of_workers_are_not_walked_for_one_event() {
        let mut book = Book::default();
        for id in 0..50_000 {
            book.joins(id, "gpu", 1);
        }
        let mut given = BTreeSet::new();
        for _ in 0..50_000 {
            given.extend(book.asks(0, "gpu", 1));
        }
        // With a walk for each it would take minutes.
        assert_eq!(given.len(), 50_000, "each once");
    }
}
