//! `tollgate trigger` and `tollgate backfill`: runs that no clock asked for.

use clap::Args;
use prost_types::Timestamp;
use tollgate_proto::v1;

use super::when::{exact, moment};
use super::{Session, names, rows};

/// Arguments of `trigger`.
#[derive(Args, Clone, Debug)]
pub(crate) struct TriggerArgs {
    /// The schedule
    #[arg(value_name = "SCHEDULE")]
    name: String,

    /// The number of events; the schedule's own by default
    #[arg(long, value_name = "N")]
    events: Option<u32>,
}

/// Arguments of `backfill`.
#[derive(Args, Clone, Debug)]
pub(crate) struct BackfillArgs {
    /// The schedule
    #[arg(value_name = "SCHEDULE")]
    name: String,

    /// The first moment of the launch times, such as 2026-03-01T00:00:00Z
    #[arg(long, value_name = "TIME", value_parser = moment)]
    from: Timestamp,

    /// The moment after the last launch time; not in the future
    #[arg(long, value_name = "TIME", value_parser = moment)]
    to: Timestamp,

    /// The priority, from 0 (last) to 9 (first); the schedule's own by default
    #[arg(long, value_name = "N")]
    priority: Option<u32>,
}

/// Makes a run of a schedule now.
///
/// # Errors
/// What the service says, or those of writing.
pub(crate) async fn run(session: Session, args: TriggerArgs) -> anyhow::Result<()> {
    let name = names::schedule(&session.namespace, &args.name);
    let tried = format!("trigger {name}");
    let answer =
        session.master().trigger_schedule(v1::TriggerScheduleRequest { name, events: args.events }).await;
    let run = answer.map_err(|status| session.failure(tried, status))?.into_inner();
    session.printer.message(&run, |run| rows::runs(session.now_us, std::slice::from_ref(run)))
}

/// Makes the runs of past launch times that do not exist.
///
/// # Errors
/// What the service says, or those of writing.
pub(crate) async fn backfill(session: Session, args: BackfillArgs) -> anyhow::Result<()> {
    let name = names::schedule(&session.namespace, &args.name);
    let tried = format!("backfill {name}");
    let request = v1::BackfillScheduleRequest {
        name,
        start_time: Some(args.from),
        end_time: Some(args.to),
        priority: args.priority,
    };
    let answer = session.master().backfill_schedule(request).await;
    let made = answer.map_err(|status| session.failure(tried, status))?.into_inner();
    session.printer.message(&made, |made| {
        let mut text = format!("{} runs made, {} existed\n", made.created_count, made.existing_count);
        for time in &made.launch_times {
            text.push_str(&format!("  {}\n", exact(Some(time))));
        }
        let shown = u32::try_from(made.launch_times.len()).unwrap_or(u32::MAX);
        if made.created_count > shown {
            text.push_str(&format!("  … and {} more\n", made.created_count - shown));
        }
        text
    })
}
