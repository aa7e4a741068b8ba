//! A plan against a naive reference: a walk over every minute that reads the clock and compares texts.

#![expect(clippy::unwrap_used, reason = "tests")]

mod timing;

use std::collections::BTreeMap;

use chrono::{DateTime, Datelike, NaiveDateTime, TimeDelta, Timelike};
use chrono_tz::Tz;
use proptest::prelude::*;
use tollgate_core::model::{GapRule, RepeatRule, SECOND_US, Timing, Trigger};
use tollgate_core::plan::Plan;

/// A correction of the calendar, in minutes.
const CORRECTION: i64 = 180;

struct Reference<'a> {
    fields: &'a [String; 5],
    zone: Tz,
    gap: GapRule,
    repeat: RepeatRule,
}

impl Reference<'_> {
    /// Whether a text allows a value; day-of-week tests Sunday as 0 and as 7.
    fn allows(text: &str, value: u32, max: u32, min: u32) -> bool {
        const NAMES: &str = "JANFEBMARAPRMAYJUNJULAUGSEPOCTNOVDEC";
        const DAYS: &str = "SUNMONTUEWEDTHUFRISAT";
        let number = |text: &str| {
            let upper = text.to_uppercase();
            upper.parse::<u32>().unwrap_or_else(|_| match max {
                12 => NAMES.find(&upper).unwrap() as u32 / 3 + 1,
                _ => DAYS.find(&upper).unwrap() as u32 / 3,
            })
        };
        text.split(',').any(|member| {
            let (range, step) = member.split_once('/').unwrap_or((member, ""));
            let (low, high) = match range.split_once('-') {
                _ if range == "*" => (min, max),
                Some((low, high)) => (number(low), number(high)),
                None if step.is_empty() => (number(range), number(range)),
                None => (number(range), max),
            };
            let step = step.parse::<u32>().unwrap_or(1);
            (low..=high).contains(&value) && (value - low).is_multiple_of(step)
        })
    }

    fn allows_date(&self, local: NaiveDateTime) -> bool {
        let text = self.fields[2].to_lowercase();
        let last = (local + TimeDelta::days(1)).month() != local.month();
        text.split(',').any(|member| match member {
            "l" => last,
            _ => Self::allows(member, local.day(), 31, 1),
        })
    }

    fn allows_weekday(&self, local: NaiveDateTime) -> bool {
        let today = local.weekday().num_days_from_sunday();
        let last = (local + TimeDelta::days(7)).month() != local.month();
        self.fields[4].to_lowercase().split(',').any(|member| {
            let (day, which) = match member.split_once('#') {
                Some((day, which)) => (day, which),
                None => member.strip_suffix('l').map_or((member, ""), |day| (day, "l")),
            };
            let day = Self::allows(day, today, 7, 0) || today == 0 && Self::allows(day, 7, 7, 0);
            day && match which {
                "" => true,
                "l" => last,
                k => local.day().div_ceil(7).to_string() == k,
            }
        })
    }

    fn matches(&self, local: NaiveDateTime) -> bool {
        let [minute, hour, date, month, weekday] = self.fields;
        let both = date.starts_with('*') || weekday.starts_with('*');
        let (dates, weekdays) = (self.allows_date(local), self.allows_weekday(local));
        Self::allows(minute, local.minute(), 59, 0)
            && Self::allows(hour, local.hour(), 23, 0)
            && Self::allows(month, local.month(), 12, 1)
            && if both { dates && weekdays } else { dates || weekdays }
    }

    fn local(&self, minute: i64) -> NaiveDateTime {
        DateTime::from_timestamp(minute * 60, 0).unwrap().with_timezone(&self.zone).naive_local()
    }

    /// Fires at the UTC minutes in `from..to`.
    fn fires(&self, from: i64, to: i64) -> Vec<i64> {
        let wildcard = self.fields[0].starts_with('*') || self.fields[1].starts_with('*');
        let mut shown = BTreeMap::new();
        let mut fires = Vec::new();
        let first = from - CORRECTION - 1;
        let mut expected = self.local(first);
        for minute in first..to {
            let local = self.local(minute);
            let skipped = (local - expected).num_minutes();
            let gap_fire = !wildcard
                && self.gap == GapRule::NextValid
                && (1..CORRECTION).contains(&skipped)
                && (0..skipped).any(|late| self.matches(expected + TimeDelta::minutes(late)));
            let earlier = shown.insert(local, minute);
            let second = earlier.is_some_and(|earlier| minute - earlier <= CORRECTION);
            let regular = wildcard || self.repeat == RepeatRule::Both || !second;
            if minute >= from && (gap_fire || regular && self.matches(local)) {
                fires.push(minute);
            }
            expected = local + TimeDelta::minutes(1);
        }
        fires
    }
}

fn check(
    fields: &[String; 5],
    zone: &str,
    gap: bool,
    repeat: bool,
    from: i64,
    to: i64,
) -> Result<(), TestCaseError> {
    let gap = if gap { GapRule::Skip } else { GapRule::NextValid };
    let repeat = if repeat { RepeatRule::Both } else { RepeatRule::First };
    let reference = Reference { fields, zone: zone.parse().unwrap(), gap, repeat };
    let expected: Vec<i64> = reference.fires(from, to).iter().map(|minute| minute * 60 * SECOND_US).collect();
    let timing = Timing {
        triggers: vec![Trigger::Cron { expression: fields.join(" ") }],
        time_zone: zone.to_owned(),
        gap,
        repeat,
        ..Timing::default()
    };
    let after_us = from * 60 * SECOND_US - 1;
    let until_us = to * 60 * SECOND_US - 1;
    match Plan::forecast(&timing, b"") {
        Ok(plan) => {
            let fires: Vec<i64> = plan.fires_between(after_us, until_us).collect();
            prop_assert_eq!(&fires, &expected);
            let unbounded: Vec<i64> = plan.fires_after(after_us).take(expected.len()).collect();
            prop_assert_eq!(unbounded, expected);
        }
        Err(error) => {
            prop_assert!(error.expected.contains("fires some day"), "{}", error);
            prop_assert_eq!(expected, Vec::<i64>::new());
        }
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn fires_near_clock_changes_are_those_of_the_walk(
        fields in timing::fields(),
        (zone, instant) in timing::place(),
        minutes in 1..2000_i64,
        gap in any::<bool>(),
        repeat in any::<bool>(),
    ) {
        check(&fields, &zone, gap, repeat, instant / 60, instant / 60 + minutes)?;
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 6, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn fires_over_a_year_are_those_of_the_walk(
        fields in timing::fields(),
        (zone, instant) in timing::place(),
    ) {
        check(&fields, &zone, false, false, instant / 60, instant / 60 + 366 * 24 * 60)?;
    }
}

fn instants(expression: &str, zone: &str, from: &str, count: usize) -> Vec<String> {
    let timing = Timing {
        triggers: vec![Trigger::Cron { expression: expression.to_owned() }],
        time_zone: zone.to_owned(),
        ..Timing::default()
    };
    let from = DateTime::parse_from_rfc3339(from).unwrap().timestamp_micros();
    let fires = Plan::compile(&timing, b"").unwrap().fires_after(from);
    fires.take(count).map(|us| DateTime::from_timestamp_micros(us).unwrap().to_rfc3339()).collect()
}

/// Offsets with seconds, which a walk over minutes cannot see: Monrovia was 44:30 behind until 1972.
#[test]
fn an_offset_with_seconds_and_a_gap_that_ends_within_a_minute() {
    let fires = instants("0 0 * * *", "Africa/Monrovia", "1972-01-05T12:00:00Z", 3);
    assert_eq!(
        fires,
        ["1972-01-06T00:44:30+00:00", "1972-01-07T00:44:30+00:00", "1972-01-08T00:00:00+00:00"]
    );
}

/// Three hours forward corrects the calendar, three hours back does not, more than that does.
#[test]
fn corrections_of_the_calendar_begin_at_three_hours() {
    for (expression, zone, from, fires) in [
        (
            "30 3 * * *",
            "Antarctica/Casey",
            "2009-10-17T00:00:00Z",
            ["2009-10-18T16:30:00Z", "2009-10-19T16:30:00Z"],
        ),
        (
            "30 3,6 * * *",
            "Antarctica/Casey",
            "2009-10-17T12:00:00Z",
            ["2009-10-17T19:30:00Z", "2009-10-18T16:30:00Z"],
        ),
        (
            "0 23 * * *",
            "Antarctica/Casey",
            "2010-03-04T00:00:00Z",
            ["2010-03-04T12:00:00Z", "2010-03-05T15:00:00Z"],
        ),
        (
            "30 1 * * *",
            "Antarctica/Casey",
            "2010-03-04T00:00:00Z",
            ["2010-03-04T14:30:00Z", "2010-03-05T17:30:00Z"],
        ),
        (
            "30 23 * * *",
            "Antarctica/Vostok",
            "1994-01-31T00:00:00Z",
            ["1994-01-31T16:30:00Z", "1994-01-31T23:30:00Z"],
        ),
        (
            "0 0 30 12 *",
            "Pacific/Apia",
            "2011-12-01T00:00:00Z",
            ["2012-12-29T10:00:00Z", "2013-12-29T10:00:00Z"],
        ),
        (
            "0 12 * * *",
            "Pacific/Kwajalein",
            "1969-09-30T00:00:00Z",
            ["1969-09-30T01:00:00Z", "1969-10-01T00:00:00Z"],
        ),
    ] {
        let fires = fires.map(|at| at.replace('Z', "+00:00"));
        assert_eq!(instants(expression, zone, from, 2), fires, "{expression} {zone}");
    }
}

#[test]
fn a_rare_date_is_found_centuries_ahead_and_the_last_year_ends_it() {
    let fires = instants("0 0 29 2 *", "Europe/Berlin", "2096-03-01T00:00:00Z", 2);
    assert_eq!(fires, ["2104-02-28T23:00:00+00:00", "2108-02-28T23:00:00+00:00"]);
    assert_eq!(instants("0 0 31 12 *", "UTC", "9998-12-31T00:00:00Z", 5), ["9999-12-31T00:00:00+00:00"]);
}

#[test]
fn triggers_unite_and_start_and_end_bound_them() {
    let every = |every_s, anchor_s: i64| Trigger::Interval { every_s, anchor_us: Some(anchor_s * SECOND_US) };
    let timing = Timing {
        triggers: vec![
            every(600, 0),
            every(900, 1800),
            Trigger::At { at_us: 1234 * SECOND_US },
            Trigger::Cron { expression: "*/20 * * * *".to_owned() },
        ],
        time_zone: "UTC".to_owned(),
        start_us: Some(600 * SECOND_US),
        end_us: Some(3600 * SECOND_US),
        exclude: vec![],
        ..Timing::default()
    };
    let plan = Plan::compile(&timing, b"").unwrap();
    let seconds =
        |fires: &mut dyn Iterator<Item = i64>| -> Vec<i64> { fires.map(|us| us / SECOND_US).collect() };
    assert_eq!(seconds(&mut plan.fires_after(i64::MIN)), [600, 1200, 1234, 1800, 2400, 2700, 3000]);
    assert_eq!(seconds(&mut plan.fires_between(1200 * SECOND_US, 1800 * SECOND_US)), [1234, 1800]);
    assert_eq!(plan.fires_after(i64::MAX).count(), 0);
}

#[test]
fn an_interval_without_an_anchor_gets_a_stable_offset_from_the_seed() {
    let timing = Timing {
        triggers: vec![Trigger::Interval { every_s: 3600, anchor_us: None }],
        time_zone: "UTC".to_owned(),
        ..Timing::default()
    };
    let anchor = |seed: &[u8]| match Plan::compile(&timing, seed).unwrap().resolved() {
        [Trigger::Interval { every_s: 3600, anchor_us: Some(anchor) }] => *anchor,
        other => panic!("{other:?}"),
    };
    assert_eq!(anchor(b"a"), anchor(b"a"));
    let offsets: std::collections::BTreeSet<i64> = (0..50_u8).map(|seed| anchor(&[seed])).collect();
    assert!(offsets.len() > 40, "{offsets:?}");
    assert!(offsets.iter().all(|us| (0..3600).contains(&(us / SECOND_US)) && us % SECOND_US == 0));
    let first = Plan::compile(&timing, b"a").unwrap().fires_after(0).next();
    assert_eq!(first, Some(anchor(b"a")).filter(|us| *us > 0).or(Some(3600 * SECOND_US)));
}

#[test]
fn nonsense_in_a_timing_is_refused_by_name() {
    let base = Timing {
        triggers: vec![Trigger::Cron { expression: "@daily".to_owned() }],
        time_zone: "UTC".to_owned(),
        ..Timing::default()
    };
    let field = |timing: Timing| Plan::compile(&timing, b"").unwrap_err().field;
    let with = |trigger| Timing { triggers: vec![trigger], ..base.clone() };
    assert_eq!(field(Timing { time_zone: "utc".to_owned(), ..base.clone() }), "time_zone");
    assert_eq!(field(Timing { start_us: Some(5), end_us: Some(5), ..base.clone() }), "end_us");
    let every = |every_s, anchor_us| with(Trigger::Interval { every_s, anchor_us });
    assert_eq!(field(every(i64::MAX, Some(0))), "triggers[0].interval.every_s");
    assert_eq!(field(every(-1, None)), "triggers[0].interval.every_s");
    assert_eq!(field(every(60, Some(1))), "triggers[0].interval.anchor_us");
    assert_eq!(field(every(60, Some(i64::MAX))), "triggers[0].interval.anchor_us");
    assert_eq!(field(Timing { end_us: Some(SECOND_US), ..every(60, Some(SECOND_US)) }), "end_us");
    for at_us in [1, -SECOND_US, i64::MIN, i64::MAX, 253_402_300_800 * SECOND_US] {
        assert_eq!(field(with(Trigger::At { at_us })), "triggers[0].at.at_us");
    }
    let outside = Timing { start_us: Some(SECOND_US), ..with(Trigger::At { at_us: 0 }) };
    assert_eq!(field(outside), "triggers[0].at.at_us");
}
