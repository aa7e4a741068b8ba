//! The clusters that are in use, each with a thread that has its producer.
//!
//! In: orders, each a record and the leave to send it. Out: for each what became of it before it left, or a report to wait for.
//! Whatever may block in Kafka's client blocks such a thread: to make a producer and to end one, and to look whether a topic is
//! there before records are handed over, so that brokers that cannot be reached are a proof that nothing was written, and no
//! doubt. Invariants: there are no more threads than [`CLUSTERS_MAX`], of which no namespace has all; one ends when nothing has
//! come for a while, or earlier where its namespace needs its place; none ends that has a record under way; an order that was put
//! in reaches a thread, or is given back. Not here: the producer itself (`producer`), what reports mean (`verdict`).

use std::collections::HashMap;
use std::sync::mpsc::{self, RecvTimeoutError, TryRecvError};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use rdkafka::error::KafkaError;
use rdkafka::types::RDKafkaErrorCode as Code;
use tokio::time::Instant;
use tollgate_clock::instant_now;
use tollgate_core::model::Sent;

use super::order::{Order, Taken};
use super::producer::{ClusterKey, Producer, config};
use crate::shares::{Claim, Place, Shares};
use crate::{not_sent, refused};

/// Clusters in use at once.
const CLUSTERS_MAX: usize = 64;
/// A thread ends after this long without work.
const IDLE_MAX: Duration = Duration::from_secs(60);
/// A namespace that has its part gives up a cluster that had no work for this long for another one; one in that time.
const IDLE_MIN: Duration = Duration::from_secs(1);
/// How long there is no producer after one that could send nothing any more: twice as long each time.
const REST_MIN: Duration = Duration::from_secs(1);
const REST_MAX: Duration = Duration::from_secs(30);

/// The clusters that have a thread.
#[derive(Debug)]
pub(super) struct Clusters {
    state: Mutex<State>,
    shares: Shares,
    idle_max: Duration,
    connect_timeout: Duration,
}

#[derive(Debug, Default)]
struct State {
    by_key: HashMap<ClusterKey, Cluster>,
    /// When each namespace gave a cluster up for another one, for [`IDLE_MIN`].
    given_up: HashMap<u64, Instant>,
}

#[derive(Debug)]
struct Cluster {
    orders: mpsc::Sender<Order>,
    /// Whose place it has.
    namespace: u64,
    used_at: Instant,
    /// Each delivery that is under way has one, too.
    in_use: InUse,
}

impl Cluster {
    fn is_idle(&self) -> bool {
        Arc::strong_count(&self.in_use) == 1
    }
}

/// Keeps a cluster's thread.
pub(super) type InUse = Arc<()>;

impl Clusters {
    pub(super) fn new(connect_timeout: Duration) -> Self {
        Self {
            state: Mutex::default(),
            shares: Shares::new(CLUSTERS_MAX),
            idle_max: IDLE_MAX,
            connect_timeout,
        }
    }

    /// Hands an order to its cluster's thread, at the charge of a namespace where that is begun for it. The thread stays as long
    /// as what comes back.
    ///
    /// # Errors
    /// Why it cannot be.
    pub(super) fn put(
        self: &Arc<Self>,
        key: &ClusterKey,
        order: Order,
        namespace: u64,
    ) -> Result<InUse, String> {
        let mut state = self.lock();
        let order = match state.by_key.get_mut(key) {
            None => order,
            Some(cluster) => match cluster.orders.send(order) {
                Ok(()) => {
                    cluster.used_at = instant_now();
                    return Ok(cluster.in_use.clone());
                }
                // Its thread has ended by a panic.
                Err(mpsc::SendError(order)) => order,
            },
        };
        let claims = [
            Claim::nearly_all(namespace),
            Claim::half(("Kafka clusters", namespace)),
            Claim::half(("Kafka cluster", &key.servers)),
        ];
        let Some(place) = self.shares.try_take(claims) else {
            // Its place comes back once its thread has ended: for the next attempt.
            state.give_up_one(namespace);
            return Err("too many Kafka clusters are in use".to_owned());
        };
        let (sender, orders) = mpsc::channel();
        let thread = Thread { key: key.clone(), orders, clusters: self.clone(), _place: place };
        let builder = std::thread::Builder::new().name("kafka".to_owned());
        builder
            .spawn(move || thread.run())
            .map_err(|error| format!("no thread for a Kafka cluster: {error}"))?;
        // The receiver is in its thread, which ends only under this lock.
        let put = sender.send(order);
        debug_assert!(put.is_ok());
        let in_use = InUse::default();
        let cluster = Cluster { orders: sender, namespace, used_at: instant_now(), in_use: in_use.clone() };
        state.by_key.insert(key.clone(), cluster);
        Ok(in_use)
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // Each change is one call on a map, so a panic elsewhere leaves nothing half done.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    /// Ends the cluster of a namespace that has had no work for the longest: its thread sees that nobody can put in any more.
    fn give_up_one(&mut self, namespace: u64) {
        let now = instant_now();
        self.given_up.retain(|_, at| now - *at < IDLE_MIN);
        if self.given_up.contains_key(&namespace) {
            return;
        }
        let of_namespace = self.by_key.iter().filter(|(_, cluster)| {
            cluster.namespace == namespace && cluster.is_idle() && now - cluster.used_at >= IDLE_MIN
        });
        let oldest = of_namespace.min_by_key(|(_, cluster)| cluster.used_at).map(|(key, _)| key.clone());
        if let Some(key) = oldest {
            self.by_key.remove(&key);
            self.given_up.insert(namespace, now);
        }
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

/// What a thread has and knows while it is at work.
#[derive(Default)]
struct Work {
    producer: Option<Producer>,
    rest: Rest,
    /// Brokers did not answer last; the log has it.
    is_down: bool,
    /// There was no TLS or no login with them last; the log has it.
    is_denied: bool,
    /// Which of the brokers a new producer is told.
    round: usize,
}

/// How long there is no producer after one that could send nothing any more.
#[derive(Debug, Default)]
struct Rest {
    length: Duration,
    until: Option<Instant>,
}

impl Rest {
    /// Begins after a producer that lived so long. Whether it is the first after a good while.
    fn begin(&mut self, now: Instant, lived: Duration) -> bool {
        let is_first = self.length.is_zero() || lived > REST_MAX * 2;
        self.length = if is_first { REST_MIN } else { (self.length * 2).min(REST_MAX) };
        self.until = Some(now + self.length);
        is_first
    }

    fn is_on(&self, now: Instant) -> bool {
        self.until.is_some_and(|until| until > now)
    }
}

impl Thread {
    fn run(self) {
        let mut work = Work::default();
        while let Some(order) = self.next() {
            if let Some(order) = order.take() {
                self.serve(&mut work, order);
            }
        }
    }

    fn serve(&self, work: &mut Work, order: Taken) {
        let now = instant_now();
        if let Some(ended) = work.producer.take_if(|producer| producer.seen.has_ended())
            && work.rest.begin(now, now - ended.since)
        {
            let (servers, words) = (&self.key.servers, ended.seen.words());
            tracing::warn!(servers, "a Kafka producer can send nothing any more, and is made anew{words}");
        }
        if work.rest.is_on(now) {
            return order.keep(not_sent("not sent to Kafka: its producer failed, and is not made anew yet"));
        }
        let made = match work.producer.take().map_or_else(|| self.producer(work.round), Ok) {
            Ok(made) => work.producer.insert(made),
            Err(error) => return order.keep(not_sent(format!("not sent to Kafka: no producer: {error}"))),
        };
        match made.look(&order) {
            Ok(None) => made.hand_over(order),
            // It was too late to look.
            Ok(Some(sent @ Sent::NotSent { .. })) => return order.keep(sent),
            Ok(Some(sent)) => order.keep(sent),
            Err(error) => {
                let servers = &self.key.servers;
                let (denial, words) = (made.seen.denial(), made.seen.words());
                let is_told = if denial.is_some() { &mut work.is_denied } else { &mut work.is_down };
                match &denial {
                    _ if std::mem::replace(is_told, true) => {}
                    Some(said) => tracing::warn!(servers, "TLS or login with Kafka brokers fails: {said}"),
                    None => tracing::warn!(servers, %error, "no Kafka broker answers{words}"),
                }
                // Of one that is only late, others may know their topics.
                let is_late = error.rdkafka_error_code() == Some(Code::OperationTimedOut);
                let is_only_this = is_late && !made.seen.is_down();
                let why = match denial {
                    Some(said) => format!("TLS or login with brokers of {servers} fails: {said}"),
                    None => format!("no broker of {servers} answers: {error}{words}"),
                };
                self.refuse(order, &why, is_only_this);
                if self.key.has_parts() && !is_only_this {
                    work.producer = None;
                    work.round = work.round.wrapping_add(1) % 1_000;
                }
                return;
            }
        }
        if work.is_down || work.is_denied {
            tracing::info!(servers = self.key.servers, "Kafka brokers answer again");
            (work.is_down, work.is_denied) = (false, false);
        }
    }

    fn producer(&self, round: usize) -> Result<Producer, KafkaError> {
        Producer::new(&config(&self.key, round, self.clusters.connect_timeout))
    }

    /// The next order; none once the thread has retired.
    fn next(&self) -> Option<Order> {
        loop {
            match self.orders.recv_timeout(self.clusters.idle_max) {
                Ok(order) => return Some(order),
                // It was given up.
                Err(RecvTimeoutError::Disconnected) => return None,
                Err(RecvTimeoutError::Timeout) => {}
            }
            // Orders are put in under the same lock, so none is left behind.
            let mut state = self.clusters.lock();
            match self.orders.try_recv() {
                Ok(order) => return Some(order),
                Err(TryRecvError::Disconnected) => return None,
                Err(TryRecvError::Empty) => {}
            }
            if state.by_key.get(&self.key).is_none_or(Cluster::is_idle) {
                state.by_key.remove(&self.key);
                return None;
            }
        }
    }

    /// Refuses an order, and all that came while its brokers were waited for: nothing of them has left.
    fn refuse(&self, order: Taken, why: &str, is_only_this: bool) {
        let sent = refused(format!("not sent to Kafka: {why}"), None);
        order.keep(sent.clone());
        while !is_only_this && let Ok(order) = self.orders.try_recv() {
            if let Some(order) = order.take() {
                order.keep(sent.clone());
            }
        }
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]

    use tokio::sync::oneshot;

    use super::super::order::Handed;
    use super::super::record::Record;
    use super::*;
    use crate::leave::Leave;
    use crate::shares::key_of;

    fn clusters(idle_max: Duration) -> Arc<Clusters> {
        Arc::new(Clusters { idle_max, ..Clusters::new(Duration::from_secs(1)) })
    }

    /// Nobody listens there.
    fn key() -> ClusterKey {
        ClusterKey { servers: "127.0.0.1:1".to_owned(), patience_ms: 1_000, access: Arc::default() }
    }

    async fn ask(clusters: &Arc<Clusters>) -> Sent {
        ask_of(clusters, &key()).await.unwrap()
    }

    async fn ask_of(clusters: &Arc<Clusters>, key: &ClusterKey) -> Result<Sent, String> {
        let record = Record { topic: "t".to_owned(), key: None, headers: Vec::new(), value: Vec::new() };
        let (reply, answer) = oneshot::channel();
        let (leave, deadline) = (Leave::always(), Duration::from_secs(4));
        let turn_until = leave.turn_until(deadline);
        let order = Order { record, leave, deadline, turn_until, taken: Arc::default(), reply };
        let _in_use = clusters.put(key, order, key_of("acme"))?;
        match answer.await.unwrap() {
            Handed::Kept(sent) => Ok(sent),
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
            assert!(clusters.lock().by_key.is_empty(), "it has retired");
            let is_back = Arc::strong_count(&clusters) == 1;
            assert!(is_back, "its place has come back with its thread");
        }
    }

    #[tokio::test]
    async fn a_namespace_that_has_its_part_gives_up_what_had_no_work_for_the_longest() {
        let few = Clusters { shares: Shares::new(4), ..Clusters::new(Duration::from_secs(1)) };
        let clusters = Arc::new(few);
        let of = |port: u16| ClusterKey { servers: format!("127.0.0.1:{port}"), ..key() };
        let refused = |sent: &Sent| matches!(sent, Sent::Refused { .. });
        for port in [1, 2] {
            assert!(refused(&ask_of(&clusters, &of(port)).await.unwrap()));
        }
        let kept = clusters.lock().by_key.get(&of(2)).unwrap().in_use.clone();
        tokio::time::sleep(IDLE_MIN).await;
        let full = ask_of(&clusters, &of(3)).await.unwrap_err();
        assert!(full.contains("too many"), "{full}");
        let began = instant_now();
        while ask_of(&clusters, &of(3)).await.is_err() {
            assert!(began.elapsed() < Duration::from_secs(10), "its place comes back");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        // The other has a delivery under way, and stays.
        tokio::time::sleep(IDLE_MIN).await;
        assert!(ask_of(&clusters, &of(4)).await.is_err());
        let state = clusters.lock();
        assert_eq!(state.by_key.keys().collect::<Vec<_>>(), [&of(2)]);
        assert_eq!(Arc::strong_count(&kept), 2);
    }

    #[test]
    fn after_a_producer_that_failed_there_is_none_for_a_while_and_one_line() {
        let (mut rest, now) = (Rest::default(), instant_now());
        assert!(!rest.is_on(now));
        assert!(rest.begin(now, Duration::ZERO), "the log has the first");
        assert!(rest.is_on(now) && !rest.is_on(now + REST_MIN));
        for _ in 0..10 {
            assert!(!rest.begin(now, Duration::from_secs(5)), "and no other");
        }
        assert!(rest.is_on(now + REST_MAX - Duration::from_millis(1)) && !rest.is_on(now + REST_MAX));
        assert!(rest.begin(now, Duration::from_secs(3_600)), "another trouble");
        assert!(!rest.is_on(now + REST_MIN));
    }
}
