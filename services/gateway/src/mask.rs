//! Decides what a PATCH without `update_mask` changes: the fields that its body names, as a JSON merge patch does.
//!
//! In: the body. Out: field paths for `update_mask` (AIP-134: the implied mask is the fields that are populated). Objects
//! merge, lists and free JSON replace, `null` clears. Not here: applying it (`tollgate_proto::mask`).

use prost_reflect::{Kind, MessageDescriptor};
use serde_json::Value;

/// The paths that the body names, in its order. Removes the keys of maps that are null: their paths are all that is
/// needed to clear them.
pub(crate) fn implied(descriptor: &MessageDescriptor, body: &mut Value) -> Vec<String> {
    let mut paths = Vec::new();
    gather(descriptor, body, "", &mut paths);
    // The identity is given by the path, and never changes.
    paths.retain(|path| path != "name");
    paths
}

fn gather(descriptor: &MessageDescriptor, value: &mut Value, before: &str, paths: &mut Vec<String>) {
    let Value::Object(members) = value else { return };
    for (key, member) in members {
        let found = descriptor.get_field_by_name(key).or_else(|| descriptor.get_field_by_json_name(key));
        // The reader of the body refuses what is not known.
        let Some(field) = found else { continue };
        let path = format!("{before}{}", field.name());
        match (field.kind(), member) {
            (_, Value::Object(entries)) if field.is_map() => {
                paths.extend(entries.keys().map(|key| format!("{path}.{key}")));
                entries.retain(|_, entry| !entry.is_null());
            }
            (Kind::Message(inner), member @ Value::Object(_))
                if !field.is_list() && !inner.full_name().starts_with("google.protobuf.") =>
            {
                gather(&inner, member, &format!("{path}."), paths);
            }
            _ => paths.push(path),
        }
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]
    use super::*;
    use serde_json::json;

    #[test]
    fn what_the_body_names_is_changed() {
        let schedule = tollgate_proto::descriptor_pool().get_message_by_name("tollgate.v1.Schedule").unwrap();
        let mut body = json!({
            "name": "namespaces/a/schedules/b",
            "events": 3,
            "timeZone": null,
            "target": {"http": {"url": "http://x/", "deadline": "3s"}},
            "triggers": [{"cron": "@daily"}],
            "labels": {"team": "x", "gone": null},
            "payload": {"a": {"b": 1}},
            "retry": {},
            "colour": "red",
        });
        let mut paths = implied(&schedule, &mut body);
        paths.sort();
        assert_eq!(
            paths,
            [
                "events",
                "labels.gone",
                "labels.team",
                "payload",
                "target.http.deadline",
                "target.http.url",
                "time_zone",
                "triggers"
            ]
        );
        assert_eq!(body["labels"], json!({"team": "x"}));
    }
}
