//! Places: deliveries under way at once where no policy bounds them, and who may take the next one.
//!
//! In: who a run shares with, what begins and what ends. Out: whether one more may begin. Invariants: a delivery has a
//! place from its commit on until its answer, and none while it waits to be sent again; a namespace, within it a
//! target, and within that a schedule takes at most four fifths of what all others leave free, so that something is
//! left for the next one, however many consumers say nothing.
//!
//! The bound moves with what is free, as the thresholds of shared packet buffers do (Choudhury and Hahne, "Dynamic
//! Queue Length Thresholds", 1998): one that is alone has about half of all places.

use std::collections::BTreeMap;

use sha2::{Digest as _, Sha256};

use super::keys::KeyOf;
use crate::model::{Run, RunSpec};

/// Of what is free, one part in this many is left to others, at each level.
pub(super) const LEFT_TO_OTHERS: u32 = 5;

/// With whom a run shares places: its namespace, its target within that, its schedule within that.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Sharer {
    levels: [u128; 3],
    /// What stands for the key of its events; 0 where they have none.
    key: u128,
    /// That has not been read.
    is_unread: bool,
}

impl Sharer {
    pub(super) fn of(run: &Run, spec: &RunSpec) -> Self {
        let mut digest = Sha256::new();
        let mut level = |name: &[u8]| {
            digest.update((name.len() as u64).to_be_bytes());
            digest.update(name);
            number(digest.clone())
        };
        let target = spec.target.address().as_bytes();
        let levels = [level(run.namespace.as_bytes()), level(target), level(run.schedule_uid.as_bytes())];
        Self { levels, key: stand_in(spec.key()), is_unread: false }
    }

    /// Of an event that counts so.
    pub(super) fn with(&self, key: &KeyOf) -> Self {
        match key {
            KeyOf::Schedule => *self,
            KeyOf::Item(item) => Self { key: item.stand_in, ..*self },
            KeyOf::Unread => Self { is_unread: true, ..*self },
        }
    }

    /// Whether the key of its event has not been read.
    pub(super) fn is_unread(&self) -> bool {
        self.is_unread
    }

    /// What stands for the key of its events; none where they have none.
    pub(super) fn key(&self) -> Option<u128> {
        (self.key != 0).then_some(self.key)
    }

    /// What stands for its namespace.
    pub(super) fn namespace(&self) -> u128 {
        self.levels[0]
    }

    /// What stands for its target within its namespace.
    pub(super) fn target(&self) -> u128 {
        self.levels[1]
    }
}

/// What stands for a key; 0 for none.
pub(super) fn stand_in(key: &str) -> u128 {
    if key.is_empty() { 0 } else { number(Sha256::new().chain_update(key)) }
}

fn number(digest: Sha256) -> u128 {
    digest.finalize().iter().take(16).fold(0_u128, |number, byte| number << 8 | u128::from(*byte))
}

/// The places of one bucket.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct BucketPlaces {
    taken: u32,
    by: BTreeMap<u128, u32>,
}

impl BucketPlaces {
    /// Deliveries under way.
    pub(super) fn taken(&self) -> u32 {
        self.taken
    }

    /// The group, of those that a delivery belongs to, whose share holds it back, where `places_max` are all; none where it
    /// may begin.
    pub(super) fn holds(&self, sharer: &Sharer, places_max: u32) -> Option<u128> {
        self.left(sharer, places_max).find(|(_, left)| *left == 0).map(|(group, _)| group)
    }

    /// How many more deliveries of one of the groups of a sharer may begin.
    pub(super) fn left_to(&self, group: u128, sharer: &Sharer, places_max: u32) -> u32 {
        let mut least = u32::MAX;
        for (level, left) in self.left(sharer, places_max) {
            least = least.min(left);
            if level == group {
                break;
            }
        }
        least
    }

    /// The groups of a sharer, the widest first, and how many more deliveries each may begin if none above it is full.
    fn left(&self, sharer: &Sharer, places_max: u32) -> impl Iterator<Item = (u128, u32)> {
        let (mut room, mut taken) = (places_max, self.taken);
        sharer.levels.into_iter().map(move |level| {
            let own = self.by.get(&level).copied().unwrap_or_default();
            let free = room.saturating_sub(taken - own);
            (room, taken) = (free - free / LEFT_TO_OTHERS, own);
            (level, room.saturating_sub(own))
        })
    }

    pub(super) fn take(&mut self, sharer: &Sharer) {
        self.taken += 1;
        for level in sharer.levels {
            *self.by.entry(level).or_default() += 1;
        }
    }

    pub(super) fn give_back(&mut self, sharer: &Sharer) {
        self.taken -= 1;
        for level in sharer.levels {
            if let Some(own) = self.by.get_mut(&level) {
                *own -= 1;
                if *own == 0 {
                    self.by.remove(&level);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sharer(namespace: u128, target: u128, schedule: u128) -> Sharer {
        let target = namespace << 32 | target << 16;
        Sharer {
            levels: [namespace, target | 1 << 64, target | schedule | 1 << 65],
            key: 0,
            is_unread: false,
        }
    }

    /// Takes all that it may.
    fn fill(places: &mut BucketPlaces, sharer: &Sharer, places_max: u32) -> u32 {
        let mut taken = 0;
        while places.taken() < places_max && places.holds(sharer, places_max).is_none() {
            places.take(sharer);
            taken += 1;
        }
        taken
    }

    #[test]
    fn who_is_alone_has_half_and_who_comes_next_finds_a_place() {
        let mut places = BucketPlaces::default();
        assert_eq!(fill(&mut places, &sharer(1, 1, 1), 1_024), 525);
        // Of the same target, of another one, of another namespace.
        for next in [sharer(1, 1, 2), sharer(1, 2, 3), sharer(2, 1, 1)] {
            assert!(fill(&mut places, &next, 1_024) > 50);
        }
        for _ in 0..525 {
            places.give_back(&sharer(1, 1, 1));
        }
        assert!(fill(&mut places, &sharer(1, 1, 1), 1_024) > 250, "what was given back can be had again");
    }

    #[test]
    fn many_that_take_all_they_may_leave_something() {
        let mut places = BucketPlaces::default();
        for schedule in 0..50 {
            fill(&mut places, &sharer(1, 1, schedule), 1_024);
        }
        for target in 2..50 {
            fill(&mut places, &sharer(1, target, 1), 1_024);
        }
        assert_eq!(places.holds(&sharer(2, 1, 1), 1_024), None);
        assert!(fill(&mut places, &sharer(2, 1, 1), 1_024) > 50, "{}", places.taken());
        let full = &sharer(2, 1, 1);
        let [namespace, target, schedule] = full.levels;
        assert_eq!(places.holds(full, 1_024), Some(schedule), "its namespace and its target might have more");
        let left = [namespace, target, schedule].map(|group| places.left_to(group, full, 1_024));
        assert!(left.is_sorted_by(|a, b| a >= b) && left[2] == 0 && left[0] > 0, "{left:?}");
    }

    #[test]
    fn a_single_place_can_be_had() {
        let mut places = BucketPlaces::default();
        assert_eq!(fill(&mut places, &sharer(1, 1, 1), 1), 1);
        places.give_back(&sharer(1, 1, 1));
        assert_eq!((places.taken(), places.by.len()), (0, 0));
    }
}
