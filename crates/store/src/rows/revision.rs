//! Rows of revisions of resources.

use crate::columns::row;
use crate::revision::Revision;

row! {
    /// A row of `resource_revisions`.
    RevisionRow of "resource_revisions" {
        key {
            namespace: String,
            kind: String,
            resource_id: String,
        }
        fixed {}
        changing {
            revision: i64,
            former: i64,
            deleted: bool,
            updated_us: i64,
        }
    }
}

impl RevisionRow {
    /// Of which resource it is.
    pub(crate) fn name(&self) -> (&str, &str, &str) {
        (&self.namespace, &self.kind, &self.resource_id)
    }

    /// Says that the resource has come to another revision since one was read.
    pub(crate) fn stale(&self) -> String {
        let Self { kind, resource_id, revision, former, .. } = self;
        format!("{kind} {resource_id:?} is not at revision {former} any more, which {revision} was to follow")
    }
}

impl From<Revision> for RevisionRow {
    fn from(revision: Revision) -> Self {
        let Revision { namespace, kind, id, revision, former, deleted, updated_us } = revision;
        Self { namespace, kind, resource_id: id, revision, former, deleted, updated_us }
    }
}

impl From<RevisionRow> for Revision {
    fn from(row: RevisionRow) -> Self {
        let RevisionRow { namespace, kind, resource_id, revision, former, deleted, updated_us } = row;
        Self { namespace, kind, id: resource_id, revision, former, deleted, updated_us }
    }
}
