//! Speaks with SQS: receives, hides, deletes, sends. One call each; what fails is told in a sentence.

use std::time::Duration;

use aws_sdk_sqs::Client;
use aws_sdk_sqs::error::{DisplayErrorContext, ProvideErrorMetadata, SdkError};
use aws_sdk_sqs::types::{
    ChangeMessageVisibilityBatchRequestEntry, DeleteMessageBatchRequestEntry, MessageAttributeValue,
    MessageSystemAttributeName, QueueAttributeName, SendMessageBatchRequestEntry,
};

use crate::fault::short;
use crate::message::{Envelope, MESSAGE_MAX_BYTES, NotSent, Origin, Outgoing, Received};

/// The most messages of a call.
pub(crate) const MESSAGES_MAX: usize = 10;
/// How long SQS waits for messages. A stop waits as long: what comes for a call that nobody listens to stays hidden from others.
pub(crate) const WAIT: Duration = Duration::from_secs(5);
/// The longest that a message may be hidden.
pub(crate) const HIDDEN_MAX: Duration = Duration::from_secs(12 * 3_600 - 60);

impl Envelope {
    /// Who is behind whom, and what is the same.
    fn of_fifo(&self) -> Option<(&str, &str)> {
        match self {
            Self::Sqs { group, sameness } => Some((group, sameness)),
            #[cfg(feature = "kafka")]
            Self::Kafka { .. } => None,
        }
    }
}

impl Outgoing {
    /// What counts of it. Names, types and values do, and so does what is around them in some places.
    pub(crate) fn bytes(&self) -> usize {
        let attributes = self.attributes.iter().map(|(name, value)| name.len() + value.len() + 16);
        self.body.len() + attributes.sum::<usize>()
    }
}

/// A queue.
#[derive(Clone, Debug)]
pub(crate) struct Queue {
    client: Client,
    url: String,
}

type Failed = String;

fn told<E, R>(error: &SdkError<E, R>) -> String
where
    E: std::error::Error + ProvideErrorMetadata + 'static,
    R: std::fmt::Debug,
{
    let said = match (error.code(), error.message()) {
        (Some(code), Some(message)) => format!("{code}: {message}"),
        (Some(code), None) => code.to_owned(),
        _ => DisplayErrorContext(error).to_string(),
    };
    short(&said, 300)
}

/// Seconds, at least one less than nothing hidden.
fn seconds(span: Duration) -> i32 {
    i32::try_from(span.min(HIDDEN_MAX).as_secs()).unwrap_or(i32::MAX)
}

fn text(value: &str) -> Option<MessageAttributeValue> {
    MessageAttributeValue::builder().data_type("String").string_value(value).build().ok()
}

impl Queue {
    pub(crate) fn new(client: Client, url: &str) -> Self {
        Self { client, url: url.to_owned() }
    }

    fn is_fifo(&self) -> bool {
        self.url.ends_with(".fifo")
    }

    /// Waits for messages, and hides them for so long.
    pub(crate) async fn receive(&self, most: usize, visibility: Duration) -> Result<Vec<Received>, Failed> {
        let most = i32::try_from(most.min(MESSAGES_MAX)).unwrap_or(1);
        let call = self.client.receive_message().queue_url(&self.url).max_number_of_messages(most);
        let call = call.wait_time_seconds(seconds(WAIT)).visibility_timeout(seconds(visibility));
        let call = call.message_system_attribute_names(MessageSystemAttributeName::All);
        let answer = call.send().await.map_err(|error| told(&error))?;
        let read = |message: aws_sdk_sqs::types::Message| {
            let attribute = |name| message.attributes.as_ref().and_then(|all| all.get(&name)).cloned();
            let number = |name| attribute(name).and_then(|text: String| text.parse::<i64>().ok());
            Some(Received {
                sent_ms: number(MessageSystemAttributeName::SentTimestamp).unwrap_or_default(),
                times: number(MessageSystemAttributeName::ApproximateReceiveCount)
                    .and_then(|times| u32::try_from(times).ok())
                    .unwrap_or(1),
                origin: Origin::Sqs {
                    group: attribute(MessageSystemAttributeName::MessageGroupId),
                    receipt: message.receipt_handle?,
                },
                id: message.message_id.unwrap_or_default(),
                body: message.body.unwrap_or_default().into_bytes(),
            })
        };
        Ok(answer.messages.unwrap_or_default().into_iter().filter_map(read).collect())
    }

    /// Deletes messages by their receipts, ten at most. Gives the places of those that were not deleted.
    pub(crate) async fn delete(&self, receipts: &[String]) -> Result<Vec<usize>, Failed> {
        let mut entries = Vec::new();
        for (at, receipt) in receipts.iter().enumerate() {
            let entry = DeleteMessageBatchRequestEntry::builder().id(at.to_string()).receipt_handle(receipt);
            entries.push(entry.build().map_err(|error| error.to_string())?);
        }
        let call = self.client.delete_message_batch().queue_url(&self.url).set_entries(Some(entries));
        let answer = call.send().await.map_err(|error| told(&error))?;
        // One that the queue no longer knows is as good as deleted, or comes again.
        let again = answer.failed.iter().filter(|failed| !failed.sender_fault);
        Ok(again.filter_map(|failed| failed.id.parse().ok()).collect())
    }

    /// Hides messages for so long from now on, ten at most. Gives the places of those that were not hidden.
    pub(crate) async fn hide(&self, messages: &[(String, Duration)]) -> Result<Vec<usize>, Failed> {
        let mut entries = Vec::new();
        for (at, (receipt, span)) in messages.iter().enumerate() {
            let entry = ChangeMessageVisibilityBatchRequestEntry::builder().id(at.to_string());
            let entry = entry.receipt_handle(receipt).visibility_timeout(seconds(*span));
            entries.push(entry.build().map_err(|error| error.to_string())?);
        }
        let call = self.client.change_message_visibility_batch().queue_url(&self.url);
        let answer = call.set_entries(Some(entries)).send().await.map_err(|error| told(&error))?;
        Ok(answer.failed.iter().filter_map(|failed| failed.id.parse().ok()).collect())
    }

    /// Whether it is there, and may be used.
    pub(crate) async fn look(&self) -> Result<(), Failed> {
        let call = self.client.get_queue_attributes().queue_url(&self.url);
        let call = call.attribute_names(QueueAttributeName::QueueArn);
        call.send().await.map(drop).map_err(|error| told(&error))
    }

    /// Sends messages, no more in a call than one may have. Says of each whether it was sent.
    pub(crate) async fn send(&self, messages: &[Outgoing]) -> Vec<Result<(), NotSent>> {
        let mut sent = Vec::new();
        let sizes: Vec<usize> = messages.iter().map(Outgoing::bytes).collect();
        for count in calls(&sizes) {
            let from = sent.len();
            let some = messages.get(from..from + count).unwrap_or_default();
            let all = self.send_call(some).await;
            if count > 1 && all.iter().all(|one| matches!(one, Err(NotSent::Never(_)))) {
                // It may be only one of them that spoils the call.
                for one in some {
                    sent.extend(self.send_call(std::slice::from_ref(one)).await);
                }
            } else {
                sent.extend(all);
            }
        }
        sent
    }

    async fn send_call(&self, messages: &[Outgoing]) -> Vec<Result<(), NotSent>> {
        let mut entries = Vec::new();
        for (at, message) in messages.iter().enumerate() {
            // What came as text is text; what is not never came from SQS.
            let body = String::from_utf8_lossy(&message.body);
            let mut entry = SendMessageBatchRequestEntry::builder().id(at.to_string()).message_body(body);
            for (name, value) in &message.attributes {
                if let Some(value) = text(value) {
                    entry = entry.message_attributes(*name, value);
                }
            }
            if self.is_fifo()
                && let Some((group, sameness)) = message.envelope.of_fifo()
            {
                entry = entry.message_group_id(group).message_deduplication_id(sameness);
            }
            match entry.build() {
                Ok(entry) => entries.push(entry),
                Err(error) => return failed(messages.len(), || NotSent::Never(error.to_string())),
            }
        }
        let call = self.client.send_message_batch().queue_url(&self.url).set_entries(Some(entries));
        let answer = match call.send().await {
            Ok(answer) => answer,
            Err(error) => {
                let said = told(&error);
                let never = is_too_long(error.code().unwrap_or_default(), &said);
                return failed(messages.len(), || {
                    if never { NotSent::Never(said.clone()) } else { NotSent::Later(said.clone()) }
                });
            }
        };
        let mut sent: Vec<Result<(), NotSent>> =
            failed(messages.len(), || NotSent::Later("no answer".to_owned()));
        for entry in &answer.successful {
            if let Some(place) = entry.id.parse::<usize>().ok().and_then(|at| sent.get_mut(at)) {
                *place = Ok(());
            }
        }
        for entry in &answer.failed {
            let said =
                short(&format!("{}: {}", entry.code, entry.message.as_deref().unwrap_or_default()), 300);
            if let Some(place) = entry.id.parse::<usize>().ok().and_then(|at| sent.get_mut(at)) {
                let never = entry.sender_fault && is_too_long(&entry.code, &said);
                *place = Err(if never { NotSent::Never(said) } else { NotSent::Later(said) });
            }
        }
        sent
    }
}

/// How many of the messages of these sizes go in each call.
fn calls(sizes: &[usize]) -> Vec<usize> {
    let (mut calls, mut bytes): (Vec<usize>, usize) = (Vec::new(), 0);
    for size in sizes {
        bytes += size;
        match calls.last_mut() {
            Some(count) if bytes <= MESSAGE_MAX_BYTES && *count < MESSAGES_MAX => *count += 1,
            _ => {
                calls.push(1);
                bytes = *size;
            }
        }
    }
    calls
}

fn failed(count: usize, why: impl Fn() -> NotSent) -> Vec<Result<(), NotSent>> {
    (0..count).map(|_| Err(why())).collect()
}

/// Whether a refusal is about the message itself, which will be the same the next time.
fn is_too_long(code: &str, said: &str) -> bool {
    let about_it =
        ["BatchRequestTooLong", "InvalidParameterValue", "InvalidMessageContents", "MessageTooLong"];
    about_it.iter().any(|word| code.contains(word)) || said.contains("longer than")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_that_is_too_long_will_be_so_again() {
        assert!(is_too_long("AWS.SimpleQueueService.BatchRequestTooLong", ""));
        assert!(is_too_long("InvalidParameterValue", "must be shorter"));
        assert!(!is_too_long("AWS.SimpleQueueService.NonExistentQueue", "no such queue"));
        assert!(!is_too_long("ThrottlingException", ""));
    }

    #[test]
    fn a_call_has_no_more_than_it_may_have() {
        const BIG: usize = MESSAGE_MAX_BYTES;
        assert_eq!(calls(&[]), [0; 0]);
        assert_eq!(calls(&[10; 12]), [10, 2]);
        assert_eq!(calls(&[BIG, 1, BIG - 1, 1, BIG + 5, 7]), [1, 2, 1, 1, 1]);
    }

    #[test]
    fn nothing_is_hidden_for_longer_than_sqs_allows() {
        assert_eq!(seconds(Duration::from_secs(7)), 7);
        assert_eq!(seconds(Duration::from_secs(100_000)), 43_140);
    }
}
