//! Decides whether an item is JSON, what of it is data, what is its key, and how many tokens its event takes.

use std::fmt;

use serde::de::{DeserializeSeed, IgnoredAny, MapAccess, Visitor};
use serde::{Deserialize, Deserializer};
use serde_json::value::RawValue;

use crate::item::Item;
use crate::options::Options;
use crate::problem::{Problem, shortened};
use crate::{DEPTH_MAX, KEY_MAX_BYTES, UNITS_MAX};

/// What a key is.
const KEY: &str = "a text or a number, which is the key";

/// An item: its data, as they are written, its key, and its units.
pub(crate) fn read(text: &str, options: &Options) -> Result<Item, Problem> {
    if text.is_empty() {
        return Err(Problem::said("expected a JSON value"));
    }
    scan(text)?;
    if options.wrapped {
        return of_wrapped(text);
    }
    let (key_field, units_field) = (options.key_field.as_deref(), options.units_field.as_deref());
    let plain = || Item { data: text.to_owned(), key: String::new(), units: 0 };
    let Some(field) = key_field.or(units_field) else {
        serde_json::from_str::<IgnoredAny>(text).map_err(|error| not_json(&error))?;
        return Ok(plain());
    };
    let Some(found) = members(text, Wanted { key: key_field, units: units_field })? else {
        return Err(Problem::said(format!("the item is no object, expected one with {field:?}")));
    };
    let wrong =
        |field: &str, said: &str, what: &str| Err(Problem::new(field, format!("{said}, expected {what}")));
    let key = match (key_field, found.key) {
        (None, _) => String::new(),
        (Some(field), Member::Without) => return wrong(field, "missing", KEY),
        (Some(field), Member::Twice) => return wrong(field, "given twice", KEY),
        (Some(field), Member::With(member)) => key_of(field, member)?,
    };
    let units = match (units_field, found.units) {
        (None, _) | (Some(_), Member::Without) => 0,
        (Some(field), Member::Twice) => return wrong(field, "given twice", "it once"),
        (Some(field), Member::With(member)) => units_member(field, member)?,
    };
    Ok(Item { key, units, ..plain() })
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
            return Err(Problem::new(field, format!("{given} is not allowed, expected {KEY}")));
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

/// Units that stand in an item as a number, or as a text of digits.
fn units_member(field: &str, member: &RawValue) -> Result<u32, Problem> {
    let raw = member.get();
    let units = if raw.starts_with('"') {
        let text: String = serde_json::from_str(raw).map_err(|error| not_json(&error))?;
        units_of(&text)
    } else {
        units_of(raw)
    };
    units.ok_or_else(|| no_units(field, raw))
}

/// The units that a text of digits says.
pub(crate) fn units_of(text: &str) -> Option<u32> {
    let is_digits = text.bytes().all(|byte| byte.is_ascii_digit());
    text.parse().ok().filter(|units| is_digits && (1..=UNITS_MAX).contains(units))
}

/// What is no number of tokens.
pub(crate) fn no_units(field: &str, given: &str) -> Problem {
    let given = shortened(given);
    Problem::new(field, format!("{given} is not allowed, expected a whole number from 1 to {UNITS_MAX}"))
}

/// An item that is an object of its data, its key and its units.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Wrapped<'a> {
    #[serde(borrow)]
    data: &'a RawValue,
    #[serde(borrow, default)]
    key: Option<&'a RawValue>,
    #[serde(borrow, default)]
    units: Option<&'a RawValue>,
}

fn of_wrapped(text: &str) -> Result<Item, Problem> {
    const EXPECTED: &str =
        "expected an object of \"data\", of \"key\" and \"units\" where it has them, and of nothing else";
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
    let key = wrapped.key.map(|key| key_of("key", key)).transpose()?.unwrap_or_default();
    let units = wrapped.units.map(|units| units_member("units", units)).transpose()?.unwrap_or_default();
    Ok(Item { data: wrapped.data.get().to_owned(), key, units })
}

/// What an item has under a name.
#[derive(Default)]
enum Member<'a> {
    #[default]
    Without,
    With(&'a RawValue),
    Twice,
}

impl<'a> Member<'a> {
    fn add(&mut self, value: &'a RawValue) {
        *self = if matches!(self, Self::Without) { Self::With(value) } else { Self::Twice };
    }
}

/// What an item has of what is wanted.
#[derive(Default)]
struct Found<'a> {
    key: Member<'a>,
    units: Member<'a>,
}

/// The names of members.
#[derive(Clone, Copy)]
struct Wanted<'n> {
    key: Option<&'n str>,
    units: Option<&'n str>,
}

/// The members of an object that are wanted, in one pass; none where it is no object.
fn members<'a>(text: &'a str, wanted: Wanted<'_>) -> Result<Option<Found<'a>>, Problem> {
    let mut reader = serde_json::Deserializer::from_str(text);
    if !text.starts_with('{') {
        IgnoredAny::deserialize(&mut reader).and_then(|_| reader.end()).map_err(|error| not_json(&error))?;
        return Ok(None);
    }
    let found = reader.deserialize_map(wanted).map_err(|error| not_json(&error))?;
    reader.end().map_err(|error| not_json(&error))?;
    Ok(Some(found))
}

impl<'de> Visitor<'de> for Wanted<'_> {
    type Value = Found<'de>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Found<'de>, A::Error> {
        let mut found = Found::default();
        while let Some(is) = map.next_key_seed(Which(self))? {
            if !is.key && !is.units {
                map.next_value::<IgnoredAny>()?;
                continue;
            }
            let value: &'de RawValue = map.next_value()?;
            if is.key {
                found.key.add(value);
            }
            if is.units {
                found.units.add(value);
            }
        }
        Ok(found)
    }
}

/// Which of the names that are wanted a member has: one name may be wanted as both.
struct Which<'n>(Wanted<'n>);

/// What a member is.
struct Role {
    key: bool,
    units: bool,
}

impl<'de> DeserializeSeed<'de> for Which<'_> {
    type Value = Role;

    fn deserialize<D: Deserializer<'de>>(self, reader: D) -> Result<Role, D::Error> {
        reader.deserialize_str(self)
    }
}

impl Visitor<'_> for Which<'_> {
    type Value = Role;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a name")
    }

    fn visit_str<E: serde::de::Error>(self, name: &str) -> Result<Role, E> {
        Ok(Role { key: self.0.key == Some(name), units: self.0.units == Some(name) })
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
