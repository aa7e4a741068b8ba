//! The list of runs by launch time, from either end, a page at a time.

use axum::extract::Query;
use axum::response::Response;
use maud::{Markup, html};
use serde::Deserialize;
use tollgate_proto::v1;

use crate::parts::flow::brief;
use crate::parts::picture::progress;
use crate::parts::shell::{Body, Section, empty, pager};
use crate::requests::links::to;
use crate::requests::problem::Problem;
use crate::requests::visit::Visit;
use crate::words::show::{count, dated, encode, exact, made_by, run_state, short, us};

/// How many runs a page shows.
const PAGE: i32 = 50;
const STATES: [(&str, &str); 10] = [
    ("", "all"),
    ("WAITING", "waiting"),
    ("RUNNING", "running"),
    ("FINISHED", "finished"),
    ("FINISHED_WITH_FAILURES", "finished with failures"),
    ("CANCELLED", "cancelled"),
    ("SKIPPED", "skipped"),
    ("EMITTED", "emitted"),
    ("LISTING", "waiting for its items"),
    ("UNREADABLE", "unreadable"),
];

/// What the list is asked for.
#[derive(Clone, Debug, Default, Deserialize)]
pub(crate) struct Wanted {
    #[serde(default)]
    schedule: String,
    #[serde(default)]
    policy: String,
    #[serde(default)]
    state: String,
    /// `all`, `ahead`, or nothing for runs that are due.
    #[serde(default)]
    when: String,
    /// `launch_time`, or nothing for the latest first.
    #[serde(default)]
    order: String,
    /// Now, as it was when the first page was made, in microseconds since the epoch.
    #[serde(default)]
    at: Option<i64>,
    #[serde(default)]
    page: String,
}

impl Wanted {
    /// The filter in the API's words.
    fn filter(&self, now_us: i64) -> String {
        let at = exact(self.at.unwrap_or(now_us));
        let (due, ahead) = match self.when.as_str() {
            "all" => ("", ""),
            "ahead" => ("", at.as_str()),
            _ => (at.as_str(), ""),
        };
        let terms = [
            ("schedule", self.schedule.trim()),
            ("policy", self.policy.trim()),
            ("state", &self.state),
            ("launch_time<", due),
            ("launch_time>", ahead),
        ];
        let terms = terms.into_iter().filter(|(_, value)| !value.is_empty());
        terms.map(|(key, value)| format!("{key}={value}")).collect::<Vec<_>>().join(" AND ")
    }

    /// Whether it is not what the page shows by itself.
    fn narrows(&self) -> bool {
        !(self.schedule.trim().is_empty()
            && self.policy.trim().is_empty()
            && self.state.is_empty()
            && self.when.is_empty())
    }

    fn link(&self, path: &str, now_us: i64, page: &str) -> String {
        let (schedule, policy) = (encode(self.schedule.trim()), encode(self.policy.trim()));
        let (state, when, order) = (encode(&self.state), encode(&self.when), encode(&self.order));
        let first =
            format!("{path}?schedule={schedule}&policy={policy}&state={state}&when={when}&order={order}");
        // A page goes on from the same moment as the one before it.
        let at = self.at.unwrap_or(now_us);
        if page.is_empty() { first } else { format!("{first}&at={at}&page={}", encode(page)) }
    }
}

/// The page.
pub(crate) async fn page(visit: Visit, Query(wanted): Query<Wanted>) -> Response {
    let path = visit.link("runs");
    let filter = wanted.filter(visit.now_us);
    let list = visit.api.runs_by(visit.parent(), &filter, &wanted.order, PAGE, &wanted.page).await;
    let (list, problem): (Option<v1::ListRunsResponse>, Option<Problem>) = match list {
        Ok(list) => (Some(list), None),
        Err(problem) => (None, Some(problem)),
    };
    let content = html! {
        h1 { "Runs" }
        (filters(&path, &wanted))
        // A page that goes on from a moment that has passed stands still.
        div #live data-refresh=[wanted.page.is_empty().then_some("5")] { @if let Some(list) = &list {
            @if list.runs.is_empty() {
                @if !wanted.narrows() {
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
                    (!next.is_empty()).then(|| wanted.link(&path, visit.now_us, next)),
                    (!wanted.page.is_empty()).then(|| wanted.link(&path, visit.now_us, "")),
                ))
            }
        } }
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
                label for="policy" { "Policy" }
                input #policy name="policy" value=(wanted.policy) placeholder="id" autocomplete="off"
                    spellcheck="false";
            }
            div {
                label for="state" { "State" }
                select #state name="state" {
                    @for (value, name) in STATES { option value=(value) selected[wanted.state == value] { (name) } }
                }
            }
            div {
                label for="when" { "When" }
                select #when name="when" {
                    @for (value, name) in [("", "due"), ("ahead", "emitted ahead"), ("all", "all")] {
                        option value=(value) selected[wanted.when == value] { (name) }
                    }
                }
            }
            div {
                label for="order" { "Order" }
                select #order name="order" {
                    @for (value, name) in [("", "latest first"), ("launch_time", "earliest first")] {
                        option value=(value) selected[wanted.order == value] { (name) }
                    }
                }
            }
            button type="submit" { "Show" }
            @if wanted.narrows() { a href=(path) { "Show all" } }
        }
    }
}

fn table(visit: &Visit, runs: &[v1::Run]) -> Markup {
    html! {
        div.scroll role="group" aria-label="Runs" tabindex="0" {
            table.wide.cards.runs {
                thead {
                    tr {
                        th scope="col" { "Due" }
                        th scope="col" { "Schedule" }
                        th scope="col" { "State" }
                        th.gauge-cell scope="col" { "Progress" }
                        th.n scope="col" { "Events" }
                        th.n scope="col" { "Well" }
                        th.n scope="col" { "Not well" }
                        th scope="col" { "Expected end" }
                        th scope="col" { "Why, and made by" }
                    }
                }
                tbody {
                    @for run in runs {
                        @let counts = run.counts.unwrap_or_default();
                        @let bad = counts.failed + counts.dead + counts.expired + counts.cancelled + counts.lost;
                        @let ahead = run.launch_time.as_ref().is_some_and(|launch| us(launch) > visit.now_us);
                        tr.ahead[ahead] {
                            th.when scope="row" { a href=(to(&run.name)) { (dated(visit.now_us, run.launch_time.as_ref())) } }
                            td.name { a href=(to(&run.schedule)) { (short(&run.schedule)) } }
                            td {
                                @if ahead { span.mute { "ahead" } } @else { (run_state(run)) }
                            }
                            td.gauge-cell { (progress(run)) }
                            td.n data-label="Events" { (count(run.events)) }
                            td.n data-label="Well" { (count(counts.succeeded)) }
                            td.n.zero[bad == 0] data-label="Not well" {
                                span class=(if bad > 0 { "bad" } else { "mute" }) { (count(bad)) }
                            }
                            @let end = brief(run.expected_finish_time.as_ref(), &run.no_expected_finish_reason, visit.now_us);
                            td data-label=[(!end.0.is_empty()).then_some("Expected end")] { (end) }
                            td.text {
                                span.mute {
                                    (run.reason)
                                    @if run.kind() != v1::RunKind::Scheduled {
                                        @if !run.reason.is_empty() { "; " } "by " (made_by(run.kind()))
                                    }
                                }
                            }
                        }
                    }
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_filter_is_the_apis() {
        let wanted =
            Wanted { schedule: " nightly ".to_owned(), state: "RUNNING".to_owned(), ..Wanted::default() };
        assert_eq!(
            wanted.filter(0),
            "schedule=nightly AND state=RUNNING AND launch_time<=1970-01-01T00:00:00Z"
        );
        assert_eq!(
            wanted.link("/r", 5, "a/b"),
            "/r?schedule=nightly&policy=&state=RUNNING&when=&order=&at=5&page=a%2Fb"
        );
        let (when, order) = ("ahead".to_owned(), "launch_time".to_owned());
        let ahead = Wanted { when, order, at: Some(1_000_000), ..Wanted::default() };
        assert_eq!(ahead.filter(0), "launch_time>=1970-01-01T00:00:01Z");
        assert_eq!(ahead.link("/r", 5, ""), "/r?schedule=&policy=&state=&when=ahead&order=launch_time");
        assert_eq!(Wanted { when: "all".to_owned(), ..Wanted::default() }.filter(0), "");
    }
}
