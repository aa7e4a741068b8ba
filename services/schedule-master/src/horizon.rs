//! Decides how a change reaches what has been emitted already.
//!
//! In: changes. Out: one transaction, and after it the messages to the queue shards and the skips of paused
//! schedules. Invariants: the emitter's frontier is read after the commit, so that a window is either opened
//! later, and scanned with the new children, or lies below that frontier, and is put right by the message; the
//! messages are tried until they are stored. Not here: what was lost with the process ([`crate::repair`]).

use std::collections::BTreeMap;
use std::time::Duration;

use tollgate_core::handle::control::Message;
use tollgate_core::model::SkipReason;
use tollgate_store::StoreError;

use crate::ScheduleMaster;
use crate::change::Change;

const BACKOFF_MIN: Duration = Duration::from_millis(100);
const BACKOFF_MAX: Duration = Duration::from_secs(10);

impl ScheduleMaster {
    /// Writes changes in one transaction and puts right what has been emitted. To be called where the caller's
    /// leaving does not stop it.
    ///
    /// # Errors
    /// Of the transaction. What comes after it is retried in the background.
    pub(crate) async fn commit(&self, changes: Vec<Change>) -> Result<(), StoreError> {
        let shards = self.inner.shards;
        let _turn = match changes.iter().find_map(Change::schedule) {
            Some(schedule) => Some(self.turn(&schedule.namespace).await),
            None => None,
        };
        let writes = changes
            .iter()
            .filter_map(|change| change.write(self.new_id(change.deed.at_us), shards))
            .collect();
        tollgate_fault_points::pass("master.commit.before");
        match self.store().write_plan(writes).await {
            Ok(()) => {
                tollgate_fault_points::pass("master.commit.after");
                if let Err(error) = self.correct(&changes).await {
                    tracing::warn!(%error, "emitted runs are not put right yet; trying again");
                    self.correct_later(changes, false);
                }
                Ok(())
            }
            Err(error) => {
                if matches!(error, StoreError::Unreachable(_) | StoreError::Internal(_)) {
                    // The commit may have happened all the same.
                    self.correct_later(changes, true);
                }
                Err(error)
            }
        }
    }

    /// Tells the queue shards of changes that have been committed. Harmless when repeated.
    async fn correct(&self, changes: &[Change]) -> Result<(), StoreError> {
        let opened_until_us = self.store().frontier().await?.opened_until_us;
        let now_us = self.now_us();
        let mut posts: BTreeMap<u16, Vec<Message>> = BTreeMap::new();
        let mut skipped = Vec::new();
        for change in changes {
            if let Some((shard, message)) = change.message(opened_until_us, self.inner.shards) {
                posts.entry(shard).or_default().push(message);
            }
            if let (true, Some(before), Some(until_us)) =
                (change.takes_skips_back(), &change.before, opened_until_us)
            {
                let at_us = change.deed.at_us;
                self.store().forget_skipped(before.uid, SkipReason::Paused, at_us, until_us).await?;
            }
            skipped.extend(change.skipped(opened_until_us, now_us));
        }
        if !skipped.is_empty() {
            self.store().emit(&[], &skipped).await?;
            self.options().metrics.skipped(SkipReason::Paused, skipped.len() as u64);
        }
        self.post(posts).await
    }

    /// Puts messages into the inboxes of their shards and wakes the owners.
    pub(crate) async fn post(&self, posts: BTreeMap<u16, Vec<Message>>) -> Result<(), StoreError> {
        for (shard, messages) in posts {
            self.store().post(shard, &messages).await?;
            tollgate_fault_points::pass("master.message.after");
            self.wake(shard);
        }
        Ok(())
    }

    /// Corrects until the store takes it; with `verify` only those changes that turn out to be committed.
    fn correct_later(&self, changes: Vec<Change>, verify: bool) {
        let master = self.clone();
        tokio::spawn(async move {
            let mut pause = BACKOFF_MIN;
            while let Err(error) = master.correct_committed(&changes, verify).await {
                tracing::debug!(%error, "emitted runs are not put right yet");
                tokio::time::sleep(pause).await;
                pause = (pause * 2).min(BACKOFF_MAX);
            }
            tracing::info!(changes = changes.len(), "emitted runs have been put right");
        });
    }

    async fn correct_committed(&self, changes: &[Change], verify: bool) -> Result<(), StoreError> {
        if !verify {
            return self.correct(changes).await;
        }
        let mut committed = Vec::with_capacity(changes.len());
        for change in changes {
            let Some(schedule) = change.schedule() else { continue };
            let stored = self.store().schedule(&schedule.namespace, &schedule.id).await?;
            let is_there = match (&change.after, stored) {
                (Some((after, _)), Some(stored)) => *after == stored,
                (None, stored) => stored.is_none_or(|stored| stored.uid != schedule.uid),
                (Some(_), None) => false,
            };
            if is_there {
                committed.push(change.clone());
            }
        }
        self.correct(&committed).await
    }
}
