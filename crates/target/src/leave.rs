//! Until when, and on whose word, a delivery may leave this process.
//!
//! Whoever takes a shard over waits until the deadlines of the deliveries under way are over, counted from the moment at which
//! the owner was last seen to have the shard. So a deadline begins with that look, not with a delivery's turn, and the look
//! is repeated right before the bytes.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

/// A delivery's leave to be sent. Clones are the same one.
#[derive(Clone)]
pub struct Leave {
    began: Instant,
    trusted: Option<Arc<dyn Fn() -> bool + Send + Sync>>,
}

impl Leave {
    /// Begins now, when whoever gives it has just looked whether it may. `trusted` looks again.
    pub fn now(trusted: impl Fn() -> bool + Send + Sync + 'static) -> Self {
        Self { began: Instant::now(), trusted: Some(Arc::new(trusted)) }
    }

    /// Begins now and is never taken back.
    pub fn always() -> Self {
        Self { began: Instant::now(), trusted: None }
    }

    /// When a deadline of this length is over. Nothing is written later.
    pub(crate) fn until(&self, deadline: Duration) -> Instant {
        self.began + deadline
    }

    /// By when a delivery must have had its turn: the rest is its target's.
    pub(crate) fn turn_until(&self, deadline: Duration) -> Instant {
        self.began + deadline / 2
    }

    /// Whether it may still leave.
    ///
    /// # Errors
    /// Why it may not.
    pub(crate) fn check(&self, deadline: Duration) -> Result<(), Withheld> {
        if Instant::now() >= self.until(deadline) {
            return Err(Withheld::Late);
        }
        match &self.trusted {
            Some(trusted) if !trusted() => Err(Withheld::Lost),
            _ => Ok(()),
        }
    }
}

impl fmt::Debug for Leave {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Leave").field("began", &self.began).finish_non_exhaustive()
    }
}

/// Why a delivery may not leave any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Withheld {
    /// Its deadline is over.
    #[error("its deadline was over before its turn came")]
    Late,
    /// The shard may be another process's by now.
    #[error("this process may have lost the queue shard meanwhile")]
    Lost,
}
