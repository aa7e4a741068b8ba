//! Who the visitor is: its name, and its key.

use axum::extract::Form;
use axum::response::Response;
use http::{HeaderValue, header};
use maud::html;
use serde::Deserialize;

use crate::parts::shell::{Body, Section};
use crate::requests::problem::Problem;
use crate::requests::visit::{NAME_COOKIE, Visit, allowed};

/// The page about who and where the visitor is.
pub(crate) async fn you(visit: Visit) -> Response {
    visit.respond(Ok(body(&visit, None)))
}

fn body(visit: &Visit, problem: Option<Problem>) -> Body {
    let content = html! {
        h1 { "You" }
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
