//! The way of one event to its worker.
//!
//! In: an event, with until when and on whose word it may be written. Out: whether it is written. Invariants: an event is written
//! to its worker, or withdrawn, and never both: so it is known of one that has been withdrawn that the worker does not have it;
//! whoever writes it looks right before whether it still may be. Not here: who hands it over (`giving`), and who writes it.

use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::time::Duration;

use tokio::sync::oneshot;
use tokio::time::Instant;
use tollgate_clock::instant_now;
use tollgate_proto::v1;
use tollgate_target::{Leave, Withheld};

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

/// Until when, and on whose word, an event may be written to its worker.
#[derive(Debug)]
pub(super) enum Limit {
    /// That of an event of a shard of this process, with a deadline of this length: its owner may take it back, and must be
    /// trusted to have the shard.
    Own(Leave, Duration),
    /// That of an event of another process: nothing is known here but the time, and that only as long as the machine has stood
    /// still no more often than this, which is how often it had when the room was lent.
    Lent(Instant, u64),
}

impl Limit {
    /// When its time is over.
    pub(super) fn until(&self) -> Instant {
        match self {
            Self::Own(leave, deadline) => leave.until(*deadline),
            Self::Lent(until, _) => *until,
        }
    }

    /// Whether the event may still be written, now that the machine may have stood still `stops` times.
    ///
    /// # Errors
    /// Why it may not.
    pub(super) fn check(&self, stops: u64) -> Result<(), Withheld> {
        match self {
            Self::Own(leave, deadline) => leave.check(*deadline),
            Self::Lent(until, _) if instant_now() >= *until => Err(Withheld::Late),
            // The clock by which its time is counted has not counted all of it.
            Self::Lent(_, before) if stops > *before => Err(Withheld::StoodStill),
            Self::Lent(..) => Ok(()),
        }
    }
}

/// An event on its way to a worker.
#[derive(Debug)]
pub(super) struct Handed {
    pub(super) event: v1::WorkEvent,
    pub(super) limit: Limit,
    pub(super) way: Arc<Way>,
    pub(super) reply: oneshot::Sender<Outcome>,
}

impl Handed {
    /// To be called right before it is written, with how often the machine may have stood still: itself, if it may be. One whose
    /// limit is over is withdrawn, and its giver hears so.
    pub(super) fn write(self, stops: u64) -> Option<Self> {
        match self.limit.check(stops) {
            Ok(()) => self.way.write().then_some(self),
            Err(withheld) => {
                if self.way.withdraw() {
                    // Its giver may have gone.
                    let _gone = self.reply.send(Outcome::NotSent(withheld.to_string()));
                }
                None
            }
        }
    }
}

/// How far an event has come: it is written or withdrawn, and never both.
#[derive(Debug, Default)]
pub(super) struct Way(AtomicU8);

impl Way {
    const WRITTEN: u8 = 1;
    const WITHDRAWN: u8 = 2;

    /// It is about to be written. False where it has been withdrawn.
    fn write(&self) -> bool {
        self.0.compare_exchange(0, Self::WRITTEN, Ordering::AcqRel, Ordering::Acquire).is_ok()
    }

    /// It is not to be written: whether that is so, whoever has withdrawn it. False where it has been written.
    pub(super) fn withdraw(&self) -> bool {
        let before = self.0.compare_exchange(0, Self::WITHDRAWN, Ordering::AcqRel, Ordering::Acquire);
        matches!(before, Ok(_) | Err(Self::WITHDRAWN))
    }
}
