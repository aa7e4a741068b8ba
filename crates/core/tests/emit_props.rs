//! Windows against the plan: what the tasks of contiguous windows read, fires exactly what the plan says.

#![expect(clippy::unwrap_used, reason = "tests")]

mod timing;

use std::collections::{BTreeMap, BTreeSet};

use chrono::{DateTime, Offset as _, TimeZone as _};
use chrono_tz::Tz;
use proptest::prelude::*;
use tollgate_core::emit::{Task, Window, eligible, launch_times, tasks};
use tollgate_core::model::{
    Calendar, CalendarUse, DateRange, GapRule, RepeatRule, SECOND_US, Timing, Trigger,
};
use tollgate_core::plan::{Child, Exclusion, Plan};

/// Children by what a store's index has.
fn indexed(children: &[Child]) -> BTreeMap<(String, String), Vec<Child>> {
    let mut index: BTreeMap<_, Vec<Child>> = BTreeMap::new();
    for child in children {
        index.entry((child.zone.clone(), child.launch_expression.clone())).or_default().push(child.clone());
    }
    index
}

/// The children that a task reads.
fn read<'a>(index: &'a BTreeMap<(String, String), Vec<Child>>, task: &Task) -> Vec<&'a Child> {
    let children = &index[&(task.zone.clone(), task.launch_expression.clone())];
    children.iter().filter(|child| task.slots.iter().any(|slots| slots.contains(&child.slot))).collect()
}

/// Whether the zone's offset is the same from a day before a window to a day after it.
fn quiet(zone: &str, window: Window) -> bool {
    let Ok(tz) = zone.parse::<Tz>() else { return true };
    let hours = window.start_us / SECOND_US / 3600 - 24..window.end_us / SECOND_US / 3600 + 25;
    let offsets: BTreeSet<i32> = hours
        .step_by(6)
        .map(|hour| DateTime::from_timestamp(hour * 3600, 0).unwrap().naive_utc())
        .map(|utc| tz.offset_from_utc_datetime(&utc).fix().local_minus_utc())
        .collect();
    offsets.len() == 1
}

fn check(
    plan: &Plan,
    exclusion: Option<&Exclusion>,
    start_us: i64,
    cuts: &[i64],
) -> Result<(), TestCaseError> {
    let index = indexed(plan.children());
    let registry: Vec<(&String, &String)> = index.keys().map(|(zone, key)| (zone, key)).collect();
    let mut fires = BTreeSet::new();
    let mut window = Window { start_us, end_us: start_us };
    for cut in cuts {
        window = Window { start_us: window.end_us, end_us: window.end_us + cut };
        let tasks = tasks(window, registry.iter().copied());
        let mut seen = BTreeSet::new();
        for task in &tasks {
            prop_assert!(task.slots.windows(2).all(|pair| pair[0].end() < pair[1].start()), "{:?}", task);
            let listed = eligible(&task.zone, window).contains(&task.launch_expression);
            prop_assert!(listed || task.launch_expression.starts_with("I."), "{:?}", task);
            for child in read(&index, task) {
                let times = launch_times(child, exclusion, window).unwrap();
                prop_assert!(times.windows(2).all(|pair| pair[0] < pair[1]));
                prop_assert!(times.iter().all(|us| (window.start_us..window.end_us).contains(us)));
                let excluded = ["days=", "start=", "end="].iter().any(|part| child.rule.contains(part));
                let anchor = child.rule.strip_prefix("anchor=").and_then(|rest| rest.parse::<i64>().ok());
                let begun = anchor.is_none_or(|anchor| anchor * SECOND_US <= window.start_us);
                let fires_surely = !excluded && exclusion.is_none() && begun && quiet(&child.zone, window);
                prop_assert!(
                    !times.is_empty() || !fires_surely,
                    "{:?} is read for nothing in {:?}",
                    child,
                    window
                );
                fires.extend(times);
                seen.insert(child);
            }
        }
        for child in plan.children().iter().filter(|child| !seen.contains(child)) {
            prop_assert_eq!(
                launch_times(child, exclusion, window).unwrap(),
                Vec::<i64>::new(),
                "{:?} unread",
                child
            );
        }
    }
    let expected: BTreeSet<i64> = plan.fires_between(start_us - 1, window.end_us - 1).collect();
    prop_assert_eq!(fires, expected);
    Ok(())
}

/// Window lengths in microseconds: mostly the usual minute and hour, some to the second, some cut anywhere.
fn cuts() -> impl Strategy<Value = Vec<i64>> {
    let cut = prop_oneof![
        4 => (1..=60_i64).prop_map(|minutes| minutes * 60 * SECOND_US),
        1 => (1..=3600_i64).prop_map(|seconds| seconds * SECOND_US),
        1 => 1..3600 * SECOND_US,
    ];
    proptest::collection::vec(cut, 1..60)
}

/// Dates near an instant.
fn dates(instant: i64, late_days: i64, more_days: i64) -> DateRange {
    let day = |days: i64| {
        DateTime::from_timestamp(instant + days * 86_400, 0).unwrap().format("%Y-%m-%d").to_string()
    };
    format!("{}..{}", day(late_days), day(late_days + more_days)).parse().unwrap()
}

fn triggers(instant: i64) -> impl Strategy<Value = Vec<Trigger>> {
    let cron = || timing::fields().prop_map(|fields| Trigger::Cron { expression: fields.join(" ") });
    let structured = timing::fields().prop_map(|[minute, hour, day_of_month, month, day_of_week]| {
        let given = |text: String| Some(text).filter(|text| text.len() != 2);
        Trigger::Fields {
            month: given(month),
            day_of_month: given(day_of_month),
            day_of_week: given(day_of_week),
            hour: given(hour),
            minute: given(minute),
        }
    });
    let every = prop_oneof![1..100_i64, 100..100_000_i64];
    let interval = (every, proptest::option::of(-5000..5000_i64)).prop_map(move |(every_s, anchor)| {
        Trigger::Interval { every_s, anchor_us: anchor.map(|anchor| (instant + anchor) * SECOND_US) }
    });
    let at = (0..86_400_i64).prop_map(move |late| Trigger::At { at_us: (instant.max(0) + late) * SECOND_US });
    let trigger = prop_oneof![6 => cron(), 1 => structured, 1 => interval, 1 => at];
    proptest::collection::vec(trigger, 1..3)
}

/// The same timing, with its dates in a calendar.
fn borrowed(own: Timing) -> Timing {
    let calendar = Calendar { id: "holidays".to_owned(), dates: own.exclude, ..Calendar::default() };
    let calendars = vec![CalendarUse { id: "holidays".to_owned(), ..CalendarUse::default() }];
    let mut timing = Timing { exclude: Vec::new(), calendars, ..own };
    timing.take_dates(|id| Some(&calendar).filter(|calendar| calendar.id == id));
    timing
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn what_calendars_exclude_is_what_the_same_dates_exclude(
        ((zone, instant), triggers) in timing::place().prop_flat_map(|place| {
            let triggers = triggers(place.1);
            (Just(place), triggers)
        }),
        ranges in proptest::collection::vec((-3..4_i64, 0..3_i64), 1..5),
        own in 0..5_usize,
    ) {
        let exclude: Vec<DateRange> = ranges.iter().map(|(late, more)| dates(instant, *late, *more)).collect();
        let inline = Timing { triggers, time_zone: zone, exclude: exclude.clone(), ..Timing::default() };
        let own = exclude[..own.min(exclude.len())].to_vec();
        let rest = Timing { exclude: exclude[own.len()..].to_vec(), ..inline.clone() };
        let mut mixed = borrowed(rest);
        mixed.exclude.splice(0..0, own.iter().copied());
        prop_assert_eq!(mixed.own_exclude(), &own[..]);
        let stored: Timing = serde_json::from_str(&serde_json::to_string(&mixed).unwrap()).unwrap();
        prop_assert_eq!(&stored, &mixed);
        let fires = |timing: &Timing| {
            let from_us = (instant - 4 * 86_400) * SECOND_US;
            Plan::compile(timing, b"seed").map(|plan| plan.fires_after(from_us).take(200).collect::<Vec<_>>())
        };
        prop_assert_eq!(fires(&mixed).is_ok(), fires(&inline).is_ok());
        prop_assert_eq!(fires(&mixed).ok(), fires(&inline).ok());
        prop_assert_eq!(Exclusion::of(&stored), Exclusion::of(&inline));
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1200, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn windows_read_and_fire_what_the_plan_says(
        ((zone, instant), triggers) in timing::place().prop_flat_map(|place| {
            let triggers = triggers(place.1);
            (Just(place), triggers)
        }),
        skip in any::<bool>(),
        both in any::<bool>(),
        bounds in proptest::option::weighted(0.2, (-10_000..0_i64, 1..100_000_000_000_i64)),
        excluded in proptest::option::weighted(0.3, (-2..3_i64, 0..3_i64)),
        by_calendar in any::<bool>(),
        cuts in cuts(),
    ) {
        let start_us = instant * SECOND_US;
        let timing = Timing {
            triggers,
            time_zone: zone,
            gap: if skip { GapRule::Skip } else { GapRule::NextValid },
            repeat: if both { RepeatRule::Both } else { RepeatRule::First },
            start_us: bounds.map(|(early, _)| start_us + early),
            end_us: bounds.map(|(_, late)| start_us + late),
            exclude: excluded.map(|(late, more)| dates(instant, late, more)).into_iter().collect(),
            ..Timing::default()
        };
        let timing = if by_calendar { borrowed(timing) } else { timing };
        // What never fires, or not within start and end, is the plan's to refuse.
        if let Ok(plan) = Plan::compile(&timing, b"seed") && plan.children().len() <= 400 {
            check(&plan, Exclusion::of(&timing).as_ref(), start_us, &cuts)?;
        }
    }
}

fn child(zone: &str, launch_expression: &str, slot: i32, rule: &str) -> Child {
    let text = |text: &str| text.to_owned();
    Child { zone: text(zone), launch_expression: text(launch_expression), slot, rule: text(rule) }
}

#[test]
fn a_zone_hour_has_about_two_dozen_launch_expressions() {
    let hour = 1_772_956_800 * SECOND_US; // 2026-03-08T08:00:00Z, a Sunday
    let window = Window { start_us: hour, end_us: hour + 60 * SECOND_US };
    let mut listed = eligible("UTC", window);
    listed.sort();
    let mut expected: Vec<String> = ["H", "W.0", "W.0#2", "M.8", "MM.3.8", "MW.3.*", "MW.3.0", "MW.3.0#2"]
        .iter()
        .flat_map(|key| [format!("{key}.8"), format!("{key}.*")])
        .collect();
    expected.sort();
    assert_eq!(listed, expected);
    assert_eq!(eligible("", window), [format!("A.{}", hour / SECOND_US / 3600)]);
    assert_eq!(eligible("Nowhere", window), Vec::<String>::new());
}

#[test]
fn the_skipped_hour_is_read_in_the_window_of_the_first_instant_after_the_gap() {
    let change = 1_772_953_200 * SECOND_US; // 2026-03-08T07:00:00Z: New York goes from 02:00 to 03:00
    let zone = "America/New_York";
    let registry = [(zone, "H.2"), (zone, "H.*"), (zone, "H.3"), (zone, "W.0#2.2"), (zone, "H.1")];
    let at = Window { start_us: change, end_us: change + 60 * SECOND_US };
    let task = |launch_expression: &str, slots| Task {
        zone: zone.to_owned(),
        launch_expression: launch_expression.to_owned(),
        slots: vec![slots],
    };
    let expected = [task("H.2", 0..=59), task("H.*", 0..=0), task("H.3", 0..=0), task("W.0#2.2", 0..=59)];
    assert_eq!(tasks(at, registry), expected);
    let before = Window { start_us: change - 60 * SECOND_US, end_us: change };
    assert_eq!(tasks(before, registry), [task("H.*", 59..=59), task("H.1", 59..=59)]);
    assert_eq!(launch_times(&child(zone, "H.2", 30, ""), None, at), Ok(vec![change]));
    assert_eq!(launch_times(&child(zone, "H.2", 30, "wildcard"), None, at), Ok(vec![]));
    assert_eq!(launch_times(&child(zone, "H.2", 30, "gap=skip"), None, at), Ok(vec![]));
}

#[test]
fn interval_phases_wrap_around_zero() {
    let window = Window { start_us: 290 * SECOND_US, end_us: 350 * SECOND_US };
    let tasks = tasks(window, [("", "I.300"), ("", "I.60"), ("", "A.0"), ("", "A.1")]);
    let slots: Vec<_> =
        tasks.iter().map(|task| (task.launch_expression.as_str(), task.slots.clone())).collect();
    assert_eq!(slots, [("I.300", vec![0..=49, 290..=299]), ("I.60", vec![0..=59]), ("A.0", vec![290..=349])]);
}

#[test]
fn a_corrupt_row_is_read_and_named() {
    let window = Window { start_us: 0, end_us: 60 * SECOND_US };
    for (row, column) in [
        (child("UTC", "H.24", 0, ""), "launch_expression"),
        (child("UTC", "H.03", 0, ""), "launch_expression"),
        (child("UTC", "W.*.3", 0, ""), "launch_expression"),
        (child("UTC", "", 0, ""), "launch_expression"),
        (child("UTC", "MM.13.1.0", 0, ""), "launch_expression"),
        (child("UTC", "H.*", 60, ""), "slot"),
        (child("UTC", "H.*", -1, ""), "slot"),
        (child("UTC", "H.*", 0, "wild"), "rule"),
        (child("UTC", "H.*", 0, "days=7"), "rule"),
        (child("", "H.*", 0, ""), "zone"),
        (child("Mars", "H.*", 0, ""), "zone"),
        (child("UTC", "I.60", 0, "anchor=0"), "zone"),
        (child("", "I.60", 1, "anchor=0"), "slot"),
        (child("", "I.60", 0, ""), "rule"),
        (child("", "I.60", 8, "anchor=-9223372036854775808"), "rule"),
        (child("", "I.0", 0, "anchor=0"), "launch_expression"),
        (child("", "A.0", 3600, ""), "slot"),
        (child("", "A.9223372036854775807", 0, ""), "launch_expression"),
    ] {
        let error = launch_times(&row, None, window).unwrap_err();
        assert_eq!(error.column, column, "{row:?}: {error}");
    }
    let strange = [("Mars", "H.3"), ("UTC", "H.24"), ("", "H.3"), ("UTC", "I.60")];
    assert_eq!(tasks(window, strange).len(), strange.len());
}

#[test]
fn fires_outlive_the_way_through_columns() {
    let timing = Timing {
        triggers: vec![
            Trigger::Cron { expression: "*/30 5 */2 3,4 MON,5#2,0#L".to_owned() },
            Trigger::Interval { every_s: 86_400, anchor_us: Some(7 * SECOND_US) },
        ],
        time_zone: "Europe/Paris".to_owned(),
        gap: GapRule::Skip,
        repeat: RepeatRule::Both,
        start_us: Some(1_000_000_000_000_000),
        end_us: Some(2_000_000_000_000_000),
        ..Timing::default()
    };
    let plan = Plan::compile(&timing, b"").unwrap();
    assert_eq!(plan.children().len(), 2 * 16 * 2 + 1);
    let window = Window { start_us: 0, end_us: 4_000_000_000_000_000 };
    let fires: BTreeSet<i64> =
        plan.children().iter().flat_map(|child| launch_times(child, None, window).unwrap()).collect();
    assert_eq!(fires, plan.fires_after(0).collect());
    assert_eq!(
        plan.children()[0],
        child("", "I.86400", 7, "anchor=7 start=1000000000000000 end=2000000000000000")
    );
}
