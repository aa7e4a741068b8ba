//! Deliveries of which nobody knows whether they arrived: the event keeps its token and is sent again.
//!
//! In: an unclear answer, or a refusal after one; the time to send again. Out: the next attempt, or an event that counts as
//! held. Invariants: no token is freed here; an event that waits to be sent again has no place; nothing is sent again before
//! the inbox has been read, as a release may be in it.

use super::ledger::Phase;
use super::live::{LiveSchedule, LiveToken};
use super::shard::Shard;
use crate::model::{Now, RunId, SECOND_US};

/// How long a resend waits to be asked again while its schedule or policy is paused, in microseconds.
const PAUSED_RESEND_US: i64 = SECOND_US;

impl Shard {
    /// Nobody knows whether the consumer has it: the token stays, the same id is sent again; meanwhile it needs no place.
    /// After the last attempt it counts as held, so that only a release, the time to live or an operator frees it.
    pub(super) fn unclear(&mut self, key: (RunId, u32), message: String, wait_ms: Option<i64>, now: Now) {
        let Some(run) = self.ledger.runs.get(&key.0) else { return };
        let (attempts_max, cancelled) = (run.spec.retry.attempts_max, run.cancelled);
        let Some(token) = self.ledger.tokens.get_mut(&key) else { return };
        token.doubtful = true;
        token.row.failures += 1;
        token.row.message = message;
        self.pending.tokens.insert(key);
        let failures = token.row.failures;
        if failures >= attempts_max || cancelled {
            self.hold(key, now);
            return;
        }
        let wait_us = self.backoff_us(key.0, failures).max(wait_ms.unwrap_or(0).saturating_mul(1000));
        self.send_again_at(key, now.mono_us.saturating_add(wait_us));
        self.sync_lane(key.0, now);
    }

    /// A refusal says nothing about an earlier delivery that was unclear: the consumer may be at work on that one.
    pub(super) fn refused_in_doubt(
        &mut self,
        key: (RunId, u32),
        message: String,
        wait_ms: Option<i64>,
        permanent: bool,
        now: Now,
    ) {
        if !permanent {
            self.unclear(key, message, wait_ms, now);
            return;
        }
        if let Some(token) = self.ledger.tokens.get_mut(&key) {
            token.row.message = message;
        }
        self.hold(key, now);
    }

    /// It is to be sent again, from then on (monotonic).
    pub(super) fn send_again_at(&mut self, key: (RunId, u32), at_us: i64) {
        self.leave_queue(key);
        self.ledger.turn(key, Phase::Again { at_us });
        self.arm(key, Some(at_us));
    }

    pub(super) fn resend(&mut self, key: (RunId, u32), now: Now) {
        let Some(run) = self.ledger.runs.get(&key.0) else { return };
        let parked = self.schedules.get(&run.row.schedule_uid).is_some_and(LiveSchedule::is_parked);
        let (cancelled, uid) = (run.cancelled, run.row.schedule_uid);
        let Some(policy) = self.ledger.tokens.get(&key).map(|token| token.policy) else { return };
        let is_bounded = self.ledger.is_bounded(policy);
        let policy_paused = self.ledger.is_paused(policy);
        let Some(token) = self.ledger.tokens.get_mut(&key) else { return };
        let bucket = self.ledger.buckets.get(&policy);
        let key_paused =
            bucket.is_some_and(|bucket| bucket.may_be_paused(run.key(&token.load.key), &token.load.key));
        let paused = parked || key_paused || policy_paused || self.pause.pause.is_some();
        if cancelled {
            self.hold(key, now);
        } else if paused || self.draining {
            self.arm(key, Some(now.mono_us + PAUSED_RESEND_US));
        } else if token.again_us().is_some_and(|again_us| self.caught_up_us < again_us) {
            // A release that was acknowledged may wait in the inbox.
            self.unread.insert(key);
        } else if is_bounded {
            if !self.waits_for_room(key) {
                self.send_again(key);
                self.sync_lane(key.0, now);
            }
        } else {
            token.queued = true;
            let due_us = token.queued_us();
            self.queues.entry(policy).or_default().push_retry(
                run.lane(&token.load.key),
                due_us,
                key.0,
                key.1,
            );
            self.ledger.ready.insert(policy);
            self.park_in(policy, uid);
        }
    }

    /// Sends an event that holds its token with its next attempt.
    pub(super) fn send_again(&mut self, key: (RunId, u32)) {
        self.leave_queue(key);
        let Some(token) = self.ledger.tokens.get_mut(&key) else { return };
        token.row.attempt += 1;
        // Nobody knows any more what became of the delivery before.
        token.doubtful = true;
        token.elsewhere_us = None;
        let policy = token.policy;
        self.ledger.turn(key, self.ledger.sending_under(policy));
        self.send(key);
    }
}

/// Those that stand in their queues to be sent again.
pub(super) fn queued_again<'a>(
    tokens: impl Iterator<Item = ((RunId, u32), &'a LiveToken)>,
) -> Vec<(RunId, u32)> {
    tokens.filter(|(_, t)| t.is_queued_again()).map(|(key, _)| key).collect()
}
