//! `tollgate cancel` and `tollgate retry`: what an operator does with a run.

use clap::Args;
use tollgate_proto::v1;

use super::{Session, names, rows};

/// Arguments of `cancel`.
#[derive(Args, Clone, Debug)]
pub(crate) struct CancelArgs {
    /// The run
    #[arg(value_name = "RUN")]
    name: String,

    /// The reason, for people
    #[arg(long, value_name = "TEXT", default_value = "")]
    reason: String,
}

/// Arguments of `retry`.
#[derive(Args, Clone, Debug)]
pub(crate) struct RetryArgs {
    /// The run
    #[arg(value_name = "RUN")]
    run: String,

    /// The dead events to retry; all by default
    #[arg(value_name = "EVENT")]
    events: Vec<String>,
}

/// Cancels what a run has not started.
///
/// # Errors
/// What the service says, or those of writing.
pub(crate) async fn cancel(session: Session, args: CancelArgs) -> anyhow::Result<()> {
    let name = names::run(&session.namespace, &args.name);
    let tried = format!("cancel {name}");
    let answer = session.handler().cancel_run(v1::CancelRunRequest { name, reason: args.reason }).await;
    let run = answer.map_err(|status| session.failure(tried, status))?.into_inner();
    session.printer.message(&run, |run| rows::runs(session.now_us, std::slice::from_ref(run)))
}

/// Tries dead events again.
///
/// # Errors
/// What the service says, or those of writing.
pub(crate) async fn retry(session: Session, args: RetryArgs) -> anyhow::Result<()> {
    let parent = names::run(&session.namespace, &args.run);
    let tried = format!("retry dead events of {parent}");
    let request = v1::RetryDeadEventsRequest { parent, events: args.events };
    let answer = session.handler().retry_dead_events(request).await;
    let answer = answer.map_err(|status| session.failure(tried, status))?.into_inner();
    session
        .printer
        .message(&answer, |answer| format!("{} dead events are tried again\n", answer.retried_count))
}
