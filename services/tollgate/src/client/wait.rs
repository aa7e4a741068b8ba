//! `tollgate wait`: waits until a run has started or ended, and says by its exit code how it ended.

use std::time::Duration;

use clap::{Args, ValueEnum};
use clap_complete::engine::ArgValueCompleter;
use tollgate_clock::Clock;
use tollgate_proto::v1;

use super::progress::Line;
use super::target::{Target, TargetParser};
use super::when::{relative, span};
use super::{Session, complete, fetch, ids, names, rows};
use crate::exit::{Exit, NOT_WELL, TIMED_OUT};

/// The time between two looks.
const EVERY: Duration = Duration::from_millis(500);
/// How often it is said how far the run is, where nobody sees a line being drawn.
const SAID_EVERY_MS: u64 = 30_000;

/// What can be waited for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Kind {
    /// A run.
    #[value(alias = "runs")]
    Run,
    /// The latest run of a schedule that is due.
    #[value(alias = "schedules")]
    Schedule,
}

/// Until when.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum Until {
    /// Until an event has started.
    Started,
    /// Until all events have ended.
    #[default]
    Finished,
}

/// Arguments of `wait`.
#[derive(Args, Clone, Debug)]
pub(crate) struct WaitArgs {
    /// What to wait for: `run` and the beginning of its id, or `schedule` and its name, for its latest run that is due
    #[arg(value_name = "KIND", value_parser = TargetParser::<Kind>::new())]
    kind: Target<Kind>,

    /// The name of the resource
    #[arg(value_name = "NAME", add = ArgValueCompleter::new(complete::named))]
    name: Option<String>,

    /// What to wait for
    #[arg(long = "for", value_enum, default_value_t)]
    until: Until,
}

/// Waits, for `patience` at most where it is given.
///
/// # Errors
/// What the service says the first time, those of writing; [`Exit`] where the run did not end well, or not in time.
pub(crate) async fn run(
    mut session: Session,
    args: WaitArgs,
    patience: Option<Duration>,
) -> anyhow::Result<()> {
    let (kind, name) = args.kind.named(args.name.clone(), "tollgate wait run RUN")?;
    let name = match kind {
        Kind::Run => ids::run(&session, &name).await?,
        Kind::Schedule => latest(&session, &name).await?,
    };
    let clock = Clock::system();
    let (began_us, mut line) = (clock.wall_us(), Line::new());
    let mut run = fetch::run(&session, &name).await?;
    let first = ended(&run);
    let (mut said_ms, mut is_lost) = (0, false);
    loop {
        session.look_at_the_clock();
        if is_over(&run, args.until) {
            line.clear();
            let view = session.view();
            session.show(&run, [run.name.as_str()], || rows::runs(view, std::slice::from_ref(&run)))?;
            return if is_well(&run, args.until) { Ok(()) } else { Err(Exit(NOT_WELL).into()) };
        }
        let ms = u64::try_from(clock.wall_us().saturating_sub(began_us)).unwrap_or_default() / 1_000;
        let text = far(session.now_us, &run, ended(&run).saturating_sub(first), ms);
        if patience.is_some_and(|patience| u128::from(ms) >= patience.as_millis()) {
            line.clear();
            session.note(&format!("timed out after {}: {text}", span(ms)));
            return Err(Exit(TIMED_OUT).into());
        }
        line.draw(&text);
        if !line.is_seen() && ms >= said_ms + SAID_EVERY_MS {
            said_ms = ms;
            session.note(&text);
        }
        tokio::time::sleep(patience.map_or(EVERY, |patience| patience.min(EVERY))).await;
        match fetch::run(&session, &name).await {
            Ok(found) => (run, is_lost) = (found, false),
            Err(error) if !is_lost => {
                is_lost = true;
                line.clear();
                session.note(&format!("{error:#}; waiting for it to come back"));
            }
            Err(_) => {}
        }
    }
}

/// The latest run of a schedule that is due.
async fn latest(session: &Session, schedule: &str) -> anyhow::Result<String> {
    let name = names::schedule(&session.namespace, schedule);
    let filter = format!("schedule={}", names::short(&name));
    let found = fetch::past_runs(session, &filter, 1).await?.runs.pop();
    found.map(|run| run.name).ok_or_else(|| anyhow::anyhow!("{name} has no run that is due"))
}

/// Events that have ended.
fn ended(run: &v1::Run) -> u64 {
    let counts = run.counts.unwrap_or_default();
    u64::from(counts.succeeded) + rows::bad(&counts)
}

fn is_over(run: &v1::Run, until: Until) -> bool {
    match run.state() {
        v1::RunState::Finished
        | v1::RunState::FinishedWithFailures
        | v1::RunState::Cancelled
        | v1::RunState::Skipped => true,
        v1::RunState::Running => until == Until::Started,
        _ => false,
    }
}

fn is_well(run: &v1::Run, until: Until) -> bool {
    match run.state() {
        v1::RunState::Finished => true,
        v1::RunState::Running | v1::RunState::FinishedWithFailures => until == Until::Started,
        _ => false,
    }
}

/// How far a run is: its rate since the wait began, and its expected end.
fn far(now_us: i64, run: &v1::Run, fresh: u64, ms: u64) -> String {
    let mut text = format!("{}: {} of {} ended", names::short(&run.name), ended(run), run.events);
    let bad = rows::bad(&run.counts.unwrap_or_default());
    if bad > 0 {
        text.push_str(&format!(" ({bad} not well)"));
    }
    if fresh > 0 && ms > 0 {
        #[expect(clippy::cast_precision_loss, reason = "for people")]
        let rate = fresh as f64 * 1_000.0 / ms as f64;
        text.push_str(&format!(", {rate:.1}/s"));
    }
    match (&run.expected_finish_time, run.no_expected_finish_reason.as_str()) {
        (Some(time), _) => text.push_str(&format!(", expected to end {}", relative(now_us, Some(time)))),
        (None, "") => {}
        (None, why) => text.push_str(&format!(", expected end: {why}")),
    }
    text
}

#[cfg(test)]
mod tests {
    use tollgate_proto::convert::timestamp;

    use super::*;

    #[test]
    fn how_far_a_run_is_says_when_it_will_end() {
        let mut run = v1::Run {
            name: "namespaces/default/runs/0a-1".to_owned(),
            events: 200,
            counts: Some(v1::RunCounts { succeeded: 79, dead: 1, ..v1::RunCounts::default() }),
            expected_finish_time: Some(timestamp(30_000_000)),
            ..v1::Run::default()
        };
        let text = far(0, &run, 40, 10_000);
        assert_eq!(text, "0a-1: 80 of 200 ended (1 not well), 4.0/s, expected to end in 30s");
        run.expected_finish_time = None;
        run.no_expected_finish_reason = "never, while the policy p is paused".to_owned();
        assert!(far(0, &run, 0, 0).ends_with("expected end: never, while the policy p is paused"));
    }

    #[test]
    fn a_run_is_over_and_well_or_not() {
        let run = |state: v1::RunState| v1::Run { state: state.into(), ..v1::Run::default() };
        let seen = |state, until| (is_over(&run(state), until), is_well(&run(state), until));
        assert_eq!(seen(v1::RunState::Finished, Until::Finished), (true, true));
        assert_eq!(seen(v1::RunState::FinishedWithFailures, Until::Finished), (true, false));
        assert_eq!(seen(v1::RunState::FinishedWithFailures, Until::Started), (true, true));
        assert_eq!(seen(v1::RunState::Cancelled, Until::Started), (true, false));
        assert!(
            !seen(v1::RunState::Running, Until::Finished).0 && seen(v1::RunState::Running, Until::Started).0
        );
        assert!(!seen(v1::RunState::Waiting, Until::Started).0);
    }
}
