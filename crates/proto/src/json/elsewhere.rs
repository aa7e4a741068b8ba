//! Decides where a field belongs that stands in the wrong place.
//!
//! In: the messages from the document's root to where it stands, and its name. Out: a sentence. Invariant: only fields
//! that may be written are named, spelled as the document spells them.

use std::collections::VecDeque;

use prost_reflect::{FieldDescriptor, MessageDescriptor};

use super::shape::{Spelling, inner, listed, writable};
use super::words::{Meant, meant};
use crate::descriptors;
use tollgate_core::nearest::{plain, same};

/// How deep below a message its fields are looked for.
const DEPTH_MAX: usize = 3;
/// The most places that are named.
const PLACES_MAX: usize = 3;
/// What people write documents of.
const KINDS: [&str; 4] = ["Schedule", "Policy", "Alert", "Calendar"];

/// A message on the way to where a field stands.
#[derive(Clone, Debug)]
pub(super) struct Step {
    /// The message.
    pub(super) descriptor: MessageDescriptor,
    /// The field that holds it; none for the root.
    pub(super) field: Option<FieldDescriptor>,
}

/// What somebody wrote who wrote this key with this value.
pub(super) fn belongs(way: &[Step], key: &str, value: &str, spelling: Spelling) -> Option<String> {
    let (here, above) = way.split_last()?;
    // A word of other systems means the same, whatever field of that name there is further down.
    if let Some(told) = foreign(&here.descriptor, key, value, spelling) {
        return Some(told);
    }
    let down = below(&here.descriptor, key);
    if !down.is_empty() {
        return Some(format!("it belongs further down: {}", written(&down, value, spelling)));
    }
    for (up, step) in above.iter().rev().enumerate() {
        if is_request(&step.descriptor) {
            break;
        }
        if let Some(field) = own(&step.descriptor, key) {
            let levels = if up == 0 { "one level up".to_owned() } else { format!("{} levels up", up + 1) };
            return Some(format!("{} belongs to {}, {levels}", spelling.of(&field), called(step, spelling)));
        }
    }
    let root = way.iter().rev().find(|step| KINDS.contains(&step.descriptor.name()))?;
    let aside = below(&root.descriptor, key);
    if !aside.is_empty() && root.descriptor != here.descriptor {
        let whole = written(&aside, value, spelling);
        return Some(format!("it belongs to the {}: {whole}", root.descriptor.name().to_lowercase()));
    }
    of_another_kind(&root.descriptor, key, spelling)
}

/// A field of a resource of another kind.
fn of_another_kind(root: &MessageDescriptor, key: &str, spelling: Spelling) -> Option<String> {
    let pool = descriptors::descriptor_pool();
    KINDS.iter().filter(|kind| **kind != root.name()).find_map(|kind| {
        let other = pool.get_message_by_name(&format!("tollgate.v1.{kind}"))?;
        let field = own(&other, key)?;
        let how = match (root.name(), *kind) {
            ("Schedule", "Policy") => ", which the schedule names in policy",
            ("Schedule", "Calendar") => ", which the schedule names among its excluded calendars",
            _ => "",
        };
        let name = spelling.of(&field);
        let (kind, not) = (kind.to_lowercase(), root.name().to_lowercase());
        let [kind_article, not_article] =
            [&kind, &not].map(|word| if word.starts_with('a') { "an" } else { "a" });
        Some(format!("{name} belongs to {kind_article} {kind}{how}, not to {not_article} {not}"))
    })
}

/// What the words of other systems mean here.
fn foreign(descriptor: &MessageDescriptor, key: &str, value: &str, spelling: Spelling) -> Option<String> {
    match meant(descriptor.name(), key)? {
        Meant::Told(told) => Some((*told).to_owned()),
        Meant::Field(path) => {
            let mut at = descriptor.clone();
            let mut places = Vec::new();
            for part in path.split('.') {
                let field = at.get_field_by_name(part.trim_end_matches("[]"))?;
                at = inner(&field).unwrap_or(at);
                places.push(field);
            }
            if places.len() == 1 {
                return Some(format!("did you mean {}?", spelling.of(&places[0])));
            }
            Some(format!("write {}", written(&[places], value, spelling)))
        }
    }
}

/// The writable field of this name, however it is spelled.
pub(super) fn own(descriptor: &MessageDescriptor, key: &str) -> Option<FieldDescriptor> {
    let fields = writable(descriptor);
    let name = same(key, fields.iter().map(FieldDescriptor::name))?.to_owned();
    fields.into_iter().find(|field| field.name() == name)
}

/// The ways from a message down to fields of this name: the shortest.
fn below(descriptor: &MessageDescriptor, key: &str) -> Vec<Vec<FieldDescriptor>> {
    let mut found: Vec<Vec<FieldDescriptor>> = Vec::new();
    let mut next: VecDeque<(MessageDescriptor, Vec<FieldDescriptor>)> = VecDeque::new();
    next.push_back((descriptor.clone(), Vec::new()));
    let key = plain(key);
    while let Some((message, way)) = next.pop_front() {
        if found.first().is_some_and(|first| first.len() <= way.len()) {
            break;
        }
        for field in writable(&message) {
            let mut way = way.clone();
            way.push(field.clone());
            if way.len() > 1 && plain(field.name()) == key {
                found.push(way);
            } else if way.len() < DEPTH_MAX
                && let Some(inner) = inner(&field)
            {
                next.push_back((inner, way));
            }
        }
    }
    // What was there first is what most people mean: a target, before a list.
    found.sort_by_key(|way| way.first().map(FieldDescriptor::number));
    found.truncate(PLACES_MAX);
    found
}

/// `retry: {maxAttempts: 3}`, for each of the places.
fn written(places: &[Vec<FieldDescriptor>], value: &str, spelling: Spelling) -> String {
    let texts = places.iter().map(|way| {
        let (mut text, mut ends) = (String::new(), String::new());
        for (at, field) in way.iter().enumerate() {
            text.push_str(&format!("{}: ", spelling.of(field)));
            if at + 1 < way.len() {
                let (open, close) = if field.is_list() { ("[{", "}]") } else { ("{", "}") };
                text.push_str(open);
                ends.insert_str(0, close);
            }
        }
        format!("{text}{value}{ends}")
    });
    let texts: Vec<String> = texts.collect();
    listed(&texts.iter().map(String::as_str).collect::<Vec<_>>(), "or")
}

/// What somebody calls the message who wrote the document.
fn called(step: &Step, spelling: Spelling) -> String {
    match &step.field {
        Some(field) if !KINDS.contains(&step.descriptor.name()) => spelling.of(field).to_owned(),
        _ => format!("the {}", step.descriptor.name().to_lowercase()),
    }
}

/// Whether a message is what a call sends, and not what a document describes.
fn is_request(descriptor: &MessageDescriptor) -> bool {
    descriptor.name().ends_with("Request")
}

/// `path` of a message as an example: `{http: {url: …}}`.
pub(super) fn example(
    descriptor: &MessageDescriptor,
    path: &str,
    value: &str,
    spelling: Spelling,
) -> Option<String> {
    let mut at = descriptor.clone();
    let mut way = Vec::new();
    for part in path.split('.') {
        let field = at.get_field_by_name(part)?;
        at = inner(&field).unwrap_or(at);
        way.push(field);
    }
    Some(format!("{{{}}}", written(&[way], value, spelling)))
}
