//! What follows the ends of runs: read and handed over for the one who launches it.

use async_trait::async_trait;
use tollgate_core::model::{ChainRoot, Run, RunId, Schedule, Skipped};

use crate::StoreError;

/// The part of a store for what launches the runs that follow others. It waits for no people.
#[async_trait]
pub trait FollowStore: Send + Sync {
    /// Schedules of a namespace by id; those that do not exist are left out.
    ///
    /// # Errors
    /// [`StoreError::Corrupt`] where one of them cannot be read.
    async fn following(&self, namespace: &str, ids: &[String]) -> Result<Vec<Schedule>, StoreError>;
    /// The launch time of a run, in microseconds, if one of these shards has it.
    async fn launch_of(&self, shards: &[u16], run: RunId) -> Result<Option<i64>, StoreError>;
    /// As [`EmitStore::emit`](crate::emit::EmitStore::emit), and answers how many of the runs are new.
    async fn launch(&self, runs: &[Run], skipped: &[Skipped]) -> Result<u32, StoreError>;
    /// Tells the shard in which a chain began that it has ended. Told twice it is told once.
    async fn tell_ended(&self, root: ChainRoot) -> Result<(), StoreError>;
}
