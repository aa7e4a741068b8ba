//! What is kept of each worker: who it says that it is, what it has been given, what it has accepted.

use std::collections::HashMap;

use tokio::sync::{mpsc, oneshot};

use super::book::{Labels, QueueKey};
use super::handing::{Handed, Outcome};

/// Who a worker says that it is.
#[derive(Clone, Debug)]
pub(super) struct Profile {
    pub(super) queue: QueueKey,
    pub(super) labels: Labels,
    pub(super) name: String,
    pub(super) polls: bool,
}

/// Why a worker is not taken in.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum Refused {
    /// There are too many.
    #[error(
        "too many workers of this namespace are connected to this process; try again, or connect to another"
    )]
    TooMany,
    /// They differ too much.
    #[error("the workers of this queue have {0} different sets of labels already")]
    TooManyKinds(usize),
    /// The process is about to end.
    #[error("this process is about to end; connect to another")]
    Ending,
}

/// What a worker has of one event.
#[derive(Debug)]
pub(super) struct Held {
    /// The latest under which it was given the event.
    pub(super) attempt: u32,
    pub(super) since_us: i64,
    /// Whether that attempt takes a unit of its room: not where it was not accepted in time.
    pub(super) has_room: bool,
    /// Earlier attempts that it is not done with. Each takes a unit of its room.
    pub(super) earlier: Vec<u32>,
    /// Hears whether it accepts the latest.
    pub(super) reply: Option<oneshot::Sender<Outcome>>,
}

#[derive(Debug)]
pub(super) struct Session {
    pub(super) profile: Profile,
    pub(super) to: mpsc::UnboundedSender<Box<Handed>>,
    pub(super) events: HashMap<String, Held>,
    pub(super) connected_us: i64,
    pub(super) sign_us: i64,
    pub(super) given: u64,
}
