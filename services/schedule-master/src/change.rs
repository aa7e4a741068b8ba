//! One change of one schedule: what is written, and what must be told to its queue shard.

use tollgate_core::handle::change::ShardSchedule;
use tollgate_core::handle::control::{Control, Message};
use tollgate_core::model::{Schedule, SkipReason, Skipped};
use tollgate_core::plan::Plan;
use tollgate_store::plan::PlanWrite;
use uuid::Uuid;

use crate::audit::{self, Deed};
use crate::placement::{home, message_id};

/// A schedule before and after a change. At least one side is there.
#[derive(Clone, Debug)]
pub(crate) struct Change {
    /// As it was; none for a new one.
    pub(crate) before: Option<Schedule>,
    /// As it shall be, with its new generation, and its plan; none for a deletion.
    pub(crate) after: Option<(Schedule, Plan)>,
    /// Who, when, what.
    pub(crate) deed: Deed,
}

impl Change {
    /// The change from `before` to `after`: gives the new generation, its times, and where it lived.
    pub(crate) fn to(
        before: Option<Schedule>,
        mut after: Schedule,
        plan: Plan,
        deed: Deed,
        shards: u16,
    ) -> Self {
        let now_home = home(&after, shards);
        after.former_homes = before.as_ref().map_or_else(Vec::new, |before| way(before, shards));
        after.former_homes.retain(|shard| *shard != now_home);
        after.generation = before.as_ref().map_or(1, |before| before.generation + 1);
        after.created_us = before.as_ref().map_or(deed.at_us, |before| before.created_us);
        after.updated_us = deed.at_us;
        Self { before, after: Some((after, plan)), deed }
    }

    /// The deletion of a schedule.
    pub(crate) fn deletion(before: Schedule, deed: Deed) -> Self {
        Self { before: Some(before), after: None, deed }
    }

    /// The schedule as it is after the change, or was before its deletion.
    pub(crate) fn schedule(&self) -> Option<&Schedule> {
        self.after.as_ref().map(|(after, _)| after).or(self.before.as_ref())
    }

    /// What the store has to write.
    pub(crate) fn write(&self, audit_id: Uuid, shards: u16) -> Option<PlanWrite> {
        let schedule = self.schedule()?;
        let placed = |schedule| (schedule, way(schedule, shards));
        let after = self.after.as_ref().map(|(after, _)| placed(after));
        let before = self.before.as_ref().map(placed);
        let named = (schedule.namespace.as_str(), schedule.id.as_str());
        let audit = audit::of_schedule(audit_id, &self.deed, before, after, named);
        Some(match &self.after {
            Some((after, plan)) => PlanWrite::PutSchedule {
                schedule: Box::new(after.clone()),
                expected_generation: self.before.as_ref().map(|before| before.generation),
                children: plan.children().to_vec(),
                shard: home(after, shards),
                audit,
            },
            None => PlanWrite::DeleteSchedule {
                uid: schedule.uid,
                name: schedule.id.clone(),
                expected_generation: schedule.generation,
                audit,
            },
        })
    }

    /// The message for the first of the shards that must be told, where windows have been opened up to
    /// `opened_until_us`. None where there is nothing to tell: a new schedule that does not fire before.
    pub(crate) fn message(&self, opened_until_us: Option<i64>, shards: u16) -> Option<(u16, Message)> {
        let schedule = self.schedule()?;
        let deleted = self.after.is_none();
        let changed_us = self.deed.at_us;
        let until_us = opened_until_us.unwrap_or(changed_us).max(changed_us);
        let launches_us = match &self.after {
            Some((after, plan)) if after.pause.is_none() => {
                plan.fires_between(changed_us, until_us).collect()
            }
            _ => Vec::new(),
        };
        if self.before.is_none() && launches_us.is_empty() {
            return None;
        }
        let row = ShardSchedule {
            uid: schedule.uid,
            generation: schedule.generation + i64::from(deleted),
            changed_us,
            until_us,
            launches_us,
            events: schedule.events,
            priority: schedule.priority,
            pause: schedule.pause.clone(),
            deleted,
            cursor: None,
            earlier: Vec::new(),
            home: None,
        };
        let mut onward = way(schedule, shards);
        let first = onward.remove(0);
        let message = Message {
            id: message_id(row.uid, row.generation, first),
            control: Control::ScheduleChanged {
                schedule: row,
                namespace: schedule.namespace.clone(),
                schedule_id: schedule.id.clone(),
                policy_uid: schedule.policy_uid,
                onward,
            },
        };
        Some((first, message))
    }

    /// The triggers that the emitter will not find any more and that the pause leaves out.
    pub(crate) fn skipped(&self, opened_until_us: Option<i64>, recorded_us: i64) -> Vec<Skipped> {
        match (&self.after, opened_until_us) {
            (Some((after, plan)), Some(until_us)) if after.pause.is_some() => plan
                .fires_between(self.deed.at_us, until_us)
                .map(|launch_us| Skipped {
                    schedule_uid: after.uid,
                    launch_us,
                    reason: SkipReason::Paused,
                    recorded_us,
                })
                .collect(),
            _ => Vec::new(),
        }
    }

    /// Whether skips may have been recorded for the time after the change that no longer hold.
    pub(crate) fn takes_skips_back(&self) -> bool {
        self.before.as_ref().is_some_and(|before| before.pause.is_some())
    }
}

/// Every shard that must be told of a change, in this order: those in which the schedule lived before, as runs of it
/// may still wait there, and at last its home.
pub(crate) fn way(schedule: &Schedule, shards: u16) -> Vec<u16> {
    let mut way = schedule.former_homes.clone();
    way.push(home(schedule, shards));
    way
}
