//! What went wrong over all runs that have ended, by what was said of it; tried again or closed from here.

use axum::extract::{Form, Query};
use axum::response::Response;
use maud::{Markup, html};
use serde::Deserialize;
use tollgate_proto::v1;

use crate::parts::confirm::{self, Deed};
use crate::parts::shell::{Body, Section, empty};
use crate::requests::links::to;
use crate::requests::problem::Problem;
use crate::requests::visit::Visit;
use crate::words::show::{count, counted, event_state, exact, quoted, seen, short, us};

/// How many groups are shown.
const GROUPS_MAX: i32 = 100;
/// How many steps one request takes: to count, and to do something.
const COUNT_STEPS: usize = 5;
const STEPS: usize = 20;
const HOUR_US: i64 = 3_600_000_000;
const SINCE: [(&str, &str, i64); 4] = [
    ("", "all that is kept", 0),
    ("1h", "in the last hour", HOUR_US),
    ("24h", "in the last 24 hours", 24 * HOUR_US),
    ("7d", "in the last 7 days", 7 * 24 * HOUR_US),
];

/// What the page is asked for.
#[derive(Clone, Debug, Default, Deserialize)]
pub(crate) struct Wanted {
    #[serde(default)]
    schedule: String,
    #[serde(default)]
    policy: String,
    #[serde(default)]
    since: String,
}

/// What a form says.
#[derive(Clone, Debug, Default, Deserialize)]
pub(crate) struct Order {
    action: String,
    #[serde(default)]
    confirmed: String,
    #[serde(default)]
    reason: String,
    /// Of which failures, in the API's words.
    filter: String,
    /// Where the steps before have ended.
    #[serde(default)]
    page_token: String,
}

/// How far some steps have come.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Steps {
    matched: u64,
    /// For the next step; empty where there is none.
    next: String,
}

impl Wanted {
    fn filter(&self, now_us: i64) -> String {
        let span_us = SINCE.iter().find(|(key, ..)| *key == self.since).map_or(0, |(_, _, us)| *us);
        let from = if span_us == 0 { String::new() } else { exact(now_us - span_us) };
        let (schedule, policy) = (quoted(self.schedule.trim()), quoted(self.policy.trim()));
        let terms = [("schedule", schedule), ("policy", policy), ("end_time>", from)];
        let terms = terms.into_iter().filter(|(_, value)| !value.is_empty());
        terms.map(|(key, value)| format!("{key}={value}")).collect::<Vec<_>>().join(" AND ")
    }

    fn narrows(&self) -> bool {
        !(self.schedule.trim().is_empty() && self.policy.trim().is_empty() && self.since.is_empty())
    }
}

/// One group, in the API's words.
fn of_group(filter: &str, group: &v1::FailureGroup) -> String {
    let state = group.state().as_str_name().trim_start_matches("EVENT_STATE_");
    let own = format!("state={state} AND reason={}", quoted(&group.reason));
    if filter.is_empty() { own } else { format!("{filter} AND {own}") }
}

/// The page.
pub(crate) async fn page(visit: Visit, Query(wanted): Query<Wanted>) -> Response {
    let body = body(&visit, &wanted, None).await;
    visit.respond(Ok(body))
}

async fn body(visit: &Visit, wanted: &Wanted, problem: Option<Problem>) -> Body {
    let (path, filter) = (visit.link("failures"), wanted.filter(visit.now_us));
    let request =
        v1::ListFailuresRequest { parent: visit.parent(), filter: filter.clone(), page_size: GROUPS_MAX };
    let (found, problem) = match visit.api.handler().list_failures(request).await {
        Ok(found) => (Some(found.into_inner()), problem),
        Err(status) => (None, Some(problem.unwrap_or_else(|| status.into()))),
    };
    let content = html! {
        h1 { "What went wrong" }
        (filters(&path, wanted))
        @if let Some(found) = &found {
            @if found.groups.is_empty() {
                @if wanted.narrows() {
                    (empty("Nothing that went wrong fits this.", html! { a href=(path) { "Show all failures" } }))
                } @else {
                    (empty("Nothing went wrong, or all of it has been closed.", html! {
                        "Events of runs that still go on are shown by their " a href=(visit.link("runs")) { "runs" } "."
                    }))
                }
            } @else {
                (table(visit, &path, &filter, &found.groups))
            }
            @if found.truncated {
                p.mute { "Counted among the runs that ended last; there are more. Narrow it by schedule, policy or time." }
            }
        }
    };
    Body { problem, ..Body::new("What went wrong", Section::Failures, content) }
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
                label for="since" { "Runs that ended" }
                select #since name="since" {
                    @for (value, name, _) in SINCE {
                        option value=(value) selected[wanted.since == value] { (name) }
                    }
                }
            }
            button type="submit" { "Show" }
            @if wanted.narrows() { a href=(path) { "Show all" } }
        }
    }
}

fn table(visit: &Visit, path: &str, filter: &str, groups: &[v1::FailureGroup]) -> Markup {
    html! {
        div.scroll role="group" aria-label="What went wrong" tabindex="0" {
            table.wide {
                thead {
                    tr {
                        th.n scope="col" { "Events" }
                        th scope="col" { "State" }
                        th scope="col" { "What was said" }
                        th scope="col" { "Schedules" }
                        th.opt scope="col" { "First" }
                        th scope="col" { "Last" }
                        th scope="col" { span.hidden { "Act" } }
                    }
                }
                tbody { @for group in groups { (row(visit, path, &of_group(filter, group), group)) } }
            }
        }
    }
}

fn row(visit: &Visit, path: &str, filter: &str, group: &v1::FailureGroup) -> Markup {
    let at = |time: &Option<prost_types::Timestamp>| time.as_ref().map(us).unwrap_or_default();
    html! {
        tr {
            td.n { strong { (count(group.count)) } " ×" }
            td { (event_state(group.state())) }
            th.text scope="row" {
                a href=(to(&group.example_event)) title=(group.example_message) { (group.reason) }
            }
            td.name {
                @for (at, schedule) in group.schedules.iter().enumerate() {
                    @if at > 0 { ", " }
                    a href=(to(schedule)) { (short(schedule)) }
                }
                " " span.mute { "in " (counted(group.runs_count, "run")) }
            }
            td.opt { (seen(visit.now_us, at(&group.first_time))) }
            td { (seen(visit.now_us, at(&group.last_time))) }
            td.act {
                form.ask method="post" action=(path) {
                    input type="hidden" name="filter" value=(filter);
                    @if group.state() == v1::EventState::Dead {
                        button type="submit" name="action" value="retry" { "Try all of these again…" }
                    }
                    button type="submit" name="action" value="close" { "Close…" }
                }
            }
        }
    }
}

/// Asks, or does what has been confirmed.
pub(crate) async fn act(visit: Visit, Form(order): Form<Order>) -> Response {
    match Box::pin(carry_out(&visit, &order)).await {
        Ok(response) => response,
        Err(problem) => {
            let body = Box::pin(body(&visit, &Wanted::default(), Some(problem))).await;
            visit.respond(Ok(body))
        }
    }
}

async fn carry_out(visit: &Visit, order: &Order) -> Result<Response, Problem> {
    if !matches!(order.action.as_str(), "retry" | "close") {
        return Err(Problem::invalid("action", &order.action, "retry or close"));
    }
    let matched = steps(visit, order, "", COUNT_STEPS, true).await?;
    let deed = deed(visit, order, &matched, None);
    let given = (order.confirmed.as_str(), order.reason.as_str());
    confirm::settle(visit, Section::Failures, &deed, given, |reason| carried_out(visit, order, reason)).await
}

async fn carried_out(visit: &Visit, order: &Order, reason: String) -> Result<Response, Problem> {
    let done = steps(visit, order, &reason, STEPS, false).await?;
    if done.next.is_empty() {
        let code = if order.action == "retry" { "retried" } else { "closed" };
        return Ok(visit.after(&visit.link("failures"), code));
    }
    // The rest is asked for again, from where this has ended.
    let rest = Order { page_token: done.next.clone(), ..order.clone() };
    let matched = steps(visit, &rest, "", COUNT_STEPS, true).await?;
    let deed = deed(visit, &rest, &matched, Some(done.matched));
    let path = visit.link("failures");
    confirm::settle(visit, Section::Failures, &deed, ("", &reason), |_| async { Ok(visit.after(&path, "")) })
        .await
}

/// Some steps, from where the order says; with `validate_only` they count and change nothing.
async fn steps(
    visit: &Visit,
    order: &Order,
    reason: &str,
    most: usize,
    validate_only: bool,
) -> Result<Steps, Problem> {
    let mut handler = visit.api.because(reason).handler();
    let mut done = Steps { matched: 0, next: order.page_token.clone() };
    for _ in 0..most {
        let (parent, filter, page_token) = (visit.parent(), order.filter.clone(), done.next);
        let (matched, next) = if order.action == "retry" {
            let request = v1::RetryFailuresRequest { parent, filter, page_token, validate_only };
            let step = handler.retry_failures(request).await?.into_inner();
            (step.matched_count, step.next_page_token)
        } else {
            let request = v1::CloseFailuresRequest { parent, filter, page_token, validate_only };
            let step = handler.close_failures(request).await?.into_inner();
            (step.matched_runs_count, step.next_page_token)
        };
        done = Steps { matched: done.matched + u64::from(matched), next };
        if done.next.is_empty() {
            break;
        }
    }
    Ok(done)
}

fn deed(visit: &Visit, order: &Order, matched: &Steps, before: Option<u64>) -> Deed {
    let at_least = if matched.next.is_empty() { "" } else { "at least " };
    let is_retry = order.action == "retry";
    let thing = if is_retry { "dead event" } else { "run" };
    let mut effects = Vec::new();
    if let Some(before) = before {
        effects.push(html! { (counted(before, thing)) " are done. There are more: go on?" });
    }
    effects.push(html! {
        strong { (at_least) (counted(matched.matched, thing)) }
        @if is_retry { " are tried again, under their policies as any other." } @else {
            " are closed with all of their failures: they are no trouble any more, and are not shown here until they end again."
        }
    });
    effects.push(html! { "Only of those that fit: " code { (order.filter) } });
    let fields = [("action", &order.action), ("filter", &order.filter), ("page_token", &order.page_token)];
    Deed {
        question: if is_retry { "Try these events again?" } else { "Close these failures?" }.to_owned(),
        effects,
        path: visit.link("failures"),
        fields: fields.map(|(name, value)| (name.to_owned(), value.clone())).to_vec(),
        button: if is_retry { "Try them again" } else { "Close them" },
        is_dangerous: false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_filter_is_the_apis() {
        assert_eq!(Wanted::default().filter(0), "");
        let wanted = Wanted { schedule: " nightly ".to_owned(), since: "1h".to_owned(), ..Wanted::default() };
        let filter = wanted.filter(HOUR_US);
        assert_eq!(filter, "schedule=\"nightly\" AND end_time>=1970-01-01T00:00:00Z");
        let group = v1::FailureGroup {
            state: v1::EventState::Dead.into(),
            reason: "say \"no\"".to_owned(),
            ..v1::FailureGroup::default()
        };
        assert_eq!(of_group("", &group), "state=DEAD AND reason=\"say \\\"no\\\"\"");
        assert_eq!(of_group("policy=p", &group), "policy=p AND state=DEAD AND reason=\"say \\\"no\\\"\"");
    }
}
