//! One poll: a worker for the time of one call.
//!
//! In: who polls, and until when; events from the desk. Out: the events of its answer. Invariants: what is in the answer counts
//! as accepted, and nothing else does; what its limit keeps back when the answer is made is not in it. Not here: who is given
//! what (`desk`).

use std::time::Duration;

use tokio::sync::mpsc;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tollgate_clock::instant_now;
use tollgate_proto::v1;

use super::book::WorkerId;
use super::desk::Desk;
use super::handing::{Handed, Outcome};
use super::sessions::{Profile, Refused};
use super::taken::Poller;

/// How long an answer that has an event waits for others.
const TOGETHER: Duration = Duration::from_millis(5);
/// How long one that is full, or late, waits for what its room has been promised to.
const PROMISED: Duration = Duration::from_millis(250);

/// A worker for the time of one call.
pub(super) struct Poll<'s> {
    desk: &'s Desk,
    leaving: &'s CancellationToken,
    id: WorkerId,
    from: mpsc::UnboundedReceiver<Box<Handed>>,
    handed: Vec<Handed>,
    most: usize,
}

impl<'s> Poll<'s> {
    /// # Errors
    /// Why it is not taken in.
    pub(super) fn begin(
        desk: &'s Desk,
        leaving: &'s CancellationToken,
        profile: Profile,
        most: u32,
    ) -> Result<Self, Refused> {
        let (id, from) = desk.join(profile, most)?;
        Ok(Self { desk, leaving, id, from, handed: Vec::new(), most: most as usize })
    }

    /// Until there is an event, and a moment longer for others; or until the time is over, or the process is about to end.
    pub(super) async fn wait(&mut self, until: Instant) {
        tokio::select! {
            first = tokio::time::timeout_at(until, self.from.recv()) => {
                self.handed.extend(first.ok().flatten().map(|handed| *handed));
            }
            () = self.leaving.cancelled() => {}
        }
        if !self.handed.is_empty() {
            self.gather(instant_now() + TOGETHER, false).await;
        }
        self.desk.resize(self.id, 0);
        self.gather(instant_now() + PROMISED, true).await;
    }

    async fn gather(&mut self, until: Instant, promised_only: bool) {
        while self.handed.len() < self.most
            && (!promised_only || self.desk.promised(self.id) > self.handed.len())
        {
            let next = if promised_only {
                // What it was promised may be given back instead.
                let look = until.min(instant_now() + TOGETHER);
                match tokio::time::timeout_at(look, self.from.recv()).await {
                    Err(_) if look < until => continue,
                    next => next,
                }
            } else {
                tokio::time::timeout_at(until, self.from.recv()).await
            };
            match next {
                Ok(Some(handed)) => self.handed.push(*handed),
                Ok(None) | Err(_) => return,
            }
        }
    }

    /// What it was given, and may still be written, counts as accepted from now on.
    pub(super) fn end(mut self, by: &Poller) -> Vec<v1::WorkEvent> {
        let mut events = Vec::new();
        for handed in self.handed.drain(..) {
            if let Some(Handed { event, reply, .. }) = handed.write(self.desk.stops()) {
                // Nobody waits for it any more if it comes too late.
                let _late = reply.send(Outcome::Accepted(Some(by.clone())));
                events.push(event);
            }
        }
        if !events.is_empty() {
            self.desk.has_taken(self.id);
        }
        events
    }
}

impl Drop for Poll<'_> {
    fn drop(&mut self) {
        self.desk.leave(self.id);
    }
}
