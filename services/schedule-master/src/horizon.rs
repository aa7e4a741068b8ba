//! Decides how a change reaches what has been emitted already.
//!
//! In: changes. Out: one transaction with a notice in the outbox for each change that a queue shard must hear of, and after it
//! the messages to the shards. Invariants: the emitter's frontier is read after the commit, so that a window is either
//! opened later, and scanned with the new children, or lies below that frontier, and is put right by the message;
//! a notice leaves the outbox when its message is posted, not before. Not here: notices that were left behind
//! ([`crate::outbox`]).

use std::collections::{BTreeMap, HashMap, HashSet};

use tollgate_core::handle::control::Message;
use tollgate_core::model::{MINUTE_US, SkipReason};
use tollgate_core::plan::{Notice, Plan};
use tollgate_store::StoreError;
use tollgate_store::plan::{Delivered, PlanWrite};
use uuid::Uuid;

use crate::ScheduleMaster;
use crate::change::Change;
use crate::notice;

/// Emitters open no more than this between a look at the frontier and the end of a transaction, where they keep up.
const OPENED_MEANWHILE_US: i64 = 10 * MINUTE_US;
/// How far ahead of now they may come in that time where they were behind: longer than windows may be opened ahead.
const OPENED_AT_ONCE_US: i64 = 26 * 60 * MINUTE_US;

/// Plans at hand, by schedule and generation.
pub(crate) type Plans<'a> = HashMap<(Uuid, i64), &'a Plan>;

/// How patiently notices are delivered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Patience {
    /// Somebody waits: the first shard that does not take its messages ends it.
    AnswerSoon,
    /// Every shard is tried.
    TryAll,
}

impl ScheduleMaster {
    /// Writes changes in one transaction and puts right what has been emitted. To be called where the caller's
    /// leaving does not stop it.
    ///
    /// # Errors
    /// Of the transaction. What comes after it is done by the next sweep of the outbox where it fails here.
    pub(crate) async fn commit(&self, changes: &[&Change]) -> Result<(), StoreError> {
        let shards = self.inner.shards;
        let _turn = match changes.iter().find_map(|change| change.schedule()) {
            Some(schedule) => Some(self.turn(&schedule.namespace).await),
            None => None,
        };
        let until_us = self.may_be_open_until_us().await?;
        let notices: Vec<Notice> =
            changes.iter().filter_map(|change| change.notice(until_us, shards)).collect();
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
        let after = changes.iter().filter_map(|change| change.after.as_ref());
        let plans = after.map(|(after, plan)| ((after.uid, after.generation), plan));
        if let Err(error) = self.deliver(notices, &plans.collect(), Patience::AnswerSoon).await {
            tracing::warn!(%error, "emitted runs are not put right yet; the outbox holds what is to be told");
            self.inner.left_over.notify_one();
        }
        Ok(())
    }

    /// No window that ends later is open when a transaction that begins now ends.
    async fn may_be_open_until_us(&self) -> Result<i64, StoreError> {
        let (frontier, now_us) = (self.store().frontier().await?, self.now_us());
        Ok(match frontier.opened_until_us {
            Some(opened_until_us) if opened_until_us >= now_us => opened_until_us + OPENED_MEANWHILE_US,
            _ => now_us + OPENED_AT_ONCE_US,
        })
    }

    /// Tells the queue shards of changes that have been committed, after those of the same schedules that have not been
    /// told yet. Harmless when repeated.
    ///
    /// # Errors
    /// The first one. What was told before is done.
    pub(crate) async fn deliver(
        &self,
        mut notices: Vec<Notice>,
        plans: &Plans<'_>,
        patience: Patience,
    ) -> Result<(), StoreError> {
        let changed: Vec<(Uuid, i64)> = notices.iter().filter(|notice| !notice.is_new).map(key).collect();
        if !changed.is_empty() {
            notices.extend(self.store().outbox_before(&changed).await?);
        }
        notices.sort_by_key(key);
        notices.dedup_by_key(|notice| key(notice));
        let opened_until_us = self.store().frontier().await?.opened_until_us;
        let (mut told, mut held_back, mut failed) = (Vec::new(), HashSet::new(), None);
        'all: for wave in waves(&notices) {
            for (shard, notices) in wave {
                let (mut messages, mut done) = (Vec::new(), Vec::new());
                for notice in notices {
                    if held_back.contains(&notice.schedule_uid) {
                        continue;
                    }
                    match self.say(notice, plans, opened_until_us) {
                        Some((message, delivered)) => {
                            messages.extend(message);
                            done.push(delivered);
                        }
                        None => drop(held_back.insert(notice.schedule_uid)),
                    }
                }
                match self.post(shard, &messages).await {
                    Ok(()) => told.extend(done),
                    Err(error) => {
                        held_back.extend(done.iter().map(|one| one.schedule_uid));
                        failed.get_or_insert(error);
                        if patience == Patience::AnswerSoon {
                            break 'all;
                        }
                    }
                }
            }
        }
        tollgate_fault_points::pass("master.outbox.before");
        told.sort_by_key(|one| (one.schedule_uid, one.generation));
        if !told.is_empty() {
            let skips = self.store().outbox_delivered(&told).await?;
            if skips > 0 {
                self.options().metrics.skipped(SkipReason::Paused, skips);
            }
        }
        failed.map_or(Ok(()), Err)
    }

    /// The message of a notice, if it has one, and what follows once it is posted. None where its timing cannot be read.
    fn say(
        &self,
        notice: &Notice,
        plans: &Plans<'_>,
        opened_until_us: Option<i64>,
    ) -> Option<(Option<Message>, Delivered)> {
        let read;
        let plan = match (&notice.timing, plans.get(&key(notice))) {
            (None, _) => None,
            (Some(_), Some(plan)) => Some(*plan),
            (Some(timing), None) => match Plan::forecast(timing, notice.schedule_uid.as_bytes()) {
                Ok(plan) => {
                    read = plan;
                    Some(&read)
                }
                Err(error) => {
                    let (namespace, schedule) = (&notice.namespace, &notice.schedule_id);
                    tracing::error!(namespace, schedule, %error, "a notice is passed over: its timing cannot be compiled");
                    return None;
                }
            },
        };
        let message = notice::message(notice, plan, opened_until_us);
        Some((message, notice::delivered(notice, plan, opened_until_us, self.now_us())))
    }

    /// Puts messages into the inbox of a shard and wakes its owner.
    async fn post(&self, shard: u16, messages: &[Message]) -> Result<(), StoreError> {
        if !messages.is_empty() {
            self.store().post(shard, messages).await?;
            tollgate_fault_points::pass("master.message.after");
            self.wake(shard);
        }
        Ok(())
    }
}

fn key(notice: &Notice) -> (Uuid, i64) {
    (notice.schedule_uid, notice.generation)
}

/// Notices in the order of schedules and generations as waves, by shard: of one schedule, what another shard hears first
/// comes in a later wave. Messages to one shard may go together, because an inbox is read in the order of generations.
fn waves(notices: &[Notice]) -> Vec<BTreeMap<u16, Vec<&Notice>>> {
    let mut waves: Vec<BTreeMap<u16, Vec<&Notice>>> = Vec::new();
    let mut before: Option<(&Notice, usize)> = None;
    for notice in notices {
        let wave = match before {
            Some((last, wave)) if last.schedule_uid == notice.schedule_uid => {
                wave + usize::from(last.first() != notice.first())
            }
            _ => 0,
        };
        if waves.len() <= wave {
            waves.push(BTreeMap::new());
        }
        waves[wave].entry(notice.first()).or_default().push(notice);
        before = Some((notice, wave));
    }
    waves
}
