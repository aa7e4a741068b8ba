//! What a shard no longer needs to remember of schedules and policies.
//!
//! In: a row that has been taken in, the time when nothing stale can come any more. Out: rows that go. Invariants: a pause and a
//! cursor stay as long as their schedule; nothing goes that a run or a token needs.

use uuid::Uuid;

use super::change::ShardSchedule;
use super::explain::Remembered;
use super::live::LiveSchedule;
use super::shard::{Shard, WallTimer};
use crate::model::{DAY_US, Now};

impl Shard {
    /// How much the machine remembers.
    pub fn remembered(&self) -> Remembered {
        let policies = self.ledger.buckets.len() - usize::from(self.ledger.buckets.contains_key(&None));
        Remembered { schedules: self.schedules.len(), specs: self.specs.len(), policies }
    }

    /// A schedule's fence is kept for a day beyond the last window that could hold something stale.
    pub(super) fn forget_later(&mut self, row: &ShardSchedule) {
        self.wall_timers.insert((row.forget_us().max(row.rest_until_us), WallTimer::Forget(row.uid)));
    }

    /// What a schedule's next run needs, its pause and its cursor, is kept as long as the schedule is.
    pub(super) fn forget_schedule(&mut self, uid: Uuid, now: Now) {
        let Some(schedule) = self.schedules.get_mut(&uid) else { return };
        let Some(row) = &schedule.row else { return };
        // There is a timer for the later one of the two.
        if row.forget_us().max(row.rest_until_us) > now.wall_us
            || !row.deleted && (row.pause.is_some() || row.cursor.is_some())
        {
            return;
        }
        if !schedule.is_free() || schedule.buffered.is_some() {
            // Where it rests after each run, each end brings the next timer.
            if row.rest_until_us > 0 && !row.deleted {
                return;
            }
            self.wall_timers.insert((now.wall_us + DAY_US, WallTimer::Forget(uid)));
            return;
        }
        schedule.row = None;
        self.forget_if_idle(uid);
        self.pending.schedules.remove(&uid);
        self.pending.changes.schedules_gone.push(uid);
    }

    /// A schedule of which there is nothing to remember goes. A run that launches makes it anew.
    pub(super) fn forget_if_idle(&mut self, uid: Uuid) {
        if self.schedules.get(&uid).is_some_and(LiveSchedule::is_idle) {
            self.schedules.remove(&uid);
        }
    }

    pub(super) fn forget_policy(&mut self, uid: Uuid, now: Now) {
        self.policies_ended.remove(&uid);
        let Some(bucket) = self.ledger.buckets.get(&Some(uid)).filter(|bucket| bucket.deleted) else {
            return;
        };
        if bucket.in_use() {
            self.wall_timers.insert((now.wall_us + DAY_US, WallTimer::ForgetPolicy(uid)));
            return;
        }
        self.ledger.forget_bucket(uid);
        self.queues.remove(&Some(uid));
        self.pending.changes.policies_gone.push(uid);
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]

    use std::sync::Arc;

    use super::super::batch::TokenBatch;
    use super::super::bucket::Bucket;
    use super::super::live::{LiveRun, LiveSchedule, LiveToken};
    use super::super::targets::Targets;
    use crate::model::{RunId, RunSpec};
    use uuid::Uuid;

    /// `docs/memory.md` says what is so: entries of the shard's maps.
    #[test]
    fn things_cost_what_the_document_says() {
        let text = include_str!("../../../../docs/memory.md");
        let said = |thing: &str| -> usize {
            let row = text.lines().find(|line| line.starts_with(&format!("| {thing}"))).unwrap();
            let bytes = row.split('|').nth(2).unwrap().trim();
            bytes.split(' ').next().unwrap().parse().unwrap()
        };
        let costs = [
            (
                "run ",
                size_of::<(RunId, Box<LiveRun>)>()
                    + size_of::<LiveRun>()
                    + size_of::<(Uuid, Option<Uuid>, RunId)>()
                    + size_of::<(Option<Uuid>, RunId)>(),
            ),
            ("event that has a token", size_of::<((RunId, u32), LiveToken)>()),
            ("events acquired within a second", size_of::<((RunId, u32), TokenBatch)>()),
            ("schedule ", size_of::<(Uuid, LiveSchedule)>()),
            ("what runs share", size_of::<((Uuid, i64), (Arc<RunSpec>, u32))>() + size_of::<RunSpec>()),
            ("policy ", size_of::<(Option<Uuid>, Bucket)>()),
            ("target ", Targets::ENTRY_BYTES),
        ];
        let is = costs.map(|(thing, bytes)| format!("{thing}: {bytes}"));
        assert_eq!(costs.map(|(thing, _)| format!("{thing}: {}", said(thing))), is);
    }
}
