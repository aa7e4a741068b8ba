//! Sends one event by one HTTP request.
//!
//! In: a delivery to an HTTP target. Out: a [`Sent`]. Invariants: what a user can write (URL, headers) is checked again here,
//! as it decides where bytes go; no redirect is followed and no proxy variable is read; a request is written at most once.
//!
//! Whether a failure left the request unwritten is read from the client: a request is handed to a connection
//! only after the connection has been captured, so as long as none is captured, no byte was written.

mod answer;
mod connector;
mod pauses;
mod places;

use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};

use ::http::header::{CONTENT_TYPE, HeaderName, HeaderValue, USER_AGENT};
use ::http::{Request, Uri};
use bytes::Bytes;
use chrono::Utc;
use http_body_util::{BodyExt as _, Full};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::capture_connection;
use hyper_util::rt::{TokioExecutor, TokioTimer};
use tollgate_core::model::{Delivery, HttpTarget, Sent};

use crate::address::{AddressRefused, Guard};
use crate::check::check_header;
use crate::cloud_event::{self, Origin};
use crate::{TargetError, TargetOptions, causes, chain, refused, refused_for_good, signature, span, unclear};

pub(crate) use answer::is_gateway_doubt;

use answer::Answer;
use connector::Connector;
use pauses::Pauses;
use places::Places;

const TOLLGATE: &str = concat!("tollgate/", env!("CARGO_PKG_VERSION"));

const TRACEPARENT: HeaderName = HeaderName::from_static("traceparent");
const WEBHOOK_ID: HeaderName = HeaderName::from_static("webhook-id");
const WEBHOOK_TIMESTAMP: HeaderName = HeaderName::from_static("webhook-timestamp");
const WEBHOOK_SIGNATURE: HeaderName = HeaderName::from_static("webhook-signature");

/// How long an unused connection is kept. Common servers close theirs after five seconds or more, and a request that
/// meets a connection as it closes ends as unclear.
const IDLE_MAX: Duration = Duration::from_secs(4);

/// All HTTP targets.
pub(crate) struct Http {
    client: Client<Connector, Full<Bytes>>,
    places: Places,
    origin: Arc<Origin>,
    pauses: Pauses,
    answer_max_bytes: usize,
}

impl fmt::Debug for Http {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Http")
            .field("places", &self.places)
            .field("pauses", &self.pauses)
            .finish_non_exhaustive()
    }
}

impl Http {
    pub(crate) fn new(
        options: &TargetOptions,
        connect_timeout: Duration,
        guard: Guard,
        origin: Arc<Origin>,
    ) -> Result<Self, TargetError> {
        let connector = Connector::new(guard.clone(), connect_timeout)?;
        let client = Client::builder(TokioExecutor::new())
            .pool_timer(TokioTimer::new())
            .pool_idle_timeout(IDLE_MAX)
            .pool_max_idle_per_host(options.idle_connections_per_host_max)
            .build(connector);
        let answer_max_bytes = options.answer_max_bytes;
        let places = Places::new(guard);
        Ok(Self { client, places, origin, pauses: Pauses::default(), answer_max_bytes })
    }

    /// Delivers one event once.
    pub(crate) async fn send(&self, delivery: &Delivery, target: &HttpTarget) -> Sent {
        let place = match self.places.of(&target.url) {
            Ok(place) => place,
            Err(message) => return refused_for_good(message),
        };
        let host = &place.host;
        if let Some(left) = self.pauses.remaining(host, Instant::now()) {
            let left_ms = i64::try_from(left.as_millis()).unwrap_or(i64::MAX).max(1);
            return refused(
                format!("not sent: {host} asked for a pause (Retry-After), {left_ms} ms of it are left"),
                Some(left_ms),
            );
        }
        match self.request(delivery, target, place.url.clone()) {
            Ok(request) => self.exchange(request, span(target.deadline_ms), host).await,
            Err(message) => refused_for_good(message),
        }
    }

    fn request(
        &self,
        delivery: &Delivery,
        target: &HttpTarget,
        url: Uri,
    ) -> Result<Request<Full<Bytes>>, String> {
        let traceparent = self.origin.traceparent(delivery);
        let body = Bytes::from(cloud_event::write(delivery, &self.origin, traceparent.as_deref()));
        let mut request = Request::post(url)
            .header(CONTENT_TYPE, cloud_event::CONTENT_TYPE)
            .header(USER_AGENT, TOLLGATE)
            .body(Full::new(body.clone()))
            .map_err(|error| format!("url: {error}"))?;
        let mut set = |name: HeaderName, value: &str| -> Result<(), String> {
            let value = HeaderValue::from_str(value).map_err(|error| format!("header `{name}`: {error}"))?;
            request.headers_mut().insert(name, value);
            Ok(())
        };
        for (name, value) in &target.headers {
            check_header(name, value)?;
            let name = HeaderName::from_bytes(name.as_bytes())
                .map_err(|error| format!("header `{name}`: {error}"))?;
            set(name, value)?;
        }
        if let Some(traceparent) = &traceparent {
            set(TRACEPARENT, traceparent)?;
        }
        let (id, timestamp_s) = (delivery.event_id.as_str(), Utc::now().timestamp());
        set(WEBHOOK_ID, id)?;
        set(WEBHOOK_TIMESTAMP, &timestamp_s.to_string())?;
        if let Some(secret) = &target.secret {
            set(WEBHOOK_SIGNATURE, &signature::sign(secret, id, timestamp_s, &body)?)?;
        }
        Ok(request)
    }

    /// Writes the request and reads the answer, within the deadline.
    async fn exchange(&self, mut request: Request<Full<Bytes>>, deadline: Duration, host: &str) -> Sent {
        let captured = capture_connection(&mut request);
        let ended = tokio::time::timeout(deadline, self.answer(request)).await;
        let may_be_written = captured.connection_metadata().is_some();
        match ended {
            Ok(Ok(answer)) => self.judge(&answer, host),
            Ok(Err(failure)) => failure.verdict(may_be_written),
            Err(_) if may_be_written => {
                unclear(format!("no complete answer within {} ms", deadline.as_millis()))
            }
            Err(_) => refused(format!("not sent: no connection within {} ms", deadline.as_millis()), None),
        }
    }

    async fn answer(&self, request: Request<Full<Bytes>>) -> Result<Answer, Failure> {
        let (head, mut incoming) = self.client.request(request).await.map_err(Failure::Request)?.into_parts();
        let mut answer = Answer { status: head.status, headers: head.headers, body: Vec::new() };
        while let Some(frame) = incoming.frame().await {
            let frame = frame.map_err(|error| Failure::Body(answer.status.as_u16(), error))?;
            let Some(data) = frame.data_ref() else { continue };
            let room = self.answer_max_bytes.saturating_sub(answer.body.len());
            answer.body.extend_from_slice(&data[..data.len().min(room)]);
            if data.len() > room {
                // Dropping what is left of the body closes the connection.
                break;
            }
        }
        Ok(answer)
    }

    fn judge(&self, answer: &Answer, host: &str) -> Sent {
        let sent = answer.verdict(Utc::now());
        if let (429 | 503, Sent::Refused { retry_after_ms: Some(wish_ms @ 1..), .. }) =
            (answer.status.as_u16(), &sent)
        {
            self.pauses.pause(host, span(*wish_ms), Instant::now());
            tracing::info!(host, wish_ms, status = answer.status.as_u16(), "a target asked for a pause");
        }
        sent
    }
}

/// Why there is no complete answer.
enum Failure {
    /// Before the head of the answer was there.
    Request(hyper_util::client::legacy::Error),
    /// After it: the answer's status, and what happened to its body.
    Body(u16, hyper::Error),
}

impl Failure {
    fn verdict(&self, may_be_written: bool) -> Sent {
        match self {
            Self::Request(error) => {
                if let Some(refusal) = causes(error).find_map(|cause| cause.downcast_ref::<AddressRefused>())
                {
                    return refused_for_good(refusal.to_string());
                }
                // A connection that was captured, and then replaced without having taken the request, leaves an
                // error of the second attempt to connect.
                if error.is_connect() || !may_be_written {
                    return refused(format!("not sent: {}", chain(error)), None);
                }
                unclear(format!("no answer: {}", chain(error)))
            }
            Self::Body(status, error) => {
                unclear(format!("HTTP {status}, and then no complete answer: {}", chain(error)))
            }
        }
    }
}
