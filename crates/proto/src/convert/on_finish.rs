//! Decides what may follow the runs of a schedule, and how it looks to callers.

use std::ops::RangeInclusive;

use tollgate_core::model::{EVENTS_MAX, FinishCondition, OnFinish};

use super::check::Check;
use super::{Name, names};
use crate::v1;

const EVENTS: RangeInclusive<u32> = 1..=EVENTS_MAX;

/// What follows, of the schedule called `name`. Whether that exists is not asked here.
pub(super) fn to_core(check: &mut Check, message: Option<&v1::OnFinish>, name: &Name) -> Option<OnFinish> {
    let message = message?;
    let path = check.path("on_finish.schedule");
    let next = check.keep(names::schedule_within(&path, &name.namespace, &message.schedule));
    if next.as_ref().is_some_and(|next| next.id == name.id) {
        check.refuse("on_finish.schedule", &message.schedule, "another schedule: a chain does not come back");
    }
    let when = match check.choice("on_finish.when", message.when, "ALL_SUCCEEDED, ANY_FAILED or ALWAYS") {
        v1::FinishCondition::Unspecified | v1::FinishCondition::AllSucceeded => FinishCondition::AllSucceeded,
        v1::FinishCondition::AnyFailed => FinishCondition::AnyFailed,
        v1::FinishCondition::Always => FinishCondition::Always,
    };
    let events = message.events.map(|events| check.number("on_finish.events", Some(events), 1, &EVENTS));
    next.map(|next| OnFinish { schedule: next.id, when, events })
}

/// As callers see it.
pub(super) fn to_message(on_finish: Option<&OnFinish>, namespace: &str) -> Option<v1::OnFinish> {
    let on_finish = on_finish?;
    Some(v1::OnFinish {
        schedule: names::of_schedule(namespace, &on_finish.schedule),
        when: match on_finish.when {
            FinishCondition::AllSucceeded => v1::FinishCondition::AllSucceeded,
            FinishCondition::AnyFailed => v1::FinishCondition::AnyFailed,
            FinishCondition::Always => v1::FinishCondition::Always,
        }
        .into(),
        events: on_finish.events,
    })
}
