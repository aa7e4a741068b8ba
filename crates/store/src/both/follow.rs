//! What follows the ends of runs.

use std::sync::Arc;

use async_trait::async_trait;
use futures::FutureExt as _;
use tollgate_core::handle::control::Message;
use tollgate_core::model::{ChainRoot, Run, RunId, Schedule, Skipped};

use super::{Ask, Driver, Whom, insert_messages, sql};
use crate::StoreError;
use crate::emit::EmitStore as _;
use crate::follow::FollowStore;
use crate::rows::{ScheduleRow, all, message_rows};

#[async_trait]
impl<D: Driver> FollowStore for D {
    async fn following(&self, namespace: &str, ids: &[String]) -> Result<Vec<Schedule>, StoreError> {
        let ask = Ask::new(sql!("schedules_by_ids")).bind(namespace).set(ids)?;
        all(self.rows::<ScheduleRow>(Whom::Roles, ask).await?)
    }

    async fn launch_of(&self, shards: &[u16], run: RunId) -> Result<Option<i64>, StoreError> {
        for shard in shards {
            let ask = Ask::new(sql!("runs_launch")).bind(i32::from(*shard)).bind(run.0);
            let rows: Vec<(i64,)> = self.rows(Whom::Roles, ask).await?;
            if let Some((launch_us,)) = rows.first() {
                return Ok(Some(*launch_us));
            }
        }
        Ok(None)
    }

    async fn launch(&self, runs: &[Run], skipped: &[Skipped]) -> Result<u32, StoreError> {
        self.emit(runs, skipped).await
    }

    async fn tell_ended(&self, root: ChainRoot) -> Result<(), StoreError> {
        let rows = Arc::new(message_rows(&[Message::chain_ended(root)])?);
        self.run_tx(Whom::Roles, "tell_ended", move |mut tx| {
            let rows = Arc::clone(&rows);
            async move { insert_messages(&mut tx, i32::from(root.shard), &rows).await.map(drop) }.boxed()
        })
        .await
    }
}
