//! What becomes of the cursors that runs leave for the next one of their schedule.

use std::collections::BTreeSet;

use tollgate_core::handle::change::Changes;
use tollgate_core::model::*;
use uuid::Uuid;

use crate::handle_world::Store;
use crate::world::World;

/// Cursors that were replaced by later ones, each in some shard.
#[derive(Default)]
pub(crate) struct Replaced(BTreeSet<(u16, Uuid, String)>);

impl Replaced {
    /// No cursor comes back after a later one, unless it was left once more, as the commit with the first time failed; and a
    /// cursor that is left where the schedule lives is kept there. `store`: before the commit.
    pub(crate) fn check(&mut self, shard: u16, store: &Store, changes: &Changes) {
        for row in &changes.schedules {
            let stored = store.schedules.get(&row.uid);
            let before = stored.and_then(|row| row.cursor.clone());
            if let (Some(before), Some(now)) = (before, &row.cursor)
                && before != *now
            {
                let is_later = stored.is_some_and(|stored| row.cursor_us > stored.cursor_us);
                let is_back = self.0.contains(&(shard, row.uid, now.clone()));
                assert!(is_later || !is_back, "{now} comes back after {before}: {row:?}");
                self.0.insert((shard, row.uid, before));
            }
        }
        for run in &changes.runs_changed {
            let before = store.runs.get(&run.id).and_then(|run| run.cursor_out.as_ref());
            if run.cursor_out.is_none() || run.cursor_out.as_ref() == before {
                continue;
            }
            let (uid, old) = (run.schedule_uid, store.schedules.get(&run.schedule_uid));
            let row = changes.schedules.iter().find(|row| row.uid == uid).or(old);
            let is_away = [row, old].into_iter().flatten().any(|row| row.deleted || row.home.is_some());
            let is_kept =
                is_away || old.and_then(|row| row.cursor.as_ref()) != row.and_then(|row| row.cursor.as_ref());
            assert!(is_kept, "{:?} is not kept: {row:?}", run.cursor_out);
        }
    }
}

impl World {
    /// Where runs of a schedule have left cursors, its next run would get one.
    pub(crate) fn check_cursors(&mut self) {
        let runs = self.stores.iter().flat_map(|store| store.runs.values());
        let left: BTreeSet<Uuid> =
            runs.filter(|run: &&Run| run.cursor_out.is_some()).map(|run| run.schedule_uid).collect();
        for (uid, stored) in self.master.schedules.iter().filter(|(uid, _)| left.contains(uid)) {
            let row = self.stores[usize::from(stored.shard)].schedules.get(uid);
            let is_there = row.is_some_and(|row| row.cursor.is_some() && row.home.is_none());
            assert!(stored.deleted || is_there, "no run gets a cursor of {uid} in {}: {row:?}", stored.shard);
        }
    }
}
