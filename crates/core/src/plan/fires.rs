//! The instants at which a calendar fires in a zone: gaps, repeats, calendar corrections.
//!
//! In: a [`CronRule`] and a span of instants in seconds. Out: the fires in ascending order, each once.
//! Invariants: the answer depends on rule and span alone, so that any cutting of a span gives the same fires; the
//! walk follows instants segment by segment, never local time, so that its order is that of the instants.
//! Not here: intervals and single shots, which know no zone (`plan`).
//!
//! With `f(t) = t + offset(t)`, a wildcard job fires at each t whose f(t) matches. A fixed job fires at the first
//! t of those with the same f(t), where a repeat of more than three hours counts as new; and for a matching m that
//! no t has, at the change that jumps over it, unless that is three hours or more long.

use super::calendar::{Calendar, DAY_MINUTES};
use super::exclusion::Exclusion;
use super::zone::{OFFSET_MAX_S, Segment, Zone};
use crate::model::{GapRule, RepeatRule};

/// A forward change of this many seconds or more, and a backward change of more, corrects the calendar.
pub(crate) const CORRECTION_S: i64 = 3 * 3600;

/// How far the segments of one step of the walk reach; about one change of a zone fits.
const STEP_S: i64 = 3 * 86_400;

/// First instant that is served: 0001-01-01T00:00:00Z.
pub(crate) const FIRST_S: i64 = -62_135_596_800;
/// First instant that is not served any more: 10000-01-01T00:00:00Z.
pub(crate) const LIMIT_S: i64 = 253_402_300_800;

/// A calendar in a zone, with what happens at its clock changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct CronRule {
    pub(crate) calendar: Calendar,
    pub(crate) zone: Zone,
    pub(crate) wildcard: bool,
    pub(crate) gap: GapRule,
    pub(crate) repeat: RepeatRule,
}

impl CronRule {
    /// The fires in `[start, end)`, in seconds since the epoch, ascending, but for excluded dates.
    pub(crate) fn fires(self, start: i64, end: i64, exclusion: Option<&Exclusion>) -> CronFires {
        let start = start.max(FIRST_S);
        CronFires {
            rule: self,
            exclusion: exclusion.cloned(),
            end: end.min(LIMIT_S),
            position: start,
            step_end: start,
            segments: Vec::new(),
            at: 0,
        }
    }
}

/// Iterator over the fires of a [`CronRule`].
#[derive(Clone, Debug)]
pub(crate) struct CronFires {
    rule: CronRule,
    exclusion: Option<Exclusion>,
    end: i64,
    /// No fire before this instant is outstanding.
    position: i64,
    /// Instants from here on need new segments.
    step_end: i64,
    /// From three hours before the step to three hours after it.
    segments: Vec<Segment>,
    /// The segment that holds the position.
    at: usize,
}

impl Iterator for CronFires {
    type Item = i64;

    fn next(&mut self) -> Option<i64> {
        loop {
            if self.position >= self.step_end {
                self.step()?;
            }
            while self.segments[self.at].end <= self.position {
                self.at += 1;
            }
            let segment = self.segments[self.at];
            if self.position == segment.start && self.fires_after_gap() {
                self.position += 1;
                return Some(segment.start);
            }
            let stop = segment.end.min(self.step_end);
            let from = minute_ceil(self.position + segment.offset);
            let limit = minute_ceil(stop + segment.offset);
            let Some(minute) = self.next_match(from, limit) else {
                self.position = stop;
                continue;
            };
            let local = minute * 60;
            let instant = local - segment.offset;
            self.position = instant + 1;
            if !self.repeats(local, instant) {
                return Some(instant);
            }
        }
    }
}

impl CronFires {
    /// The first local minute in `from..limit` that matches, and whose date is not excluded.
    fn next_match(&self, mut from: i64, limit: i64) -> Option<i64> {
        loop {
            let minute = self.rule.calendar.next(from, limit)?;
            let excluded = self.exclusion.as_ref();
            match excluded.and_then(|exclusion| exclusion.end_day(minute.div_euclid(DAY_MINUTES))) {
                None => return Some(minute),
                Some(end_day) => from = end_day * DAY_MINUTES,
            }
        }
    }

    /// Moves on to the next stretch of time that can hold a fire; none if that lies beyond the end.
    fn step(&mut self) -> Option<()> {
        if self.position >= self.end {
            return None;
        }
        // Local time is never further than OFFSET_MAX_S from UTC, also for a nominal minute that a gap skips, so
        // that nothing fires earlier than this before the next match.
        let from = minute_ceil(self.position - OFFSET_MAX_S);
        let next = self.next_match(from, minute_ceil(self.end + OFFSET_MAX_S))?;
        self.position = self.position.max(next * 60 - OFFSET_MAX_S);
        if self.position >= self.end {
            return None;
        }
        self.step_end = (self.position + STEP_S).min(self.end);
        self.segments = self.rule.zone.segments(self.position - CORRECTION_S, self.step_end + CORRECTION_S);
        self.at = 0;
        Some(())
    }

    /// Whether a fixed job has already fired for this local second, three hours ago or less.
    fn repeats(&self, local: i64, instant: i64) -> bool {
        if self.rule.wildcard || self.rule.repeat == RepeatRule::Both {
            return false;
        }
        self.segments[..self.at].iter().any(|earlier| {
            let first = local - earlier.offset;
            (earlier.start..earlier.end).contains(&first) && instant - first <= CORRECTION_S
        })
    }

    /// Whether a fixed job fires at the start of the current segment for a minute that was skipped there.
    fn fires_after_gap(&self) -> bool {
        let Some(before) = self.at.checked_sub(1).map(|index| self.segments[index]) else { return false };
        let segment = self.segments[self.at];
        let skipped = segment.offset - before.offset;
        if self.rule.wildcard || self.rule.gap == GapRule::Skip || !(1..CORRECTION_S).contains(&skipped) {
            return false;
        }
        let mut from = minute_ceil(segment.start + before.offset);
        let limit = minute_ceil(segment.start + segment.offset);
        while let Some(minute) = self.next_match(from, limit) {
            if !self.exists_near(minute * 60, segment.start) {
                return true;
            }
            from = minute + 1;
        }
        false
    }

    /// Whether a local second that a change skips is shown by the clock within three hours of it all the same,
    /// because another change follows or precedes.
    fn exists_near(&self, local: i64, change: i64) -> bool {
        self.segments.iter().any(|segment| {
            let instant = local - segment.offset;
            (segment.start..segment.end).contains(&instant) && (instant - change).abs() <= CORRECTION_S
        })
    }
}

/// The first whole minute at or after a second.
pub(crate) fn minute_ceil(second: i64) -> i64 {
    second.div_euclid(60) + i64::from(second.rem_euclid(60) != 0)
}
