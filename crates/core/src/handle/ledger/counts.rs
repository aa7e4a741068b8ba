//! What a run and a bucket count of the events in each phase. Nothing but the books changes it.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;

use super::Phase;
use crate::handle::keys::{KeyOf, Load};
use crate::handle::places::{BucketPlaces, Sharer};

/// Of the acquired, unfinished events of one run.
#[derive(Debug, Default, PartialEq, Eq)]
pub(in crate::handle) struct RunCounts {
    outstanding: u32,
    retrying: u32,
    unclear: u32,
    unread: u32,
}

impl RunCounts {
    /// Those that have a row, in flight or waiting.
    pub(in crate::handle) fn outstanding(&self) -> u32 {
        self.outstanding
    }

    /// Those that wait for another attempt.
    pub(in crate::handle) fn retrying(&self) -> u32 {
        self.retrying
    }

    /// Those that will be sent once more: they wait for another attempt, or their delivery is unclear.
    pub(in crate::handle) fn coming_again(&self) -> u32 {
        self.retrying + self.unclear
    }

    /// Those whose keys have not been read.
    pub(in crate::handle) fn unread(&self) -> u32 {
        self.unread
    }

    pub(super) fn enter(&mut self, phase: Phase, load: &Load) {
        self.outstanding += 1;
        self.unread += u32::from(load.key == KeyOf::Unread);
        match phase {
            Phase::Waiting => self.retrying += 1,
            Phase::Again { .. } => self.unclear += 1,
            Phase::Acquired | Phase::Sending { .. } | Phase::Held { .. } => {}
        }
    }

    pub(super) fn leave(&mut self, phase: Phase, load: &Load) {
        self.outstanding -= 1;
        self.unread -= u32::from(load.key == KeyOf::Unread);
        match phase {
            Phase::Waiting => self.retrying -= 1,
            Phase::Again { .. } => self.unclear -= 1,
            Phase::Acquired | Phase::Sending { .. } | Phase::Held { .. } => {}
        }
    }
}

/// Of the runs and the events under one policy, or under none.
#[derive(Debug, Default, PartialEq, Eq)]
pub(in crate::handle) struct BucketCounts {
    runs: u32,
    held: u32,
    never_freed: u32,
    suspect: u32,
    places: BucketPlaces,
    /// Tokens held by the key of their events, where these have one, and how many in all.
    by_key: BTreeMap<u128, u32>,
    keyed: u32,
    /// Those whose keys have not been read.
    unread: u32,
}

impl BucketCounts {
    /// Tokens held.
    pub(in crate::handle) fn held(&self) -> u32 {
        self.held
    }

    /// Tokens held of a key; of those that have none together.
    pub(in crate::handle) fn held_of(&self, key: Option<u128>) -> u32 {
        match key {
            Some(key) => self.by_key.get(&key).copied().unwrap_or_default(),
            None => self.held - self.keyed - self.unread,
        }
    }

    /// Tokens held by events whose keys have not been read.
    pub(in crate::handle) fn unread(&self) -> u32 {
        self.unread
    }

    /// Held tokens that have been silent for too long.
    pub(in crate::handle) fn suspect(&self) -> u32 {
        self.suspect
    }

    /// Deliveries under way, where no `max_in_flight` bounds them.
    pub(in crate::handle) fn places(&self) -> &BucketPlaces {
        &self.places
    }

    /// Whether a run or a token needs the bucket.
    pub(in crate::handle) fn in_use(&self) -> bool {
        self.runs > 0 || self.held > 0
    }

    /// Those of the tokens held that belong to runs that cannot be read.
    #[cfg(debug_assertions)]
    pub(super) fn never_freed(&self) -> u32 {
        self.never_freed
    }

    pub(super) fn unreadable(&mut self, tokens: u32) {
        self.never_freed += tokens;
        self.held += tokens;
    }

    pub(super) fn run_enters(&mut self) {
        self.runs += 1;
    }

    pub(super) fn run_leaves(&mut self) {
        self.runs -= 1;
    }

    pub(super) fn enter(&mut self, phase: Phase, sharer: &Sharer, units: u32) {
        if phase.in_flight() {
            self.held += units;
            if sharer.is_unread() {
                self.unread += units;
            } else if let Some(key) = sharer.key() {
                self.keyed += units;
                *self.by_key.entry(key).or_default() += units;
            }
        }
        match phase {
            Phase::Sending { placed: true } => self.places.take(sharer),
            Phase::Held { suspect: true } => self.suspect += units,
            _ => {}
        }
    }

    pub(super) fn leave(&mut self, phase: Phase, sharer: &Sharer, units: u32) {
        if phase.in_flight() {
            self.held -= units;
            if sharer.is_unread() {
                self.unread -= units;
            } else if let Some(key) = sharer.key() {
                self.keyed -= units;
                if let Entry::Occupied(mut held) = self.by_key.entry(key) {
                    *held.get_mut() -= units;
                    if *held.get() == 0 {
                        held.remove();
                    }
                }
            }
        }
        match phase {
            Phase::Sending { placed: true } => self.places.give_back(sharer),
            Phase::Held { suspect: true } => self.suspect -= units,
            _ => {}
        }
    }
}
