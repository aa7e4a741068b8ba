//! A schedule, a policy, a calendar or an alert while it is made or changed: as it is stored, as the texts of a form, as what
//! they make of it.
//!
//! Invariants: what a form does not show stays; a secret that is not shown stays, too.

use maud::{Markup, html};
use serde_json::{Map, Value, json};
use tollgate_files::{Kind, Lines, OUTPUT_ONLY, without_derived};
use tollgate_proto::v1;

use crate::parts::alert_fields::ALERT;
use crate::parts::fields::{CALENDAR, POLICY, SCHEDULE};
use crate::parts::forms::{self, Group, Texts};
use crate::parts::rules;
use crate::parts::shell::Section;
use crate::requests::problem::{Field, Problem};
use crate::words::show::short;

/// What is made or changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum What {
    Schedule,
    Policy,
    Calendar,
    Alert,
}

impl What {
    pub(crate) fn collection(self) -> &'static str {
        match self {
            Self::Schedule => "schedules",
            Self::Policy => "policies",
            Self::Calendar => "calendars",
            Self::Alert => "alerts",
        }
    }

    pub(crate) fn word(self) -> &'static str {
        match self {
            Self::Schedule => "schedule",
            Self::Policy => "policy",
            Self::Calendar => "calendar",
            Self::Alert => "alert",
        }
    }

    /// As the menu says it.
    pub(crate) fn plural(self) -> &'static str {
        match self {
            Self::Schedule => "Schedules",
            Self::Policy => "Policies",
            Self::Calendar => "Calendars",
            Self::Alert => "Alerts",
        }
    }

    /// As files know it.
    pub(crate) fn kind(self) -> Kind {
        match self {
            Self::Schedule => Kind::Schedule,
            Self::Policy => Kind::Policy,
            Self::Calendar => Kind::Calendar,
            Self::Alert => Kind::Alert,
        }
    }

    pub(crate) fn groups(self) -> &'static [Group] {
        match self {
            Self::Schedule => SCHEDULE,
            Self::Policy => POLICY,
            Self::Calendar => CALENDAR,
            Self::Alert => ALERT,
        }
    }

    pub(crate) fn section(self) -> Section {
        match self {
            Self::Schedule => Section::Schedules,
            Self::Policy => Section::Policies,
            Self::Calendar => Section::Schedules,
            Self::Alert => Section::Alerts,
        }
    }

    /// What a JSON form begins with.
    fn example(self) -> Value {
        match self {
            Self::Schedule => json!({
                "triggers": [{"cron": "30 2 * * *"}], "time_zone": "Europe/Berlin", "events": 1,
                "target": {"http": {"url": "http://127.0.0.1:8080/"}},
            }),
            Self::Policy => json!({ "max_in_flight": 8 }),
            Self::Calendar => json!({ "dates": ["2026-12-25", "2026-12-24..2027-01-01"] }),
            Self::Alert => json!({
                "troubles": {}, "runs": "ALERT_RUNS_FINISHED_WITH_FAILURES",
                "target": {"http": {"url": "http://127.0.0.1:8080/alerts"}},
            }),
        }
    }
}

/// A resource as it is stored; as nothing where it is to be made.
#[derive(Clone, Debug, Default)]
pub(crate) struct Stored {
    /// Its id; empty where it is to be made.
    pub(crate) id: String,
    pub(crate) etag: String,
    pub(crate) members: Map<String, Value>,
    /// As it stands in a file.
    pub(crate) file: String,
    pub(crate) schedule: Option<v1::Schedule>,
}

/// A resource as JSON, without what nobody may set.
pub(crate) fn editable(value: Value) -> Map<String, Value> {
    let Value::Object(mut members) = value else { return Map::new() };
    members.retain(|name, _| !OUTPUT_ONLY.contains(&name.as_str()));
    without_derived(&mut members);
    members
}

/// The forms as a resource fills them.
pub(crate) fn filled(what: What, stored: &Stored) -> Texts {
    let mut texts = forms::texts(&stored.members, what.groups());
    if let Some(schedule) = &stored.schedule {
        texts.insert("policy".to_owned(), short(&schedule.policy).to_owned());
        let calendars: Vec<&str> = schedule.exclude_calendars.iter().map(|name| short(name)).collect();
        texts.insert("exclude_calendars".to_owned(), calendars.join("\n"));
        texts.extend(rules::texts(schedule, &stored.members));
    }
    if what == What::Alert && stored.id.is_empty() {
        // Nearly everybody wants to be told of troubles.
        texts.insert("troubles".to_owned(), "yes".to_owned());
    }
    let json = if stored.id.is_empty() { what.example() } else { Value::Object(stored.members.clone()) };
    texts.insert("json".to_owned(), serde_json::to_string_pretty(&json).unwrap_or_default());
    texts.insert("etag".to_owned(), stored.etag.clone());
    texts
}

/// What the forms make of a resource, and which fields of it they set.
pub(crate) fn would_be(
    what: What,
    stored: &Stored,
    texts: &Texts,
) -> Result<(Map<String, Value>, Vec<String>), Problem> {
    if texts.get("form").is_some_and(|form| form == "json") {
        return Ok((whole(what, texts)?, vec!["*".to_owned()]));
    }
    let mut members = forms::members(texts, what.groups())?;
    let fields = what.groups().iter().flat_map(|group| group.fields);
    let mut paths: Vec<String> =
        fields.map(|spec| spec.path.split('.').next().unwrap_or(spec.path).to_owned()).collect();
    if what == What::Policy && stored.members.contains_key("parent") {
        // None, said so: what is left out stays.
        members.entry("parent").or_insert_with(|| json!(""));
    }
    if what != What::Policy {
        // A secret that is not shown stays.
        let of = |members: &Map<String, Value>| {
            members.get("target").and_then(|target| target.get("http")).cloned()
        };
        let has_secret =
            of(&stored.members).is_some_and(|http| http.get("has_secret") == Some(&Value::Bool(true)));
        if has_secret && let Some(http) = members.get_mut("target").and_then(|target| target.get_mut("http"))
        {
            http["has_secret"] = Value::Bool(true);
        }
    }
    if what == What::Schedule {
        members.insert("triggers".to_owned(), rules::triggers(texts).into());
        paths.retain(|path| !["cron", "intervals", "moments"].contains(&path.as_str()));
        paths.push("triggers".to_owned());
    }
    paths.sort_unstable();
    paths.dedup();
    Ok((members, paths))
}

/// The JSON form as a resource, or all that is wrong with it, in the order of its lines.
fn whole(what: What, texts: &Texts) -> Result<Map<String, Value>, Problem> {
    let text = texts.get("json").map(String::as_str).unwrap_or_default();
    let wrong = |message: String| Problem::of_fields(vec![Field { name: "json".to_owned(), message }]);
    let value: Value =
        serde_json::from_str(text).map_err(|error| wrong(format!("this is no JSON: {error}")))?;
    let Value::Object(members) = value else { return Err(wrong("this is no object".to_owned())) };
    let (set, own): (Map<String, Value>, Map<String, Value>) =
        members.into_iter().partition(|(name, _)| OUTPUT_ONLY.contains(&name.as_str()));
    let set =
        set.into_iter().map(|(name, _)| (name, "the service sets this itself; leave it out".to_owned()));
    let mut faults = tollgate_files::faults(what.kind(), own.clone(), set.collect());
    if faults.is_empty() {
        return Ok(own);
    }
    let lines = Lines::of(text);
    faults.sort_by_key(|(field, _)| lines.field(field));
    Err(Problem::of_fields(faults.into_iter().map(|(name, message)| Field { name, message }).collect()))
}

/// A value in which a secret is not shown.
fn without_secrets(value: &Value) -> Value {
    match value {
        Value::Object(members) => members
            .iter()
            .map(|(name, value)| match value {
                Value::String(text) if name == "secret" && !text.is_empty() => {
                    (name.clone(), json!("a new one"))
                }
                _ => (name.clone(), without_secrets(value)),
            })
            .collect(),
        _ => value.clone(),
    }
}

/// Old and new, field by field.
pub(crate) fn changes(old: &Map<String, Value>, new: &Map<String, Value>) -> Markup {
    let mut names: Vec<&String> = old.keys().chain(new.keys()).collect();
    names.sort_unstable();
    names.dedup();
    let side = |value: Option<&Value>| match value {
        None => "nothing".to_owned(),
        Some(Value::String(text)) => text.clone(),
        Some(value) => without_secrets(value).to_string(),
    };
    // A policy's full name is the same policy as its id.
    let tail = |value: &Value| value.as_str().map(|text| short(text).to_owned());
    let changed: Vec<&String> = names
        .into_iter()
        .filter(|name| match (old.get(*name), new.get(*name)) {
            (Some(old), Some(new)) if ["policy", "parent"].contains(&name.as_str()) => tail(old) != tail(new),
            (old, new) => old != new,
        })
        .collect();
    html! {
        @if changed.is_empty() { p { "It is the same as what is stored." } } @else {
            p { "Saving would change:" }
            ul.changes {
                @for name in changed {
                    li { code { (name) } " " del { (side(old.get(name))) } " → " ins { (side(new.get(name))) } }
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]
    use tollgate_proto::json::{from_json, to_json};

    use super::*;

    fn schedule() -> Stored {
        let schedule: v1::Schedule = from_json(json!({
            "name": "namespaces/a/schedules/b", "etag": "7", "triggers": [{"cron": "0 3 * * *"}],
            "time_zone": "Europe/Berlin", "events": 5, "policy": "namespaces/a/policies/p", "finish_by": "2h",
            "target": {"http": {"url": "http://x/y", "has_secret": true, "headers": {"x-team": "a=b"}}},
            "labels": {"team": "x"}, "description": "First.\n\n- second\n", "payload": {"a": [1, "b\nc"]},
            "retry": {"max_attempts": 3, "min_backoff": "2s"},
        }))
        .unwrap();
        let members = editable(to_json(&schedule));
        Stored {
            id: "b".to_owned(),
            etag: "7".to_owned(),
            members,
            schedule: Some(schedule),
            ..Stored::default()
        }
    }

    #[test]
    fn the_forms_show_what_is_stored_and_give_it_back() {
        let stored = schedule();
        let texts = filled(What::Schedule, &stored);
        assert_eq!((&*texts["cron"], &*texts["policy"], &*texts["events"]), ("0 3 * * *", "p", "5"));
        // As a browser sends it.
        let mut texts = texts;
        if let Some(text) = texts.get_mut("description") {
            *text = text.replace('\n', "\r\n");
        }
        let (members, paths) = would_be(What::Schedule, &stored, &texts).unwrap();
        assert!(paths.contains(&"triggers".to_owned()) && !paths.contains(&"cron".to_owned()), "{paths:?}");
        let read: v1::Schedule = from_json(members.into()).unwrap();
        let before = stored.schedule.clone().unwrap();
        assert_eq!((&read.triggers, &read.target), (&before.triggers, &before.target));
        assert_eq!((read.finish_by, read.events, &read.labels), (before.finish_by, Some(5), &before.labels));
        assert_eq!((&read.description, &read.payload), (&before.description, &before.payload));
        assert_eq!((&read.retry, before.description.lines().count()), (&before.retry, 3));
        texts.insert("form".to_owned(), "json".to_owned());
        let (members, paths) = would_be(What::Schedule, &stored, &texts).unwrap();
        assert_eq!((members, paths), (stored.members, vec!["*".to_owned()]));
    }

    #[test]
    fn with_items_the_number_of_events_is_left_to_them() {
        let mut stored = schedule();
        let items = json!([{"data": {"tenant": 1}, "key": "acme"}, {"data": 7}]);
        let Some(Value::Object(members)) = Some(json!({"events": 2, "items": items, "target": {}})) else {
            unreachable!()
        };
        stored.members = editable(members.into());
        let texts = filled(What::Schedule, &stored);
        assert!(!texts.contains_key("events") && texts["items"].contains("acme"), "{texts:?}");
        let (members, paths) = would_be(What::Schedule, &stored, &texts).unwrap();
        assert_eq!((members.get("events"), &members["items"]), (None, &items));
        assert!(paths.contains(&"items".to_owned()) && paths.contains(&"events".to_owned()), "{paths:?}");
        let read: v1::Schedule = from_json(members.into()).unwrap();
        assert_eq!(to_json(&read)["items"], items);
    }

    #[test]
    fn what_is_wrong_is_said_at_its_field() {
        let stored = schedule();
        let with = |name: &str, text: &str| {
            let mut texts = filled(What::Schedule, &stored);
            texts.insert(name.to_owned(), text.to_owned());
            would_be(What::Schedule, &stored, &texts)
        };
        assert!(with("events", "many").unwrap_err().fields[0].is_of("events"));
        let whole =
            |text: &str| whole(What::Schedule, &[("json".to_owned(), text.to_owned())].into()).unwrap_err();
        assert!(whole("{\n").text().contains("this is no JSON"));
        let alone = whole(r#"{"uid": "x"}"#).fields;
        assert!(alone.iter().any(|field| field.is_of("uid")), "{alone:?}");
        let text = "{\n\"priority\": 12,\n\"colour\": 1,\n\"events\": \"x\",\n\"uid\": \"x\"\n}";
        let all: Vec<String> = whole(text).fields.into_iter().map(|field| field.name).collect();
        assert_eq!(all[all.len() - 4..], ["schedule.priority", "colour", "events", "uid"], "{all:?}");
    }

    #[test]
    fn a_check_says_what_would_change() {
        let of = |value: Value| editable(value);
        let shown = changes(
            &of(json!({"events": 5, "policy": "namespaces/a/policies/p"})),
            &of(json!({"events": 9, "policy": "p"})),
        );
        let shown = shown.into_string();
        assert!(shown.contains("<code>events</code> <del>5</del> → <ins>9</ins>"), "{shown}");
        assert!(!shown.contains("policy"), "{shown}");
        let target = |http: Value| of(json!({ "target": { "http": http } }));
        let old = target(json!({"url": "http://x/", "has_secret": true}));
        let new = target(json!({"url": "http://x/", "secret": "whsec_abc"}));
        let shown = changes(&old, &new).into_string();
        assert!(shown.contains("a new one") && !shown.contains("whsec_abc"), "{shown}");
    }
}
