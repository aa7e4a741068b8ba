//! Decides whether a change is outdated: whether its revision of the resource, or a later one, has been here.
//!
//! In: the numbers that callers give their changes. Out: leave, with what is to be noted, or FAILED_PRECONDITION with a violation
//! of type `OUTDATED`. Invariants: a revision is written in the transaction of the change that it numbers, so that of two at the
//! same time the later one stays, whoever is first, and only as long as the one is the latest that was read before the resource:
//! so it holds of what changes nothing, too; a deletion leaves its revision behind. Whether something is paused has a
//! revision of its own: a pause and an update that overtake each other both count.

use std::collections::{BTreeMap, HashMap};

use tollgate_proto::FieldError;
use tollgate_proto::convert::{Name, names};
use tollgate_service::status::status;
use tollgate_store::plan::PlanWrite;
use tollgate_store::revision::Revision;
use tonic::{Code, Status};
use tonic_types::{ErrorDetails, PreconditionViolation, StatusExt as _};

use crate::ScheduleMaster;

/// The type of the violation that says so.
pub(crate) const OUTDATED: &str = "OUTDATED";
/// How many are looked up at once.
const IDS: usize = 1_000;

/// The largest revision, of 18 digits.
const REVISION_MAX: i64 = 999_999_999_999_999_999;

/// Of what there are revisions.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum Revised {
    Policy,
    Calendar,
    Schedule,
    Alert,
    /// Whether a policy is paused.
    PolicyPause,
    /// Whether a schedule is paused.
    SchedulePause,
}

impl Revised {
    /// As it is stored.
    fn word(self) -> &'static str {
        match self {
            Self::Policy => "policy",
            Self::Calendar => "calendar",
            Self::Schedule => "schedule",
            Self::Alert => "alert",
            Self::PolicyPause => "policy_pause",
            Self::SchedulePause => "schedule_pause",
        }
    }

    /// The pause of what can be paused.
    fn pause(self) -> Option<Self> {
        match self {
            Self::Policy => Some(Self::PolicyPause),
            Self::Schedule => Some(Self::SchedulePause),
            _ => None,
        }
    }

    pub(crate) fn full_name(self, name: &Name) -> String {
        let named = match self {
            Self::Policy | Self::PolicyPause => names::of_policy,
            Self::Calendar => names::of_calendar,
            Self::Schedule | Self::SchedulePause => names::of_schedule,
            Self::Alert => names::of_alert,
        };
        named(&name.namespace, &name.id)
    }
}

/// A number that a caller gave: 1 or more, or none.
pub(crate) fn number(field: &str, given: i64) -> Result<Option<i64>, FieldError> {
    match given {
        0 => Ok(None),
        1..=REVISION_MAX => Ok(Some(given)),
        _ => Err(FieldError::new(field, given, "1 to 999,999,999,999,999,999, or nothing")),
    }
}

/// The latest revisions of many: by what they are of, namespace and id.
pub(crate) type Latest = HashMap<(Revised, String, String), i64>;

/// One change that may have a number.
#[derive(Clone, Debug)]
pub(crate) struct Numbered {
    of: Revised,
    name: Name,
    number: Option<i64>,
    deletes: bool,
}

impl Numbered {
    /// A change of what is there.
    pub(crate) fn change(of: Revised, name: &Name, given: i64) -> Result<Self, FieldError> {
        Ok(Self { of, name: name.clone(), number: number("revision", given)?, deletes: false })
    }

    /// A deletion. With a number, what is not there may be deleted, too.
    pub(crate) fn deletion(of: Revised, name: &Name, given: i64) -> Result<Self, FieldError> {
        Ok(Self { deletes: true, ..Self::change(of, name, given)? })
    }

    /// Whether it may be a deletion of what is not there.
    pub(crate) fn may_miss(&self, refusal: &Status) -> bool {
        refusal.code() == Code::NotFound && self.number.is_some()
    }
}

/// What is to be noted of a change with a number, which follows `former` (0: none).
pub(crate) fn note(of: Revised, name: &Name, (former, number): (i64, i64), at_us: i64) -> Revision {
    let (Name { namespace, id }, kind) = (name.clone(), of.word().to_owned());
    Revision { namespace, kind, id, revision: number, former, deleted: false, updated_us: at_us }
}

fn outdated(change: &Numbered, number: i64, latest: &Revision) -> Status {
    let name = change.of.full_name(&change.name);
    let deleted = if latest.deleted { ", which deleted it" } else { "" };
    let said = format!("revision: {number} of {name} is outdated by {}{deleted}", latest.revision);
    let violation = PreconditionViolation::new(OUTDATED, name, said.clone());
    let details = ErrorDetails::with_precondition_failure(vec![violation]);
    Status::with_error_details(Code::FailedPrecondition, said, details)
}

impl ScheduleMaster {
    /// What is to be noted with a change, unless it is outdated. It is asked for before what is to be changed is read.
    pub(crate) async fn not_outdated(&self, change: &Numbered) -> Result<Vec<Revision>, Status> {
        let Some(number) = change.number else { return Ok(Vec::new()) };
        let latest = self.latest(change.of, &change.name).await?;
        let noted = |of, latest: Option<&Revision>| {
            let numbers = (latest.map_or(0, |latest| latest.revision), number);
            Revision { deleted: change.deletes, ..note(of, &change.name, numbers, self.now_us()) }
        };
        // A deletion ends what pauses there were before it, also where what it deletes has been made anew.
        let mut notes = Vec::new();
        if let Some(pause) = change.of.pause().filter(|_| change.deletes) {
            let latest = self.latest(pause, &change.name).await?;
            if latest.as_ref().is_none_or(|latest| latest.revision < number) {
                notes.push(noted(pause, latest.as_ref()));
            }
        }
        if let Some(latest) = latest.as_ref().filter(|latest| latest.revision >= number) {
            self.write_revisions(notes).await?;
            return Err(outdated(change, number, latest));
        }
        notes.push(noted(change.of, latest.as_ref()));
        Ok(notes)
    }

    /// Notes that what is not there is deleted.
    pub(crate) async fn note_deletion(&self, change: &Numbered, notes: Vec<Revision>) -> Result<(), Status> {
        self.admit_writes(&change.name.namespace, 1)?;
        self.write_revisions(notes).await
    }

    /// Notes these alone, of what is as it shall be.
    pub(crate) async fn write_revisions(&self, notes: Vec<Revision>) -> Result<(), Status> {
        if notes.is_empty() {
            return Ok(());
        }
        let writes = notes.into_iter().map(|revision| PlanWrite::Revise { revision }).collect();
        self.store().write_plan(writes).await.map_err(status)
    }

    async fn latest(&self, of: Revised, name: &Name) -> Result<Option<Revision>, Status> {
        let ids = [name.id.clone()];
        let found = self.store().revisions(&name.namespace, of.word(), &ids).await.map_err(status)?;
        Ok(found.into_iter().next())
    }

    /// The latest revisions of many.
    pub(crate) async fn latest_of(
        &self,
        wanted: impl Iterator<Item = (Revised, &Name)>,
    ) -> Result<Latest, Status> {
        let mut by_kind: BTreeMap<(Revised, &str), Vec<String>> = BTreeMap::new();
        for (of, name) in wanted {
            by_kind.entry((of, &name.namespace)).or_default().push(name.id.clone());
        }
        let mut latest = HashMap::new();
        for ((of, namespace), ids) in by_kind {
            for ids in ids.chunks(IDS) {
                for found in self.store().revisions(namespace, of.word(), ids).await.map_err(status)? {
                    latest.insert((of, found.namespace, found.id), found.revision);
                }
            }
        }
        Ok(latest)
    }
}
