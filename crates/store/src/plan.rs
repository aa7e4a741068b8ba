//! Schedules, policies and their children: what the Schedule Master writes.

use std::collections::BTreeMap;

use async_trait::async_trait;
use serde_json::Value;
use tollgate_core::model::{Alert, Calendar, DAY_US, Policy, Run, RunSpec, Schedule};
use tollgate_core::plan::done::RunsLeft;
pub use tollgate_core::plan::telling::Told;
use tollgate_core::plan::{Child, Notice};
use uuid::Uuid;

use crate::StoreError;
use crate::alert::AlertStore;
use crate::calendar::{CalendarStore, CalendarUser};
use crate::emit::EmitStore;
use crate::history::HistoryStore;
use crate::items::SubmissionStore;
use crate::quota::QuotaStore;
use crate::revision::{Revision, RevisionStore};

/// One entry of the audit log, written with the change itself.
#[derive(Clone, Debug, PartialEq)]
pub struct Audit {
    /// Chosen by the writer; sorts by time (UUID v7).
    pub id: Uuid,
    /// When.
    pub at_us: i64,
    /// Who.
    pub actor: String,
    /// The namespace's id.
    pub namespace: String,
    /// Resource name, such as `namespaces/default/schedules/nightly`.
    pub resource: String,
    /// `create`, `update`, `delete`, `pause`, `resume`, `trigger`, `backfill`, `cancel`, …
    pub action: String,
    /// Field path to `{"old": …, "new": …}`.
    pub difference: Value,
}

/// One change of the plan. Several make one transaction.
#[derive(Clone, Debug)]
pub enum PlanWrite {
    /// Creates (`expected_generation` none: the name must be free) or replaces a schedule.
    PutSchedule {
        /// As it shall be; its generation is the new one. Its policy must exist, and its dates must be those of its
        /// calendars.
        schedule: Box<Schedule>,
        /// The generation that it replaces.
        expected_generation: Option<i64>,
        /// The queue shard in which it lived when it was read, which it may have left since; none for a new one.
        lived_in: Option<u16>,
        /// Its index entries; replaces all earlier ones and keeps the registry of launch expressions.
        children: Vec<Child>,
        /// The queue shard that owns its runs: gets the new generation's run spec.
        shard: u16,
        /// Who changed what.
        audit: Audit,
    },
    /// Deletes a schedule and its children. Its runs and history stay.
    DeleteSchedule {
        /// Which one.
        uid: Uuid,
        /// For the error.
        name: String,
        /// The generation that is deleted.
        expected_generation: i64,
        /// Who.
        audit: Audit,
    },
    /// Creates (`expected_generation` none) or replaces a policy.
    PutPolicy {
        /// As it shall be.
        policy: Box<Policy>,
        /// The generation that it replaces.
        expected_generation: Option<i64>,
        /// Who changed what.
        audit: Audit,
    },
    /// Deletes a policy that no schedule uses (else [`StoreError::InUse`] names some).
    DeletePolicy {
        /// Which one.
        uid: Uuid,
        /// For the error.
        name: String,
        /// The generation that is deleted.
        expected_generation: i64,
        /// Who.
        audit: Audit,
    },
    /// Creates (`expected_generation` none) or replaces a calendar.
    PutCalendar {
        /// As it shall be.
        calendar: Box<Calendar>,
        /// The generation that it replaces.
        expected_generation: Option<i64>,
        /// Where its dates change: all schedules that go by it, with the new dates.
        users: Vec<CalendarUser>,
        /// Who changed what.
        audit: Audit,
    },
    /// Deletes a calendar that no schedule goes by (else [`StoreError::InUse`] names some).
    DeleteCalendar {
        /// Which one.
        uid: Uuid,
        /// For the error.
        name: String,
        /// The generation that is deleted.
        expected_generation: i64,
        /// Who.
        audit: Audit,
    },
    /// Creates (`expected_generation` none) or replaces an alert.
    PutAlert {
        /// As it shall be.
        alert: Box<Alert>,
        /// The generation that it replaces.
        expected_generation: Option<i64>,
        /// Who changed what.
        audit: Audit,
    },
    /// Deletes an alert, and what is remembered of it.
    DeleteAlert {
        /// Which one.
        uid: Uuid,
        /// For the error.
        name: String,
        /// The generation that is deleted.
        expected_generation: i64,
        /// Who.
        audit: Audit,
    },
    /// Puts what queue shards must be told of a change in the same transaction into the outbox.
    Tell {
        /// What.
        notice: Box<Notice>,
    },
    /// Brings a resource to a revision, in the same transaction as the change that it numbers. Where it is not at the one that
    /// was read any more, that is a conflict, and nothing is written.
    Revise {
        /// Which one.
        revision: Revision,
    },
    /// Something that changes nothing here but is worth a record (a trigger, a backfill, a cancel).
    Note {
        /// Who did what.
        audit: Audit,
    },
}

/// Which schedules or policies to list. All that is set must hold.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Filter {
    /// The id begins with this.
    pub id_prefix: Option<String>,
    /// The id has this in it.
    pub id_part: Option<String>,
    /// Schedules under this policy (its id).
    pub policy: Option<String>,
    /// Schedules in this time zone.
    pub time_zone: Option<String>,
    /// Paused or not.
    pub paused: Option<bool>,
    /// Label and value.
    pub labels: Vec<(String, String)>,
}

/// Which entries of the audit log to list. All that is set must hold.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AuditFilter {
    /// About this resource, by its full name.
    pub resource: Option<String>,
    /// By this caller.
    pub actor: Option<String>,
    /// From this moment on.
    pub from_us: Option<i64>,
    /// Before this moment.
    pub to_us: Option<i64>,
}

/// A stored child with its place in the order of a schedule's children.
#[derive(Clone, Debug)]
pub struct StoredChild {
    /// 0, 1, … in the order of [`PlanWrite::PutSchedule`].
    pub ordinal: u32,
    /// The index entry.
    pub child: Child,
}

/// Notices that wait for one shard, of one namespace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OutboxLane {
    /// The shard that is told first.
    pub shard: u16,
    /// The namespace's id.
    pub namespace: String,
    /// How many wait.
    pub waiting: u64,
}

/// A part of a lane.
#[derive(Clone, Debug, Default)]
pub struct OutboxPage {
    /// Oldest first; fewer than were asked for where rows are corrupt.
    pub notices: Vec<Notice>,
    /// The last row that was read, corrupt or not, to go on after; none where nothing follows.
    pub next: Option<(i64, Uuid)>,
}

/// For how long a request is remembered.
pub const REQUESTS_KEPT_US: i64 = 7 * DAY_US;

/// A request of which the id is known.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Request {
    /// The schedule that it is about.
    pub schedule_uid: Uuid,
    /// Chosen by who asks.
    pub id: String,
    /// What was asked for: a JSON object.
    pub content: String,
    /// How far it has come, and with what answer: JSON.
    pub progress: String,
    /// How many runs it has made.
    pub made: u64,
    /// When it was asked for the first time.
    pub created_us: i64,
}

/// How far runs that are made by hand bring a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RequestStep {
    /// As it is afterwards, but for how many runs it has made.
    pub request: Request,
    /// How far it must have come before; none where it must not be known yet.
    pub from: Option<String>,
}

/// Runs that somebody makes by hand, and what is written with them, in one transaction.
#[derive(Clone, Debug, Default)]
pub struct ByHand {
    /// The runs. One that is there already stays as it is.
    pub runs: Vec<Run>,
    /// Whether all of them must be new.
    pub only_new: bool,
    /// Specs that only these runs have, with their shards.
    pub specs: Vec<(RunSpec, u16)>,
    /// Their policy (its uid, and its id for the error), which must be there.
    pub policy: Option<(Uuid, String)>,
    /// Who makes them, and why.
    pub audit: Option<Audit>,
    /// The request that they answer.
    pub request: Option<RequestStep>,
}

/// Schedules that may be done.
#[derive(Clone, Debug, Default)]
pub struct DonePage {
    /// Those that have waited longest first; fewer than were asked for where rows are corrupt.
    pub schedules: Vec<Schedule>,
    /// The last row that was read, corrupt or not, to go on after; none where nothing follows.
    pub next: Option<(i64, Uuid)>,
}

/// The part of a store for the Schedule Master. No message gets to a queue shard through it but by [`PlanStore::tell`].
pub trait MasterStore:
    PlanStore
    + EmitStore
    + HistoryStore
    + QuotaStore
    + AlertStore
    + CalendarStore
    + SubmissionStore
    + RevisionStore
{
}

impl<S> MasterStore for S where
    S: PlanStore
        + EmitStore
        + HistoryStore
        + QuotaStore
        + AlertStore
        + CalendarStore
        + SubmissionStore
        + RevisionStore
{
}

/// The plan's part of a store.
#[async_trait]
pub trait PlanStore: Send + Sync {
    /// Carries out all of `writes` in one transaction, or none.
    ///
    /// # Errors
    /// [`StoreError::Conflict`] for a taken name, a stale generation, or dates that a calendar has no longer;
    /// [`StoreError::NotFound`] for a policy or a calendar that does not exist; [`StoreError::InUse`].
    async fn write_plan(&self, writes: Vec<PlanWrite>) -> Result<(), StoreError>;
    /// One schedule by namespace and id.
    async fn schedule(&self, namespace: &str, id: &str) -> Result<Option<Schedule>, StoreError>;
    /// Many schedules of a namespace by id; those that do not exist are left out.
    async fn schedules(&self, namespace: &str, ids: &[String]) -> Result<Vec<Schedule>, StoreError>;
    /// Schedules in the order of their ids, from after `after_id` on.
    async fn list_schedules(
        &self,
        namespace: &str,
        filter: &Filter,
        after_id: Option<&str>,
        limit: u32,
    ) -> Result<Vec<Schedule>, StoreError>;
    /// How many schedules stand one before the other in the longest chain above one, at most [`Predecessor::PLACES_MAX`].
    async fn places_before(&self, namespace: &str, id: &str) -> Result<u32, StoreError>;
    /// The ids of the schedules that a schedule follows, in their order.
    async fn followed_by(&self, namespace: &str, id: &str, limit: u32) -> Result<Vec<String>, StoreError>;
    /// One policy by namespace and id.
    async fn policy(&self, namespace: &str, id: &str) -> Result<Option<Policy>, StoreError>;
    /// Many policies of a namespace by id; those that do not exist are left out.
    async fn policies(&self, namespace: &str, ids: &[String]) -> Result<Vec<Policy>, StoreError>;
    /// The policy of a namespace that new ones get as their parent.
    async fn policy_adopting(&self, namespace: &str) -> Result<Option<Policy>, StoreError>;
    /// What is wrong with the places in their trees of policies that shall be written so, each with its uid. Writes nothing.
    ///
    /// # Errors
    /// What would keep [`Self::write_plan`] from writing them, besides.
    async fn rehearse(&self, writes: Vec<PlanWrite>) -> Result<Vec<(Uuid, StoreError)>, StoreError>;
    /// Policies in the order of their ids, from after `after_id` on.
    async fn list_policies(
        &self,
        namespace: &str,
        filter: &Filter,
        after_id: Option<&str>,
        limit: u32,
    ) -> Result<Vec<Policy>, StoreError>;
    /// Namespaces in which there is a schedule, a policy, a calendar or an alert, in their order, from after `after` on.
    async fn list_namespaces(&self, after: Option<&str>, limit: u32) -> Result<Vec<String>, StoreError>;
    /// A schedule's children, from after ordinal `after` on.
    async fn children(
        &self,
        schedule_uid: Uuid,
        after: Option<u32>,
        limit: u32,
    ) -> Result<Vec<StoredChild>, StoreError>;
    /// The audit log of a namespace, newest first, from before entry `before` on.
    async fn audit(
        &self,
        namespace: &str,
        filter: &AuditFilter,
        before: Option<Uuid>,
        limit: u32,
    ) -> Result<Vec<Audit>, StoreError>;
    /// Schedules that may be done at `now_us`, from after a place (when they may have been, schedule) on.
    async fn schedules_done(
        &self,
        now_us: i64,
        after: Option<(i64, Uuid)>,
        limit: u32,
    ) -> Result<DonePage, StoreError>;
    /// Of schedules (with their generations) when they may be done; those that have changed stay as they are.
    async fn put_off(&self, schedules: &[(Uuid, i64, Option<i64>)]) -> Result<(), StoreError>;
    /// Runs of these schedules, as far as they have to wait for them; a schedule without runs has no entry.
    async fn runs_left(&self, schedules: &[Uuid]) -> Result<BTreeMap<Uuid, RunsLeft>, StoreError>;
    /// As [`EmitStore::emit`], for runs that somebody makes by hand, in one transaction with all that belongs to them: only
    /// while their policy is there, which does not go before they are. Nothing is written, and there is no answer, where the
    /// request that they answer is not where it should be: somebody else has answered it, or goes on with it.
    ///
    /// # Errors
    /// [`StoreError::NotFound`] where the policy has gone; [`StoreError::Conflict`] where one of the runs is there and all of
    /// them must be new.
    async fn emit_by_hand(&self, by_hand: ByHand) -> Result<Option<u32>, StoreError>;
    /// What is remembered of a request about a schedule.
    async fn request(&self, schedule_uid: Uuid, id: &str) -> Result<Option<Request>, StoreError>;
    /// What waits in the outbox, by lane.
    async fn outbox_lanes(&self) -> Result<Vec<OutboxLane>, StoreError>;
    /// Notices that wait in a lane, oldest first, from after a place (time of the change in microseconds, schedule or policy) on.
    async fn outbox(
        &self,
        shard: u16,
        namespace: &str,
        after: Option<(i64, Uuid)>,
        limit: u32,
    ) -> Result<OutboxPage, StoreError>;
    /// Notices that wait of earlier generations of these (schedule or policy, generation), in this order.
    async fn outbox_before(&self, told: &[(Uuid, i64)]) -> Result<Vec<Notice>, StoreError>;
    /// Takes notices out of the outbox and, of those that were still in it, puts the messages into the shards' inboxes, and
    /// carries out in their order what they mean for the recorded skips: one transaction, so that of two who tell the same,
    /// one does. Returns how many skips that brought.
    async fn tell(&self, told: &[Told]) -> Result<u64, StoreError>;
}
