//! A shard's tables in memory, with the rules of the real stores. Each rule that a commit must not break is asserted.

use std::collections::{BTreeMap, BTreeSet};

use tollgate_core::handle::batch::{BATCH_MAX, TokenBatch};
use tollgate_core::handle::change::{
    Changes, HistoryRow, Outcome, ShardPause, ShardSchedule, TokenRow, TokenState, Unstarted,
};
use tollgate_core::handle::control::Message;
use tollgate_core::handle::{Context, MessageNeeds, ShardState};
use tollgate_core::model::*;
use uuid::Uuid;

/// One shard's rows.
#[derive(Clone, Debug, Default)]
pub(crate) struct Store {
    pub(crate) runs: BTreeMap<RunId, Run>,
    /// All of them, in a batch or not.
    pub(crate) tokens: BTreeMap<(RunId, u32), TokenRow>,
    pub(crate) batches: BTreeMap<(RunId, u32), TokenBatch>,
    pub(crate) unstarted: BTreeMap<(RunId, u32), Unstarted>,
    pub(crate) history: BTreeMap<(RunId, u32), HistoryRow>,
    /// Results of events.
    pub(crate) results: BTreeMap<(RunId, u32), String>,
    pub(crate) policies: BTreeMap<Uuid, Policy>,
    /// When policies were deleted.
    pub(crate) policies_deleted: BTreeMap<Uuid, i64>,
    pub(crate) schedules: BTreeMap<Uuid, ShardSchedule>,
    pub(crate) specs: BTreeMap<(Uuid, i64), RunSpec>,
    pub(crate) skipped: BTreeMap<(Uuid, i64), Skipped>,
    pub(crate) inbox: BTreeMap<Uuid, Message>,
    pub(crate) pause: ShardPause,
    /// Up to when what fell due has been counted.
    pub(crate) counted_until_us: Option<i64>,
}

impl Store {
    /// What an emitter does: a run that exists stays as it is.
    pub(crate) fn emit(&mut self, run: Run, spec: &RunSpec) {
        self.specs.entry((spec.schedule_uid, spec.generation)).or_insert_with(|| spec.clone());
        self.runs.entry(run.id).or_insert(run);
    }

    /// Emitted runs that launch before `until_us`, and their specs.
    pub(crate) fn emitted(&self, until_us: i64) -> (Vec<Run>, Vec<RunSpec>) {
        let runs = self.runs.values().filter(|r| r.state == RunState::Emitted && r.launch_us < until_us);
        let runs: Vec<Run> = runs.cloned().collect();
        let specs = self.specs_of(&runs, &[]);
        (runs, specs)
    }

    /// Runs that have been passed over, and their specs, as far as there are any.
    pub(crate) fn unreadable(&self) -> (Vec<Run>, Vec<RunSpec>) {
        let runs = self.runs.values().filter(|r| r.state == RunState::Unreadable);
        let runs: Vec<Run> = runs.cloned().collect();
        let specs = self.specs_of(&runs, &[]);
        (runs, specs)
    }

    /// What a message needs.
    pub(crate) fn context(&self, needs: &MessageNeeds) -> Context {
        let runs: Vec<Run> = needs.runs.iter().filter_map(|id| self.runs.get(id)).cloned().collect();
        let dead = needs.dead.iter().flat_map(|(id, indexes)| {
            let rows = self.history.range((*id, 0)..=(*id, u32::MAX)).map(|(_, row)| row);
            rows.filter(|row| row.outcome == Outcome::Dead)
                .filter(|row| indexes.is_empty() || indexes.contains(&row.index))
        });
        Context { specs: self.specs_of(&runs, &needs.specs), dead: dead.cloned().collect(), runs }
    }

    /// What a new owner loads.
    pub(crate) fn state(&self) -> ShardState {
        let live = |r: &&Run| matches!(r.state, RunState::Waiting | RunState::Running);
        let runs: Vec<Run> = self.runs.values().filter(live).cloned().collect();
        ShardState {
            policies: self.policies.values().cloned().collect(),
            policies_deleted: self.policies_deleted.iter().map(|(uid, at_us)| (*uid, *at_us)).collect(),
            schedules: self.schedules.values().cloned().collect(),
            tokens: self.tokens.values().filter(|t| !self.is_batched(t)).cloned().collect(),
            batches: self.batches.values().cloned().collect(),
            unstarted: self.unstarted.values().cloned().collect(),
            counted: Vec::new(),
            left_out: Vec::new(),
            specs: self.specs_of(&runs, &[]),
            runs,
            pause: self.pause.clone(),
            counted_until_us: self.counted_until_us,
        }
    }

    fn is_batched(&self, token: &TokenRow) -> bool {
        let first = token.index.saturating_sub(BATCH_MAX);
        let mut near = self.batches.range((token.run, first)..=(token.run, token.index));
        near.any(|(_, batch)| batch.contains(token.index))
    }

    /// The same changes with a row for each event, whatever batch it is in.
    pub(crate) fn flat(&self, changes: &Changes) -> Changes {
        let mut flat = changes.clone();
        let own: BTreeSet<_> = changes.tokens_put.iter().map(|t| (t.run, t.index)).collect();
        flat.tokens_put.extend(changes.batches_new.iter().flat_map(TokenBatch::rows));
        for new in &changes.batches_changed {
            let old = self
                .batches
                .get(&new.key())
                .unwrap_or_else(|| panic!("a batch without a row changes: {new:?}"));
            assert_eq!(old.acquired_us, new.acquired_us, "{old:?} to {new:?}");
            assert!(old.count <= new.count, "{old:?} to {new:?}");
            let left = old.rows().map(|t| (t.run, t.index)).filter(|key| !new.contains(key.1));
            flat.tokens_gone.extend(left.filter(|key| !own.contains(key)));
            for row in new.rows() {
                let is_taken_in = row.index >= old.first + old.count;
                assert!(
                    is_taken_in || old.contains(row.index),
                    "an event comes back into its batch: {row:?}"
                );
                let stored = self.tokens.get(&(row.run, row.index));
                assert!(!(is_taken_in && stored.is_some()), "acquired twice: {row:?}");
                let changed = stored.is_none_or(|stored| stored.state != row.state);
                flat.tokens_put.extend(Some(row).filter(|_| changed));
            }
        }
        for key in &changes.batches_gone {
            let old = self.batches.get(key).unwrap_or_else(|| panic!("a batch without a row goes: {key:?}"));
            flat.tokens_gone.extend(old.rows().map(|t| (t.run, t.index)).filter(|key| !own.contains(key)));
        }
        flat.batches_new.clear();
        flat.batches_changed.clear();
        flat.batches_gone.clear();
        flat
    }

    fn apply_batches(&mut self, changes: &Changes) {
        for batch in &changes.batches_new {
            let old = self.batches.insert(batch.key(), batch.clone());
            assert!(old.is_none(), "a batch is acquired twice: {old:?}");
            assert!(
                !batch.rows().any(|t| self.tokens.contains_key(&(t.run, t.index))),
                "acquired twice: {batch:?}"
            );
        }
        for batch in &changes.batches_changed {
            self.batches.insert(batch.key(), batch.clone());
        }
        for key in &changes.batches_gone {
            self.batches.remove(key);
        }
    }

    /// Tokens of a policy that are in flight.
    pub(crate) fn in_flight(&self, policy: Option<Uuid>) -> u32 {
        let held = self.tokens.values().filter(|t| t.state != TokenState::Waiting);
        held.filter(|t| self.runs[&t.run].policy_uid == policy).count() as u32
    }

    /// One transaction.
    pub(crate) fn apply(&mut self, changes: &Changes) {
        let flat = self.flat(changes);
        self.apply_batches(changes);
        let changes = &flat;
        for message in &changes.inbox_new {
            self.inbox.entry(message.id).or_insert_with(|| message.clone());
        }
        for id in &changes.inbox_done {
            self.inbox.remove(id);
        }
        self.apply_runs(changes);
        for key in &changes.unstarted_gone {
            self.unstarted.remove(key);
        }
        for stretch in &changes.unstarted_put {
            assert!(stretch.indexes().next().is_some(), "nothing is left of {stretch:?}");
            self.unstarted.insert((stretch.run, stretch.first), stretch.clone());
        }
        for key in &changes.tokens_gone {
            assert!(self.tokens.remove(key).is_some(), "the token {key:?} that goes has no row");
        }
        for token in &changes.tokens_put {
            self.put_token(token);
        }
        for key in &changes.history_gone {
            assert!(self.history.remove(key).is_some(), "the history {key:?} that goes has no row");
        }
        for row in &changes.history {
            self.put_history(row);
        }
        for row in &changes.results {
            let ended = self.history.get(&(row.run, row.index));
            let is_well = ended.is_some_and(|ended| ended.outcome == Outcome::Succeeded);
            assert!(is_well, "a result of an event that has not succeeded: {row:?}");
            let old = self.results.insert((row.run, row.index), row.body.clone());
            assert!(old.is_none(), "an event has two results: {row:?}");
        }
        for row in &changes.schedules {
            let old = self.schedules.insert(row.uid, row.clone());
            assert!(old.is_none_or(|o| o.generation <= row.generation), "{row:?} goes back");
        }
        for uid in &changes.schedules_gone {
            self.schedules.remove(uid);
        }
        for policy in &changes.policies {
            let old = self.policies.insert(policy.uid, policy.clone());
            assert!(old.is_none_or(|o| o.generation < policy.generation), "{policy:?} goes back");
        }
        for (uid, deleted_us) in &changes.policies_deleted {
            assert!(self.policies.contains_key(uid), "a policy without a row is deleted: {uid}");
            self.policies_deleted.insert(*uid, *deleted_us);
        }
        for uid in &changes.policies_gone {
            self.policies.remove(uid);
            self.policies_deleted.remove(uid);
        }
        for skipped in &changes.skipped {
            let key = (skipped.schedule_uid, skipped.launch_us);
            self.skipped.entry(key).or_insert_with(|| skipped.clone());
        }
        if let Some(pause) = &changes.pause {
            self.pause.clone_from(pause);
        }
        for run in &changes.runs_changed {
            self.check_run(&self.runs[&run.id]);
            self.check_unstarted(&self.runs[&run.id]);
        }
    }

    fn apply_runs(&mut self, changes: &Changes) {
        for id in &changes.runs_withdrawn {
            if let Some(run) = self.runs.remove(id) {
                assert!(
                    run.started_us.is_none() && run.next_index == 0,
                    "a run that has started is withdrawn: {run:?}"
                );
                let unfinished = run.state.is_untaken() || run.state == RunState::Waiting;
                assert!(unfinished, "a run that has ended is withdrawn: {run:?}");
            }
        }
        for run in &changes.runs_new {
            self.runs.entry(run.id).or_insert_with(|| run.clone());
        }
        for run in &changes.runs_changed {
            let Some(old) = self.runs.get_mut(&run.id) else {
                panic!("a run without a row is changed: {run:?}")
            };
            assert!(old.next_index <= run.next_index, "the next index goes back: {old:?} to {run:?}");
            assert!(old.started_us.is_none() || old.policy_uid == run.policy_uid, "{old:?} to {run:?}");
            // The columns that an update leaves alone.
            let (kind, emitted_us, launch_us) = (old.kind, old.emitted_us, old.launch_us);
            *old = Run { kind, emitted_us, launch_us, ..run.clone() };
        }
    }

    fn put_token(&mut self, token: &TokenRow) {
        let run = self.runs.get(&token.run).map(|r| (r.state, r.sorted_to.unwrap_or(r.next_index)));
        assert!(
            run.is_some_and(|(state, front)| state == RunState::Running && token.index < front),
            "{token:?} belongs to no running run: {run:?}"
        );
        let old = self.tokens.insert((token.run, token.index), token.clone());
        assert!(old.is_none_or(|o| o.attempt <= token.attempt), "the attempt goes back: {token:?}");
    }

    fn put_history(&mut self, row: &HistoryRow) {
        let (first, end) = ((row.run, row.index), (row.run, row.index + row.count));
        let before = self.history.range(..first).next_back();
        let overlaps = before.is_some_and(|(_, b)| b.run == row.run && b.index + b.count > row.index)
            || self.history.range(first..end).next().is_some();
        assert!(!overlaps, "an event ends twice: {row:?}");
        let alive = self.tokens.range(first..end).next();
        assert!(alive.is_none(), "{row:?} has ended and has a token: {alive:?}");
        self.history.insert(first, row.clone());
    }

    /// What has not started is told by the rows beside the run, has no token and has not ended; all else has.
    fn check_unstarted(&self, run: &Run) {
        let rows = self.unstarted.range((run.id, 0)..=(run.id, u32::MAX)).map(|(_, stretch)| stretch);
        let unstarted: BTreeSet<u32> = rows.flat_map(Unstarted::indexes).collect();
        let front = run.sorted_to.unwrap_or(run.next_index);
        assert_eq!(
            front,
            run.next_index + unstarted.len() as u32,
            "{run:?}, and {unstarted:?} have not started"
        );
        for index in unstarted {
            let covering = self.history.range((run.id, 0)..=(run.id, index)).next_back();
            let has_ended = covering.is_some_and(|(_, row)| row.index + row.count > index);
            assert!(
                index < front && !self.tokens.contains_key(&(run.id, index)) && !has_ended,
                "{index} of {run:?}"
            );
        }
    }

    /// A run that has ended is accounted for, event by event.
    fn check_run(&self, run: &Run) {
        if !matches!(run.state, RunState::Finished | RunState::Cancelled) {
            return;
        }
        let rows = self.history.range((run.id, 0)..=(run.id, u32::MAX)).map(|(_, row)| row);
        let ended: u32 = rows.map(|row| row.count).sum();
        assert_eq!((run.counts.total(), ended), (run.events, run.events), "{run:?}");
        assert!(run.finished_us.is_some() && run.next_index == run.events, "{run:?}");
        let tokens = self.tokens.range((run.id, 0)..=(run.id, u32::MAX)).next();
        assert!(tokens.is_none(), "{run:?} has ended and has a token: {tokens:?}");
    }

    pub(crate) fn specs_of(&self, runs: &[Run], more: &[(Uuid, i64)]) -> Vec<RunSpec> {
        let keys: BTreeSet<_> =
            runs.iter().map(|r| (r.schedule_uid, r.generation)).chain(more.iter().copied()).collect();
        keys.iter().filter_map(|key| self.specs.get(key)).cloned().collect()
    }
}
