//! Remembers which lists are being fetched, and what the others wait for.
//!
//! In: runs whose fetch begins, fails or ends. Out: whether there is room for one, which runs need not be looked for, and which
//! lists cannot be fetched. Invariants: a run is fetched once at a time; one namespace has so many places and no more. All of it
//! is forgotten with the process: the next one begins anew.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::{Notify, Semaphore, SemaphorePermit};
use tollgate_core::model::{DAY_US, ItemsFrom, Run, RunId};
use tollgate_core::trouble::Unlisted;
use uuid::Uuid;

/// What a run waits for.
#[derive(Clone, Debug)]
pub(super) struct Waits {
    /// Until when it is not looked at.
    pub(super) until_us: i64,
    /// How many attempts have failed, and how that is told; none where it is merely too early.
    pub(super) failing: Option<(u32, Unlisted)>,
}

#[derive(Debug, Default)]
struct Book {
    /// Fetches under way, with their namespaces.
    under_way: BTreeMap<RunId, String>,
    waits: BTreeMap<RunId, (u16, Waits)>,
}

/// See the head of this file. Cheap to clone.
#[derive(Clone, Debug)]
pub(crate) struct Lists(Arc<(Mutex<Book>, Semaphore, Notify)>);

impl Default for Lists {
    fn default() -> Self {
        Self(Arc::new((Mutex::default(), Semaphore::new(1), Notify::new())))
    }
}

/// A place among the fetches, until it is dropped.
#[derive(Debug)]
pub(super) struct Turn(Lists, RunId);

impl Drop for Turn {
    fn drop(&mut self) {
        self.0.book().under_way.remove(&self.1);
    }
}

impl Lists {
    /// Lists that cannot be fetched as yet.
    pub(crate) fn unlisted(&self) -> Vec<Unlisted> {
        let book = self.book();
        book.waits
            .values()
            .filter_map(|(_, waits)| waits.failing.as_ref())
            .map(|(_, told)| told.clone())
            .collect()
    }

    /// The runs that need not be looked for; none where there is no room for any. What is known of shards that are not these is
    /// forgotten.
    pub(super) fn to_look_for(&self, shards: &[u16], now_us: i64, at_once: usize) -> Option<Vec<Uuid>> {
        let mut book = self.book();
        book.waits.retain(|_, (shard, waits)| {
            shards.binary_search(shard).is_ok() && waits.until_us.saturating_add(DAY_US) > now_us
        });
        if shards.is_empty() || book.under_way.len() >= at_once {
            return None;
        }
        let waiting = book.waits.iter().filter(|(_, (_, waits))| waits.until_us > now_us).map(|(run, _)| run);
        Some(waiting.chain(book.under_way.keys()).map(|run| run.0).collect())
    }

    /// These are all that could be found: whatever was to be looked at by now and is not among them waits no more.
    pub(super) fn forget_others(&self, found: &[Run], now_us: i64) {
        let found: BTreeSet<RunId> = found.iter().map(|run| run.id).collect();
        let mut book = self.book();
        let Book { under_way, waits } = &mut *book;
        waits.retain(|run, (_, waits)| {
            waits.until_us > now_us || found.contains(run) || under_way.contains_key(run)
        });
    }

    /// A place for a run, where there is one.
    pub(super) fn begin(&self, run: &Run, at_once: usize, each: usize) -> Option<Turn> {
        let mut book = self.book();
        let own = book.under_way.values().filter(|namespace| **namespace == run.namespace).count();
        if book.under_way.len() >= at_once || own >= each || book.under_way.contains_key(&run.id) {
            return None;
        }
        book.under_way.insert(run.id, run.namespace.clone());
        Some(Turn(self.clone(), run.id))
    }

    /// How many attempts have failed.
    pub(super) fn attempts(&self, run: RunId) -> u32 {
        let book = self.book();
        let failing = book.waits.get(&run).and_then(|(_, waits)| waits.failing.as_ref());
        failing.map_or(0, |(attempts, _)| *attempts)
    }

    /// It waits. Since when it fails stays as it was.
    pub(super) fn wait(&self, run: &Run, mut waits: Waits) {
        let mut book = self.book();
        let before = book.waits.get(&run.id).and_then(|(_, waits)| waits.failing.as_ref());
        if let (Some((_, now)), Some((_, before))) = (&mut waits.failing, before) {
            now.since_us = before.since_us;
        }
        book.waits.insert(run.id, (run.shard, waits));
    }

    /// It waits for the store; what is known of it stays.
    pub(super) fn wait_for_store(&self, run: &Run, until_us: i64) {
        let mut book = self.book();
        let failing = book.waits.remove(&run.id).and_then(|(_, waits)| waits.failing);
        book.waits.insert(run.id, (run.shard, Waits { until_us, failing }));
    }

    /// It waits no more. Answers how many attempts had failed.
    pub(super) fn forget(&self, run: RunId) -> u32 {
        let waits = self.book().waits.remove(&run);
        waits.and_then(|(_, waits)| waits.failing).map_or(0, |(attempts, _)| attempts)
    }

    /// A turn to write pages: one at a time, so that people find a connection beside it. None only of a closed semaphore, which
    /// this never is.
    pub(super) async fn turn_to_write(&self) -> Option<SemaphorePermit<'_>> {
        self.0.1.acquire().await.ok()
    }

    /// A run waits for its items that are there already.
    pub(crate) fn hurry(&self) {
        self.0.2.notify_one();
    }

    /// Comes to an end once somebody is in a hurry.
    pub(super) async fn hurried(&self) {
        self.0.2.notified().await;
    }

    fn book(&self) -> MutexGuard<'_, Book> {
        self.0.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// How a run is told whose items cannot be fetched.
pub(super) fn unlisted(
    run: &Run,
    (from, policy): (&ItemsFrom, Option<String>),
    since_us: i64,
    words: String,
) -> Unlisted {
    Unlisted {
        namespace: run.namespace.clone(),
        schedule: run.schedule_id.clone(),
        policy: policy.unwrap_or_default(),
        address: from.address().to_owned(),
        launch_us: run.launch_us,
        since_us,
        words,
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]
    use super::*;

    fn run(number: u128, namespace: &str) -> Run {
        Run { id: RunId(Uuid::from_u128(number)), namespace: namespace.to_owned(), ..Run::default() }
    }

    fn failing(until_us: i64, attempts: u32, since_us: i64) -> Waits {
        let told = Unlisted { since_us, ..Unlisted::default() };
        Waits { until_us, failing: Some((attempts, told)) }
    }

    #[test]
    fn a_namespace_leaves_places_to_others() {
        let lists = Lists::default();
        let begin = |number, namespace| lists.begin(&run(number, namespace), 3, 2);
        let (one, _two) = (begin(1, "a").unwrap(), begin(2, "a").unwrap());
        assert!(begin(3, "a").is_none() && begin(1, "b").is_none());
        let _three = begin(4, "b").unwrap();
        assert!(begin(5, "c").is_none() && lists.to_look_for(&[0], 0, 3).is_none());
        drop(one);
        assert_eq!(lists.to_look_for(&[0], 0, 3).unwrap(), [Uuid::from_u128(2), Uuid::from_u128(4)]);
        assert!(begin(5, "c").is_some());
    }

    #[test]
    fn what_waits_is_not_looked_for_before_its_time() {
        let lists = Lists::default();
        let (first, second) = (run(1, "a"), run(2, "a"));
        lists.wait(&first, failing(10, 1, 5));
        lists.wait(&second, Waits { until_us: 20, failing: None });
        assert_eq!(lists.to_look_for(&[0], 9, 3).unwrap().len(), 2);
        assert_eq!(lists.to_look_for(&[0], 10, 3).unwrap(), [second.id.0]);
        assert_eq!(lists.unlisted().len(), 1);
        lists.wait(&first, failing(30, 2, 12));
        assert_eq!((lists.attempts(first.id), lists.unlisted()[0].since_us), (2, 5));
        lists.wait_for_store(&first, 31);
        assert_eq!(lists.attempts(first.id), 2);
        lists.forget_others(&[], 30);
        assert_eq!(lists.unlisted().len(), 1, "it is not to be looked at yet");
        lists.forget_others(std::slice::from_ref(&first), 31);
        assert_eq!(lists.unlisted().len(), 1, "it is there");
        lists.forget_others(&[], 31);
        assert_eq!((lists.unlisted().len(), lists.forget(first.id)), (0, 0));
        lists.wait(&first, failing(10, 1, 5));
        assert!(lists.to_look_for(&[1], 0, 3).unwrap().is_empty(), "its shard is another's by now");
    }
}
