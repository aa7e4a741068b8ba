//! What workers that poll have: between two polls, such a worker is seen by its events.
//!
//! In: events of shards of this process that were taken by polls, heartbeats, what the owner says of its events. Out: who is at
//! work, with what; until when somebody who polls is known to be able to do what requires some labels: one that is at work asks
//! for more when it is done. Invariants: an event is here until its owner says that it holds no token under its attempt (at its
//! release, and in a look at all of them from time to time), its worker has been silent for as long as it may, or its shard goes;
//! how many there are is bounded, and a namespace leaves some to the others; who asks for a kind walks kinds, not workers.
//! Nothing is decided by it but what people are told. Not here: workers that are connected ([`super::floor`]).

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use tollgate_core::model::{EventRef, MINUTE_US, Now, RunId};
use tollgate_proto::{convert, v1};

use super::book::{Labels, QueueKey, TooManyKinds, fits};

/// How many of its events are named of a worker.
pub(super) const NAMED_MAX: usize = 10;
/// The most events. They take some 25 MB, and as much again where each is another worker's.
const EVENTS_MAX: usize = 100_000;
/// Of what all others leave of them, one part in this many is left free by each namespace.
const LEFT_TO_OTHERS: usize = 4;
/// For so long, or half of the silence that is allowed, whoever has an event is presumed to poll, where a process that has gone
/// knew it: the packages give a sign of life at each third of a time to live, which is 15 min unless said otherwise.
const PRESUMED_US: i64 = 10 * MINUTE_US;

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
    name: String,
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
    /// For how long its worker may be silent, in milliseconds.
    pub(super) silence_ms: i64,
}

/// Workers of a queue with the same labels.
#[derive(Debug, Default)]
struct Kind {
    /// How many events they have.
    count: usize,
    /// Until when (monotonic) somebody was known to be there.
    until_us: i64,
}

/// A worker at work.
#[derive(Debug)]
pub(super) struct AtWork {
    by: Arc<Holder>,
    count: usize,
    /// The oldest of its events.
    events: Vec<EventRef>,
    since_us: i64,
    sign_us: i64,
}

/// See the head of this file.
#[derive(Debug, Default)]
pub(super) struct Taken {
    events: HashMap<Key, Has>,
    by: BTreeMap<Arc<Holder>, BTreeSet<Key>>,
    by_shard: HashMap<u16, BTreeSet<Key>>,
    silences: BTreeSet<(i64, Key)>,
    kinds: BTreeMap<QueueKey, BTreeMap<Labels, Kind>>,
    by_namespace: BTreeMap<Arc<str>, usize>,
}

impl Taken {
    /// A worker has taken an event by a poll.
    pub(super) fn took(&mut self, of: EventOf, by: Poller, now: Now) {
        let key = (of.event.run, of.event.index);
        self.forget_silent(now);
        if self.events.get(&key).is_some_and(|has| has.attempt > of.attempt) {
            return;
        }
        self.remove(key, now.mono_us);
        let own = self.by_namespace.get(&of.queue.namespace).copied().unwrap_or_default();
        let free = EVENTS_MAX - (self.events.len() - own);
        if own >= free - free / LEFT_TO_OTHERS {
            return;
        }
        let by = self.holder(of.queue, by);
        *self.by_namespace.entry(by.queue.namespace.clone()).or_default() += 1;
        let kinds = self.kinds.entry(by.queue.clone()).or_default();
        if kinds.len() >= TooManyKinds::MAX && !kinds.contains_key(&by.labels) {
            kinds.retain(|_, kind| kind.count > 0);
        }
        kinds.entry(by.labels.clone()).or_default().count += 1;
        self.by.entry(by.clone()).or_default().insert(key);
        self.by_shard.entry(of.shard).or_default().insert(key);
        let silent_us = silent_us(of.silence_ms, now);
        self.silences.insert((silent_us, key));
        let (since_us, sign_us) = (now.wall_us, now.wall_us);
        let (shard, named_shard, attempt) = (of.shard, of.event.shard, of.attempt);
        self.events.insert(key, Has { shard, named_shard, attempt, by, since_us, sign_us, silent_us });
    }

    /// One for each worker, and one of the texts that many have.
    fn holder(&self, queue: QueueKey, Poller { name, labels }: Poller) -> Arc<Holder> {
        let known = self.kinds.get_key_value(&queue);
        let labels = known
            .and_then(|(_, kinds)| kinds.get_key_value(&labels))
            .map_or(labels, |(known, _)| known.clone());
        let queue = known.map_or(queue, |(known, _)| known.clone());
        let holder = Holder { queue, name, labels };
        match self.by.get_key_value(&holder) {
            Some((known, _)) => known.clone(),
            None => Arc::new(holder),
        }
    }

    /// Somebody has said that it still works on an event, which requires these labels. Where nobody knows who that is, it is one
    /// of a kind of which somebody was here before this process, or not at all.
    pub(super) fn signed(&mut self, of: &EventOf, requires: &[String], now: Now) {
        let key = (of.event.run, of.event.index);
        if let Some(has) = self.events.get_mut(&key) {
            if has.attempt == of.attempt {
                has.sign_us = now.wall_us;
                self.silences.remove(&(has.silent_us, key));
                has.silent_us = silent_us(of.silence_ms, now);
                self.silences.insert((has.silent_us, key));
            }
        } else if let Some(kind) = self.kinds.get_mut(&of.queue).and_then(|kinds| kinds.get_mut(requires))
            && kind.until_us > now.mono_us
        {
            kind.until_us = kind.until_us.max(presumed_us(of.silence_ms, now));
        }
    }

    /// This process has become the owner of events that somebody has and is not silent about.
    pub(super) fn presume(&mut self, queue: QueueKey, requires: &[String], silence_ms: i64, now: Now) {
        let kind = self.kinds.entry(queue).or_default().entry(requires.into()).or_default();
        kind.until_us = kind.until_us.max(presumed_us(silence_ms, now));
    }

    /// Whether it has an event.
    pub(super) fn has(&self, run: RunId, index: u32) -> bool {
        self.events.contains_key(&(run, index))
    }

    /// Whether it has none at all.
    pub(super) fn is_empty(&self) -> bool {
        self.events.is_empty()
    }

    /// Under which attempt an event of a shard holds a token now, if it does.
    pub(super) fn is_under(&mut self, shard: u16, (run, index): Key, attempt: Option<u32>, now: Now) {
        let key = (run, index);
        let Some(has) = self.events.get_mut(&key) else { return };
        if attempt.is_none() && has.shard != shard {
            return;
        }
        if Some(has.attempt) != attempt {
            return self.remove(key, now.mono_us);
        }
        if has.shard != shard {
            // Its policy has moved, and it is of this process still.
            let before = std::mem::replace(&mut has.shard, shard);
            self.leave_shard(before, key);
            self.by_shard.entry(shard).or_default().insert(key);
        }
    }

    /// Looks at all events of a shard. `attempt`: under which attempt one holds a token.
    pub(super) fn look(&mut self, shard: u16, attempt: impl Fn(RunId, u32) -> Option<u32>, now: Now) {
        let own: Vec<Key> = self.by_shard.get(&shard).into_iter().flatten().copied().collect();
        for (run, index) in own {
            self.is_under(shard, (run, index), attempt(run, index), now);
        }
        self.forget_silent(now);
        for kinds in self.kinds.values_mut() {
            kinds.retain(|_, kind| kind.count > 0 || kind.until_us > now.mono_us - MINUTE_US);
        }
        self.kinds.retain(|_, kinds| !kinds.is_empty());
    }

    /// A shard is this process's own no longer.
    pub(super) fn shard_goes(&mut self, shard: u16) {
        let own: Vec<Key> = self.by_shard.get(&shard).into_iter().flatten().copied().collect();
        own.into_iter().for_each(|key| self.remove(key, i64::MIN));
    }

    /// Until when somebody who polls was known to be able to do what requires these labels: now, where it is at work.
    pub(super) fn until_us(&mut self, queue: &QueueKey, requires: &[String], now: Now) -> Option<i64> {
        self.forget_silent(now);
        let kinds = self.kinds.get(queue)?.iter().filter(|(labels, _)| fits(labels, requires));
        let until_us = kinds
            .map(|(_, kind)| if kind.count > 0 { now.mono_us.max(kind.until_us) } else { kind.until_us });
        until_us.max()
    }

    /// The workers at work of a namespace, or of one queue of it, at most so many; and how many more there are.
    pub(super) fn list(
        &mut self,
        (namespace, queue): (&str, Option<&str>),
        most: usize,
        now: Now,
    ) -> (Vec<AtWork>, usize) {
        self.forget_silent(now);
        let first = QueueKey { namespace: namespace.into(), queue: queue.unwrap_or_default().into() };
        let first = Holder { queue: first, name: String::new(), labels: Arc::from([]) };
        let is_own =
            |of: &QueueKey| *of.namespace == *namespace && queue.is_none_or(|queue| *of.queue == *queue);
        let own = self.by.range(first..).take_while(|(holder, _)| is_own(&holder.queue));
        let (mut list, mut more) = (Vec::new(), 0);
        for (by, keys) in own {
            if list.len() < most {
                list.push(self.of(by, keys));
            } else {
                more += 1;
            }
        }
        (list, more)
    }

    fn of(&self, by: &Arc<Holder>, keys: &BTreeSet<Key>) -> AtWork {
        let mut has: Vec<_> = keys.iter().filter_map(|key| Some((*key, self.events.get(key)?))).collect();
        has.sort_unstable_by_key(|(key, has)| (has.since_us, *key));
        let named = has.iter().take(NAMED_MAX);
        let named =
            named.map(|((run, index), has)| EventRef { shard: has.named_shard, run: *run, index: *index });
        AtWork {
            by: by.clone(),
            count: has.len(),
            events: named.collect(),
            since_us: has.first().map_or(0, |(_, has)| has.since_us),
            sign_us: has.iter().map(|(_, has)| has.sign_us).max().unwrap_or_default(),
        }
    }

    fn forget_silent(&mut self, now: Now) {
        while let Some((silent_us, key)) = self.silences.first().copied()
            && silent_us <= now.mono_us
        {
            self.remove(key, i64::MIN);
        }
    }

    /// `until_us`: when its worker was there, if it was.
    fn remove(&mut self, key: Key, until_us: i64) {
        let Some(has) = self.events.remove(&key) else { return };
        self.silences.remove(&(has.silent_us, key));
        self.leave_shard(has.shard, key);
        let Holder { queue, labels, .. } = &*has.by;
        if let Some(kind) = self.kinds.get_mut(queue).and_then(|kinds| kinds.get_mut(labels)) {
            kind.count -= 1;
            kind.until_us = kind.until_us.max(until_us);
        }
        if let Some(count) = self.by_namespace.get_mut(&queue.namespace) {
            *count -= 1;
            if *count == 0 {
                self.by_namespace.remove(&queue.namespace);
            }
        }
        if let Some(keys) = self.by.get_mut(&has.by) {
            keys.remove(&key);
            if keys.is_empty() {
                self.by.remove(&has.by);
            }
        }
    }

    fn leave_shard(&mut self, shard: u16, key: Key) {
        if let Some(keys) = self.by_shard.get_mut(&shard) {
            keys.remove(&key);
            if keys.is_empty() {
                self.by_shard.remove(&shard);
            }
        }
    }
}

impl AtWork {
    /// As people see it. `id`: says an event's id.
    pub(super) fn shown(&self, id: impl Fn(EventRef) -> String) -> v1::Worker {
        let count = u32::try_from(self.count).unwrap_or(u32::MAX);
        let Holder { queue, name, labels } = &*self.by;
        v1::Worker {
            queue: format!("namespaces/{}/queues/{}", queue.namespace, queue.queue),
            worker: name.clone(),
            labels: labels.to_vec(),
            capacity: count,
            events_count: count,
            events: self.events.iter().map(|event| id(*event)).collect(),
            connect_time: Some(convert::timestamp(self.since_us)),
            last_sign_time: Some(convert::timestamp(self.sign_us)),
            polls: true,
            given_count: count.into(),
            ..v1::Worker::default()
        }
    }
}

fn silent_us(silence_ms: i64, now: Now) -> i64 {
    now.mono_us.saturating_add(silence_ms.saturating_mul(1_000))
}

fn presumed_us(silence_ms: i64, now: Now) -> i64 {
    let half_us = silence_ms.saturating_mul(1_000) / 2;
    silent_us(silence_ms, now).min(now.mono_us.saturating_add(half_us.max(PRESUMED_US)))
}

#[cfg(test)]
mod tests {
    use tollgate_core::model::SECOND_US;
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

    fn run(number: u128) -> RunId {
        RunId(Uuid::from_u128(number))
    }

    fn of(queue: QueueKey, number: u128, index: u32, silence_ms: i64) -> EventOf {
        EventOf {
            shard: 3,
            event: EventRef { shard: 7, run: run(number), index },
            attempt: 1,
            queue,
            silence_ms,
        }
    }

    impl Taken {
        fn shown(&mut self, namespace: &str, queue: Option<&str>, now: Now) -> Vec<(String, String)> {
            let (list, _) = self.list((namespace, queue), 100, now);
            let shown = list.iter().map(|one| one.shown(|event| event.index.to_string()));
            shown.map(|worker| (worker.worker, worker.events.join(" "))).collect()
        }

        fn is_clear(&self) -> bool {
            self.events.is_empty()
                && self.by.is_empty()
                && self.by_shard.is_empty()
                && self.silences.is_empty()
                && self.by_namespace.is_empty()
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
            taken.took(of(own(), 1, index, 1), by(name, "gpu"), at(50 - i64::from(index)));
        }
        taken.took(of(queue("team", "sound"), 2, 5, 1), by("a", ""), at(60));
        taken.took(of(queue("teams", "render"), 3, 6, 1), by("a", ""), at(60));
        assert_eq!(
            taken.shown("team", Some("render"), at(60)),
            shown(&[("a", "2 0"), ("b", "1")]),
            "oldest first"
        );
        assert_eq!(taken.shown("team", None, at(60)).len(), 3);
        let (list, more) = taken.list(("team", None), 2, at(60));
        assert_eq!((list.len(), more), (2, 1));
        let worker = list[0].shown(|_| String::new());
        assert_eq!((worker.capacity, worker.room, worker.events_count, worker.polls), (2, 0, 2, true));
        assert_eq!(worker.connect_time, Some(convert::timestamp(1_000_048)));
        taken.is_under(3, (run(1), 1), Some(1), at(60));
        taken.is_under(3, (run(1), 0), None, at(60));
        taken.is_under(3, (run(1), 9), None, at(60));
        assert_eq!(taken.shown("team", Some("render"), at(60)), shown(&[("a", "2"), ("b", "1")]));
        // A heartbeat keeps one; under another attempt it is none of that worker's.
        taken.signed(&of(own(), 1, 2, 2), &[], at(900));
        taken.signed(&EventOf { attempt: 2, ..of(own(), 1, 1, 9) }, &[], at(900));
        assert_eq!(taken.shown("team", Some("render"), at(1_200)), shown(&[("a", "2")]));
        taken.took(EventOf { attempt: 2, ..of(own(), 1, 2, 5) }, by("c", "gpu"), at(1_300));
        taken.took(of(own(), 1, 2, 5), by("late", "gpu"), at(1_300));
        assert_eq!(taken.shown("team", Some("render"), at(1_300)), shown(&[("c", "2")]));
    }

    #[test]
    fn what_the_owner_knows_not_goes_and_a_shard_takes_its_own_along() {
        let mut taken = Taken::default();
        for index in 0..3 {
            taken.took(of(queue("team", "q"), 1, index, 100), by("a", ""), at(0));
        }
        // Its policy has moved to another shard of this process.
        taken.is_under(4, (run(1), 2), Some(1), at(1));
        taken.look(3, |_, index| (index == 1).then_some(1), at(1));
        assert_eq!(taken.shown("team", None, at(1)), shown(&[("a", "1 2")]));
        taken.shard_goes(3);
        assert_eq!(taken.shown("team", None, at(1)), shown(&[("a", "2")]));
        taken.shard_goes(4);
        assert!(taken.is_clear());
        assert_eq!(taken.kinds.len(), 1);
        taken.look(3, |_, _| None, at(2 + MINUTE_US));
        assert!(taken.kinds.is_empty(), "and nothing is left");
    }

    #[test]
    fn who_is_at_work_is_able_and_known_to_have_been_until_its_release() {
        let mut taken = Taken::default();
        let own = queue("team", "render");
        taken.took(of(own.clone(), 1, 0, 1), by("a", "eu gpu"), at(5));
        let until = |taken: &mut Taken, requires: &str, us| taken.until_us(&own, &labels(requires), at(us));
        assert_eq!((until(&mut taken, "gpu", 999), until(&mut taken, "", 999)), (Some(999), Some(999)));
        assert_eq!(until(&mut taken, "tpu", 999), None);
        assert_eq!(taken.until_us(&queue("team", "sound"), &[], at(999)), None);
        assert!(
            until(&mut taken, "gpu", 1_005) <= Some(0),
            "it has been silent, and nobody knows since when it is not there"
        );
        taken.took(of(own.clone(), 1, 1, 50), by("a", "eu gpu"), at(2_000));
        taken.is_under(3, (run(1), 1), None, at(7_000));
        assert_eq!(until(&mut taken, "gpu", 9_000), Some(7_000), "when it released");
    }

    #[test]
    fn of_those_that_another_process_knew_the_kind_is_presumed_and_heartbeats_keep_it() {
        let mut taken = Taken::default();
        let own = queue("team", "render");
        let gpu = labels("gpu");
        // Nobody was there before: it may be a worker's with a stream, of which that tells.
        taken.signed(&of(own.clone(), 1, 0, 60_000), &gpu, at(0));
        assert_eq!(taken.until_us(&own, &gpu, at(0)), None);
        taken.presume(own.clone(), &gpu, 60_000, at(0));
        assert_eq!(taken.until_us(&own, &gpu, at(1)), Some(60 * SECOND_US));
        taken.signed(&of(own.clone(), 1, 0, 3_600_000), &gpu, at(30 * SECOND_US));
        assert_eq!(taken.until_us(&own, &gpu, at(1)), Some((30 + 1_800) * SECOND_US), "not for an hour");
        let late_us = (31 + 1_800) * SECOND_US;
        taken.signed(&of(own.clone(), 1, 0, 3_600_000), &gpu, at(late_us));
        assert!(taken.until_us(&own, &gpu, at(late_us)) < Some(late_us), "and not once it is over");
        assert_eq!(taken.shown("team", None, at(1)), [], "nobody knows who it is");
    }

    #[test]
    fn it_is_bounded_and_no_namespace_has_all() {
        let mut taken = Taken::default();
        for number in 0..EVENTS_MAX + 5 {
            taken.took(of(queue("team", "q"), number as u128, 0, 1_000), by("a", ""), at(0));
        }
        assert_eq!(taken.events.len(), EVENTS_MAX - EVENTS_MAX / LEFT_TO_OTHERS);
        taken.took(of(queue("other", "q"), u128::MAX, 0, 1_000), by("a", ""), at(0));
        assert_eq!(taken.shown("other", None, at(1)).len(), 1);
        assert_eq!((taken.by.len(), taken.kinds.len()), (2, 2), "each worker and kind is kept once");
        taken.is_under(3, (run(7), 0), None, at(1));
        taken.took(of(queue("team", "q"), u128::MAX - 1, 0, 1_000), by("a", ""), at(1));
        assert!(taken.has(run(u128::MAX - 1), 0), "there is room again");
        taken.forget_silent(at(2 * SECOND_US));
        assert!(taken.is_clear());
    }
}
