//! Who changed what, field by field, latest first.

use axum::extract::Query;
use axum::response::Response;
use maud::{Markup, html};
use serde::Deserialize;

use crate::parts::changes::changes;
use crate::parts::shell::{Body, Section, empty, pager};
use crate::requests::visit::Visit;
use crate::words::show::encode;

/// How many entries a page shows.
const PAGE: i32 = 50;
/// What the list is asked for.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct Wanted {
    resource: String,
    actor: String,
    from: String,
    to: String,
    page: String,
}

impl Wanted {
    /// The fields, by name.
    fn fields(&self) -> [(&'static str, &str); 4] {
        [
            ("resource", self.resource.trim()),
            ("actor", self.actor.trim()),
            ("from", self.from.trim()),
            ("to", self.to.trim()),
        ]
    }

    fn narrows(&self) -> bool {
        self.fields().iter().any(|(_, value)| !value.is_empty())
    }

    /// The filter in the API's words.
    fn filter(&self, visit: &Visit) -> String {
        let [(_, resource), (_, actor), (_, from), (_, to)] = self.fields();
        let quoted = |text: &str| format!("\"{}\"", text.replace('\\', "\\\\").replace('"', "\\\""));
        let terms = [
            ("resource", quoted(&full(visit, resource)), resource),
            ("actor", quoted(actor), actor),
            ("time>", moment(from), from),
            ("time<", moment(to), to),
        ];
        let terms = terms.into_iter().filter(|(_, _, given)| !given.is_empty());
        terms.map(|(key, value, _)| format!("{key}={value}")).collect::<Vec<_>>().join(" AND ")
    }

    fn link(&self, path: &str, page: &str) -> String {
        let fields = self.fields().map(|(name, value)| format!("{name}={}", encode(value)));
        format!("{path}?{}&page={}", fields.join("&"), encode(page))
    }
}

/// A date, a time or both, as people write them, as RFC 3339 in UTC.
fn moment(text: &str) -> String {
    let text = text.trim().replace(' ', "T");
    match text.len() {
        10 => format!("{text}T00:00:00Z"),
        16 => format!("{text}:00Z"),
        19 => format!("{text}Z"),
        _ => text,
    }
}

/// The page.
pub(crate) async fn page(visit: Visit, Query(wanted): Query<Wanted>) -> Response {
    let (list, problem) =
        match visit.api.audit(visit.parent(), &wanted.filter(&visit), PAGE, &wanted.page).await {
            Ok(list) => (Some(list), None),
            Err(problem) => (None, Some(problem)),
        };
    let path = visit.link("audit");
    let content = html! {
        h1 { "Audit" }
        (filters(&path, &wanted))
        @if let Some(list) = &list {
            @if list.audit_entries.is_empty() && !wanted.narrows() {
                (empty("Nothing has been changed in this namespace yet.", html! {
                    "What people and programs make, change, pause, trigger and delete is recorded here."
                }))
            } @else if list.audit_entries.is_empty() {
                (empty("Nothing is recorded that fits this.", html! { a href=(path) { "Show all changes" } }))
            } @else {
                (changes(&visit, &list.audit_entries, true))
                @let next = &list.next_page_token;
                (pager(
                    (!next.is_empty()).then(|| wanted.link(&path, next)),
                    (!wanted.page.is_empty()).then(|| wanted.link(&path, "")),
                ))
            }
        }
    };
    visit.respond(Ok(Body { problem, ..Body::new("Audit", Section::Audit, content) }))
}

fn filters(path: &str, wanted: &Wanted) -> Markup {
    let words = [
        ("About", "policy/imports or schedule/nightly"),
        ("By", "who, as it stands here"),
        ("From", "2026-11-24 03:00"),
        ("To", "2026-11-24 04:00"),
    ];
    html! {
        form.filters method="get" action=(path) {
            @for ((name, value), (label, example)) in wanted.fields().into_iter().zip(words) {
                div.grow[name == "resource"] {
                    label for=(name) { (label) }
                    input id=(name) name=(name) value=(value) placeholder=(example) autocomplete="off" spellcheck="false";
                }
            }
            button type="submit" { "Show" }
            @if wanted.narrows() { a href=(path) { "Show all" } }
        }
    }
}

/// `policy/imports` as a full name; a full name as it is.
fn full(visit: &Visit, text: &str) -> String {
    match text.split_once('/') {
        Some(("schedule" | "schedules", id)) => visit.full("schedules", id),
        Some(("policy" | "policies", id)) => visit.full("policies", id),
        Some(("calendar" | "calendars", id)) => visit.full("calendars", id),
        Some(("alert" | "alerts", id)) => visit.full("alerts", id),
        Some(("run" | "runs", id)) => visit.full("runs", id),
        _ => text.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn moments_are_read_as_people_write_them() {
        for (text, exact) in [
            ("2026-11-24", "2026-11-24T00:00:00Z"),
            ("2026-11-24 03:00", "2026-11-24T03:00:00Z"),
            (" 2026-11-24T03:00:10 ", "2026-11-24T03:00:10Z"),
            ("2026-11-24T03:00:10+01:00", "2026-11-24T03:00:10+01:00"),
        ] {
            assert_eq!(moment(text), exact);
        }
    }
}
