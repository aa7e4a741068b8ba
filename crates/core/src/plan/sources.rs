//! Triggers merged: the fires of a whole plan in ascending order, each once.
//!
//! In: compiled triggers and a span in microseconds. Out: [`Fires`]. Not here: text (`expression`), clock changes
//! (`fires`).

use super::exclusion::Exclusion;
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
    /// The fires in `[start, end)`, in seconds, but for excluded dates.
    pub(crate) fn fires(self, start: i64, end: i64, exclusion: Option<&Exclusion>) -> SourceFires {
        let (start, end) = (start.max(FIRST_S), end.min(LIMIT_S));
        match self {
            Self::Cron(rule) => SourceFires::Cron(rule.fires(start, end, exclusion)),
            Self::Interval { every_s, anchor_s } => {
                let late = (start - anchor_s).max(0);
                let steps = late / every_s + i64::from(late % every_s != 0);
                SourceFires::Interval {
                    next: anchor_s.saturating_add(steps.saturating_mul(every_s)),
                    every_s,
                    end,
                    exclusion: exclusion.cloned(),
                }
            }
            Self::At { at_s } => {
                let is_excluded = exclusion.is_some_and(|exclusion| exclusion.passes_until_s(at_s).is_some());
                SourceFires::At(Some(at_s).filter(|at| !is_excluded && (start..end).contains(at)))
            }
        }
    }
}

/// Iterator over one trigger's fires, in seconds.
#[derive(Clone, Debug)]
pub(crate) enum SourceFires {
    Cron(CronFires),
    Interval { next: i64, every_s: i64, end: i64, exclusion: Option<Exclusion> },
    At(Option<i64>),
}

impl Iterator for SourceFires {
    type Item = i64;

    fn next(&mut self) -> Option<i64> {
        match self {
            Self::Cron(fires) => fires.next(),
            Self::Interval { next, every_s, end, exclusion } => loop {
                let fire = Some(*next).filter(|fire| fire < end)?;
                let until_s = exclusion.as_ref().and_then(|exclusion| exclusion.passes_until_s(fire));
                let passed_s = until_s.map_or(1, |until_s| until_s - fire);
                let steps = passed_s / *every_s + i64::from(passed_s % *every_s != 0);
                *next = next.saturating_add(steps.saturating_mul(*every_s));
                if until_s.is_none() {
                    break Some(fire);
                }
            },
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
    pub(crate) fn of(sources: &[Source], exclusion: Option<&Exclusion>, start: i64, end: i64) -> Self {
        let head = |source: &Source| {
            let mut fires = source.fires(start, end, exclusion);
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
