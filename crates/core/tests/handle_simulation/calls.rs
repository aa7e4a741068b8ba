//! What targets and consumers say, on its way to the owner.

use tollgate_core::handle::change::TokenState;
use tollgate_core::handle::control::{Control, Message};
use tollgate_core::handle::release::{Answer, Release};
use tollgate_core::model::*;
use tollgate_core::own::{CallerAnswer, Standing};

use crate::bug::Bug;
use crate::totals::Seen;
use crate::world::{At, Event, World};

impl World {
    pub(crate) fn answer(&mut self, at: At, key: (RunId, u32), attempt: u32, sent: Option<Sent>) {
        let (world_now, now) = (self.now, self.now_at(at.slot));
        let lease_id = self.leases[usize::from(at.shard)].lease_id;
        let (run, index) = key;
        if let Some(owner) = self.owner(at) {
            let current = owner.lease.lease_id == lease_id;
            let Some(core) = owner.open() else {
                self.after(50_000, Event::Answer { at, run, index, attempt, sent });
                return;
            };
            let accepted = sent == Some(Sent::Accepted);
            match sent {
                Some(sent) => core.sent(run, index, attempt, sent, now),
                None => core.unsent(run, index, attempt, now),
            }
            owner.begun.remove(&(run, index, attempt));
            owner.unsaid_us.get_or_insert(world_now.mono_us);
            // A token that counts as held already is none the younger for it; a commit of that may be under way.
            let row = self.stores[usize::from(at.shard)].tokens.get(&key);
            let awaited = row.is_some_and(|t| t.state == TokenState::Acquired);
            if current && awaited {
                self.model.heard(key, attempt, world_now.mono_us - SECOND_US);
                if accepted {
                    self.model.accepted.insert((key, attempt), (at.owner, world_now.mono_us));
                }
            }
            self.touch(at);
        } else {
            self.report(at, key, attempt, sent);
        }
    }

    /// An answer for a shard that was given up goes into its inbox, if anybody waits for it.
    fn report(&mut self, at: At, key: (RunId, u32), attempt: u32, sent: Option<Sent>) {
        let (cut, (run, index)) = (self.is_cut(at.slot), key);
        let Some((_, report)) = self.processes[at.slot].former.get_mut(&at.owner) else {
            self.count(Seen::AnswerLost);
            return;
        };
        if cut {
            self.after(300_000, Event::Answer { at, run, index, attempt, sent });
            return;
        }
        let Some(control) = report.answered(run, index, attempt, sent) else {
            self.count(Seen::AnswerLost);
            return;
        };
        self.count(Seen::AnswerReported);
        self.model.reported(key, attempt);
        self.post_later(at.shard, control);
    }

    /// A consumer calls some process: the owner takes it, others pass it on, or the inbox does.
    pub(crate) fn release(&mut self, shard: u16, release: Release, inbox: bool, tries: u8) {
        self.model.release_called(&release);
        let entry = self.random.within(0, self.processes.len() as i64) as usize;
        if !self.is_up(entry) {
            if tries < 6 || !self.chaos {
                self.after(SECOND_US, Event::Release { shard, release, inbox, tries: tries + 1 });
            }
            return;
        }
        if !inbox {
            let owner = self.leases[usize::from(shard)].owner;
            let routed = self.processes.iter().position(|p| p.id == owner && owner != 0);
            for slot in [Some(entry), routed].into_iter().flatten() {
                if self.is_up(slot) && self.is_trusted(slot, shard) && self.release_at(slot, shard, &release)
                {
                    return;
                }
            }
            self.count(Seen::NothingOwnsIt);
        }
        if self.is_cut(entry) {
            self.after(SECOND_US, Event::Release { shard, release, inbox, tries });
            return;
        }
        // For the attempt that is in flight now, which is what is acknowledged.
        let key = (release.run, release.index);
        let row = self.stores[usize::from(shard)].tokens.get(&key).filter(|t| t.state != TokenState::Waiting);
        let Some(attempt) = row.map(|t| t.attempt) else { return };
        if release.attempt.is_some_and(|given| given != attempt) {
            return;
        }
        let store = &self.stores[usize::from(shard)];
        let (run, checks) = (&store.runs[&release.run], row.map_or(0, |t| t.checks));
        let guard = &store.specs[&(run.schedule_uid, run.generation)].check_again;
        if release.next_check_us.is_some_and(|us| guard.slot(us, checks, self.now.wall_us).is_err()) {
            self.count(Seen::Refused);
            return;
        }
        self.count(Seen::ReleasedByInbox);
        let release = Release { attempt: release.attempt.or(Some(attempt)), ..release };
        let lease_id = self.leases[usize::from(shard)].lease_id;
        let late_us = if self.chaos { self.wait_us(&[0, 0, 1_000, 30_000, SECOND_US]) } else { 0 };
        let message = Box::new(Message::release(release));
        self.after(late_us, Event::PostUnder(shard, lease_id, message));
    }

    /// A release is put into the inbox, and answered as recorded; unless the shard has changed hands since it was looked
    /// at, and its new owner is to be asked.
    pub(crate) fn post_under(&mut self, shard: u16, lease_id: u64, message: Message) {
        let Control::Release { release } = &message.control else { return };
        if self.leases[usize::from(shard)].lease_id != lease_id {
            self.count(Seen::PostedTooLate);
            let release = release.clone();
            self.after(0, Event::Release { shard, release, inbox: false, tries: 0 });
            return;
        }
        if self.stores[usize::from(shard)].inbox.contains_key(&message.id) {
            // The first one counts, and this one is told so.
            self.count(Seen::PostedTwice);
            return;
        }
        self.numbers += 1;
        self.sequence.insert(message.id, self.numbers);
        self.model.promise(release, self.now);
        self.model.record(message.id, release);
        self.stores[usize::from(shard)].inbox.insert(message.id, message);
    }

    /// False if this process does not take it.
    fn release_at(&mut self, slot: usize, shard: u16, release: &Release) -> bool {
        let (now, early) = (self.now_at(slot), self.bug == Bug::RepliesEarly);
        self.numbers += 1;
        let reply = self.numbers;
        let Some(lapses) = self.processes[slot].owners.get(&shard).map(|owner| owner.lapses) else {
            return false;
        };
        let standing = self.standing(slot, lapses);
        let Some(owner) = self.processes[slot].owners.get_mut(&shard) else { return false };
        let Some(core) = owner.open() else { return false };
        let (told, revoked) = core.release(release.clone(), reply, standing, now);
        match told {
            CallerAnswer::Answer(answer) => self.check_answer(shard, release, &answer),
            CallerAnswer::Later if early => self.check_answer(shard, release, &Answer::Released),
            CallerAnswer::Later => {
                owner.replies.insert(reply, release.clone());
            }
            CallerAnswer::AskAgain => {
                let release = release.clone();
                self.after(300_000, Event::Release { shard, release, inbox: false, tries: 0 });
            }
        }
        self.revoke(slot, revoked);
        self.touched.push((slot, shard));
        true
    }

    pub(crate) fn heartbeat(&mut self, shard: u16, key: (RunId, u32), attempt: u32, left: u32) {
        let ttl_ms = self.random.percent(30).then_some(12_000);
        let world_now = self.now;
        self.numbers += 1;
        let reply = self.numbers;
        let owner = self.leases[usize::from(shard)].owner;
        let slot = self.processes.iter().position(|p| p.id == owner && owner != 0);
        if let Some(slot) = slot.filter(|slot| self.is_up(*slot) && self.is_trusted(*slot, shard))
            && let now = self.now_at(slot)
            && let Some(owner) = self.processes[slot].owners.get_mut(&shard)
            && let Some(core) = owner.open()
        {
            if let CallerAnswer::Answer(answer) =
                core.extend(key, Some(attempt), ttl_ms, reply, (Standing::Holds, now))
            {
                self.count_answer(&answer);
            }
            self.model.heard(key, attempt, world_now.mono_us);
            self.touched.push((slot, shard));
        }
        if left > 0 && self.chaos {
            let (run, index) = key;
            self.after(3 * SECOND_US, Event::Heartbeat { shard, run, index, attempt, left: left - 1 });
        }
    }
}
