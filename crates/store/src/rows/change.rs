//! What one commit of a shard's owner writes, as rows.
//!
//! In: [`Changes`]. Out: their rows, of which each is written once. Not here: messages for other shards, which go before.

use std::collections::BTreeSet;

use tollgate_core::handle::change::{Changes, ShardSchedule};
use tollgate_core::model::{Policy, RunId};
use uuid::Uuid;

use super::ended::pack;
use super::{
    BatchRecord, EndedRecord, EventKey, HistoryRecord, MessageRow, PolicyBody, ResultRecord, RunRow,
    ScheduleBody, SkippedRow, TokenRecord, UnstartedRow, int, json, message_rows, run_rows, skipped_rows,
};
use crate::StoreError;

/// The keys of events, in their order.
fn keys(events: &[(RunId, u32)]) -> Vec<EventKey> {
    let mut keys: Vec<EventKey> =
        events.iter().map(|(run, index)| EventKey { run_id: run.0, idx: int(*index) }).collect();
    keys.sort_by_key(|key| (key.run_id, key.idx));
    keys
}

/// [`Changes`] as rows, without its forwards.
#[derive(Clone, Debug, Default)]
pub(crate) struct ChangeRows {
    pub(crate) inbox_done: Vec<Uuid>,
    pub(crate) inbox_new: Vec<MessageRow>,
    /// As they are by the end of the commit.
    pub(crate) runs_new: Vec<RunRow>,
    /// First those that are not new.
    pub(crate) runs_changed: Vec<RunRow>,
    /// How many of them are not new.
    pub(crate) older: usize,
    pub(crate) runs_withdrawn: Vec<Uuid>,
    pub(crate) batches_new: Vec<BatchRecord>,
    pub(crate) batches_changed: Vec<BatchRecord>,
    pub(crate) batches_gone: Vec<EventKey>,
    pub(crate) tokens_put: Vec<TokenRecord>,
    pub(crate) tokens_gone: Vec<EventKey>,
    pub(crate) unstarted_put: Vec<UnstartedRow>,
    pub(crate) unstarted_gone: Vec<EventKey>,
    pub(crate) ended: Vec<EndedRecord>,
    pub(crate) history: Vec<HistoryRecord>,
    pub(crate) results: Vec<ResultRecord>,
    pub(crate) history_gone: Vec<EventKey>,
    pub(crate) schedules: Vec<ScheduleBody>,
    pub(crate) schedules_gone: Vec<Uuid>,
    pub(crate) policies: Vec<PolicyBody>,
    pub(crate) policies_deleted: Vec<(Uuid, i64)>,
    pub(crate) policies_gone: Vec<Uuid>,
    pub(crate) skipped: Vec<SkippedRow>,
    pub(crate) pause: Option<String>,
}

impl ChangeRows {
    /// How many rows are written or go, those of the plan, of which there are few, aside.
    pub(crate) fn count(&self) -> usize {
        let runs = self.runs_new.len() + self.runs_changed.len() + self.runs_withdrawn.len();
        let batches = self.batches_new.len() + self.batches_changed.len() + self.batches_gone.len();
        let tokens = self.tokens_put.len() + self.tokens_gone.len();
        let unstarted = self.unstarted_put.len() + self.unstarted_gone.len();
        let history = self.ended.len() + self.history.len() + self.history_gone.len() + self.results.len();
        runs + batches
            + tokens
            + unstarted
            + history
            + self.skipped.len()
            + self.inbox_done.len()
            + self.inbox_new.len()
    }

    /// The rows of changes. Where one key is put twice, the last one counts.
    pub(crate) fn of(changes: &Changes) -> Result<Self, StoreError> {
        let mut tokens: Vec<TokenRecord> = changes.tokens_put.iter().map(TokenRecord::from).collect();
        last_of_each(&mut tokens, |row| (row.run_id, row.idx));
        let mut runs_changed: Vec<RunRow> = changes.runs_changed.iter().map(RunRow::from).collect();
        last_of_each(&mut runs_changed, |row| row.run_id);
        // A change does not bring a withdrawn run back.
        let gone: BTreeSet<Uuid> = changes.runs_withdrawn.iter().map(|run| run.0).collect();
        let new: BTreeSet<Uuid> = changes.runs_new.iter().map(|run| run.id.0).collect();
        runs_changed.retain(|row| !gone.contains(&row.run_id) || new.contains(&row.run_id));
        let mut runs_new = run_rows(&changes.runs_new);
        for row in &mut runs_new {
            if let Ok(at) = runs_changed.binary_search_by_key(&row.run_id, |changed| changed.run_id) {
                row.clone_from(&runs_changed[at]);
            }
        }
        runs_changed.sort_by_key(|row| new.contains(&row.run_id));
        let older = runs_changed.partition_point(|row| !new.contains(&row.run_id));
        let mut unstarted_put: Vec<UnstartedRow> =
            changes.unstarted_put.iter().map(UnstartedRow::from).collect();
        last_of_each(&mut unstarted_put, |row| (row.run_id, row.first_idx));
        // What goes and comes again in one commit is there: one statement writes a row once.
        let is_put = |key: &EventKey| {
            unstarted_put
                .binary_search_by_key(&(key.run_id, key.idx), |row| (row.run_id, row.first_idx))
                .is_ok()
        };
        let mut unstarted_gone = keys(&changes.unstarted_gone);
        unstarted_gone.retain(|key| !is_put(key));
        let mut schedules = changes.schedules.iter().map(schedule_body).collect::<Result<Vec<_>, _>>()?;
        last_of_each(&mut schedules, |row| row.schedule_uid);
        let mut policies = changes.policies.iter().map(policy_body).collect::<Result<Vec<_>, _>>()?;
        last_of_each(&mut policies, |row| row.policy_uid);
        let (ended, history) = pack(&changes.history);
        // A message that comes and goes in one commit is gone: one statement does not see what it has written itself.
        let mut inbox_new = message_rows(&changes.inbox_new)?;
        if !inbox_new.is_empty() {
            let done: BTreeSet<&Uuid> = changes.inbox_done.iter().collect();
            inbox_new.retain(|row| !done.contains(&row.message_id));
        }
        Ok(Self {
            inbox_done: changes.inbox_done.clone(),
            inbox_new,
            runs_new,
            runs_changed,
            older,
            runs_withdrawn: changes.runs_withdrawn.iter().map(|run| run.0).collect(),
            batches_new: changes.batches_new.iter().map(BatchRecord::from).collect(),
            batches_changed: changes.batches_changed.iter().map(BatchRecord::from).collect(),
            batches_gone: keys(&changes.batches_gone),
            tokens_put: tokens,
            tokens_gone: keys(&changes.tokens_gone),
            unstarted_put,
            unstarted_gone,
            ended,
            history,
            results: changes.results.iter().map(ResultRecord::from).collect(),
            history_gone: keys(&changes.history_gone),
            schedules,
            schedules_gone: changes.schedules_gone.clone(),
            policies,
            policies_deleted: changes.policies_deleted.clone(),
            policies_gone: changes.policies_gone.clone(),
            skipped: skipped_rows(&changes.skipped),
            pause: changes.pause.as_ref().map(json).transpose()?,
        })
    }

    /// The runs that change, without those that are new.
    pub(crate) fn older_runs_changed(&self) -> &[RunRow] {
        self.runs_changed.get(..self.older).unwrap_or_default()
    }

    /// Whether runs are new, or messages come or go, as where one run follows another.
    pub(crate) fn has_orders(&self) -> bool {
        !(self.runs_new.is_empty() && self.inbox_new.is_empty() && self.inbox_done.is_empty())
    }

    /// Whether there is more than orders, runs that change, batches and the done queue, of which nearly every commit consists,
    /// and what has not started. An order that changes runs counts as such: the items of one may be handed over by somebody else
    /// in this moment, and what was read behind the fence shows that.
    pub(crate) fn has_rest(&self) -> bool {
        let is_order = !self.inbox_done.is_empty() && self.older > 0;
        let uids = [&self.runs_withdrawn, &self.schedules_gone, &self.policies_gone];
        let is_all = uids.iter().all(|uids| uids.is_empty())
            && (self.tokens_put.is_empty() && self.tokens_gone.is_empty() && self.history_gone.is_empty())
            && (self.schedules.is_empty() && self.policies.is_empty() && self.policies_deleted.is_empty())
            && (self.results.is_empty() && self.skipped.is_empty() && self.pause.is_none());
        is_order || !is_all
    }
}

/// An upsert takes each key once: sorts by key, and keeps the last row of each.
fn last_of_each<R, K: Ord>(rows: &mut Vec<R>, key: impl Fn(&R) -> K) {
    rows.reverse();
    rows.sort_by_key(&key);
    rows.dedup_by_key(|row| key(row));
}

fn schedule_body(schedule: &ShardSchedule) -> Result<ScheduleBody, StoreError> {
    Ok(ScheduleBody { schedule_uid: schedule.uid, generation: schedule.generation, body: json(schedule)? })
}

pub(crate) fn policy_body(policy: &Policy) -> Result<PolicyBody, StoreError> {
    Ok(PolicyBody { policy_uid: policy.uid, body: json(policy)? })
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]

    use tollgate_core::handle::control::{Control, Message};
    use tollgate_core::model::Run;

    use super::*;

    fn run(number: u128) -> Run {
        Run { id: RunId(Uuid::from_u128(number)), ..Run::default() }
    }

    #[test]
    fn a_message_that_comes_and_goes_at_once_is_gone() {
        let message = |number| Message {
            id: Uuid::from_u128(number),
            control: Control::CancelRun { run: run(1).id, reason: String::new() },
        };
        let changes = Changes {
            inbox_new: vec![message(1), message(2)],
            inbox_done: vec![message(1).id, message(3).id],
            ..Changes::default()
        };
        let rows = ChangeRows::of(&changes).unwrap();
        assert_eq!(rows.inbox_new.iter().map(|row| row.message_id).collect::<Vec<_>>(), [message(2).id]);
        assert_eq!(rows.inbox_done, changes.inbox_done);
    }

    /// One that follows another run is made by the one statement; what an order does to a run is read behind the fence.
    #[test]
    fn an_order_that_changes_a_run_is_more_than_the_one_statement_carries() {
        let made = Changes {
            runs_new: vec![run(2)],
            runs_changed: vec![run(2)],
            inbox_done: vec![Uuid::nil()],
            ..Changes::default()
        };
        let rows = ChangeRows::of(&made).unwrap();
        assert!(rows.has_orders() && !rows.has_rest() && rows.older_runs_changed().is_empty());
        let ordered = Changes { runs_changed: vec![run(2), run(1)], ..made };
        let rows = ChangeRows::of(&ordered).unwrap();
        assert!(rows.has_rest());
        assert_eq!(rows.older_runs_changed().iter().map(|row| row.run_id).collect::<Vec<_>>(), [run(1).id.0]);
    }
}
