//! Which shards this process owns: heartbeats, placement by rendezvous hashing, takeover, hand-over.
//!
//! A member is dead when its heartbeat has not changed for TTL and margin *by this process's own monotonic clock*;
//! nobody compares wall clocks. Two processes may disagree for a while: the fence decides then.

use std::collections::BTreeMap;
use std::time::Duration;

use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;
use tollgate_store::StoreError;
use tollgate_store::handle::{Lease, Member};

use crate::Shared;
use crate::owner::{Ended, Owner};

/// A heartbeat's share of the TTL.
const BEATS_PER_TTL: i64 = 6;
/// Added to the TTL before a silent member counts as dead, in milliseconds.
const MARGIN_MS: i64 = 500;
/// A member that has been dead for so many TTLs is forgotten.
const FORGET_AFTER_TTLS: i64 = 20;

/// The weight of a process for a shard, for rendezvous placement (Thaler and Ravishankar, 1998): the process with the
/// highest owns it. FNV-1a, finished with a multiplication, so that every version of every process agrees.
fn weight(process: &str, shard: u16) -> u64 {
    let bytes = process.bytes().chain(shard.to_be_bytes());
    let hash =
        bytes.fold(0xcbf2_9ce4_8422_2325_u64, |h, b| (h ^ u64::from(b)).wrapping_mul(0x0100_0000_01b3));
    (hash ^ (hash >> 32)).wrapping_mul(0x9e37_79b9_7f4a_7c15)
}

struct Seen {
    heartbeat: i64,
    changed_us: i64,
    member: Member,
}

pub(crate) struct Membership {
    shared: Shared,
    heartbeat: i64,
    seen: BTreeMap<String, Seen>,
    owners: BTreeMap<u16, CancellationToken>,
    tasks: JoinSet<(Lease, Ended)>,
    failing: bool,
}

impl Membership {
    pub(crate) fn new(shared: Shared) -> Self {
        Self {
            shared,
            heartbeat: 0,
            seen: BTreeMap::new(),
            owners: BTreeMap::new(),
            tasks: JoinSet::new(),
            failing: false,
        }
    }

    pub(crate) async fn run(mut self, stop: CancellationToken) {
        let ttl_ms = self.shared.options.lease_ttl_ms;
        let beat = Duration::from_millis(u64::try_from(ttl_ms / BEATS_PER_TTL).unwrap_or(1_000).max(10));
        let mut ticks = tokio::time::interval(beat);
        ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                () = stop.cancelled() => break,
                Some(ended) = self.tasks.join_next() => self.ended(ended).await,
                _ = ticks.tick() => {
                    let result = self.round().await;
                    self.note(result);
                }
            }
        }
        self.stop().await;
    }

    /// One heartbeat, one look at the others, and what follows from it.
    async fn round(&mut self) -> Result<(), StoreError> {
        self.heartbeat += 1;
        let member = Member {
            process: self.shared.process.clone(),
            roles: self.shared.options.roles.clone(),
            address: self.shared.options.address.clone(),
            heartbeat: self.heartbeat,
        };
        self.shared.store.heartbeat(&member).await?;
        let members = self.shared.store.members().await?;
        let live = self.live_handlers(members);
        let leases = self.shared.store.leases().await?;
        for lease in leases {
            self.place(lease, &live).await?;
        }
        self.forget_dead().await
    }

    /// The processes that may own shards, as far as this one can tell.
    fn live_handlers(&mut self, members: Vec<Member>) -> Vec<String> {
        let now_us = self.shared.clock.now().mono_us;
        self.seen.retain(|process, _| members.iter().any(|m| m.process == *process));
        for member in members {
            match self.seen.get_mut(&member.process) {
                Some(seen) if seen.heartbeat == member.heartbeat => {}
                Some(seen) => {
                    *seen = Seen { heartbeat: member.heartbeat, changed_us: now_us, member };
                }
                None => {
                    let seen = Seen { heartbeat: member.heartbeat, changed_us: now_us, member };
                    self.seen.insert(seen.member.process.clone(), seen);
                }
            }
        }
        let dead_after_us = (self.shared.options.lease_ttl_ms + MARGIN_MS) * 1000;
        let exclusive = self.shared.options.exclusive_store;
        self.seen
            .values()
            .filter(|s| {
                let own = s.member.process == self.shared.process;
                own || (!exclusive && now_us - s.changed_us < dead_after_us)
            })
            .filter(|s| s.member.roles.split(',').any(|role| role == "handler"))
            .map(|s| s.member.process.clone())
            .collect()
    }

    /// Takes, keeps or gives up one shard.
    async fn place(&mut self, lease: Lease, live: &[String]) -> Result<(), StoreError> {
        let shard = lease.shard;
        let wanted = live.iter().max_by_key(|process| weight(process, shard));
        let mine = wanted == Some(&self.shared.process);
        match self.owners.get(&shard) {
            Some(stop) if !mine => {
                stop.cancel();
                Ok(())
            }
            None if mine && (lease.owner.is_empty() || !live.contains(&lease.owner)) => {
                self.take(lease).await
            }
            None if lease.owner == self.shared.process => {
                // Its owner task has ended without giving it up.
                self.take(lease).await
            }
            _ => Ok(()),
        }
    }

    async fn take(&mut self, seen: Lease) -> Result<(), StoreError> {
        let Some(lease) = self.shared.store.take_shard(&seen, &self.shared.process).await? else {
            return Ok(());
        };
        let shard = lease.shard;
        tracing::debug!(shard, epoch = lease.epoch, "took the shard");
        let stop = CancellationToken::new();
        let (sender, inputs) = mpsc::unbounded_channel();
        self.shared.routes.insert(shard, sender.clone());
        self.owners.insert(shard, stop.clone());
        self.tasks.spawn(Owner::new(self.shared.clone(), lease, inputs, sender, stop).run());
        Ok(())
    }

    async fn ended(&mut self, ended: Result<(Lease, Ended), tokio::task::JoinError>) {
        let (lease, ended) = match ended {
            Ok(ended) => ended,
            Err(error) => {
                // Only a bug ends here. The shard is taken again with the next round.
                tracing::error!(%error, "an owner task broke off");
                let gone: Vec<u16> = self.owners.keys().copied().collect();
                for shard in
                    gone.into_iter().filter(|s| !self.shared.routes.tell(*s, crate::routes::Input::Wake))
                {
                    self.owners.remove(&shard);
                    self.shared.routes.remove(shard);
                }
                return;
            }
        };
        self.owners.remove(&lease.shard);
        self.shared.routes.remove(lease.shard);
        if ended == Ended::Stopped
            && let Err(error) = self.shared.store.give_up_shard(&lease).await
        {
            tracing::warn!(shard = lease.shard, %error, "the shard could not be given up; its lease will run out");
        }
    }

    async fn forget_dead(&mut self) -> Result<(), StoreError> {
        let now_us = self.shared.clock.now().mono_us;
        let long_us = self.shared.options.lease_ttl_ms * FORGET_AFTER_TTLS * 1000;
        let dead = self.seen.values().filter(|s| now_us - s.changed_us > long_us);
        let dead: Vec<_> =
            dead.map(|s| s.member.process.clone()).filter(|p| *p != self.shared.process).collect();
        for process in dead {
            self.shared.store.forget_member(&process).await?;
        }
        Ok(())
    }

    fn note(&mut self, result: Result<(), StoreError>) {
        match result {
            Ok(()) if self.failing => {
                self.failing = false;
                tracing::info!("the store answers again");
            }
            Err(error) if !self.failing => {
                self.failing = true;
                tracing::warn!(%error, "the heartbeat cannot be written; trying on");
            }
            _ => {}
        }
    }

    async fn stop(&mut self) {
        for stop in self.owners.values() {
            stop.cancel();
        }
        while let Some(ended) = self.tasks.join_next().await {
            self.ended(ended).await;
        }
        if let Err(error) = self.shared.store.forget_member(&self.shared.process).await {
            tracing::warn!(%error, "this process could not be taken off the member list");
        }
    }
}
