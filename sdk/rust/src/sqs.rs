//! Takes events from an SQS queue. A message is hidden while its event is worked on, and deleted once the release was answered.
//! One whose event needs no release is deleted after the work, and shows again where that failed. A stop waits for the poll under
//! way, and has what that brings show again.

use std::fmt::Display;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use aws_sdk_sqs::Client;
use aws_sdk_sqs::error::DisplayErrorContext;
use aws_sdk_sqs::operation::receive_message::ReceiveMessageOutput;
use aws_sdk_sqs::types::Message;
use tokio_util::sync::CancellationToken;

use crate::backoff::Backoff;
use crate::engine::{Delivery, Engine, Held, Place};
use crate::event::Event;

/// The most messages of an answer.
const MESSAGES_MAX: usize = 10;
/// How long SQS waits for messages.
const WAIT_S: u8 = 5;
/// How long a stop waits for the poll under way: SQS goes on with a call whose caller has gone, and what it hands out then is
/// hidden from all, though nobody works on it.
const LAST_POLL: Duration = Duration::from_secs(WAIT_S as u64 + 2);
const VISIBILITY_MAX: Duration = Duration::from_secs(12 * 3_600);

/// A queue of SQS.
#[derive(Clone, Debug)]
pub struct Sqs {
    client: Client,
    queue_url: String,
    visibility: Duration,
}

impl Sqs {
    /// A queue by its URL.
    pub fn new(client: Client, queue_url: impl Into<String>) -> Self {
        Self { client, queue_url: queue_url.into(), visibility: Duration::from_secs(30) }
    }

    /// For how long a message that is worked on is hidden, anew at each third of it: 3 s to 12 h; 30 s by default.
    #[must_use]
    pub fn visibility(self, visibility: Duration) -> Self {
        Self { visibility, ..self }
    }

    pub(crate) fn check(&self) -> Result<(), String> {
        if self.queue_url.is_empty() {
            return Err("queue_url: missing".into());
        }
        if self.visibility < Duration::from_secs(3) || self.visibility > VISIBILITY_MAX {
            return Err(format!("visibility: {:?}, expected 3s to 12h", self.visibility));
        }
        Ok(())
    }

    pub(crate) async fn run(&self, engine: &Arc<Engine>) {
        let mut backoff = Backoff::default();
        while let Some(mut places) = engine.room(MESSAGES_MAX).await {
            let count = i32::try_from(places.len()).unwrap_or(1);
            let receive =
                self.client.receive_message().queue_url(&self.queue_url).wait_time_seconds(WAIT_S.into());
            let mut poll = Box::pin(receive.max_number_of_messages(count).send());
            let answer = tokio::select! {
                biased;
                () = engine.taking.cancelled() => {
                    // Beside the drain, which waits for it.
                    let last = self.clone().show_again(poll);
                    engine.tasks.spawn(bounded(last, LAST_POLL, engine.work.clone()));
                    break;
                }
                answer = &mut poll => answer,
            };
            match answer {
                Ok(answer) => {
                    engine.calls.taking.worked();
                    backoff = Backoff::default();
                    for message in answer.messages.unwrap_or_default() {
                        self.begin(engine, message, &mut places);
                    }
                }
                Err(error) => {
                    drop(places);
                    engine.calls.taking.failed(&DisplayErrorContext(&error));
                    engine.pause(backoff.next(Duration::ZERO)).await;
                }
            }
        }
    }

    /// Has what a poll brings after a stop show again at once.
    async fn show_again<E>(self, poll: impl Future<Output = Result<ReceiveMessageOutput, E>>) {
        // One that fails has brought nothing.
        let Ok(answer) = poll.await else { return };
        for message in answer.messages.unwrap_or_default() {
            let change = self.client.change_message_visibility().queue_url(&self.queue_url);
            let change = change.set_receipt_handle(message.receipt_handle).visibility_timeout(0);
            if let Err(error) = change.send().await {
                let why = DisplayErrorContext(&error);
                tracing::warn!("a message is not shown again, and comes when its visibility ends: {why}");
            }
        }
    }

    /// Works on a message in one of the places; it needs none if it has no event.
    fn begin(&self, engine: &Arc<Engine>, message: Message, places: &mut Vec<Place>) {
        match Event::parse(message.body.unwrap_or_default().as_bytes()) {
            Ok(event) => {
                let Some(place) = places.pop() else { return };
                let receipt = message.receipt_handle.unwrap_or_default();
                let held = Hidden { queue: self.clone(), receipt, event: event.id.clone() };
                engine.take(Delivery { event, ttl: None, held: Some(Box::new(held)) }, place);
            }
            Err(why) => tracing::error!("a message is left to the queue: {why}"),
        }
    }
}

/// Does something after a stop, for so long at most, and no longer than the work may go on.
async fn bounded(last: impl Future<Output = ()>, limit: Duration, given_up: CancellationToken) {
    tokio::select! {
        () = last => {}
        () = tokio::time::sleep(limit) => {}
        () = given_up.cancelled() => {}
    }
}

/// A message that is worked on.
struct Hidden {
    queue: Sqs,
    receipt: String,
    event: String,
}

#[async_trait]
impl Held for Hidden {
    fn every(&self) -> Duration {
        self.queue.visibility / 3
    }

    async fn hide(&self) {
        let seconds = i32::try_from(self.queue.visibility.as_secs()).unwrap_or(i32::MAX);
        let change = self.queue.client.change_message_visibility().queue_url(&self.queue.queue_url);
        let changed = change.receipt_handle(&self.receipt).visibility_timeout(seconds).send().await;
        if let Err(error) = changed {
            self.tell("its message is not hidden for longer", &DisplayErrorContext(&error));
        }
    }

    async fn remove(&self) {
        let delete = self.queue.client.delete_message().queue_url(&self.queue.queue_url);
        if let Err(error) = delete.receipt_handle(&self.receipt).send().await {
            // It comes again then, and is only released again.
            self.tell("its message is not deleted", &DisplayErrorContext(&error));
        }
    }
}

impl Hidden {
    fn tell(&self, what: &str, error: &dyn Display) {
        tracing::warn!("event {}: {what}: {error}", self.event);
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tokio_util::sync::CancellationToken;

    use super::bounded;

    #[tokio::test]
    async fn a_poll_has_so_long_after_a_stop_and_no_longer_than_the_work() {
        let (given_up, long) = (CancellationToken::new(), Duration::from_secs(60));
        let ended = async {
            bounded(std::future::ready(()), long, given_up.clone()).await;
            bounded(std::future::pending(), Duration::from_millis(20), given_up.clone()).await;
            given_up.cancel();
            bounded(std::future::pending(), long, given_up.clone()).await;
        };
        assert!(tokio::time::timeout(Duration::from_secs(10), ended).await.is_ok());
    }
}
