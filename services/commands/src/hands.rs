//! What of one queue is in hand: how much there may be, and how long it stays hidden from others.
//!
//! Invariants: no more messages are in hand than are allowed, and no more bytes than [`BYTES_MAX`] and what receivers bring in
//! that had begun before; a message stays hidden until its place is given back.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::Instant;
use tollgate_clock::instant_now;

use crate::message::Received;

/// The most messages that are asked for at once: as many as SQS gives.
pub(crate) const MESSAGES_MAX: usize = 10;

/// The most bytes of messages of one queue, before no more are asked for.
pub(crate) const BYTES_MAX: usize = 32 * 1024 * 1024;

/// The messages of one queue that are in hand.
#[derive(Debug)]
pub(crate) struct Hands {
    most: usize,
    inner: Mutex<Inner>,
    freed: Notify,
}

#[derive(Debug, Default)]
struct Inner {
    /// Asked for, and not received yet.
    reserved: usize,
    bytes: usize,
    next: u64,
    messages: BTreeMap<u64, Held>,
}

#[derive(Debug)]
struct Held {
    receipt: String,
    bytes: usize,
    sent_ms: i64,
    hidden_at: Instant,
}

/// Room for some messages that are asked for.
#[derive(Debug)]
pub(crate) struct Room {
    hands: Arc<Hands>,
    pub(crate) count: usize,
}

/// A message that has come, in its place.
pub(crate) type Arrived = (Received, Place);

/// A message's place; given back when it is dropped.
#[derive(Debug)]
pub(crate) struct Place {
    hands: Arc<Hands>,
    number: u64,
}

impl Hands {
    pub(crate) fn new(most: usize) -> Arc<Self> {
        Arc::new(Self { most, inner: Mutex::default(), freed: Notify::new() })
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Room for one to ten messages, as soon as there is some.
    pub(crate) async fn room(self: &Arc<Self>) -> Room {
        loop {
            let freed = self.freed.notified();
            if let Some(room) = self.room_now() {
                return room;
            }
            freed.await;
        }
    }

    /// The same, where there is some now.
    pub(crate) fn room_now(self: &Arc<Self>) -> Option<Room> {
        let mut inner = self.lock();
        let free = self.most.saturating_sub(inner.messages.len() + inner.reserved);
        if free == 0 || inner.bytes >= BYTES_MAX {
            return None;
        }
        let count = free.min(MESSAGES_MAX);
        inner.reserved += count;
        Some(Room { hands: Arc::clone(self), count })
    }

    /// Room for one that has come unasked, whatever is in hand.
    #[cfg(feature = "kafka")]
    pub(crate) fn room_for_one(self: &Arc<Self>) -> Room {
        self.lock().reserved += 1;
        Room { hands: Arc::clone(self), count: 1 }
    }

    /// Whether no more may be asked for, by their bytes.
    #[cfg(feature = "kafka")]
    pub(crate) fn is_heavy(&self) -> bool {
        self.lock().bytes >= BYTES_MAX
    }

    /// How many messages there are.
    pub(crate) fn count(&self) -> usize {
        self.lock().messages.len()
    }

    /// When the oldest of them was sent, in milliseconds since the epoch.
    pub(crate) fn oldest_ms(&self) -> Option<i64> {
        self.lock().messages.values().map(|held| held.sent_ms).min()
    }

    /// Those that have been hidden for that long, or all: their numbers and receipts.
    pub(crate) fn due(&self, since: Duration) -> Vec<(u64, String)> {
        let now = instant_now();
        let inner = self.lock();
        let due = inner.messages.iter().filter(|(_, held)| now.duration_since(held.hidden_at) >= since);
        due.map(|(number, held)| (*number, held.receipt.clone())).collect()
    }

    /// One has been hidden anew, at this moment.
    pub(crate) fn hidden(&self, number: u64, at: Instant) {
        if let Some(held) = self.lock().messages.get_mut(&number) {
            held.hidden_at = at;
        }
    }
}

impl Room {
    /// A place for a message that has come.
    pub(crate) fn take(&mut self, message: &Received, hidden_at: Instant) -> Place {
        let mut inner = self.hands.lock();
        self.count = self.count.saturating_sub(1);
        inner.reserved = inner.reserved.saturating_sub(1);
        let bytes = message.bytes();
        inner.bytes += bytes;
        let number = inner.next;
        inner.next += 1;
        let held = Held { receipt: message.receipt().to_owned(), bytes, sent_ms: message.sent_ms, hidden_at };
        inner.messages.insert(number, held);
        Place { hands: Arc::clone(&self.hands), number }
    }
}

impl Drop for Room {
    fn drop(&mut self) {
        let mut inner = self.hands.lock();
        inner.reserved = inner.reserved.saturating_sub(self.count);
        drop(inner);
        self.hands.freed.notify_waiters();
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut inner = self.hands.lock();
        if let Some(held) = inner.messages.remove(&self.number) {
            inner.bytes = inner.bytes.saturating_sub(held.bytes);
        }
        drop(inner);
        self.hands.freed.notify_waiters();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::message::Origin;

    fn message(bytes: usize) -> Received {
        let origin = Origin::Sqs { receipt: "r".to_owned(), group: None };
        Received { id: "m".to_owned(), body: vec![b'x'; bytes], sent_ms: 5, times: 1, origin }
    }

    async fn has_room(hands: &Arc<Hands>) -> bool {
        tokio::time::timeout(Duration::from_millis(20), hands.room()).await.is_ok()
    }

    #[tokio::test]
    async fn no_more_are_in_hand_than_may_be() {
        let hands = Hands::new(12);
        let mut first = hands.room().await;
        let second = hands.room().await;
        assert_eq!((first.count, second.count), (10, 2));
        assert!(!has_room(&hands).await, "all of it is asked for");
        let place = first.take(&message(3), instant_now());
        drop((first, second));
        assert_eq!((hands.count(), hands.oldest_ms()), (1, Some(5)));
        assert_eq!(hands.room().await.count, 10);
        drop(place);
        assert_eq!((hands.count(), hands.oldest_ms()), (0, None));
    }

    #[tokio::test]
    async fn large_messages_fill_it_before() {
        let hands = Hands::new(1_000);
        let mut room = hands.room().await;
        let place = room.take(&message(BYTES_MAX), instant_now());
        drop(room);
        assert!(!has_room(&hands).await);
        let waiting = tokio::spawn({
            let hands = hands.clone();
            async move { hands.room().await.count }
        });
        tokio::time::sleep(Duration::from_millis(20)).await;
        drop(place);
        assert_eq!(waiting.await.ok(), Some(10), "who waits is told");
    }

    #[tokio::test]
    async fn what_is_in_hand_is_hidden_anew() {
        let hands = Hands::new(10);
        let mut room = hands.room().await;
        let _place = room.take(&message(1), instant_now());
        assert!(hands.due(Duration::from_secs(60)).is_empty());
        let long = Duration::from_millis(30);
        tokio::time::sleep(long).await;
        assert_eq!(hands.due(long), [(0, "r".to_owned())]);
        assert_eq!(hands.due(long).len(), 1, "until that has been done");
        hands.hidden(0, instant_now());
        assert!(hands.due(long).is_empty());
    }
}
