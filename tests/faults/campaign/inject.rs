//! How each fault is done and undone.

use std::time::Duration;

use anyhow::{Context as _, Result};
use tollgate_harness::machine::Machine;
use tollgate_harness::postgres::Stop;
use tollgate_harness::proxy::Mode;

use super::{Campaign, HOUR_US, faults_binary};
use crate::order::Fault;
use crate::postgres::Postgres;
use crate::sink::Conduct;

/// A point must be passed within this time.
const POINT_MAX: Duration = Duration::from_secs(12);
/// Time between two ended backends.
const BACKENDS_EVERY: Duration = Duration::from_millis(60);

impl Campaign {
    /// Does it, waits, undoes it. False where it could not be done.
    pub(super) async fn inject(&mut self, fault: &Fault) -> Result<bool> {
        match fault {
            Fault::Kill { victim, down } => {
                self.processes[*victim].kill9()?;
                tokio::time::sleep(*down).await;
                self.processes[*victim].start().await?;
            }
            Fault::KillAt { victim, point, pass, down } => {
                return self.kill_at(*victim, point, *pass, *down).await;
            }
            Fault::Freeze { victim, length } => {
                self.processes[*victim].freeze(true)?;
                tokio::time::sleep(*length).await;
                self.processes[*victim].freeze(false)?;
            }
            Fault::Restart { victim } => {
                self.processes[*victim].note("planned stop");
                if let Err(error) = self.processes[*victim].stop().await {
                    self.log.oddities.push(format!("{error:#}"));
                }
                self.processes[*victim].start().await?;
            }
            Fault::StoreRestart => {
                self.postgres()?.server.down(Stop::Fast)?;
                self.effect_us = Some(tollgate_harness::now_us());
                self.postgres()?.server.up()?;
            }
            Fault::StoreCrash { down } => {
                self.postgres()?.server.down(Stop::Immediate)?;
                self.effect_us = Some(tollgate_harness::now_us());
                tokio::time::sleep(*down).await;
                self.postgres()?.server.up()?;
            }
            Fault::EndBackends { count } => self.end_backends(*count).await?,
            Fault::SlowDisk { ms, length } => {
                self.disk()?.slow_disk(*ms)?;
                tokio::time::sleep(*length).await;
                self.disk()?.slow_disk(0)?;
            }
            Fault::FullDisk { length } => {
                self.disk()?.full_disk(true)?;
                tokio::time::sleep(*length).await;
                self.disk()?.full_disk(false)?;
            }
            Fault::CutStore { .. } | Fault::CutConsumer { .. } | Fault::CutPeers { .. } => {
                self.cut(fault).await
            }
            Fault::Outage { conduct, length } => self.outage(*conduct, *length).await,
            Fault::Clock { victim, length } => self.turn_back(*victim, *length).await?,
            Fault::Limit { lower, victim: None } => return Ok(self.load.change_limit(*lower).await),
            Fault::Limit { lower, victim: Some(victim) } => {
                self.processes[*victim].kill9()?;
                let load = self.load.clone();
                let (changed, started) =
                    tokio::join!(load.change_limit(*lower), self.processes[*victim].start());
                started?;
                return Ok(changed);
            }
            Fault::Shards { to, length } => {
                let changed = self.use_shards(*to).await?;
                tokio::time::sleep(*length).await;
                return Ok(changed);
            }
            Fault::Cancel { lane, after } => {
                let number = self.log.injected.values().sum::<u64>();
                return Ok(self.load.cancelled_batch(usize::try_from(number)?, *lane, *after).await);
            }
            Fault::ClockAhead { victim, by_hours, length } => {
                return self.clock_ahead(*victim, *by_hours, *length).await;
            }
            Fault::ClockWrong { victim, by_hours, length } => {
                return self.clock_wrong(*victim, *by_hours, *length).await;
            }
            Fault::ChangeLost { victim, how, down } => return self.lose_change(*victim, *how, *down).await,
            Fault::HandedRelease { victim, late, length } => {
                return self.hand_over_released(*victim, *late, *length).await;
            }
            Fault::Lookup { events, length } => return self.hang_lookups(*events, *length).await,
            Fault::SlowQueue { victim, call } => return self.slow_queue(*victim, *call).await,
            Fault::HistoryReader { victim, length } => return self.read_history(*victim, *length).await,
            Fault::Snapshot { length } => return self.hold_snapshot(*length).await,
            Fault::SlowReads { length } => return self.read_slowly(*length).await,
            Fault::BadSpecs { length } => return self.spoil_rows(*length).await,
            Fault::BlackHole { events, length } => return self.black_hole(*events, *length).await,
        }
        Ok(true)
    }

    /// Has so many queue shards used, as an operator does: beside the processes. False where it is refused, as a process that has
    /// died is thought to be of an older version.
    async fn use_shards(&self, to: u16) -> Result<bool> {
        let url = match &self.postgres {
            Some(postgres) => format!("postgres://tollgate@{}/tollgate", postgres.server.address()),
            None => self.processes[0].store.clone(),
        };
        let mut command = tokio::process::Command::new(faults_binary()?);
        command.args(["store", "shards", "--to", &to.to_string(), "--store", &url]);
        let done = command.output().await.context("tollgate store cannot be run")?;
        Ok(done.status.success())
    }

    /// Network faults.
    async fn cut(&self, fault: &Fault) {
        match fault {
            Fault::CutStore { victim, mode, heals, length } => {
                self.stores[*victim].set(*mode);
                tokio::time::sleep(*length).await;
                if !heals {
                    self.stores[*victim].set(Mode::Reset);
                    tokio::time::sleep(Duration::from_millis(200)).await;
                }
                self.stores[*victim].set(Mode::Pass);
            }
            Fault::CutConsumer { mode, length } => {
                self.consumer.set(*mode);
                tokio::time::sleep(*length).await;
                self.consumer.set(Mode::Pass);
            }
            Fault::CutPeers { victim, mode, length } => {
                self.peers[*victim].set(*mode);
                tokio::time::sleep(*length).await;
                self.peers[*victim].set(Mode::Pass);
            }
            _ => {}
        }
    }

    async fn kill_at(&mut self, victim: usize, point: &str, pass: u32, down: Duration) -> Result<bool> {
        self.processes[victim].arm(point, pass)?;
        if point.starts_with("handler.handover") {
            // Only who is asked to leave hands over.
            self.processes[victim].note("planned stop, ended in the middle");
            // It ends at the point, or well; either will do.
            let _ = self.processes[victim].stop().await;
        }
        if point.starts_with("handler.move") {
            // Nothing moves unasked. One of the two numbers is another one than before.
            let _ = (self.use_shards(48).await?, self.use_shards(96).await?);
        }
        let end = std::time::Instant::now() + POINT_MAX;
        while self.processes[victim].is_up()? && std::time::Instant::now() < end {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        self.effect_us = Some(tollgate_harness::now_us());
        let fired = self.processes[victim].disarm()?;
        if fired {
            tokio::time::sleep(down).await;
        }
        if !self.processes[victim].is_up()? {
            self.processes[victim].start().await?;
        }
        Ok(fired)
    }

    /// Commits last a while, so that they can be met.
    async fn end_backends(&mut self, count: u32) -> Result<()> {
        self.disk()?.slow_disk(40)?;
        let mut met = 0;
        for _ in 0..count {
            // A backend may end before it is ended.
            met += u64::from(self.postgres()?.end_a_backend().await.unwrap_or_default());
            tokio::time::sleep(BACKENDS_EVERY).await;
        }
        self.disk()?.slow_disk(0)?;
        *self.log.injected.entry("backends that were in COMMIT".to_owned()).or_default() += met;
        Ok(())
    }

    async fn outage(&self, conduct: Conduct, length: Duration) {
        self.sink.orders().outage = Some(conduct);
        tokio::time::sleep(length).await;
        self.sink.orders().outage = None;
    }

    /// The wall clock goes back an hour, and forward again.
    async fn turn_back(&self, victim: Option<usize>, length: Duration) -> Result<()> {
        // Nobody orders anything meanwhile: what falls due then would be a matter of opinion.
        let _alone = self.load.clock.clone().write_owned().await;
        let concerned =
            self.processes.iter().enumerate().filter(|(number, _)| victim.is_none_or(|v| v == *number));
        // Where all clocks go, the database's goes with them.
        let database = self.postgres.iter().filter(|_| victim.is_none()).map(|postgres| &postgres.machine);
        let machines: Vec<&Machine> =
            concerned.map(|(_, process)| &process.machine).chain(database).collect();
        machines.iter().try_for_each(|machine| machine.clock_offset(-HOUR_US))?;
        tokio::time::sleep(length).await;
        machines.iter().try_for_each(|machine| machine.clock_offset(0))
    }

    pub(super) fn postgres(&self) -> Result<&Postgres> {
        self.postgres.as_ref().context("there is no PostgreSQL")
    }

    /// What the store's disk is.
    fn disk(&self) -> Result<&Machine> {
        match &self.postgres {
            Some(postgres) => Ok(&postgres.machine),
            None => self.processes.first().map(|process| &process.machine).context("there is no process"),
        }
    }
}
