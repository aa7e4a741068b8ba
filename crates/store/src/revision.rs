//! Revisions of resources, by which callers number their changes: an older one never overtakes a later one.
//!
//! A revision goes with the change that it is for, as one of the plan's writes ([`crate::plan::PlanWrite::Revise`]); here is what
//! it says, and how it is read. Invariants: of a resource, revisions only grow as long as one is remembered; what was decided
//! on a revision is written only as long as that one is the latest, also where it changes nothing else.

use async_trait::async_trait;
use tollgate_core::model::DAY_US;

use crate::StoreError;

/// For how long the latest revision of a resource is remembered: as long as SQS keeps a message at most.
pub const REVISIONS_KEPT_US: i64 = 14 * DAY_US;

/// The latest revision that a resource has been brought to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Revision {
    /// The namespace's id.
    pub namespace: String,
    /// `schedule`, `policy`, `calendar` or `alert`; `schedule_pause` or `policy_pause`: whether it is paused.
    pub kind: String,
    /// The resource's id.
    pub id: String,
    /// From 1 on.
    pub revision: i64,
    /// The one that it follows, as it was read before the resource was; 0: there was none.
    pub former: i64,
    /// Whether this revision deleted the resource.
    pub deleted: bool,
    /// When it was written.
    pub updated_us: i64,
}

/// Revisions as they are read.
#[async_trait]
pub trait RevisionStore: Send + Sync {
    /// What is remembered of resources of one kind; those of which nothing is are left out.
    async fn revisions(
        &self,
        namespace: &str,
        kind: &str,
        ids: &[String],
    ) -> Result<Vec<Revision>, StoreError>;
}
