//! Changes a schedule: its usual settings field by field, or all of it as JSON, tried before they are kept.
//!
//! In: a form. Out: an update of exactly what the form shows, made to what its visitor saw (mask and etag).
//! Invariants: what was refused is said at its field, and nothing that was typed is lost; a check changes nothing.

use axum::extract::{Form, Path};
use axum::response::Response;
use maud::{Markup, html};
use serde::Deserialize;
use serde_json::{Map, Value, json};
use tollgate_proto::json::{from_json, to_json};
use tollgate_proto::v1;
use tollgate_proto::v1::preview_schedule_request::Source;
use tollgate_proto::v1::trigger::Trigger;

use crate::parts::shell::{Body, Section};
use crate::requests::links::to;
use crate::requests::problem::{Field, Problem};
use crate::requests::visit::Visit;
use crate::words::sentence::{sentence, written};
use crate::words::show::{counted, short};

/// What the service says of a schedule and nobody may set.
const OUTPUT_ONLY: [&str; 9] = [
    "name",
    "uid",
    "pause",
    "etag",
    "create_time",
    "update_time",
    "launch_classes",
    "children_count",
    "next_launch_time",
];
/// How many of the next fires a check shows.
const FIRES: i32 = 5;

/// The schedule's id in a path.
#[derive(Deserialize)]
pub(crate) struct Id {
    id: String,
}

/// What the forms say.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct Given {
    /// `check` or `save`.
    action: String,
    /// `fields` or `json`.
    form: String,
    etag: String,
    description: String,
    cron: String,
    time_zone: String,
    events: String,
    policy: String,
    priority: String,
    finish_by: String,
    spread: String,
    json: String,
}

/// What became of a check.
struct Checked {
    sentence: String,
    fires: Vec<v1::LaunchTime>,
    changes: Vec<String>,
}

/// What a page says beside its forms.
#[derive(Default)]
struct Said {
    problem: Option<Problem>,
    checked: Option<Checked>,
}

/// The page.
pub(crate) async fn page(visit: Visit, Path(Id { id }): Path<Id>) -> Response {
    let body = body(&visit, &visit.full("schedules", &id)).await;
    visit.respond(body)
}

async fn body(visit: &Visit, name: &str) -> Result<Body, Problem> {
    let schedule = visit.api.schedule(name).await?;
    Ok(drawn(visit, &schedule, &Given::of(&schedule), Said::default()))
}

/// Checks or saves.
pub(crate) async fn act(visit: Visit, Path(Id { id }): Path<Id>, Form(given): Form<Given>) -> Response {
    let name = visit.full("schedules", &id);
    let stored = match visit.api.schedule(&name).await {
        Ok(stored) => stored,
        Err(problem) => return visit.respond(Err(problem)),
    };
    let save = given.action == "save";
    let said = match put(&visit, &stored, &given, save).await {
        Ok(_) if save => return visit.after(&to(&name), "edited"),
        Ok(would_be) => Said { checked: Some(checked(&visit, &stored, &would_be).await), problem: None },
        Err(problem) => Said { problem: Some(problem), checked: None },
    };
    // The form that was not sent shows what is stored.
    let mut shown = Given::of(&stored);
    match given.form.as_str() {
        "json" => shown.json.clone_from(&given.json),
        _ => shown = Given { json: shown.json, ..given.clone() },
    }
    shown.form = given.form;
    shown.etag = given.etag;
    visit.respond(Ok(drawn(&visit, &stored, &shown, said)))
}

/// Changes the schedule as the form says, or asks what that would make of it.
async fn put(
    visit: &Visit,
    stored: &v1::Schedule,
    given: &Given,
    save: bool,
) -> Result<v1::Schedule, Problem> {
    let (mut message, paths) = match given.form.as_str() {
        "json" => (given.whole()?, vec!["*".to_owned()]),
        "fields" => given.fields(stored)?,
        other => return Err(Problem::invalid("form", other, "fields or json")),
    };
    message.name.clone_from(&stored.name);
    message.etag.clone_from(&given.etag);
    let request = v1::UpdateScheduleRequest {
        schedule: Some(message),
        update_mask: Some(prost_types::FieldMask { paths }),
        validate_only: !save,
    };
    Ok(visit.api.master().update_schedule(request).await?.into_inner())
}

async fn checked(visit: &Visit, stored: &v1::Schedule, would_be: &v1::Schedule) -> Checked {
    let request = v1::PreviewScheduleRequest {
        source: Some(Source::Schedule(would_be.clone())),
        from_time: None,
        count: FIRES,
    };
    let preview = visit.api.master().preview_schedule(request).await.map(tonic::Response::into_inner);
    let (old, new) = (editable(stored), editable(would_be));
    let mut names: Vec<&String> = old.keys().chain(new.keys()).collect();
    names.sort_unstable();
    names.dedup();
    let changes = names.into_iter().filter(|name| old.get(*name) != new.get(*name)).cloned().collect();
    let fires = preview.map(|preview| preview.launch_times).unwrap_or_default();
    Checked { sentence: sentence(would_be), fires, changes }
}

/// A schedule as JSON, without what nobody may set.
fn editable(schedule: &v1::Schedule) -> Map<String, Value> {
    let Value::Object(mut members) = to_json(schedule) else { return Map::new() };
    members.retain(|name, _| !OUTPUT_ONLY.contains(&name.as_str()));
    members
}

/// Whether all its triggers are cron expressions, so that a field can hold them.
fn by_cron(schedule: &v1::Schedule) -> bool {
    let cron = |trigger: &v1::Trigger| matches!(trigger.trigger, Some(Trigger::Cron(_) | Trigger::Fields(_)));
    schedule.triggers.iter().all(cron)
}

impl Given {
    /// The forms as a schedule fills them.
    fn of(schedule: &v1::Schedule) -> Self {
        let members = editable(schedule);
        let text = |name: &str| match members.get(name) {
            Some(Value::String(text)) => text.clone(),
            Some(value) => value.to_string(),
            None => String::new(),
        };
        Self {
            etag: schedule.etag.clone(),
            description: text("description"),
            cron: written(schedule).join("\n"),
            time_zone: text("time_zone"),
            events: text("events"),
            policy: short(&schedule.policy).to_owned(),
            priority: text("priority"),
            finish_by: text("finish_by"),
            spread: text("spread"),
            json: serde_json::to_string_pretty(&members).unwrap_or_default(),
            ..Self::default()
        }
    }

    /// The fields' form as an update, and what it sets.
    fn fields(&self, stored: &v1::Schedule) -> Result<(v1::Schedule, Vec<String>), Problem> {
        let texts = [
            ("description", &self.description),
            ("time_zone", &self.time_zone),
            ("events", &self.events),
            ("policy", &self.policy),
            ("priority", &self.priority),
            ("finish_by", &self.finish_by),
            ("spread", &self.spread),
        ];
        let mut members = Map::new();
        let mut paths: Vec<String> = Vec::new();
        for (name, text) in texts {
            paths.push(name.to_owned());
            let text = text.trim();
            if text.is_empty() {
                continue;
            }
            let value = match name {
                "events" | "priority" => {
                    let number: u32 =
                        text.parse().map_err(|_| Problem::at_field(name, text, "a whole number"))?;
                    json!(number)
                }
                _ => json!(text),
            };
            members.insert(name.to_owned(), value);
        }
        if by_cron(stored) {
            let lines = self.cron.lines().map(str::trim).filter(|line| !line.is_empty());
            let triggers: Vec<Value> = lines.map(|line| json!({ "cron": line })).collect();
            members.insert("triggers".to_owned(), triggers.into());
            paths.push("triggers".to_owned());
        }
        Ok((read(members.into())?, paths))
    }

    /// The JSON form as a schedule.
    fn whole(&self) -> Result<v1::Schedule, Problem> {
        let value: Value = serde_json::from_str(&self.json).map_err(|error| {
            let message = format!("this is no JSON: {error}");
            Problem::of_fields(vec![Field { name: "json".to_owned(), message }])
        })?;
        if let Some(name) = OUTPUT_ONLY.iter().find(|name| value.get(name).is_some()) {
            let message = "the service sets this itself; leave it out".to_owned();
            return Err(Problem::of_fields(vec![Field { name: (*name).to_owned(), message }]));
        }
        read(value)
    }
}

fn read(value: Value) -> Result<v1::Schedule, Problem> {
    from_json(value)
        .map_err(|error| Problem::of_fields(vec![Field { name: error.field, message: error.message }]))
}

/// The first line of a JSON text that gives the innermost name of a path, from 1 on.
fn line_of(text: &str, path: &str) -> Option<usize> {
    let names: Vec<&str> = path
        .split('.')
        .map(|part| part.split('[').next().unwrap_or(part))
        .filter(|name| !name.is_empty())
        .collect();
    let lines: Vec<&str> = text.lines().collect();
    let mut from = 0;
    let mut found = None;
    for name in names {
        let key = format!("\"{name}\":");
        let Some(place) = lines.iter().skip(from).position(|line| line.trim_start().starts_with(&key)) else {
            break;
        };
        from += place;
        found = Some(from + 1);
    }
    found
}

fn drawn(visit: &Visit, stored: &v1::Schedule, given: &Given, said: Said) -> Body {
    let name = &stored.name;
    let fields = said.problem.as_ref().map(|problem| problem.fields.as_slice()).unwrap_or_default();
    let (of_fields, of_json): (&[Field], &[Field]) =
        if given.form == "json" { (&[], fields) } else { (fields, &[]) };
    let content = html! {
        p.crumb { a href=(visit.link("schedules")) { "Schedules" } " · " a href=(to(name)) { (short(name)) } }
        h1 { "Edit " (short(name)) }
        p.lead { (counted(stored.events.unwrap_or(1), "event")) " " (sentence(stored)) }
        @if let Some(checked) = &said.checked { (would_be(checked)) }
        (fields_form(stored, given, of_fields))
        (json_form(name, given, of_json))
        p.mute {
            "Runs that are not due yet are corrected; what is due already stays as it was. It will stand in the audit log as done by "
            (visit.actor) "."
        }
    };
    Body { problem: said.problem, ..Body::new(format!("Edit {}", short(name)), Section::Schedules, content) }
}

fn would_be(checked: &Checked) -> Markup {
    html! {
        div.notice.ok role="status" #checked {
            strong { "Nothing is wrong with it, and nothing has been changed yet." }
            @if checked.changes.is_empty() {
                p { "It is the same as what is stored." }
            } @else {
                p { "Saving would change " (checked.changes.join(", ")) "." }
            }
            p {
                "It would fire " (checked.sentence)
                @if checked.fires.is_empty() { ": never again." } @else { ", next at:" }
            }
            ul {
                @for fire in &checked.fires { li.num { (fire.local_time) " " (fire.utc_offset) } }
            }
        }
    }
}

/// A field with its label, its value, and what is wrong with it.
struct Input<'a> {
    name: &'static str,
    label: &'static str,
    value: &'a str,
    hint: &'static str,
    lines: bool,
}

fn input(field: &Input<'_>, refused: &[Field]) -> Markup {
    let Input { name, label, value, hint, lines } = *field;
    let own = if name == "cron" { "triggers" } else { name };
    let wrong: Vec<&Field> = refused.iter().filter(|refused| refused.is_of(own)).collect();
    let described =
        if wrong.is_empty() { format!("hint-{name}") } else { format!("error-{name} hint-{name}") };
    let invalid = (!wrong.is_empty()).then_some("true");
    html! {
        div.field {
            label for=(name) { (label) }
            @if lines {
                textarea id=(name) name=(name) rows="3" spellcheck="false" aria-describedby=(described) aria-invalid=[invalid] { (value) }
            } @else {
                input id=(name) name=(name) value=(value) autocomplete="off" spellcheck="false" aria-describedby=(described)
                    aria-invalid=[invalid];
            }
            @if !wrong.is_empty() {
                p.error id={ "error-" (name) } { @for field in &wrong { (field.message) " " } }
            }
            p.hint id={ "hint-" (name) } { (hint) }
        }
    }
}

fn buttons() -> Markup {
    html! {
        div.buttons {
            button type="submit" name="action" value="save" { "Save" }
            button type="submit" name="action" value="check" { "Check only" }
        }
    }
}

fn fields_form(stored: &v1::Schedule, given: &Given, refused: &[Field]) -> Markup {
    let field = |name, label, value, hint| Input { name, label, value, hint, lines: false };
    let fields = [
        field("time_zone", "Time zone", &given.time_zone, "A name such as Europe/Berlin; UTC where empty."),
        field("events", "Events per trigger", &given.events, "1 to 10,000,000."),
        field("policy", "Policy", &given.policy, "The id of a policy; nothing limits it where empty."),
        field("priority", "Priority", &given.priority, "0 (last) to 9 (first); 5 where empty."),
        field(
            "finish_by",
            "Must start within",
            &given.finish_by,
            "Such as 2h or 900s; events that start later expire.",
        ),
        field("spread", "Spread over", &given.spread, "Such as 10m: events are spaced evenly over it."),
        field("description", "Description", &given.description, "Free text."),
    ];
    html! {
        section.actions aria-labelledby="h-fields" {
            h2 #h-fields { "Usual settings" }
            form.edit method="post" action={ (to(&stored.name)) "/edit" } {
                input type="hidden" name="form" value="fields";
                input type="hidden" name="etag" value=(given.etag);
                @if by_cron(stored) {
                    (input(&Input {
                        name: "cron",
                        label: "Fires at",
                        value: &given.cron,
                        hint: "Cron expressions, one on each line: minute, hour, day of month, month, day of week.",
                        lines: true,
                    }, refused))
                } @else {
                    p.hint { "Its intervals or single moments can be changed below, as JSON." }
                }
                @for field in &fields { (input(field, refused)) }
                (buttons())
            }
        }
    }
}

fn json_form(name: &str, given: &Given, refused: &[Field]) -> Markup {
    let described = if refused.is_empty() { "hint-json" } else { "error-json hint-json" };
    let rows = given.json.lines().count().clamp(12, 40);
    html! {
        details.action #whole open[given.form == "json"] {
            summary { "All of it, as JSON" }
            form.edit method="post" action={ (to(name)) "/edit" } {
                input type="hidden" name="form" value="json";
                input type="hidden" name="etag" value=(given.etag);
                div.field.whole {
                    label for="json" { "The schedule" }
                    textarea #json name="json" rows=(rows) spellcheck="false" aria-describedby=(described)
                        aria-invalid=[(!refused.is_empty()).then_some("true")] { (given.json) }
                    @if !refused.is_empty() {
                        ul.error #error-json {
                            @for field in refused {
                                li {
                                    @if let Some(line) = line_of(&given.json, field.path()) { "Line " (line) ", " }
                                    code { (field.path()) } ": " (field.message)
                                }
                            }
                        }
                    }
                    p.hint #hint-json {
                        "Replaces the whole schedule. A secret is not shown; it stays as long as has_secret is true."
                    }
                }
                (buttons())
            }
        }
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]
    use super::*;

    fn stored() -> v1::Schedule {
        from_json(json!({
            "name": "namespaces/a/schedules/b", "etag": "7", "triggers": [{"cron": "0 3 * * *"}],
            "time_zone": "Europe/Berlin", "events": 5, "policy": "namespaces/a/policies/p", "finish_by": "2h",
            "target": {"http": {"url": "http://x/y"}},
        }))
        .unwrap()
    }

    #[test]
    fn the_forms_show_what_is_stored_and_give_it_back() {
        let given = Given::of(&stored());
        assert_eq!(
            (given.cron.as_str(), given.policy.as_str(), given.events.as_str()),
            ("0 3 * * *", "p", "5")
        );
        let (message, paths) = given.fields(&stored()).unwrap();
        assert!(paths.contains(&"triggers".to_owned()) && !paths.contains(&"target".to_owned()), "{paths:?}");
        assert_eq!((message.finish_by, message.events), (stored().finish_by, Some(5)));
        assert_eq!(message.triggers, stored().triggers);
        let whole = given.whole().unwrap();
        assert_eq!((whole.target, whole.etag.as_str()), (stored().target, ""));
    }

    #[test]
    fn what_is_wrong_is_said_at_its_field() {
        let given = Given { events: "many".to_owned(), ..Given::of(&stored()) };
        let problem = given.fields(&stored()).unwrap_err();
        assert!(problem.fields[0].is_of("events"), "{problem:?}");
        let given = Given { finish_by: "soon".to_owned(), ..Given::of(&stored()) };
        assert!(given.fields(&stored()).unwrap_err().fields[0].is_of("finish_by"));
        let given = Given { json: "{\n".to_owned(), ..Given::default() };
        assert!(given.whole().unwrap_err().text().contains("this is no JSON"));
        let given = Given { json: r#"{"uid": "x"}"#.to_owned(), ..Given::default() };
        assert!(given.whole().unwrap_err().fields[0].is_of("uid"));
    }

    #[test]
    fn a_path_has_a_line() {
        let text =
            "{\n  \"target\": {\n    \"http\": {\n      \"url\": \"x\"\n    }\n  },\n  \"triggers\": []\n}";
        assert_eq!(line_of(text, "target.http.url"), Some(4));
        assert_eq!(line_of(text, "triggers[0].cron"), Some(7));
        assert_eq!(line_of(text, "nothing"), None);
    }
}
