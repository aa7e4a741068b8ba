//! What a message is, wherever it comes from, and one that is to be sent.
//!
//! In: what a source hands out. Out: the same words for all of them; what only one kind of source knows is its [`Origin`].
//! Invariant: what comes back as a dead letter is the message as it came, byte for byte.

/// The most that a message may have; of SQS's, with its attributes.
pub(crate) const MESSAGE_MAX_BYTES: usize = 1_048_576;

/// What a header takes beside its name and its value.
#[cfg(feature = "kafka")]
const HEADER_BYTES: usize = 64;

/// A message, as it was received.
#[derive(Clone, Debug)]
pub(crate) struct Received {
    pub(crate) id: String,
    pub(crate) body: Vec<u8>,
    /// When it was sent, in milliseconds since the epoch; 0 where nobody says it.
    pub(crate) sent_ms: i64,
    /// How often it has been received, this time included; of a topic, how often it has come again in this process.
    pub(crate) times: u32,
    pub(crate) origin: Origin,
}

/// What only its source knows of a message.
#[derive(Clone, Debug)]
pub(crate) enum Origin {
    /// By what SQS knows it, and its group in a FIFO queue.
    Sqs { receipt: String, group: Option<String> },
    #[cfg(feature = "kafka")]
    Kafka(Box<Record>),
}

/// What a record of a topic has beside its value.
#[cfg(feature = "kafka")]
#[derive(Clone, Debug)]
pub(crate) struct Record {
    pub(crate) mark: Mark,
    pub(crate) key: Option<Vec<u8>>,
    pub(crate) headers: Vec<Header>,
    /// It has no value, which is not the same as an empty one.
    pub(crate) is_null: bool,
}

/// A header's name, and its value where it has one.
#[cfg(feature = "kafka")]
pub(crate) type Header = (String, Option<Vec<u8>>);

/// Where a record stands, and in which assignment of its partition it was read.
#[cfg(feature = "kafka")]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Mark {
    pub(crate) partition: i32,
    pub(crate) offset: i64,
    pub(crate) generation: u64,
}

impl Received {
    /// By what its queue knows it; a topic needs nothing of the kind.
    pub(crate) fn receipt(&self) -> &str {
        match &self.origin {
            Origin::Sqs { receipt, .. } => receipt,
            #[cfg(feature = "kafka")]
            Origin::Kafka(_) => "",
        }
    }

    /// What it takes in memory, nearly.
    pub(crate) fn bytes(&self) -> usize {
        match &self.origin {
            Origin::Sqs { .. } => self.body.len(),
            #[cfg(feature = "kafka")]
            Origin::Kafka(record) => {
                let header =
                    |(name, value): &Header| HEADER_BYTES + name.len() + value.as_ref().map_or(0, Vec::len);
                let headers: usize = record.headers.iter().map(header).sum();
                self.body.len() + record.key.as_ref().map_or(0, Vec::len) + headers
            }
        }
    }
}

/// A message that is to be sent.
#[derive(Clone, Debug)]
pub(crate) struct Outgoing {
    pub(crate) body: Vec<u8>,
    /// Names and texts: attributes of SQS, headers of Kafka.
    pub(crate) attributes: Vec<(&'static str, String)>,
    pub(crate) envelope: Envelope,
}

/// What only the kind of its way needs.
#[derive(Clone, Debug)]
pub(crate) enum Envelope {
    /// For FIFO queues: who is behind whom, and what is the same.
    Sqs { group: String, sameness: String },
    #[cfg(feature = "kafka")]
    Kafka { key: Option<Vec<u8>>, headers: Vec<Header>, is_null: bool },
}

impl Envelope {
    /// That of an answer to a message of a queue of this name.
    pub(crate) fn of_answer(message: &Received, queue: &str) -> Self {
        match &message.origin {
            Origin::Sqs { group, .. } => Self::Sqs {
                group: group.clone().unwrap_or_else(|| queue.to_owned()),
                sameness: message.id.clone(),
            },
            #[cfg(feature = "kafka")]
            Origin::Kafka(record) => {
                Self::Kafka { key: record.key.clone(), headers: Vec::new(), is_null: false }
            }
        }
    }

    /// That of the message itself, as a dead letter.
    pub(crate) fn of_dead_letter(message: &Received, queue: &str) -> Self {
        match &message.origin {
            Origin::Sqs { .. } => Self::of_answer(message, queue),
            #[cfg(feature = "kafka")]
            Origin::Kafka(record) => Self::Kafka {
                key: record.key.clone(),
                headers: record.headers.clone(),
                is_null: record.is_null,
            },
        }
    }
}

/// Why a message was not sent.
#[derive(Debug)]
pub(crate) enum NotSent {
    /// It is tried again.
    Later(String),
    /// The queue takes no such message.
    Never(String),
}
