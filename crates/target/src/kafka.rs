//! Sends events to Kafka topics, each as a record.
//!
//! In: a delivery to a Kafka target. Out: a [`Sent`]. Each cluster has an idempotent producer while it has work, in a thread of
//! its own. The producer has a time for a record that is set once, up to half of the deadline; the record is handed to it early
//! enough that nothing is written after the deadline. Accepted is what all in-sync replicas have acknowledged. What is not here:
//! repeats, but for those that the client makes by itself under the producer's sequence numbers; the pace of a consumer, which
//! its policy sets.

mod cluster;
mod order;
mod plain;
mod producer;
mod record;
mod seen;
mod verdict;

use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tokio::sync::oneshot;
use tokio::time::Instant;
use tollgate_clock::instant_now;
use tollgate_core::model::{Delivery, KafkaTarget, Sent};

use crate::address::{AddressRefused, GuardedNames};
use crate::check::{is_known_server, not_known_server, server_host};
use crate::cloud_event::EventContext;
use crate::kafka_logins::KafkaLogins;
use crate::leave::Leave;
use crate::shares::{Claim, Shares, key_of};
use crate::{TargetError, TargetOptions, chain, is_own, not_sent, refused, refused_for_good, span, unclear};

pub use plain::{is_kafka_denial, kafka_client, kafka_producer};

use cluster::Clusters;
use order::{Handed, Order};
use producer::{ClusterKey, TOO_SLOW};
use record::Record;

/// What Kafka's client may need, beyond its patience, to notice that a record is late, and then that the request is which has it:
/// it looks for either once a second, and gives a late record 0.1 s more.
const CLIENT_MS: u64 = 2_200;

/// All Kafka targets.
#[derive(Debug)]
pub(crate) struct Kafka {
    names: GuardedNames,
    /// What targets may name; any where absent.
    servers: Option<Vec<String>>,
    /// How brokers are spoken to.
    logins: KafkaLogins,
    context: Arc<EventContext>,
    /// How many deliveries each namespace and cluster may have under way.
    shares: Shares,
    clusters: Arc<Clusters>,
}

impl Kafka {
    /// With these options. Nothing is connected to.
    ///
    /// # Errors
    /// [`TargetError::KafkaLogin`] where Kafka's client does not take a file of a cluster.
    pub(crate) fn new(
        options: &TargetOptions,
        names: GuardedNames,
        context: Arc<EventContext>,
    ) -> Result<Self, TargetError> {
        let logins = options.kafka_logins.clone();
        for (place, access) in logins.all() {
            plain::try_out(access).map_err(|said| TargetError::KafkaLogin(place, said))?;
        }
        Ok(Self {
            names,
            servers: options.kafka_servers.clone(),
            logins,
            context,
            shares: Shares::new((options.connections_max / 4).max(1)),
            clusters: Arc::new(Clusters::new(options.connect_timeout())),
        })
    }

    /// Delivers one event once.
    pub(crate) async fn send(&self, delivery: &Delivery, target: &KafkaTarget, leave: Leave) -> Sent {
        let record = match Record::new(delivery, target, &self.context) {
            Ok(record) => record,
            Err(message) => return refused_for_good(message),
        };
        let namespace = delivery.spec.namespace.as_str();
        let access = match self.logins.of(target.servers(), namespace) {
            Ok(access) => access,
            Err(why) => return refused_for_good(format!("bootstrap_servers: {why}")),
        };
        let deadline = span(target.deadline_ms);
        let patience_ms = patience_ms(target.deadline_ms);
        // Whatever is handed over by then is written before the deadline is over, or never.
        let turn_until = leave.until(deadline) - Duration::from_millis(patience_ms + CLIENT_MS);
        match tokio::time::timeout_at(turn_until, self.check(target, namespace)).await {
            Ok(Ok(())) => {}
            Ok(Err(sent)) => return sent,
            Err(_) => return not_sent(TOO_SLOW),
        }
        let payer = key_of(("namespace", namespace));
        let key = ClusterKey::of(target, patience_ms, access);
        let claims = [
            Claim::nearly_all(payer),
            Claim::half(("Kafka", &key.servers)),
            Claim::most(("Kafka topic", &key.servers, &target.topic)),
        ];
        let Ok(Some(_place)) = tokio::time::timeout_at(turn_until, self.shares.take(claims)).await else {
            return not_sent(TOO_SLOW);
        };
        let (reply, answer) = oneshot::channel();
        let taken = Arc::<AtomicBool>::default();
        let order = Order { record, leave: leave.clone(), deadline, turn_until, taken: taken.clone(), reply };
        // Until its report is there, its producer stays.
        let _in_use = match self.clusters.put(&key, order, payer) {
            Ok(in_use) => in_use,
            Err(why) => return not_sent(format!("not sent to Kafka: {why}")),
        };
        match turn(&taken, answer, turn_until).await {
            Handed::Kept(sent) => sent,
            over @ Handed::Over { .. } => reported(over, &target.topic, leave.until(deadline)).await,
        }
    }

    /// Whether a target's brokers may be reached. A name that is not found harms nothing as long as another one is.
    async fn check(&self, target: &KafkaTarget, namespace: &str) -> Result<(), Sent> {
        let mut missing = None;
        let mut found = false;
        for server in target.servers() {
            if !self.servers.as_ref().is_none_or(|known| is_known_server(known, server)) {
                return Err(refused_for_good(format!("bootstrap_servers: {}", not_known_server(server))));
            }
            let host = server_host(server).unwrap_or(server);
            let admitted = match host.parse::<IpAddr>() {
                Ok(_) => self.names.guard.check_host(host).map_err(Into::into),
                Err(_) => self.names.resolve(host, namespace).await.map(|_| ()),
            };
            match admitted {
                Ok(()) => found = true,
                Err(error) if error.downcast_ref::<AddressRefused>().is_some() => {
                    return Err(refused_for_good(format!("bootstrap_servers: {error}")));
                }
                Err(error) => missing = Some(error),
            }
        }
        match missing {
            Some(error) if !found => {
                let message = format!("not sent to Kafka: {}", chain(&*error));
                Err(if is_own(&*error) { not_sent(message) } else { refused(message, None) })
            }
            _ => Ok(()),
        }
    }
}

/// What became of an order that was put in, by the time its turn must have come.
async fn turn(taken: &AtomicBool, mut answer: oneshot::Receiver<Handed>, turn_until: Instant) -> Handed {
    let answered = tokio::time::timeout_at(turn_until, &mut answer).await;
    // The first to take it decides.
    let had_no_turn = !matches!(answered, Ok(Ok(_))) && !taken.swap(true, Ordering::AcqRel);
    let handed = match answered {
        Ok(handed) => handed,
        Err(_) if !had_no_turn => answer.await,
        Err(_) => return Handed::Kept(not_sent(TOO_SLOW)),
    };
    match handed {
        Ok(handed) => handed,
        // The cluster's thread has seen first that its time had passed.
        Err(_) if had_no_turn && instant_now() >= turn_until => Handed::Kept(not_sent(TOO_SLOW)),
        Err(_) if had_no_turn => Handed::Kept(not_sent("not sent to Kafka: the cluster's thread has ended")),
        Err(_) => Handed::Kept(unclear("Kafka: the cluster's thread ended without an answer")),
    }
}

/// What the report says that comes of a record; unclear where none comes by then.
async fn reported(over: Handed, topic: &str, until: Instant) -> Sent {
    let Handed::Over { report, since, seen } = over else {
        return unclear("Kafka: nothing was handed over");
    };
    let sent = match tokio::time::timeout_at(until, report).await {
        Ok(Ok(Ok(_))) => {
            seen.renew(topic);
            return Sent::Accepted;
        }
        Ok(Ok(Err((error, _)))) => {
            // What is said of one topic says nothing of the others.
            if verdict::is_refusal(&error) {
                seen.doubt(topic);
            } else {
                seen.doubt_all();
            }
            verdict::of_report(&error, instant_now() - since)
        }
        Ok(Err(_)) => unclear("Kafka: the producer ended without a report"),
        Err(_) => {
            seen.doubt_all();
            unclear("Kafka: no report within the deadline")
        }
    };
    match sent {
        Sent::Unclear { message, .. } => unclear(format!("{message}{}", seen.words())),
        sent => sent,
    }
}

/// For how long a producer tries to have a record written. Of two deadlines that are not far apart it is the same, so that they
/// share a producer: a power of two of seconds.
fn patience_ms(deadline_ms: i64) -> u64 {
    let half_ms = u64::try_from(deadline_ms / 2).unwrap_or(0);
    let seconds = half_ms.saturating_sub(CLIENT_MS) / 1_000;
    1_000 << seconds.max(1).ilog2()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_producer_gives_up_before_the_deadline_is_over_and_leaves_time_for_a_turn() {
        for deadline_ms in KafkaTarget::DEADLINE_MS.step_by(777) {
            let turn_ms =
                deadline_ms - i64::try_from(patience_ms(deadline_ms) + CLIENT_MS).unwrap_or(i64::MAX);
            assert!(turn_ms >= 1_800 && turn_ms * 3 >= deadline_ms, "{deadline_ms}: {turn_ms}");
        }
        assert_eq!([5_000, 30_000, 900_000].map(patience_ms), [1_000, 8_000, 256_000]);
    }
}
