//! Takes commands from SQS queues and Kafka topics, and carries them out at the API: a client like others, without a store.
//!
//! [`run`] reads the queues of a [`QueueConfig`] each, until it is told to stop.
//!
//! - `config`: which queues, and what each may do; `listen`, `counts`: what can be seen of them.
//! - `queue`: batches and outages of one queue; `hands`: what of it is in hand; `patience`: how long it has waited.
//! - `source`: where messages come from and go to; of SQS `sqs`, `receive`; of Kafka `kafka`, with that feature; `message`,
//!   `intake`: what both bring in, and how.
//! - `read`, `strict`, `command`, `fault`: what command a message is, or all that is wrong with it; `check` tells others.
//! - `arrange`: what of a batch is sent, in which order; `carry`, `api`: sends it, and what the answers mean.
//! - `settle`: answers, dead letters and deletions.
//!
//! Invariants: a message is deleted, an offset committed, only after the service has committed what it asks for, or after its
//! refusal has been told; what is outdated, repeated or late changes nothing, by its revision or its id, which the service
//! judges; the namespace and the key are the queue's, and no message names others. Queues share nothing but the process.

mod api;
mod arrange;
mod backoff;
mod carry;
mod check;
mod command;
mod config;
mod counts;
mod fault;
mod hands;
mod intake;
#[cfg(feature = "kafka")]
mod kafka;
mod listen;
mod message;
mod patience;
mod queue;
mod read;
mod receive;
mod settle;
mod source;
mod sqs;
mod strict;
#[cfg(test)]
mod stub;

use std::sync::Arc;

use tokio::net::TcpListener;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;
use tollgate_clock::Clock;

pub use api::Connection;
pub use check::{Asked, Checked, check};
pub use command::Op;
pub use config::{KafkaConfig, QueueConfig, SourceConfig, SqsConfig, read};

use counts::Counts;
use queue::Reader;

/// Reads the queues until it is told to stop, and ends what is under way.
///
/// # Errors
/// A queue that has no region, Kafka settings that its client refuses, or a queue whose task ends before the stop: the others
/// are then stopped, too.
pub async fn run(
    queues: Vec<QueueConfig>,
    connection: Connection,
    listener: Option<TcpListener>,
    stop: CancellationToken,
) -> Result<(), String> {
    let clock = Clock::system();
    let mut readers = Vec::new();
    for queue in queues {
        readers.push(Reader::new(queue, &connection, stop.clone()).await?);
    }
    let counts: Arc<[Arc<Counts>]> = readers.iter().map(Reader::counts).collect();
    // The pages are there until the last queue has come to its end.
    let end = CancellationToken::new();
    let pages = listener.map(|listener| tokio::spawn(listen::serve(listener, counts, clock, end.clone())));
    let mut tasks = JoinSet::new();
    for reader in readers {
        tasks.spawn(reader.run());
    }
    let ended = joined(tasks, &stop).await;
    end.cancel();
    if let Some(pages) = pages {
        let _ended = pages.await;
    }
    ended
}

/// Waits for all; the first that ends before the stop stops the others.
async fn joined(mut tasks: JoinSet<()>, stop: &CancellationToken) -> Result<(), String> {
    let mut all = Ok(());
    while let Some(ended) = tasks.join_next().await {
        if ended.is_err() || !stop.is_cancelled() {
            let said =
                if ended.is_err() { "a queue's task ended by a panic" } else { "a queue's task ended" };
            all = all.and(Err(said.to_owned()));
            stop.cancel();
        }
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn one_that_ends_before_the_stop_stops_the_others_and_is_told() {
        let stop = CancellationToken::new();
        let mut tasks = JoinSet::new();
        let waiting = stop.clone();
        tasks.spawn(async move { waiting.cancelled().await });
        tasks.spawn(async { panic!("a fault of the program") });
        let ended = joined(tasks, &stop).await;
        assert_eq!(ended, Err("a queue's task ended by a panic".to_owned()));
        let mut tasks = JoinSet::new();
        tasks.spawn(async {});
        assert_eq!(joined(tasks, &stop).await, Ok(()), "after the stop that is as it should be");
    }
}
