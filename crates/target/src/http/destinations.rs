//! Where URLs lead, and whether anything may be sent there.
//!
//! In: a URL as it was written. Out: the URL, parsed and checked, and whom a pause concerns. Many events go to few URLs, so what
//! was found is remembered, refusals excepted. What a name resolves to is checked by the connector, each time.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use ::http::header::HOST;
use ::http::{HeaderValue, Request, Uri};
use bytes::Bytes;
use tollgate_core::model::Http2;

use super::exchange::{Body, bytes_of};
use crate::address::Guard;
use crate::check::parse_shown;

/// URLs that are remembered.
const KNOWN_MAX: usize = 4_096;

/// Where a URL leads.
#[derive(Debug)]
pub(super) struct Destination {
    pub(super) url: Uri,
    /// What of it a request names: path and query.
    pub(super) path: Uri,
    /// What a request's header `host` says.
    pub(super) authority: HeaderValue,
    /// Whom a pause concerns: host and port.
    pub(super) host: String,
    /// Whose connections may be used: scheme, host and port, and whether they may be of HTTP/2.
    pub(super) origin: String,
    /// Whether HTTP/2 is spoken.
    pub(super) http2: Http2,
    /// A connection has been opened on which it was not.
    is_single: AtomicBool,
    /// What a request of HTTP/2 names: scheme and authority, too.
    whole: Uri,
    /// What has to be looked up; none where the host is an address.
    pub(super) name: Option<String>,
}

/// URLs seen.
#[derive(Debug)]
pub(super) struct Destinations {
    guard: Guard,
    known: Mutex<[HashMap<String, Arc<Destination>>; 3]>,
}

impl Destinations {
    pub(super) fn new(guard: Guard) -> Self {
        Self { guard, known: Mutex::default() }
    }

    /// The destination that a URL names.
    ///
    /// # Errors
    /// What is wrong with it, or that nothing may be sent to its host.
    pub(super) fn of(&self, text: &str, http2: Http2) -> Result<Arc<Destination>, String> {
        // Each change is one call on the map, so a panic elsewhere leaves nothing half done.
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        let known = &mut known[http2 as usize];
        if let Some(destination) = known.get(text) {
            return Ok(Arc::clone(destination));
        }
        // It may be a secret, and what is wrong with it is told to many.
        let url = parse_shown("url", "it", text)?;
        self.guard.check_host(url.host().unwrap_or("")).map_err(|refusal| refusal.to_string())?;
        if known.len() >= KNOWN_MAX {
            known.clear();
        }
        let destination = Arc::new(
            Destination::new(url, http2).map_err(|error| format!("url: it cannot be used: {error}"))?,
        );
        known.insert(text.to_owned(), Arc::clone(&destination));
        Ok(destination)
    }
}

impl Destination {
    fn new(url: Uri, http2: Http2) -> Result<Self, ::http::Error> {
        let (scheme, name) = (url.scheme_str().unwrap_or("http"), url.host().unwrap_or(""));
        let usual_port = if scheme == "https" { 443 } else { 80 };
        let authority = match url.port_u16() {
            Some(port) if port != usual_port => HeaderValue::try_from(format!("{name}:{port}"))?,
            _ => HeaderValue::try_from(name)?,
        };
        // Its text begins with `/`, also where it is a query alone.
        let path = url.path_and_query().map_or_else(|| "/".to_owned(), ToString::to_string);
        let host = format!("{}:{}", name.to_ascii_lowercase(), url.port_u16().unwrap_or(usual_port));
        let apart = match http2 {
            Http2::Auto => "",
            Http2::PriorKnowledge => " by HTTP/2",
            Http2::Never => " by HTTP/1.1",
        };
        let origin = format!("{scheme}://{host}{apart}");
        let whole = Uri::builder()
            .scheme(scheme)
            .authority(authority.as_bytes())
            .path_and_query(path.as_str())
            .build()?;
        let bare = name.trim_start_matches('[').trim_end_matches(']');
        let name = bare.parse::<IpAddr>().is_err().then(|| bare.to_owned());
        let path = path.parse()?;
        Ok(Self { url, path, authority, host, origin, http2, is_single: AtomicBool::new(false), whole, name })
    }

    /// Whether its connections may carry many requests at once, as far as is known.
    pub(super) fn may_share(&self) -> bool {
        match self.http2 {
            Http2::PriorKnowledge => true,
            Http2::Never => false,
            Http2::Auto => self.url.scheme_str() == Some("https") && !self.is_single.load(Ordering::Relaxed),
        }
    }

    /// What was found to be spoken.
    pub(super) fn speaks_http2(&self, speaks: bool) {
        self.is_single.store(!speaks, Ordering::Relaxed);
    }

    /// A request as HTTP/2 has it.
    pub(super) fn shared_request(&self, request: &Request<Body>) -> Request<Bytes> {
        let mut shared = Request::new(bytes_of(request.body().clone()));
        *shared.method_mut() = request.method().clone();
        *shared.uri_mut() = self.whole.clone();
        shared.headers_mut().clone_from(request.headers());
        // It stands in the URI.
        shared.headers_mut().remove(HOST);
        shared
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]

    use super::*;
    use crate::PrivateAddresses;

    #[test]
    fn a_destination_is_found_once_and_a_refusal_each_time() {
        let destinations = Destinations::new(Guard::new(PrivateAddresses::Refuse));
        let of = |text: &str| destinations.of(text, Http2::Auto);
        let first = of("https://Example.com/a").unwrap();
        assert_eq!((first.host.as_str(), first.url.path()), ("example.com:443", "/a"));
        assert!(Arc::ptr_eq(&first, &of("https://Example.com/a").unwrap()));
        let odd = of("http://Example.com:81/a/b?c=d").unwrap();
        assert_eq!((odd.host.as_str(), odd.origin.as_str()), ("example.com:81", "http://example.com:81"));
        assert_eq!(
            (odd.path.to_string().as_str(), odd.authority.to_str().unwrap()),
            ("/a/b?c=d", "Example.com:81")
        );
        for usual in ["https://[2606:4700::1111]:443", "https://[2606:4700::1111]/"] {
            let usual = of(usual).unwrap();
            assert_eq!((usual.path.path(), usual.authority.to_str().unwrap()), ("/", "[2606:4700::1111]"));
            assert_eq!(usual.origin, "https://[2606:4700::1111]:443");
        }
        let query = of("https://hooks.example?token=SECRET").unwrap();
        assert_eq!(query.path.to_string(), "/?token=SECRET");
        for wrong in ["https://hooks.example:x/SECRET", "hooks.example/SECRET", "https://a b/SECRET"] {
            let error = of(wrong).unwrap_err();
            assert!(!error.contains("SECRET"), "{error}");
        }
        for refused in ["http://127.0.0.1/", "ftp://example.com/"] {
            assert!(of(refused).is_err() && of(refused).is_err(), "{refused}");
        }
        for n in 0..=KNOWN_MAX {
            of(&format!("http://example.com/{n}")).unwrap();
        }
        assert!(destinations.known.lock().unwrap()[0].len() <= KNOWN_MAX);
    }
}
