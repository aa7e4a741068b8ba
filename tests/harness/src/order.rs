//! Commands as messages have them, and what became of them.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use crate::Cli;

/// A command that is to be answered, by its id, with these members more.
pub fn command(op: &str, id: &str, more: Value) -> Value {
    let mut command = json!({"version": 1, "op": op, "id": id, "reply": id});
    for (name, value) in more.as_object().unwrap() {
        command[name] = value.clone();
    }
    command
}

/// One that applies a resource.
pub fn apply(id: &str, revision: u64, resource: Value) -> Value {
    command("apply", id, json!({"revision": revision, "resource": resource}))
}

/// A schedule that fires in no test, with so many events.
pub fn schedule(id: &str, events: u64) -> Value {
    json!({"schedule": {
        "id": id, "triggers": [{"at": "2099-01-01T00:00:00Z"}], "events": events,
        "target": {"pull": {"queue": "nobody"}},
    }})
}

/// Answers by the ids of their commands.
pub fn by_id(answers: &[Value]) -> BTreeMap<String, Value> {
    answers.iter().map(|answer| (answer["reply"].as_str().unwrap().to_owned(), answer.clone())).collect()
}

/// The events of each schedule of the namespace, by its id.
pub fn schedules(cli: &Cli) -> BTreeMap<String, u64> {
    let list = cli.json(&["get", "schedules", "--limit", "0"]);
    let read = |schedule: &Value| {
        let name = schedule["name"].as_str().unwrap();
        (name.rsplit('/').next().unwrap().to_owned(), schedule["events"].as_u64().unwrap())
    };
    list["schedules"].as_array().unwrap().iter().map(read).collect()
}
