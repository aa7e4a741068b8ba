//! One change of one schedule, with who made it: what is written.

use tollgate_core::model::Schedule;
use tollgate_core::plan::{self, Plan, home, shards_to_tell};
use tollgate_store::plan::PlanWrite;
use uuid::Uuid;

use crate::audit::{self, Deed};

/// A change of a schedule, and the deed that it is.
#[derive(Clone, Debug)]
pub(crate) struct Change {
    /// What it makes of the schedule.
    pub(crate) made: plan::Change,
    /// Who, when, what.
    pub(crate) deed: Deed,
}

impl Change {
    /// The change from `before` to `after`.
    pub(crate) fn to(before: Option<Schedule>, after: Schedule, plan: Plan, deed: Deed, shards: u16) -> Self {
        Self { made: plan::Change::to(before, after, plan, deed.at_us, shards), deed }
    }

    /// The deletion of a schedule.
    pub(crate) fn deletion(before: Schedule, deed: Deed) -> Self {
        Self { made: plan::Change::deletion(before, deed.at_us), deed }
    }

    /// What the store has to write.
    pub(crate) fn write(&self, audit_id: Uuid, shards: u16) -> Option<PlanWrite> {
        let plan::Change { before, after, .. } = &self.made;
        let schedule = self.made.schedule()?;
        let placed = |schedule| (schedule, shards_to_tell(schedule, shards));
        let sides = (before.as_ref().map(placed), after.as_ref().map(|(after, _)| placed(after)));
        let named = (schedule.namespace.as_str(), schedule.id.as_str());
        let audit = audit::of_schedule(audit_id, &self.deed, sides.0, sides.1, named);
        Some(match after {
            Some((after, plan)) => PlanWrite::PutSchedule {
                schedule: Box::new(after.clone()),
                expected_generation: before.as_ref().map(|before| before.generation),
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
}
