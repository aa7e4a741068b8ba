//! The clusters that are in use, each with a thread that has its producer.
//!
//! In: orders, each a record and the leave to send it. Out: for each what became of it before it left, or a report to wait for.
//! Whatever may block in Kafka's client blocks such a thread: to make a producer and to end one, and to look whether a topic is
//! there before records are handed over, so that brokers that cannot be reached are a proof that nothing was written, and no
//! doubt. Invariants: there are no more threads than [`CLUSTERS_MAX`], of which no namespace has all; one ends when nothing has
//! come for a while; an order that was put in reaches a thread, or is given back. Not here: what reports mean (`verdict`).

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, mpsc};
use std::time::Duration;

use rdkafka::client::ClientContext;
use rdkafka::config::{ClientConfig, RDKafkaLogLevel};
use rdkafka::error::{KafkaError, KafkaResult};
use rdkafka::message::{Header, OwnedHeaders};
use rdkafka::producer::future_producer::DeliveryFuture;
use rdkafka::producer::{FutureProducer, FutureRecord, Producer as _};
use rdkafka::types::RDKafkaErrorCode as Code;
use tokio::sync::oneshot;
use tokio::time::Instant;
use tollgate_clock::instant_now;
use tollgate_core::model::Sent;

use super::record::{RECORD_MAX_BYTES, Record};
use super::verdict;
use crate::leave::Leave;
use crate::shares::{Claim, Place, Shares};
use crate::{not_sent, refused};

/// Clusters in use at once.
const CLUSTERS_MAX: usize = 64;
/// A thread ends after this long without work.
const IDLE_MAX: Duration = Duration::from_secs(60);
/// For how long it is believed that a topic is there, as long as nothing speaks against it.
const KNOWN_FOR: Duration = Duration::from_secs(60);
/// Topics after which those that were looked at are forgotten.
const KNOWN_MAX: usize = 10_000;
/// How long brokers are waited for, at most; and the least that says something of them.
const LOOK_MAX: Duration = Duration::from_secs(5);
const LOOK_MIN: Duration = Duration::from_millis(500);
/// Records that a producer holds: no more than deliveries under way, which other bounds keep below this.
const RECORDS_MAX: &str = "100000";
/// And their kilobytes.
const KILOBYTES_MAX: &str = "131072";

/// Deliveries with equal keys share a producer.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct ClusterKey {
    pub(super) servers: String,
    /// For how long a producer tries to have a record written.
    pub(super) patience_ms: u64,
}

/// A record to be handed to its producer.
pub(super) struct Order {
    pub(super) record: Record,
    pub(super) leave: Leave,
    pub(super) deadline: Duration,
    /// By when it must have been handed over.
    pub(super) turn_until: Instant,
    /// It has been taken, or given up.
    pub(super) taken: Arc<AtomicBool>,
    pub(super) reply: oneshot::Sender<Handed>,
}

/// What became of an order.
pub(super) enum Handed {
    /// Nothing has left.
    Kept(Sent),
    /// The producer has it since then.
    Over { report: DeliveryFuture, since: Instant, seen: Arc<Seen> },
}

impl Order {
    /// Takes it, if its sender still waits.
    fn take(self) -> Option<Taken> {
        let is_late = instant_now() >= self.turn_until;
        let is_ours = !is_late && !self.taken.swap(true, Ordering::AcqRel);
        let Self { record, leave, deadline, turn_until, reply, .. } = self;
        is_ours.then_some(Taken { record, leave, deadline, turn_until, reply })
    }
}

/// An order whose sender waits for a reply.
struct Taken {
    record: Record,
    leave: Leave,
    deadline: Duration,
    turn_until: Instant,
    reply: oneshot::Sender<Handed>,
}

impl Taken {
    fn keep(self, sent: Sent) {
        // The sender may have gone with its runtime; then nobody wants to know.
        let _ = self.reply.send(Handed::Kept(sent));
    }
}

/// What a producer has said of itself.
#[derive(Debug, Default)]
pub(super) struct Seen {
    /// Something went wrong since topics were looked at.
    doubt: AtomicBool,
    /// It can send nothing any more.
    ended: AtomicBool,
    /// The latest that went wrong.
    words: Mutex<String>,
}

impl Seen {
    /// Has topics be looked at again before the next record.
    pub(super) fn doubt(&self) {
        self.doubt.store(true, Ordering::Release);
    }

    /// What went wrong is over.
    fn forget(&self) {
        self.words.lock().unwrap_or_else(PoisonError::into_inner).clear();
    }

    /// The latest that went wrong, in brackets; nothing where nothing did.
    pub(super) fn words(&self) -> String {
        match &*self.words.lock().unwrap_or_else(PoisonError::into_inner) {
            none if none.is_empty() => String::new(),
            some => format!(" (Kafka's client says: {some})"),
        }
    }
}

/// Hears what a producer says of itself.
struct Listener(Arc<Seen>);

impl ClientContext for Listener {
    fn log(&self, level: RDKafkaLogLevel, facility: &str, message: &str) {
        tracing::debug!(?level, facility, message, "Kafka's client");
    }

    fn error(&self, error: KafkaError, reason: &str) {
        tracing::debug!(%error, reason, "Kafka's client");
        self.0.doubt();
        if error.rdkafka_error_code() == Some(Code::Fatal) {
            self.0.ended.store(true, Ordering::Release);
        }
        reason.clone_into(&mut self.0.words.lock().unwrap_or_else(PoisonError::into_inner));
    }
}

/// The clusters that have a thread.
#[derive(Debug)]
pub(super) struct Clusters {
    by_key: Mutex<HashMap<ClusterKey, mpsc::Sender<Order>>>,
    shares: Shares,
    idle_max: Duration,
    connect_timeout: Duration,
}

impl Clusters {
    pub(super) fn new(connect_timeout: Duration) -> Self {
        Self {
            by_key: Mutex::default(),
            shares: Shares::new(CLUSTERS_MAX),
            idle_max: IDLE_MAX,
            connect_timeout,
        }
    }

    /// Hands an order to its cluster's thread, at the charge of a namespace where that is begun for it.
    ///
    /// # Errors
    /// Why it cannot be.
    pub(super) fn put(
        self: &Arc<Self>,
        key: &ClusterKey,
        order: Order,
        namespace: u64,
    ) -> Result<(), String> {
        let mut clusters = self.lock();
        let order = match clusters.get(key) {
            None => order,
            Some(cluster) => match cluster.send(order) {
                Ok(()) => return Ok(()),
                // Its thread has ended by a panic.
                Err(mpsc::SendError(order)) => order,
            },
        };
        let claims = [
            Claim::nearly_all(namespace),
            Claim::half(("Kafka clusters", namespace)),
            Claim::half(("Kafka cluster", &key.servers)),
        ];
        let place = self.shares.try_take(claims).ok_or("too many Kafka clusters are in use")?;
        let (sender, orders) = mpsc::channel();
        let thread = Thread { key: key.clone(), orders, clusters: self.clone(), _place: place };
        let builder = std::thread::Builder::new().name("kafka".to_owned());
        builder
            .spawn(move || thread.run())
            .map_err(|error| format!("no thread for a Kafka cluster: {error}"))?;
        // The receiver is in its thread, which ends only under this lock.
        let put = sender.send(order);
        debug_assert!(put.is_ok());
        clusters.insert(key.clone(), sender);
        Ok(())
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<ClusterKey, mpsc::Sender<Order>>> {
        // Each change is one call on the map, so a panic elsewhere leaves nothing half done.
        self.by_key.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn config(&self, key: &ClusterKey) -> ClientConfig {
        let mut config = ClientConfig::new();
        let patience_ms = key.patience_ms.to_string();
        for (name, value) in [
            ("bootstrap.servers", key.servers.as_str()),
            ("client.id", "tollgate"),
            ("acks", "all"),
            ("enable.idempotence", "true"),
            ("message.timeout.ms", &patience_ms),
            ("request.timeout.ms", &patience_ms),
            ("message.max.bytes", &(RECORD_MAX_BYTES + 64 * 1024).to_string()),
            ("retry.backoff.ms", &verdict::RETRY_MS.to_string()),
            ("retry.backoff.max.ms", &verdict::RETRY_MS.to_string()),
            ("linger.ms", "1"),
            ("queue.buffering.max.messages", RECORDS_MAX),
            ("queue.buffering.max.kbytes", KILOBYTES_MAX),
            ("socket.connection.setup.timeout.ms", &self.connect_timeout.as_millis().max(1_000).to_string()),
            ("socket.keepalive.enable", "true"),
            ("reconnect.backoff.max.ms", "2000"),
            ("log.connection.close", "false"),
        ] {
            config.set(name, value);
        }
        config.set_log_level(RDKafkaLogLevel::Warning);
        config
    }
}

/// The thread of a cluster.
struct Thread {
    key: ClusterKey,
    orders: mpsc::Receiver<Order>,
    clusters: Arc<Clusters>,
    /// Given back when the thread, and with it the producer, has ended.
    _place: Place,
}

/// What a thread has while it is at work.
struct Producer {
    client: FutureProducer<Listener>,
    seen: Arc<Seen>,
    /// The topics that were there when they were looked at, and until when that counts.
    known: HashMap<String, Instant>,
}

impl Thread {
    fn run(self) {
        let mut producer = None;
        let mut is_down = false;
        while let Some(order) = self.next() {
            let Some(order) = order.take() else { continue };
            if producer.as_ref().is_some_and(Producer::has_ended) {
                tracing::warn!(
                    servers = self.key.servers,
                    "a Kafka producer can send nothing any more, and is made anew"
                );
                producer = None;
            }
            let made = match producer.take().map_or_else(|| self.producer(), Ok) {
                Ok(made) => producer.insert(made),
                Err(error) => {
                    order.keep(not_sent(format!("not sent to Kafka: no producer: {error}")));
                    continue;
                }
            };
            match made.look(&order) {
                Ok(None) => made.hand_over(order),
                Ok(Some(sent)) => order.keep(sent),
                Err(error) => {
                    if !is_down {
                        tracing::warn!(servers = self.key.servers, %error, "no Kafka broker answers");
                    }
                    is_down = true;
                    self.refuse_all(order, &error);
                    continue;
                }
            }
            if is_down {
                tracing::info!(servers = self.key.servers, "Kafka brokers answer again");
                is_down = false;
            }
        }
    }

    fn producer(&self) -> KafkaResult<Producer> {
        let seen = Arc::new(Seen::default());
        let config = self.clusters.config(&self.key);
        let client = config.create_with_context(Listener(seen.clone()))?;
        Ok(Producer { client, seen, known: HashMap::new() })
    }

    /// The next order; none once the thread has retired.
    fn next(&self) -> Option<Order> {
        if let Ok(order) = self.orders.recv_timeout(self.clusters.idle_max) {
            return Some(order);
        }
        // Orders are put in under the same lock, so none is left behind.
        let mut clusters = self.clusters.lock();
        let order = self.orders.try_recv().ok();
        if order.is_none() {
            clusters.remove(&self.key);
        }
        order
    }

    /// Refuses an order, and all that came while its brokers were waited for: nothing of them has left.
    fn refuse_all(&self, order: Taken, error: &KafkaError) {
        let sent =
            refused(format!("not sent to Kafka: no broker of {} answers: {error}", self.key.servers), None);
        order.keep(sent.clone());
        while let Ok(order) = self.orders.try_recv() {
            if let Some(order) = order.take() {
                order.keep(sent.clone());
            }
        }
    }
}

impl Producer {
    fn has_ended(&self) -> bool {
        self.seen.ended.load(Ordering::Acquire)
    }

    /// Looks whether an order's topic can be written to; blocks. None where it can.
    fn look(&mut self, order: &Taken) -> KafkaResult<Option<Sent>> {
        let now = instant_now();
        if self.seen.doubt.swap(false, Ordering::AcqRel) {
            self.known.clear();
        }
        let topic = &order.record.topic;
        if self.known.get(topic).is_some_and(|until| *until > now) {
            return Ok(None);
        }
        // So that its sender hears the answer before it gives up.
        let left = order.turn_until.saturating_duration_since(now) * 4 / 5;
        if left < LOOK_MIN {
            return Ok(Some(not_sent(super::TOO_SLOW)));
        }
        let patience = left.min(LOOK_MAX);
        let metadata = self.client.client().fetch_metadata(Some(topic), patience)?;
        let code = match metadata.topics().first() {
            Some(found) => match found.error() {
                Some(error) => Some(Code::from(error)),
                None => {
                    let has_leader = found.partitions().iter().any(|partition| partition.leader() >= 0);
                    (!has_leader).then_some(Code::LeaderNotAvailable)
                }
            },
            None => Some(Code::UnknownTopic),
        };
        match code {
            Some(code) => Ok(Some(verdict::of_topic(topic, code))),
            None => {
                if self.known.len() >= KNOWN_MAX {
                    self.known.clear();
                }
                self.seen.forget();
                self.known.insert(topic.clone(), now + KNOWN_FOR);
                Ok(None)
            }
        }
    }

    /// Hands an order over, as long as it has leave to be sent.
    fn hand_over(&self, order: Taken) {
        // Looking at the topic may have taken its time.
        if instant_now() >= order.turn_until {
            return order.keep(not_sent(super::TOO_SLOW));
        }
        if let Err(why) = order.leave.check(order.deadline) {
            return order.keep(not_sent(format!("not sent to Kafka: {why}")));
        }
        let Record { topic, key, headers, value } = &order.record;
        let mut all = OwnedHeaders::new_with_capacity(headers.len());
        for (name, value) in headers {
            all = all.insert(Header { key: name, value: Some(value) });
        }
        let mut record = FutureRecord::<str, [u8]>::to(topic).payload(value).headers(all);
        if let Some(key) = key {
            record = record.key(key);
        }
        let since = instant_now();
        let handed = match self.client.send_result(record) {
            Ok(report) => Handed::Over { report, since, seen: self.seen.clone() },
            Err((error, _)) => {
                self.seen.doubt();
                Handed::Kept(verdict::of_handing_over(&error))
            }
        };
        // The sender may have gone with its runtime; then nobody wants to know.
        let _ = order.reply.send(handed);
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]

    use super::*;
    use crate::shares::key_of;

    fn clusters(idle_max: Duration) -> Arc<Clusters> {
        Arc::new(Clusters { idle_max, ..Clusters::new(Duration::from_secs(1)) })
    }

    /// Nobody listens there.
    fn key() -> ClusterKey {
        ClusterKey { servers: "127.0.0.1:1".to_owned(), patience_ms: 1_000 }
    }

    async fn ask(clusters: &Arc<Clusters>) -> Sent {
        let record = Record { topic: "t".to_owned(), key: None, headers: Vec::new(), value: Vec::new() };
        let (reply, answer) = oneshot::channel();
        let (leave, deadline) = (Leave::always(), Duration::from_secs(4));
        let turn_until = leave.turn_until(deadline);
        let order = Order { record, leave, deadline, turn_until, taken: Arc::default(), reply };
        clusters.put(&key(), order, key_of("acme")).unwrap();
        match answer.await.unwrap() {
            Handed::Kept(sent) => sent,
            Handed::Over { .. } => panic!("nobody is there to take it"),
        }
    }

    #[tokio::test]
    async fn a_thread_without_work_ends_and_the_next_order_begins_another() {
        let clusters = clusters(Duration::from_millis(50));
        for _ in 0..2 {
            let sent = ask(&clusters).await;
            assert!(
                matches!(&sent, Sent::Refused { message, .. } if message.contains("no broker of")),
                "{sent:?}"
            );
            tokio::time::sleep(Duration::from_secs(2)).await;
            assert!(clusters.lock().is_empty(), "it has retired");
            let is_back = Arc::strong_count(&clusters) == 1;
            assert!(is_back, "its place has come back with its thread");
        }
    }

    #[test]
    fn what_is_acknowledged_is_with_all_replicas_and_once() {
        let config = clusters(IDLE_MAX).config(&key());
        assert_eq!((config.get("acks"), config.get("enable.idempotence")), (Some("all"), Some("true")));
        assert_eq!(config.get("message.timeout.ms"), Some("1000"));
        let made = config.create_with_context::<_, FutureProducer<Listener>>(Listener(Arc::default()));
        assert!(made.is_ok(), "the client takes every setting");
    }
}
