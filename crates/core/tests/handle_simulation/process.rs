//! Handlers: members of the cluster that beat, watch each other, take shards and give them up; that die, freeze and
//! lose their network.

use std::collections::BTreeMap;

use tollgate_core::model::SECOND_US;

use crate::bug::Bug;
use crate::fence::Lease;
use crate::owner::{ANSWERS_MS, Owner};
use crate::totals::Seen;
use crate::world::{At, Event, SHARDS, World};

/// A member is dead when its heartbeat has not changed for TTL and margin; an owner trusts its lease for TTL less margin.
const TTL_US: i64 = 3 * SECOND_US;
const MARGIN_US: i64 = SECOND_US / 2;
const BEAT_US: i64 = 700_000;

/// A handler.
#[derive(Default)]
pub(crate) struct Process {
    /// Made anew at every start; 0 while there is none.
    pub(crate) id: u32,
    beat: i64,
    /// Others' heartbeats, and when they changed by its own clock.
    seen: BTreeMap<u32, (i64, i64)>,
    /// Until then nobody has taken its shards.
    trust_us: i64,
    /// How often it had ended before it was renewed.
    pub(crate) lapses: u32,
    pub(crate) frozen_until_us: Option<i64>,
    pub(crate) cut_until_us: i64,
    stopping: bool,
    /// It is about to end, and sends nothing later.
    pub(crate) sends_until_us: Option<i64>,
    pub(crate) owners: BTreeMap<u16, Owner>,
    /// Owners that gave up their shards, and whose deliveries may still be answered.
    pub(crate) former: BTreeMap<u64, u16>,
}

/// The weight of a process for a shard.
fn weight(id: u32, shard: u16) -> u64 {
    (u64::from(id) << 16 | u64::from(shard)).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 20
}

impl World {
    pub(crate) fn is_up(&self, slot: usize) -> bool {
        self.processes[slot].id != 0 && self.processes[slot].frozen_until_us.is_none()
    }

    /// Whether the database answers a process.
    pub(crate) fn is_cut(&self, slot: usize) -> bool {
        self.processes[slot].cut_until_us > self.now.mono_us
    }

    pub(crate) fn is_trusted(&self, slot: usize) -> bool {
        self.bug == Bug::NoTrust || self.now.mono_us < self.processes[slot].trust_us
    }

    pub(crate) fn start(&mut self, slot: usize) {
        if self.processes[slot].id != 0 {
            return;
        }
        self.numbers += 1;
        let id = self.numbers as u32;
        self.processes[slot] = Process { id, ..Process::default() };
        self.after(0, Event::Beat(slot, id));
    }

    pub(crate) fn beat(&mut self, slot: usize, id: u32) {
        let now_us = self.now.mono_us;
        self.after(if self.chaos { BEAT_US } else { 3 * BEAT_US }, Event::Beat(slot, id));
        if self.is_cut(slot) {
            return;
        }
        let process = &mut self.processes[slot];
        process.beat += 1;
        self.members.insert(id, (process.beat, process.stopping));
        let wait_us = self.wait_us(&[0, 1_000, 50_000]);
        self.after(wait_us, Event::Look(slot, id, now_us));
    }

    /// Reads members and leases, and does what follows from them.
    pub(crate) fn look_around(&mut self, slot: usize, id: u32, began_us: i64) {
        if self.is_cut(slot) {
            return;
        }
        let now_us = self.now.mono_us;
        let dead_after_us =
            if self.bug == Bug::TakenEarly && self.chaos { TTL_US / 3 } else { TTL_US + MARGIN_US };
        let process = &mut self.processes[slot];
        let (mut live, mut willing) = (Vec::new(), Vec::new());
        for (member, (beat, leaving)) in &self.members {
            let seen = process.seen.entry(*member).or_insert((*beat, now_us));
            if seen.0 != *beat {
                *seen = (*beat, now_us);
            }
            if *member == id || now_us - seen.1 < dead_after_us {
                live.push(*member);
                willing.extend((!leaving).then_some(*member));
            }
        }
        let had_trust = now_us < process.trust_us;
        process.lapses += u32::from(!had_trust);
        process.trust_us = began_us + TTL_US - MARGIN_US;
        for shard in 0..SHARDS {
            let lease = self.leases[usize::from(shard)].clone();
            let wanted = willing.iter().copied().max_by_key(|member| weight(*member, shard)) == Some(id);
            self.place(slot, id, shard, lease, wanted, had_trust, &live);
        }
    }

    /// Takes, keeps or gives up one shard.
    #[expect(clippy::too_many_arguments, reason = "what one look has shown")]
    fn place(
        &mut self,
        slot: usize,
        id: u32,
        shard: u16,
        lease: Lease,
        wanted: bool,
        had_trust: bool,
        live: &[u32],
    ) {
        let Some(owner) = self.processes[slot].owners.get(&shard) else {
            if wanted && (lease.owner == 0 || lease.owner == id || !live.contains(&lease.owner)) {
                let wait_us = self.wait_us(&[0, 0, 1_000, 200_000, 1_500_000]);
                self.after(wait_us, Event::Take(slot, id, shard, lease));
            }
            return;
        };
        let at = owner.at(slot, id, shard);
        if lease.lease_id != owner.lease.lease_id {
            // An owner that is just taking its shard over from itself finds out by itself.
            if owner.machine.is_some() {
                self.count(Seen::TrustLostAtLook);
                self.lose(at);
            }
        } else if !had_trust {
            // Somebody may be about to take it, having seen the old heartbeat: a fresh lease stops that.
            self.reload(at);
        } else if !wanted {
            self.drain(at);
        }
    }

    pub(crate) fn take(&mut self, slot: usize, id: u32, shard: u16, seen: &Lease) {
        if self.is_cut(slot)
            || self.processes[slot].owners.contains_key(&shard)
            || self.processes[slot].stopping
        {
            return;
        }
        self.numbers += 1;
        let number = self.numbers;
        let from = seen.owner;
        let Some(lease) = self.leases[usize::from(shard)].take(seen, id, number) else {
            self.count(Seen::TakeoverLost);
            return;
        };
        if from != 0 && from != id {
            let alive = self.processes.iter().any(|p| p.id == from);
            self.count(if alive { Seen::TakenFromTheLiving } else { Seen::TakenFromTheDead });
        }
        let owner = Owner::new(lease, number);
        let at = owner.at(slot, id, shard);
        self.processes[slot].owners.insert(shard, owner);
        let wait_us = self.wait_us(&[0, 1_000, 20_000]);
        self.after(wait_us, Event::Load(at));
    }

    pub(crate) fn owners_of(&self, slot: usize) -> Vec<At> {
        let process = &self.processes[slot];
        process.owners.iter().map(|(shard, owner)| owner.at(slot, process.id, *shard)).collect()
    }

    fn any(&mut self) -> Option<usize> {
        let slots: Vec<usize> = (0..self.processes.len()).filter(|slot| self.is_up(*slot)).collect();
        self.random.pick(&slots).copied()
    }

    pub(crate) fn crash_any(&mut self) {
        let Some(slot) = self.any() else { return };
        let id = self.processes[slot].id;
        self.count(Seen::Crash);
        for at in self.owners_of(slot) {
            self.orphan(at);
        }
        let flights: Vec<u64> = self.flights.iter().filter(|(_, f)| f.at.id == id).map(|(n, _)| *n).collect();
        for number in flights {
            self.count(Seen::CrashInCommit);
            if self.random.percent(50) {
                self.flights.remove(&number);
            }
        }
        self.processes[slot] = Process::default();
        let down_us = self.wait_us(&[100_000, SECOND_US, 8 * SECOND_US, 30 * SECOND_US]);
        self.after(down_us, Event::Start(slot));
    }

    /// Stopped by the kernel, or by a hypervisor, and woken later: the zombie.
    pub(crate) fn freeze_any(&mut self) {
        let Some(slot) = self.any() else { return };
        let id = self.processes[slot].id;
        let long_us = self.wait_us(&[500_000, 2 * SECOND_US, 5 * SECOND_US, 15 * SECOND_US]);
        self.processes[slot].frozen_until_us = Some(self.now.mono_us + long_us);
        self.count(Seen::Freeze);
        let flights: Vec<u64> = self.flights.iter().filter(|(_, f)| f.at.id == id).map(|(n, _)| *n).collect();
        for number in flights {
            let held = self.random.percent(50);
            self.count(if held { Seen::FreezeBeforeCommitArrives } else { Seen::FreezeAfterCommit });
            if let Some(flight) = self.flights.get_mut(&number) {
                flight.held = held;
            }
        }
        self.after(long_us, Event::Thaw(slot, id));
    }

    pub(crate) fn thaw(&mut self, slot: usize, id: u32) {
        if self.processes[slot].id != id {
            return;
        }
        self.processes[slot].frozen_until_us = None;
        for at in self.owners_of(slot) {
            self.touch(at);
        }
    }

    /// The database does not answer it for a while.
    pub(crate) fn cut_any(&mut self) {
        let Some(slot) = self.any() else { return };
        let long_us = self.wait_us(&[SECOND_US, 4 * SECOND_US, 10 * SECOND_US]);
        self.processes[slot].cut_until_us = self.now.mono_us + long_us;
        self.count(Seen::Cut);
    }

    /// A planned stop: it hands its shards over and ends.
    pub(crate) fn stop_any(&mut self) {
        let Some(slot) = self.any() else { return };
        let id = self.processes[slot].id;
        if self.is_cut(slot) || self.processes[slot].stopping {
            return;
        }
        self.processes[slot].stopping = true;
        self.processes[slot].sends_until_us = Some(self.now.mono_us + ANSWERS_MS * 1_000);
        if let Some(member) = self.members.get_mut(&id) {
            member.1 = true;
        }
        for at in self.owners_of(slot) {
            self.drain(at);
        }
        self.after(5 * SECOND_US, Event::End(slot, id));
    }

    pub(crate) fn end_process(&mut self, slot: usize, id: u32) {
        if self.processes[slot].id != id {
            return;
        }
        if !self.processes[slot].owners.is_empty() || !self.is_up(slot) {
            self.after(SECOND_US, Event::End(slot, id));
            return;
        }
        self.members.remove(&id);
        self.processes[slot] = Process::default();
        let down_us = self.wait_us(&[0, SECOND_US, 10 * SECOND_US]);
        self.after(down_us, Event::Start(slot));
    }

    /// Nothing goes wrong any more.
    pub(crate) fn make_peace_among_processes(&mut self) {
        for slot in 0..self.processes.len() {
            self.processes[slot].cut_until_us = 0;
            if self.processes[slot].id == 0 {
                self.start(slot);
            }
        }
        for flight in self.flights.values_mut() {
            flight.held = false;
        }
    }

    pub(crate) fn is_stopping(&self, slot: usize) -> bool {
        self.processes[slot].stopping
    }
}
