//! Delivers events: one HTTP request, one entry of an SQS batch, or one Kafka record, for each.
//!
//! In: a [`Delivery`] whose acquisition has been committed. Out: a [`Sent`], always. The whole point is the difference between
//! *refused* (proof that the consumer does not have the event, so its token may be freed) and *unclear* (it may have it, so the
//! token stays); where in doubt, it is unclear. What is not here: retries, back-off, tokens: one call to [`Targets::send`] is at
//! most one delivery. What is no event, the messages of alerts, goes by [`Post`]. Kafka is only there with the feature `kafka`
//! ([`SPEAKS_KAFKA`]).

mod address;
mod check;
mod cloud_event;
mod http;
#[cfg(feature = "kafka")]
mod kafka;
mod kafka_login;
mod kafka_logins;
mod leave;
mod list;
mod look;
mod names;
mod opening;
mod parcel;
mod post;
mod shares;
mod signature;
mod sqs;
mod tasks;

use std::io;
use std::sync::Arc;
use std::time::Duration;

use tollgate_clock::Clock;
use tollgate_core::model::{Delivery, Sent, Target};
use tollgate_secrets::Keys;
use tollgate_trace::Traces;

pub use address::{Network, PrivateAddresses};
pub use check::{DEADLINE_MAX_MS, check_header, check_target};
pub use cloud_event::{CONTENT_TYPE, rfc3339};
#[cfg(feature = "kafka")]
pub use kafka::{is_kafka_denial, kafka_client, kafka_producer};
pub use kafka_login::{
    KAFKA_NO_CERTIFICATE, KafkaAccess, KafkaLogin, KafkaTls, Password, WrittenKafkaLogin, WrittenKafkaTls,
    kafka_member,
};
pub use kafka_logins::KafkaLogins;
pub use leave::{Leave, Withheld};
pub use list::{ListClient, NoPage, Page, PageAsk, next_url, with_parameter};
pub use look::{Fault, Look};
pub use names::Lookup;
pub use parcel::Parcel;
pub use post::Post;
pub use signature::check_secret;
pub use sqs::plain::{check_queue, queue_client};

use address::{Guard, GuardedNames};
use cloud_event::EventContext;
use names::{Names, NoAddress};
use opening::Opener;

/// Whether this build sends to Kafka targets.
pub const SPEAKS_KAFKA: bool = cfg!(feature = "kafka");

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
    /// For TCP and TLS together, and again for the lookup of the name, in milliseconds; the target's own deadline holds as well.
    pub connect_timeout_ms: u64,
    /// Connections to HTTP targets in use at once, and SQS calls; no schedule, target or namespace gets all of them. A quarter
    /// more may be idle.
    pub connections_max: usize,
    /// The longest pause that a target gets by `Retry-After`, in milliseconds.
    pub retry_after_max_ms: i64,
    /// Names that are looked up at once, each by a thread; no namespace gets all of them.
    pub lookups_max: usize,
    /// How names are looked up.
    pub lookup: Lookup,
    /// The endpoints that SQS targets may name; any where absent. Each gets a request signed with the process's credentials.
    pub sqs_endpoints: Option<Vec<String>>,
    /// The brokers that Kafka targets may name, as `host:port`; any where absent.
    pub kafka_servers: Option<Vec<String>>,
    /// How the brokers of Kafka targets are spoken to, where that is not in the clear.
    pub kafka_logins: KafkaLogins,
    /// Stands before `/namespaces/{namespace}/schedules/{schedule}` in the event's `source`; may be empty.
    pub source: String,
    /// Where consumers can call ReleaseToken; `releaseurl` in events that wait for it.
    pub release_url: Option<String>,
    /// What opens secrets that are sealed.
    pub keys: Arc<Keys>,
    /// The traces whose spans consumers are told of.
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
            connections_max: 8_192,
            retry_after_max_ms: 24 * 3_600_000,
            lookups_max: 64,
            lookup: Lookup::default(),
            sqs_endpoints: None,
            kafka_servers: None,
            kafka_logins: KafkaLogins::default(),
            source: String::new(),
            release_url: None,
            traces: Traces::default(),
            keys: Arc::default(),
            clock: Clock::system(),
        }
    }
}

impl TargetOptions {
    fn connect_timeout(&self) -> Duration {
        Duration::from_millis(self.connect_timeout_ms.max(1))
    }

    /// Names, looked up as these options say.
    fn names(&self) -> GuardedNames {
        let guard = Guard::new(self.allow_private_addresses.clone());
        let names = Names::new(self.lookup.clone(), self.lookups_max, self.connect_timeout());
        GuardedNames { guard, names }
    }

    fn context(&self) -> EventContext {
        EventContext {
            source: self.source.clone(),
            release_url: self.release_url.clone(),
            traces: self.traces.clone(),
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
    Roots(#[source] io::Error),
    /// The client for messages of alerts, or for lists, cannot be made.
    #[error("no HTTP client for messages of alerts and lists: {0}")]
    Client(#[source] reqwest::Error),
    /// Kafka's client does not take a certificate, its key or an authority: of which cluster of the file, and why.
    #[error("kafka_logins_file: {0}: {1}")]
    KafkaLogin(String, String),
}

/// All targets. Clones share connections, pauses, SQS queues and Kafka producers.
#[derive(Clone, Debug)]
pub struct Targets {
    http: Arc<http::Http>,
    sqs: Arc<sqs::Sqs>,
    #[cfg(feature = "kafka")]
    kafka: Arc<kafka::Kafka>,
    opener: Arc<Opener>,
    context: Arc<EventContext>,
}

impl Targets {
    /// Targets with these options. Nothing is connected to, and no AWS credentials are looked for, until the first
    /// delivery needs it.
    ///
    /// # Errors
    /// [`TargetError::Roots`] where the system's root certificates cannot be loaded, [`TargetError::KafkaLogin`] where Kafka's
    /// client does not take what it is to show brokers.
    pub fn new(options: TargetOptions) -> Result<Self, TargetError> {
        let context = Arc::new(options.context());
        let names = options.names();
        let connect_timeout = options.connect_timeout();
        let http = http::Http::new(&options, connect_timeout, names.clone(), context.clone())?;
        #[cfg(feature = "kafka")]
        let kafka = Arc::new(kafka::Kafka::new(&options, names.clone(), context.clone())?);
        let sqs = sqs::Sqs::new(&options, names, context.clone(), connect_timeout);
        let opener = Arc::new(Opener::new(options.keys));
        Ok(Self {
            http: Arc::new(http),
            sqs: Arc::new(sqs),
            #[cfg(feature = "kafka")]
            kafka,
            opener,
            context,
        })
    }

    /// Delivers one event once, beginning now.
    pub async fn send(&self, delivery: Delivery) -> Sent {
        self.send_by_leave(delivery, Leave::always()).await
    }

    /// Delivers one event once, as long as it has leave: its deadline counts from the beginning of that. What is sealed in it is
    /// opened for as long as that takes; where that fails, nothing is sent.
    pub async fn send_by_leave(&self, delivery: Delivery, leave: Leave) -> Sent {
        let delivery = match self.opener.open(delivery) {
            Ok(delivery) => delivery,
            Err(error) => return not_sent(format!("not sent: {error}")),
        };
        match &delivery.spec.target {
            Target::Http { http, .. } => self.http.send(&delivery, http, &leave).await,
            // Boxed: its future is far larger, and every delivery would be moved about with room for it.
            Target::Sqs { sqs, .. } => Box::pin(self.sqs.send(&delivery, sqs, leave)).await,
            #[cfg(feature = "kafka")]
            Target::Kafka { kafka, .. } => Box::pin(self.kafka.send(&delivery, kafka, leave)).await,
            #[cfg(not(feature = "kafka"))]
            Target::Kafka { .. } => {
                static SAID: std::sync::Once = std::sync::Once::new();
                SAID.call_once(|| {
                    let schedule = &*delivery.spec.schedule_id;
                    tracing::error!(
                        schedule,
                        "there are Kafka targets, and this process was built without Kafka"
                    );
                });
                not_sent("not sent: this process was built without Kafka, the feature `kafka`")
            }
            Target::Pull { .. } => not_sent("not sent: workers take events of this target themselves"),
        }
    }

    /// An event as its consumer gets it, for workers that take it themselves: a CloudEvents 1.0 document, JSON.
    ///
    /// # Errors
    /// What became of the delivery: nothing was sent, as what is sealed in it cannot be opened.
    pub fn document(&self, delivery: Delivery) -> Result<String, Sent> {
        let delivery = self.opener.open(delivery).map_err(|error| not_sent(format!("not sent: {error}")))?;
        let traceparent = self.context.traceparent(&delivery);
        let document = cloud_event::write(&delivery, &self.context, traceparent.as_deref());
        String::from_utf8(document).map_err(|error| not_sent(format!("not sent: {error}")))
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

fn not_sent(message: impl Into<String>) -> Sent {
    Sent::NotSent { message: message.into(), retry_after_ms: None }
}

/// Whether something failed for want of what this process shares among all targets, or on the way to a name server.
fn is_own(error: &(dyn std::error::Error + 'static)) -> bool {
    causes(error).any(|cause| {
        let lookup = cause.downcast_ref::<NoAddress>().is_some_and(|error| !error.is_answer());
        let inner = |error: &io::Error| error.get_ref()?.downcast_ref::<io::Error>()?.raw_os_error();
        let system = cause.downcast_ref::<io::Error>().and_then(|e| e.raw_os_error().or_else(|| inner(e)));
        lookup || system.is_some_and(|code| SHORTAGES.contains(&code))
    })
}

/// Of the system's errors those that say that the process or the machine has too little of something: file descriptors (ENFILE,
/// EMFILE), memory (ENOMEM), buffers (ENOBUFS: Linux, macOS), local ports (EADDRNOTAVAIL: Linux, macOS).
const SHORTAGES: &[i32] =
    if cfg!(target_os = "macos") { &[23, 24, 12, 55, 49] } else { &[23, 24, 12, 105, 99] };

fn unclear(message: impl Into<String>) -> Sent {
    Sent::Unclear { message: message.into(), retry_after_ms: None }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_want_of_files_is_our_own_and_a_closed_port_is_not() {
        let failed = |code| io::Error::other(io::Error::from_raw_os_error(code));
        for code in SHORTAGES {
            assert!(is_own(&failed(*code)) && is_own(&io::Error::from_raw_os_error(*code)), "{code}");
        }
        // ECONNREFUSED: Linux, macOS.
        assert!(!is_own(&failed(111)) && !is_own(&failed(61)));
        assert!(
            is_own(&NoAddress::Late("a".into(), 1)) && !is_own(&NoAddress::Unknown("a".into(), "b".into()))
        );
    }
}
