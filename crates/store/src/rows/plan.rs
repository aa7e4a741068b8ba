//! Schedules, policies, children, the registry and the audit log.

use std::collections::BTreeMap;

use sqlx::FromRow;
use tollgate_core::model::{Policy, Run, RunSpec, Schedule};
use tollgate_core::plan::done::done_us;
use tollgate_core::plan::{Child, Notice};
use uuid::Uuid;

use super::items::{stored_items, take_payload, with_payload};
use super::{corrupt, count, json, parse, shard_of, sound, text};
use crate::StoreError;
use crate::columns::{JsonText, row};
use crate::corrupt::CorruptRow;
use crate::plan::{Audit, Filter, OutboxLane, OutboxPage, StoredChild, Told};

row! {
    /// A row of `schedules` to be written.
    ScheduleNew of "schedules" {
        key {
            uid: Uuid,
        }
        fixed {
            namespace: String,
            id: String,
            created_us: i64,
        }
        changing {
            spec: String,
            payload: String,
            items: String,
            policy_uid: Option<Uuid>,
            policy_id: Option<String>,
            next_id: Option<String>,
            time_zone: String,
            paused: bool,
            labels: JsonText,
            generation: i64,
            shard: i32,
            updated_us: i64,
            done_us: Option<i64>,
        }
    }
}

impl ScheduleNew {
    /// The row of a schedule whose runs a shard owns.
    pub(crate) fn new(mut schedule: Schedule, shard: u16) -> Result<Self, StoreError> {
        let items = stored_items(schedule.generation, &schedule.payload);
        let payload = take_payload(&mut schedule).json;
        Ok(Self {
            uid: schedule.uid,
            done_us: done_us(&schedule),
            spec: json(&schedule)?,
            payload,
            items,
            policy_uid: schedule.policy_uid,
            time_zone: schedule.timing.time_zone,
            paused: schedule.pause.is_some(),
            labels: JsonText(json(&schedule.labels)?),
            generation: schedule.generation,
            shard: i32::from(shard),
            created_us: schedule.created_us,
            updated_us: schedule.updated_us,
            namespace: schedule.namespace,
            id: schedule.id,
            policy_id: schedule.policy,
            next_id: schedule.on_finish.map(|on_finish| on_finish.schedule),
        })
    }
}

row! {
    /// A schedule as it is read.
    ScheduleRow of "schedules as read" {
        key {
            uid: Uuid,
        }
        fixed {
            id: String,
            spec: String,
            payload: String,
            items: String,
        }
        changing {}
    }
}

impl TryFrom<ScheduleRow> for Schedule {
    type Error = StoreError;

    fn try_from(row: ScheduleRow) -> Result<Self, StoreError> {
        read_schedule(row.uid, &row.spec).map(|schedule| with_payload(schedule, row.payload, &row.items))
    }
}

/// The schedule of a `spec` column: it has no payload.
pub(crate) fn read_schedule(uid: Uuid, spec: &str) -> Result<Schedule, StoreError> {
    let read = parse("spec", spec).and_then(|schedule: Schedule| {
        let other = schedule.uid;
        if other == uid { Ok(schedule) } else { Err(("spec", format!("it is of schedule {other}"))) }
    });
    read.map_err(corrupt("schedules", || format!("schedule {uid}")))
}

row! {
    /// A row of `policies` to be written.
    PolicyNew of "policies" {
        key {
            uid: Uuid,
        }
        fixed {
            namespace: String,
            id: String,
            shard: i32,
        }
        changing {
            spec: String,
            parent_uid: Option<Uuid>,
            adopts: bool,
            paused: bool,
            labels: JsonText,
            generation: i64,
            updated_us: i64,
        }
    }
}

impl PolicyNew {
    /// The row of a policy.
    pub(crate) fn new(policy: &Policy) -> Result<Self, StoreError> {
        Ok(Self {
            uid: policy.uid,
            namespace: policy.namespace.clone(),
            id: policy.id.clone(),
            spec: json(policy)?,
            shard: i32::from(policy.shard),
            parent_uid: policy.parent.as_ref().map(|parent| parent.uid),
            adopts: policy.adopts,
            paused: policy.pause.is_some(),
            labels: JsonText(json(&policy.labels)?),
            generation: policy.generation,
            updated_us: policy.updated_us,
        })
    }
}

row! {
    /// A row of `plan_outbox` to be written. Its `schedule_uid` may be a policy's.
    OutboxRow of "plan_outbox" {
        key {
            schedule_uid: Uuid,
            generation: i64,
        }
        fixed {
            shard: i32,
            namespace: String,
            changed_us: i64,
            body: String,
        }
        changing {}
    }
}

impl OutboxRow {
    /// The row of a notice.
    pub(crate) fn new(notice: &Notice) -> Result<Self, StoreError> {
        Ok(Self {
            schedule_uid: notice.uid,
            generation: notice.generation,
            shard: i32::from(notice.first()),
            namespace: notice.namespace.clone(),
            changed_us: notice.changed_us,
            body: json(notice)?,
        })
    }
}

row! {
    /// A notice as it is read.
    NoticeRow of "plan_outbox as read" {
        key {
            schedule_uid: Uuid,
            generation: i64,
        }
        fixed {
            changed_us: i64,
            body: String,
        }
        changing {}
    }
}

impl TryFrom<NoticeRow> for Notice {
    type Error = StoreError;

    fn try_from(row: NoticeRow) -> Result<Self, StoreError> {
        let key = || format!("notice of {}, generation {}", row.schedule_uid, row.generation);
        let read = parse("body", &row.body).and_then(|notice: Notice| {
            let same = (notice.uid, notice.generation) == (row.schedule_uid, row.generation);
            if same && !notice.way.is_empty() {
                Ok(notice)
            } else {
                Err(("body", "it is of another change, or names no shard".to_owned()))
            }
        });
        read.map_err(corrupt("plan_outbox", key))
    }
}

/// The page that a lane's rows make, and those that cannot be read.
pub(crate) fn outbox_page(rows: Vec<NoticeRow>, limit: u32) -> (OutboxPage, Vec<CorruptRow>) {
    let full = rows.len() >= limit as usize;
    let next = rows.last().filter(|_| full).map(|row| (row.changed_us, row.schedule_uid));
    let (notices, found) = sound(None, rows);
    (OutboxPage { notices, next }, found)
}

/// How many notices wait in a lane.
#[derive(Debug, FromRow)]
pub(crate) struct LaneRow {
    pub(crate) shard: i32,
    pub(crate) namespace: String,
    pub(crate) waiting: i64,
}

impl TryFrom<LaneRow> for OutboxLane {
    type Error = StoreError;

    fn try_from(row: LaneRow) -> Result<Self, StoreError> {
        let shard = shard_of("shard", row.shard);
        let shard = shard.map_err(corrupt("plan_outbox", || format!("notices of {}", row.namespace)))?;
        Ok(Self { shard, namespace: row.namespace, waiting: u64::try_from(row.waiting).unwrap_or_default() })
    }
}

row! {
    /// The key of a notice.
    NoticeKey of "keys of plan_outbox" {
        key {
            schedule_uid: Uuid,
            generation: i64,
        }
        fixed {}
        changing {}
    }
}

impl NoticeKey {
    /// Keys as a statement takes them.
    pub(crate) fn of(keys: &[(Uuid, i64)]) -> Vec<Self> {
        keys.iter().map(|&(schedule_uid, generation)| Self { schedule_uid, generation }).collect()
    }

    /// The keys of notices that are told, in the order in which their rows are locked.
    pub(crate) fn of_told(told: &[Told]) -> Vec<Self> {
        let mut keys: Vec<(Uuid, i64)> = told.iter().map(|one| (one.uid, one.generation)).collect();
        keys.sort_unstable();
        Self::of(&keys)
    }
}

row! {
    /// A policy as it is read.
    PolicyRow of "policies as read" {
        key {
            uid: Uuid,
        }
        fixed {
            id: String,
            spec: String,
        }
        changing {}
    }
}

impl TryFrom<PolicyRow> for Policy {
    type Error = StoreError;

    fn try_from(row: PolicyRow) -> Result<Self, StoreError> {
        parse("spec", &row.spec).map_err(corrupt("policies", || format!("policy {}", row.uid)))
    }
}

row! {
    /// A row of `schedule_children`.
    ChildRow of "schedule_children" {
        key {
            schedule_uid: Uuid,
            ordinal: i32,
        }
        fixed {
            zone: String,
            launch_expression: String,
            slot: i32,
            rule: String,
        }
        changing {}
    }
}

impl ChildRow {
    /// The rows of a schedule's children.
    pub(crate) fn of(schedule_uid: Uuid, children: Vec<Child>) -> impl Iterator<Item = Self> {
        (0_i32..).zip(children).map(move |(ordinal, child)| Self {
            zone: child.zone,
            launch_expression: child.launch_expression,
            slot: child.slot,
            schedule_uid,
            ordinal,
            rule: child.rule,
        })
    }
}

impl TryFrom<ChildRow> for StoredChild {
    type Error = StoreError;

    fn try_from(row: ChildRow) -> Result<Self, StoreError> {
        let key = || format!("schedule {}, child {}", row.schedule_uid, row.ordinal);
        let ordinal = count("ordinal", row.ordinal).map_err(corrupt("schedule_children", key))?;
        let ChildRow { zone, launch_expression, slot, rule, .. } = row;
        Ok(Self { ordinal, child: Child { zone, launch_expression, slot, rule } })
    }
}

row! {
    /// How many children there are, or how many more or fewer, under a launch expression.
    CountRow of "launch_shards" {
        key {
            zone: String,
            launch_expression: String,
        }
        fixed {}
        changing {
            children: i64,
        }
    }
}

row! {
    /// A key of the registry.
    KeyRow of "keys of launch_shards" {
        key {
            zone: String,
            launch_expression: String,
        }
        fixed {}
        changing {}
    }
}

/// What a transaction changes in the registry, in the order of its key.
#[derive(Debug, Default)]
pub(crate) struct Registry(BTreeMap<(String, String), i64>);

impl Registry {
    /// Children that come.
    pub(crate) fn add(&mut self, children: &[ChildRow]) {
        for child in children {
            *self.0.entry((child.zone.clone(), child.launch_expression.clone())).or_default() += 1;
        }
    }

    /// Children that go.
    pub(crate) fn remove(&mut self, counts: Vec<CountRow>) {
        for row in counts {
            *self.0.entry((row.zone, row.launch_expression)).or_default() -= row.children;
        }
    }

    /// The differences, and the keys among them that may be at zero now.
    pub(crate) fn into_rows(self) -> (Vec<CountRow>, Vec<KeyRow>) {
        let mut differences = Vec::new();
        let mut smaller = Vec::new();
        for ((zone, launch_expression), children) in self.0 {
            if children < 0 {
                smaller.push(KeyRow { zone: zone.clone(), launch_expression: launch_expression.clone() });
            }
            if children != 0 {
                differences.push(CountRow { zone, launch_expression, children });
            }
        }
        (differences, smaller)
    }
}

row! {
    /// A row of `run_specs` to be written.
    SpecRow of "run_specs" {
        key {
            shard_id: i32,
            schedule_uid: Uuid,
            generation: i64,
        }
        fixed {
            created_us: i64,
            body: String,
        }
        changing {}
    }
}

impl SpecRow {
    /// The row of a schedule's generation.
    pub(crate) fn new(schedule: &Schedule, shard: u16) -> Result<Self, StoreError> {
        Self::of_spec(&RunSpec::of(schedule), shard, schedule.updated_us)
    }

    /// The row of a spec that only some runs have.
    pub(crate) fn of_runs(spec: &RunSpec, shard: u16, runs: &[Run]) -> Result<Self, StoreError> {
        Self::of_spec(spec, shard, runs.iter().map(|run| run.emitted_us).min().unwrap_or_default())
    }

    fn of_spec(spec: &RunSpec, shard: u16, created_us: i64) -> Result<Self, StoreError> {
        Ok(Self {
            shard_id: i32::from(shard),
            schedule_uid: spec.schedule_uid,
            generation: spec.generation,
            created_us,
            body: json(spec)?,
        })
    }
}

row! {
    /// A row of `audit_log`.
    AuditRow of "audit_log" {
        key {
            id: Uuid,
        }
        fixed {
            at_us: i64,
            actor: String,
            namespace: String,
            resource: String,
            action: String,
            difference: String,
        }
        changing {}
    }
}

impl AuditRow {
    /// The row of an entry.
    pub(crate) fn new(audit: &Audit) -> Result<Self, StoreError> {
        Ok(Self {
            id: audit.id,
            at_us: audit.at_us,
            actor: text(&audit.actor),
            namespace: audit.namespace.clone(),
            resource: audit.resource.clone(),
            action: audit.action.clone(),
            difference: json(&audit.difference)?,
        })
    }
}

/// Entries of the audit log. One whose difference cannot be read says the rest, and is named.
pub(crate) fn audit(rows: Vec<AuditRow>) -> (Vec<Audit>, Vec<CorruptRow>) {
    let mut found = Vec::new();
    let entries = rows.into_iter().map(|row| {
        let difference = parse("difference", &row.difference);
        let difference = difference.map_err(corrupt("audit_log", || format!("entry {}", row.id)));
        found.extend(difference.as_ref().err().and_then(|error| CorruptRow::of(None, error)));
        Audit {
            difference: difference.unwrap_or_default(),
            id: row.id,
            at_us: row.at_us,
            actor: row.actor,
            namespace: row.namespace,
            resource: row.resource,
            action: row.action,
        }
    });
    (entries.collect(), found)
}

/// The ids that begin with a prefix: from the first, to below the second.
pub(crate) fn id_range(prefix: Option<&str>) -> (String, Option<String>) {
    match prefix {
        None | Some("") => (String::new(), None),
        Some(prefix) => (prefix.to_owned(), Some(format!("{prefix}{}", char::MAX))),
    }
}

impl Filter {
    /// The labels as a JSON object.
    pub(crate) fn labels_json(&self) -> Result<String, StoreError> {
        json(&self.labels.iter().map(|(label, value)| (label, value)).collect::<BTreeMap<_, _>>())
    }
}
