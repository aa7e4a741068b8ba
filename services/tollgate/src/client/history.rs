//! `tollgate history`: what became of a schedule's triggers; or of the events of a policy or a namespace, by the minute.

use clap::Args;
use clap_complete::engine::ArgValueCompleter;
use serde_json::json;
use tollgate_proto::json::to_rest_json;

use super::namespaces::Everywhere;
use super::{Session, complete, counts, fetch, names, rows};
use crate::usage::Usage;

/// Arguments of `history`.
#[derive(Args, Clone, Debug)]
pub(crate) struct HistoryArgs {
    /// A schedule; or `policy` and a policy, for what became of its events by the minute; or nothing, for all of the
    /// namespace, or with -A of all
    #[arg(value_name = "SCHEDULE | policy POLICY", num_args = 0..=2, add = ArgValueCompleter::new(complete::named))]
    of: Vec<String>,

    /// The most runs, and the most skipped triggers, that are shown; 0 means all
    #[arg(long, value_name = "N", default_value_t = 20)]
    limit: u32,

    #[command(flatten)]
    steps: counts::StepArgs,

    #[command(flatten)]
    everywhere: Everywhere,
}

/// Prints what became of a schedule, a policy or a namespace.
///
/// # Errors
/// What the service says, or those of writing; two words that are not a policy.
pub(crate) async fn run(session: Session, args: HistoryArgs) -> anyhow::Result<()> {
    let HistoryArgs { of, limit, steps, everywhere } = args;
    if everywhere.all_namespaces && !of.is_empty() {
        return Err(Usage(
            "-A: it is for the history of everything, without a schedule or policy".to_owned(),
        )
        .into());
    }
    match of.as_slice() {
        [] => {
            let parent = everywhere.parent(&session);
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
    session.printer.refuse_names()?;
    let filter = format!("schedule={}", names::short(schedule));
    let runs = fetch::past_runs(&session, &filter, limit).await?;
    let skipped = fetch::skipped(&session, schedule, limit).await?;
    if session.printer.is_json() {
        return session
            .printer
            .json(&json!({"runs": to_rest_json(&runs), "skipped": to_rest_json(&skipped)}));
    }
    session.printer.text(&rows::history(session.now_us, &runs.runs, &skipped.skipped_triggers))
}
