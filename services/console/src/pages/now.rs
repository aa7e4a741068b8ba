//! What happens now: the buckets, the runs that go on, those that are due and have not started, and what needs attention.

use std::sync::Arc;

use axum::extract::{Form, State};
use axum::response::Response;
use maud::{Markup, PreEscaped, html};
use serde::Deserialize;
use tollgate_proto::v1;

use crate::parts::picture::{gauge, progress};
use crate::parts::shell::{Body, Section, empty};
use crate::parts::troubles;
use crate::parts::waiting::{Due, DueRun, WAITING_READ_MAX, due};
use crate::requests::console::Console;
use crate::requests::links::to;
use crate::requests::problem::Problem;
use crate::requests::visit::Visit;
use crate::words::show::{count, counted, duration, moment, rate, run_state, seen, short, tag, us};

/// How many policies are shown; the list of policies has them all.
const GAUGES_MAX: usize = 60;
/// How many runs of each kind are shown.
const RUNS_MAX: usize = 25;
/// How many corrupt rows are shown.
const CORRUPT_MAX: usize = 10;

/// The page.
pub(crate) async fn page(visit: Visit) -> Response {
    let body = body(&visit, None).await;
    visit.respond(Ok(body))
}

async fn body(visit: &Visit, problem: Option<Problem>) -> Body {
    let live = latest(visit).await;
    let content = html! {
        h1 { "Now" }
        div #live data-stream=(visit.link("live")) { (PreEscaped(&*live)) }
        details.action #dispatch {
            summary { "Stop or restart everything" }
            p {
                "While dispatch is paused nothing starts, in no namespace. Consumers go on with what they have, and \
                 their releases are taken."
            }
            form method="post" action=(visit.link("")) {
                label for="reason" { "Reason, for the next operator" }
                input #reason name="reason" maxlength="1000" autocomplete="off";
                button type="submit" name="action" value="pause" .danger { "Pause all dispatch" }
                button type="submit" name="action" value="resume" { "Resume dispatch" }
            }
        }
    };
    Body { problem, ..Body::new("Now", Section::Now, content) }
}

/// What a form of this page says.
#[derive(Deserialize)]
pub(crate) struct Order {
    action: String,
    #[serde(default)]
    reason: String,
}

/// Pauses or resumes dispatch.
pub(crate) async fn act(State(_): State<Console>, visit: Visit, Form(order): Form<Order>) -> Response {
    let mut handler = visit.api.handler();
    let (answer, done) = match order.action.as_str() {
        "pause" => {
            (handler.pause_dispatch(v1::PauseDispatchRequest { reason: order.reason }).await, "paused")
        }
        "resume" => (handler.resume_dispatch(v1::ResumeDispatchRequest {}).await, "resumed"),
        other => {
            let problem = Problem::invalid("action", other, "pause or resume");
            return visit.respond(Ok(body(&visit, Some(problem)).await));
        }
    };
    match answer {
        Ok(_) => visit.after(&visit.link(""), done),
        Err(status) => visit.respond(Ok(body(&visit, Some(status.into())).await)),
    }
}

/// The piece of the page that changes. What a key may see is not for another key.
pub(crate) async fn latest(visit: &Visit) -> Arc<str> {
    let of = format!("{} {}", visit.ns, visit.key_id());
    visit.console.feeds.latest(of, async { live(visit).await.into_string() }).await
}

/// The piece of the page that changes. What cannot be read is said in its place.
async fn live(visit: &Visit) -> Markup {
    let (handler, emitter, wrong) = futures::future::join3(
        visit.api.handler_status(visit.parent()),
        visit.api.emitter_status(),
        visit.api.troubles(visit.parent(), troubles::SHOWN_MAX),
    )
    .await;
    if let Ok(handler) = &handler {
        visit.console.histories.note(visit.now_us, &handler.policies);
    }
    let due = due(&visit.api, &visit.parent(), visit.now_us, handler.as_ref().ok()).await;
    html! {
        (troubles::troubles(visit.now_us, wrong.as_ref()))
        (warnings(handler.as_ref(), emitter.as_ref()))
        @if let (Ok(handler), Ok(due)) = (&handler, &due) {
            (numbers(visit.now_us, handler, emitter.as_ref().ok().and_then(Option::as_ref), due))
        }
        @if let Ok(handler) = &handler { (policies(visit, &handler.policies, due.as_ref().ok())) }
        @match &due {
            Ok(due) => { (running(visit, due)) (not_started(visit, due)) }
            Err(problem) => {
                p.notice.bad { "What runs cannot be shown: " (problem.title) " " (problem.text()) }
            }
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

fn numbers(
    now_us: i64,
    handler: &v1::HandlerStatus,
    emitter: Option<&v1::EmitterStatus>,
    due: &Due,
) -> Markup {
    let started: f64 = handler.policies.iter().map(|gauge| gauge.started_per_second).sum();
    let late = due.running.iter().chain(&due.waiting).filter(|due_run| due_run.at_risk).count();
    let part = |label: &str, value: String, class: &str| {
        html! { div class=(class) { dt { (label) } dd { (value) } } }
    };
    html! {
        dl.numbers {
            (part("Tokens held", count(handler.held_count), ""))
            (part("Events waiting", count(handler.waiting_count), ""))
            (part("Started per second", rate(started), ""))
            (part("Tokens suspect", count(handler.suspect_count), if handler.suspect_count > 0 { "warn" } else { "" }))
            (part("Windows at risk", count(late as u64), if late > 0 { "bad" } else { "" }))
            (part("Runs unfinished", count(handler.launched_runs_count), ""))
            (part("Runs ahead, loaded", count(handler.scheduled_runs_count), ""))
            @if let Some(emitter) = emitter {
                (part(
                    "Emitted up to",
                    emitter.frontier_time.as_ref().map(|at| seen(now_us, us(at))).unwrap_or_default(),
                    "",
                ))
            }
        }
    }
}

fn policies(visit: &Visit, gauges: &[v1::PolicyGauge], due: Option<&Due>) -> Markup {
    let shown = most_telling(gauges);
    let risks = |policy: &str| {
        let runs = due.into_iter().flat_map(|due| due.running.iter().chain(&due.waiting));
        runs.filter(|due_run| due_run.at_risk && due_run.run.policy == policy).count()
    };
    html! {
        section aria-labelledby="h-policies" {
            h2 #h-policies { "Policies" }
            @if shown.is_empty() {
                (empty("No policies yet, so nothing limits what is in flight.", html! {
                    "A file with a policy and a schedule, and " code { "tollgate apply -f FILE" } ", makes them."
                }))
            } @else {
                div.scroll role="group" aria-labelledby="h-policies" tabindex="0" {
                    table.wide {
                        thead {
                            tr {
                                th scope="col" { "Policy" }
                                th.gauge-cell scope="col" { "In flight" }
                                th.n scope="col" { "Held / limit" }
                                th.n scope="col" { "Waiting" }
                                th.n.opt scope="col" { "Oldest wait" }
                                th.n.opt scope="col" { "Started/s" }
                                th.n.opt scope="col" { "Rate limit/s" }
                                th.n.opt scope="col" { "Suspect" }
                                th.n.opt scope="col" { "At risk" }
                            }
                        }
                        tbody {
                            @for gauge in &shown { (policy_row(gauge, risks(&gauge.policy))) }
                        }
                    }
                }
                @if gauges.len() > shown.len() {
                    p.mute {
                        "The " (shown.len()) " with the most to tell of " (count(gauges.len() as u64)) ". "
                        a href=(visit.link("policies")) { "All policies" }
                    }
                }
            }
        }
    }
}

fn policy_row(shown: &v1::PolicyGauge, at_risk: usize) -> Markup {
    let quiet = |n: u64, class: &'static str| if n > 0 { class } else { "mute" };
    html! {
        tr id={ "p-" (short(&shown.policy)) } {
            th scope="row" {
                @if shown.policy.is_empty() {
                    span.mute { "without a policy" }
                } @else {
                    a href=(to(&shown.policy)) { (short(&shown.policy)) }
                }
                @if shown.paused { " " (tag("paused", "warn")) }
            }
            td.gauge-cell {
                @if shown.max_in_flight.is_some() {
                    (gauge(shown.held_count, shown.suspect_count, shown.max_in_flight))
                }
            }
            td.n {
                (count(shown.held_count))
                @match shown.max_in_flight {
                    Some(limit) => { span.mute { " / " } (count(limit)) }
                    None => { span.mute { " / no limit" } }
                }
            }
            td.n { span class=(quiet(shown.waiting_count, "")) { (count(shown.waiting_count)) } }
            td.n.opt { @if shown.waiting_count > 0 { (duration(shown.oldest_wait.as_ref())) } }
            td.n.opt { (rate(shown.started_per_second)) }
            td.n.opt { @if let Some(limit) = shown.rate_per_second { (rate(limit)) } }
            td.n.opt { span class=(quiet(shown.suspect_count, "warn")) { (count(shown.suspect_count)) } }
            td.n.opt { span class=(quiet(at_risk as u64, "bad")) { (at_risk) } }
        }
    }
}

/// Those where something happens come first when there are too many; their order stays that of their names.
fn most_telling(gauges: &[v1::PolicyGauge]) -> Vec<&v1::PolicyGauge> {
    let mut all: Vec<(usize, &v1::PolicyGauge)> = gauges.iter().enumerate().collect();
    if all.len() > GAUGES_MAX {
        all.sort_by_key(|(_, gauge)| {
            let weight = (gauge.paused, gauge.suspect_count, gauge.waiting_count, gauge.held_count);
            std::cmp::Reverse(weight)
        });
        all.truncate(GAUGES_MAX);
        all.sort_by_key(|(place, _)| *place);
    }
    all.into_iter().map(|(_, gauge)| gauge).collect()
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
                (run_table(visit.now_us, due.running.iter().take(RUNS_MAX), "h-running"))
                (cut(due.running.len(), due.running_cut))
            }
        }
    }
}

/// Runs with their progress.
pub(crate) fn run_table<'a>(now_us: i64, runs: impl Iterator<Item = &'a DueRun>, labelled: &str) -> Markup {
    html! {
        div.scroll role="group" aria-labelledby=(labelled) tabindex="0" {
            table.wide {
                thead {
                    tr {
                        th scope="col" { "Schedule" }
                        th scope="col" { "Run, due" }
                        th.gauge-cell scope="col" { "Progress" }
                        th.n scope="col" { "Done / events" }
                        th.n.opt scope="col" { "In flight" }
                        th.n.opt scope="col" { "Waiting" }
                        th.n.opt scope="col" { "Not well" }
                        th.opt scope="col" { "Finish by" }
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
            td { a href=(to(&run.name)) { (moment(now_us, run.launch_time.as_ref())) } }
            td.gauge-cell { (progress(run)) }
            td.n { (count(done)) span.mute { " / " } (count(run.events)) }
            td.n.opt { (count(run.in_flight_count)) }
            td.n.opt { (count(run.waiting_count)) }
            td.n.opt { span class=(if bad > 0 { "bad" } else { "mute" }) { (count(bad)) } }
            td.opt { (deadline(now_us, due_run)) }
        }
    }
}

fn deadline(now_us: i64, due_run: &DueRun) -> Markup {
    html! {
        @if let Some(end_us) = due_run.deadline_us {
            (seen(now_us, end_us))
            @if due_run.at_risk { " " (tag("at risk", "bad")) }
        }
    }
}

fn not_started(visit: &Visit, due: &Due) -> Markup {
    html! {
        section aria-labelledby="h-waiting" {
            h2 #h-waiting { "Due, not started" }
            @if due.waiting.is_empty() {
                @if due.waiting_cut {
                    p.mute { "None among the " (count(WAITING_READ_MAX.unsigned_abs())) " runs with the latest launch times; there are more." }
                } @else {
                    p.mute { "Nothing: all that is due has started." }
                }
            } @else {
                (waiting_table(visit.now_us, &due.waiting))
                (cut(due.waiting.len(), due.waiting_cut))
            }
        }
    }
}

fn waiting_table(now_us: i64, runs: &[DueRun]) -> Markup {
    html! {
        div.scroll role="group" aria-labelledby="h-waiting" tabindex="0" {
            table.wide {
                thead {
                    tr {
                        th scope="col" { "Schedule" }
                        th scope="col" { "Run, due" }
                        th.n scope="col" { "Events" }
                        th scope="col" { "Why it waits" }
                        th.opt scope="col" { "Finish by" }
                    }
                }
                tbody {
                    @for due_run in runs.iter().take(RUNS_MAX) {
                        tr id={ "r-" (short(&due_run.run.name)) } {
                            th scope="row" { a href=(to(&due_run.run.schedule)) { (short(&due_run.run.schedule)) } }
                            td { a href=(to(&due_run.run.name)) { (moment(now_us, due_run.run.launch_time.as_ref())) } }
                            td.n { (count(u64::from(due_run.run.events) + due_run.behind.1)) }
                            td.text {
                                (reason(due_run))
                                @if due_run.behind.0 > 0 {
                                    " " span.mute { "and " (counted(due_run.behind.0 as u64, "later run")) " of it" }
                                }
                            }
                            td.opt { (deadline(now_us, due_run)) }
                        }
                    }
                }
            }
        }
    }
}

/// Why a run's next event waits.
pub(crate) fn reason(due_run: &DueRun) -> Markup {
    html! {
        @match &due_run.why {
            Some(why) => { a href=(why.event.as_ref().map(|event| to(&event.name)).unwrap_or_default()) { (why.summary) } }
            None => { (run_state(due_run.run.state())) }
        }
    }
}

fn cut(read: usize, more: bool) -> Markup {
    html! {
        @if read > RUNS_MAX {
            p.mute { "The " (RUNS_MAX) " that have been due longest of " (read) @if more { " that were read; there are more" } "." }
        } @else if more {
            p.mute { "There are more: only those with the latest launch times were read." }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_many_policies_the_telling_ones_are_shown_by_name() {
        let gauges: Vec<v1::PolicyGauge> = (0..200)
            .map(|n| v1::PolicyGauge {
                policy: format!("namespaces/a/policies/p{n:03}"),
                waiting_count: u64::from(n == 150),
                paused: n == 199,
                ..v1::PolicyGauge::default()
            })
            .collect();
        let shown = most_telling(&gauges);
        assert_eq!(shown.len(), GAUGES_MAX);
        let names: Vec<&str> = shown.iter().map(|gauge| short(&gauge.policy)).collect();
        assert!(names.contains(&"p150") && names.contains(&"p199"), "{names:?}");
        assert!(names.is_sorted());
        assert_eq!(most_telling(&gauges[..3]).len(), 3);
    }
}
