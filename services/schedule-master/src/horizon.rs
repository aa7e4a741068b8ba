//! Writes changes of schedules and policies, and tells the queue shards of them, which puts right what has been emitted already.
//!
//! In: changes. Out: one transaction with a notice in the outbox for each change that a queue shard must hear of, and after it
//! the messages to the shards. Invariants: nothing is said to a shard but by [`ScheduleMaster::deliver`]; the emitter's
//! frontier is read after the commit. Not here: what a notice says, and in which order notices are told
//! ([`tollgate_core::plan::telling`]); notices that were left behind ([`crate::outbox`]).

use std::collections::BTreeSet;

use tollgate_core::model::SkipReason;
use tollgate_core::plan::Notice;
use tollgate_core::plan::telling::{Patience, Plans, Telling, TellingStep, may_be_open_until_us};
use tollgate_store::StoreError;
use tollgate_store::plan::{PlanWrite, Told};
use tollgate_store::revision::Revision;

use crate::ScheduleMaster;
use crate::change::Change;

impl ScheduleMaster {
    /// Writes changes in one transaction and tells the queue shards. To be called where the caller's leaving does not stop it.
    ///
    /// # Errors
    /// Of the transaction. What comes after it is done by the next sweep of the outbox where it fails here.
    pub(crate) async fn commit(&self, changes: &[&Change]) -> Result<(), StoreError> {
        self.commit_as(changes, Vec::new()).await
    }

    /// As [`Self::commit`], in one transaction with the revisions that the changes bring.
    pub(crate) async fn commit_as(
        &self,
        changes: &[&Change],
        revisions: Vec<Revision>,
    ) -> Result<(), StoreError> {
        let base = self.inner.base;
        let Some(namespace) = changes.iter().find_map(|change| change.namespace()) else { return Ok(()) };
        let _turn = self.turn(namespace).await;
        let mut until_us = self.now_us();
        if changes.iter().any(|change| !change.made().is_empty()) {
            let opened_until_us = self.store().frontier().await?.opened_until_us;
            until_us = may_be_open_until_us(opened_until_us, self.now_us());
        }
        let notices: Vec<Notice> = changes.iter().flat_map(|change| change.notices(until_us, base)).collect();
        let mut writes: Vec<PlanWrite> =
            changes.iter().filter_map(|change| change.write(|at_us| self.new_id(at_us), base)).collect();
        let tell = |notice: &Notice| PlanWrite::Tell { notice: Box::new(notice.clone()) };
        writes.extend(notices.iter().map(tell));
        writes.extend(revisions.into_iter().map(|revision| PlanWrite::Revise { revision }));
        tollgate_fault_points::pass("master.commit.before");
        // A commit whose outcome is not known has left its notices in the outbox, or has not been.
        self.store().write_plan(writes).await?;
        tollgate_fault_points::pass("master.commit.after");
        let after = changes.iter().flat_map(|change| change.after());
        let plans = after.map(|(after, plan)| ((after.uid, after.generation), plan));
        if let Err(error) = self.deliver(notices, plans.collect(), Patience::AnswerSoon).await {
            tracing::warn!(%error, "not all queue shards have been told yet; the outbox holds what is to be told");
            self.inner.left_over.notify_one();
        }
        Ok(())
    }

    /// Tells the queue shards of changes that have been committed, after those of the same schedules and policies that have
    /// not been told yet. Harmless when repeated.
    ///
    /// # Errors
    /// The first one. What was told before is done.
    pub(crate) async fn deliver(
        &self,
        notices: Vec<Notice>,
        plans: Plans<'_>,
        patience: Patience,
    ) -> Result<(), StoreError> {
        let mut telling = Telling::new(notices, plans, patience);
        let mut failed = None;
        loop {
            match telling.step() {
                TellingStep::Earlier(changed) => {
                    let earlier = self.store().outbox_before(&changed).await?;
                    telling.earlier(earlier);
                }
                TellingStep::Frontier => {
                    let opened_until_us = self.store().frontier().await?.opened_until_us;
                    telling.opened(opened_until_us, self.now_us());
                }
                TellingStep::Tell(told) => match self.tell(told).await {
                    Ok(()) => telling.told(),
                    Err(error) => {
                        failed.get_or_insert(error);
                        telling.refused();
                    }
                },
                TellingStep::End => return failed.map_or(Ok(()), Err),
            }
            for (Notice { namespace, id: schedule, .. }, error) in telling.take_unreadable() {
                tracing::error!(
                    namespace,
                    schedule,
                    error,
                    "a notice is passed over: its timing cannot be compiled"
                );
            }
        }
    }

    /// Takes notices out of the outbox, puts their messages into the inboxes of their shards, and wakes the owners.
    async fn tell(&self, told: &[Told]) -> Result<(), StoreError> {
        tollgate_fault_points::pass("master.outbox.before");
        let skips = self.store().tell(told).await?;
        tollgate_fault_points::pass("master.message.after");
        if skips > 0 {
            self.options().metrics.skipped(SkipReason::Paused, skips);
        }
        let shards: BTreeSet<u16> =
            told.iter().filter(|one| one.message.is_some()).map(|one| one.shard).collect();
        shards.into_iter().for_each(|shard| self.wake(shard));
        Ok(())
    }
}
