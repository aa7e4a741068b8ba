//! Faults that are somebody's own business: each is done beside healthy work, which must not notice.

use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use tollgate_harness::resources::PARENT;
use tollgate_proto::v1::event_handler_service_client::EventHandlerServiceClient;
use tollgate_proto::v1::schedule_master_service_client::ScheduleMasterServiceClient;
use tollgate_proto::v1::{ListAuditEntriesRequest, ListRunsRequest};
use tonic::transport::Channel;

use super::{Campaign, progress};
use crate::records;
use crate::sink::kind;

/// What has been held up comes to its end within this time.
const DRAIN_MAX: Duration = Duration::from_secs(90);
/// Queue shards find owners within this time.
const SETTLED_MAX: Duration = Duration::from_secs(20);
/// What waited is made up for within this time.
const SETTLES: Duration = Duration::from_secs(2);
/// People who read at once, at each process.
const READERS: usize = 40;
/// Schedules and events that share one slow queue.
const QUEUE: (u32, u32) = (8, 300);
/// A dead row of a lease is left by a take-over, and not by each commit: so many a second at most.
pub(super) const DEAD_ROWS_MAX: u64 = 25;

impl Campaign {
    /// The look-ups of one name hang.
    pub(super) async fn hang_lookups(&self, events: u32, length: Duration) -> Result<bool> {
        let names = self.names.as_ref().context("there is no name server")?;
        names.hang(true);
        let (prefix, events) = self.load.unnamed(self.number(), events).await;
        tokio::time::sleep(length).await;
        names.hang(false);
        self.drain(&prefix, events).await;
        Ok(true)
    }

    /// A consumer takes everything and says nothing.
    pub(super) async fn black_hole(&mut self, events: u32, length: Duration) -> Result<bool> {
        let healthy = self.sink.journal().shards_of(kind::HEALTHY);
        let Some(id) = self.load.hole(self.number(), &healthy).await else { return Ok(false) };
        self.near = Some(self.sink.journal().shards_of(&id));
        self.sink.orders().is_hole = true;
        let triggered = self.load.trigger(&id, events).await;
        tokio::time::sleep(length).await;
        self.sink.orders().is_hole = false;
        if triggered.is_some() {
            self.drain(&id, events).await;
        }
        Ok(triggered.is_some())
    }

    /// A queue is slower than the deadline of what waits for it, when a process joins and takes queue shards from the
    /// others, who have much to send.
    pub(super) async fn slow_queue(&mut self, victim: usize, call: Duration) -> Result<bool> {
        let (schedules, events) = QUEUE;
        self.processes[victim].note("planned stop");
        if let Err(error) = self.processes[victim].stop().await {
            self.log.oddities.push(format!("{error:#}"));
        }
        self.sink.orders().slow_call = call;
        let prefix = self.load.slow_queue(self.number(), schedules, events).await;
        self.some_of(&prefix).await;
        self.processes[victim].start().await?;
        self.drain(&prefix, schedules * events).await;
        self.sink.orders().slow_call = Duration::ZERO;
        Ok(true)
    }

    /// Somebody reads all history, as pg_dump does, while a process starts that finds a new day.
    pub(super) async fn read_history(&mut self, victim: usize, length: Duration) -> Result<bool> {
        if let Err(error) = self.postgres()?.new_day().await {
            // The locks that this takes could not be had.
            progress(&format!("no new day: {error:#}"));
            return Ok(false);
        }
        let reader =
            self.postgres()?.hold(&["BEGIN", "LOCK TABLE event_history IN ACCESS SHARE MODE"]).await?;
        self.processes[victim].note("planned stop");
        if let Err(error) = self.processes[victim].stop().await {
            self.log.oddities.push(format!("{error:#}"));
        }
        self.processes[victim].start().await?;
        tokio::time::sleep(length).await;
        drop(reader);
        Ok(true)
    }

    /// A snapshot is held, and with it every dead row.
    pub(super) async fn hold_snapshot(&mut self, length: Duration) -> Result<bool> {
        let dead_before = self.postgres()?.dead_lease_rows().await?;
        let snapshot = self
            .postgres()?
            .hold(&["BEGIN ISOLATION LEVEL REPEATABLE READ", "SELECT txid_current_snapshot()"])
            .await?;
        tokio::time::sleep(length).await;
        let dead = self.postgres()?.dead_lease_rows().await?;
        drop(snapshot);
        self.judge_dead_rows(dead - dead_before, length);
        Ok(true)
    }

    pub(super) fn judge_dead_rows(&mut self, rows: i64, held: Duration) {
        let rows = u64::try_from(rows).unwrap_or_default();
        self.log.dead_rows.push((held.as_secs(), rows));
        if rows > DEAD_ROWS_MAX * held.as_secs().max(1) {
            let text = format!(
                "{rows} dead rows of leases under a snapshot of {} s: commits leave them",
                held.as_secs()
            );
            progress(&text);
            self.log.oddities.push(text);
        }
    }

    /// Many people read what is locked.
    pub(super) async fn read_slowly(&self, length: Duration) -> Result<bool> {
        let lock = self.postgres()?.hold(&["BEGIN", "LOCK TABLE audit_log IN ACCESS EXCLUSIVE MODE"]).await?;
        let end = Instant::now() + length;
        let readers = self.processes.iter().flat_map(|process| {
            (0..READERS).map(|number| tokio::spawn(read_until(process.channel.clone(), number, end)))
        });
        futures::future::join_all(readers.collect::<Vec<_>>()).await;
        drop(lock);
        Ok(true)
    }

    /// Rows that cannot be read, by the thousand where something healthy is, and some everywhere.
    pub(super) async fn spoil_rows(&mut self, length: Duration) -> Result<bool> {
        let mut shards: Vec<u16> = self.sink.journal().shards_of(kind::HEALTHY).into_iter().collect();
        shards.sort_unstable();
        shards.truncate(8);
        self.near = Some(shards.iter().copied().collect());
        self.postgres()?.add_unreadable(&shards).await?;
        tokio::time::sleep(length).await;
        // Whoever writes to them at this moment wins.
        let mut removed = self.postgres()?.remove_unreadable().await;
        for _ in 0..5 {
            if removed.is_ok() {
                break;
            }
            tokio::time::sleep(Duration::from_millis(200)).await;
            removed = self.postgres()?.remove_unreadable().await;
        }
        removed.map(|()| true)
    }

    /// Waits until every queue shard has an owner and what was held up has been made up for: the next fault is to be seen
    /// alone.
    pub(super) async fn settle_down(&self) {
        let end = Instant::now() + SETTLED_MAX;
        while !records::is_owned(&self.processes).await && Instant::now() < end {
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
        tokio::time::sleep(SETTLES).await;
    }

    /// Waits until all of these events have been done, as long as that may take: what is missing then is the auditor's.
    async fn drain(&self, schedule: &str, events: u32) {
        let end = Instant::now() + DRAIN_MAX;
        let events = usize::try_from(events).unwrap_or(usize::MAX);
        while self.sink.journal().done_of(schedule) < events && Instant::now() < end {
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
    }

    /// Waits until something of these schedules has been done.
    pub(super) async fn some_of(&self, schedule: &str) {
        let end = Instant::now() + Duration::from_secs(20);
        while self.sink.journal().done_of(schedule) == 0 && Instant::now() < end {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }
}

/// What people read: the audit log, and runs of a rare state.
async fn read_until(channel: Channel, number: usize, end: Instant) {
    let parent = PARENT.to_owned();
    while Instant::now() < end {
        // However it ends, it is asked for again.
        if number.is_multiple_of(4) {
            let filter = "state=SKIPPED".to_owned();
            let request = ListRunsRequest { parent: parent.clone(), filter, ..ListRunsRequest::default() };
            let _ = EventHandlerServiceClient::new(channel.clone()).list_runs(request).await;
        } else {
            let request =
                ListAuditEntriesRequest { parent: parent.clone(), ..ListAuditEntriesRequest::default() };
            let _ = ScheduleMasterServiceClient::new(channel.clone()).list_audit_entries(request).await;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}
