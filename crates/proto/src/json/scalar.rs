//! Decides which JSON texts and numbers stand for an enum value, a number, a duration or a moment.

use std::str::FromStr;

use prost_reflect::{EnumDescriptor, Kind};
use serde_json::Value;

use super::fault::{Fault, What, screaming};

/// The value of a field that is no message.
pub(super) fn read(kind: &Kind, value: Value, path: &str) -> Result<Value, Fault> {
    match kind {
        Kind::Enum(descriptor) => enumeration(descriptor, value, path),
        Kind::String => text(value, path),
        Kind::Bool if value.is_boolean() => Ok(value),
        Kind::Bool => Err(wrong(path, &value, "true or false")),
        Kind::Double | Kind::Float => float(value, path),
        Kind::Int32 | Kind::Sint32 | Kind::Sfixed32 => {
            integer(value, path, i128::from(i32::MIN), i128::from(i32::MAX))
        }
        Kind::Int64 | Kind::Sint64 | Kind::Sfixed64 => {
            integer(value, path, i128::from(i64::MIN), i128::from(i64::MAX))
        }
        Kind::Uint32 | Kind::Fixed32 => integer(value, path, 0, i128::from(u32::MAX)),
        Kind::Uint64 | Kind::Fixed64 => integer(value, path, 0, i128::from(u64::MAX)),
        Kind::Bytes | Kind::Message(_) => Ok(value),
    }
}

/// The refusal of `value`.
fn wrong(path: &str, value: &Value, expected: &str) -> Fault {
    Fault::wrong(path, value, expected)
}

/// Text; whole numbers stand for their digits, because YAML makes numbers of `hour: 3`.
fn text(value: Value, path: &str) -> Result<Value, Fault> {
    match &value {
        Value::String(_) => Ok(value),
        Value::Number(number) if !number.is_f64() => Ok(Value::String(number.to_string())),
        Value::Bool(_) | Value::Number(_) => {
            Err(wrong(path, &value, &format!("text: write it in quotes, \"{value}\"")))
        }
        _ => Err(wrong(path, &value, "text")),
    }
}

/// A number of an enum, or a name of it with or without the enum's prefix, in any case, `-` for `_`.
fn enumeration(descriptor: &EnumDescriptor, value: Value, path: &str) -> Result<Value, Fault> {
    let prefix = screaming(descriptor.name()) + "_";
    let found = match &value {
        Value::String(text) => {
            let text = text.trim().to_ascii_uppercase().replace('-', "_");
            descriptor
                .get_value_by_name(&text)
                .or_else(|| descriptor.get_value_by_name(&(prefix.clone() + &text)))
        }
        Value::Number(number) => {
            number.as_i64().and_then(|number| descriptor.get_value(i32::try_from(number).ok()?))
        }
        _ => None,
    };
    match found {
        Some(found) => Ok(Value::from(found.number())),
        None => {
            let what = What::NoValue { value, descriptor: descriptor.clone() };
            Err(Fault { path: path.to_owned(), what })
        }
    }
}

/// A whole number, or text of one, within bounds.
fn integer(value: Value, path: &str, min: i128, max: i128) -> Result<Value, Fault> {
    let number = match &value {
        Value::Number(number) => number.to_string().parse::<i128>().ok().or_else(|| whole(number.as_f64()?)),
        Value::String(text) => text.trim().parse::<i128>().ok(),
        _ => None,
    };
    let refused = || wrong(path, &value, &format!("a whole number from {min} to {max}"));
    let number = number.filter(|number| (min..=max).contains(number)).ok_or_else(refused)?;
    let taken = u64::try_from(number).map(Value::from).or_else(|_| i64::try_from(number).map(Value::from));
    taken.map_err(|_| refused())
}

/// `1.0` and `1e3` are whole numbers in JSON.
fn whole(number: f64) -> Option<i128> {
    #[expect(clippy::cast_possible_truncation, reason = "whole and below 2^63")]
    (number.fract() == 0.0 && number.abs() < 9.2e18).then_some(number as i128)
}

/// A number, or text of one.
fn float(value: Value, path: &str) -> Result<Value, Fault> {
    let number = match &value {
        Value::Number(number) => number.as_f64(),
        Value::String(text) => text.trim().parse().ok(),
        _ => None,
    };
    match number.filter(|number| number.is_finite()).map(Value::from) {
        Some(taken) => Ok(taken),
        None => Err(wrong(path, &value, "a number")),
    }
}

/// Seconds as the mapping writes them (`900s`, `0.5s`), or what humantime reads (`15m`, `1h 30m`).
pub(super) fn duration(value: Value, path: &str) -> Result<Value, Fault> {
    const EXPECTED: &str = "a duration such as 90s, 15m, 1h 30m or 0.5s";
    let text = match &value {
        Value::String(text) => text.trim(),
        Value::Number(number) => {
            return Err(wrong(path, &value, &format!("{EXPECTED}; for seconds write {number}s")));
        }
        _ => return Err(wrong(path, &value, EXPECTED)),
    };
    let strict = seconds(text).then(|| prost_types::Duration::from_str(text).ok()).flatten();
    let taken =
        strict.or_else(|| prost_types::Duration::try_from(humantime::parse_duration(text).ok()?).ok());
    match taken.filter(|taken| taken.seconds.unsigned_abs() <= SECONDS_MAX) {
        Some(taken) => Ok(Value::String(taken.to_string())),
        None if !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit()) => {
            Err(wrong(path, &value, &format!("{EXPECTED}; for seconds write {text}s")))
        }
        None => Err(wrong(path, &value, EXPECTED)),
    }
}

/// The longest duration that the JSON mapping has.
const SECONDS_MAX: u64 = 315_576_000_000;

/// Whether the text is digits, perhaps with sign and fraction, and `s`.
fn seconds(text: &str) -> bool {
    let Some(number) = text.strip_suffix('s') else { return false };
    let number = number.strip_prefix('-').unwrap_or(number);
    let (whole, fraction) = number.split_once('.').unwrap_or((number, "0"));
    let digits =
        |text: &str, max: usize| (1..=max).contains(&text.len()) && text.bytes().all(|b| b.is_ascii_digit());
    digits(whole, 12) && digits(fraction, 9)
}

/// RFC 3339.
pub(super) fn timestamp(value: Value, path: &str) -> Result<Value, Fault> {
    const EXPECTED: &str = "a moment such as 2026-03-29T02:30:00Z or 2026-03-29T02:30:00+02:00";
    let Value::String(text) = &value else { return Err(wrong(path, &value, EXPECTED)) };
    let Ok(moment) = chrono::DateTime::parse_from_rfc3339(text.trim()) else {
        return Err(wrong(path, &value, EXPECTED));
    };
    let moment = moment.with_timezone(&chrono::Utc);
    if !(0..10_000).contains(&chrono::Datelike::year(&moment)) {
        return Err(wrong(path, &value, EXPECTED));
    }
    Ok(Value::String(moment.to_rfc3339_opts(chrono::SecondsFormat::AutoSi, true)))
}

/// Paths with commas between them, or a list of them, in either spelling.
pub(super) fn field_mask(value: Value, path: &str) -> Result<Value, Fault> {
    match &value {
        Value::String(text) => Ok(Value::String(camel(text))),
        Value::Array(paths) if paths.iter().all(Value::is_string) => {
            let paths: Vec<&str> = paths.iter().filter_map(Value::as_str).collect();
            Ok(Value::String(camel(&paths.join(","))))
        }
        _ => Err(wrong(path, &value, "field paths with commas between them")),
    }
}

/// The mapping writes the paths of a mask in lowerCamelCase, and its reader takes nothing else.
fn camel(text: &str) -> String {
    let mut camel = String::new();
    let mut upper = false;
    for character in text.chars().filter(|character| !character.is_whitespace()) {
        if character == '_' {
            upper = true;
        } else if upper {
            camel.push(character.to_ascii_uppercase());
            upper = false;
        } else {
            camel.push(character);
        }
    }
    camel
}
