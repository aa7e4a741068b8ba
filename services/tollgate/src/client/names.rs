//! Decides which resource a short name stands for: one of the caller's namespace.
//!
//! A text with a slash is passed on as it is. Whether it names anything is the service's to say.

use tollgate_proto::convert::names;

/// `namespaces/{namespace}`.
pub(crate) fn parent(namespace: &str) -> String {
    format!("namespaces/{namespace}")
}

/// A schedule's full name.
pub(crate) fn schedule(namespace: &str, text: &str) -> String {
    complete(text, || names::of_schedule(namespace, text))
}

/// A policy's full name.
pub(crate) fn policy(namespace: &str, text: &str) -> String {
    complete(text, || names::of_policy(namespace, text))
}

/// An alert's full name.
pub(crate) fn alert(namespace: &str, text: &str) -> String {
    complete(text, || names::of_alert(namespace, text))
}

/// A run's full name.
pub(crate) fn run(namespace: &str, text: &str) -> String {
    complete(text, || format!("namespaces/{namespace}/runs/{text}"))
}

/// Whether the text names a run: runs and events have names of different shapes.
pub(crate) fn is_run(namespace: &str, text: &str) -> bool {
    names::run("", &run(namespace, text)).is_ok()
}

/// What an audit entry may be about: `schedule/nightly`, `policy/imports`, or a full name.
pub(crate) fn resource(namespace: &str, text: &str) -> String {
    match text.split_once('/') {
        Some(("schedule" | "schedules", id)) => schedule(namespace, id),
        Some(("policy" | "policies", id)) => policy(namespace, id),
        Some(("alert" | "alerts", id)) => alert(namespace, id),
        Some(("run" | "runs", id)) => run(namespace, id),
        _ => text.to_owned(),
    }
}

/// The last part of a name, which is enough inside a namespace.
pub(crate) fn short(name: &str) -> &str {
    name.rsplit('/').next().unwrap_or(name)
}

fn complete(text: &str, full: impl FnOnce() -> String) -> String {
    if text.contains('/') { text.to_owned() } else { full() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn short_names_are_completed() {
        assert_eq!(schedule("a", "nightly"), "namespaces/a/schedules/nightly");
        assert_eq!(policy("a", "namespaces/b/policies/p"), "namespaces/b/policies/p");
        assert_eq!(resource("a", "schedule/nightly"), "namespaces/a/schedules/nightly");
        assert_eq!(resource("a", "namespaces/b/policies/p"), "namespaces/b/policies/p");
        assert_eq!(short("namespaces/b/policies/p"), "p");
    }

    #[test]
    fn runs_are_told_from_events() {
        let id = "0a-0123456789abcdef0123456789abcdef";
        assert!(is_run("default", id));
        assert!(is_run("default", &run("other", id)));
        assert!(!is_run("default", &format!("{id}-7")));
        assert!(!is_run("default", "namespaces/default/events/x"));
    }
}
