//! How fast a bucket's events go, for people: what targets said in the last minute, and for how long tokens are held.
//!
//! In: what became of deliveries and of held tokens, added up by commit; how many tokens are held, by commit. Out: counts per
//! second, the latest failure, holds. Invariants: an event that its target refused has not started; one that is sent again
//! because its delivery was unclear starts once; nothing here decides what starts.

use std::collections::VecDeque;

use uuid::Uuid;

use super::ledger::Key;
use super::live::LiveToken;
use super::shard::Shard;
use crate::expected_end::Holds;
use crate::model::{Now, SECOND_US, Sent};

/// Over how many seconds answers are counted.
const RATE_WINDOW_S: i64 = 60;

/// What became of deliveries and tokens of one bucket: between two commits, in a second, or in a minute.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Answers {
    /// Events that got their tokens and that the target took, or may have taken.
    pub started: u32,
    /// Deliveries that the target took.
    pub accepted: u32,
    /// Deliveries that it did not take, or that did not leave.
    pub refused: u32,
    /// Deliveries of which nobody knows.
    pub unclear: u32,
    /// Events that ended with their token.
    pub ended: u32,
    /// For how long the latest of them that ended with its first attempt had held it.
    pub hold_us: Option<i64>,
}

impl Answers {
    fn add(&mut self, other: Self) {
        self.started += other.started;
        self.accepted += other.accepted;
        self.refused += other.refused;
        self.unclear += other.unclear;
        self.ended += other.ended;
        self.hold_us = other.hold_us.or(self.hold_us);
    }
}

/// What has not been added to its bucket yet. It is of one bucket at a time, so that counting an event looks nothing up.
#[derive(Debug, Default)]
pub(super) struct Tally {
    policy: Option<Uuid>,
    answers: Answers,
}

/// The latest delivery that failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LastError {
    /// Its event.
    pub event: Key,
    /// What the target said, or why it did not leave.
    pub words: String,
    /// When (wall clock).
    pub at_us: i64,
}

/// See the head of this file.
#[derive(Debug, Default)]
pub(super) struct Pace {
    /// Of the last minute: (second of the monotonic clock, what became).
    recent: VecDeque<(i64, Answers)>,
    pub last_error: Option<Box<LastError>>,
    /// None before a token has been held.
    holds: Option<Box<Holds>>,
}

impl Pace {
    fn take(&mut self, answers: Answers, held: u32, now: Now) {
        let second = now.mono_us.div_euclid(SECOND_US);
        match self.recent.back_mut() {
            Some((last, sum)) if *last == second => sum.add(answers),
            _ => self.recent.push_back((second, answers)),
        }
        while self.recent.front().is_some_and(|(s, _)| *s <= second - RATE_WINDOW_S) {
            self.recent.pop_front();
        }
        self.hold(held, now);
        if let Some(holds) = &mut self.holds {
            holds.ended(answers.ended, answers.hold_us, now.mono_us);
        }
    }

    /// So many tokens are held from now on.
    pub(super) fn hold(&mut self, held: u32, now: Now) {
        if held > 0 || self.holds.is_some() {
            self.holds.get_or_insert_with(|| Box::new(Holds::since(now.mono_us))).hold(held, now.mono_us);
        }
    }

    /// How long tokens are held, as far as it is known.
    pub(super) fn holds(&self) -> Option<&Holds> {
        self.holds.as_deref()
    }

    /// Of the last minute.
    pub(super) fn last_minute(&self, now: Now) -> Answers {
        let since = now.mono_us.div_euclid(SECOND_US) - RATE_WINDOW_S;
        let mut sum = Answers::default();
        self.recent.iter().filter(|(second, _)| *second > since).for_each(|(_, part)| sum.add(*part));
        sum
    }
}

/// Of a count of the last minute.
pub(super) fn per_s(count: u32) -> f64 {
    f64::from(count) / RATE_WINDOW_S as f64
}

impl Shard {
    /// A target has answered for a delivery of this event; `is_again`: an earlier one was in doubt.
    pub(super) fn tally_answer(&mut self, policy: Option<Uuid>, sent: &Sent, is_again: bool, now: Now) {
        let counts = self.tally_of(policy, now);
        let is_first = u32::from(!is_again);
        match sent {
            Sent::Accepted => {
                (counts.accepted, counts.started) = (counts.accepted + 1, counts.started + is_first)
            }
            Sent::Unclear { .. } => {
                (counts.unclear, counts.started) = (counts.unclear + 1, counts.started + is_first);
            }
            Sent::Refused { .. } | Sent::NotSent { .. } => counts.refused += 1,
        }
    }

    /// What went wrong with a delivery is told as the latest of its bucket.
    pub(super) fn note_error(&mut self, key: Key, policy: Option<Uuid>, sent: &Sent, now: Now) {
        let (Sent::Refused { message, .. } | Sent::NotSent { message, .. } | Sent::Unclear { message, .. }) =
            sent
        else {
            return;
        };
        if let Some(bucket) = self.ledger.buckets.get_mut(&policy) {
            let error = LastError { event: key, words: message.clone(), at_us: now.wall_us };
            bucket.pace.last_error = Some(Box::new(error));
        }
    }

    /// An event has ended; its token is free.
    pub(super) fn tally_end(&mut self, token: &LiveToken, now: Now) {
        if token.in_flight() {
            let counts = self.tally_of(token.policy, now);
            counts.ended += 1;
            if token.row.attempt == 1 {
                counts.hold_us = Some(now.wall_us - token.row.acquired_us);
            }
        }
    }

    fn tally_of(&mut self, policy: Option<Uuid>, now: Now) -> &mut Answers {
        if self.tally.policy != policy {
            self.add_tally(now);
            self.tally.policy = policy;
        }
        &mut self.tally.answers
    }

    /// Adds what has been counted to its bucket.
    pub(super) fn add_tally(&mut self, now: Now) {
        let answers = std::mem::take(&mut self.tally.answers);
        if answers != Answers::default()
            && let Some(bucket) = self.ledger.buckets.get_mut(&self.tally.policy)
        {
            bucket.pace.take(answers, bucket.counts.held(), now);
        }
    }
}
