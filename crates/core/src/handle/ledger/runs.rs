//! The unfinished runs of a shard, by their ids, schedules and policies: a change of one looks at its own runs only.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;

use uuid::Uuid;

use crate::handle::live::LiveRun;
use crate::handle::steps::Counted as _;
use crate::model::RunId;

const FIRST: RunId = RunId(Uuid::nil());
const LAST: RunId = RunId(Uuid::max());

/// Only the books take runs in and out.
#[derive(Debug, Default)]
pub(in crate::handle) struct Runs {
    /// Boxed: a map keeps room for nearly twice its entries.
    by_id: BTreeMap<RunId, Box<LiveRun>>,
    by_schedule: BTreeSet<(Uuid, Option<Uuid>, RunId)>,
    by_policy: BTreeSet<(Option<Uuid>, RunId)>,
    /// Those that the history looks at next; some may have gone.
    stirred: Vec<RunId>,
}

impl Runs {
    pub(in crate::handle) fn get(&self, id: &RunId) -> Option<&LiveRun> {
        self.by_id.get(id).map(Box::as_ref)
    }

    pub(in crate::handle) fn contains(&self, id: &RunId) -> bool {
        self.by_id.contains_key(id)
    }

    pub(in crate::handle) fn len(&self) -> usize {
        self.by_id.len()
    }

    /// All of the shard.
    pub(in crate::handle) fn all(&self) -> impl Iterator<Item = &LiveRun> {
        self.by_id.values().counted().map(Box::as_ref)
    }

    /// As [`Self::all`], to note something of each.
    pub(in crate::handle) fn all_mut(&mut self) -> impl Iterator<Item = &mut LiveRun> {
        self.by_id.values_mut().counted().map(Box::as_mut)
    }

    pub(in crate::handle) fn get_mut(&mut self, id: &RunId) -> Option<&mut LiveRun> {
        self.by_id.get_mut(id).map(Box::as_mut)
    }

    /// As [`Self::get_mut`], of one whose events come to stand otherwise: the history looks at it next.
    pub(in crate::handle) fn stir(&mut self, id: &RunId) -> Option<&mut LiveRun> {
        let run = self.by_id.get_mut(id)?;
        if run.noted.stir() {
            self.stirred.push(*id);
        }
        Some(run)
    }

    /// Those that have been stirred since they were taken last, and some that have gone.
    pub(in crate::handle) fn take_stirred(&mut self) -> impl Iterator<Item = RunId> + use<> {
        std::mem::take(&mut self.stirred).into_iter().counted()
    }

    pub(super) fn insert(&mut self, run: LiveRun) {
        let (id, schedule, policy) = (run.row.id, run.row.schedule_uid, run.row.policy_uid);
        self.by_schedule.insert((schedule, policy, id));
        self.by_policy.insert((policy, id));
        self.by_id.insert(id, Box::new(run));
    }

    pub(super) fn remove(&mut self, id: &RunId) -> Option<LiveRun> {
        let run = self.by_id.remove(id)?;
        self.by_schedule.remove(&(run.row.schedule_uid, run.row.policy_uid, *id));
        self.by_policy.remove(&(run.row.policy_uid, *id));
        Some(*run)
    }

    /// Those of one schedule.
    pub(in crate::handle) fn of(&self, schedule: Uuid) -> impl Iterator<Item = &LiveRun> {
        let ids = (schedule, None, FIRST)..=(schedule, Some(Uuid::max()), LAST);
        self.by_schedule.range(ids).counted().filter_map(|(.., id)| self.get(id))
    }

    /// The policies that those of one schedule are under, each once, without a look at every run.
    pub(in crate::handle) fn policies_of(&self, schedule: Uuid) -> impl Iterator<Item = Option<Uuid>> {
        let end = Bound::Included((schedule, Some(Uuid::max()), LAST));
        let mut from = Bound::Included((schedule, None, FIRST));
        let next = move || {
            let (_, policy, _) = *self.by_schedule.range((from, end)).next()?;
            from = Bound::Excluded((schedule, policy, LAST));
            Some(policy)
        };
        std::iter::from_fn(next).counted()
    }

    /// Those under one policy, in the order of their ids.
    pub(in crate::handle) fn under(&self, policy: Option<Uuid>) -> impl Iterator<Item = RunId> {
        self.by_policy.range((policy, FIRST)..=(policy, LAST)).counted().map(|(_, id)| *id)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::handle::steps::steps;
    use crate::handle::testing::live_run;

    #[test]
    fn a_schedule_finds_its_own_runs_as_long_as_they_are_there() {
        let mut runs = Runs::default();
        let (a, b) = (Uuid::from_u128(1), Uuid::from_u128(2));
        for (schedule, launch_us) in [(a, 10), (b, 10), (a, 20)] {
            runs.insert(live_run(schedule, launch_us));
        }
        let launches = |runs: &Runs, of| {
            let mut all: Vec<i64> = runs.of(of).map(|run| run.row.launch_us).collect();
            all.sort_unstable();
            all
        };
        assert_eq!((launches(&runs, a), launches(&runs, b)), (vec![10, 20], vec![10]));
        assert!(runs.remove(&RunId::derive(a, 10)).is_some() && runs.remove(&RunId::derive(a, 10)).is_none());
        assert_eq!((launches(&runs, a), runs.len(), runs.by_schedule.len()), (vec![20], 2, 2));
        assert_eq!(runs.by_policy.len(), 2);
    }

    #[test]
    fn the_policies_of_a_schedule_are_found_without_a_look_at_every_run() {
        let mut runs = Runs::default();
        let schedule = Uuid::from_u128(7);
        let (first, last) = (Some(Uuid::from_u128(1)), Some(Uuid::from_u128(9)));
        for launch_us in 0..300 {
            let mut run = live_run(schedule, launch_us);
            run.row.policy_uid = [None, first, last][launch_us as usize % 3];
            runs.insert(run);
        }
        runs.insert(live_run(Uuid::from_u128(8), 0));
        let before = steps();
        assert_eq!(runs.policies_of(schedule).collect::<Vec<_>>(), [None, first, last]);
        assert_eq!(steps() - before, 3);
        assert_eq!((runs.under(last).count(), runs.under(None).count()), (100, 101));
    }
}
