//! As much of SQS's JSON protocol as a sender of SendMessageBatch needs.

use std::borrow::Cow;

use hyper::body::Bytes;
use serde::Deserialize;

/// The sender may check it, so it must have the right form; nobody pays for the right value.
const NO_MD5: &str = "00000000000000000000000000000000";

/// One SendMessageBatch.
#[derive(Debug, Deserialize)]
pub struct Batch<'a> {
    /// Its messages.
    #[serde(rename = "Entries", borrow)]
    pub entries: Vec<Entry<'a>>,
}

/// A message of a batch.
#[derive(Debug, Deserialize)]
pub struct Entry<'a> {
    /// By which the answer names it.
    #[serde(rename = "Id", borrow)]
    pub id: Cow<'a, str>,
    /// The event.
    #[serde(rename = "MessageBody", borrow)]
    pub body: Cow<'a, str>,
}

impl<'a> Batch<'a> {
    /// The batch in a body; none where it is something else.
    pub fn read(body: &'a [u8]) -> Option<Self> {
        serde_json::from_slice(body).ok()
    }
}

/// The answer that says which messages were taken, and which were not.
pub fn answer<'a>(
    taken: impl IntoIterator<Item = &'a Entry<'a>>,
    failed: impl IntoIterator<Item = &'a Entry<'a>>,
) -> Bytes {
    let taken = taken
        .into_iter()
        .map(|entry| format!(r#"{{"Id":"{0}","MessageId":"{0}","MD5OfMessageBody":"{NO_MD5}"}}"#, entry.id));
    let failed = failed.into_iter().map(|Entry { id, .. }| {
        format!(r#"{{"Id":"{id}","SenderFault":false,"Code":"InternalError","Message":"not now"}}"#)
    });
    let (taken, failed): (Vec<String>, Vec<String>) = (taken.collect(), failed.collect());
    Bytes::from(format!(r#"{{"Successful":[{}],"Failed":[{}]}}"#, taken.join(","), failed.join(",")))
}
