//! Whether the process can do its work: named checks, each asked within a time.
//!
//! Invariants: a check that hangs is not asked again before it has ended, and is never broken off half-way: it may hold
//! a connection of the store.

use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use futures::FutureExt as _;
use futures::future::{BoxFuture, Shared};
use tokio::task::AbortHandle;

/// How long a check may take.
const CHECK_MAX: Duration = Duration::from_secs(2);

type Answer = Result<(), String>;
type Ask = dyn Fn() -> BoxFuture<'static, Answer> + Send + Sync;
type UnderWay = Shared<Pin<Box<dyn Future<Output = Answer> + Send>>>;

/// One thing that must hold. Cheap to clone.
#[derive(Clone)]
pub struct Check {
    /// Its name in the answer.
    name: &'static str,
    ask: Arc<Ask>,
    within: Duration,
    /// The last question, and the task that asks it.
    under_way: Arc<Mutex<Option<(UnderWay, AbortHandle)>>>,
}

/// A check by this name: `ask` says why it does not hold.
pub fn check<F>(name: &'static str, ask: impl Fn() -> F + Send + Sync + 'static) -> Check
where
    F: Future<Output = Result<(), String>> + Send + 'static,
{
    let ask = Arc::new(move || ask().boxed());
    Check { name, ask, within: CHECK_MAX, under_way: Arc::default() }
}

impl Check {
    async fn holds(&self) -> Answer {
        match tokio::time::timeout(self.within, self.asked()).await {
            Ok(answer) => answer,
            Err(_) => Err(format!("no answer within {} ms", self.within.as_millis())),
        }
    }

    /// The question under way, or a new one.
    fn asked(&self) -> UnderWay {
        let mut under_way = self.under_way.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((asked, _)) = under_way.as_ref().filter(|(_, task)| !task.is_finished()) {
            return asked.clone();
        }
        // A task of its own ends although nobody waits for it any more.
        let task = tokio::spawn((self.ask)());
        let handle = task.abort_handle();
        let asked = async move { task.await.unwrap_or_else(|error| Err(error.to_string())) }.boxed().shared();
        *under_way = Some((asked.clone(), handle));
        asked
    }
}

/// What does not hold: names and reasons, in the order of the checks.
pub(crate) async fn failing(checks: &[Check]) -> Vec<(&'static str, String)> {
    let asked = checks.iter().map(|check| async move { (check.name, check.holds().await) });
    let answers = futures::future::join_all(asked).await;
    answers.into_iter().filter_map(|(name, answer)| Some((name, answer.err()?))).collect()
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU32, Ordering};

    use super::*;

    #[tokio::test]
    async fn a_check_that_hangs_is_asked_once() {
        static ASKED: AtomicU32 = AtomicU32::new(0);
        let hangs = check("store", || async {
            if ASKED.fetch_add(1, Ordering::SeqCst) == 0 {
                tokio::time::sleep(Duration::from_secs(1)).await;
            }
            Ok(())
        });
        let hangs = Check { within: Duration::from_millis(50), ..hangs };
        let checks = [check("role", || async { Err("not yet".to_owned()) }), hangs];
        for _ in 0..2 {
            let failing = failing(&checks).await;
            assert_eq!(failing.len(), 2, "{failing:?}");
            assert_eq!(failing[1], ("store", "no answer within 50 ms".to_owned()));
        }
        assert_eq!(ASKED.load(Ordering::SeqCst), 1);
        tokio::time::sleep(Duration::from_millis(1_500)).await;
        assert_eq!(failing(&checks).await.len(), 1, "it has ended, and is asked anew");
        assert_eq!(ASKED.load(Ordering::SeqCst), 2);
    }
}
