//! A plan against the `cron` crate, on the expressions where its rules are ours.
//!
//! Left out is what differs: two restricted days (either is enough for us, both must match there), `L` and `#`, Sunday as 7
//! (`4/1` reaches it for us), and the days on which a zone changes its clocks. `docs/decisions/cron.md` says why
//! the product parses by itself.

#![expect(clippy::unwrap_used, reason = "tests")]

use std::str::FromStr as _;

use chrono::{DateTime, TimeDelta, Utc};
use chrono_tz::Tz;
use proptest::prelude::*;
use proptest::sample::select;
use tollgate_core::model::{Timing, Trigger};
use tollgate_core::plan::Plan;

/// How many fires of an expression are compared.
const FIRES: usize = 400;
/// Within so many days from the first one on.
const DAYS: i64 = 120;

/// Zones and days from which on they keep their offset for so long.
const QUIET: [(&str, &str); 7] = [
    ("UTC", "2026-01-20"),
    ("Asia/Kolkata", "2026-11-23"),
    ("Asia/Tokyo", "2027-02-01"),
    ("Europe/Berlin", "2026-04-20"),
    ("America/New_York", "2026-03-20"),
    ("Australia/Lord_Howe", "2026-10-10"),
    ("America/St_Johns", "2026-11-10"),
];

/// One member of a list: first value, last value and step, where they are given.
#[derive(Clone, Debug)]
struct Member(Option<(u32, Option<u32>)>, Option<u32>);

impl Member {
    /// As it is written where the lowest value is `shift` more than for us.
    fn text(&self, shift: u32) -> String {
        let range = match self.0 {
            None => "*".to_owned(),
            Some((first, None)) => (first + shift).to_string(),
            Some((first, Some(last))) => format!("{}-{}", first + shift, last + shift),
        };
        self.1.map_or(range.clone(), |step| format!("{range}/{step}"))
    }
}

/// A list of values from `min` to `max`, or everything.
fn field(min: u32, max: u32) -> impl Strategy<Value = Vec<Member>> {
    let step = move || proptest::option::of(1..=max - min);
    let one = (min..=max).prop_map(|first| Member(Some((first, None)), None));
    let from = (min..=max, 1..=max - min).prop_map(|(first, step)| Member(Some((first, None)), Some(step)));
    let range = (min..=max, min..=max, step())
        .prop_map(|(a, b, step)| Member(Some((a.min(b), Some(a.max(b)))), step));
    let member = prop_oneof![3 => one, 1 => from, 2 => range];
    let any = step().prop_map(|step| vec![Member(None, step)]);
    prop_oneof![2 => any, 3 => proptest::collection::vec(member, 1..4)]
}

fn text(members: &[Member], shift: u32) -> String {
    members.iter().map(|member| member.text(shift)).collect::<Vec<_>>().join(",")
}

/// A day of the month or a day of the week, the other one open: both rules agree.
fn days() -> impl Strategy<Value = (Vec<Member>, Vec<Member>)> {
    let open = || vec![Member(None, None)];
    // From one day on in steps ends with Sunday as the seventh for us, on Saturday there.
    let ends = |members: &Vec<Member>| !members.iter().any(|m| matches!(m, Member(Some((_, None)), Some(_))));
    let weekdays = field(0, 6).prop_filter("up to the last day", ends);
    prop_oneof![
        field(1, 31).prop_map(move |date| (date, open())),
        weekdays.prop_map(move |weekday| (open(), weekday)),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1500, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn fires_are_those_of_the_cron_crate(
        minute in field(0, 59),
        hour in field(0, 23),
        (date, weekday) in days(),
        month in field(1, 12),
        (zone, day) in select(&QUIET[..]),
        after_s in 0..86_400_i64,
    ) {
        let [minute, hour, date, month] = [minute, hour, date, month].map(|members| text(&members, 0));
        let ours = format!("{minute} {hour} {date} {month} {}", text(&weekday, 0));
        // A field of seconds more, and Sunday is 1.
        let theirs = format!("0 {minute} {hour} {date} {month} {}", text(&weekday, 1));
        let zone_id: Tz = zone.parse().unwrap();
        let day: chrono::NaiveDate = day.parse().unwrap();
        let after: DateTime<Utc> = day.and_time(chrono::NaiveTime::MIN).and_utc() + TimeDelta::seconds(after_s);
        let until = after + TimeDelta::days(DAYS);
        let other = cron::Schedule::from_str(&theirs).unwrap();
        let expected: Vec<i64> = other
            .after(&after.with_timezone(&zone_id))
            .take_while(|at| *at <= until)
            .take(FIRES)
            .map(|at| at.timestamp_micros())
            .collect();
        let timing = Timing {
            triggers: vec![Trigger::Cron { expression: ours.clone() }],
            time_zone: zone.to_owned(),
            ..Timing::default()
        };
        match Plan::forecast(&timing, b"") {
            Ok(plan) => {
                let fires = plan.fires_between(after.timestamp_micros(), until.timestamp_micros());
                prop_assert!(fires.take(FIRES).eq(expected), "{ours} in {zone} from {after} on");
            }
            Err(error) => {
                prop_assert!(error.expected.contains("fires some day"), "{}: {}", ours, error);
                prop_assert!(expected.is_empty(), "{ours} never fires for us");
            }
        }
    }
}

/// The offsets of the zones above stay as they are for so long: else the comparison would be about clock changes.
#[test]
fn the_zones_keep_their_offsets() {
    for (zone, day) in QUIET {
        let zone: Tz = zone.parse().unwrap();
        let day: chrono::NaiveDate = day.parse().unwrap();
        let first = day.and_time(chrono::NaiveTime::MIN).and_utc();
        let offset = |at: DateTime<Utc>| chrono::Offset::fix(at.with_timezone(&zone).offset());
        for hours in 0..=(DAYS + 2) * 24 {
            assert_eq!(offset(first + TimeDelta::hours(hours)), offset(first), "{zone} from {day} on");
        }
    }
}

/// Where the rules differ, each as it is known: should the crate change, its page among the decisions is out of date.
#[test]
fn the_rules_differ_as_the_decision_says() {
    let first = |expression: &str, count: usize| -> Vec<String> {
        let after: DateTime<Utc> = "2026-03-01T00:00:00Z".parse().unwrap();
        let schedule = cron::Schedule::from_str(expression).unwrap();
        schedule.after(&after).take(count).map(|at| at.format("%m-%d").to_string()).collect()
    };
    // Both days must match there: the 1st or 15th if it is a Sunday. For us either is enough.
    assert_eq!(first("0 0 12 1,15 * SUN", 3), ["03-01", "03-15", "11-01"]);
    assert_eq!(instants("0 12 1,15 * SUN", 3), ["03-01", "03-08", "03-15"]);
    // The last day of a month, and the third Thursday, are not known there.
    for unknown in ["0 0 12 L * *", "0 0 12 * * THU#3"] {
        assert!(cron::Schedule::from_str(unknown).is_err(), "{unknown}");
    }
    // A fixed time that the clock skips does not fire there; for us it does at the end of the gap.
    let new_york = chrono_tz::America::New_York;
    let before: DateTime<Utc> = "2026-03-08T00:00:00Z".parse().unwrap();
    let theirs = cron::Schedule::from_str("0 30 2 * * *").unwrap();
    let next = theirs.after(&before.with_timezone(&new_york)).next().unwrap();
    assert_eq!(next.to_rfc3339(), "2026-03-09T02:30:00-04:00");
    let timing = Timing {
        triggers: vec![Trigger::Cron { expression: "30 2 * * *".to_owned() }],
        time_zone: "America/New_York".to_owned(),
        ..Timing::default()
    };
    let plan = Plan::compile(&timing, b"").unwrap();
    let next_us = plan.fires_after(before.timestamp_micros()).next().unwrap();
    let next = DateTime::from_timestamp_micros(next_us).unwrap().with_timezone(&new_york);
    assert_eq!(next.to_rfc3339(), "2026-03-08T03:00:00-04:00");
}

fn instants(expression: &str, count: usize) -> Vec<String> {
    let after: DateTime<Utc> = "2026-03-01T00:00:00Z".parse().unwrap();
    let timing =
        Timing { triggers: vec![Trigger::Cron { expression: expression.to_owned() }], ..Timing::default() };
    let timing = Timing { time_zone: "UTC".to_owned(), ..timing };
    let fires = Plan::compile(&timing, b"").unwrap().fires_after(after.timestamp_micros());
    fires
        .take(count)
        .map(|us| DateTime::from_timestamp_micros(us).unwrap().format("%m-%d").to_string())
        .collect()
}
