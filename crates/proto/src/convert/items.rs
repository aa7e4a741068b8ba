//! Decides which items a schedule may have: few, and together with its payload no larger than a payload alone may be.

use std::sync::Arc;

use prost_types::Value;
use prost_types::value::Kind;
use tollgate_core::items::{Item, ItemLine, KEY_MAX_BYTES, LISTED_MAX, UNITS_MAX, of_lines, to_lines};
use tollgate_core::model::{PAYLOAD_MAX_BYTES, Payload};

use super::check::Check;
use super::payload;
use crate::field::FieldError;
use crate::v1;

/// The items of a schedule as lines of its payload, which has none.
pub(super) fn to_core(check: &mut Check, given: &[v1::ScheduleItem], under: &Payload) -> Arc<str> {
    if given.len() > LISTED_MAX {
        let expected =
            "at most 1,000; a longer list is submitted (SubmitItems, `tollgate submit nightly items.jsonl`)";
        check.refuse("items", given.len(), expected);
        return Arc::default();
    }
    let mut items = Vec::with_capacity(given.len());
    for (at, item) in given.iter().enumerate() {
        let path = check.path(&format!("items[{at}]"));
        let data = data(&format!("{path}.data"), item.data.as_ref());
        check.keep(key(&format!("{path}.key"), &item.key));
        let units = item.units;
        check.keep(self::units(&format!("{path}.units"), units));
        items.extend(check.keep(data).map(|data| Item { key: item.key.clone(), units, data }));
    }
    let lines = to_lines(&items);
    if lines.len() + under.bytes() > PAYLOAD_MAX_BYTES {
        let bytes = format!("{} bytes", lines.len() + under.bytes());
        let expected = format!("at most {PAYLOAD_MAX_BYTES} bytes together with payload");
        check.refuse("items", bytes, format!("{expected}; a longer list is submitted (SubmitItems)"));
    }
    lines.into()
}

fn data(field: &str, value: Option<&Value>) -> Result<String, FieldError> {
    let value = value.ok_or_else(|| FieldError::new(field, "", "a JSON value, which the event carries"))?;
    payload::to_core(field, Some(value)).map(|data| data.json)
}

/// Whether an event may have this key: that of an item, of a schedule, or one of which a policy says something.
///
/// # Errors
/// Control characters, and more than [`KEY_MAX_BYTES`] bytes.
pub fn key(field: &str, key: &str) -> Result<(), FieldError> {
    if key.len() > KEY_MAX_BYTES || key.chars().any(char::is_control) {
        let expected = format!("at most {KEY_MAX_BYTES} bytes, without control characters");
        return Err(FieldError::new(field, key, expected));
    }
    Ok(())
}

/// Whether an event may take so many tokens; 0 for as many as its schedule says.
///
/// # Errors
/// More than [`UNITS_MAX`].
pub fn units(field: &str, units: u32) -> Result<(), FieldError> {
    if units > UNITS_MAX {
        return Err(FieldError::new(field, units, "0 to 1000 tokens; 0 for as many as the schedule says"));
    }
    Ok(())
}

/// The items of a payload as callers see them. Lines that are sealed are shown as they are.
pub(super) fn to_message(of: &Payload) -> Vec<v1::ScheduleItem> {
    let shown = |text: &str| payload::to_message(&Payload::of(text));
    if !of.items.is_empty() && !of.items.contains('\t') {
        return vec![v1::ScheduleItem { data: shown(&of.items), ..v1::ScheduleItem::default() }];
    }
    let items = of_lines(&of.items);
    items
        .map(|ItemLine { key, units, data }| v1::ScheduleItem {
            data: shown(data),
            key: key.to_owned(),
            units,
        })
        .collect()
}

/// An item that stands for items that are not shown.
pub fn stand_in(text: String) -> Vec<v1::ScheduleItem> {
    let data = Some(Value { kind: Some(Kind::StringValue(text)) });
    vec![v1::ScheduleItem { data, ..v1::ScheduleItem::default() }]
}
