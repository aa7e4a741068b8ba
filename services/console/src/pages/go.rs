//! The way to a thing by its name or id, to another namespace, and the visitor's name.

use axum::extract::{Form, Query};
use axum::response::Response;
use http::{HeaderValue, header};
use maud::html;
use serde::Deserialize;
use tollgate_proto::convert::names;
use tollgate_proto::v1;

use crate::pages::schedules;
use crate::parts::filters::Wanted;
use crate::parts::shell::{Body, Section};
use crate::requests::links::{link, see, to};
use crate::requests::problem::Problem;
use crate::requests::visit::{NAME_COOKIE, Visit, allowed};

/// What is looked for.
#[derive(Debug, Default, Deserialize)]
pub(crate) struct Sought {
    #[serde(default)]
    q: String,
    #[serde(default)]
    ns: String,
}

/// Sends the browser to what is looked for.
pub(crate) async fn find(visit: Visit, Query(sought): Query<Sought>) -> Response {
    if !sought.ns.trim().is_empty() {
        return see(&link(sought.ns.trim(), ""));
    }
    let text = sought.q.trim();
    if text.is_empty() {
        return see(&visit.link(""));
    }
    if text.starts_with("namespaces/") {
        return see(&to(text));
    }
    let run = visit.full("runs", text);
    if names::run("", &run).is_ok() {
        return see(&to(&run));
    }
    let mut master = visit.api.master();
    let schedule = visit.full("schedules", text);
    if visit.api.schedule(&schedule).await.is_ok() {
        return see(&to(&schedule));
    }
    let policy = visit.full("policies", text);
    if master.get_policy(v1::GetPolicyRequest { name: policy.clone() }).await.is_ok() {
        return see(&to(&policy));
    }
    let event = visit.full("events", text);
    let mut handler = visit.api.handler();
    if handler.get_event(v1::GetEventRequest { name: event.clone() }).await.is_ok() {
        return see(&to(&event));
    }
    let problem = Problem {
        status: http::StatusCode::NOT_FOUND,
        title: format!("Nothing here is called {text:?}."),
        lines: vec!["Below are the schedules whose names begin so, if there are any.".to_owned()],
        fields: Vec::new(),
    };
    // Perhaps it was the beginning of a name.
    let wanted = Wanted { name: text.to_owned(), ..Wanted::default() };
    let wanted = if names::is_id(text) { wanted } else { Wanted::default() };
    let body = schedules::body(&visit, &wanted, Some(problem)).await;
    visit.respond(Ok(body))
}

/// The page about who and where the visitor is.
pub(crate) async fn you(visit: Visit) -> Response {
    visit.respond(Ok(body(&visit, None)))
}

fn body(visit: &Visit, problem: Option<Problem>) -> Body {
    let content = html! {
        h1 { "You and your namespace" }
        section.actions aria-labelledby="h-name" {
            h2 #h-name { "Your name" }
            form method="post" action=(visit.link("you")) {
                div {
                    label for="name" { "Name in the audit log" }
                    input #name name="name" value=(visit.actor) required maxlength="64" autocomplete="username"
                        spellcheck="false";
                }
                button type="submit" { "Use this name" }
                p.hint { "Kept in this browser. Nobody checks it: it says who, it does not prove it." }
            }
        }
        @if let Some(session) = &visit.session {
            section.actions aria-labelledby="h-key" {
                h2 #h-key { "Your key" }
                form method="post" action="/console/logout" {
                    p { "You act with the key of " strong { (session.visitor.name) } "; the audit log says " (visit.signature()) "." }
                    button type="submit" { "Log out" }
                }
            }
        }
        section.actions aria-labelledby="h-ns" {
            h2 #h-ns { "Namespace" }
            form method="get" action=(visit.link("go")) {
                div {
                    label for="ns" { "Show the namespace" }
                    input #ns name="ns" value=(visit.ns) required maxlength="63" autocomplete="off" spellcheck="false";
                }
                button type="submit" { "Show" }
            }
        }
    };
    Body { problem, ..Body::new("You", Section::None, content) }
}

/// What the form says.
#[derive(Deserialize)]
pub(crate) struct Name {
    #[serde(default)]
    name: String,
}

/// Keeps the visitor's name in the browser.
pub(crate) async fn name(visit: Visit, Form(given): Form<Name>) -> Response {
    let name = given.name.trim();
    if !allowed(name) {
        let expected = "1 to 64 letters, digits and @ . - _ +";
        return visit.respond(Ok(body(&visit, Some(Problem::invalid("name", name, expected)))));
    }
    let mut response = visit.after(&visit.link(""), "named");
    let cookie = format!("{NAME_COOKIE}={name}; Path=/; Max-Age=31536000; HttpOnly; SameSite=Strict");
    if let Ok(cookie) = HeaderValue::from_str(&cookie) {
        response.headers_mut().insert(header::SET_COOKIE, cookie);
    }
    response
}
