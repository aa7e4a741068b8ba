//! Decides what a schedule may be.

use std::ops::RangeInclusive;

use tollgate_core::items::UNITS_MAX;
use tollgate_core::model::{
    CatchUp, CheckAgain, EVENTS_MAX, OnGuard, OverlapRule, Payload, RetryPolicy, Schedule, SkipReason,
    Skipped, Stagger, Timing, Trigger, WhenDone,
};
use tollgate_core::plan::{Child, done};
use uuid::Uuid;

use super::check::Check;
use super::{
    Name, duration_of_ms, duration_of_s, items, items_from, names, on_finish, pause, payload, target,
    timestamp, timing,
};
use crate::field::FieldError;
use crate::v1;

/// The lowest and the highest priority.
pub const PRIORITIES: RangeInclusive<u32> = 0..=9;
const PRIORITY: u32 = 5;
const DAY_S: i64 = 24 * 3_600;
/// The longest time that a schedule may take to start, in seconds.
const START_WITHIN_S: RangeInclusive<i64> = 1..=DAY_S;
/// Windows, spreads and horizons, in seconds.
const WINDOW_S: RangeInclusive<i64> = 1..=366 * DAY_S;
const BACKOFF_MS: RangeInclusive<i64> = 1..=DAY_S * 1_000;
/// How long after all is over a schedule is deleted that is to be, in seconds.
const DELETE_AFTER_S: i64 = 3_600;
const ATTEMPTS: RangeInclusive<u32> = 1..=1_000;
const CHECKS: RangeInclusive<u32> = 0..=1_000_000;

/// The schedule that `message` describes, under `name`. What only the service decides (uid, policy uid, pause, generation,
/// times) is taken from `stored`, and zero or none where there is none; so is a secret that is to be kept. The policy's
/// uid is taken only while the policy stays the same.
///
/// # Errors
/// Every field that is wrong, as `schedule.…`. Whether the timing can fire is left to the planner.
pub fn to_core(
    message: &v1::Schedule,
    name: &Name,
    stored: Option<&Schedule>,
) -> Result<Schedule, Vec<FieldError>> {
    let mut check = Check::new("schedule");
    check.text("description", &message.description);
    check.labels(&message.labels);
    let timing = timing::to_core(&mut check, message, Some(&name.namespace));
    let events = events(&mut check, message);
    let stored_list = stored.and_then(|stored| stored.payload.from.as_deref());
    let from = items_from::to_core(&mut check, message, stored_list);
    let units = check.number("units", message.units, 1, &(1..=UNITS_MAX));
    let priority = check.number("priority", message.priority, PRIORITY, &PRIORITIES);
    let target = target::to_core(&mut check, message.target.as_ref(), stored.map(|stored| &stored.target));
    let payload = Payload { from, ..payload(&mut check, message) };
    let policy = policy(&mut check, message, name);
    let key = key(&mut check, message);
    let retry = retry(&mut check, message.retry.as_ref());
    let catch_up = catch_up(&mut check, message.catch_up.as_ref());
    let overlap = overlap(&mut check, message.overlap);
    let delay_after_finish_s = delay_after_finish_s(&mut check, message, overlap);
    let check_again = check_again(&mut check, message.check_again.as_ref());
    let on_finish = on_finish::to_core(&mut check, message.on_finish.as_ref(), name);
    let finish_by_s = check.s("finish_by", message.finish_by.as_ref(), &WINDOW_S);
    let spread_s = check.s("spread", message.spread.as_ref(), &WINDOW_S);
    let when_done = when_done(&mut check, message, &timing);
    let start_within_s = start_within_s(&mut check, message, &timing);
    let schedule = target.map(|target| Schedule {
        uid: stored.map_or(Uuid::nil(), |stored| stored.uid),
        namespace: name.namespace.clone(),
        id: name.id.clone(),
        description: message.description.clone(),
        timing,
        events,
        target,
        payload,
        policy_uid: stored.filter(|stored| stored.policy == policy).and_then(|stored| stored.policy_uid),
        shard: stored.filter(|stored| stored.policy == policy).and_then(|stored| stored.shard),
        policy,
        key: Some(key).filter(|key| !key.is_empty()),
        key_label: Some(message.key_label.clone()).filter(|label| !label.is_empty()),
        units,
        priority: u8::try_from(priority).unwrap_or_default(),
        retry,
        catch_up,
        overlap,
        delay_after_finish_s,
        finish_by_s,
        spread_s,
        start_within_s,
        start_within_percent: message.start_within_percent,
        check_again,
        on_finish,
        when_done,
        pause: stored.and_then(|stored| stored.pause.clone()),
        past_pauses: stored.map_or_else(Vec::new, |stored| stored.past_pauses.clone()),
        labels: message.labels.clone(),
        former_homes: stored.map_or_else(Vec::new, |stored| stored.former_homes.clone()),
        generation: stored.map_or(0, |stored| stored.generation),
        created_us: stored.map_or(0, |stored| stored.created_us),
        updated_us: stored.map_or(0, |stored| stored.updated_us),
    });
    check.finish(schedule)
}

/// Only the timing of a schedule.
///
/// # Errors
/// Every field of the timing that is wrong, as `schedule.…`.
pub fn timing_to_core(message: &v1::Schedule, namespace: &str) -> Result<Timing, Vec<FieldError>> {
    let mut check = Check::new("schedule");
    let timing = timing::to_core(&mut check, message, Some(namespace));
    check.finish(Some(timing))
}

/// The namespace of a schedule: that of its name, or where it has none, of the first calendar that has its full name.
pub fn namespace(message: &v1::Schedule) -> Option<String> {
    let own = names::schedule("schedule.name", &message.name).ok();
    let found =
        own.or_else(|| message.exclude_calendars.iter().find_map(|text| names::calendar("", text).ok()));
    found.map(|name| name.namespace)
}

/// Only what says when a schedule fires and starts, for previews. The dates of its calendars are still to be taken.
///
/// # Errors
/// Every field of these that is wrong, as `schedule.…`.
pub fn starts_to_core(message: &v1::Schedule) -> Result<(Timing, Stagger), Vec<FieldError>> {
    let mut check = Check::new("schedule");
    let namespace = namespace(message);
    let timing = timing::to_core(&mut check, message, namespace.as_deref());
    let events = events(&mut check, message);
    let spread_s = check.s("spread", message.spread.as_ref(), &WINDOW_S);
    let start_within_s = start_within_s(&mut check, message, &timing);
    check.finish(Some((timing, Stagger { start_within_s, spread_s, events })))
}

/// As what its events count: as said, or as a label says.
fn key(check: &mut Check, message: &v1::Schedule) -> String {
    let (given, label) = (&message.key, &message.key_label);
    let (field, key) = match message.labels.get(label) {
        _ if label.is_empty() => ("key", given),
        _ if !given.is_empty() => {
            check.refuse("key_label", label, "none beside key");
            return String::new();
        }
        Some(value) => ("key_label", value),
        None => {
            check.refuse("key_label", label, "the name of one of its labels");
            return String::new();
        }
    };
    let path = check.path(field);
    check.keep(items::key(&path, key));
    key.clone()
}

/// Within what time its runs start: as said, or as a share of its interval.
fn start_within_s(check: &mut Check, message: &v1::Schedule, timing: &Timing) -> Option<i64> {
    let within_s = check.s("start_within", message.start_within.as_ref(), &START_WITHIN_S);
    let Some(percent) = message.start_within_percent else { return within_s };
    check.number("start_within_percent", Some(percent), 1, &(1..=100));
    let expected = match timing.triggers[..] {
        _ if message.start_within.is_some() => "none beside start_within".to_owned(),
        [Trigger::Interval { every_s, .. }] => {
            let share_s = every_s.saturating_mul(i64::from(percent.min(100))) / 100;
            if share_s <= DAY_S {
                return Some(share_s.max(1));
            }
            format!("a share of at most 24 h: that of an interval of {every_s} s is {share_s} s")
        }
        _ => "none, or one interval as the only trigger".to_owned(),
    };
    check.refuse("start_within_percent", percent, expected);
    None
}

/// How many events a trigger makes: as many as there are items, where there are some; 0 where that is not known.
fn events(check: &mut Check, message: &v1::Schedule) -> u32 {
    let items = u32::try_from(message.items.len()).unwrap_or(u32::MAX);
    match message.events {
        Some(events) if message.items_from.is_some() => {
            check.refuse("events", events, "none: as many as its list has when it is fetched");
            0
        }
        _ if message.items_from.is_some() => 0,
        Some(events) if items > 0 && events != items => {
            let expected = format!("none, or {items}: with items there are as many events as items");
            check.refuse("events", events, expected);
            items
        }
        _ if items > 0 => items,
        events => check.number("events", events, 1, &(1..=EVENTS_MAX)),
    }
}

fn payload(check: &mut Check, message: &v1::Schedule) -> Payload {
    let path = check.path("payload");
    let payload = check.keep(payload::to_core(&path, message.payload.as_ref())).unwrap_or_default();
    let items = items::to_core(check, &message.items, &payload);
    payload.with_items(items)
}

fn policy(check: &mut Check, message: &v1::Schedule, name: &Name) -> Option<String> {
    if message.policy.is_empty() {
        return None;
    }
    let path = check.path("policy");
    check.keep(names::policy_within(&path, &name.namespace, &message.policy)).map(|policy| policy.id)
}

fn retry(check: &mut Check, message: Option<&v1::RetryPolicy>) -> RetryPolicy {
    let default = RetryPolicy::default();
    let Some(message) = message else { return default };
    let backoff_min_ms =
        check.ms("retry.min_backoff", message.min_backoff.as_ref(), default.backoff_min_ms, &BACKOFF_MS);
    let backoff_max_ms = check.ms(
        "retry.max_backoff",
        message.max_backoff.as_ref(),
        default.backoff_max_ms.max(backoff_min_ms),
        &BACKOFF_MS,
    );
    if backoff_max_ms < backoff_min_ms {
        check.refuse("retry.max_backoff", duration_of_ms(backoff_max_ms), "at least retry.min_backoff");
    }
    RetryPolicy {
        attempts_max: check.number(
            "retry.max_attempts",
            message.max_attempts,
            default.attempts_max,
            &ATTEMPTS,
        ),
        backoff_min_ms,
        backoff_max_ms,
        retry_lost: message.retry_lost.unwrap_or(default.retry_lost),
    }
}

fn catch_up(check: &mut Check, message: Option<&v1::CatchUp>) -> CatchUp {
    let Some(message) = message else { return CatchUp::default() };
    let mode: v1::CatchUpMode = check.choice("catch_up.mode", message.mode, "NONE, LATEST or ALL");
    let horizon_s = check.s("catch_up.horizon", message.horizon.as_ref(), &WINDOW_S);
    if mode == v1::CatchUpMode::All {
        if message.horizon.is_none() {
            check.refuse("catch_up.horizon", "", "how far back, with mode ALL");
        }
        return CatchUp::All { horizon_s: horizon_s.unwrap_or_default() };
    }
    if let Some(horizon_s) = horizon_s {
        check.refuse("catch_up.horizon", duration_of_s(horizon_s), "none without mode ALL");
    }
    if mode == v1::CatchUpMode::None { CatchUp::None } else { CatchUp::Latest }
}

fn overlap(check: &mut Check, number: i32) -> OverlapRule {
    match check.choice("overlap", number, "ALLOW, SKIP, BUFFER_ONE or CANCEL_OTHER") {
        v1::Overlap::Unspecified | v1::Overlap::Allow => OverlapRule::Allow,
        v1::Overlap::Skip => OverlapRule::Skip,
        v1::Overlap::BufferOne => OverlapRule::BufferOne,
        v1::Overlap::CancelOther => OverlapRule::CancelOther,
    }
}

/// How long it rests after a run; what falls due meanwhile must have somewhere to go.
fn delay_after_finish_s(check: &mut Check, message: &v1::Schedule, overlap: OverlapRule) -> Option<i64> {
    let delay_s = check.s("delay_after_finish", message.delay_after_finish.as_ref(), &WINDOW_S)?;
    if !matches!(overlap, OverlapRule::Skip | OverlapRule::BufferOne) {
        let expected =
            "none without overlap SKIP or BUFFER_ONE, which says what becomes of a run that falls due before";
        check.refuse("delay_after_finish", duration_of_s(delay_s), expected);
    }
    Some(delay_s)
}

fn when_done(check: &mut Check, message: &v1::Schedule, timing: &Timing) -> WhenDone {
    let after_s = check.s("delete_after", message.delete_after.as_ref(), &WINDOW_S);
    match check.choice("when_done", message.when_done, "KEEP or DELETE") {
        v1::WhenDone::Delete => {
            if done::ends_us(timing).is_none() {
                let expected = "KEEP, or an end: each trigger an `at`, or an end_time; else it never is done";
                check.refuse("when_done", "DELETE", expected);
            }
            WhenDone::Delete { after_s: after_s.unwrap_or(DELETE_AFTER_S) }
        }
        v1::WhenDone::Unspecified | v1::WhenDone::Keep => {
            if let Some(after_s) = after_s {
                check.refuse("delete_after", duration_of_s(after_s), "none without when_done DELETE");
            }
            WhenDone::Keep
        }
    }
}

fn check_again(check: &mut Check, message: Option<&v1::CheckAgain>) -> CheckAgain {
    let default = CheckAgain::default();
    let Some(message) = message else { return default };
    CheckAgain {
        count_max: check.number("check_again.max_checks", message.max_checks, default.count_max, &CHECKS),
        horizon_s: check
            .s("check_again.horizon", message.horizon.as_ref(), &WINDOW_S)
            .unwrap_or(default.horizon_s),
        slot_s: check
            .s("check_again.slot", message.slot.as_ref(), &(1..=timing::SLOT_MAX_S))
            .unwrap_or(default.slot_s),
        on_guard: match check.choice("check_again.on_guard", message.on_guard, "REFUSE or CLOSE") {
            v1::CheckGuard::Unspecified | v1::CheckGuard::Refuse => OnGuard::Refuse,
            v1::CheckGuard::Close => OnGuard::Close,
        },
    }
}

fn check_again_to_message(check_again: &CheckAgain) -> v1::CheckAgain {
    v1::CheckAgain {
        max_checks: Some(check_again.count_max),
        horizon: Some(duration_of_s(check_again.horizon_s)),
        slot: Some(duration_of_s(check_again.slot_s)),
        on_guard: match check_again.on_guard {
            OnGuard::Refuse => v1::CheckGuard::Refuse,
            OnGuard::Close => v1::CheckGuard::Close,
        }
        .into(),
    }
}

/// A schedule as callers see it: without its secret, and without what only its plan knows (`launch_classes`,
/// `children_count`, `next_launch_time`).
pub fn to_message(schedule: &Schedule) -> v1::Schedule {
    let (mode, horizon_s) = match schedule.catch_up {
        CatchUp::None => (v1::CatchUpMode::None, None),
        CatchUp::Latest => (v1::CatchUpMode::Latest, None),
        CatchUp::All { horizon_s } => (v1::CatchUpMode::All, Some(horizon_s)),
    };
    let policy = schedule.policy.as_ref().map(|id| names::of_policy(&schedule.namespace, id));
    let (when_done, delete_after_s) = match schedule.when_done {
        WhenDone::Keep => (v1::WhenDone::Keep, None),
        WhenDone::Delete { after_s } => (v1::WhenDone::Delete, Some(after_s)),
    };
    let mut message = v1::Schedule {
        name: names::of_schedule(&schedule.namespace, &schedule.id),
        uid: schedule.uid.to_string(),
        description: schedule.description.clone(),
        events: Some(schedule.events).filter(|_| schedule.payload.from.is_none()),
        target: Some(target::to_message(&schedule.target)),
        payload: payload::to_message(&schedule.payload),
        items: items::to_message(&schedule.payload),
        items_from: schedule.payload.from.as_deref().map(items_from::to_message),
        policy: policy.unwrap_or_default(),
        key: schedule.key.clone().filter(|_| schedule.key_label.is_none()).unwrap_or_default(),
        key_label: schedule.key_label.clone().unwrap_or_default(),
        units: Some(schedule.units).filter(|units| *units > 1),
        priority: Some(u32::from(schedule.priority)),
        retry: Some(v1::RetryPolicy {
            max_attempts: Some(schedule.retry.attempts_max),
            min_backoff: Some(duration_of_ms(schedule.retry.backoff_min_ms)),
            max_backoff: Some(duration_of_ms(schedule.retry.backoff_max_ms)),
            retry_lost: Some(schedule.retry.retry_lost),
        }),
        catch_up: Some(v1::CatchUp { mode: mode.into(), horizon: horizon_s.map(duration_of_s) }),
        overlap: match schedule.overlap {
            OverlapRule::Allow => v1::Overlap::Allow,
            OverlapRule::Skip => v1::Overlap::Skip,
            OverlapRule::BufferOne => v1::Overlap::BufferOne,
            OverlapRule::CancelOther => v1::Overlap::CancelOther,
        }
        .into(),
        delay_after_finish: schedule.delay_after_finish_s.map(duration_of_s),
        finish_by: schedule.finish_by_s.map(duration_of_s),
        spread: schedule.spread_s.map(duration_of_s),
        start_within: schedule
            .start_within_s
            .filter(|_| schedule.start_within_percent.is_none())
            .map(duration_of_s),
        start_within_percent: schedule.start_within_percent,
        start_delay: Some(schedule.start_delay_us())
            .filter(|us| *us > 0)
            .map(|us| duration_of_ms(us / 1_000)),
        check_again: Some(check_again_to_message(&schedule.check_again)),
        on_finish: on_finish::to_message(schedule.on_finish.as_ref(), &schedule.namespace),
        when_done: when_done.into(),
        delete_after: delete_after_s.map(duration_of_s),
        labels: schedule.labels.clone(),
        pause: pause(schedule.pause.as_ref()),
        etag: schedule.generation.to_string(),
        create_time: Some(timestamp(schedule.created_us)),
        update_time: Some(timestamp(schedule.updated_us)),
        ..v1::Schedule::default()
    };
    timing::to_message(&schedule.timing, &schedule.namespace, &mut message);
    message
}

/// A child as callers see it.
pub fn child_to_message(child: &Child) -> v1::ScheduleChild {
    let class = child.launch_expression.split('.').next().unwrap_or_default();
    v1::ScheduleChild {
        launch_class: class.to_owned(),
        launch_expression: child.launch_expression.clone(),
        slot: child.slot,
        time_zone: child.zone.clone(),
        rule: child.rule.clone(),
    }
}

/// A trigger that made no run, as callers see it, under its schedule's name.
pub fn skipped_to_message(skipped: &Skipped, schedule: &Name) -> v1::SkippedTrigger {
    v1::SkippedTrigger {
        schedule: names::of_schedule(&schedule.namespace, &schedule.id),
        launch_time: Some(timestamp(skipped.launch_us)),
        reason: match skipped.reason {
            SkipReason::Missed => v1::SkipReason::Missed,
            SkipReason::Paused => v1::SkipReason::Paused,
            SkipReason::Overlap => v1::SkipReason::Overlap,
            SkipReason::NotListed => v1::SkipReason::NotListed,
        }
        .into(),
        record_time: Some(timestamp(skipped.recorded_us)),
    }
}
