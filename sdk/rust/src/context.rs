//! What a handler has beside its event: the attempt, heartbeats by hand, and the word that the token is lost.

use std::sync::Arc;

use tokio_util::sync::CancellationToken;

use crate::calls::{Beat, Calls};

/// The event is held no more under any attempt that this worker has: work on it is not needed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the event is no longer held by this worker")]
pub struct TokenLost;

/// What a handler has beside its event.
#[derive(Clone, Debug)]
pub struct Context {
    pub(crate) id: String,
    pub(crate) attempt: u32,
    /// Not so where it has given its token back already.
    pub(crate) has_token: bool,
    pub(crate) calls: Arc<Calls>,
    pub(crate) lost: CancellationToken,
}

impl Context {
    /// The event's attempt.
    pub fn attempt(&self) -> u32 {
        self.attempt
    }

    /// Waits until the token is lost, or the worker has stopped.
    pub async fn cancelled(&self) {
        self.lost.cancelled().await;
    }

    /// Whether the token is lost, or the worker has stopped.
    pub fn is_cancelled(&self) -> bool {
        self.lost.is_cancelled()
    }

    /// Keeps the token by hand, beside the heartbeats that are sent anyway. One that fails for now is no error. An event with
    /// `release: on_response` has no token to keep: nothing is sent.
    ///
    /// # Errors
    /// The event is held no more.
    pub async fn heartbeat(&self) -> Result<(), TokenLost> {
        match self.beat().await {
            Beat::Lost => Err(TokenLost),
            Beat::Held(_) | Beat::Failed(_) => Ok(()),
        }
    }

    pub(crate) async fn beat(&self) -> Beat {
        if !self.has_token {
            return Beat::Held(None);
        }
        let beat = self.calls.beat(&self.id, self.attempt).await;
        if matches!(beat, Beat::Lost) {
            self.lost.cancel();
        }
        beat
    }
}
