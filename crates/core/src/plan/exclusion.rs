//! On which local dates nothing fires.
//!
//! In: the dates of a timing. Out: whether a day is among them, and where the next one begins that is not. Invariant: of a cron
//! expression the date is judged on the nominal local minute, also where a clock change puts the fire off to the next day;
//! of an interval or a single shot, on the clocks of the schedule's zone. Not here: the fires themselves.

use std::sync::Arc;

use super::zone::Zone;
use crate::model::{DateRange, Timing};

const DAY_S: i64 = 86_400;
/// By how much a clock may change on the way to the end of excluded days, and be walked by steps: three hours.
const SLACK_S: i64 = 3 * 3_600;

/// The excluded days of a schedule, in its zone.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Exclusion {
    zone: Zone,
    /// Half-open ranges of days from 1970-01-01 on, ascending, apart from each other.
    days: Arc<[(i64, i64)]>,
}

impl Exclusion {
    /// What a timing excludes; none where that is nothing, or its zone is unknown.
    pub fn of(timing: &Timing) -> Option<Self> {
        if timing.exclude.is_empty() {
            return None;
        }
        Some(Self::by(Zone::named(&timing.time_zone)?, &timing.exclude))
    }

    /// These dates, by the clocks of a zone.
    pub(super) fn by(zone: Zone, dates: &[DateRange]) -> Self {
        let mut given: Vec<(i64, i64)> = dates.iter().map(|range| range.days()).collect();
        given.sort_unstable();
        let mut days: Vec<(i64, i64)> = Vec::with_capacity(given.len());
        for (first, end) in given {
            match days.last_mut().filter(|(_, before)| first <= *before) {
                Some((_, before)) => *before = end.max(*before),
                None => days.push((first, end)),
            }
        }
        Self { zone, days: days.into() }
    }

    /// The first day after those among which this one is excluded; none where it is not.
    pub(crate) fn end_day(&self, day: i64) -> Option<i64> {
        let after = self.days.partition_point(|(first, _)| *first <= day);
        let (_, end) = self.days[..after].last()?;
        (day < *end).then_some(*end)
    }

    /// A later instant up to which nothing fires by the clocks of the zone, where this one lies on an excluded day. That it is
    /// outside of it is not said.
    pub(crate) fn passes_until_s(&self, instant: i64) -> Option<i64> {
        let day = |instant: i64| (instant + self.zone.offset(instant)).div_euclid(DAY_S);
        let end = self.end_day(day(instant))? * DAY_S;
        let near = end - self.zone.offset(instant);
        let near = near.min(end - self.zone.offset(near)) - SLACK_S;
        Some(near.max(instant + 1))
    }
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::*;
    use crate::model::{CalendarUse, SECOND_US, Trigger};
    use crate::plan::Plan;

    fn timing(zone: &str, trigger: Trigger, exclude: &[&str]) -> Timing {
        let exclude = exclude.iter().map(|text| text.parse().unwrap()).collect();
        Timing { triggers: vec![trigger], time_zone: zone.into(), exclude, ..Timing::default() }
    }

    fn cron(text: &str) -> Trigger {
        Trigger::Cron { expression: text.into() }
    }

    /// The fires from one moment to another, as clocks in UTC show them.
    fn fires(timing: &Timing, from: &str, until: &str) -> Vec<String> {
        let us = |text: &str| chrono::DateTime::parse_from_rfc3339(text).unwrap().timestamp_micros();
        let plan = Plan::compile(timing, b"").unwrap();
        let shown = |us| chrono::DateTime::from_timestamp_micros(us).unwrap().format("%d %H:%M").to_string();
        plan.fires_between(us(from) - 1, us(until) - 1).map(shown).collect()
    }

    #[test]
    fn days_are_excluded_from_the_first_to_the_last() {
        let of = timing(
            "UTC",
            cron("@daily"),
            &["1970-01-05", "1970-01-03..1970-01-04", "1970-01-03", "1970-01-09"],
        );
        let exclusion = Exclusion::of(&of).unwrap();
        let ends: Vec<Option<i64>> = (0..10).map(|day| exclusion.end_day(day)).collect();
        assert_eq!(ends, [None, None, Some(5), Some(5), Some(5), None, None, None, Some(9), None]);
        assert_eq!(Exclusion::of(&timing("UTC", cron("@daily"), &[])), None);
    }

    #[test]
    fn a_date_is_the_zones_own() {
        let given = timing("Asia/Tokyo", cron("0 3,23 * * *"), &["2026-12-25"]);
        let told = fires(&given, "2026-12-24T00:00:00Z", "2026-12-26T00:00:00Z");
        assert_eq!(told, ["24 14:00", "25 18:00"], "24 23:00 and 26 03:00 in Tokyo");
        let given =
            timing("Asia/Tokyo", Trigger::Interval { every_s: 21_600, anchor_us: Some(0) }, &["2026-12-25"]);
        let told = fires(&given, "2026-12-24T00:00:00Z", "2026-12-26T00:00:00Z");
        assert_eq!(told, ["24 00:00", "24 06:00", "24 12:00", "25 18:00"]);
    }

    /// Nuuk, 2026-03-28: from Saturday 23:00 to Sunday 00:00.
    #[test]
    fn the_date_is_that_of_the_nominal_minute() {
        let span = ("2026-03-29T00:00:00Z", "2026-03-30T00:00:00Z");
        let at =
            |exclude: &[&str]| fires(&timing("America/Nuuk", cron("30 23 * * SAT"), exclude), span.0, span.1);
        assert_eq!(at(&[]), ["29 01:00"]);
        assert_eq!(at(&["2026-03-28"]), [""; 0], "Saturday's, though it would fire on Sunday");
        assert_eq!(at(&["2026-03-29"]), ["29 01:00"]);
    }

    /// An interval of a second passes over years of days without a look at each second, and misses none at their end.
    #[test]
    fn long_exclusions_cost_little() {
        for zone in ["UTC", "Europe/Berlin", "Pacific/Apia", "Australia/Lord_Howe"] {
            let every = Trigger::Interval { every_s: 1, anchor_us: Some(0) };
            let given = timing(zone, every, &["2000-01-01..2026-10-24"]);
            let plan = Plan::compile(&given, b"").unwrap();
            let from_us = 1_000_000_000 * SECOND_US;
            let first_us = plan.fires_after(from_us).next().unwrap();
            let exclusion = Exclusion::of(&given).unwrap();
            let is_out = |us: i64| exclusion.passes_until_s(us / SECOND_US).is_none();
            assert!(is_out(first_us) && !is_out(first_us - SECOND_US), "{zone}: {first_us}");
        }
    }

    #[test]
    fn a_single_shot_on_an_excluded_date_is_refused() {
        let at_us = 1_798_156_800 * SECOND_US;
        let given = |dates: &[&str]| timing("Asia/Tokyo", Trigger::At { at_us }, dates);
        // 2026-12-25T00:00:00Z is the 25th in Tokyo as well.
        assert!(Plan::compile(&given(&["2026-12-24"]), b"").is_ok());
        let error = Plan::compile(&given(&["2026-12-25"]), b"").unwrap_err();
        assert_eq!(error.field, "triggers[0].at.at_us");
        assert!(error.expected.contains("exclude"), "{error}");
        let mut borrowed = given(&["2026-12-25"]);
        borrowed.calendars = vec![CalendarUse { id: "holidays".into(), count: 1, ..CalendarUse::default() }];
        let error = Plan::compile(&borrowed, b"").unwrap_err();
        let expected =
            "a moment that the calendar holidays in exclude_calendars leaves, by the dates of Asia/Tokyo";
        assert_eq!(error.expected, expected);
    }
}
