//! `growth`: where cost grows. The same work is measured again and again, each time beside more of one thing that is
//! stored or runs, while there is little of everything else.
//!
//! In: `growth.yaml`, the work. Out: one table, a line a point, and JSON. Each point has its own database, service and
//! sink; one that fails says so in its line, and the others go on. [`point`] says what there is, [`fill`] brings it about,
//! [`measure`] carries the work out.

mod fill;
mod measure;
mod point;
mod table;

use std::path::{Path, PathBuf};

use anyhow::Context;
use clap::{Args, ValueEnum};

use crate::run::to_its_end;
use crate::scenario::Scenario;
use point::{Axis, Point};
use table::PointResult;

/// Arguments of `growth`.
#[derive(Args, Debug)]
pub(crate) struct GrowthArgs {
    /// What there is more and more of; each in turn where nothing is said
    #[arg(long = "axis", value_name = "AXIS", value_enum)]
    axes: Vec<Axis>,

    /// Sizes below this are left out
    #[arg(long, value_name = "N", default_value_t = 1)]
    from: u64,

    /// Sizes above this are left out; 5000000 lets the largest in
    #[arg(long, value_name = "N", default_value_t = 1_000_000)]
    up_to: u64,

    /// sqlite, postgres (a private server with default settings), or the URL of a server
    #[arg(long, value_name = "STORE", default_value = "sqlite")]
    store: String,

    /// The service's program; beside this one by default
    #[arg(long, value_name = "FILE", env = "TOLLGATE_BIN")]
    tollgate: Option<PathBuf>,

    /// Bursts of each kind at each point
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    rounds: Option<u32>,

    /// More flags of `tollgate serve`, separated by spaces
    #[arg(long, value_name = "FLAGS", default_value = "", allow_hyphen_values = true)]
    serve: String,

    /// Everything as JSON, too
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
}

/// Measures all points. Whether all could be measured, and every promise was kept.
///
/// # Errors
/// What keeps it from beginning.
pub(crate) fn run(args: &GrowthArgs) -> anyhow::Result<bool> {
    to_its_end(run_all(args))
}

async fn run_all(args: &GrowthArgs) -> anyhow::Result<bool> {
    let program = tollgate_harness::program(args.tollgate.as_deref())?;
    let mut scenario = Scenario::read(Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/growth.yaml")))?;
    scenario.rounds = args.rounds.unwrap_or(scenario.rounds);
    scenario.serve.extend(args.serve.split_whitespace().map(str::to_owned));
    let axes = if args.axes.is_empty() { Axis::value_variants() } else { &args.axes };
    table::print_head(args.store.starts_with("postgres"))?;
    let mut lines = Vec::new();
    for axis in axes {
        for size in axis.sizes().iter().filter(|size| (args.from..=args.up_to).contains(*size)) {
            let line = match measured(Point::of(*axis, *size), &scenario, &program, &args.store).await {
                Ok(line) => line,
                Err(error) => PointResult::failed(*axis, *size, format!("{error:#}")),
            };
            table::print(&line)?;
            lines.push(line);
        }
    }
    if let Some(file) = &args.json {
        let text = serde_json::to_string_pretty(&lines)?;
        std::fs::write(file, text).with_context(|| format!("cannot write {}", file.display()))?;
    }
    Ok(lines.iter().all(PointResult::is_clean))
}

async fn measured(
    point: Point,
    scenario: &Scenario,
    program: &Path,
    store: &str,
) -> anyhow::Result<PointResult> {
    if point.processes > 1 && store == "sqlite" {
        return Ok(PointResult::left_out(point.axis, point.size, "SQLite serves one process"));
    }
    measure::measure(point, point.adapted(scenario), program, store).await
}
