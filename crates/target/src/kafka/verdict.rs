//! What an error of Kafka's client means for an event.
//!
//! In: a code, and where it was met. Out: a [`Sent`]. *Refused* needs proof that no broker has written the record, so a code that
//! is not in the table is unclear. Invariant: the client tries again by itself, and what it then says is no proof for the try
//! before: a refusal that comes later than a first answer can is unclear, too. docs/kafka.md has the same table.

use std::time::Duration;

use rdkafka::error::KafkaError;
use rdkafka::types::RDKafkaErrorCode as Code;
use tollgate_core::model::Sent;

use crate::{not_sent, refused, refused_for_good, unclear};

/// How long the client waits before it tries a record again, in milliseconds; by chance up to a fifth less.
pub(super) const RETRY_MS: u64 = 1_000;
/// An answer within this time is one to the first try.
const FIRST_ANSWER: Duration = Duration::from_millis(700);

/// What a code proves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Meaning {
    /// Nothing was written; another time it may be.
    Refused,
    /// Nothing was written, nor will the same record ever be.
    RefusedForGood,
    /// A broker may have written it.
    Unclear,
}

use Meaning::{Refused, RefusedForGood, Unclear};

/// What each code means that a record's report may have.
const TABLE: &[(Code, Meaning)] = &[
    // Said by brokers.
    (Code::UnknownTopicOrPartition, Refused),
    (Code::LeaderNotAvailable, Refused),
    (Code::NotLeaderForPartition, Refused),
    (Code::BrokerNotAvailable, Refused),
    (Code::MessageSizeTooLarge, RefusedForGood),
    (Code::InvalidTopic, RefusedForGood),
    (Code::MessageBatchTooLarge, Refused),
    (Code::NotEnoughReplicas, Refused),
    (Code::InvalidRequiredAcks, Refused),
    (Code::TopicAuthorizationFailed, Refused),
    (Code::ClusterAuthorizationFailed, Refused),
    (Code::InvalidTimestamp, Refused),
    (Code::UnsupportedVersion, Refused),
    (Code::UnsupportedForMessageFormat, Refused),
    (Code::PolicyViolation, Refused),
    (Code::ThrottlingQuotaExceeded, Refused),
    (Code::InvalidRecord, Refused),
    (Code::NotEnoughReplicasAfterAppend, Unclear),
    (Code::RequestTimedOut, Unclear),
    (Code::NetworkException, Unclear),
    (Code::KafkaStorageError, Unclear),
    (Code::OutOfOrderSequenceNumber, Unclear),
    (Code::UnknownProducerId, Unclear),
    (Code::InvalidProducerEpoch, Unclear),
    (Code::Unknown, Unclear),
    // Said by the client itself.
    (Code::UnknownTopic, Refused),
    (Code::UnknownPartition, Refused),
    (Code::InvalidDifferentRecord, Refused),
    (Code::MessageTimedOut, Unclear),
    (Code::BrokerTransportFailure, Unclear),
    (Code::PurgeQueue, Unclear),
    (Code::PurgeInflight, Unclear),
    (Code::Fatal, Unclear),
];

fn meaning(code: Code) -> Meaning {
    TABLE.iter().find(|(known, _)| *known == code).map_or(Unclear, |(_, meaning)| *meaning)
}

/// Whether a report says that brokers refused the record, at its first try or at a later one.
pub(super) fn is_refusal(error: &KafkaError) -> bool {
    error.rdkafka_error_code().is_some_and(|code| meaning(code) != Unclear)
}

/// The verdict on a record by its report, which came so long after the record was handed over.
pub(super) fn of_report(error: &KafkaError, after: Duration) -> Sent {
    let Some(code) = error.rdkafka_error_code() else { return unclear(format!("Kafka: {error}")) };
    let message = format!("Kafka: {code}");
    match meaning(code) {
        Unclear => unclear(message),
        Refused | RefusedForGood if after > FIRST_ANSWER => {
            unclear(format!("{message}; it came after {} ms, perhaps to a second try", after.as_millis()))
        }
        Refused => refused(message, None),
        RefusedForGood => refused_for_good(message),
    }
}

/// The verdict on a record that the client did not take: nothing has left.
pub(super) fn of_handing_over(error: &KafkaError) -> Sent {
    let code = error.rdkafka_error_code();
    let message =
        format!("not sent to Kafka: {}", code.map_or_else(|| error.to_string(), |code| code.to_string()));
    match code {
        // What this process shares among all targets, or a producer that is to be replaced.
        None | Some(Code::QueueFull | Code::Fatal | Code::State | Code::CriticalSystemResource) => {
            not_sent(message)
        }
        Some(code) if meaning(code) == RefusedForGood => refused_for_good(message),
        Some(_) => refused(message, None),
    }
}

/// The verdict on a record whose topic is in this state: nothing has been handed over.
pub(super) fn of_topic(topic: &str, code: Code) -> Sent {
    let message = format!("not sent to Kafka: topic {topic}: {code}");
    match meaning(code) {
        RefusedForGood => refused_for_good(message),
        Refused | Unclear => refused(message, None),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What the client repeats by itself for as long as it lasts: then a record's report has another code, `MessageTimedOut`.
    const REPEATED: [Code; 4] = [
        Code::UnknownTopicOrPartition,
        Code::LeaderNotAvailable,
        Code::NotLeaderForPartition,
        Code::NotEnoughReplicas,
    ];
    const SOON: Duration = Duration::from_millis(5);

    fn report(code: Code, after: Duration) -> Sent {
        of_report(&KafkaError::MessageProduction(code), after)
    }

    #[test]
    fn each_code_means_what_the_table_says() {
        for (code, meaning) in TABLE {
            let sent = report(*code, SOON);
            let fits = match meaning {
                Refused => matches!(&sent, Sent::Refused { permanent: false, .. }),
                RefusedForGood => matches!(&sent, Sent::Refused { permanent: true, .. }),
                Unclear => matches!(&sent, Sent::Unclear { .. }),
            };
            assert!(fits, "{code:?}: {sent:?}");
            assert!(sent.message().is_some_and(|words| words.contains(&format!("{code:?}"))), "{sent:?}");
            assert_eq!(TABLE.iter().filter(|(other, _)| other == code).count(), 1, "{code:?}");
        }
        // Whatever is not in it.
        assert!(matches!(report(Code::ReassignmentInProgress, SOON), Sent::Unclear { .. }));
        let other = of_report(&KafkaError::Canceled, SOON);
        assert!(matches!(other, Sent::Unclear { .. }), "{other:?}");
    }

    #[test]
    fn a_late_refusal_proves_nothing_of_the_first_try() {
        for code in [Code::TopicAuthorizationFailed, Code::MessageSizeTooLarge] {
            assert!(matches!(report(code, FIRST_ANSWER), Sent::Refused { .. }), "{code:?}");
            let late = report(code, FIRST_ANSWER + Duration::from_millis(1));
            assert!(matches!(late, Sent::Unclear { .. }), "{late:?}");
        }
        // A second try begins later than that, also with the fifth by which the client may shorten its wait.
        assert!(FIRST_ANSWER < Duration::from_millis(RETRY_MS * 4 / 5));
    }

    #[test]
    fn what_the_client_does_not_take_has_not_left() {
        let handed = |code| of_handing_over(&KafkaError::MessageProduction(code));
        for code in [Code::QueueFull, Code::Fatal] {
            assert!(matches!(handed(code), Sent::NotSent { .. }), "{code:?}");
        }
        assert!(matches!(handed(Code::MessageSizeTooLarge), Sent::Refused { permanent: true, .. }));
        for code in [Code::UnknownTopic, Code::InvalidArgument, Code::MessageTimedOut] {
            assert!(matches!(handed(code), Sent::Refused { permanent: false, .. }), "{code:?}");
        }
        let unknown = of_topic("t", Code::UnknownTopicOrPartition);
        assert!(
            matches!(&unknown, Sent::Refused { permanent: false, message, .. } if message.contains("topic t"))
        );
        assert!(matches!(of_topic("t", Code::InvalidTopic), Sent::Refused { permanent: true, .. }));
    }

    /// The rows of the table in the documents: `| code | refused |`.
    #[test]
    fn the_documents_have_the_same_table() {
        let page = std::fs::read_to_string("../../docs/kafka.md").unwrap_or_default();
        let mut rows: Vec<String> = TABLE
            .iter()
            .map(|(code, meaning)| {
                let word = match meaning {
                    Refused if REPEATED.contains(code) => "refused, or unclear after repeats",
                    Refused => "refused",
                    RefusedForGood => "refused for good",
                    Unclear => "unclear",
                };
                format!("| `{code:?}` | {word} |")
            })
            .collect();
        let mut told: Vec<&str> =
            page.lines().filter(|line| line.starts_with("| `") && line.matches('|').count() == 3).collect();
        rows.sort_unstable();
        told.sort_unstable();
        assert_eq!(told, rows);
    }
}
