//! Leases, tokens, the done queue, messages, and what a shard knows of schedules and policies.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};
use sqlx::FromRow;
use tollgate_core::handle::change::{HistoryRow, ShardPause, ShardSchedule, TokenRow};
use tollgate_core::handle::control::Message;
use tollgate_core::model::{Pause, Policy, Run, RunId, RunSpec};
use uuid::Uuid;

use super::{Word, corrupt, count, int, json, parse, shard_of, text};
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
