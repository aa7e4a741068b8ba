//! Runs and events for people: from the store, and from the owner's memory for what has not ended.

mod ended;
mod event;
mod events;
mod explain;
mod failures;
mod failures_walk;
mod history;
mod queue;
mod sample;
mod status;
mod targets;
mod troubles;

pub(crate) use ended::EndedBadly;
pub(crate) use troubles::Seen;

use std::collections::BTreeMap;

use tollgate_core::model::{Run, RunId, RunSpec, RunState};
use tollgate_proto::convert::{self, names};
use tollgate_proto::v1;
use tollgate_service::status::status as store_status;
use tollgate_store::StoreError;
use tollgate_store::handle::HandleStore;
use tollgate_store::moves::ENDED_MAX;
use tonic::Status;
use uuid::Uuid;

use crate::Shared;
use crate::routes::{Expected, Input, Question};

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

    pub(crate) async fn find_run_by_id(
        &self,
        namespace: &str,
        shard: u16,
        id: RunId,
    ) -> Result<Option<Run>, Status> {
        if !self.has_shard(shard).await? {
            return Ok(None);
        }
        let at = self.moved.lives(shard, id);
        let mut runs = self.people.runs(at, &[id]).await.map_err(store_status)?;
        if runs.is_empty()
            && let Some(to) = self.moved_to((shard, at), id).await.map_err(store_status)?
        {
            runs = self.people.runs(to, &[id]).await.map_err(store_status)?;
        }
        Ok(runs.into_iter().find(|run| run.namespace == namespace && run.named_shard() == shard))
    }

    /// Refuses to have events of a run tried again that could not follow its policy to where that is by now.
    pub(crate) async fn may_be_tried_again(&self, run: &Run) -> Result<(), Status> {
        if run.counts.total() <= ENDED_MAX {
            return Ok(());
        }
        let gone = self.people.moved_homes(run.shard).await.map_err(store_status)?;
        if !gone.contains_key(&run.policy_uid.unwrap_or(run.schedule_uid)) {
            return Ok(());
        }
        Err(Status::failed_precondition(format!(
            "what limits {} has moved to another queue shard since, and {} of its events have ended: more than {ENDED_MAX} do not \
             follow; trigger its schedule again",
            names::of_run(&run.namespace, run.named_shard(), run.id),
            run.counts.total()
        )))
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
                Some(known) => v1::Run {
                    in_flight_count: known.in_flight_count,
                    waiting_count: shown.waiting_count + known.retrying_count,
                    expected_finish_time: known.expected_finish_us.map(convert::timestamp),
                    no_expected_finish_reason: known.no_expected_finish_reason,
                    at_risk_count: known.at_risk_count,
                    ..shown
                },
                None => shown,
            }
        });
        Ok(shown.collect())
    }

    /// Tokens in flight, events that wait for another attempt, and what is expected, as the owners know it.
    async fn outstanding(&self, runs: &[Run]) -> Vec<Option<v1::Outstanding>> {
        let is_open = |run: &Run| matches!(run.state, RunState::Waiting | RunState::Running);
        let places: Vec<usize> = (0..runs.len()).filter(|place| is_open(&runs[*place])).collect();
        let keys: Vec<_> = places.iter().map(|place| (runs[*place].shard, runs[*place].id)).collect();
        let mut counts = vec![None; runs.len()];
        let known = self.outstanding_here(&keys).await;
        places.iter().zip(known).for_each(|(place, known)| counts[*place] = known);
        let elsewhere = |place: &usize| !self.peers.routes().owns(runs[*place].shard);
        let (places, keys): (Vec<_>, Vec<_>) =
            places.into_iter().zip(keys).filter(|(place, _)| elsewhere(place)).unzip();
        for (place, known) in places.into_iter().zip(self.peers.outstanding(&keys).await) {
            counts[place] = counts[place].take().or(known);
        }
        counts
    }

    /// By the owners in this process, each of which is asked once.
    pub(crate) async fn outstanding_here(&self, runs: &[(u16, RunId)]) -> Vec<Option<v1::Outstanding>> {
        let mut by_shard: BTreeMap<u16, Vec<RunId>> = BTreeMap::new();
        runs.iter().for_each(|(shard, run)| by_shard.entry(*shard).or_default().push(*run));
        let asked = by_shard.into_iter().map(|(shard, runs)| async move {
            let ask = |reply| Input::Ask(Question::Outstanding { runs: runs.clone(), reply });
            let known = self.peers.routes().ask(shard, ask).await.unwrap_or_default();
            runs.iter().map(|run| (shard, *run)).zip(known).collect::<Vec<_>>()
        });
        let known = futures::future::join_all(asked).await.into_iter().flatten();
        let known: BTreeMap<(u16, RunId), _> = known.collect();
        runs.iter().map(|key| known.get(key)?.as_ref().map(outstanding)).collect()
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

fn outstanding(((in_flight, retrying), outlook): &Expected) -> v1::Outstanding {
    let late = outlook.late.map_or(0, |(_, events)| events);
    v1::Outstanding {
        known: true,
        in_flight_count: *in_flight,
        retrying_count: *retrying,
        expected_finish_us: outlook.end.at_us(),
        no_expected_finish_reason: outlook.end.why_not().unwrap_or_default(),
        at_risk_count: u32::try_from(late).unwrap_or(u32::MAX),
    }
}
