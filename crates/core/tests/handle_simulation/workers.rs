//! Workers that pull: how much room they have, who has asked for some, and who has it.

use std::collections::BTreeMap;

use tollgate_core::handle::{RoomAsk, Send};
use tollgate_core::model::*;

use crate::totals::Seen;
use crate::world::{At, Event, World};

/// All of them. A pool is a queue with what its events require, by its address.
#[derive(Default)]
pub(crate) struct Workers {
    pools: BTreeMap<String, Pool>,
    /// As owners call the pools.
    addresses: BTreeMap<u128, String>,
}

#[derive(Default)]
struct Pool {
    /// What there is in all.
    all: u32,
    free: u32,
    /// What events take.
    used: u32,
    /// What a life of an owner has and has not used.
    given: BTreeMap<(u64, u64), (At, u32)>,
    /// Who lacks how much, in the order of their asking.
    lacks: Vec<(At, u128, u32)>,
}

impl World {
    /// A target of workers that pull.
    pub(crate) fn pulled(&mut self) -> Target {
        let requires = if self.random.percent(50) { vec!["gpu".to_owned()] } else { Vec::new() };
        let deadline_ms = self.wait_us(&[1_000, 4_000]);
        let pull = PullTarget::new("work".to_owned(), requires, deadline_ms);
        if !self.workers.pools.contains_key(pull.address()) {
            let all = self.wait_us(&[1, 2, 10]) as u32;
            self.workers.pools.insert(pull.address().to_owned(), Pool { all, free: all, ..Pool::default() });
        }
        Target::Pull { pull, release: ReleaseMode::TargetDefault }
    }

    fn pool(&mut self, address: &str) -> &mut Pool {
        self.workers.pools.get_mut(address).unwrap()
    }

    /// An owner asks for room. What it lacks comes later, unless it asks for less meanwhile.
    pub(crate) fn look_for_room(&mut self, at: At, asks: Vec<RoomAsk>) {
        for ask in asks {
            let address = ask.spec.target.address().to_owned();
            self.say(|| format!("{at:?} asks for room of {address}: {}", ask.want));
            self.workers.addresses.insert(ask.pool, address.clone());
            self.take_from_the_dead(&address);
            let pool = self.pool(&address);
            let given = ask.want.min(pool.free);
            pool.lacks.retain(|(other, id, _)| (other.owner, *id) != (at.owner, ask.pool));
            if given < ask.want {
                pool.lacks.push((at, ask.pool, ask.want - given));
                self.count(Seen::RoomLacking);
            }
            if given > 0 {
                assert!(self.give_room(at, (&address, ask.pool), given), "it asks for room and takes none");
            }
        }
    }

    /// Whether the owner has taken it.
    fn give_room(&mut self, at: At, (address, id): (&str, u128), units: u32) -> bool {
        let now = self.now_at(at.slot);
        let core = self.living(at).and_then(|owner| owner.open());
        let taken = core.is_some_and(|core| core.room_given(id, units, now));
        self.say(|| format!("{at:?} has room of {address}: {units}, taken: {taken}"));
        if taken {
            let pool = self.pool(address);
            pool.free -= units;
            pool.given.entry((at.owner, at.life)).or_insert((at, 0)).1 += units;
            self.count(Seen::RoomGiven);
        } else {
            self.count(Seen::RoomRefused);
        }
        taken
    }

    /// What an owner makes no use of goes to the next one.
    pub(crate) fn give_room_back(&mut self, at: At, left: Vec<(u128, u32)>) {
        for (id, units) in left {
            let Some(address) = self.workers.addresses.get(&id).cloned() else {
                panic!("{id}: never asked for")
            };
            self.say(|| format!("{at:?} gives room of {address} back: {units}"));
            let pool = self.pool(&address);
            pool.lacks.retain(|(other, of, _)| (other.owner, *of) != (at.owner, id));
            let given = pool.given.get_mut(&(at.owner, at.life));
            let had = given.as_ref().map_or(0, |(_, units)| *units);
            assert!(had >= units, "{at:?} gives {units} back of {address}, and has {had}");
            if let Some((_, given)) = given {
                *given -= units;
            }
            pool.free += units;
            if units > 0 {
                self.count(Seen::RoomLeft);
            }
            self.share_out(&address);
        }
    }

    /// An event that workers pull is sent.
    pub(crate) fn use_room(&mut self, at: At, send: &Send) {
        if send.spec.target.pull().is_none() {
            assert_eq!(send.pulled, None);
            return;
        }
        assert!(send.pulled.is_some());
        let address = send.spec.target.address().to_owned();
        let busy_us = self.wait_us(&[50_000, SECOND_US, 8 * SECOND_US]);
        let pool = self.pool(&address);
        let given = pool.given.get_mut(&(at.owner, at.life)).filter(|(_, units)| *units > 0);
        let Some((_, given)) = given else {
            panic!("{} {} is sent, and no worker has room", send.run, send.index)
        };
        *given -= 1;
        pool.used += 1;
        assert!(pool.used <= pool.all, "more events than workers have room for");
        self.after(busy_us, Event::Room(address));
    }

    /// A worker is done with something.
    pub(crate) fn room_comes(&mut self, address: &str) {
        let pool = self.pool(address);
        pool.used -= 1;
        pool.free += 1;
        self.take_from_the_dead(address);
        self.share_out(address);
    }

    /// To those who lack some, one after the other.
    fn share_out(&mut self, address: &str) {
        let mut passed_over = 0;
        loop {
            let pool = self.pool(address);
            if pool.free == 0 || passed_over >= pool.lacks.len() {
                return;
            }
            let (at, id, lacks) = pool.lacks.remove(0);
            if !self.is_up(at.slot) && self.processes[at.slot].id == at.id {
                // It hears nothing for now.
                self.pool(address).lacks.push((at, id, lacks));
                passed_over += 1;
                continue;
            }
            if self.give_room(at, (address, id), 1) {
                if lacks > 1 {
                    self.pool(address).lacks.push((at, id, lacks - 1));
                }
                self.touch(at);
            }
        }
    }

    /// Machines have ended: what they had is for those who lack some.
    pub(crate) fn room_of_the_dead(&mut self) {
        for address in self.workers.pools.keys().cloned().collect::<Vec<_>>() {
            self.take_from_the_dead(&address);
            self.share_out(&address);
        }
    }

    /// What an owner had whose machine has ended is free.
    fn take_from_the_dead(&mut self, address: &str) {
        let ats: Vec<At> = self.pool(address).given.values().map(|(at, _)| *at).collect();
        for at in ats.into_iter().filter(|at| self.living(*at).is_none()).collect::<Vec<_>>() {
            let pool = self.pool(address);
            let (_, units) = pool.given.remove(&(at.owner, at.life)).unwrap();
            pool.free += units;
        }
    }

    /// Nobody keeps room at the end.
    pub(crate) fn check_room(&mut self) {
        for address in self.workers.pools.keys().cloned().collect::<Vec<_>>() {
            self.take_from_the_dead(&address);
            let pool = self.pool(&address);
            let kept: Vec<_> = pool.given.values().filter(|(_, units)| *units > 0).collect();
            assert!(kept.is_empty(), "room of {address} is kept: {kept:?}");
            assert_eq!(pool.free + pool.used, pool.all, "room of {address}");
        }
    }
}
