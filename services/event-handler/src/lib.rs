//! The Event Handler: owns queue shards, sleeps until launch time, takes tokens, fires, records.
//!
//! [`EventHandler::run`] keeps this process a member and owner of its share of the queue shards ([`membership`]); each
//! shard has one [`owner`] task around the core's state machine. [`EventHandler::service`] is the gRPC side: releases go
//! to the owner, here or in another process ([`peers`]), questions to the owner's memory and to the store.
//!
//! Invariants: nothing is sent before the commit that records it, nor by a process that cannot trust its lease any more
//! ([`trust`]); one commit is under way per shard; an owner that has lost its shard drops its memory. The handler never reads
//! schedules ([`stores`]).

mod addresses;
mod alerts;
mod answers;
mod attempts;
mod by_key;
mod bypass;
mod drift;
mod follows;
mod items;
mod lists;
mod membership;
mod minutes;
mod moved;
mod moves;
mod news;
mod notes;
mod outage;
mod owner;
mod payloads;
mod peer_service;
mod peers;
mod queries;
mod results;
mod routes;
mod service;
mod stores;
mod trust;
mod workers;

use std::sync::{Arc, Mutex, PoisonError};

use dashmap::DashMap;
use tokio::sync::{Semaphore, mpsc};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tollgate_clock::{Alarms, Clock};
use tollgate_core::handle;
use tollgate_core::model::EventKeyring;
use tollgate_core::own::{ReadTurns, Sizes};
use tollgate_metrics::Metrics;
use tollgate_metrics::sample::HandlerSample;
use tollgate_secrets::Keys;
use tollgate_service::follow::Follow;
use tollgate_store::handle::HandleStore;
use tollgate_store::layout::ShardCount;
use tollgate_store::look_up::LookUpStore;
use tollgate_target::{ListClient, Post, Targets};

pub use peer_service::{Admission, GuardedPeerService, PeerService};
pub use peers::Peers;
pub use service::HandlerService;
pub use stores::Stores;
pub use workers::Workers;

use attempts::Witness;
use bypass::Bypass;
use drift::DriftWatch;
use follows::{Wish, Wishes};
use items::Items;
use lists::Lists;
use minutes::MinuteBook;
use moved::MovedRuns;
use moves::Moves;
use payloads::Payloads;
use queries::EndedBadly;
use results::ResultRooms;
use routes::Routes;
use trust::Trust;
use workers::{Desk, Elsewhere};

/// Tuning of a handler process.
#[derive(Clone, Debug)]
pub struct Options {
    /// Roles of this process, for the member list.
    pub roles: String,
    /// Where other processes reach it; empty if nowhere.
    pub address: String,
    /// No other process can have the store: shards are taken over at once.
    pub exclusive_store: bool,
    /// A member whose heartbeat has not changed for this time (by the observer's clock) has lost its shards.
    pub lease_ttl_ms: i64,
    /// How often the store is asked, without being told of anything, which shards have something to be read.
    pub poll_ms: u64,
    /// How long before their launch runs are loaded.
    pub load_ahead_s: i64,
    /// How long a planned stop waits for deliveries under way.
    pub stop_grace_ms: u64,
    /// Bytes of large payloads on their way at once; a quarter of it for one namespace.
    pub payload_bytes_max: usize,
    /// Bytes of items that are read ahead; a quarter of it for one namespace.
    pub item_bytes_max: usize,
    /// What opens items that are sealed.
    pub keys: Arc<Keys>,
    /// Tuning of the state machines.
    pub machine: handle::Options,
    /// Where it notes what it does.
    pub metrics: Metrics,
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
            payload_bytes_max: 256 * 1024 * 1024,
            item_bytes_max: 128 * 1024 * 1024,
            keys: Arc::default(),
            machine: handle::Options::default(),
            metrics: Metrics::default(),
        }
    }
}

/// What every part of the handler needs.
#[derive(Clone)]
pub(crate) struct Shared {
    pub(crate) store: Arc<dyn HandleStore>,
    /// For people, who wait for people alone.
    pub(crate) people: Arc<dyn LookUpStore>,
    pub(crate) bypass: Bypass,
    pub(crate) targets: Witness,
    pub(crate) clock: Clock,
    pub(crate) alarms: Alarms,
    pub(crate) keyring: EventKeyring,
    pub(crate) payloads: Payloads,
    pub(crate) items: Items,
    /// Lists that are being fetched, or cannot be.
    pub(crate) lists: Lists,
    /// Room for results that are under way.
    pub(crate) result_rooms: ResultRooms,
    /// Launches the runs that follow others.
    pub(crate) follower: Arc<dyn Follow>,
    /// Turns of those who look what follows.
    pub(crate) looks: Arc<Semaphore>,
    /// Ends of runs whose next runs are to be launched.
    pub(crate) wishes: Wishes,
    pub(crate) peers: Peers,
    /// Workers that take events themselves.
    pub(crate) desk: Desk,
    pub(crate) options: Arc<Options>,
    /// This process, made anew at every start.
    pub(crate) process: String,
    /// How many queue shards there are.
    pub(crate) shards: ShardCount,
    pub(crate) trust: Trust,
    /// This process is about to end.
    pub(crate) leaving: CancellationToken,
    /// Answers that are waited for although their shards have been handed over.
    pub(crate) reports: TaskTracker,
    /// How many runs, and how many messages, of a shard cannot be read.
    pub(crate) passed_over: Arc<DashMap<u16, (usize, usize)>>,
    /// What owners have counted by the minute and is not written yet.
    pub(crate) minutes: MinuteBook,
    /// Runs of this process's shards that ended badly.
    pub(crate) ended: EndedBadly,
    /// Schedules of this process's shards whose runs take longer than they did.
    pub(crate) drift: DriftWatch,
    /// Turns of shards that have much to take in.
    pub(crate) turns: ReadTurns,
    /// Runs that have moved since they were made.
    pub(crate) moved: MovedRuns,
    /// What owners are to give away.
    pub(crate) moves: Moves,
}

/// A handler process.
#[derive(Clone)]
pub struct EventHandler {
    shared: Shared,
    /// What messages of alerts go through: nothing of theirs is shared with events.
    mail: alerts::Mail,
    /// What fetches the items of runs.
    client: ListClient,
    /// Where ends come that other runs follow, until somebody reads there.
    ends: Arc<Mutex<Option<mpsc::UnboundedReceiver<Wish>>>>,
}

impl EventHandler {
    /// A handler over these parts of a store. Events go to the targets, messages of alerts by the post; lists come by the client;
    /// the follower launches what follows the ends of runs.
    /// Nothing happens before [`EventHandler::run`].
    pub fn new(
        stores: &Stores,
        ((targets, post, client), follower): ((Targets, Post, ListClient), Arc<dyn Follow>),
        clock: Clock,
        peers: Peers,
        options: Options,
    ) -> Self {
        let process = uuid::Uuid::now_v7().simple().to_string();
        peers.set_own(&process);
        let (wishes, ends) = Wishes::new();
        let trust = Trust::new(clock.clone(), options.lease_ttl_ms, options.exclusive_store);
        let elsewhere = Elsewhere::new(peers.clone(), process.clone());
        let desk = Desk::new(peers.routes().clone(), clock.clone(), elsewhere);
        let shared = Shared {
            store: stores.roles.clone(),
            people: stores.people.clone(),
            bypass: Bypass::new(stores),
            targets: Witness::new(targets, clock.clone()),
            clock,
            alarms: Alarms::start(),
            keyring: EventKeyring::new(peers.secret()),
            payloads: Payloads::new(options.payload_bytes_max),
            items: Items::new(stores.roles.clone(), options.keys.clone(), options.item_bytes_max),
            lists: Lists::default(),
            result_rooms: ResultRooms::default(),
            follower,
            looks: Arc::new(Semaphore::new(owner::LOOKS_MAX)),
            wishes,
            desk,
            peers,
            options: Arc::new(options),
            process,
            shards: stores.shards.clone(),
            trust,
            leaving: CancellationToken::new(),
            reports: TaskTracker::new(),
            passed_over: Arc::default(),
            minutes: MinuteBook::default(),
            ended: EndedBadly::default(),
            drift: DriftWatch::default(),
            turns: ReadTurns::new(Sizes::default()),
            moved: MovedRuns::default(),
            moves: Moves::default(),
        };
        let ends = Arc::new(Mutex::new(Some(ends)));
        Self { shared, mail: alerts::Mail::new(post), client, ends }
    }

    /// The gRPC service.
    pub fn service(&self) -> HandlerService {
        HandlerService::new(self.shared.clone(), self.mail.clone())
    }

    /// The gRPC service for workers that take events themselves.
    pub fn workers(&self) -> Workers {
        Workers::new(self.shared.clone())
    }

    /// The gRPC service for other processes of the installation.
    pub fn peer_service(&self) -> GuardedPeerService {
        PeerService::guarded(self.shared.clone())
    }

    /// The shards of this process at a glance; answers within seconds.
    pub async fn sample(&self) -> HandlerSample {
        self.shared.sample().await
    }

    /// Owns and drives shards until `stop`; then hands them over, and waits for the answers of what is under way.
    pub async fn run(&self, stop: CancellationToken) {
        let membership = membership::Membership::new(self.shared.clone());
        let (news, minutes, attempts) = (self.shared.clone(), self.shared.clone(), self.shared.clone());
        tokio::join!(
            membership.run(stop.clone()),
            news::watch(news, stop.clone()),
            minutes::keep(minutes, stop.clone()),
            attempts::keep(attempts, stop.clone()),
            drift::watch(self.shared.clone(), stop.clone()),
            Box::pin(lists::run(self.shared.clone(), self.client.clone(), stop.clone())),
            self.follow_ends(stop.clone()),
            Box::pin(moves::keep(self.shared.clone(), stop.clone())),
            alerts::run(self.shared.clone(), self.mail.clone(), stop)
        );
        self.shared.write_minutes(None).await;
        self.shared.write_last_attempts().await;
    }

    async fn follow_ends(&self, stop: CancellationToken) {
        let ends = self.ends.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(ends) = ends {
            let (metrics, lists) = (self.shared.options.metrics.clone(), self.shared.lists.clone());
            follows::run((metrics, lists), self.shared.follower.clone(), ends, stop).await;
        }
    }
}
