//! A schedule's triggers as lines of text: cron expressions, intervals, moments.

use serde_json::{Map, Value, json};
use tollgate_proto::v1;

use crate::parts::forms::Texts;
use crate::requests::problem::{Field, Problem};
use crate::words::sentence::written;

/// The lines that a schedule's triggers are.
pub(crate) fn texts(schedule: &v1::Schedule, members: &Map<String, Value>) -> Texts {
    let triggers = members.get("triggers").and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let intervals = triggers.iter().filter_map(|trigger| trigger.get("interval")).map(|interval| {
        let every = interval.get("every").map(text).unwrap_or_default();
        interval.get("anchor").map_or(every.clone(), |anchor| format!("{every} from {}", text(anchor)))
    });
    let moments = triggers.iter().filter_map(|trigger| trigger.get("at")).map(text);
    let lines = [
        ("cron", written(schedule).join("\n")),
        ("intervals", intervals.collect::<Vec<_>>().join("\n")),
        ("moments", moments.collect::<Vec<_>>().join("\n")),
    ];
    lines.into_iter().map(|(name, lines)| (name.to_owned(), lines)).collect()
}

/// The triggers that a form's lines stand for.
pub(crate) fn triggers(texts: &Texts) -> Vec<Value> {
    let lines = |name: &str| {
        let text = texts.get(name).map(String::as_str).unwrap_or_default();
        text.lines().map(|line| line.trim().to_owned()).filter(|line| !line.is_empty()).collect::<Vec<_>>()
    };
    let cron = lines("cron").into_iter().map(|line| json!({ "cron": line }));
    let intervals = lines("intervals").into_iter().map(|line| match line.split_once(" from ") {
        Some((every, anchor)) => json!({ "interval": { "every": every.trim(), "anchor": anchor.trim() } }),
        None => json!({ "interval": { "every": line } }),
    });
    let moments = lines("moments").into_iter().map(|line| json!({ "at": line }));
    cron.chain(intervals).chain(moments).collect()
}

/// What is wrong with the triggers, said at the field in which each is written.
pub(crate) fn placed(mut problem: Problem, texts: &Texts) -> Problem {
    let count = |name: &str| {
        let text = texts.get(name).map(String::as_str).unwrap_or_default();
        text.lines().filter(|line| !line.trim().is_empty()).count()
    };
    let (cron, intervals) = (count("cron"), count("intervals"));
    let place = |field: Field| {
        let index: Option<usize> =
            field.path().strip_prefix("triggers[").and_then(|rest| rest.split(']').next()?.parse().ok());
        let name = match index {
            Some(index) if index < cron => "cron",
            Some(index) if index < cron + intervals => "intervals",
            Some(_) => "moments",
            None => return field,
        };
        Field { name: name.to_owned(), ..field }
    };
    problem.fields = problem.fields.into_iter().map(place).collect();
    problem
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]
    use tollgate_proto::json::{from_json, to_json};

    use super::*;

    #[test]
    fn lines_and_triggers_are_the_same_thing() {
        let texts: Texts = [
            ("cron", "30 2 * * *\n\n@hourly"),
            ("intervals", "15m\n6h from 2026-01-01T03:00:00Z"),
            ("moments", "2026-12-24T18:00:00Z"),
        ]
        .into_iter()
        .map(|(name, text)| (name.to_owned(), text.to_owned()))
        .collect();
        let schedule: v1::Schedule = from_json(json!({ "triggers": triggers(&texts) })).unwrap();
        assert_eq!(schedule.triggers.len(), 5);
        let Value::Object(members) = to_json(&schedule) else { unreachable!() };
        let shown = super::texts(&schedule, &members);
        assert_eq!(shown["cron"], "30 2 * * *\n@hourly");
        assert_eq!(shown["intervals"], "900s\n21600s from 2026-01-01T03:00:00Z");
        assert_eq!(shown["moments"], "2026-12-24T18:00:00Z");
        let wrong = Problem::of_fields(vec![Field {
            name: "schedule.triggers[3].interval.every".to_owned(),
            message: String::new(),
        }]);
        assert_eq!(placed(wrong, &texts).fields[0].name, "intervals");
    }
}
