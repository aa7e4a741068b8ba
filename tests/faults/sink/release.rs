//! Releases: to a random process that is up, until one answers.

use std::time::Duration;

use serde_json::json;
use tollgate_proto::convert::payload::from_json;
use tollgate_proto::v1::event_handler_service_client::EventHandlerServiceClient;
use tollgate_proto::v1::{ReleaseOutcome, ReleaseStatus, ReleaseTokenRequest, ReleaseTokenResponse};
use tonic::Code;
use tonic::transport::Channel;

use super::conduct::kind::CHAIN;
use super::{Sink, conduct};
use crate::journal::{Event, Said};

/// What the service says where a release lies in the inbox of its owner, which carries it out later.
const RECORDED: &str = "recorded; the handler that owns the event carries it out";
/// Pause before a release is repeated.
const AGAIN: Duration = Duration::from_millis(100);

/// The processes' ports, one channel each.
#[derive(Clone, Debug)]
pub(crate) struct Doors(pub(crate) Vec<Channel>);

impl Doors {
    /// One of them.
    pub(crate) fn any(&self) -> Channel {
        self.one().1
    }

    /// One of them, and which process it leads to.
    pub(crate) fn one(&self) -> (usize, Channel) {
        let number = rand::random_range(0..self.0.len());
        (number, self.0[number].clone())
    }
}

/// What a release was answered with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Answer {
    Released(Said),
    Late,
    Other,
}

impl Answer {
    fn of(answer: &ReleaseTokenResponse) -> Self {
        match answer.status() {
            ReleaseStatus::Released if answer.message == RECORDED => Self::Released(Said::Recorded),
            ReleaseStatus::Released => Self::Released(Said::Direct),
            ReleaseStatus::Late => Self::Late,
            _ => Self::Other,
        }
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
            let answer =
                self.release_once(event, names_attempt.then_some(attempt), ReleaseOutcome::Succeeded).await;
            let mut journal = self.journal();
            if let Some(Answer::Released(said)) = answer {
                journal.released(number, said, tollgate_harness::now_us());
            }
            let latest = journal.latest(number);
            // The attempt that was released had been overtaken: a later one came while the call was under way.
            if answer != Some(Answer::Late) || latest == attempt {
                journal.ends_release(number);
                return;
            }
            attempt = latest;
        }
    }

    /// Gives back an attempt: it comes again, and nothing of it is done.
    pub(super) async fn give_back(&self, number: u32, event: &Event, attempt: u32) {
        let answer = self.release_once(event, Some(attempt), ReleaseOutcome::Retry).await;
        if let Some(Answer::Released(said)) = answer {
            self.journal().gave_back(number, attempt, said, tollgate_harness::now_us());
        }
    }

    /// What the first process that answers says; none where it refuses.
    async fn release_once(
        &self,
        event: &Event,
        attempt: Option<u32>,
        outcome: ReleaseOutcome,
    ) -> Option<Answer> {
        let request = request(event, attempt, outcome);
        loop {
            let door = self.orders().door.and_then(|door| self.doors.0.get(door).cloned());
            let mut handler = EventHandlerServiceClient::new(door.unwrap_or_else(|| self.doors.any()));
            match handler.release_token(request.clone()).await {
                Ok(answer) => return Some(Answer::of(answer.get_ref())),
                Err(status) if is_refusal(status.code()) => {
                    self.journal().problems.push(format!("release of {}: {status}", event.id));
                    return None;
                }
                Err(_) => tokio::time::sleep(AGAIN).await,
            }
        }
    }
}

/// A release of the event that ends so.
fn request(event: &Event, attempt: Option<u32>, outcome: ReleaseOutcome) -> ReleaseTokenRequest {
    let has_result = event.schedule.ends_with(CHAIN) && outcome == ReleaseOutcome::Succeeded;
    let result = has_result.then(|| from_json(&json!({"n": event.index})));
    let (name, outcome) = (event.id.clone(), outcome.into());
    ReleaseTokenRequest { name, attempt, outcome, result, ..ReleaseTokenRequest::default() }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_given_back_is_not_called_done() {
        let event = Event { schedule: format!("w{CHAIN}"), ..super::super::tests::event(3) };
        let back = request(&event, Some(2), ReleaseOutcome::Retry);
        assert_eq!((back.outcome(), back.attempt), (ReleaseOutcome::Retry, Some(2)));
        assert_eq!((back.name, back.result), (event.id.clone(), None));
        let done = request(&event, None, ReleaseOutcome::Succeeded);
        assert_eq!((done.outcome(), done.attempt), (ReleaseOutcome::Succeeded, None));
        assert!(done.result.is_some());
    }

    #[test]
    fn a_release_that_was_only_recorded_is_told_by_the_words_of_the_service() {
        let answer = |status: ReleaseStatus, message: &str| {
            let message = message.to_owned();
            let status = status.into();
            Answer::of(&ReleaseTokenResponse { status, message, ..ReleaseTokenResponse::default() })
        };
        assert_eq!(answer(ReleaseStatus::Released, RECORDED), Answer::Released(Said::Recorded));
        assert_eq!(answer(ReleaseStatus::Released, ""), Answer::Released(Said::Direct));
        assert_eq!(answer(ReleaseStatus::Late, RECORDED), Answer::Late);
        assert_eq!(answer(ReleaseStatus::AlreadyReleased, ""), Answer::Other);
        let service = concat!(env!("CARGO_MANIFEST_DIR"), "/../services/event-handler/src/answers.rs");
        assert!(std::fs::read_to_string(service).unwrap_or_default().contains(RECORDED));
    }
}
