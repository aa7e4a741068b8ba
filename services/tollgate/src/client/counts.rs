//! `tollgate history` without a schedule: what became of events, by steps of time.

use clap::Args;
use tollgate_proto::convert::timestamp;
use tollgate_proto::v1;

use super::Session;
use super::style::Tone;
use super::table::{Cell, Table};
use super::when::{exact, parse_span};

/// Which steps are shown.
#[derive(Args, Clone, Debug)]
pub(super) struct StepArgs {
    /// Of a policy or a namespace: show the time from so long ago on
    #[arg(long, value_name = "SPAN", default_value = "1h", value_parser = parse_span)]
    since: prost_types::Duration,

    /// Of a policy or a namespace: the length of a step, in whole minutes; by default as the time needs it
    #[arg(long, value_name = "SPAN", value_parser = parse_span)]
    step: Option<prost_types::Duration>,
}

/// Prints what became of the events of `parent`: a policy, or a namespace.
///
/// # Errors
/// What the service says, or those of writing.
pub(super) async fn run(session: Session, parent: String, args: StepArgs) -> anyhow::Result<()> {
    let from_us = session.now_us.saturating_sub(args.since.seconds.saturating_mul(1_000_000));
    let whose = if parent.is_empty() { "all namespaces" } else { parent.as_str() };
    let tried = format!("show the history of {whose}");
    let request = v1::ListHistoryRequest {
        parent,
        from_time: Some(timestamp(from_us)),
        to_time: Some(timestamp(session.now_us)),
        step: args.step,
    };
    let answer = session.handler().list_history(request).await;
    let answer = answer.map_err(|status| session.failure(tried, status))?.into_inner();
    session.printer.message(&answer, text)
}

/// The steps in which something happened, oldest first.
fn text(answer: &v1::ListHistoryResponse) -> String {
    let mut table = Table::new([
        "FROM",
        "DUE",
        "STARTED",
        "SUCCEEDED",
        "RETRIED",
        "FAILED",
        "DEAD",
        "EXPIRED",
        "LOST",
        "WAITING",
        "HELD",
    ]);
    for point in &answer.points {
        let counts = [
            point.due_count,
            point.started_count,
            point.succeeded_count,
            point.retried_count,
            point.failed_count,
            point.dead_count,
            point.expired_count,
            point.lost_count,
            point.waiting_count,
            point.held_count,
        ];
        if counts.iter().any(|count| *count > 0) || point.cancelled_count > 0 {
            let [due, started, succeeded, retried, failed, dead, expired, lost, waiting, held] =
                counts.map(|count| count.to_string());
            let from = exact(point.time.as_ref());
            let bad = |count: String| {
                Cell::toned(count.clone(), if count == "0" { Tone::Plain } else { Tone::Bad })
            };
            let [failed, dead, expired, lost] = [failed, dead, expired, lost].map(bad);
            let [from, due, started, succeeded, retried, waiting, held] =
                [from, due, started, succeeded, retried, waiting, held].map(Cell::from);
            table.row([from, due, started, succeeded, retried, failed, dead, expired, lost, waiting, held]);
        }
    }
    if table.is_empty() { "nothing happened\n".to_owned() } else { table.to_string() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steps_in_which_nothing_happened_are_left_out() {
        let at = |minute: i64, dead_count| v1::HistoryPoint {
            time: Some(timestamp(minute * 60_000_000)),
            due_count: 7 * dead_count,
            dead_count,
            ..v1::HistoryPoint::default()
        };
        let answer = v1::ListHistoryResponse { points: vec![at(0, 0), at(1, 2)], ..Default::default() };
        let text = super::super::style::plain(&text(&answer));
        let lines: Vec<Vec<&str>> = text.lines().map(|line| line.split_whitespace().collect()).collect();
        assert_eq!(lines.len(), 2);
        assert_eq!(lines[1], ["1970-01-01T00:01:00Z", "14", "0", "0", "0", "0", "2", "0", "0", "0", "0"]);
        assert_eq!(super::text(&v1::ListHistoryResponse::default()), "nothing happened\n");
    }
}
