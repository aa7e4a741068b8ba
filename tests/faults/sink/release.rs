//! Releases: to a random process that is up, until one answers.

use std::time::Duration;

use rand::seq::IndexedRandom as _;
use serde_json::json;
use tollgate_proto::convert::payload::from_json;
use tollgate_proto::v1::event_handler_service_client::EventHandlerServiceClient;
use tollgate_proto::v1::{ReleaseOutcome, ReleaseStatus, ReleaseTokenRequest};
use tonic::Code;
use tonic::transport::Channel;

use super::conduct::kind::CHAIN;
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
    /// Starts to release; the event is out of flight from now on. Returns when somebody has answered. What was answered
    /// with RELEASED stays so: no later attempt of the event is released once more while the call is under way.
    pub(super) async fn release(&self, number: u32, event: &Event) {
        let mut attempt = self.journal().finishes(number, tollgate_harness::now_us());
        if !self.journal().begins_release(number) {
            return;
        }
        loop {
            let names_attempt = conduct::draw(self.seed, &event.id, attempt).is_multiple_of(2);
            let status =
                self.release_once(event, names_attempt.then_some(attempt), ReleaseOutcome::Succeeded).await;
            let mut journal = self.journal();
            if status == Some(ReleaseStatus::Released) {
                journal.released(number, tollgate_harness::now_us());
            }
            let latest = journal.latest(number);
            // The attempt that was released had been overtaken: a later one came while the call was under way.
            if status != Some(ReleaseStatus::Late) || latest == attempt {
                journal.ends_release(number);
                return;
            }
            attempt = latest;
        }
    }

    /// What the first process that answers says; none where it refuses.
    pub(super) async fn release_once(
        &self,
        event: &Event,
        attempt: Option<u32>,
        outcome: ReleaseOutcome,
    ) -> Option<ReleaseStatus> {
        let has_result = event.schedule.ends_with(CHAIN) && outcome == ReleaseOutcome::Succeeded;
        let result = has_result.then(|| from_json(&json!({"n": event.index})));
        let request =
            ReleaseTokenRequest { name: event.id.clone(), attempt, result, ..ReleaseTokenRequest::default() };
        loop {
            let door = self.orders().door.and_then(|door| self.doors.0.get(door).cloned());
            let mut handler = EventHandlerServiceClient::new(door.unwrap_or_else(|| self.doors.any()));
            match handler.release_token(request.clone()).await {
                Ok(answer) => return Some(answer.into_inner().status()),
                Err(status) if is_refusal(status.code()) => {
                    self.journal().problems.push(format!("release of {}: {status}", event.id));
                    return None;
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
