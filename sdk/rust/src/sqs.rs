//! Takes events from an SQS queue. A message is hidden while its event is worked on, and deleted once the release was answered.
//! One whose event needs no release is deleted after the work, and shows again where that failed.

use std::fmt::Display;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use aws_sdk_sqs::Client;
use aws_sdk_sqs::error::DisplayErrorContext;
use aws_sdk_sqs::types::Message;

use crate::backoff::Backoff;
use crate::engine::{Delivery, Engine, Held, Place};
use crate::event::Event;

/// The most messages of an answer.
const MESSAGES_MAX: usize = 10;
/// The longest wait of SQS.
const WAIT_S: i32 = 20;
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
            let receive = self.client.receive_message().queue_url(&self.queue_url).wait_time_seconds(WAIT_S);
            let answer = tokio::select! {
                biased;
                answer = receive.max_number_of_messages(count).send() => answer,
                // What is under way shows again when its visibility ends.
                () = engine.taking.cancelled() => break,
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
