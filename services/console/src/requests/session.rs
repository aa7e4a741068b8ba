//! Decides who sees pages where callers are asked for keys: visitors who have shown one, in a cookie that no script reads and no
//! other site sends.
//!
//! In: requests. Out: the page, for the visitor whose key the browser holds, or the way to the login. Invariants: what a
//! visitor does, it does with its own key, so the API decides what is allowed; a page of a namespace that the key does
//! not reach is refused before anything is read, also from what the console remembers for all visitors.

use std::sync::Arc;

use axum::extract::{Request, State};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use http::{HeaderMap, Method, StatusCode, header};

use crate::requests::console::Console;
use crate::requests::links::{link, see};
use crate::words::show::encode;

/// The cookie with the key.
pub(crate) const KEY_COOKIE: &str = "tollgate-console-key";
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
