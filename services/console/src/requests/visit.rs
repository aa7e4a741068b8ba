//! One request: its visitor, its namespace and its key.

use std::convert::Infallible;

use axum::extract::{FromRequestParts, RawPathParams};
use axum::response::Response;
use http::request::Parts;
use http::{HeaderMap, header};

use crate::requests::api::Api;
use crate::requests::console::Console;
use crate::requests::links::{link, see};
use crate::requests::session::Session;

/// The cookie with the name that stands in the audit log.
pub(crate) const NAME_COOKIE: &str = "tollgate-console-name";
/// Who acts where nobody has given a name.
const NOBODY: &str = "console";

/// One request.
pub(crate) struct Visit {
    /// What all pages share.
    pub(crate) console: Console,
    /// The API in the visitor's name.
    pub(crate) api: Api,
    /// The namespace's id.
    pub(crate) ns: String,
    /// The visitor's name.
    pub(crate) actor: String,
    /// With which key; none where nobody is asked for one.
    pub(crate) session: Option<Session>,
    /// Now, in microseconds since the epoch.
    pub(crate) now_us: i64,
    /// The `done` of the query: what the visitor has just done.
    pub(crate) done: Option<String>,
}

impl FromRequestParts<Console> for Visit {
    type Rejection = Infallible;

    async fn from_request_parts(parts: &mut Parts, console: &Console) -> Result<Self, Infallible> {
        let params = RawPathParams::from_request_parts(parts, console).await.ok();
        let ns = params
            .as_ref()
            .and_then(|params| params.iter().find(|(name, _)| *name == "ns"))
            .map_or("default", |(_, ns)| ns)
            .to_owned();
        let actor = name(&parts.headers);
        let query = parts.uri.query().unwrap_or_default();
        let done = query.split('&').find_map(|pair| pair.strip_prefix("done=")).map(str::to_owned);
        let session = parts.extensions.get::<Session>().cloned();
        let api =
            Api::new(console.channel.clone(), &actor, session.as_ref().map(|session| session.key.as_str()));
        let now_us = console.clock.wall_us();
        Ok(Self { console: console.clone(), api, ns, actor, session, now_us, done })
    }
}

/// The name in the cookie, where it can stand in a header.
fn name(headers: &HeaderMap) -> String {
    let cookies = headers.get_all(header::COOKIE).iter().filter_map(|value| value.to_str().ok());
    let mut pairs = cookies.flat_map(|cookies| cookies.split(';'));
    let given = pairs.find_map(|pair| pair.trim().strip_prefix(NAME_COOKIE)?.strip_prefix('='));
    given.filter(|name| allowed(name)).unwrap_or(NOBODY).to_owned()
}

/// Whether a name can stand in a cookie and in the audit log.
pub(crate) fn allowed(name: &str) -> bool {
    (1..=64).contains(&name.len())
        && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"@.-_+".contains(&byte))
}

impl Visit {
    /// `namespaces/{namespace}`.
    pub(crate) fn parent(&self) -> String {
        format!("namespaces/{}", self.ns)
    }

    /// As whom the visitor acts, as the audit log will say it.
    pub(crate) fn signature(&self) -> String {
        match &self.session {
            Some(session) => format!("{}/{}", session.visitor.name, self.actor),
            None => self.actor.clone(),
        }
    }

    /// The part of the visitor's key that is no secret; empty where nobody is asked for one.
    pub(crate) fn key_id(&self) -> &str {
        self.session.as_ref().map_or("", Session::key_id)
    }

    /// Whether the visitor is told of all namespaces.
    pub(crate) fn reaches_all(&self) -> bool {
        self.session.as_ref().is_none_or(|session| session.visitor.namespace.is_none())
    }

    /// The same request, now.
    pub(crate) fn again(&self) -> Self {
        let Self { console, api, ns, actor, session, .. } = self;
        let (console, api, ns, actor) = (console.clone(), api.clone(), ns.clone(), actor.clone());
        let session = session.clone();
        let now_us = console.clock.wall_us();
        Self { console, api, ns, actor, session, now_us, done: None }
    }

    /// A resource's full name.
    pub(crate) fn full(&self, collection: &str, id: &str) -> String {
        format!("namespaces/{}/{collection}/{id}", self.ns)
    }

    /// Where a page of this namespace is.
    pub(crate) fn link(&self, rest: &str) -> String {
        link(&self.ns, rest)
    }

    /// Sends the browser on after an action, so that a reload does not repeat it.
    pub(crate) fn after(&self, path: &str, done: &str) -> Response {
        let separator = if path.contains('?') { '&' } else { '?' };
        see(&format!("{path}{separator}done={done}"))
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]
    use super::*;

    #[test]
    fn a_cookie_names_the_visitor() {
        let named = |cookie: &str| {
            let mut headers = HeaderMap::new();
            headers.insert(header::COOKIE, cookie.parse().unwrap());
            name(&headers)
        };
        assert_eq!(named("a=b; tollgate-console-name=ann@ops"), "ann@ops");
        assert_eq!(named("tollgate-console-name=<script>"), NOBODY);
        assert_eq!(named("a=b"), NOBODY);
    }
}
