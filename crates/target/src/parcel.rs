//! What is sent that is no event: the messages of alerts.

use uuid::Uuid;

/// A message that is no event: nobody holds a token for it, and it is sent by nobody's leave.
#[derive(Clone, Debug)]
pub struct Parcel {
    /// The namespace that pays for it.
    pub namespace: String,
    /// Whose it is; what is sealed in its target is bound to this.
    pub sender: Uuid,
    /// The same at each attempt.
    pub id: String,
    /// The group in a FIFO queue.
    pub group: String,
    /// The media type of the body.
    pub content_type: &'static str,
    /// What is sent.
    pub body: String,
}
