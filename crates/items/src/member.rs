//! Decides whether an item is JSON, what of it is data, and what is its key.

use std::fmt;

use serde::de::{DeserializeSeed, IgnoredAny, MapAccess, Visitor};
use serde::{Deserialize, Deserializer};
use serde_json::value::RawValue;

use crate::problem::{Problem, shortened};
use crate::{DEPTH_MAX, KEY_MAX_BYTES};

/// The data of an item, as it is written, and its key; which is empty where it has none.
pub(crate) fn read<'a>(
    text: &'a str,
    key_field: Option<&str>,
    wrapped: bool,
) -> Result<(&'a str, String), Problem> {
    if text.is_empty() {
        return Err(Problem::said("expected a JSON value"));
    }
    scan(text)?;
    if wrapped {
        return of_wrapped(text);
    }
    let Some(field) = key_field else {
        serde_json::from_str::<IgnoredAny>(text).map_err(|error| not_json(&error))?;
        return Ok((text, String::new()));
    };
    let member = members(text, Wanted { name: field })?;
    let wrong =
        |said: &str| Problem::new(field, format!("{said}, expected a text or a number, which is the key"));
    let member = match member {
        Members::None => {
            return Err(Problem::said(format!("the item is no object, expected one with {field:?}")));
        }
        Members::Without => return Err(wrong("missing")),
        Members::Twice => return Err(wrong("given twice")),
        Members::With(member) => member,
    };
    Ok((text, key_of(field, member)?))
}

fn not_json(error: &serde_json::Error) -> Problem {
    // The line is that within the item; who reads this has been told the line of the item.
    let said = error.to_string();
    let said = said.split(" at line ").next().unwrap_or_default();
    let place = match (error.line(), error.column()) {
        (0, _) | (_, 0) => String::new(),
        (1, column) => format!(" at column {column}"),
        (line, column) => format!(" at column {column} of its line {line}"),
    };
    Problem::said(format!("not JSON: {said}{place}"))
}

/// A key that stands in an item as text or number.
fn key_of(field: &str, member: &RawValue) -> Result<String, Problem> {
    let raw = member.get();
    let key = match raw.as_bytes().first() {
        Some(b'"') => serde_json::from_str(raw).map_err(|error| not_json(&error))?,
        Some(b'-' | b'0'..=b'9') => raw.to_owned(),
        _ => {
            let given = shortened(raw);
            return Err(Problem::new(
                field,
                format!("{given} is not allowed, expected a text or a number, which is the key"),
            ));
        }
    };
    check_key(field, &key)?;
    Ok(key)
}

/// Whether a text may be a key.
pub(crate) fn check_key(field: &str, key: &str) -> Result<(), Problem> {
    if key.is_empty() || key.len() > KEY_MAX_BYTES || key.chars().any(char::is_control) {
        let given = shortened(key);
        let expected = format!("1 to {KEY_MAX_BYTES} bytes without control characters, which is the key");
        return Err(Problem::new(field, format!("{given:?} is not allowed, expected {expected}")));
    }
    Ok(())
}

/// An item that is an object of its data and its key.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Wrapped<'a> {
    #[serde(borrow)]
    data: &'a RawValue,
    #[serde(borrow, default)]
    key: Option<&'a RawValue>,
}

fn of_wrapped(text: &str) -> Result<(&str, String), Problem> {
    const EXPECTED: &str =
        "expected an object of \"data\", and of \"key\" where it has one, and of nothing else";
    if !text.starts_with('{') {
        serde_json::from_str::<IgnoredAny>(text).map_err(|error| not_json(&error))?;
        return Err(Problem::said(format!("the item is no object, {EXPECTED}")));
    }
    let wrapped: Wrapped<'_> = serde_json::from_str(text).map_err(|error| {
        if !error.is_data() {
            return not_json(&error);
        }
        let said = error.to_string();
        let said = said.split(" at line ").next().unwrap_or_default();
        Problem::said(format!("{}, {EXPECTED}", said.split(',').next().unwrap_or_default()))
    })?;
    let key = match wrapped.key {
        None => String::new(),
        Some(key) => key_of("key", key)?,
    };
    Ok((wrapped.data.get(), key))
}

/// What an item has under a name.
enum Members<'a> {
    /// It has no names.
    None,
    Without,
    With(&'a RawValue),
    Twice,
}

struct Wanted<'n> {
    name: &'n str,
}

fn members<'a>(text: &'a str, wanted: Wanted<'_>) -> Result<Members<'a>, Problem> {
    let mut reader = serde_json::Deserializer::from_str(text);
    if !text.starts_with('{') {
        IgnoredAny::deserialize(&mut reader).and_then(|_| reader.end()).map_err(|error| not_json(&error))?;
        return Ok(Members::None);
    }
    let found = reader.deserialize_map(wanted).map_err(|error| not_json(&error))?;
    reader.end().map_err(|error| not_json(&error))?;
    Ok(found)
}

impl<'de> Visitor<'de> for Wanted<'_> {
    type Value = Members<'de>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Members<'de>, A::Error> {
        let mut found = Members::Without;
        while let Some(is_wanted) = map.next_key_seed(Is(self.name))? {
            if is_wanted {
                let member: &'de RawValue = map.next_value()?;
                found =
                    if matches!(found, Members::Without) { Members::With(member) } else { Members::Twice };
            } else {
                map.next_value::<IgnoredAny>()?;
            }
        }
        Ok(found)
    }
}

/// Whether a member's name is this one.
struct Is<'n>(&'n str);

impl<'de> DeserializeSeed<'de> for Is<'_> {
    type Value = bool;

    fn deserialize<D: Deserializer<'de>>(self, reader: D) -> Result<bool, D::Error> {
        reader.deserialize_str(self)
    }
}

impl Visitor<'_> for Is<'_> {
    type Value = bool;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a name")
    }

    fn visit_str<E: serde::de::Error>(self, name: &str) -> Result<bool, E> {
        Ok(name == self.0)
    }
}

/// Refuses what a reader who passes over values lets through: nesting without bound, and halves of characters.
fn scan(text: &str) -> Result<(), Problem> {
    let bytes = text.as_bytes();
    let (mut at, mut depth) = (0, 0_usize);
    while let Some(byte) = bytes.get(at) {
        match byte {
            b'{' | b'[' => depth += 1,
            b'}' | b']' => depth = depth.saturating_sub(1),
            b'"' => at = end_of_text(bytes, at + 1)?,
            _ => {}
        }
        if depth > DEPTH_MAX {
            return Err(Problem::said(format!("nested too deep, expected at most {DEPTH_MAX} levels")));
        }
        at += 1;
    }
    Ok(())
}

/// Where a text ends: at its quote, or with the item.
fn end_of_text(bytes: &[u8], mut at: usize) -> Result<usize, Problem> {
    while let Some(found) = memchr::memchr2(b'"', b'\\', &bytes[at.min(bytes.len())..]) {
        at += found;
        if bytes[at] == b'"' {
            return Ok(at);
        }
        let unit = |at: usize| -> Option<u16> {
            let escape = bytes.get(at..at + 6).filter(|escape| escape.starts_with(b"\\u"))?;
            u16::from_str_radix(std::str::from_utf8(&escape[2..]).ok()?, 16).ok()
        };
        at += match (unit(at), unit(at + 6)) {
            (Some(0xd800..=0xdbff), Some(0xdc00..=0xdfff)) => 12,
            (Some(0xd800..=0xdfff), _) => {
                return Err(Problem::said("half of a surrogate pair, expected both of its \\u escapes"));
            }
            _ => 2,
        };
    }
    Ok(bytes.len())
}
