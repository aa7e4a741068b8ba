//! Decides what somebody writes instead of a document in the shape of Kubernetes.
//!
//! In: the members of a document. Out: what is wrong with it, and the same in Tollgate's shape as far as it can be told.
//! Invariant: nothing under `data` or in a list of environment variables is repeated, as it may be secret.

use serde_json::{Map, Value};

use super::kind::Kind;

/// The lines of the answer stand under its first one.
pub(super) const INDENT: &str = "\n      ";

/// The answer; none where the document has another shape.
pub(super) fn told(members: &Map<String, Value>) -> Option<String> {
    let is_object = |key: &str| members.get(key).is_some_and(Value::is_object);
    if !members.contains_key("apiVersion") && !is_object("metadata") && !is_object("spec") {
        return None;
    }
    let kind = members.get("kind").and_then(Value::as_str).unwrap_or_default();
    let spec = at(members, "spec");
    let mut lines = Vec::new();
    let what = if kind.eq_ignore_ascii_case("CronJob") {
        head(&mut lines, Kind::Schedule, members);
        cron_job(&mut lines, spec);
        "this is a CronJob of Kubernetes; a schedule calls a target instead of starting a container"
            .to_owned()
    } else if let Some(kind) = Kind::named(kind) {
        head(&mut lines, kind, members);
        fields(&mut lines, spec);
        format!("{}; here the id and all fields stand beside kind", foreign(members))
    } else if kind.is_empty() {
        format!(
            "{}; here a document has kind: Policy, kind: Schedule, kind: Calendar or kind: Alert, an id, and its fields beside \
             them",
            foreign(members)
        )
    } else {
        format!(
            "{kind:?} is a kind of Kubernetes, and none of Tollgate; expected Policy, Schedule, Calendar or Alert"
        )
    };
    if lines.is_empty() {
        return Some(what);
    }
    Some(format!("{what}. Write{INDENT}{}", lines.join(INDENT)))
}

/// Which of its fields are not ours.
fn foreign(members: &Map<String, Value>) -> String {
    let theirs = ["apiVersion", "metadata", "spec"].into_iter().filter(|key| members.contains_key(*key));
    match theirs.collect::<Vec<_>>().as_slice() {
        [one] => format!("{one} is of Kubernetes"),
        [start @ .., last] => format!("{} and {last} are of Kubernetes", start.join(", ")),
        [] => "this is of Kubernetes".to_owned(),
    }
}

fn at<'v>(members: &'v Map<String, Value>, key: &str) -> Option<&'v Map<String, Value>> {
    members.get(key).and_then(Value::as_object)
}

fn head(lines: &mut Vec<String>, kind: Kind, members: &Map<String, Value>) {
    let metadata = at(members, "metadata");
    let named = |key: &str| metadata.and_then(|metadata| metadata.get(key)).and_then(Value::as_str);
    lines.push(format!("kind: {}", kind.word()));
    if let Some(namespace) = named("namespace") {
        lines.push(format!("namespace: {}", scalar(&Value::from(namespace))));
    }
    let id = named("name").map_or("my-id".to_owned(), |name| scalar(&Value::from(name)));
    lines.push(format!("id: {id}"));
    if let Some(Value::Object(labels)) = metadata.and_then(|metadata| metadata.get("labels")) {
        let labels = labels.iter().map(|(key, value)| format!("{}: {}", quoted(key), scalar(value)));
        lines.push(format!("labels: {{{}}}", labels.collect::<Vec<_>>().join(", ")));
    }
}

fn cron_job(lines: &mut Vec<String>, spec: Option<&Map<String, Value>>) {
    let text = |key: &str| spec.and_then(|spec| spec.get(key)).and_then(Value::as_str);
    let cron = text("schedule").unwrap_or("0 3 * * *");
    let (zone, cron) = match cron.strip_prefix("CRON_TZ=").or_else(|| cron.strip_prefix("TZ=")) {
        Some(rest) => rest.split_once(' ').map_or((None, rest), |(zone, cron)| (Some(zone), cron)),
        None => (None, cron),
    };
    lines.push("triggers:".to_owned());
    lines.push(format!("  - cron: {}", quoted(cron)));
    if let Some(zone) = text("timeZone").or(zone) {
        lines.push(format!("timeZone: {zone}"));
    }
    match text("concurrencyPolicy") {
        Some("Forbid") => lines.push("overlap: SKIP".to_owned()),
        Some("Replace") => lines.push("overlap: CANCEL_OTHER".to_owned()),
        _ => {}
    }
    if let Some(seconds) = spec.and_then(|spec| spec.get("startingDeadlineSeconds")).and_then(Value::as_u64) {
        lines.push(format!("finishBy: {seconds}s"));
    }
    lines.push("target:".to_owned());
    lines.push("  http: {url: \"http://127.0.0.1:8080/\"}   # what is called instead".to_owned());
    if spec.and_then(|spec| spec.get("suspend")) == Some(&Value::Bool(true)) {
        lines.push("# and then: tollgate pause schedule ID".to_owned());
    }
}

/// The members of `spec` as they may stand beside `kind`, those without members of their own.
fn fields(lines: &mut Vec<String>, spec: Option<&Map<String, Value>>) {
    let Some(spec) = spec else { return };
    for (key, value) in spec {
        match value {
            Value::Object(_) | Value::Array(_) => lines.push(format!("{key}: …")),
            _ => lines.push(format!("{key}: {}", scalar(value))),
        }
    }
}

/// A value as YAML on one line.
fn scalar(value: &Value) -> String {
    match value {
        Value::String(text) if is_plain(text) => text.clone(),
        other => other.to_string(),
    }
}

/// A text in quotes, where it needs them.
pub(super) fn quoted(text: &str) -> String {
    if is_plain(text) { text.to_owned() } else { Value::from(text).to_string() }
}

/// Whether a text needs no quotes in YAML; careful rather than exact.
fn is_plain(text: &str) -> bool {
    let word = text.starts_with(|c: char| c.is_ascii_alphabetic())
        && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_./".contains(&byte));
    word && !["true", "false", "null", "yes", "no", "on", "off"].contains(&text.to_lowercase().as_str())
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]

    use serde_json::json;

    use super::*;

    fn told(value: Value) -> Option<String> {
        super::told(value.as_object().unwrap())
    }

    #[test]
    fn a_cron_job_is_answered_with_a_schedule() {
        let told = told(json!({
            "apiVersion": "batch/v1",
            "kind": "CronJob",
            "metadata": {"name": "nightly", "namespace": "team", "labels": {"app": "backup"}},
            "spec": {
                "schedule": "0 3 * * *",
                "timeZone": "Europe/Berlin",
                "concurrencyPolicy": "Forbid",
                "startingDeadlineSeconds": 600,
                "jobTemplate": {"spec": {"template": {"spec": {"containers": [{"env": [{"value": "hunter2"}]}]}}}},
            },
        }))
        .unwrap();
        let yaml = "kind: Schedule\n      namespace: team\n      id: nightly\n      labels: {app: backup}\n      \
                    triggers:\n        - cron: \"0 3 * * *\"\n      timeZone: Europe/Berlin\n      overlap: SKIP\n      \
                    finishBy: 600s\n      target:\n        http: {url: \"http://127.0.0.1:8080/\"}";
        assert!(told.starts_with("this is a CronJob of Kubernetes;"), "{told}");
        assert!(told.contains(yaml), "{told}");
        assert!(!told.contains("hunter2"), "{told}");
    }

    #[test]
    fn other_shapes_are_named() {
        let policy = told(json!({"kind": "Policy", "metadata": {"name": "p"}, "spec": {"maxInFlight": 3}}));
        assert!(policy.unwrap().ends_with("Write\n      kind: Policy\n      id: p\n      maxInFlight: 3"));
        let other = told(json!({"apiVersion": "v1", "kind": "Secret", "data": {"a": "hunter2"}})).unwrap();
        assert!(
            other.starts_with("\"Secret\" is a kind of Kubernetes") && !other.contains("hunter2"),
            "{other}"
        );
        assert_eq!(told(json!({"kind": "Schedule", "id": "a", "spec": 1})), None);
    }
}
