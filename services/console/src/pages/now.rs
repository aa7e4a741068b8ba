//! What happens now: the buckets, the runs that go on, those that are due and have not started, and what needs attention.

use std::collections::BTreeMap;
use std::sync::Arc;

use axum::extract::{Form, State};
use axum::response::Response;
use maud::{Markup, PreEscaped, html};
use serde::Deserialize;
use tollgate_proto::v1;

use crate::parts::busy::policies;
use crate::parts::chart::{History, NOT_WELL, STARTED, WAITING, is_quiet, unknown};
use crate::parts::confirm::{self, Deed, ask};
use crate::parts::due::{RUNS_MAX, cut, deadline, not_started};
use crate::parts::flow::brief;
use crate::parts::picture::{number, progress};
use crate::parts::shell::{Body, Section, empty};
use crate::parts::targets::targets;
use crate::parts::troubles;
use crate::parts::waiting::{Due, DueRun, due};
use crate::requests::console::Console;
use crate::requests::feeds::Reading;
use crate::requests::links::to;
use crate::requests::problem::Problem;
use crate::requests::visit::Visit;
use crate::words::range::{DAY, HOUR, Range, by_step};
use crate::words::show::{count, counted, encode, moment, rate, seen, short, us};

/// How many running runs of one schedule are shown.
const OF_ONE_MAX: usize = 3;
/// How many corrupt rows are shown.
const CORRUPT_MAX: usize = 10;

/// The page.
pub(crate) async fn page(visit: Visit) -> Response {
    let body = body(&visit, None).await;
    visit.respond(Ok(body))
}

async fn body(visit: &Visit, problem: Option<Problem>) -> Body {
    let Reading { text, at_us } = latest(visit).await;
    let age_ms = visit.console.clock.wall_us().saturating_sub(at_us) / 1_000;
    let content = html! {
        h1 { "Now" }
        div #live data-stream=(visit.link("live")) data-age=(age_ms) { (PreEscaped(&*text)) }
        details.action #dispatch {
            summary { "Stop or restart everything" }
            p {
                "While dispatch is paused nothing starts, in no namespace. Consumers go on with what they have, and \
                 their releases are taken."
            }
            div.row {
                (ask(&visit.link(""), "pause", "Pause all dispatch", true))
                (ask(&visit.link(""), "resume", "Resume dispatch", false))
            }
        }
    };
    Body { problem, at_us: Some(at_us), ..Body::new("Now", Section::Now, content) }
}

/// What a form of this page says.
#[derive(Deserialize)]
pub(crate) struct Order {
    action: String,
    #[serde(default)]
    confirmed: String,
    #[serde(default)]
    reason: String,
}

/// Asks whether dispatch is to be paused or resumed, and does so when that has been confirmed.
pub(crate) async fn act(State(_): State<Console>, visit: Visit, Form(order): Form<Order>) -> Response {
    match carry_out(&visit, &order).await {
        Ok(response) => response,
        Err(problem) => visit.respond(Ok(body(&visit, Some(problem)).await)),
    }
}

async fn carry_out(visit: &Visit, order: &Order) -> Result<Response, Problem> {
    let deed = deed(visit, order).await?;
    let given = (order.confirmed.as_str(), order.reason.as_str());
    confirm::settle(visit, Section::Now, &deed, given, |reason| carried_out(visit, order, reason)).await
}

async fn carried_out(visit: &Visit, order: &Order, reason: String) -> Result<Response, Problem> {
    let mut handler = visit.api.because(&reason).handler();
    if order.action == "pause" {
        handler.pause_dispatch(v1::PauseDispatchRequest { reason }).await?;
        return Ok(visit.after(&visit.link(""), "paused"));
    }
    handler.resume_dispatch(v1::ResumeDispatchRequest {}).await?;
    Ok(visit.after(&visit.link(""), "resumed"))
}

async fn deed(visit: &Visit, order: &Order) -> Result<Deed, Problem> {
    let pauses = match order.action.as_str() {
        "pause" => true,
        "resume" => false,
        other => return Err(Problem::invalid("action", other, "pause or resume")),
    };
    let now = visit.api.busy().await.ok();
    let numbers = html! {
        @if let Some(now) = &now {
            "In all namespaces " strong { (counted(now.waiting_count, "event")) " wait" } " and "
            (counted(now.held_count, "event")) " are in flight."
        } @else { "How much waits and is in flight cannot be said now." }
    };
    let effects = if pauses {
        vec![
            html! { strong { "Nothing starts any more, in no namespace" } ", until dispatch is resumed." },
            numbers,
            html! { "What is in flight ends as usual. Events whose " code { "finish_by" } " passes meanwhile expire." },
        ]
    } else {
        vec![html! { "What waits may start at once, as far as the policies let it." }, numbers]
    };
    Ok(Deed {
        question: if pauses { "Pause all dispatch?" } else { "Resume all dispatch?" }.to_owned(),
        effects,
        path: visit.link(""),
        fields: vec![("action".to_owned(), order.action.clone())],
        button: if pauses { "Pause everything" } else { "Resume everything" },
        is_dangerous: pauses,
    })
}

/// The piece of the page that changes. What a key may see is not for another key.
pub(crate) async fn latest(visit: &Visit) -> Reading {
    let of = format!("{} {}", visit.ns, visit.key_id());
    visit.console.feeds.latest(of, visit.now_us, async { Box::pin(live(visit)).await.into_string() }).await
}

/// The piece of the page that changes. What cannot be read is said in its place.
async fn live(visit: &Visit) -> Markup {
    let reaches_all = visit.reaches_all();
    let parent = visit.parent();
    let histories = futures::future::join(visit.history(&parent, HOUR), visit.history(&parent, DAY));
    let (handler, emitter, wrong, histories) = futures::future::join4(
        visit.api.handler_status(visit.parent()),
        // It is told to keys of all namespaces only.
        async { if reaches_all { visit.api.emitter_status().await } else { Ok(None) } },
        visit.api.troubles(visit.parent(), troubles::SHOWN_MAX),
        histories,
    )
    .await;
    let status = handler.as_ref().ok().filter(|_| reaches_all);
    let due = due(&visit.api, &visit.parent(), visit.now_us, status).await;
    html! {
        (troubles::troubles(visit.now_us, &visit.link(""), wrong.as_ref()))
        (warnings(handler.as_ref(), emitter.as_ref()))
        @if let Ok(handler) = &handler {
            (numbers(handler, due.as_ref().ok()))
        }
        (charts(visit, [(HOUR, &histories.0), (DAY, &histories.1)]))
        @if let Ok(handler) = &handler {
            (policies(visit, &handler.policies, wrong.as_ref().map_or(&[], |wrong| &wrong.troubles)))
            (targets(visit.now_us, handler, &visit.ns))
        }
        @match &due {
            Ok(due) => { (not_started(visit, due)) (running(visit, due)) }
            Err(problem) => {
                p.notice.bad { "What runs cannot be shown: " (problem.title) " " (problem.text()) }
            }
        }
        @if let Some(handler) = status {
            (internals(visit.now_us, handler, emitter.as_ref().ok().and_then(Option::as_ref)))
        }
    }
}

/// What is no trouble, or says more than its line among the troubles does.
fn warnings(
    handler: Result<&v1::HandlerStatus, &Problem>,
    emitter: Result<&Option<v1::EmitterStatus>, &Problem>,
) -> Markup {
    let no_rows = Vec::new();
    let found = handler.map(|handler| &handler.corrupt_rows).unwrap_or(&no_rows);
    let also = emitter.ok().and_then(Option::as_ref).map_or(&no_rows, |emitter| &emitter.corrupt_rows);
    let corrupt: Vec<&v1::CorruptRow> = found.iter().chain(also).collect();
    html! {
        div.warnings {
            @match handler {
                Ok(handler) => { (shards(handler)) }
                Err(problem) => {
                    p.notice.bad #w-handler { "The buckets cannot be shown: " (problem.title) " " (problem.text()) }
                }
            }
            @match emitter {
                Ok(_) => {}
                Err(problem) => {
                    p.notice.bad #w-emitter { "The emitter's state cannot be shown: " (problem.text()) }
                }
            }
            @if !corrupt.is_empty() {
                div.notice.bad #w-corrupt {
                    strong { (counted(corrupt.len() as u64, "corrupt row")) " passed over. " }
                    "What they describe stands still; everything else goes on."
                    ul {
                        @for row in corrupt.iter().take(CORRUPT_MAX) {
                            li {
                                code { (row.table) " " (row.key) }
                                @if let Some(shard) = row.shard { " in shard " (shard) }
                                ", column " code { (row.column) } ": " (row.message)
                            }
                        }
                        @if corrupt.len() > CORRUPT_MAX {
                            li { "and " (corrupt.len() - CORRUPT_MAX) " more; tollgate status lists them" }
                        }
                    }
                }
            }
        }
    }
}

/// Queue shards that are paused, whether something waits there or not.
fn shards(handler: &v1::HandlerStatus) -> Markup {
    let all = handler.shards.len();
    let paused = handler.shards.iter().filter(|shard| shard.paused).count();
    html! {
        @if paused > 0 {
            p.notice.warn #w-paused {
                strong { "Dispatch is paused" } " on " (paused) " of " (all) " queue shards: nothing starts there. "
                "Resume it at the foot of this page."
            }
        }
    }
}

/// The numbers of this namespace, with what runs without a policy as far as its runs were read.
fn numbers(handler: &v1::HandlerStatus, due: Option<&Due>) -> Markup {
    let own = || handler.policies.iter().filter(|gauge| !gauge.policy.is_empty());
    let per_second = |of: fn(&v1::PolicyGauge) -> f64| own().map(|gauge| of(gauge).max(0.0)).sum::<f64>();
    let sum = |of: fn(&v1::PolicyGauge) -> u64| own().map(of).sum::<u64>();
    let (suspect, late) = (sum(|gauge| gauge.suspect_count), sum(|gauge| gauge.at_risk_runs_count));
    let retrying = sum(|gauge| gauge.retrying_count);
    let refused = per_second(|gauge| gauge.refused_per_second + gauge.unclear_per_second);
    let (waiting, flight) = due.map_or((0, 0), |due| due.without_policy);
    let more = if due.is_some_and(|due| due.running_cut || due.waiting_cut) { "+" } else { "" };
    html! {
        dl.numbers {
            (number("Events waiting", html! { (count(sum(|gauge| gauge.waiting_count) + waiting)) (more) }, ""))
            (number("Windows at risk", html! { (count(late)) }, if late > 0 { "bad" } else { "" }))
            (number("Tokens suspect", html! { (count(suspect)) }, if suspect > 0 { "warn" } else { "" }))
            (number("In flight", html! { (count(sum(|gauge| gauge.held_count) + flight)) (more) }, ""))
            (number("Wait to be tried again", html! { (count(retrying)) }, if retrying > 0 { "warn" } else { "" }))
            (number("Started per second", html! { (rate(per_second(|gauge| gauge.started_per_second))) }, ""))
            @if refused > 0.0 { (number("Refused or unclear per second", html! { (rate(refused)) }, "bad")) }
        }
        @if waiting + flight > 0 {
            p.mute #without {
                "Of these, without a policy: " (counted(waiting, "event")) " waiting, " (count(flight)) " in flight"
                @if !more.is_empty() { ", and more: not all runs were read" }
                ". Attempts and rates are those under policies."
            }
        }
    }
}

/// What became of the namespace's events, small: the last hour and the last day.
fn charts(visit: &Visit, histories: [(Range, &Result<Arc<v1::ListHistoryResponse>, Problem>); 2]) -> Markup {
    html! {
        section #history aria-labelledby="h-history" {
            h2 #h-history { "What became of events" }
            @if histories.iter().all(|(_, history)| history.as_ref().is_ok_and(|history| is_quiet(history))) {
                p.mute { "Nothing was counted in the last 24 hours." }
            } @else { @for (range, history) in histories {
                @match history {
                    Ok(answer) => {
                        h3 { "The last " (range.words) ", " (by_step(range.step_us)) }
                        (History::new(answer, visit.now_us).drawn(&[&WAITING, &STARTED, &NOT_WELL], false, None))
                    }
                    Err(problem) => { (unknown(problem)) }
                }
            } }
            p { a href=(visit.link("history")) { "Longer times, more numbers, and all of it as a table" } }
        }
    }
}

/// For those who look for them: numbers of the whole installation.
fn internals(now_us: i64, handler: &v1::HandlerStatus, emitter: Option<&v1::EmitterStatus>) -> Markup {
    html! {
        details.action #internals {
            summary { "Internals of the whole installation" }
            dl.facts {
                dt { "Runs due and unfinished" } dd { (count(handler.launched_runs_count)) }
                dt { "Runs ahead, loaded" } dd { (count(handler.scheduled_runs_count)) }
                @if let Some(frontier) = emitter.and_then(|emitter| emitter.frontier_time.as_ref()) {
                    dt { "Emitted up to" } dd { (seen(now_us, us(frontier))) }
                }
                @if let Some(gauge) = handler.policies.iter().find(|gauge| gauge.policy.is_empty()) {
                    dt { "Without a policy, in all namespaces" }
                    dd #without-policy {
                        (counted(gauge.waiting_count, "event")) " waiting, " (count(gauge.held_count)) " in flight, "
                        (rate(gauge.started_per_second.max(0.0))) " started per second"
                    }
                }
                dt { "Queue shards" } dd { (count(handler.shards.len() as u64)) }
                dt { "Answered by" } dd { code { (handler.handler) } }
            }
        }
    }
}

fn running(visit: &Visit, due: &Due) -> Markup {
    html! {
        section aria-labelledby="h-running" {
            h2 #h-running { "Running" }
            @if due.running.is_empty() {
                (empty("Nothing runs at the moment.", html! {
                    a href=(visit.link("schedules")) { "Schedules" } " shows what fires next; "
                    a href=(visit.link("runs")) { "Runs" } " shows what has ended."
                }))
            } @else {
                @let (shown, more) = few_of_each(&due.running);
                (run_table(visit.now_us, shown.iter().take(RUNS_MAX).copied(), "h-running"))
                @if !more.is_empty() {
                    p.mute {
                        "And more of the same: "
                        @for (place, (schedule, runs)) in more.iter().enumerate() {
                            @if place > 0 { ", " }
                            a href={ (visit.link("runs")) "?state=RUNNING&schedule=" (encode(short(schedule))) } {
                                (counted(*runs, "run")) " of " (short(schedule))
                            }
                        }
                        "."
                    }
                }
                (cut(shown.len(), due.running_cut))
            }
        }
    }
}

/// The first runs of each schedule, and how many more there are of some.
fn few_of_each(runs: &[DueRun]) -> (Vec<&DueRun>, BTreeMap<&str, u64>) {
    let mut seen: BTreeMap<&str, usize> = BTreeMap::new();
    let (mut shown, mut more) = (Vec::new(), BTreeMap::new());
    for due_run in runs {
        let schedule = due_run.run.schedule.as_str();
        let of_it = seen.entry(schedule).or_default();
        *of_it += 1;
        if *of_it <= OF_ONE_MAX {
            shown.push(due_run);
        } else {
            *more.entry(schedule).or_default() += 1;
        }
    }
    (shown, more)
}

/// Runs with their progress.
pub(crate) fn run_table<'a>(now_us: i64, runs: impl Iterator<Item = &'a DueRun>, labelled: &str) -> Markup {
    html! {
        div.scroll role="group" aria-labelledby=(labelled) tabindex="0" {
            table.wide.cards {
                thead {
                    tr {
                        th scope="col" { "Schedule" }
                        th scope="col" { "Run, due" }
                        th.gauge-cell scope="col" { "Progress" }
                        th.n scope="col" { "Done / events" }
                        th.n scope="col" { "In flight" }
                        th.n scope="col" { "Waiting" }
                        th.n scope="col" { "Not well" }
                        th scope="col" { "Expected end" }
                        th scope="col" { "Finish by" }
                    }
                }
                tbody {
                    @for due_run in runs { (run_row(now_us, due_run)) }
                }
            }
        }
    }
}

fn run_row(now_us: i64, due_run: &DueRun) -> Markup {
    let run = &due_run.run;
    let counts = run.counts.unwrap_or_default();
    let bad: u64 = [counts.failed, counts.dead, counts.expired, counts.cancelled, counts.lost]
        .into_iter()
        .map(u64::from)
        .sum();
    let done = u64::from(counts.succeeded) + bad;
    html! {
        tr id={ "r-" (short(&run.name)) } {
            th scope="row" { a href=(to(&run.schedule)) { (short(&run.schedule)) } }
            td data-label="Due" { a href=(to(&run.name)) { (moment(now_us, run.launch_time.as_ref())) } }
            td.gauge-cell { (progress(run)) }
            td.n data-label="Done" { (count(done)) span.mute { " / " } (count(run.events)) }
            td.n data-label="In flight" { (count(run.in_flight_count)) }
            td.n data-label="Waiting" { (count(run.waiting_count)) }
            td.n.zero[bad == 0] data-label="Not well" { span class=(if bad > 0 { "bad" } else { "mute" }) { (count(bad)) } }
            td data-label="Expected end" {
                (brief(run.expected_finish_time.as_ref(), &run.no_expected_finish_reason, now_us))
            }
            td data-label=[due_run.deadline_us.map(|_| "Finish by")] { (deadline(now_us, due_run)) }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::parts::waiting::due_runs;

    #[test]
    fn one_schedule_does_not_fill_the_list() {
        let run = |schedule: &str| v1::Run { schedule: schedule.to_owned(), ..v1::Run::default() };
        let runs = due_runs(["a", "a", "b", "a", "a", "a"].map(run).into());
        let (shown, more) = few_of_each(&runs);
        let shown: Vec<&str> = shown.iter().map(|due_run| due_run.run.schedule.as_str()).collect();
        assert_eq!(shown, ["a", "a", "b", "a"]);
        assert_eq!(more, BTreeMap::from([("a", 2)]));
    }
}
