//! An event as Tollgate delivers it: a CloudEvents 1.0 document.

use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::value::RawValue;
use serde_json::{Map, Value};

/// One event.
#[derive(Clone, Debug, Deserialize)]
#[non_exhaustive]
pub struct Event {
    /// The same on every delivery.
    pub id: String,
    /// 1 for the first delivery; it grows.
    #[serde(default = "first")]
    pub attempt: u32,
    /// When the event fell due, as RFC 3339 writes it.
    #[serde(default)]
    pub time: String,
    /// `namespaces/{namespace}/schedules/{schedule}`.
    #[serde(default)]
    pub schedule: String,
    /// `namespaces/{namespace}/runs/{run}`.
    #[serde(default)]
    pub run: String,
    /// `namespaces/{namespace}/policies/{policy}`.
    pub policy: Option<String>,
    /// Counts from 0 to `count` - 1.
    #[serde(default)]
    pub index: u32,
    /// The number of events of the run.
    #[serde(default)]
    pub count: u32,
    /// Whose event it is.
    pub key: Option<String>,
    /// What an earlier run left.
    pub cursor: Option<String>,
    /// How often the event has come again as its consumer asked.
    #[serde(default)]
    pub checks: u32,
    /// `explicit`, or `on_response` where the token comes back as soon as the event is taken; by HTTP, with the answer.
    #[serde(default)]
    pub release: String,
    /// Leads to the trace of the event.
    pub traceparent: Option<String>,
    /// The payload, as it was written.
    pub data: Option<Box<RawValue>>,
    /// Every member of the document, also those above.
    #[serde(skip)]
    pub attributes: Map<String, Value>,
}

fn first() -> u32 {
    1
}

impl Event {
    /// Reads a document.
    pub(crate) fn parse(text: &[u8]) -> Result<Self, String> {
        let wrong = |error: serde_json::Error| format!("event: it cannot be read: {error}");
        let mut event: Self = serde_json::from_slice(text).map_err(wrong)?;
        if event.id.is_empty() {
            return Err("event: id: missing".into());
        }
        event.attempt = event.attempt.max(1);
        event.attributes = serde_json::from_slice(text).map_err(wrong)?;
        Ok(event)
    }

    /// The payload as a value; where there is none, that of `null`.
    ///
    /// # Errors
    /// A payload of another form.
    pub fn decode<T: DeserializeOwned>(&self) -> Result<T, serde_json::Error> {
        serde_json::from_str(self.data.as_deref().map_or("null", RawValue::get))
    }

    /// Whether the token comes back without a release.
    pub(crate) fn is_on_response(&self) -> bool {
        self.release == "on_response"
    }
}

/// The member `release` of a document of which others cannot be read; empty where it cannot be read either.
pub(crate) fn release_of(text: &[u8]) -> String {
    let document: Value = serde_json::from_slice(text).unwrap_or_default();
    document["release"].as_str().unwrap_or_default().to_owned()
}
