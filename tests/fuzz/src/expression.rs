//! Timings: cron text, fields by name, intervals, single moments, zones, start and end.
//!
//! An input is text. Its first line is the zone and options (`skip`, `both`, `after=`, `start=`, `end=` in microseconds);
//! each other line is a trigger: `c <cron text>`, `f <month>|<date>|<weekday>|<hour>|<minute>` with absent fields left
//! out, `i <seconds> [<anchor>]`, `a <second>`.

use tollgate_core::emit::{Window, launch_times};
use tollgate_core::model::{GapRule, RepeatRule, SECOND_US, Timing, Trigger};
use tollgate_core::plan::Plan;

use super::quick;

/// Fires that are looked at.
const FIRES: usize = 20;

pub(crate) fn target(data: &[u8]) {
    let (timing, after_us) = read(&String::from_utf8_lossy(data));
    let plan = match quick("compiling a timing", || Plan::compile(&timing, b"seed")) {
        Ok(plan) => plan,
        Err(error) => {
            assert!(!error.field.is_empty() && !error.expected.is_empty(), "{error}");
            return;
        }
    };
    same_again(&timing, &plan);
    let fires: Vec<i64> = quick("20 fires", || plan.fires_after(after_us).take(FIRES).collect());
    let mut last = after_us;
    for fire in &fires {
        assert!(*fire > last, "{fire} comes after {last}");
        assert!(fire % SECOND_US == 0, "{fire} is no whole second");
        assert!(timing.start_us.is_none_or(|start| *fire >= start), "{fire} lies before the start");
        assert!(timing.end_us.is_none_or(|end| *fire < end), "{fire} lies after the end");
        last = *fire;
    }
    if let [first, .., last] = fires.as_slice() {
        let between: Vec<i64> = plan.fires_between(after_us, *last).take(FIRES + 1).collect();
        assert_eq!(between, fires, "another span gives other fires");
        let rest: Vec<i64> = plan.fires_after(*first).take(fires.len() - 1).collect();
        assert_eq!(rest, fires[1..], "fires depend on where one begins");
    }
    children_agree(&plan, after_us, &fires);
}

/// What was understood, written down and read again, is the same.
fn same_again(timing: &Timing, plan: &Plan) {
    let again = Timing { triggers: plan.resolved().to_vec(), ..timing.clone() };
    match Plan::compile(&again, b"another seed") {
        Ok(again) => {
            assert_eq!(again.resolved(), plan.resolved());
            assert_eq!(again.children(), plan.children());
            assert_eq!(again.classes(), plan.classes());
        }
        Err(error) => panic!("what was accepted is refused the second time: {error}"),
    }
    assert!(plan.children().windows(2).all(|pair| pair[0] < pair[1]), "children are sorted, each once");
    assert!(plan.children().len() <= plan.children_count());
}

/// The children, which are what a scan reads, fire in a window exactly when the plan does.
fn children_agree(plan: &Plan, after_us: i64, fires: &[i64]) {
    let Some(last) = fires.last().filter(|_| plan.children().len() <= 200) else { return };
    // Windows are short; so is the part of the plan that is compared.
    let (start_us, end_us) =
        (after_us.max(fires[0] - 3_600 * SECOND_US), (*last).min(fires[0] + 86_400 * SECOND_US) + 1);
    let window = Window { start_us: start_us.saturating_add(1), end_us };
    let mut all: Vec<i64> = Vec::new();
    for child in plan.children() {
        match launch_times(child, None, window) {
            Ok(times) => all.extend(times),
            Err(error) => panic!("{child:?}: {error}"),
        }
    }
    all.sort_unstable();
    all.dedup();
    let expected: Vec<i64> = fires.iter().copied().filter(|fire| *fire < end_us).collect();
    assert_eq!(all, expected, "children and plan disagree");
}

fn read(text: &str) -> (Timing, i64) {
    let mut lines = text.split('\n');
    let mut options = lines.next().unwrap_or_default().split(' ');
    let mut timing = Timing {
        triggers: Vec::new(),
        time_zone: options.next().unwrap_or_default().to_owned(),
        gap: GapRule::NextValid,
        repeat: RepeatRule::First,
        start_us: None,
        end_us: None,
        exclude: vec![],
        calendars: Vec::new(),
    };
    let mut after_us = 0;
    for option in options {
        match option.split_once('=') {
            None if option == "skip" => timing.gap = GapRule::Skip,
            None if option == "both" => timing.repeat = RepeatRule::Both,
            Some(("after", us)) => after_us = us.parse().unwrap_or(after_us),
            Some(("start", us)) => timing.start_us = us.parse().ok(),
            Some(("end", us)) => timing.end_us = us.parse().ok(),
            _ => {}
        }
    }
    timing.triggers = lines.map(trigger).collect();
    (timing, after_us)
}

fn trigger(line: &str) -> Trigger {
    let (form, rest) = line.split_at_checked(2).unwrap_or((line, ""));
    match form {
        "f " => {
            let mut fields =
                rest.split('|').map(|field| Some(field.to_owned()).filter(|field| !field.is_empty()));
            let mut field = || fields.next().flatten();
            Trigger::Fields {
                month: field(),
                day_of_month: field(),
                day_of_week: field(),
                hour: field(),
                minute: field(),
            }
        }
        "i " => {
            let (every, anchor) = rest.split_once(' ').unwrap_or((rest, ""));
            Trigger::Interval { every_s: every.parse().unwrap_or(0), anchor_us: anchor.parse().ok() }
        }
        "a " => Trigger::At { at_us: rest.parse().unwrap_or(-1) },
        _ => Trigger::Cron { expression: line.strip_prefix("c ").unwrap_or(line).to_owned() },
    }
}
