//! Children: the index entries of a schedule, each enough to compute its own fires.
//!
//! In: a parsed expression, an interval or a single shot. Out: its children, and from a stored child back to what
//! it fires. Invariants: a child survives the way through text and integer columns; the fires of all children of
//! a schedule are together exactly the fires of its plan. Not here: which children a window reads (`emit`).

use super::calendar::Weekdays;
use super::expression::Expression;
use super::fires::{CronRule, FIRST_S, LIMIT_S};
use super::launch::{DayPart, LaunchClass, LaunchKey};
use super::sources::Source;
use super::zone::Zone;
use crate::model::{GapRule, RepeatRule, SECOND_US};

/// One (launch expression, minute) of a schedule, as a store keeps it in a row.
///
/// Two children of one schedule may agree in zone, launch expression and slot and differ in the rule.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Child {
    /// IANA name; empty for intervals and single shots.
    pub zone: String,
    /// Such as `H.3`, `W.5#L.*`, `MW.8.1.18`, `I.300`, `A.494444`.
    pub launch_expression: String,
    /// Minute 0-59; for intervals the anchor modulo the interval, in seconds; for single shots the second
    /// within the hour.
    pub slot: i32,
    /// What else decides the fires, as opaque text: whether it is a wildcard job, choices at clock changes, the
    /// ANDed day-of-week, start and end, the interval's anchor.
    pub rule: String,
}

/// The text of [`Child::rule`] taken apart.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct ChildRule {
    pub(crate) wildcard: bool,
    pub(crate) gap: GapRule,
    pub(crate) repeat: RepeatRule,
    /// ANDed day-of-week.
    pub(crate) days: Option<Weekdays>,
    /// First fire of an interval, in seconds.
    pub(crate) anchor_s: Option<i64>,
    pub(crate) start_us: Option<i64>,
    pub(crate) end_us: Option<i64>,
}

impl ChildRule {
    pub(crate) fn to_text(self) -> String {
        let mut parts = Vec::new();
        if self.wildcard {
            parts.push("wildcard".to_owned());
        }
        if self.gap == GapRule::Skip {
            parts.push("gap=skip".to_owned());
        }
        if self.repeat == RepeatRule::Both {
            parts.push("repeat=both".to_owned());
        }
        if let Some(days) = self.days {
            let days: Vec<String> = DayPart::of_weekdays(days).iter().map(DayPart::to_string).collect();
            parts.push(format!("days={}", days.join(",")));
        }
        for (name, value) in [("anchor", self.anchor_s), ("start", self.start_us), ("end", self.end_us)] {
            parts.extend(value.map(|value| format!("{name}={value}")));
        }
        parts.join(" ")
    }

    pub(crate) fn parse(text: &str) -> Option<Self> {
        let mut rule = Self::default();
        for part in text.split(' ').filter(|part| !part.is_empty()) {
            let (name, value) = part.split_once('=').unwrap_or((part, ""));
            match (name, value) {
                ("wildcard", "") => rule.wildcard = true,
                ("gap", "skip") => rule.gap = GapRule::Skip,
                ("repeat", "both") => rule.repeat = RepeatRule::Both,
                ("days", days) => {
                    let mut set = Weekdays::default();
                    for day in days.split(',') {
                        DayPart::weekday(day)?.add_to(&mut set);
                    }
                    rule.days = Some(set);
                }
                ("anchor", seconds) => rule.anchor_s = Some(seconds.parse().ok()?),
                ("start", us) => rule.start_us = Some(us.parse().ok()?),
                ("end", us) => rule.end_us = Some(us.parse().ok()?),
                _ => return None,
            }
        }
        (rule.to_text() == text).then_some(rule)
    }
}

/// A stored child that says nothing sensible.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("child: {column} {value:?} is not allowed: {expected}")]
pub struct CorruptChild {
    /// Which field of [`Child`].
    pub column: &'static str,
    /// What it holds.
    pub value: String,
    /// What is allowed.
    pub expected: &'static str,
}

impl Child {
    /// Takes the columns apart.
    pub(crate) fn read(&self) -> Result<(Source, ChildRule), CorruptChild> {
        let corrupt =
            |column, value: &str, expected| CorruptChild { column, value: value.to_owned(), expected };
        let Some(key) = LaunchKey::parse(&self.launch_expression) else {
            return Err(corrupt("launch_expression", &self.launch_expression, "a launch expression"));
        };
        let Some(rule) = ChildRule::parse(&self.rule) else {
            return Err(corrupt("rule", &self.rule, "a rule as written by this program"));
        };
        let bad_slot = |expected| corrupt("slot", &self.slot.to_string(), expected);
        let bad_zone = |expected| corrupt("zone", &self.zone, expected);
        let slot = i64::from(self.slot);
        let fires = match key {
            LaunchKey::Cron { .. } => {
                let zone = Zone::named(&self.zone).ok_or_else(|| bad_zone("a name in the IANA database"))?;
                let minute = u8::try_from(slot).ok().filter(|minute| *minute < 60);
                let minute = minute.ok_or_else(|| bad_slot("0-59"))?;
                let calendar = key.calendar(minute, rule.days).ok_or_else(|| bad_slot("a minute"))?;
                let ChildRule { wildcard, gap, repeat, .. } = rule;
                Source::Cron(CronRule { calendar, zone, wildcard, gap, repeat })
            }
            _ if !self.zone.is_empty() => {
                return Err(bad_zone("empty for an interval or a single shot"));
            }
            LaunchKey::Interval { every_s } => {
                let Some(anchor_s) = rule.anchor_s.filter(|anchor| (FIRST_S..LIMIT_S).contains(anchor))
                else {
                    return Err(corrupt("rule", &self.rule, "an interval's anchor in years 1 to 9999"));
                };
                if anchor_s.rem_euclid(every_s) != slot {
                    return Err(bad_slot("the anchor modulo the interval"));
                }
                Source::Interval { every_s, anchor_s }
            }
            LaunchKey::At { hour } => {
                if !(0..3600).contains(&slot) {
                    return Err(bad_slot("0-3599"));
                }
                let at_s = hour.checked_mul(3600).and_then(|start| start.checked_add(slot));
                let bad_hour =
                    || corrupt("launch_expression", &self.launch_expression, "an hour that exists");
                Source::At { at_s: at_s.ok_or_else(bad_hour)? }
            }
        };
        Ok((fires, rule))
    }
}

/// One class of an expression's children, before months, day parts, hours and minutes are multiplied.
pub(crate) struct Family {
    pub(crate) class: LaunchClass,
    months: Vec<Option<u8>>,
    days: Vec<DayPart>,
    hours: Vec<Option<u8>>,
    minutes: Vec<u8>,
    filter: Option<Weekdays>,
}

impl Family {
    /// The classes of an expression: one, or two where either day field is enough.
    pub(crate) fn of(expression: &Expression) -> Vec<Self> {
        let calendar = &expression.calendar;
        let listed = |any: bool, bits: u64| {
            if any { vec![None] } else { (0..60_u8).filter(|bit| bits >> bit & 1 == 1).map(Some).collect() }
        };
        let family = |days: Vec<DayPart>, filter| {
            let months: Vec<Option<u8>> = listed(expression.any_month, calendar.months.into());
            let key = LaunchKey::Cron { month: months[0], day: days[0], hour: None };
            Self {
                class: key.class(),
                months,
                days,
                hours: listed(expression.any_hour, calendar.hours.into()),
                minutes: (0..60_u8).filter(|bit| calendar.minutes >> bit & 1 == 1).collect(),
                filter,
            }
        };
        let (dates, weekdays) = (calendar.dates, calendar.weekdays);
        match (expression.any_date, expression.any_weekday) {
            (true, true) => vec![family(vec![DayPart::Any], None)],
            (false, true) => vec![family(DayPart::of_dates(dates), None)],
            (true, false) => vec![family(DayPart::of_weekdays(weekdays), None)],
            (false, false) if calendar.either_day => {
                vec![family(DayPart::of_dates(dates), None), family(DayPart::of_weekdays(weekdays), None)]
            }
            (false, false) => vec![family(DayPart::of_dates(dates), Some(weekdays))],
        }
    }

    /// Months x day parts x hours x minutes.
    pub(crate) fn count(&self) -> usize {
        self.months.len() * self.days.len() * self.hours.len() * self.minutes.len()
    }

    /// Appends the children.
    pub(crate) fn expand(&self, zone: Zone, rule: ChildRule, children: &mut Vec<Child>) {
        let rule = ChildRule { days: self.filter, ..rule }.to_text();
        for &month in &self.months {
            for &day in &self.days {
                for &hour in &self.hours {
                    let launch_expression = LaunchKey::Cron { month, day, hour }.to_string();
                    children.extend(self.minutes.iter().map(|&minute| Child {
                        zone: zone.name().to_owned(),
                        launch_expression: launch_expression.clone(),
                        slot: minute.into(),
                        rule: rule.clone(),
                    }));
                }
            }
        }
    }
}

/// The child of an interval.
pub(crate) fn interval_child(every_s: i64, anchor_s: i64, rule: ChildRule) -> Child {
    // The casts lose nothing: an interval is at most i32::MAX seconds.
    let slot = anchor_s.rem_euclid(every_s) as i32;
    Child {
        zone: String::new(),
        launch_expression: LaunchKey::Interval { every_s }.to_string(),
        slot,
        rule: ChildRule { anchor_s: Some(anchor_s), ..rule }.to_text(),
    }
}

/// The child of a single shot at a whole second.
pub(crate) fn at_child(at_us: i64) -> Child {
    let at_s = at_us.div_euclid(SECOND_US);
    // The casts lose nothing: below 3600.
    let slot = at_s.rem_euclid(3600) as i32;
    Child {
        zone: String::new(),
        launch_expression: LaunchKey::At { hour: at_s.div_euclid(3600) }.to_string(),
        slot,
        rule: String::new(),
    }
}
