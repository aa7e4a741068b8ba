//! `tollgate history`: what became of a schedule's triggers.

use clap::Args;
use serde_json::json;
use tollgate_proto::json::to_json;

use super::{Session, fetch, names, rows};

/// Arguments of `history`.
#[derive(Args, Clone, Debug)]
pub(crate) struct HistoryArgs {
    /// The schedule
    #[arg(value_name = "SCHEDULE")]
    name: String,

    /// The most runs, and the most skipped triggers, that are shown; 0 means all
    #[arg(long, value_name = "N", default_value_t = 20)]
    limit: u32,
}

/// Prints the runs and the skipped triggers of a schedule, latest first.
///
/// # Errors
/// What the service says, or those of writing.
pub(crate) async fn run(session: Session, args: HistoryArgs) -> anyhow::Result<()> {
    let filter = format!("schedule={}", names::short(&args.name));
    let runs = fetch::past_runs(&session, &filter, args.limit).await?;
    let skipped = fetch::skipped(&session, &args.name, args.limit).await?;
    if session.printer.is_json() {
        return session.printer.json(&json!({"runs": to_json(&runs), "skipped": to_json(&skipped)}));
    }
    session.printer.text(&rows::history(session.now_us, &runs.runs, &skipped.skipped_triggers))
}
