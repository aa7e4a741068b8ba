//! Brings triggers, zone and bounds into the planner's form; whether they can fire is the planner's decision.

use tollgate_core::model::{
    CalendarUse, CheckAgain, DateRange, DateRangeError, GapRule, RepeatRule, Timing, Trigger,
};
use tollgate_core::plan::plain_list;

use super::check::Check;
use super::{duration_of_s, names, timestamp};
use crate::v1;
use crate::v1::trigger::Trigger as Kind;

/// The most triggers of one schedule.
const TRIGGERS_MAX: usize = 100;
/// The longest slot that moments are rounded up to.
pub(super) const SLOT_MAX_S: i64 = 24 * 3_600;
/// The most dates and ranges of dates that one schedule may exclude.
const EXCLUDE_MAX: usize = 500;

/// The timing of a schedule of this namespace, where that is known; the dates of its calendars are still to be taken.
pub(super) fn to_core(check: &mut Check, message: &v1::Schedule, namespace: Option<&str>) -> Timing {
    let count = message.triggers.len();
    if count > TRIGGERS_MAX {
        check.refuse("triggers", count, format!("at most {TRIGGERS_MAX} triggers"));
    }
    let triggers = message.triggers.iter().take(TRIGGERS_MAX).enumerate();
    // One that is wrong is refused with the rest of `check_again`.
    let slot = message.check_again.as_ref().and_then(|check_again| check_again.slot);
    let slot_s = slot.map_or(1, |slot| slot.seconds.clamp(1, SLOT_MAX_S));
    let gap = check.choice("gap", message.gap, "NEXT_VALID or SKIP");
    let repeat = check.choice("repeat", message.repeat, "FIRST or BOTH");
    let timing = Timing {
        triggers: triggers
            .filter_map(|(at, given)| trigger(check, &format!("triggers[{at}]"), given, slot_s))
            .collect(),
        time_zone: match message.time_zone.as_str() {
            "" => "UTC".to_owned(),
            zone => zone.to_owned(),
        },
        gap: match gap {
            v1::GapRule::Unspecified | v1::GapRule::NextValid => GapRule::NextValid,
            v1::GapRule::Skip => GapRule::Skip,
        },
        repeat: match repeat {
            v1::RepeatRule::Unspecified | v1::RepeatRule::First => RepeatRule::First,
            v1::RepeatRule::Both => RepeatRule::Both,
        },
        start_us: check.us("start_time", message.start_time.as_ref()),
        end_us: check.us("end_time", message.end_time.as_ref()),
        exclude: dates(check, "exclude", &message.exclude, EXCLUDE_MAX),
        calendars: calendars(check, namespace, &message.exclude_calendars),
    };
    if let (Some(start), Some(end)) = (timing.start_us, timing.end_us)
        && end <= start
    {
        let given = message.end_time.as_ref().map(ToString::to_string).unwrap_or_default();
        check.refuse("end_time", given, "a moment after start_time");
    }
    timing
}

/// Dates and ranges of dates, at most `most`.
pub(super) fn dates(check: &mut Check, field: &str, given: &[String], most: usize) -> Vec<DateRange> {
    if given.len() > most {
        check.refuse(field, given.len(), format!("at most {most} dates and ranges of dates"));
    }
    let mut ranges = Vec::with_capacity(given.len().min(most));
    for (at, text) in given.iter().take(most).enumerate() {
        match text.parse() {
            Ok(range) => ranges.push(range),
            Err(DateRangeError) => check.refuse(&format!("{field}[{at}]"), text, DateRangeError.to_string()),
        }
    }
    ranges
}

/// The calendars that a schedule names. Which dates they have is not known here.
fn calendars(check: &mut Check, namespace: Option<&str>, given: &[String]) -> Vec<CalendarUse> {
    let most = Timing::CALENDARS_MAX;
    if given.len() > most {
        check.refuse("exclude_calendars", given.len(), format!("at most {most} calendars"));
    }
    let mut named: Vec<CalendarUse> = Vec::new();
    for (at, text) in given.iter().take(most).enumerate() {
        let field = format!("exclude_calendars[{at}]");
        let path = check.path(&field);
        let read = match namespace {
            Some(namespace) => names::calendar_within(&path, namespace, text),
            None => names::calendar(&path, text),
        };
        let Some(name) = check.keep(read) else { continue };
        if named.iter().any(|one| one.id == name.id) {
            check.refuse(&field, text, "each calendar once");
            continue;
        }
        named.push(CalendarUse { id: name.id, ..CalendarUse::default() });
    }
    named
}

fn trigger(check: &mut Check, path: &str, message: &v1::Trigger, slot_s: i64) -> Option<Trigger> {
    match &message.trigger {
        None => {
            check.refuse(path, "", "one of cron, fields, interval, at");
            None
        }
        Some(Kind::Cron(expression)) => Some(Trigger::Cron { expression: expression.clone() }),
        Some(Kind::Fields(fields)) => Some(Trigger::Fields {
            month: fields.month.as_deref().map(plain_list),
            day_of_month: fields.day_of_month.as_deref().map(plain_list),
            day_of_week: fields.day_of_week.as_deref().map(plain_list),
            hour: fields.hour.as_deref().map(plain_list),
            minute: fields.minute.as_deref().map(plain_list),
        }),
        Some(Kind::Interval(interval)) => {
            let every = format!("{path}.interval.every");
            if interval.every.is_none() {
                check.refuse(&every, "", "whole seconds, at least 1s");
            }
            let every_s = check.s(&every, interval.every.as_ref(), &(1..=i64::from(i32::MAX)));
            let anchor_us =
                check.whole_second_us(&format!("{path}.interval.anchor"), interval.anchor.as_ref());
            Some(Trigger::Interval { every_s: every_s?, anchor_us })
        }
        Some(Kind::At(at)) => {
            let field = format!("{path}.at");
            let at_us = CheckAgain::up_to_slot_us(check.whole_second_us(&field, Some(at))?, slot_s);
            Some(Trigger::At { at_us: check.us(&field, Some(&timestamp(at_us)))? })
        }
    }
}

/// Writes the timing into a message.
pub(super) fn to_message(timing: &Timing, namespace: &str, message: &mut v1::Schedule) {
    message.triggers =
        timing.triggers.iter().map(|trigger| v1::Trigger { trigger: Some(kind(trigger)) }).collect();
    message.time_zone.clone_from(&timing.time_zone);
    message.gap = match timing.gap {
        GapRule::NextValid => v1::GapRule::NextValid,
        GapRule::Skip => v1::GapRule::Skip,
    }
    .into();
    message.repeat = match timing.repeat {
        RepeatRule::First => v1::RepeatRule::First,
        RepeatRule::Both => v1::RepeatRule::Both,
    }
    .into();
    message.start_time = timing.start_us.map(timestamp);
    message.end_time = timing.end_us.map(timestamp);
    message.exclude = timing.own_exclude().iter().map(ToString::to_string).collect();
    let calendars = timing.calendars.iter().map(|one| names::of_calendar(namespace, &one.id));
    message.exclude_calendars = calendars.collect();
}

fn kind(trigger: &Trigger) -> Kind {
    match trigger {
        Trigger::Cron { expression } => Kind::Cron(expression.clone()),
        Trigger::Fields { month, day_of_month, day_of_week, hour, minute } => Kind::Fields(v1::FieldTimes {
            month: month.clone(),
            day_of_month: day_of_month.clone(),
            day_of_week: day_of_week.clone(),
            hour: hour.clone(),
            minute: minute.clone(),
        }),
        Trigger::Interval { every_s, anchor_us } => Kind::Interval(v1::Interval {
            every: Some(duration_of_s(*every_s)),
            anchor: anchor_us.map(timestamp),
        }),
        Trigger::At { at_us } => Kind::At(timestamp(*at_us)),
    }
}
