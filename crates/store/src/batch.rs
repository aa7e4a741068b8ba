//! A list of plan writes as few statements: what both drivers carry out, and how their answers are judged.
//!
//! In: [`PlanWrite`]s. Out: [`BatchStep`]s in their order, each of them a handful of statements, and the audit entries of all.
//! Invariant: a step never holds one schedule or one name twice, so that its order within does not matter.
//! Not here: statements and transactions.

use std::collections::{BTreeMap, BTreeSet, HashSet};

use tollgate_core::model::{Calendar, Policy, Schedule};
use tollgate_core::plan::Child;
use uuid::Uuid;

use crate::StoreError;
use crate::calendar::CalendarUser;
use crate::plan::PlanWrite;
use crate::rows::{
    AlertNew, AuditRow, CalendarNew, ChildRow, HeldRow, LinkRow, OutboxRow, PolicyNew, RevisionRow,
    RewrittenRow, ScheduleNew, SpecRow,
};

/// A generation that must still be there.
#[derive(Clone, Debug)]
pub(crate) struct Expected {
    pub(crate) uid: Uuid,
    pub(crate) generation: i64,
    /// The queue shard in which it must still live, where that counts.
    pub(crate) shard: Option<u16>,
    /// For the error: kind and name.
    pub(crate) what: String,
}

/// Schedules that are created and replaced together.
#[derive(Debug, Default)]
pub(crate) struct PutSchedules {
    pub(crate) created: Vec<ScheduleNew>,
    pub(crate) replaced: Vec<ScheduleNew>,
    pub(crate) expected: Vec<Expected>,
    pub(crate) children: Vec<ChildRow>,
    pub(crate) specs: Vec<SpecRow>,
    /// Which policies must exist, and their ids for the error.
    pub(crate) policies: BTreeMap<Uuid, String>,
    /// By which calendars they go.
    pub(crate) links: Vec<LinkRow>,
    /// Which schedules must exist, by namespace, because they follow.
    pub(crate) nexts: BTreeMap<String, BTreeSet<String>>,
    seen: HashSet<Uuid>,
}

/// A policy that is created or replaced.
#[derive(Debug)]
pub(crate) struct PutPolicy {
    pub(crate) policy: PolicyNew,
    /// The same.
    pub(crate) wanted: Box<Policy>,
    pub(crate) expected: Option<Expected>,
}

/// An alert that is created or replaced.
#[derive(Debug)]
pub(crate) struct PutAlert {
    pub(crate) alert: AlertNew,
    pub(crate) expected: Option<Expected>,
}

/// A calendar that is created or replaced, and the schedules that get its new dates.
#[derive(Debug)]
pub(crate) struct PutCalendar {
    pub(crate) calendar: CalendarNew,
    pub(crate) expected: Option<Expected>,
    /// Whether its dates are others: then the users are all that it has.
    pub(crate) rewrites: bool,
    pub(crate) users: Vec<Expected>,
    pub(crate) rewritten: Vec<RewrittenRow>,
    pub(crate) specs: Vec<SpecRow>,
}

/// A few statements' worth of plan writes.
#[derive(Debug)]
pub(crate) enum BatchStep {
    PutSchedules(PutSchedules),
    DropSchedules(Vec<Expected>),
    PutPolicy(PutPolicy),
    DropPolicy(Expected),
    PutCalendar(PutCalendar),
    DropCalendar(Expected),
    PutAlert(PutAlert),
    DropAlert(Expected),
}

/// All of a transaction.
#[derive(Debug, Default)]
pub(crate) struct PlanBatch {
    pub(crate) steps: Vec<BatchStep>,
    pub(crate) audit: Vec<AuditRow>,
    pub(crate) outbox: Vec<OutboxRow>,
    /// The revisions that the changes bring, each resource once.
    pub(crate) revisions: Vec<RevisionRow>,
    /// The calendars whose dates schedules have, with what they must be.
    pub(crate) calendars: BTreeSet<HeldRow>,
}

impl PlanBatch {
    /// Takes writes apart. Neighbours of one kind share a step.
    pub(crate) fn new(writes: Vec<PlanWrite>) -> Result<Self, StoreError> {
        let mut batch = Self::default();
        for write in writes {
            if let Some(audit) = batch.push(write)? {
                batch.audit.push(AuditRow::new(&audit)?);
            }
        }
        batch.audit.sort_by_key(|row| row.id);
        batch.outbox.sort_by_key(|row| (row.schedule_uid, row.generation));
        Ok(batch)
    }

    fn push(&mut self, write: PlanWrite) -> Result<Option<crate::plan::Audit>, StoreError> {
        let audit = match write {
            PlanWrite::PutSchedule { schedule, expected_generation, lived_in, children, shard, audit } => {
                self.put_schedule(*schedule, (expected_generation, lived_in), children, shard)?;
                audit
            }
            PlanWrite::DeleteSchedule { uid, name, expected_generation, audit } => {
                let expected = Expected::new(uid, expected_generation, "schedule", &name);
                match self.steps.last_mut() {
                    Some(BatchStep::DropSchedules(gone)) if gone.iter().all(|other| other.uid != uid) => {
                        gone.push(expected)
                    }
                    _ => self.steps.push(BatchStep::DropSchedules(vec![expected])),
                }
                audit
            }
            PlanWrite::PutPolicy { policy, expected_generation, audit } => {
                // Nobody but a move takes it elsewhere.
                let expected = expected_generation.map(|generation| Expected {
                    shard: Some(policy.shard),
                    ..Expected::new(policy.uid, generation, "policy", &policy.id)
                });
                let put = PutPolicy { policy: PolicyNew::new(&policy)?, wanted: policy, expected };
                self.steps.push(BatchStep::PutPolicy(put));
                audit
            }
            PlanWrite::DeletePolicy { uid, name, expected_generation, audit } => {
                let expected = Expected::new(uid, expected_generation, "policy", &name);
                self.steps.push(BatchStep::DropPolicy(expected));
                audit
            }
            PlanWrite::PutCalendar { calendar, expected_generation, users, audit } => {
                self.put_calendar(&calendar, expected_generation, users)?;
                audit
            }
            PlanWrite::DeleteCalendar { uid, name, expected_generation, audit } => {
                let expected = Expected::new(uid, expected_generation, "calendar", &name);
                self.steps.push(BatchStep::DropCalendar(expected));
                audit
            }
            PlanWrite::PutAlert { alert, expected_generation, audit } => {
                let expected = expected_generation
                    .map(|generation| Expected::new(alert.uid, generation, "alert", &alert.id));
                self.steps.push(BatchStep::PutAlert(PutAlert { alert: AlertNew::new(&alert)?, expected }));
                audit
            }
            PlanWrite::DeleteAlert { uid, name, expected_generation, audit } => {
                let expected = Expected::new(uid, expected_generation, "alert", &name);
                self.steps.push(BatchStep::DropAlert(expected));
                audit
            }
            PlanWrite::Tell { notice } => {
                self.outbox.push(OutboxRow::new(&notice)?);
                return Ok(None);
            }
            PlanWrite::Revise { revision } => {
                self.revise(revision.into())?;
                return Ok(None);
            }
            PlanWrite::Note { audit } => audit,
        };
        Ok(Some(audit))
    }

    fn revise(&mut self, row: RevisionRow) -> Result<(), StoreError> {
        if self.revisions.iter().any(|other| other.name() == row.name()) {
            return Err(StoreError::Conflict { what: row.stale() });
        }
        self.revisions.push(row);
        Ok(())
    }

    fn put_calendar(
        &mut self,
        calendar: &Calendar,
        expected_generation: Option<i64>,
        users: Vec<CalendarUser>,
    ) -> Result<(), StoreError> {
        let mut step = PutCalendar {
            calendar: CalendarNew::new(calendar)?,
            expected: expected_generation
                .map(|generation| Expected::new(calendar.uid, generation, "calendar", &calendar.id)),
            rewrites: calendar.dates_generation == calendar.generation,
            users: Vec::with_capacity(users.len()),
            rewritten: Vec::with_capacity(users.len()),
            specs: Vec::with_capacity(users.len()),
        };
        for CalendarUser { schedule, expected_generation, shard, audit } in users {
            let expected = Expected::new(schedule.uid, expected_generation, "schedule", &schedule.id);
            // Other dates do not move it.
            step.users.push(Expected { shard: Some(shard), ..expected });
            step.specs.push(SpecRow::new(&schedule, shard)?);
            step.rewritten.push(RewrittenRow::new(*schedule)?);
            self.audit.push(AuditRow::new(&audit)?);
        }
        self.steps.push(BatchStep::PutCalendar(step));
        Ok(())
    }

    fn put_schedule(
        &mut self,
        schedule: Schedule,
        (expected_generation, lived_in): (Option<i64>, Option<u16>),
        children: Vec<Child>,
        shard: u16,
    ) -> Result<(), StoreError> {
        if !matches!(self.steps.last(), Some(BatchStep::PutSchedules(step)) if !step.seen.contains(&schedule.uid))
        {
            self.steps.push(BatchStep::PutSchedules(PutSchedules::default()));
        }
        let Some(BatchStep::PutSchedules(step)) = self.steps.last_mut() else { return Ok(()) };
        step.seen.insert(schedule.uid);
        if let Some(uid) = schedule.policy_uid {
            step.policies.insert(uid, schedule.policy.clone().unwrap_or_default());
        }
        if let Some(on_finish) = &schedule.on_finish {
            let nexts = step.nexts.entry(schedule.namespace.clone()).or_default();
            nexts.insert(on_finish.schedule.clone());
        }
        for calendar in &schedule.timing.calendars {
            self.calendars.insert(HeldRow {
                uid: calendar.uid,
                id: calendar.id.clone(),
                dates_generation: calendar.dates_generation,
            });
            step.links.push(LinkRow {
                calendar_uid: calendar.uid,
                schedule_uid: schedule.uid,
                generation: schedule.generation,
            });
        }
        step.children.extend(ChildRow::of(schedule.uid, children));
        step.specs.push(SpecRow::new(&schedule, shard)?);
        let row = ScheduleNew::new(schedule, shard)?;
        match expected_generation {
            None => step.created.push(row),
            Some(generation) => {
                let expected = Expected::new(row.uid, generation, "schedule", &row.id);
                step.expected.push(Expected { shard: lived_in, ..expected });
                step.replaced.push(row);
            }
        }
        Ok(())
    }
}

impl Expected {
    fn new(uid: Uuid, generation: i64, kind: &str, name: &str) -> Self {
        Self { uid, generation, shard: None, what: format!("{kind} {name:?}") }
    }
}

/// Whether all expected generations are those that were `found`.
pub(crate) fn judge_generations<'a>(
    expected: impl IntoIterator<Item = &'a Expected>,
    found: &[(Uuid, i64)],
) -> Result<(), StoreError> {
    let found: BTreeMap<Uuid, i64> = found.iter().copied().collect();
    for Expected { uid, generation, what, .. } in expected {
        match found.get(uid) {
            None => return Err(StoreError::NotFound { what: what.clone() }),
            Some(now) if now != generation => {
                let what = format!("{what} was changed meanwhile: etag is {now}, given {generation}");
                return Err(StoreError::Conflict { what });
            }
            Some(_) => {}
        }
    }
    Ok(())
}

/// Whether all expected generations are those that were `found`, and where they were expected to live.
pub(crate) fn judge_held<'a>(
    expected: impl IntoIterator<Item = &'a Expected, IntoIter: Clone>,
    found: &[(Uuid, i64, i32)],
) -> Result<(), StoreError> {
    let expected = expected.into_iter();
    let generations: Vec<(Uuid, i64)> = found.iter().map(|(uid, now, _)| (*uid, *now)).collect();
    judge_generations(expected.clone(), &generations)?;
    judge_homes(expected, found)
}

/// Whether all still live in the queue shards that are expected: those `found` do.
pub(crate) fn judge_homes<'a>(
    expected: impl IntoIterator<Item = &'a Expected>,
    found: &[(Uuid, i64, i32)],
) -> Result<(), StoreError> {
    let found: BTreeMap<Uuid, i32> = found.iter().map(|(uid, _, shard)| (*uid, *shard)).collect();
    for Expected { uid, shard, what, .. } in expected {
        if let (Some(shard), Some(now)) = (shard, found.get(uid))
            && i32::from(*shard) != *now
        {
            return Err(has_moved(what));
        }
    }
    Ok(())
}

/// What was read says that something lives where it does no more.
pub(crate) fn has_moved(what: &str) -> StoreError {
    StoreError::Conflict { what: format!("{what} has moved to another queue shard meanwhile") }
}

/// Whether all schedules that follow exist: those `found` do.
pub(crate) fn judge_nexts(wanted: &BTreeSet<String>, found: &[String]) -> Result<(), StoreError> {
    match wanted.iter().find(|id| !found.contains(*id)) {
        Some(id) => Err(StoreError::NotFound { what: format!("schedule {id:?}") }),
        None => Ok(()),
    }
}

/// Whether the names of all new schedules were free: those in `inserted` were.
pub(crate) fn judge_names(created: &[ScheduleNew], inserted: &[Uuid]) -> Result<(), StoreError> {
    let inserted: BTreeSet<&Uuid> = inserted.iter().collect();
    match created.iter().find(|row| !inserted.contains(&row.uid)) {
        None => Ok(()),
        Some(row) => Err(StoreError::Conflict { what: format!("schedule {:?} already exists", row.id) }),
    }
}

/// Whether all policies that schedules name are there: those `found` are.
pub(crate) fn judge_policies(wanted: &BTreeMap<Uuid, String>, found: &[Uuid]) -> Result<(), StoreError> {
    let found: BTreeSet<&Uuid> = found.iter().collect();
    match wanted.iter().find(|(uid, _)| !found.contains(uid)) {
        None => Ok(()),
        Some((_, id)) => Err(StoreError::NotFound { what: format!("policy {id:?}") }),
    }
}

/// Whether calendars are as the schedules have them: those `found` are there, each with the generation of its dates.
pub(crate) fn judge_calendars(wanted: &BTreeSet<HeldRow>, found: &[(Uuid, i64)]) -> Result<(), StoreError> {
    let found: BTreeMap<Uuid, i64> = found.iter().copied().collect();
    for HeldRow { uid, id, dates_generation } in wanted {
        match found.get(uid) {
            None => return Err(StoreError::NotFound { what: format!("calendar {id:?}") }),
            Some(now) if now != dates_generation => {
                let what = format!("the dates of calendar {id:?} were changed meanwhile");
                return Err(StoreError::Conflict { what });
            }
            Some(_) => {}
        }
    }
    Ok(())
}

/// Whether the schedules that go by a calendar are those that get its new dates.
pub(crate) fn judge_rewritten(step: &PutCalendar, found: &[(Uuid, i64)]) -> Result<(), StoreError> {
    let wanted: BTreeMap<Uuid, i64> =
        step.users.iter().map(|expected| (expected.uid, expected.generation)).collect();
    let found: BTreeMap<Uuid, i64> = found.iter().copied().collect();
    if wanted == found {
        return Ok(());
    }
    let what = format!("schedules that go by calendar {:?} were made or changed meanwhile", step.calendar.id);
    Err(StoreError::Conflict { what })
}

/// How many users of a policy or a calendar an error names.
pub(crate) const USERS_NAMED: usize = 3;

/// Whether nothing uses a policy or a calendar: `users` are the first schedules that do, or the first policies below it, one more
/// than an error names.
pub(crate) fn judge_users(used: &Expected, kind: &str, users: &[String]) -> Result<(), StoreError> {
    if users.is_empty() {
        return Ok(());
    }
    let named: Vec<String> = users.iter().take(USERS_NAMED).map(|id| format!("{id:?}")).collect();
    let more = if users.len() > USERS_NAMED { " and others" } else { "" };
    Err(StoreError::InUse { what: format!("{} {kind} {}{more}", used.what, named.join(", ")) })
}
