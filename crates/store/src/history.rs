//! What has ended, and what is kept of it: reads for users, retention for operators.

use std::time::Duration;

use async_trait::async_trait;
use tollgate_core::handle::change::{HistoryRow, Outcome, TokenRow, Unstarted};
use tollgate_core::model::{Run, RunId, RunState, Skipped};
use tollgate_core::trouble::Missed;
use uuid::Uuid;

use crate::StoreError;

/// Ids that begin alike.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RunIds {
    /// Of this queue shard; none for all.
    pub shard: Option<u16>,
    /// The first of them.
    pub from: RunId,
    /// The last of them.
    pub to: RunId,
}

/// Which runs to list, and from which end. All that is set must hold.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RunFilter {
    /// Of this schedule.
    pub schedule_uid: Option<Uuid>,
    /// Under this policy.
    pub policy_uid: Option<Uuid>,
    /// In one of these states.
    pub states: Vec<RunState>,
    /// Of those that are FINISHED, only the ones of which some events ended badly, or none.
    pub failures: Option<bool>,
    /// With one of these ids.
    pub ids: Option<RunIds>,
    /// Launched at or after.
    pub from_us: Option<i64>,
    /// Launched before.
    pub to_us: Option<i64>,
    /// Earliest launch first; newest first without.
    pub rising: bool,
}

impl RunFilter {
    /// Whether only unfinished runs can match: there is an index of these.
    pub(crate) fn is_open(&self) -> bool {
        let open = |state: &RunState| matches!(state, RunState::Waiting | RunState::Running);
        self.ids.is_none() && !self.states.is_empty() && self.states.iter().all(open)
    }
}

/// Which runs to list of which events ended badly. All that is set must hold.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FailureFilter {
    /// Of this schedule.
    pub schedule_uid: Option<Uuid>,
    /// Under this policy.
    pub policy_uid: Option<Uuid>,
    /// Ended at or after.
    pub from_us: Option<i64>,
    /// Ended at or before.
    pub until_us: Option<i64>,
    /// Also those that somebody has closed.
    pub closed: bool,
}

/// What a pruning removed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Pruned {
    /// Rows of the done queue, or whole partitions.
    pub events: u64,
    /// Finished runs.
    pub runs: u64,
    /// Skipped triggers.
    pub skipped: u64,
    /// Audit entries.
    pub audit: u64,
    /// Results of runs that have gone, attempts, complete windows and run specs that nothing needs, API keys that ended,
    /// minutes that are part of an hour now, notes of runs that were closed, and requests for runs by hand.
    pub other: u64,
}

/// The history's part of a store: reads.
#[async_trait]
pub trait HistoryStore: Send + Sync {
    /// Runs of a namespace in the filter's order, from after (`launch_us`, run) on.
    async fn list_runs(
        &self,
        namespace: &str,
        filter: &RunFilter,
        after: Option<(i64, RunId)>,
        limit: u32,
    ) -> Result<Vec<Run>, StoreError>;
    /// WAITING and RUNNING runs of a policy that launch before `before_us`, earliest launch first. A run that cannot be
    /// read is left out.
    async fn policy_runs_open(
        &self,
        shard: u16,
        policy_uid: Uuid,
        before_us: i64,
        limit: u32,
    ) -> Result<Vec<Run>, StoreError>;
    /// Runs of a policy that have ended at or after `since_us`, latest end first. A run that cannot be read is left out.
    async fn policy_runs_ended(
        &self,
        shard: u16,
        policy_uid: Uuid,
        since_us: i64,
        limit: u32,
    ) -> Result<Vec<Run>, StoreError>;
    /// Runs of a shard that have ended at or after `since_us` with events that failed, died, expired or were lost, latest end
    /// first, without those that somebody has closed. A run that cannot be read is left out.
    async fn runs_not_well(&self, shard: u16, since_us: i64, limit: u32) -> Result<Vec<Run>, StoreError>;
    /// Runs of a shard that have ended at or after `since_us`, latest end first. A run that cannot be read is left out, and not
    /// named: whoever needs it does that.
    async fn runs_ended(&self, shard: u16, since_us: i64, limit: u32) -> Result<Vec<Run>, StoreError>;
    /// Runs of a schedule that a shard has and that launch at or before `until_us`, in whatever state they are, latest launch
    /// first. A run that cannot be read is left out, and not named.
    async fn schedule_runs(
        &self,
        shard: u16,
        schedule_uid: Uuid,
        until_us: i64,
        limit: u32,
    ) -> Result<Vec<Run>, StoreError>;
    /// Runs of a namespace that have ended with events that failed, died, expired or were lost, latest end first, from after
    /// (`finished_us`, run) on.
    async fn runs_failed(
        &self,
        namespace: &str,
        filter: &FailureFilter,
        after: Option<(i64, RunId)>,
        limit: u32,
    ) -> Result<Vec<Run>, StoreError>;
    /// Rows of the done queue of a run with one of these outcomes that cover `from_index` or lie after it, in order. Success
    /// is never among them.
    async fn history_failed(
        &self,
        shard: u16,
        run: RunId,
        from_index: u32,
        outcomes: &[Outcome],
        limit: u32,
    ) -> Result<Vec<HistoryRow>, StoreError>;
    /// Closes what went wrong in runs of a shard, up to an end of theirs each: nothing more is to be done about it.
    async fn close_failures(&self, shard: u16, runs: &[(RunId, i64)]) -> Result<(), StoreError>;
    /// Which of these runs of a shard somebody has closed, and up to which end.
    async fn closed_failures(&self, shard: u16, runs: &[RunId]) -> Result<Vec<(RunId, i64)>, StoreError>;
    /// Triggers of a schedule that made no run, newest first, from before `before_us` on.
    async fn list_skipped(
        &self,
        schedule_uid: Uuid,
        before_us: Option<i64>,
        limit: u32,
    ) -> Result<Vec<Skipped>, StoreError>;
    /// The schedules whose triggers were missed, of the latest `limit` triggers recorded at or after `since_us`; those that
    /// missed the most first.
    async fn missed_triggers(&self, since_us: i64, limit: u32) -> Result<Vec<Missed>, StoreError>;
    /// As [`HistoryStore::missed_triggers`], of those whose items could not be fetched.
    async fn not_listed_triggers(&self, since_us: i64, limit: u32) -> Result<Vec<Missed>, StoreError>;
    /// Which events of a run have not started, where it starts them key by key: in the order of their index, from the stretch on
    /// that holds `from_index`.
    async fn unstarted(
        &self,
        shard: u16,
        run: RunId,
        from_index: u32,
        limit: u32,
    ) -> Result<Vec<Unstarted>, StoreError>;
    /// Token rows of a run in the order of their index, from `from_index` on.
    async fn tokens(
        &self,
        shard: u16,
        run: RunId,
        from_index: u32,
        limit: u32,
    ) -> Result<Vec<TokenRow>, StoreError>;
    /// Rows of the done queue of a run that cover `from_index` or lie after it, in order; of one outcome if given.
    async fn history(
        &self,
        shard: u16,
        run: RunId,
        from_index: u32,
        outcome: Option<Outcome>,
        limit: u32,
    ) -> Result<Vec<HistoryRow>, StoreError>;
}

/// The part of a store that forgets what ended long ago.
#[async_trait]
pub trait RetentionStore: Send + Sync {
    /// Removes what ended before `before_us`, in small transactions, and makes room for the days to come (daily
    /// partitions from today to the day after tomorrow, on PostgreSQL). Rows of the done queue go by whole days of their
    /// own ends on PostgreSQL, and with their runs on SQLite. Run specs go when it is their shard's turn
    /// ([`prunes_specs_of`]). Minutes ([`crate::minutes`]) become hours.
    async fn prune(&self, before_us: i64, now_us: i64) -> Result<Pruned, StoreError>;
    /// Up to where any process has pruned; none before the first time.
    async fn pruned_before_us(&self) -> Result<Option<i64>, StoreError>;
    /// Notes that pruning is about to go to `to_us`. Answers false, and notes nothing, where it does not stand at
    /// `from_us` any more.
    async fn note_pruning(&self, from_us: Option<i64>, to_us: i64) -> Result<bool, StoreError>;
}

/// How many rows of a sort one transaction of [`RetentionStore::prune`] removes at most.
pub(crate) const PRUNE_AT_ONCE: u32 = 1000;

/// How long complete windows, and run specs that nothing needs, are kept all the same: a day at least.
pub(crate) const PRUNE_SPARE_US: i64 = tollgate_core::model::DAY_US;

/// How often [`RetentionStore::prune`] is to be called.
pub const PRUNE_EVERY: Duration = Duration::from_secs(600);
const PRUNE_EVERY_US: i64 = PRUNE_EVERY.as_secs() as i64 * 1_000_000;

/// The number of prunings in which each shard's run specs are looked through once. It is a prime, and a little more than a day's
/// prunings, so that a service that runs at the same hours every day comes to all shards.
const TURNS: i64 = 149;

/// Whether a pruning at this moment looks through the run specs of this shard, one of `shards`. No index tells those that nothing
/// needs any more, so each is looked at, and not every time.
pub fn prunes_specs_of(shard: u16, shards: u16, now_us: i64) -> bool {
    let turn = now_us.div_euclid(PRUNE_EVERY_US).rem_euclid(TURNS);
    turn == i64::from(shard) * TURNS / i64::from(shards)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_shard_has_one_turn_and_no_turn_more_than_its_share() {
        for shards in [1, 2, 64, 149, 200, 4_096] {
            let mut had = vec![0; usize::from(shards)];
            for turn in -7..TURNS - 7 {
                let at = |now_us| -> Vec<u16> {
                    (0..shards).filter(|shard| prunes_specs_of(*shard, shards, now_us)).collect()
                };
                let now = at(turn * PRUNE_EVERY_US);
                assert_eq!(now, at((turn + 1) * PRUNE_EVERY_US - 1));
                assert!(now.len() as i64 <= (i64::from(shards) + TURNS - 1) / TURNS, "{now:?} of {shards}");
                now.iter().for_each(|shard| had[usize::from(*shard)] += 1);
            }
            assert!(had.iter().all(|turns| *turns == 1), "{shards}: {had:?}");
        }
    }
}
