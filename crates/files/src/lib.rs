//! Decides which resources a file describes, and how a resource stands in a file.
//!
//! In: a file's text. Out: messages with their locations, or all that is wrong, with file and line. A document is one resource
//! (`kind: Policy`, `kind: Schedule`, `kind: Calendar` or `kind: Alert`), or lists of them under `policies`, `schedules`,
//! `calendars` and `alerts`. A
//! resource has an `id` in the document's `namespace`, or a full `name`; its other keys are the fields of the API's message. A
//! schedule may have `steps`, which are schedules of their own and may have the fields of a task (`kind: Task`).

mod crontab;
mod documents;
mod kind;
mod kubernetes;
mod locate;
mod location;
mod resource;
mod steps;
mod values;
mod write;

use std::collections::BTreeMap;
use std::sync::{Arc, OnceLock};

use serde::Deserialize;
use serde_json::{Map, Value};
use serde_saphyr::{MessageFormatter, Spanned, UserMessageFormatter};
use tollgate_proto::v1;

pub use kind::Kind;
use location::Document;
pub use location::{Lines, Location};
pub use resource::{faults, one};
use steps::{Tasks, Written};
pub use values::wrong_values;
pub use write::{OUTPUT_ONLY, document, with_ids, without_derived};

/// A policy, a schedule, a calendar or an alert.
#[derive(Clone, Debug)]
#[expect(clippy::large_enum_variant, reason = "nearly all of many are schedules")]
pub enum Resource {
    /// A policy.
    Policy(v1::Policy),
    /// A schedule.
    Schedule(v1::Schedule),
    /// A calendar.
    Calendar(v1::Calendar),
    /// An alert.
    Alert(v1::Alert),
}

/// A resource, its namespace and its location.
#[derive(Clone, Debug)]
pub struct FileEntry {
    /// Where it is written.
    pub location: Location,
    /// The namespace's id.
    pub namespace: String,
    /// With its full name.
    pub resource: Resource,
}

impl FileEntry {
    /// The message that asks for it.
    pub fn request(self, validate_only: bool) -> v1::ApplyResourcesRequest {
        use v1::apply_resources_request::Resource as Sent;
        let resource = match self.resource {
            Resource::Policy(policy) => Sent::Policy(policy),
            Resource::Schedule(schedule) => Sent::Schedule(schedule),
            Resource::Calendar(calendar) => Sent::Calendar(calendar),
            Resource::Alert(alert) => Sent::Alert(alert),
        };
        v1::ApplyResourcesRequest {
            namespace: self.namespace,
            resource: Some(resource),
            source: self.location.to_string(),
            validate_only,
            revision: 0,
        }
    }

    /// Its full name.
    pub fn name(&self) -> &str {
        match &self.resource {
            Resource::Policy(policy) => &policy.name,
            Resource::Schedule(schedule) => &schedule.name,
            Resource::Calendar(calendar) => &calendar.name,
            Resource::Alert(alert) => &alert.name,
        }
    }
}

/// How deep a document may be nested; the API's messages are not half as deep with the deepest payload. Readers
/// recurse, and the stack is not endless.
const DEPTH_MAX: usize = 64;
/// How deep aliases may lead to text with aliases: each may add [`DEPTH_MAX`] levels.
const ALIAS_DEPTH_MAX: usize = 8;
/// How many values aliases may bring in, all together.
const ALIAS_VALUES_MAX: usize = 100_000;

/// How files are read: strictly, and of any size. Files are the caller's own, so only what is out of all proportion
/// to their size is bounded: depth and aliases.
fn yaml_options() -> serde_saphyr::Options {
    serde_saphyr::options! {
        with_snippet: false,
        strict_booleans: true,
        budget: serde_saphyr::budget! {
            max_depth: DEPTH_MAX,
            flow_nesting_limit: DEPTH_MAX,
            max_events: usize::MAX,
            max_nodes: usize::MAX,
            max_anchors: usize::MAX,
            max_aliases: usize::MAX,
            max_merge_keys: usize::MAX,
            max_total_scalar_bytes: usize::MAX,
            enforce_alias_anchor_ratio: false,
        },
        alias_limits: serde_saphyr::alias_limits! {
            max_replay_stack_depth: ALIAS_DEPTH_MAX,
            max_total_replayed_events: ALIAS_VALUES_MAX,
        },
    }
}

/// Adds the resources of a file to `entries`, and what is wrong with it to `wrong`.
pub fn parse(
    file: &Arc<str>,
    text: &str,
    namespace: &str,
    entries: &mut Vec<FileEntry>,
    wrong: &mut Vec<String>,
) {
    let mut files = Files::new(namespace);
    files.read(file, text);
    let (read, refused) = files.end();
    entries.extend(read);
    wrong.extend(refused);
}

/// Files that are read together: steps in one of them may use the tasks of another one.
#[derive(Debug)]
pub struct Files {
    namespace: String,
    entries: Vec<FileEntry>,
    wrong: Vec<String>,
    tasks: Tasks,
    /// Schedules with steps.
    jobs: Vec<(Map<String, Value>, Location)>,
}

impl Files {
    /// None as yet. What does not say so is in this namespace.
    pub fn new(namespace: &str) -> Self {
        let (entries, wrong, jobs) = (Vec::new(), Vec::new(), Vec::new());
        Self { namespace: namespace.to_owned(), entries, wrong, tasks: Tasks::default(), jobs }
    }

    /// Reads a file.
    pub fn read(&mut self, file: &Arc<str>, text: &str) {
        read_documents(file, text, self);
    }

    /// The resources of all files, and all that is wrong with them.
    pub fn end(mut self) -> (Vec<FileEntry>, Vec<String>) {
        for (job, location) in std::mem::take(&mut self.jobs) {
            self.job(job, &location);
        }
        (self.entries, self.wrong)
    }

    /// A schedule with steps, and these.
    fn job(&mut self, job: Map<String, Value>, location: &Location) {
        let (namespace, id) = resource::called(&self.namespace, &job);
        let schedules = match steps::expand(job, &namespace, id.as_deref(), &self.tasks) {
            Ok(schedules) => schedules,
            Err(faults) => return self.refuse(location, &faults),
        };
        let before = self.entries.len();
        for Written { path, next, members } in schedules {
            let job = id.as_deref().filter(|_| !path.is_empty());
            self.add(members, Kind::Schedule, job, &location.part(&path, next.as_deref()));
        }
        if id.is_none() {
            // The job is refused for that. The names of its steps are made up: only what else is wrong with them is told.
            let steps = self.entries.split_off(before);
            self.wrong.extend(wrong_values(&steps, usize::MAX));
        }
    }
}

fn read_documents(file: &Arc<str>, text: &str, reader: &mut Files) {
    for document in documents::split(text) {
        let read = Document {
            text: document.text.to_owned(),
            first_line: document.first_line,
            tree: OnceLock::new(),
            is_snake: OnceLock::new(),
        };
        let location = Location {
            file: Arc::clone(file),
            line: document.content_line,
            document: Arc::new(read),
            path: String::new(),
            next: None,
        };
        if let Some((line, told)) = crontab::told(document.text) {
            let location = Location { line: document.first_line + line, ..location };
            reader.wrong.push(format!("{location}: {told}"));
            continue;
        }
        match serde_saphyr::from_str_with_options::<Value>(document.text, yaml_options()) {
            Ok(value) => reader.document(value, &location),
            Err(error) => reader.not_yaml(&error, location),
        }
    }
}

/// Names that are given twice, with both locations.
pub fn given_twice(entries: &[FileEntry]) -> Vec<String> {
    let mut seen: BTreeMap<&str, &Location> = BTreeMap::new();
    let twice = |entry: &'_ FileEntry, first: &Location| {
        format!("{}: {} is given twice, first at {first}: remove one of them", entry.location, entry.name())
    };
    let repeated = entries.iter().filter_map(|entry| match seen.get(entry.name()) {
        Some(first) => Some(twice(entry, first)),
        None => {
            seen.insert(entry.name(), &entry.location);
            None
        }
    });
    repeated.collect()
}

/// Lists of resources in one document. The namespace stands in front of them all.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Lists {
    #[serde(default)]
    namespace: Option<String>,
    #[serde(default)]
    policies: Vec<Spanned<Value>>,
    #[serde(default)]
    schedules: Vec<Spanned<Value>>,
    #[serde(default)]
    calendars: Vec<Spanned<Value>>,
    #[serde(default)]
    alerts: Vec<Spanned<Value>>,
    #[serde(default)]
    tasks: Vec<Spanned<Value>>,
}

impl Files {
    fn document(&mut self, value: Value, location: &Location) {
        let Value::Object(mut members) = value else {
            let is_list = matches!(value, Value::Array(_));
            let told = if is_list { kind::LIST } else { kind::EXPECTED };
            return self.wrong.push(format!("{location}: {told}"));
        };
        if let Some(told) = kubernetes::told(&members) {
            return self.wrong.push(format!("{location}: {told}"));
        }
        match members.remove("kind") {
            Some(Value::String(word)) if Kind::named(&word).is_some() => {
                if let Some(kind) = Kind::named(&word) {
                    self.resource(members, kind, location);
                }
            }
            Some(Value::String(word)) if word.eq_ignore_ascii_case("task") => self.task(members, location),
            Some(kind) => {
                let location = location.of_field("kind");
                self.wrong.push(format!("{location}: kind: {}", kind::refused(&kind)));
            }
            None if Kind::ALL.iter().any(|kind| members.contains_key(kind.collection()))
                || members.contains_key("tasks") =>
            {
                self.lists(location)
            }
            None => self.wrong.push(format!("{location}: {}", kind::missing(&members))),
        }
    }

    fn lists(&mut self, location: &Location) {
        // Read again, this time with the line of each item.
        let lists: Lists = match serde_saphyr::from_str_with_options(&location.document.text, yaml_options())
        {
            Ok(lists) => lists,
            Err(error) => return self.not_yaml(&error, location.clone()),
        };
        let all = [
            (Some(Kind::Policy), lists.policies),
            (Some(Kind::Schedule), lists.schedules),
            (Some(Kind::Calendar), lists.calendars),
            (Some(Kind::Alert), lists.alerts),
            (None, lists.tasks),
        ];
        for (kind, items) in all {
            let collection = kind.map_or("tasks", Kind::collection);
            for (index, item) in items.into_iter().enumerate() {
                let location = Location {
                    line: item.referenced.line() + location.document.first_line - 1,
                    path: format!("{collection}[{index}]"),
                    ..location.clone()
                };
                let Value::Object(mut members) = item.value else {
                    self.wrong.push(format!("{location}: {}: expected an object", location.path));
                    continue;
                };
                let Some(kind) = kind else {
                    self.task(members, &location);
                    continue;
                };
                if let (Some(namespace), false) = (&lists.namespace, members.contains_key("namespace")) {
                    members.insert("namespace".to_owned(), Value::String(namespace.clone()));
                }
                self.resource(members, kind, &location);
            }
        }
    }

    fn task(&mut self, members: Map<String, Value>, location: &Location) {
        if let Err(faults) = self.tasks.add(members) {
            self.refuse(location, &faults);
        }
    }

    fn resource(&mut self, members: Map<String, Value>, kind: Kind, location: &Location) {
        if kind == Kind::Schedule && steps::has_steps(&members) {
            // The tasks may come later.
            self.jobs.push((members, location.clone()));
            return;
        }
        self.add(members, kind, None, location);
    }

    /// A resource that is no job. `job`: the id of the job of which it is a step.
    fn add(&mut self, members: Map<String, Value>, kind: Kind, job: Option<&str>, location: &Location) {
        match resource::read(&self.namespace, members, kind, job) {
            Ok((namespace, resource)) => {
                self.entries.push(FileEntry { location: location.clone(), namespace, resource });
            }
            Err(faults) => self.refuse(location, &faults),
        }
    }

    /// Notes what is wrong with a resource, in the order of its lines.
    fn refuse(&mut self, location: &Location, faults: &[resource::Fault]) {
        let mut lines: Vec<(Location, String)> = faults
            .iter()
            .filter(|fault| !location.is_told_by_step(&fault.field))
            .map(|fault| {
                let field = location.spelled(&fault.field);
                let colon = if field.is_empty() { "" } else { ": " };
                let message = format!("{field}{colon}{}", location.spelled_text(&fault.message));
                (location.of_field(&fault.field), message)
            })
            .collect();
        lines.sort_by_key(|(location, _)| location.line);
        self.wrong.extend(lines.into_iter().map(|(location, message)| format!("{location}: {message}")));
    }

    fn not_yaml(&mut self, error: &serde_saphyr::Error, location: Location) {
        let error = error.without_snippet();
        let line = error.location().map(|at| at.line() + location.document.first_line - 1);
        let location = Location { line: line.unwrap_or(location.line), ..location };
        let mut message = UserMessageFormatter.format_message(error).into_owned();
        if let Some(key) = message.strip_prefix("duplicate mapping key: ") {
            let key = key.trim_end_matches(" not allowed here").to_owned();
            message = format!("{key}: is given twice: remove one of them");
        }
        let at = usize::try_from(location.line - location.document.first_line).unwrap_or(usize::MAX);
        let mut lines = location.document.text.lines().skip(at).take(2);
        let (line, next) = (lines.next().unwrap_or_default(), lines.next().unwrap_or_default());
        let mut place = location.to_string();
        if line.contains(": *") || line.contains("- *") {
            // `cron: */5 * * * *` is the commonest mistake of all.
            message = format!("text that begins with * must stand in quotes ({message})");
        } else if message.contains("tab") && (line.starts_with('\t') || next.starts_with('\t')) {
            message = format!("a line begins with a tab; YAML is indented with blanks ({message})");
            if !line.starts_with('\t') {
                place = Location { line: location.line + 1, ..location.clone() }.to_string();
            }
        } else if message.contains("illegal placement") {
            message.push_str(
                "; is a bracket or a quote of this line or one before not closed, or does a text with \": \" in it need quotes?",
            );
        }
        self.wrong.push(format!("{place}: {message}"));
    }
}

#[cfg(test)]
mod tests;
