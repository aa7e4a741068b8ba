//! Who may start next in a tree of policies: an event takes a token of its own policy, and of each one above it, or none.
//!
//! In: policies in which something may start. Out: starts, in turns from the root down. Invariants: whoever takes turns may have
//! something to start, as far as is known; what keeps a policy from it takes it out of the turns above it, and whatever ends that
//! (a token that comes back below it, a rate, a change, more work) has it take turns again. A start looks at the policies on
//! its own way down, and at none beside it. Not here: who is next under one policy ([`super::rounds`]).

use std::collections::BTreeSet;

use uuid::Uuid;

use super::bucket::Kept;
use super::queue::{Next, Queue};
use super::shard::{MonoTimer, Shard};
use crate::model::{Now, Parent};

/// The policies of which a round has begun, and those of which something has started.
#[derive(Default)]
struct Seen {
    begun: BTreeSet<Uuid>,
    started: BTreeSet<Uuid>,
}

impl Shard {
    /// The root of the tree that a policy is in; none where it is in none.
    pub(super) fn root_of(&self, policy: Option<Uuid>) -> Option<Uuid> {
        self.ledger.branch(policy?)?;
        self.ledger.way_up(policy?).last().map(|(uid, _)| uid)
    }

    /// A policy, or something below it, may have something to start: it takes turns, and so do all above it.
    pub(super) fn take_turns(&mut self, policy: Option<Uuid>, now: Now) {
        let Some(uid) = policy else { return };
        self.note_held(policy, now);
        if self.queues.get(&policy).is_some_and(|queue| !queue.is_empty()) {
            self.enter(uid, uid);
        } else {
            self.read_on(policy);
        }
        let mut below = uid;
        while let Some(parent) = self.ledger.parent_of(below) {
            if self.ledger.branch(below).is_some_and(|branch| !branch.turns.is_empty()) {
                self.enter(parent, below);
            }
            below = parent;
        }
    }

    /// It takes turns under this policy: one right below, or itself with its own events.
    fn enter(&mut self, under: Uuid, uid: Uuid) {
        let is_own = under == uid;
        let has_floor = is_own || self.ledger.buckets.get(&Some(uid)).is_none_or(|bucket| bucket.has_floor());
        if let Some(branch) = self.ledger.buckets.get_mut(&Some(under)).and_then(|b| b.branch.as_mut()) {
            branch.turns.enter(uid, has_floor);
        }
    }

    fn leave(&mut self, under: Uuid, uid: Uuid) {
        if let Some(branch) = self.ledger.buckets.get_mut(&Some(under)).and_then(|b| b.branch.as_mut()) {
            branch.turns.leave(uid);
        }
    }

    /// An event under a policy that has one above it starts: what the rates above let through becomes one less.
    pub(super) fn spend_above(&mut self, policy: Option<Uuid>) {
        let mut next = policy.and_then(|uid| self.ledger.parent_of(uid));
        while let Some(uid) = next {
            let Some(bucket) = self.ledger.buckets.get_mut(&Some(uid)) else { return };
            bucket.spend();
            next = bucket.parent();
        }
    }

    /// Hands out the tokens of a tree, until limits or work run out.
    pub(super) fn dispatch_tree(&mut self, root: Uuid, now: Now) {
        let (mut seen, mut way) = (Seen::default(), Vec::with_capacity(Parent::LEVELS_MAX));
        while let Some(free) = self.way_down(root, &mut way, now) {
            let Some(&uid) = way.last() else { break };
            match self.next_of(uid, free, &mut seen, now) {
                Some(Next::Start(work, units)) if self.start(work, now) => {
                    seen.started.insert(uid);
                    self.went(&way, units);
                }
                Some(Next::Start(..)) => {}
                Some(Next::Short(work, units)) => {
                    if !self.keep_for(&way, Kept { run: work.run(), units }, now) {
                        break;
                    }
                }
                None => {
                    self.leave(uid, uid);
                    self.read_on(Some(uid));
                    self.wake_for_rates(Some(uid), false, now);
                }
            }
        }
        for uid in seen.started {
            self.note_held(Some(uid), now);
        }
    }

    /// From the root down to the policy whose own events are next, and how many tokens are free at each of them; none where
    /// nothing may start. Who cannot go on, for want of tokens or of work, takes no turns from now on.
    fn way_down(&mut self, root: Uuid, way: &mut Vec<Uuid>, now: Now) -> Option<u32> {
        way.clear();
        let (mut uid, mut free) = (root, u32::MAX);
        loop {
            let bucket = self.ledger.buckets.get_mut(&Some(uid))?;
            let room = bucket.room(now);
            let next = if room.is_empty() { None } else { bucket.branch.as_ref()?.turns.first() };
            match next {
                Some(next) => {
                    way.push(uid);
                    free = free.min(room.tokens);
                    if next == uid {
                        return Some(free);
                    }
                    uid = next;
                }
                None => {
                    self.wake_for_rate(uid, now);
                    self.leave(way.last().copied()?, uid);
                    way.clear();
                    (uid, free) = (root, u32::MAX);
                }
            }
        }
    }

    /// The first in line takes more tokens than are free: those that come back to the lowest policy on its way that is short of
    /// them are kept for it. That takes no turns until one does; whoever is beside it goes on. Whether anybody is.
    fn keep_for(&mut self, way: &[Uuid], kept: Kept, now: Now) -> bool {
        let is_short = |shard: &mut Self, uid: Uuid| {
            let bucket = shard.ledger.buckets.get_mut(&Some(uid));
            bucket.is_some_and(|bucket| bucket.room(now).tokens < kept.units)
        };
        let Some(at) = (0..way.len()).rev().find(|at| is_short(self, way[*at])) else { return false };
        if let Some(bucket) = self.ledger.buckets.get_mut(&Some(way[at])) {
            bucket.kept = Some(kept);
        }
        let above = at.checked_sub(1).map(|above| way[above]);
        above.inspect(|above| self.leave(*above, way[at])).is_some()
    }

    /// Sees to it that a policy that its own rate holds back takes turns again.
    fn wake_for_rate(&mut self, uid: Uuid, now: Now) {
        let bucket = self.ledger.buckets.get(&Some(uid));
        if let Some(at_us) = bucket.filter(|bucket| !bucket.is_paused()).and_then(|b| b.next_permit_us(now)) {
            self.mono_timers.insert((at_us, MonoTimer::Permit(uid)));
        }
    }

    /// The next piece of work of a policy's own, where something bounds it and nothing above does not.
    fn next_of(&mut self, uid: Uuid, free: u32, seen: &mut Seen, now: Now) -> Option<Next> {
        let (policy, sends_max) = (Some(uid), self.options.sends_max);
        let bucket = self.ledger.buckets.get(&policy)?;
        if bucket.is_unread() || !bucket.is_bounded() && bucket.counts.places().taken() >= sends_max {
            return None;
        }
        let mut is_open = seen.begun.insert(uid);
        loop {
            if is_open {
                self.begin_round(policy, now);
            }
            if let Some(next) = self.next_work(policy, free, now) {
                return Some(next);
            }
            is_open = self.queues.get(&policy).is_some_and(Queue::is_open);
            if !is_open {
                return None;
            }
        }
    }

    /// Each policy on the way down has had its turn, which took so many tokens.
    fn went(&mut self, way: &[Uuid], units: u32) {
        let mut below: Option<(Uuid, u32, bool)> = None;
        for uid in way.iter().rev() {
            let Some(bucket) = self.ledger.buckets.get_mut(&Some(*uid)) else { return };
            let (weight, has_floor) = (bucket.weight(), bucket.has_floor());
            bucket.kept = None;
            if let Some(branch) = &mut bucket.branch {
                let (child, weight, has_floor) = below.unwrap_or((*uid, 1, true));
                branch.turns.went(child, (units, weight), has_floor);
            }
            below = Some((*uid, weight, has_floor));
        }
    }
}
