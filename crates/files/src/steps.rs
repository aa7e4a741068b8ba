//! Steps of a job: schedules that follow one another, written as one.
//!
//! In: a schedule with `steps`, and the tasks (`kind: Task`) of the files that are read with it. Out: the schedule and one for
//! each step, each of which the one before names in `on_finish`. A step is called `{job}.{step}`, has no triggers, and has its
//! job's policy, key and labels where it does not say its own. A step with `task` has the fields of that task under its own, so
//! that many jobs may share it. Invariant: nothing of this reaches the service, which knows schedules alone.

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};
use tollgate_core::model::Predecessor;
use tollgate_core::nearest::nearest;

use super::resource::{Fault, NOBODY};

type Members = Map<String, Value>;

/// What a step has from its job where it does not say it, by its names in files.
const INHERITED: [&[&str]; 3] = [&["policy"], &["labels"], &["key", "key_label", "keyLabel"]];
/// What a step cannot say.
const FOREIGN: [(&[&str], &str); 4] = [
    (&["triggers"], "a step has none: it follows the step before"),
    (&["on_finish", "onFinish"], "a step has none: the next step follows it"),
    (&["steps"], "a step has none: write all steps one below the other"),
    (&["name", "namespace"], "a step has none: it is called after its job, and is in its namespace"),
];

/// How a step says that it has an event for each item in the results of the one before.
const RESULTS: [&str; 2] = ["items_from_results", "itemsFromResults"];

/// What a task cannot say: the schedule that uses it says these, or nobody does.
const OF_NO_TASK: [(&[&str], &str); 6] = [
    (&["triggers"], "a task has none: a step that uses it follows the step before"),
    (&["on_finish", "onFinish"], "a task has none: the next step follows the one that uses it"),
    (&["steps"], "a task has none: write them as steps of the schedule that uses it"),
    (&["when"], "a task has none: the step that uses it says after what end it follows"),
    (&RESULTS, "a task has none: the step that uses it says what its items are"),
    (
        &["name", "namespace"],
        "a task has none: it has an id alone, and is where the schedule is that uses it",
    ),
];

/// Tasks by their ids.
#[derive(Debug, Default)]
pub(super) struct Tasks(BTreeMap<String, Members>);

impl Tasks {
    /// Takes in a task, without what it cannot say: of that is told once, and not of each step that uses it.
    ///
    /// # Errors
    /// What is wrong with its id, and what it cannot say.
    pub(super) fn add(&mut self, mut members: Members) -> Result<(), Vec<Fault>> {
        let mut faults = foreign(&members, &OF_NO_TASK);
        for fault in &faults {
            members.remove(&fault.field);
        }
        match members.remove("id") {
            Some(Value::String(id)) if self.0.contains_key(&id) => {
                let told = format!("{id:?} is the id of another task: each has one of its own");
                faults.push(Fault::new("id", told));
            }
            Some(Value::String(id)) => {
                self.0.insert(id, members);
            }
            _ => faults.push(Fault::new("id", "is missing: write id: my-task")),
        }
        if faults.is_empty() { Ok(()) } else { Err(faults) }
    }

    fn named(&self, id: &str) -> Result<&Members, Fault> {
        self.0.get(id).ok_or_else(|| {
            let near = nearest(id, self.0.keys().map(String::as_str));
            let meant = near.map(|near| format!("; did you mean {near}?")).unwrap_or_default();
            Fault::new("task", format!("{id:?} is no task of these files: write one as kind: Task{meant}"))
        })
    }
}

/// What members have of that which they cannot say.
fn foreign(members: &Members, refused: &[(&[&str], &str)]) -> Vec<Fault> {
    let one = |(names, told): &(&[&str], &str)| {
        let given = names.iter().find(|name| members.contains_key(**name))?;
        Some(Fault::new(given, *told))
    };
    refused.iter().filter_map(one).collect()
}

/// The members of one schedule, and where it is written in its job: empty for the job itself.
#[derive(Debug)]
pub(super) struct Written {
    pub(super) path: String,
    /// Where the step is written that follows it.
    pub(super) next: Option<String>,
    pub(super) members: Members,
}

/// Whether the members of a schedule have steps.
pub(super) fn has_steps(members: &Members) -> bool {
    members.contains_key("steps")
}

/// The schedules of a job, the first one first; its steps are in its namespace, and called after its id. Where nobody knows that,
/// the names are made up, and stand for no others.
///
/// # Errors
/// All that is wrong with its steps, each with its path in the job.
pub(super) fn expand(
    mut job: Members,
    namespace: &str,
    job_id: Option<&str>,
    tasks: &Tasks,
) -> Result<Vec<Written>, Vec<Fault>> {
    let most = usize::from(Predecessor::PLACES_MAX) - 1;
    let steps = match job.remove("steps") {
        Some(Value::Array(steps)) if !steps.is_empty() && steps.len() <= most => steps,
        Some(Value::Array(steps)) => {
            let expected = format!("{} steps are not allowed, expected 1 to {most}", steps.len());
            return Err(vec![Fault::new("steps", expected)]);
        }
        _ => return Err(vec![Fault::new("steps", "expected a list of steps")]),
    };
    let mut faults = Vec::new();
    if let Some(own) = ["on_finish", "onFinish"].into_iter().find(|name| job.contains_key(*name)) {
        faults.push(Fault::new(own, "excludes steps, the first of which follows"));
    }
    let mut schedules = vec![Written { path: String::new(), next: None, members: job }];
    for (number, step) in steps.into_iter().enumerate() {
        let path = format!("steps[{number}]");
        let (id, On { when, items }, mut members) = match read(step, tasks) {
            Ok(read) => read,
            Err(wrong) => {
                let inside = |fault: Fault| match fault.field.as_str() {
                    "" => Fault::new(&path, fault.message),
                    field => Fault::new(&format!("{path}.{field}"), fault.message),
                };
                faults.extend(wrong.into_iter().map(inside));
                continue;
            }
        };
        let id = job_id.map_or_else(|| NOBODY.to_owned(), |job_id| format!("{job_id}.{id}"));
        let mut on_finish = json!({"schedule": id});
        if let Some(when) = when {
            on_finish["when"] = when;
        }
        if let Some(items) = items {
            on_finish[RESULTS[0]] = items;
        }
        if let Some(before) = schedules.last_mut() {
            before.members.insert("on_finish".to_owned(), on_finish);
            before.next = Some(path.clone());
        }
        members.insert("id".to_owned(), Value::String(id));
        members.insert("namespace".to_owned(), Value::String(namespace.to_owned()));
        inherit(&mut members, &schedules[0].members);
        schedules.push(Written { path, next: None, members });
    }
    if faults.is_empty() { Ok(schedules) } else { Err(faults) }
}

/// What a step says of the one before.
struct On {
    /// After what end it follows.
    when: Option<Value>,
    /// How its items are read from the results.
    items: Option<Value>,
}

/// The id of a step, what it says of the one before, and its fields with those of its task.
fn read(step: Value, tasks: &Tasks) -> Result<(String, On, Members), Vec<Fault>> {
    let Value::Object(mut own) = step else { return Err(vec![Fault::new("", "expected an object")]) };
    let mut faults = foreign(&own, &FOREIGN);
    let mut members = Members::new();
    let task = match own.remove("task") {
        Some(Value::String(id)) => {
            match tasks.named(&id) {
                Ok(task) => members.clone_from(task),
                Err(fault) => faults.push(fault),
            }
            Some(id)
        }
        Some(other) => {
            faults.push(Fault::new("task", format!("{other} is not allowed, expected the id of a task")));
            None
        }
        None => None,
    };
    let id = match (own.remove("id"), task) {
        (Some(Value::String(id)), _) | (None, Some(id)) => id,
        (Some(Value::Number(number)), _) => number.to_string(),
        (Some(other), _) => {
            faults.push(Fault::new("id", format!("{other} is not allowed, expected text")));
            String::new()
        }
        (None, None) => {
            faults.push(Fault::new("id", "is missing: write id: my-step, or task: with the id of a task"));
            String::new()
        }
    };
    let when = own.remove("when");
    let items = RESULTS.iter().find_map(|name| own.remove(*name));
    members.extend(own);
    if faults.is_empty() { Ok((id, On { when, items }, members)) } else { Err(faults) }
}

fn inherit(members: &mut Members, job: &Members) {
    for names in INHERITED {
        if names.iter().any(|name| members.contains_key(*name)) {
            continue;
        }
        for name in names {
            if let Some(value) = job.get(*name) {
                members.insert((*name).to_owned(), value.clone());
            }
        }
    }
}
