//! Sends messages of alerts: through connections that no event has, so many at once.
//!
//! Invariants: of a namespace, and of all, receivers that do not take what they get have at most half of the rooms, so that they
//! keep nobody waiting who does.

use std::time::Duration;

use tollgate_core::model::{Alert, Sent};
use tollgate_proto::v1;
use tollgate_service::room::Rooms;
use tollgate_target::{Parcel, Post};
use tonic::Status;

use super::{failure_of, message};

/// Messages under way at once, of all namespaces and of one.
const SENDS: (usize, usize) = (64, 16);
/// Of these, messages to receivers that did not take the one before.
const SLOW: (usize, usize) = (SENDS.0 / 2, SENDS.1 / 2);
/// How long somebody who asks for a test waits for room.
const ROOM: Duration = Duration::from_secs(1);

/// What messages go through; cheap to clone.
#[derive(Clone)]
pub(crate) struct Mail {
    post: Post,
    rooms: Rooms<String>,
    slow: Rooms<String>,
}

impl Mail {
    pub(crate) fn new(post: Post) -> Self {
        Self { post, rooms: Rooms::new(SENDS.0, SENDS.1), slow: Rooms::new(SLOW.0, SLOW.1) }
    }

    /// Sends a message when there is room.
    pub(super) async fn send(&self, alert: &Alert, parcel: &Parcel, is_failing: bool) -> Sent {
        let _slow = match is_failing {
            true => Some(self.slow.take(alert.namespace.clone(), 1).await),
            false => None,
        };
        let _room = self.rooms.take(alert.namespace.clone(), 1).await;
        self.post.send(parcel, &alert.target).await
    }

    /// Sends a message that says it is a test, now or not at all.
    pub(crate) async fn test(&self, alert: &Alert, now_us: i64) -> Result<v1::SendTestAlertResponse, Status> {
        let room = tokio::time::timeout(ROOM, self.rooms.take(alert.namespace.clone(), 1)).await;
        let _room = room.map_err(|_| {
            Status::resource_exhausted("as many messages of alerts are under way as may be; try again later")
        })?;
        let parcel = message::test(alert, now_us);
        let failure = failure_of(self.post.send(&parcel, &alert.target).await);
        Ok(v1::SendTestAlertResponse {
            taken: failure.is_none(),
            message: failure.map(|(words, _)| words).unwrap_or_default(),
            message_id: parcel.id,
        })
    }
}
