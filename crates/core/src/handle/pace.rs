//! How fast a bucket's events go, for people: what targets said in the last minute, and for how long tokens are held. The same
//! by target is in [`super::targets`].
//!
//! In: what became of deliveries and of held tokens, added up by commit; how many tokens are held, by commit. Out: counts per
//! second, the latest failure, holds. Invariants: an event that its target refused has not started; one that is sent again
//! because its delivery was unclear starts once; nothing here decides what starts.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use uuid::Uuid;

use super::ledger::Key;
use super::live::LiveToken;
use super::shard::Shard;
use crate::expected_end::Holds;
use crate::model::{Now, SECOND_US, Sent};

/// Over how many seconds answers are counted.
pub(super) const RATE_WINDOW_S: i64 = 60;

/// What became of deliveries: between two commits, in a second, or in a minute.
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
}

impl Answers {
    /// A target has answered for a delivery of an event; `is_again`: an earlier one was in doubt.
    pub(super) fn count(&mut self, sent: &Sent, is_again: bool) {
        let is_first = u32::from(!is_again);
        match sent {
            Sent::Accepted => (self.accepted, self.started) = (self.accepted + 1, self.started + is_first),
            Sent::Unclear { .. } => {
                (self.unclear, self.started) = (self.unclear + 1, self.started + is_first);
            }
            Sent::Refused { .. } | Sent::RefusedAlone { .. } | Sent::NotSent { .. } => self.refused += 1,
        }
    }

    /// How many deliveries there were.
    pub(super) fn tried(&self) -> u32 {
        self.accepted + self.refused + self.unclear
    }

    fn add(&mut self, other: Self) {
        self.started += other.started;
        self.accepted += other.accepted;
        self.refused += other.refused;
        self.unclear += other.unclear;
    }
}

/// What became of deliveries in the last minute.
#[derive(Debug, Default)]
pub(super) struct Recent(
    /// By the second of the monotonic clock.
    VecDeque<(i64, Answers)>,
);

impl Recent {
    pub(super) fn take(&mut self, answers: Answers, now: Now) {
        let second = second_of(now);
        match self.0.back_mut() {
            Some((last, sum)) if *last == second => sum.add(answers),
            _ => self.0.push_back((second, answers)),
        }
        while self.0.front().is_some_and(|(s, _)| *s <= second - RATE_WINDOW_S) {
            self.0.pop_front();
        }
    }

    /// The second of the latest answer.
    pub(super) fn last_second(&self) -> Option<i64> {
        self.0.back().map(|(second, _)| *second)
    }

    /// Of the last minute.
    pub(super) fn sum(&self, now: Now) -> Answers {
        let since = second_of(now) - RATE_WINDOW_S;
        let mut sum = Answers::default();
        self.0.iter().filter(|(second, _)| *second > since).for_each(|(_, part)| sum.add(*part));
        sum
    }
}

/// Of the monotonic clock.
pub(super) fn second_of(now: Now) -> i64 {
    now.mono_us.div_euclid(SECOND_US)
}

/// What became of tokens between two commits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Ends {
    /// Events that ended with their token.
    ended: u32,
    /// For how long the latest of them that ended with its first attempt had held it.
    hold_us: Option<i64>,
}

/// What has not been added to one bucket yet.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Tally {
    answers: Answers,
    ends: Ends,
}

impl Tally {
    fn add(&mut self, later: Self) {
        self.answers.add(later.answers);
        self.ends.ended += later.ends.ended;
        self.ends.hold_us = later.ends.hold_us.or(self.ends.hold_us);
    }
}

/// What has not been added to the buckets yet. That of the latest one is at hand, so that counting one event after the other
/// under one policy looks nothing up.
#[derive(Debug, Default)]
pub(super) struct Tallies {
    policy: Option<Uuid>,
    latest: Tally,
    others: BTreeMap<Option<Uuid>, Tally>,
}

impl Tallies {
    fn of(&mut self, policy: Option<Uuid>) -> &mut Tally {
        if self.policy != policy {
            self.put_by();
            self.policy = policy;
        }
        &mut self.latest
    }

    fn put_by(&mut self) {
        let latest = std::mem::take(&mut self.latest);
        if latest != Tally::default() {
            self.others.entry(self.policy).or_default().add(latest);
        }
    }

    fn take(&mut self) -> BTreeMap<Option<Uuid>, Tally> {
        self.put_by();
        std::mem::take(&mut self.others)
    }
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
    recent: Recent,
    pub last_error: Option<Arc<LastError>>,
    /// None before a token has been held.
    holds: Option<Box<Holds>>,
}

impl Pace {
    fn take(&mut self, answers: Answers, ends: Ends, held: u32, now: Now) {
        self.recent.take(answers, now);
        self.hold(held, now);
        if let Some(holds) = &mut self.holds {
            holds.ended(ends.ended, ends.hold_us, now.mono_us);
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
        self.recent.sum(now)
    }
}

/// Of a count of the last minute.
pub(super) fn per_s(count: u32) -> f64 {
    f64::from(count) / RATE_WINDOW_S as f64
}

impl Shard {
    /// A target has answered for a delivery of this event; `is_again`: an earlier one was in doubt.
    pub(super) fn tally_answer(
        &mut self,
        key: Key,
        policy: Option<Uuid>,
        sent: &Sent,
        is_again: bool,
        now: Now,
    ) {
        self.tally.of(policy).answers.count(sent, is_again);
        if let Some(counts) = self.ledger.answers_of_target(key.0, now) {
            counts.count(sent, is_again);
        }
        self.note_error(key, policy, sent, now);
    }

    /// What went wrong with a delivery is told as the latest of its bucket and of its target.
    fn note_error(&mut self, key: Key, policy: Option<Uuid>, sent: &Sent, now: Now) {
        let Some(message) = sent.message() else { return };
        let error = Arc::new(LastError { event: key, words: message.to_owned(), at_us: now.wall_us });
        self.ledger.targets.has_failed(key.0, &error);
        if let Some(bucket) = self.ledger.buckets.get_mut(&policy) {
            bucket.pace.last_error = Some(error);
        }
    }

    /// An event has ended; its token is free.
    pub(super) fn tally_end(&mut self, token: &LiveToken, now: Now) {
        if token.in_flight() {
            let ends = &mut self.tally.of(token.policy).ends;
            ends.ended += 1;
            if token.row.attempt == 1 {
                ends.hold_us = Some(now.wall_us - token.row.acquired_us);
            }
        }
    }

    /// Adds what has been counted to the buckets and the targets, and forgets the targets that nobody asks for any more.
    pub(super) fn add_tally(&mut self, now: Now) {
        for (policy, Tally { answers, ends }) in self.tally.take() {
            if let Some(bucket) = self.ledger.buckets.get_mut(&policy) {
                bucket.pace.take(answers, ends, bucket.counts.held(), now);
            }
        }
        self.ledger.targets.advance(now);
    }
}
