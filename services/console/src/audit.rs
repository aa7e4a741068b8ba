//! Who changed what, field by field, latest first.

use axum::extract::Query;
use axum::response::Response;
use maud::{Markup, html};
use prost_types::Value;
use prost_types::value::Kind;
use serde::Deserialize;
use tollgate_proto::v1;

use crate::shell::{Section, empty, pager};
use crate::show::{dated, encode};
use crate::visit::{Body, Visit, to};

/// So many are on a page.
const PAGE: i32 = 50;
/// More fields than so many are shown when they are asked for: what was made or deleted has them all.
const FIELDS_OPEN: usize = 6;
/// So many characters of a value are shown.
const VALUE_CHARS: usize = 300;

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
                (table(&visit, &list.audit_entries, true))
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

/// Entries, with the resource of each where they are about several.
pub(crate) fn table(visit: &Visit, entries: &[v1::AuditEntry], with_resource: bool) -> Markup {
    html! {
        @if entries.is_empty() {
            p.mute { "None recorded." }
        } @else {
            div.scroll role="group" aria-label="Changes" tabindex="0" {
                table.wide.audit {
                    thead {
                        tr {
                            th scope="col" { "When" }
                            th scope="col" { "Who" }
                            th scope="col" { "Did" }
                            @if with_resource { th scope="col" { "To" } }
                            th scope="col" { "Field by field" }
                        }
                    }
                    tbody { @for entry in entries { (row(visit, entry, with_resource)) } }
                }
            }
        }
    }
}

fn row(visit: &Visit, entry: &v1::AuditEntry, with_resource: bool) -> Markup {
    let mut parts = entry.resource.rsplit('/');
    let (id, collection) = (parts.next().unwrap_or_default(), parts.next().unwrap_or_default());
    html! {
        tr {
            td { (dated(visit.now_us, entry.time.as_ref())) }
            td { (entry.actor) }
            td { (entry.action) }
            @if with_resource {
                th scope="row" {
                    @match collection {
                        "policies" | "schedules" | "runs" => {
                            span.mute { (collection.trim_end_matches('s').replace("policie", "policy")) " " }
                            a href=(to(&entry.resource)) { (crate::bucket::clipped(id)) }
                        }
                        _ => { (entry.resource) }
                    }
                }
            }
            td.text { (changes(entry)) }
        }
    }
}

fn changes(entry: &v1::AuditEntry) -> Markup {
    let fields = entry.difference.as_ref().map(|difference| &difference.fields);
    html! {
        @match fields {
            Some(fields) if fields.len() > FIELDS_OPEN => {
                details { summary { (fields.len()) " fields" } (list(fields)) }
            }
            Some(fields) if !fields.is_empty() => { (list(fields)) }
            _ => {}
        }
    }
}

fn list(fields: &std::collections::BTreeMap<String, Value>) -> Markup {
    html! {
        ul.changes {
            @for (path, change) in fields {
                @let side = |name: &str| match &change.kind {
                    Some(Kind::StructValue(sides)) => sides.fields.get(name).map(|value| clipped(&text(value))),
                    _ => None,
                };
                li {
                    code { (path) } " "
                    @match (side("old"), side("new")) {
                        (Some(old), Some(new)) => { del { (old) } " → " ins { (new) } }
                        (None, Some(new)) => { ins { (new) } }
                        (Some(old), None) => { del { (old) } " removed" }
                        (None, None) => {}
                    }
                }
            }
        }
    }
}

fn clipped(text: &str) -> String {
    match text.char_indices().nth(VALUE_CHARS) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.to_owned(),
    }
}

/// A value as JSON, but text without its quotes where it stands alone.
fn text(value: &Value) -> String {
    match &value.kind {
        Some(Kind::StringValue(text)) => text.clone(),
        _ => json(value),
    }
}

fn json(value: &Value) -> String {
    match &value.kind {
        None | Some(Kind::NullValue(_)) => "null".to_owned(),
        Some(Kind::NumberValue(number)) => number.to_string(),
        Some(Kind::BoolValue(truth)) => truth.to_string(),
        Some(Kind::StringValue(text)) => format!("{text:?}"),
        Some(Kind::ListValue(list)) => {
            format!("[{}]", list.values.iter().map(json).collect::<Vec<_>>().join(", "))
        }
        Some(Kind::StructValue(members)) => {
            let members = members.fields.iter().map(|(name, value)| format!("{name}: {}", json(value)));
            format!("{{{}}}", members.collect::<Vec<_>>().join(", "))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_field_shows_both_sides() {
        let value = |kind: Kind| Value { kind: Some(kind) };
        let sides = [
            ("old".to_owned(), value(Kind::NumberValue(4.0))),
            ("new".to_owned(), value(Kind::StringValue("<b>".to_owned()))),
        ];
        let change = value(Kind::StructValue(prost_types::Struct { fields: sides.into() }));
        let fields = [("max_in_flight".to_owned(), change)].into();
        let entry =
            v1::AuditEntry { difference: Some(prost_types::Struct { fields }), ..v1::AuditEntry::default() };
        let drawn = changes(&entry).into_string();
        assert!(drawn.contains("<code>max_in_flight</code> <del>4</del> → <ins>&lt;b&gt;</ins>"), "{drawn}");
    }
}
