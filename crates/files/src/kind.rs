//! Decides which kind of resource a document describes, and what to write where it does not say so.

use serde_json::{Map, Value};
use tollgate_core::nearest::{nearest, plain};

/// What a resource is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A policy.
    Policy,
    /// A schedule.
    Schedule,
    /// A calendar.
    Calendar,
    /// An alert.
    Alert,
}

/// What a document may be.
pub(super) const EXPECTED: &str = "expected kind: Policy, kind: Schedule, kind: Calendar or kind: Alert with its fields, or \
                                   lists under policies, schedules, calendars and alerts; `tollgate init` writes an example";

/// What to make of a list.
pub(super) const LIST: &str = "a list is not allowed as a document: separate its items by lines of ---, or write lists under \
                               policies, schedules, calendars and alerts";

impl Kind {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::Policy, Self::Schedule, Self::Calendar, Self::Alert];

    /// The kind that `kind: …` names, in any case.
    pub(super) fn named(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| word.eq_ignore_ascii_case(kind.word()))
    }

    /// Its word.
    pub fn word(self) -> &'static str {
        match self {
            Self::Policy => "Policy",
            Self::Schedule => "Schedule",
            Self::Calendar => "Calendar",
            Self::Alert => "Alert",
        }
    }

    /// The key under which a document lists such.
    pub fn collection(self) -> &'static str {
        match self {
            Self::Policy => "policies",
            Self::Schedule => "schedules",
            Self::Calendar => "calendars",
            Self::Alert => "alerts",
        }
    }

    /// The kind that other systems call so.
    fn meant(word: &str) -> Option<Self> {
        Some(match plain(word).as_str() {
            "cronjob" | "job" | "cron" | "crontab" | "schedules" | "scheduledjob" | "task"
            | "schedulejob" => Self::Schedule,
            "queue" | "limit" | "limits" | "ratelimit" | "bucket" | "policies" | "throttle"
            | "throttlingpolicy" | "concurrency" => Self::Policy,
            "calendars" | "holidays" | "holiday" | "holidaycalendar" | "blackout" => Self::Calendar,
            "alerts" | "notification" | "alertrule" | "rule" | "receiver" => Self::Alert,
            _ => return None,
        })
    }
}

/// The refusal of what stands behind `kind`.
pub(super) fn refused(kind: &Value) -> String {
    let word = kind.as_str().unwrap_or_default();
    let near = Kind::meant(word).map(Kind::word).or_else(|| nearest(word, Kind::ALL.map(Kind::word)));
    let meant = near.map(|near| format!("; did you mean {near}?")).unwrap_or_default();
    format!("{kind} is not allowed, expected Policy, Schedule, Calendar or Alert{meant}")
}

/// The refusal of a document without a kind.
pub(super) fn missing(members: &Map<String, Value>) -> String {
    const SIGNS: [(Kind, &[&str]); 4] = [
        (Kind::Schedule, &["triggers", "cron", "schedule", "events", "timezone", "payload", "crontab"]),
        (Kind::Policy, &["maxinflight", "ratepersecond", "tokenttl", "burst", "reclaim"]),
        (Kind::Calendar, &["dates"]),
        (Kind::Alert, &["troubles", "groupwait", "repeatinterval", "runs"]),
    ];
    let has = |words: &[&str]| members.keys().any(|key| words.contains(&plain(key).as_str()));
    match SIGNS.iter().find(|(_, words)| has(words)) {
        Some((kind, _)) => format!("kind is missing: write kind: {} beside the other fields", kind.word()),
        None => EXPECTED.to_owned(),
    }
}
