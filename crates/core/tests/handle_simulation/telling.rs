//! The outbox, and how masters tell the shards what is in it: whoever made a change, and both masters when they sweep. They
//! do what the real core says, against a database here, and die and are slow in between.

use std::collections::BTreeMap;

use tollgate_core::handle::change::ShardSchedule;
use tollgate_core::handle::control::Control;
use tollgate_core::model::*;
use tollgate_core::plan::Notice;
use tollgate_core::plan::telling::{Patience, Plans, Telling, TellingStep, Told};
use uuid::Uuid;

use crate::bug::Bug;
use crate::totals::Seen;
use crate::world::{Event, World};

/// Notices on their way to the shards.
pub(crate) struct Errand {
    telling: Telling<'static>,
    /// Where the frontier was read before the commit (a bug).
    frontier_us: Option<Option<i64>>,
}

/// A notice that is younger than this is still being told by its maker.
const YOUNG_US: i64 = SECOND_US;

impl World {
    /// Whoever has made a change tells of it, if it lives so long.
    pub(crate) fn tell_of(&mut self, notice: Notice) {
        if self.strikes(self.troubles.masters, 15) {
            self.count(Seen::MasterDied);
            return;
        }
        let early =
            self.bug == Bug::FrontierReadEarly && self.now.mono_us - self.master.announced_us < 2 * SECOND_US;
        let frontier_us = early.then_some(self.master.frontier_before_us);
        self.send_out(vec![notice], Patience::AnswerSoon, frontier_us);
    }

    fn send_out(&mut self, notices: Vec<Notice>, patience: Patience, frontier_us: Option<Option<i64>>) {
        let telling = Telling::new(notices, Plans::new(), patience);
        self.numbers += 1;
        self.master.errands.insert(self.numbers, Errand { telling, frontier_us });
        self.after(0, Event::Tell(self.numbers));
    }

    /// A master looks for what was left in the outbox.
    pub(crate) fn sweep(&mut self, slot: usize) {
        if self.bug != Bug::NoRepair {
            let is_old = |notice: &&Notice| {
                !(0..YOUNG_US).contains(&(self.now.wall_us - notice.changed_us)) || !self.chaos
            };
            let mut shards: BTreeMap<u16, Vec<Notice>> = BTreeMap::new();
            for notice in self.master.outbox.values().filter(is_old) {
                shards.entry(notice.first()).or_default().push(notice.clone());
            }
            for notices in shards.into_values() {
                self.count(Seen::Swept);
                self.send_out(notices, Patience::TryAll, None);
            }
        }
        let wait_us = if self.chaos { self.random.within(SECOND_US, 4 * SECOND_US) } else { 10 * SECOND_US };
        self.after(wait_us, Event::Sweep(slot));
    }

    /// One step of whoever tells.
    pub(crate) fn go_on_telling(&mut self, number: u64) {
        let Some(mut errand) = self.master.errands.remove(&number) else { return };
        if self.strikes(self.troubles.masters, 2) {
            self.count(Seen::MasterDied);
            return;
        }
        let mut told = false;
        match errand.telling.step() {
            TellingStep::Earlier(changed) => {
                let before = |notice: &&Notice| {
                    changed
                        .iter()
                        .any(|(uid, generation)| notice.uid == *uid && notice.generation < *generation)
                };
                let earlier = self.master.outbox.values().filter(before).cloned().collect();
                errand.telling.earlier(earlier);
            }
            TellingStep::Frontier => {
                let frontier_us = errand.frontier_us.unwrap_or_else(|| self.frontier_us());
                errand.telling.opened(frontier_us, self.now.wall_us);
            }
            TellingStep::Tell(notices) => {
                for one in notices {
                    self.numbers += 1;
                    let message = one.message.iter().map(|message| (message.id, self.numbers));
                    self.sequence.extend(message);
                }
                told = true;
                self.tell(number, notices.to_vec());
            }
            TellingStep::End => return,
        }
        self.master.errands.insert(number, errand);
        if !told {
            let wait_us = self.slowness_us();
            self.after(wait_us, Event::Tell(number));
        }
    }

    fn slowness_us(&mut self) -> i64 {
        if self.chaos { self.wait_us(&[0, 0, 1_000, 200_000, 3 * SECOND_US]) } else { 0 }
    }

    /// A transaction is on its way; whoever began it may hear of another end than it has.
    fn tell(&mut self, number: u64, told: Vec<Told>) {
        let (late_us, failed) = (self.slowness_us(), self.strikes(self.troubles.masters, 4));
        let is_unknown = failed && self.random.percent(50);
        let durable = !failed || is_unknown;
        if durable {
            self.after(late_us, Event::Told(told));
        }
        self.after(late_us, Event::HeardOfTold(number, !failed));
    }

    /// Whoever tells hears whether it is told.
    pub(crate) fn hear_of_told(&mut self, number: u64, told: bool) {
        if let Some(errand) = self.master.errands.get_mut(&number) {
            if told {
                errand.telling.told()
            } else {
                errand.telling.refused()
            }
            let wait_us = self.slowness_us();
            self.after(wait_us, Event::Tell(number));
        }
    }

    /// One transaction: notices leave the outbox, and, of those that were in it, the messages are posted.
    pub(crate) fn told(&mut self, told: Vec<Told>) {
        for one in told {
            let notice = self.master.outbox.remove(&(one.uid, one.generation));
            if notice.is_none() {
                self.count(Seen::ToldByAnother);
                if self.bug != Bug::ToldWithoutNotice {
                    continue;
                }
            }
            if let Some((after_us, until_us)) =
                one.taken_back.filter(|(after_us, until_us)| after_us < until_us)
            {
                let spared = (one.uid, after_us + 1)..=(one.uid, until_us);
                let skips: Vec<_> = self.master.skipped.range(spared).map(|(key, _)| *key).collect();
                for key in skips {
                    if self.master.skipped[&key].reason == SkipReason::Paused {
                        self.master.skipped.remove(&key);
                    }
                }
            }
            for skip in one.skipped {
                self.master.skipped.entry((skip.schedule_uid, skip.launch_us)).or_insert(skip);
            }
            let Some(message) = one.message else { continue };
            match &message.control {
                Control::ScheduleChanged { schedule, .. } => self.check_told(one.shard, schedule),
                Control::PolicyChanged { policy } => self.check_told_of_policy(one.shard, policy),
                _ => {}
            }
            self.stores[usize::from(one.shard)].inbox.entry(message.id).or_insert(message);
        }
    }

    /// What a message says is so: it goes to the shard that is first on the way, after those of all generations before.
    fn check_told(&mut self, shard: u16, row: &ShardSchedule) {
        let uid = row.uid;
        self.check_order(uid, row.generation);
        // Should it be overtaken, what it makes may start before the shard hears of that.
        for launch_us in &row.launches_us {
            self.model.allow(uid, *launch_us);
        }
        let until_us = self.master.told_until_us.entry(uid).or_insert(i64::MIN);
        if row.until_us < *until_us {
            self.master.narrowed.push((uid, row.generation));
        }
        *until_us = row.until_us;
        let first = self.master.first_homes.get(&(uid, row.generation)).copied();
        assert_eq!(
            first,
            Some(shard),
            "generation {} of {uid} is told to another shard first",
            row.generation
        );
    }

    /// It goes to the shard in which the policy lives, after all generations before.
    fn check_told_of_policy(&mut self, shard: u16, policy: &Policy) {
        self.check_order(policy.uid, policy.generation);
        assert_eq!(
            policy.shard, shard,
            "generation {} of {} is told elsewhere",
            policy.generation, policy.uid
        );
    }

    fn check_order(&mut self, uid: Uuid, generation: i64) {
        let told = self.master.told.entry(uid).or_insert(0);
        assert!(*told < generation, "generation {generation} of {uid} is told after {told}");
        *told = generation;
    }

    /// Whether a change of a schedule waits to be heard: in the outbox, or in the inbox of one of these shards.
    pub(crate) fn is_unheard(&self, uid: Uuid, shards: &[u16]) -> bool {
        let of = |control: &Control| match control {
            Control::ScheduleChanged { schedule, .. } => schedule.uid == uid,
            _ => false,
        };
        let mut waiting = shards.iter().flat_map(|shard| self.stores[usize::from(*shard)].inbox.values());
        self.master.outbox.range((uid, 0)..=(uid, i64::MAX)).next().is_some()
            || waiting.any(|message| of(&message.control))
    }
}
