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
    /// The change from `before` to `after`: gives the new generation and its times.
    pub(crate) fn to(before: Option<Schedule>, mut after: Schedule, plan: Plan, deed: Deed) -> Self {
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
        let placed = |schedule| (schedule, home(schedule, shards));
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

    /// The message for the shard that owned the schedule before the change, where windows have been opened up to
    /// `opened_until_us`. None where there is nothing to tell: a new schedule that does not fire before.
    pub(crate) fn message(&self, opened_until_us: Option<i64>, shards: u16) -> Option<(u16, Message)> {
        let owner = home(self.before.as_ref().or(self.schedule())?, shards);
        let message = self.message_to(owner, opened_until_us, shards)?;
        if self.before.is_none()
            && matches!(&message.control, Control::ScheduleChanged { schedule, .. } if schedule.launches_us.is_empty())
        {
            return None;
        }
        Some((owner, message))
    }

    /// As [`Self::message`], for a shard that owned the schedule at some time, and always.
    pub(crate) fn message_to(
        &self,
        owner: u16,
        opened_until_us: Option<i64>,
        shards: u16,
    ) -> Option<Message> {
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
            former: Vec::new(),
        };
        let home_after = if deleted { owner } else { home(schedule, shards) };
        Some(Message {
            id: message_id(row.uid, row.generation, owner),
            control: Control::ScheduleChanged {
                schedule: row,
                namespace: schedule.namespace.clone(),
                schedule_id: schedule.id.clone(),
                policy_uid: schedule.policy_uid,
                moved_to: (home_after != owner).then_some(home_after),
            },
        })
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
