//! Decides what may follow the runs of a schedule, and how it looks to callers.

use std::ops::RangeInclusive;

use tollgate_core::model::{EVENTS_MAX, FinishCondition, OnFinish, ResultItems};

use super::check::Check;
use super::items_from::member_name;
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
    let items = message.items_from_results.as_ref().map(|items| result_items(check, items));
    if let (Some(events), Some(_)) = (events, &items) {
        check.refuse(
            "on_finish.events",
            events,
            "none with items_from_results, which say how many events there are",
        );
    }
    next.map(|next| OnFinish { schedule: next.id, when, events, items: items.map(Box::new) })
}

/// How items are read from results.
fn result_items(check: &mut Check, message: &v1::ItemsFromResults) -> ResultItems {
    let v1::ItemsFromResults { key_field, units_field } = message;
    for (field, name) in [("key_field", key_field), ("units_field", units_field)] {
        member_name(check, &format!("on_finish.items_from_results.{field}"), name);
    }
    ResultItems { key_field: key_field.clone(), units_field: units_field.clone() }
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
        items_from_results: on_finish.items.as_ref().map(|items| v1::ItemsFromResults {
            key_field: items.key_field.clone(),
            units_field: items.units_field.clone(),
        }),
    })
}
