//! Entries of the audit log: who changed what, field by field.

use maud::{Markup, html};
use prost_types::Value;
use prost_types::value::Kind;
use tollgate_proto::v1;

use crate::requests::links::to;
use crate::requests::visit::Visit;
use crate::words::show::{clipped as clipped_id, dated};

/// More fields than this are folded up: a resource that was made or deleted has them all.
const FIELDS_OPEN: usize = 6;
/// The most characters of a value that are shown.
const VALUE_CHARS: usize = 300;

/// Entries, with the resource of each where they are about several.
pub(crate) fn changes(visit: &Visit, entries: &[v1::AuditEntry], with_resource: bool) -> Markup {
    html! {
        @if entries.is_empty() {
            p.mute { "None recorded." }
        } @else {
            div.scroll role="group" aria-label="Changes" tabindex="0" {
                table.wide.audit.cards {
                    thead {
                        tr {
                            th scope="col" { "When" }
                            th scope="col" { "Who" }
                            th scope="col" { "Did" }
                            @if with_resource { th scope="col" { "To" } }
                            th scope="col" { "What, and why" }
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
            td.when { (dated(visit.now_us, entry.time.as_ref())) }
            td data-label="By" { (entry.actor) }
            td data-label="Did" { (entry.action) }
            @if with_resource {
                th scope="row" {
                    @match collection {
                        "policies" | "schedules" | "runs" | "alerts" | "calendars" => {
                            span.mute { (collection.trim_end_matches('s').replace("policie", "policy")) " " }
                            a href=(to(&entry.resource)) { (clipped_id(id)) }
                        }
                        _ => { (entry.resource) }
                    }
                }
            }
            td.text { (fields(entry)) }
        }
    }
}

fn fields(entry: &v1::AuditEntry) -> Markup {
    html! {
        @match entry.difference.as_ref().map(|difference| &difference.fields) {
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
            @if let Some(reason) = why(fields) { li.why { "“" (reason) "”" } }
            @for (path, change) in fields.iter().filter(|(path, _)| *path != "reason") {
                @let side = |name: &str| match &change.kind {
                    Some(Kind::StructValue(sides)) => sides.fields.get(name).map(|value| clipped(&in_words(path, value))),
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

/// Why it was done, where that was said.
fn why(fields: &std::collections::BTreeMap<String, Value>) -> Option<String> {
    let Some(Kind::StructValue(sides)) = &fields.get("reason")?.kind else { return None };
    sides.fields.get("new").map(text)
}

/// A value as people say it.
fn in_words(path: &str, value: &Value) -> String {
    match (path, &value.kind) {
        ("pause", Some(Kind::StructValue(pause))) => {
            let reason = pause.fields.get("reason").map(text).unwrap_or_default();
            let actor = pause.fields.get("actor").map(text).unwrap_or_default();
            if reason.is_empty() { format!("by {actor}") } else { format!("by {actor}: {reason}") }
        }
        ("run", Some(Kind::StringValue(run))) => run.rsplit('/').next().unwrap_or(run).to_owned(),
        _ => text(value),
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
        let drawn = super::fields(&entry).into_string();
        assert!(drawn.contains("<code>max_in_flight</code> <del>4</del> → <ins>&lt;b&gt;</ins>"), "{drawn}");
    }
}
