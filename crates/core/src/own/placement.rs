//! Decides which shards a process owns: placement by rendezvous hashing, takeover, hand-over.
//!
//! In: looks at the member list and the leases, and what became of the steps. Out: heartbeats, and steps: take a shard, give it
//! up, forget a member. A member is dead when its heartbeat has not changed for TTL and margin *by this process's own monotonic
//! clock*; nobody compares wall clocks. Two processes may disagree for a while: the fence decides then. A process that is about
//! to end says so in its heartbeat: it keeps what it has until it gives it up itself, and others are told at once. So does one
//! whose clock is wrong. A member that was listed when this process came, and has not beaten since, may have died before: its
//! leases are left alone for as long as anybody's, but it is not expected to take anything. Else what others give up to a process
//! that has just started would stand for as long as a lease, where it would have been that member's.
//!
//! Invariants: a member's silence is never thought longer than it is, whenever this process was frozen: it counts from after
//! one read to before another. Leases are read before members, so that a process that took a shard before the look is among them.
//! Not here: writing heartbeats, taking shards.

use std::collections::{BTreeMap, BTreeSet};

use super::member::{Lease, Member};
use super::trust;

/// Added to the TTL before a silent member counts as dead, in milliseconds.
const MARGIN_MS: i64 = 500;
/// A heartbeat's share of the TTL.
const BEATS_PER_TTL: i64 = 6;
/// The share of the TTL after which a member that is alive has been seen to beat: a little less than one beat, so that the second
/// of two regular looks counts.
const SHOWN_PER_TTL: i64 = 8;
/// A member that has been dead for this many TTLs is forgotten.
const FORGET_AFTER_TTLS: i64 = 20;

/// The weight of a process for a shard, for rendezvous placement (Thaler and Ravishankar, 1998): the process with the
/// highest owns it. FNV-1a, finished with a multiplication, so that every version of every process agrees.
fn weight(process: &str, shard: u16) -> u64 {
    let bytes = process.bytes().chain(shard.to_be_bytes());
    let hash =
        bytes.fold(0xcbf2_9ce4_8422_2325_u64, |h, b| (h ^ u64::from(b)).wrapping_mul(0x0100_0000_01b3));
    (hash ^ (hash >> 32)).wrapping_mul(0x9e37_79b9_7f4a_7c15)
}

/// What a process is.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Made anew at every start.
    pub process: String,
    /// Its roles, comma separated.
    pub roles: String,
    /// Where others reach it; empty if nowhere.
    pub address: String,
    /// A member whose heartbeat has not changed for this time has lost its shards.
    pub lease_ttl_ms: i64,
    /// No other process can have the store: shards are taken over at once.
    pub exclusive: bool,
}

/// What is known of the wall clock of a process's machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WallClock {
    /// It is right.
    Right,
    /// It is wrong, and by how much is known.
    Off,
    /// Nothing.
    Unknown,
}

/// What a process has read.
#[derive(Clone, Debug)]
pub struct Look {
    /// When the first read began (monotonic).
    pub began_us: i64,
    /// The leases of all shards, read before the members.
    pub leases: Vec<Lease>,
    /// All members.
    pub members: Vec<Member>,
}

/// What follows from a look.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PlacementStep {
    /// Take this shard, if its lease is still as it was seen; then say what came of it: [`Placement::taken`].
    Take(Lease),
    /// Have the owner of this shard give it up; it may have been told before.
    GiveUp(u16),
    /// Take this member off the list.
    Forget(String),
}

#[derive(Debug)]
struct Seen {
    heartbeat: i64,
    /// When the read had ended that saw it change last.
    changed_us: i64,
    /// When the read had ended that saw it first.
    since_us: i64,
    /// It has come, or has beaten, since this process looked first.
    lives: bool,
    member: Member,
}

/// Who is there, as far as this process can tell.
#[derive(Debug, Default)]
struct Live {
    /// Those whose leases hold.
    all: BTreeSet<String>,
    /// Those that are to own shards: handlers that do not intend to leave, and may be alive.
    owners: Vec<String>,
    /// Those of them that have been here long enough to know who is dead.
    judges: Vec<String>,
}

/// The shards of one process, and what it knows of others.
#[derive(Debug)]
pub struct Placement {
    settings: Settings,
    heartbeat: i64,
    seen: BTreeMap<String, Seen>,
    /// Somebody else could own shards whose clock is right, at the latest look.
    others: bool,
    /// Shards that have an owner in this process.
    owned: BTreeSet<u16>,
    /// Shards that are being taken.
    taking: BTreeSet<u16>,
}

impl Placement {
    /// A process that owns nothing and knows nobody.
    pub fn new(settings: Settings) -> Self {
        let (seen, owned, taking) = (BTreeMap::new(), BTreeSet::new(), BTreeSet::new());
        Self { settings, heartbeat: 0, seen, others: false, owned, taking }
    }

    /// How often a sign of life is due, in milliseconds.
    pub fn beat_every_ms(&self) -> i64 {
        self.settings.lease_ttl_ms / BEATS_PER_TTL
    }

    /// The next sign of life.
    pub fn beat(&mut self, clock: WallClock, leaves: bool) -> Member {
        self.heartbeat += 1;
        // A process whose clock is wrong leaves its shards to one whose clock is right, and owns none where it knows no time.
        let makes_way = match clock {
            WallClock::Right => false,
            WallClock::Off => self.others,
            WallClock::Unknown => true,
        };
        let Settings { process, roles, address, lease_ttl_ms, .. } = &self.settings;
        Member {
            process: process.clone(),
            roles: Member::roles(roles, *lease_ttl_ms, clock != WallClock::Right, leaves || makes_way),
            address: address.clone(),
            heartbeat: self.heartbeat,
        }
    }

    /// Takes a look at the others.
    pub fn looked(&mut self, look: Look, now_us: i64) -> Vec<PlacementStep> {
        let Look { began_us, leases, members } = look;
        // Frozen in between, it would act on what has long been otherwise.
        if now_us - began_us > trust::term_us(self.settings.lease_ttl_ms) {
            return Vec::new();
        }
        let live = self.live(members, began_us, now_us);
        let mut steps: Vec<PlacementStep> =
            leases.into_iter().filter_map(|lease| self.place(lease, &live)).collect();
        steps.extend(self.long_dead(began_us).map(PlacementStep::Forget));
        steps
    }

    /// What came of taking a shard: whether it has an owner in this process from now on.
    pub fn taken(&mut self, shard: u16, is_own: bool) {
        self.taking.remove(&shard);
        if is_own {
            self.owned.insert(shard);
        }
    }

    /// Shards that were being taken may not be any more.
    pub fn takes_broke_off(&mut self) {
        self.taking.clear();
    }

    /// The owner of a shard in this process is no more.
    pub fn ended(&mut self, shard: u16) {
        self.owned.remove(&shard);
    }

    /// The silence after which a member is dead.
    fn dead_after_us(&self, member: &Member) -> i64 {
        // Its settings may be others, as they are while they are changed.
        (self.settings.lease_ttl_ms.max(member.ttl_ms()) + MARGIN_MS) * 1000
    }

    /// Whether a member has had the time to beat since this process looked first, and has not.
    fn is_shadow(&self, seen: &Seen, began_us: i64) -> bool {
        let shown_us = self.settings.lease_ttl_ms.max(seen.member.ttl_ms()) * 1000 / SHOWN_PER_TTL;
        !seen.lives && began_us - seen.since_us >= shown_us
    }

    fn live(&mut self, members: Vec<Member>, began_us: i64, now_us: i64) -> Live {
        let has_looked = !self.seen.is_empty();
        self.seen.retain(|process, _| members.iter().any(|m| m.process == *process));
        for member in members {
            match self.seen.get_mut(&member.process) {
                Some(seen) if seen.heartbeat == member.heartbeat => {}
                Some(seen) => {
                    let heartbeat = member.heartbeat;
                    *seen = Seen { heartbeat, changed_us: now_us, lives: true, member, ..*seen };
                }
                None => {
                    let (heartbeat, changed_us, since_us) = (member.heartbeat, now_us, now_us);
                    let seen = Seen { heartbeat, changed_us, since_us, lives: has_looked, member };
                    self.seen.insert(seen.member.process.clone(), seen);
                }
            }
        }
        let Settings { process, exclusive, .. } = &self.settings;
        let live = self.seen.values().filter(|s| {
            let is_silent = began_us - s.changed_us >= self.dead_after_us(&s.member);
            s.member.process == *process || (!exclusive && !is_silent)
        });
        let live: Vec<&Seen> = live.collect();
        let named = |seen: &Seen| seen.member.process.clone();
        let is_expected = |s: &&Seen| s.member.process == *process || !self.is_shadow(s, began_us);
        let owners: Vec<&Seen> =
            live.iter().copied().filter(|s| s.member.stays()).filter(is_expected).collect();
        let others = owners.iter().any(|s| s.member.process != *process && !s.member.is_off());
        let long_us = (self.settings.lease_ttl_ms + MARGIN_MS) * 1000;
        let knows = |s: &&&Seen| began_us - s.since_us >= long_us;
        let live = Live {
            all: live.iter().copied().map(named).collect(),
            judges: owners.iter().filter(knows).copied().map(named).collect(),
            owners: owners.into_iter().map(named).collect(),
        };
        self.others = others;
        live
    }

    /// Takes, keeps or gives up one shard.
    fn place(&mut self, lease: Lease, live: &Live) -> Option<PlacementStep> {
        let shard = lease.shard;
        let me = &self.settings.process;
        let is_mine = |candidates: &[String]| {
            candidates.iter().max_by_key(|process| weight(process, shard)) == Some(me)
        };
        let mine = is_mine(&live.owners);
        if self.owned.contains(&shard) {
            // Or somebody took it who believed this process dead: an owner without work would never notice.
            return (!mine || lease.owner != *me).then_some(PlacementStep::GiveUp(shard));
        }
        let is_orphan = !lease.owner.is_empty() && !live.all.contains(&lease.owner);
        let takes = mine && (lease.owner.is_empty() || is_orphan)
            // The process that should have it is too new to know that its owner is dead. This one takes it and hands it over
            // later.
            || is_orphan && is_mine(&live.judges)
            // Its owner task has ended without giving it up.
            || lease.owner == *me;
        (takes && self.taking.insert(shard)).then_some(PlacementStep::Take(lease))
    }

    fn long_dead(&self, began_us: i64) -> impl Iterator<Item = String> {
        let own = &self.settings;
        let dead = self.seen.values().filter(move |s| {
            let long_us = own.lease_ttl_ms.max(s.member.ttl_ms()) * FORGET_AFTER_TTLS * 1000;
            s.member.process != own.process && began_us - s.changed_us > long_us
        });
        dead.map(|s| s.member.process.clone())
    }
}

#[cfg(test)]
mod tests;
