//! What people have a queue shard do, and the audit log's entry of it.

use tollgate_core::handle::control::{Control, Message};
use tollgate_service::actor::Caller;
use tollgate_service::status::status as store_status;
use tollgate_store::plan::Audit;
use tonic::Status;
use uuid::Uuid;

use crate::Shared;

impl Shared {
    /// Notes that somebody did something to a resource.
    pub(crate) async fn note(
        &self,
        caller: Caller,
        namespace: &str,
        resource: String,
        action: &str,
    ) -> Result<(), Status> {
        let mut difference = serde_json::Map::new();
        if !caller.reason.is_empty() {
            difference.insert("reason".to_owned(), serde_json::json!({ "new": caller.reason }));
        }
        let audit = Audit {
            id: Uuid::now_v7(),
            at_us: self.clock.wall_us(),
            actor: caller.name,
            namespace: namespace.to_owned(),
            resource,
            action: action.to_owned(),
            difference: serde_json::Value::Object(difference),
        };
        self.people.note(audit).await.map_err(store_status)
    }

    /// Leaves a message for a queue shard.
    pub(crate) async fn post(&self, shard: u16, control: Control) -> Result<(), Status> {
        let message = Message { id: Uuid::now_v7(), control };
        self.people.post(shard, &[message]).await.map_err(store_status)
    }
}
