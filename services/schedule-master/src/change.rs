//! One change of one schedule, policy, calendar or alert: what is written, and what is told of it.

use tollgate_core::model::Schedule;
use tollgate_core::plan::{self, Notice, Plan, home, shards_to_tell};
use tollgate_service::status::is_conflict;
use tollgate_store::StoreError;
use tollgate_store::calendar::CalendarUser;
use tollgate_store::plan::{Audit, PlanWrite};
use tonic::Status;
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

/// How often a change is tried while others are faster.
pub(crate) const TRIES: u32 = 5;

/// The refusal of a stale etag.
pub(crate) fn check_etag(resource: &str, given: Option<i64>, stored: i64) -> Result<(), Status> {
    match given {
        Some(given) if given != stored => {
            Err(Status::aborted(format!("{resource} has changed: its etag is \"{stored}\", not \"{given}\"")))
        }
        _ => Ok(()),
    }
}

/// Whether a change that failed like this can be made to what is stored now: its etag is looked at again.
pub(crate) fn again(try_number: u32, failed: &Status) -> bool {
    try_number < TRIES && is_conflict(failed)
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
    /// Of a calendar, and of the schedules that get its new dates.
    Calendar {
        /// The namespace's id.
        namespace: String,
        /// How it is written, without the schedules.
        write: Box<PlanWrite>,
        /// What it makes of the schedules.
        users: Vec<plan::Change>,
        /// Who, when, what.
        deed: Deed,
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
    pub(crate) fn to(before: Option<Schedule>, after: Schedule, plan: Plan, deed: Deed, base: u16) -> Self {
        Self::Schedule { made: Box::new(plan::Change::to(before, after, plan, deed.at_us, base)), deed }
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
            Self::Calendar { namespace, .. } | Self::Alert { namespace, .. } => Some(namespace),
        }
    }

    /// What it makes of schedules.
    pub(crate) fn made(&self) -> &[plan::Change] {
        match self {
            Self::Schedule { made, .. } => std::slice::from_ref(made.as_ref()),
            Self::Calendar { users, .. } => users,
            Self::Policy { .. } | Self::Alert { .. } => &[],
        }
    }

    /// The schedules that it leaves behind, and their plans.
    pub(crate) fn after(&self) -> impl Iterator<Item = &(Schedule, Plan)> {
        self.made().iter().filter_map(|made| made.after.as_ref())
    }

    /// What queue shards must hear of it, where no window that ends after `until_us` is open when it is committed.
    pub(crate) fn notices(&self, until_us: i64, base: u16) -> Vec<Notice> {
        match self {
            Self::Policy { notice, .. } => vec![Notice::clone(notice)],
            _ => self.made().iter().filter_map(|made| made.notice(until_us, base)).collect(),
        }
    }

    /// What the audit log says of it.
    pub(crate) fn audit(&self, audit_id: impl Fn(i64) -> Uuid, base: u16) -> Option<Audit> {
        Some(match self.write(audit_id, base)? {
            PlanWrite::PutSchedule { audit, .. }
            | PlanWrite::DeleteSchedule { audit, .. }
            | PlanWrite::PutPolicy { audit, .. }
            | PlanWrite::DeletePolicy { audit, .. }
            | PlanWrite::PutCalendar { audit, .. }
            | PlanWrite::DeleteCalendar { audit, .. }
            | PlanWrite::PutAlert { audit, .. }
            | PlanWrite::DeleteAlert { audit, .. }
            | PlanWrite::Note { audit } => audit,
            PlanWrite::Tell { .. } | PlanWrite::Revise { .. } => return None,
        })
    }

    /// What the store has to write.
    pub(crate) fn write(&self, audit_id: impl Fn(i64) -> Uuid, base: u16) -> Option<PlanWrite> {
        let (made, deed) = match self {
            Self::Schedule { made, deed } => (made, deed),
            Self::Policy { write, .. } | Self::Alert { write, .. } => return Some(PlanWrite::clone(write)),
            Self::Calendar { write, users, deed, .. } => {
                return Some(with_users(PlanWrite::clone(write), users, deed, &audit_id, base));
            }
        };
        let plan::Change { before, after, .. } = made.as_ref();
        let schedule = made.schedule()?;
        let placed = |schedule| (schedule, shards_to_tell(schedule, base));
        let sides = (before.as_ref().map(placed), after.as_ref().map(|(after, _)| placed(after)));
        let named = (schedule.namespace.as_str(), schedule.id.as_str());
        let audit = audit::of_schedule(audit_id(deed.at_us), deed, sides.0, sides.1, named);
        Some(match after {
            Some((after, plan)) => PlanWrite::PutSchedule {
                schedule: Box::new(after.clone()),
                expected_generation: before.as_ref().map(|before| before.generation),
                lived_in: before.as_ref().map(|before| home(before, base)),
                children: plan.children().to_vec(),
                shard: home(after, base),
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

/// The write of a calendar with those of the schedules that get its dates.
fn with_users(
    mut write: PlanWrite,
    changes: &[plan::Change],
    deed: &Deed,
    audit_id: impl Fn(i64) -> Uuid,
    base: u16,
) -> PlanWrite {
    if let PlanWrite::PutCalendar { calendar, users, .. } = &mut write {
        let of_change = |change: &plan::Change| {
            let (before, (after, _)) = change.before.as_ref().zip(change.after.as_ref())?;
            let placed = |schedule| Some((schedule, shards_to_tell(schedule, base)));
            let named = (after.namespace.as_str(), after.id.as_str());
            let deed = Deed { at_us: change.at_us, ..deed.clone() };
            let mut audit =
                audit::of_schedule(audit_id(deed.at_us), &deed, placed(before), placed(after), named);
            audit::note_calendar(&mut audit, calendar);
            Some(CalendarUser {
                schedule: Box::new(after.clone()),
                expected_generation: before.generation,
                shard: home(after, base),
                audit,
            })
        };
        *users = changes.iter().filter_map(of_change).collect();
    }
    write
}
