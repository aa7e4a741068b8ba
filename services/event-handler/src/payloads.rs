//! Decides how many bytes of payloads are on their way at once: each delivery has a copy of its own.
//!
//! In: a delivery that is about to begin. Out: room for its payload, as soon as there is some; small ones need none. Invariants:
//! one namespace leaves room for the others; nothing is written while a delivery waits here; of many that begin to wait at once
//! and get no room, some give up at each moment, and not all at once, when others would have to wait until all of that is
//! recorded. Not here: how many deliveries there are.

use std::time::Duration;

use tollgate_core::model::{DeliveryItem, RunSpec, Sent, Target};
use tollgate_service::room::{Room, Rooms};
use tollgate_target::Leave;

/// Payloads up to here need no room: deliveries bound them.
const SMALL_BYTES: usize = 4 * 1024;
/// The unit of room.
const UNIT_BYTES: usize = 1024;

/// The room of all payloads; cheap to clone.
#[derive(Clone, Debug)]
pub(crate) struct Payloads(Rooms<String>);

impl Payloads {
    /// `bytes_max` in all, of which a quarter for one namespace.
    pub(crate) fn new(bytes_max: usize) -> Self {
        let units = bytes_max.div_ceil(UNIT_BYTES);
        Self(Rooms::new(units, units.div_ceil(4)))
    }

    /// Waits for room for what a delivery carries. `luck`: how patiently, in 256 parts.
    ///
    /// # Errors
    /// That there was none soon enough.
    pub(crate) async fn room(
        &self,
        spec: &RunSpec,
        item: Option<&DeliveryItem>,
        (leave, luck): (&Leave, u8),
    ) -> Result<Option<Room>, Sent> {
        let own = item.map_or(0, |item| item.payload.len() + item.data.len());
        let room = self.room_of(&spec.namespace, spec.payload.json.len() + own);
        leave.in_turn(patience(&spec.target, luck), room).await.ok_or_else(|| Sent::NotSent {
            message: "not sent: the payloads of its namespace that are on their way leave no room".to_owned(),
            retry_after_ms: None,
        })
    }

    async fn room_of(&self, namespace: &str, bytes: usize) -> Option<Room> {
        if bytes <= SMALL_BYTES {
            return None;
        }
        Some(self.0.take(namespace.to_owned(), bytes.div_ceil(UNIT_BYTES)).await)
    }
}

/// The deadline whose half is waited: a quarter to three quarters of the target's, so that what gets room late has time left
/// to be sent.
fn patience(target: &Target, luck: u8) -> Duration {
    let deadline = Duration::from_millis(u64::try_from(target.deadline_ms()).unwrap_or_default());
    deadline / 2 + deadline * u32::from(luck) / 256
}

#[cfg(test)]
mod tests {
    use tollgate_core::model::{CheckAgain, HttpTarget, OverlapRule, Payload, ReleaseMode, RetryPolicy};
    use uuid::Uuid;

    use super::*;

    fn large(deadline_ms: i64) -> RunSpec {
        let http = HttpTarget::plain(String::new(), deadline_ms);
        RunSpec {
            schedule_uid: Uuid::nil(),
            generation: 1,
            namespace: "a".to_owned(),
            schedule_id: "s".to_owned(),
            policy_uid: None,
            policy_id: None,
            key: None,
            units: 1,
            target: Target::Http { http, release: ReleaseMode::TargetDefault },
            payload: Payload::of("7".repeat(8 * 1024)),
            retry: RetryPolicy::default(),
            overlap: OverlapRule::Allow,
            delay_after_finish_s: None,
            finish_by_s: None,
            spread_s: None,
            start_within_s: None,
            check_again: CheckAgain::default(),
            on_finish: None,
        }
    }

    #[tokio::test]
    async fn who_finds_no_room_in_time_does_not_leave() {
        let payloads = Payloads::new(1024 * 1024);
        let _held = payloads.room_of("a", 256 * 1024).await;
        let room = async |spec: RunSpec| {
            tokio::time::timeout(Duration::from_secs(20), payloads.room(&spec, None, (&Leave::always(), 0)))
                .await
        };
        let waited = room(large(100)).await;
        assert!(matches!(waited, Ok(Err(_))), "the wait has no end of its own");
        let small = RunSpec { payload: Payload::default(), ..large(100) };
        assert!(matches!(room(small).await, Ok(Ok(None))));
        let other = RunSpec { namespace: "b".to_owned(), ..large(100) };
        assert!(matches!(room(other).await, Ok(Ok(Some(_)))));
    }

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

    #[test]
    fn those_who_get_no_room_give_up_one_after_the_other_and_with_time_left() {
        let http = HttpTarget::plain(String::new(), 30_000);
        let target = Target::Http { http, release: ReleaseMode::default() };
        let waits: Vec<Duration> = (0..=u8::MAX).map(|luck| patience(&target, luck)).collect();
        assert!(waits.is_sorted_by(|a, b| *b - *a > Duration::from_millis(100)), "{waits:?}");
        assert_eq!(waits[0] / 2, Duration::from_millis(7_500));
        assert!(waits[255] / 2 < Duration::from_millis(22_500));
    }
}
