//! Decides which requests are answered, and what every answer carries.
//!
//! In: a request's method and headers. Out: a refusal, or the answer with the headers that keep a page to itself.
//! Invariants: what changes something was posted by a page of this console (`Sec-Fetch-Site`, and `Origin` against
//! `Host`); a page may load nothing but what the console serves.

use std::net::IpAddr;
use std::sync::Arc;

use axum::extract::{Request, State};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use http::{HeaderMap, HeaderValue, Method, StatusCode, header};

/// Nothing from elsewhere, no script or style in the page itself, in nobody's frame.
const CONTENT_POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; \
                              connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'";

/// The names under which the console may be asked for; none for any.
pub(crate) struct Hosts(pub(crate) Option<Vec<String>>);

/// Refuses what must not be done, and protects what is answered.
pub(crate) async fn guard(State(hosts): State<Arc<Hosts>>, request: Request, next: Next) -> Response {
    let host = authority(&request);
    let mut response = if !hosts.know(&host) {
        let text = "The console does not answer under this name. Ask for it by its address.\n";
        (StatusCode::MISDIRECTED_REQUEST, text).into_response()
    } else if !harmless(request.method()) && !own(request.headers(), &host) {
        let text = "Refused: this was not sent by a page of the console.\n";
        (StatusCode::FORBIDDEN, text).into_response()
    } else {
        next.run(request).await
    };
    let headers = response.headers_mut();
    for (name, value) in [
        (header::CONTENT_SECURITY_POLICY, CONTENT_POLICY),
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (header::X_FRAME_OPTIONS, "DENY"),
        (header::REFERRER_POLICY, "same-origin"),
    ] {
        headers.insert(name, HeaderValue::from_static(value));
    }
    headers.insert("cross-origin-opener-policy", HeaderValue::from_static("same-origin"));
    headers.insert("cross-origin-resource-policy", HeaderValue::from_static("same-origin"));
    headers.entry(header::CACHE_CONTROL).or_insert(HeaderValue::from_static("no-store"));
    response
}

/// `HOST` or `HOST:PORT` as the browser knows it.
fn authority(request: &Request) -> String {
    let named = request.headers().get(header::HOST).and_then(|host| host.to_str().ok());
    let host = named.or_else(|| request.uri().authority().map(http::uri::Authority::as_str));
    host.unwrap_or_default().to_ascii_lowercase()
}

fn harmless(method: &Method) -> bool {
    matches!(*method, Method::GET | Method::HEAD | Method::OPTIONS)
}

/// Whether a page of this console sent it. A browser always says where a post comes from; what says nothing is none.
fn own(headers: &HeaderMap, host: &str) -> bool {
    let text = |name: &str| headers.get(name).map(|value| value.to_str().unwrap_or("?"));
    let origin = text("origin").map(|origin| {
        let (_, named) = origin.split_once("://").unwrap_or_default();
        !host.is_empty() && named.eq_ignore_ascii_case(host)
    });
    match (text("sec-fetch-site"), origin) {
        (Some(site), origin) => site == "same-origin" && origin != Some(false),
        (None, origin) => origin == Some(true),
    }
}

impl Hosts {
    fn know(&self, authority: &str) -> bool {
        let Some(named) = &self.0 else { return true };
        let host = match authority.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
            Some((host, _)) => host,
            None => authority.rsplit_once(':').map_or(authority, |(host, _)| host),
        };
        host == "localhost"
            || host.ends_with(".localhost")
            || host.parse::<IpAddr>().is_ok()
            || named.iter().any(|name| name.eq_ignore_ascii_case(host))
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]
    use super::*;

    fn posted(pairs: &[(&'static str, &str)]) -> bool {
        let pairs = pairs.iter().map(|(name, value)| (name.parse().unwrap(), value.parse().unwrap()));
        own(&pairs.collect::<HeaderMap>(), "127.0.0.1:7411")
    }

    #[test]
    fn only_own_pages_post() {
        let site = |site| ("sec-fetch-site", site);
        let origin = |origin| ("origin", origin);
        assert!(posted(&[site("same-origin"), origin("http://127.0.0.1:7411")]));
        assert!(posted(&[site("same-origin")]));
        assert!(posted(&[origin("http://127.0.0.1:7411")]));
        assert!(!posted(&[]));
        assert!(!posted(&[site("cross-site"), origin("http://127.0.0.1:7411")]));
        assert!(!posted(&[site("same-site")]));
        assert!(!posted(&[site("none")]));
        assert!(!posted(&[site("same-origin"), origin("http://evil.example")]));
        assert!(!posted(&[origin("http://127.0.0.1:7412")]));
        assert!(!posted(&[origin("null")]));
    }

    #[test]
    fn foreign_names_are_not_answered() {
        let hosts = Hosts(Some(vec!["node-1".to_owned()]));
        for known in ["localhost:7411", "127.0.0.1", "[::1]:7411", "node-1:7411", "a.localhost"] {
            assert!(hosts.know(known), "{known}");
        }
        for foreign in ["evil.example:7411", "", "127.0.0.1.evil.example", "localhost.evil.example:80"] {
            assert!(!hosts.know(foreign), "{foreign}");
        }
        assert!(Hosts(None).know("anything"));
    }
}
