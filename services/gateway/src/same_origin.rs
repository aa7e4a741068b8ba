//! Decides whether a request that changes something was sent by a page of another site.
//!
//! A browser sends such requests without asking when they look like a form's; a service on loopback without keys has no
//! other defence. As browsers say: `Sec-Fetch-Site`, or `Origin` against `Host` where that is missing. Programs that
//! are no browsers send neither.

use http::request::Parts;
use http::{Method, header};

/// Whether a browser sent this from a page of another site, and it is not a mere reading.
pub fn is_cross_site(head: &Parts) -> bool {
    if matches!(head.method, Method::GET | Method::HEAD | Method::OPTIONS) {
        return false;
    }
    if let Some(site) = head.headers.get("sec-fetch-site") {
        return site != "same-origin" && site != "none";
    }
    let Some(origin) = head.headers.get(header::ORIGIN) else { return false };
    let host = head.headers.get(header::HOST).and_then(|host| host.to_str().ok());
    // HTTP/2 has the host in the request's URI.
    let host = host.or_else(|| head.uri.authority().map(http::uri::Authority::as_str));
    let origin = origin.to_str().ok().and_then(|origin| origin.split_once("://")).map(|(_, origin)| origin);
    origin.is_none() || origin != host
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]
    use super::*;

    fn cross(method: &str, headers: &[(&str, &str)]) -> bool {
        let mut request = http::Request::builder().method(method).uri("/v1/dispatch:pause");
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        is_cross_site(&request.body(()).unwrap().into_parts().0)
    }

    #[test]
    fn pages_of_other_sites_change_nothing() {
        let host = ("host", "127.0.0.1:7411");
        assert!(!cross("POST", &[host]));
        assert!(!cross("POST", &[host, ("origin", "http://127.0.0.1:7411")]));
        assert!(!cross("POST", &[host, ("origin", "http://a.example"), ("sec-fetch-site", "same-origin")]));
        assert!(!cross("GET", &[host, ("origin", "http://a.example")]));
        assert!(cross("POST", &[host, ("origin", "http://a.example")]));
        assert!(cross("POST", &[host, ("origin", "null")]));
        assert!(cross("POST", &[host, ("origin", "http://127.0.0.1:80")]));
        assert!(cross("DELETE", &[host, ("sec-fetch-site", "same-site")]));
    }
}
