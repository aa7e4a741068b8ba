//! `tollgate results`: what became of each event of a run, as NDJSON, in the order of the indexes.
//!
//! In: pages of events. Out: lines, as the pages come. Invariant: memory does not grow with the run.

use clap::Args;
use clap_complete::engine::ArgValueCompleter;
use serde_json::{Value, json};
use tollgate_proto::v1;

use super::output::Format;
use super::rows::event_state;
use super::when::exact;
use super::{Session, complete, fetch, ids, names};
use crate::exit::{Exit, NOT_WELL, TIMED_OUT};
use crate::usage::Usage;

/// The largest page that the service gives.
const PAGE_EVENTS: i32 = 1_000;

/// Arguments of `results`.
#[derive(Args, Clone, Debug)]
pub(crate) struct ResultsArgs {
    /// The beginning of the run's id
    #[arg(value_name = "RUN", add = ArgValueCompleter::new(complete::named))]
    run: String,

    /// Only events that have ended, and not well
    #[arg(long)]
    failed: bool,
}

/// Prints the outcomes.
///
/// # Errors
/// What the service says; those of writing; [`Exit`] where not all has ended, or not well.
pub(crate) async fn run(session: Session, args: ResultsArgs) -> anyhow::Result<()> {
    if !matches!(session.printer.format(), Format::Table | Format::Json) {
        return Err(Usage("-o: results are JSON, an object a line, and nothing else".to_owned()).into());
    }
    let name = ids::run(&session, &args.run).await?;
    // Before the events: one that ends meanwhile is in neither then, rather than missing from the lines of an ended run.
    let run = fetch::run(&session, &name).await?;
    let mut page_token = String::new();
    loop {
        let request = v1::ListEventsRequest {
            parent: name.clone(),
            page_size: PAGE_EVENTS,
            page_token,
            filter: String::new(),
        };
        let answer = session.handler().list_events(request).await;
        let page =
            answer.map_err(|status| session.failure(format!("list events of {name}"), status))?.into_inner();
        let shown = page.events.iter().filter(|event| !args.failed || has_failed(event.state()));
        let lines: String = shown.map(|event| line(event).to_string() + "\n").collect();
        session.printer.text(&lines)?;
        page_token = page.next_page_token;
        if page_token.is_empty() {
            break;
        }
    }
    match run.state() {
        v1::RunState::Finished => Ok(()),
        v1::RunState::FinishedWithFailures | v1::RunState::Cancelled | v1::RunState::Skipped => {
            Err(Exit(NOT_WELL).into())
        }
        _ => {
            let (short, events) = (names::short(&name), run.events);
            session.note(&format!(
                "{short} has not ended: these are its {events} events as they stand now; `tollgate wait run {short}` waits for all"
            ));
            Err(Exit(TIMED_OUT).into())
        }
    }
}

/// Whether an event has ended, and not well.
fn has_failed(state: v1::EventState) -> bool {
    matches!(
        state,
        v1::EventState::Failed
            | v1::EventState::Dead
            | v1::EventState::Expired
            | v1::EventState::Cancelled
            | v1::EventState::Lost
    )
}

fn line(event: &v1::Event) -> Value {
    json!({
        "index": event.index,
        "key": event.key,
        "units": event.units,
        "outcome": event_state(event.state()),
        "message": event.message,
        "attempt": event.attempt,
        "finishTime": event.finish_time.as_ref().map(|time| exact(Some(time))),
    })
}

#[cfg(test)]
mod tests {
    use tollgate_proto::convert::timestamp;

    use super::*;

    #[test]
    fn a_line_says_what_became_of_an_event() {
        let mut event = v1::Event {
            index: 7,
            key: "acme".to_owned(),
            units: 5,
            attempt: 2,
            message: "disk full".to_owned(),
            finish_time: Some(timestamp(1_000_001)),
            ..v1::Event::default()
        };
        event.set_state(v1::EventState::Failed);
        let expected = json!({"index": 7, "key": "acme", "units": 5, "outcome": "FAILED", "message": "disk full", "attempt": 2,
            "finishTime": "1970-01-01T00:00:01.000001Z"});
        assert_eq!(line(&event), expected);
        event.set_state(v1::EventState::Held);
        event.finish_time = None;
        assert_eq!((&line(&event)["outcome"], &line(&event)["finishTime"]), (&json!("HELD"), &Value::Null));
        assert!(!has_failed(event.state()) && has_failed(v1::EventState::Lost));
    }
}
