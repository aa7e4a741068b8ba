//! `tollgate failures`, `retry-failures` and `close-failures`: what went wrong over all runs, and what to do with it.
//!
//! In: what is looked for. Out: groups; or steps, each of which says how far it is. Invariants: nothing is changed before the
//! caller has said yes; whatever ends the steps, the caller is told how to go on.

use std::io::{BufRead as _, IsTerminal as _, Write as _};

use clap::Args;
use tollgate_clock::Clock;
use tollgate_proto::v1;

use super::progress::Line;
use super::rows::{event_state, or_none};
use super::table::Table;
use super::when::{exact, relative};
use super::{Session, names, progress};

/// What is looked for.
#[derive(Args, Clone, Debug, Default)]
pub(crate) struct Terms {
    /// Only failures of this schedule
    #[arg(long, value_name = "SCHEDULE")]
    schedule: Option<String>,

    /// Only failures under this policy
    #[arg(long, value_name = "POLICY")]
    policy: Option<String>,

    /// Only events in this state: DEAD, FAILED, EXPIRED or LOST
    #[arg(long, value_name = "STATE")]
    state: Option<String>,

    /// Only failures of which the same was said as in this message, or that have this reason
    #[arg(long, value_name = "TEXT")]
    like: Option<String>,

    /// Only runs that have ended within this time, such as 24h
    #[arg(long, value_name = "DURATION", value_parser = humantime::parse_duration)]
    since: Option<std::time::Duration>,

    /// Further terms, joined by AND, such as end_time<=2026-03-29T03:00:00Z
    #[arg(long, value_name = "TERMS", default_value = "")]
    filter: String,
}

impl Terms {
    fn filter(&self, now_us: i64) -> String {
        let named = [
            ("schedule", &self.schedule),
            ("policy", &self.policy),
            ("state", &self.state),
            ("reason", &self.like),
        ];
        let mut terms: Vec<String> =
            named.into_iter().filter_map(|(key, value)| Some(term(key, value.as_ref()?))).collect();
        if let Some(since) = self.since {
            let since_us = i64::try_from(since.as_micros()).unwrap_or(i64::MAX);
            let from = tollgate_proto::convert::timestamp(now_us.saturating_sub(since_us));
            terms.push(format!("end_time>={}", exact(Some(&from))));
        }
        if !self.filter.trim().is_empty() {
            terms.push(self.filter.trim().to_owned());
        }
        terms.join(" AND ")
    }
}

fn term(key: &str, value: &str) -> String {
    format!("{key}=\"{}\"", value.replace('\\', "\\\\").replace('"', "\\\""))
}

/// Arguments of `failures`.
#[derive(Args, Clone, Debug)]
pub(crate) struct FailuresArgs {
    #[command(flatten)]
    terms: Terms,

    /// Show failures that have been closed, too
    #[arg(long)]
    closed: bool,

    /// The most groups that are shown
    #[arg(long, value_name = "N", default_value_t = 100)]
    limit: u16,
}

/// Arguments of `retry-failures` and `close-failures`.
#[derive(Args, Clone, Debug)]
pub(crate) struct ActArgs {
    #[command(flatten)]
    terms: Terms,

    /// Do it, without a count and a question first
    #[arg(short, long)]
    yes: bool,

    /// Go on where steps with the same terms have ended
    #[arg(long, value_name = "TOKEN", default_value = "")]
    page_token: String,
}

/// Prints what went wrong, by what was said of it.
///
/// # Errors
/// What the service says, or those of writing.
pub(crate) async fn list(session: Session, args: FailuresArgs) -> anyhow::Result<()> {
    let mut filter = args.terms.filter(session.now_us);
    if args.closed {
        filter =
            if filter.is_empty() { "closed=true".to_owned() } else { format!("{filter} AND closed=true") };
    }
    let request = v1::ListFailuresRequest { parent: session.parent(), filter, page_size: args.limit.into() };
    let answer = session.handler().list_failures(request).await;
    let answer = answer.map_err(|status| session.failure("list failures", status))?.into_inner();
    session.printer.message(&answer, |answer| text(session.now_us, answer))
}

fn text(now_us: i64, answer: &v1::ListFailuresResponse) -> String {
    let mut table =
        Table::new(["EVENTS", "STATE", "REASON", "RUNS", "FIRST", "LAST", "SCHEDULES", "EXAMPLE"]);
    for group in &answer.groups {
        let schedules: Vec<&str> = group.schedules.iter().map(|name| names::short(name)).collect();
        table.row([
            group.count.to_string(),
            event_state(group.state()),
            group.reason.clone(),
            group.runs_count.to_string(),
            relative(now_us, group.first_time.as_ref()),
            relative(now_us, group.last_time.as_ref()),
            schedules.join(","),
            names::short(&group.example_event).to_owned(),
        ]);
    }
    let mut text = or_none(&table, "no failures");
    if answer.truncated {
        text.push_str("not everything was looked at: narrow it with --schedule, --policy or --since\n");
    }
    text
}

/// What is done to failures.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Act {
    Retry,
    Close,
}

/// What a step came to.
#[derive(Debug, Default)]
struct Step {
    matched: u64,
    done: u64,
    next: String,
}

impl Act {
    fn command(self) -> &'static str {
        match self {
            Self::Retry => "retry-failures",
            Self::Close => "close-failures",
        }
    }

    /// So many of what it is done to.
    fn what(self, n: u64) -> String {
        let many = if n == 1 { "" } else { "s" };
        match self {
            Self::Retry => format!("{n} dead event{many}"),
            Self::Close => format!("{n} run{many} with failures"),
        }
    }

    /// What has been done to so many.
    fn done(self, n: u64) -> String {
        let verb = if n == 1 { "is" } else { "are" };
        match self {
            Self::Retry => format!("{} {verb} tried again", self.what(n)),
            Self::Close => format!("{} {verb} closed", self.what(n)),
        }
    }

    /// How many there are to do it to.
    fn matching(self, n: u64) -> String {
        format!("{} {}", self.what(n), if n == 1 { "matches" } else { "match" })
    }

    async fn step(self, session: &Session, filter: &str, token: &str, dry: bool) -> anyhow::Result<Step> {
        let (parent, filter, page_token) = (session.parent(), filter.to_owned(), token.to_owned());
        let tried = |status| session.failure(self.command().replace('-', " "), status);
        let mut handler = session.handler();
        Ok(match self {
            Self::Retry => {
                let request = v1::RetryFailuresRequest { parent, filter, page_token, validate_only: dry };
                let step = handler.retry_failures(request).await.map_err(tried)?.into_inner();
                let (matched, done) = (step.matched_count.into(), step.retried_count.into());
                Step { matched, done, next: step.next_page_token }
            }
            Self::Close => {
                let request = v1::CloseFailuresRequest { parent, filter, page_token, validate_only: dry };
                let step = handler.close_failures(request).await.map_err(tried)?.into_inner();
                let (matched, done) = (step.matched_runs_count.into(), step.closed_runs_count.into());
                Step { matched, done, next: step.next_page_token }
            }
        })
    }
}

/// Tries dead events of all runs again.
///
/// # Errors
/// What the service says, or those of writing.
pub(crate) async fn retry(session: Session, args: ActArgs) -> anyhow::Result<()> {
    act(&session, Act::Retry, args).await
}

/// Closes the runs of which an event matches.
///
/// # Errors
/// What the service says, or those of writing.
pub(crate) async fn close(session: Session, args: ActArgs) -> anyhow::Result<()> {
    act(&session, Act::Close, args).await
}

async fn act(session: &Session, act: Act, args: ActArgs) -> anyhow::Result<()> {
    let filter = args.terms.filter(session.now_us);
    let mut counted = None;
    if !args.yes {
        let matched = steps(session, act, &filter, &args.page_token, Doing::Count).await?;
        if matched == 0 || !is_wanted(&act.matching(matched))? {
            return said(session, act, matched, 0);
        }
        counted = Some(matched);
    }
    let done = steps(session, act, &filter, &args.page_token, Doing::Act(counted)).await?;
    said(session, act, done, done)
}

fn said(session: &Session, act: Act, matched: u64, done: u64) -> anyhow::Result<()> {
    if session.printer.is_json() {
        return session.printer.json(&serde_json::json!({ "matched": matched, "done": done }));
    }
    if done == 0 && matched > 0 {
        return session.printer.line(&format!("{}; nothing is changed without --yes", act.matching(matched)));
    }
    session.printer.line(&act.done(done))
}

/// Asks on a terminal; elsewhere nobody says yes.
fn is_wanted(question: &str) -> anyhow::Result<bool> {
    let (input, mut output) = (std::io::stdin(), std::io::stderr());
    if !input.is_terminal() || !output.is_terminal() {
        return Ok(false);
    }
    write!(output, "{question}. Go on? [y/N] ")?;
    output.flush()?;
    let mut answer = String::new();
    input.lock().read_line(&mut answer)?;
    Ok(matches!(answer.trim(), "y" | "Y" | "yes"))
}

/// What steps are made for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Doing {
    /// To count what matches.
    Count,
    /// To do it, to so many where they were counted before.
    Act(Option<u64>),
}

impl Doing {
    /// How far it has come in `ms`.
    fn progress(self, act: Act, sum: u64, ms: u64) -> String {
        match self {
            Self::Count => act.matching(sum),
            // More may have come to match meanwhile.
            Self::Act(Some(total)) => {
                format!("{}: {}", act.command(), progress::text(sum, total.max(sum), ms))
            }
            Self::Act(None) => act.done(sum) + &progress::rate(sum, ms),
        }
    }
}

/// All steps from a token on; how many matched, or, where something is done, to how many it was done.
async fn steps(session: &Session, act: Act, filter: &str, from: &str, doing: Doing) -> anyhow::Result<u64> {
    let (mut sum, mut token) = (0, from.to_owned());
    let (mut line, clock) = (Line::new(), Clock::system());
    let (began_us, dry) = (clock.wall_us(), doing == Doing::Count);
    loop {
        let step = tokio::select! {
            step = act.step(session, filter, &token, dry) => step,
            stopped = tokio::signal::ctrl_c() => match stopped {
                Ok(()) => Err(anyhow::anyhow!("{}: stopped", act.command())),
                Err(error) => Err(error.into()),
            },
        };
        let step = match step {
            Ok(step) => step,
            Err(error) if dry => return Err(error),
            Err(error) => return Err(error.context(how_to_go_on(act, filter, &token, sum))),
        };
        sum += if dry { step.matched } else { step.done };
        token = step.next;
        if token.is_empty() {
            return Ok(sum);
        }
        let us = clock.wall_us().saturating_sub(began_us);
        line.draw(&doing.progress(act, sum, u64::try_from(us).unwrap_or_default() / 1_000));
    }
}

fn how_to_go_on(act: Act, filter: &str, token: &str, done: u64) -> String {
    let quoted = filter.replace('\'', "'\\''");
    let filter = if filter.is_empty() { String::new() } else { format!(" --filter '{quoted}'") };
    let token = if token.is_empty() { String::new() } else { format!(" --page-token {token}") };
    format!("{}; to go on: tollgate {} --yes{filter}{token}", act.done(done), act.command())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::client::style::plain;

    #[test]
    fn terms_are_joined_and_quoted() {
        let now_us = 1_774_746_000_000_000;
        assert_eq!(Terms::default().filter(now_us), "");
        let terms = Terms {
            schedule: Some("nightly".to_owned()),
            like: Some("say \"no\" \\ …".to_owned()),
            since: Some(std::time::Duration::from_secs(3_600)),
            filter: " closed=true ".to_owned(),
            ..Terms::default()
        };
        assert_eq!(
            terms.filter(now_us),
            "schedule=\"nightly\" AND reason=\"say \\\"no\\\" \\\\ …\" AND end_time>=2026-03-29T00:00:00Z AND closed=true"
        );
    }

    #[test]
    fn steps_say_how_far_they_have_come() {
        let said = |doing: Doing| doing.progress(Act::Retry, 1_200, 5_000);
        assert_eq!(said(Doing::Count), "1200 dead events match");
        assert_eq!(said(Doing::Act(Some(5_000))), "retry-failures: 1200 of 5000, 240.0/s, 16s left");
        assert_eq!(said(Doing::Act(Some(1_000))), "retry-failures: 1200 of 1200, 240.0/s");
        assert_eq!(said(Doing::Act(None)), "1200 dead events are tried again, 240.0/s");
    }

    #[test]
    fn who_was_stopped_is_told_how_to_go_on() {
        assert_eq!(
            how_to_go_on(Act::Retry, "reason=\"it's\"", "t0", 7),
            "7 dead events are tried again; to go on: tollgate retry-failures --yes --filter 'reason=\"it'\\''s\"' --page-token t0"
        );
        assert_eq!(
            how_to_go_on(Act::Close, "", "", 0),
            "0 runs with failures are closed; to go on: tollgate close-failures --yes"
        );
    }

    #[test]
    fn groups_are_a_table() {
        let now_us = 1_774_746_000_000_000;
        let at = |ago_us| Some(tollgate_proto::convert::timestamp(now_us - ago_us));
        let group = v1::FailureGroup {
            reason: "HTTP 503: busy".to_owned(),
            state: v1::EventState::Dead.into(),
            count: 1_200,
            first_time: at(3_600_000_000),
            last_time: at(60_000_000),
            example_event: "namespaces/default/events/e1".to_owned(),
            schedules: vec!["namespaces/default/schedules/nightly".to_owned()],
            runs_count: 3,
            ..v1::FailureGroup::default()
        };
        let answer = v1::ListFailuresResponse { groups: vec![group], truncated: true };
        let shown = plain(&text(now_us, &answer));
        assert!(shown.starts_with("EVENTS  STATE  REASON"), "{shown}");
        assert!(
            shown.contains("1200    DEAD   HTTP 503: busy  3     1h ago  1m ago  nightly    e1\n"),
            "{shown}"
        );
        assert!(shown.contains("not everything was looked at"), "{shown}");
        assert_eq!(text(now_us, &v1::ListFailuresResponse::default()), "no failures\n");
    }
}
