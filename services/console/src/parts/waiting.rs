//! Runs that are due and unfinished: which there are, how far they are, why they wait, and whether they will be in time.

use std::collections::{BTreeMap, BTreeSet};

use futures::future::join_all;
use tollgate_proto::v1;

use crate::requests::api::Api;
use crate::requests::problem::Problem;
use crate::words::show::{exact, ms, us};

/// The most runs that have started that are read.
const RUNS_READ: i32 = 100;
/// The most that are due and have not.
pub(crate) const WAITING_READ_MAX: i32 = 500;
/// The most waiting runs for which it is asked why they wait.
const ASKED_MAX: usize = 12;
/// The most schedules that are read for their `finish_by`.
const SCHEDULES_MAX: usize = 40;

/// A run that is due and unfinished.
#[derive(Clone, Debug)]
pub(crate) struct DueRun {
    /// The run.
    pub(crate) run: v1::Run,
    /// When its events must have started, in microseconds since the epoch.
    pub(crate) deadline_us: Option<i64>,
    /// Whether they will not, as far as can be said.
    pub(crate) at_risk: bool,
    /// How many runs of the same schedule wait behind it, and their events. Nothing has started of them either.
    pub(crate) behind: (usize, u64),
    /// Why its next event waits; asked for the first of them only.
    pub(crate) why: Option<v1::Explanation>,
}

/// What is due.
#[derive(Clone, Debug, Default)]
pub(crate) struct Due {
    /// Some event has started, none is left to start or some are; earliest launch first.
    pub(crate) running: Vec<DueRun>,
    /// Nothing has started: the earliest run of each schedule, earliest launch first.
    pub(crate) waiting: Vec<DueRun>,
    /// There are more running ones than were read.
    pub(crate) running_cut: bool,
    /// There may be more waiting ones than were read.
    pub(crate) waiting_cut: bool,
}

/// What is due in a namespace. `status`, where it is known, says how fast events start, and whether there is anything to
/// read at all.
pub(crate) async fn due(
    api: &Api,
    parent: &str,
    now_us: i64,
    status: Option<&v1::HandlerStatus>,
) -> Result<Due, Problem> {
    // A handler that says nothing may have anything.
    let launched = status
        .filter(|status| status.silent_handlers.is_empty())
        .map_or(u64::MAX, |status| status.launched_runs_count);
    if launched == 0 {
        return Ok(Due::default());
    }
    let due_now = format!("launch_time<={}", exact(now_us));
    let running = format!("state=RUNNING AND {due_now}");
    let running = api.runs(parent.to_owned(), &running, RUNS_READ, "").await?;
    let waiting = if launched > running.runs.len() as u64 {
        let waiting = format!("state=WAITING AND {due_now}");
        api.runs(parent.to_owned(), &waiting, WAITING_READ_MAX, "").await?
    } else {
        v1::ListRunsResponse::default()
    };
    let mut due = Due {
        running_cut: !running.next_page_token.is_empty(),
        waiting_cut: !waiting.next_page_token.is_empty(),
        ..Due::default()
    };
    let due_run = |run| DueRun { run, deadline_us: None, at_risk: false, behind: (0, 0), why: None };
    due.running = running.runs.into_iter().map(due_run).collect();
    due.waiting = waiting.runs.into_iter().map(due_run).collect();
    due.running.reverse();
    due.waiting.reverse();
    due.waiting = by_schedule(due.waiting);
    let deadlines = deadlines(api, due.running.iter().chain(&due.waiting)).await;
    let asked =
        due.waiting.iter_mut().chain(due.running.iter_mut().filter(|due_run| due_run.run.waiting_count > 0));
    let asked: Vec<&mut DueRun> = asked.take(ASKED_MAX).collect();
    join_all(asked.into_iter().map(|due_run| async move { due_run.why = why(api, &due_run.run).await }))
        .await;
    let gauges = status.map(|status| status.policies.as_slice()).unwrap_or_default();
    let starts: BTreeMap<&str, f64> =
        gauges.iter().map(|gauge| (gauge.policy.as_str(), gauge.started_per_second)).collect();
    for due_run in due.running.iter_mut().chain(due.waiting.iter_mut()) {
        let after = deadlines.get(&due_run.run.schedule).copied().flatten();
        let launch_us = due_run.run.launch_time.as_ref().map(us);
        due_run.deadline_us = launch_us.zip(after).map(|(launch, after)| launch.saturating_add(after));
        let per_s = starts.get(due_run.run.policy.as_str()).copied().unwrap_or_default();
        due_run.at_risk = due_run
            .deadline_us
            .is_some_and(|end| at_risk(now_us, end, u64::from(due_run.run.waiting_count), per_s));
    }
    Ok(due)
}

/// The first run of each schedule, with those behind it counted.
fn by_schedule(runs: Vec<DueRun>) -> Vec<DueRun> {
    let mut first: Vec<DueRun> = Vec::new();
    for due_run in runs {
        match first.iter_mut().find(|known| known.run.schedule == due_run.run.schedule) {
            Some(known) => {
                known.behind.0 += 1;
                known.behind.1 += u64::from(due_run.run.events);
            }
            None => first.push(due_run),
        }
    }
    first
}

/// Whether `waiting` events that start at this rate do not start before the deadline. A bucket that has not started
/// anything in the last minute says nothing, unless the deadline is less than a minute away.
pub(crate) fn at_risk(now_us: i64, deadline_us: i64, waiting: u64, started_per_s: f64) -> bool {
    let left_s = deadline_us.saturating_sub(now_us) as f64 / 1_000_000.0;
    if waiting == 0 {
        return false;
    }
    if started_per_s <= 0.0 { left_s < 60.0 } else { waiting as f64 / started_per_s > left_s }
}

/// From a schedule's name to its `finish_by` in microseconds.
async fn deadlines(api: &Api, runs: impl Iterator<Item = &DueRun>) -> BTreeMap<String, Option<i64>> {
    let names: BTreeSet<String> =
        runs.map(|due_run| due_run.run.schedule.clone()).take(SCHEDULES_MAX).collect();
    let read = names.into_iter().map(|name| async move {
        // One that has been deleted since has no deadline that could be read.
        let schedule = api.schedule(&name).await.ok();
        let after = schedule.and_then(|schedule| schedule.finish_by).map(|after| ms(&after) * 1_000);
        (name, after)
    });
    join_all(read).await.into_iter().collect()
}

/// Why the next event of a run waits; none where it cannot be said now.
async fn why(api: &Api, run: &v1::Run) -> Option<v1::Explanation> {
    let events = api.events(&run.name, "state=WAITING", 1, "").await.ok()?.events;
    api.explain(&events.first()?.name).await.ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_of_a_schedule_wait_behind_its_first() {
        let due_run = |schedule: &str, events: u32| DueRun {
            run: v1::Run { schedule: schedule.to_owned(), events, ..v1::Run::default() },
            deadline_us: None,
            at_risk: false,
            behind: (0, 0),
            why: None,
        };
        let runs = by_schedule(vec![due_run("a", 1), due_run("b", 2), due_run("a", 3), due_run("a", 4)]);
        let shown: Vec<_> =
            runs.iter().map(|due_run| (due_run.run.schedule.as_str(), due_run.behind)).collect();
        assert_eq!(shown, [("a", (2, 7)), ("b", (0, 0))]);
    }

    #[test]
    fn a_window_is_at_risk_when_the_rate_does_not_reach() {
        let end_us = 100_000_000;
        assert!(at_risk(0, end_us, 1_000, 9.0));
        assert!(!at_risk(0, end_us, 1_000, 11.0));
        assert!(!at_risk(0, end_us, 0, 0.0));
        assert!(!at_risk(0, end_us, 5, 0.0));
        assert!(at_risk(50_000_000, end_us, 5, 0.0));
    }
}
