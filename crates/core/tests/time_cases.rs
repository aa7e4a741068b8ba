//! The worked cases under tests/cases/time: fires, refusals, classes and children.

#![expect(clippy::unwrap_used, reason = "tests")]

use std::path::Path;

use chrono::DateTime;
use serde_json::Value;
use tollgate_core::model::{Timing, Trigger};
use tollgate_core::plan::Plan;

/// Cases whose expectation is not met, each with its reason. None at present.
const EXCEPTIONS: [&str; 0] = [];

fn cases(file: &str) -> Vec<Value> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/cases/time").join(file);
    let text = std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    let cases = text.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    cases.filter(|case| !EXCEPTIONS.contains(&case["id"].as_str().unwrap())).collect()
}

fn instant(value: &Value) -> Result<i64, String> {
    let text = value.as_str().ok_or_else(|| format!("{value} is not an instant"))?;
    DateTime::parse_from_rfc3339(text).map(|at| at.timestamp_micros()).map_err(|error| error.to_string())
}

fn trigger(case: &Value) -> Result<Trigger, String> {
    Ok(match case["kind"].as_str() {
        Some("interval") => Trigger::Interval {
            every_s: case["every_s"].as_i64().ok_or("every_s is not a whole number")?,
            anchor_us: Some(instant(&case["anchor"])?),
        },
        Some("oneshot") => Trigger::At { at_us: instant(&case["at"])? },
        Some("classify") if case["form"] == "structured" => {
            let field = |name: &str| case["job"][name].as_str().map(str::to_owned);
            Trigger::Fields {
                month: field("Month"),
                day_of_month: field("DayOfMonth"),
                day_of_week: field("DayOfWeek"),
                hour: field("Hour"),
                minute: field("Minute"),
            }
        }
        _ => Trigger::Cron { expression: case["expr"].as_str().unwrap().to_owned() },
    })
}

fn timing(case: &Value) -> Result<Timing, String> {
    Ok(Timing {
        triggers: vec![trigger(case)?],
        time_zone: case["tz"].as_str().unwrap_or("UTC").to_owned(),
        end_us: case.get("end").map(instant).transpose()?,
        exclude: vec![],
        ..Timing::default()
    })
}

fn fires(case: &Value) -> Result<Vec<String>, String> {
    // Some odd but allowed texts have more children than a schedule may have; they fire all the same.
    let plan = Plan::forecast(&timing(case)?, b"seed").map_err(|error| error.to_string())?;
    let from = instant(&case["from"])?;
    let fires: Vec<i64> = match case.get("until") {
        Some(until) => plan.fires_between(from, instant(until)?).collect(),
        None => plan.fires_after(from).take(case["count"].as_u64().unwrap().try_into().unwrap()).collect(),
    };
    let text = |us| DateTime::from_timestamp_micros(us).unwrap().format("%Y-%m-%dT%H:%M:%SZ").to_string();
    Ok(fires.into_iter().map(text).collect())
}

fn expected(case: &Value) -> Vec<String> {
    case["expect"].as_array().unwrap().iter().map(|at| at.as_str().unwrap().to_owned()).collect()
}

#[test]
fn fires_are_as_worked_out() {
    let cases = cases("public.jsonl");
    assert_eq!(cases.len(), 200 - EXCEPTIONS.len());
    for case in cases {
        assert_eq!(fires(&case), Ok(expected(&case)), "{case}");
    }
}

#[test]
fn what_is_refused_is_refused_with_its_text_and_odd_text_is_taken() {
    for case in cases("invalid_public.jsonl") {
        let answer = fires(&case);
        if case["valid"].as_bool().unwrap() {
            assert_eq!(answer, Ok(expected(&case)), "{case}");
        } else {
            let error = answer.expect_err(&format!("accepted: {case}"));
            assert!(!error.is_empty(), "{case}");
        }
    }
}

#[test]
fn classes_and_children_are_as_worked_out() {
    for case in cases("classify_public.jsonl") {
        let plan = Plan::compile(&timing(&case).unwrap(), b"seed").unwrap();
        let mut classes: Vec<String> = plan.classes().iter().map(ToString::to_string).collect();
        let mut wanted: Vec<&str> =
            case["classes"].as_array().unwrap().iter().map(|class| class.as_str().unwrap()).collect();
        classes.sort();
        wanted.sort_unstable();
        assert_eq!(classes, wanted, "{case}");
        assert_eq!(Some(plan.children_count() as u64), case["children"].as_u64(), "{case}");
        assert_eq!(plan.children().len(), plan.children_count(), "{case}");
    }
}

#[test]
fn an_error_names_the_field_the_value_and_what_is_allowed() {
    let error = |trigger| {
        let timing = Timing { triggers: vec![trigger], time_zone: "UTC".to_owned(), ..Timing::default() };
        Plan::compile(&timing, b"").unwrap_err().to_string()
    };
    let cron = |text: &str| error(Trigger::Cron { expression: text.to_owned() });
    assert_eq!(
        cron("0 0 32 * *"),
        r#"triggers[0].cron.expression: day-of-month "32" is not allowed: 1-31, or L"#
    );
    assert_eq!(
        cron("0 0 * * 1,FRI-MON"),
        r#"triggers[0].cron.expression: day-of-week "FRI-MON" is not allowed: a range from the lower to the higher value"#
    );
    assert!(
        cron("0 0 31 2 *").contains(r#"expression "0 0 31 2 *" is not allowed: an expression that fires"#)
    );
    assert!(
        cron("0-59 0-23 1-31 * *").contains(r#"triggers "44640 children" is not allowed: at most 10000"#)
    );
    let fields = Trigger::Fields {
        month: None,
        day_of_month: None,
        day_of_week: None,
        hour: Some("24".to_owned()),
        minute: None,
    };
    assert_eq!(error(fields), r#"triggers[0].fields.hour "24" is not allowed: 0-23"#);
    let every = Trigger::Interval { every_s: 0, anchor_us: None };
    assert!(error(every).starts_with(r#"triggers[0].interval.every_s "0" is not allowed: 1 to"#));
}
