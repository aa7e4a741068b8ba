//! Deliveries by key, each key with a task while it has any: those of one key are gathered.
//!
//! In: a delivery and its key. Out: each of them at the task of its key, which is started where there is none, and retires when
//! nothing has come for a while. Invariant: what is put in reaches a task, also where one retires at the same moment. Not
//! here: what a task makes of them (`sqs`, `http::batches`).

use std::collections::HashMap;
use std::hash::Hash;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::mpsc;

/// The keys that have a task, each with the way to it.
#[derive(Debug)]
pub(crate) struct Tasks<K, W> {
    by_key: Mutex<HashMap<K, mpsc::UnboundedSender<W>>>,
    /// A task ends after this long without work.
    idle_max: Duration,
}

impl<K: Clone + Eq + Hash, W> Tasks<K, W> {
    pub(crate) fn new(idle_max: Duration) -> Self {
        Self { by_key: Mutex::default(), idle_max }
    }

    /// Hands work to its key's task; `start` begins one where there is none.
    pub(crate) fn put(&self, key: K, work: W, start: impl FnOnce(K, mpsc::UnboundedReceiver<W>)) {
        let mut tasks = self.lock();
        let work = match tasks.get(&key) {
            None => work,
            Some(task) => match task.send(work) {
                Ok(()) => return,
                // Its task has gone with the runtime that ran it.
                Err(mpsc::error::SendError(work)) => work,
            },
        };
        let (task, arriving) = mpsc::unbounded_channel();
        // The receiver is at hand, so this cannot fail.
        let put = task.send(work);
        debug_assert!(put.is_ok());
        tasks.insert(key.clone(), task);
        start(key, arriving);
    }

    /// The next work of a task; none once it has retired.
    pub(crate) async fn next(&self, key: &K, arriving: &mut mpsc::UnboundedReceiver<W>) -> Option<W> {
        loop {
            match tokio::time::timeout(self.idle_max, arriving.recv()).await {
                Ok(next) => return next,
                Err(_) if self.retire(key, arriving) => return None,
                Err(_) => {}
            }
        }
    }

    /// Takes an idle task out; work is put in under the same lock, so none is left behind.
    fn retire(&self, key: &K, arriving: &mpsc::UnboundedReceiver<W>) -> bool {
        let mut tasks = self.lock();
        arriving.is_empty() && tasks.remove(key).is_some()
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<K, mpsc::UnboundedSender<W>>> {
        // Each change is one call on the map, so a panic elsewhere leaves nothing half done.
        self.by_key.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_task_retires_only_when_nothing_waits() {
        let tasks = Tasks::new(Duration::from_millis(20));
        let mut started = None;
        tasks.put("a", 1, |_, arriving| started = Some(arriving));
        let Some(mut arriving) = started else { panic!("no task") };
        tasks.put("a", 2, |_, _| panic!("it has a task"));
        assert!(!tasks.retire(&"a", &arriving));
        assert_eq!(tasks.next(&"a", &mut arriving).await, Some(1));
        assert_eq!(tasks.next(&"a", &mut arriving).await, Some(2));
        assert_eq!(tasks.next(&"a", &mut arriving).await, None, "nothing comes");
        assert!(tasks.lock().is_empty());
        // One that has gone without retiring is replaced.
        let mut again = 0;
        for work in 0..2 {
            tasks.put("b", work, |_, arriving| {
                again += 1;
                drop(arriving);
            });
        }
        assert_eq!(again, 2);
    }
}
