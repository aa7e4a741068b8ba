//! Runs and events for people: from the store, and from the owner's memory for what has not ended.

mod ended;
mod event;
mod explain;
mod queue;
mod sample;
mod status;
mod troubles;

pub(crate) use ended::EndedBadly;

use tollgate_core::model::{Run, RunId, RunSpec, RunState};
use tollgate_proto::convert::{self, names};
use tollgate_proto::v1;
use tollgate_service::status::status as store_status;
use tollgate_store::StoreError;
use tollgate_store::handle::HandleStore;
use tonic::Status;
use uuid::Uuid;

use crate::Shared;
use crate::routes::Input;

/// The longest wait for an owner in this process.
const SYNC: std::time::Duration = std::time::Duration::from_secs(5);

/// Specs, as far as they can be read.
///
/// # Errors
/// The store's, but for rows that are corrupt.
pub(crate) async fn readable_specs(
    store: &dyn HandleStore,
    shard: u16,
    keys: &[(Uuid, i64)],
) -> Result<Vec<RunSpec>, StoreError> {
    match store.specs(shard, keys).await {
        Err(StoreError::Corrupt { .. }) => {}
        read => return read,
    }
    let mut specs = Vec::with_capacity(keys.len());
    for key in keys {
        match store.specs(shard, &[*key]).await {
            Ok(read) => specs.extend(read),
            Err(error @ StoreError::Corrupt { .. }) => {
                tracing::debug!(shard, %error, "a spec is passed over")
            }
            Err(error) => return Err(error),
        }
    }
    Ok(specs)
}

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
        let runs = self.people.runs(shard, &[id]).await.map_err(store_status)?;
        Ok(runs.into_iter().find(|run| run.namespace == namespace))
    }

    /// A run as the API shows it.
    pub(crate) async fn show_run(&self, run: &Run) -> Result<v1::Run, Status> {
        let shown = self.show_runs(std::slice::from_ref(run)).await?;
        shown.into_iter().next().ok_or_else(|| Status::internal("one run is shown as none"))
    }

    /// Runs as the API shows them.
    pub(crate) async fn show_runs(&self, runs: &[Run]) -> Result<Vec<v1::Run>, Status> {
        let counts = self.outstanding(runs).await;
        let specs = self.specs_of(runs.iter()).await?;
        let shown = runs.iter().zip(counts).map(|(run, counts)| {
            let spec = specs.get(&(run.schedule_uid, run.generation));
            let shown = convert::run::to_message(run, spec.and_then(|spec| spec.policy_id.as_deref()));
            match counts {
                Some((in_flight_count, retrying)) => {
                    v1::Run { in_flight_count, waiting_count: shown.waiting_count + retrying, ..shown }
                }
                None => shown,
            }
        });
        Ok(shown.collect())
    }

    /// Tokens in flight, and events that wait for another attempt, as the owners know it.
    async fn outstanding(&self, runs: &[Run]) -> Vec<Option<(u32, u32)>> {
        let open = |run: &Run| matches!(run.state, RunState::Waiting | RunState::Running);
        let here = runs.iter().map(|run| async move {
            if open(run) { self.outstanding_here(run.shard, run.id).await } else { None }
        });
        let mut counts = futures::future::join_all(here).await;
        let elsewhere = |run: &Run| open(run) && !self.peers.routes().owns(run.shard);
        let places: Vec<usize> = (0..runs.len()).filter(|place| elsewhere(&runs[*place])).collect();
        let keys: Vec<_> = places.iter().map(|place| (runs[*place].shard, runs[*place].id)).collect();
        for (place, count) in places.into_iter().zip(self.peers.outstanding(&keys).await) {
            counts[place] = counts[place].or(count);
        }
        counts
    }

    /// By the owner in this process.
    pub(crate) async fn outstanding_here(&self, shard: u16, run: RunId) -> Option<(u32, u32)> {
        self.peers.routes().ask(shard, |reply| Input::Outstanding { run, reply }).await.flatten()
    }

    /// Waits until the owners of these shards have carried out what was posted to them before; how many have. One that
    /// does not come to it soon has the message in its inbox all the same.
    pub(crate) async fn sync(&self, shards: &[u16]) -> usize {
        let (here, elsewhere): (Vec<u16>, Vec<u16>) =
            shards.iter().partition(|shard| self.peers.routes().owns(**shard));
        let here = here.into_iter().map(|shard| async move {
            let done = self.peers.routes().ask(shard, |reply| Input::Sync { reply });
            tokio::time::timeout(SYNC, done).await.is_ok_and(|done| done.is_some())
        });
        let (here, elsewhere) =
            futures::future::join(futures::future::join_all(here), self.peers.sync(&elsewhere)).await;
        here.into_iter().filter(|done| *done).count() + elsewhere.len()
    }
}
