//! Carries out scan tasks: does what [`tollgate_core::emit::Scan`] says is next.
//!
//! In: claimed tasks. Out: runs for the queue shards, recorded skips, checkpoints, and a wake for each shard that got a run
//! that launches soon. Invariant: schedules and children are never written. Not here: which windows and tasks there are
//! (`open`); the order of steps, and what becomes of a launch ([`tollgate_core::emit`]).

use std::sync::PoisonError;
use std::sync::atomic::Ordering;

use tokio_util::sync::CancellationToken;
use tollgate_core::emit::{self, Handed, Scan, ScanStep, TaskLease};
use tollgate_core::model::{Run, Skipped};
use tollgate_store::StoreError;
use tollgate_store::emit::ClaimedTask;
use uuid::Uuid;

use crate::{Emitter, RoundReport};

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
            let mut lease = TaskLease::new(Uuid::new_v4(), now_us, &self.options);
            self.keep_failed(Some(lease.id));
            let limit = self.options.claim.max(1);
            let mut tasks = self.store.claim_tasks(lease.id, lease.until_us, now_us, limit).await?;
            if !emit::is_given_back(&tasks) {
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

    async fn renew(&self, lease: &mut TaskLease) -> Result<(), StoreError> {
        if let Some(until_us) = lease.renewal_us(self.clock.wall_us(), &self.options) {
            self.store.renew_tasks(lease.id, until_us).await?;
            lease.until_us = until_us;
        }
        Ok(())
    }

    /// Carries out tasks of one window.
    async fn scan_window(
        &self,
        tasks: &[ClaimedTask],
        lease: &mut TaskLease,
        report: &mut RoundReport,
        stop: &CancellationToken,
    ) -> Result<(), StoreError> {
        let mut scan = Scan::new(tasks, &self.options);
        loop {
            if stop.is_cancelled() {
                scan.leave();
            }
            self.renew(lease).await?;
            let step = scan.step(self.clock.wall_us());
            match step {
                ScanStep::Read { tasks: from, limit } => match self.store.scan(&from, limit).await {
                    Ok(pages) => {
                        self.note_corrupt(pages.iter().map(|page| page.corrupt).sum(), report);
                        scan.read(pages, self.clock.wall_us());
                    }
                    Err(error) => self.pass_over(&mut scan, error, report)?,
                },
                ScanStep::AskUnheard { schedule_uid, homes } => {
                    let is_unheard = self.store.is_unheard(schedule_uid, homes).await?;
                    if is_unheard {
                        tracing::debug!(%schedule_uid, ?homes, "late launches wait until a shard has heard of a change");
                    }
                    scan.heard(is_unheard);
                }
                ScanStep::AskKnown { schedule_uid, from_us, to_us } => {
                    scan.known(&self.store.launches_with_runs(schedule_uid, from_us, to_us).await?);
                }
                ScanStep::HandOver { tasks, runs, skipped } => {
                    let (new, began_us) = self.hand_over(lease.id, &tasks, runs, skipped).await?;
                    match scan.handed(new, began_us, self.clock.wall_us()) {
                        Some(handed) => self.handed(handed, new.unwrap_or_default(), report).await,
                        None => tracing::info!(
                            tasks = tasks.len(),
                            "another emitter has taken scan tasks over: this one was too slow"
                        ),
                    }
                }
                ScanStep::Mark { task, checkpoint } => {
                    self.store.checkpoint(task, lease.id, checkpoint).await?;
                    scan.marked();
                }
                ScanStep::Complete { tasks, runs } => {
                    self.complete(lease.id, &tasks, runs, report).await?;
                    scan.completed();
                }
                ScanStep::End => return Ok(()),
            }
            self.note_children(&mut scan, report);
        }
    }

    /// Hands over runs and skips. Returns how many runs were new, none where the tasks are somebody else's, and when it began.
    async fn hand_over(
        &self,
        lease_id: Uuid,
        tasks: &[ClaimedTask],
        runs: &[Run],
        skipped: &[Skipped],
    ) -> Result<(Option<u32>, i64), StoreError> {
        tollgate_fault_points::pass("emitter.emit.before");
        let began_us = self.clock.wall_us();
        let new = self.store.emit_claimed(lease_id, tasks, runs, skipped).await?;
        if new.is_some() {
            self.traces.emitted(runs, began_us, self.clock.wall_us());
            tollgate_fault_points::pass("emitter.emit.after");
        }
        Ok((new, began_us))
    }

    async fn handed(&self, handed: Handed, new: u32, report: &mut RoundReport) {
        handed.wake.into_iter().for_each(|shard| (self.wake)(shard));
        report.runs += u64::from(new);
        report.missed += handed.missed;
        report.paused += handed.paused;
        self.stats.runs.fetch_add(new.into(), Ordering::Relaxed);
        self.stats.missed.fetch_add(handed.missed, Ordering::Relaxed);
        self.stats.paused.fetch_add(handed.paused, Ordering::Relaxed);
        tokio::time::sleep(handed.pause).await;
    }

    async fn complete(
        &self,
        lease_id: Uuid,
        tasks: &[ClaimedTask],
        runs: u32,
        report: &mut RoundReport,
    ) -> Result<(), StoreError> {
        let now_us = self.clock.wall_us();
        tollgate_fault_points::pass("emitter.checkpoint.before");
        self.store.complete_tasks(tasks, lease_id, runs, now_us).await?;
        tollgate_fault_points::pass("emitter.checkpoint.after");
        let count = u32::try_from(tasks.len()).unwrap_or(u32::MAX);
        report.tasks += count;
        self.stats.tasks.fetch_add(count.into(), Ordering::Relaxed);
        Ok(())
    }

    /// One task that cannot be read comes again when its lease has run out; the others go on.
    fn pass_over(
        &self,
        scan: &mut Scan,
        error: StoreError,
        report: &mut RoundReport,
    ) -> Result<(), StoreError> {
        if matches!(error, StoreError::Corrupt { .. })
            && let Some(ClaimedTask { window, task, .. }) = scan.pass_over()
        {
            let (zone, expression) = (&task.zone, &task.launch_expression);
            tracing::error!(%error, zone, expression, start_us = window.start_us, "a scan task is put off");
            self.note_corrupt(1, report);
            return Ok(());
        }
        Err(error)
    }

    fn note_corrupt(&self, count: u32, report: &mut RoundReport) {
        report.corrupt += count;
        self.stats.corrupt.fetch_add(count.into(), Ordering::Relaxed);
    }

    fn note_children(&self, scan: &mut Scan, report: &mut RoundReport) {
        let (children, unreadable) = scan.take_notes();
        report.children += children;
        self.stats.children.fetch_add(children, Ordering::Relaxed);
        for emit::Unreadable { namespace, schedule_id: schedule, ordinal: child, error } in unreadable {
            self.note_corrupt(1, report);
            tracing::error!(error, namespace, schedule, child, "a child is passed over");
        }
    }
}
