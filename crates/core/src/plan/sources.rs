//! Triggers merged: the fires of a whole plan in ascending order, each once.
//!
//! In: compiled triggers and a span in microseconds. Out: [`Fires`]. Not here: text (`expression`), clock changes
//! (`fires`).

use super::fires::{CronFires, CronRule, FIRST_S, LIMIT_S};
use crate::model::SECOND_US;

/// A compiled trigger.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Source {
    /// A calendar in a zone.
    Cron(CronRule),
    /// `anchor_s + k * every_s` for k = 0, 1, 2, …
    Interval { every_s: i64, anchor_s: i64 },
    /// One instant.
    At { at_s: i64 },
}

impl Source {
    /// The fires in `[start, end)`, in seconds.
    pub(crate) fn fires(self, start: i64, end: i64) -> SourceFires {
        let (start, end) = (start.max(FIRST_S), end.min(LIMIT_S));
        match self {
            Self::Cron(rule) => SourceFires::Cron(rule.fires(start, end)),
            Self::Interval { every_s, anchor_s } => {
                let late = (start - anchor_s).max(0);
                let steps = late / every_s + i64::from(late % every_s != 0);
                SourceFires::Interval {
                    next: anchor_s.saturating_add(steps.saturating_mul(every_s)),
                    every_s,
                    end,
                }
            }
            Self::At { at_s } => SourceFires::At(Some(at_s).filter(|at| (start..end).contains(at))),
        }
    }
}

/// Iterator over one trigger's fires, in seconds.
#[derive(Clone, Debug)]
pub(crate) enum SourceFires {
    Cron(CronFires),
    Interval { next: i64, every_s: i64, end: i64 },
    At(Option<i64>),
}

impl Iterator for SourceFires {
    type Item = i64;

    fn next(&mut self) -> Option<i64> {
        match self {
            Self::Cron(fires) => fires.next(),
            Self::Interval { next, every_s, end } => {
                let fire = Some(*next).filter(|fire| fire < end)?;
                *next = next.saturating_add(*every_s);
                Some(fire)
            }
            Self::At(at) => at.take(),
        }
    }
}

/// Iterator over a plan's fires, in microseconds since the epoch: strictly ascending, the union of its triggers.
#[derive(Clone, Debug)]
pub struct Fires {
    heads: Vec<(i64, SourceFires)>,
}

impl Fires {
    /// Merges the fires of sources in `[start, end)`, in seconds.
    pub(crate) fn of(sources: &[Source], start: i64, end: i64) -> Self {
        let head = |source: &Source| {
            let mut fires = source.fires(start, end);
            fires.next().map(|first| (first, fires))
        };
        Self { heads: sources.iter().filter_map(head).collect() }
    }
}

impl Iterator for Fires {
    type Item = i64;

    fn next(&mut self) -> Option<i64> {
        let first = self.heads.iter().map(|(head, _)| *head).min()?;
        self.heads.retain_mut(|(head, fires)| {
            if *head != first {
                return true;
            }
            fires.next().map(|next| *head = next).is_some()
        });
        Some(first * SECOND_US)
    }
}

/// The first whole second at or after a moment in microseconds.
pub(crate) fn second_ceil(us: i64) -> i64 {
    us.div_euclid(SECOND_US) + i64::from(us.rem_euclid(SECOND_US) != 0)
}
