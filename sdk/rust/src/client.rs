//! Speaks to Tollgate by REST. What fails for now and what is refused for good are told apart here.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use hyper_rustls::ConfigBuilderExt as _;
use reqwest::header::{AUTHORIZATION, CONTENT_TYPE, RETRY_AFTER};
use reqwest::{Client as Http, StatusCode, redirect, retry};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::json;
use tokio_rustls::rustls::ClientConfig;
use tokio_rustls::rustls::crypto::ring;

use crate::outcome::{Release, cut};

/// The longest answer that is read.
const ANSWER_MAX: usize = 64 << 20;
/// gRPC's number.
const FAILED_PRECONDITION: i32 = 9;

/// An answer of the server that will not change: a wrong key, a wrong field.
#[derive(Clone, Debug, thiserror::Error)]
#[error("HTTP {http_status}: {message}")]
pub struct Refused {
    /// The status of the answer.
    pub http_status: u16,
    /// The number of the gRPC status, such as 3 for INVALID_ARGUMENT; 0 where the answer has none.
    pub code: i32,
    /// The server's words.
    pub message: String,
}

impl Refused {
    /// Whether it is the caller who is refused.
    pub(crate) fn is_of_caller(&self) -> bool {
        [401, 403].contains(&self.http_status)
    }

    /// Whether a heartbeat is told that the event is no longer held.
    pub(crate) fn is_not_held(&self) -> bool {
        self.code == FAILED_PRECONDITION || self.http_status == 404
    }
}

/// Why a call did not succeed.
#[derive(Debug)]
pub(crate) enum CallError {
    Refused(Refused),
    /// It is to be repeated, not before so long.
    Busy(String, Duration),
}

impl fmt::Display for CallError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Refused(refused) => refused.fmt(f),
            Self::Busy(message, _) => f.write_str(message),
        }
    }
}

/// What a poll asks for.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Ask {
    pub(crate) max_events: usize,
    pub(crate) wait: String,
    pub(crate) labels: Vec<String>,
    pub(crate) worker: String,
}

/// An event of an answer to a poll.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Given {
    pub(crate) name: String,
    pub(crate) attempt: u32,
    token_ttl: Option<String>,
    pub(crate) event: String,
}

impl Given {
    pub(crate) fn ttl(&self) -> Option<Duration> {
        span(self.token_ttl.as_deref()?)
    }
}

#[derive(Debug)]
pub(crate) struct Client {
    pub(crate) http: Http,
    pub(crate) server: String,
    pub(crate) key: String,
    pub(crate) timeout: Duration,
}

/// What makes the calls: TLS by the system's roots, no redirects.
pub(crate) fn http() -> Result<Http, String> {
    let tls = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .map_err(|error| error.to_string())?
        .with_native_roots()
        .map_err(|error| error.to_string())?
        .with_no_client_auth();
    let builder = Http::builder().tls_backend_preconfigured(tls);
    builder
        .redirect(redirect::Policy::none())
        .retry(retry::never())
        .build()
        .map_err(|error| error.to_string())
}

impl Client {
    pub(crate) async fn acquire(
        &self,
        path: &str,
        ask: &Ask,
        wait: Duration,
    ) -> Result<Vec<Given>, CallError> {
        #[derive(Deserialize)]
        struct Answer {
            #[serde(default)]
            events: Vec<Given>,
        }
        let answer: Answer = self.post(path, ask, wait + self.timeout).await?;
        Ok(answer.events)
    }

    pub(crate) async fn release(&self, id: &str, release: &Release) -> Result<(), CallError> {
        let _said: serde_json::Value =
            self.post(&format!("/v1/events/{id}:release"), release, self.timeout).await?;
        Ok(())
    }

    /// The heartbeat: for how long silence is allowed from now.
    pub(crate) async fn extend(&self, id: &str, attempt: u32) -> Result<Option<Duration>, CallError> {
        #[derive(Deserialize)]
        struct Answer {
            remaining: Option<String>,
        }
        let path = format!("/v1/events/{id}:extend");
        let answer: Answer = self.post(&path, &json!({"attempt": attempt}), self.timeout).await?;
        Ok(answer.remaining.as_deref().and_then(span))
    }

    async fn post<T: DeserializeOwned>(
        &self,
        path: &str,
        body: &impl Serialize,
        limit: Duration,
    ) -> Result<T, CallError> {
        let busy = |error: &dyn fmt::Display| CallError::Busy(error.to_string(), Duration::ZERO);
        let body = serde_json::to_vec(body).map_err(|error| busy(&error))?;
        let mut request = self.http.post(format!("{}{path}", self.server)).timeout(limit);
        if !self.key.is_empty() {
            request = request.header(AUTHORIZATION, format!("Bearer {}", self.key));
        }
        let sent = request.header(CONTENT_TYPE, "application/json").body(body).send().await;
        let mut response = sent.map_err(|error| busy(&words(&error)))?;
        let (status, headers) = (response.status(), response.headers().clone());
        let mut said = Vec::new();
        while let Some(part) = response.chunk().await.map_err(|error| busy(&words(&error)))? {
            if said.len() + part.len() > ANSWER_MAX {
                return Err(busy(&format!("an answer of more than {ANSWER_MAX} bytes")));
            }
            said.extend_from_slice(&part);
        }
        if status.is_success() {
            return serde_json::from_slice(&said)
                .map_err(|error| busy(&format!("an answer that cannot be read: {error}")));
        }
        let after = headers.get(RETRY_AFTER).and_then(|value| value.to_str().ok()?.parse().ok());
        Err(problem(status, &said, after.map_or(Duration::ZERO, Duration::from_secs)))
    }
}

fn problem(status: StatusCode, said: &[u8], retry_after: Duration) -> CallError {
    #[derive(Deserialize)]
    struct Told {
        code: i32,
        message: String,
    }
    let told = serde_json::from_slice(said)
        .unwrap_or_else(|_| Told { code: 0, message: cut(String::from_utf8_lossy(said).trim()) });
    let passes = status.is_server_error() && status != StatusCode::NOT_IMPLEMENTED;
    if passes || [StatusCode::REQUEST_TIMEOUT, StatusCode::TOO_MANY_REQUESTS].contains(&status) {
        return CallError::Busy(format!("HTTP {}: {}", status.as_u16(), told.message), retry_after);
    }
    CallError::Refused(Refused { http_status: status.as_u16(), code: told.code, message: told.message })
}

/// An error with what lies beneath it.
fn words(error: &reqwest::Error) -> String {
    let mut words = error.to_string();
    let mut cause = std::error::Error::source(error);
    while let Some(below) = cause {
        words = format!("{words}: {below}");
        cause = below.source();
    }
    words
}

/// A duration as the API writes it: `900s`, `1.500s`.
fn span(text: &str) -> Option<Duration> {
    let seconds: f64 = text.strip_suffix('s')?.parse().ok()?;
    Duration::try_from_secs_f64(seconds).ok().filter(|span| !span.is_zero())
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::span;

    #[test]
    fn durations_are_read_as_the_api_writes_them() {
        assert_eq!(span("900s"), Some(Duration::from_secs(900)));
        assert_eq!(span("1.500s"), Some(Duration::from_millis(1_500)));
        for wrong in ["", "900", "-1s", "0s", "s", "NaNs"] {
            assert_eq!(span(wrong), None, "{wrong}");
        }
    }
}
