//! Decides what becomes of one launch: a run, a recorded skip, or nothing.
//!
//! In: a schedule, a launch time that its children yield, the time now. Out: a [`Fate`]. Invariant: of a launch that
//! has fallen due, nothing is silent; only what lies before the schedule was made is passed over.
//! Not here: which launches there are ([`super::launch_times`]), writing.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;

use crate::model::{CatchUp, SECOND_US, Schedule, SkipReason};
use crate::plan::{Plan, PlanError};
use uuid::Uuid;

/// What becomes of a launch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    /// It makes a run.
    Run,
    /// It makes none, and that is recorded.
    Skip(SkipReason),
    /// The schedule did not exist yet.
    Before,
}

/// Judges launches at one moment.
#[derive(Debug)]
pub struct Judge {
    now_us: i64,
    late_us: i64,
    /// Of the schedules that had to be asked for their latest launch.
    plans: BTreeMap<Uuid, Plan>,
}

impl Judge {
    /// A judge at `now_us`, to whom launches whose runs should have started longer than `late_after_us` ago have been missed.
    pub fn new(now_us: i64, late_after_us: i64) -> Self {
        Self { now_us, late_us: now_us.saturating_sub(late_after_us), plans: BTreeMap::new() }
    }

    /// The moment of its judgements.
    pub fn now_us(&self) -> i64 {
        self.now_us
    }

    /// What becomes of a schedule's launch. `next_us` is a later launch of the same schedule, where the caller knows
    /// one: it spares a look at the plan.
    ///
    /// # Errors
    /// [`PlanError`] where the schedule's timing had to be asked and cannot be read.
    pub fn fate(
        &mut self,
        schedule: &Schedule,
        launch_us: i64,
        next_us: Option<i64>,
    ) -> Result<Fate, PlanError> {
        if launch_us <= schedule.created_us {
            return Ok(Fate::Before);
        }
        if schedule.paused_until_us(launch_us).is_some() {
            return Ok(Fate::Skip(SkipReason::Paused));
        }
        // What has yet to start has not been missed.
        if launch_us.saturating_add(schedule.start_delay_us()) >= self.late_us {
            return Ok(Fate::Run);
        }
        let fires = match schedule.catch_up {
            CatchUp::None => false,
            CatchUp::Latest => {
                let is_counted = |us: &i64| *us <= self.now_us && schedule.paused_until_us(*us).is_none();
                !next_us.as_ref().is_some_and(is_counted) && self.is_latest(schedule, launch_us)?
            }
            CatchUp::All { horizon_s } => {
                launch_us >= self.now_us.saturating_sub(horizon_s.saturating_mul(SECOND_US))
            }
        };
        Ok(if fires { Fate::Run } else { Fate::Skip(SkipReason::Missed) })
    }

    /// Whether no trigger of the schedule has fired in (launch, now], but for those within pauses.
    fn is_latest(&mut self, schedule: &Schedule, launch_us: i64) -> Result<bool, PlanError> {
        let plan = match self.plans.entry(schedule.uid) {
            Entry::Occupied(known) => known.into_mut(),
            Entry::Vacant(new) => new.insert(Plan::forecast(&schedule.timing, schedule.uid.as_bytes())?),
        };
        let mut from_us = launch_us;
        while let Some(next_us) = plan.fires_between(from_us, self.now_us).next() {
            match schedule.paused_until_us(next_us) {
                Some(until_us) if until_us < self.now_us => from_us = until_us,
                Some(_) => break,
                None => return Ok(false),
            }
        }
        Ok(true)
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]

    use super::*;
    use crate::model::{MINUTE_US, Timing, Trigger};

    /// Launched at minute 60, started some minutes later: missed is what has not started in time.
    #[test]
    fn what_has_yet_to_start_is_not_missed() {
        let mut schedule =
            crate::plan::warnings::tests::schedule(Trigger::Cron { expression: "0 * * * *".into() });
        schedule.timing = Timing { time_zone: "UTC".into(), ..schedule.timing };
        schedule.catch_up = CatchUp::None;
        schedule.created_us = 0;
        schedule.start_within_s = Some(3_600);
        let launch_us = 60 * MINUTE_US;
        let start_us = launch_us + schedule.start_delay_us();
        assert!(start_us > launch_us + MINUTE_US);
        let fate = |now_us| Judge::new(now_us, MINUTE_US).fate(&schedule, launch_us, None).unwrap();
        assert_eq!(fate(start_us + MINUTE_US), Fate::Run);
        assert_eq!(fate(start_us + MINUTE_US + 1), Fate::Skip(SkipReason::Missed));
        let at_once = Schedule { start_within_s: None, ..schedule.clone() };
        let fate = |now_us| Judge::new(now_us, MINUTE_US).fate(&at_once, launch_us, None).unwrap();
        assert_eq!(fate(launch_us + MINUTE_US + 1), Fate::Skip(SkipReason::Missed));
    }
}
