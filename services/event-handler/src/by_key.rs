//! Decides what the audit log has of releases and heartbeats: those by a key alone.
//!
//! In: what a key did to an event whose token it did not show: an operator's act. Out: an entry, before the call is answered.
//! What comes with the event's token is its consumer's work, a thousand times a second, and stands in the event's history only.
//! Invariants: what has happened is not taken back for want of an entry, and waits for one for [`PATIENCE`] at most; a caller
//! that releases thousands by a key waits for their entries, and takes no more than [`AT_ONCE`] places at the store.

use std::time::Duration;

use tokio::sync::Semaphore;
use tollgate_auth::Access;
use tollgate_core::model::EventId;
use tollgate_proto::convert::names;
use tollgate_proto::v1::{ReleaseStatus, ReleaseTokenResponse};
use tollgate_store::StoreError;
use tollgate_store::plan::Audit;
use uuid::Uuid;

use crate::Shared;
use crate::addresses::Addressed;

/// How long an entry may take: an audit log that is locked keeps nobody from releasing.
const PATIENCE: Duration = Duration::from_secs(5);
/// Entries that are written at once.
const AT_ONCE: usize = 2;

/// Whose turn it is to write an entry.
static TURNS: Semaphore = Semaphore::const_new(AT_ONCE);

/// Whether a release has changed anything.
pub(crate) fn has_changed(response: &ReleaseTokenResponse) -> bool {
    matches!(response.status(), ReleaseStatus::Released | ReleaseStatus::ComesAgain)
}

impl Shared {
    /// Notes what a key did to an event.
    pub(crate) async fn note_by_key(&self, access: &Access, at: &Addressed, action: &str) {
        let Access::Holder(principal) = access else { return };
        let noted = tokio::time::timeout(PATIENCE, self.write_note(&principal.name, at, action)).await;
        let why = match noted {
            Ok(Ok(())) => return,
            Ok(Err(error)) => error.to_string(),
            Err(_) => format!("no answer within {} s", PATIENCE.as_secs()),
        };
        let (actor, event) = (&principal.name, at.event);
        tracing::warn!(actor, action, ?event, why, "the audit log lacks an entry");
    }

    async fn write_note(&self, actor: &str, at: &Addressed, action: &str) -> Result<(), StoreError> {
        // Nothing closes it.
        let _turn = TURNS.acquire().await;
        let event = at.event;
        let namespace = match &at.namespace {
            Some(namespace) => namespace.clone(),
            None => {
                let runs = self.people.runs(event.shard, &[event.run]).await?;
                runs.into_iter().next().map(|run| run.namespace).unwrap_or_default()
            }
        };
        let sealed = self.keyring.id(at.named());
        let id = EventId::without_seal(sealed.as_str()).unwrap_or_default();
        let audit = Audit {
            id: Uuid::now_v7(),
            at_us: self.clock.wall_us(),
            actor: actor.to_owned(),
            resource: names::of_event(&namespace, id),
            namespace,
            action: action.to_owned(),
            difference: serde_json::Value::Object(serde_json::Map::new()),
        };
        self.people.note(audit).await
    }
}
