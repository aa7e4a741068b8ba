//! The list of policies, a page at a time, with what happens in each now.

use std::collections::BTreeMap;

use axum::extract::Query;
use axum::response::Response;
use maud::{Markup, html};
use serde::Deserialize;
use tollgate_proto::v1;

use crate::picture::gauge;
use crate::problem::Problem;
use crate::shell::{Section, empty, pager};
use crate::show::{active, count, duration, encode, rate, short};
use crate::visit::{Body, Visit, to};

/// So many are on a page.
pub(crate) const PAGE: i32 = 50;

/// What a list is asked for.
#[derive(Clone, Debug, Default, Deserialize)]
pub(crate) struct Wanted {
    /// `ACTIVE`, `PAUSED` or empty.
    #[serde(default)]
    pub(crate) state: String,
    /// `key=value` or empty.
    #[serde(default)]
    pub(crate) label: String,
    /// A policy's id or empty.
    #[serde(default)]
    pub(crate) policy: String,
    /// How the id begins, or empty.
    #[serde(default)]
    pub(crate) name: String,
    /// The page's token.
    #[serde(default)]
    pub(crate) page: String,
}

impl Wanted {
    /// The filter in the API's words.
    pub(crate) fn filter(&self) -> String {
        let mut terms = Vec::new();
        let name = self.name.trim().trim_end_matches('*');
        if !name.is_empty() {
            terms.push(format!("name={name}*"));
        }
        if !self.state.is_empty() {
            terms.push(format!("state={}", self.state));
        }
        if !self.policy.trim().is_empty() {
            terms.push(format!("policy={}", self.policy.trim()));
        }
        if !self.label.trim().is_empty() {
            terms.push(format!("label.{}", self.label.trim()));
        }
        terms.join(" AND ")
    }

    /// Whether anything is left out.
    pub(crate) fn narrows(&self) -> bool {
        !self.filter().is_empty()
    }

    /// The address of a page of the same list.
    pub(crate) fn at(&self, path: &str, page: &str) -> String {
        let parts =
            [("name", &self.name), ("state", &self.state), ("label", &self.label), ("policy", &self.policy)];
        let mut query: Vec<String> = parts
            .into_iter()
            .filter(|(_, value)| !value.is_empty())
            .map(|(name, value)| format!("{name}={}", encode(value)))
            .collect();
        if !page.is_empty() {
            query.push(format!("page={}", encode(page)));
        }
        if query.is_empty() { path.to_owned() } else { format!("{path}?{}", query.join("&")) }
    }

    /// Where the next page and the first one are.
    pub(crate) fn pager(&self, path: &str, next: &str) -> Markup {
        let first = (!self.page.is_empty()).then(|| self.at(path, ""));
        pager((!next.is_empty()).then(|| self.at(path, next)), first)
    }
}

/// The fields by which a list is narrowed.
pub(crate) fn filters(path: &str, wanted: &Wanted, by_policy: bool) -> Markup {
    html! {
        form.filters method="get" action=(path) {
            div {
                label for="name" { "Name begins with" }
                input #name name="name" value=(wanted.name) autocomplete="off" spellcheck="false" maxlength="63";
            }
            div {
                label for="state" { "State" }
                select #state name="state" {
                    @for (value, name) in [("", "all"), ("ACTIVE", "active"), ("PAUSED", "paused")] {
                        option value=(value) selected[wanted.state == value] { (name) }
                    }
                }
            }
            @if by_policy {
                div {
                    label for="policy" { "Policy" }
                    input #policy name="policy" value=(wanted.policy) placeholder="id" autocomplete="off"
                        spellcheck="false";
                }
            }
            div {
                label for="label" { "Label" }
                input #label name="label" value=(wanted.label) placeholder="key=value" autocomplete="off"
                    spellcheck="false";
            }
            button type="submit" { "Show" }
            @if wanted.narrows() { a href=(path) { "Show all" } }
        }
    }
}

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
        h1 { "Policies" }
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

fn table(policies: &[v1::Policy], gauges: &BTreeMap<&str, &v1::PolicyGauge>) -> Markup {
    html! {
        div.scroll role="group" aria-label="Policies" tabindex="0" {
            table.wide {
                thead {
                    tr {
                        th scope="col" { "Policy" }
                        th scope="col" { "State" }
                        th.gauge-cell scope="col" { "In flight" }
                        th.n scope="col" { "Held / limit" }
                        th.n scope="col" { "Waiting" }
                        th.n.opt scope="col" { "Oldest wait" }
                        th.n.opt scope="col" { "Rate limit/s" }
                        th.opt scope="col" { "Description" }
                    }
                }
                tbody {
                    @for policy in policies {
                        @let now = gauges.get(policy.name.as_str());
                        @let held = now.map_or(0, |gauge| gauge.held_count);
                        tr {
                            th scope="row" { a href=(to(&policy.name)) { (short(&policy.name)) } }
                            td { (active(policy.pause.as_ref())) }
                            td.gauge-cell {
                                @if policy.max_in_flight.is_some() {
                                    (gauge(held, now.map_or(0, |gauge| gauge.suspect_count), policy.max_in_flight))
                                }
                            }
                            td.n {
                                (count(held)) span.mute { " / " }
                                @match policy.max_in_flight {
                                    Some(limit) => { (count(limit)) }
                                    None => { span.mute { "no limit" } }
                                }
                            }
                            td.n { (count(now.map_or(0, |gauge| gauge.waiting_count))) }
                            td.n.opt {
                                @if let Some(now) = now.filter(|gauge| gauge.waiting_count > 0) {
                                    (duration(now.oldest_wait.as_ref()))
                                }
                            }
                            td.n.opt { @if let Some(limit) = policy.rate_per_second { (rate(limit)) } }
                            td.opt.text { (policy.description) }
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
    fn filters_are_the_apis() {
        let wanted = Wanted {
            state: "PAUSED".to_owned(),
            label: " team=a b ".to_owned(),
            policy: "imports".to_owned(),
            name: "night*".to_owned(),
            page: "x".to_owned(),
        };
        assert_eq!(wanted.filter(), "name=night* AND state=PAUSED AND policy=imports AND label.team=a b");
        assert_eq!(
            wanted.at("/n/a/schedules", "t+/"),
            "/n/a/schedules?name=night%2A&state=PAUSED&label=%20team%3Da%20b%20&policy=imports&page=t%2B%2F"
        );
        assert!(!Wanted::default().narrows());
    }
}
