//! Decides what one change makes of a schedule, and what its queue shards must hear of it.
//!
//! In: a schedule before and after. Out: the schedule with its generation, times, former homes and past pauses, and a
//! [`Notice`]. Invariant: a schedule that does not fire in what may be open has nothing to tell when it is made.
//! Not here: writing, who did it and why.

use super::{News, Notice, Plan, ScheduleNews, home, shards_to_tell};
use crate::model::Schedule;

/// A schedule before and after a change. At least one side is there.
#[derive(Clone, Debug)]
pub struct Change {
    /// As it was; none for a new one.
    pub before: Option<Schedule>,
    /// As it shall be, with its new generation, and its plan; none for a deletion.
    pub after: Option<(Schedule, Plan)>,
    /// When.
    pub at_us: i64,
}

impl Change {
    /// The change from `before` to `after`: gives the new generation, its times, and where it lived. `base`: see
    /// [`super::Layout`].
    pub fn to(before: Option<Schedule>, mut after: Schedule, plan: Plan, at_us: i64, base: u16) -> Self {
        let now_home = home(&after, base);
        after.former_homes = before.as_ref().map_or_else(Vec::new, |before| shards_to_tell(before, base));
        after.former_homes.retain(|shard| *shard != now_home);
        if let Some(before) = &before {
            after.remember_pauses(before, at_us);
        }
        after.generation = before.as_ref().map_or(1, |before| before.generation + 1);
        after.created_us = before.as_ref().map_or(at_us, |before| before.created_us);
        after.updated_us = at_us;
        Self { before, after: Some((after, plan)), at_us }
    }

    /// The deletion of a schedule.
    pub fn deletion(before: Schedule, at_us: i64) -> Self {
        Self { before: Some(before), after: None, at_us }
    }

    /// The schedule as it is after the change, or was before its deletion.
    pub fn schedule(&self) -> Option<&Schedule> {
        self.after.as_ref().map(|(after, _)| after).or(self.before.as_ref())
    }

    /// What the queue shards must hear of it, where no window that ends after `until_us` is open when it is committed. None
    /// where there is nothing to tell: a new schedule that does not fire before.
    pub fn notice(&self, until_us: i64, base: u16) -> Option<Notice> {
        let schedule = self.schedule()?;
        if self.before.is_none()
            && let Some((_, plan)) = &self.after
            && plan.fires_between(self.at_us, until_us).next().is_none()
        {
            return None;
        }
        let deleted = self.after.is_none();
        Some(Notice {
            uid: schedule.uid,
            generation: schedule.generation + i64::from(deleted),
            namespace: schedule.namespace.clone(),
            id: schedule.id.clone(),
            changed_us: self.at_us,
            way: shards_to_tell(schedule, base),
            is_new: self.before.is_none(),
            news: News::Schedule(ScheduleNews {
                policy_uid: schedule.policy_uid,
                until_us,
                events: schedule.events,
                priority: schedule.priority,
                // Nobody lifts the pause of what has been deleted.
                pause: schedule.pause.clone().filter(|_| !deleted),
                was_paused: self.before.as_ref().is_some_and(|before| before.pause.is_some()),
                timing: (!deleted).then(|| schedule.timing.clone()),
            }),
        })
    }
}
