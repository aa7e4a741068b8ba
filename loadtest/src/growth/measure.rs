//! Measures the work at one point.
//!
//! The store is filled, the service starts anew, so that its memory is what the stored things need and not what filling
//! them took, and then come bursts with their yardsticks, away from whole minutes, and single events over a whole minute,
//! when the emitter scans and stored schedules fall due.

use std::path::Path;
use std::time::{Duration, Instant};

use super::fill::{fill, taken_in};
use super::point::{Point, SHARDS};
use super::table::PointResult;
use crate::consumer::Sink;
use crate::database::Database;
use crate::distance::Far;
use crate::report::{Report, Row};
use crate::run::Reading;
use crate::run::round::Stage;
use crate::scenario::{Kind, Scenario};
use crate::service::Service;
use crate::sink::wall_us;

/// How long the service is watched while it has nothing to do.
const IDLE: Duration = Duration::from_secs(3);
/// When what is to fall due about four seconds later is applied, in milliseconds of a minute: bursts in between, single
/// events at the end.
const QUIET_MS: (i64, i64) = (2_000, 49_000);
const TURN_MS: i64 = 51_500;

/// Measures a point.
///
/// # Errors
/// What keeps it from being measured.
pub(super) async fn measure(
    point: Point,
    scenario: Scenario,
    program: &Path,
    store: &str,
) -> anyhow::Result<PointResult> {
    let mut database = Database::new(store, Far::default()).await?;
    let mut service = Service::start(program, &database.url(), &scenario.serve).await?;
    if point.shards != SHARDS {
        service.stop().await?;
        database.set_shards(point.shards).await?;
        service = Service::start(program, &database.url(), &scenario.serve).await?;
    }
    let sink = Sink::start(&scenario.lanes(), service.url())?;
    let mut stage = Stage { service, others: Vec::new(), sink, database, crowd: Some(point.waiting) };
    prepare_and_work(&mut stage, point, &scenario, program).await
}

async fn prepare_and_work(
    stage: &mut Stage,
    point: Point,
    scenario: &Scenario,
    program: &Path,
) -> anyhow::Result<PointResult> {
    let mut line = PointResult::new(
        point.axis,
        point.size,
        Some(Report::new(scenario, stage.database.kind(), point.processes)),
    );
    let start = Instant::now();
    // The lane of a neighbour, of which no variant has one.
    fill(&stage.service, &point, &scenario.variants[0], stage.sink.port(1)?).await?;
    line.fill_s = Some(start.elapsed().as_secs_f64());
    stage.service.stop().await?;
    stage.database.age().await?;
    let (start, url) = (Instant::now(), stage.database.url());
    stage.service = Service::start(program, &url, &scenario.serve).await?;
    taken_in(&stage.service, point.waiting).await?;
    line.start_s = Some(start.elapsed().as_secs_f64());
    stage.fill_up(point.processes, program, &scenario.serve).await?;
    work(stage, scenario, &mut line).await?;
    Ok(line)
}

/// Idles, fires bursts in turn with the yardstick, and fires single events.
async fn work(stage: &mut Stage, scenario: &Scenario, line: &mut PointResult) -> anyhow::Result<()> {
    stage.warm_up(scenario).await?;
    let reading = Reading::take(stage).await?;
    tokio::time::sleep(IDLE).await;
    let (service_s, database_s) = reading.cpu_s(stage).await?;
    line.idle_cpu_ms_per_s = Some((service_s + database_s) * 1e3 / IDLE.as_secs_f64());
    let bursts = |at: &usize| scenario.variants[*at].kind == Kind::Burst;
    let (bursts, singles): (Vec<usize>, Vec<usize>) = (0..scenario.variants.len()).partition(bursts);
    for round in 1..=scenario.rounds {
        let mut rows: Vec<Row> = Vec::new();
        for at in &bursts {
            within(QUIET_MS).await;
            rows.push(stage.variant(scenario, *at, round).await?);
        }
        if let Some(yardstick) = &scenario.yardstick {
            rows.push(stage.yardstick(scenario, yardstick, round).await?);
        }
        line.take(rows);
    }
    for at in singles {
        within((TURN_MS, TURN_MS + 500)).await;
        let row = stage.variant(scenario, at, 1).await?;
        line.take(vec![row]);
    }
    Ok(())
}

/// Waits for these milliseconds of a minute.
async fn within((from, to): (i64, i64)) {
    let now = wall_us() / 1_000 % 60_000;
    if !(from..to).contains(&now) {
        let wait = (from - now).rem_euclid(60_000);
        tokio::time::sleep(Duration::from_millis(u64::try_from(wait).unwrap_or(0))).await;
    }
}
