//! As much of SQS's JSON protocol as a sender of SendMessageBatch needs.

use std::borrow::Cow;

use bytes::Bytes;
use serde::Deserialize;

use super::event::Seen;

/// The sender may check it, so it must have the right form; nobody pays for the right value.
const NO_MD5: &str = "00000000000000000000000000000000";

/// One SendMessageBatch.
#[derive(Debug, Deserialize)]
pub(super) struct Batch<'a> {
    #[serde(rename = "Entries", borrow)]
    entries: Vec<Entry<'a>>,
}

#[derive(Debug, Deserialize)]
struct Entry<'a> {
    #[serde(rename = "Id", borrow)]
    id: Cow<'a, str>,
    #[serde(rename = "MessageBody", borrow)]
    body: Cow<'a, str>,
}

impl<'a> Batch<'a> {
    pub(super) fn read(body: &'a [u8]) -> Option<Self> {
        serde_json::from_slice(body).ok()
    }

    /// The events in it.
    pub(super) fn events(&self) -> impl Iterator<Item = Seen<'_>> {
        self.entries.iter().filter_map(|entry| Seen::find(entry.body.as_bytes()))
    }

    /// All were taken.
    pub(super) fn answer(&self) -> Bytes {
        let taken = self.entries.iter().map(|entry| {
            format!(r#"{{"Id":"{0}","MessageId":"{0}","MD5OfMessageBody":"{NO_MD5}"}}"#, entry.id)
        });
        let taken: Vec<String> = taken.collect();
        Bytes::from(format!(r#"{{"Successful":[{}],"Failed":[]}}"#, taken.join(",")))
    }
}
