//! Carries out which shards this process owns: writes its heartbeats, looks at the others, takes shards and ends their owners.
//!
//! In: what [`Placement`] decides. Out: heartbeats, takeovers, owner tasks. Not here: any decision of them; they are the core's.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{Semaphore, mpsc};
use tokio::task::{JoinError, JoinSet};
use tokio::time::{Interval, MissedTickBehavior};
use tokio_util::sync::CancellationToken;
use tollgate_clock::ClockState;
use tollgate_core::own::{Lease, Look, Placement, PlacementStep, Settings, WallClock};
use tollgate_metrics::Role;
use tollgate_store::StoreError;

use crate::Shared;
use crate::owner::{Owner, OwnerEnd};

/// How many shards are taken at once: few, so that rows that are locked do not use up the store's connections.
const TAKES_MAX: usize = 2;
/// How long news of shards are gathered before they are looked at.
const GATHER: Duration = Duration::from_millis(10);

pub(crate) struct Membership {
    shared: Shared,
    placement: Placement,
    owners: BTreeMap<u16, CancellationToken>,
    tasks: JoinSet<(u16, OwnerEnd)>,
    /// A row may be locked by an owner that has died a moment ago, and a heartbeat must not wait for that.
    takes: JoinSet<Taken>,
    take_slots: Arc<Semaphore>,
    failing: bool,
}

/// What came of taking a shard: its number, how often trust had lapsed before, and the lease if it was free.
type Taken = (u16, u64, Result<Option<Lease>, StoreError>);

impl Membership {
    pub(crate) fn new(shared: Shared) -> Self {
        let options = &shared.options;
        let placement = Placement::new(Settings {
            process: shared.process.clone(),
            roles: options.roles.clone(),
            address: options.address.clone(),
            lease_ttl_ms: options.lease_ttl_ms,
            exclusive: options.exclusive_store,
        });
        Self {
            shared,
            placement,
            owners: BTreeMap::new(),
            tasks: JoinSet::new(),
            takes: JoinSet::new(),
            take_slots: Arc::new(Semaphore::new(TAKES_MAX)),
            failing: false,
        }
    }

    pub(crate) async fn run(mut self, stop: CancellationToken) {
        let mut ticks = self.ticks();
        let (peers, moves) = (self.shared.peers.clone(), self.shared.moves.clone());
        loop {
            tokio::select! {
                () = stop.cancelled() => break,
                Some(ended) = self.tasks.join_next() => self.ended(ended),
                Some(taken) = self.takes.join_next() => self.taken(taken),
                () = moves.asked() => {
                    for shard in moves.shards() {
                        // What is to go from it goes at the handover.
                        if let Some(stop) = self.owners.get(&shard) {
                            stop.cancel();
                        }
                    }
                }
                () = peers.placement() => {
                    // Several shards change hands at once.
                    tokio::time::sleep(GATHER).await;
                    let result = self.round().await;
                    self.note(result);
                }
                _ = ticks.tick() => {
                    let result = self.round().await;
                    self.note(result);
                }
            }
        }
        self.stop().await;
    }

    fn ticks(&self) -> Interval {
        let beat_ms = self.placement.beat_every_ms();
        let beat = Duration::from_millis(u64::try_from(beat_ms).unwrap_or(1_000).max(10));
        let mut ticks = tokio::time::interval(beat);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        ticks
    }

    /// One heartbeat, one look at the others, and what follows from it.
    async fn round(&mut self) -> Result<(), StoreError> {
        self.beat().await?;
        let began_us = self.shared.clock.mono_us();
        // Before the leases are read: what is taken after a lapse was not seen as ours before it.
        let lapses = self.shared.trust.lapses();
        // Before the members: a process that takes a shard is one of them.
        let leases = self.shared.store.leases().await?;
        let members = self.shared.store.members().await?;
        self.shared.peers.learn(&members, &leases);
        let look = Look { began_us, leases, members };
        for step in self.placement.looked(look, self.shared.clock.mono_us()) {
            match step {
                PlacementStep::Take(lease) => self.take(lease, lapses),
                PlacementStep::GiveUp(shard) => {
                    if let Some(stop) = self.owners.get(&shard) {
                        stop.cancel();
                    }
                }
                PlacementStep::Forget(process) => self.shared.store.forget_member(&process).await?,
            }
        }
        Ok(())
    }

    /// Shows a sign of life, which renews the trust in the leases.
    async fn beat(&mut self) -> Result<(), StoreError> {
        let clock = match self.shared.clock.state() {
            ClockState::Right => WallClock::Right,
            ClockState::Off | ClockState::Apart => WallClock::Off,
            ClockState::Unknown => WallClock::Unknown,
        };
        let member = self.placement.beat(clock, self.shared.leaving.is_cancelled());
        let began = self.shared.trust.beat_begins();
        self.shared.store.heartbeat(&member).await?;
        self.shared.trust.renew(began);
        self.shared.options.metrics.heartbeat(self.shared.clock.mono_us());
        Ok(())
    }

    fn take(&mut self, seen: Lease, lapses: u64) {
        let (store, process) = (self.shared.store.clone(), self.shared.process.clone());
        let (slots, metrics) = (self.take_slots.clone(), self.shared.options.metrics.clone());
        self.takes.spawn(async move {
            let _slot = slots.acquire_owned().await;
            let taken = store.take_shard(&seen, &process).await;
            if matches!(taken, Ok(Some(_))) {
                metrics.shard_taken(&seen.owner, &process);
            }
            (seen.shard, lapses, taken)
        });
    }

    fn taken(&mut self, taken: Result<Taken, JoinError>) {
        let (shard, lapses, result) = match taken {
            Ok(taken) => taken,
            Err(error) => {
                tracing::error!(%error, "taking a shard broke off");
                self.placement.takes_broke_off();
                return;
            }
        };
        self.placement.taken(shard, matches!(result, Ok(Some(_))));
        match result {
            Ok(Some(lease)) => self.own(lease, lapses),
            // Somebody else was faster, or its former owner lives.
            Ok(None) => {}
            Err(error) => crate::outage::note(shard, &error, "the shard cannot be taken; it is tried again"),
        }
    }

    fn own(&mut self, lease: Lease, lapses: u64) {
        let shard = lease.shard;
        tracing::debug!(shard, epoch = lease.epoch, "took the shard");
        let stop = CancellationToken::new();
        if self.shared.leaving.is_cancelled() {
            // It came too late: it is given up at once.
            stop.cancel();
        }
        let (sender, inputs) = mpsc::unbounded_channel();
        self.shared.peers.routes().insert(shard, sender.clone());
        self.owners.insert(shard, stop.clone());
        let owner = Owner::new(self.shared.clone(), (lease, lapses), inputs, sender, stop);
        self.tasks.spawn(owner.run());
    }

    fn ended(&mut self, ended: Result<(u16, OwnerEnd), JoinError>) {
        let routes = self.shared.peers.routes();
        match ended {
            Ok((shard, ended)) => {
                tracing::debug!(shard, ?ended, "the shard's owner has ended");
                self.owners.remove(&shard);
                self.placement.ended(shard);
                routes.remove(shard);
                self.shared.desk.shard_goes(shard);
                if ended == OwnerEnd::HandedOver && !self.shared.leaving.is_cancelled() {
                    // It may be this process's again: where it was given up so that something could move.
                    self.shared.peers.place_anew();
                }
            }
            Err(error) => {
                // Only a bug ends here. The shard is taken again with the next round.
                tracing::error!(%error, "an owner task broke off");
                let gone: Vec<u16> =
                    self.owners.keys().copied().filter(|shard| !routes.wake(*shard)).collect();
                for shard in gone {
                    self.owners.remove(&shard);
                    self.placement.ended(shard);
                    routes.remove(shard);
                    self.shared.desk.shard_goes(shard);
                }
            }
        }
    }

    fn note(&mut self, result: Result<(), StoreError>) {
        if result.is_err() {
            self.shared.options.metrics.store_failed(Role::Handler);
        }
        match result {
            Ok(()) if self.failing => {
                self.failing = false;
                tracing::info!("the store answers again");
            }
            Err(error) if !self.failing => {
                self.failing = true;
                tracing::warn!(%error, "the heartbeat cannot be written; it is tried again");
            }
            _ => {}
        }
    }

    /// Hands everything over. Meanwhile the leases hold, so that nobody takes over what is under way.
    async fn stop(&mut self) {
        self.shared.leaving.cancel();
        self.shared.desk.end();
        self.shared.trust.end_sends_in(self.shared.options.stop_grace_ms);
        let result = self.beat().await;
        self.note(result);
        self.owners.values().for_each(CancellationToken::cancel);
        let mut ticks = self.ticks();
        let reports = self.shared.reports.clone();
        reports.close();
        loop {
            tokio::select! {
                Some(ended) = self.tasks.join_next() => self.ended(ended),
                Some(taken) = self.takes.join_next() => self.taken(taken),
                () = reports.wait(), if self.tasks.is_empty() && self.takes.is_empty() => break,
                _ = ticks.tick() => {
                    let result = self.beat().await;
                    self.note(result);
                }
            }
        }
        // Others take the shards over as soon as this process is no longer a member: nothing leaves after that.
        self.shared.trust.end_sends_in(0);
        if let Err(error) = self.shared.store.forget_member(&self.shared.process).await {
            tracing::warn!(%error, "this process could not be taken off the member list");
        }
        self.shared.peers.placement_changed();
        self.shared.peers.flush().await;
    }
}
