//! One event as a Kafka record, by the CloudEvents binding for Kafka.
//!
//! In: a delivery and its target. Out: key, headers and value. Structured: the value is the same document that HTTP targets
//! get. Binary: the value is the event's data, and each attribute a header `ce_…`, in UTF-8. A value is never absent: a record
//! without one deletes its key in a compacted topic.

use std::borrow::Cow;

use tollgate_core::model::{ContentMode, Delivery, KafkaTarget};

use crate::cloud_event::{self, Attributes, EventContext};

/// Bytes of a record, with its key and headers. Brokers take some more by default.
pub(super) const RECORD_MAX_BYTES: usize = 1_000_000;
/// Says of a value what it is.
const CONTENT_TYPE: &str = "content-type";

/// What is handed to a producer.
#[derive(Debug)]
pub(super) struct Record {
    pub(super) topic: String,
    pub(super) key: Option<String>,
    pub(super) headers: Vec<(String, String)>,
    pub(super) value: Vec<u8>,
}

impl Record {
    /// The record of a delivery.
    ///
    /// # Errors
    /// Where it is larger than brokers take.
    pub(super) fn new(
        delivery: &Delivery,
        target: &KafkaTarget,
        context: &EventContext,
    ) -> Result<Self, String> {
        let traceparent = context.traceparent(delivery);
        let mut headers = Headers(target.headers.clone().into_iter().collect());
        let value = match target.content_mode {
            ContentMode::Structured => {
                headers.0.push((CONTENT_TYPE.to_owned(), cloud_event::CONTENT_TYPE.to_owned()));
                cloud_event::write(delivery, context, traceparent.as_deref())
            }
            ContentMode::Binary => {
                cloud_event::write_attributes(delivery, context, traceparent.as_deref(), &mut headers);
                let data = cloud_event::data(delivery).into_owned().into_bytes();
                // There is nothing of which it would say what it is.
                headers.0.retain(|(name, _)| !data.is_empty() || name != CONTENT_TYPE);
                data
            }
        };
        let record = Self {
            topic: target.topic.clone(),
            key: target.key_of(|name| named(delivery, name)),
            headers: headers.0,
            value,
        };
        match record.bytes() {
            bytes if bytes > RECORD_MAX_BYTES => Err(format!(
                "payload: the record has {bytes} bytes; at most {RECORD_MAX_BYTES} are sent to Kafka"
            )),
            _ => Ok(record),
        }
    }

    fn bytes(&self) -> usize {
        let headers = self.headers.iter().map(|(name, value)| name.len() + value.len()).sum::<usize>();
        headers + self.key.as_deref().map_or(0, str::len) + self.value.len()
    }
}

/// What an event has for a name in the template of keys.
fn named<'a>(delivery: &'a Delivery, name: &str) -> Cow<'a, str> {
    match name {
        "key" => delivery.key().into(),
        "event" => delivery.event_id.as_str().into(),
        "run" => delivery.event_id.run().into(),
        "schedule" => delivery.spec.schedule_id.as_str().into(),
        "namespace" => delivery.spec.namespace.as_str().into(),
        "index" => delivery.index.to_string().into(),
        // It was refused when the schedule was written.
        _ => "".into(),
    }
}

/// The headers of a record in binary mode.
struct Headers(Vec<(String, String)>);

impl Attributes for Headers {
    fn number(&mut self, name: &'static str, value: u32) {
        self.0.push((format!("ce_{name}"), value.to_string()));
    }

    fn text<const PARTS: usize>(&mut self, name: &'static str, parts: [&str; PARTS]) {
        // The binding has one attribute stand where transports expect it.
        let name = if name == "datacontenttype" { CONTENT_TYPE.to_owned() } else { format!("ce_{name}") };
        self.0.push((name, parts.concat()));
    }
}
