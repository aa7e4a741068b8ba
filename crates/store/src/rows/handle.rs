//! Leases, tokens, the done queue, messages, and everything of one commit.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};
use sqlx::FromRow;
use tollgate_core::handle::change::{Changes, HistoryRow, ShardPause, ShardSchedule, TokenRow};
use tollgate_core::handle::control::Message;
use tollgate_core::model::{Pause, Policy, Run, RunId, RunSpec};
use uuid::Uuid;

use super::batch::BatchRecord;
use super::ended::{EndedRecord, pack};
use super::result::ResultRecord;
use super::unstarted::UnstartedRow;
use super::{
    RunRow, SkippedRow, Word, corrupt, count, int, json, parse, run_rows, shard_of, skipped_rows, text,
};
use crate::StoreError;
use crate::columns::row;
use crate::handle::{Lease, Member};

/// A row of `queue_shards`.
#[derive(Debug, FromRow)]
pub(crate) struct LeaseRow {
    shard_id: i32,
    owner: String,
    lease_id: Uuid,
    epoch: i64,
}

impl TryFrom<LeaseRow> for Lease {
    type Error = StoreError;

    fn try_from(row: LeaseRow) -> Result<Self, StoreError> {
        let shard = shard_of("shard_id", row.shard_id);
        let shard = shard.map_err(corrupt("queue_shards", || row.shard_id.to_string()))?;
        Ok(Self { shard, owner: row.owner, lease_id: row.lease_id, epoch: row.epoch })
    }
}

/// A row of `members`.
#[derive(Debug, FromRow)]
pub(crate) struct MemberRow {
    process: String,
    roles: String,
    address: String,
    heartbeat: i64,
}

impl From<MemberRow> for Member {
    fn from(row: MemberRow) -> Self {
        Self { process: row.process, roles: row.roles, address: row.address, heartbeat: row.heartbeat }
    }
}

row! {
    /// A row of `tokens`.
    TokenRecord of "tokens" {
        key {
            run_id: Uuid,
            idx: i32,
        }
        fixed {}
        changing {
            state: String,
            attempt: i32,
            failures: i32,
            checks: i32,
            due_us: i64,
            acquired_us: i64,
            delivered_us: Option<i64>,
            heartbeat_ttl_ms: Option<i64>,
            message: String,
        }
    }
}

impl From<&TokenRow> for TokenRecord {
    fn from(token: &TokenRow) -> Self {
        Self {
            run_id: token.run.0,
            idx: int(token.index),
            state: token.state.word().to_owned(),
            attempt: int(token.attempt),
            failures: int(token.failures),
            checks: int(token.checks),
            due_us: token.due_us,
            acquired_us: token.acquired_us,
            delivered_us: token.delivered_us,
            heartbeat_ttl_ms: token.heartbeat_ttl_ms,
            message: text(&token.message),
        }
    }
}

impl TryFrom<TokenRecord> for TokenRow {
    type Error = StoreError;

    fn try_from(row: TokenRecord) -> Result<Self, StoreError> {
        let (run, index) = (RunId(row.run_id), row.idx);
        let read = move || {
            Ok(Self {
                run,
                index: count("idx", row.idx)?,
                state: Word::of("state", &row.state)?,
                attempt: count("attempt", row.attempt)?,
                failures: count("failures", row.failures)?,
                checks: count("checks", row.checks)?,
                due_us: row.due_us,
                acquired_us: row.acquired_us,
                delivered_us: row.delivered_us,
                heartbeat_ttl_ms: row.heartbeat_ttl_ms,
                message: row.message,
            })
        };
        read().map_err(corrupt("tokens", || format!("run {run}, index {index}")))
    }
}

row! {
    /// A row of `event_history`.
    HistoryRecord of "event_history" {
        key {
            run_id: Uuid,
            idx: i32,
        }
        fixed {
            events: i32,
            outcome: String,
            attempt: i32,
            acquired_us: Option<i64>,
            delivered_us: Option<i64>,
            finished_us: i64,
            message: String,
        }
        changing {}
    }
}

impl From<&HistoryRow> for HistoryRecord {
    fn from(row: &HistoryRow) -> Self {
        Self {
            run_id: row.run.0,
            idx: int(row.index),
            events: int(row.count),
            outcome: row.outcome.word().to_owned(),
            attempt: int(row.attempt),
            acquired_us: row.acquired_us,
            delivered_us: row.delivered_us,
            finished_us: row.finished_us,
            message: text(&row.message),
        }
    }
}

impl TryFrom<HistoryRecord> for HistoryRow {
    type Error = StoreError;

    fn try_from(row: HistoryRecord) -> Result<Self, StoreError> {
        let (run, index) = (RunId(row.run_id), row.idx);
        let read = move || {
            Ok(Self {
                run,
                index: count("idx", row.idx)?,
                count: count("events", row.events)?,
                outcome: Word::of("outcome", &row.outcome)?,
                attempt: count("attempt", row.attempt)?,
                acquired_us: row.acquired_us,
                delivered_us: row.delivered_us,
                finished_us: row.finished_us,
                message: row.message,
            })
        };
        read().map_err(corrupt("event_history", || format!("run {run}, index {index}")))
    }
}

/// JSON under a uid: a message.
#[derive(Clone, Debug, FromRow)]
pub(crate) struct BodyRow {
    pub(crate) uid: Uuid,
    pub(crate) body: String,
}

/// A policy as a shard knows it.
#[derive(Clone, Debug, FromRow)]
pub(crate) struct ShardPolicyRow {
    pub(crate) uid: Uuid,
    pub(crate) body: String,
    /// When it was deleted.
    pub(crate) deleted_us: Option<i64>,
}

impl TryFrom<ShardPolicyRow> for Policy {
    type Error = StoreError;

    fn try_from(row: ShardPolicyRow) -> Result<Self, StoreError> {
        parse("body", &row.body).map_err(corrupt("shard_policies", || format!("policy {}", row.uid)))
    }
}

impl TryFrom<ScheduleBody> for ShardSchedule {
    type Error = StoreError;

    fn try_from(row: ScheduleBody) -> Result<Self, StoreError> {
        parse("body", &row.body)
            .map_err(corrupt("shard_schedules", || format!("schedule {}", row.schedule_uid)))
    }
}

impl TryFrom<BodyRow> for Message {
    type Error = StoreError;

    fn try_from(row: BodyRow) -> Result<Self, StoreError> {
        let control = parse("body", &row.body);
        let control = control.map_err(corrupt("shard_inbox", || format!("message {}", row.uid)))?;
        Ok(Self { id: row.uid, control })
    }
}

/// A row of `run_specs` as it is read.
#[derive(Debug, FromRow)]
pub(crate) struct SpecRecord {
    schedule_uid: Uuid,
    generation: i64,
    body: String,
}

impl TryFrom<SpecRecord> for RunSpec {
    type Error = StoreError;

    fn try_from(row: SpecRecord) -> Result<Self, StoreError> {
        read_spec(row.schedule_uid, row.generation, &row.body)
    }
}

/// The run spec of a `body` column.
pub(crate) fn read_spec(schedule_uid: Uuid, generation: i64, body: &str) -> Result<RunSpec, StoreError> {
    let key = || format!("schedule {schedule_uid}, generation {generation}");
    parse("body", body).map_err(corrupt("run_specs", key))
}

row! {
    /// A row of `shard_inbox` to be written.
    MessageRow of "shard_inbox" {
        key {
            message_id: Uuid,
        }
        fixed {
            body: String,
        }
        changing {}
    }
}

/// The rows of messages, in the order of their key.
pub(crate) fn message_rows<'a>(
    messages: impl IntoIterator<Item = &'a Message>,
) -> Result<Vec<MessageRow>, StoreError> {
    let mut rows = messages
        .into_iter()
        .map(|message| Ok(MessageRow { message_id: message.id, body: json(&message.control)? }))
        .collect::<Result<Vec<_>, StoreError>>()?;
    rows.sort_by_key(|row| row.message_id);
    rows.dedup_by_key(|row| row.message_id);
    Ok(rows)
}

row! {
    /// A row of `shard_policies` to be written.
    PolicyBody of "shard_policies" {
        key {
            policy_uid: Uuid,
        }
        fixed {}
        changing {
            body: String,
        }
    }
}

row! {
    /// A row of `shard_schedules`: a schedule as a shard knows it.
    ScheduleBody of "shard_schedules" {
        key {
            schedule_uid: Uuid,
        }
        fixed {}
        changing {
            generation: i64,
            body: String,
        }
    }
}

row! {
    /// The key of an event in a table.
    EventKey of "event_keys" {
        key {
            run_id: Uuid,
            idx: i32,
        }
        fixed {}
        changing {}
    }
}

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

/// Things by their shard, in the order of shards.
pub(crate) fn group_by_shard<'a, T>(
    things: impl IntoIterator<Item = (u16, &'a T)>,
) -> BTreeMap<u16, Vec<&'a T>> {
    let mut groups: BTreeMap<u16, Vec<&T>> = BTreeMap::new();
    for (shard, thing) in things {
        groups.entry(shard).or_default().push(thing);
    }
    groups
}

/// The keys of the specs that runs need, each once.
pub(crate) fn spec_keys(runs: &[Run]) -> Vec<(Uuid, i64)> {
    let keys = runs.iter().map(|run| (run.schedule_uid, run.generation));
    keys.collect::<BTreeSet<_>>().into_iter().collect()
}

/// What the column `pause` may hold.
#[derive(Deserialize)]
#[serde(untagged)]
enum StoredPause {
    Ordered(ShardPause),
    /// As it was written before resumes were remembered.
    Plain(Pause),
}

/// A shard's own pause.
pub(crate) fn pause(shard: i32, column: Option<String>) -> Result<ShardPause, StoreError> {
    let Some(column) = column else { return Ok(ShardPause::default()) };
    match parse("pause", &column).map_err(corrupt("queue_shards", || shard.to_string()))? {
        StoredPause::Ordered(pause) => Ok(pause),
        StoredPause::Plain(pause) => Ok(ShardPause { order: Uuid::nil(), pause: Some(pause) }),
    }
}

/// The key of a spec.
#[derive(Clone, Copy, Debug, Serialize)]
pub(crate) struct SpecKey {
    pub(crate) schedule_uid: Uuid,
    pub(crate) generation: i64,
}
