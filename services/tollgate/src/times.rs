//! `tollgate times`: answers questions about launch times, one JSON object a line.
//!
//! In: `{id, expr, tz, from, until | count}`, `{id, kind: "interval", every_s, anchor, end?, from, count}`,
//! `{id, kind: "oneshot", at, from}` and `{id, kind: "classify", form, expr | job}`. Out, in the same order:
//! `{id, fires}`, `{id, classes, children}` or `{id, error}`. Fires t satisfy `from < t <= until`; `end` is
//! exclusive. Nothing is read but the input: no clock, no store.

use std::io::{BufRead, Write};

use chrono::{DateTime, NaiveDate, SecondsFormat};
use serde_json::{Map, Value, json};
use tollgate_core::model::{MINUTE_US, SECOND_US, Timing, Trigger};
use tollgate_core::plan::{Fires, Plan};

type Question = Map<String, Value>;

/// Answers each line of the input with a line of the output. A line that cannot be understood is answered with an
/// error; blank lines are skipped.
///
/// # Errors
/// Those of reading and writing.
pub(crate) fn answer_lines(mut input: impl BufRead, output: impl Write) -> std::io::Result<()> {
    let mut output = std::io::BufWriter::with_capacity(1 << 16, output);
    let mut line = Vec::new();
    loop {
        line.clear();
        if input.read_until(b'\n', &mut line)? == 0 {
            return output.flush();
        }
        if line.trim_ascii().is_empty() {
            continue;
        }
        serde_json::to_writer(&mut output, &answer_line(&line))?;
        output.write_all(b"\n")?;
    }
}

fn answer_line(line: &[u8]) -> Value {
    let question = match serde_json::from_slice(line) {
        Ok(Value::Object(question)) => question,
        Ok(_) => return json!({"id": null, "error": "a line must be a JSON object"}),
        Err(error) => return json!({"id": null, "error": format!("a line must be a JSON object: {error}")}),
    };
    let mut answer = match answer(&question) {
        Ok(answer) => answer,
        Err(error) => Map::from_iter([("error".to_owned(), error.into())]),
    };
    answer.insert("id".to_owned(), question.get("id").cloned().unwrap_or_default());
    Value::Object(answer)
}

fn answer(question: &Question) -> Result<Question, String> {
    match question.get("kind").map_or(Some("cron"), Value::as_str) {
        Some("cron") => fires(question, Trigger::Cron { expression: text(question, "expr")?.to_owned() }),
        Some("interval") => {
            let every_s = question.get("every_s").and_then(Value::as_i64);
            let every_s = every_s.ok_or_else(|| wrong(question, "every_s", "a whole number of seconds"))?;
            fires(question, Trigger::Interval { every_s, anchor_us: Some(instant(question, "anchor")?) })
        }
        Some("oneshot") => fires(question, Trigger::At { at_us: instant(question, "at")? }),
        Some("classify") => classify(question),
        _ => Err(wrong(question, "kind", "cron, interval, oneshot or classify")),
    }
}

fn fires(question: &Question, trigger: Trigger) -> Result<Question, String> {
    let time_zone = if question.contains_key("tz") { text(question, "tz")? } else { "UTC" };
    let end_us = present(question, "end").then(|| instant(question, "end")).transpose()?;
    let single = matches!(trigger, Trigger::At { .. });
    let plan = plan(trigger, time_zone, end_us)?;
    let from_us = instant(question, "from")?;
    let until_us = present(question, "until").then(|| instant(question, "until")).transpose()?;
    let count = match question.get("count").filter(|count| !count.is_null()) {
        Some(count) => {
            let count = count.as_u64().and_then(|count| usize::try_from(count).ok());
            count.ok_or_else(|| wrong(question, "count", "a whole number of fires"))?
        }
        None if until_us.is_none() && !single => return Err("until or count is missing".to_owned()),
        None => usize::MAX,
    };
    let fires: Fires = match until_us {
        Some(until_us) => plan.fires_between(from_us, until_us),
        None => plan.fires_after(from_us),
    };
    let fires: Vec<Value> = fires.take(count).map(rfc3339).collect();
    Ok(Map::from_iter([("fires".to_owned(), fires.into())]))
}

fn classify(question: &Question) -> Result<Question, String> {
    let trigger = match text(question, "form")? {
        "cron" => Trigger::Cron { expression: text(question, "expr")?.to_owned() },
        "structured" => {
            let Some(Value::Object(job)) = question.get("job") else {
                return Err(wrong(question, "job", "an object"));
            };
            let field = |name: &str| match job.get(name) {
                None | Some(Value::Null) => Ok(None),
                Some(Value::String(text)) => Ok(Some(text.clone())),
                Some(Value::Number(number)) => Ok(Some(number.to_string())),
                Some(_) => Err(wrong(job, name, "the text of a field")),
            };
            Trigger::Fields {
                month: field("Month")?,
                day_of_month: field("DayOfMonth")?,
                day_of_week: field("DayOfWeek")?,
                hour: field("Hour")?,
                minute: field("Minute")?,
            }
        }
        _ => return Err(wrong(question, "form", "cron or structured")),
    };
    let plan = plan(trigger, "UTC", None)?;
    let classes: Vec<Value> = plan.classes().iter().map(|class| class.to_string().into()).collect();
    let children = plan.children_count().into();
    Ok(Map::from_iter([("classes".to_owned(), classes.into()), ("children".to_owned(), children)]))
}

/// A plan without the limit on children, which protects the store and not an answer.
fn plan(trigger: Trigger, time_zone: &str, end_us: Option<i64>) -> Result<Plan, String> {
    let timing =
        Timing { triggers: vec![trigger], time_zone: time_zone.to_owned(), end_us, ..Timing::default() };
    Plan::forecast(&timing, &[]).map_err(|error| error.to_string())
}

fn present(question: &Question, name: &str) -> bool {
    question.get(name).is_some_and(|value| !value.is_null())
}

fn text<'a>(question: &'a Question, name: &str) -> Result<&'a str, String> {
    question.get(name).and_then(Value::as_str).ok_or_else(|| wrong(question, name, "text"))
}

fn instant(question: &Question, name: &str) -> Result<i64, String> {
    let text = question.get(name).and_then(Value::as_str);
    text.and_then(parse_rfc3339)
        .ok_or_else(|| wrong(question, name, "RFC 3339 with an offset, such as 2026-03-08T07:30:00Z"))
}

fn wrong(question: &Question, name: &str, expected: &str) -> String {
    match question.get(name) {
        None => format!("{name} is missing: {expected}"),
        Some(value) => format!("{name} {value} is not allowed: {expected}"),
    }
}

fn rfc3339(us: i64) -> Value {
    DateTime::from_timestamp_micros(us)
        .map_or(Value::Null, |utc| utc.to_rfc3339_opts(SecondsFormat::AutoSi, true).into())
}

/// RFC 3339 to microseconds since the epoch: exactly its grammar, without leap seconds; no offset, no instant.
fn parse_rfc3339(text: &str) -> Option<i64> {
    let bytes = text.as_bytes();
    let number = |from: usize, to: usize| -> Option<u32> {
        let digits = bytes.get(from..to).filter(|digits| digits.iter().all(u8::is_ascii_digit))?;
        Some(digits.iter().fold(0, |value, digit| value * 10 + u32::from(digit - b'0')))
    };
    let mark = |at: usize, allowed: &[u8]| bytes.get(at).is_some_and(|byte| allowed.contains(byte));
    let marks = [(4, &b"-"[..]), (7, b"-"), (10, b"Tt"), (13, b":"), (16, b":")];
    if !marks.iter().all(|(at, allowed)| mark(*at, allowed)) {
        return None;
    }
    let date = NaiveDate::from_ymd_opt(i32::try_from(number(0, 4)?).ok()?, number(5, 7)?, number(8, 10)?)?;
    let local = date.and_hms_opt(number(11, 13)?, number(14, 16)?, number(17, 19)?)?;
    let mut at = 19;
    let mut fraction_us = 0;
    if mark(at, b".") {
        let digits = bytes[at + 1..].iter().take_while(|byte| byte.is_ascii_digit()).count();
        let kept = number(at + 1, at + 1 + digits.clamp(1, 6))?;
        let missing = u32::try_from(6_usize.saturating_sub(digits)).ok()?;
        fraction_us = i64::from(kept) * 10_i64.pow(missing);
        // Finer than a microsecond is not kept, but must not turn a fraction into a whole second.
        fraction_us +=
            i64::from(fraction_us == 0 && bytes[at + 1..=at + digits].iter().any(|digit| *digit != b'0'));
        at += 1 + digits;
    }
    let offset_us = match bytes.get(at)? {
        b'Z' | b'z' if bytes.len() == at + 1 => 0,
        sign @ (b'+' | b'-') if bytes.len() == at + 6 && mark(at + 3, b":") => {
            let (hours, minutes) = (number(at + 1, at + 3)?, number(at + 4, at + 6)?);
            let size = i64::from(hours * 60 + minutes) * MINUTE_US;
            (hours < 24 && minutes < 60).then_some(if *sign == b'+' { size } else { -size })?
        }
        _ => return None,
    };
    Some(local.and_utc().timestamp() * SECOND_US + fraction_us - offset_us)
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]

    use super::*;

    fn ask(lines: &str) -> Vec<Value> {
        let mut output = Vec::new();
        answer_lines(lines.as_bytes(), &mut output).unwrap();
        String::from_utf8(output).unwrap().lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }

    #[test]
    fn each_line_gets_its_answer() {
        let answers = ask(concat!(
            r#"{"id":1,"expr":"30 2 * * *","tz":"America/New_York","from":"2026-03-08T00:00:00-05:00","count":1}"#,
            "\n\n",
            r#"{"id":2,"kind":"interval","every_s":90,"anchor":"2026-05-01T00:00:00Z","end":"2026-05-01T00:03:00Z","from":"2026-04-01T00:00:00Z","count":9}"#,
            "\n",
            r#"{"id":3,"kind":"oneshot","at":"2026-06-01T00:00:00+02:00","from":"2026-05-01T00:00:00Z"}"#,
            "\n",
            r#"{"id":4,"kind":"classify","form":"structured","job":{"Hour":"3,6,9","Minute":"*"}}"#,
            "\nnonsense\n",
            r#"{"id":"x","expr":"@reboot","tz":"UTC","from":"2026-05-01T00:00:00Z","count":1}"#,
        ));
        assert_eq!(answers[0], json!({"id": 1, "fires": ["2026-03-08T07:00:00Z"]}));
        assert_eq!(answers[1], json!({"id": 2, "fires": ["2026-05-01T00:00:00Z", "2026-05-01T00:01:30Z"]}));
        assert_eq!(answers[2], json!({"id": 3, "fires": ["2026-05-31T22:00:00Z"]}));
        assert_eq!(answers[3], json!({"id": 4, "classes": ["H"], "children": 3}));
        assert_eq!(answers[4]["id"], Value::Null);
        assert!(answers[4]["error"].is_string());
        assert_eq!(answers[5]["id"], "x");
        assert!(answers[5]["error"].as_str().unwrap().contains("@reboot"));
        assert_eq!(answers.len(), 6);
    }

    #[test]
    fn only_rfc3339_is_an_instant() {
        assert_eq!(parse_rfc3339("1970-01-01T00:00:01.5z"), Some(1_500_000));
        assert_eq!(parse_rfc3339("1970-01-01T00:00:00.0000001Z"), Some(1));
        assert_eq!(parse_rfc3339("1970-01-01T01:00:00+01:00"), Some(0));
        for text in [
            "2026-05-01",
            "2026-06-01T00:00:00",
            "2026-02-29T00:00:00Z",
            "2026-05-01T25:00:00Z",
            "2026-05-01T24:00:00Z",
            "2026-05-01T23:59:60Z",
            "10000-01-01T00:00:00Z",
            "2026-05-01 00:00:00Z",
            "2026-05-01T00:00Z",
            "2026-05-01T00:00:00.Z",
            "2026-05-01T00:00:00+0100",
            "2026-05-01T00:00:00+24:00",
            "2026-05-01T00:00:00Zx",
            "+026-05-01T00:00:00Z",
            "2026-05-0\u{661}T00:00:00Z",
            "",
        ] {
            assert_eq!(parse_rfc3339(text), None, "{text}");
        }
    }
}
