//! Deliveries that are under way when a shard changes hands on purpose: the former owner tells which, goes on waiting
//! for their answers and reports them; the new one does not make them again meanwhile.
//!
//! Both travel through the shard's inbox, the note before the lease is given up, so that an owner that reads the inbox before
//! its first commit knows of it in time. After a crash there is no note, and restored deliveries are made again.

use std::collections::BTreeSet;

use super::change::TokenState;
use super::control::UnderWay;
use super::exchange::Effect;
use super::shard::Shard;
use crate::model::{Now, RunId};

/// Added to the time for which an answer is waited for: the way through the inbox.
const REPORT_MS: i64 = 1_000;

impl Shard {
    /// The deliveries that have been made and whose answers have not come, for the next owner of the shard. Their
    /// answers are waited for at most `wait_ms`.
    pub fn under_way(&self, wait_ms: i64, now: Now) -> Vec<UnderWay> {
        let pending = self.pending.effects.iter().chain(self.committing.iter().flatten());
        let not_due = self.early.keys().map(|(_, run, index)| (*run, *index));
        let not_made: BTreeSet<(RunId, u32)> = pending.filter_map(Effect::delivers).chain(not_due).collect();
        let waited_for = self.ledger.tokens.all().filter(|(_, t)| t.row.state == TokenState::Acquired);
        waited_for
            .filter(|(key, _)| !not_made.contains(key))
            .filter_map(|((run, index), token)| {
                let grace_ms = match token.elsewhere_us {
                    // The note of an owner before this one goes on holding.
                    Some(until_us) => (until_us - now.mono_us) / 1000,
                    None if token.is_sending() => {
                        self.deadline_ms(run).min(wait_ms).saturating_add(REPORT_MS)
                    }
                    None => return None,
                };
                let (attempt, doubtful) = (token.row.attempt, token.doubtful);
                Some(UnderWay { run, index, attempt, doubtful, grace_ms: grace_ms.max(0) })
            })
            .collect()
    }

    /// The driver itself still waits for the answers of these deliveries, which it has made for a machine before this
    /// one.
    pub fn wait_for(&mut self, deliveries: Vec<UnderWay>, now: Now) {
        self.under_way_elsewhere(deliveries, now);
    }

    /// A delivery was not made after all, and that is known: it is to be made anew.
    pub fn unsent(&mut self, run: RunId, index: u32, attempt: u32, now: Now) {
        let key = (run, index);
        let Some(token) = self.ledger.tokens.get_mut(&key) else { return };
        if token.row.state == TokenState::Acquired && token.row.attempt == attempt {
            token.elsewhere_us = None;
            let message = token.row.message.clone();
            self.again_unsent(key, message, 0, now);
        }
    }

    /// The attempt of an event that is being delivered, here or by a former owner: it may not have left yet.
    pub fn attempt_under_way(&self, run: RunId, index: u32) -> Option<u32> {
        let token = self.ledger.tokens.get(&(run, index)).filter(|t| t.row.state == TokenState::Acquired)?;
        (token.is_sending() || token.elsewhere_us.is_some()).then_some(token.row.attempt)
    }

    /// How long a former owner may still send the event: no later attempt may overtake that one. In microseconds.
    pub(super) fn elsewhere_left_us(&self, key: (RunId, u32), now: Now) -> i64 {
        let until_us = self.ledger.tokens.get(&key).and_then(|t| t.elsewhere_us);
        until_us.map_or(0, |until_us| (until_us - now.mono_us).max(0))
    }

    /// A former owner has these under way: they are not made again before their time is over.
    pub(super) fn under_way_elsewhere(&mut self, deliveries: Vec<UnderWay>, now: Now) {
        for UnderWay { run, index, attempt, doubtful, grace_ms } in deliveries {
            let key = (run, index);
            let Some(token) = self.ledger.tokens.get_mut(&key) else { continue };
            if token.row.state != TokenState::Acquired || token.row.attempt != attempt || token.is_sending() {
                continue;
            }
            // Of two notes about one delivery, the one with the shorter wait is the newer.
            let until_us = now.mono_us.saturating_add(grace_ms.saturating_mul(1000));
            let until_us = token.elsewhere_us.map_or(until_us, |known| known.min(until_us));
            token.elsewhere_us = Some(until_us);
            token.doubtful = doubtful;
            if grace_ms < 0 {
                self.unsent(run, index, attempt, now);
            } else {
                self.send_again_at(key, until_us);
            }
        }
    }

    /// The longest that one delivery of a run takes.
    fn deadline_ms(&self, run: RunId) -> i64 {
        self.ledger.runs.get(&run).map_or(0, |run| run.spec.target.deadline_ms())
    }
}
