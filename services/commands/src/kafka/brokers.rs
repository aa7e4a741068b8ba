//! Decides what the log says of a single broker that is bad while others are read from: one line, and one when it is over.
//!
//! In: what Kafka's client says of its connections. Out: lines in the log. Invariants: what lasts is told once, however often the
//! client says it again; what others answer meanwhile does not end it, but that nothing is heard of it for longer than the client
//! is silent of what lasts; connections that were lost for a moment are not told, whichever brokers were so one after the other;
//! that there is no connection to one hides from nobody that another lets nobody in. Not here: that all brokers are away, which
//! is the source's own outage.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use rdkafka::types::RDKafkaErrorCode as Code;
use tokio::time::Instant;
use tollgate_target::is_kafka_denial;

use crate::backoff::Outage;

/// For how long nothing must be heard until it is over. The client says the same of a broker again after 30 s, once it has tried
/// to connect anew: to find no address for a name may take as long.
const SILENCE: Duration = Duration::from_secs(90);
/// For how long connections fail before they are told of.
const LASTING: Duration = Duration::from_secs(20);
/// Of how many brokers it is kept when they were heard of.
const BROKERS_MAX: usize = 100;

/// Whether an error is of the connection to one broker.
pub(super) fn is_of_one(code: Code) -> bool {
    matches!(code, Code::BrokerTransportFailure | Code::Resolve | Code::Authentication | Code::SSL)
}

/// What the client logs of a broker that answers nothing at all, of which it tells no error.
pub(super) fn unanswered<'a>(facility: &str, message: &'a str) -> Option<&'a str> {
    // The name of the client's thread comes first, which is the broker's, too.
    let named = message.strip_prefix("[thrd:").and_then(|rest| rest.split_once("]: "));
    let reason = named.map_or(message, |(_, reason)| reason);
    (facility == "FAIL" && reason.contains("Connection setup timed out")).then_some(reason)
}

/// The brokers of a topic. Each is bad by itself, and those that are so at the same time share the lines of a kind of trouble.
#[derive(Debug)]
pub(super) struct Brokers {
    denials: Trouble,
    connections: Trouble,
}

/// A kind of what may be wrong with brokers.
#[derive(Debug)]
struct Trouble {
    outage: Outage,
    /// For how long it is so with a broker before it is told.
    after: Duration,
    /// By the client's names of brokers.
    spells: Mutex<BTreeMap<String, Spell>>,
}

/// Errors of a broker that come one after the other, with no long silence between them.
#[derive(Clone, Copy, Debug)]
struct Spell {
    first: Instant,
    last: Instant,
}

impl Spell {
    /// The one that an error belongs to: the one before, unless that is over.
    fn with(before: Option<Self>, now: Instant) -> Self {
        let goes_on = before.filter(|spell| !spell.is_over(now));
        Self { first: goes_on.map_or(now, |spell| spell.first), last: now }
    }

    fn is_over(&self, now: Instant) -> bool {
        now.saturating_duration_since(self.last) >= SILENCE
    }

    fn lasts(&self, after: Duration) -> bool {
        self.last.saturating_duration_since(self.first) >= after
    }
}

impl Trouble {
    fn new(what: String, after: Duration) -> Self {
        Self { outage: Outage::new(what), after, spells: Mutex::default() }
    }

    /// It is so with the broker that the reason begins with. Says whether that lasts.
    fn heard(&self, reason: &str, now: Instant) -> bool {
        let broker = reason.split_once(": ").map_or(reason, |(broker, _)| broker);
        let mut spells = self.spells();
        let spell = Spell::with(spells.get(broker).copied(), now);
        spells.insert(broker.to_owned(), spell);
        if spells.len() > BROKERS_MAX {
            let oldest = spells.iter().min_by_key(|(_, spell)| spell.last).map(|(broker, _)| broker.clone());
            if let Some(oldest) = oldest {
                spells.remove(&oldest);
            }
        }
        spell.lasts(self.after)
    }

    /// Tells that it is over, once it lasts with no broker any more.
    fn look(&self, now: Instant) {
        let mut spells = self.spells();
        spells.retain(|_, spell| !spell.is_over(now));
        if !spells.values().any(|spell| spell.lasts(self.after)) {
            self.outage.silent();
        }
    }

    fn spells(&self) -> MutexGuard<'_, BTreeMap<String, Spell>> {
        // Whatever a panic elsewhere leaves here, each spell is whole.
        self.spells.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Brokers {
    /// Those of the topic of a queue of this name.
    pub(super) fn new(queue: &str) -> Self {
        let what = |trouble: &str| format!("queue {queue}: {trouble} a broker of its topic");
        Self {
            denials: Trouble::new(what("no entry to"), Duration::ZERO),
            connections: Trouble::new(what("no connection to"), LASTING),
        }
    }

    /// There is no connection to a broker, or no login. A denial is told at once, as it does not mend by itself; everything else
    /// once it lasts, unless the source's own outage has been told.
    pub(super) fn failed(&self, (code, reason): (Code, &str), source: &Outage, now: Instant) {
        let is_denial = is_kafka_denial(Some(code), reason);
        let trouble = if is_denial { &self.denials } else { &self.connections };
        if trouble.heard(reason, now) && (is_denial || !source.lasts()) {
            trouble.outage.failed(&reason);
        }
    }

    /// Tells that it is over, once nothing has been heard for a while.
    pub(super) fn look(&self, now: Instant) {
        self.denials.look(now);
        self.connections.look(now);
    }
}

#[cfg(test)]
mod tests {
    use tollgate_clock::instant_now;

    use super::*;

    const DENIED: (Code, &str) =
        (Code::Authentication, "sasl_ssl://a:9093/1: SASL authentication error: no such user");
    const REFUSED: (Code, &str) =
        (Code::BrokerTransportFailure, "a:9092/1: Connect to a:9092 failed: Connection refused");
    const REFUSED_TOO: (Code, &str) =
        (Code::BrokerTransportFailure, "b:9092/2: Connect to b:9092 failed: Connection refused");

    /// Brokers, their source, and a moment so many seconds from now on.
    fn world() -> (Brokers, Outage, impl Fn(u64) -> Instant) {
        let start = instant_now();
        let source = Outage::new("the source".to_owned());
        (Brokers::new("nightly"), source, move |seconds| start + Duration::from_secs(seconds))
    }

    #[test]
    fn a_broker_that_stays_bad_is_told_once_however_well_the_others_are() {
        for said in [DENIED, REFUSED] {
            let (brokers, source, at) = world();
            let trouble = if said == DENIED { &brokers.denials } else { &brokers.connections };
            let mut last = 0;
            for seconds in (0..900).step_by(45) {
                brokers.failed(said, &source, at(seconds));
                // A record of another broker comes at any time.
                brokers.look(at(seconds + 44));
                assert_eq!(trouble.outage.lasts(), said == DENIED || seconds > 0, "{seconds}");
                last = seconds;
            }
            brokers.look(at(last + SILENCE.as_secs() - 1));
            assert_eq!((trouble.outage.lasts(), trouble.outage.count()), (true, 1));
            brokers.look(at(last + SILENCE.as_secs()));
            assert_eq!((trouble.outage.lasts(), trouble.outage.count()), (false, 1));
        }
    }

    #[test]
    fn a_connection_that_is_lost_now_and_then_is_not_told() {
        let (brokers, source, at) = world();
        for seconds in (0..9_000).step_by(600) {
            brokers.failed(REFUSED, &source, at(seconds));
            brokers.failed(REFUSED, &source, at(seconds + LASTING.as_secs() - 1));
            assert!(!brokers.connections.outage.lasts(), "{seconds}");
        }
    }

    #[test]
    fn where_all_are_away_a_single_one_is_told_only_where_it_lets_nobody_in() {
        let (brokers, source, at) = world();
        source.failed(&"all brokers are down");
        for seconds in [0, 40, 80] {
            brokers.failed(REFUSED, &source, at(seconds));
        }
        assert!(!brokers.connections.outage.lasts());
        brokers.failed(DENIED, &source, at(100));
        assert!(brokers.denials.outage.lasts());
    }

    #[test]
    fn a_denial_is_told_while_there_is_no_connection_to_another() {
        let (brokers, source, at) = world();
        brokers.failed(REFUSED, &source, at(0));
        brokers.failed(REFUSED, &source, at(30));
        assert!(brokers.connections.outage.lasts() && !brokers.denials.outage.lasts());
        brokers.failed(DENIED, &source, at(40));
        assert_eq!((brokers.denials.outage.lasts(), brokers.denials.outage.count()), (true, 1));
        // Each ends by itself.
        brokers.look(at(30 + SILENCE.as_secs()));
        assert!(!brokers.connections.outage.lasts() && brokers.denials.outage.lasts());
        brokers.look(at(40 + SILENCE.as_secs()));
        assert!(!brokers.denials.outage.lasts());
    }

    #[test]
    fn brokers_that_are_away_one_after_the_other_are_not_one_that_stays_away() {
        let (brokers, source, at) = world();
        brokers.failed(REFUSED, &source, at(0));
        brokers.failed(REFUSED_TOO, &source, at(60));
        assert!(!brokers.connections.outage.lasts());
        brokers.failed(REFUSED_TOO, &source, at(90));
        assert!(brokers.connections.outage.lasts());
        // One that is lost for a moment does not have it go on.
        brokers.failed(REFUSED, &source, at(170));
        brokers.look(at(90 + SILENCE.as_secs()));
        assert!(!brokers.connections.outage.lasts());
    }

    #[test]
    fn no_more_brokers_are_kept_than_there_is_room_for() {
        let (brokers, source, at) = world();
        for seconds in 0..BROKERS_MAX as u64 + 5 {
            let reason = format!("a{seconds}:9092/{seconds}: Connect failed");
            brokers.failed((Code::BrokerTransportFailure, reason.as_str()), &source, at(seconds / 2));
        }
        let kept = brokers.connections.spells();
        assert_eq!((kept.len(), kept.contains_key("a0:9092/0")), (BROKERS_MAX, false));
    }

    #[test]
    fn a_broker_that_answers_nothing_is_found_in_what_the_client_logs() {
        let reason =
            "[::1]:9092/1: Connection setup timed out in state CONNECT (after 5003ms in state CONNECT)";
        assert_eq!(unanswered("FAIL", &format!("[thrd:[::1]:9092/1]: {reason}")), Some(reason));
        assert_eq!(unanswered("FAIL", reason), Some(reason));
        assert_eq!(unanswered("FAIL", "[thrd:a:9092/1]: a:9092/1: Disconnected"), None);
        assert_eq!(unanswered("REQTMOUT", reason), None);
    }
}
