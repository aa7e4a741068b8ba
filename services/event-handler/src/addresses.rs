//! Decides which event a caller means.
//!
//! In: a name or a bare id. Out: the queue shard, run and index, once the id's seal and the shard's number are those of this
//! installation. Invariant: the store is asked only where an id names a shard that this process does not know yet, and where a
//! run is not found: it may have moved.

use tollgate_auth::{Access, Aim, EventRefusal, NamedId};
use tollgate_core::model::EventRef;
use tollgate_service::status::status as store_status;
use tollgate_store::StoreError;
use tonic::Status;

use crate::Shared;
use crate::answers::Released;

/// A request for one event that has been understood.
pub(crate) struct Addressed {
    /// With the shard in which it lives.
    pub(crate) event: EventRef,
    /// The shard that its id has.
    pub(crate) named_shard: u16,
    pub(crate) namespace: Option<String>,
    /// Whether the caller left the token out: what other processes are told has it.
    pub(crate) by_key: bool,
}

impl Addressed {
    /// The event that its id names.
    pub(crate) fn named(&self) -> EventRef {
        EventRef { shard: self.named_shard, ..self.event }
    }
}

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
        let mut at = self.named_event(by, field, name)?;
        at.event.shard = self.moved.lives(at.named_shard, at.event.run);
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
        Ok(Addressed { event, named_shard: event.shard, namespace: named.namespace, by_key })
    }

    /// Whether the event's run has moved from where it was thought to be; the address is put right then.
    ///
    /// # Errors
    /// What the store says.
    pub(crate) async fn has_moved(&self, at: &mut Addressed) -> Result<bool, StoreError> {
        let to = self.moved_to((at.named_shard, at.event.shard), at.event.run).await?;
        at.event.shard = to.unwrap_or(at.event.shard);
        Ok(to.is_some())
    }

    /// The same, for another process, which has asked the owner in this one. Where the store does not answer, that process finds
    /// another way.
    pub(crate) async fn has_moved_here(&self, at: &mut Addressed) -> bool {
        Box::pin(self.has_moved(at)).await.unwrap_or(false)
    }

    /// The address where the event's run is by now, as far as the store knows of it at all: for people.
    ///
    /// # Errors
    /// What the store says.
    pub(crate) async fn present(&self, mut at: Addressed) -> Result<Addressed, Status> {
        let known = self.people.runs(at.event.shard, &[at.event.run]).await.map_err(store_status)?;
        if known.is_empty() {
            self.has_moved(&mut at).await.map_err(store_status)?;
        }
        Ok(at)
    }
}
