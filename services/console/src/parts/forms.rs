//! Forms over resources: each field stands for a path of the resource's JSON, with help and what is wrong beside it.
//!
//! In: a resource as JSON, or the texts of a form. Out: the form, or the JSON that its texts stand for. Not here: which fields
//! there are (`fields`), and what values are allowed, which the service says.

use std::collections::BTreeMap;

use maud::{Markup, html};
use serde_json::{Map, Value, json};

use crate::requests::problem::{Field, Problem};

/// The texts of a form, by path.
pub(crate) type Texts = BTreeMap<String, String>;

/// How a field is filled in.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Kind {
    /// One line of text.
    Line,
    /// Text of many lines, which stays as it is.
    Text,
    /// A whole number.
    Number,
    /// A number.
    Decimal,
    /// One of these values; the first stands for none.
    Choice(&'static [(&'static str, &'static str)]),
    /// `name=value`, one on each line.
    Pairs,
    /// Any JSON.
    Json,
    /// One line that is never shown again.
    Secret,
    /// One rule on each line, of the schedule's triggers.
    Rules,
    /// Texts, one on each line.
    List,
    /// Some of these values; each has a text of its own, under the path and the value.
    Many(&'static [(&'static str, &'static str)]),
    /// Whether there is anything at the path: what else lies below it counts only then.
    Switch,
}

/// A field.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Spec {
    /// Its path in the resource's JSON.
    pub(crate) path: &'static str,
    pub(crate) label: &'static str,
    pub(crate) hint: &'static str,
    pub(crate) kind: Kind,
}

pub(crate) const fn line(path: &'static str, label: &'static str, hint: &'static str) -> Spec {
    of_kind(Kind::Line, path, label, hint)
}

pub(crate) const fn of_kind(kind: Kind, path: &'static str, label: &'static str, hint: &'static str) -> Spec {
    Spec { path, label, hint, kind }
}

/// What stands for yes.
const YES: &str = "yes";

/// Under what a value of many stands among the texts.
fn one_of(path: &str, value: &str) -> String {
    format!("{path}:{value}")
}

/// Fields that belong together, under a heading; folded where they are seldom needed.
pub(crate) struct Group {
    pub(crate) title: &'static str,
    pub(crate) is_folded: bool,
    pub(crate) fields: &'static [Spec],
}

/// The value at a path.
fn at<'a>(members: &'a Map<String, Value>, path: &str) -> Option<&'a Value> {
    let mut parts = path.split('.');
    let first = members.get(parts.next()?)?;
    parts.try_fold(first, |value, part| value.get(part))
}

/// Puts a value at a path.
fn put(members: &mut Map<String, Value>, path: &str, value: Value) {
    match path.split_once('.') {
        None => {
            members.insert(path.to_owned(), value);
        }
        Some((first, rest)) => {
            let inner = members.entry(first).or_insert_with(|| json!({}));
            if let Value::Object(inner) = inner {
                put(inner, rest, value);
            }
        }
    }
}

/// What a resource's JSON looks like in a form; rules are the caller's.
pub(crate) fn texts(members: &Map<String, Value>, groups: &[Group]) -> Texts {
    let fields = groups.iter().flat_map(|group| group.fields);
    fields
        .flat_map(|spec| at(members, spec.path).map(|value| shown(spec, value)).unwrap_or_default())
        .collect()
}

/// A value as the texts of its field.
fn shown(spec: &Spec, value: &Value) -> Vec<(String, String)> {
    let text = match (spec.kind, value) {
        (Kind::Rules | Kind::Secret, _) => return Vec::new(),
        (Kind::Switch, _) => YES.to_owned(),
        (Kind::Many(_), Value::Array(values)) => {
            let values = values.iter().filter_map(Value::as_str);
            return values.map(|value| (one_of(spec.path, value), YES.to_owned())).collect();
        }
        (Kind::List, Value::Array(values)) => {
            values.iter().filter_map(Value::as_str).collect::<Vec<_>>().join("\n")
        }
        (Kind::Pairs, Value::Object(pairs)) => {
            let lines =
                pairs.iter().map(|(name, value)| format!("{name}={}", value.as_str().unwrap_or_default()));
            lines.collect::<Vec<_>>().join("\n")
        }
        (Kind::Json, value) => serde_json::to_string_pretty(value).unwrap_or_default(),
        (_, Value::String(text)) => text.clone(),
        (_, value) => value.to_string(),
    };
    vec![(spec.path.to_owned(), text)]
}

/// The JSON that a form's texts stand for; rules are the caller's.
pub(crate) fn members(texts: &Texts, groups: &[Group]) -> Result<Map<String, Value>, Problem> {
    let mut members = Map::new();
    let mut wrong = Vec::new();
    for spec in groups.iter().flat_map(|group| group.fields) {
        if let Kind::Many(values) = spec.kind {
            let chosen = values.iter().filter(|(value, _)| texts.contains_key(&one_of(spec.path, value)));
            let chosen: Vec<Value> = chosen.map(|(value, _)| json!(value)).collect();
            if !chosen.is_empty() {
                put(&mut members, spec.path, chosen.into());
            }
            continue;
        }
        let given = texts.get(spec.path).map(String::as_str).unwrap_or_default();
        let text = given.trim();
        if text.is_empty() {
            continue;
        }
        match value(spec.kind, if matches!(spec.kind, Kind::Text) { given } else { text }) {
            Ok(Some(value)) => put(&mut members, spec.path, value),
            Ok(None) => {}
            Err(expected) => wrong.push(Field {
                name: spec.path.to_owned(),
                message: format!("{text:?} is not allowed, expected {expected}"),
            }),
        }
    }
    for spec in groups.iter().flat_map(|group| group.fields).filter(|spec| matches!(spec.kind, Kind::Switch))
    {
        if texts.get(spec.path).is_none_or(|text| text != YES) {
            members.remove(spec.path);
        }
    }
    if wrong.is_empty() { Ok(members) } else { Err(Problem::of_fields(wrong)) }
}

fn value(kind: Kind, text: &str) -> Result<Option<Value>, String> {
    Ok(Some(match kind {
        Kind::Choice(_) if matches!(text, "true" | "false") => json!(text == "true"),
        Kind::Line | Kind::Choice(_) | Kind::Secret => json!(text),
        // A browser ends the lines of a field with both characters.
        Kind::Text => json!(text.replace("\r\n", "\n")),
        Kind::Number => json!(text.parse::<u32>().map_err(|_| "a whole number".to_owned())?),
        Kind::Decimal => json!(text.parse::<f64>().map_err(|_| "a number".to_owned())?),
        Kind::Json => serde_json::from_str(text).map_err(|error| format!("JSON ({error})"))?,
        Kind::Pairs => {
            let lines = text.lines().map(str::trim).filter(|line| !line.is_empty());
            let pairs = lines.map(|line| {
                let (name, value) = line.split_once('=').ok_or("name=value on each line")?;
                Ok((name.trim().to_owned(), json!(value.trim())))
            });
            Value::Object(pairs.collect::<Result<_, String>>()?)
        }
        Kind::List => {
            let lines = text.split(['\n', ',']).map(str::trim).filter(|line| !line.is_empty());
            lines.map(|line| json!(line)).collect()
        }
        Kind::Switch => json!({}),
        Kind::Rules | Kind::Many(_) => return Ok(None),
    }))
}

/// A field's id in the page.
fn id_of(path: &str) -> String {
    path.replace('.', "-")
}

/// A group of fields.
pub(crate) fn group(group: &Group, texts: &Texts, refused: &[Field]) -> Markup {
    let fields = html! { div.edit { @for spec in group.fields { (field(spec, texts, refused)) } } };
    // What is wrong is seen, and so is what has been set.
    let is_open = group.fields.iter().any(|spec| {
        let of_many = format!("{}:", spec.path);
        let mut texts = texts.iter().filter(|(name, _)| **name == spec.path || name.starts_with(&of_many));
        let is_set = texts.any(|(_, text)| !text.is_empty());
        is_set || refused.iter().any(|field| concerns(field, spec))
    });
    html! {
        @if group.is_folded {
            details.group open[is_open] { summary { (group.title) } (fields) }
        } @else {
            fieldset { legend { (group.title) } (fields) }
        }
    }
}

/// Whether what is wrong is wrong with this field.
fn concerns(field: &Field, spec: &Spec) -> bool {
    let path = field.path();
    match spec.kind {
        Kind::Rules => path == spec.path || (spec.path == "cron" && path.starts_with("triggers")),
        _ => field.is_of(spec.path),
    }
}

/// A field with its label, its value, help, and what is wrong with it.
fn field(spec: &Spec, texts: &Texts, refused: &[Field]) -> Markup {
    let id = id_of(spec.path);
    let text = texts.get(spec.path).map(String::as_str).unwrap_or_default();
    let wrong: Vec<&Field> = refused.iter().filter(|field| concerns(field, spec)).collect();
    let described = if wrong.is_empty() { format!("hint-{id}") } else { format!("error-{id} hint-{id}") };
    let invalid = (!wrong.is_empty()).then_some("true");
    if let Kind::Many(values) = spec.kind {
        return many(spec, values, texts, &wrong);
    }
    html! {
        div.field {
            label for=(id) { (spec.label) }
            @match spec.kind {
                Kind::Switch => {
                    select id=(id) name=(spec.path) aria-describedby=(described) aria-invalid=[invalid] {
                        option value=(YES) selected[text == YES] { "yes" }
                        option value="" selected[text != YES] { "no" }
                    }
                }
                Kind::Text | Kind::Pairs | Kind::Json | Kind::Rules | Kind::List => {
                    textarea id=(id) name=(spec.path) rows=(text.lines().count().clamp(2, 12)) spellcheck="false"
                        aria-describedby=(described) aria-invalid=[invalid] { (text) }
                }
                Kind::Choice(values) => {
                    select id=(id) name=(spec.path) aria-describedby=(described) aria-invalid=[invalid] {
                        @for (value, words) in values { option value=(value) selected[text == *value] { (words) } }
                    }
                }
                Kind::Secret => {
                    input id=(id) name=(spec.path) type="password" autocomplete="new-password" spellcheck="false"
                        aria-describedby=(described) aria-invalid=[invalid];
                }
                _ => {
                    input id=(id) name=(spec.path) value=(text) autocomplete="off" spellcheck="false"
                        aria-describedby=(described) aria-invalid=[invalid];
                }
            }
            @if !wrong.is_empty() {
                p.error id={ "error-" (id) } { @for field in &wrong { (field.message) " " } }
            }
            p.hint id={ "hint-" (id) } {
                @if matches!(spec.kind, Kind::Secret) && !text.is_empty() {
                    strong { "Type it again: what was typed is not shown, and would not be saved." } " "
                }
                (spec.hint)
            }
        }
    }
}

/// A box for each of some values.
fn many(spec: &Spec, values: &[(&str, &str)], texts: &Texts, wrong: &[&Field]) -> Markup {
    html! {
        fieldset.many.field.whole {
            legend { (spec.label) }
            @for field in wrong { p.error { (field.message) } }
            p.hint { (spec.hint) }
            div.boxes {
                @for (value, words) in values {
                    @let name = one_of(spec.path, value);
                    label.box {
                        input type="checkbox" name=(name) value=(YES) checked[texts.contains_key(&name)];
                        " " (words)
                    }
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]
    use super::*;

    const GROUPS: [Group; 1] = [Group {
        title: "All",
        is_folded: false,
        fields: &[
            Spec { path: "target.http.url", label: "", hint: "", kind: Kind::Line },
            Spec { path: "retry.max_attempts", label: "", hint: "", kind: Kind::Number },
            Spec { path: "labels", label: "", hint: "", kind: Kind::Pairs },
            Spec { path: "target.http.secret", label: "", hint: "", kind: Kind::Secret },
            Spec { path: "payload", label: "", hint: "", kind: Kind::Json },
        ],
    }];

    #[test]
    fn texts_and_json_are_the_same_thing() {
        let value = json!({
            "target": {"http": {"url": "http://x/y"}}, "retry": {"max_attempts": 3},
            "labels": {"team": "a=b"}, "payload": {"a": [1]},
        });
        let Value::Object(value) = value else { unreachable!() };
        let shown = texts(&value, &GROUPS);
        assert_eq!(shown["labels"], "team=a=b");
        assert_eq!(members(&shown, &GROUPS).unwrap(), value);
        let wrong: Texts =
            [("retry.max_attempts".to_owned(), "many".to_owned()), ("payload".to_owned(), "{".to_owned())]
                .into();
        let problem = members(&wrong, &GROUPS).unwrap_err();
        assert_eq!(problem.fields.len(), 2);
        let drawn = group(&GROUPS[0], &wrong, &problem.fields).into_string();
        assert!(
            drawn.contains("id=\"error-retry-max_attempts\"") && drawn.contains(">{</textarea>"),
            "{drawn}"
        );
    }

    #[test]
    fn a_typed_secret_is_taken_and_not_shown() {
        let typed: Texts = [("target.http.secret".to_owned(), "whsec_abc".to_owned())].into();
        let drawn = group(&GROUPS[0], &typed, &[]).into_string();
        assert!(drawn.contains("type=\"password\"") && drawn.contains("Type it again"), "{drawn}");
        assert!(!drawn.contains("whsec_abc"), "{drawn}");
        let taken = members(&typed, &GROUPS).unwrap();
        assert_eq!(at(&taken, "target.http.secret"), Some(&json!("whsec_abc")));
    }

    #[test]
    fn lists_boxes_and_switches_are_texts_too() {
        const VALUES: &[(&str, &str)] = &[("KIND_A", "a"), ("KIND_B", "b")];
        const FIELDS: &[Spec] = &[
            of_kind(Kind::Switch, "troubles", "", ""),
            of_kind(Kind::Many(VALUES), "troubles.kinds", "", ""),
            of_kind(Kind::List, "schedules", "", ""),
        ];
        let groups = [Group { title: "", is_folded: true, fields: FIELDS }];
        let value = json!({"troubles": {"kinds": ["KIND_B"]}, "schedules": ["a", "b"]});
        let Value::Object(value) = value else { unreachable!() };
        let mut shown = texts(&value, &groups);
        assert_eq!((shown["troubles"].as_str(), shown["schedules"].as_str()), ("yes", "a\nb"));
        assert_eq!(members(&shown, &groups).unwrap(), value);
        let drawn = group(&groups[0], &shown, &[]).into_string();
        assert!(drawn.contains("<details class=\"group\" open>"), "{drawn}");
        assert!(drawn.contains("name=\"troubles.kinds:KIND_B\" value=\"yes\" checked"), "{drawn}");
        assert_eq!(drawn.matches(" checked").count(), 1, "{drawn}");
        shown.insert("troubles".to_owned(), String::new());
        assert_eq!(Value::from(members(&shown, &groups).unwrap()), json!({"schedules": ["a", "b"]}));
        shown.insert("troubles".to_owned(), "yes".to_owned());
        shown.remove("troubles.kinds:KIND_B");
        assert_eq!(members(&shown, &groups).unwrap()["troubles"], json!({}));
    }
}
