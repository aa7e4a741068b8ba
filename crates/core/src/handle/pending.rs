//! What the next commit says: rows that have changed since the last one, and what is done once they are durable.
//!
//! In: rows, or that a row is no longer what is stored. Out: the changes of one commit. Invariant: a row that has changed more
//! than once is written once, as it is when the commit is made.

use std::collections::{BTreeMap, BTreeSet};

use uuid::Uuid;

use super::batch::{self, TokenBatch};
use super::change::{Changes, TokenRow, TokenState};
use super::exchange::Effect;
use super::ledger::{Key, Ledger, Runs, Tokens};
use super::live::LiveSchedule;
use crate::model::{Run, RunId};

/// Batches by their runs and first indexes.
pub(super) type Batches = BTreeMap<Key, TokenBatch>;

/// See the head of this file.
#[derive(Debug, Default)]
pub(super) struct Pending {
    /// Rows that are written as they stand here.
    pub changes: Changes,
    /// Runs that are made, and runs that are withdrawn.
    pub made: BTreeMap<RunId, Run>,
    pub withdrawn: BTreeSet<RunId>,
    /// What is no longer as it is stored.
    pub runs: BTreeSet<RunId>,
    pub tokens: BTreeSet<Key>,
    pub batches: BTreeSet<Key>,
    /// Stretches of events, by their runs and first indexes.
    pub unstarted: BTreeSet<Key>,
    pub schedules: BTreeSet<Uuid>,
    pub effects: Vec<Effect>,
    /// Someone waits for it.
    pub urgent: bool,
}

impl Pending {
    pub(super) fn is_empty(&self) -> bool {
        self.runs.is_empty()
            && self.tokens.is_empty()
            && self.batches.is_empty()
            && self.unstarted.is_empty()
            && self.schedules.is_empty()
            && self.effects.is_empty()
            && self.made.is_empty()
            && self.withdrawn.is_empty()
            && self.changes.is_empty()
    }

    /// The changes of one commit. The effects stay.
    pub(super) fn take(
        &mut self,
        ledger: &mut Ledger,
        schedules: &BTreeMap<Uuid, LiveSchedule>,
        batches: &mut Batches,
    ) -> Changes {
        let mut changes = std::mem::take(&mut self.changes);
        changes.runs_new.extend(std::mem::take(&mut self.made).into_values());
        changes.runs_withdrawn.extend(std::mem::take(&mut self.withdrawn));
        let runs = std::mem::take(&mut self.runs);
        changes.runs_changed.extend(runs.iter().filter_map(|id| Some(ledger.runs.get(id)?.row.clone())));
        self.take_unstarted(&ledger.runs, &mut changes);
        self.take_tokens(&mut ledger.tokens, batches, &mut changes);
        let changed = std::mem::take(&mut self.schedules);
        changes.schedules.extend(changed.iter().filter_map(|uid| schedules.get(uid)?.row.clone()));
        changes
    }

    /// How the changed stretches of events stand.
    fn take_unstarted(&mut self, runs: &Runs, changes: &mut Changes) {
        for (id, first) in std::mem::take(&mut self.unstarted) {
            let sorted = runs.get(&id).and_then(|run| run.sorted.as_ref());
            match sorted.and_then(|sorted| sorted.stored(id, first)) {
                Some(stretch) => changes.unstarted_put.push(stretch),
                None => changes.unstarted_gone.push((id, first)),
            }
        }
    }

    /// The first index of the batch that takes in an event that has just been acquired: a new one, its run's last one, or one
    /// that begins with it.
    fn take_in(&mut self, row: &TokenRow, batches: &mut Batches, new: &mut Vec<TokenBatch>) -> u32 {
        if let Some(last) = new.last_mut()
            && last.take_in(row)
        {
            return last.first;
        }
        let last = batches.range_mut((row.run, 0)..=(row.run, u32::MAX)).next_back();
        if let Some((key, last)) = last
            && last.take_in(row)
        {
            self.batches.insert(*key);
            return last.first;
        }
        new.push(TokenBatch::of(row.run, row.index, row.acquired_us));
        row.index
    }

    /// Where each changed event is stored: in its batch as long as that can tell all of it.
    fn take_tokens(&mut self, tokens: &mut Tokens, batches: &mut Batches, changes: &mut Changes) {
        for key in std::mem::take(&mut self.tokens) {
            let Some(token) = tokens.get_mut(&key) else { continue };
            let row = &token.row;
            let stored = std::mem::replace(&mut token.stored, true);
            match token.batch {
                Some(first) if batch::is_plain(row) => {
                    if row.state == TokenState::Held
                        && let Some(batch) = batches.get_mut(&(key.0, first))
                    {
                        batch.hold(key.1, row.delivered_us);
                        self.batches.insert((key.0, first));
                    }
                }
                Some(first) => {
                    token.batch = None;
                    changes.tokens_put.push(row.clone());
                    if let Some(batch) = batches.get_mut(&(key.0, first)) {
                        batch.leave(key.1);
                        self.batches.insert((key.0, first));
                    }
                }
                None if !stored && row.state == TokenState::Acquired && batch::is_plain(row) => {
                    token.batch = Some(self.take_in(row, batches, &mut changes.batches_new));
                }
                None => changes.tokens_put.push(row.clone()),
            }
        }
        batches.extend(changes.batches_new.iter().map(|batch| (batch.key(), batch.clone())));
        for key in std::mem::take(&mut self.batches) {
            match batches.get(&key) {
                Some(batch) if batch.is_empty() => {
                    batches.remove(&key);
                    changes.batches_gone.push(key);
                }
                Some(batch) => changes.batches_changed.push(batch.clone()),
                None => {}
            }
        }
    }
}
