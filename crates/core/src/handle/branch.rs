//! Where a bucket stands in a tree of policies: what is above it and below it, and which policy beneath it goes next.
//!
//! In: policies that may have something to start, and each start. Out: the next one. Those that have fewer tokens than their
//! floors go first. The others take turns by weight: a token moves a policy on by a stride, the shorter the more it weighs, and
//! the one that is furthest behind is next (Waldspurger and Weihl, "Stride Scheduling", 1995). Who comes anew begins where the
//! others are, and nobody is far ahead of them, so that neither a rest nor a floor is paid for later. Invariant: nobody walks
//! those that take no turns. Not here: what a policy lets through ([`super::bucket`]), what its runs have ([`super::queue`]).

use std::collections::{BTreeMap, BTreeSet};

use uuid::Uuid;

/// How far a token moves a policy of weight 1.
const STRIDE: u64 = 1 << 20;
/// How far ahead of the others a policy may be, unless by one event.
const AHEAD_MAX: u64 = 4 * STRIDE;

/// See the head of this file.
#[derive(Debug, Default)]
pub(super) struct Branch {
    /// The policy above.
    pub parent: Option<Uuid>,
    /// The policy above it is below it, too, or too far up, as messages come in any order: nothing starts until more have come.
    pub is_tangled: bool,
    /// The policies right below.
    pub children: BTreeSet<Uuid>,
    /// A number of tokens bounds some policy above it.
    pub is_bounded: bool,
    /// Tokens held by the events of all policies below.
    pub below: u32,
    /// Those right below, and itself for its own events, that may have something to start.
    pub turns: Turns,
}

/// An order of turns.
#[derive(Debug, Default)]
pub(super) struct Turns {
    line: BTreeSet<Turn>,
    places: BTreeMap<Uuid, Place>,
    /// Where those are that take turns.
    time: u64,
}

/// Whoever has less than its floor comes first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Turn {
    has_floor: bool,
    pass: u64,
    uid: Uuid,
}

#[derive(Debug, Default)]
struct Place {
    pass: u64,
    /// How far its latest start has moved it.
    step: u64,
    turn: Option<Turn>,
}

impl Turns {
    /// Who is next.
    pub(super) fn first(&self) -> Option<Uuid> {
        self.line.first().map(|turn| turn.uid)
    }

    /// Whether nobody takes turns.
    pub(super) fn is_empty(&self) -> bool {
        self.line.is_empty()
    }

    /// It takes turns from now on, or goes on to; `has_floor`: it has no fewer tokens than its floor.
    pub(super) fn enter(&mut self, uid: Uuid, has_floor: bool) {
        let time = self.time();
        let place = self.places.entry(uid).or_default();
        if place.turn.is_none() {
            place.pass = place.pass.clamp(time, time + AHEAD_MAX.max(place.step));
        }
        self.stand(uid, has_floor);
    }

    /// It takes no turns until it enters again.
    pub(super) fn leave(&mut self, uid: Uuid) {
        self.time = self.time();
        if let Some(turn) = self.places.get_mut(&uid).and_then(|place| place.turn.take()) {
            self.line.remove(&turn);
        }
    }

    /// It has started an event that takes so many tokens, and goes on to take turns.
    pub(super) fn went(&mut self, uid: Uuid, (units, weight): (u32, u32), has_floor: bool) {
        // Nobody else has ever taken turns: there is no order to keep.
        if self.places.len() == 1 && self.line.first().is_some_and(|turn| turn.has_floor == has_floor) {
            return;
        }
        let time = self.time();
        self.time = time;
        if let Some(place) = self.places.get_mut(&uid) {
            place.step = STRIDE * u64::from(units) / u64::from(weight.max(1));
            place.pass = (place.pass + place.step).min(time + AHEAD_MAX.max(place.step));
            self.stand(uid, has_floor);
        }
    }

    /// It is no more.
    pub(super) fn forget(&mut self, uid: Uuid) {
        self.leave(uid);
        self.places.remove(&uid);
    }

    fn stand(&mut self, uid: Uuid, has_floor: bool) {
        let Some(place) = self.places.get_mut(&uid) else { return };
        let turn = Turn { has_floor, pass: place.pass, uid };
        let before = place.turn.replace(turn);
        if before != Some(turn) {
            before.map(|before| self.line.remove(&before));
            self.line.insert(turn);
        }
    }

    /// Where the last of those is that take turns. It never goes back.
    fn time(&self) -> u64 {
        let with_floor = Turn { has_floor: true, pass: 0, uid: Uuid::nil() };
        let firsts = [self.line.first(), self.line.range(with_floor..).next()];
        firsts.into_iter().flatten().map(|turn| turn.pass).min().map_or(self.time, |pass| pass.max(self.time))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: Uuid = Uuid::from_u128(1);
    const B: Uuid = Uuid::from_u128(2);
    const C: Uuid = Uuid::from_u128(3);

    /// So many starts, each by whoever is next, and how many each had.
    fn starts(turns: &mut Turns, weights: [(Uuid, u32); 3], count: usize) -> [usize; 3] {
        let mut had = [0; 3];
        for _ in 0..count {
            let Some(next) = turns.first() else { break };
            let Some(at) = weights.iter().position(|(uid, _)| *uid == next) else { break };
            had[at] += 1;
            turns.went(next, (1, weights[at].1), true);
        }
        had
    }

    #[test]
    fn turns_go_by_weight() {
        let mut turns = Turns::default();
        [A, B, C].into_iter().for_each(|uid| turns.enter(uid, true));
        let had = starts(&mut turns, [(A, 1), (B, 2), (C, 5)], 800);
        assert!(had.iter().zip([100, 200, 500]).all(|(had, due)| had.abs_diff(due) <= 2), "{had:?}");
    }

    #[test]
    fn who_has_less_than_its_floor_goes_first() {
        let mut turns = Turns::default();
        turns.enter(A, true);
        turns.enter(B, false);
        for _ in 0..10 {
            assert_eq!(turns.first(), Some(B));
            turns.went(B, (1, 1), false);
        }
        turns.went(B, (1, 1), true);
        // What it had by its floor is not held against it for long.
        let had = starts(&mut turns, [(A, 1), (B, 1), (C, 1)], 20);
        assert!(had[0] <= 12 && had[1] >= 8, "{had:?}");
    }

    #[test]
    fn a_rest_is_no_credit() {
        let mut turns = Turns::default();
        [A, B].into_iter().for_each(|uid| turns.enter(uid, true));
        turns.leave(B);
        starts(&mut turns, [(A, 1), (B, 1), (C, 1)], 1_000);
        [B, C].into_iter().for_each(|uid| turns.enter(uid, true));
        let had = starts(&mut turns, [(A, 1), (B, 1), (C, 1)], 30);
        assert!(had.iter().all(|had| (9..=11).contains(had)), "{had:?}");
        turns.forget(A);
        turns.leave(B);
        assert_eq!(turns.first(), Some(C));
        turns.leave(C);
        assert!(turns.is_empty() && turns.places.len() == 2);
    }

    #[test]
    fn who_enters_twice_stands_once() {
        let mut turns = Turns::default();
        turns.enter(A, true);
        turns.enter(A, false);
        turns.enter(A, false);
        assert_eq!(turns.line.len(), 1);
        turns.leave(A);
        turns.leave(A);
        assert!(turns.is_empty());
        turns.went(B, (1, 1), true);
        assert!(turns.is_empty(), "who has never entered does not by going");
    }
}
