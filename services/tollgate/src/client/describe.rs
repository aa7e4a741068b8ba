//! `tollgate describe`: everything about one resource, and what is going on around it.
//!
//! The resource itself is shown field by field from its JSON form, so that a new field of the API needs no change here.

use clap::{Args, ValueEnum};
use clap_complete::engine::ArgValueCompleter;
use prost::{Message, Name};
use serde_json::Value;
use tollgate_proto::json::to_file_json;
use tollgate_proto::v1;

use super::explanation::explanation;
use super::table::{Table, View};
use super::target::{Target, TargetParser};
use super::when::{both, duration, moment, relative};
use super::{Session, complete, fetch, gauges, ids, names, preview, rows, why};

/// What can be described.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Kind {
    /// A schedule, its next launch times and its latest runs.
    #[value(alias = "schedules")]
    Schedule,
    /// A policy and its tokens.
    #[value(alias = "policies")]
    Policy,
    /// A calendar, and the schedules that use it.
    #[value(alias = "calendars")]
    Calendar,
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
    /// The kind of resource, or a resource such as schedule/nightly
    #[arg(value_name = "KIND", value_parser = TargetParser::<Kind>::new())]
    kind: Target<Kind>,

    /// The name of the resource
    #[arg(value_name = "NAME", add = ArgValueCompleter::new(complete::named))]
    name: Option<String>,
}

/// How many launch times and runs are shown.
const AROUND: u32 = 5;

/// How many holders and waiters of a policy are shown.
const LINE_MAX: i32 = 10;

/// Prints one resource in full.
///
/// # Errors
/// What the service says of the resource itself, or those of writing. What lies around it is left out where it cannot
/// be read: another process may play that role.
pub(crate) async fn run(session: Session, args: DescribeArgs) -> anyhow::Result<()> {
    let (kind, name) = args.kind.named(args.name, "tollgate describe schedule nightly")?;
    match kind {
        Kind::Schedule => {
            let schedule = fetch::schedule(&session, &name).await?;
            show(&session, &schedule, &schedule.name)?;
            if !session.printer.is_text() { Ok(()) } else { around_schedule(&session, &schedule.name).await }
        }
        Kind::Policy => {
            let policy = fetch::policy(&session, &name).await?;
            show(&session, &policy, &policy.name)?;
            if !session.printer.is_text() { Ok(()) } else { around_policy(&session, &policy.name).await }
        }
        Kind::Calendar => {
            let calendar = fetch::calendar(&session, &name).await?;
            show(&session, &calendar, &calendar.name)
        }
        Kind::Alert => {
            let alert = fetch::alert(&session, &name).await?;
            show(&session, &alert, &alert.name)
        }
        Kind::Run => {
            let run = fetch::run(&session, &ids::run(&session, &name).await?).await?;
            show(&session, &run, &run.name)?;
            if !session.printer.is_text() { Ok(()) } else { around_run(&session, &run).await }
        }
        Kind::Event => {
            let event = fetch::event(&session, &ids::event(&session, &name).await?).await?;
            show(&session, &event, &event.name)?;
            if !session.printer.is_text() {
                return Ok(());
            }
            let Ok(told) = explanation(&session, &event.event_id).await else { return Ok(()) };
            session.printer.text(&format!("\n{}", why::reasons(session.now_us, &told)))
        }
    }
}

fn show<M: Message + Name>(session: &Session, message: &M, name: &str) -> anyhow::Result<()> {
    session.show(message, [name], || {
        let mut text = String::new();
        fields(session.now_us, &to_file_json(message), 0, &mut text);
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
        session.printer.text(&format!("\nlatest runs:\n{}", rows::runs(session.view(), &answer.runs)))?;
    }
    Ok(())
}

async fn around_policy(session: &Session, name: &str) -> anyhow::Result<()> {
    let parent = names::parent(names::namespace_of(name));
    let request = v1::GetHandlerStatusRequest { parent, busy_only: false };
    let Ok(answer) = session.handler().get_handler_status(request).await else { return Ok(()) };
    let Some(gauge) = answer.get_ref().policies.iter().find(|gauge| gauge.policy == name) else {
        return Ok(());
    };
    session.printer.text(&format!(
        "\nnow: {} tokens held{}, {} of them suspect, {} events wait, the oldest for {}, {:.1} events/s started\n",
        gauge.held_count,
        if gauge.below_count > 0 { format!(" and {} below it", gauge.below_count) } else { String::new() },
        gauge.suspect_count,
        gauge.waiting_count,
        duration(gauge.oldest_wait.as_ref().or(Some(&prost_types::Duration::default()))),
        gauge.started_per_second,
    ))?;
    let view = View { wide: true, ..session.view() };
    session.printer.text(&format!("\n{}", gauges::table(view, std::slice::from_ref(gauge))))?;
    let name = name.to_owned();
    let (holders_max, waiters_max, keys_max) = (LINE_MAX, LINE_MAX, LINE_MAX);
    let request = v1::GetPolicyQueueRequest { name, holders_max, waiters_max, keys_max };
    let Ok(queue) = session.handler().get_policy_queue(request).await else { return Ok(()) };
    session.printer.text(&queue_text(session.now_us, queue.get_ref()))
}

/// Who holds the tokens, and who waits for them, in the order in which they go.
fn queue_text(now_us: i64, queue: &v1::PolicyQueue) -> String {
    let mut text = String::new();
    if !queue.holders.is_empty() {
        text.push_str(&format!("\nwho holds the tokens:\n{}", why::holders(now_us, &queue.holders)));
    }
    if !queue.waiters.is_empty() {
        let mut table = Table::new(["WHO WAITS", "WAITING", "PRIORITY", "LAUNCH", "EVENTS BEFORE IT", "WHY"]);
        for waiter in &queue.waiters {
            let place = waiter.place_in_line;
            table.row([
                names::short(&waiter.schedule).to_owned(),
                waiter.waiting_count.to_string(),
                waiter.priority.to_string(),
                relative(now_us, waiter.launch_time.as_ref()),
                if place < 0 { String::new() } else { place.to_string() },
                waiter.summary.clone(),
            ]);
        }
        text.push_str(&format!("\n{table}"));
    }
    if !queue.keys.is_empty() {
        text.push_str(&format!("\n{}", keys_text(queue)));
    }
    text
}

/// What each key has, and waits for.
fn keys_text(queue: &v1::PolicyQueue) -> String {
    let mut table = Table::new(["KEY", "HELD", "LIMIT", "RATE/S", "WEIGHT", "WAITING", "OLDEST", "STATE"]);
    let or_dash = |value: Option<String>| value.unwrap_or_else(|| "-".to_owned());
    for key in &queue.keys {
        let state = match (key.paused, key.reason.as_str()) {
            (false, _) => "ACTIVE".to_owned(),
            (true, "") => "PAUSED".to_owned(),
            (true, reason) => format!("PAUSED: {reason}"),
        };
        table.row([
            if key.key.is_empty() { "(none)".to_owned() } else { key.key.clone() },
            key.held_count.to_string(),
            or_dash(key.max_in_flight.map(|limit| limit.to_string())),
            or_dash(key.rate_per_second.map(|rate| rate.to_string())),
            key.weight.to_string(),
            key.waiting_count.to_string(),
            key.oldest_wait.as_ref().map(|wait| duration(Some(wait))).unwrap_or_default(),
            state,
        ]);
    }
    let more = queue.keys_read_count as usize - queue.keys.len().min(queue.keys_read_count as usize);
    let more = if more > 0 { format!("… and {more} more\n") } else { String::new() };
    let unread = match queue.keys_unread_count {
        0 => String::new(),
        unread => format!("the keys of {unread} more waiting events have not been read yet\n"),
    };
    format!("{table}{more}{unread}")
}

/// What of a run is not well.
async fn around_run(session: &Session, run: &v1::Run) -> anyhow::Result<()> {
    let counts = run.counts.unwrap_or_default();
    for (state, count) in
        [("DEAD", counts.dead), ("FAILED", counts.failed), ("EXPIRED", counts.expired), ("LOST", counts.lost)]
    {
        if count == 0 {
            continue;
        }
        let filter = format!("state={state}");
        let Ok((events, _)) = fetch::events(session, &run.name, &filter, AROUND).await else { continue };
        let shown = rows::events(session.view(), &events);
        session.printer.text(&format!("\n{count} {state}, the first of them:\n{shown}"))?;
    }
    Ok(())
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
