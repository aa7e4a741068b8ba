//! What is kept of each worker: who it says that it is, what it has been given, what it has accepted.
//!
//! In: events that a worker is given, and what it says of them. Out: what it has of each. Invariants: an event that takes room is
//! kept until the worker is done with it; of those that take none, no more than [`ROOMLESS_MAX`] are. Not here: what its words
//! change (`floor`).

use std::collections::{HashMap, VecDeque};

use tokio::sync::{mpsc, oneshot};

use super::book::{Labels, QueueKey};
use super::handing::{Handed, Outcome};

/// The most events of a worker that take no room of it: they are kept for what it may say of them late. For one more, the oldest
/// is forgotten.
pub(super) const ROOMLESS_MAX: usize = 100;

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

/// An attempt of an event that its worker was not done with when it was given the event once more. It takes a unit of its room.
#[derive(Debug)]
pub(super) struct Earlier {
    pub(super) attempt: u32,
    /// Where it is not, its room is there again once its time is over.
    pub(super) is_accepted: bool,
}

/// What a worker has of one event.
#[derive(Debug)]
pub(super) struct Held {
    /// The latest under which it was given the event.
    pub(super) attempt: u32,
    pub(super) since_us: i64,
    /// Whether that attempt takes a unit of its room: not where it was not accepted in time.
    pub(super) has_room: bool,
    /// Earlier attempts that it is not done with, but for those that it did not accept in time.
    pub(super) earlier: Vec<Earlier>,
    /// Hears whether it accepts the latest.
    pub(super) reply: Option<oneshot::Sender<Outcome>>,
}

impl Held {
    /// Whether it takes no room: the latest attempt was not accepted in time, nor was any other that the worker is not done with.
    fn is_roomless(&self) -> bool {
        !self.has_room && self.earlier.is_empty()
    }
}

#[derive(Debug)]
pub(super) struct Session {
    pub(super) profile: Profile,
    pub(super) to: mpsc::UnboundedSender<Box<Handed>>,
    pub(super) events: HashMap<String, Held>,
    /// The events that took no room any more, each with its latest attempt then, oldest first. Of some, something else has become
    /// since.
    roomless: VecDeque<(String, u32)>,
    /// Whether one of them has been forgotten: a word about an event that is not known may be about that one.
    pub(super) has_forgotten: bool,
    pub(super) connected_us: i64,
    pub(super) sign_us: i64,
    pub(super) given: u64,
}

impl Session {
    /// That of a worker that has come at `now_us` (monotonic).
    pub(super) fn new(profile: Profile, to: mpsc::UnboundedSender<Box<Handed>>, now_us: i64) -> Self {
        Self {
            profile,
            to,
            events: HashMap::new(),
            roomless: VecDeque::new(),
            has_forgotten: false,
            connected_us: now_us,
            sign_us: now_us,
            given: 0,
        }
    }

    /// To be called whenever an event may have come to take no room any more. Where there are too many such, the oldest is
    /// forgotten: its worker may never say anything of it.
    pub(super) fn note_roomless(&mut self, name: &str) {
        let Some(held) = self.events.get(name).filter(|held| held.is_roomless()) else { return };
        self.roomless.push_back((name.to_owned(), held.attempt));
        if self.roomless.len() > ROOMLESS_MAX
            && let Some((oldest, attempt)) = self.roomless.pop_front()
            && self.events.get(&oldest).is_some_and(|held| held.attempt == attempt && held.is_roomless())
        {
            self.events.remove(&oldest);
            self.has_forgotten = true;
        }
    }
}
