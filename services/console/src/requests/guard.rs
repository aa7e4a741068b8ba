//! Decides which requests are answered, and what every answer carries.
//!
//! In: a request's method and headers. Out: a refusal, or the answer with the headers that keep a page to itself.
//! Invariants: what changes something was posted by a page of this console (`Sec-Fetch-Site`, and `Origin` against
//! `Host`); a page may load nothing but what the console serves. Not here: under which names the port may be asked for.

use axum::extract::{Request, State};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use http::{HeaderMap, HeaderValue, Method, StatusCode, header};

/// Nothing from elsewhere, no script or style in the page itself, in nobody's frame.
const CONTENT_POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; \
                              connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'";

/// How long a browser asks for pages over TLS only, once it has seen one.
const SECURE: &str = "max-age=31536000";

/// Whether the port speaks TLS.
#[derive(Clone, Copy)]
pub(crate) struct Secure(pub(crate) bool);

/// Refuses what must not be done, and protects what is answered.
pub(crate) async fn guard(State(Secure(secure)): State<Secure>, request: Request, next: Next) -> Response {
    let host = authority(&request);
    let mut response = if !harmless(request.method()) && !own(request.headers(), &host) {
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
    // A browser would take `localhost` for all ports of the machine.
    if secure && !is_local(&host) {
        headers.insert(header::STRICT_TRANSPORT_SECURITY, HeaderValue::from_static(SECURE));
    }
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

/// Whether `HOST` or `HOST:PORT` is this machine by its usual name.
fn is_local(authority: &str) -> bool {
    let host = authority.split(':').next().unwrap_or_default();
    host == "localhost" || host.ends_with(".localhost")
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
    fn the_machine_s_own_name_is_known() {
        for (host, local) in [
            ("localhost:7411", true),
            ("localhost", true),
            ("a.localhost:1", true),
            ("127.0.0.1:7411", false),
            ("tollgate.example", false),
            ("localhost.example", false),
            ("[::1]:7411", false),
        ] {
            assert_eq!(is_local(host), local, "{host}");
        }
    }
}
