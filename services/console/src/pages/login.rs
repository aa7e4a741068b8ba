//! The page where a visitor shows a key, and the ways in and out.

use axum::extract::{Form, Query, State};
use axum::response::{Html, IntoResponse, Response};
use http::{HeaderValue, StatusCode, header};
use maud::{DOCTYPE, html};
use serde::Deserialize;

use crate::parts::assets;
use crate::requests::console::Console;
use crate::requests::links::see;
use crate::requests::session::KEY_COOKIE;

/// How long a browser keeps it, in seconds: a working day. The key itself may end earlier.
const KEPT_S: u32 = 12 * 3600;

/// Where a visitor goes afterwards.
#[derive(Debug, Default, Deserialize)]
pub(crate) struct Onward {
    #[serde(default)]
    next: String,
}

impl Onward {
    /// A page of this console, even if another address was asked for.
    fn path(&self) -> &str {
        let own = self.next.starts_with("/n/") && !self.next.contains(['\\', '\r', '\n', '?', '#']);
        if own { &self.next } else { "/" }
    }
}

/// The page where a key is shown.
pub(crate) async fn page(State(console): State<Console>, Query(onward): Query<Onward>) -> Response {
    if console.login.is_none() {
        return see("/");
    }
    form(&onward, false)
}

fn form(onward: &Onward, refused: bool) -> Response {
    let status = if refused { StatusCode::UNAUTHORIZED } else { StatusCode::OK };
    let page = html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta name="viewport" content="width=device-width, initial-scale=1";
                meta name="color-scheme" content="light dark";
                title { "Log in · Tollgate" }
                link rel="icon" href=(assets::ICON) type="image/svg+xml";
                link rel="stylesheet" href=(assets::STYLE);
            }
            body {
                main #main {
                    h1 { "Tollgate" }
                    @if refused {
                        div.notice.bad role="alert" {
                            strong { "This key is not good." }
                            p { "It is unknown, wrong, revoked or expired, or lacks the scope read." }
                        }
                    }
                    section.actions aria-labelledby="h-login" {
                        h2 #h-login { "Log in" }
                        form method="post" action="/console/login" {
                            div {
                                label for="key" { "Key" }
                                input #key name="key" type="password" required autofocus autocomplete="current-password"
                                    spellcheck="false" maxlength="200" placeholder="tgk_…";
                            }
                            input type="hidden" name="next" value=(onward.path());
                            button type="submit" { "Log in" }
                            p.hint {
                                "Made by " code { "tollgate key create" } ". You may do here what the key may, for 12 hours or until "
                                "you log out."
                            }
                        }
                    }
                }
            }
        }
    };
    (status, Html(page.into_string())).into_response()
}

/// What the form says.
#[derive(Deserialize)]
pub(crate) struct Shown {
    #[serde(default)]
    key: String,
    #[serde(default)]
    next: String,
}

/// Takes a key, where it is good.
pub(crate) async fn enter(State(console): State<Console>, Form(shown): Form<Shown>) -> Response {
    let onward = Onward { next: shown.next };
    let Some(login) = console.login.as_ref() else { return see("/") };
    let key = shown.key.trim();
    if (login.admit)(key).is_none() {
        return form(&onward, true);
    }
    with_cookie(see(onward.path()), key, KEPT_S, login.secure)
}

/// Forgets the key.
pub(crate) async fn leave(State(console): State<Console>) -> Response {
    let secure = console.login.as_ref().is_some_and(|login| login.secure);
    with_cookie(see("/console/login"), "", 0, secure)
}

fn with_cookie(mut response: Response, key: &str, kept_s: u32, secure: bool) -> Response {
    let secure = if secure { "; Secure" } else { "" };
    let cookie = format!("{KEY_COOKIE}={key}; Path=/; Max-Age={kept_s}; HttpOnly; SameSite=Strict{secure}");
    if let Ok(cookie) = HeaderValue::from_str(&cookie) {
        response.headers_mut().insert(header::SET_COOKIE, cookie);
    }
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nobody_is_sent_elsewhere() {
        let path = |next: &str| Onward { next: next.to_owned() }.path().to_owned();
        assert_eq!(path("/n/team/runs"), "/n/team/runs");
        for other in
            ["", "//evil.example", "https://evil.example", "/n/..\\x", "/console/login", "/n/a\r\nx: y"]
        {
            assert_eq!(path(other), "/", "{other:?}");
        }
    }
}
