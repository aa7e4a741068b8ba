//! `tollgate why`: why an event is where it is, and what would let it go on; or, of a schedule in a chain, what it waits for.

use clap::Args;
use tollgate_proto::v1;

use super::explanation::explanation;
use super::names::short;
use super::rows::{event_state, word};
use super::style::Tone;
use super::table::{Cell, Table, pairs};
use super::when::{duration, relative};
use super::{Session, names, rows, why_chain};

/// The most characters of a result that are shown.
const RESULT_CHARS: usize = 500;

/// Arguments of `why`.
#[derive(Args, Clone, Debug)]
pub(crate) struct WhyArgs {
    /// The event's id or name, or the beginning of its id
    #[arg(value_name = "EVENT", required_unless_present = "schedule")]
    name: Option<String>,

    /// A schedule that follows others: what its next run waits for, up its chain
    #[arg(long, value_name = "ID", conflicts_with = "name")]
    schedule: Option<String>,
}

/// Prints an explanation.
///
/// # Errors
/// What the service says, or those of writing.
pub(crate) async fn run(session: Session, args: WhyArgs) -> anyhow::Result<()> {
    if let Some(schedule) = &args.schedule {
        let name = names::schedule(&session.namespace, schedule);
        session.printer.refuse_names()?;
        let links = why_chain::links(&session, &name).await?;
        if session.printer.is_json() {
            return session.printer.json(&why_chain::json(&links));
        }
        return session.printer.text(&why_chain::text(&links));
    }
    let told = explanation(&session, args.name.as_deref().unwrap_or_default()).await?;
    session.printer.message(&told, |told| text(session.now_us, told))
}

fn text(now_us: i64, explanation: &v1::Explanation) -> String {
    let mut text = String::new();
    if let Some(event) = &explanation.event {
        text.push_str(&pairs(&[
            ("event", event.event_id.clone()),
            ("schedule", short(&event.schedule).to_owned()),
            ("state", painted(event_state(event.state()))),
            ("attempt", event.attempt.to_string()),
            ("launch", super::when::both(now_us, event.launch_time.as_ref())),
        ]));
        if !event.result.is_empty() {
            text.push_str(&pairs(&[("result", shortened(&event.result))]));
        }
        text.push('\n');
    }
    text.push_str(&reasons(now_us, explanation));
    text
}

/// As much of a result as fits on some lines of a terminal; `-o json` has all of it.
fn shortened(result: &str) -> String {
    if result.chars().count() <= RESULT_CHARS {
        return result.to_owned();
    }
    result.chars().take(RESULT_CHARS).chain(['…']).collect()
}

/// The explanation without the event itself.
pub(super) fn reasons(now_us: i64, explanation: &v1::Explanation) -> String {
    let mut text = format!("{}\n", explanation.summary);
    for reason in &explanation.reasons {
        text.push_str(&format!(
            "  {}: {}\n",
            word(reason.code().as_str_name(), "REASON_CODE_"),
            reason.message
        ));
    }
    match explanation.place_in_line {
        0 => text.push_str("place in line: next\n"),
        1 => text.push_str("place in line: 1 event starts before it\n"),
        ahead @ 2.. => text.push_str(&format!("place in line: {ahead} events start before it\n")),
        _ => {}
    }
    if !explanation.freed_by.is_empty() {
        text.push_str(&format!("what would free it: {}\n", explanation.freed_by));
    }
    if !explanation.attempts.is_empty() {
        text.push_str("\nwhat was tried:\n");
        text.push_str(&attempts(now_us, &explanation.attempts));
    }
    if !explanation.holders.is_empty() {
        text.push_str("\nwho holds the tokens:\n");
        text.push_str(&holders(now_us, &explanation.holders));
    }
    text
}

/// A state in its tone.
fn painted(word: String) -> String {
    Tone::of(&word).paint(&word)
}

/// The deliveries that are remembered, earliest first.
fn attempts(now_us: i64, attempts: &[v1::Attempt]) -> String {
    let mut table = Table::new(["ATTEMPT", "BEGAN", "TOOK", "ANSWER", "MESSAGE"]);
    for attempt in attempts {
        let tone = match attempt.answer() {
            v1::AttemptAnswer::Refused => Tone::Bad,
            v1::AttemptAnswer::Unclear => Tone::Warning,
            _ => Tone::Plain,
        };
        table.row([
            attempt.attempt.to_string().into(),
            relative(now_us, attempt.start_time.as_ref()).into(),
            duration(attempt.duration.as_ref()).into(),
            Cell::toned(word(attempt.answer().as_str_name(), "ATTEMPT_ANSWER_"), tone),
            attempt.message.as_str().into(),
        ]);
    }
    table.to_string()
}

pub(super) fn holders(now_us: i64, holders: &[v1::Holder]) -> String {
    let mut table = Table::new(["EVENT", "SCHEDULE", "STATE", "TOKENS", "HELD FOR", "RECLAIMED"]);
    for holder in holders {
        let expires = match &holder.expire_time {
            Some(time) => relative(now_us, Some(time)),
            None => "never".to_owned(),
        };
        table.row(
            [
                short(&holder.event).to_owned(),
                short(&holder.schedule).to_owned(),
                event_state(holder.state()),
                if holder.units > 0 { holder.units.to_string() } else { String::new() },
                duration(holder.age.as_ref()),
                expires,
            ]
            .map(Cell::state),
        );
    }
    rows::or_none(&table, "nobody")
}

#[cfg(test)]
mod tests {
    use super::super::style::plain;
    use super::*;

    #[test]
    fn an_explanation_says_what_would_free_the_event() {
        let explanation = v1::Explanation {
            event: Some(v1::Event { event_id: "0a-x-1".to_owned(), ..Default::default() }),
            summary: "All 4 tokens of imports are held.".to_owned(),
            reasons: vec![v1::Reason {
                code: v1::ReasonCode::LimitReached.into(),
                message: "4 of 4 tokens are held".to_owned(),
            }],
            holders: vec![v1::Holder {
                event: "namespaces/default/events/0a-y-0".to_owned(),
                schedule: "namespaces/default/schedules/s".to_owned(),
                state: v1::EventState::Held.into(),
                age: Some(prost_types::Duration { seconds: 200, nanos: 0 }),
                expire_time: None,
                units: 3,
            }],
            place_in_line: 12,
            freed_by: "a release of one of them".to_owned(),
            attempts: vec![v1::Attempt {
                attempt: 2,
                answer: v1::AttemptAnswer::Refused.into(),
                message: "HTTP 500".to_owned(),
                ..v1::Attempt::default()
            }],
        };
        let text = plain(&text(0, &explanation));
        for part in [
            "event:   0a-x-1",
            "  LIMIT_REACHED: 4 of 4 tokens are held",
            "place in line: 12 events start before it",
            "what would free it: a release of one of them",
            "2        -      -     REFUSED  HTTP 500",
            "0a-y-0  s         HELD   3       3m20s     never",
        ] {
            assert!(text.contains(part), "{part}\n{text}");
        }
    }
}
