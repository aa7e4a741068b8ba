//! Releases: to a random process that is up, until one answers.

use std::time::Duration;

use rand::seq::IndexedRandom as _;
use tollgate_proto::v1::event_handler_service_client::EventHandlerServiceClient;
use tollgate_proto::v1::{ReleaseStatus, ReleaseTokenRequest};
use tonic::Code;
use tonic::transport::Channel;

use super::{Sink, conduct};
use crate::journal::Event;

/// Pause before a release is repeated.
const AGAIN: Duration = Duration::from_millis(100);

/// The processes' ports, one channel each.
#[derive(Clone, Debug)]
pub(crate) struct Doors(pub(crate) Vec<Channel>);

impl Doors {
    /// One of them.
    pub(crate) fn any(&self) -> Channel {
        let mut all = self.0.iter();
        let first = all.next().cloned();
        self.0
            .choose(&mut rand::rng())
            .cloned()
            .or(first)
            .unwrap_or_else(|| unreachable!("there is a process"))
    }
}

impl Sink {
    /// Starts to release; the event is out of flight from now on. Returns when somebody has answered.
    pub(super) async fn release(&self, number: u32, event: &Event) {
        let attempt = self.journal().finishes(number, tollgate_tests::now_us());
        let names_attempt = conduct::draw(self.seed, &event.id, attempt).is_multiple_of(2);
        let request = ReleaseTokenRequest {
            name: event.id.clone(),
            attempt: names_attempt.then_some(attempt),
            ..ReleaseTokenRequest::default()
        };
        loop {
            let mut handler = EventHandlerServiceClient::new(self.doors.any());
            match handler.release_token(request.clone()).await {
                Ok(answer) => {
                    if answer.into_inner().status() == ReleaseStatus::Released {
                        self.journal().released(number, tollgate_tests::now_us());
                    }
                    return;
                }
                Err(status) if is_refusal(status.code()) => {
                    self.journal().problems.push(format!("release of {}: {status}", event.id));
                    return;
                }
                Err(_) => tokio::time::sleep(AGAIN).await,
            }
        }
    }
}

/// Whether the service said no; otherwise it was not there.
fn is_refusal(code: Code) -> bool {
    matches!(
        code,
        Code::NotFound
            | Code::InvalidArgument
            | Code::FailedPrecondition
            | Code::PermissionDenied
            | Code::Unimplemented
    )
}
