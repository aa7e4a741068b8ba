//! One request: who asks, in which namespace, and how the answer becomes a page.

use std::convert::Infallible;

use axum::extract::{FromRequestParts, RawPathParams};
use axum::response::{IntoResponse, Response};
use http::request::Parts;
use http::{HeaderMap, HeaderValue, StatusCode, header};
use maud::{Markup, html};

use crate::Console;
use crate::api::Api;
use crate::login::Session;
use crate::problem::Problem;
use crate::shell::{self, Section};
use crate::show::encode;

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
    done: Option<String>,
}

/// What stands between a page's head and foot.
pub(crate) struct Body {
    pub(crate) title: String,
    pub(crate) section: Section,
    pub(crate) content: Markup,
    /// What went wrong before the page was made.
    pub(crate) problem: Option<Problem>,
}

impl Body {
    /// A page about which nothing is wrong.
    pub(crate) fn new(title: impl Into<String>, section: Section, content: Markup) -> Self {
        Self { title: title.into(), section, content, problem: None }
    }
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

    /// The page, or the page that says why there is none.
    pub(crate) fn respond(&self, body: Result<Body, Problem>) -> Response {
        let (status, body) = match body {
            Ok(body) => (body.problem.as_ref().map_or(StatusCode::OK, |p| p.status), body),
            Err(problem) => {
                let content = html! {
                    p { a href=(self.link("")) { "Back to what happens now" } }
                };
                let status = problem.status;
                let body = Body { problem: Some(problem), ..Body::new("Not shown", Section::None, content) };
                (status, body)
            }
        };
        let done = self.done.as_deref().and_then(shell::done);
        (status, shell::page(self, &body, done)).into_response()
    }

    /// Sends the browser on after an action, so that a reload does not repeat it.
    pub(crate) fn after(&self, path: &str, done: &str) -> Response {
        let separator = if path.contains('?') { '&' } else { '?' };
        see(&format!("{path}{separator}done={done}"))
    }
}

/// Sends the browser to another page.
pub(crate) fn see(path: &str) -> Response {
    let mut response = StatusCode::SEE_OTHER.into_response();
    if let Ok(location) = HeaderValue::from_str(path) {
        response.headers_mut().insert(header::LOCATION, location);
    }
    response
}

/// Where a page of a namespace is.
pub(crate) fn link(ns: &str, rest: &str) -> String {
    if rest.is_empty() { format!("/n/{}", encode(ns)) } else { format!("/n/{}/{rest}", encode(ns)) }
}

/// The page of a resource by its full name: `namespaces/a/runs/x` is at `/n/a/runs/x`.
pub(crate) fn to(name: &str) -> String {
    let mut parts = name.split('/').skip(1);
    let (ns, collection, id) = (parts.next(), parts.next(), parts.next());
    match (ns, collection, id) {
        (Some(ns), Some(collection), Some(id)) => {
            format!("/n/{}/{}/{}", encode(ns), encode(collection), encode(id))
        }
        _ => "/".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]
    use super::*;

    #[test]
    fn names_have_pages() {
        assert_eq!(to("namespaces/default/runs/0a-1"), "/n/default/runs/0a-1");
        assert_eq!(to("namespaces/a\"b/runs/../x"), "/n/a%22b/runs/..");
        assert_eq!(to("dispatch"), "/");
    }

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
