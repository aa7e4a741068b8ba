//! Makes and changes schedules, policies, calendars and alerts: field by field, or all of it as JSON, tried before it is kept.
//!
//! In: a form. Out: a creation, or an update of exactly what the form shows, made to what its visitor saw (mask and etag).
//! Invariants: what was refused is said at its field, and nothing that was typed is lost but a secret; a check changes nothing;
//! what does harm when it is a mistake (`edit_asks`) is saved after what it comes to has been shown and confirmed.

use axum::extract::{Form, Path};
use axum::response::Response;
use maud::{Markup, html};
use serde::Deserialize;
use serde_json::{Map, Value};
use tollgate_files::Lines;
use tollgate_proto::json::from_json;
use tollgate_proto::v1;
use tollgate_proto::v1::preview_schedule_request::Source;

use crate::pages::edit_asks::asks;
use crate::pages::edit_put::{put, stored};
use crate::parts::draft::{Stored, What, changes, filled, would_be};
use crate::parts::forms::{self, Texts};
use crate::parts::shell::Body;
use crate::parts::{confirm, copy, warnings};
use crate::requests::links::to;
use crate::requests::problem::{Field, Problem};
use crate::requests::visit::Visit;
use crate::words::sentence::sentence;
use crate::words::show::{counted, events_of, events_said};

/// How many of the next fires a check shows.
const FIRES: i32 = 5;
/// As what the service names the id of what is made.
const OWN_ID: [&str; 8] = [
    "schedule_id",
    "policy_id",
    "calendar_id",
    "alert_id",
    "schedule.name",
    "policy.name",
    "calendar.name",
    "alert.name",
];

/// What a page says beside its forms.
#[derive(Default)]
struct Said {
    problem: Option<Problem>,
    /// What became of a check, or of a look while somebody types.
    checked: Option<Markup>,
}

/// The id in a path.
#[derive(Deserialize)]
pub(crate) struct Id {
    id: String,
}

/// The page that changes a schedule.
pub(crate) async fn schedule_page(visit: Visit, Path(Id { id }): Path<Id>) -> Response {
    page(&visit, What::Schedule, &id).await
}

/// Checks or saves a schedule.
pub(crate) async fn schedule_act(
    visit: Visit,
    Path(Id { id }): Path<Id>,
    Form(texts): Form<Texts>,
) -> Response {
    act(&visit, What::Schedule, &id, texts).await
}

/// The page that changes a policy.
pub(crate) async fn policy_page(visit: Visit, Path(Id { id }): Path<Id>) -> Response {
    page(&visit, What::Policy, &id).await
}

/// Checks or saves a policy.
pub(crate) async fn policy_act(
    visit: Visit,
    Path(Id { id }): Path<Id>,
    Form(texts): Form<Texts>,
) -> Response {
    act(&visit, What::Policy, &id, texts).await
}

/// The page that makes a schedule.
pub(crate) async fn new_schedule(visit: Visit) -> Response {
    page(&visit, What::Schedule, "").await
}

/// Checks or makes a schedule.
pub(crate) async fn make_schedule(visit: Visit, Form(texts): Form<Texts>) -> Response {
    act(&visit, What::Schedule, "", texts).await
}

/// The page that makes a policy.
pub(crate) async fn new_policy(visit: Visit) -> Response {
    page(&visit, What::Policy, "").await
}

/// Checks or makes a policy.
pub(crate) async fn make_policy(visit: Visit, Form(texts): Form<Texts>) -> Response {
    act(&visit, What::Policy, "", texts).await
}

/// The page that changes a calendar.
pub(crate) async fn calendar_page(visit: Visit, Path(Id { id }): Path<Id>) -> Response {
    page(&visit, What::Calendar, &id).await
}

/// Checks or saves a calendar.
pub(crate) async fn calendar_act(
    visit: Visit,
    Path(Id { id }): Path<Id>,
    Form(texts): Form<Texts>,
) -> Response {
    act(&visit, What::Calendar, &id, texts).await
}

/// The page that makes a calendar.
pub(crate) async fn new_calendar(visit: Visit) -> Response {
    page(&visit, What::Calendar, "").await
}

/// Checks or makes a calendar.
pub(crate) async fn make_calendar(visit: Visit, Form(texts): Form<Texts>) -> Response {
    act(&visit, What::Calendar, "", texts).await
}

/// The page that changes an alert.
pub(crate) async fn alert_page(visit: Visit, Path(Id { id }): Path<Id>) -> Response {
    page(&visit, What::Alert, &id).await
}

/// Checks or saves an alert.
pub(crate) async fn alert_act(visit: Visit, Path(Id { id }): Path<Id>, Form(texts): Form<Texts>) -> Response {
    act(&visit, What::Alert, &id, texts).await
}

/// The page that makes an alert.
pub(crate) async fn new_alert(visit: Visit) -> Response {
    page(&visit, What::Alert, "").await
}

/// Checks or makes an alert.
pub(crate) async fn make_alert(visit: Visit, Form(texts): Form<Texts>) -> Response {
    act(&visit, What::Alert, "", texts).await
}

async fn page(visit: &Visit, what: What, id: &str) -> Response {
    let body = stored(visit, what, id).await.map(|stored| {
        let texts = filled(what, &stored);
        drawn(visit, what, &stored, &texts, Said::default())
    });
    visit.respond(body)
}

async fn act(visit: &Visit, what: What, id: &str, texts: Texts) -> Response {
    let stored = match stored(visit, what, id).await {
        Ok(stored) => stored,
        Err(problem) => return visit.respond(Err(problem)),
    };
    let text = |name: &str| texts.get(name).map(|text| text.trim()).unwrap_or_default();
    let (is_save, is_preview) = (text("action") == "save", text("action") == "preview");
    let done = if is_save {
        save(visit, what, &stored, &texts).await.map(Ok)
    } else {
        put(visit, what, &stored, &texts, None).await.map(Err)
    };
    let said = match done {
        Ok(Ok(response)) => return response,
        Ok(Err(could_be)) => {
            let would_be = would_be(what, &stored, &texts);
            let checked = checked(visit, &stored, would_be, &could_be.warnings).await;
            Said { checked: Some(checked), problem: None }
        }
        // Somebody is still typing: what is missing yet is no refusal.
        Err(problem) if is_preview => Said { checked: Some(not_yet(&problem)), problem: None },
        Err(problem) => Said { problem: Some(problem), checked: None },
    };
    // The form that was not sent shows what is stored.
    let mut shown = filled(what, &stored);
    if text("form") == "json" {
        shown.insert("json".to_owned(), texts.get("json").cloned().unwrap_or_default());
    } else {
        let json = shown.remove("json").unwrap_or_default();
        shown.clone_from(&texts);
        shown.insert("json".to_owned(), json);
    }
    for name in ["form", "etag", "id", "reason"] {
        shown.insert(name.to_owned(), text(name).to_owned());
    }
    visit.respond(Ok(drawn(visit, what, &stored, &shown, said)))
}

/// Saves what the form says; what does harm when it is a mistake is asked first.
async fn save(visit: &Visit, what: What, stored: &Stored, texts: &Texts) -> Result<Response, Problem> {
    let text = |name: &str| texts.get(name).map(|text| text.trim()).unwrap_or_default();
    let done = match what {
        _ if stored.id.is_empty() => "created",
        What::Schedule => "edited",
        What::Policy => "settings",
        What::Calendar => "dates",
        What::Alert => "alert",
    };
    let keep = |reason: String| async move {
        let kept = put(visit, what, stored, texts, Some(&reason)).await?;
        Ok(warnings::saved(visit, what.section(), &kept.name, done, &kept.warnings))
    };
    let Some(asks) = asks(what, stored, texts)? else { return keep(text("reason").to_owned()).await };
    // What is refused is said at its field, before anything is asked.
    let could_be = put(visit, what, stored, texts, None).await?;
    let mut deed = asks.deed(visit, &could_be.name, texts).await?;
    deed.effects.extend(warnings::effects(&could_be.warnings));
    confirm::settle(visit, what.section(), &deed, (text("confirmed"), text("reason")), keep).await
}

/// What a check says: what would change, and when it would fire.
async fn checked(
    visit: &Visit,
    stored: &Stored,
    would_be: Result<(Map<String, Value>, Vec<String>), Problem>,
    warned: &[v1::Warning],
) -> Markup {
    let Ok((mut new, paths)) = would_be else { return html! {} };
    if !paths.contains(&"*".to_owned()) {
        // What the form does not show stays.
        for (name, value) in stored.members.iter().filter(|(name, _)| !paths.contains(name)) {
            new.insert(name.clone(), value.clone());
        }
    }
    let schedule: Option<v1::Schedule> =
        new.contains_key("triggers").then(|| from_json(new.clone().into()).ok()).flatten();
    let fires = match &schedule {
        Some(schedule) => {
            let source = Some(Source::Schedule(schedule.clone()));
            let request = v1::PreviewScheduleRequest { source, from_time: None, count: FIRES };
            let preview = visit.api.master().preview_schedule(request).await;
            preview.map(|preview| preview.into_inner().launch_times).unwrap_or_default()
        }
        None => Vec::new(),
    };
    html! {
        div.notice.ok role="status" {
            strong { "Nothing is wrong with it, and nothing has been changed yet." }
            @if !stored.id.is_empty() { (changes(&stored.members, &new)) }
            @if let Some(schedule) = &schedule {
                p {
                    (counted(events_of(schedule), "event")) " would fire " (sentence(schedule))
                    @if schedule.triggers.is_empty() { "." }
                    @else if fires.is_empty() { ": never again." }
                    @else { ", next at:" }
                }
                ul { @for fire in &fires { li.num { (fire.local_time) " " (fire.utc_offset) } } }
            }
        }
        (warnings::notice(warned))
    }
}

/// What is missing while somebody types, or why that cannot be said.
fn not_yet(problem: &Problem) -> Markup {
    let is_refusal = problem.status == http::StatusCode::UNPROCESSABLE_ENTITY;
    html! {
        div.notice.warn role="status" {
            strong { @if is_refusal { "Not yet:" } @else { "It cannot be checked: " (problem.title) } }
            ul { @for line in &problem.lines { li { (line) } } }
        }
    }
}

fn drawn(visit: &Visit, what: What, stored: &Stored, texts: &Texts, said: Said) -> Body {
    let is_new = stored.id.is_empty();
    let name = visit.full(what.collection(), &stored.id);
    let path =
        if is_new { visit.link(&format!("new/{}", what.word())) } else { format!("{}/edit", to(&name)) };
    let fields = said.problem.as_ref().map(|problem| problem.fields.as_slice()).unwrap_or_default();
    let is_json = texts.get("form").is_some_and(|form| form == "json");
    let (of_fields, of_json): (&[Field], &[Field]) = if is_json { (&[], fields) } else { (fields, &[]) };
    let title = if is_new { format!("New {}", what.word()) } else { format!("Edit {}", stored.id) };
    let content = html! {
        p.crumb {
            a href=(visit.link(what.collection())) { (what.plural()) }
            @if !is_new { " · " a href=(to(&name)) { (stored.id) } }
        }
        h1 { (title) }
        @if let Some(schedule) = &stored.schedule {
            p.lead { (events_said(schedule)) " " (sentence(schedule)) }
        }
        form.whole-form method="post" action=(path) data-preview=(path) data-into="checked" {
            input type="hidden" name="form" value="fields";
            (common(texts, is_new, of_fields, ""))
            @for (place, group) in what.groups().iter().enumerate() {
                (forms::group(group, texts, of_fields))
                // Near what is typed first, so that it is seen meanwhile.
                @if place == 0 {
                    div #checked { @if !is_json && let Some(checked) = &said.checked { (checked) } }
                }
            }
            (buttons(is_new))
        }
        (json_form(what, &path, texts, of_json, said.checked.as_ref().filter(|_| is_json), is_new))
        @if !is_new { (copy::fold(&stored.file)) }
        p.mute {
            @if what == What::Schedule && !is_new {
                "Runs that are not due yet are corrected; what is due already stays as it was. "
            }
            "It will stand in the audit log as done by " (visit.signature()) "."
        }
    };
    Body { problem: said.problem, ..Body::new(title, what.section(), content) }
}

/// What both forms have: the id, the etag, the reason.
fn common(texts: &Texts, is_new: bool, refused: &[Field], prefix: &str) -> Markup {
    let text = |name: &str| texts.get(name).map(String::as_str).unwrap_or_default();
    let wrong = refused.iter().find(|field| OWN_ID.contains(&field.name.as_str()));
    let (id, reason) = (format!("{prefix}id"), format!("{prefix}reason"));
    html! {
        input type="hidden" name="etag" value=(text("etag"));
        div.edit {
            @if is_new {
                div.field {
                    label for=(id) { "Id" }
                    input id=(id) name="id" value=(text("id")) required maxlength="63" autocomplete="off" spellcheck="false"
                        aria-describedby={ "hint-" (id) } aria-invalid=[wrong.map(|_| "true")];
                    @if let Some(wrong) = wrong { p.error { (wrong.message) } }
                    p.hint id={ "hint-" (id) } { "Small letters, digits, dots and hyphens; it never changes." }
                }
            }
            div.field {
                label for=(reason) { "Reason, for the audit log (may be empty)" }
                input id=(reason) name="reason" value=(text("reason")) maxlength="1000" autocomplete="off";
            }
        }
    }
}

fn buttons(is_new: bool) -> Markup {
    html! {
        div.buttons {
            button.main type="submit" name="action" value="save" { (if is_new { "Make it" } else { "Save" }) }
            button type="submit" name="action" value="check" { "Check only" }
        }
    }
}

fn json_form(
    what: What,
    path: &str,
    texts: &Texts,
    refused: &[Field],
    checked: Option<&Markup>,
    is_new: bool,
) -> Markup {
    let json = texts.get("json").map(String::as_str).unwrap_or_default();
    let lines = Lines::of(if refused.is_empty() { "" } else { json });
    let described = if refused.is_empty() { "hint-json" } else { "error-json hint-json" };
    let is_open = texts.get("form").is_some_and(|form| form == "json");
    html! {
        details.action #whole open[is_open] {
            summary { "All of it, as JSON" }
            form.edit method="post" action=(path) {
                input type="hidden" name="form" value="json";
                div.field.whole { (common(texts, is_new, &[], "json-")) }
                div.field.whole {
                    label for="json" { "The " (what.word()) }
                    textarea #json name="json" rows=(json.lines().count().clamp(12, 40)) spellcheck="false"
                        aria-describedby=(described) aria-invalid=[(!refused.is_empty()).then_some("true")] { (json) }
                    @if !refused.is_empty() {
                        ul.error #error-json {
                            @for field in refused {
                                li {
                                    @if let Some(line) = lines.field(field.path()) { "Line " (line) ", " }
                                    code { (field.path()) } ": " (field.message)
                                }
                            }
                        }
                    }
                    p.hint #hint-json {
                        "It is the whole " (what.word()) ", as in files. A secret is not shown; it stays as long as has_secret is true."
                    }
                }
                @if let Some(checked) = checked { div.field.whole { (checked) } }
                (buttons(is_new))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_service_that_cannot_be_asked_refuses_nothing() {
        let said = |status: tonic::Status| not_yet(&status.into()).into_string();
        assert!(said(tonic::Status::invalid_argument("a url is missing")).contains("Not yet:"));
        let silent = said(tonic::Status::unavailable("no connection"));
        assert!(
            silent.contains("The service cannot be reached now.") && !silent.contains("Not yet"),
            "{silent}"
        );
    }
}
