//! Runs and events for people: from the store, and from the owner's memory for what has not ended.

mod event;
mod explain;
mod status;

use tollgate_core::model::{Run, RunId, RunState};
use tollgate_proto::convert::{self, names};
use tollgate_proto::v1;
use tollgate_status::status as store_status;
use tonic::Status;

use crate::Shared;
use crate::routes::Input;

impl Shared {
    /// A run by its resource name.
    pub(crate) async fn find_run(&self, field: &str, name: &str) -> Result<Run, Status> {
        let (namespace, shard, id) = names::run(field, name)?;
        self.find_run_by_id(&namespace, shard, id)
            .await?
            .ok_or_else(|| Status::not_found(format!("{field}: there is no run {name:?}")))
    }

    async fn find_run_by_id(&self, namespace: &str, shard: u16, id: RunId) -> Result<Option<Run>, Status> {
        if shard >= self.shards {
            return Ok(None);
        }
        let runs = self.store.runs(shard, &[id]).await.map_err(store_status)?;
        Ok(runs.into_iter().find(|run| run.namespace == namespace))
    }

    /// A run as the API shows it.
    pub(crate) async fn show_run(&self, run: &Run) -> Result<v1::Run, Status> {
        let specs =
            self.store.specs(run.shard, &[(run.schedule_uid, run.generation)]).await.map_err(store_status)?;
        let shown = convert::run::to_message(run, specs.first().and_then(|s| s.policy_id.as_deref()));
        if !matches!(run.state, RunState::Waiting | RunState::Running) {
            return Ok(shown);
        }
        let ask = |reply| Input::Outstanding { run: run.id, reply };
        Ok(match self.routes.ask(run.shard, ask).await.flatten() {
            Some((in_flight, retrying)) => {
                v1::Run { in_flight_count: in_flight, waiting_count: shown.waiting_count + retrying, ..shown }
            }
            None => shown,
        })
    }

    /// Waits until a shard's owner, if it is in this process, has carried out what was posted before.
    pub(crate) async fn sync(&self, shard: u16) {
        let done = self.routes.ask(shard, |reply| Input::Sync { reply });
        // An owner that does not come to it soon has the message in its inbox all the same.
        let _late = tokio::time::timeout(std::time::Duration::from_secs(5), done).await;
    }
}
