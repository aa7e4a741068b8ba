//! Writes changes of schedules, and puts right what has been emitted already.
//!
//! In: changes. Out: one transaction with a notice in the outbox for each change that a queue shard must hear of, and after it
//! the messages to the shards. Invariant: the emitter's frontier is read after the commit. Not here: what a notice says, and
//! in which order notices are told ([`tollgate_core::plan::telling`]); notices that were left behind ([`crate::outbox`]).

use tollgate_core::model::SkipReason;
use tollgate_core::plan::Notice;
use tollgate_core::plan::telling::{Patience, Plans, Telling, TellingStep, may_be_open_until_us};
use tollgate_store::StoreError;
use tollgate_store::plan::{PlanWrite, Told};

use crate::ScheduleMaster;
use crate::change::Change;

impl ScheduleMaster {
    /// Writes changes in one transaction and puts right what has been emitted. To be called where the caller's
    /// leaving does not stop it.
    ///
    /// # Errors
    /// Of the transaction. What comes after it is done by the next sweep of the outbox where it fails here.
    pub(crate) async fn commit(&self, changes: &[&Change]) -> Result<(), StoreError> {
        let shards = self.inner.shards;
        let _turn = match changes.iter().find_map(|change| change.made.schedule()) {
            Some(schedule) => Some(self.turn(&schedule.namespace).await),
            None => None,
        };
        let opened_until_us = self.store().frontier().await?.opened_until_us;
        let until_us = may_be_open_until_us(opened_until_us, self.now_us());
        let notices: Vec<Notice> =
            changes.iter().filter_map(|change| change.made.notice(until_us, shards)).collect();
        let mut writes: Vec<PlanWrite> = changes
            .iter()
            .filter_map(|change| change.write(self.new_id(change.deed.at_us), shards))
            .collect();
        let tell = |notice: &Notice| PlanWrite::Tell { notice: Box::new(notice.clone()) };
        writes.extend(notices.iter().map(tell));
        tollgate_fault_points::pass("master.commit.before");
        // A commit whose outcome is not known has left its notices in the outbox, or has not been.
        self.store().write_plan(writes).await?;
        tollgate_fault_points::pass("master.commit.after");
        if notices.is_empty() {
            return Ok(());
        }
        let after = changes.iter().filter_map(|change| change.made.after.as_ref());
        let plans = after.map(|(after, plan)| ((after.uid, after.generation), plan));
        if let Err(error) = self.deliver(notices, plans.collect(), Patience::AnswerSoon).await {
            tracing::warn!(%error, "emitted runs are not put right yet; the notices wait in the outbox");
            self.inner.left_over.notify_one();
        }
        Ok(())
    }

    /// Tells the queue shards of changes that have been committed, after those of the same schedules that have not been
    /// told yet. Harmless when repeated.
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
                TellingStep::Tell { shard, told } => match self.tell(shard, told).await {
                    Ok(()) => telling.told(),
                    Err(error) => {
                        failed.get_or_insert(error);
                        telling.refused();
                    }
                },
                TellingStep::End => return failed.map_or(Ok(()), Err),
            }
            for (Notice { namespace, schedule_id: schedule, .. }, error) in telling.take_unreadable() {
                tracing::error!(
                    namespace,
                    schedule,
                    error,
                    "a notice is passed over: its timing cannot be compiled"
                );
            }
        }
    }

    /// Takes notices out of the outbox, puts their messages into the inbox of a shard, and wakes its owner.
    async fn tell(&self, shard: u16, told: &[Told]) -> Result<(), StoreError> {
        tollgate_fault_points::pass("master.outbox.before");
        let skips = self.store().tell(shard, told).await?;
        tollgate_fault_points::pass("master.message.after");
        if skips > 0 {
            self.options().metrics.skipped(SkipReason::Paused, skips);
        }
        if told.iter().any(|one| one.message.is_some()) {
            self.wake(shard);
        }
        Ok(())
    }
}
