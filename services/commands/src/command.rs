//! What a command is: an operation on a resource, with what the caller wants back.

use std::fmt;

use serde_json::Value;
use tollgate_files::Kind;
use tollgate_proto::v1;

/// What may be asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Op {
    /// Create or update a resource.
    Apply,
    /// Delete a resource.
    Delete,
    /// Pause a schedule or a policy.
    Pause,
    /// End such a pause.
    Resume,
    /// Make a run.
    Trigger,
    /// Make a run with items.
    Submit,
    /// Release an event's token.
    Release,
    /// Keep an event's token.
    Extend,
}

impl Op {
    /// All of them.
    pub const ALL: [Self; 8] = [
        Self::Apply,
        Self::Delete,
        Self::Pause,
        Self::Resume,
        Self::Trigger,
        Self::Submit,
        Self::Release,
        Self::Extend,
    ];

    /// Its word.
    pub fn word(self) -> &'static str {
        match self {
            Self::Apply => "apply",
            Self::Delete => "delete",
            Self::Pause => "pause",
            Self::Resume => "resume",
            Self::Trigger => "trigger",
            Self::Submit => "submit",
            Self::Release => "release",
            Self::Extend => "extend",
        }
    }

    /// The one with this word.
    pub fn of(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|op| op.word() == word)
    }

    /// Whether it must have a revision.
    pub(crate) fn is_numbered(self) -> bool {
        matches!(self, Self::Apply | Self::Delete | Self::Pause | Self::Resume)
    }

    /// Whether it must have an id.
    pub(crate) fn is_named(self) -> bool {
        !matches!(self, Self::Release | Self::Extend)
    }
}

impl fmt::Display for Op {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.word())
    }
}

/// What the sender calls a command, as far as that can be read.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Label {
    pub(crate) id: Option<String>,
    pub(crate) op: Option<Op>,
    /// `schedules/nightly`, or the event's id.
    pub(crate) resource: Option<String>,
    pub(crate) revision: Option<i64>,
    /// What comes back with the answer; none where no answer is asked for.
    pub(crate) reply: Option<Value>,
}

/// A command that can be carried out.
#[derive(Clone, Debug)]
pub(crate) struct Command {
    pub(crate) key: Key,
    pub(crate) revision: i64,
    pub(crate) act: Act,
}

/// What commands are about. No two of one are under way at once.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Key {
    /// `schedules`, `events`.
    pub(crate) collection: &'static str,
    pub(crate) id: String,
}

/// What is to be done.
#[derive(Clone, Debug)]
pub(crate) enum Act {
    Apply(Box<v1::ApplyResourcesRequest>),
    Delete(Kind, String),
    Pause(Pausable, String, String),
    Resume(Pausable, String),
    Trigger(v1::TriggerScheduleRequest),
    Submit(v1::SubmissionHeader, Vec<v1::Item>),
    Release(v1::ReleaseTokenRequest),
    Extend(v1::ExtendTokenRequest),
}

/// What can be paused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Pausable {
    Schedule,
    Policy,
}

impl Act {
    /// Of what its revision is: of the resource, of its pause, or of nothing.
    pub(crate) fn facet(&self) -> Facet {
        match self {
            Self::Apply(_) => Facet::Body,
            Self::Delete(..) => Facet::Deletion,
            Self::Pause(..) | Self::Resume(..) => Facet::Pause,
            _ => Facet::None,
        }
    }
}

/// What a revision is of. A resource and its pause count apart; a deletion is one of the resource.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Facet {
    Body,
    Deletion,
    Pause,
    None,
}
