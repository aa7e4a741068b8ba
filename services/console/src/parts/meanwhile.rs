//! What became of all events of a policy while one schedule or run was at work: the service counts by policy and by namespace,
//! not by schedule.

use maud::{Markup, html};
use tollgate_proto::v1;

use crate::parts::chart::{History, NOT_WELL, STARTED, WAITING, legend, unknown};
use crate::requests::links::to;
use crate::requests::problem::Problem;
use crate::requests::visit::Visit;
use crate::words::range::{Range, step_of};
use crate::words::show::{short, us};

/// Before and after a run, at least so much is shown, in microseconds.
const MARGIN_US: i64 = 300_000_000;
/// History is kept for so long, in microseconds.
const KEPT_US: i64 = 45 * 86_400_000_000;

type Answer = Result<v1::ListHistoryResponse, Problem>;

/// Whose numbers these are: a policy's, or what has none is in its namespace's.
pub(crate) fn parent(visit: &Visit, policy: &str) -> String {
    if policy.is_empty() { visit.parent() } else { policy.to_owned() }
}

/// What became of events while a run was at work; none where it is not due, or too old.
pub(crate) async fn read(visit: &Visit, run: &v1::Run) -> Option<Answer> {
    let (from_us, to_us) = time_of(run, visit.now_us)?;
    let parent = parent(visit, &run.policy);
    Some(visit.history_of(&parent, from_us, to_us, step_of(to_us - from_us)).await)
}

/// From a little before a run fell due until a little after its end.
fn time_of(run: &v1::Run, now_us: i64) -> Option<(i64, i64)> {
    let launch_us = run.launch_time.as_ref().map(us).filter(|launch| *launch < now_us)?;
    let end_us = run.finish_time.as_ref().map_or(now_us, us);
    let margin_us = MARGIN_US.max((end_us - launch_us) / 10);
    let from_us = (launch_us - margin_us).max(now_us - KEPT_US);
    let to_us = (end_us + margin_us).min(now_us);
    (from_us < to_us).then_some((from_us, to_us))
}

/// Charts of the time of a run.
pub(crate) fn of_run(visit: &Visit, run: &v1::Run, answer: &Answer) -> Markup {
    html! {
        section aria-labelledby="h-history" {
            h2 #h-history { (whose(visit, &run.policy)) " meanwhile" }
            @match answer {
                Ok(answer) => { (charts(visit, answer)) }
                Err(problem) => { (unknown(problem)) }
            }
        }
    }
}

/// Charts beside a schedule.
pub(crate) fn of_schedule(
    visit: &Visit,
    policy: &str,
    range: Range,
    answer: Result<&v1::ListHistoryResponse, &Problem>,
) -> Markup {
    html! {
        section aria-labelledby="h-meanwhile" {
            h2 #h-meanwhile { (whose(visit, policy)) " in the last " (range.words) }
            @match answer {
                Ok(answer) => { (charts(visit, answer)) }
                Err(problem) => { (unknown(problem)) }
            }
        }
    }
}

fn whose(visit: &Visit, policy: &str) -> Markup {
    html! {
        @if policy.is_empty() { "All of " (visit.ns) }
        @else { "All under " a href=(to(policy)) { (short(policy)) } }
    }
}

fn charts(visit: &Visit, answer: &v1::ListHistoryResponse) -> Markup {
    let history = History::new(answer, visit.now_us);
    html! {
        p.mute { "By the minute, events are counted by policy and by namespace: others that share it are among these." }
        (history.drawn(&[&WAITING, &STARTED, &NOT_WELL], true, None))
        (legend(history.step_us()))
        (history.table())
    }
}

#[cfg(test)]
mod tests {
    use tollgate_proto::convert::timestamp;

    use super::*;

    const HOUR_US: i64 = 3_600_000_000;

    #[test]
    fn a_run_is_shown_with_what_lies_around_it() {
        let now_us = 1_000 * HOUR_US;
        let run = |launch_us: i64, finish_us: Option<i64>| v1::Run {
            launch_time: Some(timestamp(launch_us)),
            finish_time: finish_us.map(timestamp),
            ..v1::Run::default()
        };
        let short = run(now_us - HOUR_US, Some(now_us - HOUR_US + 1_000_000));
        assert_eq!(
            time_of(&short, now_us),
            Some((now_us - HOUR_US - MARGIN_US, now_us - HOUR_US + 1_000_000 + MARGIN_US))
        );
        let open = run(now_us - 100 * HOUR_US, None);
        assert_eq!(time_of(&open, now_us), Some((now_us - 110 * HOUR_US, now_us)));
        assert_eq!(time_of(&run(now_us + 1, None), now_us), None);
        let old = run(now_us - KEPT_US - 2 * HOUR_US, Some(now_us - KEPT_US - HOUR_US));
        assert_eq!(time_of(&old, now_us), None);
    }
}
