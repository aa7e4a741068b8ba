//! Decides where the fields of a resource stand, and how they are spelled there.
//!
//! In: a document, the path of a resource in it, and a field of the API's message. Out: the file and line for people, and the
//! field by the document's own names. What a schedule says of the step that follows it stands at that step.

use std::borrow::Cow;
use std::fmt;
use std::sync::{Arc, OnceLock};

use super::locate;

/// Where something is written.
#[derive(Clone, Debug)]
pub struct Location {
    pub(super) file: Arc<str>,
    pub(super) line: u64,
    pub(super) document: Arc<Document>,
    /// The path to the resource in the document; empty where it is the document.
    pub(super) path: String,
    /// The step that follows, where it is a schedule of a job with steps.
    pub(super) next: Option<Arc<Next>>,
}

/// A step of a job.
#[derive(Debug)]
pub(super) struct Next {
    /// The path to the job in the document.
    job: String,
    /// The path to the step in the job.
    step: String,
}

/// A document as it is written.
#[derive(Debug)]
pub(super) struct Document {
    pub(super) text: String,
    /// The line of the file at which it begins.
    pub(super) first_line: u64,
    /// Where its fields are; read once, when something is wrong.
    pub(super) tree: OnceLock<Option<locate::Node>>,
    /// Whether most names are spelled with `_`; found out once, too.
    pub(super) is_snake: OnceLock<bool>,
}

impl Location {
    /// The line, from 1.
    pub fn line(&self) -> u64 {
        self.line
    }

    /// The line of a field of the resource; its first line where the field is not in the document.
    pub fn of_field(&self, field: &str) -> Self {
        let (at, field) = self.place(field);
        if field.is_empty() {
            return self.clone();
        }
        let first_line = self.document.first_line;
        let path = format!("{at}.{field}");
        let line = self.tree().and_then(|tree| locate::line(tree, &path)).map(|line| line + first_line - 1);
        Self { line: line.map_or(self.line, |line| line.max(self.line)), ..self.clone() }
    }

    /// A field of the resource as the document spells it, without the resource's kind before it: `maxInFlight` for
    /// `policy.max_in_flight`. What the step that follows says, with the path of that step: `steps[0].when`.
    pub fn spelled(&self, field: &str) -> String {
        let (at, field) = self.place(field);
        match self.tree() {
            Some(tree) => locate::written(tree, at, &field, self.is_snake()),
            None => field.into_owned(),
        }
    }

    /// A text in which fields are named, with their names as the document spells them.
    pub fn spelled_text(&self, text: &str) -> String {
        if self.is_snake() { text.to_owned() } else { locate::camel_text(text) }
    }

    /// The place of a schedule of the job that is here, by its path in the job: empty for the job itself. `next`: the path of
    /// the step that follows it.
    pub(super) fn part(&self, path: &str, next: Option<&str>) -> Self {
        let next = next.map(|step| Arc::new(Next { job: self.path.clone(), step: step.to_owned() }));
        if path.is_empty() {
            return Self { next, ..self.clone() };
        }
        let line = self.of_field(path).line;
        let dot = if self.path.is_empty() { "" } else { "." };
        Self { line, path: format!("{}{dot}{path}", self.path), next, ..self.clone() }
    }

    /// Whether a field only names the step that follows: what is wrong with its name is told of the step itself.
    pub(super) fn is_told_by_step(&self, field: &str) -> bool {
        self.next.is_some() && in_resource(field) == "on_finish.schedule"
    }

    /// Where a field stands: the path of what has it, and its path in that.
    fn place<'a>(&'a self, field: &'a str) -> (&'a str, Cow<'a, str>) {
        let field = in_resource(field);
        match (&self.next, field.strip_prefix("on_finish.")) {
            (Some(next), Some("schedule")) => (next.job.as_str(), Cow::Borrowed(next.step.as_str())),
            (Some(next), Some(inner)) => (next.job.as_str(), Cow::Owned(format!("{}.{inner}", next.step))),
            _ => (self.path.as_str(), Cow::Borrowed(field)),
        }
    }

    fn is_snake(&self) -> bool {
        *self.document.is_snake.get_or_init(|| self.tree().is_some_and(locate::is_snake))
    }

    fn tree(&self) -> Option<&locate::Node> {
        let Document { text, tree, .. } = self.document.as_ref();
        tree.get_or_init(|| locate::read(text)).as_ref()
    }
}

impl fmt::Display for Location {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.file, self.line)
    }
}

/// Where the fields of one resource stand in a text that is JSON or YAML.
#[derive(Debug)]
pub struct Lines(Option<locate::Node>);

impl Lines {
    /// Of a text; of one that cannot be read, nothing is known.
    pub fn of(text: &str) -> Self {
        Self(locate::read(text))
    }

    /// The line of a field, from 1; of the deepest part of its path that the text has.
    pub fn field(&self, field: &str) -> Option<u64> {
        self.0.as_ref().and_then(|tree| locate::line(tree, in_resource(field)))
    }
}

/// A field's path inside the resource.
fn in_resource(field: &str) -> &str {
    ["schedule.", "policy.", "calendar.", "alert."]
        .iter()
        .find_map(|kind| field.strip_prefix(kind))
        .unwrap_or(field)
}
