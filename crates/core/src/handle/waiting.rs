//! What waits: under each policy, for each target, of each run.
//!
//! In: unfinished runs. Out: how many of their events are due and hold no token, and since when. Read from memory when somebody
//! asks.

use std::collections::BTreeMap;

use uuid::Uuid;

use super::live::LiveRun;
use super::shard::Shard;
use super::targets::TargetId;
use crate::model::Now;

/// How many acquired events of a run are looked at for one that has failed.
const FAILED_LOOKED_AT_MAX: usize = 32;

/// What waits under a policy, or for a target.
#[derive(Clone, Copy, Default)]
pub(super) struct WaitingEvents {
    pub(super) events: u64,
    /// Of those, events that wait for another attempt.
    pub(super) retrying: u64,
    /// When the oldest fell due that has not started, or has failed.
    pub(super) since_us: Option<i64>,
}

/// What is in flight to a target, and what waits for it.
#[derive(Clone, Copy, Default)]
pub(super) struct AtTarget {
    pub(super) held: u64,
    pub(super) waiting: WaitingEvents,
}

/// What one look at all runs finds.
#[derive(Default)]
pub(super) struct Waiting {
    /// Runs that have launched.
    pub(super) launched: u64,
    pub(super) by_policy: BTreeMap<Option<Uuid>, WaitingEvents>,
    pub(super) by_target: BTreeMap<TargetId, AtTarget>,
}

impl WaitingEvents {
    pub(super) fn add(&mut self, other: Self) {
        self.events += other.events;
        self.retrying += other.retrying;
        if let Some(since_us) = other.since_us {
            self.began(since_us);
        }
    }

    fn began(&mut self, since_us: i64) {
        self.since_us = Some(self.since_us.map_or(since_us, |oldest| oldest.min(since_us)));
    }
}

impl Shard {
    /// What waits under each policy and for each target, and since when.
    pub(super) fn all_waiting(&self, now: Now) -> Waiting {
        let mut all = Waiting::default();
        for run in self.ledger.runs.all().filter(|r| r.launched) {
            all.launched += 1;
            let waiting = self.waiting_now(run, now);
            all.by_policy.entry(run.row.policy_uid).or_default().add(waiting);
            if let Some(target) = run.target() {
                let at_target = all.by_target.entry(target).or_default();
                at_target.held += u64::from(run.counts.outstanding() - run.counts.retrying());
                at_target.waiting.add(waiting);
            }
        }
        all
    }

    /// What waits of a launched run.
    pub(super) fn waiting_now(&self, run: &LiveRun, now: Now) -> WaitingEvents {
        let mut waiting = WaitingEvents::default();
        if run.cancelled {
            return waiting;
        }
        waiting.retrying = u64::from(run.counts.retrying());
        waiting.events = waiting.retrying;
        if run.next_is_due(now.wall_us, &self.options) {
            waiting.events += self.due_now(run, now);
            waiting.began(run.launch_of(run.row.next_index));
        }
        if let Some(since_us) = self.failed_since_us(run) {
            waiting.began(since_us);
        }
        waiting
    }

    /// When the first of a run's events fell due that has failed and waits for another attempt; of those that were acquired
    /// first, which an event that fails stays among. One whose consumer asked to look again has not failed.
    fn failed_since_us(&self, run: &LiveRun) -> Option<i64> {
        if run.counts.retrying() == 0 {
            return None;
        }
        let mut first = self.ledger.tokens.of(run.row.id).take(FAILED_LOOKED_AT_MAX);
        let failed = first
            .find(|(_, token)| !token.in_flight() && (token.row.failures > 0 || token.unsent.is_some()))?;
        Some(run.launch_of(failed.0.1))
    }

    /// Events of a run that are due and have not started.
    pub(super) fn due_now(&self, run: &LiveRun, now: Now) -> u64 {
        let next = run.row.next_index;
        u64::from(run.due_until(next, now.wall_us) - next)
    }
}
