//! The driver of one shard: reads, commits and effects, each of which may go wrong or come late.

use std::collections::BTreeMap;

use tollgate_core::handle::change::{Changes, TokenState};
use tollgate_core::handle::control::Message;
use tollgate_core::handle::release::Release;
use tollgate_core::handle::{Context, Effect, Needs, Options, Shard, State};
use tollgate_core::model::*;

use crate::handle_world::Store;
use crate::world::{Event, Fault, World};

/// What becomes of a commit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fate {
    Durable,
    Failed,
    /// Durable, but nobody says so.
    Unknown,
}

/// A read of a shard's news, step by step: each part is a snapshot of another moment.
#[derive(Default)]
struct Read {
    runs: Option<(Vec<Run>, Vec<RunSpec>)>,
    inbox: Option<Vec<Message>>,
    messages: Option<Vec<(Message, Context)>>,
}

/// A shard, its store, and who drives it.
pub(crate) struct Owner {
    pub(crate) store: Store,
    pub(crate) machine: Option<Shard>,
    /// Counts owners.
    pub(crate) life: u64,
    commit: Option<(Changes, Fate)>,
    read: Option<Read>,
    replies: BTreeMap<u64, Release>,
}

impl Owner {
    pub(crate) fn new() -> Self {
        Self {
            store: Store::default(),
            machine: None,
            life: 0,
            commit: None,
            read: None,
            replies: BTreeMap::new(),
        }
    }

    pub(crate) fn deadline(&self, now: Now) -> Option<i64> {
        let deadline = self.machine.as_ref()?.next_deadline();
        let wall_us = deadline.wall_us.map(|at_us| at_us - now.wall_us + now.mono_us);
        wall_us.into_iter().chain(deadline.mono_us).min()
    }

    pub(crate) fn is_idle(&self) -> bool {
        self.machine.is_some() && self.commit.is_none()
    }
}

impl World {
    pub(crate) fn take(&mut self, shard: u16) {
        let options = Options {
            sends_max: *self.random.pick(&[3, 50]).unwrap(),
            retrying_max: *self.random.pick(&[2, 1000]).unwrap(),
            lazy_us: *self.random.pick(&[0, 20_000, 500_000]).unwrap(),
        };
        let seed = self.random.next();
        let owner = &mut self.owners[usize::from(shard)];
        let mut state: State = owner.store.state();
        match self.fault {
            Fault::WaitingNotLoaded => state.tokens.retain(|t| t.state != TokenState::Waiting),
            Fault::LimitDoubled => {
                for policy in &mut state.policies {
                    policy.limits.max_in_flight = policy.limits.max_in_flight.map(|m| 2 * m);
                }
            }
            _ => {}
        }
        owner.life += 1;
        owner.machine = Some(Shard::new(shard, options, state, seed, self.now));
        let life = owner.life;
        let wait_us = self.random.within(0, 300_000);
        self.after(wait_us, Event::Read(shard, life));
    }

    /// The owner is gone, and another comes.
    fn drop_owner(&mut self, shard: u16) {
        let owner = &mut self.owners[usize::from(shard)];
        (owner.machine, owner.commit, owner.read) = (None, None, None);
        owner.replies.clear();
        let down_us = *self.random.pick(&[0, 100_000, 3 * SECOND_US, 90 * SECOND_US]).unwrap();
        self.after(if self.chaos { down_us } else { 0 }, Event::Take(shard));
    }

    pub(crate) fn crash(&mut self, shard: u16) {
        if self.owners[usize::from(shard)].machine.is_none() {
            return;
        }
        self.count("crash");
        if let Some((changes, _)) = self.owners[usize::from(shard)].commit.take()
            && self.random.percent(50)
        {
            self.make_durable(shard, &changes);
        }
        self.drop_owner(shard);
    }

    pub(crate) fn poll(&mut self, shard: u16) {
        let owner = &mut self.owners[usize::from(shard)];
        let Some(machine) = &mut owner.machine else { return };
        let Some(commit) = machine.poll_commit(self.now) else { return };
        assert!(owner.commit.is_none(), "two commits at once");
        let fate = match self.random.within(0, 100) {
            0..2 if self.chaos => Fate::Failed,
            2..4 if self.chaos => Fate::Unknown,
            _ => Fate::Durable,
        };
        for (to, message) in &commit.changes.forwards {
            let inbox = &mut self.owners[usize::from(*to)].store.inbox;
            // Idempotent as long as the message is there; a repetition after that finds an older generation.
            inbox.entry(message.id).or_insert_with(|| message.clone());
            self.count("forward");
        }
        let owner = &mut self.owners[usize::from(shard)];
        owner.commit = Some((commit.changes, fate));
        let life = owner.life;
        let wait_us = *self.random.pick(&[0, 1_000, 5_000, 80_000]).unwrap();
        self.after(wait_us, Event::Commit(shard, life));
    }

    pub(crate) fn end_commit(&mut self, shard: u16, life: u64) {
        let owner = &mut self.owners[usize::from(shard)];
        if owner.life != life || owner.machine.is_none() {
            return;
        }
        let Some((changes, fate)) = owner.commit.take() else { return };
        if fate != Fate::Failed {
            self.make_durable(shard, &changes);
        }
        if fate == Fate::Durable || self.fault == Fault::EffectsOfFailedCommits {
            self.count("commit");
            let effects = self.owners[usize::from(shard)].machine.as_mut().unwrap().committed();
            for effect in effects {
                self.perform(shard, effect);
            }
        }
        match fate {
            Fate::Durable => self.compare_gauges(shard),
            Fate::Failed => self.count("commit failed"),
            Fate::Unknown => self.count("commit durable after all"),
        }
        if fate != Fate::Durable {
            self.drop_owner(shard);
        }
    }

    fn make_durable(&mut self, shard: u16, changes: &Changes) {
        let before = self.loads(shard);
        let mut changes = changes.clone();
        if self.fault == Fault::TokensNotWritten && self.random.percent(5) {
            changes.tokens_put.clear();
        }
        if self.fault == Fault::WithdrawnStay {
            changes.runs_withdrawn.clear();
        }
        self.owners[usize::from(shard)].store.apply(&changes);
        self.check_commit(shard, &before, &changes);
    }

    fn perform(&mut self, shard: u16, effect: Effect) {
        match effect {
            Effect::Send(send) => {
                self.check_send(shard, &send);
                self.deliver(shard, send);
            }
            Effect::Reply { reply, answer } => {
                if let Some(release) = self.owners[usize::from(shard)].replies.remove(&reply) {
                    self.check_answer(shard, &release, &answer);
                }
            }
        }
    }

    pub(crate) fn go_on_reading(&mut self, shard: u16, life: u64) {
        let now = self.now;
        let owner = &mut self.owners[usize::from(shard)];
        let (Some(machine), true) = (&mut owner.machine, owner.life == life) else { return };
        let mut wait_us = *self.random.pick(&[0, 0, 1_000, 100_000]).unwrap();
        let read = owner.read.get_or_insert_with(|| {
            machine.begin_read();
            Read::default()
        });
        if read.runs.is_none() {
            let ahead_us = *self.random.pick(&[10, 60, 600]).unwrap() * SECOND_US;
            read.runs = Some(owner.store.emitted(now.wall_us + ahead_us));
        } else if read.inbox.is_none() {
            read.inbox = Some(owner.store.inbox.values().cloned().collect());
        } else if read.messages.is_none() {
            let inbox = read.inbox.clone().unwrap_or_default().into_iter();
            read.messages =
                Some(inbox.map(|m| (m.clone(), owner.store.context(&Needs::of(&m.control)))).collect());
        } else if let Some(Read { runs: Some((runs, specs)), messages: Some(messages), .. }) =
            owner.read.take()
        {
            for (message, context) in messages {
                machine.control(message, context, now);
            }
            machine.adopt(runs, specs, now);
            wait_us = self.random.within(10_000, SECOND_US);
        }
        self.after(wait_us, Event::Read(shard, life));
    }

    pub(crate) fn answer(&mut self, shard: u16, life: u64, event: (RunId, u32, u32), sent: Sent) {
        // An answer may reach the next owner of the same process, or nobody.
        let same = self.owners[usize::from(shard)].life == life;
        if !same && self.random.percent(50) {
            return;
        }
        let now = self.now;
        if let Some(machine) = &mut self.owners[usize::from(shard)].machine {
            machine.sent(event.0, event.1, event.2, sent, now);
        }
    }

    pub(crate) fn release(&mut self, shard: u16, release: Release, inbox: bool) {
        let now = self.now;
        self.numbers += 1;
        let reply = self.numbers;
        let owner = &mut self.owners[usize::from(shard)];
        match &mut owner.machine {
            Some(machine) if !inbox => match machine.release(release.clone(), reply, now) {
                Some(answer) => self.check_answer(shard, &release, &answer),
                None if self.fault == Fault::RepliesEarly => {
                    let answer = tollgate_core::handle::release::Answer::NotHeld;
                    self.check_answer(shard, &release, &answer);
                }
                None => {
                    owner.replies.insert(reply, release);
                }
            },
            _ => self.post(shard, tollgate_core::handle::control::Control::Release { release }),
        }
    }
}
