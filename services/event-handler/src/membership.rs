//! Which shards this process owns: heartbeats, placement by rendezvous hashing, takeover, hand-over.
//!
//! A member is dead when its heartbeat has not changed for TTL and margin *by this process's own monotonic clock*;
//! nobody compares wall clocks. Two processes may disagree for a while: the fence decides then. A process that is about
//! to end says so in its heartbeat: it keeps what it has until it gives it up itself, and others are told at once. So does one
//! whose clock is wrong.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{Semaphore, mpsc};
use tokio::task::{JoinError, JoinSet};
use tokio::time::{Interval, MissedTickBehavior};
use tokio_util::sync::CancellationToken;
use tollgate_clock::State;
use tollgate_metrics::Role;
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
/// Added to the roles of a process that is about to end: its leases hold, and it is given no more.
const LEAVING: &str = ",leaving";
/// Among the roles of a process, before its lease's TTL in milliseconds: it trusts its leases for as long.
const TTL: &str = "ttl-";
/// Among the roles of a process whose machine's clock is wrong: it makes way for those whose clock is right.
const CLOCK_OFF: &str = "clock-off";
/// How many shards are taken at once: few, so that rows that are locked do not use up the store's connections.
const TAKES_MAX: usize = 2;
/// How long news of shards are gathered before they are looked at.
const GATHER: Duration = Duration::from_millis(10);

/// The weight of a process for a shard, for rendezvous placement (Thaler and Ravishankar, 1998): the process with the
/// highest owns it. FNV-1a, finished with a multiplication, so that every version of every process agrees.
fn weight(process: &str, shard: u16) -> u64 {
    let bytes = process.bytes().chain(shard.to_be_bytes());
    let hash =
        bytes.fold(0xcbf2_9ce4_8422_2325_u64, |h, b| (h ^ u64::from(b)).wrapping_mul(0x0100_0000_01b3));
    (hash ^ (hash >> 32)).wrapping_mul(0x9e37_79b9_7f4a_7c15)
}

/// For how long a member trusts its leases, in milliseconds; 0 where its version does not say so.
fn ttl_ms(roles: &str) -> i64 {
    roles.split(',').find_map(|role| role.strip_prefix(TTL)?.parse().ok()).unwrap_or(0)
}

struct Seen {
    heartbeat: i64,
    changed_us: i64,
    /// When this process first saw it.
    since_us: i64,
    member: Member,
}

/// Who is there, as far as this process can tell.
struct Live {
    /// Those whose leases hold.
    all: BTreeSet<String>,
    /// Those that are to own shards: handlers that do not intend to leave.
    owners: Vec<String>,
    /// Those of them that have been here long enough to know who is dead.
    judges: Vec<String>,
}

pub(crate) struct Membership {
    shared: Shared,
    heartbeat: i64,
    seen: BTreeMap<String, Seen>,
    owners: BTreeMap<u16, CancellationToken>,
    tasks: JoinSet<(u16, Ended)>,
    /// Shards that are being taken: a row may be locked by an owner that has died a moment ago, and a heartbeat must not
    /// wait for that.
    taking: BTreeSet<u16>,
    /// Somebody else could own shards whose clock is right, at the latest look.
    others: bool,
    takes: JoinSet<Taken>,
    take_slots: Arc<Semaphore>,
    failing: bool,
}

/// What came of taking a shard: its number, how often trust had lapsed before, and the lease if it was free.
type Taken = (u16, u64, Result<Option<Lease>, StoreError>);

impl Membership {
    pub(crate) fn new(shared: Shared) -> Self {
        Self {
            shared,
            heartbeat: 0,
            seen: BTreeMap::new(),
            owners: BTreeMap::new(),
            tasks: JoinSet::new(),
            taking: BTreeSet::new(),
            others: false,
            takes: JoinSet::new(),
            take_slots: Arc::new(Semaphore::new(TAKES_MAX)),
            failing: false,
        }
    }

    pub(crate) async fn run(mut self, stop: CancellationToken) {
        let mut ticks = self.ticks();
        let peers = self.shared.peers.clone();
        loop {
            tokio::select! {
                () = stop.cancelled() => break,
                Some(ended) = self.tasks.join_next() => self.ended(ended),
                Some(taken) = self.takes.join_next() => self.taken(taken),
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
        let ttl_ms = self.shared.options.lease_ttl_ms;
        let beat = Duration::from_millis(u64::try_from(ttl_ms / BEATS_PER_TTL).unwrap_or(1_000).max(10));
        let mut ticks = tokio::time::interval(beat);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        ticks
    }

    /// One heartbeat, one look at the others, and what follows from it.
    async fn round(&mut self) -> Result<(), StoreError> {
        self.beat().await?;
        let members = self.shared.store.members().await?;
        // Before the leases are read: what is taken after a lapse was not seen as ours before it.
        let lapses = self.shared.trust.lapses();
        let leases = self.shared.store.leases().await?;
        self.shared.peers.learn(&members, &leases);
        let live = self.live(members);
        for lease in leases {
            self.place(lease, lapses, &live);
        }
        self.forget_dead().await
    }

    /// Shows a sign of life, which renews the trust in the leases.
    async fn beat(&mut self) -> Result<(), StoreError> {
        self.heartbeat += 1;
        let options = &self.shared.options;
        let is_off = self.shared.clock.state() != State::Right;
        let clock = if is_off { format!(",{CLOCK_OFF}") } else { String::new() };
        let leaving = if self.shared.leaving.is_cancelled() || self.makes_way() { LEAVING } else { "" };
        let member = Member {
            process: self.shared.process.clone(),
            roles: format!("{},{TTL}{}{clock}{leaving}", options.roles, options.lease_ttl_ms),
            address: options.address.clone(),
            heartbeat: self.heartbeat,
        };
        let began_us = self.shared.clock.now().mono_us;
        self.shared.store.heartbeat(&member).await?;
        self.shared.trust.renew(began_us);
        options.metrics.heartbeat();
        Ok(())
    }

    /// A process whose clock is wrong leaves its shards to one whose clock is right, and owns none where it knows no time.
    fn makes_way(&self) -> bool {
        match self.shared.clock.state() {
            State::Right => false,
            State::Off | State::Apart => self.others,
            State::Unknown => true,
        }
    }

    fn live(&mut self, members: Vec<Member>) -> Live {
        let now_us = self.shared.clock.now().mono_us;
        self.seen.retain(|process, _| members.iter().any(|m| m.process == *process));
        for member in members {
            match self.seen.get_mut(&member.process) {
                Some(seen) if seen.heartbeat == member.heartbeat => {}
                Some(seen) => {
                    *seen = Seen { heartbeat: member.heartbeat, changed_us: now_us, member, ..*seen };
                }
                None => {
                    let (heartbeat, changed_us, since_us) = (member.heartbeat, now_us, now_us);
                    let seen = Seen { heartbeat, changed_us, since_us, member };
                    self.seen.insert(seen.member.process.clone(), seen);
                }
            }
        }
        let own_ttl_ms = self.shared.options.lease_ttl_ms;
        let dead_after_us = (own_ttl_ms + MARGIN_MS) * 1000;
        let exclusive = self.shared.options.exclusive_store;
        let live = self.seen.values().filter(|s| {
            let own = s.member.process == self.shared.process;
            // Its settings may be others, as they are while they are changed.
            let dead_after_us = dead_after_us.max((ttl_ms(&s.member.roles) + MARGIN_MS) * 1000);
            own || (!exclusive && now_us - s.changed_us < dead_after_us)
        });
        let live: Vec<&Seen> = live.collect();
        let stays = |s: &&Seen| {
            s.member.roles.split(',').any(|role| role == "handler") && !s.member.roles.ends_with(LEAVING)
        };
        let named = |seen: &Seen| seen.member.process.clone();
        let owners: Vec<&Seen> = live.iter().copied().filter(stays).collect();
        let others = owners.iter().any(|s| {
            let is_off = s.member.roles.split(',').any(|role| role == CLOCK_OFF);
            s.member.process != self.shared.process && !is_off
        });
        let judges = owners.iter().filter(|s| now_us - s.since_us >= dead_after_us);
        let live = Live {
            all: live.iter().copied().map(named).collect(),
            judges: judges.copied().map(named).collect(),
            owners: owners.into_iter().map(named).collect(),
        };
        self.others = others;
        live
    }

    /// Takes, keeps or gives up one shard.
    fn place(&mut self, lease: Lease, lapses: u64, live: &Live) {
        let shard = lease.shard;
        let is_mine = |candidates: &[String]| {
            candidates.iter().max_by_key(|process| weight(process, shard)) == Some(&self.shared.process)
        };
        let mine = is_mine(&live.owners);
        let is_orphan = !lease.owner.is_empty() && !live.all.contains(&lease.owner);
        match self.owners.get(&shard) {
            // Or somebody took it who believed this process dead: an owner without work would never notice.
            Some(stop) if !mine || lease.owner != self.shared.process => stop.cancel(),
            None if mine && (lease.owner.is_empty() || is_orphan) => self.take(lease, lapses),
            // Whoever should have it has not been here long enough to know that its owner is dead, and gets it from here.
            None if is_orphan && is_mine(&live.judges) => self.take(lease, lapses),
            // Its owner task has ended without giving it up.
            None if lease.owner == self.shared.process => self.take(lease, lapses),
            _ => {}
        }
    }

    fn take(&mut self, seen: Lease, lapses: u64) {
        if !self.taking.insert(seen.shard) {
            return;
        }
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
                self.taking.clear();
                return;
            }
        };
        self.taking.remove(&shard);
        match result {
            Ok(Some(lease)) => self.own(lease, lapses),
            // Somebody else was faster, or its former owner lives.
            Ok(None) => {}
            Err(error) => crate::outage::note(shard, &error, "the shard cannot be taken; trying on"),
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

    fn ended(&mut self, ended: Result<(u16, Ended), JoinError>) {
        let routes = self.shared.peers.routes();
        match ended {
            Ok((shard, ended)) => {
                tracing::debug!(shard, ?ended, "the shard's owner has ended");
                self.owners.remove(&shard);
                routes.remove(shard);
            }
            Err(error) => {
                // Only a bug ends here. The shard is taken again with the next round.
                tracing::error!(%error, "an owner task broke off");
                let gone: Vec<u16> =
                    self.owners.keys().copied().filter(|shard| !routes.wake(*shard)).collect();
                for shard in gone {
                    self.owners.remove(&shard);
                    routes.remove(shard);
                }
            }
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
                tracing::warn!(%error, "the heartbeat cannot be written; trying on");
            }
            _ => {}
        }
    }

    /// Hands everything over. Meanwhile the leases hold, so that nobody takes over what is under way.
    async fn stop(&mut self) {
        self.shared.leaving.cancel();
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
        if let Err(error) = self.shared.store.forget_member(&self.shared.process).await {
            tracing::warn!(%error, "this process could not be taken off the member list");
        }
        self.shared.peers.placement_changed();
        self.shared.peers.flush().await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_member_says_how_long_it_trusts_its_leases() {
        assert_eq!(ttl_ms("master,handler,ttl-60000,clock-off,leaving"), 60_000);
        assert_eq!(ttl_ms("handler,ttl-500"), 500);
        // As versions before say it, and nothing that means anything.
        assert_eq!((ttl_ms("handler,leaving"), ttl_ms("handler,ttl-soon")), (0, 0));
    }
}
