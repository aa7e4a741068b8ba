//! The token bucket of a policy: how many more events may start now, and when to ask again.
//!
//! Two limits, either or both: tokens held at once, and a rate with a burst (a leaky bucket whose level grows with
//! monotonic time, as in quinn's pacer). A bucket starts without burst, so that a restart is no way around the rate.

use uuid::Uuid;

use super::branch::Branch;
use super::keys::BucketKeys;
use super::ledger::BucketCounts;
use super::pace::Pace;
use crate::model::{Now, Policy, RunId, SECOND_US};

/// How many events a rate lets through.
#[derive(Clone, Debug)]
pub(super) struct Level {
    level: f64,
    at_us: i64,
}

impl Level {
    /// Of a rate that has just begun: one event.
    pub(super) fn new(now: Now) -> Self {
        Self { level: 1.0, at_us: now.mono_us }
    }

    /// When it was last looked at (monotonic).
    pub(super) fn at_us(&self) -> i64 {
        self.at_us
    }

    /// How many events may start now.
    pub(super) fn permits(&self) -> u32 {
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "0 <= level <= burst")]
        let permits = self.level as u32;
        permits
    }

    /// As if all that it lets through had started.
    pub(super) fn empty(&mut self) {
        self.level = 0.0;
    }

    /// One event has started.
    pub(super) fn spend(&mut self) {
        self.level -= 1.0;
    }

    /// When the next event may start (monotonic), if none may now.
    pub(super) fn next_us(&self, rate: f64, now: Now) -> Option<i64> {
        if self.level >= 1.0 {
            return None;
        }
        #[expect(clippy::cast_possible_truncation, reason = "rates are positive: at most 1e6 s / 1e-6")]
        let wait_us = ((1.0 - self.level) / rate * SECOND_US as f64).ceil() as i64;
        let at_us = self.at_us.saturating_add(wait_us.max(1));
        (at_us > now.mono_us).then_some(at_us)
    }

    /// What the rate has let through since the last look.
    pub(super) fn refill(&mut self, rate: f64, burst: f64, now: Now) {
        let elapsed_s = (now.mono_us - self.at_us).max(0) as f64 / SECOND_US as f64;
        self.level = (self.level + elapsed_s * rate).min(burst);
        self.at_us = self.at_us.max(now.mono_us);
    }
}

/// What may start now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Room {
    /// How many tokens are free.
    pub tokens: u32,
    /// How many events may start.
    pub starts: u32,
}

impl Room {
    pub(super) const NONE: Self = Self { tokens: 0, starts: 0 };
    pub(super) const ALL: Self = Self { tokens: u32::MAX, starts: u32::MAX };

    /// So many events, whatever they take.
    pub(super) fn of_starts(starts: u32) -> Self {
        Self { starts, ..Self::ALL }
    }

    pub(super) fn is_empty(self) -> bool {
        self.tokens == 0 || self.starts == 0
    }

    /// One event that takes so many tokens has started.
    pub(super) fn take(&mut self, units: u32) {
        *self = Self { tokens: self.tokens.saturating_sub(units), starts: self.starts.saturating_sub(1) };
    }
}

/// An event for which the tokens that come back are kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Kept {
    pub run: RunId,
    /// How many it takes.
    pub units: u32,
}

/// Counters of one policy, or of all runs without one.
#[derive(Debug)]
pub(super) struct Bucket {
    /// None for runs without a policy.
    pub policy: Option<Policy>,
    /// It has been deleted, and goes a day later, when nothing needs it.
    pub deleted: bool,
    /// A run names a policy that the shard has not been told of yet: nothing starts.
    pub unknown: bool,
    /// Of the runs and the events that use it.
    pub counts: BucketCounts,
    /// Of the keys of its events.
    pub keys: Box<BucketKeys>,
    /// Where it stands in a tree of policies, if it is in one.
    pub branch: Option<Box<Branch>>,
    /// The event that is first in line, and for which too few tokens are free, as far as that has been seen.
    pub kept: Option<Kept>,
    level: Level,
    /// How fast its events go, for people.
    pub pace: Pace,
}

impl Bucket {
    pub(super) fn new(policy: Option<Policy>, now: Now) -> Self {
        Self {
            policy,
            deleted: false,
            unknown: false,
            counts: BucketCounts::default(),
            keys: Box::default(),
            branch: None,
            kept: None,
            level: Level::new(now),
            pace: Pace::default(),
        }
    }

    /// Of a policy that the shard has not been told of.
    pub(super) fn unknown(now: Now) -> Self {
        Self { unknown: true, ..Self::new(None, now) }
    }

    /// The policy above.
    pub(super) fn parent(&self) -> Option<Uuid> {
        self.branch.as_ref()?.parent
    }

    /// Tokens held by its events, and by those of all policies below.
    pub(super) fn in_flight(&self) -> u32 {
        self.counts.held() + self.branch.as_ref().map_or(0, |branch| branch.below)
    }

    /// Whether a run, a token or a policy below needs it.
    pub(super) fn in_use(&self) -> bool {
        self.counts.in_use() || self.branch.as_ref().is_some_and(|branch| !branch.children.is_empty())
    }

    /// Whether it has no fewer tokens than are for it first.
    pub(super) fn has_floor(&self) -> bool {
        self.in_flight() >= self.floor()
    }

    /// So many tokens of its parent are for it first.
    pub(super) fn floor(&self) -> u32 {
        self.policy.as_ref().and_then(|policy| policy.parent.as_ref()).map_or(0, |above| above.floor)
    }

    /// Turns in a row among the policies of its parent.
    pub(super) fn weight(&self) -> u32 {
        self.policy.as_ref().and_then(|policy| policy.parent.as_ref()).map_or(1, |above| above.weight)
    }

    /// What may start now, of its own events and of those below, as far as it bounds them.
    pub(super) fn room(&mut self, now: Now) -> Room {
        if self.is_paused() {
            return Room::NONE;
        }
        let in_flight = self.in_flight();
        let limits = self.policy.as_ref().map(|policy| &policy.limits);
        let tokens = limits.and_then(|limits| limits.max_in_flight);
        let tokens = tokens.map_or(u32::MAX, |limit| limit.saturating_sub(in_flight));
        if self.rate().is_none() {
            return Room { tokens, ..Room::ALL };
        }
        self.refill(now);
        Room { tokens, starts: self.level.permits() }
    }

    /// What may start now; `sends_max` bounds what no policy bounds.
    pub(super) fn capacity(&mut self, now: Now, sends_max: u32) -> Room {
        if self.unknown || self.is_unread() {
            return Room::NONE;
        }
        let places = sends_max.saturating_sub(self.counts.places().taken());
        let Some(policy) = &self.policy else { return Room::of_starts(places) };
        if policy.pause.is_some() {
            return Room::NONE;
        }
        let mut room = match policy.limits.max_in_flight {
            Some(limit) => Room { tokens: limit.saturating_sub(self.counts.held()), ..Room::ALL },
            None => Room::of_starts(places),
        };
        if policy.limits.rate_per_s.is_some() {
            self.refill(now);
            room.starts = room.starts.min(self.level.permits());
        }
        room
    }

    /// One event is sent.
    pub(super) fn spend(&mut self) {
        if self.rate().is_some() {
            self.level.spend();
        }
    }

    /// Whether a number of tokens bounds it, its own or that of a policy above it, and no places.
    pub(super) fn is_bounded(&self) -> bool {
        self.has_limit() || self.branch.as_ref().is_some_and(|branch| branch.is_bounded)
    }

    /// Whether it has a number of tokens of its own.
    pub(super) fn has_limit(&self) -> bool {
        self.policy.as_ref().is_some_and(|policy| policy.limits.max_in_flight.is_some())
    }

    /// The policy is now this one. What the rate has let through so far counts at the old rate.
    pub(super) fn change(&mut self, policy: Policy, now: Now) {
        self.refill(now);
        if self.rate().is_none() {
            self.level = Level::new(now);
        }
        let is_same = |old: &Policy| {
            (&old.keys, old.limits.max_in_flight) == (&policy.keys, policy.limits.max_in_flight)
        };
        if !self.policy.as_ref().is_some_and(is_same) {
            self.keys.free_all();
        }
        self.policy = Some(policy);
    }

    /// When the rate lets the next event through (monotonic), if it is the rate that holds it back.
    pub(super) fn next_permit_us(&self, now: Now) -> Option<i64> {
        self.level.next_us(self.rate()?, now)
    }

    /// Whether nothing may start for now.
    pub(super) fn is_paused(&self) -> bool {
        self.unknown
            || self.policy.as_ref().is_some_and(|policy| policy.pause.is_some())
            || self.branch.as_ref().is_some_and(|branch| branch.is_tangled)
    }

    /// Whether so many tokens may be taken before their time: half of them stay free for events that are due. Where a rate is
    /// asked for, each starts in its time.
    pub(super) fn allows_early(&self, tokens: u32) -> bool {
        let limit = self.policy.as_ref().and_then(|policy| policy.limits.max_in_flight);
        let is_free = limit.is_none_or(|limit| self.in_flight().saturating_add(tokens) <= limit / 2);
        is_free && !self.is_paused() && self.rate().is_none()
    }

    /// As [`Self::allows_early`], of the places where no tokens bound it.
    pub(super) fn has_places_early(&self, events: u32, sends_max: u32) -> bool {
        self.counts.places().taken().saturating_add(events) <= sends_max / 2
    }

    pub(super) fn rate(&self) -> Option<f64> {
        self.policy.as_ref().and_then(|p| p.limits.rate_per_s)
    }

    fn refill(&mut self, now: Now) {
        let Some((limits, rate)) = self.policy.as_ref().and_then(|p| Some((&p.limits, p.limits.rate_per_s?)))
        else {
            return;
        };
        self.level.refill(rate, limits.burst(), now);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::handle::testing::policy;

    fn at(mono_us: i64) -> Now {
        Now { wall_us: 0, mono_us }
    }

    #[test]
    fn a_rate_lets_one_through_at_a_time_and_a_burst_after_rest() {
        let mut p = policy(1);
        p.limits.max_in_flight = None;
        p.limits.rate_per_s = Some(10.0);
        p.limits.burst = Some(3);
        let mut bucket = Bucket::new(Some(p), at(0));
        let starts = |bucket: &mut Bucket, us| bucket.capacity(at(us), 100).starts;
        assert_eq!(starts(&mut bucket, 0), 1);
        bucket.spend();
        assert_eq!(starts(&mut bucket, 0), 0);
        assert_eq!(bucket.next_permit_us(at(0)), Some(100_000));
        assert_eq!(starts(&mut bucket, 99_999), 0);
        assert_eq!(starts(&mut bucket, 100_000), 1);
        assert_eq!(starts(&mut bucket, 60_000_000), 3, "never above the burst");
    }
}
