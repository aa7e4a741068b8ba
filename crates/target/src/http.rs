//! Sends one event by one HTTP request.
//!
//! In: a delivery to an HTTP target. Out: a [`Sent`]. Invariants: what a user can write (URL, headers) is checked again here,
//! as it decides where bytes go; no redirect is followed and no proxy variable is read; a request is written at most once.
//!
//! Whether a failure left the request unwritten is known from its connection, which gives back what it has not begun to write.

mod answer;
mod batches;
mod connections;
mod connector;
mod content;
mod destinations;
mod exchange;
mod pauses;
mod pools;
mod single;
mod streams;

use std::fmt;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use ::http::header::HOST;
use ::http::{Method, Request};
use bytes::Bytes;
use http_body_util::Full;
use tollgate_clock::{Clock, instant_now};
use tollgate_core::model::{Delivery, HttpTarget, RunSpec, Sent, Target};
use uuid::Uuid;

use crate::address::{AddressRefused, GuardedNames};
use crate::cloud_event::{self, EventContext};
use crate::leave::Leave;
use crate::{
    TargetError, TargetOptions, causes, chain, is_own, not_sent, refused, refused_for_good, span, unclear,
};

pub(crate) use answer::{HttpAnswer, is_gateway_doubt, retry_after_ms};
pub(crate) use connector::tls;
pub(crate) use content::Content;

use batches::{Batch, Batches, Exchange};
use connections::Connections;
use connector::Connector;
use destinations::{Destination, Destinations};
use exchange::{ExchangeError, Sender, Stage};
use pauses::{PAUSE_MAX, Pauses};

/// Bytes of an answer that one event of a batch has room for.
const NAMED_MAX_BYTES: usize = 1_024;

/// All HTTP targets.
pub(crate) struct Http {
    connections: Connections,
    destinations: Destinations,
    context: Arc<EventContext>,
    pauses: Pauses,
    batches: Batches,
    answer_max_bytes: usize,
    retry_after_max_ms: i64,
    clock: Clock,
}

impl fmt::Debug for Http {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Http")
            .field("destinations", &self.destinations)
            .field("pauses", &self.pauses)
            .finish_non_exhaustive()
    }
}

impl Http {
    pub(crate) fn new(
        options: &TargetOptions,
        connect_timeout: Duration,
        names: GuardedNames,
        context: Arc<EventContext>,
    ) -> Result<Self, TargetError> {
        let connector = Connector::new(names.clone(), connect_timeout)?;
        let destinations = Destinations::new(names.guard.clone());
        let idle_max = options.idle_connections_per_host_max;
        let connections = Connections::new(connector, names, options.connections_max, idle_max);
        let (answer_max_bytes, retry_after_max_ms) = (options.answer_max_bytes, options.retry_after_max_ms);
        let clock = options.clock.clone();
        Ok(Self {
            connections,
            destinations,
            context,
            pauses: Pauses::default(),
            batches: Batches::new(),
            answer_max_bytes,
            retry_after_max_ms,
            clock,
        })
    }

    /// Delivers one event once.
    pub(crate) async fn send(
        self: &Arc<Self>,
        delivery: &Delivery,
        target: &HttpTarget,
        leave: &Leave,
    ) -> Sent {
        let Some(limits) = &target.batch else {
            return self.send_content(&delivery.spec, target, leave, self.content(delivery)).await.0;
        };
        let traceparent = self.context.traceparent(delivery);
        let event = cloud_event::write(delivery, &self.context, traceparent.as_deref());
        let exchange = || -> Exchange {
            let http = Arc::clone(self);
            Arc::new(move |batch| Box::pin(Arc::clone(&http).send_batch(batch)))
        };
        Box::pin(self.batches.send(delivery, event, limits, leave, exchange)).await
    }

    /// Delivers events that share a request. The verdict on it, and the body of an answer that accepts.
    async fn send_batch(self: Arc<Self>, Batch { spec, body, leave }: Batch) -> (Sent, Vec<u8>) {
        let Target::Http { http: target, .. } = &spec.target else {
            return (refused_for_good("its target takes no batches"), Vec::new());
        };
        // Of the request: each event in it has its own.
        let id = format!("batch-{}", Uuid::new_v4().simple());
        let content = Content { id: &id, media_type: batches::CONTENT_TYPE, traceparent: None, body };
        self.send_content(&spec, target, &leave, content).await
    }

    async fn send_content(
        &self,
        spec: &RunSpec,
        target: &HttpTarget,
        leave: &Leave,
        content: Content<'_>,
    ) -> (Sent, Vec<u8>) {
        let destination = match self.destinations.of(&target.url, target.http2) {
            Ok(destination) => destination,
            Err(message) => return (refused_for_good(message), Vec::new()),
        };
        let namespace = &*spec.namespace;
        if let Some(left) = self.pauses.remaining(namespace, &destination.host, instant_now()) {
            let host = &destination.host;
            let left_ms = i64::try_from(left.as_millis()).unwrap_or(i64::MAX).max(1);
            let message =
                format!("not sent: {host} asked for a pause (Retry-After), {left_ms} ms of it are left");
            return (Sent::NotSent { message, retry_after_ms: Some(left_ms) }, Vec::new());
        }
        let answer_max_bytes = match &target.batch {
            None => self.answer_max_bytes,
            Some(limits) => self.answer_max_bytes.max(limits.max_events as usize * NAMED_MAX_BYTES),
        };
        let deadline = span(target.deadline_ms);
        let sender = Sender { namespace, schedule: spec.schedule_uid, leave, deadline, answer_max_bytes };
        match self.request(content, target, &destination) {
            Ok(request) => self.exchange(request, sender, &destination).await,
            Err(message) => (refused_for_good(message), Vec::new()),
        }
    }

    fn content<'d>(&self, delivery: &'d Delivery) -> Content<'d> {
        let traceparent = self.context.traceparent(delivery);
        let body = Bytes::from(cloud_event::write(delivery, &self.context, traceparent.as_deref()));
        Content { id: delivery.event_id.as_str(), media_type: cloud_event::CONTENT_TYPE, traceparent, body }
    }

    fn request(
        &self,
        content: Content<'_>,
        target: &HttpTarget,
        destination: &Destination,
    ) -> Result<Request<Full<Bytes>>, String> {
        let mut headers = content.headers(target, self.clock.wall_us())?;
        headers.insert(HOST, destination.authority.clone());
        let mut request = Request::new(Full::new(content.body));
        *request.method_mut() = Method::POST;
        *request.uri_mut() = destination.path.clone();
        *request.headers_mut() = headers;
        Ok(request)
    }

    /// Gets a connection, writes the request and reads the answer, all within the deadline: the next owner
    /// counts on it that nothing is written later.
    async fn exchange(
        &self,
        request: Request<Full<Bytes>>,
        sender: Sender<'_>,
        destination: &Arc<Destination>,
    ) -> (Sent, Vec<u8>) {
        let mut stage = Stage::default();
        let exchanged = {
            // Pinned where it is made: it is large, and would be moved several times.
            let exchange = pin!(self.connections.exchange(destination, request, sender, &mut stage));
            tokio::time::timeout_at(sender.leave.until(sender.deadline), exchange).await
        };
        let deadline_ms = sender.deadline.as_millis();
        let sent = match exchanged {
            Ok(Ok(answer)) => {
                let sent = self.judge(&answer, sender.namespace, &destination.host);
                return (sent, answer.body);
            }
            Ok(Err(failure)) => failure.verdict(),
            Err(_) => match stage {
                Stage::Written => unclear(format!("no complete answer within {deadline_ms} ms")),
                Stage::Connecting => {
                    refused(format!("not sent: no connection within {deadline_ms} ms"), None)
                }
                Stage::LookingUp => {
                    not_sent(format!("not sent: no answer of a name server within {deadline_ms} ms"))
                }
                Stage::Waiting => not_sent(format!("not sent: no turn within {deadline_ms} ms")),
            },
        };
        (sent, Vec::new())
    }

    fn judge(&self, answer: &HttpAnswer, namespace: &str, host: &str) -> Sent {
        let sent = answer.verdict(self.retry_after_max_ms, self.clock.wall_us());
        match (answer.status.as_u16(), &sent) {
            (429 | 503, Sent::Refused { retry_after_ms: Some(wish_ms @ 1..), .. }) => {
                self.pauses.pause(namespace, host, span(*wish_ms), instant_now());
                let pause_s = span(*wish_ms).min(PAUSE_MAX).as_secs_f64();
                let status = answer.status.as_u16();
                tracing::info!(namespace, host, wish_ms, pause_s, status, "a target asked for a pause");
            }
            (_, Sent::Accepted) => self.pauses.end(namespace, host),
            _ => {}
        }
        sent
    }
}

impl ExchangeError {
    fn verdict(&self) -> Sent {
        match self {
            Self::NotSent(message) => not_sent(message.clone()),
            Self::Unsent(error) => {
                let error: &(dyn std::error::Error + 'static) = error.as_ref();
                match causes(error).find_map(|cause| cause.downcast_ref::<AddressRefused>()) {
                    Some(refusal) => refused_for_good(refusal.to_string()),
                    None if is_own(error) => not_sent(format!("not sent: {}", chain(error))),
                    None => refused(format!("not sent: {}", chain(error)), None),
                }
            }
            Self::NoAnswer(error) => unclear(format!("no answer: {}", chain(error.as_ref()))),
            Self::NoBody(status, why) => {
                unclear(format!("HTTP {status}, and then no complete answer: {why}"))
            }
        }
    }
}
