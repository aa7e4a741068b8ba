//! The Event Handler: owns queue shards, sleeps until launch time, takes tokens, fires, records.
//!
//! [`EventHandler::run`] keeps this process a member and owner of its share of the queue shards ([`membership`]); each
//! shard has one [`owner`] task around the core's state machine. [`EventHandler::service`] is the gRPC side: releases go
//! to the owner, questions to the owner's memory and to the store.
//!
//! Invariants: nothing is sent before the commit that records it; one commit is under way per shard; whoever has lost
//! a shard drops its memory. The handler never reads schedules.

mod answers;
mod membership;
mod owner;
mod queries;
mod routes;
mod service;

use std::sync::Arc;

use tokio_util::sync::CancellationToken;
use tollgate_clock::Clock;
use tollgate_core::handle;
use tollgate_core::model::EventKeyring;
use tollgate_store::{Store, StoreError};
use tollgate_target::Targets;

pub use routes::Routes;
pub use service::HandlerService;

/// Tuning of a handler process.
#[derive(Clone, Debug)]
pub struct Options {
    /// Roles of this process, for the member list.
    pub roles: String,
    /// Where other processes reach it; empty if nowhere.
    pub address: String,
    /// No other process can have the store: shards are taken over at once.
    pub exclusive_store: bool,
    /// A member whose heartbeat has not changed for so long (by the observer's clock) has lost its shards.
    pub lease_ttl_ms: i64,
    /// How often a shard's inbox and emitted runs are looked up without being told of anything.
    pub poll_ms: u64,
    /// Runs are loaded so long before they launch.
    pub load_ahead_s: i64,
    /// How long a planned stop waits for deliveries under way.
    pub stop_grace_ms: u64,
    /// Tuning of the state machines.
    pub machine: handle::Options,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            roles: "handler".to_owned(),
            address: String::new(),
            exclusive_store: false,
            lease_ttl_ms: 6_000,
            poll_ms: 1_000,
            load_ahead_s: 300,
            stop_grace_ms: 10_000,
            machine: handle::Options::default(),
        }
    }
}

/// What every part of the handler needs.
#[derive(Clone)]
pub(crate) struct Shared {
    pub(crate) store: Arc<dyn Store>,
    pub(crate) targets: Targets,
    pub(crate) clock: Clock,
    pub(crate) keyring: EventKeyring,
    pub(crate) routes: Routes,
    pub(crate) options: Arc<Options>,
    /// This process, made anew at every start.
    pub(crate) process: String,
    pub(crate) shards: u16,
}

/// A handler process.
#[derive(Clone)]
pub struct EventHandler {
    shared: Shared,
}

impl EventHandler {
    /// A handler over this store. Nothing happens before [`EventHandler::run`].
    ///
    /// # Errors
    /// What the store says when asked for the installation.
    pub async fn new(
        store: Arc<dyn Store>,
        targets: Targets,
        clock: Clock,
        routes: Routes,
        options: Options,
    ) -> Result<Self, StoreError> {
        let installation = store.installation().await?;
        let shared = Shared {
            store,
            targets,
            clock,
            keyring: EventKeyring::new(&installation.secret),
            routes,
            options: Arc::new(options),
            process: uuid::Uuid::now_v7().simple().to_string(),
            shards: installation.shards,
        };
        Ok(Self { shared })
    }

    /// The gRPC service.
    pub fn service(&self) -> HandlerService {
        HandlerService::new(self.shared.clone())
    }

    /// Owns and drives shards until `stop`; then finishes what is under way and hands them over.
    pub async fn run(&self, stop: CancellationToken) {
        membership::Membership::new(self.shared.clone()).run(stop).await;
    }
}
