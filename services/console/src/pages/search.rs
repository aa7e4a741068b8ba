//! Finds schedules, policies, alerts, runs and events: by name or a part of it, by label, by id or the beginning of one.
//!
//! Invariant: nothing is read in full; what was looked through and where it was cut off is said.

use axum::extract::Query;
use axum::response::Response;
use maud::{Markup, html};
use serde::Deserialize;
use tollgate_proto::convert::names;
use tollgate_proto::v1;
use tonic::{Code, Status};

use crate::parts::shell::{Body, Section, empty};
use crate::requests::links::{link, see, to};
use crate::requests::problem::Problem;
use crate::requests::visit::Visit;
use crate::words::sentence::sentence;
use crate::words::show::{active, moment, run_state, short};

/// How many hits of each kind are shown.
const SHOWN: i32 = 20;
/// How many alerts are looked through; a namespace has 100 unless its quota says more.
const ALERTS_READ: i32 = 200;
/// The least characters of an id by which it is looked for.
const ID_CHARS_MIN: usize = 3;

/// What is looked for.
#[derive(Debug, Default, Deserialize)]
pub(crate) struct Sought {
    #[serde(default)]
    q: String,
    #[serde(default)]
    ns: String,
}

/// What has been found.
#[derive(Default)]
struct Found {
    schedules: Vec<v1::Schedule>,
    policies: Vec<v1::Policy>,
    alerts: Vec<v1::Alert>,
    runs: Vec<v1::Run>,
    event: Option<v1::Event>,
    /// There are more of some kind.
    more: (bool, bool, bool),
    /// What could not be searched, and why.
    failed: Vec<(&'static str, Problem)>,
}

impl Found {
    /// What a call has found. That there is no such thing, or that nothing can be called so, is an answer.
    fn took<T: Default>(&mut self, kind: &'static str, answer: Result<tonic::Response<T>, Status>) -> T {
        answer.map(tonic::Response::into_inner).unwrap_or_else(|status| {
            if !matches!(status.code(), Code::NotFound | Code::InvalidArgument) {
                self.failed.push((kind, status.into()));
            }
            T::default()
        })
    }

    /// The only thing that was found, where it is the only one and all was searched.
    fn only(&self) -> Option<&str> {
        if !self.failed.is_empty() {
            return None;
        }
        let schedules = self.schedules.iter().map(|found| found.name.as_str());
        let policies = self.policies.iter().map(|found| found.name.as_str());
        let alerts = self.alerts.iter().map(|found| found.name.as_str());
        let runs = self.runs.iter().map(|found| found.name.as_str());
        let events = self.event.iter().map(|found| found.name.as_str());
        let mut all = schedules.chain(policies).chain(alerts).chain(runs).chain(events);
        let first = all.next()?;
        all.next().is_none().then_some(first)
    }

    /// What is called exactly so, where one thing is.
    fn called(&self, text: &str) -> Option<&str> {
        let schedules = self.schedules.iter().map(|found| found.name.as_str());
        let policies = self.policies.iter().map(|found| found.name.as_str());
        let alerts = self.alerts.iter().map(|found| found.name.as_str());
        let mut named = schedules.chain(policies).chain(alerts).filter(|name| short(name) == text);
        let first = named.next()?;
        named.next().is_none().then_some(first)
    }
}

/// Sends the browser to the one thing that is meant, or shows all that may be.
pub(crate) async fn page(visit: Visit, Query(sought): Query<Sought>) -> Response {
    if !sought.ns.trim().is_empty() {
        return see(&link(sought.ns.trim(), ""));
    }
    let text = sought.q.trim();
    if text.starts_with("namespaces/") {
        return see(&to(text));
    }
    if text.is_empty() {
        return visit.respond(Ok(Body::new("Search", Section::None, hints())));
    }
    if names::run("", &visit.full("runs", text)).is_ok() {
        return see(&to(&visit.full("runs", text)));
    }
    let found = look(&visit, text).await;
    if let Some(name) = found.called(text).or(found.only()) {
        return see(&to(name));
    }
    let title = format!("Search: {text}");
    let content = html! {
        h1 { "Search" }
        p.lead { "For " strong { (text) } " in the namespace " strong { (visit.ns) } }
        (hits(&visit, text, &found))
    };
    visit.respond(Ok(Body::new(title, Section::None, content)))
}

async fn look(visit: &Visit, text: &str) -> Found {
    let (mut named, of_id) = futures::future::join(by_name(visit, text), by_id(visit, text)).await;
    named.failed.extend(of_id.failed);
    Found { runs: of_id.runs, event: of_id.event, more: (named.more.0, named.more.1, of_id.more.2), ..named }
}

/// The filter that a text stands for: a label, whose value keeps its case, or a part of a name.
fn filter(text: &str) -> String {
    match text.split_once('=') {
        Some((key, value)) => {
            let key = key.trim().trim_start_matches("label.");
            format!("label.{key}={}", value.trim())
        }
        None => format!("name=*{}*", text.to_ascii_lowercase().replace('*', "")),
    }
}

async fn by_name(visit: &Visit, text: &str) -> Found {
    let mut found = Found::default();
    let is_name = text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"._-".contains(&byte));
    if !is_name && !text.contains('=') {
        return found;
    }
    let filter = filter(text);
    let (mut master, mut other, mut third) = (visit.api.master(), visit.api.master(), visit.api.master());
    let schedules = v1::ListSchedulesRequest {
        parent: visit.parent(),
        page_size: SHOWN,
        filter: filter.clone(),
        ..v1::ListSchedulesRequest::default()
    };
    let policies = v1::ListPoliciesRequest {
        parent: visit.parent(),
        page_size: SHOWN,
        filter: filter.clone(),
        ..v1::ListPoliciesRequest::default()
    };
    // Alerts are few, and the service finds them by the beginning of their names only.
    let alerts = v1::ListAlertsRequest {
        parent: visit.parent(),
        page_size: ALERTS_READ,
        filter: if text.contains('=') { filter } else { String::new() },
        ..v1::ListAlertsRequest::default()
    };
    let (schedules, policies, alerts) = futures::future::join3(
        master.list_schedules(schedules),
        other.list_policies(policies),
        third.list_alerts(alerts),
    )
    .await;
    let schedules = found.took("Schedules", schedules);
    let policies = found.took("Policies", policies);
    let mut alerts = found.took("Alerts", alerts).alerts;
    let part = text.to_ascii_lowercase();
    alerts.retain(|alert| text.contains('=') || short(&alert.name).contains(&part));
    alerts.truncate(SHOWN.unsigned_abs() as usize);
    found.more = (!schedules.next_page_token.is_empty(), !policies.next_page_token.is_empty(), false);
    Found { schedules: schedules.schedules, policies: policies.policies, alerts, ..found }
}

/// Runs whose ids begin so, and the event that is called so: an event's id depends on case, a run's is small letters.
async fn by_id(visit: &Visit, text: &str) -> Found {
    let mut found = Found::default();
    let request = v1::GetEventRequest { name: visit.full("events", text) };
    let mut handler = visit.api.handler();
    let event = handler.get_event(request);
    let beginning = beginning(text);
    let read = async {
        match beginning {
            // One more than is shown says that there are more.
            Some(filter) => visit.api.runs(visit.parent(), &filter, SHOWN + 1, "").await,
            None => Ok(v1::ListRunsResponse::default()),
        }
    };
    let (read, event) = futures::future::join(read, event).await;
    let event = found.took("Events", event.map(|event| event.map(Some)));
    let read = read.unwrap_or_else(|problem| {
        found.failed.push(("Runs", problem));
        v1::ListRunsResponse::default()
    });
    let mut runs = read.runs;
    found.more.2 = runs.len() > SHOWN.unsigned_abs() as usize;
    runs.truncate(SHOWN.unsigned_abs() as usize);
    Found { runs, event, ..found }
}

/// The filter for runs whose ids begin so, with the queue shard or without it; none for what cannot be an id.
fn beginning(text: &str) -> Option<String> {
    let text = text.to_ascii_lowercase();
    let (shard, own) = text.split_once('-').unwrap_or(("", &text));
    let is_hex = |part: &str| part.len() <= 32 && part.bytes().all(|byte| byte.is_ascii_hexdigit());
    let is_id = text.len() >= ID_CHARS_MIN && is_hex(own) && is_hex(shard) && matches!(shard.len(), 0 | 2);
    (is_id && !text.starts_with('-')).then(|| format!("name={text}*"))
}

fn hints() -> Markup {
    html! {
        h1 { "Search" }
        ul {
            li { "A part of a name: " code { "acme" } " finds schedules, policies and alerts." }
            li { "A label: " code { "team=storage" } "." }
            li { "An id, or its beginning: " code { "0a-12f3" } " finds runs; a whole id finds an event." }
        }
        p.mute { "The key " kbd { "/" } " leads here from every page." }
    }
}

fn hits(visit: &Visit, text: &str, found: &Found) -> Markup {
    let nothing = found.schedules.is_empty()
        && found.policies.is_empty()
        && found.alerts.is_empty()
        && found.runs.is_empty();
    html! {
        @for (kind, problem) in &found.failed {
            p.notice.bad { (kind) " could not be searched: " (problem.title) " " (problem.text()) }
        }
        @if nothing && found.event.is_none() && found.failed.is_empty() {
            (empty(&format!("Nothing in this namespace has {text:?} in its name, as a label or as the beginning of its id."), html! {
                a href=(visit.link("namespaces")) { "Other namespaces" }
            }))
        }
        @if !found.policies.is_empty() {
            section aria-labelledby="h-policies" {
                h2 #h-policies { "Policies" }
                ul.hits {
                    @for policy in &found.policies {
                        li { a href=(to(&policy.name)) { (marked(short(&policy.name), text)) } " " (active(policy.pause.as_ref()))
                            " " span.mute { (policy.description) } }
                    }
                    @if found.more.1 { li.mute { "and more" } }
                }
            }
        }
        @if !found.schedules.is_empty() {
            section aria-labelledby="h-schedules" {
                h2 #h-schedules { "Schedules" }
                ul.hits {
                    @for schedule in &found.schedules {
                        li { a href=(to(&schedule.name)) { (marked(short(&schedule.name), text)) } " " (active(schedule.pause.as_ref()))
                            " " span.mute { (sentence(schedule)) } }
                    }
                    @if found.more.0 { li.mute { "and more" } }
                }
            }
        }
        @if !found.alerts.is_empty() {
            section aria-labelledby="h-alerts" {
                h2 #h-alerts { "Alerts" }
                ul.hits {
                    @for alert in &found.alerts {
                        li { a href=(to(&alert.name)) { (marked(short(&alert.name), text)) } " " span.mute { (alert.description) } }
                    }
                }
            }
        }
        @if !found.runs.is_empty() {
            section aria-labelledby="h-runs" {
                h2 #h-runs { "Runs" }
                ul.hits {
                    @for run in &found.runs {
                        li { a href=(to(&run.name)) { code { (short(&run.name)) } } " " (run_state(run))
                            " of " a href=(to(&run.schedule)) { (short(&run.schedule)) } ", due "
                            (moment(visit.now_us, run.launch_time.as_ref())) }
                    }
                    @if found.more.2 { li.mute { "and more" } }
                }
            }
        }
        @if let Some(event) = &found.event {
            p { "Event " a href=(to(&event.name)) { code { (short(&event.name)) } } }
        }
    }
}

/// A name, with what was looked for marked in it.
fn marked(name: &str, text: &str) -> Markup {
    let text = text.to_ascii_lowercase();
    html! {
        @match name.split_once(text.as_str()).filter(|_| !text.is_empty()) {
            Some((before, after)) => { (before) mark { (text) } (after) }
            None => { (name) }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_is_a_label_or_a_part_of_a_name() {
        assert_eq!(filter("acme"), "name=*acme*");
        assert_eq!(filter("Ac*me"), "name=*acme*");
        assert_eq!(filter("team = Storage"), "label.team=Storage");
        assert_eq!(filter("label.team=a b"), "label.team=a b");
        assert_eq!(marked("partner-eu", "EU").into_string(), "partner-<mark>eu</mark>");
    }

    #[test]
    fn the_beginning_of_an_id_is_told_from_a_name() {
        assert_eq!(beginning("0A-12f3").as_deref(), Some("name=0a-12f3*"));
        assert_eq!(beginning("12f3").as_deref(), Some("name=12f3*"));
        let long = "0".repeat(33);
        for other in ["12", "team", "0ab-12", "-12f", "0a-x", &long] {
            assert_eq!(beginning(other), None, "{other}");
        }
    }

    #[test]
    fn what_could_not_be_searched_is_no_answer() {
        let mut found = Found::default();
        let refused = |code| Err::<tonic::Response<Option<v1::Event>>, _>(Status::new(code, "no"));
        assert!(found.took("Events", refused(Code::NotFound)).is_none() && found.failed.is_empty());
        assert!(found.took("Events", refused(Code::Unavailable)).is_none());
        assert_eq!(found.failed.len(), 1);
        let run = v1::Run { name: "namespaces/a/runs/b".to_owned(), ..v1::Run::default() };
        found.runs.push(run);
        assert_eq!(found.only(), None, "another may be what is meant");
    }

    #[test]
    fn what_is_called_so_goes_before_what_has_it_in_its_name() {
        let schedule = |id: &str| v1::Schedule {
            name: format!("namespaces/a/schedules/{id}"),
            ..v1::Schedule::default()
        };
        let found = Found { schedules: vec![schedule("acme"), schedule("acme-2")], ..Found::default() };
        assert_eq!(found.called("acme"), Some("namespaces/a/schedules/acme"));
        assert_eq!((found.only(), found.called("acm")), (None, None));
        let one = Found { schedules: vec![schedule("acme")], ..Found::default() };
        assert_eq!(one.only(), Some("namespaces/a/schedules/acme"));
    }
}
