//! Handlers: members of the cluster that beat, watch each other, take shards and give them up; that die, freeze, stand still
//! with their machines and lose their network. What they decide is the core's own [`Placement`] and [`Trust`].

use std::collections::BTreeMap;

use tollgate_core::model::{Now, SECOND_US};
use tollgate_core::own::{
    Look, Member, Placement, PlacementStep, ReadTurns, Report, Settings, Sizes, Standing, Trust, WallClock,
};

use crate::bug::Bug;
use crate::fence::Lease;
use crate::owner::{ANSWERS_MS, Owner};
use crate::totals::Seen;
use crate::world::{At, Event, SHARDS, World};

/// A handler.
pub(crate) struct Process {
    /// Made anew at every start; 0 while there is none.
    pub(crate) id: u32,
    ttl_ms: i64,
    placement: Placement,
    pub(crate) trust: Trust,
    /// Its monotonic clock is so far ahead of the world's: nobody else's shows the same.
    ahead_us: i64,
    /// How often its machine has stood still.
    stops: u64,
    /// What it knows of its wall clock.
    clock: WallClock,
    pub(crate) frozen_until_us: Option<i64>,
    /// Its machine stands still with it, its clock too.
    stands_still: bool,
    pub(crate) cut_until_us: i64,
    stopping: bool,
    pub(crate) owners: BTreeMap<u16, Owner>,
    /// Owners that gave up their shards, and whose deliveries may still be answered.
    pub(crate) former: BTreeMap<u64, (u16, Report)>,
    pub(crate) turns: ReadTurns,
}

impl Process {
    fn new(id: u32, lease_ttl_ms: i64, ahead_us: i64) -> Self {
        let (process, roles, address) = (id.to_string(), "handler".to_owned(), String::new());
        let settings = Settings { process, roles, address, lease_ttl_ms, exclusive: false };
        Self {
            id,
            ttl_ms: lease_ttl_ms,
            placement: Placement::new(settings),
            trust: Trust::new(lease_ttl_ms, false),
            ahead_us,
            stops: 0,
            clock: WallClock::Right,
            frozen_until_us: None,
            stands_still: false,
            cut_until_us: 0,
            stopping: false,
            owners: BTreeMap::new(),
            former: BTreeMap::new(),
            turns: ReadTurns::new(Sizes::default()),
        }
    }
}

impl Default for Process {
    fn default() -> Self {
        Self::new(0, 0, 0)
    }
}

impl World {
    pub(crate) fn is_up(&self, slot: usize) -> bool {
        self.processes[slot].id != 0 && self.processes[slot].frozen_until_us.is_none()
    }

    /// Whether the database answers a process.
    pub(crate) fn is_cut(&self, slot: usize) -> bool {
        self.processes[slot].cut_until_us > self.now.mono_us
    }

    /// The time as a process's own clocks show it.
    pub(crate) fn now_at(&self, slot: usize) -> Now {
        Now { mono_us: self.now.mono_us + self.processes[slot].ahead_us, ..self.now }
    }

    /// What a process may think of a lease that it took after so many lapses.
    pub(crate) fn standing(&self, slot: usize, lapses: u64) -> Standing {
        let process = &self.processes[slot];
        process.trust.standing(lapses, process.stops, self.now_at(slot).mono_us)
    }

    /// Whether the owner of a shard in it trusts its lease.
    pub(crate) fn is_trusted(&self, slot: usize, shard: u16) -> bool {
        let owner = self.processes[slot].owners.get(&shard);
        owner.is_some_and(|owner| self.standing(slot, owner.lapses) == Standing::Holds)
    }

    /// Whether it may send what it decided then.
    pub(crate) fn may_send(&self, slot: usize, lapses: u64) -> bool {
        let process = &self.processes[slot];
        process.trust.may_send(lapses, process.stops, self.now_at(slot).mono_us)
    }

    pub(crate) fn lapses(&self, slot: usize) -> u64 {
        self.processes[slot].trust.lapses()
    }

    pub(crate) fn start(&mut self, slot: usize) {
        if self.processes[slot].id != 0 {
            return;
        }
        self.numbers += 1;
        let id = self.numbers as u32;
        let ttl_ms = self.wait_us(&[3_000, 3_000, 2_000, 5_000]);
        let ahead_us = self.random.within(0, 1_000 * SECOND_US);
        self.processes[slot] = Process::new(id, ttl_ms, ahead_us);
        if self.random.percent(50) {
            let sizes = Sizes { few: 2, many: 4, messages: 6, messages_first: 2_000, turns: 1 };
            self.processes[slot].turns = ReadTurns::new(sizes);
        }
        self.after(0, Event::Beat(slot, id));
        self.after(0, Event::Watch(slot, id));
    }

    /// How long a call to the database takes, one way.
    fn way_us(&mut self) -> i64 {
        if self.chaos { self.wait_us(&[0, 0, 0, 1_000, 50_000, 700_000]) } else { 0 }
    }

    /// A round begins: a sign of life, one look at the others, and what follows from it.
    pub(crate) fn beat(&mut self, slot: usize, id: u32) {
        if self.is_cut(slot) {
            self.beat_later(slot, id);
            return;
        }
        let now_us = self.now_at(slot).mono_us;
        let process = &mut self.processes[slot];
        let began = (now_us, process.stops);
        let member = process.placement.beat(process.clock, process.stopping);
        let way_us = self.way_us();
        self.after(way_us, Event::BeatArrives(slot, id, began, Box::new(member)));
    }

    fn beat_later(&mut self, slot: usize, id: u32) {
        let ttl_us = self.processes[slot].ttl_ms * 1_000;
        self.after(if self.chaos { ttl_us / 5 } else { ttl_us * 2 / 3 }, Event::Beat(slot, id));
    }

    /// The database has it, whatever has become of the process.
    pub(crate) fn beat_arrives(&mut self, slot: usize, id: u32, began: (i64, u64), member: Member) {
        if self.processes[slot].id == id {
            self.members.insert(id, member);
            let way_us = self.way_us();
            self.after(way_us, Event::BeatHeard(slot, id, began));
        }
    }

    /// It knows that its sign of life is written, and looks at the leases.
    pub(crate) fn beat_heard(&mut self, slot: usize, id: u32, (began_us, stops): (i64, u64)) {
        if self.is_cut(slot) {
            self.count(Seen::HeartbeatUnheard);
            self.beat_later(slot, id);
            return;
        }
        let now_us = self.now_at(slot).mono_us;
        self.processes[slot].trust.renew(began_us, stops, now_us);
        if self.processes[slot].stopping {
            self.beat_later(slot, id);
            return;
        }
        let lapses = self.lapses(slot);
        let (leases, members) = (self.read_leases(), self.members.values().cloned().collect());
        let look = Look { began_us: now_us, leases, members };
        let way_us = self.way_us();
        self.after(way_us, Event::Look(slot, id, lapses, Box::new(look)));
    }

    fn read_leases(&self) -> Vec<tollgate_core::own::Lease> {
        (0..SHARDS).map(|shard| self.leases[usize::from(shard)].seen(shard)).collect()
    }

    /// It reads the members after the leases.
    pub(crate) fn look(&mut self, slot: usize, id: u32, lapses: u64, mut look: Look) {
        if self.is_cut(slot) {
            self.beat_later(slot, id);
            return;
        }
        if self.bug == Bug::MembersReadFirst {
            look.leases = self.read_leases();
        } else {
            look.members = self.members.values().cloned().collect();
        }
        let way_us = self.way_us();
        self.after(way_us, Event::Judge(slot, id, lapses, Box::new(look)));
    }

    /// It does what follows from what it has read.
    pub(crate) fn judge(&mut self, slot: usize, id: u32, lapses: u64, look: Look) {
        self.beat_later(slot, id);
        let now_us = self.now_at(slot).mono_us;
        if now_us - look.began_us > SECOND_US {
            self.count(Seen::JudgedLate);
        }
        for step in self.processes[slot].placement.looked(look, now_us) {
            self.say(|| format!("process {id}: {step:?}"));
            match step {
                PlacementStep::Take(lease) => {
                    let wait_us = self.wait_us(&[0, 0, 1_000, 200_000, 1_500_000]);
                    let (shard, seen) = (lease.shard, Lease::of(&lease));
                    self.after(wait_us, Event::Take(slot, id, shard, lapses, seen));
                }
                PlacementStep::GiveUp(shard) => {
                    if let Some(owner) = self.processes[slot].owners.get(&shard) {
                        let at = owner.at(slot, id, shard);
                        self.drain(at);
                    }
                }
                PlacementStep::Forget(process) => {
                    self.count(Seen::MemberForgotten);
                    self.members.retain(|_, member| member.process != process);
                }
            }
        }
    }

    pub(crate) fn take(&mut self, slot: usize, id: u32, shard: u16, lapses: u64, seen: &Lease) {
        self.numbers += 1;
        let (number, cut) = (self.numbers, self.is_cut(slot));
        let row = &mut self.leases[usize::from(shard)];
        let lease = (!cut).then(|| row.take(seen, id, number)).flatten();
        self.processes[slot].placement.taken(shard, lease.is_some());
        let Some(lease) = lease else {
            self.count(Seen::TakeoverLost);
            return;
        };
        let from = seen.owner;
        if from != 0 && from != id {
            self.check_taken(from, shard, seen.lease_id);
            let alive = self.processes.iter().any(|p| p.id == from);
            self.count(if alive { Seen::TakenFromTheLiving } else { Seen::TakenFromTheDead });
        }
        let owner = Owner::new(lease, lapses, number);
        let at = owner.at(slot, id, shard);
        self.processes[slot].owners.insert(shard, owner);
        if self.is_stopping(slot) {
            // It came too late: it is given up at once.
            self.drain(at);
        }
        let wait_us = self.wait_us(&[0, 1_000, 20_000]);
        self.after(wait_us, Event::Load(at));
    }

    /// Nobody loses a shard who still trusts its lease, unless it stands still with its machine and knows nothing of it.
    fn check_taken(&self, from: u32, shard: u16, lease_id: u64) {
        let Some(slot) = self.processes.iter().position(|p| p.id == from && !p.stands_still) else { return };
        let Some(owner) = self.processes[slot].owners.get(&shard) else { return };
        let trusts = owner.lease.lease_id == lease_id
            && owner.machine().is_some()
            && self.standing(slot, owner.lapses) == Standing::Holds;
        assert!(!trusts, "shard {shard} is taken from process {from}, which trusts its lease");
    }

    /// An owner is no more.
    pub(crate) fn owner_ended(&mut self, at: At) -> Option<Owner> {
        let process = &mut self.processes[at.slot];
        process.placement.ended(at.shard);
        process.owners.remove(&at.shard)
    }

    /// Of all who see the same, exactly one is to own a shard.
    pub(crate) fn check_placement(&mut self) {
        let now_us = self.now.mono_us;
        let up: Vec<usize> = (0..self.processes.len()).filter(|slot| self.processes[*slot].id != 0).collect();
        let mut members = Vec::new();
        for slot in &up {
            members.push(self.processes[*slot].placement.beat(WallClock::Right, false));
        }
        for shard in 0..SHARDS {
            let wins = |slot: &usize| {
                let process = &mut self.processes[*slot];
                process.placement.takes_broke_off();
                let owned = process.owners.contains_key(&shard);
                let row = Lease { owner: if owned { process.id } else { 0 }, ..Lease::default() };
                let leases = vec![row.seen(shard)];
                let look = Look { began_us: now_us + process.ahead_us, leases, members: members.clone() };
                let steps = process.placement.looked(look, now_us + process.ahead_us);
                let takes = steps.iter().any(|step| matches!(step, PlacementStep::Take(_)));
                takes || owned && !steps.contains(&PlacementStep::GiveUp(shard))
            };
            let winners: Vec<usize> = up.iter().copied().filter(wins).collect();
            assert_eq!(winners.len(), 1, "{winners:?} of {up:?} are to own shard {shard}");
        }
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
        self.room_of_the_dead();
        let down_us = self.wait_us(&[100_000, SECOND_US, 8 * SECOND_US, 30 * SECOND_US]);
        self.after(down_us, Event::Start(slot));
    }

    /// Stopped by the kernel, or by a hypervisor, and woken later: the zombie.
    pub(crate) fn freeze_any(&mut self) {
        let Some(slot) = self.any() else { return };
        let id = self.processes[slot].id;
        let long_us = self.wait_us(&[500_000, 2 * SECOND_US, 5 * SECOND_US, 15 * SECOND_US]);
        let stands_still = self.random.percent(30);
        self.processes[slot].frozen_until_us = Some(self.now.mono_us + long_us);
        self.processes[slot].stands_still = stands_still;
        self.count(if stands_still { Seen::MachinePaused } else { Seen::Freeze });
        let flights: Vec<u64> = self.flights.iter().filter(|(_, f)| f.at.id == id).map(|(n, _)| *n).collect();
        for number in flights {
            let held = self.random.percent(50);
            self.count(if held { Seen::FreezeBeforeCommitArrives } else { Seen::FreezeAfterCommit });
            if let Some(flight) = self.flights.get_mut(&number) {
                flight.held = held;
            }
        }
        self.after(long_us, Event::Thaw(slot, id, long_us));
    }

    pub(crate) fn thaw(&mut self, slot: usize, id: u32, long_us: i64) {
        let process = &mut self.processes[slot];
        if process.id != id {
            return;
        }
        process.frozen_until_us = None;
        if std::mem::take(&mut process.stands_still) {
            process.ahead_us -= long_us;
            process.stops += 1;
        }
        let now_us = self.now.mono_us;
        for owner in self.processes[slot].owners.values_mut() {
            owner.unsaid_us = owner.unsaid_us.map(|_| now_us);
        }
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

    /// A process finds its wall clock wrong, or right again.
    pub(crate) fn judge_a_clock(&mut self) {
        let Some(slot) = self.any() else { return };
        let clocks = [WallClock::Right, WallClock::Off, WallClock::Unknown];
        self.processes[slot].clock = clocks[self.random.within(0, 3) as usize];
        self.count(Seen::ClockJudged);
    }

    /// A planned stop: it hands its shards over and ends.
    pub(crate) fn stop_any(&mut self) {
        let Some(slot) = self.any() else { return };
        let id = self.processes[slot].id;
        if self.is_cut(slot) || self.processes[slot].stopping {
            return;
        }
        self.processes[slot].stopping = true;
        let end_us = self.now_at(slot).mono_us + ANSWERS_MS * 1_000;
        self.processes[slot].trust.end_sends(end_us);
        for (_, report) in self.processes[slot].former.values_mut() {
            report.hurry(end_us);
        }
        let former: Vec<_> =
            self.processes[slot].former.iter().map(|(owner, (shard, _))| (*owner, *shard)).collect();
        for (owner, shard) in former {
            self.after(ANSWERS_MS * 1_000, Event::ReportEnds(At { slot, id, shard, owner, life: 0 }));
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
        let process = &self.processes[slot];
        if !process.owners.is_empty() || !process.former.is_empty() || !self.is_up(slot) {
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
            self.processes[slot].clock = WallClock::Right;
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
