//! Until when, and on whose word, a delivery may leave this process.
//!
//! The next owner of a shard waits until the deadlines of the deliveries under way are over, counted from the moment at which
//! the owner was last seen to have the shard. So a deadline begins with that look, not with a delivery's turn, and the look
//! is repeated right before the bytes.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tokio::time::Instant;
use tollgate_clock::instant_now;

/// A delivery's leave to be sent. Clones are the same one.
#[derive(Clone)]
pub struct Leave(Arc<Inner>);

struct Inner {
    began: Instant,
    trusted: Option<Trusted>,
    is_revoked: AtomicBool,
}

type Trusted = Box<dyn Fn() -> bool + Send + Sync>;

impl Leave {
    /// Begins now: its giver has just looked whether it may be given. `trusted` looks again.
    pub fn now(trusted: impl Fn() -> bool + Send + Sync + 'static) -> Self {
        Self::new(Some(Box::new(trusted)))
    }

    /// Begins now, and asks nobody.
    pub fn always() -> Self {
        Self::new(None)
    }

    /// That of several deliveries with a deadline of this length that leave together: it began with the earliest, and looks at
    /// each.
    pub(crate) fn together(all: Vec<Self>, deadline: Duration) -> Self {
        let began = all.iter().map(|leave| leave.0.began).min().unwrap_or_else(instant_now);
        let trusted: Trusted = Box::new(move || all.iter().all(|leave| leave.check(deadline).is_ok()));
        Self(Arc::new(Inner { began, trusted: Some(trusted), is_revoked: AtomicBool::new(false) }))
    }

    fn new(trusted: Option<Trusted>) -> Self {
        Self(Arc::new(Inner { began: instant_now(), trusted, is_revoked: AtomicBool::new(false) }))
    }

    /// Takes it back: nobody wants the delivery any more. One that has begun to be written goes on.
    pub fn revoke(&self) {
        self.0.is_revoked.store(true, Ordering::Release);
    }

    /// When a deadline of this length is over. Nothing is written later.
    pub fn until(&self, deadline: Duration) -> Instant {
        self.0.began + deadline
    }

    /// Waits for something that a delivery with a deadline of this length needs before it can leave; none where its turn came too
    /// late.
    pub async fn in_turn<T>(&self, deadline: Duration, turn: impl Future<Output = T>) -> Option<T> {
        tokio::time::timeout_at(self.turn_until(deadline), turn).await.ok()
    }

    /// By when a delivery must have had its turn: the rest is its target's.
    pub(crate) fn turn_until(&self, deadline: Duration) -> Instant {
        self.0.began + deadline / 2
    }

    /// Whether it may still leave.
    ///
    /// # Errors
    /// Why it may not.
    pub fn check(&self, deadline: Duration) -> Result<(), Withheld> {
        if instant_now() >= self.until(deadline) {
            return Err(Withheld::Late);
        }
        if self.0.is_revoked.load(Ordering::Acquire) {
            return Err(Withheld::Revoked);
        }
        match &self.0.trusted {
            Some(trusted) if !trusted() => Err(Withheld::Lost),
            _ => Ok(()),
        }
    }
}

impl fmt::Debug for Leave {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Leave").field("began", &self.0.began).finish_non_exhaustive()
    }
}

/// Why a delivery may not leave any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Withheld {
    /// Its deadline is over.
    #[error("its deadline was over before its turn came")]
    Late,
    /// Its event has been released meanwhile, or its queue shard given up.
    #[error("its event was released before its turn came, or its queue shard given up")]
    Revoked,
    /// The shard may be another process's by now.
    #[error("this process may have lost the queue shard meanwhile")]
    Lost,
    /// The machine may have stood still, its clock with it: no clock there tells whether the deadline is over.
    #[error("its deadline may be over: the machine of its worker's process may have stood still")]
    StoodStill,
}
