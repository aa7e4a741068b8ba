//! A consumer that reads an SQS queue by long poll.

use std::collections::HashSet;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use aws_sdk_sqs::Client;
use aws_sdk_sqs::types::{DeleteMessageBatchRequestEntry, Message};
use tokio::task::JoinHandle;

use crate::consumer::release::Releaser;
use crate::consumer::{event, work_on};
use crate::{Arrival, Conduct, Emulator, Link, Notes, Releases};

/// A consumer; it ends when dropped. [`Conduct::Answer`] and the like mean that it forgets the message.
pub struct SqsConsumer {
    pollers: Vec<JoinHandle<()>>,
    /// What it has seen.
    pub notes: Notes,
}

impl SqsConsumer {
    /// Reads a queue with some pollers, and does with each message as the script says.
    pub fn start(
        emulator: &Emulator,
        queue_url: &str,
        link: Link,
        how: Releases,
        script: impl Fn(&Arrival) -> Conduct + Clone + Send + Sync + 'static,
    ) -> Self {
        let notes = Notes::default();
        let releaser = Releaser::new(how, link, notes.clone());
        let seen = Seen::default();
        let poller = || {
            let desk = Desk {
                client: emulator.client(),
                queue_url: queue_url.to_owned(),
                notes: notes.clone(),
                releaser: releaser.clone(),
                seen: seen.clone(),
            };
            tokio::spawn(poll(desk, script.clone()))
        };
        let pollers = (0..2).map(|_| poller()).collect();
        Self { pollers, notes }
    }
}

impl Drop for SqsConsumer {
    fn drop(&mut self) {
        self.pollers.iter().for_each(JoinHandle::abort);
        if std::thread::panicking() {
            self.notes.show();
        }
    }
}

/// Ids of messages that came. A queue may give one message twice, to two pollers at once above all; that is the
/// queue's own repetition. What is sent twice has two ids.
type Seen = Arc<Mutex<HashSet<String>>>;

struct Desk {
    client: Client,
    queue_url: String,
    notes: Notes,
    releaser: Releaser,
    seen: Seen,
}

async fn poll(desk: Desk, script: impl Fn(&Arrival) -> Conduct) {
    loop {
        let receive = desk.client.receive_message().queue_url(&desk.queue_url).max_number_of_messages(10);
        let received = match receive.wait_time_seconds(1).message_attribute_names("All").send().await {
            Ok(received) => received,
            // As consumers do: what it would have received comes again.
            Err(error) => {
                desk.notes.trouble(format!("receive: {error:?}"));
                tokio::time::sleep(Duration::from_millis(200)).await;
                continue;
            }
        };
        let mut delete = Vec::new();
        for (at, message) in received.messages().iter().enumerate() {
            let entry = DeleteMessageBatchRequestEntry::builder().id(at.to_string());
            delete.push(entry.set_receipt_handle(message.receipt_handle.clone()).build().unwrap());
            if desk.seen.lock().unwrap().insert(message.message_id().unwrap_or_default().to_owned()) {
                desk.take(message, &script);
            }
        }
        if !delete.is_empty() {
            let deleted =
                desk.client.delete_message_batch().queue_url(&desk.queue_url).set_entries(Some(delete));
            if let Err(error) = deleted.send().await {
                desk.notes.problem(format!("delete: {error:?}"));
            }
        }
    }
}

impl Desk {
    fn take(&self, message: &Message, script: impl Fn(&Arrival) -> Conduct) {
        let arrival = match event::read(message.body().unwrap_or_default().as_bytes()) {
            Ok(arrival) => arrival,
            Err(problem) => return self.notes.problem(problem),
        };
        let attributes = message.message_attributes();
        let id = attributes.and_then(|all| all.get("tollgate-event-id")?.string_value());
        if id != Some(&arrival.event_id) {
            self.notes.problem(format!("attribute tollgate-event-id is {id:?}, id {:?}", arrival.event_id));
        }
        let conduct = script(&arrival);
        let begins = self.notes.arrived(&arrival, &conduct);
        if let (Conduct::Take(work), true) = (conduct, begins) {
            tokio::spawn(work_on(arrival.event_id, work, self.notes.clone(), self.releaser.clone()));
        }
    }
}
