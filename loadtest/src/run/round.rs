//! One round of one variant, or of the yardstick.

use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, bail, ensure};
use tokio::task::JoinSet;
use tollgate_harness::kernel;
use tollgate_proto::v1::{TriggerScheduleRequest, Window, WindowState};

use super::meter::{Reading, Used};
use crate::consumer::{Sink, run_yardstick};
use crate::database::Database;
use crate::figures::Figures;
use crate::load::Load;
use crate::report::Row;
use crate::scenario::{Kind, Scenario, Variant, Yardstick};
use crate::service::{NAMESPACE, Service};
use crate::sink::lane::Release;
use crate::sink::wall_us;

/// How often the sink is asked how far it is.
const ASK: Duration = Duration::from_millis(20);
/// Readings are taken so long before the first launch, in microseconds.
const BEFORE_US: i64 = 100_000;
/// Events that go before all rounds, so that connections, caches and plans are there.
const WARM_UP_EVENTS: u32 = 2_000;
/// What nobody waits for is written within this time.
const LAZY: Duration = Duration::from_millis(100);

/// How long, between two windows, the CPU of an idle service is read.
const IDLE: Duration = Duration::from_secs(40);
/// A minute after much has been stored, PostgreSQL looks through it.
const REST: Duration = Duration::from_secs(100);
/// With much more it takes longer.
const QUIET_MAX: Duration = Duration::from_secs(1_800);
/// CPU seconds a second of a service and a database that have nothing to do are fewer.
const QUIET: f64 = 0.05;
/// No window takes longer.
const WINDOW_MAX: Duration = Duration::from_secs(120);
/// How far from the end of a window readings are taken.
const ASIDE: Duration = Duration::from_secs(10);

/// The processes of a scenario.
pub(crate) struct Stage {
    pub(crate) service: Service,
    /// More processes of the same store.
    pub(crate) others: Vec<Service>,
    pub(crate) sink: Sink,
    /// Removed when those that use it have ended.
    pub(crate) database: Database,
    /// Where more is stored than the load needs: how many events wait for good. To ask how many are held costs more than
    /// the load itself then, and is done after the readings.
    pub(crate) crowd: Option<u64>,
}

impl Stage {
    /// All processes of the service.
    pub(crate) fn pids(&self) -> Vec<u32> {
        std::iter::once(&self.service).chain(&self.others).map(|service| service.pid()).collect()
    }

    /// Starts more processes, until there are so many, and waits until they have divided the queue shards among themselves.
    pub(crate) async fn fill_up(
        &mut self,
        processes: u32,
        program: &Path,
        flags: &[String],
    ) -> anyhow::Result<()> {
        let processes = usize::try_from(processes)?;
        while self.others.len() + 1 < processes {
            self.others.push(Service::launch(program, &self.database.url(), flags).await?);
        }
        if self.others.is_empty() { Ok(()) } else { self.service.divided(processes).await }
    }

    /// Runs a little of the first variant and of the yardstick.
    pub(crate) async fn warm_up(&mut self, scenario: &Scenario) -> anyhow::Result<()> {
        let first = scenario.variants[0].kind;
        if matches!(first, Kind::Apply | Kind::Windows | Kind::Workers | Kind::Polls) {
            return Ok(());
        }
        for at in 0..scenario.variants.len() {
            let mut little = scenario.clone();
            let variant = &mut little.variants[at];
            (variant.beside, variant.kind, variant.schedules) = (None, Kind::Burst, 1);
            variant.events = WARM_UP_EVENTS / variant.policies.max(1);
            self.variant(&little, at, 0).await?;
        }
        if let Some(yardstick) = &scenario.yardstick {
            let little = Yardstick { events: WARM_UP_EVENTS, per_second: None, ..*yardstick };
            self.yardstick(scenario, &little, 0).await?;
        }
        Ok(())
    }

    /// Runs a variant.
    pub(crate) async fn variant(
        &mut self,
        scenario: &Scenario,
        at: usize,
        round: u32,
    ) -> anyhow::Result<Row> {
        let variant = &scenario.variants[at];
        let ports = [self.sink.port(2 * at)?, self.sink.port(2 * at + 1)?];
        let load = Load { variant, ports, round };
        match variant.kind {
            Kind::Apply => self.apply(&load).await,
            Kind::Windows => self.watch_windows(&load).await,
            Kind::Workers | Kind::Polls => self.watch_workers(&load).await,
            _ => self.deliver(&load, 2 * at).await,
        }
        .with_context(|| format!("variant {}, round {round}", variant.name))
    }

    async fn deliver(&mut self, load: &Load<'_>, lane: usize) -> anyhow::Result<Row> {
        let variant = load.variant;
        self.database.settle().await?;
        self.sink.reset().await?;
        let start_s = (wall_us() / 1_000 + load.lead_ms()) / 1_000 + 1;
        let (resources, applying) = (load.resources(start_s), Instant::now());
        let count = resources.len();
        self.service.apply(resources).await?;
        for number in 0..load.submissions_count() {
            self.service.master().submit_items(tokio_stream::iter(load.submission(number, start_s))).await?;
        }
        let apply_ms = applying.elapsed().as_secs_f64() * 1e3;
        let wait_us = start_s * 1_000_000 - BEFORE_US - wall_us();
        ensure!(
            wait_us > 0,
            "{count} resources took {apply_ms:.0} ms to apply: the first launch time has passed"
        );
        tokio::time::sleep(Duration::from_micros(u64::try_from(wait_us)?)).await;
        self.pids().into_iter().try_for_each(kernel::reset_peak)?;
        let reading = Reading::take(self).await?;
        let by_hand = matches!(variant.kind, Kind::Triggered | Kind::Chained);
        if by_hand {
            self.trigger(load).await?;
        }
        tokio::try_join!(self.wait(variant, lane), self.use_shards(variant, start_s))?;
        let asked = if self.crowd.is_none() { Some(self.service.drained(0).await?) } else { None };
        let releases =
            if variant.release == Release::OnResponse { None } else { Some(self.sink.finish().await?) };
        tokio::time::sleep(LAZY).await;
        let used = reading.used(self, variant.expected()).await?;
        let drained = match asked {
            Some(drained) => drained,
            None => self.service.drained(self.crowd.unwrap_or(0)).await?,
        };
        let records = self.sink.records().await?;
        let (own, others): (Vec<_>, Vec<_>) =
            records.into_iter().partition(|record| usize::from(record.lane) == lane);
        let start_us = (!by_hand).then_some(start_s * 1_000_000);
        let figures = Figures::of(&own, variant.expected(), variant.max_in_flight, start_us);
        // Only a burst keeps all places taken.
        let gap_ms = figures.gap_ms.filter(|_| variant.kind == Kind::Burst);
        let figures = Figures { gap_ms, ..figures };
        let mut broken = figures.broken(variant.max_in_flight);
        if !drained {
            broken.push("tokens are still held, or events still wait, though all were released".to_owned());
        }
        if let Some((released, refused)) = releases.filter(|(_, refused)| *refused > 0) {
            broken.push(format!("{refused} of {} releases were not taken", released + refused));
        }
        let mut row = Row::new(&variant.name, load.round, Some(figures), used, broken);
        row.apply_ms = Some(apply_ms);
        if variant.beside.is_some() {
            row.notes.push(format!("{} events came to the slow neighbour", others.len()));
        }
        Ok(row)
    }

    /// Changes the number of queue shards while events go, evenly over the variant's time.
    async fn use_shards(&self, variant: &Variant, start_s: i64) -> anyhow::Result<()> {
        let pause_us = i64::from(variant.seconds) * 1_000_000 / (variant.shards.len() as i64 + 1);
        for (number, to) in (1..).zip(&variant.shards) {
            let wait_us = start_s * 1_000_000 + number * pause_us - wall_us();
            tokio::time::sleep(Duration::from_micros(u64::try_from(wait_us).unwrap_or_default())).await;
            self.service.use_shards(*to)?;
        }
        Ok(())
    }

    /// Makes runs by hand, at an even pace.
    async fn trigger(&self, load: &Load<'_>) -> anyhow::Result<()> {
        let (pace, start) = (f64::from(load.variant.per_second), Instant::now());
        let mut calls = JoinSet::new();
        for number in 0..load.variant.expected() {
            let due = start + Duration::from_secs_f64(number as f64 / pace);
            tokio::time::sleep_until(due.into()).await;
            let name = format!("namespaces/{NAMESPACE}/schedules/{}", load.triggered_id(number));
            let mut master = self.service.master();
            let request = TriggerScheduleRequest { name, ..TriggerScheduleRequest::default() };
            calls.spawn(async move { master.trigger_schedule(request).await.map(|_| ()) });
        }
        while let Some(call) = calls.join_next().await {
            call??;
        }
        Ok(())
    }

    /// Waits until all work is done, or nothing has moved for longer than the scenario's patience.
    async fn wait(&self, variant: &Variant, lane: usize) -> anyhow::Result<()> {
        let patience = Duration::from_secs(u64::from(variant.patience_s + variant.seconds));
        let beside =
            variant.beside.map_or(0, |beside| u64::from(beside.events) * u64::from(beside.schedules));
        let (mut last, mut moved) = (0, Instant::now());
        loop {
            let (_, done) = self.sink.count(lane).await?;
            let (_, done_beside) = if beside > 0 { self.sink.count(lane + 1).await? } else { (0, 0) };
            if done >= variant.expected() && done_beside >= beside {
                return Ok(());
            }
            if done + done_beside != last {
                (last, moved) = (done + done_beside, Instant::now());
            }
            if moved.elapsed() > patience {
                return Ok(());
            }
            tokio::time::sleep(ASK).await;
        }
    }

    /// Runs the yardstick.
    pub(crate) async fn yardstick(
        &mut self,
        scenario: &Scenario,
        yardstick: &Yardstick,
        round: u32,
    ) -> anyhow::Result<Row> {
        let lane = 2 * scenario.variants.len();
        self.sink.reset().await?;
        let reading = Reading::take(self).await?;
        let said = run_yardstick(yardstick, self.sink.port(lane)?).await?;
        let events = u64::from(yardstick.events);
        let used = reading.used(self, events).await?;
        let own_cpu_s = said.cpu_s * 1e5 / events as f64;
        let used = Used {
            service_cpu_s: Some(own_cpu_s),
            cpu_s: Some(own_cpu_s),
            sink_cpu_s: used.sink_cpu_s,
            ..Used::default()
        };
        let start_us = yardstick.per_second.is_none().then_some(said.start_us);
        let limit = yardstick.per_second.is_none().then_some(yardstick.in_flight);
        let figures = Figures::of(&self.sink.records().await?, events, limit, start_us);
        let broken = figures.broken(None);
        Ok(Row::new(Row::YARDSTICK, round, Some(figures), used, broken))
    }

    /// Applies schedules, and nothing else.
    async fn apply(&mut self, load: &Load<'_>) -> anyhow::Result<Row> {
        let resources = load.resources(wall_us() / 1_000_000);
        let count = resources.len();
        kernel::reset_peak(self.service.pid())?;
        let (reading, start) = (Reading::take(self).await?, Instant::now());
        let changed = self.service.apply(resources).await?;
        let seconds = start.elapsed().as_secs_f64();
        let used = reading.used(self, count as u64).await?;
        let mut broken = Vec::new();
        if usize::try_from(changed)? != count {
            broken.push(format!("{changed} of {count} resources were made"));
        }
        let mut row = Row::new(&load.variant.name, load.round, None, used, broken);
        row.apply_ms = Some(seconds * 1e3);
        row.applied_per_s = Some(count as f64 / seconds);
        Ok(row)
    }

    /// Stores schedules, and watches the emitter. Nothing is sent meanwhile, and what the service needs by itself is not
    /// the emitter's.
    async fn watch_windows(&mut self, load: &Load<'_>) -> anyhow::Result<Row> {
        self.service.pause_dispatch().await?;
        let mut row = self.apply(load).await?;
        tokio::time::sleep(REST).await;
        self.database.settle().await?;
        self.quiet().await?;
        let before = self.after_a_window().await?;
        let began = Instant::now();
        let (reading, rows) = (Reading::take(self).await?, self.database.children_read().await?);
        tokio::time::sleep(IDLE).await;
        let (service_s, database_s) = reading.cpu_s(self).await?;
        let idle_cpu = (service_s + database_s) / began.elapsed().as_secs_f64();
        let watched = Duration::from_secs(u64::from(load.variant.seconds));
        tokio::time::sleep(watched.saturating_sub(began.elapsed())).await;
        let (service_s, database_s) = reading.cpu_s(self).await?;
        let cpu_s = service_s + database_s - idle_cpu * began.elapsed().as_secs_f64();
        // The server's counts come a second late.
        tokio::time::sleep(Duration::from_millis(1_500)).await;
        let read = self.database.children_read().await?.zip(rows).map(|(now, then)| now - then);
        let after = self.complete_windows().await?;
        let new: Vec<&Window> =
            after.iter().filter(|w| before.iter().all(|old| old.start_time != w.start_time)).collect();
        let runs: u64 = new.iter().map(|window| window.runs_count).sum();
        ensure!(!new.is_empty() && runs > 0, "no window was completed within {} s", load.variant.seconds);
        row.window_cpu_ms = Some(cpu_s * 1e3 / new.len() as f64);
        row.rows_read_per_run = read.map(|read| read as f64 / runs as f64);
        row.notes.push(format!(
            "{} windows with {runs} runs; service {:.0} ms, database {:.0} ms, less {:.1} ms a second between windows",
            new.len(),
            service_s * 1e3,
            database_s * 1e3,
            idle_cpu * 1e3
        ));
        Ok(row)
    }

    /// Waits until the database no longer looks through what is new.
    async fn quiet(&mut self) -> anyhow::Result<()> {
        let began = Instant::now();
        while began.elapsed() < QUIET_MAX {
            let reading = Reading::take(self).await?;
            tokio::time::sleep(ASIDE).await;
            let (service_s, database_s) = reading.cpu_s(self).await?;
            if service_s + database_s < QUIET * ASIDE.as_secs_f64() {
                return Ok(());
            }
        }
        bail!("the database was still busy after {} s", QUIET_MAX.as_secs())
    }

    /// The windows that are complete, a moment after one more is.
    async fn after_a_window(&self) -> anyhow::Result<Vec<Window>> {
        let newest = |windows: &[Window]| {
            windows.iter().filter_map(|window| window.start_time).map(|time| time.seconds).max()
        };
        let (before, began) = (newest(&self.complete_windows().await?), Instant::now());
        while began.elapsed() < WINDOW_MAX {
            tokio::time::sleep(ASIDE / 10).await;
            if newest(&self.complete_windows().await?) > before {
                tokio::time::sleep(ASIDE).await;
                return self.complete_windows().await;
            }
        }
        bail!("no window was completed within {} s", WINDOW_MAX.as_secs())
    }

    async fn complete_windows(&self) -> anyhow::Result<Vec<Window>> {
        let windows = self.service.windows().await?;
        Ok(windows.into_iter().filter(|window| window.state() == WindowState::Complete).collect())
    }
}
