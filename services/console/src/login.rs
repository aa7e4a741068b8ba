//! Decides who sees pages where callers are asked for keys: whoever has shown one, in a cookie that no script reads and no
//! other site sends.
//!
//! In: requests. Out: the page, for the visitor whose key the browser holds, or the way to the login. Invariants: what a
//! visitor does, it does with its own key, so the API decides what is allowed; a page of a namespace that the key does
//! not reach is refused before anything is read, also from what the console remembers for all visitors.

use std::sync::Arc;

use axum::extract::{Form, Query, Request, State};
use axum::middleware::Next;
use axum::response::{Html, IntoResponse, Response};
use http::{HeaderMap, HeaderValue, Method, StatusCode, header};
use maud::{DOCTYPE, html};
use serde::Deserialize;

use crate::show::encode;
use crate::visit::{link, see};
use crate::{Console, assets};

/// The cookie with the key.
const KEY_COOKIE: &str = "tollgate-console-key";
/// How long a browser keeps it, in seconds: a working day. The key itself may end earlier.
const KEPT_S: u32 = 12 * 3600;

/// Who a key belongs to; none for one that is not good, or may not read.
pub type Admit = Arc<dyn Fn(&str) -> Option<Visitor> + Send + Sync>;

/// The holder of a key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Visitor {
    /// For the audit log.
    pub name: String,
    /// The only namespace that it reaches; none for all.
    pub namespace: Option<String>,
}

/// How visitors log in.
#[derive(Clone)]
pub struct Login {
    /// Who a key belongs to.
    pub admit: Admit,
    /// Browsers send the cookie over TLS only.
    pub secure: bool,
}

impl std::fmt::Debug for Login {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Login").field("secure", &self.secure).finish_non_exhaustive()
    }
}

/// A visitor who has logged in; among the extensions of its requests.
#[derive(Clone)]
pub(crate) struct Session {
    /// The key itself: the API is asked with it.
    pub(crate) key: String,
    pub(crate) visitor: Visitor,
}

impl Session {
    /// The part of the key that is no secret, for what is remembered by key.
    pub(crate) fn key_id(&self) -> &str {
        self.key.rsplit_once('_').map_or("", |(id, _)| id)
    }
}

/// Lets visitors in who have shown a key, and shows the others where to do so.
pub(crate) async fn guard(State(console): State<Console>, mut request: Request, next: Next) -> Response {
    let path = request.uri().path();
    let Some(login) = console.login.as_ref().filter(|_| !path.starts_with("/console/")) else {
        return next.run(request).await;
    };
    let key = cookie(request.headers());
    let Some((key, visitor)) = key.and_then(|key| (login.admit)(&key).map(|visitor| (key, visitor))) else {
        if request.method() != Method::GET || path.ends_with("/live") {
            return (StatusCode::UNAUTHORIZED, "Refused: log in with a key first.\n").into_response();
        }
        return see(&format!("/console/login?next={}", encode(path)));
    };
    if let Some(own) = &visitor.namespace {
        let given = path.strip_prefix("/n/").map(|rest| rest.split('/').next().unwrap_or_default());
        match given {
            None => return see(&link(own, "")),
            Some(given) if given != own => {
                let text = format!("Refused: this key reaches the namespace {own} only.\n");
                return (StatusCode::FORBIDDEN, text).into_response();
            }
            Some(_) => {}
        }
    }
    request.extensions_mut().insert(Session { key, visitor });
    next.run(request).await
}

fn cookie(headers: &HeaderMap) -> Option<String> {
    let cookies = headers.get_all(header::COOKIE).iter().filter_map(|value| value.to_str().ok());
    let mut pairs = cookies.flat_map(|cookies| cookies.split(';'));
    pairs.find_map(|pair| pair.trim().strip_prefix(KEY_COOKIE)?.strip_prefix('=')).map(str::to_owned)
}

/// Where a visitor goes afterwards.
#[derive(Debug, Default, Deserialize)]
pub(crate) struct Onward {
    #[serde(default)]
    next: String,
}

impl Onward {
    /// A page of this console, whatever was asked for.
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
