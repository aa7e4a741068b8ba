//! Decides what JSON is taken: none of which a member is given twice, since nobody knows which one is meant.
//!
//! In: text. Out: the members of an object, each as it is written; or a value. Not here: what the members mean.

use std::fmt;

use serde::de::{Deserialize, Deserializer, Error, MapAccess, SeqAccess, Visitor};
use serde_json::value::RawValue;
use serde_json::{Map, Number, Value};

/// The members of an object, each as it is written, in their order.
#[derive(Debug)]
pub(crate) struct Members(pub(crate) Vec<(String, Box<RawValue>)>);

impl<'de> Deserialize<'de> for Members {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        struct Object;
        impl<'de> Visitor<'de> for Object {
            type Value = Members;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a JSON object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Members, A::Error> {
                let mut members: Vec<(String, Box<RawValue>)> = Vec::new();
                while let Some((name, value)) = map.next_entry::<String, Box<RawValue>>()? {
                    if members.iter().any(|(known, _)| *known == name) {
                        return Err(twice(&name));
                    }
                    if members.len() >= MEMBERS_MAX {
                        return Err(A::Error::custom("there are too many members"));
                    }
                    members.push((name, value));
                }
                Ok(Members(members))
            }
        }
        from.deserialize_map(Object)
    }
}

/// More members than any command has.
const MEMBERS_MAX: usize = 64;

fn twice<E: Error>(name: &str) -> E {
    let shown: String = name.chars().take(60).collect();
    E::custom(format!("{shown:?} is given twice: remove one of them"))
}

/// A value, no member of which is given twice.
///
/// # Errors
/// What is wrong with it, and where.
pub(crate) fn value(text: &RawValue) -> Result<Value, String> {
    serde_json::from_str::<Whole>(text.get()).map(|Whole(value)| value).map_err(|error| error.to_string())
}

struct Whole(Value);

impl<'de> Deserialize<'de> for Whole {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        from.deserialize_any(Any)
    }
}

struct Any;

impl<'de> Visitor<'de> for Any {
    type Value = Whole;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("JSON")
    }

    fn visit_unit<E>(self) -> Result<Whole, E> {
        Ok(Whole(Value::Null))
    }

    fn visit_bool<E>(self, given: bool) -> Result<Whole, E> {
        Ok(Whole(Value::Bool(given)))
    }

    fn visit_i64<E>(self, given: i64) -> Result<Whole, E> {
        Ok(Whole(Value::from(given)))
    }

    fn visit_u64<E>(self, given: u64) -> Result<Whole, E> {
        Ok(Whole(Value::from(given)))
    }

    fn visit_f64<E>(self, given: f64) -> Result<Whole, E> {
        Ok(Whole(Number::from_f64(given).map_or(Value::Null, Value::Number)))
    }

    fn visit_str<E>(self, given: &str) -> Result<Whole, E> {
        Ok(Whole(Value::from(given)))
    }

    fn visit_string<E>(self, given: String) -> Result<Whole, E> {
        Ok(Whole(Value::String(given)))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Whole, A::Error> {
        let mut items = Vec::new();
        while let Some(Whole(item)) = list.next_element()? {
            items.push(item);
        }
        Ok(Whole(Value::Array(items)))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Whole, A::Error> {
        let mut members = Map::new();
        while let Some((name, Whole(member))) = map.next_entry::<String, Whole>()? {
            if members.contains_key(&name) {
                return Err(twice(&name));
            }
            members.insert(name, member);
        }
        Ok(Whole(Value::Object(members)))
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]
    use super::*;
    use serde_json::json;

    #[test]
    fn nothing_is_given_twice_at_any_depth() {
        let raw = |text: &str| RawValue::from_string(text.to_owned()).unwrap();
        let good = r#"{"a": [1, -2, 2.5, true, null, "x"], "b": {"a": {}}}"#;
        assert_eq!(value(&raw(good)).unwrap(), json!({"a": [1, -2, 2.5, true, null, "x"], "b": {"a": {}}}));
        let wrong = value(&raw(r#"{"a": [{"b": 1, "c": 2, "b": 1}]}"#)).unwrap_err();
        assert!(wrong.starts_with("\"b\" is given twice"), "{wrong}");
        let members: Members = serde_json::from_str(r#"{"a": 1.50, "b": {"c": 1}}"#).unwrap();
        let written: Vec<_> = members.0.iter().map(|(name, text)| (name.as_str(), text.get())).collect();
        assert_eq!(written, [("a", "1.50"), ("b", r#"{"c": 1}"#)]);
        assert!(serde_json::from_str::<Members>(r#"{"a": 1, "a": 1}"#).is_err());
        assert!(serde_json::from_str::<Members>("[]").is_err());
    }
}
