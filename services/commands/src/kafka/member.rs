//! The thread that is a member of a group: it polls, brings records in, commits, and leaves.
//!
//! In: the intake of a queue. Out: messages in their places, offsets. Invariants: it polls without pause, so that the group keeps
//! it, whatever else there is to wait for; a record is taken only into a place; while there is none, or the service is away, the
//! partitions are paused; no error makes it spin.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use rdkafka::config::ClientConfig;
use rdkafka::consumer::{BaseConsumer, Consumer as _};
use rdkafka::error::{KafkaError, KafkaResult};
use rdkafka::message::{BorrowedHeaders, BorrowedMessage, Headers as _, Message as _};
use rdkafka::topic_partition_list::TopicPartitionList;
use rdkafka::types::RDKafkaErrorCode as Code;
use tokio::sync::{mpsc, watch};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tollgate_clock::instant_now;

use super::Shared;
use super::brokers::is_of_one;
use super::listener::{Listener, commit};
use crate::backoff::Backoff;
use crate::hands::{Arrived, Room};
use crate::message::{Header, Origin, Received, Record};

/// How long a poll waits, and how often it is looked whether there is a place.
const POLL: Duration = Duration::from_millis(100);
const PLACE_TICK: Duration = Duration::from_millis(5);
/// For how long nothing is polled while there is no place, before the partitions are paused: what the client has fetched is lost
/// then, and fetched again.
const PLACE_WAIT: Duration = Duration::from_secs(5);
/// A member that was one for so long begins anew with short pauses.
const GOOD: Duration = Duration::from_secs(60);
/// How often offsets are committed.
const COMMIT_EVERY: Duration = Duration::from_millis(200);
/// How long after an error it is looked whether the brokers answer, and how long they may take.
const LOOK_AFTER: Duration = Duration::from_secs(5);
const LOOK_MAX: Duration = Duration::from_secs(2);
/// A member that is silent for this long is taken for dead: brokers allow 6 s by default.
const SESSION_MS: &str = "10000";

/// What the client of a group is told.
fn config(shared: &Shared) -> ClientConfig {
    let mut config = tollgate_target::kafka_client(&shared.config.bootstrap_servers, &shared.config.access);
    for (name, value) in [
        ("group.id", shared.config.group.as_str()),
        ("enable.auto.commit", "false"),
        ("enable.auto.offset.store", "false"),
        ("auto.offset.reset", "earliest"),
        ("isolation.level", "read_committed"),
        // Partitions that stay where they are go on while others move.
        ("partition.assignment.strategy", "cooperative-sticky"),
        ("session.timeout.ms", SESSION_MS),
        ("heartbeat.interval.ms", "3000"),
        ("max.poll.interval.ms", "60000"),
        // What is fetched ahead is beside what is in hand.
        ("queued.min.messages", "1000"),
        ("queued.max.messages.kbytes", "8192"),
        ("fetch.max.bytes", "8388608"),
        ("fetch.wait.max.ms", "100"),
        ("fetch.error.backoff.ms", "1000"),
    ] {
        config.set(name, value);
    }
    config
}

pub(super) struct Member {
    shared: Arc<Shared>,
    /// Gone after a stop.
    arrivals: mpsc::WeakSender<Arrived>,
    open: watch::Receiver<bool>,
    stop: CancellationToken,
    end: CancellationToken,
    room: Option<Room>,
    committed_at: Instant,
    /// When it was seen last that something is wrong with more than one broker.
    failed_at: Instant,
}

impl Member {
    /// One of a queue: where messages go, whether any are asked for, and the ends of reading and of all.
    pub(super) fn new(
        shared: &Arc<Shared>,
        arrivals: mpsc::WeakSender<Arrived>,
        open: watch::Receiver<bool>,
        (stop, end): (CancellationToken, CancellationToken),
    ) -> Self {
        let now = instant_now();
        Self {
            shared: shared.clone(),
            arrivals,
            open,
            stop,
            end,
            room: None,
            committed_at: now,
            failed_at: now,
        }
    }

    /// Is a member until the end; a new one where the client can do no more.
    pub(super) fn run(mut self) {
        let mut backoff = Backoff::default();
        while !self.end.is_cancelled() {
            match self.join() {
                Ok(consumer) => {
                    let since = instant_now();
                    self.read(&consumer);
                    if since.elapsed() >= GOOD {
                        backoff = Backoff::default();
                    }
                    self.room = None;
                    // This leaves the group, and waits for that.
                    drop(consumer);
                    let all = self.shared.offsets().partitions();
                    self.shared.revoke(&all);
                }
                Err(error) => self.shared.counts.source.failed(&error),
            }
            let until = instant_now() + backoff.next(None);
            while !self.end.is_cancelled() && instant_now() < until {
                std::thread::sleep(POLL);
            }
        }
    }

    fn join(&self) -> KafkaResult<BaseConsumer<Listener>> {
        let listener = Listener { shared: self.shared.clone(), is_paused: false.into() };
        let consumer: BaseConsumer<Listener> = config(&self.shared).create_with_context(listener)?;
        consumer.subscribe(&[self.shared.config.topic.as_str()])?;
        Ok(consumer)
    }

    /// Reads until the end, or until the client can do no more.
    fn read(&mut self, consumer: &BaseConsumer<Listener>) {
        while !self.end.is_cancelled() {
            self.make_room(consumer);
            self.pause(consumer, self.room.is_none());
            match consumer.poll(POLL) {
                Some(Ok(record)) => {
                    // A record of one partition says nothing of another that has failed just now.
                    if self.failed_at.elapsed() >= LOOK_AFTER {
                        self.shared.counts.source.worked();
                    }
                    self.take(&record);
                }
                Some(Err(error @ KafkaError::MessageConsumptionFatal(_))) => {
                    self.shared.counts.source.failed(&error);
                    return;
                }
                Some(Err(error)) => self.failed(&error),
                None => {}
            }
            // Here, where what came while nothing was polled begins to be heard.
            self.shared.brokers.look(instant_now());
            if self.committed_at.elapsed() >= COMMIT_EVERY {
                commit(&self.shared, consumer);
                self.committed_at = instant_now();
            }
            self.look(consumer);
        }
        commit(&self.shared, consumer);
    }

    /// Sees to it that there is room for what is polled, or none where nothing is to come.
    fn make_room(&mut self, consumer: &BaseConsumer<Listener>) {
        if self.is_closed() {
            self.room = None;
            return;
        }
        let hands = &self.shared.counts.hands;
        if self.room.as_ref().is_some_and(|room| room.count > 0) && !hands.is_heavy() {
            return;
        }
        self.room = None;
        let is_paused = consumer.context().is_paused.load(Ordering::Acquire);
        let until = instant_now() + if is_paused { Duration::ZERO } else { PLACE_WAIT };
        loop {
            self.room = self.shared.counts.hands.room_now();
            if self.room.is_some() || instant_now() >= until || self.is_closed() {
                return;
            }
            std::thread::sleep(PLACE_TICK);
        }
    }

    /// Whether nothing is to be read now.
    fn is_closed(&self) -> bool {
        self.stop.is_cancelled() || !*self.open.borrow()
    }

    /// Pauses all partitions, or has them go on. The client forgets what it has fetched of those that are paused.
    fn pause(&self, consumer: &BaseConsumer<Listener>, pauses: bool) {
        if consumer.context().is_paused.swap(pauses, Ordering::AcqRel) == pauses {
            return;
        }
        let mut list = TopicPartitionList::new();
        for partition in self.shared.offsets().partitions() {
            list.add_partition(&self.shared.config.topic, partition);
        }
        if list.count() == 0 {
            return;
        }
        let done = if pauses { consumer.pause(&list) } else { consumer.resume(&list) };
        if let Err(error) = done {
            tracing::warn!(
                queue = self.shared.counts.queue,
                "partitions cannot be paused or resumed: {error}"
            );
            consumer.context().is_paused.store(!pauses, Ordering::Release);
        }
    }

    /// Takes a record in.
    fn take(&mut self, record: &BorrowedMessage<'_>) {
        let Some(arrivals) = self.arrivals.upgrade() else { return };
        let Some(message) = self.shared.received(record) else { return };
        // One may have been on its way while its partition was paused.
        let mut one = None;
        let room = match &mut self.room {
            Some(room) => room,
            None => one.insert(self.shared.counts.hands.room_for_one()),
        };
        let place = room.take(&message, instant_now());
        // There are as many places as messages fit in. Nobody takes them any more only after an end.
        let _taken = arrivals.blocking_send((message, place));
    }

    fn failed(&mut self, error: &KafkaError) {
        match error.rdkafka_error_code() {
            // Of one broker among others, of which the listener has heard, and of what the client mends by itself.
            Some(code) if is_of_one(code) || code == Code::PollExceeded => {
                tracing::debug!(queue = self.shared.counts.queue, %error, "Kafka's client");
            }
            _ => {
                self.shared.counts.source.failed(error);
                self.failed_at = instant_now();
            }
        }
        std::thread::sleep(POLL);
    }

    /// Where something is wrong, looks whether it still is, now and then.
    fn look(&mut self, consumer: &BaseConsumer<Listener>) {
        let source = &self.shared.counts.source;
        if !source.lasts() || self.failed_at.elapsed() < LOOK_AFTER || self.end.is_cancelled() {
            return;
        }
        let topic = &self.shared.config.topic;
        let found = consumer.fetch_metadata(Some(topic), LOOK_MAX);
        let is_there = found.is_ok_and(|all| all.topics().iter().any(|one| one.error().is_none()));
        if is_there {
            source.worked();
        }
        self.failed_at = instant_now();
    }
}

/// The headers of a record. The client panics at a name that is not UTF-8: that one is left out.
fn headers_of(shared: &Shared, all: &BorrowedHeaders) -> Vec<Header> {
    let header = |at: usize| -> Option<Header> {
        let one = catch_unwind(AssertUnwindSafe(|| all.try_get(at)));
        let Ok(one) = one else {
            tracing::warn!(queue = shared.counts.queue, "a header is left out whose name is not UTF-8");
            return None;
        };
        one.map(|one| (one.key.to_owned(), one.value.map(<[u8]>::to_vec)))
    };
    (0..all.count()).filter_map(header).collect()
}

impl Shared {
    /// A record as a message; none where its partition is another process's by now.
    fn received(&self, record: &BorrowedMessage<'_>) -> Option<Received> {
        let (partition, offset) = (record.partition(), record.offset());
        let mark = self.offsets().read(partition, offset)?;
        let headers = record.headers().map(|all| headers_of(self, all));
        let origin = Record {
            mark,
            key: record.key().map(<[u8]>::to_vec),
            headers: headers.unwrap_or_default(),
            is_null: record.payload().is_none(),
        };
        Some(Received {
            id: format!("{}/{partition}/{offset}", self.config.topic),
            body: record.payload().map(<[u8]>::to_vec).unwrap_or_default(),
            sent_ms: record.timestamp().to_millis().unwrap_or_default(),
            times: 1,
            origin: Origin::Kafka(Box::new(origin)),
        })
    }
}
