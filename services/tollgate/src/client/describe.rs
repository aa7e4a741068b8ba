//! `tollgate describe`: everything about one resource, and what is going on around it.
//!
//! The resource itself is shown field by field from its JSON form, so that a new field of the API needs no change here.

use clap::{Args, ValueEnum};
use prost::{Message, Name};
use serde_json::Value;
use tollgate_proto::json::to_json;
use tollgate_proto::v1;

use super::when::{both, duration, moment};
use super::{Session, fetch, names, preview, rows, why};

/// What can be described.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Kind {
    /// A schedule, its next launch times and its latest runs.
    #[value(alias = "schedules")]
    Schedule,
    /// A policy and its tokens.
    #[value(alias = "policies")]
    Policy,
    /// An alert, and what has become of its messages.
    #[value(alias = "alerts")]
    Alert,
    /// A run.
    #[value(alias = "runs")]
    Run,
    /// An event, and why it is where it is.
    #[value(alias = "events")]
    Event,
}

/// Arguments of `describe`.
#[derive(Args, Clone, Debug)]
pub(crate) struct DescribeArgs {
    /// The kind of resource
    #[arg(value_name = "KIND")]
    kind: Kind,

    /// The name of the resource
    #[arg(value_name = "NAME")]
    name: String,
}

/// How many launch times and runs are shown.
const AROUND: u32 = 5;

/// Prints one resource in full.
///
/// # Errors
/// What the service says of the resource itself, or those of writing. What lies around it is left out where it cannot
/// be read: another process may play that role.
pub(crate) async fn run(session: Session, args: DescribeArgs) -> anyhow::Result<()> {
    match args.kind {
        Kind::Schedule => {
            let schedule = fetch::schedule(&session, &args.name).await?;
            show(&session, &schedule)?;
            if session.printer.is_json() { Ok(()) } else { around_schedule(&session, &schedule.name).await }
        }
        Kind::Policy => {
            let policy = fetch::policy(&session, &args.name).await?;
            show(&session, &policy)?;
            if session.printer.is_json() { Ok(()) } else { around_policy(&session, &policy.name).await }
        }
        Kind::Alert => show(&session, &fetch::alert(&session, &args.name).await?),
        Kind::Run => show(&session, &fetch::run(&session, &args.name).await?),
        Kind::Event => {
            show(&session, &fetch::event(&session, &args.name).await?)?;
            if session.printer.is_json() {
                return Ok(());
            }
            let Ok(explanation) = why::explain(&session, &args.name).await else { return Ok(()) };
            session.printer.text(&format!("\n{}", why::reasons(session.now_us, &explanation)))
        }
    }
}

fn show<M: Message + Name>(session: &Session, message: &M) -> anyhow::Result<()> {
    session.printer.message(message, |message| {
        let mut text = String::new();
        fields(session.now_us, &to_json(message), 0, &mut text);
        text
    })
}

async fn around_schedule(session: &Session, name: &str) -> anyhow::Result<()> {
    let count = AROUND.cast_signed();
    let source = v1::preview_schedule_request::Source::Name(name.to_owned());
    let request = v1::PreviewScheduleRequest { source: Some(source), from_time: None, count };
    if let Ok(answer) = session.master().preview_schedule(request).await {
        session
            .printer
            .text(&format!("\nnext launch times:\n{}", preview::text(session.now_us, answer.get_ref())))?;
    }
    if let Ok(answer) = fetch::past_runs(session, &format!("schedule={}", names::short(name)), AROUND).await {
        session.printer.text(&format!("\nlatest runs:\n{}", rows::runs(session.now_us, &answer.runs)))?;
    }
    Ok(())
}

async fn around_policy(session: &Session, name: &str) -> anyhow::Result<()> {
    let request = v1::GetHandlerStatusRequest { parent: session.parent(), busy_only: false };
    let Ok(answer) = session.handler().get_handler_status(request).await else { return Ok(()) };
    let Some(gauge) = answer.get_ref().policies.iter().find(|gauge| gauge.policy == name) else {
        return Ok(());
    };
    session.printer.text(&format!(
        "\nnow: {} tokens held, {} of them suspect, {} events wait, the oldest for {}, {:.1} events/s started\n",
        gauge.held_count,
        gauge.suspect_count,
        gauge.waiting_count,
        duration(gauge.oldest_wait.as_ref().or(Some(&prost_types::Duration::default()))),
        gauge.started_per_second,
    ))
}

/// A JSON value, one field a line, indented by its depth; moments are seen from now as well.
fn fields(now_us: i64, value: &Value, depth: usize, text: &mut String) {
    let indent = "  ".repeat(depth);
    match value {
        Value::Object(members) => {
            // The rest is in the order of the alphabet.
            let (first, rest): (Vec<_>, Vec<_>) = members.iter().partition(|(name, _)| *name == "name");
            for (name, member) in first.into_iter().chain(rest) {
                text.push_str(&format!("{indent}{name}:"));
                after(now_us, member, depth, text);
            }
        }
        Value::Array(items) => {
            for item in items {
                text.push_str(&format!("{indent}-"));
                after(now_us, item, depth, text);
            }
        }
        scalar => text.push_str(&format!("{indent}{}\n", shown(now_us, scalar))),
    }
}

fn after(now_us: i64, value: &Value, depth: usize, text: &mut String) {
    match value {
        Value::Object(members) if members.is_empty() => text.push_str(" {}\n"),
        Value::Array(items) if items.is_empty() => text.push_str(" []\n"),
        Value::Object(_) | Value::Array(_) => {
            text.push('\n');
            fields(now_us, value, depth + 1, text);
        }
        scalar => text.push_str(&format!(" {}\n", shown(now_us, scalar))),
    }
}

fn shown(now_us: i64, scalar: &Value) -> String {
    match scalar {
        Value::String(text) => match moment(text) {
            Ok(time) => both(now_us, Some(&time)),
            Err(_) => text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect(),
        },
        other => other.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn every_field_is_shown_with_its_depth() {
        let value = json!({
            "name": "s",
            "triggers": [{"cron": "0 3 * * *"}],
            "launch_classes": ["H"],
            "next_launch_time": "1970-01-01T00:03:00Z",
            "labels": {},
        });
        let mut text = String::new();
        fields(0, &value, 0, &mut text);
        let mut lines: Vec<&str> = text.lines().collect();
        lines.sort_unstable();
        let mut expected = [
            "name: s",
            "triggers:",
            "  -",
            "    cron: 0 3 * * *",
            "launch_classes:",
            "  - H",
            "next_launch_time: 1970-01-01T00:03:00Z (in 3m)",
            "labels: {}",
        ];
        expected.sort_unstable();
        assert_eq!(lines, expected);
    }
}
