//! One run: how far it is, when what happened, and its events.

use axum::extract::{Path, Query};
use axum::response::Response;
use maud::{Markup, html};
use serde::Deserialize;
use tollgate_proto::v1;

use crate::parts::confirm::ask;
use crate::parts::failures::{self, failures};
use crate::parts::flow::finished;
use crate::parts::meanwhile;
use crate::parts::picture::progress;
use crate::parts::shell::{Body, Section, pager};
use crate::parts::timeline::{TimelineStep, timeline};
use crate::parts::waiting::why;
use crate::requests::links::to;
use crate::requests::problem::Problem;
use crate::requests::visit::Visit;
use crate::words::show::{
    clipped, count, counted, encode, event_state, made_by, moment, quoted, run_state, short, us,
};

/// How many events a page shows.
const PAGE: i32 = 50;
const STATES: [(&str, &str); 11] = [
    ("", "all"),
    ("WAITING", "waiting"),
    ("ACQUIRED", "acquired"),
    ("HELD", "held"),
    ("RETRYING", "retrying"),
    ("SUCCEEDED", "succeeded"),
    ("FAILED", "failed"),
    ("DEAD", "dead"),
    ("EXPIRED", "expired"),
    ("CANCELLED", "cancelled"),
    ("LOST", "lost"),
];

/// The run's id in a path.
#[derive(Deserialize)]
pub(crate) struct Id {
    id: String,
}

/// Which of its events.
#[derive(Clone, Debug, Default, Deserialize)]
pub(crate) struct Wanted {
    #[serde(default)]
    state: String,
    /// Of its item, or of its schedule.
    #[serde(default)]
    key: String,
    #[serde(default)]
    page: String,
}

impl Wanted {
    fn is_all(&self) -> bool {
        self.state.is_empty() && self.key.is_empty()
    }

    /// In the API's words.
    fn filter(&self) -> String {
        let terms = [("state", self.state.clone()), ("key", quoted(&self.key))];
        let given = terms.iter().filter(|(_, value)| !value.is_empty());
        given.map(|(key, value)| format!("{key}={value}")).collect::<Vec<_>>().join(" AND ")
    }
}

/// The page.
pub(crate) async fn page(visit: Visit, Path(Id { id }): Path<Id>, Query(wanted): Query<Wanted>) -> Response {
    let body = body(&visit, &visit.full("runs", &id), &wanted, None).await;
    visit.respond(body)
}

/// The run, with what went wrong before.
pub(crate) async fn body(
    visit: &Visit,
    name: &str,
    wanted: &Wanted,
    problem: Option<Problem>,
) -> Result<Body, Problem> {
    let mut handler = visit.api.handler();
    let (run, events) = futures::future::join(
        handler.get_run(v1::GetRunRequest { name: name.to_owned() }),
        visit.api.events(name, &wanted.filter(), PAGE, &wanted.page),
    )
    .await;
    let run = run?.into_inner();
    let (events, refused) = match events {
        Ok(events) => (events, None),
        Err(problem) => (v1::ListEventsResponse::default(), Some(problem)),
    };
    let waits = async { if run.waiting_count > 0 { why(&visit.api, &run).await } else { None } };
    let (waits, failed, meanwhile) =
        futures::future::join3(waits, failures(&visit.api, &run), meanwhile::read(visit, &run)).await;
    let at = |page: &str| {
        let (state, key) = (encode(&wanted.state), encode(&wanted.key));
        format!("{}?state={state}&key={key}&page={}", to(name), encode(page))
    };
    let next = (!events.next_page_token.is_empty()).then(|| at(&events.next_page_token));
    let open = run.finish_time.is_none() && run.state() != v1::RunState::Skipped;
    let content = html! {
        p.crumb {
            a href=(visit.link("runs")) { "Runs" } " of " a href=(to(&run.schedule)) { (short(&run.schedule)) }
        }
        h1 { "Run due " (moment(visit.now_us, run.launch_time.as_ref())) " " (run_state(&run)) }
        p.id { code { (short(name)) } }
        @if let Some(before) = &run.predecessor { (follows(before)) }
        div #live data-refresh=[open.then_some("5")] {
            @if !run.reason.is_empty() { p.notice.warn { (run.reason) } }
            @if run.state() == v1::RunState::Listing && run.reason.is_empty() {
                p.notice { "Its items are fetched before it falls due. How many events it has is not known until then." }
            }
            div.big-gauge { (progress(&run)) }
            (numbers(&run))
            (end(visit.now_us, &run))
            (actions(&run, open))
            (failures::table(visit.now_us, &run, &failed))
            @if let Some(why) = &waits { (waiting(why)) }
            (timeline(visit.now_us, &steps(&run)))
            @if let Some(meanwhile) = &meanwhile { (meanwhile::of_run(visit, &run, meanwhile)) }
            section aria-labelledby="h-events" {
                h2 #h-events { "Events" }
                (list_head(&to(name), wanted))
                (table(visit, &events.events, wanted))
            }
        }
        (pager(next, (!wanted.page.is_empty()).then(|| at(""))))
        (facts(&run))
    };
    let problem = problem.or(refused);
    Ok(Body { problem, ..Body::new(format!("Run of {}", short(&run.schedule)), Section::Runs, content) })
}

/// Of which run it is the next step.
fn follows(before: &v1::Predecessor) -> Markup {
    let counts = before.counts.unwrap_or_default();
    let badly = counts.failed + counts.dead + counts.expired + counts.lost;
    html! {
        p.lead #predecessor {
            "Step " (before.place + 1) " of a chain: it follows the "
            a href=(to(&before.run)) { "run of " (short(&before.schedule)) }
            ", of which " (counted(counts.succeeded, "event")) " ended well and " (count(badly)) " badly."
        }
    }
}

/// When it will have ended, and what it will miss.
fn end(now_us: i64, run: &v1::Run) -> Markup {
    html! {
        @if let Some(end) = finished(now_us, run) {
            p.lead #expected { "Its last event will have ended: " strong { (end) } "." }
        }
        @if run.at_risk_count > 0 {
            p.notice.bad {
                strong { (counted(run.at_risk_count, "event")) } " will not have started within " code { "finish_by" } ", as things stand."
            }
        }
    }
}

fn waiting(why: &v1::Explanation) -> Markup {
    let event = why.event.as_ref().map(|event| to(&event.name)).unwrap_or_default();
    html! {
        section aria-labelledby="h-why" {
            h2 #h-why { "Why its next event waits" }
            p.lead { a href=(event) { (why.summary) } }
            @if !why.freed_by.is_empty() { p { strong { "What would let it go on: " } (why.freed_by) } }
        }
    }
}

fn numbers(run: &v1::Run) -> Markup {
    let counts = run.counts.unwrap_or_default();
    let parts = [
        (run.events, "Events", "", true),
        (run.waiting_count, "Waiting", "", true),
        (run.in_flight_count, "In flight", "", true),
        (counts.succeeded, "Succeeded", "", true),
        (counts.failed, "Failed", "bad", false),
        (counts.dead, "Dead", "bad", false),
        (counts.expired, "Expired", "warn", false),
        (counts.cancelled, "Cancelled", "warn", false),
        (counts.lost, "Lost", "bad", false),
    ];
    html! {
        dl.numbers {
            @for (n, label, class, always) in parts {
                @if always || n > 0 { div class=(class) { dt { (label) } dd { (count(n)) } } }
            }
        }
    }
}

fn steps(run: &v1::Run) -> Vec<TimelineStep> {
    let at = |label: &'static str, time: &Option<prost_types::Timestamp>| {
        time.as_ref().map(|time| TimelineStep { label, at_us: us(time), note: String::new() })
    };
    let mut steps: Vec<TimelineStep> = [
        at("emitted", &run.emit_time),
        at("due", &run.launch_time),
        at("first event started", &run.start_time),
        at("last event ended", &run.finish_time),
    ]
    .into_iter()
    .flatten()
    .collect();
    steps.sort_by_key(|step| step.at_us);
    steps
}

fn facts(run: &v1::Run) -> Markup {
    html! {
        details.action {
            summary { "Settings and internals" }
            dl.facts {
            dt { "Made by" } dd { (made_by(run.kind())) }
            dt { "Policy" }
            dd {
                @if run.policy.is_empty() { "none" } @else { a href=(to(&run.policy)) { (short(&run.policy)) } }
            }
            dt { "Priority" } dd { (run.priority) }
            @if !run.cursor_in.is_empty() { dt { "Cursor in" } dd { code { (run.cursor_in) } } }
            @if !run.cursor_out.is_empty() { dt { "Cursor out" } dd { code { (run.cursor_out) } } }
            dt { "Queue shard" } dd { (run.shard) }
            }
        }
    }
}

fn table(visit: &Visit, events: &[v1::Event], wanted: &Wanted) -> Markup {
    let has_keys = events.iter().any(|event| !event.key.is_empty());
    let has_units = events.iter().any(|event| event.units > 1);
    html! {
        @if events.is_empty() {
            p.mute { @if wanted.is_all() { "None." } @else { "None of these, on this page." } }
        } @else {
            div.scroll role="group" aria-labelledby="h-events" tabindex="0" {
                table.wide {
                    thead {
                        tr {
                            th.n scope="col" { "Index" }
                            th scope="col" { "Event" }
                            @if has_keys { th scope="col" { "Key" } }
                            @if has_units { th.n scope="col" { "Tokens" } }
                            th scope="col" { "State" }
                            th.n scope="col" { "Attempt" }
                            th.opt scope="col" { "Token acquired" }
                            th.opt scope="col" { "Delivered" }
                            th scope="col" { "Ended" }
                            th.opt scope="col" { "Message" }
                        }
                    }
                    tbody {
                        @for event in events {
                            tr {
                                td.n { (event.index) }
                                th.id scope="row" { a href=(to(&event.name)) title=(event.event_id) { (clipped(&event.event_id)) } }
                                @if has_keys { td { (event.key) } }
                                @if has_units { td.n { (event.units) } }
                                td { (event_state(event.state())) }
                                td.n { (event.attempt) }
                                td.opt { (moment(visit.now_us, event.acquire_time.as_ref())) }
                                td.opt { (moment(visit.now_us, event.deliver_time.as_ref())) }
                                td { (moment(visit.now_us, event.finish_time.as_ref())) }
                                td.opt.text { (event.message) }
                            }
                        }
                    }
                }
            }
        }
    }
}

fn list_head(path: &str, wanted: &Wanted) -> Markup {
    html! {
        form.filters method="get" action=(path) {
            div {
                label for="state" { "Events in state" }
                select #state name="state" {
                    @for (value, name) in STATES { option value=(value) selected[wanted.state == value] { (name) } }
                }
            }
            div {
                label for="key" { "With the key" }
                input #key name="key" value=(wanted.key) maxlength="128" autocomplete="off";
            }
            button type="submit" { "Show" }
            @if !wanted.is_all() { a href=(path) { "Show all" } }
        }
    }
}

/// What can be done, before what it would be done to.
fn actions(run: &v1::Run, open: bool) -> Markup {
    let dead = run.counts.unwrap_or_default().dead;
    let path = to(&run.name);
    html! {
        @if open || dead > 0 {
            div.row {
                @if dead > 0 { (ask(&path, "retry", &format!("Try {} again", counted(dead, "dead event")), false)) }
                @if open { (ask(&path, "cancel", "Cancel what has not started", true)) }
            }
        }
    }
}
