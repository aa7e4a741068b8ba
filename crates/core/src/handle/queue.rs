//! Who is next under one policy: by priority, then round robin over the namespaces that wait, so that many schedules of
//! one do not starve the single one of another (a policy has one namespace; what runs without a policy has many), then
//! round robin over the namespace's schedules, so that one large batch does not starve a small one. Within a schedule,
//! retries go before new events, older runs before younger.

use std::cmp::Reverse;
use std::collections::btree_map::Entry;
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

/// Whose work it is, and how urgent.
#[derive(Clone, Copy, Debug)]
pub(super) struct Of<'a> {
    pub namespace: &'a str,
    pub priority: u8,
    pub schedule: Uuid,
}

/// What one schedule has waiting at one priority.
#[derive(Debug, Default)]
pub(super) struct Lane {
    pub namespace: String,
    /// It takes turns: it is neither parked nor passed over.
    in_ring: bool,
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
    /// The namespaces that take turns: those with a ring.
    turns: VecDeque<String>,
    /// The schedules of each that take turns: those with a lane, less the parked ones. None is empty.
    rings: BTreeMap<String, VecDeque<Uuid>>,
    lanes: BTreeMap<Uuid, Lane>,
}

impl Level {
    /// The schedule takes turns from now on, before those that do or behind them.
    fn enter(&mut self, schedule: Uuid, first: bool) {
        let Some(lane) = self.lanes.get_mut(&schedule).filter(|lane| !lane.in_ring) else { return };
        lane.in_ring = true;
        let ring = self.rings.entry(lane.namespace.clone()).or_default();
        let is_new = ring.is_empty();
        if first {
            ring.push_front(schedule);
        } else {
            ring.push_back(schedule);
        }
        if is_new && first {
            self.turns.push_front(lane.namespace.clone());
        } else if is_new {
            self.turns.push_back(lane.namespace.clone());
        }
    }

    /// The schedule takes no turns any more.
    fn leave(&mut self, schedule: Uuid, namespace: &str) {
        if let Some(lane) = self.lanes.get_mut(&schedule) {
            lane.in_ring = false;
        }
        let Some(ring) = self.rings.get_mut(namespace) else { return };
        ring.retain(|other| *other != schedule);
        if ring.is_empty() {
            self.rings.remove(namespace);
            self.turns.retain(|other| other != namespace);
        }
    }
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
    pub(super) fn push_retry(&mut self, of: Of<'_>, due_us: i64, run: RunId, index: u32) {
        self.lane(of).retries.insert((due_us, run, index));
    }

    pub(super) fn push_run(&mut self, of: Of<'_>, launch_us: i64, run: RunId) {
        self.lane(of).runs.insert((launch_us, run));
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
            let Some(lane) = level.lanes.get(&schedule) else { continue };
            if parked {
                let namespace = lane.namespace.clone();
                level.leave(schedule, &namespace);
            } else {
                level.enter(schedule, false);
            }
        }
    }

    /// Takes the next piece of work that may start. A retry leaves its lane; a run stays until [`Queue::remove_run`]. A
    /// schedule whose next piece may not start takes no turns until [`Queue::end_round`], and uses up none of its
    /// namespace's.
    pub(super) fn next(&mut self, may_start: impl Fn(Work) -> bool) -> Option<Work> {
        loop {
            let (Reverse(priority), level) =
                self.levels.iter_mut().find(|(_, level)| !level.turns.is_empty())?;
            let namespace = level.turns.pop_front()?;
            let ring = level.rings.get_mut(&namespace)?;
            let schedule = ring.pop_front()?;
            let lane = level.lanes.get_mut(&schedule)?;
            let retry = lane.retries.first().copied();
            let work = match retry {
                Some((_, run, index)) => Work::Retry(run, index),
                None => Work::Next(lane.runs.first()?.1),
            };
            let starts = may_start(work);
            if starts && let Some(retry) = retry {
                lane.retries.remove(&retry);
            }
            lane.in_ring = starts && !lane.is_empty();
            if lane.in_ring {
                ring.push_back(schedule);
            } else if starts {
                level.lanes.remove(&schedule);
            } else {
                self.passed.push((*priority, schedule));
            }
            if ring.is_empty() {
                level.rings.remove(&namespace);
            } else if starts {
                level.turns.push_back(namespace);
            } else {
                level.turns.push_front(namespace);
            }
            if starts {
                self.levels.retain(|_, level| !level.lanes.is_empty());
                return Some(work);
            }
        }
    }

    /// Whoever was passed over is first in the next round.
    pub(super) fn end_round(&mut self) {
        for (priority, schedule) in std::mem::take(&mut self.passed).into_iter().rev() {
            if !self.parked.contains(&schedule)
                && let Some(level) = self.levels.get_mut(&Reverse(priority))
            {
                level.enter(schedule, true);
            }
        }
    }

    /// Lanes in the order of their priority, for explanations: (priority, schedule, lane).
    pub(super) fn lanes(&self) -> impl Iterator<Item = (u8, Uuid, &Lane)> {
        self.levels.iter().flat_map(|(p, level)| level.lanes.iter().map(move |(s, lane)| (p.0, *s, lane)))
    }

    fn lane(&mut self, of: Of<'_>) -> &mut Lane {
        let Of { namespace, priority, schedule } = of;
        let level = self.levels.entry(Reverse(priority)).or_default();
        if let Entry::Vacant(free) = level.lanes.entry(schedule) {
            free.insert(Lane { namespace: namespace.to_owned(), ..Lane::default() });
            if !self.parked.contains(&schedule) {
                level.enter(schedule, false);
            }
        }
        level.lanes.entry(schedule).or_default()
    }

    fn edit(&mut self, priority: u8, schedule: Uuid, edit: impl FnOnce(&mut Lane)) {
        let Some(level) = self.levels.get_mut(&Reverse(priority)) else { return };
        let Some(lane) = level.lanes.get_mut(&schedule) else { return };
        edit(lane);
        if lane.is_empty() {
            let namespace = std::mem::take(&mut lane.namespace);
            level.leave(schedule, &namespace);
            level.lanes.remove(&schedule);
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

    fn of(priority: u8, schedule: Uuid) -> Of<'static> {
        Of { namespace: "team", priority, schedule }
    }

    #[test]
    fn many_schedules_of_one_namespace_take_turns_with_the_one_of_another() {
        let mut queue = Queue::default();
        for schedule in 1..=300 {
            let of = Of { namespace: "many", priority: 5, schedule: Uuid::from_u128(schedule) };
            queue.push_run(of, 0, run(schedule));
        }
        let (one, two) = (Uuid::from_u128(1_001), Uuid::from_u128(1_002));
        let single = |schedule| Of { namespace: "one", priority: 5, schedule };
        queue.push_run(single(one), 0, run(1_001));
        queue.push_retry(single(two), 0, run(1_002), 3);
        queue.push_run(single(two), 0, run(1_002));
        let order: Vec<_> = (0..8).filter_map(|_| queue.next(|_| true)).collect();
        let expected = [1, 1_001, 2, 1_002, 3, 1_001, 4, 1_002].map(|n| Work::Next(run(n)));
        assert_eq!(order[3], Work::Retry(run(1_002), 3));
        assert_eq!((&order[..3], &order[4..]), (&expected[..3], &expected[4..]));
        // One of them parks, the other ends: the namespace has no turns until it has something again.
        queue.park(one, true);
        queue.remove_run(5, two, 0, run(1_002));
        let order: Vec<_> = (0..4).filter_map(|_| queue.next(|_| true)).collect();
        assert_eq!(order, [5, 6, 7, 8].map(|n| Work::Next(run(n))));
        queue.park(one, false);
        let order: Vec<_> = (0..300).filter_map(|_| queue.next(|_| true)).collect();
        assert!(order.contains(&Work::Next(run(1_001))));
        assert_eq!(order.iter().filter(|work| **work == Work::Next(run(9))).count(), 1);
    }

    #[test]
    fn priority_then_turns_then_retries() {
        let (a, b) = (Uuid::from_u128(1), Uuid::from_u128(2));
        let mut queue = Queue::default();
        queue.push_run(of(5, a), 0, run(10));
        queue.push_run(of(5, b), 0, run(20));
        queue.push_run(of(9, a), 0, run(90));
        queue.push_retry(of(5, b), 0, run(20), 7);
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
        queue.push_run(of(9, a), 0, run(10));
        queue.push_run(of(5, b), 0, run(20));
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
        queue.push_run(of(5, a), 0, run(10));
        queue.park(a, true);
        queue.push_run(of(5, b), 0, run(20));
        assert_eq!(queue.next(|_| true), Some(Work::Next(run(20))));
        assert_eq!(queue.next(|_| true), Some(Work::Next(run(20))));
        queue.push_run(of(5, a), 1, run(11));
        queue.park(a, false);
        assert_eq!(queue.next(|_| true), Some(Work::Next(run(20))));
        assert_eq!(queue.next(|_| true), Some(Work::Next(run(10))));
    }
}
