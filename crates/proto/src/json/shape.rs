//! Decides which fields of a message people may write, and how a name is spelled.
//!
//! In: the descriptors with their comments. Out: the fields whose comment does not begin with `Output only.`.

use std::collections::HashSet;
use std::sync::LazyLock;

use prost_reflect::{FieldDescriptor, Kind, MessageDescriptor};

use crate::descriptors;

/// How a document spells the names of fields.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Spelling {
    /// `maxInFlight`, as the JSON mapping writes it.
    Camel,
    /// `max_in_flight`, as the .proto files write it.
    Snake,
}

impl Spelling {
    /// The name of a field.
    pub(super) fn of(self, field: &FieldDescriptor) -> &str {
        match self {
            Self::Camel => field.json_name(),
            Self::Snake => field.name(),
        }
    }
}

/// The full names of all fields that are only given, and never taken.
static OUTPUT_ONLY: LazyLock<HashSet<String>> = LazyLock::new(|| {
    let pool = descriptors::descriptor_pool();
    let mut paths = HashSet::new();
    for file in pool.files() {
        let source = file.file_descriptor_proto().source_code_info.as_ref();
        for location in source.map(|source| source.location.as_slice()).unwrap_or_default() {
            if location.leading_comments().trim_start().starts_with("Output only.") {
                paths.insert((file.name().to_owned(), location.path.clone()));
            }
        }
    }
    let fields = pool.all_messages().flat_map(|message| message.fields().collect::<Vec<_>>());
    fields
        .filter(|field| paths.contains(&(field.parent_file().name().to_owned(), field.path().to_vec())))
        .map(|field| field.full_name().to_owned())
        .collect()
});

/// The fields that may be written, by name.
pub(super) fn writable(descriptor: &MessageDescriptor) -> Vec<FieldDescriptor> {
    let fields = descriptor.fields().filter(|field| !OUTPUT_ONLY.contains(field.full_name()));
    let mut fields: Vec<FieldDescriptor> = fields.collect();
    fields.sort_by(|one, other| one.name().cmp(other.name()));
    fields
}

/// Their names: "cron, fields, interval or at"; with `last` as the last comma.
pub(super) fn names(descriptor: &MessageDescriptor, spelling: Spelling, last: &str) -> String {
    let fields = writable(descriptor);
    let names: Vec<&str> = fields.iter().map(|field| spelling.of(field)).collect();
    listed(&names, last)
}

/// "a, b or c".
pub(super) fn listed(names: &[&str], last: &str) -> String {
    match names {
        [] => "nothing".to_owned(),
        [one] => (*one).to_owned(),
        [most @ .., one] => format!("{} {last} {one}", most.join(", ")),
    }
}

/// The message of a field that has fields of its own.
pub(super) fn inner(field: &FieldDescriptor) -> Option<MessageDescriptor> {
    match field.kind() {
        Kind::Message(message) if !field.is_map() && !message.full_name().starts_with("google.protobuf.") => {
            Some(message)
        }
        _ => None,
    }
}
