//! Carries out scan tasks: reads children page by page, judges their launches, hands runs over.
//!
//! In: claimed tasks. Out: runs for the queue shards, recorded skips, checkpoints.
//! Invariants: a checkpoint moves, and a task is done, only after everything before it has been handed over; a child or
//! schedule that cannot be read is named and passed over. Schedules and children are never written.
//! Not here: which windows and tasks there are (`open`), what becomes of a launch (`judge`).

use std::collections::VecDeque;
use std::sync::PoisonError;
use std::sync::atomic::Ordering;

use tokio_util::sync::CancellationToken;
use tollgate_core::emit;
use tollgate_core::model::{SECOND_US, SkipReason};
use tollgate_store::StoreError;
use tollgate_store::emit::{ClaimedTask, ScanPage, ScannedChild};
use uuid::Uuid;

use crate::batch::Batch;
use crate::judge::{Fate, Judge};
use crate::{Emitter, RoundReport};

/// So many children of each task are read together with those of the others.
const FIRST_PAGE: u32 = 16;

/// How a task was left after a page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Left {
    /// All its children have been read.
    Done,
    /// There are more.
    More,
}

impl Emitter {
    /// Claims tasks and carries them out until none is free. Returns how many were claimed.
    pub(crate) async fn scan_all(
        &self,
        report: &mut RoundReport,
        stop: &CancellationToken,
    ) -> Result<usize, StoreError> {
        let mut claimed_count = 0;
        while !stop.is_cancelled() {
            self.give_back().await?;
            let now_us = self.clock.wall_us();
            let mut lease = Lease { id: Uuid::new_v4(), until_us: now_us + self.options.lease_us() };
            self.keep_failed(Some(lease.id));
            let limit = self.options.claim.max(1);
            let mut tasks = self.store.claim_tasks(lease.id, lease.until_us, now_us, limit).await?;
            if tasks.iter().any(|task| task.again) {
                // What fails time and again does not stand before the others: it waits until the lease has run out.
                self.keep_failed(None);
            }
            claimed_count += tasks.len();
            tasks.sort_by_key(|task| task.window);
            for group in tasks.chunk_by(|a, b| a.window == b.window) {
                self.scan_window(group, &mut lease, report, stop).await?;
            }
            if stop.is_cancelled() {
                // Others go on at once.
                self.store.release_tasks(lease.id, self.clock.wall_us()).await?;
            }
            self.keep_failed(None);
            if tasks.is_empty() {
                break;
            }
        }
        Ok(claimed_count)
    }

    /// Gives back the tasks of a round that failed.
    async fn give_back(&self) -> Result<(), StoreError> {
        let failed = *self.failed.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(lease_id) = failed {
            self.store.release_tasks(lease_id, self.clock.wall_us()).await?;
            self.keep_failed(None);
        }
        Ok(())
    }

    /// Keeps the lease whose tasks are to be given back should the round fail.
    fn keep_failed(&self, lease_id: Option<Uuid>) {
        *self.failed.lock().unwrap_or_else(PoisonError::into_inner) = lease_id;
    }

    /// Renews the lease once a third of its time has gone: however long a page takes, whoever works on it keeps it.
    pub(crate) async fn renew(&self, lease: &mut Lease) -> Result<(), StoreError> {
        let until_us = self.clock.wall_us() + self.options.lease_us();
        if until_us - lease.until_us >= self.options.lease_us() / 3 {
            self.store.renew_tasks(lease.id, until_us).await?;
            lease.until_us = until_us;
        }
        Ok(())
    }

    /// Carries out tasks of one window.
    async fn scan_window(
        &self,
        tasks: &[ClaimedTask],
        lease: &mut Lease,
        report: &mut RoundReport,
        stop: &CancellationToken,
    ) -> Result<(), StoreError> {
        let mut batch = Batch::new(*lease, tasks.iter().any(|task| task.again));
        let mut done = Vec::new();
        // The first children of all tasks at once: most tasks have no more.
        let from: Vec<_> = tasks.iter().map(|claimed| (&claimed.task, claimed.checkpoint)).collect();
        let pages = self.store.scan(&from, self.options.page.clamp(1, FIRST_PAGE)).await?;
        // Then page by page in turns: one with a million children does not stand before those with a few.
        let mut turns: VecDeque<_> =
            tasks.iter().cloned().zip(pages).map(|(task, page)| (task, Some(page))).collect();
        while let Some((mut task, page)) = turns.pop_front() {
            if stop.is_cancelled() || batch.is_lost() {
                // Whoever claims the rest next goes on.
                break;
            }
            match self.scan_page(&mut task, page, &mut batch, report).await {
                Ok(Left::Done) => done.push(task),
                Ok(Left::More) => turns.push_back((task, None)),
                Err(error @ StoreError::Corrupt { .. }) => {
                    // The others go on; this one comes again when its lease has run out.
                    report.corrupt += 1;
                    self.stats.corrupt.fetch_add(1, Ordering::Relaxed);
                    let (zone, expression) = (&task.task.zone, &task.task.launch_expression);
                    tracing::error!(%error, zone, expression, start_us = task.window.start_us, "a scan task is put off");
                }
                Err(error) => return Err(error),
            }
        }
        self.flush(&mut batch, report).await?;
        *lease = batch.lease;
        done.retain(|task| !batch.is_put_off(task));
        if !done.is_empty() && !batch.is_lost() {
            let now_us = self.clock.wall_us();
            tollgate_fault_points::pass("emitter.checkpoint.before");
            self.store.complete_tasks(&done, lease.id, batch.emitted(), now_us).await?;
            tollgate_fault_points::pass("emitter.checkpoint.after");
            let count = u32::try_from(done.len()).unwrap_or(u32::MAX);
            report.tasks += count;
            self.stats.tasks.fetch_add(count.into(), Ordering::Relaxed);
        }
        Ok(())
    }

    /// Carries out one page of a task: the first one, which has been read, or the next.
    async fn scan_page(
        &self,
        claimed: &mut ClaimedTask,
        first: Option<ScanPage>,
        batch: &mut Batch,
        report: &mut RoundReport,
    ) -> Result<Left, StoreError> {
        self.renew(&mut batch.lease).await?;
        let is_first = first.is_some();
        let page = match first {
            Some(page) => Some(page),
            None => {
                let from = [(&claimed.task, claimed.checkpoint)];
                self.store.scan(&from, self.options.page.max(1)).await?.into_iter().next()
            }
        };
        let Some(page) = page else { return Ok(Left::Done) };
        self.judge_page(claimed, &page.children, batch, report).await?;
        report.corrupt += page.corrupt;
        self.stats.corrupt.fetch_add(page.corrupt.into(), Ordering::Relaxed);
        let Some(checkpoint) = page.next else { return Ok(Left::Done) };
        claimed.checkpoint = Some(checkpoint);
        // To read the first page again costs less than a checkpoint after it.
        if !is_first {
            self.flush(batch, report).await?;
            if !batch.is_put_off(claimed) && !batch.is_lost() {
                self.store.checkpoint(claimed, batch.lease.id, checkpoint).await?;
            }
        }
        Ok(Left::More)
    }

    async fn judge_page(
        &self,
        claimed: &ClaimedTask,
        children: &[ScannedChild],
        batch: &mut Batch,
        report: &mut RoundReport,
    ) -> Result<(), StoreError> {
        let mut judge = Judge::new(self.clock.wall_us(), self.options.late_after_s.saturating_mul(SECOND_US));
        for child in children {
            report.children += 1;
            self.stats.children.fetch_add(1, Ordering::Relaxed);
            let schedule = &child.schedule;
            let launches = match emit::launch_times(&child.child, claimed.window) {
                Ok(launches) => launches,
                Err(error) => {
                    self.corrupt(child, &error, report);
                    continue;
                }
            };
            for (at, &launch_us) in launches.iter().enumerate() {
                match judge.fate(schedule, launch_us, launches.get(at + 1).copied()) {
                    Ok(Fate::Run) => batch.run(claimed, child, launch_us, judge.now_us()),
                    Ok(Fate::Skip(reason)) => batch.skip(claimed, child, launch_us, reason, judge.now_us()),
                    Ok(Fate::Before) => {}
                    Err(error) => {
                        // Whether it is the latest is not known: it is recorded rather than fired out of time.
                        self.corrupt(child, &error, report);
                        batch.skip(claimed, child, launch_us, SkipReason::Missed, judge.now_us());
                    }
                }
                if batch.is_full() {
                    self.flush(batch, report).await?;
                }
            }
        }
        Ok(())
    }

    fn corrupt(&self, child: &ScannedChild, error: &dyn std::error::Error, report: &mut RoundReport) {
        report.corrupt += 1;
        self.stats.corrupt.fetch_add(1, Ordering::Relaxed);
        let (namespace, schedule) = (&child.schedule.namespace, &child.schedule.id);
        tracing::error!(%error, namespace, schedule, child = child.ordinal, "a child is passed over");
    }
}

/// Under which name tasks are claimed, and until when others leave them alone.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Lease {
    pub(crate) id: Uuid,
    pub(crate) until_us: i64,
}
