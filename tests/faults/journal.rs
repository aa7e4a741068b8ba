//! What the sink writes down: every delivery, every departure, every answer to a release, in one order.
//!
//! An event is in flight for the sink from the arrival of its request until the sink starts the call that releases it, or
//! starts an answer that refuses it. That lies within the time in which the service must count it.

use std::collections::{BTreeMap, HashMap, HashSet};

/// How the sink met a delivery.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Met {
    /// Answered with 2xx, at once or, where the answer releases, after the work.
    Taken,
    /// Answered with 2xx; its consumer dies and never releases it.
    Abandoned,
    /// A full answer other than 2xx, a failed entry, a throttled call.
    Refused,
    /// No answer, half an answer, or one that came too late.
    Doubtful,
    /// A worker does not accept it, and gives it back by a release.
    GivenBack,
}

/// How a release was answered with RELEASED.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Said {
    /// Its owner has carried it out.
    Direct,
    /// It lies in the inbox of its owner, which could not be reached.
    Recorded,
}

/// An event as its deliveries describe it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Event {
    pub(crate) id: String,
    /// The last part of the policy's name; empty without one.
    pub(crate) policy: String,
    /// The key of its events; may be empty.
    pub(crate) key: String,
    /// The last part of the schedule's name.
    pub(crate) schedule: String,
    pub(crate) run: String,
    pub(crate) launch_us: i64,
    pub(crate) index: u32,
    pub(crate) count: u32,
}

impl Event {
    /// The queue shard, which its id begins with.
    pub(crate) fn shard(&self) -> Option<u16> {
        self.id.split('-').next().and_then(|text| u16::from_str_radix(text, 16).ok())
    }
}

/// What happened to the event with this number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum What {
    /// A delivery came. `enters`: the event is in flight from now on, if it was not before. `by`: the process that gave it to its
    /// worker, where that is known.
    Arrived { attempt: u32, met: Met, enters: bool, by: Option<u8> },
    /// The answer to a delivery that was taken is about to be written.
    Answered { attempt: u32 },
    /// The connection ended so soon after that answer: whoever was to have it may have gone before.
    HungUp { attempt: u32, after_ms: u32 },
    /// A release, or an answer that refuses, is about to be sent.
    Left,
    /// A release of an event that is done was answered with RELEASED.
    Released { said: Said },
    /// So was one that gave back this attempt.
    GaveBack { attempt: u32, said: Said },
}

/// A connection that ends later after an answer says nothing of it, however late the campaign is.
pub(crate) const HUNG_UP_MAX_US: i64 = 5_000_000;

/// One line of the journal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Entry {
    /// By the campaign's own clock, which nobody moves, in microseconds since the epoch.
    pub(crate) at_us: i64,
    pub(crate) event: u32,
    pub(crate) what: What,
}

/// The journal.
#[derive(Clone, Debug, Default)]
pub(crate) struct Journal {
    pub(crate) events: Vec<Event>,
    pub(crate) entries: Vec<Entry>,
    /// Deliveries that are not what they should be, and releases that were refused.
    pub(crate) problems: Vec<String>,
    /// How often the consumer misbehaved, by kind.
    pub(crate) misbehaved: BTreeMap<&'static str, u64>,
    numbers: HashMap<String, u32>,
    in_flight: HashSet<u32>,
    /// The sink has started to release these: it does no work on them again.
    done: HashSet<u32>,
    /// Somebody may work on these, as a delivery of them ended in doubt.
    doubtful: HashSet<u32>,
    working: HashSet<u32>,
    /// A call that releases these is under way.
    releasing: HashSet<u32>,
    /// The latest attempt of each event that has come.
    latest: HashMap<u32, u32>,
}

/// What the sink is to do with a delivery.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Task {
    /// Work on it, then release.
    Work,
    /// The work has been done: release again.
    ReleaseAgain,
    /// Nothing.
    Nothing,
}

impl Journal {
    /// Writes down a delivery, and says what is to be done with it.
    pub(crate) fn arrived(&mut self, event: &Event, attempt: u32, met: Met, at_us: i64) -> (u32, Task) {
        self.arrived_by(event, attempt, met, (at_us, None))
    }

    /// The same, of one that this process gave.
    pub(crate) fn arrived_by(
        &mut self,
        event: &Event,
        attempt: u32,
        met: Met,
        (at_us, by): (i64, Option<u8>),
    ) -> (u32, Task) {
        let number = self.number(event);
        let known = &self.events[number as usize];
        if known != event {
            self.problems.push(format!("{event:?} was {known:?} before"));
        }
        let is_done = self.done.contains(&number);
        let latest = self.latest.entry(number).or_default();
        *latest = attempt.max(*latest);
        let enters = !is_done;
        let what = What::Arrived { attempt, met, enters, by };
        self.entries.push(Entry { at_us, event: number, what });
        if is_done {
            return (number, Task::ReleaseAgain);
        }
        self.in_flight.insert(number);
        if met == Met::Doubtful {
            self.doubtful.insert(number);
        }
        let begins = met == Met::Taken && self.working.insert(number);
        (number, if begins { Task::Work } else { Task::Nothing })
    }

    /// Work begins although the answer to the delivery will be in doubt.
    pub(crate) fn begins_work(&mut self, event: u32) -> bool {
        self.working.insert(event)
    }

    /// A refusing answer is about to be written. After a delivery in doubt it proves nothing.
    pub(crate) fn refuses(&mut self, event: u32, at_us: i64) {
        if !self.doubtful.contains(&event) && !self.working.contains(&event) {
            self.leaves(event, at_us);
        }
    }

    /// An event on which nobody works is about to be given back by a release, whatever its deliveries were.
    pub(crate) fn gives_back(&mut self, event: u32, at_us: i64) {
        self.leaves(event, at_us);
    }

    /// The release that gives back this attempt was answered with RELEASED.
    pub(crate) fn gave_back(&mut self, event: u32, attempt: u32, said: Said, at_us: i64) {
        self.entries.push(Entry { at_us, event, what: What::GaveBack { attempt, said } });
    }

    /// The answer to a delivery that was taken is about to be written.
    pub(crate) fn answers(&mut self, event: u32, attempt: u32, at_us: i64) {
        self.entries.push(Entry { at_us, event, what: What::Answered { attempt } });
    }

    /// The connection has ended some time after the answer to this attempt. Whether that is soon is the auditor's to say.
    pub(crate) fn hung_up(&mut self, id: &str, attempt: u32, (answered_us, at_us): (i64, i64)) {
        let after_us = at_us - answered_us;
        if after_us > HUNG_UP_MAX_US {
            return;
        }
        if let Some(event) = self.numbers.get(id).copied() {
            let after_ms = u32::try_from(after_us / 1_000).unwrap_or_default();
            self.entries.push(Entry { at_us, event, what: What::HungUp { attempt, after_ms } });
        }
    }

    /// The work is done, and the call that releases is about to start. Returns the latest attempt that has come.
    pub(crate) fn finishes(&mut self, event: u32, at_us: i64) -> u32 {
        self.done.insert(event);
        self.working.remove(&event);
        self.doubtful.remove(&event);
        self.leaves(event, at_us);
        self.latest(event)
    }

    /// The service has said RELEASED.
    pub(crate) fn released(&mut self, event: u32, said: Said, at_us: i64) {
        self.entries.push(Entry { at_us, event, what: What::Released { said } });
    }

    /// A call that releases is to start. False where one is under way.
    pub(crate) fn begins_release(&mut self, event: u32) -> bool {
        self.releasing.insert(event)
    }

    /// It has been answered.
    pub(crate) fn ends_release(&mut self, event: u32) {
        self.releasing.remove(&event);
    }

    /// The latest attempt of an event that has come.
    pub(crate) fn latest(&self, event: u32) -> u32 {
        self.latest.get(&event).copied().unwrap_or(1)
    }

    /// How many events of a schedule have been done.
    pub(crate) fn done_of(&self, schedule: &str) -> usize {
        let is_one = |number: &&u32| self.events[**number as usize].schedule.starts_with(schedule);
        self.done.iter().filter(is_one).count()
    }

    /// The queue shards from which something of these schedules has come.
    pub(crate) fn shards_of(&self, kind: &str) -> HashSet<u16> {
        let of_kind = self.events.iter().filter(|event| event.schedule.starts_with(kind));
        of_kind.filter_map(Event::shard).collect()
    }

    /// Whether the work on an event has been done.
    pub(crate) fn is_done(&self, id: &str) -> bool {
        self.numbers.get(id).is_some_and(|number| self.done.contains(number))
    }

    /// Counts a misbehaviour.
    pub(crate) fn misbehaves(&mut self, kind: &'static str) {
        *self.misbehaved.entry(kind).or_default() += 1;
    }

    /// Deliveries since so many entries: whether there is one after this moment, of one of these shards if given.
    pub(crate) fn delivery_after(
        &self,
        since: usize,
        after_us: i64,
        shards: Option<&HashSet<u16>>,
    ) -> Option<i64> {
        let entries = self.entries.get(since..).unwrap_or_default();
        entries
            .iter()
            .filter(|entry| entry.at_us >= after_us && matches!(entry.what, What::Arrived { .. }))
            .find(|entry| {
                let shard = self.events[entry.event as usize].shard();
                shards.is_none_or(|shards| shard.is_some_and(|shard| shards.contains(&shard)))
            })
            .map(|entry| entry.at_us)
    }

    /// The queue shards of policies, from which something came lately: what runs without one is spread over all.
    pub(crate) fn busy_shards(&self) -> HashSet<u16> {
        let latest = self.entries.iter().rev().take(2_000).map(|entry| &self.events[entry.event as usize]);
        latest.filter(|event| !event.policy.is_empty()).filter_map(Event::shard).collect()
    }

    /// Whether the latest that is known of an event is that its consumer has taken it.
    pub(crate) fn is_taken(&self, id: &str) -> bool {
        let number = self.numbers.get(id);
        number.is_some_and(|number| self.done.contains(number) || self.working.contains(number))
    }

    /// An operator is about to give back the event's token.
    pub(crate) fn is_freed(&mut self, id: &str, at_us: i64) {
        if let Some(number) = self.numbers.get(id).copied() {
            self.leaves(number, at_us);
        }
    }

    /// How many events have been done.
    pub(crate) fn done(&self) -> usize {
        self.done.len()
    }

    fn leaves(&mut self, event: u32, at_us: i64) {
        if self.in_flight.remove(&event) {
            self.entries.push(Entry { at_us, event, what: What::Left });
        }
    }

    fn number(&mut self, event: &Event) -> u32 {
        if let Some(number) = self.numbers.get(&event.id) {
            return *number;
        }
        let number = u32::try_from(self.events.len()).unwrap_or(u32::MAX);
        self.events.push(event.clone());
        self.numbers.insert(event.id.clone(), number);
        number
    }
}
