//! Hears what becomes of a group's assignments, and commits offsets.
//!
//! Invariants: before partitions are given up, what has ended of them is committed, unless they are lost already; that takes no
//! longer than the client's own bounds (`member` sets them); partitions that come while none may be read are paused at once.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use rdkafka::client::ClientContext;
use rdkafka::config::RDKafkaLogLevel;
use rdkafka::consumer::{BaseConsumer, CommitMode, Consumer as _, ConsumerContext, Rebalance};
use rdkafka::error::KafkaError;
use rdkafka::topic_partition_list::{Offset, TopicPartitionList};
use rdkafka::types::RDKafkaErrorCode as Code;
use tollgate_clock::instant_now;

use super::Shared;
use super::brokers::{is_of_one, unanswered};

/// Hears what the client says of itself and of its group.
pub(super) struct Listener {
    pub(super) shared: Arc<Shared>,
    pub(super) is_paused: AtomicBool,
}

impl ClientContext for Listener {
    fn log(&self, level: RDKafkaLogLevel, facility: &str, message: &str) {
        if let Some(reason) = unanswered(facility, message) {
            let said = (Code::BrokerTransportFailure, reason);
            self.shared.brokers.failed(said, &self.shared.counts.source, instant_now());
        }
        tracing::debug!(?level, facility, message, "Kafka's client");
    }

    fn error(&self, error: KafkaError, reason: &str) {
        let source = &self.shared.counts.source;
        match error.rdkafka_error_code() {
            Some(Code::AllBrokersDown) => source.failed(&error),
            // The code alone says neither which broker nor what is wrong with a login or a certificate.
            Some(code) if is_of_one(code) => {
                self.shared.brokers.failed((code, reason), source, instant_now());
            }
            _ => {}
        }
        tracing::debug!(%error, reason, "Kafka's client");
    }
}

fn partitions(list: &TopicPartitionList) -> Vec<i32> {
    list.elements().iter().map(|one| one.partition()).collect()
}

impl ConsumerContext for Listener {
    fn pre_rebalance(&self, consumer: &BaseConsumer<Self>, rebalance: &Rebalance<'_>) {
        let queue = &self.shared.counts.queue;
        match rebalance {
            Rebalance::Revoke(list) => {
                // Who has lost them may not commit any more.
                if !consumer.assignment_lost() {
                    commit(&self.shared, consumer);
                }
                let partitions = partitions(list);
                self.shared.revoke(&partitions);
                tracing::info!(queue, "reads the partitions {partitions:?} no more");
            }
            Rebalance::Error(error) => tracing::warn!(queue, "the group has no assignment: {error}"),
            Rebalance::Assign(_) => {}
        }
    }

    fn post_rebalance(&self, consumer: &BaseConsumer<Self>, rebalance: &Rebalance<'_>) {
        let Rebalance::Assign(list) = rebalance else { return };
        let (queue, partitions) = (&self.shared.counts.queue, partitions(list));
        self.shared.assign(&partitions);
        if !partitions.is_empty() {
            // The client remembers of partitions that they were paused when they were here before.
            let is_paused = self.is_paused.load(Ordering::Acquire);
            let done = if is_paused { consumer.pause(list) } else { consumer.resume(list) };
            if let Err(error) = done {
                tracing::warn!(queue, "partitions cannot be paused or resumed: {error}");
            }
        }
        tracing::info!(queue, "reads the partitions {partitions:?} from now on");
    }
}

/// Commits what has ended, and waits for the group's answer. What is not committed now is the next time.
pub(super) fn commit(shared: &Shared, consumer: &BaseConsumer<Listener>) {
    let due = shared.offsets().due();
    if due.is_empty() {
        return;
    }
    let mut list = TopicPartitionList::with_capacity(due.len());
    for (partition, offset) in &due {
        if let Err(error) =
            list.add_partition_offset(&shared.config.topic, *partition, Offset::Offset(*offset))
        {
            shared.counts.commits.failed(&error);
            return;
        }
    }
    match consumer.commit(&list, CommitMode::Sync) {
        Ok(()) => {
            shared.counts.commits.worked();
            shared.offsets().committed(&due);
        }
        Err(error) if is_of_the_assignment(&error) => {
            tracing::debug!(queue = shared.counts.queue, %error, "not committed: the assignment changes");
        }
        Err(error) => shared.counts.commits.failed(&error),
    }
}

/// Whether nothing is wrong but that the group is about to share its partitions out anew.
fn is_of_the_assignment(error: &KafkaError) -> bool {
    let code = error.rdkafka_error_code();
    code.is_some_and(|code| {
        [
            Code::RebalanceInProgress,
            Code::IllegalGeneration,
            Code::UnknownMemberId,
            Code::AssignmentLost,
            Code::NoOffset,
        ]
        .contains(&code)
    })
}
