//! Decides how much each owner gets of something that many share: bytes in flight, turns at the store.
//!
//! In: an owner, and how much it asks for. Out: room, as soon as there is some. Invariants: no owner has more than its bound, nor
//! all together more than the common one; the first request is served first, among its owner's and then among all; one that
//! waits for the common room has its owner's already, so that an owner that asks for much waits there with no more than its
//! bound. Not here: what is shared.

use std::collections::HashMap;
use std::hash::Hash;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// Owners after which those who have and want nothing are forgotten.
const SWEEP_AT: usize = 1024;

/// Room that many share; cheap to clone.
#[derive(Debug)]
pub struct Rooms<K>(Arc<Inner<K>>);

impl<K> Clone for Rooms<K> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

#[derive(Debug)]
struct Inner<K> {
    all: Arc<Semaphore>,
    each_max: usize,
    own: Mutex<HashMap<K, Weak<Semaphore>>>,
}

/// Room that is taken; given back when dropped.
#[derive(Debug)]
#[must_use = "it is given back when dropped"]
pub struct Room {
    own: OwnedSemaphorePermit,
    all: OwnedSemaphorePermit,
}

impl Room {
    /// Gives all back but one unit.
    pub fn shrink(&mut self) {
        for permit in [&mut self.own, &mut self.all] {
            drop(permit.split(permit.num_permits().saturating_sub(1)));
        }
    }
}

impl<K: Eq + Hash> Rooms<K> {
    /// `all_max` units in all, of which each owner has at most `each_max`.
    pub fn new(all_max: usize, each_max: usize) -> Self {
        let all_max = all_max.clamp(1, Semaphore::MAX_PERMITS.min(u32::MAX as usize));
        let all = Arc::new(Semaphore::new(all_max));
        Self(Arc::new(Inner { all, each_max: each_max.clamp(1, all_max), own: Mutex::default() }))
    }

    /// Waits for `units` units. More than one owner's bound counts as that: it is then alone with it.
    pub async fn take(&self, owner: K, units: usize) -> Room {
        let units = u32::try_from(units.clamp(1, self.0.each_max)).unwrap_or(u32::MAX);
        let own = take(self.of(owner), units).await;
        let all = take(self.0.all.clone(), units).await;
        Room { own, all }
    }

    fn of(&self, owner: K) -> Arc<Semaphore> {
        let mut owners = self.0.own.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(own) = owners.get(&owner).and_then(Weak::upgrade) {
            return own;
        }
        if owners.len() >= SWEEP_AT {
            owners.retain(|_, own| own.strong_count() > 0);
        }
        let own = Arc::new(Semaphore::new(self.0.each_max));
        owners.insert(owner, Arc::downgrade(&own));
        own
    }
}

#[expect(clippy::expect_used, reason = "nothing here closes a semaphore")]
async fn take(semaphore: Arc<Semaphore>, units: u32) -> OwnedSemaphorePermit {
    semaphore.acquire_many_owned(units).await.expect("a semaphore that is never closed")
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]
    use std::time::Duration;

    use super::*;

    async fn soon(rooms: &Rooms<&'static str>, owner: &'static str, units: usize) -> Option<Room> {
        tokio::time::timeout(Duration::from_millis(50), rooms.take(owner, units)).await.ok()
    }

    #[tokio::test]
    async fn one_leaves_room_for_the_others() {
        let rooms = Rooms::new(6, 2);
        let first = soon(&rooms, "a", 2).await.unwrap();
        assert!(soon(&rooms, "a", 1).await.is_none(), "its own is taken");
        let others = [soon(&rooms, "b", 2).await.unwrap(), soon(&rooms, "c", 2).await.unwrap()];
        assert!(soon(&rooms, "d", 1).await.is_none(), "all is taken");
        drop(first);
        assert!(soon(&rooms, "d", 1).await.is_some());
        drop(others);
        assert!(soon(&rooms, "a", 100).await.is_some(), "what is too large takes all that it may");
    }

    #[tokio::test]
    async fn who_waits_for_much_stands_in_the_common_line_once() {
        let rooms = Rooms::new(2, 1);
        let taken = [soon(&rooms, "a", 1).await.unwrap(), soon(&rooms, "b", 1).await.unwrap()];
        let greedy: Vec<_> = (0..100)
            .map(|_| {
                let rooms = rooms.clone();
                tokio::spawn(async move {
                    let _room = rooms.take("greedy", 1).await;
                    tokio::time::sleep(Duration::from_secs(600)).await;
                })
            })
            .collect();
        tokio::task::yield_now().await;
        drop(taken);
        assert!(soon(&rooms, "victim", 1).await.is_some(), "behind one of a hundred, not behind all");
        greedy.into_iter().for_each(|task| task.abort());
    }

    #[tokio::test]
    async fn one_that_shrinks_lets_others_in_but_nobody_is_alone() {
        let rooms = Rooms::new(10, 3);
        let mut first = soon(&rooms, "a", 3).await.unwrap();
        assert!(soon(&rooms, "a", 1).await.is_none());
        first.shrink();
        first.shrink();
        let second = soon(&rooms, "a", 2).await.unwrap();
        assert!(soon(&rooms, "a", 1).await.is_none());
        drop(second);
        assert!(soon(&rooms, "a", 3).await.is_none());
        drop(first);
        assert!(soon(&rooms, "a", 3).await.is_some());
        assert!(soon(&rooms, "b", 3).await.is_some());
    }

    #[tokio::test]
    async fn whoever_gives_up_waiting_leaves_nothing_behind() {
        let rooms = Rooms::new(2, 2);
        let all = soon(&rooms, "a", 2).await;
        for _ in 0..10 {
            assert!(soon(&rooms, "b", 2).await.is_none());
        }
        drop(all);
        assert!(soon(&rooms, "b", 2).await.is_some());
    }

    #[tokio::test]
    async fn those_who_have_nothing_are_forgotten() {
        let rooms = Rooms::new(10, 2);
        for owner in 0..3 * SWEEP_AT {
            drop(rooms.take(owner, 1).await);
        }
        assert!(rooms.0.own.lock().unwrap().len() <= SWEEP_AT);
    }
}
