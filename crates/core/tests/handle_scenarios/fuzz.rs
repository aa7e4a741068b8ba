//! One shard with large batches and inputs at random: answers and releases by the hundred while commits are under way,
//! commits that fail or are durable without an answer, owners that die, load anew or hand over. What the machine says of
//! each event is what is stored, and what the next owner would say; at the end nothing is left.

use std::collections::BTreeMap;

use tollgate_core::handle::batch::{BATCH_MAX, TokenBatch};
use tollgate_core::handle::change::{Changes, TokenState};
use tollgate_core::handle::control::{Control, Message};
use tollgate_core::handle::release::{EventResult, Release, ReleaseOutcome};
use tollgate_core::handle::{Effect, EventState, MessageNeeds, Options, Send, Shard};
use tollgate_core::model::*;
use uuid::Uuid;

use crate::handle_world::*;
use crate::random::Random;

const STEPS: u32 = 100;
/// Events of a run at most.
const EVENTS_MAX: i64 = 2_000;
/// Answers or releases that come together, at most.
const TOGETHER_MAX: i64 = 400;
/// Rounds of full work in which everything must have ended.
const ROUNDS_MAX: u32 = 1_000;

/// What happened in a world.
pub(crate) struct Played {
    /// As they were emitted.
    pub(crate) runs: Vec<Run>,
    /// What was stored, in order.
    pub(crate) commits: Vec<Changes>,
}

/// One shard, its store and its consumers.
struct World {
    random: Random,
    shard: Shard,
    store: Store,
    now: Now,
    options: Options,
    policies: Vec<Policy>,
    /// The largest limit that each policy has had.
    limits: BTreeMap<Uuid, u32>,
    /// Deliveries that nobody has answered.
    under_way: Vec<Send>,
    /// Deliveries that consumers have, or may have.
    taken: Vec<Send>,
    /// Deliveries that were taken, before and after the commit under way began: what an owner remembers.
    committing: Vec<(RunId, u32, u32)>,
    heard: Vec<(RunId, u32, u32)>,
    messages: u64,
    played: Played,
}

/// Plays a world to its end.
pub(crate) fn play(seed: u64) -> Played {
    let mut world = World::new(seed);
    for step in 0..STEPS {
        world.input();
        world.commit();
        match world.random.within(0, 60) {
            0 => world.crash(),
            1 => world.hand_over(),
            2 => world.reload(),
            _ => {}
        }
        if step % 10 == 9 {
            world.compare();
        }
    }
    world.end();
    world.played
}

impl World {
    /// Two policies, one run of each of four schedules; the last has no policy.
    fn new(seed: u64) -> Self {
        let mut random = Random::new(seed);
        let batch = i64::from(BATCH_MAX);
        let limits = [random.within(1, 8), random.within(batch - 1, batch + 3), random.within(1, 3 * batch)];
        let policies: Vec<Policy> = (1..=2)
            .map(|uid| {
                let limit = random.pick(&limits).map(|limit| *limit as u32);
                policy(uid, Limits { max_in_flight: limit, ..Limits::default() })
            })
            .collect();
        let options = Options {
            sends_max: random.within(1, 1_500) as u32,
            retrying_max: random.within(1, 50) as u32,
            ..Options::default()
        };
        let options = if random.within(0, 2) == 0 { Options { lazy_us: 0, ..options } } else { options };
        let now = Now { wall_us: START_US, mono_us: 5 * SECOND_US };
        let store =
            Store { policies: policies.iter().map(|p| (p.uid, p.clone())).collect(), ..Store::default() };
        let mut world = Self {
            shard: Shard::new(0, options.clone(), store.state(), random.next(), now),
            limits: policies.iter().map(|p| (p.uid, p.limits.max_in_flight.unwrap())).collect(),
            random,
            store,
            now,
            options,
            policies,
            under_way: Vec::new(),
            taken: Vec::new(),
            committing: Vec::new(),
            heard: Vec::new(),
            messages: 0,
            played: Played { runs: Vec::new(), commits: Vec::new() },
        };
        for (number, policy) in [Some(0), Some(0), Some(1), None].into_iter().enumerate() {
            let policy = policy.map(|at: usize| world.policies[at].clone());
            let mut spec = spec(10 + number as u128, policy.as_ref());
            if let Target::Http { release, .. } = &mut spec.target
                && policy.is_none()
                && world.random.percent(50)
            {
                *release = ReleaseMode::Explicit;
            }
            spec.retry.retry_lost = world.random.percent(50);
            let events = world.random.within(1, EVENTS_MAX) as u32;
            let run = run(&spec, START_US + number as i64 * SECOND_US, events);
            world.store.emit(run.clone(), &spec);
            world.played.runs.push(run);
        }
        world.read();
        world
    }

    fn store(&mut self, changes: Changes) {
        self.store.apply(&changes);
        self.played.commits.push(changes);
    }

    fn committed(&mut self, changes: Changes) {
        self.store(changes);
        self.committing.clear();
        let mut effects = self.shard.committed(self.now);
        effects.append(&mut self.shard.due(self.now));
        for effect in effects {
            if let Effect::Send(send) = effect {
                let row = &self.store.tokens[&(send.run, send.index)];
                assert_eq!((row.state, row.attempt), (TokenState::Acquired, send.attempt));
                self.under_way.push(send);
            }
        }
        for (policy, limit) in &self.limits {
            let in_flight = self.store.in_flight(Some(*policy));
            assert!(in_flight <= *limit, "{in_flight} in flight; at most {limit}");
        }
    }

    /// A commit, with inputs while it is under way.
    fn commit(&mut self) {
        if self.random.percent(50) {
            self.shard.durable_after();
        }
        let Some(commit) = self.shard.poll_commit(self.now) else { return };
        self.committing.append(&mut self.heard);
        for _ in 0..self.random.within(0, 3) {
            self.input();
        }
        match self.random.within(0, 20) {
            0 => self.reload(),
            1 => {
                self.store(commit.changes);
                self.reload();
            }
            _ => self.committed(commit.changes),
        }
    }

    /// Commits until nothing is left to be.
    fn settle(&mut self) {
        loop {
            // What could wait for company does not.
            self.shard.durable_after();
            let Some(commit) = self.shard.poll_commit(self.now) else { return };
            self.heard.clear();
            self.committed(commit.changes);
        }
    }

    fn read(&mut self) {
        self.shard.begin_read();
        let messages: Vec<Message> = self.store.inbox.values().cloned().collect();
        let (runs, specs) = self.store.emitted(i64::MAX);
        for message in messages {
            let context = self.store.context(&MessageNeeds::of(&message.control));
            self.shard.control(message, context, self.now);
        }
        self.shard.adopt(runs, specs, self.now);
        self.shard.caught_up(self.now.mono_us);
    }

    fn tell(&mut self, control: Control) {
        self.messages += 1;
        let message = Message::first(self.messages, control);
        self.store.inbox.insert(message.id, message);
        self.read();
    }

    fn next_owner(&mut self) {
        let seed = self.random.next();
        self.shard = Shard::new(0, self.options.clone(), self.store.state(), seed, self.now);
        self.read();
    }

    /// What an owner does after a commit that failed, or that nobody knows of.
    fn reload(&mut self) {
        let under_way = self.shard.under_way(i64::MAX, self.now);
        self.next_owner();
        self.shard.wait_for(under_way, self.now);
        let fresh = std::mem::take(&mut self.heard);
        self.heard = std::mem::take(&mut self.committing);
        self.heard.extend(fresh);
        for (run, index, attempt) in self.heard.clone() {
            self.shard.sent(run, index, attempt, Sent::Accepted, self.now);
        }
    }

    /// Answers on their way are lost, and half of the deliveries.
    fn crash(&mut self) {
        self.heard.clear();
        self.committing.clear();
        for send in std::mem::take(&mut self.under_way) {
            if self.random.percent(50) {
                self.taken.push(send);
            }
        }
        self.next_owner();
    }

    fn hand_over(&mut self) {
        self.shard.drain();
        self.settle();
        let deliveries = self.shard.under_way(2_000, self.now);
        self.messages += 1;
        let note = Message::first(self.messages, Control::UnderWay { deliveries });
        self.store.inbox.insert(note.id, note);
        self.next_owner();
    }

    fn input(&mut self) {
        match self.random.within(0, 100) {
            0..40 => self.answers(),
            40..80 => self.releases(),
            80..85 => self.heartbeats(),
            85..87 => self.change_limit(),
            87 => {
                let run = self.random.pick(&self.played.runs).unwrap().id;
                let retry = Control::RetryDead { run, indexes: Vec::new() };
                let cancel = Control::CancelRun { run, reason: String::new() };
                let control = if self.random.percent(70) { retry } else { cancel };
                self.tell(control);
            }
            88 => {
                let pause = self.random.percent(30).then(pause);
                self.tell(Control::PauseShard { pause });
            }
            _ => {
                let seconds = self.random.within(0, 3) * self.random.within(0, 30);
                self.sleep_s(seconds);
                self.read();
            }
        }
    }

    fn sleep_s(&mut self, seconds: i64) {
        self.now.wall_us += seconds * SECOND_US;
        self.now.mono_us += seconds * SECOND_US;
    }

    /// Now and then some of the deliveries go wrong.
    fn answers(&mut self) {
        let kinds = if self.random.percent(25) { 0 } else { 4 };
        for _ in 0..self.random.within(0, TOGETHER_MAX).min(self.under_way.len() as i64) {
            let at = self.random.within(0, self.under_way.len() as i64) as usize;
            let send = self.under_way.swap_remove(at);
            let (run, index, attempt) = (send.run, send.index, send.attempt);
            let message = String::new();
            let sent = match self.random.within(kinds, 40) {
                0 => Sent::Refused { message, retry_after_ms: None, permanent: false },
                1 => Sent::Refused { message, retry_after_ms: Some(500), permanent: true },
                2 => Sent::Unclear { message, retry_after_ms: None },
                3 => {
                    self.shard.unsent(run, index, attempt, self.now);
                    continue;
                }
                _ => Sent::Accepted,
            };
            if sent == Sent::Accepted {
                self.heard.push((run, index, attempt));
            }
            if !matches!(sent, Sent::Refused { .. }) {
                self.taken.push(send);
            }
            self.shard.sent(run, index, attempt, sent, self.now);
        }
    }

    /// Some come early, some more than once, and some are not of success.
    fn releases(&mut self) {
        let odd = self.random.percent(25);
        for _ in 0..self.random.within(0, TOGETHER_MAX) {
            let early = self.random.percent(5);
            let from = if early { &self.under_way } else { &self.taken };
            let Some(send) = self.random.pick(from).cloned() else { return };
            if self.random.percent(70) {
                self.taken.retain(|taken| (taken.run, taken.index) != (send.run, send.index));
            }
            let kind = if odd { self.random.within(0, 20) } else { 20 };
            let outcome = match kind {
                0 => ReleaseOutcome::Failed,
                1 => ReleaseOutcome::Retry,
                _ => ReleaseOutcome::Succeeded,
            };
            let release = Release {
                run: send.run,
                index: send.index,
                attempt: self.random.percent(75).then_some(send.attempt),
                outcome,
                message: String::new(),
                next_check_us: (kind == 2).then_some(self.now.wall_us + 5 * SECOND_US),
                cursor: (kind == 3).then(|| "c".to_owned()),
                result: (kind == 4)
                    .then(|| Box::new(EventResult { body: "[1]".to_owned(), bytes: 3, items: 1 })),
            };
            self.shard.release(release, 1, self.now);
        }
    }

    /// Those with a time to live need rows of their own.
    fn heartbeats(&mut self) {
        for _ in 0..self.random.within(0, 20) {
            let Some(send) = self.random.pick(&self.taken) else { return };
            let event = (send.run, send.index);
            let ttl_ms = self.random.percent(50).then_some(30_000);
            self.shard.extend(event, None, ttl_ms, 2, self.now);
        }
    }

    fn change_limit(&mut self) {
        let (at, limit) =
            (self.random.within(0, 2) as usize, self.random.within(1, 3 * i64::from(BATCH_MAX)));
        self.limit(at, limit as u32);
    }

    fn limit(&mut self, at: usize, limit: u32) {
        let policy = &mut self.policies[at];
        policy.limits.max_in_flight = Some(limit);
        policy.generation += 1;
        let policy = policy.clone();
        let largest = self.limits.get_mut(&policy.uid).unwrap();
        *largest = limit.max(*largest);
        self.tell(Control::PolicyChanged { policy });
    }

    /// Memory, the store and the next owner agree on every event.
    fn compare(&mut self) {
        self.settle();
        let next = Shard::new(0, self.options.clone(), self.store.state(), 1, self.now);
        let state = |shard: &Shard, run, index| {
            let state = shard.event_state(run, index)?;
            let attempt = shard.explain(run, index, self.now).map(|explained| explained.attempt);
            // Silence is in no row.
            Some((if state == EventState::Suspect { EventState::Held } else { state }, attempt))
        };
        let mut rows = 0;
        for run in self.store.runs.values() {
            for index in 0..run.events {
                let row = self.store.tokens.get(&(run.id, index)).map(|row| {
                    let state = match row.state {
                        TokenState::Acquired => EventState::Acquired,
                        TokenState::Held => EventState::Held,
                        TokenState::Waiting => EventState::Retrying,
                    };
                    (state, Some(row.attempt))
                });
                assert_eq!(state(&self.shard, run.id, index), row, "memory: {}, {index}", run.id);
                assert_eq!(state(&next, run.id, index), row, "the next owner: {}, {index}", run.id);
                rows += usize::from(row.is_some());
            }
        }
        let state = self.store.state();
        let batched: usize = state.batches.iter().map(|batch| batch.rows().count()).sum();
        assert_eq!(state.tokens.len() + batched, rows, "an event is in at most one place");
        assert!(!state.batches.iter().any(TokenBatch::is_empty), "{:?}", state.batches);
    }

    /// Everybody does their work, and everything ends.
    fn end(&mut self) {
        self.tell(Control::PauseShard { pause: None });
        for at in 0..self.policies.len() {
            self.limit(at, BATCH_MAX);
        }
        let is_open = |run: &Run| !matches!(run.state, RunState::Finished | RunState::Cancelled);
        for _ in 0..ROUNDS_MAX {
            self.read();
            self.settle();
            for send in std::mem::take(&mut self.under_way) {
                self.shard.sent(send.run, send.index, send.attempt, Sent::Accepted, self.now);
                self.taken.push(send);
            }
            for send in std::mem::take(&mut self.taken) {
                let release = Release {
                    run: send.run,
                    index: send.index,
                    attempt: None,
                    outcome: ReleaseOutcome::Succeeded,
                    message: String::new(),
                    next_check_us: None,
                    cursor: None,
                    result: None,
                };
                self.shard.release(release, 1, self.now);
            }
            self.sleep_s(20);
            if !self.store.runs.values().any(is_open) {
                break;
            }
        }
        for run in self.store.runs.values() {
            assert!(!is_open(run) && run.counts.total() == run.events, "{run:?}");
        }
        assert!(self.store.tokens.is_empty() && self.store.batches.is_empty(), "{:?}", self.store.batches);
        assert!(self.shard.status(self.now).gauges.iter().all(|gauge| gauge.held == 0));
    }
}
