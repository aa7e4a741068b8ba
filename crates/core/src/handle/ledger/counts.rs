//! What a run and a bucket count of the events in each phase. Nothing but the books changes it.

use super::Phase;
use crate::handle::places::{BucketPlaces, Sharer};

/// Of the acquired, unfinished events of one run.
#[derive(Debug, Default, PartialEq, Eq)]
pub(in crate::handle) struct RunCounts {
    outstanding: u32,
    retrying: u32,
    unclear: u32,
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

    pub(super) fn enter(&mut self, phase: Phase) {
        self.outstanding += 1;
        match phase {
            Phase::Waiting => self.retrying += 1,
            Phase::Again { .. } => self.unclear += 1,
            Phase::Acquired | Phase::Sending { .. } | Phase::Held { .. } => {}
        }
    }

    pub(super) fn leave(&mut self, phase: Phase) {
        self.outstanding -= 1;
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
}

impl BucketCounts {
    /// Tokens held.
    pub(in crate::handle) fn held(&self) -> u32 {
        self.held
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

    pub(super) fn enter(&mut self, phase: Phase, sharer: &Sharer) {
        self.held += u32::from(phase.in_flight());
        match phase {
            Phase::Sending { placed: true } => self.places.take(sharer),
            Phase::Held { suspect: true } => self.suspect += 1,
            _ => {}
        }
    }

    pub(super) fn leave(&mut self, phase: Phase, sharer: &Sharer) {
        self.held -= u32::from(phase.in_flight());
        match phase {
            Phase::Sending { placed: true } => self.places.give_back(sharer),
            Phase::Held { suspect: true } => self.suspect -= 1,
            _ => {}
        }
    }
}
