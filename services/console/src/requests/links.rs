//! Where pages are, and how a browser is sent to one.

use axum::response::{IntoResponse, Response};
use http::{HeaderValue, StatusCode, header};

use crate::words::show::encode;

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

/// The page of the workers of a queue.
pub(crate) fn workers(ns: &str, queue: &str) -> String {
    link(ns, &format!("workers?queue={}", encode(queue)))
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
    use super::*;

    #[test]
    fn names_have_pages() {
        assert_eq!(to("namespaces/default/runs/0a-1"), "/n/default/runs/0a-1");
        assert_eq!(to("namespaces/a\"b/runs/../x"), "/n/a%22b/runs/..");
        assert_eq!(to("dispatch"), "/");
    }
}
