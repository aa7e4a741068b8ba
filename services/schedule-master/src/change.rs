//! One change of one schedule: what is written, and the notice for its queue shards.

use tollgate_core::model::Schedule;
use tollgate_core::plan::{Notice, Plan};
use tollgate_store::plan::PlanWrite;
use uuid::Uuid;

use crate::audit::{self, Deed};
use crate::placement::home;

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
        if let Some(before) = &before {
            after.remember_pauses(before, deed.at_us);
        }
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

    /// What the queue shards must hear of it, where no window that ends after `until_us` is open when it is committed. None
    /// where there is nothing to tell: a new schedule that does not fire before.
    pub(crate) fn notice(&self, until_us: i64, shards: u16) -> Option<Notice> {
        let schedule = self.schedule()?;
        let changed_us = self.deed.at_us;
        if self.before.is_none()
            && let Some((_, plan)) = &self.after
            && plan.fires_between(changed_us, until_us).next().is_none()
        {
            return None;
        }
        let deleted = self.after.is_none();
        Some(Notice {
            schedule_uid: schedule.uid,
            generation: schedule.generation + i64::from(deleted),
            namespace: schedule.namespace.clone(),
            schedule_id: schedule.id.clone(),
            policy_uid: schedule.policy_uid,
            changed_us,
            until_us,
            way: way(schedule, shards),
            events: schedule.events,
            priority: schedule.priority,
            pause: schedule.pause.clone(),
            is_new: self.before.is_none(),
            was_paused: self.before.as_ref().is_some_and(|before| before.pause.is_some()),
            timing: (!deleted).then(|| schedule.timing.clone()),
        })
    }
}

/// Every shard that must be told of a change, in this order: those in which the schedule lived before, as runs of it
/// may still wait there, and at last its home.
pub(crate) fn way(schedule: &Schedule, shards: u16) -> Vec<u16> {
    let mut way = schedule.former_homes.clone();
    way.push(home(schedule, shards));
    way
}
