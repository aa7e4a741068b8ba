//! `run`: carries scenarios out, round by round, and prints what they came to.
//!
//! Within a round every variant runs once, then the yardstick: the speed of a machine drifts, so only neighbours are
//! compared. A scenario has its own database, service and sink.

mod meter;
pub(crate) mod round;
mod workers;

use std::path::{Path, PathBuf};

use anyhow::{Context, bail, ensure};
use clap::Args;

use crate::consumer::Sink;
use crate::database::Database;
use crate::distance::Far;
use crate::report::{self, Report, Row};
use crate::scenario::Scenario;
use crate::service::Service;
pub(crate) use meter::{Reading, Used};
use round::Stage;

/// Arguments of `run`.
#[derive(Args, Debug)]
pub(crate) struct RunArgs {
    /// Names of scenarios, or files; all where none is given
    #[arg(value_name = "SCENARIO")]
    scenarios: Vec<String>,

    /// sqlite, postgres (a private server with default settings), or the URL of a server
    #[arg(long, value_name = "STORE", default_value = "sqlite")]
    store: String,

    /// The service's program; beside this one by default
    #[arg(long, value_name = "FILE", env = "TOLLGATE_BIN")]
    tollgate: Option<PathBuf>,

    /// The number of rounds, instead of the scenario's
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    rounds: Option<u32>,

    /// Every number of events divided by this, for a quick look
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..))]
    divide: u32,

    /// Only the variant of this name
    #[arg(long, value_name = "NAME")]
    variant: Option<String>,

    /// Leave the yardstick out
    #[arg(long)]
    no_yardstick: bool,

    /// More flags of `tollgate serve`, separated by spaces
    #[arg(long, value_name = "FLAGS", default_value = "", allow_hyphen_values = true)]
    serve: String,

    /// Processes of the service that share the queue shards, on PostgreSQL
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..))]
    processes: u32,

    /// What goes to PostgreSQL and back takes so much longer, in microseconds
    #[arg(long, value_name = "N", default_value_t = 0)]
    network_us: u64,

    /// Each sync of PostgreSQL's disk takes so much longer, in milliseconds; with --store postgres
    #[arg(long, value_name = "N", default_value_t = 0)]
    sync_ms: u64,

    /// Everything as JSON, too
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
}

impl RunArgs {
    fn far(&self) -> Far {
        Far { network_us: self.network_us, sync_ms: self.sync_ms }
    }
}

/// Runs scenarios. Whether every promise was kept.
///
/// # Errors
/// What keeps a scenario from running.
pub(crate) fn run(args: &RunArgs) -> anyhow::Result<bool> {
    to_its_end(run_all(args))
}

/// Whether all went well, unless a signal comes first.
///
/// # Errors
/// Those of the work, and the signal.
pub(crate) fn to_its_end(work: impl Future<Output = anyhow::Result<bool>>) -> anyhow::Result<bool> {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build()?;
    runtime.block_on(async {
        tokio::select! {
            clean = Box::pin(work) => clean,
            // What was started ends with the future that is dropped here.
            signal = interrupted() => bail!("{} received", signal?),
        }
    })
}

async fn interrupted() -> anyhow::Result<&'static str> {
    let mut terminate = tokio::signal::unix::signal(tokio::signal::unix::SignalKind::terminate())?;
    tokio::select! {
        result = tokio::signal::ctrl_c() => result.map(|()| "SIGINT").map_err(Into::into),
        _ = terminate.recv() => Ok("SIGTERM"),
    }
}

async fn run_all(args: &RunArgs) -> anyhow::Result<bool> {
    let program = tollgate_harness::program(args.tollgate.as_deref())?;
    let mut reports = Vec::new();
    for path in paths(&args.scenarios)? {
        let mut scenario = Scenario::read(&path)?;
        adapt(&mut scenario, args)?;
        let name = scenario.name.clone();
        reports.push(carry_out(scenario, &program, args).await.with_context(|| format!("scenario {name}"))?);
    }
    if reports.len() > 1 {
        report::print_medians(&reports)?;
    }
    if let Some(file) = &args.json {
        let text = serde_json::to_string_pretty(&reports)?;
        std::fs::write(file, text).with_context(|| format!("cannot write {}", file.display()))?;
    }
    Ok(reports.iter().all(Report::is_clean))
}

/// The files of the scenarios that are named; of all but the large ones where none is.
fn paths(names: &[String]) -> anyhow::Result<Vec<PathBuf>> {
    let folder = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/scenarios"));
    let here = |name: &String| {
        let file = folder.join(format!("{name}.yaml"));
        if file.exists() { file } else { PathBuf::from(name) }
    };
    if !names.is_empty() {
        return Ok(names.iter().map(here).collect());
    }
    let entries = std::fs::read_dir(folder).with_context(|| format!("cannot list {}", folder.display()))?;
    let files = entries.flatten().map(|entry| entry.path());
    let mut all: Vec<PathBuf> = files.filter(|path| path.extension() == Some("yaml".as_ref())).collect();
    all.sort();
    Ok(all)
}

/// Flags win over the file.
fn adapt(scenario: &mut Scenario, args: &RunArgs) -> anyhow::Result<()> {
    scenario.rounds = args.rounds.unwrap_or(scenario.rounds);
    scenario.serve.extend(args.serve.split_whitespace().map(str::to_owned));
    if let Some(name) = &args.variant {
        scenario.variants.retain(|variant| variant.name == *name);
        ensure!(!scenario.variants.is_empty(), "{}: there is no variant {name:?}", scenario.name);
        let kept = |name: &Option<String>, wanted: &str| name.as_deref().is_none_or(|name| name == wanted);
        scenario.bars.retain(|bar| kept(&bar.variant, name) && kept(&bar.times, name));
    }
    if args.no_yardstick {
        scenario.yardstick = None;
    }
    let less = |n: &mut u32| *n = (*n / args.divide).max(1);
    for variant in &mut scenario.variants {
        match variant.events {
            0..2 => less(&mut variant.schedules),
            _ => less(&mut variant.events),
        }
    }
    if let Some(yardstick) = &mut scenario.yardstick {
        less(&mut yardstick.events);
        yardstick.events = yardstick.events.next_multiple_of(10);
    }
    Ok(())
}

async fn carry_out(scenario: Scenario, program: &Path, args: &RunArgs) -> anyhow::Result<Report> {
    ensure!(args.processes == 1 || args.store != "sqlite", "--processes: SQLite has one process");
    let database = Database::new(&args.store, args.far()).await?;
    let service = Service::start(program, &database.url(), &scenario.serve).await?;
    let sink = Sink::start(&scenario.lanes(), service.url())?;
    let mut report = Report::new(&scenario, database.kind(), args.processes);
    report::print_head(&report)?;
    let mut stage = Stage { service, others: Vec::new(), sink, database, crowd: None };
    stage.fill_up(args.processes, program, &scenario.serve).await?;
    stage.warm_up(&scenario).await?;
    for round in 1..=scenario.rounds {
        let mut rows: Vec<Row> = Vec::new();
        for at in 0..scenario.variants.len() {
            rows.push(stage.variant(&scenario, at, round).await?);
        }
        if let Some(yardstick) = &scenario.yardstick {
            rows.push(stage.yardstick(&scenario, yardstick, round).await?);
        }
        report.add(rows)?;
    }
    report::print_end(&report)?;
    Ok(report)
}
