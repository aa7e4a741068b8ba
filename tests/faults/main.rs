//! The fault campaign: real processes, real databases, faults at the worst moments, and an auditor at the end.
//!
//! `./tests/run faults --minutes 60 --seed 7 --store postgres` starts three processes of the service over a PostgreSQL of
//! its own (or one over SQLite), gives them work without pause, and injects one fault after the other, in an order that
//! the seed decides. The [`sink`] takes the deliveries, outside the service, and keeps the [`journal`]; [`load`] keeps the list
//! of what falls due; [`audit`] compares the two and the service's own records. The verdict is a JSON file and a table.
//! Without `--minutes`, what takes little time is done once; with `--only`, one kind of fault, however long it takes.
//! Exit status: 0 when every promise was kept, 1 when one was broken, 2 when the campaign could not be run.

mod audit;
mod campaign;
mod journal;
mod lag;
mod load;
mod names;
mod order;
mod postgres;
mod process;
mod records;
mod report;
mod sink;
mod told;

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use clap::Parser;

use audit::Evidence;
use campaign::{Campaign, Wish, progress};
use lag::Lag;
use report::Report;
use told::Told;

/// How long everything may take to drain after the last fault.
const DRAIN_MAX: Duration = Duration::from_secs(180);
/// How much of each log is shown when a campaign cannot go on.
const SHOWN_LINES: usize = 25;
const SHOWN_CHARS: usize = 400;

#[derive(Debug, Parser)]
#[command(
    name = "faults",
    about = "Injects faults into a running Tollgate and judges whether its promises held"
)]
struct Arguments {
    /// Minutes of faults; without it, the kinds that take little time, once (about four minutes)
    #[arg(long)]
    minutes: Option<f64>,
    /// The same seed gives the same faults in the same order
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// postgres (three processes) or sqlite (one)
    #[arg(long, default_value = "postgres", value_parser = ["postgres", "sqlite"])]
    store: String,
    /// Lease of the processes, in milliseconds: a short one lets more faults fit into an hour
    #[arg(long, default_value_t = 3_000, value_parser = clap::value_parser!(u64).range(500..=60_000))]
    lease_ms: u64,
    /// Only faults whose kind contains this text, such as `kill -9` or `look-up hangs`; without minutes, once
    #[arg(long)]
    only: Option<String>,
    /// Keep logs and journal even when every promise was kept
    #[arg(long)]
    keep: bool,
    /// Folder for the verdict (verdict-STORE.json) and, when a promise was broken, logs and journal
    #[arg(long, default_value = "target/faults")]
    output: PathBuf,
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let run = || -> Result<bool> {
        tokio::runtime::Builder::new_multi_thread()
            .worker_threads(2)
            .enable_all()
            .build()?
            .block_on(run(arguments))
    };
    match run() {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::from(1),
        Err(error) => {
            progress(&format!("the campaign cannot go on: {error:#}"));
            ExitCode::from(2)
        }
    }
}

/// Whether every promise was kept.
async fn run(arguments: Arguments) -> Result<bool> {
    let began = Instant::now();
    let wish = Wish {
        seed: arguments.seed,
        length: arguments.minutes.map(|minutes| Duration::from_secs_f64(minutes * 60.0)),
        postgres: arguments.store == "postgres",
        lease: Duration::from_millis(arguments.lease_ms),
        only: arguments.only,
        keep: arguments.keep,
    };
    std::fs::create_dir_all(&arguments.output)?;
    let scratch = tempfile::Builder::new().prefix("tollgate-faults-").tempdir()?;
    let folder = scratch.path();
    // However it ends, what it has started is stopped: everything lives in here.
    let kept = tokio::select! {
        kept = campaign(&wish, began, folder, &arguments.output) => kept,
        signal = interrupted() => Err(anyhow::anyhow!("{} received", signal?)),
    };
    if wish.keep || !matches!(kept, Ok(true)) {
        if kept.is_err() {
            show_logs(folder)?;
        }
        keep_logs(folder, &arguments.output.join(format!("logs-{}-{}", arguments.store, arguments.seed)))?;
    }
    kept
}

async fn campaign(wish: &Wish, began: Instant, folder: &Path, output: &Path) -> Result<bool> {
    let commit = report::commit();
    let lag = Lag::start();
    let mut campaign = Campaign::start(wish.clone(), folder).await?;
    let told = Told::start(folder, campaign.processes.len());
    Box::pin(judge(&mut campaign, wish, (began, &commit), (lag, told), output)).await
}

async fn interrupted() -> Result<&'static str> {
    use tokio::signal::unix::{SignalKind, signal};
    let (mut interrupt, mut terminate) = (signal(SignalKind::interrupt())?, signal(SignalKind::terminate())?);
    tokio::select! {
        _ = interrupt.recv() => Ok("SIGINT"),
        _ = terminate.recv() => Ok("SIGTERM"),
    }
}

async fn judge(
    campaign: &mut Campaign,
    wish: &Wish,
    (began, commit): (Instant, &str),
    (lag, told): (Lag, Told),
    output: &Path,
) -> Result<bool> {
    Box::pin(campaign.run()).await?;
    campaign.heal().await?;
    progress("no more faults; draining");
    // So that what fell due last has been fired.
    tokio::time::sleep(Duration::from_secs(5)).await;
    campaign.load.end_healthy().await;
    let last_us = {
        let ordered = campaign.load.ordered();
        ordered.due.iter().filter(|due| due.required).map(|due| due.launch_us).max().unwrap_or_default()
    };
    let wait_us = (last_us - tollgate_harness::now_us()).clamp(0, 60_000_000);
    tokio::time::sleep(Duration::from_micros(u64::try_from(wait_us)?)).await;
    // What is still sent again comes to its end first.
    tokio::time::sleep(Duration::from_secs(3)).await;
    let ordered = campaign.load.ordered().clone();
    let is_taken = |id: &str| campaign.sink.journal().is_taken(id);
    let leaves = |id: &str| campaign.sink.journal().is_freed(id, tollgate_harness::now_us());
    let freed = records::free_by_hand(&campaign.processes[0].channel, &ordered, is_taken, leaves).await?;
    campaign.log.freed_by_hand = freed;
    campaign.jump_ahead().await?;
    let load = campaign.load.clone();
    let records = records::settled(&campaign.processes, || load.ordered().clone(), DRAIN_MAX).await?;
    campaign.heal().await?;
    let ordered = campaign.load.ordered().clone();
    let journal = campaign.sink.journal().clone();
    let lags = lag.lags().clone();
    let mut disturbances = campaign.log.disturbances.clone();
    disturbances.extend(told.disturbances(wish.lease));
    let verdict = audit::audit(&Evidence {
        ordered: &ordered,
        journal: &journal,
        records: &records,
        disturbances: &disturbances,
        watches: &campaign.log.watches,
        ahead: campaign.log.ahead,
        lags: &lags,
        lease_us: i64::try_from(wish.lease.as_micros())?,
    });
    let (took_s, told) = (began.elapsed().as_secs(), told.counts());
    let report = Report { wish, verdict: &verdict, campaign, took_s, commit, lags: &lags, told: &told };
    let path = output.join(format!("verdict-{}.json", if wish.postgres { "postgres" } else { "sqlite" }));
    std::fs::write(&path, format!("{:#}\n", report.json())).with_context(|| path.display().to_string())?;
    #[expect(clippy::print_stdout, reason = "the verdict for people")]
    {
        println!("{}", report.table());
    }
    if wish.keep || !report.is_kept() {
        write_journal(&journal, &output.join(format!("journal-{}.txt", wish.seed)))?;
    }
    Ok(report.is_kept())
}

/// Every line of the journal, for whoever looks for the cause.
fn write_journal(journal: &journal::Journal, path: &Path) -> Result<()> {
    use std::io::Write as _;
    let mut file = std::io::BufWriter::new(std::fs::File::create(path)?);
    for entry in &journal.entries {
        let event = &journal.events[entry.event as usize];
        writeln!(
            file,
            "{} {:?} {} {} {} {}",
            entry.at_us, entry.what, event.id, event.policy, event.schedule, event.launch_us
        )?;
    }
    Ok(())
}

/// Keeps the logs of a campaign in which something went wrong.
fn keep_logs(from: &Path, to: &Path) -> Result<()> {
    std::fs::create_dir_all(to)?;
    for path in logs(from)? {
        if let Some(name) = path.file_name() {
            std::fs::copy(&path, to.join(name))?;
        }
    }
    progress(&format!("the logs are in {}", to.display()));
    Ok(())
}

/// Shows how each log ends: whoever reads the output may have nothing else.
fn show_logs(folder: &Path) -> Result<()> {
    for path in logs(folder)? {
        let text = String::from_utf8_lossy(&std::fs::read(&path)?).into_owned();
        let lines: Vec<&str> = text.lines().collect();
        progress(&format!("the end of {}:", path.display()));
        for line in &lines[lines.len().saturating_sub(SHOWN_LINES)..] {
            progress(&format!("    {}", line.chars().take(SHOWN_CHARS).collect::<String>()));
        }
    }
    Ok(())
}

/// The logs of the processes and of PostgreSQL.
fn logs(folder: &Path) -> Result<Vec<PathBuf>> {
    let mut logs: Vec<PathBuf> = Vec::new();
    for folder in [folder.to_owned(), folder.join("postgres")].iter().filter(|folder| folder.is_dir()) {
        for entry in std::fs::read_dir(folder)? {
            let path = entry?.path();
            logs.extend(path.extension().is_some_and(|e| e == "log").then_some(path));
        }
    }
    logs.sort();
    Ok(logs)
}
