//! The list of policies, a page at a time, with what happens in each now.

use std::collections::BTreeMap;

use axum::extract::Query;
use axum::response::Response;
use maud::{Markup, html};
use tollgate_proto::v1;

use crate::parts::filters::{PAGE, Wanted, filters};
use crate::parts::picture::tree_gauge;
use crate::parts::shell::{Body, Section, empty};
use crate::parts::tree::{Place, places};
use crate::requests::links::to;
use crate::requests::problem::Problem;
use crate::requests::visit::Visit;
use crate::words::show::{active, count, duration, rate, short};

/// The page.
pub(crate) async fn page(visit: Visit, Query(wanted): Query<Wanted>) -> Response {
    let body = body(&visit, &wanted).await;
    visit.respond(body)
}

async fn body(visit: &Visit, wanted: &Wanted) -> Result<Body, Problem> {
    let wanted = Wanted { policy: String::new(), ..wanted.clone() };
    let path = visit.link("policies");
    let request = v1::ListPoliciesRequest {
        parent: visit.parent(),
        page_size: PAGE,
        page_token: wanted.page.clone(),
        filter: wanted.filter(),
    };
    let mut master = visit.api.master();
    let (list, status) =
        futures::future::join(master.list_policies(request), visit.api.handler_status(visit.parent())).await;
    let list = match list {
        Ok(list) => list.into_inner(),
        Err(status) => {
            let content = html! { h1 { "Policies" } (filters(&path, &wanted, false)) };
            return Ok(Body {
                problem: Some(status.into()),
                ..Body::new("Policies", Section::Policies, content)
            });
        }
    };
    let status = status.unwrap_or_default();
    let gauges: BTreeMap<&str, &v1::PolicyGauge> =
        status.policies.iter().map(|gauge| (gauge.policy.as_str(), gauge)).collect();
    let content = html! {
        div.title { h1 { "Policies" } a.button href=(visit.link("new/policy")) { "New policy" } }
        (filters(&path, &wanted, false))
        @if list.policies.is_empty() {
            @if wanted.narrows() {
                (empty("No policy fits this.", html! { a href=(path) { "Show all policies" } }))
            } @else {
                (empty("No policies yet.", html! {
                    "A policy says how many events may be in flight at once: " code { "max_in_flight: 8" }
                    " in a file, and " code { "tollgate apply -f FILE" } "."
                }))
            }
        } @else {
            (table(&list.policies, &gauges))
            (wanted.pager(&path, &list.next_page_token))
        }
    };
    Ok(Body::new("Policies", Section::Policies, content))
}

/// A number; what cannot be said now is no zero.
fn known(n: Option<u64>) -> Markup {
    html! { @match n { Some(n) => { (count(n)) } None => { span.mute { "not known" } } } }
}

/// A number that nobody needs to see while it is nothing.
fn ill(label: &str, n: u64, class: &str) -> Markup {
    html! { td.n data-label=(label) { @if n > 0 { span class=(class) { (count(n)) } } } }
}

/// The policies, those below another one beneath it.
fn table(policies: &[v1::Policy], gauges: &BTreeMap<&str, &v1::PolicyGauge>) -> Markup {
    let ends = policies.iter().map(|policy| (policy.name.as_str(), policy.parent(), policy.max_in_flight));
    let rows = places(ends).into_iter().filter_map(|place| Some((place, policies.get(place.index)?)));
    html! {
        div.scroll role="group" aria-label="Policies" tabindex="0" {
            table.wide.cards.named {
                thead {
                    tr {
                        th scope="col" { "Policy" }
                        th scope="col" { "State" }
                        th.gauge-cell scope="col" { "In flight" }
                        th.n scope="col" { "Held / limit" }
                        th.n scope="col" { "Waiting" }
                        th.n scope="col" { "Oldest wait" }
                        th.n scope="col" { "Refused/s" }
                        th.n scope="col" { "Suspect" }
                        th.n scope="col" { "At risk" }
                        th.n scope="col" { "Rate limit/s" }
                        th scope="col" { "Description" }
                    }
                }
                tbody {
                    @for (place, policy) in rows { (row(place, policy, gauges.get(policy.name.as_str()).copied())) }
                }
            }
        }
    }
}

fn row(place: Place, policy: &v1::Policy, now: Option<&v1::PolicyGauge>) -> Markup {
    let is_elsewhere = place.depth == 0 && !policy.parent().is_empty();
    html! {
        tr class=[place.class()] {
            th scope="row" {
                a href=(to(&policy.name)) { (short(&policy.name)) }
                @if is_elsewhere { " " span.mute { "below " (short(policy.parent())) } }
            }
            td { (active(policy.pause.as_ref())) }
            td.gauge-cell {
                @if let Some(now) = now.filter(|_| place.limit.is_some()) { (tree_gauge(now, place.limit)) }
            }
            td.n data-label="Held / limit" {
                (known(now.map(|now| now.held_count)))
                @if let Some(now) = now.filter(|now| now.below_count > 0) {
                    span.mute title="held by events of the policies below" { " + " (count(now.below_count)) }
                }
                span.mute { " / " }
                @match policy.max_in_flight {
                    Some(limit) => { (count(limit)) }
                    None => { span.mute { "no limit" } }
                }
            }
            td.n data-label="Waiting" { (known(now.map(|now| now.waiting_count))) }
            td.n data-label="Oldest wait" {
                @if let Some(now) = now.filter(|gauge| gauge.waiting_count > 0) {
                    (duration(now.oldest_wait.as_ref()))
                }
            }
            td.n data-label="Refused/s" {
                @if let Some(now) = now.filter(|gauge| gauge.refused_per_second > 0.0) {
                    span.bad title=(now.last_error) { (rate(now.refused_per_second)) }
                }
            }
            (ill("Suspect", now.map_or(0, |now| now.suspect_count), "warn"))
            (ill("At risk", now.map_or(0, |now| now.at_risk_runs_count), "bad"))
            td.n data-label="Rate limit/s" { @if let Some(limit) = policy.rate_per_second { (rate(limit)) } }
            td.text { (policy.description) }
        }
    }
}
