//! Who changed what, field by field, latest first.

use axum::extract::Query;
use axum::response::Response;
use maud::html;
use serde::Deserialize;

use crate::parts::changes::changes;
use crate::parts::shell::{Body, Section, empty, pager};
use crate::requests::visit::Visit;
use crate::words::show::encode;

/// How many entries a page shows.
const PAGE: i32 = 50;
/// What the list is asked for.
#[derive(Clone, Debug, Default, Deserialize)]
pub(crate) struct Wanted {
    #[serde(default)]
    resource: String,
    #[serde(default)]
    page: String,
}

/// The page.
pub(crate) async fn page(visit: Visit, Query(wanted): Query<Wanted>) -> Response {
    let resource = full(&visit, wanted.resource.trim());
    let (list, problem) = match visit.api.audit(visit.parent(), &resource, PAGE, &wanted.page).await {
        Ok(list) => (Some(list), None),
        Err(problem) => (None, Some(problem)),
    };
    let path = visit.link("audit");
    let at = |page: &str| format!("{path}?resource={}&page={}", encode(&wanted.resource), encode(page));
    let content = html! {
        h1 { "Audit" }
        form.filters method="get" action=(path) {
            div.grow {
                label for="resource" { "About" }
                input #resource name="resource" value=(wanted.resource) placeholder="policy/imports or schedule/nightly"
                    autocomplete="off" spellcheck="false";
            }
            button type="submit" { "Show" }
            @if !wanted.resource.is_empty() { a href=(path) { "Show all" } }
        }
        @if let Some(list) = &list {
            @if list.audit_entries.is_empty() && wanted.resource.is_empty() {
                (empty("Nothing has been changed in this namespace yet.", html! {
                    "What people and programs make, change, pause, trigger and delete is recorded here."
                }))
            } @else if list.audit_entries.is_empty() {
                (empty("Nothing is recorded about this.", html! { a href=(path) { "Show all changes" } }))
            } @else {
                (changes(&visit, &list.audit_entries, true))
                @let next = &list.next_page_token;
                (pager((!next.is_empty()).then(|| at(next)), (!wanted.page.is_empty()).then(|| at(""))))
            }
        }
    };
    visit.respond(Ok(Body { problem, ..Body::new("Audit", Section::Audit, content) }))
}

/// `policy/imports` as a full name; a full name as it is.
fn full(visit: &Visit, text: &str) -> String {
    match text.split_once('/') {
        Some(("schedule" | "schedules", id)) => visit.full("schedules", id),
        Some(("policy" | "policies", id)) => visit.full("policies", id),
        Some(("run" | "runs", id)) => visit.full("runs", id),
        _ => text.to_owned(),
    }
}
