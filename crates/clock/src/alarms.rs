//! Wakes tasks to a tenth of a millisecond, where the runtime's timers count whole milliseconds and round up.
//!
//! In: an instant. Out: a future that is ready then. One thread sleeps until the next of them. The runtime's own timers serve
//! until shortly before, so that the thread only has to do with what is about to happen.

use std::collections::BTreeMap;
use std::pin::Pin;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

/// For the last so much of its way a task waits for the thread. Longer than the runtime's timers are late.
const LAST: Duration = Duration::from_millis(3);

/// Alarms; clones share the thread, which ends with the last of them.
#[derive(Clone, Debug)]
pub struct Alarms {
    /// None where the system has no thread for it: the runtime's timers must do.
    thread: Option<Arc<Thread>>,
}

/// The thread, from outside.
#[derive(Debug)]
struct Thread {
    shared: Arc<Shared>,
}

#[derive(Debug, Default)]
struct Shared {
    due: Mutex<Due>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct Due {
    /// Who is to be woken, by when and number.
    wakers: BTreeMap<(Instant, u64), Waker>,
    next_number: u64,
    ends: bool,
}

impl Alarms {
    /// Starts the thread.
    pub fn start() -> Self {
        let shared = Arc::<Shared>::default();
        let (thread, within) = (Thread { shared: Arc::clone(&shared) }, shared);
        match std::thread::Builder::new().name("alarms".to_owned()).spawn(move || within.ring()) {
            Ok(_) => Self { thread: Some(Arc::new(thread)) },
            Err(error) => {
                tracing::warn!(%error, "no thread for alarms: launches are up to two milliseconds late");
                Self { thread: None }
            }
        }
    }

    /// Sleeps until then.
    pub async fn at(&self, at: Instant) {
        let Some(thread) = &self.thread else {
            return tokio::time::sleep_until(at.into()).await;
        };
        if let Some(before) = at.checked_sub(LAST)
            && before > Instant::now()
        {
            tokio::time::sleep_until(before.into()).await;
        }
        Alarm { shared: &thread.shared, at, number: None }.await;
    }
}

impl Drop for Thread {
    fn drop(&mut self) {
        self.shared.due().ends = true;
        self.shared.changed.notify_one();
    }
}

impl Shared {
    /// Each change is one call on the map, so a panic elsewhere leaves nothing half done.
    fn due(&self) -> MutexGuard<'_, Due> {
        self.due.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What the thread does.
    fn ring(&self) {
        let mut due = self.due();
        while !due.ends {
            let now = Instant::now();
            due = match due.wakers.first_entry() {
                None => self.changed.wait(due).unwrap_or_else(PoisonError::into_inner),
                Some(first) if first.key().0 > now => {
                    let left = first.key().0 - now;
                    self.changed.wait_timeout(due, left).unwrap_or_else(PoisonError::into_inner).0
                }
                Some(first) => {
                    let waker = first.remove();
                    // Not while the map is locked: what is woken, or dropped with the waker, may want it.
                    drop(due);
                    waker.wake();
                    self.due()
                }
            };
        }
    }
}

/// One instant that somebody waits for.
struct Alarm<'a> {
    shared: &'a Shared,
    at: Instant,
    /// Its number in the map, once it is there.
    number: Option<u64>,
}

impl Future for Alarm<'_> {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        if Instant::now() >= self.at {
            return Poll::Ready(());
        }
        let mut due = self.shared.due();
        let number = self.number.unwrap_or(due.next_number);
        if self.number.is_none() {
            due.next_number += 1;
        }
        let before = due.wakers.insert((self.at, number), cx.waker().clone());
        let is_first =
            before.is_none() && due.wakers.first_key_value().is_some_and(|(key, _)| key.1 == number);
        drop(due);
        drop(before);
        self.number = Some(number);
        if is_first {
            self.shared.changed.notify_one();
        }
        Poll::Pending
    }
}

impl Drop for Alarm<'_> {
    fn drop(&mut self) {
        if let Some(number) = self.number {
            let waker = self.shared.due().wakers.remove(&(self.at, number));
            drop(waker);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn alarms_ring_and_never_early() {
        let alarms = Alarms::start();
        let start = Instant::now();
        let wait = async |after_ms: u64| {
            let at = start + Duration::from_millis(after_ms);
            alarms.at(at).await;
            assert!(Instant::now() >= at, "{after_ms}");
        };
        // The last is set first, and one has passed already.
        let all = async { tokio::join!(wait(60), wait(2), wait(20), wait(0), wait(2), wait(40)) };
        assert!(tokio::time::timeout(Duration::from_secs(10), all).await.is_ok());
    }

    #[tokio::test]
    async fn what_nobody_waits_for_any_more_is_forgotten_and_the_thread_ends() {
        let alarms = Alarms::start();
        let soon = || Instant::now() + Duration::from_millis(2);
        let far = alarms.at(Instant::now() + Duration::from_secs(3_600));
        assert!(tokio::time::timeout(Duration::from_millis(10), far).await.is_err());
        let mut cut = 0;
        for _ in 0..10 {
            // On a busy machine one of them may have rung by then.
            cut += u32::from(tokio::time::timeout(Duration::ZERO, alarms.at(soon())).await.is_err());
        }
        assert!(cut > 0);
        let Some(thread) = alarms.thread.clone() else { return };
        assert!(thread.shared.due().wakers.is_empty());
        let shared = Arc::downgrade(&thread.shared);
        drop((alarms, thread));
        let start = Instant::now();
        while shared.strong_count() > 0 {
            assert!(start.elapsed() < Duration::from_secs(10), "the thread goes on");
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    }
}
