//! Decides when notices that were left in the outbox are delivered: by a process that died between the commit of a change and
//! its message, or because a shard's inbox did not take it.
//!
//! In: the outbox. Out: messages. Invariants: each shard is tried by itself, and within it each namespace in turn, so that
//! neither a shard that takes nothing nor a namespace with much to tell holds up others; what cannot be read is passed over;
//! any number of masters may do the same at once. Not here: what a notice says, and in which order
//! ([`tollgate_core::plan::telling`]).

use std::collections::BTreeMap;
use std::time::Duration;

use futures::StreamExt as _;
use tokio_util::sync::CancellationToken;
use tollgate_core::model::SECOND_US;
use tollgate_core::plan::telling::{Patience, Plans};
use tollgate_metrics::Bound;
use tollgate_store::StoreError;
use tollgate_store::plan::OutboxLane;
use tonic::Status;

use crate::ScheduleMaster;

/// How often the outbox is swept.
const SWEEP_EVERY: Duration = Duration::from_secs(2);
/// How soon it is swept after a failed delivery.
const SWEEP_SOON: Duration = Duration::from_millis(200);
/// Notices of one lane that are delivered before it is the next one's turn.
const PAGE: u32 = 200;
/// Turns that each lane has in one sweep.
const TURNS_MAX: usize = 50;
/// Shards that are told at once.
const SHARDS_AT_ONCE: usize = 4;
/// A notice that is younger than this is still being delivered by its writer.
const YOUNG_US: i64 = SECOND_US;
/// The most notices of a namespace that wait before it makes no more changes for now.
const WAITING_MAX: u64 = 50_000;

impl ScheduleMaster {
    /// Sweeps the outbox every few seconds, until told to stop.
    pub async fn sweep_until(&self, stop: CancellationToken) {
        let mut failing = false;
        while !stop.is_cancelled() {
            // What is dropped is a call; a transaction goes on to its end.
            let swept = tokio::select! {
                () = stop.cancelled() => return,
                swept = self.sweep() => swept,
            };
            if let Err(error) = &swept
                && !failing
            {
                tracing::warn!(%error, "some changes cannot be told to their queue shards; they are tried again");
            }
            if swept.is_ok() && failing {
                tracing::info!("the queue shards have been told all changes");
            }
            failing = swept.is_err();
            tokio::select! {
                () = stop.cancelled() => {}
                () = tokio::time::sleep(SWEEP_EVERY) => {}
                () = self.inner.left_over.notified() => tokio::time::sleep(SWEEP_SOON).await,
            }
        }
    }

    /// Delivers what waits in the outbox.
    ///
    /// # Errors
    /// The first one of the store; all shards have been tried.
    pub async fn sweep(&self) -> Result<(), StoreError> {
        let lanes = self.store().outbox_lanes().await?;
        self.inner.waiting.note(&lanes);
        self.options().metrics.outbox_waiting(lanes.iter().map(|lane| lane.waiting).sum());
        let mut shards: BTreeMap<u16, Vec<LaneProgress>> = BTreeMap::new();
        for OutboxLane { shard, namespace, .. } in lanes {
            shards.entry(shard).or_default().push(LaneProgress { namespace, after: None });
        }
        let tried = futures::stream::iter(shards)
            .map(|(shard, lanes)| self.sweep_shard(shard, lanes))
            .buffer_unordered(SHARDS_AT_ONCE)
            .collect::<Vec<_>>()
            .await;
        tried.into_iter().collect()
    }

    async fn sweep_shard(&self, shard: u16, mut lanes: Vec<LaneProgress>) -> Result<(), StoreError> {
        for _ in 0..TURNS_MAX {
            let mut left = Vec::new();
            for LaneProgress { namespace, after } in lanes {
                let mut page = self.store().outbox(shard, &namespace, after, PAGE).await?;
                let now_us = self.now_us();
                page.notices.retain(|notice| !(0..YOUNG_US).contains(&(now_us - notice.changed_us)));
                if !page.notices.is_empty() {
                    self.deliver(page.notices, Plans::new(), Patience::TryAll).await?;
                }
                if page.next.is_some() {
                    left.push(LaneProgress { namespace, after: page.next });
                }
            }
            if left.is_empty() {
                break;
            }
            lanes = left;
        }
        Ok(())
    }

    /// Refuses a change in a namespace of which too much waits to be told.
    pub(crate) fn admit_notices(&self, namespace: &str) -> Result<(), Status> {
        let waiting = self.inner.waiting.of(namespace);
        if waiting < WAITING_MAX {
            return Ok(());
        }
        self.options().metrics.refused(Bound::Outbox);
        Err(Status::unavailable(format!(
            "namespaces/{namespace}: {waiting} changes wait to be told to their queue shards, which do not take them; up to \
             {WAITING_MAX} may wait; try again later"
        )))
    }
}

/// How far the notices of one lane (a shard and a namespace) have been read.
struct LaneProgress {
    namespace: String,
    after: Option<(i64, uuid::Uuid)>,
}

/// How much waited at the latest sweep, by namespace.
#[derive(Debug, Default)]
pub(crate) struct WaitingNotices(std::sync::Mutex<BTreeMap<String, u64>>);

impl WaitingNotices {
    fn note(&self, lanes: &[OutboxLane]) {
        let mut counts = BTreeMap::new();
        for lane in lanes {
            *counts.entry(lane.namespace.clone()).or_default() += lane.waiting;
        }
        *self.0.lock().unwrap_or_else(std::sync::PoisonError::into_inner) = counts;
    }

    fn of(&self, namespace: &str) -> u64 {
        let counts = self.0.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        counts.get(namespace).copied().unwrap_or_default()
    }
}
