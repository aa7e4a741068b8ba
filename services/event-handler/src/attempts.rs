//! Keeps what targets said of deliveries, for people who ask why an event is where it is.
//!
//! In: every delivery on its way to its target. Out: the attempts of one event; once a second, rows for the store.
//! Invariants: memory is bounded, the oldest goes first; a first delivery that is taken, which nearly all are, costs
//! nothing and leaves nothing. What a process that dies takes with it is what was said since [`EVERY`]. Not here: anything
//! that decides: nothing is read back but to be shown.

use std::collections::{BTreeMap, VecDeque};
use std::sync::atomic::AtomicI64;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio_util::sync::CancellationToken;
use tollgate_clock::Clock;
use tollgate_core::model::{Delivery, EventRef, MINUTE_US, RunId, Sent};
use tollgate_metrics::Role;
use tollgate_proto::{convert, v1};
use tollgate_store::attempts::AttemptRow;
use tollgate_target::{Leave, Targets};

use crate::Shared;
use crate::workers::{Desk, Outcome, RoomUnit};

/// The most attempts that wait to be written, of all events together. They take some 20 MB.
const KEPT_MAX: usize = 20_000;
/// The most characters of an answer that are kept.
const MESSAGE_CHARS: usize = 500;
/// How often attempts are written.
const EVERY: Duration = Duration::from_secs(1);
/// How many one transaction writes at most, and how many transactions there are each time.
const ROWS_AT_ONCE: usize = 1_000;
const WRITES_AT_ONCE: usize = 5;

/// Room at a worker for one event.
#[derive(Debug)]
pub(crate) struct PulledBy {
    pub(crate) desk: Desk,
    /// The shard where the event is, and the event as its id names it.
    pub(crate) shard: u16,
    pub(crate) event: EventRef,
    pub(crate) unit: Option<RoomUnit>,
    /// For how long the worker may be silent, in milliseconds: until its token could be taken back; and, as it is told, until it
    /// is under suspicion, where that may be.
    pub(crate) silence_ms: i64,
    pub(crate) token_ttl_ms: Option<i64>,
}

impl PulledBy {
    async fn give(self, targets: &Targets, delivery: Delivery, leave: &Leave) -> Sent {
        let Some(unit) = self.unit else {
            return not_sent("not sent: no worker has room for it any more".to_owned());
        };
        let deadline = Duration::from_millis(delivery.spec.target.deadline_ms().try_into().unwrap_or(0));
        let explicit = delivery.explicit_release;
        let (name, attempt, spec) = (delivery.event_id.to_string(), delivery.attempt, delivery.spec.clone());
        let event = match targets.document(delivery) {
            Ok(event) => event,
            Err(sent) => return sent,
        };
        if let Err(withheld) = leave.check(deadline) {
            return not_sent(format!("not sent: {withheld}"));
        }
        let token_ttl = self.token_ttl_ms.map(convert::duration_of_ms);
        let event = v1::WorkEvent { name, attempt, event, token_ttl };
        match self.desk.give(unit, event, (leave, deadline)).await {
            Outcome::Accepted(by) => {
                if let Some(by) = by {
                    if explicit {
                        self.desk.took((self.shard, self.event), attempt, &spec, (by, self.silence_ms));
                    }
                } else {
                    // One with a stream has it, whoever had it before.
                    self.desk.is_under(self.shard, (self.event.run, self.event.index), || None);
                }
                Sent::Accepted
            }
            Outcome::NotSent(message) => not_sent(format!("not sent: {message}")),
            Outcome::Unclear(message) => Sent::Unclear { message, retry_after_ms: None },
        }
    }
}

fn not_sent(message: String) -> Sent {
    Sent::NotSent { message, retry_after_ms: None }
}

/// Attempts that have not been written yet, earliest first.
#[derive(Debug, Default)]
struct Book {
    rows: VecDeque<AttemptRow>,
    /// How many have left it.
    left: u64,
}

/// The targets, and what they said. Clones share everything.
#[derive(Clone, Debug)]
pub(crate) struct Witness {
    targets: Targets,
    clock: Clock,
    book: Arc<Mutex<Book>>,
    /// When the log was told last of events that could not be sent (monotonic).
    complained_us: Arc<AtomicI64>,
}

impl Witness {
    /// Nothing has been said yet.
    pub(crate) fn new(targets: Targets, clock: Clock) -> Self {
        let complained_us = Arc::new(AtomicI64::new(i64::MIN));
        Self { targets, clock, book: Arc::default(), complained_us }
    }

    /// Delivers one event once: to its target, or to a worker that takes it.
    pub(crate) async fn send(
        &self,
        run: RunId,
        delivery: Delivery,
        leave: Leave,
        pulled: Option<PulledBy>,
    ) -> Sent {
        let (index, attempt, began_us) = (delivery.index, delivery.attempt, self.clock.mono_us());
        let sent = match pulled {
            None => self.targets.send_by_leave(delivery, leave).await,
            Some(by) => Box::pin(by.give(&self.targets, delivery, &leave)).await,
        };
        if let Sent::NotSent { message, retry_after_ms: None } = &sent {
            self.complain(message);
        }
        if attempt > 1 || sent != Sent::Accepted {
            let now = self.clock.now();
            let took_us = now.mono_us - began_us;
            let (start_us, sent) = (now.wall_us - took_us, clipped(sent.clone()));
            self.book().note(AttemptRow { run, index, attempt, start_us, took_us, sent });
        }
        sent
    }

    /// One line a minute, however many events there are.
    fn complain(&self, message: &str) {
        let now_us = self.clock.mono_us();
        let last_us = self.complained_us.load(Relaxed);
        let is_due = now_us.saturating_sub(last_us) >= MINUTE_US;
        if is_due && self.complained_us.compare_exchange(last_us, now_us, Relaxed, Relaxed).is_ok() {
            tracing::warn!(
                message,
                "events could not be sent, for reasons that are not their targets'; they are tried again, and no \
                 failure is counted"
            );
        }
    }

    fn book(&self) -> MutexGuard<'_, Book> {
        self.book.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Book {
    fn note(&mut self, row: AttemptRow) {
        self.rows.push_back(row);
        if self.rows.len() > KEPT_MAX {
            self.rows.pop_front();
            self.left += 1;
        }
    }

    /// The first of them, and how many will have left once these have.
    fn first(&self) -> (Vec<AttemptRow>, u64) {
        let rows: Vec<_> = self.rows.iter().take(ROWS_AT_ONCE).cloned().collect();
        let until = self.left + rows.len() as u64;
        (rows, until)
    }

    /// These have been written. Some may have had to go meanwhile.
    fn written(&mut self, until: u64) {
        while self.left < until && self.rows.pop_front().is_some() {
            self.left += 1;
        }
    }
}

/// Has everything written that targets say, until told to stop.
pub(crate) async fn keep(shared: Shared, stop: CancellationToken) {
    while stop.run_until_cancelled(tokio::time::sleep(EVERY)).await.is_some() {
        shared.write_attempts().await;
    }
}

impl Shared {
    /// Writes some of what has been said; what cannot be written is kept. Whether more may be written at once.
    async fn write_attempts(&self) -> bool {
        for _ in 0..WRITES_AT_ONCE {
            let (rows, until) = self.targets.book().first();
            if rows.is_empty() {
                return false;
            }
            if let Err(error) = self.store.put_attempts(&rows).await {
                self.options.metrics.store_failed(Role::Handler);
                tracing::debug!(%error, rows = rows.len(), "attempts cannot be written; they are kept");
                return false;
            }
            self.targets.book().written(until);
        }
        true
    }

    /// Writes all that has been said, for a process that ends.
    pub(crate) async fn write_last_attempts(&self) {
        while self.write_attempts().await {}
    }

    /// The attempts of an event, earliest first: those of all processes, and those that this one has not written yet.
    pub(crate) async fn attempts(&self, event: EventRef) -> Vec<AttemptRow> {
        let stored = self.people.attempts(event.run, event.index).await.unwrap_or_else(|error| {
            self.options.metrics.store_failed(Role::Handler);
            tracing::debug!(%error, "attempts cannot be read");
            Vec::new()
        });
        let book = self.targets.book();
        let own = book.rows.iter().filter(|row| (row.run, row.index) == (event.run, event.index)).cloned();
        let all: BTreeMap<u32, AttemptRow> =
            stored.into_iter().chain(own).map(|row| (row.attempt, row)).collect();
        all.into_values().collect()
    }
}

fn clipped(mut sent: Sent) -> Sent {
    if let Sent::Refused { message, .. }
    | Sent::RefusedAlone { message, .. }
    | Sent::Unclear { message, .. }
    | Sent::NotSent { message, .. } = &mut sent
        && let Some((end, _)) = message.char_indices().nth(MESSAGE_CHARS)
    {
        message.truncate(end);
        message.push('…');
    }
    sent
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::*;

    fn made(attempt: u32) -> AttemptRow {
        let run = RunId::derive(uuid::Uuid::from_u128(1), 0);
        AttemptRow { run, index: 0, attempt, start_us: 0, took_us: 0, sent: Sent::Accepted }
    }

    fn numbers(book: &Book) -> Vec<u32> {
        book.rows.iter().map(|row| row.attempt).collect()
    }

    #[test]
    fn what_has_been_written_leaves_and_nothing_else() {
        let mut book = Book::default();
        (1..=3).for_each(|attempt| book.note(made(attempt)));
        let (rows, until) = book.first();
        assert_eq!((rows.len(), until), (3, 3));
        // While they are written another comes.
        book.note(made(4));
        book.written(until);
        assert_eq!(numbers(&book), [4]);
        book.written(until);
        assert_eq!(numbers(&book), [4], "they have left already");
    }

    #[test]
    fn the_oldest_attempt_goes_first_also_while_it_is_written() {
        let mut book = Book::default();
        let most = u32::try_from(KEPT_MAX).unwrap();
        (1..=most).for_each(|attempt| book.note(made(attempt)));
        let (rows, until) = book.first();
        assert_eq!(rows.len(), ROWS_AT_ONCE);
        (most + 1..=most + 3).for_each(|attempt| book.note(made(attempt)));
        assert_eq!((book.rows.len(), book.rows[0].attempt), (KEPT_MAX, 4));
        book.written(until);
        assert_eq!(
            book.rows[0].attempt,
            rows[ROWS_AT_ONCE - 1].attempt + 1,
            "three of those written had to go"
        );
    }

    #[test]
    fn long_answers_are_cut() {
        let sent = Sent::Unclear { message: "ü".repeat(MESSAGE_CHARS + 1), retry_after_ms: None };
        let Sent::Unclear { message, .. } = clipped(sent) else { unreachable!() };
        assert_eq!(message.chars().count(), MESSAGE_CHARS + 1);
        assert!(message.ends_with('…'));
    }
}
