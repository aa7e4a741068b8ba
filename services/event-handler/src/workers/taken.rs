//! What workers that poll have: between two polls, such a worker is seen by its events.
//!
//! In: events of shards of this process that were taken by polls, heartbeats, ends. Out: who is at work, with what, and whether
//! somebody at work is able to do what requires some labels: that one asks for more when it is done. Invariants: an event is here
//! until it holds no token under its attempt, its shard has gone, or its worker has been silent for as long as it may; how many
//! there are is bounded, and a namespace leaves some to the others. Nothing is decided by it but what people are told: a process
//! that ends, and a shard that goes, take it along. Not here: workers that are connected ([`super::floor`]).

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use tollgate_core::model::{DAY_US, EventRef, Now, RunId};
use tollgate_proto::{convert, v1};

use super::book::{Labels, QueueKey, fits};

/// How many of its events are named of a worker.
pub(super) const NAMED_MAX: usize = 10;
/// The most events. They take some 25 MB.
const EVENTS_MAX: usize = 100_000;
/// Of what all others leave of them, one part in this many is left free by each namespace.
const LEFT_TO_OTHERS: usize = 4;

/// Who a worker that polls says that it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Poller {
    pub(super) name: String,
    pub(super) labels: Labels,
}

/// Who has an event: first by queue.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Holder {
    queue: QueueKey,
    /// None of one that is known by heartbeats alone: it has what its events require, at least.
    name: Option<String>,
    labels: Labels,
}

type Key = (RunId, u32);

#[derive(Debug)]
struct Has {
    shard: u16,
    named_shard: u16,
    attempt: u32,
    by: Arc<Holder>,
    /// When it took the event, and when it last gave a sign of life (wall clock).
    since_us: i64,
    sign_us: i64,
    /// Until when it may be silent (monotonic).
    silent_us: i64,
}

/// An event that a worker has.
pub(super) struct EventOf {
    /// The shard where it is now, and the event as its id names it.
    pub(super) shard: u16,
    pub(super) event: EventRef,
    pub(super) attempt: u32,
    pub(super) queue: QueueKey,
    /// For how long its worker may be silent, in milliseconds, where its token is taken back then.
    pub(super) silence_ms: Option<i64>,
}

/// See the head of this file.
#[derive(Debug, Default)]
pub(super) struct Taken {
    events: HashMap<Key, Has>,
    by: BTreeMap<Arc<Holder>, BTreeSet<Key>>,
    silences: BTreeSet<(i64, Key)>,
    by_namespace: BTreeMap<Arc<str>, usize>,
}

impl Taken {
    /// A worker has taken an event by a poll.
    pub(super) fn took(&mut self, held: EventOf, by: Poller, now: Now) {
        let holder = Holder { queue: held.queue.clone(), name: Some(by.name), labels: by.labels };
        self.put(&held, holder, now);
    }

    /// Somebody has said that it still works on an event, which requires these labels.
    pub(super) fn signed(&mut self, held: &EventOf, requires: &[String], now: Now) {
        let key = (held.event.run, held.event.index);
        match self.events.get_mut(&key).filter(|has| has.attempt == held.attempt) {
            Some(has) => {
                has.sign_us = now.wall_us;
                self.silences.remove(&(has.silent_us, key));
                has.silent_us = silent_us(held.silence_ms, now);
                self.silences.insert((has.silent_us, key));
            }
            None => {
                let holder = Holder { queue: held.queue.clone(), name: None, labels: requires.into() };
                self.put(held, holder, now);
            }
        }
    }

    fn put(&mut self, held: &EventOf, holder: Holder, now: Now) {
        let key = (held.event.run, held.event.index);
        self.forget_silent(now);
        self.remove(key);
        let namespace = held.queue.namespace.clone();
        let own = self.by_namespace.get(&namespace).copied().unwrap_or_default();
        let free = EVENTS_MAX - (self.events.len() - own);
        if own >= free - free / LEFT_TO_OTHERS {
            return;
        }
        *self.by_namespace.entry(namespace).or_default() += 1;
        let by = match self.by.get_key_value(&holder) {
            Some((known, _)) => known.clone(),
            None => Arc::new(holder),
        };
        self.by.entry(by.clone()).or_default().insert(key);
        let silent_us = silent_us(held.silence_ms, now);
        self.silences.insert((silent_us, key));
        let EventOf { shard, event, attempt, .. } = *held;
        let (since_us, sign_us) = (now.wall_us, now.wall_us);
        let has = Has { shard, named_shard: event.shard, attempt, by, since_us, sign_us, silent_us };
        self.events.insert(key, has);
    }

    /// Whether it has an event.
    pub(super) fn has(&self, run: RunId, index: u32) -> bool {
        self.events.contains_key(&(run, index))
    }

    /// What is known of an event now: under which attempt it holds a token, if it does.
    pub(super) fn is_under(&mut self, run: RunId, index: u32, attempt: Option<u32>) {
        let key = (run, index);
        if self.events.get(&key).is_some_and(|has| Some(has.attempt) != attempt) {
            self.remove(key);
        }
    }

    /// A shard has gone to another process.
    pub(super) fn shard_goes(&mut self, shard: u16) {
        let own = self.events.iter().filter(|(_, has)| has.shard == shard).map(|(key, _)| *key);
        own.collect::<Vec<_>>().into_iter().for_each(|key| self.remove(key));
    }

    /// Whether somebody at work is able to do what requires these labels.
    pub(super) fn is_able(&mut self, queue: &QueueKey, requires: &[String], now: Now) -> bool {
        self.forget_silent(now);
        let first = Holder { queue: queue.clone(), name: None, labels: Arc::from([]) };
        let mut own = self.by.range(first..).take_while(|(holder, _)| holder.queue == *queue);
        own.any(|(holder, _)| fits(&holder.labels, requires))
    }

    /// The workers at work of a namespace, or of one queue of it. `id`: says an event's id.
    pub(super) fn list(
        &mut self,
        (namespace, queue): (&str, Option<&str>),
        id: impl Fn(EventRef) -> String,
        now: Now,
    ) -> Vec<v1::Worker> {
        self.forget_silent(now);
        let first = QueueKey { namespace: namespace.into(), queue: queue.unwrap_or_default().into() };
        let first = Holder { queue: first, name: None, labels: Arc::from([]) };
        let is_own =
            |of: &QueueKey| *of.namespace == *namespace && queue.is_none_or(|queue| *of.queue == *queue);
        let own = self.by.range(first..).take_while(|(holder, _)| is_own(&holder.queue));
        let workers = own.filter_map(|(holder, keys)| {
            let name = holder.name.as_ref()?;
            let mut has: Vec<_> = keys.iter().filter_map(|key| Some((*key, self.events.get(key)?))).collect();
            has.sort_unstable_by_key(|(key, has)| (has.since_us, *key));
            let named = has.iter().take(NAMED_MAX);
            let named = named.map(|((run, index), has)| EventRef {
                shard: has.named_shard,
                run: *run,
                index: *index,
            });
            let sign_us = has.iter().map(|(_, has)| has.sign_us).max();
            let count = u32::try_from(has.len()).unwrap_or(u32::MAX);
            Some(v1::Worker {
                queue: format!("namespaces/{}/queues/{}", holder.queue.namespace, holder.queue.queue),
                worker: name.clone(),
                labels: holder.labels.to_vec(),
                capacity: count,
                events_count: count,
                events: named.map(&id).collect(),
                connect_time: has.first().map(|(_, has)| convert::timestamp(has.since_us)),
                last_sign_time: sign_us.map(convert::timestamp),
                polls: true,
                given_count: count.into(),
                ..v1::Worker::default()
            })
        });
        workers.collect()
    }

    fn forget_silent(&mut self, now: Now) {
        while let Some((silent_us, key)) = self.silences.first().copied()
            && silent_us <= now.mono_us
        {
            self.remove(key);
        }
    }

    fn remove(&mut self, key: Key) {
        let Some(has) = self.events.remove(&key) else { return };
        self.silences.remove(&(has.silent_us, key));
        if let Some(keys) = self.by.get_mut(&has.by) {
            keys.remove(&key);
            if keys.is_empty() {
                self.by.remove(&has.by);
            }
        }
        let namespace = &has.by.queue.namespace;
        if let Some(count) = self.by_namespace.get_mut(namespace) {
            *count -= 1;
            if *count == 0 {
                self.by_namespace.remove(namespace);
            }
        }
    }
}

fn silent_us(silence_ms: Option<i64>, now: Now) -> i64 {
    // Where its token never comes back by itself, a day will do.
    let silence_us = silence_ms.map_or(DAY_US, |ms| ms.saturating_mul(1_000));
    now.mono_us.saturating_add(silence_us)
}

/// One line for each worker: of one that polls, what processes know of its polls and events, if it says who it is. By queue and
/// name.
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
        match of_polls.get_mut(&who) {
            Some(known) => add(known, worker),
            None => drop(of_polls.insert(who, worker)),
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

    fn at(us: i64) -> Now {
        Now { wall_us: 1_000_000 + us, mono_us: us }
    }

    fn labels(text: &str) -> Labels {
        text.split_whitespace().map(str::to_owned).collect()
    }

    fn queue(namespace: &str, queue: &str) -> QueueKey {
        QueueKey { namespace: namespace.into(), queue: queue.into() }
    }

    fn by(name: &str, able: &str) -> Poller {
        Poller { name: name.to_owned(), labels: labels(able) }
    }

    fn held(queue: QueueKey, number: u128, index: u32, silence_ms: Option<i64>) -> EventOf {
        let event = EventRef { shard: 7, run: RunId(Uuid::from_u128(number)), index };
        EventOf { shard: 3, event, attempt: 1, queue, silence_ms }
    }

    impl Taken {
        fn shown(&mut self, namespace: &str, queue: Option<&str>, now: Now) -> Vec<(String, String)> {
            let list = self.list((namespace, queue), |event| event.index.to_string(), now);
            list.into_iter().map(|worker| (worker.worker, worker.events.join(" "))).collect()
        }
    }

    fn shown(of: &[(&str, &str)]) -> Vec<(String, String)> {
        of.iter().map(|(name, events)| ((*name).to_owned(), (*events).to_owned())).collect()
    }

    #[test]
    fn who_polls_has_what_it_took_until_it_gives_it_back_or_is_silent() {
        let mut taken = Taken::default();
        let own = || queue("team", "render");
        for (index, name) in [(2, "a"), (1, "b"), (0, "a")] {
            taken.took(held(own(), 1, index, Some(1)), by(name, "gpu"), at(50 - i64::from(index)));
        }
        taken.took(held(queue("team", "sound"), 2, 5, None), by("a", ""), at(60));
        taken.took(held(queue("teams", "render"), 3, 6, None), by("a", ""), at(60));
        assert_eq!(
            taken.shown("team", Some("render"), at(60)),
            shown(&[("a", "2 0"), ("b", "1")]),
            "the oldest first"
        );
        assert_eq!(taken.shown("team", None, at(60)).len(), 3);
        let worker = taken.list(("team", Some("render")), |_| String::new(), at(60)).remove(0);
        assert_eq!((worker.capacity, worker.room, worker.events_count, worker.polls), (2, 0, 2, true));
        assert_eq!(worker.connect_time, Some(convert::timestamp(1_000_048)));
        let run = RunId(Uuid::from_u128(1));
        taken.is_under(run, 1, Some(1));
        taken.is_under(run, 0, None);
        taken.is_under(run, 9, None);
        assert_eq!(taken.shown("team", Some("render"), at(60)), shown(&[("a", "2"), ("b", "1")]));
        // A heartbeat keeps one; under another attempt it is none of that worker's.
        taken.signed(&held(own(), 1, 2, Some(2)), &[], at(900));
        assert_eq!(taken.shown("team", Some("render"), at(1_200)), shown(&[("a", "2")]));
        taken.took(EventOf { attempt: 2, ..held(own(), 1, 2, Some(5)) }, by("c", "gpu"), at(1_300));
        assert_eq!(taken.shown("team", Some("render"), at(1_300)), shown(&[("c", "2")]));
        taken.shard_goes(4);
        assert_eq!(taken.events.len(), 3);
        taken.shard_goes(3);
        assert!(taken.events.is_empty() && taken.by.is_empty() && taken.silences.is_empty());
        assert!(taken.by_namespace.is_empty());
    }

    #[test]
    fn who_is_at_work_is_able_and_one_that_is_known_by_heartbeats_alone_to_do_what_it_does() {
        let mut taken = Taken::default();
        let own = queue("team", "render");
        taken.took(held(own.clone(), 1, 0, Some(1)), by("a", "eu gpu"), at(0));
        assert!(taken.is_able(&own, &labels("gpu"), at(999)) && taken.is_able(&own, &[], at(999)));
        assert!(!taken.is_able(&own, &labels("tpu"), at(999)));
        assert!(!taken.is_able(&queue("team", "sound"), &[], at(999)));
        assert!(!taken.is_able(&own, &labels("gpu"), at(1_000)), "it has been silent");
        taken.signed(&held(own.clone(), 1, 1, Some(1)), &labels("gpu"), at(1_000));
        assert!(
            taken.is_able(&own, &labels("gpu"), at(1_500)) && !taken.is_able(&own, &labels("eu"), at(1_500))
        );
        assert_eq!(taken.shown("team", None, at(1_500)), [], "nobody knows who it is");
    }

    #[test]
    fn it_is_bounded_and_no_namespace_has_all() {
        let mut taken = Taken::default();
        for number in 0..EVENTS_MAX + 5 {
            taken.took(held(queue("team", "q"), number as u128, 0, None), by("a", ""), at(0));
        }
        assert_eq!(taken.events.len(), EVENTS_MAX - EVENTS_MAX / LEFT_TO_OTHERS);
        taken.took(held(queue("other", "q"), u128::MAX, 0, None), by("a", ""), at(0));
        assert_eq!(taken.shown("other", None, at(1)).len(), 1);
        assert_eq!(taken.by.len(), 2, "each worker is kept once");
        taken.is_under(RunId(Uuid::from_u128(7)), 0, None);
        taken.took(held(queue("team", "q"), u128::MAX - 1, 0, None), by("a", ""), at(0));
        assert!(
            taken.events.contains_key(&(RunId(Uuid::from_u128(u128::MAX - 1)), 0)),
            "there is room again"
        );
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
            stream,
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
