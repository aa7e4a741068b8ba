//! Writes an event as a CloudEvents 1.0 JSON document (structured mode).
//!
//! In: a delivery. Out: bytes of one JSON object. The user's payload goes in as it was written, without being parsed
//! again: it was checked when the schedule was written. Names of extension attributes are lower-case letters and
//! digits, as the specification wants. What is not here: transport headers, signatures.

use chrono::{DateTime, SecondsFormat, Timelike as _, Utc};
use tollgate_core::model::{Delivery, RunSpec};
use tollgate_trace::Traces;

/// Media type of the body.
pub(crate) const CONTENT_TYPE: &str = "application/cloudevents+json; charset=utf-8";

const TYPE: &str = "dev.tollgate.event.v1";

/// What an installation adds to its events.
#[derive(Clone, Debug)]
pub(crate) struct Origin {
    /// Stands before `/namespaces/…` in `source`; may be empty.
    pub(crate) source: String,
    /// Where ReleaseToken is served.
    pub(crate) release_url: Option<String>,
    /// Whose spans are told of.
    pub(crate) traces: Traces,
}

impl Origin {
    /// The span of a delivery; none while traces are off.
    pub(crate) fn traceparent(&self, delivery: &Delivery) -> Option<String> {
        let trace = self.traces.event_of(&delivery.run, delivery.index)?;
        Some(trace.traceparent(delivery.attempt).to_string())
    }
}

/// The event of a delivery as JSON. `traceparent`: the extension attribute of that name.
pub(crate) fn write(delivery: &Delivery, origin: &Origin, traceparent: Option<&str>) -> Vec<u8> {
    let spec = &*delivery.spec;
    let schedule = schedule_name(spec);
    let mut event = Object::with_room(spec.payload.json.len() + 1024);
    event.text("specversion", "1.0");
    event.text("id", delivery.event_id.as_str());
    event.text("source", &format!("{}/{schedule}", origin.source.trim_end_matches('/')));
    event.text("type", TYPE);
    event.text("subject", &format!("namespaces/{}/events/{}", spec.namespace, delivery.event_id));
    event.text("time", &rfc3339(delivery.launch_us));
    event.text("datacontenttype", "application/json");
    event.raw("attempt", &delivery.attempt.to_string());
    event.text("schedule", &schedule);
    event.text("run", &run_name(delivery));
    event.raw("index", &delivery.index.to_string());
    event.raw("count", &delivery.events.to_string());
    if let Some(policy) = policy_name(spec) {
        event.text("policy", &policy);
    }
    if let Some(cursor) = &delivery.cursor {
        event.text("cursor", cursor);
    }
    event.text("release", if delivery.explicit_release { "explicit" } else { "on_response" });
    if let (true, Some(url)) = (delivery.explicit_release, &origin.release_url) {
        event.text("releaseurl", url);
    }
    if let Some(traceparent) = traceparent {
        event.text("traceparent", traceparent);
    }
    if !spec.payload.json.is_empty() {
        event.raw("data", &spec.payload.json);
    }
    event.end()
}

/// `namespaces/{namespace}/schedules/{schedule}`.
pub(crate) fn schedule_name(spec: &RunSpec) -> String {
    format!("namespaces/{}/schedules/{}", spec.namespace, spec.schedule_id)
}

/// `namespaces/{namespace}/runs/{run}`.
pub(crate) fn run_name(delivery: &Delivery) -> String {
    format!("namespaces/{}/runs/{}", delivery.spec.namespace, delivery.run)
}

/// `namespaces/{namespace}/policies/{policy}`.
pub(crate) fn policy_name(spec: &RunSpec) -> Option<String> {
    spec.policy_id.as_ref().map(|policy| format!("namespaces/{}/policies/{policy}", spec.namespace))
}

/// UTC, with microseconds only where there are some.
pub(crate) fn rfc3339(us: i64) -> String {
    // chrono's range ends after the last launch time that a schedule can have.
    let time = DateTime::<Utc>::from_timestamp_micros(us).unwrap_or(DateTime::<Utc>::MAX_UTC);
    let form = if time.nanosecond() == 0 { SecondsFormat::Secs } else { SecondsFormat::Micros };
    time.to_rfc3339_opts(form, true)
}

/// One flat JSON object, written member by member.
struct Object(Vec<u8>);

impl Object {
    fn with_room(bytes: usize) -> Self {
        Self(Vec::with_capacity(bytes))
    }

    /// A member whose value is JSON already.
    fn raw(&mut self, name: &'static str, json: &str) {
        self.name(name);
        self.0.extend_from_slice(json.as_bytes());
    }

    fn text(&mut self, name: &'static str, value: &str) {
        self.name(name);
        // A string goes into a buffer: neither side of this can fail.
        let written = serde_json::to_writer(&mut self.0, value);
        debug_assert!(written.is_ok(), "{written:?}");
    }

    fn name(&mut self, name: &'static str) {
        self.0.push(if self.0.is_empty() { b'{' } else { b',' });
        self.0.push(b'"');
        self.0.extend_from_slice(name.as_bytes());
        self.0.extend_from_slice(b"\":");
    }

    fn end(mut self) -> Vec<u8> {
        self.0.push(b'}');
        self.0
    }
}

#[cfg(test)]
mod tests {
    use super::rfc3339;

    #[test]
    fn times_show_microseconds_only_where_there_are_some() {
        assert_eq!(rfc3339(1_780_000_000_000_000), "2026-05-28T20:26:40Z");
        assert_eq!(rfc3339(1_780_000_000_000_001), "2026-05-28T20:26:40.000001Z");
        assert_eq!(rfc3339(1_780_000_000_500_000), "2026-05-28T20:26:40.500000Z");
        assert_eq!(rfc3339(-1), "1969-12-31T23:59:59.999999Z");
    }
}
