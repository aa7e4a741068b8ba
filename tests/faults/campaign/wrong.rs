//! One process among others: its clock is wrong, or it dies or is slow between two steps of what was acknowledged.

use std::time::{Duration, Instant};

use anyhow::Result;
use tollgate_harness::now_us;
use tollgate_harness::proxy::Mode;

use super::{Campaign, HOUR_US, progress};
use crate::audit::Pause;
use crate::order::Loss;

/// A process whose clock is right again says that it is ready within this time.
const READY_MAX: Duration = Duration::from_secs(30);
/// The point lies right behind the change.
const POINT_MAX: Duration = Duration::from_secs(3);
/// Schedules and events that are kept while shards change hands.
const HANDED: (u32, u32) = (16, 12);

impl Campaign {
    /// The wall clock of one process jumps ahead, and comes back.
    pub(super) async fn clock_ahead(
        &mut self,
        victim: usize,
        by_hours: i64,
        length: Duration,
    ) -> Result<bool> {
        // Nobody orders anything meanwhile: whoever is not ready is not asked.
        let _alone = self.load.clock.clone().write_owned().await;
        self.processes[victim].machine.clock_offset(by_hours * HOUR_US)?;
        tokio::time::sleep(length).await;
        self.must_not_be_ready(victim, by_hours).await;
        self.processes[victim].machine.clock_offset(0)?;
        self.must_become_ready(victim).await?;
        Ok(true)
    }

    /// A process starts with a wrong wall clock.
    pub(super) async fn clock_wrong(
        &mut self,
        victim: usize,
        by_hours: i64,
        length: Duration,
    ) -> Result<bool> {
        let _alone = self.load.clock.clone().write_owned().await;
        self.processes[victim].kill9()?;
        self.processes[victim].machine.clock_offset(by_hours * HOUR_US)?;
        self.processes[victim].start_alone()?;
        tokio::time::sleep(length).await;
        // It may have ended, and say why.
        if self.processes[victim].exited()?.is_none() {
            self.must_not_be_ready(victim, by_hours).await;
        }
        self.processes[victim].machine.clock_offset(0)?;
        self.processes[victim].start().await?;
        self.must_become_ready(victim).await?;
        Ok(true)
    }

    async fn must_not_be_ready(&mut self, victim: usize, by_hours: i64) {
        if self.processes[victim].says_ready().await {
            let text =
                format!("process {victim} said that it was ready with a clock off by {by_hours} hours");
            progress(&text);
            self.log.oddities.push(text);
        }
    }

    async fn must_become_ready(&mut self, victim: usize) -> Result<()> {
        let end = Instant::now() + READY_MAX;
        while !self.processes[victim].says_ready().await {
            // It may prefer to end, and to be started again.
            if !self.processes[victim].is_up()? {
                self.processes[victim].start().await?;
            }
            if Instant::now() > end {
                let text =
                    format!("process {victim} was not ready {READY_MAX:?} after its clock was put right");
                progress(&text);
                self.log.oddities.push(text);
                break;
            }
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
        Ok(())
    }

    /// A pause is acknowledged, and whoever was to tell the queue shard is killed before that.
    pub(super) async fn lose_change(&mut self, victim: usize, how: Loss, down: Duration) -> Result<bool> {
        let number = self.number();
        let Some((id, start_s)) = self.load.changing(number).await else { return Ok(false) };
        // What it emits ahead has been emitted.
        self.some_of(&id).await;
        tokio::time::sleep(Duration::from_secs(1)).await;
        // Nobody else changes anything: the point is for this change.
        let alone = self.load.clock.clone().write_owned().await;
        let asked_us = now_us();
        let channel = self.processes[victim].patient_channel()?;
        let happened = match how {
            Loss::Point(point) => {
                self.processes[victim].arm(point, 1)?;
                // Whether it is answered is the point's business.
                let _ = self.load.pause_at(channel, &id).await;
                self.ends_by_itself(victim).await?;
                self.processes[victim].disarm()?
            }
            Loss::Locked => {
                let lock =
                    self.postgres()?.hold(&["BEGIN", "LOCK TABLE shard_inbox IN EXCLUSIVE MODE"]).await?;
                let answered = self.load.pause_at(channel, &id).await;
                self.processes[victim].kill9()?;
                drop(lock);
                if let Err(status) = answered {
                    progress(&format!("the pause was refused, which is right, too: {status}"));
                }
                true
            }
        };
        drop(alone);
        self.effect_us = Some(now_us());
        // Alone, it must be up to be asked.
        if self.processes.len() == 1 && !self.processes[victim].is_up()? {
            self.processes[victim].start().await?;
        }
        let is_acknowledged = self.load.pause(&id).await;
        let paused_us = now_us();
        tokio::time::sleep(down).await;
        if !self.processes[victim].is_up()? {
            self.processes[victim].start().await?;
        }
        let until_us = now_us();
        let resumed_us = if self.load.resume(&id).await { now_us() } else { i64::MAX / 2 };
        let pause = is_acknowledged.then(|| Pause { schedule: id.clone(), from_us: paused_us, until_us });
        self.load.changed(&id, start_s, pause, (asked_us, resumed_us));
        Ok(happened)
    }

    /// Waits until a process has ended, for a while.
    async fn ends_by_itself(&mut self, victim: usize) -> Result<()> {
        let end = Instant::now() + POINT_MAX;
        while self.processes[victim].is_up()? && Instant::now() < end {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        Ok(())
    }

    /// Events are released through one process, whose network to the database is slow, while the shards of another move: a
    /// release is looked up before the move, and posted after it.
    pub(super) async fn hand_over_released(
        &mut self,
        victim: usize,
        late: Duration,
        length: Duration,
    ) -> Result<bool> {
        let (schedules, events) = HANDED;
        let through = (victim + 1) % self.processes.len();
        let start_us = self.load.handed(self.number(), schedules, events).await;
        let wait_us = start_us + 1_200_000 - now_us();
        tokio::time::sleep(Duration::from_micros(u64::try_from(wait_us).unwrap_or_default())).await;
        self.sink.orders().door = Some(through);
        self.stores[through].set(Mode::Late(late));
        self.processes[victim].kill9()?;
        self.effect_us = Some(now_us());
        tokio::time::sleep(length).await;
        self.stores[through].set(Mode::Pass);
        self.sink.orders().door = None;
        self.processes[victim].start().await?;
        Ok(true)
    }
}
