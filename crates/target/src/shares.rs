//! Hands out a limited number of places so that nobody takes all of them.
//!
//! The taker of a place names what it is taken for: a namespace, a target, a schedule. Each of them may have a part of what
//! the others leave free. So a place is left for the next one, however many one of them asks for, and one that is alone has
//! the most. Parts of parts come to an end after a few namespaces; so the last places are only for namespaces that have next
//! to none ([`RESERVE`]). Invariants: no more places are given than there are; one that nobody waits for any more comes back;
//! a waiter behind one that has its part is not looked at.

use std::collections::{HashMap, VecDeque};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::oneshot;

/// Of all places one in 16 is kept for namespaces that have next to none; of these, each may have one in 64.
const RESERVE: (usize, usize) = (16, 64);

/// Whom a place counts for, and which part of what others leave it may have: numerator and denominator.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Claim {
    key: u64,
    part: (usize, usize),
    /// Whether the last places are kept from it once it has some.
    is_outermost: bool,
}

impl Claim {
    /// At most half of what others leave.
    pub(crate) fn half(key: impl Hash) -> Self {
        Self { key: key_of(key), part: (1, 2), is_outermost: false }
    }

    /// At most three quarters of what others leave, so that it is not one of its own that takes all of it.
    pub(crate) fn most(key: impl Hash) -> Self {
        Self { key: key_of(key), part: (3, 4), is_outermost: false }
    }

    /// At most seven eighths of what others leave, and of the last places next to none: for a namespace, whose targets may
    /// have most of it.
    pub(crate) fn nearly_all(key: u64) -> Self {
        Self { key, part: (7, 8), is_outermost: true }
    }
}

/// Of 64 bits: that two share a count by chance harms nobody.
pub(crate) fn key_of(key: impl Hash) -> u64 {
    let mut hasher = DefaultHasher::new();
    key.hash(&mut hasher);
    hasher.finish()
}

/// For whom a place is taken, the widest first.
pub(crate) type Claims = [Claim; 3];

/// A number of places. Clones share them.
#[derive(Clone, Debug)]
pub(crate) struct Shares(Arc<Mutex<State>>);

#[derive(Debug)]
struct State {
    counts: Counts,
    waiters: Waiters,
}

/// Who has how many.
#[derive(Debug)]
struct Counts {
    total: usize,
    used: usize,
    held: HashMap<u64, usize>,
}

/// Those who wait, by whom they wait for; these have their turns one after the other.
#[derive(Debug, Default)]
struct Waiters {
    turns: VecDeque<u64>,
    groups: HashMap<u64, Group>,
}

#[derive(Debug)]
struct Group {
    claim: Claim,
    /// Those who wait for a narrower claim within this one; for the narrowest there are none.
    within: Waiters,
    queue: VecDeque<Waiter>,
}

#[derive(Debug)]
struct Waiter {
    claims: Claims,
    place: oneshot::Sender<Place>,
}

/// A place that is taken; given back when it is dropped.
#[derive(Debug)]
pub(crate) struct Place(Option<(Shares, Claims)>);

impl Shares {
    /// `total` places, at least one.
    pub(crate) fn new(total: usize) -> Self {
        let counts = Counts { total: total.max(1), used: 0, held: HashMap::new() };
        Self(Arc::new(Mutex::new(State { counts, waiters: Waiters::default() })))
    }

    /// A place, if there is one for them now and nobody of theirs waits.
    pub(crate) fn try_take(&self, claims: Claims) -> Option<Place> {
        let mut state = self.lock();
        if !claims.iter().all(|claim| state.counts.fits(claim)) || state.waiters.has(&claims) {
            return None;
        }
        state.counts.take(&claims);
        Some(Place(Some((self.clone(), claims))))
    }

    /// A place, as soon as there is one for them.
    pub(crate) async fn take(&self, claims: Claims) -> Option<Place> {
        if let Some(place) = self.try_take(claims) {
            return Some(place);
        }
        let (sender, place) = oneshot::channel();
        {
            let mut state = self.lock();
            state.waiters.push(&claims, Waiter { claims, place: sender });
            // One may have come back in between.
            self.hand_out(&mut state);
        }
        place.await.ok()
    }

    fn give_back(&self, claims: &Claims) {
        let mut state = self.lock();
        state.counts.give_back(claims);
        self.hand_out(&mut state);
    }

    /// Gives the free places to those who wait, in turn.
    fn hand_out(&self, state: &mut State) {
        let State { counts, waiters } = state;
        while counts.used < counts.total
            && let Some(Waiter { claims, place }) = waiters.next(counts)
        {
            counts.take(&claims);
            if let Err(mut unwanted) = place.send(Place(Some((self.clone(), claims)))) {
                // Its own drop would wait for the lock that is held here.
                unwanted.0 = None;
                counts.give_back(&claims);
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // No change in here can be left half done.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Counts {
    fn fits(&self, claim: &Claim) -> bool {
        let free = self.total - self.used;
        let held = self.held.get(&claim.key).copied().unwrap_or(0);
        let (numerator, denominator) = claim.part;
        let reserve = self.total / RESERVE.0;
        let is_kept = claim.is_outermost && free <= reserve && held >= (reserve / RESERVE.1).max(1);
        free > 0 && held < ((free + held) * numerator / denominator).max(1) && !is_kept
    }

    fn take(&mut self, claims: &Claims) {
        self.used += 1;
        for claim in claims {
            *self.held.entry(claim.key).or_default() += 1;
        }
    }

    fn give_back(&mut self, claims: &Claims) {
        self.used -= 1;
        for claim in claims {
            if let Some(held) = self.held.get_mut(&claim.key) {
                *held -= 1;
                if *held == 0 {
                    self.held.remove(&claim.key);
                }
            }
        }
    }
}

impl Waiters {
    fn push(&mut self, claims: &[Claim], waiter: Waiter) {
        let Some((claim, narrower)) = claims.split_first() else { return };
        let group = self.groups.entry(claim.key).or_insert_with(|| {
            self.turns.push_back(claim.key);
            Group { claim: *claim, within: Waiters::default(), queue: VecDeque::new() }
        });
        if narrower.is_empty() {
            group.sweep();
            group.queue.push_back(waiter);
        } else {
            group.within.push(narrower, waiter);
        }
    }

    /// Whether somebody waits for the same claims.
    fn has(&mut self, claims: &[Claim]) -> bool {
        let Some((claim, narrower)) = claims.split_first() else { return false };
        let Some(group) = self.groups.get_mut(&claim.key) else { return false };
        if !narrower.is_empty() {
            return group.within.has(narrower);
        }
        group.sweep();
        !group.queue.is_empty()
    }

    /// The first one, in turn, for whom there is a place.
    fn next(&mut self, counts: &Counts) -> Option<Waiter> {
        for _ in 0..self.turns.len() {
            let key = self.turns.pop_front()?;
            let Some(group) = self.groups.get_mut(&key) else { continue };
            let next = if counts.fits(&group.claim) { group.next(counts) } else { None };
            if group.is_empty() {
                self.groups.remove(&key);
            } else {
                self.turns.push_back(key);
            }
            if next.is_some() {
                return next;
            }
        }
        None
    }
}

impl Group {
    fn next(&mut self, counts: &Counts) -> Option<Waiter> {
        self.sweep();
        self.queue.pop_front().or_else(|| self.within.next(counts))
    }

    /// Forgets those at the front who have gone.
    fn sweep(&mut self) {
        while self.queue.front().is_some_and(|waiter| waiter.place.is_closed()) {
            self.queue.pop_front();
        }
    }

    fn is_empty(&self) -> bool {
        self.queue.is_empty() && self.within.groups.is_empty()
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        if let Some((shares, claims)) = self.0.take() {
            shares.give_back(&claims);
        }
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]

    use futures::FutureExt as _;

    use super::*;

    fn of(namespace: &str, origin: &str, schedule: u32) -> Claims {
        [Claim::nearly_all(key_of((0, namespace))), Claim::most((1, origin)), Claim::half((2, schedule))]
    }

    fn all(shares: &Shares, claims: Claims) -> Vec<Place> {
        std::iter::from_fn(|| shares.try_take(claims)).collect()
    }

    #[test]
    fn one_that_asks_for_all_leaves_half_to_the_others() {
        let shares = Shares::new(64);
        let hung = all(&shares, of("a", "hung", 1));
        assert_eq!(hung.len(), 32);
        // A second schedule of the same namespace and target has its part, and so has one that has nothing to do with both.
        let second = all(&shares, of("a", "hung", 2));
        assert_eq!(second.len(), 16);
        assert_eq!(all(&shares, of("a", "hung", 3)).len(), 0, "the target has its part");
        // Another target of the same namespace, and another namespace.
        let same = all(&shares, of("a", "fine", 4));
        assert_eq!(same.len(), 8);
        assert_eq!(all(&shares, of("a", "third", 5)).len(), 0, "the namespace has its part");
        let other = all(&shares, of("b", "other", 6));
        assert_eq!(other.len(), 4);
        let mut last = Vec::new();
        for schedule in 7..30 {
            last.extend(shares.try_take(of(&format!("n{schedule}"), &format!("o{schedule}"), schedule)));
        }
        assert_eq!(last.len(), 4, "no more than there are");
        drop((hung, second, same, other, last));
        let state = shares.lock();
        assert_eq!((state.counts.used, state.counts.held.len()), (0, 0));
    }

    #[test]
    fn who_waits_gets_what_comes_back_and_who_has_gone_costs_nothing() {
        let shares = Shares::new(2);
        let (a, b) = (of("a", "a", 1), of("b", "b", 2));
        let first = shares.try_take(a).unwrap();
        let mut gone = Box::pin(shares.take(a));
        let mut waits = Box::pin(shares.take(a));
        assert!((&mut gone).now_or_never().is_none() && (&mut waits).now_or_never().is_none());
        let other = shares.try_take(b).unwrap();
        drop(gone);
        drop(other);
        assert!((&mut waits).now_or_never().is_none(), "a has its part");
        drop(first);
        let place = waits.now_or_never().flatten().unwrap();
        assert!(shares.try_take(a).is_none());
        // One that was handed out and not taken up comes back.
        let mut handed = Box::pin(shares.take(a));
        assert!((&mut handed).now_or_never().is_none());
        drop(place);
        drop(handed);
        assert!(shares.try_take(a).is_some());
        assert_eq!(shares.lock().counts.used, 0);
    }

    #[test]
    fn groups_that_wait_have_their_turns() {
        let shares = Shares::new(1);
        let taken = shares.try_take(of("x", "x", 0)).unwrap();
        let mut crowd: Vec<_> = (0..100).map(|_| Box::pin(shares.take(of("a", "a", 1)))).collect();
        assert!(crowd.iter_mut().all(|one| one.now_or_never().is_none()));
        let mut late = Box::pin(shares.take(of("b", "b", 2)));
        assert!((&mut late).now_or_never().is_none());
        drop(taken);
        let first = crowd.remove(0).now_or_never().flatten().unwrap();
        assert!((&mut late).now_or_never().is_none());
        drop(first);
        assert!(late.now_or_never().flatten().is_some(), "before the rest of the crowd");
    }

    /// All that a namespace gets with several targets and schedules.
    fn greedy(shares: &Shares, namespace: usize) -> Vec<Place> {
        let of =
            |schedule: u32| of(&format!("n{namespace}"), &format!("o{namespace} {}", schedule % 4), schedule);
        (0..16).flat_map(|schedule| all(shares, of(16 * namespace as u32 + schedule))).collect()
    }

    #[test]
    fn after_fifty_greedy_namespaces_there_is_something_for_the_next() {
        for total in [1_024, 2_048, 8_192] {
            let shares = Shares::new(total);
            let held: Vec<_> = (0..50).map(|namespace| greedy(&shares, namespace)).collect();
            let counts: Vec<_> = held.iter().map(Vec::len).collect();
            assert!(counts[0] >= total * 3 / 4, "one that is alone has the most: {counts:?}");
            assert!(counts.iter().all(|count| *count > 0), "{counts:?}");
            let next = greedy(&shares, 50);
            assert!(!next.is_empty(), "{total}: {counts:?}");
        }
    }

    #[test]
    fn what_comes_back_goes_to_namespaces_that_have_little_first() {
        let shares = Shares::new(1_024);
        let mut first = greedy(&shares, 0);
        let _rest: Vec<_> = (1..200).map(|namespace| greedy(&shares, namespace)).collect();
        assert_eq!(shares.lock().counts.used, 1_024);
        // Those who have much stand before the one who has nothing.
        let mut crowd: Vec<_> =
            (0..16).map(|schedule| Box::pin(shares.take(of("n0", "o0 0", schedule)))).collect();
        assert!(crowd.iter_mut().all(|one| one.now_or_never().is_none()));
        let mut late = Box::pin(shares.take(of("late", "late", 9_999)));
        assert!((&mut late).now_or_never().is_none());
        first.pop();
        assert!(late.now_or_never().flatten().is_some());
        assert!(crowd.iter_mut().all(|one| one.now_or_never().is_none()));
    }

    #[test]
    fn a_namespace_with_many_schedules_has_one_turn() {
        let shares = Shares::new(1);
        let taken = shares.try_take(of("x", "x", 0)).unwrap();
        let mut crowd: Vec<_> =
            (0..100).map(|n| Box::pin(shares.take(of("a", &format!("o{n}"), n)))).collect();
        assert!(crowd.iter_mut().all(|one| one.now_or_never().is_none()));
        let mut late = Box::pin(shares.take(of("b", "b", 1_000)));
        assert!((&mut late).now_or_never().is_none());
        drop(taken);
        let first = crowd.remove(0).now_or_never().flatten().unwrap();
        drop(first);
        assert!(late.now_or_never().flatten().is_some(), "before the other schedules");
        drop(crowd);
    }

    #[test]
    fn who_waits_behind_a_full_namespace_is_not_looked_at() {
        let shares = Shares::new(1_024);
        let held = greedy(&shares, 0);
        let mut crowd: Vec<_> =
            (0..500).map(|n| Box::pin(shares.take(of("n0", &format!("w{n}"), 1_000 + n)))).collect();
        assert!(crowd.iter_mut().all(|one| one.now_or_never().is_none()));
        // Those who have gone are forgotten when they are looked at.
        drop(crowd);
        let left = || {
            let state = shares.lock();
            state.waiters.groups.values().map(|group| group.within.groups.len()).sum::<usize>()
        };
        assert_eq!(left(), 500);
        // What another namespace gives back is not for them.
        drop(shares.try_take(of("b", "b", 77_777)).unwrap());
        assert_eq!(left(), 500);
        drop(held);
        assert_eq!((left(), shares.lock().counts.used), (0, 0));
    }
}
