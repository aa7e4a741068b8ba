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
    /// What its next event waits for; asked for some only, and shared where it is the policy's.
    reason: Option<String>,
}

impl DueRun {
    fn of(run: v1::Run) -> Self {
        Self { run, deadline_us: None, at_risk: false, behind: (0, 0), reason: None }
    }

    /// What its next event waits for, as far as it is known.
    pub(crate) fn reason(&self) -> Option<&str> {
        self.reason.as_deref()
    }
}

/// What is due.
#[derive(Clone, Debug, Default)]
pub(crate) struct Due {
    /// Some event has started, none is left to start or some are; earliest launch first.
    pub(crate) running: Vec<DueRun>,
    /// Nothing has started: the earliest run of each schedule, earliest launch first.
    pub(crate) waiting: Vec<DueRun>,
    /// Of those that have no policy: events that wait, and events that have started and not ended.
    pub(crate) without_policy: (u64, u64),
    /// There are more running ones than were read.
    pub(crate) running_cut: bool,
    /// There may be more waiting ones than were read.
    pub(crate) waiting_cut: bool,
}

/// What is due in a namespace. `status`, where it is known and tells of all namespaces, says whether there is anything to
/// read at all: a key of one namespace is told of no runs.
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
    for run in running.runs.iter().chain(&waiting.runs).filter(|run| run.policy.is_empty()) {
        due.without_policy.0 += u64::from(run.waiting_count);
        due.without_policy.1 += u64::from(run.in_flight_count);
    }
    due.running = running.runs.into_iter().map(DueRun::of).collect();
    due.waiting = waiting.runs.into_iter().map(DueRun::of).collect();
    due.running.reverse();
    due.waiting.reverse();
    due.waiting = by_schedule(due.waiting);
    let deadlines = deadlines(api, due.running.iter().chain(&due.waiting)).await;
    reasons(api, &mut due.waiting).await;
    for due_run in due.running.iter_mut().chain(due.waiting.iter_mut()) {
        let after = deadlines.get(&due_run.run.schedule).copied().flatten();
        let launch_us = due_run.run.launch_time.as_ref().map(us);
        due_run.deadline_us = launch_us.zip(after).map(|(launch, after)| launch.saturating_add(after));
        due_run.at_risk = due_run.run.at_risk_count > 0;
    }
    Ok(due)
}

/// Runs of which nothing else is known.
#[cfg(test)]
pub(crate) fn due_runs(runs: Vec<v1::Run>) -> Vec<DueRun> {
    runs.into_iter().map(DueRun::of).collect()
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

/// Says what runs wait for: asked for the first of each policy, and shared by the others where it is the policy's.
async fn reasons(api: &Api, runs: &mut [DueRun]) {
    let mut policies = BTreeSet::new();
    let (mut firsts, mut others) = (Vec::new(), Vec::new());
    for (place, due_run) in runs.iter().enumerate() {
        let is_first = policies.insert(due_run.run.policy.clone());
        if is_first { firsts.push(place) } else { others.push(place) }
    }
    let asked: Vec<usize> = firsts.into_iter().chain(others).take(ASKED_MAX).collect();
    let answers = join_all(asked.iter().map(|place| why(api, &runs[*place].run))).await;
    let mut shared: BTreeMap<String, String> = BTreeMap::new();
    for (place, answer) in asked.into_iter().zip(answers) {
        let reason = answer.and_then(|why| why.reasons.into_iter().next());
        let Some(reason) = reason else { continue };
        // What an event of several tokens lacks may be enough for others.
        if of_policy(reason.code()) && !reason.message.starts_with("it takes ") {
            shared.entry(runs[place].run.policy.clone()).or_insert_with(|| reason.message.clone());
        }
        runs[place].reason = Some(reason.message);
    }
    for due_run in runs.iter_mut().filter(|due_run| due_run.reason.is_none()) {
        due_run.reason = shared.get(&due_run.run.policy).cloned();
    }
}

/// Whether what keeps one event back keeps back all of its policy.
fn of_policy(code: v1::ReasonCode) -> bool {
    matches!(
        code,
        v1::ReasonCode::DispatchPaused
            | v1::ReasonCode::PolicyPaused
            | v1::ReasonCode::LimitReached
            | v1::ReasonCode::RateExhausted
            | v1::ReasonCode::NoOwner
            | v1::ReasonCode::PolicyUnknown
    )
}

/// Why the next event of a run waits; none where none does, or it cannot be said now.
pub(crate) async fn why(api: &Api, run: &v1::Run) -> Option<v1::Explanation> {
    let events = api.events(&run.name, "state=WAITING", 1, "").await.ok()?.events;
    api.explain(&events.first()?.name).await.ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_of_a_schedule_wait_behind_its_first() {
        let due_run = |schedule: &str, events: u32| {
            DueRun::of(v1::Run { schedule: schedule.to_owned(), events, ..v1::Run::default() })
        };
        let runs = by_schedule(vec![due_run("a", 1), due_run("b", 2), due_run("a", 3), due_run("a", 4)]);
        let shown: Vec<_> =
            runs.iter().map(|due_run| (due_run.run.schedule.as_str(), due_run.behind)).collect();
        assert_eq!(shown, [("a", (2, 7)), ("b", (0, 0))]);
    }
}
