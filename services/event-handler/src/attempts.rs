//! Remembers what targets said of deliveries, for people who ask why an event is where it is.
//!
//! In: every delivery on its way to its target. Out: the attempts of one event.
//! Invariants: memory is bounded, the oldest goes first; a first delivery that is taken, which nearly all are, costs
//! nothing and leaves nothing. Not here: anything that decides: nothing is read back but to be shown, and what a handler
//! remembers ends with it.

use std::collections::{HashMap, VecDeque};
use std::sync::atomic::AtomicI64;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tollgate_clock::Clock;
use tollgate_core::model::{Delivery, MINUTE_US, Sent};
use tollgate_proto::{convert, v1};
use tollgate_target::{Leave, Targets};

use crate::workers::{Desk, Outcome, RoomUnit};

/// The most attempts that are remembered, of all events together.
const KEPT_MAX: usize = 20_000;
/// The most characters of an answer that are.
const MESSAGE_CHARS: usize = 500;

/// What was made of one delivery.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Attempt {
    /// Its number.
    pub(crate) attempt: u32,
    /// When it began (wall clock).
    pub(crate) start_us: i64,
    /// How long the answer took, in microseconds.
    pub(crate) took_us: i64,
    /// What the target said.
    pub(crate) sent: Sent,
}

/// Room at a worker for one event.
#[derive(Debug)]
pub(crate) struct PulledBy {
    pub(crate) desk: Desk,
    pub(crate) unit: Option<RoomUnit>,
    /// For how long the worker may be silent, in milliseconds, where its token is taken back then.
    pub(crate) token_ttl_ms: Option<i64>,
}

impl PulledBy {
    async fn give(self, targets: &Targets, delivery: Delivery, leave: &Leave) -> Sent {
        let Some(unit) = self.unit else {
            return not_sent("not sent: no worker has room for it any more".to_owned());
        };
        let deadline = Duration::from_millis(delivery.spec.target.deadline_ms().try_into().unwrap_or(0));
        let (name, attempt) = (delivery.event_id.to_string(), delivery.attempt);
        let event = match targets.document(delivery) {
            Ok(event) => event,
            Err(sent) => return sent,
        };
        if let Err(withheld) = leave.check(deadline) {
            return not_sent(format!("not sent: {withheld}"));
        }
        let token_ttl = self.token_ttl_ms.map(convert::duration_of_ms);
        let event = v1::WorkEvent { name, attempt, event, token_ttl };
        match self.desk.give(unit, event, (leave.until(deadline), deadline)).await {
            Outcome::Accepted => Sent::Accepted,
            Outcome::NotSent(message) => not_sent(format!("not sent: {message}")),
            Outcome::Unclear(message) => Sent::Unclear { message, retry_after_ms: None },
        }
    }
}

fn not_sent(message: String) -> Sent {
    Sent::NotSent { message, retry_after_ms: None }
}

#[derive(Debug, Default)]
struct Log {
    by_event: HashMap<String, Vec<Attempt>>,
    /// The events of all attempts, earliest first.
    order: VecDeque<String>,
}

/// The targets, and what they said. Clones share everything.
#[derive(Clone, Debug)]
pub(crate) struct Witness {
    targets: Targets,
    clock: Clock,
    log: Arc<Mutex<Log>>,
    /// When the log was told last of events that could not be sent (monotonic).
    complained_us: Arc<AtomicI64>,
}

impl Witness {
    /// Nothing is remembered yet.
    pub(crate) fn new(targets: Targets, clock: Clock) -> Self {
        let complained_us = Arc::new(AtomicI64::new(i64::MIN));
        Self { targets, clock, log: Arc::default(), complained_us }
    }

    /// Delivers one event once: to its target, or to a worker that takes it.
    pub(crate) async fn send(&self, delivery: Delivery, leave: Leave, pulled: Option<PulledBy>) -> Sent {
        let (attempt, began_us) = (delivery.attempt, self.clock.mono_us());
        let event_id = delivery.event_id.clone();
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
            let mut log = self.log.lock().unwrap_or_else(PoisonError::into_inner);
            log.note(event_id.as_str(), Attempt { attempt, start_us, took_us, sent });
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

    /// The remembered attempts of an event, earliest first.
    pub(crate) fn of(&self, event_id: &str) -> Vec<Attempt> {
        let log = self.log.lock().unwrap_or_else(PoisonError::into_inner);
        log.by_event.get(event_id).cloned().unwrap_or_default()
    }
}

impl Log {
    fn note(&mut self, event_id: &str, attempt: Attempt) {
        self.by_event.entry(event_id.to_owned()).or_default().push(attempt);
        self.order.push_back(event_id.to_owned());
        if self.order.len() <= KEPT_MAX {
            return;
        }
        let Some(oldest) = self.order.pop_front() else { return };
        if let Some(attempts) = self.by_event.get_mut(&oldest) {
            attempts.remove(0);
            if attempts.is_empty() {
                self.by_event.remove(&oldest);
            }
        }
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
mod tests {
    use super::*;

    fn attempt(attempt: u32) -> Attempt {
        Attempt { attempt, start_us: 0, took_us: 0, sent: Sent::Accepted }
    }

    #[test]
    fn the_oldest_attempt_is_forgotten_first() {
        let mut log = Log::default();
        log.note("a", attempt(1));
        log.note("a", attempt(2));
        for _ in 0..KEPT_MAX - 1 {
            log.note("b", attempt(1));
        }
        assert_eq!(log.by_event["a"], [attempt(2)]);
        log.note("b", attempt(2));
        assert!(!log.by_event.contains_key("a"));
        assert_eq!((log.order.len(), log.by_event["b"].len()), (KEPT_MAX, KEPT_MAX));
    }

    #[test]
    fn long_answers_are_cut() {
        let sent = Sent::Unclear { message: "ü".repeat(MESSAGE_CHARS + 1), retry_after_ms: None };
        let Sent::Unclear { message, .. } = clipped(sent) else { unreachable!() };
        assert_eq!(message.chars().count(), MESSAGE_CHARS + 1);
        assert!(message.ends_with('…'));
    }
}
