//! Decides which event a caller means.
//!
//! In: a name or a bare id. Out: the queue shard, run and index, once the id's seal and the shard's number are those of this
//! installation. Invariant: the store is asked only where an id names a shard that this process does not know yet.

use tollgate_auth::{Access, Aim, EventRefusal, NamedId};
use tollgate_service::status::status as store_status;
use tonic::Status;

use crate::Shared;
use crate::answers::{Addressed, Released};

impl Shared {
    /// Whether there is such a queue shard: others may have been added since this process looked.
    ///
    /// # Errors
    /// That nobody can tell, as the store cannot be read.
    pub(crate) async fn has_shard(&self, shard: u16) -> Result<bool, Status> {
        if shard >= self.shards.now() {
            Box::pin(self.peers.refresh()).await.map_err(store_status)?;
        }
        Ok(shard < self.shards.now())
    }

    /// Which event a caller means by a name or bare id. Errors repeat the caller's own text, and never more of an id than
    /// that.
    pub(crate) async fn address(
        &self,
        by: (&Access, Aim),
        field: &str,
        name: &str,
    ) -> Result<Addressed, Released> {
        let at = self.named_event(by, field, name)?;
        if !self.has_shard(at.event.shard).await.map_err(Released::Failed)? {
            return Err(Released::Unknown(format!("{field}: {name:?} is not an event of this installation")));
        }
        Ok(at)
    }

    /// As [`Shared::address`], in whatever queue shard it may be.
    pub(crate) fn named_event(
        &self,
        (access, aim): (&Access, Aim),
        field: &str,
        name: &str,
    ) -> Result<Addressed, Released> {
        let named = access.event(field, name, aim).map_err(|refusal| match refusal {
            EventRefusal::Name(error) => Released::Invalid(vec![error]),
            EventRefusal::Foreign(status) => Released::Denied(status),
        })?;
        let (event, by_key) = match named.id {
            NamedId::Event(event) => (event, true),
            NamedId::Given(id) => {
                let unknown =
                    |error| Released::Unknown(format!("{field}: {name:?} is not an event: {error}"));
                (self.keyring.open(&id).map_err(unknown)?, false)
            }
        };
        Ok(Addressed { event, namespace: named.namespace, by_key })
    }
}
