//! When schedules fire: the worked cases, through the binary.

use std::collections::{BTreeSet, HashMap};
use std::path::Path;

use chrono::{DateTime, Utc};
use serde_json::{Map, Value};
use tollgate_harness::Cli;

/// Cases in which the authorities disagree, or the answer depends on the release of the zone data: not counted.
const ASIDE: [&str; 3] = ["open", "tzdata-sensitive", "choice"];
/// What the command is asked, of all that a case has.
const ASKED: [&str; 12] =
    ["id", "kind", "expr", "tz", "from", "until", "count", "every_s", "anchor", "end", "at", "form"];

fn cases(file: &str) -> Vec<Value> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("cases/time").join(file);
    let text = std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

fn question(case: &Value) -> String {
    let asked = ASKED.iter().chain(["job"].iter());
    let question: Map<String, Value> =
        asked.filter_map(|name| Some(((*name).to_owned(), case.get(name)?.clone()))).collect();
    Value::Object(question).to_string()
}

fn instants(list: &Value) -> Option<Vec<DateTime<Utc>>> {
    list.as_array()?
        .iter()
        .map(|text| Some(DateTime::parse_from_rfc3339(text.as_str()?).ok()?.to_utc()))
        .collect()
}

/// Classes without their order, and the number of children.
fn classes(value: &Value) -> Option<(BTreeSet<String>, u64)> {
    let classes = value["classes"].as_array()?.iter().filter_map(Value::as_str).map(str::to_owned).collect();
    Some((classes, value["children"].as_u64()?))
}

/// What is wrong with an answer.
fn judge(case: &Value, answer: Option<&Value>) -> Result<(), String> {
    let answer = answer.ok_or("no answer")?;
    let error = answer.get("error").filter(|error| !error.is_null());
    if case["valid"] == false {
        let text = error.and_then(Value::as_str).unwrap_or_default();
        return if text.is_empty() {
            Err(format!("accepted, must be refused: {}", case["reason"]))
        } else {
            Ok(())
        };
    }
    if let Some(error) = error {
        return Err(format!("refused: {error}"));
    }
    if case["kind"] == "classify" {
        let other = case["alt"].as_array().into_iter().flatten();
        let mut allowed = std::iter::once(case).chain(other).map(classes);
        let given = classes(answer);
        return if given.is_some() && allowed.any(|allowed| allowed == given) {
            Ok(())
        } else {
            Err(format!("{given:?}, expected {:?}", classes(case)))
        };
    }
    let (given, expected) = (instants(&answer["fires"]), instants(&case["expect"]));
    if given.is_some() && given == expected {
        Ok(())
    } else {
        Err(format!("{given:?}, expected {expected:?}"))
    }
}

fn score(file: &str, at_least: usize) {
    let cases = cases(file);
    let input: Vec<String> = cases.iter().map(question).collect();
    let answer = Cli::new("").run_with(&["times"], &(input.join("\n") + "\n"));
    assert_eq!(answer.code, 0, "{}", answer.err);
    let answers: Vec<Value> = answer.out.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(answers.len(), cases.len(), "one answer a line");
    let by_id: HashMap<&str, &Value> =
        answers.iter().filter_map(|answer| Some((answer["id"].as_str()?, answer))).collect();
    let (mut counted, mut wrong) = (0, Vec::new());
    for case in &cases {
        let tags = case["tags"].as_array().into_iter().flatten().filter_map(Value::as_str);
        if tags.into_iter().any(|tag| ASIDE.contains(&tag)) {
            continue;
        }
        counted += 1;
        let id = case["id"].as_str().unwrap();
        if let Err(problem) = judge(case, by_id.get(id).copied()) {
            wrong.push(format!("{}\n    {problem}", question(case)));
        }
    }
    assert!(counted >= at_least, "only {counted} cases in {file}");
    assert!(wrong.is_empty(), "{} of {counted} wrong:\n{}", wrong.len(), wrong.join("\n"));
}

#[test]
fn launch_times_are_as_worked_out() {
    score("public.jsonl", 150);
}

#[test]
fn what_is_no_expression_is_refused() {
    score("invalid_public.jsonl", 60);
}

#[test]
fn classes_and_children_are_as_worked_out() {
    score("classify_public.jsonl", 50);
}

#[test]
fn a_wrong_line_does_not_hide_the_next() {
    let lines = "nonsense\n{\"id\":\"b\",\"expr\":\"0 3 * * *\",\"tz\":\"UTC\",\"from\":\"2026-05-01T00:00:00Z\",\"count\":1}\n";
    let answer = Cli::new("").run_with(&["times"], lines);
    let answers: Vec<Value> = answer.out.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert!(answers[0]["error"].is_string(), "{answers:?}");
    assert_eq!(answers[1]["fires"], serde_json::json!(["2026-05-01T03:00:00Z"]));
}
