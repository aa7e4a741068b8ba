//! Decides which message a request means: fields of its path, its query and its body, put together.
//!
//! In: a route and what the request gave. Out: the message, or every reason against it by the field's path in the
//! message. Invariants: no field is given twice; what is not known is refused, in the query as in the body.

use prost_reflect::{DynamicMessage, FieldDescriptor, Kind, ReflectMessage as _, Value as Field};
use serde_json::{Map, Value};
use tollgate_proto::FieldError;
use tollgate_proto::json::dynamic_from_json;

use crate::table::{Body, Route};
use crate::{mask, strict};

const UPDATE_MASK: &str = "update_mask";

/// The message. `body` is empty where the request has none.
pub(crate) fn read(
    route: &Route,
    path: &[(&str, String)],
    query: &str,
    body: &[u8],
) -> Result<DynamicMessage, Vec<FieldError>> {
    let (fields, implied) = gather(route, path, query, body).map_err(|error| vec![error])?;
    let masked = fields.contains_key(UPDATE_MASK);
    let mut message = dynamic_from_json(route.rpc.input(), Value::Object(fields))
        .map_err(|errors| errors.into_iter().map(FieldError::from).collect::<Vec<_>>())?;
    if let (Some(paths), false) = (implied, masked) {
        set_mask(&mut message, paths).map_err(|error| vec![error])?;
    }
    Ok(message)
}

/// The fields of the message as JSON, and the mask that the body implies.
type Gathered = (Map<String, Value>, Option<Vec<String>>);

/// What path, query and body give.
fn gather(route: &Route, path: &[(&str, String)], query: &str, body: &[u8]) -> Result<Gathered, FieldError> {
    let mut fields = Map::new();
    let mut implied = None;
    match &route.body {
        Body::None | Body::Items => {}
        Body::All => {
            let given = json(body)?;
            strict::check(&route.rpc.input(), &given, "")?;
            if let Value::Object(given) = given {
                fields = given;
            } else {
                return Err(FieldError::new("", "", "an object as the body"));
            }
        }
        Body::Field(field) => {
            let mut given = json(body)?;
            if !given.is_object() {
                return Err(FieldError::new(field.name(), "", "an object as the body"));
            }
            if let Kind::Message(inner) = field.kind() {
                strict::check(&inner, &given, &format!("{}.", field.name()))?;
            }
            if route.verb == http::Method::PATCH
                && let Kind::Message(inner) = field.kind()
            {
                implied = Some(mask::implied(&inner, &mut given));
            }
            fields.insert(field.name().to_owned(), given);
        }
    }
    for (name, value) in path {
        set(&mut fields, name, value)?;
    }
    add_query(&route.query, &[], query, &mut fields)?;
    Ok((fields, implied))
}

/// No body counts as an empty object.
fn json(body: &[u8]) -> Result<Value, FieldError> {
    if body.iter().all(u8::is_ascii_whitespace) {
        return Ok(Value::Object(Map::new()));
    }
    serde_json::from_slice(body)
        .map_err(|error| FieldError::new("", "", format!("JSON as the body: {error}")))
}

/// Sets what the path gives; the body may repeat it, and nothing else.
fn set(fields: &mut Map<String, Value>, name: &str, value: &str) -> Result<(), FieldError> {
    let (members, last) = match name.split_once('.') {
        Some((first, rest)) => {
            let inner = fields.entry(first).or_insert_with(|| Value::Object(Map::new()));
            let Value::Object(inner) = inner else { return Err(FieldError::new(first, "", "an object")) };
            (inner, rest)
        }
        None => (fields, name),
    };
    match members.insert(last.to_owned(), Value::from(value)) {
        None | Some(Value::Null) => Ok(()),
        Some(Value::String(given)) if given.is_empty() || given == value => Ok(()),
        Some(given) => {
            let given = given.as_str().map_or_else(|| given.to_string(), str::to_owned);
            Err(FieldError::new(name, given, format!("{value}, as the path says, or nothing")))
        }
    }
}

/// Adds what the query says of `known` fields. Names that are `others` are the caller's to read.
pub(crate) fn add_query(
    known: &[FieldDescriptor],
    others: &[&str],
    query: &str,
    fields: &mut Map<String, Value>,
) -> Result<(), FieldError> {
    for (key, value) in form_urlencoded::parse(query.as_bytes()) {
        if others.contains(&&*key) {
            continue;
        }
        let Some(field) = known.iter().find(|field| field.name() == key || field.json_name() == key) else {
            let mut names: Vec<&str> = known.iter().map(FieldDescriptor::json_name).collect();
            names.extend(others);
            names.sort_unstable();
            let names = if names.is_empty() { "none".to_owned() } else { names.join(", ") };
            return Err(FieldError::said(key, format!("no such query parameter, expected {names}")));
        };
        let value = match (field.kind(), &*value) {
            (Kind::Bool, "true") => Value::Bool(true),
            (Kind::Bool, "false") => Value::Bool(false),
            (Kind::Message(kind), text) if kind.full_name() == "google.protobuf.Value" => {
                let expected = |error| FieldError::new(field.name(), text, format!("JSON: {error}"));
                serde_json::from_str(text).map_err(expected)?
            }
            (_, text) => Value::from(text),
        };
        if field.is_list() {
            let list = fields.entry(field.name()).or_insert_with(|| Value::Array(Vec::new()));
            if let Value::Array(items) = list {
                items.push(value);
            }
        } else if fields.insert(field.name().to_owned(), value).is_some() {
            return Err(FieldError::new(field.name(), "", "one query parameter of this name"));
        }
    }
    Ok(())
}

fn set_mask(message: &mut DynamicMessage, paths: Vec<String>) -> Result<(), FieldError> {
    let Some(field) = message.descriptor().get_field_by_name(UPDATE_MASK) else { return Ok(()) };
    let Kind::Message(mask) = field.kind() else { return Ok(()) };
    if paths.is_empty() {
        return Err(FieldError::new(
            UPDATE_MASK,
            "",
            "a field to change in the body, or `*` to replace it all",
        ));
    }
    let mut value = DynamicMessage::new(mask);
    value.set_field_by_name("paths", Field::List(paths.into_iter().map(Field::String).collect()));
    message.set_field(&field, Field::Message(value));
    Ok(())
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]
    use super::*;
    use crate::table::Table;
    use serde_json::json;
    use tollgate_proto::json::dynamic_to_json;

    fn message(rpc: &str, path: &[(&str, &str)], query: &str, body: &str) -> Result<Value, Vec<FieldError>> {
        let table = Table::new(tollgate_proto::descriptor_pool()).unwrap();
        let route = table.routes().iter().find(|route| route.rpc.name() == rpc).unwrap();
        let path: Vec<(&str, String)> =
            path.iter().map(|(name, value)| (*name, (*value).to_owned())).collect();
        read(route, &path, query, body.as_bytes()).map(|message| dynamic_to_json(&message).unwrap())
    }

    #[test]
    fn path_query_and_body_make_one_message() {
        let parent = [("parent", "namespaces/a")];
        let made = message(
            "CreateSchedule",
            &parent,
            "scheduleId=b&validate_only=true",
            r#"{"events": 3, "policy": "p"}"#,
        );
        let made = made.unwrap();
        assert_eq!(made["parent"], "namespaces/a");
        assert_eq!(made["scheduleId"], "b");
        assert_eq!(made["validateOnly"], true);
        assert_eq!((&made["schedule"]["events"], &made["schedule"]["policy"]), (&json!(3), &json!("p")));
        let name = [("name", "namespaces/a/schedules/b")];
        let paused = message("PauseSchedule", &name, "", r#"{"reason": "tired"}"#).unwrap();
        let expected = json!({"name": "namespaces/a/schedules/b", "reason": "tired", "revision": "0"});
        assert_eq!(paused, expected);
        let none = message("PauseSchedule", &name, "", "").unwrap();
        assert_eq!(none["reason"], "");
    }

    #[test]
    fn an_update_changes_what_its_body_names_or_its_mask() {
        let name = [("schedule.name", "namespaces/a/schedules/b")];
        let body = r#"{"events": 3, "target": {"http": {"url": "http://x/"}}}"#;
        let implied = message("UpdateSchedule", &name, "", body).unwrap();
        assert_eq!(implied["updateMask"], "events,target.http.url");
        assert_eq!(implied["schedule"]["name"], "namespaces/a/schedules/b");
        let named = message("UpdateSchedule", &name, "updateMask=timeZone,events", body).unwrap();
        assert_eq!(named["updateMask"], "timeZone,events");
        let all = message("UpdateSchedule", &name, "update_mask=*", body).unwrap();
        assert_eq!(all["updateMask"], "*");
        assert_eq!(message("UpdateSchedule", &name, "", "{}").unwrap_err()[0].field, "update_mask");
    }

    #[test]
    fn all_that_is_wrong_with_a_body_is_named_at_once() {
        let body = r#"{"timezone": "UTC", "events": "many", "retry": {"cron": 1}, "maxInFlight": 3}"#;
        // Names of the path and the query say nothing about how the body is spelled.
        let query = "scheduleId=b&validateOnly=true";
        let errors = message("CreateSchedule", &[("parent", "namespaces/a")], query, body).unwrap_err();
        let fields: Vec<&str> = errors.iter().map(|error| error.field.as_str()).collect();
        let expected =
            ["schedule.events", "schedule.maxInFlight", "schedule.retry.cron", "schedule.timezone"];
        assert_eq!(fields, expected, "{errors:?}");
        assert!(errors[3].expected.contains("did you mean timeZone?"), "{errors:?}");
    }

    #[test]
    fn what_is_wrong_is_named() {
        let name = [("name", "namespaces/a/schedules/b")];
        let parent = [("parent", "namespaces/a")];
        for (rpc, path, query, body, field, part) in [
            ("PauseSchedule", &name, "", "{", "", "JSON"),
            ("PauseSchedule", &name, "", "[]", "", "an object"),
            ("PauseSchedule", &name, "x=1", "", "x", "no such query parameter"),
            ("PauseSchedule", &name, "", r#"{"name": "other"}"#, "name", "as the path says"),
            ("PauseSchedule", &name, "", r#"{"colour": 1}"#, "colour", "no such field"),
            ("ListSchedules", &parent, "pageSize=1&page_size=2", "", "page_size", "one query parameter"),
            ("ListSchedules", &parent, "pageSize=many", "", "page_size", "whole number"),
            ("ListSchedules", &parent, "parent=x", "", "parent", "no such query parameter"),
            ("CreateSchedule", &parent, "validateOnly=1", "", "validate_only", "true or false"),
            (
                "CreateSchedule",
                &parent,
                "",
                r#"{"triggers": [{"crom": 1}]}"#,
                "schedule.triggers[0].crom",
                "cron",
            ),
            ("CreateSchedule", &parent, "", "7", "schedule", "an object"),
        ] {
            let errors = message(rpc, path, query, body).unwrap_err();
            let [error] = errors.as_slice() else { panic!("{errors:?}") };
            assert_eq!(error.field, field, "{error}");
            assert!(error.expected.contains(part), "{error}");
        }
    }
}
