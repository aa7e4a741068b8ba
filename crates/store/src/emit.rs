//! Windows, scan tasks and the launch index: what the Event Emitter reads and writes.

use async_trait::async_trait;
pub use tollgate_core::emit::{Checkpoint, ClaimedTask, ScanPage, ScannedChild};
use tollgate_core::emit::{Task, Window};
use tollgate_core::model::{Run, Skipped};
use uuid::Uuid;

use crate::{CorruptRow, StoreError};

/// How far the emitters are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Frontier {
    /// The end of the newest window that has been opened; none before the first.
    pub opened_until_us: Option<i64>,
    /// The end of the last window before the first incomplete one.
    pub completed_until_us: Option<i64>,
}

/// A window as it is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WindowRow {
    /// From and to.
    pub window: Window,
    /// When it was opened.
    pub opened_us: i64,
    /// When its last task was done; none while it is open.
    pub completed_us: Option<i64>,
    /// Whether it has got its scan tasks; until then it is announced only.
    pub planned: bool,
    /// How many scan tasks it had.
    pub tasks: u32,
    /// How many of them are not done.
    pub tasks_left: u32,
    /// How many runs it emitted.
    pub runs: u32,
}

/// The emitter's part of a store.
#[async_trait]
pub trait EmitStore: Send + Sync {
    /// Rows that reads by this process, of any part of the store, have passed over because they do not hold what they
    /// must.
    fn corrupt_rows(&self) -> Vec<CorruptRow>;
    /// How far the emitters are.
    async fn frontier(&self) -> Result<Frontier, StoreError>;
    /// Every (zone, launch expression) that has children, for those launch expressions of cron classes that are
    /// among `eligible`, and all of the classes I and A.
    async fn registry(&self, eligible: &[String]) -> Result<Vec<(String, String)>, StoreError>;
    /// The zones that have children.
    async fn zones(&self) -> Result<Vec<String>, StoreError>;
    /// Makes a window known before it has tasks: from then on [`Frontier::opened_until_us`] includes it, and it is
    /// incomplete. Nothing changes if it does not follow the newest known one. Returns whether it was new.
    ///
    /// The registry must be read after this, and the tasks made of it be given to [`Self::open_window`]. A schedule
    /// that is written meanwhile is then in the registry, or its writer, who asks for the frontier after the commit,
    /// sees the window and corrects it.
    async fn announce_window(&self, window: Window, now_us: i64) -> Result<bool, StoreError>;
    /// Gives an announced window its tasks (or opens a new one with them); nothing changes if it has got its tasks
    /// already, or is another span. A window without tasks is complete at once. Returns whether anything changed.
    async fn open_window(&self, window: Window, tasks: &[Task], now_us: i64) -> Result<bool, StoreError>;
    /// The windows that are not complete, oldest first, and the latest `complete` complete ones.
    async fn windows(&self, complete: u32) -> Result<Vec<WindowRow>, StoreError>;
    /// Claims up to `limit` tasks of the oldest incomplete windows that nobody has claimed, or whose lease has run
    /// out at `now_us`. The lease only saves double work: emitting twice is harmless.
    async fn claim_tasks(
        &self,
        lease_id: Uuid,
        lease_until_us: i64,
        now_us: i64,
        limit: u32,
    ) -> Result<Vec<ClaimedTask>, StoreError>;
    /// What is claimed under this lease stays so until `until_us`.
    async fn renew_tasks(&self, lease_id: Uuid, until_us: i64) -> Result<(), StoreError>;
    /// Gives back what is claimed under this lease, at `now_us`, so that nobody has to wait until the lease has run out.
    async fn release_tasks(&self, lease_id: Uuid, now_us: i64) -> Result<(), StoreError>;
    /// The children of each task in the order (slot, schedule, ordinal), after its checkpoint: exactly those of its zone,
    /// launch expression and slots. Of each at most `limit`, at least 1.
    async fn scan(
        &self,
        tasks: &[(&Task, Option<Checkpoint>)],
        limit: u32,
    ) -> Result<Vec<ScanPage>, StoreError>;
    /// Hands runs over to their shards, and records triggers that make none. What is there already stays as it is.
    /// Returns how many runs were new. May use several transactions.
    async fn emit(&self, runs: &[Run], skipped: &[Skipped]) -> Result<u32, StoreError>;
    /// As [`EmitStore::emit`] of what was read under these tasks, but only while all of them are still claimed under the lease:
    /// else somebody else may have read them again, and another generation of a schedule, so that nothing (more) is
    /// handed over, and there is no answer. Nobody else claims them before that is decided. Runs of launches that have one in
    /// another shard by now are left out ([`tollgate_core::emit::is_in_doubt`]).
    async fn emit_claimed(
        &self,
        lease_id: Uuid,
        tasks: &[ClaimedTask],
        runs: &[Run],
        skipped: &[Skipped],
    ) -> Result<Option<u32>, StoreError>;
    /// Whether a change of this schedule waits to be heard: in the outbox, or in the inbox of one of these shards.
    async fn is_unheard(&self, schedule_uid: Uuid, shards: &[u16]) -> Result<bool, StoreError>;
    /// Moves a task's checkpoint, if the lease is still ours.
    async fn checkpoint(
        &self,
        task: &ClaimedTask,
        lease_id: Uuid,
        checkpoint: Checkpoint,
    ) -> Result<(), StoreError>;
    /// Tasks are done; a window whose last task is done is complete, and its task rows go. `runs` are the runs that
    /// the tasks emitted, for the window's count.
    async fn complete_tasks(
        &self,
        tasks: &[ClaimedTask],
        lease_id: Uuid,
        runs: u32,
        now_us: i64,
    ) -> Result<(), StoreError>;
    /// Which launch times (microseconds) of a schedule already have a run, in [from, to).
    async fn launches_with_runs(
        &self,
        schedule_uid: Uuid,
        from_us: i64,
        to_us: i64,
    ) -> Result<Vec<i64>, StoreError>;
    /// Forgets recorded skips of a schedule in (after, until] with this reason: a pause was lifted before they fell due.
    async fn forget_skipped(
        &self,
        schedule_uid: Uuid,
        reason: tollgate_core::model::SkipReason,
        after_us: i64,
        until_us: i64,
    ) -> Result<(), StoreError>;
}
