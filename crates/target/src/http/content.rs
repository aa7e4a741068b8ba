//! What a request carries: its headers, signed, and its body.
//!
//! In: the content, and what its target asks for. Out: headers. Invariant: what a user can write is checked again here. Not
//! here: what belongs to the connection (`host`, `content-length`).

use ::http::HeaderMap;
use ::http::header::{CONTENT_TYPE, HeaderName, HeaderValue, USER_AGENT};
use bytes::Bytes;
use tollgate_core::model::{HttpTarget, SECOND_US};

use crate::check::check_header;
use crate::signature;

const TOLLGATE: &str = concat!("tollgate/", env!("CARGO_PKG_VERSION"));

/// What a request has at most beside what its target asks for, `host` and `content-length` among them.
const OWN_HEADERS_MAX: usize = 8;
const TRACEPARENT: HeaderName = HeaderName::from_static("traceparent");
const WEBHOOK_ID: HeaderName = HeaderName::from_static("webhook-id");
const WEBHOOK_TIMESTAMP: HeaderName = HeaderName::from_static("webhook-timestamp");
const WEBHOOK_SIGNATURE: HeaderName = HeaderName::from_static("webhook-signature");

/// What a request carries.
pub(crate) struct Content<'a> {
    pub(crate) id: &'a str,
    pub(crate) media_type: &'static str,
    pub(crate) traceparent: Option<String>,
    pub(crate) body: Bytes,
}

impl Content<'_> {
    /// Its headers at this time of the wall clock.
    ///
    /// # Errors
    /// Says which header or secret cannot be used.
    pub(crate) fn headers(&self, target: &HttpTarget, now_us: i64) -> Result<HeaderMap, String> {
        let mut headers = HeaderMap::with_capacity(OWN_HEADERS_MAX + target.headers.len());
        headers.insert(CONTENT_TYPE, HeaderValue::from_static(self.media_type));
        headers.insert(USER_AGENT, HeaderValue::from_static(TOLLGATE));
        let mut set = |name: HeaderName, value: &str| -> Result<(), String> {
            let value = HeaderValue::from_str(value).map_err(|error| format!("header `{name}`: {error}"))?;
            headers.insert(name, value);
            Ok(())
        };
        for (name, value) in &target.headers {
            check_header(name, value)?;
            let name = HeaderName::from_bytes(name.as_bytes())
                .map_err(|error| format!("header `{name}`: {error}"))?;
            set(name, value)?;
        }
        if let Some(traceparent) = &self.traceparent {
            set(TRACEPARENT, traceparent)?;
        }
        let timestamp_s = now_us.div_euclid(SECOND_US);
        set(WEBHOOK_ID, self.id)?;
        set(WEBHOOK_TIMESTAMP, &timestamp_s.to_string())?;
        if let Some(secret) = &target.secret {
            set(WEBHOOK_SIGNATURE, &signature::sign(secret, self.id, timestamp_s, &self.body)?)?;
        }
        Ok(headers)
    }
}
