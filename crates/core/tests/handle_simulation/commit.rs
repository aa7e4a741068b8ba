//! Commits on their way: what becomes of them in the database, and what their owner hears of it.

use tollgate_core::handle::Effect;
use tollgate_core::handle::change::{Changes, TokenState};
use tollgate_core::handle::control::Control;
use tollgate_core::model::{RunId, RunState, SECOND_US};

use crate::bug::Bug;
use crate::totals::Seen;
use crate::world::{At, Event, Fate, Flight, Heard, World};

impl World {
    pub(crate) fn begin_commit(&mut self, at: At, changes: Changes) {
        let trouble = self.troubles.commits && self.chaos;
        let mut fate = match self.random.within(0, 100) {
            0..2 if trouble => Fate::Failed,
            2 if trouble => Fate::UnknownDurable,
            3 if trouble => Fate::UnknownFailed,
            4 if trouble => Fate::UnknownLate,
            _ => Fate::Durable,
        };
        if self.is_cut(at.slot) {
            fate = Fate::Failed;
        } else if self.bug != Bug::ForwardsAfterCommit {
            self.check_given_up(at, &changes);
            self.forward(&changes);
        }
        self.numbers += 1;
        let (number, decided_us) = (self.numbers, self.now.mono_us);
        let Some(owner) = self.owner(at) else { return };
        owner.commit = Some(number);
        let lease = owner.lease.clone();
        self.look_ahead_of(at, &changes);
        self.flights.insert(number, Flight { at, lease, changes, fate, decided_us, held: false });
        let mut wait_us = self.wait_us(&[0, 1_000, 5_000, 80_000]);
        if fate == Fate::UnknownLate {
            self.after(wait_us, Event::Heard(at, number, Heard::Unknown));
            wait_us += self.wait_us(&[1_000, 100_000, 600_000]);
        }
        self.after(wait_us, Event::Durable(number));
    }

    /// The next shard on a schedule's way is told when it is durable that nothing of an earlier generation starts here.
    fn check_given_up(&mut self, at: At, changes: &Changes) {
        let (shard, lease) = (usize::from(at.shard), self.owner(at).map(|owner| owner.lease.clone()));
        // A zombie speaks of what was.
        if lease.is_none_or(|lease| !self.leases[shard].passes(&lease)) {
            return;
        }
        for (_, message) in &changes.forwards {
            let Control::ScheduleChanged { schedule, .. } = &message.control else { continue };
            for launch_us in &schedule.launches_us {
                let run = self.stores[shard].runs.get(&RunId::derive(schedule.uid, *launch_us));
                let starts =
                    run.filter(|run| run.state == RunState::Waiting && run.generation < schedule.generation);
                assert!(starts.is_none(), "the next shard is told, and here it may start: {starts:?}");
            }
        }
    }

    /// Idempotent as long as the message is there; a repetition after that finds what it brings known.
    fn forward(&mut self, changes: &Changes) {
        for (to, message) in &changes.forwards {
            self.count(Seen::Forwarded);
            self.stores[usize::from(*to)].inbox.entry(message.id).or_insert_with(|| message.clone());
            // A former owner that has been frozen posts as well, whenever it wakes up: nothing fences that.
            if self.strikes(self.troubles.commits, 20) {
                self.count(Seen::ForwardedAgain);
                let late_us = self.random.within(0, 20 * SECOND_US);
                self.after(late_us, Event::Post(*to, Box::new(message.clone())));
            }
        }
    }

    /// A transaction reaches its end in the database, whatever has become of its owner.
    pub(crate) fn end_transaction(&mut self, number: u64) {
        let Some(mut flight) = self.flights.remove(&number) else { return };
        let at = flight.at;
        let process = &self.processes[at.slot];
        if flight.held
            && process.id == at.id
            && let Some(thaw_us) = process.frozen_until_us
        {
            flight.held = true;
            self.flights.insert(number, flight);
            self.after(thaw_us - self.now.mono_us, Event::Durable(number));
            return;
        }
        if self.is_cut(at.slot) && flight.fate == Fate::Durable {
            flight.fate = if self.random.percent(50) { Fate::UnknownDurable } else { Fate::UnknownFailed };
        }
        let heard = match flight.fate {
            Fate::Failed => {
                self.count(Seen::CommitFailed);
                Heard::Failed
            }
            Fate::UnknownFailed => {
                self.count(Seen::UnknownNotDurable);
                Heard::Unknown
            }
            fate => self.write(&flight, fate),
        };
        if flight.fate != Fate::UnknownLate {
            let wait_us = self.wait_us(&[0, 0, 1_000, 50_000]);
            self.after(wait_us, Event::Heard(at, number, heard));
        }
    }

    /// The fence decides.
    fn write(&mut self, flight: &Flight, fate: Fate) -> Heard {
        let (shard, bug) = (flight.at.shard, self.bug);
        let row = &self.leases[usize::from(shard)];
        let passes = match bug {
            Bug::NoFence => true,
            Bug::EpochOnly => row.epoch == flight.lease.epoch,
            _ => row.passes(&flight.lease),
        };
        if !passes {
            self.count(if fate == Fate::UnknownLate { Seen::FencedLateCommit } else { Seen::FencedZombie });
            return Heard::Fenced;
        }
        self.check_heard(flight.at, &flight.changes, flight.decided_us);
        self.make_durable(shard, &flight.changes, flight.decided_us);
        match fate {
            Fate::UnknownDurable => self.count(Seen::UnknownDurable),
            Fate::UnknownLate => self.count(Seen::UnknownDurableLate),
            _ => self.count(Seen::Committed),
        }
        if fate == Fate::Durable { Heard::Durable } else { Heard::Unknown }
    }

    /// What an owner knows to have arrived it does not send again.
    fn check_heard(&self, at: At, changes: &Changes, decided_us: i64) {
        for row in &changes.tokens_put {
            let key = (row.run, row.index);
            let Some((owner, heard_us)) = self.model.accepted.get(&(key, row.attempt.wrapping_sub(1))) else {
                continue;
            };
            let stored = self.stores[usize::from(at.shard)].tokens.get(&key);
            let since_us = decided_us - heard_us;
            let soon = *owner == at.owner && since_us > 0 && since_us < 3 * SECOND_US;
            let repeats = row.state == TokenState::Acquired
                && stored.is_some_and(|old| old.attempt < row.attempt)
                && !self.model.is_called(key, row.attempt - 1);
            assert!(!(soon && repeats), "{key:?} was taken by its target, and is sent again: {row:?}");
        }
    }

    fn make_durable(&mut self, shard: u16, decided: &Changes, decided_us: i64) {
        let store = &self.stores[usize::from(shard)];
        let mut changes = decided.clone();
        match self.bug {
            Bug::TokensNotWritten if self.random.percent(5) => {
                changes.tokens_put.clear();
                changes.batches_new.clear();
            }
            Bug::AttemptNotWritten => {
                for row in &mut changes.tokens_put {
                    row.attempt = store.tokens.get(&(row.run, row.index)).map_or(1, |old| old.attempt);
                }
            }
            Bug::WithdrawnStay => changes.runs_withdrawn.clear(),
            Bug::LimitInMemoryOnly => changes.policies.retain(|p| !store.policies.contains_key(&p.uid)),
            Bug::InboxWholesale if !changes.inbox_done.is_empty() => {
                changes.inbox_done = store.inbox.keys().copied().collect();
            }
            _ => {}
        }
        self.say(|| format!("durable in {shard}: {changes:?}"));
        self.commit_checked(shard, &changes, decided_us);
    }

    pub(crate) fn hear(&mut self, at: At, number: u64, heard: Heard) {
        let (now, bug) = (self.now_at(at.slot), self.bug);
        let Some(lapses) = self.owner(at).map(|owner| owner.lapses) else { return };
        let standing = self.standing(at.slot, lapses);
        let Some(owner) = self.living(at).filter(|o| o.commit == Some(number)) else { return };
        owner.commit = None;
        let Some(core) = &mut owner.core else { return };
        match heard {
            Heard::Failed if bug != Bug::EffectsOfFailedCommits => core.commit_failed(false, now),
            Heard::Unknown => core.commit_failed(false, now),
            Heard::Fenced => core.commit_failed(true, now),
            Heard::Failed | Heard::Durable => {
                let durable = core.committed(standing, now);
                for effect in durable.effects {
                    self.perform(at, effect);
                }
                self.synced(durable.synced);
                self.compare(at);
            }
        }
        self.touch(at);
    }

    pub(crate) fn perform(&mut self, at: At, effect: Effect) {
        match effect {
            Effect::Send(send) => {
                self.say(|| format!("{at:?} sends {} {} {}", send.run, send.index, send.attempt));
                self.check_send(at, &send);
                self.deliver(at, send);
            }
            Effect::Follow { message, end } => self.wish_next(at, message, end),
            Effect::Reply { reply, answer } => {
                if let Some(release) = self.owner(at).and_then(|o| o.replies.remove(&reply)) {
                    self.check_answer(at.shard, &release, &answer);
                } else {
                    self.count_answer(&answer);
                }
            }
        }
    }
}
