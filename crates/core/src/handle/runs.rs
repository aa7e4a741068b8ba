//! The unfinished runs of a shard, by their ids and by their schedules: a change of one schedule looks at its own runs only.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Deref;

use uuid::Uuid;

use super::live::LiveRun;
use crate::model::RunId;

/// Reads as a map by id.
#[derive(Debug, Default)]
pub(super) struct Runs {
    by_id: BTreeMap<RunId, LiveRun>,
    by_schedule: BTreeSet<(Uuid, RunId)>,
}

impl Runs {
    pub(super) fn get_mut(&mut self, id: &RunId) -> Option<&mut LiveRun> {
        self.by_id.get_mut(id)
    }

    pub(super) fn insert(&mut self, run: LiveRun) {
        let (id, schedule) = (run.row.id, run.row.schedule_uid);
        self.by_schedule.insert((schedule, id));
        self.by_id.insert(id, run);
    }

    pub(super) fn remove(&mut self, id: &RunId) -> Option<LiveRun> {
        let run = self.by_id.remove(id)?;
        self.by_schedule.remove(&(run.row.schedule_uid, *id));
        Some(run)
    }

    /// Those of one schedule.
    pub(super) fn of(&self, schedule: Uuid) -> impl Iterator<Item = &LiveRun> {
        let ids = (schedule, RunId(Uuid::nil()))..=(schedule, RunId(Uuid::max()));
        self.by_schedule.range(ids).filter_map(|(_, id)| self.by_id.get(id))
    }
}

impl Deref for Runs {
    type Target = BTreeMap<RunId, LiveRun>;

    fn deref(&self) -> &Self::Target {
        &self.by_id
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::live_run;
    use super::*;

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
    }
}
