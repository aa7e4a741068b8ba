//! Hands out a limited number of places so that nobody takes all of them.
//!
//! Whoever takes a place names what it is taken for: a namespace, a target, a schedule. Each of them may have a part of what
//! the others leave free. So a place is left for the next one, however many one of them asks for, and one that is alone has
//! the most. Invariants: no more places are given than there are; one that nobody waits for any more comes back.

use std::collections::{HashMap, VecDeque};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::oneshot;

/// Whom a place counts for, and which part of what others leave it may have: numerator and denominator.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Claim {
    key: u64,
    part: (usize, usize),
}

impl Claim {
    /// At most half of what others leave.
    pub(crate) fn half(key: impl Hash) -> Self {
        Self { key: key_of(key), part: (1, 2) }
    }

    /// At most three quarters of what others leave, so that it is not one of its own that takes all of it.
    pub(crate) fn most(key: impl Hash) -> Self {
        Self { key: key_of(key), part: (3, 4) }
    }

    /// At most seven eighths of what others leave: for a namespace, whose targets may have most of it.
    pub(crate) fn nearly_all(key: u64) -> Self {
        Self { key, part: (7, 8) }
    }
}

/// Of 64 bits: that two share a count by chance harms nobody.
pub(crate) fn key_of(key: impl Hash) -> u64 {
    let mut hasher = DefaultHasher::new();
    key.hash(&mut hasher);
    hasher.finish()
}

/// For whom a place is taken.
pub(crate) type Claims = [Claim; 3];

/// A number of places. Clones share them.
#[derive(Clone, Debug)]
pub(crate) struct Shares(Arc<Mutex<State>>);

#[derive(Debug)]
struct State {
    total: usize,
    used: usize,
    held: HashMap<u64, usize>,
    /// Those who wait, by whom they wait for; the groups have their turns one after the other.
    waiting: VecDeque<Group>,
}

#[derive(Debug)]
struct Group {
    claims: Claims,
    queue: VecDeque<oneshot::Sender<Place>>,
}

/// A place that is taken; given back when it is dropped.
#[derive(Debug)]
pub(crate) struct Place(Option<(Shares, Claims)>);

impl Shares {
    /// So many places, at least one.
    pub(crate) fn new(total: usize) -> Self {
        Self(Arc::new(Mutex::new(State {
            total: total.max(1),
            used: 0,
            held: HashMap::new(),
            waiting: VecDeque::new(),
        })))
    }

    /// A place, if there is one for them now and nobody of theirs waits.
    pub(crate) fn try_take(&self, claims: Claims) -> Option<Place> {
        let mut state = self.lock();
        if !state.fits(&claims) || state.waiting.iter().any(|group| group.claims == claims && group.is_used())
        {
            return None;
        }
        state.take(&claims);
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
            match state.waiting.iter_mut().find(|group| group.claims == claims) {
                Some(group) => group.queue.push_back(sender),
                None => state.waiting.push_back(Group { claims, queue: VecDeque::from([sender]) }),
            }
            // One may have come back in between.
            self.hand_out(&mut state);
        }
        place.await.ok()
    }

    fn give_back(&self, claims: &Claims) {
        let mut state = self.lock();
        state.give_back(claims);
        self.hand_out(&mut state);
    }

    /// Gives the free places to those who wait, one of each group in turn.
    fn hand_out(&self, state: &mut State) {
        let mut passed_over = 0;
        while passed_over < state.waiting.len() {
            let Some(mut group) = state.waiting.pop_front() else { return };
            while group.queue.front().is_some_and(oneshot::Sender::is_closed) {
                group.queue.pop_front();
            }
            if group.queue.is_empty() {
                continue;
            }
            if !state.fits(&group.claims) {
                passed_over += 1;
                state.waiting.push_back(group);
                continue;
            }
            passed_over = 0;
            if let Some(first) = group.queue.pop_front() {
                state.take(&group.claims);
                if let Err(mut place) = first.send(Place(Some((self.clone(), group.claims)))) {
                    // Its own drop would wait for the lock that is held here.
                    place.0 = None;
                    state.give_back(&group.claims);
                }
            }
            state.waiting.push_back(group);
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // No change in here can be left half done.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn fits(&self, claims: &Claims) -> bool {
        let free = self.total - self.used;
        let fits = |claim: &Claim| {
            let held = self.held.get(&claim.key).copied().unwrap_or(0);
            let (numerator, denominator) = claim.part;
            held < ((free + held) * numerator / denominator).max(1)
        };
        free > 0 && claims.iter().all(fits)
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

impl Group {
    fn is_used(&self) -> bool {
        self.queue.iter().any(|sender| !sender.is_closed())
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
        assert_eq!((state.used, state.held.len()), (0, 0));
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
        assert_eq!(shares.lock().used, 0);
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
}
