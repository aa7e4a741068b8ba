//! Decides what the handler sees of the store: one part for each who asks, and no more than they may use.
//!
//! Invariants: an owner reads nothing but its shard, and nothing here reads a schedule: the parts have no such call. A part that
//! reads for people or consumers keeps no heartbeat waiting: each takes its own share of the store's connections.

use std::sync::Arc;

use tollgate_store::handle::HandleStore;
use tollgate_store::layout::ShardCount;
use tollgate_store::look_up::LookUpStore;
use tollgate_store::{Asker, Store};

/// A store as the handler sees it; cheap to clone.
#[derive(Clone)]
pub struct Stores {
    /// For owners, heartbeats and takeovers.
    pub(crate) roles: Arc<dyn HandleStore>,
    /// For consumers whose releases go past an owner.
    pub(crate) consumers: Arc<dyn LookUpStore>,
    /// For people, who wait for people alone.
    pub(crate) people: Arc<dyn LookUpStore>,
    /// How many queue shards there are.
    pub(crate) shards: ShardCount,
}

impl Stores {
    /// The parts of this store.
    ///
    #[must_use]
    pub fn of(store: Arc<dyn Store>) -> Self {
        let shards = store.shard_count();
        let (consumers, people) = (store.on_behalf_of(Asker::Consumers), store.on_behalf_of(Asker::People));
        Self { roles: store, consumers, people, shards }
    }
}
