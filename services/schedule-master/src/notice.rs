//! Decides what a notice says: the message for the shards, and the skips of a pause.
//!
//! In: a [`Notice`], and how far windows are open now. Out: what to post and to record. Invariant: it says the same of the
//! launches up to the notice's own end, however late it is asked.

use tollgate_core::handle::change::ShardSchedule;
use tollgate_core::handle::control::{Control, Message};
use tollgate_core::model::{SkipReason, Skipped};
use tollgate_core::plan::{Notice, Plan, message_id};
use tollgate_store::plan::Delivered;

/// How far launches were, or may have been, emitted without the change.
fn until_us(notice: &Notice, opened_until_us: Option<i64>) -> i64 {
    opened_until_us.unwrap_or(notice.changed_us).min(notice.until_us).max(notice.changed_us)
}

/// The message for the first of the shards that must be told, where windows have been opened up to `opened_until_us`.
/// None where there is nothing to tell: a new schedule that does not fire before. `plan`: none for a deletion.
pub(crate) fn message(notice: &Notice, plan: Option<&Plan>, opened_until_us: Option<i64>) -> Option<Message> {
    let until_us = until_us(notice, opened_until_us);
    let launches_us: Vec<i64> = match plan {
        Some(plan) if notice.pause.is_none() => plan.fires_between(notice.changed_us, until_us).collect(),
        _ => Vec::new(),
    };
    if notice.is_new && launches_us.is_empty() {
        return None;
    }
    let row = ShardSchedule {
        uid: notice.schedule_uid,
        generation: notice.generation,
        changed_us: notice.changed_us,
        until_us,
        launches_us,
        events: notice.events,
        priority: notice.priority,
        pause: notice.pause.clone(),
        deleted: notice.timing.is_none(),
        cursor: None,
        earlier: Vec::new(),
        home: None,
    };
    let onward = notice.way.iter().skip(1).copied().collect();
    Some(Message {
        id: message_id(row.uid, row.generation),
        control: Control::ScheduleChanged {
            schedule: row,
            namespace: notice.namespace.clone(),
            schedule_id: notice.schedule_id.clone(),
            policy_uid: notice.policy_uid,
            onward,
        },
    })
}

/// What follows for the recorded skips once the message is posted: those that a lifted pause takes back, and the triggers that
/// the emitter will not find any more and that a pause leaves out.
pub(crate) fn delivered(
    notice: &Notice,
    plan: Option<&Plan>,
    opened_until_us: Option<i64>,
    recorded_us: i64,
) -> Delivered {
    let until_us = opened_until_us.map(|_| until_us(notice, opened_until_us));
    let skipped = match (plan, until_us) {
        (Some(plan), Some(until_us)) if notice.pause.is_some() => plan
            .fires_between(notice.changed_us, until_us)
            .map(|launch_us| Skipped {
                schedule_uid: notice.schedule_uid,
                launch_us,
                reason: SkipReason::Paused,
                recorded_us,
            })
            .collect(),
        _ => Vec::new(),
    };
    Delivered {
        schedule_uid: notice.schedule_uid,
        generation: notice.generation,
        taken_back: until_us.filter(|_| notice.was_paused).map(|until_us| (notice.changed_us, until_us)),
        skipped,
    }
}
