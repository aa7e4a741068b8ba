//! `tollgate history`: what became of a schedule's triggers; or of the events of a policy or a namespace, by the minute.

use clap::Args;
use serde_json::json;
use tollgate_proto::json::to_json;

use super::{Session, counts, fetch, names, rows};
use crate::usage::Usage;

/// Arguments of `history`.
#[derive(Args, Clone, Debug)]
pub(crate) struct HistoryArgs {
    /// A schedule; or `policy` and a policy, for what became of its events by the minute; or nothing, for all of the namespace
    #[arg(value_name = "SCHEDULE | policy POLICY", num_args = 0..=2)]
    of: Vec<String>,

    /// The most runs, and the most skipped triggers, that are shown; 0 means all
    #[arg(long, value_name = "N", default_value_t = 20)]
    limit: u32,

    #[command(flatten)]
    steps: counts::StepArgs,
}

/// Prints what became of a schedule, a policy or a namespace.
///
/// # Errors
/// What the service says, or those of writing; two words that are not a policy.
pub(crate) async fn run(session: Session, args: HistoryArgs) -> anyhow::Result<()> {
    let HistoryArgs { of, limit, steps } = args;
    match of.as_slice() {
        [] => {
            let parent = session.parent();
            counts::run(session, parent, steps).await
        }
        [schedule] => of_schedule(session, schedule, limit).await,
        [kind, policy] if kind == "policy" => {
            let parent = names::policy(&session.namespace, policy);
            counts::run(session, parent, steps).await
        }
        [kind, ..] => {
            Err(Usage(format!("{kind}: expected a schedule, `policy` and a policy, or nothing")).into())
        }
    }
}

/// Prints the runs and the skipped triggers of a schedule, latest first.
async fn of_schedule(session: Session, schedule: &str, limit: u32) -> anyhow::Result<()> {
    let filter = format!("schedule={}", names::short(schedule));
    let runs = fetch::past_runs(&session, &filter, limit).await?;
    let skipped = fetch::skipped(&session, schedule, limit).await?;
    if session.printer.is_json() {
        return session.printer.json(&json!({"runs": to_json(&runs), "skipped": to_json(&skipped)}));
    }
    session.printer.text(&rows::history(session.now_us, &runs.runs, &skipped.skipped_triggers))
}
