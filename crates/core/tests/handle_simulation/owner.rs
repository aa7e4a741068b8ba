//! The driver of one shard: loads, reads, commits and effects, each of which may go wrong or come late.

use std::collections::{BTreeMap, BTreeSet};

use tollgate_core::handle::change::TokenState;
use tollgate_core::handle::control::{Control, Message, UnderWay};
use tollgate_core::handle::release::Release;
use tollgate_core::handle::{Context, Needs, Options, Shard};
use tollgate_core::model::*;
use uuid::Uuid;

use crate::bug::Bug;
use crate::fence::Lease;
use crate::totals::Seen;
use crate::world::{At, Event, World};

/// How long a process that ends waits for answers, in milliseconds.
pub(crate) const ANSWERS_MS: i64 = 2_500;

/// A read of a shard's news, step by step: each part is a snapshot of another moment.
#[derive(Default)]
struct Read {
    began_us: i64,
    runs: Option<(Vec<Run>, Vec<RunSpec>)>,
    inbox: Option<Vec<Message>>,
    messages: Option<Vec<(Message, Context)>>,
}

/// Who drives a shard, as far as it knows.
pub(crate) struct Owner {
    number: u64,
    life: u64,
    pub(crate) lease: Lease,
    pub(crate) machine: Option<Box<Shard>>,
    /// It has read its inbox since it loaded.
    pub(crate) ready: bool,
    pub(crate) commit: Option<u64>,
    read: Option<Read>,
    pub(crate) replies: BTreeMap<u64, Release>,
    /// It gives the shard up then, at the latest.
    grace_us: Option<i64>,
    loaded: Now,
    pub(crate) deadline_us: Option<i64>,
    /// Bug: how far it has read the inbox.
    cursor: u64,
    /// What the machine before this one had under way.
    under_way: Vec<UnderWay>,
}

impl Owner {
    pub(crate) fn new(lease: Lease, number: u64) -> Self {
        Self {
            number,
            life: 0,
            lease,
            machine: None,
            ready: false,
            commit: None,
            read: None,
            replies: BTreeMap::new(),
            grace_us: None,
            loaded: Now { wall_us: 0, mono_us: 0 },
            deadline_us: None,
            cursor: 0,
            under_way: Vec::new(),
        }
    }

    pub(crate) fn at(&self, slot: usize, id: u32, shard: u16) -> At {
        At { slot, id, shard, owner: self.number, life: self.life }
    }

    pub(crate) fn is_idle(&self) -> bool {
        self.machine.is_some() && self.ready && self.commit.is_none()
    }
}

impl World {
    /// This owner, if it is still there, in whatever life.
    pub(crate) fn owner(&mut self, at: At) -> Option<&mut Owner> {
        let process = self.processes.get_mut(at.slot).filter(|p| p.id == at.id)?;
        process.owners.get_mut(&at.shard).filter(|o| o.number == at.owner)
    }

    pub(crate) fn living(&mut self, at: At) -> Option<&mut Owner> {
        self.owner(at).filter(|o| o.life == at.life && o.machine.is_some())
    }

    pub(crate) fn touch(&mut self, at: At) {
        self.touched.push((at.slot, at.shard));
    }

    pub(crate) fn touch_all(&mut self) {
        for slot in 0..self.processes.len() {
            self.touched.extend(self.processes[slot].owners.keys().map(|shard| (slot, *shard)));
        }
    }

    /// The time as its machine is told it.
    fn now_of(&self, loaded: Now) -> Now {
        if self.bug == Bug::WallClockNotFollowed {
            return Now { wall_us: loaded.wall_us + self.now.mono_us - loaded.mono_us, ..self.now };
        }
        self.now
    }

    /// The first moment at which some machine wants to be polled, and whose.
    pub(crate) fn next_deadline(&self) -> (i64, Option<(usize, u16)>) {
        let mut first = (i64::MAX, None);
        for (slot, process) in self.processes.iter().enumerate() {
            if process.frozen_until_us.is_some() {
                continue;
            }
            for (shard, owner) in &process.owners {
                if let Some(at_us) = owner.deadline_us.filter(|at_us| *at_us < first.0) {
                    first = (at_us, Some((slot, *shard)));
                }
            }
        }
        first
    }

    pub(crate) fn poll_touched(&mut self) {
        while let Some((slot, shard)) = self.touched.pop() {
            if self.is_up(slot) {
                self.poll(slot, shard);
            }
        }
    }

    pub(crate) fn load(&mut self, at: At) {
        if self.is_cut(at.slot) {
            self.after(200_000, Event::Load(at));
            return;
        }
        let options = self.options(Options::default());
        let seed = self.random.next();
        let mut state = self.stores[usize::from(at.shard)].state();
        match self.bug {
            Bug::WaitingNotLoaded => state.tokens.retain(|t| t.state != TokenState::Waiting),
            Bug::HeldNotLoaded => state.tokens.retain(|t| t.state != TokenState::Held),
            Bug::LimitDoubled => {
                for policy in &mut state.policies {
                    policy.limits.max_in_flight = policy.limits.max_in_flight.map(|m| 2 * m);
                }
            }
            _ => {}
        }
        self.numbers += 1;
        let (life, now, early) = (self.numbers, self.now, self.bug == Bug::NoteReadLate);
        let row = self.leases[usize::from(at.shard)].lease_id;
        let Some(owner) = self.owner(at) else { return };
        let current = owner.lease.lease_id == row;
        owner.life = life;
        owner.machine = Some(Box::new(Shard::new(at.shard, options, state, seed, now)));
        (owner.ready, owner.commit, owner.read, owner.loaded, owner.deadline_us) =
            (early, None, None, now, None);
        if owner.grace_us.is_some() {
            owner.grace_us = None;
        }
        let at = At { life, ..at };
        self.say(|| format!("loaded {at:?}"));
        if current {
            self.model.loaded(at.shard, now);
        }
        let wait_us = self.wait_us(&[0, 1_000, 30_000]);
        self.after(wait_us, Event::Read(at));
        if self.is_stopping(at.slot) {
            self.drain(at);
        }
        self.touch(at);
    }

    fn options(&mut self, mut options: Options) -> Options {
        options.sends_max = self.wait_us(&[3, 50]) as u32;
        options.retrying_max = self.wait_us(&[2, 1000]) as u32;
        options.lazy_us = self.wait_us(&[0, 20_000, 500_000]);
        options.early_us = self.wait_us(&[0, 5_000, 2 * SECOND_US]);
        options
    }

    /// Drops the machine and takes the shard over from itself.
    pub(crate) fn reload(&mut self, at: At) {
        let now = self.now;
        let Some(owner) = self.owner(at).filter(|o| o.machine.is_some()) else { return };
        owner.under_way = owner.machine.as_ref().map_or_else(Vec::new, |m| m.under_way(i64::MAX, now));
        (owner.machine, owner.commit, owner.read, owner.deadline_us) = (None, None, None, None);
        let replies = std::mem::take(&mut owner.replies);
        self.ask_again(at.shard, replies);
        let wait_us = self.wait_us(&[0, 1_000, 300_000]);
        self.after(wait_us, Event::Retake(at));
    }

    pub(crate) fn retake(&mut self, at: At) {
        if self.is_cut(at.slot) {
            self.after(300_000, Event::Retake(at));
            return;
        }
        self.numbers += 1;
        let (fresh, bug) = (self.numbers, self.bug);
        let row = &mut self.leases[usize::from(at.shard)];
        let seen = row.clone();
        if seen.owner != at.id {
            self.lose(at);
            return;
        }
        let lease = if bug == Bug::UnknownTakenAsFailed { Some(seen) } else { row.take(&seen, at.id, fresh) };
        if bug == Bug::EpochOnly {
            row.epoch -= 1;
        }
        let Some(mut lease) = lease else { return };
        if bug == Bug::EpochOnly {
            lease.epoch -= 1;
        }
        let Some(owner) = self.owner(at) else { return };
        owner.lease = lease;
        self.count(Seen::RetakenFromOneself);
        self.load(at);
    }

    /// The shard is somebody else's.
    pub(crate) fn lose(&mut self, at: At) {
        if self.owner(at).is_some() {
            self.orphan(at);
        }
    }

    /// An owner is no more; who waited for it asks somebody else.
    pub(crate) fn orphan(&mut self, at: At) {
        let Some(owner) = self.processes[at.slot].owners.remove(&at.shard) else { return };
        self.ask_again(at.shard, owner.replies);
    }

    fn ask_again(&mut self, shard: u16, replies: BTreeMap<u64, Release>) {
        for release in replies.into_values() {
            if !self.chaos || self.random.percent(70) {
                self.count(Seen::ReleaseAskedAgain);
                self.after(300_000, Event::Release { shard, release, inbox: false, tries: 0 });
            }
        }
    }

    /// It is to give the shard up.
    pub(crate) fn drain(&mut self, at: At) {
        let grace_us = self.now.mono_us + self.wait_us(&[0, 300_000, 1_500_000]);
        if let Some(owner) = self.owner(at)
            && let Some(machine) = &mut owner.machine
            && owner.grace_us.is_none()
        {
            machine.drain();
            owner.grace_us = Some(grace_us);
            self.touch(at);
        }
    }

    pub(crate) fn poll(&mut self, slot: usize, shard: u16) {
        let id = self.processes[slot].id;
        let Some(owner) = self.processes[slot].owners.get(&shard) else { return };
        let (at, now, free) = (owner.at(slot, id, shard), self.now_of(owner.loaded), owner.commit.is_none());
        let Some(owner) = self.living(at).filter(|o| o.ready) else { return };
        owner.deadline_us = None;
        self.send_due(at, now);
        let Some(owner) = self.living(at) else { return };
        let Some(machine) = &mut owner.machine else { return };
        if free && let Some(commit) = machine.poll_commit(now) {
            self.begin_commit(at, commit.changes);
        } else if let Some(grace_us) = owner.grace_us {
            self.hand_over(at, grace_us, free);
        }
        let trusted = self.is_trusted(slot);
        let Some(owner) = self.living(at) else { return };
        let Some(machine) = &owner.machine else { return };
        let deadline = machine.next_deadline();
        let in_wall_us = |at_us: i64| at_us - now.wall_us + now.mono_us;
        // Whoever does not trust its lease looks again.
        let due_us =
            deadline.due_us.map(|at_us| if trusted { in_wall_us(at_us) } else { now.mono_us + 100_000 });
        let (wall_us, grace_us) = (deadline.wall_us.map(in_wall_us), owner.grace_us);
        // A machine whose deadline has passed has been polled: what is left waits for its commit or its grace.
        let free = owner.commit.is_none();
        let at_us = [wall_us, deadline.mono_us, grace_us].into_iter().flatten().filter(|_| free);
        owner.deadline_us = at_us.chain(due_us).min().map(|at_us| at_us.max(now.mono_us + 1));
    }

    /// Gives the shard up, once nothing is pending and either all answers have come or time is up.
    fn hand_over(&mut self, at: At, grace_us: i64, free: bool) {
        let (now, bug, cut) = (self.now, self.bug, self.is_cut(at.slot));
        let wait_ms = if self.is_stopping(at.slot) { ANSWERS_MS } else { i64::MAX };
        let random = self.random.next();
        let Some(Owner { machine: Some(machine), .. }) = self.living(at) else { return };
        let settled = free && machine.durable_after().is_none();
        if !settled || machine.sending() > 0 && now.mono_us < grace_us {
            return;
        }
        if cut {
            if let Some(owner) = self.owner(at) {
                owner.grace_us = Some(now.mono_us + 300_000);
            }
            return;
        }
        let deliveries = machine.under_way(wait_ms, now);
        if bug != Bug::HandOverLeavesQueued {
            let queued = deliveries.iter().map(|d| (at.slot, (d.run, d.index), d.attempt));
            self.model.revoked.extend(queued);
        }
        let lease_id = self.leases[usize::from(at.shard)].lease_id;
        let Some(owner) = self.owner(at) else { return };
        let overtaken = owner.lease.lease_id != lease_id;
        (owner.machine, owner.commit, owner.read, owner.deadline_us) = (None, None, None, None);
        let replies = std::mem::take(&mut owner.replies);
        self.ask_again(at.shard, replies);
        self.say(|| format!("handed over by {at:?}: {deliveries:?}"));
        self.count(Seen::HandOver);
        if !deliveries.is_empty() {
            self.count(Seen::HandOverWithNote);
            if !overtaken {
                self.model.leave_note(at.shard, &deliveries, now, &mut self.totals);
            }
            if bug != Bug::HandOverWithoutNote {
                let note = Message::first(random, Control::UnderWay { deliveries });
                self.stores[usize::from(at.shard)].inbox.insert(note.id, note);
            }
        }
        let wait_us = self.wait_us(&[0, 1_000, 50_000]);
        self.after(wait_us, Event::GiveUp(at));
    }

    pub(crate) fn give_up(&mut self, at: At) {
        if self.is_cut(at.slot) {
            self.after(300_000, Event::GiveUp(at));
            return;
        }
        self.numbers += 1;
        let fresh = self.numbers;
        let Some(owner) = self.owner(at) else { return };
        let lease = owner.lease.clone();
        self.leases[usize::from(at.shard)].give_up(&lease, fresh);
        self.orphan(at);
        self.processes[at.slot].former.insert(at.owner, at.shard);
    }

    pub(crate) fn go_on_reading(&mut self, at: At) {
        let (now, cut, bug) = (self.now, self.is_cut(at.slot), self.bug);
        let mut wait_us = self.wait_us(&[0, 0, 1_000, 100_000]);
        let ahead_us = self.wait_us(&[10, 60, 600]) * SECOND_US;
        let pause_us = if self.chaos { self.random.within(10_000, SECOND_US) } else { 2 * SECOND_US };
        let process = &mut self.processes[at.slot];
        let Some(owner) = process.owners.get_mut(&at.shard).filter(|o| o.life == at.life) else { return };
        let Some(machine) = &mut owner.machine else { return };
        if cut {
            owner.read = None;
            self.after(500_000, Event::Read(at));
            return;
        }
        let store = &self.stores[usize::from(at.shard)];
        let read = owner.read.get_or_insert_with(|| {
            machine.begin_read();
            Read { began_us: now.mono_us, ..Read::default() }
        });
        if read.runs.is_none() {
            let (mut runs, mut specs) = store.emitted(now.wall_us + ahead_us);
            let (again, their) = store.unreadable();
            runs.extend(again);
            specs.extend(their);
            read.runs = Some((runs, specs));
        } else if read.inbox.is_none() {
            let mut inbox: Vec<Message> = store.inbox.values().cloned().collect();
            if bug == Bug::InboxCursor {
                let of = |id: &Uuid| self.sequence.get(id).copied().unwrap_or(u64::MAX);
                inbox.retain(|m| of(&m.id) > owner.cursor);
                let last = inbox.iter().map(|m| of(&m.id)).filter(|n| *n < u64::MAX).max();
                owner.cursor = last.unwrap_or(owner.cursor);
            }
            read.inbox = Some(inbox);
        } else if read.messages.is_none() {
            let inbox = read.inbox.take().unwrap_or_default();
            read.inbox = Some(Vec::new());
            read.messages = Some(
                inbox
                    .into_iter()
                    .map(|m| (store.context(&Needs::of(&m.control)), m))
                    .map(|(c, m)| (m, c))
                    .collect(),
            );
        } else if let Some(Read { began_us, runs: Some((runs, specs)), messages: Some(messages), .. }) =
            owner.read.take()
        {
            self.totals.steps += (messages.len() + runs.len()) as u64;
            // Before the messages: a release among them takes back what has not left.
            machine.wait_for(std::mem::take(&mut owner.under_way), now);
            for (message, context) in messages {
                let released = match &message.control {
                    Control::Release { release } => Some((release.run, release.index)),
                    _ => None,
                };
                let before = released.and_then(|(run, index)| machine.attempt_under_way(run, index));
                machine.control(message, context, now);
                if let Some(key) = released {
                    self.model.revoke(at.slot, key, before, machine.attempt_under_way(key.0, key.1));
                }
            }
            let mut specs = specs;
            specs.extend(self.stores[usize::from(at.shard)].specs_of(&[], &machine.specs_wanted(&runs)));
            machine.adopt(runs, specs, now);
            machine.caught_up(if bug == Bug::CaughtUpBlindly { i64::MAX } else { began_us });
            owner.ready = true;
            wait_us = pause_us;
            self.touch(at);
        }
        self.after(wait_us, Event::Read(at));
    }

    pub(crate) fn owned(&self) -> BTreeSet<u16> {
        let idle = |(shard, owner): (&u16, &Owner)| owner.is_idle().then_some(*shard);
        self.processes
            .iter()
            .filter(|p| p.frozen_until_us.is_none())
            .flat_map(|p| p.owners.iter().filter_map(idle))
            .collect()
    }
}
