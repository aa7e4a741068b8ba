//! `tollgate follow`: tells what happens to a schedule or a policy, one line after the other, until it is interrupted.
//!
//! It looks every two seconds and tells what is different. What begins and ends between two looks is told by its end.

mod seen;

use std::time::Duration;

use clap::{Args, ValueEnum};
use clap_complete::engine::ArgValueCompleter;
use serde_json::json;
use tollgate_proto::convert::timestamp;
use tollgate_proto::v1;

use super::style::Tone;
use super::target::{Target, TargetParser};
use super::when::exact;
use super::{Session, complete, fetch, gauges, names};
use seen::{Line, Seen};

/// The latest runs that are looked at.
const RUNS_MAX: u32 = 100;
/// The most events of a run that ended badly which are read at once.
const BAD_MAX: u32 = 1_000;

/// What can be followed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Kind {
    /// A schedule.
    #[value(alias = "schedules")]
    Schedule,
    /// A policy, and the schedules that use it.
    #[value(alias = "policies")]
    Policy,
}

/// Arguments of `follow`.
#[derive(Args, Clone, Debug)]
pub(crate) struct FollowArgs {
    /// The kind of resource, or a resource such as policy/imports
    #[arg(value_name = "KIND", value_parser = TargetParser::<Kind>::new())]
    kind: Target<Kind>,

    /// The name of the resource
    #[arg(value_name = "NAME", add = ArgValueCompleter::new(complete::named))]
    name: Option<String>,

    /// The time between two looks
    #[arg(long, value_name = "DURATION", default_value = "2s", value_parser = humantime::parse_duration)]
    interval: Duration,
}

/// What is followed.
struct Subject {
    namespace: String,
    /// `schedule=nightly`.
    filter: String,
    /// The policy's full name; empty where there is none.
    policy: String,
}

/// Tells what happens.
///
/// # Errors
/// What the service says the first time; those of writing.
pub(crate) async fn run(mut session: Session, args: FollowArgs) -> anyhow::Result<()> {
    session.printer.refuse_names()?;
    let (kind, name) = args.kind.named(args.name, "tollgate follow schedule nightly")?;
    let subject = subject(&session, kind, &name).await?;
    session.namespace.clone_from(&subject.namespace);
    let mut before: Option<Seen> = None;
    let mut is_lost = false;
    loop {
        session.look_at_the_clock();
        let lines = match look(&session, &subject, before.as_ref()).await {
            Ok((seen, mut lines)) => {
                if std::mem::take(&mut is_lost) {
                    lines.insert(0, Line::new("service", "answers again", Tone::Good));
                }
                before = Some(seen);
                lines
            }
            Err(error) if before.is_none() => return Err(error),
            Err(error) if !is_lost => {
                is_lost = true;
                let text = format!("{error:#}");
                vec![Line::new("service", text.lines().next().unwrap_or_default(), Tone::Bad)]
            }
            Err(_) => Vec::new(),
        };
        for line in lines {
            print(&session, &line)?;
        }
        tokio::time::sleep(args.interval.max(Duration::from_millis(100))).await;
    }
}

fn print(session: &Session, line: &Line) -> anyhow::Result<()> {
    let at = exact(Some(&timestamp(session.now_us / 1_000 * 1_000)));
    if session.printer.is_json() {
        // One object a line, in both forms: a stream has no end.
        return session
            .printer
            .line(&json!({"time": at, "subject": line.subject, "text": line.text}).to_string());
    }
    let at = exact(Some(&timestamp(session.now_us / 1_000_000 * 1_000_000)));
    let (at, text) = (Tone::Quiet.paint(&at), line.tone.paint(&line.text));
    session.printer.line(&format!("{at}  {}  {text}", line.subject))
}

async fn subject(session: &Session, kind: Kind, name: &str) -> anyhow::Result<Subject> {
    let (name, filter, policy) = match kind {
        Kind::Schedule => {
            let schedule = fetch::schedule(session, name).await?;
            (schedule.name, "schedule", schedule.policy)
        }
        Kind::Policy => {
            let policy = fetch::policy(session, name).await?;
            (policy.name.clone(), "policy", policy.name)
        }
    };
    let namespace = names::namespace_of(&name).to_owned();
    let policy = if policy.is_empty() { policy } else { names::policy(&namespace, &policy) };
    Ok(Subject { filter: format!("{filter}={}", names::short(&name)), namespace, policy })
}

/// What is so now, and what of it is new.
async fn look(
    session: &Session,
    subject: &Subject,
    before: Option<&Seen>,
) -> anyhow::Result<(Seen, Vec<Line>)> {
    let runs = fetch::runs(session, &subject.filter, RUNS_MAX).await?.runs;
    let request = v1::ListTroublesRequest {
        parent: session.parent(),
        page_size: 100,
        filter: subject.filter.clone(),
        ..v1::ListTroublesRequest::default()
    };
    let troubles = session.handler().list_troubles(request).await;
    let troubles = troubles.map_err(|status| session.failure("list troubles", status))?.into_inner().troubles;
    let gauges = gauges::of(session, session.parent()).await;
    let mut seen = Seen::new(&runs, troubles, gauges.get(&subject.policy), before);
    let mut lines = seen.lines(before, session.now_us);
    for (run, state) in seen.worse(before) {
        let filter = format!("state={state}");
        let (events, _) = fetch::events(session, &run, &filter, BAD_MAX).await?;
        let told = seen.bad(&events, before.is_some());
        if told.is_empty() && before.is_some() {
            // They lie behind those that are read.
            let text = format!("more events are {state}");
            lines.push(Line::new(&format!("run/{}", names::short(&run)), &text, Tone::Bad));
        }
        lines.extend(told);
    }
    Ok((seen, lines))
}
