//! Deliveries that did not leave the process, for reasons that are not the target's.
//!
//! They count as no failure, however many there are, so that a shortage of ours never ends an event. What bounds them is
//! time: an event that was never sent ends with its window, and any other after a day without a delivery that left.
//! The count and the day are this machine's own: the next owner of the shard begins anew.

use super::change::Outcome;
use super::shard::Shard;
use crate::model::{DAY_US, Now, RunId, SECOND_US};

/// How long an event whose deliveries do not leave is tried before it is given up.
const UNSENT_MAX_US: i64 = DAY_US;
/// The longest wait before it is tried again: the reason may be gone in a moment.
const AGAIN_MAX_US: i64 = 30 * SECOND_US;

impl Shard {
    /// A delivery has not left. Its token is free, unless an earlier delivery may have arrived.
    pub(super) fn not_sent(&mut self, key: (RunId, u32), message: String, wait_ms: Option<i64>, now: Now) {
        let Some(token) = self.ledger.tokens.get_mut(&key) else { return };
        let (times, since_us) = token.unsent.unwrap_or((0, now.mono_us));
        token.unsent = Some((times.saturating_add(1), since_us));
        if let Some(wait_ms) = wait_ms {
            self.block_schedule(key.0, wait_ms, now);
        }
        let again_us = self.backoff_us(key.0, times.saturating_add(1)).min(AGAIN_MAX_US);
        let wait_us = again_us.max(wait_ms.unwrap_or(0).saturating_mul(1000));
        self.again_unsent(key, message, wait_us, now);
    }

    /// It is tried again after so long, or given up.
    pub(super) fn again_unsent(&mut self, key: (RunId, u32), message: String, wait_us: i64, now: Now) {
        let Some(token) = self.ledger.tokens.get(&key) else { return };
        let (is_doubtful, unsent) = (token.doubtful, token.unsent);
        let is_new = token.row.failures == 0 && token.row.checks == 0;
        let is_hopeless =
            unsent.is_some_and(|(_, since_us)| now.mono_us.saturating_sub(since_us) >= UNSENT_MAX_US);
        let Some(run) = self.ledger.runs.get(&key.0) else { return };
        let is_late = is_new && run.window_end_us().is_some_and(|end_us| end_us <= now.wall_us);
        let is_cancelled = run.cancelled;
        if is_doubtful {
            if let Some(token) = self.ledger.tokens.get_mut(&key) {
                token.row.message = message;
                self.pending.tokens.insert(key);
            }
            if is_cancelled || is_hopeless {
                self.hold(key, now);
            } else {
                self.send_again_at(key, now.mono_us.saturating_add(wait_us));
                self.sync_lane(key.0, now);
            }
        } else if is_cancelled {
            self.finish(key, Outcome::Cancelled, message, now);
        } else if is_late {
            self.finish(key, Outcome::Expired, message, now);
        } else if is_hopeless {
            self.finish(key, Outcome::Dead, message, now);
        } else {
            self.wait(key, now.wall_us.saturating_add(wait_us), message);
            if let Some(token) = self.ledger.tokens.get_mut(&key) {
                token.unsent = unsent;
            }
            self.sync_lane(key.0, now);
        }
    }
}
