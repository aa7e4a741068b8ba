//! What is asked of a cluster's thread, and what it answers.
//!
//! In: a record with the leave to send it. Out: what became of it before it left, or a report to wait for. Invariant: an order is
//! taken by its thread or given up by its sender, whoever is first.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use rdkafka::producer::future_producer::DeliveryFuture;
use tokio::sync::oneshot;
use tokio::time::Instant;
use tollgate_clock::instant_now;
use tollgate_core::model::Sent;

use super::record::Record;
use super::seen::Seen;
use crate::leave::Leave;

/// A record to be handed to its producer.
pub(super) struct Order {
    pub(super) record: Record,
    pub(super) leave: Leave,
    pub(super) deadline: Duration,
    /// By when it must have been handed over.
    pub(super) turn_until: Instant,
    /// It has been taken, or given up.
    pub(super) taken: Arc<AtomicBool>,
    pub(super) reply: oneshot::Sender<Handed>,
}

/// What became of an order.
pub(super) enum Handed {
    /// Nothing has left.
    Kept(Sent),
    /// The producer has it since then.
    Over { report: DeliveryFuture, since: Instant, seen: Arc<Seen> },
}

impl Order {
    /// Takes it, if its sender still waits.
    pub(super) fn take(self) -> Option<Taken> {
        let is_late = instant_now() >= self.turn_until;
        let is_ours = !is_late && !self.taken.swap(true, Ordering::AcqRel);
        let Self { record, leave, deadline, turn_until, reply, .. } = self;
        is_ours.then_some(Taken { record, leave, deadline, turn_until, reply })
    }
}

/// An order whose sender waits for a reply.
pub(super) struct Taken {
    pub(super) record: Record,
    pub(super) leave: Leave,
    pub(super) deadline: Duration,
    pub(super) turn_until: Instant,
    reply: oneshot::Sender<Handed>,
}

impl Taken {
    pub(super) fn keep(self, sent: Sent) {
        self.answer(Handed::Kept(sent));
    }

    pub(super) fn answer(self, handed: Handed) {
        // The sender may have gone with its runtime; then nobody wants to know.
        let _ = self.reply.send(handed);
    }
}
