//! Decides how many releases go past an owner to the store at once: those that nobody answers, and those of events that have
//! ended.
//!
//! In: a caller. Out: a turn, with the store to use during it. A stream may have thousands of them under way. Invariants: at most
//! [`AT_ONCE`] of either kind are at the store, [`EACH`] of them a namespace's, so that takeovers and emission never stand behind
//! more; what is posted waits for no reader; nobody waits longer than [`PATIENCE`]. Not here: what they do there (`answers`).

use std::sync::Arc;
use std::time::Duration;

use tollgate_service::room::{Room, Rooms};
use tollgate_store::look_up::LookUpStore;
use tonic::Status;

use crate::Stores;
use crate::addresses::Addressed;
use crate::answers::Released;

/// Turns of a kind at once.
const AT_ONCE: usize = 4;
/// Turns of one namespace at once; those who name none are one.
const EACH: usize = 2;
/// How long one waits for its turn. Longer than a takeover takes, after which the owner answers.
const PATIENCE: Duration = Duration::from_secs(20);

/// Both kinds of turns; cheap to clone.
#[derive(Clone)]
pub(crate) struct Bypass {
    posts: Turns,
    looks: Turns,
}

#[derive(Clone)]
struct Turns {
    rooms: Rooms<String>,
    store: Arc<dyn LookUpStore>,
    patience: Duration,
}

/// A turn, until it is dropped.
pub(crate) struct Turn<'a> {
    store: &'a dyn LookUpStore,
    _room: Room,
}

impl Bypass {
    pub(crate) fn new(stores: &Stores) -> Self {
        Self::with_patience(stores, PATIENCE)
    }

    fn with_patience(stores: &Stores, patience: Duration) -> Self {
        let turns = |store: &Arc<dyn LookUpStore>| {
            let (rooms, store) = (Rooms::new(AT_ONCE, EACH), store.clone());
            Turns { rooms, store, patience }
        };
        Self { posts: turns(&stores.consumers), looks: turns(&stores.people) }
    }

    /// To put a release into the inbox of its shard.
    pub(crate) async fn post(&self, at: &Addressed) -> Result<Turn<'_>, Released> {
        self.posts.turn(at).await
    }

    /// To see how an event has ended.
    pub(crate) async fn look(&self, at: &Addressed) -> Result<Turn<'_>, Released> {
        self.looks.turn(at).await
    }
}

impl Turns {
    async fn turn(&self, at: &Addressed) -> Result<Turn<'_>, Released> {
        let room = self.rooms.take(at.namespace.clone().unwrap_or_default(), 1);
        match tokio::time::timeout(self.patience, room).await {
            Ok(room) => Ok(Turn { store: &*self.store, _room: room }),
            Err(_) => Err(Released::Failed(Status::unavailable(
                "too many releases are looked up in the store; try again, with the attempt",
            ))),
        }
    }
}

impl<'a> Turn<'a> {
    pub(crate) fn store(&self) -> &'a dyn LookUpStore {
        self.store
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]
    use tollgate_core::model::{EventRef, RunId};

    use super::*;

    fn of(namespace: &str) -> Addressed {
        let event = EventRef { shard: 5, run: RunId::default(), index: 0 };
        Addressed { event, named_shard: 5, namespace: Some(namespace.to_owned()), by_key: false }
    }

    fn is_told(refused: Result<Turn<'_>, Released>) -> bool {
        matches!(refused, Err(Released::Failed(status)) if status.code() == tonic::Code::Unavailable)
    }

    #[tokio::test]
    async fn one_namespace_leaves_turns_to_another_and_nobody_waits_for_ever() {
        let folder = tempfile::tempdir().unwrap();
        let url = format!("sqlite:{}/t.db", folder.path().display());
        let stores = Stores::of(tollgate_store::open(&url, 1).await.unwrap());
        let bypass = Bypass::with_patience(&stores, Duration::from_millis(50));
        let mut taken = Vec::new();
        for namespace in ["a", "b"] {
            for _ in 0..EACH {
                taken.push(bypass.post(&of(namespace)).await.ok().unwrap());
            }
            assert!(is_told(bypass.post(&of(namespace)).await));
        }
        assert!(is_told(bypass.post(&of("c")).await));
        // Callers that only look wait elsewhere.
        assert!(bypass.look(&of("a")).await.is_ok());
        taken.pop();
        assert!(is_told(bypass.post(&of("a")).await));
        assert!(bypass.post(&of("c")).await.is_ok());
    }
}
