//! A window in a zone's local time: which launch keys can fire, and at which minutes.
//!
//! In: a zone and a span of instants. Out: launch keys with their minutes. Invariants: repeated minutes count in
//! both passes; minutes that a forward change skips count in the window that holds the first instant after the
//! gap, for keys with a fixed hour only (hour `*` makes a wildcard job, which skips them too).
//! Not here: whether a child fires in the second pass or after a gap (its rule).

use std::collections::BTreeMap;
use std::ops::RangeInclusive;

use crate::plan::{
    CORRECTION_S, DAY_MINUTES, DayPart, LaunchKey, Zone, civil_from_days, minute_ceil, month_days, weekday,
};

/// A set of minutes of an hour.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Minutes(u64);

impl Minutes {
    /// As ranges, ascending and disjoint.
    pub(crate) fn ranges(self) -> Vec<RangeInclusive<i32>> {
        let mut ranges: Vec<RangeInclusive<i32>> = Vec::new();
        for minute in (0..60).filter(|minute| self.0 >> minute & 1 == 1) {
            match ranges.last_mut() {
                Some(last) if *last.end() == minute - 1 => *last = *last.start()..=minute,
                _ => ranges.push(minute..=minute),
            }
        }
        ranges
    }
}

/// The launch keys that can fire at the seconds `[start, end)`, each with the minutes at which it can.
pub(crate) fn local_keys(zone: Zone, (start, end): (i64, i64)) -> BTreeMap<LaunchKey, Minutes> {
    let mut keys = BTreeMap::new();
    if start >= end {
        return keys;
    }
    // One second earlier, so that a change at the very start of the window shows.
    let segments = zone.segments(start - 1, end);
    for pair in segments.windows(2) {
        let (before, after) = (pair[0].offset, pair[1].offset);
        if (1..CORRECTION_S).contains(&(after - before)) {
            let change = pair[1].start;
            add_minutes(minute_ceil(change + before)..minute_ceil(change + after), true, &mut keys);
        }
    }
    for segment in segments {
        let from = minute_ceil(segment.start.max(start) + segment.offset);
        add_minutes(from..minute_ceil(segment.end + segment.offset), false, &mut keys);
    }
    keys
}

/// Adds a stretch of local minutes, hour by hour.
fn add_minutes(stretch: std::ops::Range<i64>, skipped: bool, keys: &mut BTreeMap<LaunchKey, Minutes>) {
    let mut minute = stretch.start;
    while minute < stretch.end {
        let hour_start = minute.div_euclid(60) * 60;
        let end = stretch.end.min(hour_start + 60);
        let minutes = (1_u64 << (end - hour_start)) - (1_u64 << (minute - hour_start));
        for key in hour_keys(hour_start, skipped) {
            keys.entry(key).or_default().0 |= minutes;
        }
        minute = end;
    }
}

/// Every key whose date and hour are those of a local hour, given by its first minute.
fn hour_keys(hour_start: i64, skipped: bool) -> impl Iterator<Item = LaunchKey> {
    let day = hour_start.div_euclid(DAY_MINUTES);
    let (year, month, date) = civil_from_days(day);
    let days = month_days(year, month);
    // The casts lose nothing: calendar fields are below 60.
    let [date8, weekday, nth, month, hour] =
        [date, weekday(day), (date - 1) / 7 + 1, month, (hour_start.rem_euclid(DAY_MINUTES) / 60) as u32]
            .map(|value| value as u8);
    let last_day = (date == days).then_some(DayPart::LastDay);
    let last_weekday = (date + 7 > days).then_some(DayPart::LastWeekday(weekday));
    let parts = [DayPart::Any, DayPart::Date(date8), DayPart::Weekday(weekday), DayPart::Nth(weekday, nth)];
    let hours = [Some(Some(hour)), (!skipped).then_some(None)].into_iter().flatten();
    let parts: Vec<DayPart> = parts.into_iter().chain(last_day).chain(last_weekday).collect();
    hours.flat_map(move |hour| {
        let keys = parts
            .iter()
            .flat_map(move |&day| [None, Some(month)].map(|month| LaunchKey::Cron { month, day, hour }));
        keys.collect::<Vec<_>>()
    })
}
