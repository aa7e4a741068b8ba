//! Deletes schedules that are to be deleted once they never fire again.
//!
//! In: those that may be done by now, which the store finds by an index. Out: deletions, as if somebody had called for them.
//! Invariants: a round has a bound; a schedule that changes meanwhile stays; what cannot be read, or must wait, stands in
//! nobody's way; nothing goes by a clock that may be wrong, nor by one that is ahead of what the emitters have scanned; any
//! number of masters may do the same at once. Not here: when a schedule is done ([`tollgate_core::plan::done`]).

use std::collections::BTreeMap;
use std::time::Duration;

use tokio_util::sync::CancellationToken;
use tollgate_clock::ClockState;
use tollgate_core::model::Schedule;
use tollgate_core::plan::done::{Done, done};
use tollgate_core::plan::shards_to_tell;
use tollgate_service::actor::Caller;
use tollgate_store::StoreError;
use uuid::Uuid;

use crate::ScheduleMaster;
use crate::audit::Deed;
use crate::change::{Change, is_own_fault};

/// How often it looks for schedules that are done.
const LOOK_EVERY: Duration = Duration::from_secs(10);
/// How soon it goes on where a round was full.
const LOOK_SOON: Duration = Duration::from_millis(200);
/// Schedules that are read at once, with their payloads, and deleted in one transaction.
const PAGE: u32 = 50;
/// Pages of one round.
const PAGES_MAX: usize = 40;
/// Who deletes them, as the audit log says.
const ACTOR: &str = "system";
/// And why.
const REASON: &str = "it never fires again, and says when_done DELETE";

impl ScheduleMaster {
    /// Deletes schedules that are done, until told to stop.
    pub async fn delete_done_until(&self, stop: CancellationToken) {
        let mut failing = false;
        while !stop.is_cancelled() {
            let round = tokio::select! {
                () = stop.cancelled() => return,
                round = self.delete_done() => round,
            };
            if let Err(error) = &round
                && !failing
            {
                tracing::warn!(%error, "schedules that are done cannot be deleted; it is tried again");
            }
            failing = round.is_err();
            let pause = if matches!(round, Ok(true)) { LOOK_SOON } else { LOOK_EVERY };
            tokio::select! {
                () = stop.cancelled() => {}
                () = tokio::time::sleep(pause) => {}
            }
        }
    }

    /// Deletes schedules that are done. Whether there may be more.
    ///
    /// # Errors
    /// Those of the store.
    pub async fn delete_done(&self) -> Result<bool, StoreError> {
        if self.inner.clock.state() != ClockState::Right {
            return Ok(false);
        }
        let scanned_until_us = self.store().frontier().await?.completed_until_us;
        let now_us = self.now_us().min(scanned_until_us.unwrap_or(i64::MIN));
        let mut after = None;
        for _ in 0..PAGES_MAX {
            let page = self.store().schedules_done(now_us, after, PAGE).await?;
            let uids: Vec<Uuid> = page.schedules.iter().map(|schedule| schedule.uid).collect();
            let left = if uids.is_empty() { BTreeMap::new() } else { self.store().runs_left(&uids).await? };
            let mut put_off = Vec::new();
            let mut gone: BTreeMap<String, Vec<Change>> = BTreeMap::new();
            for schedule in page.schedules {
                let mut left = left.get(&schedule.uid).copied().unwrap_or_default();
                if left.unfinished == 0 && self.must_wait(&schedule).await? {
                    left.unfinished = 1;
                }
                match done(&schedule, scanned_until_us, left, now_us) {
                    Done::Delete => {
                        gone.entry(schedule.namespace.clone()).or_default().push(self.deletion(schedule));
                    }
                    Done::Later(us) => put_off.push((schedule.uid, schedule.generation, Some(us))),
                    Done::Keep => put_off.push((schedule.uid, schedule.generation, None)),
                }
            }
            if !put_off.is_empty() {
                self.store().put_off(&put_off).await?;
            }
            for changes in gone.into_values() {
                self.delete_all(changes).await?;
            }
            after = page.next;
            if after.is_none() {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Whether a change of it that no shard has heard of may still make a run, or too much waits to be told already.
    async fn must_wait(&self, schedule: &Schedule) -> Result<bool, StoreError> {
        if self.admit_notices(&schedule.namespace).is_err() {
            return Ok(true);
        }
        let shards = shards_to_tell(schedule, self.inner.base);
        self.store().is_unheard(schedule.uid, &shards).await
    }

    fn deletion(&self, schedule: Schedule) -> Change {
        let actor = Caller { name: ACTOR.to_owned(), reason: REASON.to_owned() };
        let at_us = self.change_us(schedule.updated_us);
        Change::deletion(schedule, Deed { at_us, actor, action: "delete" })
    }

    /// Of one namespace: all at once, or each by itself where one has changed meanwhile, which stays.
    async fn delete_all(&self, changes: Vec<Change>) -> Result<(), StoreError> {
        let all: Vec<&Change> = changes.iter().collect();
        match self.commit(&all).await {
            Err(error) if is_own_fault(&error) => {}
            done => return done,
        }
        for change in &all {
            match self.commit(&[change]).await {
                Err(error) if !is_own_fault(&error) => return Err(error),
                _ => {}
            }
        }
        Ok(())
    }
}
