//! `tollgate cancel` and `tollgate retry`: what an operator does with a run.

use clap::Args;
use clap_complete::engine::ArgValueCompleter;
use tollgate_proto::v1;

use super::{Session, complete, ids, rows};

/// Arguments of `cancel`.
#[derive(Args, Clone, Debug)]
pub(crate) struct CancelArgs {
    /// The run, or the beginning of its id
    #[arg(value_name = "RUN", add = ArgValueCompleter::new(complete::named))]
    name: String,
}

/// Arguments of `retry`.
#[derive(Args, Clone, Debug)]
pub(crate) struct RetryArgs {
    /// The run, or the beginning of its id
    #[arg(value_name = "RUN", add = ArgValueCompleter::new(complete::named))]
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
    let name = ids::run(&session, &args.name).await?;
    let tried = format!("cancel {name}");
    let reason = session.reason.clone();
    let answer = session.handler().cancel_run(v1::CancelRunRequest { name, reason }).await;
    let run = answer.map_err(|status| session.failure(tried, status))?.into_inner();
    session.show(&run, [run.name.as_str()], || rows::runs(session.view(), std::slice::from_ref(&run)))
}

/// Tries dead events again.
///
/// # Errors
/// What the service says, or those of writing.
pub(crate) async fn retry(session: Session, args: RetryArgs) -> anyhow::Result<()> {
    let parent = ids::run(&session, &args.run).await?;
    let tried = format!("retry dead events of {parent}");
    let mut events = Vec::with_capacity(args.events.len());
    for event in &args.events {
        events.push(ids::event(&session, event).await?);
    }
    let request = v1::RetryDeadEventsRequest { parent, events };
    let answer = session.handler().retry_dead_events(request).await;
    let answer = answer.map_err(|status| session.failure(tried, status))?.into_inner();
    session
        .printer
        .message(&answer, |answer| format!("{} dead events are tried again\n", answer.retried_count))
}
