//! One change of one schedule, policy or alert: what is written, and what is told of it.

use tollgate_core::model::Schedule;
use tollgate_core::plan::{self, Notice, Plan, home, shards_to_tell};
use tollgate_store::StoreError;
use tollgate_store::plan::{Audit, PlanWrite};
use uuid::Uuid;

use crate::audit::{self, Deed};

/// Whether a transaction failed because of what was in it.
pub(crate) fn is_own_fault(error: &StoreError) -> bool {
    matches!(
        error,
        StoreError::NotFound { .. }
            | StoreError::Conflict { .. }
            | StoreError::InUse { .. }
            | StoreError::Invalid { .. }
    )
}

/// A change.
#[derive(Clone, Debug)]
pub(crate) enum Change {
    /// Of a schedule.
    Schedule {
        /// What it makes of the schedule.
        made: Box<plan::Change>,
        /// Who, when, what.
        deed: Deed,
    },
    /// Of a policy.
    Policy {
        /// How it is written.
        write: Box<PlanWrite>,
        /// What its shard must hear.
        notice: Box<Notice>,
    },
    /// Of an alert, of which no shard hears.
    Alert {
        /// The namespace's id.
        namespace: String,
        /// How it is written.
        write: Box<PlanWrite>,
    },
}

impl Change {
    /// The change of a schedule from `before` to `after`.
    pub(crate) fn to(before: Option<Schedule>, after: Schedule, plan: Plan, deed: Deed, shards: u16) -> Self {
        Self::Schedule { made: Box::new(plan::Change::to(before, after, plan, deed.at_us, shards)), deed }
    }

    /// The deletion of a schedule.
    pub(crate) fn deletion(before: Schedule, deed: Deed) -> Self {
        Self::Schedule { made: Box::new(plan::Change::deletion(before, deed.at_us)), deed }
    }

    /// Whose it is.
    pub(crate) fn namespace(&self) -> Option<&str> {
        match self {
            Self::Schedule { made, .. } => made.schedule().map(|schedule| schedule.namespace.as_str()),
            Self::Policy { notice, .. } => Some(&notice.namespace),
            Self::Alert { namespace, .. } => Some(namespace),
        }
    }

    /// The schedule that it leaves behind, and its plan.
    pub(crate) fn after(&self) -> Option<&(Schedule, Plan)> {
        match self {
            Self::Schedule { made, .. } => made.after.as_ref(),
            Self::Policy { .. } | Self::Alert { .. } => None,
        }
    }

    /// What queue shards must hear of it, where no window that ends after `until_us` is open when it is committed.
    pub(crate) fn notice(&self, until_us: i64, shards: u16) -> Option<Notice> {
        match self {
            Self::Schedule { made, .. } => made.notice(until_us, shards),
            Self::Policy { notice, .. } => Some(Notice::clone(notice)),
            Self::Alert { .. } => None,
        }
    }

    /// What the audit log says of it.
    pub(crate) fn audit(&self, audit_id: impl Fn(i64) -> Uuid, shards: u16) -> Option<Audit> {
        Some(match self.write(audit_id, shards)? {
            PlanWrite::PutSchedule { audit, .. }
            | PlanWrite::DeleteSchedule { audit, .. }
            | PlanWrite::PutPolicy { audit, .. }
            | PlanWrite::DeletePolicy { audit, .. }
            | PlanWrite::PutAlert { audit, .. }
            | PlanWrite::DeleteAlert { audit, .. }
            | PlanWrite::Note { audit } => audit,
            PlanWrite::Tell { .. } => return None,
        })
    }

    /// What the store has to write.
    pub(crate) fn write(&self, audit_id: impl Fn(i64) -> Uuid, shards: u16) -> Option<PlanWrite> {
        let (made, deed) = match self {
            Self::Schedule { made, deed } => (made, deed),
            Self::Policy { write, .. } | Self::Alert { write, .. } => return Some(PlanWrite::clone(write)),
        };
        let plan::Change { before, after, .. } = made.as_ref();
        let schedule = made.schedule()?;
        let placed = |schedule| (schedule, shards_to_tell(schedule, shards));
        let sides = (before.as_ref().map(placed), after.as_ref().map(|(after, _)| placed(after)));
        let named = (schedule.namespace.as_str(), schedule.id.as_str());
        let audit = audit::of_schedule(audit_id(deed.at_us), deed, sides.0, sides.1, named);
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
