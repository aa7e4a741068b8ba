//! Makes one SendMessageBatch call, and reads from its end what became of each message.
//!
//! In: a client and up to ten messages. Out: one [`Sent`] for each, in order. SQS answers 200 for a batch of which some entries
//! failed: an entry that it lists as failed was not enqueued, one that it lists nowhere is unclear. A call that fails as a
//! whole is unclear, unless nothing was written or SQS refused it with 4xx.

use std::pin::Pin;
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll};
use std::time::Duration;

use aws_sdk_sqs::Client;
use aws_sdk_sqs::config::{ConfigBag, Intercept, RuntimeComponents};
use aws_sdk_sqs::error::{ProvideErrorMetadata as _, SdkError};
use aws_sdk_sqs::operation::send_message_batch::{SendMessageBatchError, SendMessageBatchOutput};
use aws_sdk_sqs::types::BatchResultErrorEntry;
use aws_smithy_runtime_api::box_error::BoxError;
use aws_smithy_runtime_api::client::connection::CaptureSmithyConnection;
use aws_smithy_runtime_api::client::interceptors::context::{
    BeforeTransmitInterceptorContextMut, BeforeTransmitInterceptorContextRef,
};
use aws_smithy_runtime_api::client::orchestrator::HttpResponse;
use aws_smithy_types::body::SdkBody;
use bytes::Bytes;
use hyper::body::{Body, Frame, SizeHint};
use tokio::time::Instant;
use tollgate_core::model::Sent;

use super::message::SqsMessage;
use crate::address::AddressRefused;
use crate::http::is_gateway_doubt;
use crate::leave::{Leave, Withheld};
use crate::{causes, chain, is_own, not_sent, refused, refused_for_good, unclear};

type CallError = SdkError<SendMessageBatchError, HttpResponse>;

/// Codes of failed entries that the same message would meet again.
const PERMANENT_CODES: &[&str] = &[
    "InvalidMessageContents",
    "InvalidParameterValue",
    "InvalidParameterCombination",
    "InvalidAttributeName",
    "InvalidAttributeValue",
    "MissingParameter",
    "MissingRequiredParameter",
    "MessageTooLong",
    "UnsupportedOperation",
];

/// Until when, and by whose leave, a call may be made.
pub(super) struct Held {
    pub(super) leaves: Vec<Leave>,
    pub(super) deadline: Duration,
    /// The earliest end of a deadline among them.
    pub(super) until: Instant,
}

/// Sends the messages; the answer has one verdict for each.
pub(super) async fn send(
    client: &Client,
    queue_url: &str,
    messages: &[&SqsMessage],
    Held { leaves, deadline, until }: Held,
) -> Vec<Sent> {
    let entries: Result<Vec<_>, _> =
        messages.iter().enumerate().map(|(id, message)| message.entry(id)).collect();
    let entries = match entries {
        Ok(entries) => entries,
        Err(error) => return vec![refused_for_good(error.to_string()); messages.len()],
    };
    let progress = Progress::default();
    let gate = Gate { leaves: leaves.into(), deadline, withheld: Arc::default() };
    let call = client
        .send_message_batch()
        .queue_url(queue_url)
        .set_entries(Some(entries))
        .customize()
        .interceptor(progress.clone())
        .interceptor(gate.clone())
        .send();
    let called = tokio::time::timeout_at(until, Box::pin(call)).await;
    let sent = match called {
        Ok(Ok(output)) => return each(&output, messages.len()),
        _ if let Some(why) = gate.withheld.get() => not_sent(format!("not sent to SQS: {why}")),
        Ok(Err(error)) => failed(&error, progress.may_be_written()),
        Err(_) if progress.may_be_written() => {
            unclear(format!("SQS: no answer within {} ms", deadline.as_millis()))
        }
        Err(_) => refused(format!("not sent to SQS: no connection within {} ms", deadline.as_millis()), None),
    };
    vec![sent; messages.len()]
}

/// The verdicts of a call that SQS answered.
fn each(output: &SendMessageBatchOutput, messages: usize) -> Vec<Sent> {
    let missing = || unclear("SQS: the answer to the batch does not mention this message");
    let mut all: Vec<Sent> = std::iter::repeat_with(missing).take(messages).collect();
    let at = |id: &str| id.parse::<usize>().ok();
    for entry in output.failed() {
        if let Some(sent) = at(entry.id()).and_then(|at| all.get_mut(at)) {
            *sent = failed_entry(entry);
        }
    }
    for entry in output.successful() {
        if let Some(sent) = at(entry.id()).and_then(|at| all.get_mut(at)) {
            *sent = Sent::Accepted;
        }
    }
    all
}

fn failed_entry(entry: &BatchResultErrorEntry) -> Sent {
    let message = format!("SQS: {}: {}", entry.code(), entry.message().unwrap_or("no message"));
    // Newer codes have no prefix; older ones do (`AWS.SimpleQueueService.…`).
    let code = entry.code().rsplit('.').next().unwrap_or("");
    if entry.sender_fault() && PERMANENT_CODES.contains(&code) {
        return refused_for_good(message);
    }
    refused(message, None)
}

/// The verdict of a call that failed as a whole.
fn failed(error: &CallError, may_be_written: bool) -> Sent {
    if let Some(refusal) = causes(error).find_map(|cause| cause.downcast_ref::<AddressRefused>()) {
        return refused_for_good(format!("endpoint_url: {refusal}"));
    }
    let could_not_connect = causes(error)
        .filter_map(|cause| cause.downcast_ref::<hyper_util::client::legacy::Error>())
        .any(hyper_util::client::legacy::Error::is_connect);
    let message = || format!("not sent to SQS: {}", chain(error));
    match (could_not_connect, may_be_written) {
        (true, _) | (_, false) if is_own(error) => return not_sent(message()),
        (true, _) => return refused(message(), None),
        // It did not come as far as to a connection: no credentials, for example.
        (_, false) => return not_sent(message()),
        (false, true) => {}
    }
    let message = match (error.code(), error.raw_response()) {
        (Some(code), Some(raw)) => {
            format!("SQS: HTTP {} {code}: {}", raw.status().as_u16(), error.message().unwrap_or("no message"))
        }
        (None, Some(raw)) => format!("SQS: HTTP {}: {}", raw.status().as_u16(), chain(error)),
        _ => format!("SQS: {}", chain(error)),
    };
    match error.raw_response().map(|raw| raw.status().as_u16()) {
        Some(status @ 300..=499) if !is_gateway_doubt(status) => refused(message, None),
        _ => unclear(message),
    }
}

/// How far a call came: the SDK's own errors do not tell whether the request was written.
#[derive(Clone, Debug, Default)]
struct Progress(Arc<OnceLock<Option<CaptureSmithyConnection>>>);

impl Progress {
    /// False as long as no connection has taken the request.
    fn may_be_written(&self) -> bool {
        match self.0.get() {
            None => false,
            Some(None) => true,
            Some(Some(connection)) => connection.get().is_some(),
        }
    }
}

impl Intercept for Progress {
    fn name(&self) -> &'static str {
        "Progress"
    }

    fn read_before_transmit(
        &self,
        _: &BeforeTransmitInterceptorContextRef<'_>,
        _: &RuntimeComponents,
        config: &mut ConfigBag,
    ) -> Result<(), BoxError> {
        // The SDK puts the capture there to be able to close bad connections.
        self.0.get_or_init(|| config.load::<CaptureSmithyConnection>().cloned());
        Ok(())
    }
}

/// Looks at the leave of a call's messages right before its bytes: when the connection asks for the first of them. Where one
/// has lost it, the connection is closed, and what SQS may have of the call is not a whole one.
#[derive(Clone, Debug)]
struct Gate {
    leaves: Arc<[Leave]>,
    deadline: Duration,
    withheld: Arc<OnceLock<Withheld>>,
}

impl Gate {
    fn look(&self) -> Result<(), Withheld> {
        let checked = self.leaves.iter().try_for_each(|leave| leave.check(self.deadline));
        checked.inspect_err(|why| {
            // The first look stands.
            let _known = self.withheld.set(*why);
        })
    }
}

impl Intercept for Gate {
    fn name(&self) -> &'static str {
        "Gate"
    }

    fn modify_before_transmit(
        &self,
        context: &mut BeforeTransmitInterceptorContextMut<'_>,
        _: &RuntimeComponents,
        _: &mut ConfigBag,
    ) -> Result<(), BoxError> {
        let body = context.request_mut().body_mut();
        let inner = std::mem::replace(body, SdkBody::taken());
        *body = SdkBody::from_body_1_x(Gated { inner, gate: Some(self.clone()) });
        Ok(())
    }
}

/// A body behind its gate.
struct Gated {
    inner: SdkBody,
    /// None once it has been passed.
    gate: Option<Gate>,
}

impl Body for Gated {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        if let Some(gate) = self.gate.take()
            && let Err(why) = gate.look()
        {
            return Poll::Ready(Some(Err(why.into())));
        }
        Pin::new(&mut self.inner).poll_frame(cx)
    }

    fn is_end_stream(&self) -> bool {
        self.gate.is_none() && self.inner.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        Body::size_hint(&self.inner)
    }
}
