//! Writes an event as a CloudEvents 1.0 JSON document (structured mode), or its attributes one by one (binary mode).
//!
//! In: a delivery. Out: bytes of one JSON object, or attributes. The user's payload goes in as it was written, without being
//! parsed again: it was checked when the schedule was written. Names of extension attributes are lower-case letters and digits,
//! as the specification wants. What is not here: transport headers, signatures.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::io::Write as _;

use chrono::{DateTime, SecondsFormat, Timelike as _, Utc};
use serde_json::value::RawValue;
use tollgate_core::model::{Delivery, Predecessor, RunSpec};
use tollgate_trace::Traces;

/// Media type of the body.
pub const CONTENT_TYPE: &str = "application/cloudevents+json; charset=utf-8";

const TYPE: &str = "dev.tollgate.event.v1";

/// What an installation adds to its events.
#[derive(Clone, Debug)]
pub(crate) struct EventContext {
    /// Stands before `/namespaces/…` in `source`; may be empty.
    pub(crate) source: String,
    /// Where ReleaseToken is served.
    pub(crate) release_url: Option<String>,
    /// The traces to which the spans of deliveries belong.
    pub(crate) traces: Traces,
}

impl EventContext {
    /// The span of a delivery; none while traces are off.
    pub(crate) fn traceparent(&self, delivery: &Delivery) -> Option<String> {
        let trace = self.traces.event_of(delivery.event_id.run(), delivery.index)?;
        Some(trace.traceparent(delivery.attempt).to_string())
    }
}

/// The event of a delivery as JSON. `traceparent`: the extension attribute of that name.
pub(crate) fn write(delivery: &Delivery, context: &EventContext, traceparent: Option<&str>) -> Vec<u8> {
    let data = data(delivery);
    let mut event = Object::with_room(data.len() + 1024);
    write_attributes(delivery, context, traceparent, &mut event);
    if !data.is_empty() {
        event.raw("data", &data);
    }
    event.end()
}

/// What takes the attributes of an event, in their order.
pub(crate) trait Attributes {
    /// An attribute whose value is a number.
    fn number(&mut self, name: &'static str, value: u32);
    /// An attribute whose value is the text of all parts.
    fn text<const PARTS: usize>(&mut self, name: &'static str, parts: [&str; PARTS]);
}

/// Writes all attributes of a delivery's event. `traceparent`: the extension attribute of that name.
pub(crate) fn write_attributes(
    delivery: &Delivery,
    context: &EventContext,
    traceparent: Option<&str>,
    event: &mut impl Attributes,
) {
    let spec = &*delivery.spec;
    let schedule @ [kind, namespace, kinds, id] = schedule_name(spec);
    event.text("specversion", ["1.0"]);
    event.text("id", [delivery.event_id.as_str()]);
    event.text("source", [context.source.trim_end_matches('/'), "/", kind, namespace, kinds, id]);
    event.text("type", [TYPE]);
    event.text("subject", ["namespaces/", &spec.namespace, "/events/", delivery.event_id.as_str()]);
    event.text("time", [&rfc3339(delivery.launch_us)]);
    event.text("datacontenttype", ["application/json"]);
    event.number("attempt", delivery.attempt);
    event.text("schedule", schedule);
    event.text("run", run_name(delivery));
    event.number("index", delivery.index);
    event.number("count", delivery.events);
    if let Some(policy) = &spec.policy_id {
        event.text("policy", policy_name(spec, policy));
    }
    if delivery.checks > 0 {
        event.number("checks", delivery.checks);
    }
    if let Some(cursor) = &delivery.cursor {
        event.text("cursor", [cursor]);
    }
    if let Some(before) = delivery.predecessor.as_deref() {
        predecessor(event, spec, before);
    }
    event.text("release", [if delivery.explicit_release { "explicit" } else { "on_response" }]);
    if let (true, Some(url)) = (delivery.explicit_release, &context.release_url) {
        event.text("releaseurl", [url]);
    }
    if let Some(traceparent) = traceparent {
        event.text("traceparent", [traceparent]);
    }
    let key = delivery.key();
    if !key.is_empty() {
        event.text("key", [key]);
    }
}

/// The run before, and how that ended: attributes of an event are flat.
fn predecessor(event: &mut impl Attributes, spec: &RunSpec, before: &Predecessor) {
    let run = format!("{:02x}-{}", before.shard, before.run);
    event.text("predecessor", ["namespaces/", &spec.namespace, "/runs/", &run]);
    let schedule = ["namespaces/", &spec.namespace, "/schedules/", &before.schedule_id];
    event.text("predecessorschedule", schedule);
    event.text("predecessoroutcome", [before.outcome()]);
    event.number("predecessorsucceeded", before.counts.succeeded);
    event.number("predecessorfailed", before.counts.badly());
}

/// What an event carries: the payload of its schedule, over that what all events of its run carry, over that its item. Of objects
/// each member counts where it stands last; anything else takes the place of what lies under it.
pub(crate) fn data(delivery: &Delivery) -> Cow<'_, str> {
    let under = delivery.spec.payload.json.as_str();
    let Some(item) = &delivery.item else { return under.into() };
    let layers = [under, &item.payload, &item.data].into_iter().filter(|layer| !layer.is_empty());
    layers.fold(Cow::Borrowed(""), |under, over| laid_over(under, over))
}

fn laid_over<'a>(under: Cow<'a, str>, over: &'a str) -> Cow<'a, str> {
    // Members as they are written: numbers keep every digit.
    type Members<'a> = BTreeMap<Cow<'a, str>, &'a RawValue>;
    fn members(json: &str) -> Option<Members<'_>> {
        serde_json::from_str(json).ok()
    }
    if under.is_empty() {
        return over.into();
    }
    let (Some(mut all), Some(own)) = (members(&under), members(over)) else { return over.into() };
    all.extend(own);
    match serde_json::to_string(&all) {
        Ok(json) => json.into(),
        Err(_) => over.into(),
    }
}

/// `namespaces/{namespace}/schedules/{schedule}`, in parts.
pub(crate) fn schedule_name(spec: &RunSpec) -> [&str; 4] {
    ["namespaces/", &spec.namespace, "/schedules/", &spec.schedule_id]
}

/// `namespaces/{namespace}/runs/{run}`, in parts.
pub(crate) fn run_name(delivery: &Delivery) -> [&str; 4] {
    ["namespaces/", &delivery.spec.namespace, "/runs/", delivery.event_id.run()]
}

/// `namespaces/{namespace}/policies/{policy}`, in parts.
pub(crate) fn policy_name<'a>(spec: &'a RunSpec, policy: &'a str) -> [&'a str; 4] {
    ["namespaces/", &spec.namespace, "/policies/", policy]
}

/// UTC, with microseconds only where there are some.
pub fn rfc3339(us: i64) -> String {
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

impl Attributes for Object {
    fn number(&mut self, name: &'static str, value: u32) {
        self.name(name);
        // A buffer takes all that is written into it.
        let _written = write!(self.0, "{value}");
    }

    fn text<const PARTS: usize>(&mut self, name: &'static str, parts: [&str; PARTS]) {
        self.name(name);
        self.0.push(b'"');
        for part in parts {
            if part.bytes().all(|byte| byte >= b' ' && byte != b'"' && byte != b'\\') {
                self.0.extend_from_slice(part.as_bytes());
            } else {
                // With quotation marks around it, as a text of its own has them.
                let escaped = serde_json::Value::from(part).to_string();
                self.0.extend_from_slice(escaped.get(1..escaped.len() - 1).unwrap_or_default().as_bytes());
            }
        }
        self.0.push(b'"');
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]

    use std::borrow::Cow;

    use super::{Attributes as _, Object, laid_over, rfc3339};

    #[test]
    fn a_text_in_parts_is_written_as_the_whole() {
        for c in ('\0'..='\u{7f}').chain(['\u{2028}', 'ü', '😀']) {
            let part = format!("<{c}>");
            let mut object = Object::with_room(0);
            object.text("x", ["a", &part, "b"]);
            let whole = serde_json::to_string(&["a", &part, "b"].concat()).unwrap();
            assert_eq!(String::from_utf8(object.end()).unwrap(), format!("{{\"x\":{whole}}}"));
        }
    }

    #[test]
    fn members_count_where_they_stand_last() {
        for (under, over, expected) in [
            ("", r#"{"a":1}"#, r#"{"a":1}"#),
            (r#"{"a":1,"b":{"c":2}}"#, r#"{"b":{"d":3},"e":null}"#, r#"{"a":1,"b":{"d":3},"e":null}"#),
            (r#"{"a":1}"#, "[7]", "[7]"),
            ("[7]", r#"{"a":1}"#, r#"{"a":1}"#),
            (
                r#"{"n":0.10000000000000000000001}"#,
                r#"{"m":12345678901234567890123}"#,
                r#"{"m":12345678901234567890123,"n":0.10000000000000000000001}"#,
            ),
            (r#"{"\u0061":1}"#, r#"{"a":2}"#, r#"{"a":2}"#),
        ] {
            assert_eq!(laid_over(Cow::Borrowed(under), over), expected, "{over} over {under}");
        }
    }

    #[test]
    fn times_show_microseconds_only_where_there_are_some() {
        assert_eq!(rfc3339(1_780_000_000_000_000), "2026-05-28T20:26:40Z");
        assert_eq!(rfc3339(1_780_000_000_000_001), "2026-05-28T20:26:40.000001Z");
        assert_eq!(rfc3339(1_780_000_000_500_000), "2026-05-28T20:26:40.500000Z");
        assert_eq!(rfc3339(-1), "1969-12-31T23:59:59.999999Z");
    }
}
