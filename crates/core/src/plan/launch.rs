//! Launch classes and launch expressions: the keys under which a scan finds children.
//!
//! In: months, day parts, hours. Out: a short text such as `W.5#L.3`, and back.
//! Invariant: one key has one text; any other spelling of it is refused.
//! Not here: which keys a schedule has (`child`), which a window can fire (`emit`).

use std::fmt;

use super::calendar::{Calendar, Dates, Weekdays};

/// The most significant restricted field of a cron trigger, or the kind of another trigger.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum LaunchClass {
    /// Month and day-of-month.
    MM,
    /// Month and day-of-week, or month alone.
    MW,
    /// Day-of-month.
    M,
    /// Day-of-week.
    W,
    /// Neither.
    H,
    /// Intervals.
    I,
    /// Single shots.
    A,
}

impl fmt::Display for LaunchClass {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::MM => "MM",
            Self::MW => "MW",
            Self::M => "M",
            Self::W => "W",
            Self::H => "H",
            Self::I => "I",
            Self::A => "A",
        })
    }
}

/// The day part of a launch expression.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum DayPart {
    /// `*`, or none: every day.
    Any,
    /// `1` to `31` in classes M and MM.
    Date(u8),
    /// `L` in classes M and MM.
    LastDay,
    /// `0` to `6` in classes W and MW; 0 is Sunday.
    Weekday(u8),
    /// `d#k`.
    Nth(u8, u8),
    /// `d#L`.
    LastWeekday(u8),
}

impl fmt::Display for DayPart {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Any => f.write_str("*"),
            Self::Date(day) | Self::Weekday(day) => day.fmt(f),
            Self::LastDay => f.write_str("L"),
            Self::Nth(day, k) => write!(f, "{day}#{k}"),
            Self::LastWeekday(day) => write!(f, "{day}#L"),
        }
    }
}

impl DayPart {
    /// The parts of a set of dates.
    pub(crate) fn of_dates(dates: Dates) -> Vec<Self> {
        let last = (dates.0 & 1 == 1).then_some(Self::LastDay);
        (1..=31_u8).filter(|day| dates.0 >> day & 1 == 1).map(Self::Date).chain(last).collect()
    }

    /// The parts of a set of weekdays.
    pub(crate) fn of_weekdays(weekdays: Weekdays) -> Vec<Self> {
        let in_set = |set: u8| (0..7_u8).filter(move |day| set >> day & 1 == 1);
        let mut parts: Vec<Self> = in_set(weekdays.every).map(Self::Weekday).collect();
        for (k, set) in (1_u8..).zip(weekdays.nth) {
            parts.extend(in_set(set).map(|day| Self::Nth(day, k)));
        }
        parts.extend(in_set(weekdays.last).map(Self::LastWeekday));
        parts
    }

    /// Parses a part of the W classes.
    pub(crate) fn weekday(text: &str) -> Option<Self> {
        let (day, which) = text.split_once('#').map_or((text, None), |(day, which)| (day, Some(which)));
        let day = small(day, 0, 6)?;
        match which {
            None => Some(Self::Weekday(day)),
            Some("L") => Some(Self::LastWeekday(day)),
            Some(k) => Some(Self::Nth(day, small(k, 1, 5)?)),
        }
    }

    fn date(text: &str) -> Option<Self> {
        if text == "L" { Some(Self::LastDay) } else { small(text, 1, 31).map(Self::Date) }
    }

    /// Adds a part of the W classes to a set.
    pub(crate) fn add_to(self, set: &mut Weekdays) {
        match self {
            Self::Weekday(day) => set.every |= 1 << day,
            Self::Nth(day, k) => set.nth[usize::from(k - 1)] |= 1 << day,
            Self::LastWeekday(day) => set.last |= 1 << day,
            Self::Any | Self::Date(_) | Self::LastDay => {}
        }
    }

    fn is_date(self) -> bool {
        matches!(self, Self::Date(_) | Self::LastDay)
    }
}

/// A launch expression.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum LaunchKey {
    /// Classes H, W, M, MW, MM; absent month and hour mean every one.
    Cron { month: Option<u8>, day: DayPart, hour: Option<u8> },
    /// `I.<seconds>`.
    Interval { every_s: i64 },
    /// `A.<hours since the epoch>`.
    At { hour: i64 },
}

impl LaunchKey {
    pub(crate) fn class(self) -> LaunchClass {
        match self {
            Self::Cron { month: None, day: DayPart::Any, .. } => LaunchClass::H,
            Self::Cron { month: None, day, .. } if day.is_date() => LaunchClass::M,
            Self::Cron { month: None, .. } => LaunchClass::W,
            Self::Cron { day, .. } if day.is_date() => LaunchClass::MM,
            Self::Cron { .. } => LaunchClass::MW,
            Self::Interval { .. } => LaunchClass::I,
            Self::At { .. } => LaunchClass::A,
        }
    }

    /// Parses the text that `Display` writes; nothing else.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let mut parts = text.split('.');
        let class = parts.next()?;
        let rest: Vec<&str> = parts.collect();
        let month = |text: &str| small(text, 1, 12).map(Some);
        let key = match (class, rest.as_slice()) {
            ("H", [hour]) => Self::Cron { month: None, day: DayPart::Any, hour: hour_of(hour)? },
            ("W", [day, hour]) => {
                Self::Cron { month: None, day: DayPart::weekday(day)?, hour: hour_of(hour)? }
            }
            ("M", [day, hour]) => Self::Cron { month: None, day: DayPart::date(day)?, hour: hour_of(hour)? },
            ("MM", [m, day, hour]) => {
                Self::Cron { month: month(m)?, day: DayPart::date(day)?, hour: hour_of(hour)? }
            }
            ("MW", [m, "*", hour]) => {
                Self::Cron { month: month(m)?, day: DayPart::Any, hour: hour_of(hour)? }
            }
            ("MW", [m, day, hour]) => {
                Self::Cron { month: month(m)?, day: DayPart::weekday(day)?, hour: hour_of(hour)? }
            }
            ("I", [every]) => Self::Interval { every_s: every.parse().ok().filter(|s| *s >= 1)? },
            ("A", [hour]) => Self::At { hour: hour.parse().ok()? },
            _ => return None,
        };
        (key.to_string() == text).then_some(key)
    }

    /// The calendar of a child under this key; none for intervals and single shots.
    pub(crate) fn calendar(self, minute: u8, filter: Option<Weekdays>) -> Option<Calendar> {
        let Self::Cron { month, day, hour } = self else { return None };
        let mut calendar = Calendar {
            minutes: 1 << minute,
            hours: hour.map_or(0xff_ffff, |hour| 1 << hour),
            months: month.map_or(0x1ffe, |month| 1 << month),
            dates: Dates::ALL,
            weekdays: filter.unwrap_or(Weekdays::ALL),
            either_day: false,
        };
        match day {
            DayPart::Any => {}
            DayPart::Date(date) => calendar.dates = Dates(1 << date),
            DayPart::LastDay => calendar.dates = Dates(1),
            weekday => {
                calendar.weekdays = Weekdays::default();
                weekday.add_to(&mut calendar.weekdays);
            }
        }
        Some(calendar)
    }
}

impl fmt::Display for LaunchKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let class = self.class();
        match self {
            Self::Cron { month, day, hour } => {
                write!(f, "{class}.")?;
                if let Some(month) = month {
                    write!(f, "{month}.")?;
                }
                if class != LaunchClass::H {
                    write!(f, "{day}.")?;
                }
                match hour {
                    Some(hour) => hour.fmt(f),
                    None => f.write_str("*"),
                }
            }
            Self::Interval { every_s } => write!(f, "{class}.{every_s}"),
            Self::At { hour } => write!(f, "{class}.{hour}"),
        }
    }
}

fn hour_of(text: &str) -> Option<Option<u8>> {
    if text == "*" { Some(None) } else { small(text, 0, 23).map(Some) }
}

fn small(text: &str, min: u8, max: u8) -> Option<u8> {
    text.parse().ok().filter(|value| (min..=max).contains(value))
}
