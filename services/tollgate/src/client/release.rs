//! `tollgate release` and `tollgate extend`: what a consumer does, by hand.

use clap::{Args, ValueEnum};
use prost_types::{Duration, Timestamp};
use tollgate_proto::{convert, v1};

use super::rows::word;
use super::when::{both, duration, moment_or_span, parse_span};
use super::{Session, ids};
use crate::usage::Usage;

/// How the work went.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum Outcome {
    /// The work is done.
    #[default]
    Succeeded,
    /// The work has failed for good.
    Failed,
    /// The work has failed, and the event needs another attempt.
    Retry,
}

/// Arguments of `release`.
#[derive(Args, Clone, Debug)]
pub(crate) struct ReleaseArgs {
    /// The event's id or name, or the beginning of its id
    #[arg(value_name = "EVENT")]
    name: String,

    /// The outcome of the work
    #[arg(long, value_enum, default_value_t, ignore_case = true)]
    outcome: Outcome,

    /// A message for people
    #[arg(long, value_name = "TEXT", default_value = "")]
    message: String,

    /// When the event comes again: a moment, or a duration from now on such as 15m
    #[arg(long, value_name = "WHEN")]
    next_check: Option<String>,

    /// The cursor for the schedule's next run
    #[arg(long, value_name = "TEXT")]
    cursor: Option<String>,

    /// The result of the work, as JSON: items for the run that follows
    #[arg(long, value_name = "JSON")]
    result: Option<String>,

    /// The attempt to release; the one in flight by default
    #[arg(long, value_name = "N")]
    attempt: Option<u32>,
}

/// Arguments of `extend`.
#[derive(Args, Clone, Debug)]
pub(crate) struct ExtendArgs {
    /// The event's id or name, or the beginning of its id
    #[arg(value_name = "EVENT")]
    name: String,

    /// The time to live of the token from now on; the policy's token_ttl by default
    #[arg(long, value_name = "DURATION", value_parser = parse_span)]
    ttl: Option<Duration>,

    /// The attempt to extend; the one in flight by default
    #[arg(long, value_name = "N")]
    attempt: Option<u32>,
}

/// Gives an event's token back.
///
/// # Errors
/// What the service says, or those of writing. A release that changed nothing is no error.
pub(crate) async fn run(session: Session, args: ReleaseArgs) -> anyhow::Result<()> {
    let name = ids::event(&session, &args.name).await?;
    let next_check_time = next_check(session.now_us, args.next_check.as_deref())?;
    let outcome = match args.outcome {
        Outcome::Succeeded => v1::ReleaseOutcome::Succeeded,
        Outcome::Failed => v1::ReleaseOutcome::Failed,
        Outcome::Retry => v1::ReleaseOutcome::Retry,
    };
    let request = v1::ReleaseTokenRequest {
        name: name.clone(),
        attempt: args.attempt,
        outcome: outcome.into(),
        message: args.message,
        next_check_time,
        cursor: args.cursor,
        result: result(args.result.as_deref())?,
    };
    let answer = session.handler().release_token(request).await;
    let answer = answer.map_err(|status| session.failure(format!("release {name}"), status))?.into_inner();
    session.printer.message(&answer, |answer| {
        let mut text = word(answer.status().as_str_name(), "RELEASE_STATUS_");
        if answer.next_check_time.is_some() {
            text.push_str(&format!(" at {}", both(session.now_us, answer.next_check_time.as_ref())));
        }
        if !answer.message.is_empty() {
            text.push_str(&format!(": {}", answer.message));
        }
        text + "\n"
    })
}

/// Says that the consumer still works on an event.
///
/// # Errors
/// What the service says, or those of writing.
pub(crate) async fn extend(session: Session, args: ExtendArgs) -> anyhow::Result<()> {
    let ExtendArgs { name, ttl, attempt } = args;
    let name = ids::event(&session, &name).await?;
    let answer =
        session.handler().extend_token(v1::ExtendTokenRequest { name: name.clone(), attempt, ttl }).await;
    let answer = answer.map_err(|status| session.failure(format!("extend {name}"), status))?.into_inner();
    session.printer.message(&answer, |answer| {
        format!("silence is allowed for {}\n", duration(answer.remaining.as_ref()))
    })
}

fn result(text: Option<&str>) -> anyhow::Result<Option<prost_types::Value>> {
    let read = |text| {
        let value: serde_json::Value = serde_json::from_str(text)
            .map_err(|error| Usage(format!("--result: {text:?} is not allowed, expected JSON: {error}")))?;
        Ok(convert::payload::from_json(&value))
    };
    text.map(read).transpose()
}

fn next_check(now_us: i64, text: Option<&str>) -> anyhow::Result<Option<Timestamp>> {
    let read = |text: &str| {
        moment_or_span(now_us, text)
            .map_err(|error| Usage(format!("--next-check: {text:?} is not allowed, {error}")).into())
    };
    text.map(read).transpose()
}
