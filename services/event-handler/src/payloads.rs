//! Decides how many bytes of payloads are on their way at once: each delivery has a copy of its own.
//!
//! In: a delivery that is about to begin. Out: room for its payload, as soon as there is some; small ones need none. Invariants:
//! one namespace leaves room for the others; nothing is written while a delivery waits here, and the wait is inside its deadline. Not
//! here: how many deliveries there are.

use tollgate_core::model::RunSpec;
use tollgate_room::{Room, Rooms};

/// Payloads up to here need no room: deliveries bound them.
const SMALL_BYTES: usize = 4 * 1024;
/// The unit of room.
const UNIT_BYTES: usize = 1024;

/// The room of all payloads; cheap to clone.
#[derive(Clone, Debug)]
pub(crate) struct Payloads(Rooms<String>);

impl Payloads {
    /// So many bytes in all, of which a quarter for one namespace.
    pub(crate) fn new(bytes_max: usize) -> Self {
        let units = bytes_max.div_ceil(UNIT_BYTES);
        Self(Rooms::new(units, units.div_ceil(4)))
    }

    /// Waits for room for a delivery's payload.
    pub(crate) async fn room(&self, spec: &RunSpec) -> Option<Room> {
        self.room_of(&spec.namespace, spec.payload.json.len()).await
    }

    async fn room_of(&self, namespace: &str, bytes: usize) -> Option<Room> {
        if bytes <= SMALL_BYTES {
            return None;
        }
        Some(self.0.take(namespace.to_owned(), bytes.div_ceil(UNIT_BYTES)).await)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    async fn soon(payloads: &Payloads, namespace: &str, bytes: usize) -> Option<Option<Room>> {
        tokio::time::timeout(Duration::from_millis(50), payloads.room_of(namespace, bytes)).await.ok()
    }

    #[tokio::test]
    async fn a_namespace_with_large_payloads_leaves_room() {
        let payloads = Payloads::new(1024 * 1024);
        let held = [soon(&payloads, "a", 128 * 1024).await, soon(&payloads, "a", 128 * 1024).await];
        assert!(held.iter().all(|room| matches!(room, Some(Some(_)))));
        assert!(soon(&payloads, "a", 8 * 1024).await.is_none(), "its quarter is taken");
        assert!(matches!(soon(&payloads, "a", SMALL_BYTES).await, Some(None)), "small ones go on");
        assert!(matches!(soon(&payloads, "b", 256 * 1024).await, Some(Some(_))));
        drop(held);
        assert!(matches!(soon(&payloads, "a", 8 * 1024).await, Some(Some(_))));
    }
}
