//! Who is next under one policy: by priority, then round robin over the schedules that wait, so that one large
//! batch does not starve a small one. Within a schedule, retries go before new events, older runs before younger.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, VecDeque};

use uuid::Uuid;

use crate::model::RunId;

/// What may start next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Work {
    /// An event that waited for another attempt, or to be sent again.
    Retry(RunId, u32),
    /// The next event of a run; the run stays in its lane.
    Next(RunId),
}

/// What one schedule has waiting at one priority.
#[derive(Debug, Default)]
pub(super) struct Lane {
    pub retries: BTreeSet<(i64, RunId, u32)>,
    pub runs: BTreeSet<(i64, RunId)>,
}

impl Lane {
    fn is_empty(&self) -> bool {
        self.retries.is_empty() && self.runs.is_empty()
    }
}

impl Work {
    /// The run that it is of.
    pub(super) fn run(self) -> RunId {
        match self {
            Self::Retry(run, _) | Self::Next(run) => run,
        }
    }
}

#[derive(Debug, Default)]
struct Level {
    /// The schedules that take turns: those with a lane, less the parked ones.
    ring: VecDeque<Uuid>,
    lanes: BTreeMap<Uuid, Lane>,
}

/// Everything that waits for a token of one policy.
#[derive(Debug, Default)]
pub(super) struct Queue {
    levels: BTreeMap<Reverse<u8>, Level>,
    /// Schedules that wait for something else than a token.
    parked: BTreeSet<Uuid>,
    /// Schedules that were passed over since the round began, and their priorities.
    passed: Vec<(u8, Uuid)>,
}

impl Queue {
    pub(super) fn push_retry(&mut self, priority: u8, schedule: Uuid, due_us: i64, run: RunId, index: u32) {
        self.lane(priority, schedule).retries.insert((due_us, run, index));
    }

    pub(super) fn push_run(&mut self, priority: u8, schedule: Uuid, launch_us: i64, run: RunId) {
        self.lane(priority, schedule).runs.insert((launch_us, run));
    }

    pub(super) fn remove_run(&mut self, priority: u8, schedule: Uuid, launch_us: i64, run: RunId) {
        self.edit(priority, schedule, |lane| {
            lane.runs.remove(&(launch_us, run));
        });
    }

    pub(super) fn remove_retry(&mut self, priority: u8, schedule: Uuid, due_us: i64, run: RunId, index: u32) {
        self.edit(priority, schedule, |lane| {
            lane.retries.remove(&(due_us, run, index));
        });
    }

    /// Takes a schedule out of the turns, or back in.
    pub(super) fn park(&mut self, schedule: Uuid, parked: bool) {
        if parked == self.parked.contains(&schedule) {
            return;
        }
        if parked {
            self.parked.insert(schedule);
        } else {
            self.parked.remove(&schedule);
        }
        for level in self.levels.values_mut() {
            if parked {
                level.ring.retain(|s| *s != schedule);
            } else if level.lanes.contains_key(&schedule) {
                level.ring.push_back(schedule);
            }
        }
    }

    /// Takes the next piece of work that may start. A retry leaves its lane; a run stays until [`Queue::remove_run`]. A
    /// schedule whose next piece may not start takes no turns until [`Queue::end_round`].
    pub(super) fn next(&mut self, may_start: impl Fn(Work) -> bool) -> Option<Work> {
        let (Reverse(priority), level) = self.levels.iter_mut().find(|(_, level)| !level.ring.is_empty())?;
        let schedule = level.ring.pop_front()?;
        let lane = level.lanes.get_mut(&schedule)?;
        let retry = lane.retries.first().copied();
        let work = match retry {
            Some((_, run, index)) => Work::Retry(run, index),
            None => Work::Next(lane.runs.first()?.1),
        };
        if !may_start(work) {
            self.passed.push((*priority, schedule));
            return self.next(may_start);
        }
        if let Some(retry) = retry {
            lane.retries.remove(&retry);
        }
        if lane.is_empty() {
            level.lanes.remove(&schedule);
        } else {
            level.ring.push_back(schedule);
        }
        self.levels.retain(|_, level| !level.lanes.is_empty());
        Some(work)
    }

    /// Whoever was passed over is first in the next round.
    pub(super) fn end_round(&mut self) {
        for (priority, schedule) in std::mem::take(&mut self.passed).into_iter().rev() {
            if let Some(level) = self.levels.get_mut(&Reverse(priority))
                && level.lanes.contains_key(&schedule)
                && !self.parked.contains(&schedule)
                && !level.ring.contains(&schedule)
            {
                level.ring.push_front(schedule);
            }
        }
    }

    /// Lanes in the order of their priority, for explanations: (priority, schedule, lane).
    pub(super) fn lanes(&self) -> impl Iterator<Item = (u8, Uuid, &Lane)> {
        self.levels.iter().flat_map(|(p, level)| level.lanes.iter().map(move |(s, lane)| (p.0, *s, lane)))
    }

    fn lane(&mut self, priority: u8, schedule: Uuid) -> &mut Lane {
        let level = self.levels.entry(Reverse(priority)).or_default();
        if !level.lanes.contains_key(&schedule) && !self.parked.contains(&schedule) {
            level.ring.push_back(schedule);
        }
        level.lanes.entry(schedule).or_default()
    }

    fn edit(&mut self, priority: u8, schedule: Uuid, edit: impl FnOnce(&mut Lane)) {
        let Some(level) = self.levels.get_mut(&Reverse(priority)) else { return };
        let Some(lane) = level.lanes.get_mut(&schedule) else { return };
        edit(lane);
        if lane.is_empty() {
            level.lanes.remove(&schedule);
            level.ring.retain(|s| *s != schedule);
        }
        if level.lanes.is_empty() {
            self.levels.remove(&Reverse(priority));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(n: u128) -> RunId {
        RunId(Uuid::from_u128(n))
    }

    #[test]
    fn priority_then_turns_then_retries() {
        let (a, b) = (Uuid::from_u128(1), Uuid::from_u128(2));
        let mut queue = Queue::default();
        queue.push_run(5, a, 0, run(10));
        queue.push_run(5, b, 0, run(20));
        queue.push_run(9, a, 0, run(90));
        queue.push_retry(5, b, 0, run(20), 7);
        assert_eq!(queue.next(|_| true), Some(Work::Next(run(90))));
        queue.remove_run(9, a, 0, run(90));
        let order: Vec<_> = (0..4).filter_map(|_| queue.next(|_| true)).collect();
        assert_eq!(
            order,
            [Work::Next(run(10)), Work::Retry(run(20), 7), Work::Next(run(10)), Work::Next(run(20))]
        );
    }

    #[test]
    fn who_may_not_start_is_passed_over_until_the_next_round() {
        let (a, b) = (Uuid::from_u128(1), Uuid::from_u128(2));
        let mut queue = Queue::default();
        queue.push_run(9, a, 0, run(10));
        queue.push_run(5, b, 0, run(20));
        let not_a = |work: Work| work.run() != run(10);
        assert_eq!(queue.next(not_a), Some(Work::Next(run(20))), "of a lower priority");
        queue.remove_run(5, b, 0, run(20));
        assert_eq!(queue.next(not_a), None);
        queue.end_round();
        assert_eq!(queue.next(|_| true), Some(Work::Next(run(10))));
    }

    #[test]
    fn a_parked_schedule_is_passed_over_and_comes_back() {
        let (a, b) = (Uuid::from_u128(1), Uuid::from_u128(2));
        let mut queue = Queue::default();
        queue.push_run(5, a, 0, run(10));
        queue.park(a, true);
        queue.push_run(5, b, 0, run(20));
        assert_eq!(queue.next(|_| true), Some(Work::Next(run(20))));
        assert_eq!(queue.next(|_| true), Some(Work::Next(run(20))));
        queue.push_run(5, a, 1, run(11));
        queue.park(a, false);
        assert_eq!(queue.next(|_| true), Some(Work::Next(run(20))));
        assert_eq!(queue.next(|_| true), Some(Work::Next(run(10))));
    }
}
