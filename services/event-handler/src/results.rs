//! Results on their way in, and as they are shown.
//!
//! In: the result of a release; an event that has ended. Out: room for it among those that are under way, its text as it is
//! stored; the event with its result. Invariant: those under way have a bounded weight, all together and of a namespace, so that
//! releases without results stand behind none. Not here: which release may have one, and how many a run may have (the core).

use tollgate_core::handle::release::{EventResult, Release};
use tollgate_core::model::{EventRef, Run};
use tollgate_proto::{FieldError, v1};
use tollgate_secrets::{SecretError, result_field};
use tollgate_service::room::{Room, Rooms};
use tollgate_service::status::status as store_status;
use tonic::Status;

use crate::Shared;
use crate::addresses::Addressed;
use crate::answers::Released;

/// The weight of the results under way: all of them, and those of a namespace; those who name none are one.
const AT_ONCE: usize = 64 * 1024 * 1024;
const EACH: usize = 16 * 1024 * 1024;
/// What a value in a result weighs beside its text: about what it takes as a message.
const VALUE_WEIGHT: usize = 40;
/// A unit of room.
const UNIT: usize = 1024;
/// The weight of the results that one stream has under way, beyond which nothing more of it is read.
pub(crate) const STREAM_MAX: usize = 4 * 1024 * 1024;

/// Room for results under way; cheap to clone.
#[derive(Clone, Debug)]
pub(crate) struct ResultRooms(Rooms<String>);

impl Default for ResultRooms {
    fn default() -> Self {
        Self(Rooms::new(AT_ONCE / UNIT, EACH / UNIT))
    }
}

impl ResultRooms {
    /// Waits for the room of a release; none where it has no result.
    pub(crate) async fn take(&self, at: &Addressed, release: &Release) -> Option<Room> {
        let result = release.result.as_ref()?;
        let values = result.body.bytes().filter(|byte| matches!(byte, b',' | b':' | b'[' | b'{')).count();
        let weight = result.body.len() + values * VALUE_WEIGHT;
        Some(self.0.take(at.namespace.clone().unwrap_or_default(), weight.div_ceil(UNIT)).await)
    }
}

/// About what the result of a release weighs before it is looked at.
pub(crate) fn weight(request: &v1::ReleaseTokenRequest) -> usize {
    request.result.as_ref().map_or(0, |result| prost::Message::encoded_len(result) * 4)
}

impl Shared {
    /// The result of a release as it is stored.
    pub(crate) fn seal_result(&self, event: EventRef, release: &mut Release) -> Result<(), SecretError> {
        if let Some(result) = release.result.as_mut().filter(|_| !self.options.keys.is_empty()) {
            result.body = self.options.keys.seal(event.run.0, &result_field(event.index), &result.body)?;
        }
        Ok(())
    }

    /// Whether a result may wait in the inbox of its shard: nobody could be told afterwards.
    pub(crate) fn room_in_inbox(run: &Run, result: &EventResult) -> Result<(), Released> {
        if result.bytes > EventResult::WAITING_BYTES_MAX {
            let most = EventResult::WAITING_BYTES_MAX;
            return Err(Released::Failed(Status::unavailable(format!(
                "the handler that owns the event cannot be reached, and a result of more than {most} bytes does not wait for \
                 it; try again, with the attempt"
            ))));
        }
        result.fits(run).map_err(|message| Released::of_refusal(&message))
    }

    /// Adds its result to an event that has succeeded, for people. One that cannot be opened is left out.
    pub(crate) async fn add_result(&self, run: &Run, event: &mut v1::Event) -> Result<(), Status> {
        if event.state() != v1::EventState::Succeeded || run.result_bytes == 0 {
            return Ok(());
        }
        let found = self.people.results(run.shard, run.id, event.index, 1).await.map_err(store_status)?;
        let Some((_, body)) = found.into_iter().next().filter(|(index, _)| *index == event.index) else {
            return Ok(());
        };
        match self.options.keys.open(run.id.0, &result_field(event.index), &body) {
            Ok(clear) => event.result = clear,
            Err(error) => tracing::debug!(run = %run.id, %error, "an event is shown without its result"),
        }
        Ok(())
    }
}

impl Released {
    /// What the core refuses, by the field of which it says so.
    pub(crate) fn of_refusal(message: &str) -> Self {
        let of_result = message.strip_prefix("result: ").and_then(|rest| rest.split_once("; "));
        Self::Invalid(vec![match of_result {
            Some((given, expected)) => FieldError::new("result", given, expected),
            None => {
                let message = message.trim_start_matches("next_check_time: ");
                FieldError::new("next_check_time", "", format!("a moment that the guards allow: {message}"))
            }
        }])
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]
    use std::time::Duration;

    use tollgate_core::handle::release::ReleaseOutcome;
    use tollgate_core::model::RunId;

    use super::*;

    fn release(of: &str, body: String) -> (Addressed, Release) {
        let event = EventRef { shard: 5, run: RunId::default(), index: 0 };
        let bytes = u32::try_from(body.len()).unwrap();
        let release = Release {
            run: event.run,
            index: 0,
            attempt: None,
            outcome: ReleaseOutcome::Succeeded,
            message: String::new(),
            next_check_us: None,
            cursor: None,
            result: Some(Box::new(EventResult { body, bytes, items: 1 })),
        };
        (Addressed { event, named_shard: 5, namespace: Some(of.to_owned()), by_key: false }, release)
    }

    #[tokio::test]
    async fn results_of_one_namespace_leave_room_for_another_ones_and_for_releases_without() {
        let rooms = ResultRooms::default();
        let (many, large) = release("many", format!("\"{}\"", "x".repeat(256 * 1024 - 2)));
        let soon = async |at: &Addressed, release: &Release| {
            tokio::time::timeout(Duration::from_millis(50), rooms.take(at, release)).await
        };
        let mut taken = Vec::new();
        while let Ok(room) = soon(&many, &large).await {
            taken.push(room.unwrap());
        }
        assert_eq!(taken.len(), EACH / EventResult::BYTES_MAX, "{}", taken.len());
        let (few, small) = release("few", "[1,2]".to_owned());
        assert!(soon(&few, &small).await.unwrap().is_some());
        assert!(soon(&many, &Release { result: None, ..small }).await.unwrap().is_none());
        taken.pop();
        assert!(soon(&many, &large).await.is_ok());
    }

    #[test]
    fn many_small_values_weigh_more_than_their_text() {
        use prost_types::value::Kind;
        let one = || prost_types::Value { kind: Some(Kind::NumberValue(1.0)) };
        let list = prost_types::ListValue { values: (0..1_000).map(|_| one()).collect() };
        let result = Some(prost_types::Value { kind: Some(Kind::ListValue(list)) });
        assert!(weight(&v1::ReleaseTokenRequest { result, ..v1::ReleaseTokenRequest::default() }) > 40_000);
        assert_eq!(weight(&v1::ReleaseTokenRequest::default()), 0);
    }
}
