//! Decides under which names a port may be asked for, the same for all that it serves: gRPC, gRPC-Web, REST, metrics, pages.
//!
//! A page of another site can have its own name lead to 127.0.0.1 (DNS rebinding), and is of the same origin then as far as a
//! browser can see; but the browser names it in `Host`. So a port that only this machine reaches, and that asks nobody for a
//! key, answers to addresses, `localhost` and the names that it was given. Where a key is asked for, that page has none, and
//! only the console, where people log in, is kept from it: clients may come by any name, as through a proxy.
//!
//! Not here: who calls. Programs that name no host are no browsers.

use std::net::IpAddr;
use std::sync::Arc;

use http::request::Parts;
use http::{HeaderValue, StatusCode, header};
use tonic::Code;

use crate::same_origin::is_cross_site;

/// The names under which a port may be asked for; cheap to clone.
#[derive(Clone, Debug, Default)]
pub struct Hosts(Option<Arc<Named>>);

#[derive(Debug)]
struct Named {
    names: Vec<String>,
    pages_only: bool,
}

/// Why a request is refused before it is looked at.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Refusal {
    pub(crate) http: StatusCode,
    pub(crate) code: Code,
    pub(crate) text: String,
}

impl Hosts {
    /// Any name: for a port that others reach.
    pub fn any() -> Self {
        Self(None)
    }

    /// Addresses, `localhost` and these names: for everything.
    pub fn only(names: Vec<String>) -> Self {
        Self(Some(Arc::new(Named { names, pages_only: false })))
    }

    /// As [`Hosts::only`], for the console's pages; anything else under any name.
    pub fn only_for_pages(names: Vec<String>) -> Self {
        Self(Some(Arc::new(Named { names, pages_only: true })))
    }

    /// Why a request with this head is refused; none where it may go on.
    pub(crate) fn refuse(&self, head: &Parts) -> Option<Refusal> {
        let given = head.headers.get_all(header::HOST).iter().count();
        if given > 1 {
            // A proxy before this port may have looked at another one.
            let text = format!("host: {given} are given, expected one");
            return Some(Refusal { http: StatusCode::BAD_REQUEST, code: Code::InvalidArgument, text });
        }
        let named = self.0.as_ref()?;
        if named.pages_only && !is_page(head.uri.path()) {
            return None;
        }
        // HTTP/2 has the host in the request's URI.
        let authority = head.uri.authority().map(|authority| authority.as_str().as_bytes());
        let header = head.headers.get(header::HOST).map(HeaderValue::as_bytes);
        if let Some(host) = header.into_iter().chain(authority).find(|host| !named.know(host)) {
            let host = String::from_utf8_lossy(host);
            let text = format!(
                "host: {host:?} is not a name of this port, which answers to addresses, localhost and the host of `advertise`"
            );
            return Some(Refusal {
                http: StatusCode::MISDIRECTED_REQUEST,
                code: Code::PermissionDenied,
                text,
            });
        }
        if !named.pages_only && is_cross_site(head) {
            let text = "pages of other sites may not change anything here".to_owned();
            return Some(Refusal { http: StatusCode::FORBIDDEN, code: Code::PermissionDenied, text });
        }
        None
    }
}

/// Whether a path is the console's.
fn is_page(path: &str) -> bool {
    path == "/" || path.starts_with("/n/") || path.starts_with("/console/")
}

impl Named {
    fn know(&self, authority: &[u8]) -> bool {
        let Ok(authority) = std::str::from_utf8(authority) else { return false };
        let host = match authority.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
            Some((host, _)) => host,
            None => authority.rsplit_once(':').map_or(authority, |(host, _)| host),
        };
        let local = |host: &str| {
            host.eq_ignore_ascii_case("localhost")
                || host.rsplit_once('.').is_some_and(|(_, last)| last.eq_ignore_ascii_case("localhost"))
        };
        host.parse::<IpAddr>().is_ok()
            || local(host)
            || self.names.iter().any(|name| name.eq_ignore_ascii_case(host))
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]
    use super::*;

    fn refused(hosts: &Hosts, method: &str, uri: &str, headers: &[(&str, &str)]) -> Option<u16> {
        let mut request = http::Request::builder().method(method).uri(uri);
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        hosts.refuse(&request.body(()).unwrap().into_parts().0).map(|refusal| refusal.http.as_u16())
    }

    #[test]
    fn foreign_names_are_not_answered_whatever_they_ask_for() {
        let own = Hosts::only(vec!["node-1".to_owned()]);
        let paths = ["/", "/n/default", "/v1/dispatch:pause", "/metrics", "/tollgate.v1.X/Y"];
        for path in paths {
            for known in
                ["localhost:7411", "LOCALHOST", "127.0.0.1", "[::1]:7411", "Node-1:7411", "a.localhost"]
            {
                assert_eq!(refused(&own, "POST", path, &[("host", known)]), None, "{known}");
            }
            for foreign in [
                "evil.example:7411",
                "",
                "127.0.0.1.evil.example",
                "localhost.evil.example:80",
                "xlocalhost",
                "node-1.evil.example",
            ] {
                assert_eq!(refused(&own, "GET", path, &[("host", foreign)]), Some(421), "{foreign}");
                assert_eq!(refused(&Hosts::any(), "GET", path, &[("host", foreign)]), None, "{foreign}");
            }
            assert_eq!(refused(&own, "GET", path, &[]), None, "no browser");
        }
        assert_eq!(refused(&own, "POST", "http://evil.example/v1/x", &[]), Some(421), "as HTTP/2 has it");
        assert_eq!(refused(&own, "POST", "http://evil.example/v1/x", &[("host", "localhost")]), Some(421));
        assert_eq!(refused(&own, "POST", "http://localhost:80/v1/x", &[]), None);
    }

    #[test]
    fn where_a_key_is_asked_for_clients_come_by_any_name() {
        let own = Hosts::only_for_pages(Vec::new());
        let foreign = [("host", "tollgate.example")];
        for path in ["/", "/n/default", "/console/login"] {
            assert_eq!(refused(&own, "GET", path, &foreign), Some(421), "{path}");
        }
        for path in ["/v1/policies", "/tollgate.v1.X/Y", "/readyz", "/metrics"] {
            assert_eq!(refused(&own, "POST", path, &foreign), None, "{path}");
        }
    }

    #[test]
    fn two_hosts_are_refused_and_pages_of_other_sites_as_well() {
        let two = [("host", "localhost"), ("host", "localhost")];
        for hosts in [Hosts::any(), Hosts::only(Vec::new())] {
            assert_eq!(refused(&hosts, "GET", "/v1/x", &two), Some(400));
        }
        let origin = |origin| [("host", "localhost:7411"), ("origin", origin)];
        let own = Hosts::only(Vec::new());
        assert_eq!(refused(&own, "POST", "/tollgate.v1.X/Y", &origin("http://evil.example")), Some(403));
        assert_eq!(refused(&own, "POST", "/tollgate.v1.X/Y", &origin("http://localhost:7411")), None);
        assert_eq!(refused(&own, "GET", "/metrics", &origin("http://evil.example")), None);
    }
}
