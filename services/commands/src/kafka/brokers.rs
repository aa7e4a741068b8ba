//! Decides what the log says of a single broker that is bad while others are read from: one line, and one when it is over.
//!
//! In: what Kafka's client says of its connections. Out: lines in the log. Invariants: what lasts is told once, however often the
//! client says it again; what others answer meanwhile does not end it, but that nothing is heard of it for longer than the client
//! is silent of what lasts; connections that were lost for a moment are not told. Not here: that all brokers are away, which is
//! the source's own outage.

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

/// Whether an error is of the connection to one broker.
pub(super) fn is_of_one(code: Code) -> bool {
    matches!(code, Code::BrokerTransportFailure | Code::Resolve | Code::Authentication | Code::SSL)
}

/// The brokers of a topic, each by itself.
#[derive(Debug)]
pub(super) struct Brokers {
    outage: Outage,
    spell: Mutex<Option<Spell>>,
}

/// Errors that come one after the other, with no long silence between them.
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

    fn lasts(&self) -> bool {
        self.last.saturating_duration_since(self.first) >= LASTING
    }
}

impl Brokers {
    /// Those of the topic of a queue of this name.
    pub(super) fn new(queue: &str) -> Self {
        Self { outage: Outage::new(format!("queue {queue}: a broker of its topic")), spell: Mutex::default() }
    }

    /// There is no connection to a broker, or no login. A denial is told at once, as it does not mend by itself; everything else
    /// once it lasts, unless the source's own outage has been told.
    pub(super) fn failed(&self, (code, reason): (Code, &str), source: &Outage, now: Instant) {
        let spell = Spell::with(*self.spell(), now);
        *self.spell() = Some(spell);
        if is_kafka_denial(Some(code), reason) || (spell.lasts() && !source.lasts()) {
            self.outage.failed(&reason);
        }
    }

    /// Tells that it is over, once nothing has been heard for a while.
    pub(super) fn look(&self, now: Instant) {
        let ended = self.spell().take_if(|spell| spell.is_over(now));
        if ended.is_some() {
            self.outage.silent();
        }
    }

    fn spell(&self) -> MutexGuard<'_, Option<Spell>> {
        // Each change is one call, so a panic elsewhere leaves nothing half done.
        self.spell.lock().unwrap_or_else(PoisonError::into_inner)
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
            let mut last = 0;
            for seconds in (0..900).step_by(45) {
                brokers.failed(said, &source, at(seconds));
                // A record of another broker comes at any time.
                brokers.look(at(seconds + 44));
                assert_eq!(brokers.outage.lasts(), said == DENIED || seconds > 0, "{seconds}");
                last = seconds;
            }
            brokers.look(at(last + SILENCE.as_secs() - 1));
            assert_eq!((brokers.outage.lasts(), brokers.outage.count()), (true, 1));
            brokers.look(at(last + SILENCE.as_secs()));
            assert_eq!((brokers.outage.lasts(), brokers.outage.count()), (false, 1));
        }
    }

    #[test]
    fn a_connection_that_is_lost_now_and_then_is_not_told() {
        let (brokers, source, at) = world();
        for seconds in (0..9_000).step_by(600) {
            brokers.failed(REFUSED, &source, at(seconds));
            brokers.failed(REFUSED, &source, at(seconds + LASTING.as_secs() - 1));
            assert!(!brokers.outage.lasts(), "{seconds}");
        }
    }

    #[test]
    fn where_all_are_away_a_single_one_is_told_only_where_it_lets_nobody_in() {
        let (brokers, source, at) = world();
        source.failed(&"all brokers are down");
        for seconds in [0, 40, 80] {
            brokers.failed(REFUSED, &source, at(seconds));
        }
        assert!(!brokers.outage.lasts());
        brokers.failed(DENIED, &source, at(100));
        assert!(brokers.outage.lasts());
    }
}
