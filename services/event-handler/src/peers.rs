//! The other processes of the installation: who owns which queue shard, and one channel to each.
//!
//! In: members and leases, from the membership's rounds or (in a process without the handler's role) from
//! [`Peers::watch`]. Out: releases and questions forwarded to a shard's owner ([`forward`]), and wakes. Everything is
//! best effort with a deadline: the caller has the store's inbox to fall back on, and owners poll. A wake that was not heard is
//! told again.
//!
//! Invariants: what was forwarded is never forwarded again; one channel per peer; no call waits longer than
//! [`DEADLINE`]. Not here: what the other side does with a call (`peer_service`).

mod forward;
mod key;
mod peer;

use std::collections::BTreeMap;
use std::sync::{Arc, OnceLock, PoisonError, RwLock};
use std::time::Duration;

use tokio::sync::{Mutex, Notify};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tollgate_clock::instant_now;
use tollgate_store::StoreError;
use tollgate_store::handle::{HandleStore, Lease, Member};
use tonic::transport::ClientTlsConfig;

use crate::{Routes, Stores};
pub(crate) use forward::Asked;
pub(crate) use key::PeerKey;
use peer::Peer;

/// The longest that anybody waits for another process.
pub(crate) const DEADLINE: Duration = Duration::from_secs(2);
/// How often a process without the handler's role looks who owns what.
const WATCH: Duration = Duration::from_secs(1);
/// How long a planned stop waits until others have heard of it.
const FLUSH: Duration = Duration::from_millis(300);

/// The other processes; cheap to clone, all clones share everything.
#[derive(Clone)]
pub struct Peers {
    shared: Arc<Shared>,
}

struct Shared {
    store: Arc<dyn HandleStore>,
    /// The same for those who ask: they keep no heartbeat waiting.
    asked: Arc<dyn HandleStore>,
    routes: Routes,
    /// The installation's.
    secret: [u8; 32],
    key: PeerKey,
    /// For addresses that begin with https.
    tls: ClientTlsConfig,
    /// This process's own id, where it is a handler.
    own: OnceLock<String>,
    known: RwLock<Known>,
    /// When who owns what was last read from the store on demand.
    refreshed: Mutex<Option<Instant>>,
    /// Somebody says that shards are to be placed anew.
    placement: Notify,
    calls: TaskTracker,
}

#[derive(Default)]
struct Known {
    /// The owner of each shard that has one.
    owners: BTreeMap<u16, String>,
    peers: BTreeMap<String, Arc<Peer>>,
}

impl Peers {
    /// Knows nobody yet. The secret is the installation's, in clear; processes that others reach by https are spoken to by `tls`.
    pub fn new(stores: &Stores, secret: [u8; 32], tls: ClientTlsConfig) -> Self {
        let shared = Shared {
            key: PeerKey::new(&secret),
            secret,
            asked: stores.consumers.clone(),
            store: stores.roles.clone(),
            routes: Routes::default(),
            tls,
            own: OnceLock::new(),
            known: RwLock::default(),
            refreshed: Mutex::default(),
            placement: Notify::new(),
            calls: TaskTracker::new(),
        };
        Self { shared: Arc::new(shared) }
    }

    /// The installation's secret in clear.
    pub(crate) fn secret(&self) -> &[u8; 32] {
        &self.shared.secret
    }

    /// Tells a shard's owner, wherever it is, that there is something new for it in the store. Returns at once.
    pub fn wake(&self, shard: u16) {
        if self.shared.routes.wake(shard) {
            return;
        }
        if let Some((peer, _)) = self.owner_of(shard) {
            peer.wake(Some(shard), &self.shared.calls);
        }
    }

    /// Keeps up with who owns what, until told to stop: for a process without the handler's role.
    pub async fn watch(&self, stop: CancellationToken) {
        let mut failing = false;
        loop {
            let read = self.read(&*self.shared.store).await;
            if let Err(error) = &read
                && !failing
            {
                tracing::warn!(%error, "the owners of the queue shards cannot be read; it is tried again");
            }
            failing = read.is_err();
            tokio::select! {
                () = stop.cancelled() => return,
                () = tokio::time::sleep(WATCH) => {}
            }
        }
    }

    /// The shards that this process owns.
    pub(crate) fn routes(&self) -> &Routes {
        &self.shared.routes
    }

    pub(crate) fn key(&self) -> &PeerKey {
        &self.shared.key
    }

    /// This process is a handler with this id.
    pub(crate) fn set_own(&self, process: &str) {
        // A second handler in one process would be a second id; the first one stays.
        let _already = self.shared.own.set(process.to_owned());
    }

    /// Takes in what the store says of processes and shards.
    pub(crate) fn learn(&self, members: &[Member], leases: &[Lease]) {
        let own = self.shared.own.get();
        let owned = leases.iter().filter(|lease| !lease.owner.is_empty());
        let owners = owned.map(|lease| (lease.shard, lease.owner.clone())).collect();
        let mut known = self.shared.known.write().unwrap_or_else(PoisonError::into_inner);
        let mut peers = BTreeMap::new();
        for member in members.iter().filter(|m| Some(&m.process) != own && !m.address.is_empty()) {
            let kept = known.peers.get(&member.process).filter(|peer| peer.address == member.address);
            let peer = match kept {
                Some(peer) => Some(peer.clone()),
                None => Peer::new(member, &self.shared.key, &self.shared.tls).map(Arc::new),
            };
            peers.extend(peer.map(|peer| (member.process.clone(), peer)));
        }
        *known = Known { owners, peers };
    }

    /// The other process that owns a shard. None where this one does, nobody, or one that cannot be reached at all.
    fn owner_of(&self, shard: u16) -> Option<(Arc<Peer>, String)> {
        let known = self.shared.known.read().unwrap_or_else(PoisonError::into_inner);
        let owner = known.owners.get(&shard)?;
        Some((known.peers.get(owner)?.clone(), owner.clone()))
    }

    /// Another process by its id.
    fn peer(&self, process: &str) -> Option<Arc<Peer>> {
        let known = self.shared.known.read().unwrap_or_else(PoisonError::into_inner);
        known.peers.get(process).cloned()
    }

    /// The process that is known to own a shard, this one or another.
    pub(crate) fn owner(&self, shard: u16) -> Option<String> {
        let known = self.shared.known.read().unwrap_or_else(PoisonError::into_inner);
        known.owners.get(&shard).cloned()
    }

    /// The other processes that own shards, and for each what it may be asked through; none where it cannot be.
    fn owners(&self) -> BTreeMap<String, Option<Arc<Peer>>> {
        let known = self.shared.known.read().unwrap_or_else(PoisonError::into_inner);
        let own = self.shared.own.get();
        let others = known.owners.values().filter(|owner| Some(*owner) != own);
        others.map(|owner| (owner.clone(), known.peers.get(owner).cloned())).collect()
    }

    async fn read(&self, store: &dyn HandleStore) -> Result<(), StoreError> {
        let members = store.members().await?;
        let leases = store.leases().await?;
        self.learn(&members, &leases);
        Ok(())
    }

    /// Reads anew who owns what. Of many callers at once, one reads for all.
    pub(crate) async fn refresh(&self) -> Result<(), StoreError> {
        let asked = instant_now();
        let mut refreshed = self.shared.refreshed.lock().await;
        if refreshed.is_some_and(|began| began >= asked) {
            return Ok(());
        }
        let began = instant_now();
        let read = self.read(&*self.shared.asked).await;
        match &read {
            Ok(()) => *refreshed = Some(began),
            Err(error) => tracing::debug!(%error, "the owners of the queue shards cannot be read"),
        }
        read
    }

    /// Tells all others to look who is to own what. Returns at once.
    pub(crate) fn placement_changed(&self) {
        let peers: Vec<_> = {
            let known = self.shared.known.read().unwrap_or_else(PoisonError::into_inner);
            known.peers.values().cloned().collect()
        };
        for peer in peers {
            peer.wake(None, &self.shared.calls);
        }
    }

    /// Another process says that shards are to be placed anew.
    pub(crate) fn place_anew(&self) {
        self.shared.placement.notify_one();
    }

    /// Returns when [`Peers::place_anew`] has been called since the last time.
    pub(crate) async fn placement(&self) {
        self.shared.placement.notified().await;
    }

    /// Waits a moment until calls under way have been made.
    pub(crate) async fn flush(&self) {
        self.shared.calls.close();
        // A process that has not heard of it finds out by looking.
        let _late = tokio::time::timeout(FLUSH, self.shared.calls.wait()).await;
        self.shared.calls.reopen();
    }
}
