//! The list of runs, latest launch time first, a page at a time.

use axum::extract::Query;
use axum::response::Response;
use maud::{Markup, html};
use serde::Deserialize;
use tollgate_proto::v1;

use crate::now::progress;
use crate::problem::Problem;
use crate::shell::{Section, empty, pager};
use crate::show::{count, dated, encode, run_state, short, us};
use crate::visit::{Body, Visit, to};

/// So many are on a page.
const PAGE: i32 = 50;
const STATES: [(&str, &str); 7] = [
    ("", "all"),
    ("WAITING", "waiting"),
    ("RUNNING", "running"),
    ("FINISHED", "finished"),
    ("CANCELLED", "cancelled"),
    ("SKIPPED", "skipped"),
    ("EMITTED", "emitted"),
];

/// What the list is asked for.
#[derive(Clone, Debug, Default, Deserialize)]
pub(crate) struct Wanted {
    #[serde(default)]
    schedule: String,
    #[serde(default)]
    state: String,
    #[serde(default)]
    page: String,
}

impl Wanted {
    fn filter(&self) -> String {
        let terms = [("schedule", self.schedule.trim()), ("state", &self.state)];
        let terms = terms.into_iter().filter(|(_, value)| !value.is_empty());
        terms.map(|(key, value)| format!("{key}={value}")).collect::<Vec<_>>().join(" AND ")
    }

    fn at(&self, path: &str, page: &str) -> String {
        let schedule = encode(self.schedule.trim());
        format!("{path}?schedule={schedule}&state={}&page={}", encode(&self.state), encode(page))
    }
}

/// The page.
pub(crate) async fn page(visit: Visit, Query(wanted): Query<Wanted>) -> Response {
    let path = visit.link("runs");
    let list = visit.api.runs(visit.parent(), &wanted.filter(), PAGE, &wanted.page).await;
    let (list, problem): (Option<v1::ListRunsResponse>, Option<Problem>) = match list {
        Ok(list) => (Some(list), None),
        Err(problem) => (None, Some(problem)),
    };
    let content = html! {
        h1 { "Runs" }
        (filters(&path, &wanted))
        @if let Some(list) = &list {
            @if list.runs.is_empty() {
                @if wanted.filter().is_empty() {
                    (empty("Nothing has run yet.", html! {
                        "A schedule makes a run each time it fires; " code { "tollgate trigger NAME" }
                        " makes one now."
                    }))
                } @else {
                    (empty("No run fits this.", html! { a href=(path) { "Show all runs" } }))
                }
            } @else {
                (table(&visit, &list.runs))
                @let next = &list.next_page_token;
                (pager(
                    (!next.is_empty()).then(|| wanted.at(&path, next)),
                    (!wanted.page.is_empty()).then(|| wanted.at(&path, "")),
                ))
            }
        }
    };
    visit.respond(Ok(Body { problem, ..Body::new("Runs", Section::Runs, content) }))
}

fn filters(path: &str, wanted: &Wanted) -> Markup {
    html! {
        form.filters method="get" action=(path) {
            div {
                label for="schedule" { "Schedule" }
                input #schedule name="schedule" value=(wanted.schedule) placeholder="id" autocomplete="off"
                    spellcheck="false";
            }
            div {
                label for="state" { "State" }
                select #state name="state" {
                    @for (value, name) in STATES { option value=(value) selected[wanted.state == value] { (name) } }
                }
            }
            button type="submit" { "Show" }
            @if !wanted.filter().is_empty() { a href=(path) { "Show all" } }
        }
    }
}

fn table(visit: &Visit, runs: &[v1::Run]) -> Markup {
    html! {
        div.scroll role="group" aria-label="Runs" tabindex="0" {
            table.wide {
                thead {
                    tr {
                        th scope="col" { "Due" }
                        th scope="col" { "Schedule" }
                        th scope="col" { "State" }
                        th.opt scope="col" { "Made by" }
                        th.gauge-cell scope="col" { "Progress" }
                        th.n scope="col" { "Events" }
                        th.n.opt scope="col" { "Well" }
                        th.n.opt scope="col" { "Not well" }
                    }
                }
                tbody {
                    @for run in runs {
                        @let counts = run.counts.unwrap_or_default();
                        @let bad = counts.failed + counts.dead + counts.expired + counts.cancelled + counts.lost;
                        @let ahead = run.launch_time.as_ref().is_some_and(|launch| us(launch) > visit.now_us);
                        tr.ahead[ahead] {
                            th scope="row" { a href=(to(&run.name)) { (dated(visit.now_us, run.launch_time.as_ref())) } }
                            td { a href=(to(&run.schedule)) { (short(&run.schedule)) } }
                            td {
                                @if ahead { span.mute { "ahead" } } @else { (run_state(run.state())) }
                                @if !run.reason.is_empty() { " " span.mute { (run.reason) } }
                            }
                            td.opt { (kind(run.kind())) }
                            td.gauge-cell { (progress(run)) }
                            td.n { (count(run.events)) }
                            td.n.opt { (count(counts.succeeded)) }
                            td.n.opt { span class=(if bad > 0 { "bad" } else { "mute" }) { (count(bad)) } }
                        }
                    }
                }
            }
        }
    }
}

/// What made a run.
pub(crate) fn kind(kind: v1::RunKind) -> &'static str {
    match kind {
        v1::RunKind::Scheduled => "its schedule",
        v1::RunKind::Manual => "hand",
        v1::RunKind::Backfill => "backfill",
        v1::RunKind::Unspecified => "",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_filter_is_the_apis() {
        let wanted =
            Wanted { schedule: " nightly ".to_owned(), state: "RUNNING".to_owned(), page: String::new() };
        assert_eq!(wanted.filter(), "schedule=nightly AND state=RUNNING");
        assert_eq!(wanted.at("/r", "a/b"), "/r?schedule=nightly&state=RUNNING&page=a%2Fb");
    }
}
