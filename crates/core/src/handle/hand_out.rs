//! Hands out tokens, bucket by bucket, and those of a tree of policies in turns.
//!
//! In: buckets in which something may start. Out: starts, until limits or work run out; when to look again. Not here: who is next
//! under one policy ([`super::rounds`]) and in a tree of them ([`super::tree`]), and what a start is ([`super::dispatch`]).

use std::collections::BTreeSet;

use uuid::Uuid;

use super::bucket::{Kept, Room};
use super::queue::{Next, Queue};
use super::shard::Shard;
use crate::model::Now;

impl Shard {
    /// Hands out tokens, bucket by bucket, until limits or work run out.
    pub(super) fn dispatch(&mut self, now: Now) {
        if self.pause.pause.is_some() || self.draining {
            return;
        }
        let ready = std::mem::take(&mut self.ledger.ready);
        // Those of one tree take turns, all that may have something to start.
        let mut roots = BTreeSet::new();
        for policy in ready {
            match self.root_of(policy) {
                Some(root) => {
                    self.take_turns(policy, now);
                    roots.insert(root);
                }
                None => self.dispatch_alone(policy, now),
            }
        }
        for root in roots {
            self.dispatch_tree(root, now);
        }
    }

    /// Hands out the tokens of one bucket, or of its tree.
    pub(super) fn dispatch_from(&mut self, policy: Option<Uuid>, now: Now) {
        match self.root_of(policy) {
            Some(root) => {
                self.take_turns(policy, now);
                self.dispatch_tree(root, now);
            }
            None => self.dispatch_alone(policy, now),
        }
    }

    /// Hands out the tokens of a bucket that is in no tree.
    fn dispatch_alone(&mut self, policy: Option<Uuid>, now: Now) {
        let sends_max = self.options.sends_max;
        let mut room = self.ledger.bucket(policy, now).capacity(now, sends_max);
        let (mut kept, mut is_open) = (None, true);
        while !room.is_empty() && is_open {
            self.begin_round(policy, now);
            kept = self.start_next(policy, &mut room, now);
            is_open = self.queues.get(&policy).is_some_and(Queue::is_open);
        }
        let is_full = room.is_empty() || kept.is_some();
        if let Some(bucket) = self.ledger.buckets.get_mut(&policy) {
            bucket.kept = kept;
        }
        self.note_held(policy, now);
        if !is_full || self.queues.get(&policy).is_none_or(Queue::is_empty) {
            self.read_on(policy);
        }
        self.wake_for_rates(policy, is_full, now);
    }

    /// Starts what is next, until room or work run out. The event that waits for more tokens than are free, if one does.
    fn start_next(&mut self, policy: Option<Uuid>, room: &mut Room, now: Now) -> Option<Kept> {
        while !room.is_empty() {
            match self.next_work(policy, room.tokens, now)? {
                Next::Start(work, units) if self.start(work, now) => room.take(units),
                Next::Start(..) => {}
                Next::Short(work, units) => return Some(Kept { run: work.run(), units }),
            }
        }
        None
    }

    /// How many tokens are held from now on, for how long they are.
    pub(super) fn note_held(&mut self, policy: Option<Uuid>, now: Now) {
        if let Some(bucket) = self.ledger.buckets.get_mut(&policy) {
            bucket.pace.hold(bucket.counts.held(), now);
        }
    }
}
