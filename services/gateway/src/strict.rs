//! Decides which liberties of people's files a body does not have: a number is no text, and no enum value.
//!
//! In: a message's description and JSON for it. Out: nothing, or the first number that stands where the document asks for a text.
//! Not here: everything else that may be wrong (`tollgate_proto::json`).

use prost_reflect::{FieldDescriptor, Kind, MessageDescriptor};
use serde_json::Value;
use tollgate_proto::FieldError;

/// Refuses numbers for texts and enum values, at any depth.
pub(crate) fn check(descriptor: &MessageDescriptor, value: &Value, before: &str) -> Result<(), FieldError> {
    let Value::Object(members) = value else { return Ok(()) };
    if descriptor.full_name().starts_with("google.protobuf.") {
        return Ok(());
    }
    for (key, member) in members {
        let found = descriptor.get_field_by_name(key).or_else(|| descriptor.get_field_by_json_name(key));
        let Some(field) = found else { continue };
        let path = format!("{before}{}", field.name());
        match member {
            Value::Array(items) if field.is_list() => {
                for (at, item) in items.iter().enumerate() {
                    one(&field, &field.kind(), item, &format!("{path}[{at}]"))?;
                }
            }
            Value::Object(entries) if field.is_map() => {
                let Kind::Message(entry) = field.kind() else { continue };
                for (key, item) in entries {
                    one(&field, &entry.map_entry_value_field().kind(), item, &format!("{path}.{key}"))?;
                }
            }
            member => one(&field, &field.kind(), member, &path)?,
        }
    }
    Ok(())
}

fn one(field: &FieldDescriptor, kind: &Kind, value: &Value, path: &str) -> Result<(), FieldError> {
    match (kind, value) {
        (Kind::String | Kind::Enum(_), Value::Number(number)) => {
            let expected = format!("text, in quotes: {} is no number", field.json_name());
            Err(FieldError::new(path, number, expected))
        }
        (Kind::Message(inner), Value::Object(_)) => check(inner, value, &format!("{path}.")),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]
    use super::*;
    use serde_json::json;

    #[test]
    fn numbers_are_no_texts() {
        let schedule = tollgate_proto::descriptor_pool().get_message_by_name("tollgate.v1.Schedule").unwrap();
        let wrong = |value: Value| check(&schedule, &value, "schedule.").err().map(|error| error.field);
        assert_eq!(wrong(json!({"policy": 5})).as_deref(), Some("schedule.policy"));
        assert_eq!(wrong(json!({"timeZone": 1.5})).as_deref(), Some("schedule.time_zone"));
        assert_eq!(wrong(json!({"gap": 1})).as_deref(), Some("schedule.gap"));
        assert_eq!(wrong(json!({"labels": {"a": 1}})).as_deref(), Some("schedule.labels.a"));
        let hour = json!({"triggers": [{"cron": "@daily"}, {"fields": {"hour": 3}}]});
        assert!(wrong(hour).unwrap_or_default().starts_with("schedule.triggers[1]."));
        let good =
            json!({"events": 3, "payload": {"policy": 5}, "labels": {"a": "1"}, "policy": null, "colour": 1});
        assert_eq!(wrong(good), None, "what is not known is for the reader to refuse");
    }
}
