//! One event as an entry of a SendMessageBatch.
//!
//! The body is the same CloudEvent that HTTP targets get; the attributes repeat what a consumer or a filter wants to read
//! without parsing it. SQS allows ten attributes, and there are no more.

use std::borrow::Cow;
use std::collections::HashMap;

use aws_sdk_sqs::error::BuildError;
use aws_sdk_sqs::types::{MessageAttributeValue, SendMessageBatchRequestEntry};
use sha2::{Digest as _, Sha256};
use tollgate_core::model::{Delivery, SqsTarget};

use crate::Parcel;
use crate::cloud_event::{self, EventContext};

/// Bytes of a message, body and attributes, that SQS takes: 1 MiB.
pub(super) const MESSAGE_MAX_BYTES: usize = 1024 * 1024;
/// Longest message group id.
const ID_MAX_CHARS: usize = 128;

/// A message that waits for its batch.
#[derive(Debug)]
#[cfg_attr(test, derive(Default))]
pub(super) struct SqsMessage {
    body: String,
    attributes: HashMap<String, MessageAttributeValue>,
    fifo: Option<Fifo>,
    /// Body and attributes, as SQS counts them.
    pub(super) bytes: usize,
}

#[derive(Debug)]
struct Fifo {
    group: String,
    deduplication: String,
}

impl SqsMessage {
    /// The message of a delivery.
    ///
    /// # Errors
    /// Where it is larger than SQS takes, or its payload is not text.
    pub(super) fn new(
        delivery: &Delivery,
        target: &SqsTarget,
        context: &EventContext,
    ) -> Result<Self, String> {
        let traceparent = context.traceparent(delivery);
        let body = String::from_utf8(cloud_event::write(delivery, context, traceparent.as_deref()))
            .map_err(|error| format!("payload: {error}"))?;
        let attributes = attributes(delivery, traceparent)?;
        let bytes =
            body.len() + attributes.iter().map(|(name, value)| attribute_bytes(name, value)).sum::<usize>();
        if bytes > MESSAGE_MAX_BYTES {
            return Err(format!(
                "payload: the message has {bytes} bytes; SQS takes at most {MESSAGE_MAX_BYTES}"
            ));
        }
        let fifo = target.queue_url.ends_with(".fifo").then(|| Fifo {
            group: group(&group_of(delivery, target)),
            deduplication: deduplication(delivery),
        });
        Ok(Self { body, attributes, fifo, bytes })
    }

    /// The message of a parcel.
    ///
    /// # Errors
    /// Where it is larger than SQS takes.
    pub(super) fn of_parcel(parcel: &Parcel, target: &SqsTarget) -> Result<Self, String> {
        let body = parcel.body.clone();
        let bytes = body.len();
        if bytes > MESSAGE_MAX_BYTES {
            return Err(format!("the message has {bytes} bytes; SQS takes at most {MESSAGE_MAX_BYTES}"));
        }
        let fifo = target.queue_url.ends_with(".fifo").then(|| Fifo {
            group: group(target.message_group_id.as_deref().unwrap_or(&parcel.group)),
            deduplication: parcel.id.clone(),
        });
        Ok(Self { body, attributes: HashMap::new(), fifo, bytes })
    }

    /// The entry with this id.
    pub(super) fn entry(&self, id: usize) -> Result<SendMessageBatchRequestEntry, BuildError> {
        let fifo = self.fifo.as_ref();
        SendMessageBatchRequestEntry::builder()
            .id(id.to_string())
            .message_body(&self.body)
            .set_message_attributes(Some(self.attributes.clone()))
            .set_message_group_id(fifo.map(|fifo| fifo.group.clone()))
            .set_message_deduplication_id(fifo.map(|fifo| fifo.deduplication.clone()))
            .build()
    }
}

/// Which events keep their order.
fn group_of<'a>(delivery: &'a Delivery, target: &'a SqsTarget) -> Cow<'a, str> {
    let key = Some(delivery.key()).filter(|key| target.group_by_key && !key.is_empty());
    match (key, &target.message_group_id) {
        (Some(key), _) => key.into(),
        (None, Some(group)) => group.into(),
        (None, None) => cloud_event::schedule_name(&delivery.spec).concat().into(),
    }
}

/// FIFO queues drop a message whose deduplication id they saw within five minutes. With the event's id alone, a
/// legitimate redelivery (the consumer failed, asked to come again, or lost its token) would vanish there while Tollgate
/// holds a token for it. With the attempt in it, only SQS's own repeats are dropped, and an event that is sent again
/// after an unclear call may be in the queue twice; consumers know it by its event id, as everywhere.
fn deduplication(delivery: &Delivery) -> String {
    format!("{}-{}", delivery.event_id, delivery.attempt)
}

/// A message group that SQS takes: at most 128 printable ASCII characters. Another text becomes its readable start and
/// a hash, so that different texts stay different groups.
fn group(text: &str) -> String {
    if !text.is_empty() && text.len() <= ID_MAX_CHARS && text.bytes().all(|b| b.is_ascii_graphic()) {
        return text.to_owned();
    }
    let start: String = text.chars().take(64).map(|c| if c.is_ascii_graphic() { c } else { '_' }).collect();
    let hash =
        Sha256::digest(text.as_bytes()).iter().take(16).map(|b| format!("{b:02x}")).collect::<String>();
    format!("{start}-{hash}")
}

fn attributes(
    delivery: &Delivery,
    traceparent: Option<String>,
) -> Result<HashMap<String, MessageAttributeValue>, String> {
    let spec = &*delivery.spec;
    let mut all = HashMap::with_capacity(10);
    let mut add = |name: &str, kind: &str, value: String| -> Result<(), String> {
        let value = MessageAttributeValue::builder().data_type(kind).string_value(value).build();
        all.insert(name.to_owned(), value.map_err(|error| format!("{name}: {error}"))?);
        Ok(())
    };
    add("tollgate-event-id", "String", delivery.event_id.to_string())?;
    add("tollgate-attempt", "Number", delivery.attempt.to_string())?;
    add("tollgate-schedule", "String", cloud_event::schedule_name(spec).concat())?;
    add("tollgate-run", "String", cloud_event::run_name(delivery).concat())?;
    add("tollgate-index", "Number", delivery.index.to_string())?;
    add("tollgate-count", "Number", delivery.events.to_string())?;
    add("tollgate-launch-time", "String", cloud_event::rfc3339(delivery.launch_us))?;
    if delivery.checks > 0 {
        add("tollgate-checks", "Number", delivery.checks.to_string())?;
    }
    // The body has the cursor in any case; an attribute cannot hold every text.
    let cursor = delivery.cursor.as_deref().filter(|cursor| is_attribute_text(cursor));
    // SQS takes ten. Where all others are there, the policy, which the body names as well, would be the eleventh.
    let is_full = delivery.checks > 0 && cursor.is_some() && traceparent.is_some();
    if let Some(policy) = spec.policy_id.as_ref().filter(|_| !is_full) {
        add("tollgate-policy", "String", cloud_event::policy_name(spec, policy).concat())?;
    }
    if let Some(cursor) = cursor {
        add("tollgate-cursor", "String", cursor.to_owned())?;
    }
    if let Some(traceparent) = traceparent {
        add("traceparent", "String", traceparent)?;
    }
    Ok(all)
}

/// Not empty, and only characters that SQS takes (those of XML 1.0).
fn is_attribute_text(text: &str) -> bool {
    let fits =
        |c| matches!(c, '\t' | '\n' | '\r' | ' '..='\u{d7ff}' | '\u{e000}'..='\u{fffd}' | '\u{10000}'..);
    !text.is_empty() && text.chars().all(fits)
}

fn attribute_bytes(name: &str, value: &MessageAttributeValue) -> usize {
    name.len() + value.data_type().len() + value.string_value().map_or(0, str::len)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn groups_fit_and_stay_different() {
        assert_eq!(group("namespaces/a/schedules/b"), "namespaces/a/schedules/b");
        for text in ["", "two words", "größe", &"x".repeat(129)] {
            let group = group(text);
            assert!(group.len() <= ID_MAX_CHARS && group.bytes().all(|b| b.is_ascii_graphic()), "{group}");
        }
        assert_ne!(group("two words"), group("two_words"));
        assert_ne!(group(&"x".repeat(129)), group(&"x".repeat(130)));
    }

    #[test]
    fn attributes_hold_only_what_sqs_takes() {
        assert!(is_attribute_text("page 7\tü 😀"));
        for text in ["", "a\u{1}", "\u{fffe}", "\u{0}"] {
            assert!(!is_attribute_text(text), "{text:?}");
        }
    }
}
