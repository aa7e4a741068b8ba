//! The events of a queue shard that workers took by polls: between two polls, such a worker is seen by what it has.
//!
//! In: events that were accepted by polls, heartbeats; which events are in flight, as the machine knows. Out: workers, each with
//! what it has. Invariants: what is no longer in flight is not shown, and goes before there is twice as much of it as there was
//! of what was; nothing is decided by it, so that a process that ends, or a policy that moves, may lose it. Not here: workers
//! that are connected ([`super::floor`]).

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use tollgate_core::model::{EventRef, RunId};
use tollgate_proto::{convert, v1};

use super::book::Labels;

/// How many of its events are named of a worker.
pub(super) const NAMED_MAX: usize = 10;
/// Below so many events nothing is looked for that has ended.
const KEPT_MIN: usize = 256;

/// Who a worker that polls says that it is.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Poller {
    pub(super) name: String,
    pub(super) labels: Labels,
}

impl Poller {
    pub(super) fn new(name: String, labels: Labels) -> Self {
        Self { name, labels }
    }

    /// As it is told to another process: its name, what it is able to do.
    pub(super) fn told(&self) -> (String, Vec<String>) {
        (self.name.clone(), self.labels.to_vec())
    }
}

#[derive(Debug)]
struct Has {
    named_shard: u16,
    attempt: u32,
    by: Arc<Poller>,
    since_us: i64,
    sign_us: i64,
}

/// See the head of this file.
#[derive(Debug)]
pub(crate) struct Taken {
    of: HashMap<(RunId, u32), Has>,
    /// How many there are before what has ended is looked for.
    full: usize,
}

impl Default for Taken {
    fn default() -> Self {
        Self { of: HashMap::new(), full: KEPT_MIN }
    }
}

/// A worker with what it has of one shard.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct AtWork {
    events: Vec<(i64, EventRef)>,
    since_us: i64,
    sign_us: i64,
}

/// The workers of a shard, by queue.
pub(crate) type Workers = BTreeMap<(String, Arc<Poller>), AtWork>;

impl Taken {
    /// A worker has taken an event. `is_held`: whether an event is in flight under an attempt.
    pub(crate) fn note(
        &mut self,
        (event, attempt): (EventRef, u32),
        by: Arc<Poller>,
        now_us: i64,
        is_held: impl Fn(RunId, u32, u32) -> bool,
    ) {
        if self.of.len() >= self.full {
            self.of.retain(|(run, index), has| is_held(*run, *index, has.attempt));
            self.full = KEPT_MIN.max(2 * self.of.len());
        }
        let has = Has { named_shard: event.shard, attempt, by, since_us: now_us, sign_us: now_us };
        self.of.insert((event.run, event.index), has);
    }

    /// A worker has said that it still works on an event.
    pub(crate) fn sign(&mut self, run: RunId, index: u32, now_us: i64) {
        if let Some(has) = self.of.get_mut(&(run, index)) {
            has.sign_us = now_us;
        }
    }

    /// The pools of these events. `pool`: that of one whose consumer has it and is not silent.
    pub(crate) fn pools(&self, pool: impl Fn(RunId, u32, u32) -> Option<u128>) -> BTreeSet<u128> {
        self.of.iter().filter_map(|((run, index), has)| pool(*run, *index, has.attempt)).collect()
    }

    /// Who has what. `queue`: that of an event that is in flight under an attempt, where it is asked for.
    pub(crate) fn workers(&self, queue: impl Fn(RunId, u32, u32) -> Option<String>) -> Workers {
        let mut workers = Workers::new();
        for ((run, index), has) in &self.of {
            let Some(queue) = queue(*run, *index, has.attempt) else { continue };
            let event = EventRef { shard: has.named_shard, run: *run, index: *index };
            let new = || AtWork { events: Vec::new(), since_us: has.since_us, sign_us: has.sign_us };
            let worker = workers.entry((queue, has.by.clone())).or_insert_with(new);
            worker.events.push((has.since_us, event));
            worker.since_us = worker.since_us.min(has.since_us);
            worker.sign_us = worker.sign_us.max(has.sign_us);
        }
        workers.values_mut().for_each(|worker| worker.events.sort_unstable());
        workers
    }
}

/// A worker as people see it. `id`: says an event's id.
pub(super) fn shown(
    namespace: &str,
    (queue, by): (String, Arc<Poller>),
    at_work: &AtWork,
    id: impl Fn(EventRef) -> String,
) -> v1::Worker {
    let count = u32::try_from(at_work.events.len()).unwrap_or(u32::MAX);
    v1::Worker {
        queue: format!("namespaces/{namespace}/queues/{queue}"),
        worker: by.name.clone(),
        labels: by.labels.to_vec(),
        capacity: count,
        events_count: count,
        events: at_work.events.iter().take(NAMED_MAX).map(|(_, event)| id(*event)).collect(),
        connect_time: Some(convert::timestamp(at_work.since_us)),
        last_sign_time: Some(convert::timestamp(at_work.sign_us)),
        polls: true,
        given_count: count.into(),
        ..v1::Worker::default()
    }
}

/// One line for each worker: of one that polls, what processes and shards know, if it says who it is. By queue and name.
pub(super) fn together(workers: Vec<v1::Worker>) -> Vec<v1::Worker> {
    let mut of_polls: BTreeMap<_, v1::Worker> = BTreeMap::new();
    let mut all = Vec::new();
    for worker in workers {
        // Polls without a name may be anybody's.
        if !worker.polls || (worker.worker.is_empty() && !worker.id.is_empty()) {
            all.push(worker);
            continue;
        }
        let who = (worker.queue.clone(), worker.worker.clone(), worker.labels.clone());
        match of_polls.entry(who) {
            std::collections::btree_map::Entry::Vacant(place) => {
                place.insert(worker);
            }
            std::collections::btree_map::Entry::Occupied(mut place) => add(place.get_mut(), worker),
        }
    }
    all.extend(of_polls.into_values());
    all.sort_by(|a, b| (&a.queue, &a.worker, &a.id).cmp(&(&b.queue, &b.worker, &b.id)));
    all
}

fn add(worker: &mut v1::Worker, other: v1::Worker) {
    let time = |time: &Option<prost_types::Timestamp>| time.map(|time| (time.seconds, time.nanos));
    if worker.id.is_empty() {
        worker.id = other.id;
    }
    worker.capacity = worker.capacity.saturating_add(other.capacity);
    worker.room = worker.room.saturating_add(other.room);
    worker.events_count = worker.events_count.saturating_add(other.events_count);
    worker.events.extend(other.events);
    worker.events.truncate(NAMED_MAX);
    worker.given_count = worker.given_count.saturating_add(other.given_count);
    if time(&other.connect_time) < time(&worker.connect_time) {
        worker.connect_time = other.connect_time;
    }
    if time(&other.last_sign_time) > time(&worker.last_sign_time) {
        worker.last_sign_time = other.last_sign_time;
    }
}

#[cfg(test)]
mod tests {
    use uuid::Uuid;

    use super::*;

    fn by(name: &str) -> Arc<Poller> {
        Arc::new(Poller::new(name.to_owned(), ["gpu".to_owned()].into()))
    }

    fn event(number: u128, index: u32) -> EventRef {
        EventRef { shard: 7, run: RunId(Uuid::from_u128(number)), index }
    }

    #[test]
    fn who_polls_has_what_it_took_as_long_as_it_is_in_flight() {
        let mut taken = Taken::default();
        let all = |_, _, _| true;
        for (index, name) in [(0, "a"), (1, "b"), (2, "a")] {
            taken.note((event(1, index), 1), by(name), 50 + i64::from(index), all);
        }
        assert_eq!(
            taken.pools(|_, index, attempt| (index > 0).then_some(attempt.into())),
            BTreeSet::from([1])
        );
        assert_eq!(taken.pools(|_, _, _| None), BTreeSet::new());
        taken.sign(event(1, 2).run, 2, 90);
        taken.sign(event(9, 2).run, 2, 99);
        let workers = taken.workers(|_, index, _| (index != 0).then(|| "q".to_owned()));
        assert_eq!(workers.len(), 2);
        let of = |name| &workers[&("q".to_owned(), by(name))];
        assert_eq!(*of("a"), AtWork { events: vec![(52, event(1, 2))], since_us: 52, sign_us: 90 });
        // It came again, and somebody else has it.
        taken.note((event(1, 2), 2), by("b"), 95, all);
        let workers = taken.workers(|_, index, attempt| (index != 2 || attempt == 2).then(|| "q".to_owned()));
        assert_eq!(workers[&("q".to_owned(), by("b"))].events, [(51, event(1, 1)), (95, event(1, 2))]);
        let who = ("q".to_owned(), by("b"));
        let shown = shown("team", who.clone(), &workers[&who], |event| event.index.to_string());
        assert_eq!((shown.queue.as_str(), shown.worker.as_str()), ("namespaces/team/queues/q", "b"));
        assert_eq!((shown.capacity, shown.room, shown.events_count, shown.polls), (2, 0, 2, true));
        assert_eq!(shown.events, ["1", "2"], "the oldest first");
    }

    #[test]
    fn what_has_ended_goes_before_there_is_much_of_it() {
        let mut taken = Taken::default();
        let mut most = 0;
        for number in 0..100_000_u32 {
            taken.note((event(number.into(), 0), 1), by("a"), 0, |run, _, _| run >= event(99_000, 0).run);
            most = most.max(taken.of.len());
        }
        assert_eq!(taken.workers(|run, _, _| (run >= event(99_000, 0).run).then(String::new)).len(), 1);
        assert!((1_000..=2_000).contains(&most), "{most}");
    }

    #[test]
    fn what_processes_know_of_one_that_polls_is_one_line_and_polls_without_a_name_are_not() {
        let worker = |id: &str, name: &str, room: u32, events: &[&str], sign_us: i64| v1::Worker {
            queue: "q".to_owned(),
            id: id.to_owned(),
            worker: name.to_owned(),
            polls: true,
            capacity: room + u32::try_from(events.len()).unwrap_or_default(),
            room,
            events_count: u32::try_from(events.len()).unwrap_or_default(),
            events: events.iter().map(|&event| event.to_owned()).collect(),
            last_sign_time: Some(convert::timestamp(sign_us)),
            ..v1::Worker::default()
        };
        let stream = v1::Worker { polls: false, ..worker("3", "b", 1, &[], 1) };
        let list = together(vec![
            worker("", "b", 0, &["e", "f"], 70),
            worker("8", "", 1, &[], 1),
            stream.clone(),
            worker("5", "b", 2, &[], 60),
            worker("", "", 0, &["g"], 1),
            worker("9", "", 1, &[], 1),
            worker("", "", 0, &["h"], 1),
        ]);
        let of = |worker: &v1::Worker| (worker.id.clone(), worker.worker.clone(), worker.events.join(" "));
        let text = |id: &str, name: &str, events: &str| (id.to_owned(), name.to_owned(), events.to_owned());
        let expected = [
            text("", "", "g h"),
            text("8", "", ""),
            text("9", "", ""),
            text("3", "b", ""),
            text("5", "b", "e f"),
        ];
        assert_eq!(list.iter().map(of).collect::<Vec<_>>(), expected);
        let polls = &list[4];
        assert_eq!((polls.capacity, polls.room, polls.events_count), (4, 2, 2));
        assert_eq!(polls.last_sign_time, Some(convert::timestamp(70)));
    }
}
