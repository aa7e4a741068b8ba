//! What waits for a call to its queue, as far as it fits into one.
//!
//! In: messages in the order in which they come. Out: the next batch. Invariants: a batch has at most ten messages, and more than
//! [`BATCH_MAX_BYTES`] only where it is a single one; messages keep their order; one that its sender gives up is in no batch.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tokio::sync::{mpsc, oneshot};
use tokio::time::Instant;
use tollgate_clock::instant_now;
use tollgate_core::model::Sent;

use super::message::SqsMessage;
use crate::leave::Leave;

/// Entries that SQS takes in a batch.
const BATCH_MAX_ENTRIES: usize = 10;
/// Bytes of a batch. SQS takes more, but emulators and older queues do not; a larger message is a batch of its own.
const BATCH_MAX_BYTES: usize = 256 * 1024;

#[derive(Debug)]
pub(super) struct WaitingMessage {
    pub(super) message: SqsMessage,
    pub(super) reply: oneshot::Sender<Sent>,
    pub(super) leave: Leave,
    /// It has been taken into a batch, or given up.
    pub(super) taken: Arc<AtomicBool>,
    /// The key of its namespace.
    pub(super) namespace: u64,
}

impl WaitingMessage {
    fn is_late(&self, deadline: Duration) -> bool {
        instant_now() >= self.leave.turn_until(deadline)
    }

    /// Takes it into a batch, if its time has not passed.
    fn take(self, deadline: Duration) -> Option<Self> {
        (!self.is_late(deadline) && !self.taken.swap(true, Ordering::AcqRel)).then_some(self)
    }
}

/// The next batch, and the first message that does not fit into it.
#[derive(Debug)]
pub(super) struct Gathered {
    deadline: Duration,
    batch: Vec<WaitingMessage>,
    bytes: usize,
    left: Option<WaitingMessage>,
}

impl Gathered {
    /// Of a queue whose calls have `deadline`.
    pub(super) fn new(deadline: Duration) -> Self {
        Self { deadline, batch: Vec::new(), bytes: 0, left: None }
    }

    /// The key of the first message's namespace; none where nothing is gathered.
    pub(super) fn namespace(&self) -> Option<u64> {
        self.batch.first().map(|first| first.namespace)
    }

    /// When the first message must have its turn.
    pub(super) fn turn_until(&self) -> Option<Instant> {
        self.batch.first().map(|first| first.leave.turn_until(self.deadline))
    }

    /// Nothing more fits in.
    pub(super) fn is_full(&self) -> bool {
        self.batch.len() >= BATCH_MAX_ENTRIES || self.left.is_some()
    }

    /// Adds a message to one that is not full.
    pub(super) fn push(&mut self, next: WaitingMessage) {
        debug_assert!(!self.is_full());
        if !self.batch.is_empty() && self.bytes + next.message.bytes > BATCH_MAX_BYTES {
            self.left = Some(next);
        } else {
            self.bytes += next.message.bytes;
            self.batch.push(next);
        }
    }

    /// Adds what has arrived, as far as it fits in.
    pub(super) fn fill(&mut self, arriving: &mut mpsc::UnboundedReceiver<WaitingMessage>) {
        while !self.is_full()
            && let Ok(next) = arriving.try_recv()
        {
            self.push(next);
        }
    }

    /// Drops those whose turn did not come in time.
    pub(super) fn forget_late(&mut self) {
        let deadline = self.deadline;
        let left = self.left.take();
        let batch = std::mem::take(&mut self.batch);
        self.bytes = 0;
        batch
            .into_iter()
            .chain(left)
            .filter(|waiting| !waiting.is_late(deadline))
            .for_each(|waiting| self.push(waiting));
    }

    /// The batch, without what its senders have given up meanwhile. What did not fit in begins the next one.
    pub(super) fn take(&mut self) -> Vec<WaitingMessage> {
        let deadline = self.deadline;
        let batch = std::mem::take(&mut self.batch);
        self.bytes = 0;
        if let Some(left) = self.left.take() {
            self.push(left);
        }
        batch.into_iter().filter_map(|waiting| waiting.take(deadline)).collect()
    }
}
