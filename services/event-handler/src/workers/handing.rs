//! The way of one event to its worker.
//!
//! Invariant: an event is written to its worker's stream, or withdrawn, and never both: so it is known of one that has been
//! withdrawn that the worker does not have it.

use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};

use tokio::sync::oneshot;
use tollgate_proto::v1;

use super::taken::Poller;

/// What became of an event that was to be handed over.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// The worker has it; who, where it has no stream.
    Accepted(Option<Poller>),
    /// The worker does not have it.
    NotSent(String),
    /// Nobody knows.
    Unclear(String),
}

/// An event on its way to a worker.
#[derive(Debug)]
pub(super) struct Handed {
    pub(super) event: v1::WorkEvent,
    pub(super) way: Arc<Way>,
    pub(super) reply: oneshot::Sender<Outcome>,
}

/// How far an event has come: it is written or withdrawn, and never both.
#[derive(Debug, Default)]
pub(super) struct Way(AtomicU8);

impl Way {
    const WRITTEN: u8 = 1;
    const WITHDRAWN: u8 = 2;

    /// It is about to be written. False where it has been withdrawn.
    pub(super) fn write(&self) -> bool {
        self.0.compare_exchange(0, Self::WRITTEN, Ordering::AcqRel, Ordering::Acquire).is_ok()
    }

    /// It is not to be written. False where it has been.
    pub(super) fn withdraw(&self) -> bool {
        self.0.compare_exchange(0, Self::WITHDRAWN, Ordering::AcqRel, Ordering::Acquire).is_ok()
    }
}
