//! A store whose calls a test can watch, break and interleave.

use std::sync::Arc;

use async_trait::async_trait;
use futures::future::BoxFuture;
use tollgate_core::emit::{Task, Window};
use tollgate_core::model::{Run, SkipReason, Skipped};
use tollgate_store::emit::{Checkpoint, ClaimedTask, EmitStore, Frontier, ScanPage, WindowRow};
use tollgate_store::{Store, StoreError};
use uuid::Uuid;

/// Where a hook is called.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Moment {
    Before,
    After,
}

type Hook = Box<dyn Fn(&'static str, Moment) -> BoxFuture<'static, Result<(), StoreError>> + Send + Sync>;

pub(crate) struct Hooked {
    inner: Arc<dyn Store>,
    hook: Hook,
}

impl Hooked {
    pub(crate) fn new(
        inner: &Arc<dyn Store>,
        hook: impl Fn(&'static str, Moment) -> BoxFuture<'static, Result<(), StoreError>> + Send + Sync + 'static,
    ) -> Arc<Self> {
        Arc::new(Self { inner: Arc::clone(inner), hook: Box::new(hook) })
    }

    async fn around<T>(
        &self,
        method: &'static str,
        call: impl Future<Output = Result<T, StoreError>>,
    ) -> Result<T, StoreError> {
        (self.hook)(method, Moment::Before).await?;
        let answer = call.await?;
        (self.hook)(method, Moment::After).await?;
        Ok(answer)
    }
}

#[async_trait]
impl EmitStore for Hooked {
    fn corrupt_rows(&self) -> Vec<tollgate_store::CorruptRow> {
        self.inner.corrupt_rows()
    }
    async fn frontier(&self) -> Result<Frontier, StoreError> {
        self.around("frontier", self.inner.frontier()).await
    }
    async fn registry(&self, eligible: &[String]) -> Result<Vec<(String, String)>, StoreError> {
        self.around("registry", self.inner.registry(eligible)).await
    }
    async fn zones(&self) -> Result<Vec<String>, StoreError> {
        self.around("zones", self.inner.zones()).await
    }
    async fn announce_window(&self, window: Window, now_us: i64) -> Result<bool, StoreError> {
        self.around("announce_window", self.inner.announce_window(window, now_us)).await
    }
    async fn open_window(&self, window: Window, tasks: &[Task], now_us: i64) -> Result<bool, StoreError> {
        self.around("open_window", self.inner.open_window(window, tasks, now_us)).await
    }
    async fn windows(&self, complete: u32) -> Result<Vec<WindowRow>, StoreError> {
        self.around("windows", self.inner.windows(complete)).await
    }
    async fn claim_tasks(
        &self,
        lease_id: Uuid,
        lease_until_us: i64,
        now_us: i64,
        limit: u32,
    ) -> Result<Vec<ClaimedTask>, StoreError> {
        self.around("claim_tasks", self.inner.claim_tasks(lease_id, lease_until_us, now_us, limit)).await
    }
    async fn renew_tasks(&self, lease_id: Uuid, until_us: i64) -> Result<(), StoreError> {
        self.around("renew_tasks", self.inner.renew_tasks(lease_id, until_us)).await
    }
    async fn release_tasks(&self, lease_id: Uuid, now_us: i64) -> Result<(), StoreError> {
        self.around("release_tasks", self.inner.release_tasks(lease_id, now_us)).await
    }
    async fn scan(
        &self,
        tasks: &[(&Task, Option<Checkpoint>)],
        limit: u32,
    ) -> Result<Vec<ScanPage>, StoreError> {
        self.around("scan", self.inner.scan(tasks, limit)).await
    }
    async fn emit(&self, runs: &[Run], skipped: &[Skipped]) -> Result<u32, StoreError> {
        self.around("emit", self.inner.emit(runs, skipped)).await
    }
    async fn emit_claimed(
        &self,
        lease_id: Uuid,
        tasks: &[ClaimedTask],
        runs: &[Run],
        skipped: &[Skipped],
    ) -> Result<Option<u32>, StoreError> {
        self.around("emit", self.inner.emit_claimed(lease_id, tasks, runs, skipped)).await
    }
    async fn is_unheard(&self, uid: Uuid, shards: &[u16]) -> Result<bool, StoreError> {
        self.around("is_unheard", self.inner.is_unheard(uid, shards)).await
    }
    async fn checkpoint(
        &self,
        task: &ClaimedTask,
        lease_id: Uuid,
        checkpoint: Checkpoint,
    ) -> Result<(), StoreError> {
        self.around("checkpoint", self.inner.checkpoint(task, lease_id, checkpoint)).await
    }
    async fn complete_tasks(
        &self,
        tasks: &[ClaimedTask],
        lease_id: Uuid,
        runs: u32,
        now_us: i64,
    ) -> Result<(), StoreError> {
        self.around("complete_tasks", self.inner.complete_tasks(tasks, lease_id, runs, now_us)).await
    }
    async fn launches_with_runs(&self, uid: Uuid, from_us: i64, to_us: i64) -> Result<Vec<i64>, StoreError> {
        self.around("launches_with_runs", self.inner.launches_with_runs(uid, from_us, to_us)).await
    }
    async fn forget_skipped(
        &self,
        uid: Uuid,
        reason: SkipReason,
        after_us: i64,
        until_us: i64,
    ) -> Result<(), StoreError> {
        self.around("forget_skipped", self.inner.forget_skipped(uid, reason, after_us, until_us)).await
    }
}
