//! Delivers events: one HTTP request, or one entry of an SQS batch, for each.
//!
//! In: a [`Delivery`] whose acquisition has been committed. Out: a [`Sent`], always. The whole point is the difference
//! between *refused* (proof that the consumer does not have the event, so its token may be freed) and *unclear* (it may have
//! it, so the token stays); where in doubt, it is unclear. What is not here: retries, back-off, tokens: one call to
//! [`Targets::send`] is at most one delivery.

mod address;
mod check;
mod cloud_event;
mod http;
mod opening;
mod signature;
mod sqs;

use std::sync::Arc;
use std::time::Duration;

use tollgate_clock::Clock;
use tollgate_core::model::{Delivery, Sent, Target};
use tollgate_secrets::Keys;
use tollgate_trace::Traces;

pub use address::{Network, PrivateAddresses};
pub use check::{DEADLINE_MAX_MS, check_header, check_target};
pub use signature::check_secret;

use address::Guard;
use cloud_event::Origin;
use opening::Opener;

/// How deliveries are made.
#[derive(Clone, Debug)]
pub struct TargetOptions {
    /// Whether deliveries may go to addresses that are not public.
    pub allow_private_addresses: PrivateAddresses,
    /// Bytes of an answer's body that are read; a longer one is cut and its connection dropped.
    pub answer_max_bytes: usize,
    /// Idle connections that are kept for each host. With fewer than deliveries under way at once, each delivery pays
    /// for a connection.
    pub idle_connections_per_host_max: usize,
    /// For name resolution, TCP and TLS together, in milliseconds; the target's own deadline holds as well.
    pub connect_timeout_ms: u64,
    /// Stands before `/namespaces/{namespace}/schedules/{schedule}` in the event's `source`; may be empty.
    pub source: String,
    /// Where consumers can call ReleaseToken; `releaseurl` in events that wait for it.
    pub release_url: Option<String>,
    /// What opens secrets that are sealed.
    pub keys: Arc<Keys>,
    /// Whose spans consumers are told of.
    pub traces: Traces,
    /// What signatures say the time is.
    pub clock: Clock,
}

impl Default for TargetOptions {
    fn default() -> Self {
        Self {
            allow_private_addresses: PrivateAddresses::Refuse,
            answer_max_bytes: 64 * 1024,
            idle_connections_per_host_max: 1_024,
            connect_timeout_ms: 5_000,
            source: String::new(),
            release_url: None,
            traces: Traces::default(),
            keys: Arc::default(),
            clock: Clock::system(),
        }
    }
}

/// Why no deliveries can be made at all.
#[derive(Debug, thiserror::Error)]
pub enum TargetError {
    /// The system has no certificates to check `https` targets with.
    #[error(
        "no root certificates: install the system's ca-certificates, or name a file in SSL_CERT_FILE: {0}"
    )]
    Roots(#[source] std::io::Error),
}

/// All targets. Clones share connections, pauses and SQS queues.
#[derive(Clone, Debug)]
pub struct Targets {
    http: Arc<http::Http>,
    sqs: Arc<sqs::Sqs>,
    opener: Arc<Opener>,
}

impl Targets {
    /// Targets with these options. Nothing is connected to, and no AWS credentials are looked for, until the first
    /// delivery needs it.
    ///
    /// # Errors
    /// [`TargetError::Roots`] where the system's root certificates cannot be loaded.
    pub fn new(options: TargetOptions) -> Result<Self, TargetError> {
        let guard = Guard::new(options.allow_private_addresses.clone());
        let origin = Arc::new(Origin {
            source: options.source.clone(),
            release_url: options.release_url.clone(),
            traces: options.traces.clone(),
        });
        let connect_timeout = Duration::from_millis(options.connect_timeout_ms.max(1));
        let http = http::Http::new(&options, connect_timeout, guard.clone(), origin.clone())?;
        let sqs = sqs::Sqs::new(guard, origin, connect_timeout);
        let opener = Arc::new(Opener::new(options.keys));
        Ok(Self { http: Arc::new(http), sqs: Arc::new(sqs), opener })
    }

    /// Delivers one event once. What is sealed in it is opened for as long as that takes; where that fails, nothing is
    /// sent, and the event is tried again like after any refusal.
    pub async fn send(&self, delivery: Delivery) -> Sent {
        let delivery = match self.opener.open(delivery) {
            Ok(delivery) => delivery,
            Err(error) => return refused(format!("not sent: {error}"), None),
        };
        match &delivery.spec.target {
            Target::Http { http, .. } => self.http.send(&delivery, http).await,
            // Boxed: its future is far larger, and every delivery would be moved about with room for it.
            Target::Sqs { sqs, .. } => Box::pin(self.sqs.send(&delivery, sqs)).await,
        }
    }
}

/// An error and what caused it, in one line.
fn chain(error: &(dyn std::error::Error + 'static)) -> String {
    let mut text = error.to_string();
    for cause in causes(error).skip(1) {
        let cause = cause.to_string();
        if !text.contains(&cause) {
            text.push_str(": ");
            text.push_str(&cause);
        }
    }
    text
}

/// An error and what caused it, outermost first.
fn causes<'a>(
    error: &'a (dyn std::error::Error + 'static),
) -> impl Iterator<Item = &'a (dyn std::error::Error + 'static)> {
    std::iter::successors(Some(error), |error| error.source())
}

/// At least a millisecond.
fn span(length_ms: i64) -> Duration {
    Duration::from_millis(u64::try_from(length_ms).unwrap_or(0).max(1))
}

fn refused(message: impl Into<String>, retry_after_ms: Option<i64>) -> Sent {
    Sent::Refused { message: message.into(), retry_after_ms, permanent: false }
}

fn refused_for_good(message: impl Into<String>) -> Sent {
    Sent::Refused { message: message.into(), retry_after_ms: None, permanent: true }
}

fn unclear(message: impl Into<String>) -> Sent {
    Sent::Unclear { message: message.into(), retry_after_ms: None }
}
