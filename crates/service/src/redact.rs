//! Decides what a caller with a key sees of an answer: no event's token without the scope for it, nothing of other
//! namespaces, and, for a key that may not read, nothing but what it could have given itself.
//!
//! In: answers as they would go. Out: answers without what is not the caller's. Where nobody is asked for a key, they stay as
//! they are. Invariant: nothing is looked up here.

use tollgate_auth::Access;
use tollgate_proto::{convert, v1};

/// An event, as this caller may see it.
pub fn event(access: &Access, mut event: v1::Event) -> v1::Event {
    let sealed = event.event_id.clone();
    access.shown_event(&mut event.name);
    access.shown_event(&mut event.event_id);
    quoted(&mut event.message, &sealed, &event.event_id);
    event
}

/// A consumer's own words may quote the id that it got.
fn quoted(text: &mut String, sealed: &str, shown: &str) {
    if sealed != shown && text.contains(sealed) {
        *text = text.replace(sealed, shown);
    }
}

/// An explanation, as this caller may see it.
pub fn explanation(access: &Access, mut told: v1::Explanation) -> v1::Explanation {
    let sealed = told.event.as_ref().map(|event| event.event_id.clone()).unwrap_or_default();
    told.event = told.event.map(|shown| event(access, shown));
    let shown = told.event.as_ref().map(|event| event.event_id.as_str()).unwrap_or_default();
    told.attempts.iter_mut().for_each(|attempt| quoted(&mut attempt.message, &sealed, shown));
    told.reasons.iter_mut().for_each(|reason| quoted(&mut reason.message, &sealed, shown));
    quoted(&mut told.summary, &sealed, shown);
    // A policy above may be shared by several namespaces.
    if let Some(namespace) = access.namespace() {
        let own = format!("namespaces/{namespace}/");
        told.holders.retain(|holder| holder.schedule.starts_with(&own));
    }
    told.holders.iter_mut().for_each(|holder| access.shown_event(&mut holder.event));
    told
}

/// A policy's queue, as this caller may see it.
pub fn queue(access: &Access, mut queue: v1::PolicyQueue) -> v1::PolicyQueue {
    queue.holders.iter_mut().for_each(|holder| access.shown_event(&mut holder.event));
    queue.waiters.iter_mut().for_each(|waiter| access.shown_event(&mut waiter.event));
    queue
}

/// A schedule, as the caller who changed it may see it.
pub fn schedule(access: &Access, mut schedule: v1::Schedule) -> v1::Schedule {
    if !access.reads() {
        schedule.payload = None;
        schedule.items.clear();
        if let Some(headers) = schedule.items_from.as_mut().and_then(convert::list_headers) {
            convert::hide_values(headers);
        }
        if let Some(target) = &mut schedule.target {
            convert::hide_headers(target);
        }
    }
    schedule
}

/// An alert, as the caller who changed or reads it may see it.
pub fn alert(access: &Access, mut alert: v1::Alert) -> v1::Alert {
    let target = alert.target.as_mut().and_then(|target| target.target.as_mut());
    if let (false, Some(v1::alert_target::Target::Http(http))) = (access.reads(), target) {
        convert::hide_all_headers(http);
    }
    alert
}

/// What the handlers do, for one who reaches one namespace only: what it says of others, and of all together, is left out.
pub fn handler_status(access: &Access, mut status: v1::HandlerStatus) -> v1::HandlerStatus {
    let Some(namespace) = access.namespace() else { return status };
    let own = format!("namespaces/{namespace}/");
    status.policies.retain(|gauge| gauge.policy.starts_with(&own));
    status.targets.retain(|gauge| gauge.parent == own.trim_end_matches('/'));
    let sum = |count: fn(&v1::PolicyGauge) -> u64| status.policies.iter().map(count).sum();
    status.held_count = sum(|gauge| gauge.held_count);
    status.suspect_count = sum(|gauge| gauge.suspect_count);
    status.waiting_count = sum(|gauge| gauge.waiting_count);
    status.scheduled_runs_count = 0;
    status.launched_runs_count = 0;
    status.corrupt_rows.clear();
    status
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use tollgate_auth::{Principal, Scopes};

    use super::*;

    #[test]
    fn a_namespace_sees_its_own_buckets_and_targets_only() {
        let gauge = |policy: &str, held_count| v1::PolicyGauge {
            policy: policy.to_owned(),
            held_count,
            ..v1::PolicyGauge::default()
        };
        let target =
            |parent: &str| v1::TargetGauge { parent: parent.to_owned(), ..v1::TargetGauge::default() };
        let all = v1::HandlerStatus {
            targets: vec![target("namespaces/a"), target("namespaces/ab"), target("namespaces/b")],
            policies: vec![
                gauge("namespaces/a/policies/p", 2),
                gauge("namespaces/ab/policies/p", 3),
                gauge("", 4),
            ],
            held_count: 9,
            launched_runs_count: 7,
            corrupt_rows: vec![v1::CorruptRow::default()],
            ..v1::HandlerStatus::default()
        };
        let principal = Principal {
            name: "ci".to_owned(),
            namespace: Some("a".to_owned()),
            scopes: Scopes::all(),
            credential: String::new(),
        };
        let seen = handler_status(&Access::Holder(Arc::new(principal)), all.clone());
        assert_eq!(seen.policies, [gauge("namespaces/a/policies/p", 2)]);
        assert_eq!(seen.targets, [target("namespaces/a")]);
        assert_eq!((seen.held_count, seen.launched_runs_count, seen.corrupt_rows.len()), (2, 0, 0));
        assert_eq!(handler_status(&Access::Open, all.clone()), all);
    }
}
