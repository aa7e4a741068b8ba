//! Takes commands from SQS queues, and carries them out at the API: a client like others, without a store.
//!
//! [`run`] reads the queues of a [`QueueConfig`] each, until it is told to stop.
//!
//! - `config`: which queues, and what each may do; `listen`, `counts`: what can be seen of them.
//! - `queue`: receivers, batches and outages of one queue; `hands`: what of it is in hand; `sqs`: the calls to it.
//! - `read`, `strict`, `command`, `fault`: what command a message is, or all that is wrong with it.
//! - `arrange`: what of a batch is sent, in which order; `carry`, `api`: sends it, and what the answers mean.
//! - `settle`: answers, dead letters and deletions.
//!
//! Invariants: a message is deleted only after the service has committed what it asks for, or after its refusal has been told;
//! what is outdated, repeated or late changes nothing, by its revision or its id, which the service judges; the namespace and
//! the key are the queue's, and no message names others. Queues share nothing but the process.

mod api;
mod arrange;
mod backoff;
mod carry;
mod command;
mod config;
mod counts;
mod fault;
mod hands;
mod listen;
mod queue;
mod read;
mod settle;
mod sqs;
mod strict;

use std::sync::Arc;

use futures::future::join_all;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;
use tollgate_clock::Clock;

pub use api::Connection;
pub use command::Op;
pub use config::{QueueConfig, read};

use counts::Counts;
use queue::Reader;

/// Reads the queues until it is told to stop, and ends what is under way.
///
/// # Errors
/// A queue that has no region.
pub async fn run(
    queues: Vec<QueueConfig>,
    connection: Connection,
    listener: Option<TcpListener>,
    stop: CancellationToken,
) -> Result<(), String> {
    let clock = Clock::system();
    let mut readers = Vec::new();
    for queue in queues {
        readers.push(Reader::new(queue, &connection, clock.clone()).await?);
    }
    let counts: Arc<[Arc<Counts>]> = readers.iter().map(Reader::counts).collect();
    // The pages are there until the last queue has come to its end.
    let end = CancellationToken::new();
    let pages = listener.map(|listener| tokio::spawn(listen::serve(listener, counts, clock, end.clone())));
    let tasks = readers.into_iter().map(|reader| tokio::spawn(reader.run(stop.clone())));
    for ended in join_all(tasks).await {
        if ended.is_err() {
            end.cancel();
            return Err("a queue's task ended by a panic".to_owned());
        }
    }
    end.cancel();
    if let Some(pages) = pages {
        let _ended = pages.await;
    }
    Ok(())
}
