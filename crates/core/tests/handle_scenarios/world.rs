//! A driver that does what the handle module's head says, with a store in memory and both clocks in its hand.

use std::collections::BTreeMap;

use tollgate_core::handle::change::{HistoryRow, Outcome, ShardSchedule, TokenState};
use tollgate_core::handle::control::{Control, Message, UnderWay};
use tollgate_core::handle::release::{Answer, Release, ReleaseOutcome};
use tollgate_core::handle::{Effect, MessageNeeds, Options, Send, Shard};
use tollgate_core::model::*;
use uuid::Uuid;

use crate::handle_world::{START_US, Store, policy, weighed_items};

/// One shard and its owner.
pub(crate) struct World {
    pub(crate) shard: Shard,
    pub(crate) store: Store,
    pub(crate) now: Now,
    pub(crate) options: Options,
    /// What was to be delivered, and has not been looked at.
    pub(crate) sends: Vec<Send>,
    /// Answers that came as effects.
    pub(crate) replies: Vec<(u64, Answer)>,
    /// Ends that another run is to follow, by their messages.
    pub(crate) ends: Vec<(Uuid, RunEnd)>,
    /// What was posted to other shards.
    pub(crate) forwards: Vec<(u16, Message)>,
    /// Free room at workers, by the address of their queue and what they are able to do.
    pub(crate) room: BTreeMap<String, u32>,
    /// For how much room was asked, and how much of it was lacking; the latest word of each pool.
    pub(crate) asked: BTreeMap<u128, (String, u32, u32)>,
    /// Nothing waits unread in the inbox.
    pub(crate) inbox_is_read: bool,
    messages: u128,
}

impl World {
    pub(crate) fn new() -> Self {
        Self::with(Options::default(), Vec::new())
    }

    /// A shard that knows these policies.
    pub(crate) fn with(options: Options, policies: Vec<Policy>) -> Self {
        let policies = policies.into_iter().map(|p| (p.uid, p)).collect();
        let store = Store { policies, ..Store::default() };
        let now = Now { wall_us: START_US, mono_us: 5 * SECOND_US };
        let shard = Shard::new(0, options.clone(), store.state(), 7, now);
        let (sends, replies, ends, forwards) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
        Self {
            shard,
            store,
            now,
            options,
            sends,
            replies,
            ends,
            forwards,
            room: BTreeMap::new(),
            asked: BTreeMap::new(),
            inbox_is_read: true,
            messages: 0,
        }
    }

    pub(crate) fn with_policy(policy: &Policy) -> Self {
        Self::with(Options::default(), vec![policy.clone()])
    }

    pub(crate) fn with_policies(policies: &[&Policy]) -> Self {
        Self::with(Options::default(), policies.iter().map(|policy| (*policy).clone()).collect())
    }

    /// Commits and performs until nothing is left that cannot wait.
    pub(crate) fn settle(&mut self) {
        if self.inbox_is_read {
            self.shard.caught_up(self.now.mono_us);
        }
        self.send_due();
        loop {
            let commit = self.shard.poll_commit(self.now);
            if self.look_for_room() {
                assert!(commit.is_none(), "it commits before it knows what room there is");
                continue;
            }
            self.give_room_back();
            let Some(commit) = commit else { break };
            self.forwards.extend(commit.changes.forwards.clone());
            self.store.apply(&commit.changes);
            let effects = self.shard.committed(self.now);
            self.perform(effects);
            self.send_due();
        }
    }

    /// Room is given as it is asked for, as far as there is some. Whether any was asked for.
    fn look_for_room(&mut self) -> bool {
        let asks = self.shard.rooms_asked(self.now);
        for ask in &asks {
            let address = ask.spec.target.address().to_owned();
            let free = self.room.entry(address.clone()).or_default();
            let given = ask.want.min(*free);
            *free -= given;
            self.asked.insert(ask.pool, (address, ask.want, ask.want - given));
            if given > 0 {
                assert!(self.shard.room_given(ask.pool, given, self.now));
            }
        }
        !asks.is_empty()
    }

    fn give_room_back(&mut self) {
        for (pool, units) in self.shard.room_left() {
            let (address, _, lacks) = self.asked.get_mut(&pool).unwrap();
            *self.room.get_mut(address).unwrap() += units;
            *lacks = 0;
        }
    }

    /// Workers have room for so many more events: it goes to those that lack some.
    pub(crate) fn room_comes(&mut self, address: &str, units: u32) {
        *self.room.entry(address.to_owned()).or_default() += units;
        for (pool, (at, _, lacks)) in &mut self.asked {
            let free = self.room.get_mut(address).unwrap();
            let given = if at == address { (*lacks).min(*free) } else { 0 };
            if given > 0 {
                *free -= given;
                *lacks -= given;
                if !self.shard.room_given(*pool, given, self.now) {
                    *free += given;
                }
            }
        }
        self.settle();
    }

    fn perform(&mut self, effects: Vec<Effect>) {
        for effect in effects {
            match effect {
                Effect::Send(send) => {
                    let row = &self.store.tokens[&(send.run, send.index)];
                    assert_eq!((row.state, row.attempt), (TokenState::Acquired, send.attempt));
                    assert!(send.launch_us <= self.now.wall_us, "{send:?} before its launch time");
                    self.sends.push(send);
                }
                Effect::Reply { reply, answer } => self.replies.push((reply, answer)),
                Effect::Follow { message, end } => self.ends.push((message, end)),
            }
        }
    }

    /// What was acquired before its launch time.
    fn send_due(&mut self) {
        let due = self.shard.due(self.now);
        self.perform(due);
    }

    /// Commits what could wait for company, too.
    pub(crate) fn flush(&mut self) {
        self.shard.durable_after();
        self.settle();
    }

    /// Both clocks go on by so many seconds; the machine is polled at each of its deadlines.
    pub(crate) fn sleep_s(&mut self, seconds: i64) {
        self.sleep_us(seconds * SECOND_US);
    }

    pub(crate) fn sleep_us(&mut self, us: i64) {
        let end = self.now.mono_us + us;
        self.settle();
        let mut polls = 0;
        loop {
            let deadline = self.shard.next_deadline();
            let wall = deadline.wall_us.map(|w| w - self.now.wall_us);
            let mono = deadline.mono_us.map(|m| m - self.now.mono_us);
            let due = deadline.due_us.map(|w| w - self.now.wall_us);
            let wait = wall.into_iter().chain(mono).chain(due).min().unwrap_or(i64::MAX).max(0);
            if wait > end - self.now.mono_us {
                break;
            }
            polls += 1;
            assert!(
                polls < 100_000,
                "the machine wants to be polled again and again: {deadline:?} at {:?}",
                self.now
            );
            self.pass(wait);
            self.settle();
        }
        self.pass(end - self.now.mono_us);
        self.settle();
    }

    /// Time in which nobody looks.
    pub(crate) fn pass(&mut self, us: i64) {
        self.now.wall_us += us;
        self.now.mono_us += us;
    }

    /// An emitter hands a run over, and the owner reads it.
    pub(crate) fn emit(&mut self, run: Run, spec: &RunSpec) -> RunId {
        let id = run.id;
        self.store.emit(run, spec);
        self.read_runs();
        id
    }

    pub(crate) fn read_runs(&mut self) {
        self.shard.begin_read();
        let (mut runs, mut specs) = self.store.emitted(i64::MAX);
        let (more, their) = self.store.unreadable();
        runs.extend(more);
        specs.extend(their);
        specs.extend(self.store.specs_of(&[], &self.shard.specs_wanted(&runs)));
        self.shard.adopt(runs, specs, self.now);
        self.flush();
    }

    /// A message goes through the inbox.
    pub(crate) fn tell(&mut self, control: Control) {
        let message = self.post(control);
        self.shard.begin_read();
        let context = self.store.context(&MessageNeeds::of(&message.control));
        self.shard.control(message, context, self.now);
        self.settle();
    }

    /// Puts a message into the inbox.
    pub(crate) fn post(&mut self, control: Control) -> Message {
        self.messages += 1;
        let message = Message { id: Uuid::from_u128(self.messages), control };
        self.store.inbox.insert(message.id, message.clone());
        message
    }

    pub(crate) fn change_policy(&mut self, policy: &mut Policy, change: impl FnOnce(&mut Policy)) {
        change(policy);
        policy.generation += 1;
        self.tell(Control::PolicyChanged { policy: policy.clone() });
    }

    /// The owner dies and another takes over after so many seconds.
    pub(crate) fn restart_after_s(&mut self, seconds: i64) {
        self.pass(seconds * SECOND_US);
        self.shard = Shard::new(0, self.options.clone(), self.store.state(), 8, self.now);
        self.settle();
        self.read_runs();
    }

    /// A planned hand-over: the former owner leaves a note of what is under way, and the next one reads it first. It
    /// waits at most so long for answers.
    pub(crate) fn hand_over(&mut self, wait_ms: i64) -> Vec<UnderWay> {
        self.shard.drain();
        self.settle();
        let deliveries = self.shard.under_way(wait_ms, self.now);
        let note = Message::first(self.random(), Control::UnderWay { deliveries: deliveries.clone() });
        self.store.inbox.insert(note.id, note);
        self.shard = Shard::new(0, self.options.clone(), self.store.state(), 9, self.now);
        self.read_inbox();
        self.settle();
        deliveries
    }

    /// A former owner reports an answer.
    pub(crate) fn report(&mut self, send: &Send, sent: Sent) {
        let control = Control::Sent { run: send.run, index: send.index, attempt: send.attempt, sent };
        let message = Message::first(self.random(), control);
        self.store.inbox.insert(message.id, message);
        self.read_inbox();
        self.flush();
    }

    fn read_inbox(&mut self) {
        self.shard.begin_read();
        let messages: Vec<Message> = self.store.inbox.values().cloned().collect();
        for message in messages {
            let context = self.store.context(&MessageNeeds::of(&message.control));
            self.shard.control(message, context, self.now);
        }
    }

    fn random(&mut self) -> u64 {
        self.messages += 1;
        u64::try_from(self.messages).unwrap()
    }

    /// Deliveries since the last look.
    pub(crate) fn take_sends(&mut self) -> Vec<Send> {
        std::mem::take(&mut self.sends)
    }

    pub(crate) fn answer(&mut self, send: &Send, sent: Sent) {
        self.shard.sent(send.run, send.index, send.attempt, sent, self.now);
        self.flush();
    }

    pub(crate) fn accept_all(&mut self) -> Vec<Send> {
        let sends = self.take_sends();
        for send in &sends {
            self.shard.sent(send.run, send.index, send.attempt, Sent::Accepted, self.now);
        }
        self.flush();
        sends
    }

    /// Releases, and gives the answer, whichever way it comes.
    pub(crate) fn release(&mut self, release: Release) -> Answer {
        match self.shard.release(release, 42, self.now) {
            Some(answer) => answer,
            None => {
                self.settle();
                let (reply, answer) = self.replies.pop().unwrap();
                assert_eq!(reply, 42);
                answer
            }
        }
    }

    /// A heartbeat, and its answer, whichever way it comes.
    pub(crate) fn extend(
        &mut self,
        event: (RunId, u32),
        attempt: Option<u32>,
        ttl_ms: Option<i64>,
    ) -> Answer {
        match self.shard.extend(event, attempt, ttl_ms, 43, self.now) {
            Some(answer) => answer,
            None => {
                self.settle();
                let (reply, answer) = self.replies.pop().unwrap();
                assert_eq!(reply, 43);
                answer
            }
        }
    }

    pub(crate) fn succeed(&mut self, send: &Send) -> Answer {
        self.release(done(send))
    }

    /// Accepts and releases everything until nothing is sent any more; how many events that were.
    pub(crate) fn work_off(&mut self) -> usize {
        let mut worked = 0;
        loop {
            let sends = self.accept_all();
            if sends.is_empty() {
                return worked;
            }
            worked += sends.len();
            for send in sends {
                if send.explicit_release {
                    assert_eq!(self.succeed(&send), Answer::Released);
                }
            }
        }
    }

    pub(crate) fn row(&self, id: RunId) -> &Run {
        &self.store.runs[&id]
    }

    pub(crate) fn ended(&self, id: RunId, index: u32) -> Option<&HistoryRow> {
        self.store.history.get(&(id, index))
    }

    /// How the events of a run ended: (first, count, outcome).
    pub(crate) fn outcomes(&self, id: RunId) -> Vec<(u32, u32, Outcome)> {
        let rows = self.store.history.range((id, 0)..=(id, u32::MAX));
        rows.map(|(_, r)| (r.index, r.count, r.outcome)).collect()
    }

    /// Tokens held, by the machine's own count; zero for what it does not know.
    pub(crate) fn held(&self, policy: &Policy) -> u32 {
        let status = self.shard.status(self.now);
        let gauge = status.gauges.iter().find(|g| g.policy.as_ref().is_some_and(|p| p.uid == policy.uid));
        gauge.map_or(0, |g| g.held)
    }

    /// Tokens held by the events of all policies below.
    pub(crate) fn below(&self, policy: &Policy) -> u32 {
        let status = self.shard.status(self.now);
        let gauge = status.gauges.iter().find(|g| g.policy.as_ref().is_some_and(|p| p.uid == policy.uid));
        gauge.map_or(0, |g| g.below)
    }
}

/// Items of these keys, one each, as a spec has them.
pub(crate) fn items<'k>(keys: impl IntoIterator<Item = &'k str>) -> String {
    weighed_items(keys.into_iter().map(|key| (key, 0)))
}

/// No limits.
pub(crate) fn no_limit() -> Limits {
    Limits::default()
}

/// A policy below this one.
pub(crate) fn below(parent: &Policy, uid: u128, limits: Limits) -> Policy {
    let above = Parent {
        uid: parent.uid,
        namespace: parent.namespace.clone(),
        id: parent.id.clone(),
        floor: 0,
        weight: 1,
    };
    Policy { parent: Some(Box::new(above)), ..policy(uid, limits) }
}

/// Limits with only `max_in_flight` set.
pub(crate) fn at_most(max_in_flight: u32) -> Limits {
    Limits { max_in_flight: Some(max_in_flight), ..Limits::default() }
}

/// The consumer of a delivery has done its work.
pub(crate) fn done(send: &Send) -> Release {
    Release {
        run: send.run,
        index: send.index,
        attempt: Some(send.attempt),
        outcome: ReleaseOutcome::Succeeded,
        message: String::new(),
        next_check_us: None,
        cursor: None,
        result: None,
    }
}

/// The target answered and did not take it.
pub(crate) fn refused() -> Sent {
    Sent::Refused { message: "503".into(), retry_after_ms: None, permanent: false }
}

/// Nobody knows.
pub(crate) fn unclear() -> Sent {
    Sent::Unclear { message: "timed out".into(), retry_after_ms: None }
}

/// The fence of a schedule's generation: from `changed_us` on, these launch times up to `until_us`.
pub(crate) fn fence(spec: &RunSpec, changed_us: i64, until_us: i64, launches_us: Vec<i64>) -> ShardSchedule {
    ShardSchedule {
        uid: spec.schedule_uid,
        generation: spec.generation,
        changed_us,
        until_us,
        launches_us,
        events: 1,
        priority: 5,
        ..ShardSchedule::default()
    }
}
