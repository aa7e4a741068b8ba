//! Decides which resource a short name stands for: one of the caller's namespace.
//!
//! `nightly` and `schedule/nightly` are short names. Another text with a slash is passed on as it is. Whether it names
//! anything is the service's to say.

use tollgate_proto::convert::names;

/// `namespaces/{namespace}`.
pub(crate) fn parent(namespace: &str) -> String {
    format!("namespaces/{namespace}")
}

/// A schedule's full name.
pub(crate) fn schedule(namespace: &str, text: &str) -> String {
    complete(text, ["schedule/", "schedules/"], |id| names::of_schedule(namespace, id))
}

/// A policy's full name.
pub(crate) fn policy(namespace: &str, text: &str) -> String {
    complete(text, ["policy/", "policies/"], |id| names::of_policy(namespace, id))
}

/// A calendar's full name.
pub(crate) fn calendar(namespace: &str, text: &str) -> String {
    complete(text, ["calendar/", "calendars/"], |id| names::of_calendar(namespace, id))
}

/// An alert's full name.
pub(crate) fn alert(namespace: &str, text: &str) -> String {
    complete(text, ["alert/", "alerts/"], |id| names::of_alert(namespace, id))
}

/// The full name of a queue of workers.
pub(crate) fn queue(namespace: &str, text: &str) -> String {
    complete(text, ["queue/", "queues/"], |id| format!("namespaces/{namespace}/queues/{id}"))
}

/// A run's full name.
pub(crate) fn run(namespace: &str, text: &str) -> String {
    complete(text, ["run/", "runs/"], |id| format!("namespaces/{namespace}/runs/{id}"))
}

/// An event's id or full name.
pub(crate) fn event(text: &str) -> &str {
    ["event/", "events/"].iter().find_map(|kind| text.strip_prefix(kind)).unwrap_or(text)
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
        Some(("calendar" | "calendars", id)) => calendar(namespace, id),
        Some(("alert" | "alerts", id)) => alert(namespace, id),
        Some(("run" | "runs", id)) => run(namespace, id),
        _ => text.to_owned(),
    }
}

/// The last part of a name, which is enough inside a namespace.
pub(crate) fn short(name: &str) -> &str {
    name.rsplit('/').next().unwrap_or(name)
}

/// The namespace of a full name; empty where there is none in it.
pub(crate) fn namespace_of(name: &str) -> &str {
    name.strip_prefix("namespaces/").and_then(|rest| rest.split('/').next()).unwrap_or_default()
}

/// A full name as `schedule/nightly`, which commands take within its namespace.
pub(crate) fn kind_and_id(name: &str) -> String {
    let mut parts = name.rsplit('/');
    let (id, collection) = (parts.next().unwrap_or_default(), parts.next().unwrap_or_default());
    let kind = match collection {
        "policies" => "policy",
        other => other.trim_end_matches('s'),
    };
    if kind.is_empty() { id.to_owned() } else { format!("{kind}/{id}") }
}

/// A full name as it is printed for other commands: short where the namespace is the one that they are in.
pub(crate) fn usable(namespace: &str, name: &str) -> String {
    if namespace_of(name) == namespace { kind_and_id(name) } else { name.to_owned() }
}

fn complete(text: &str, kinds: [&str; 2], full: impl Fn(&str) -> String) -> String {
    let bare = kinds.iter().find_map(|kind| text.strip_prefix(kind)).unwrap_or(text);
    if bare.contains('/') { text.to_owned() } else { full(bare) }
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

    #[test]
    fn what_is_printed_is_taken_back() {
        let full = "namespaces/team/policies/p";
        assert_eq!((usable("team", full), usable("other", full)), ("policy/p".to_owned(), full.to_owned()));
        assert_eq!(policy("team", &usable("team", full)), full);
        assert_eq!(policy("other", &usable("other", full)), full);
        for (name, short) in [
            ("namespaces/a/schedules/s", "schedule/s"),
            ("namespaces/a/alerts/s", "alert/s"),
            ("namespaces/a/calendars/s", "calendar/s"),
            ("namespaces/a/runs/0a-1", "run/0a-1"),
            ("namespaces/a/events/0a-1-2", "event/0a-1-2"),
        ] {
            assert_eq!((kind_and_id(name).as_str(), namespace_of(name)), (short, "a"));
        }
        assert_eq!((event("event/x-1"), event("x-1")), ("x-1", "x-1"));
    }
}
