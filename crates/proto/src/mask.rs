//! Decides what an update changes: the fields that its mask names; and what differs between two JSON objects.
//!
//! In: the current message, the update and the mask. Out: the message as it shall be. Invariants: an empty mask and
//! `*` replace everything; a path that names no field is refused; what a mask does not name stays. Not here: which
//! fields a caller may not set (`convert` ignores output only ones).

use prost::{Message, Name};
use prost_reflect::{
    DynamicMessage, FieldDescriptor, Kind, MapKey, MessageDescriptor, ReflectMessage as _, Value,
};
use serde_json::{Map, json};

use crate::descriptors;
use crate::field::FieldError;

/// `current` with the fields of `update` that `mask` names. A field that is absent in `update` is cleared. A path may go
/// into messages and to one key of a map (`labels.team`), not into lists and free JSON.
///
/// # Errors
/// The first path that names no such field, in `update_mask`.
pub fn apply_mask<M: Message + Name + Default + Clone>(
    current: &M,
    update: &M,
    mask: Option<&prost_types::FieldMask>,
) -> Result<M, FieldError> {
    let paths = mask.map(|mask| mask.paths.as_slice()).unwrap_or_default();
    if paths.is_empty() || paths == ["*"] {
        return Ok(update.clone());
    }
    let unknown = || FieldError::new("update_mask", M::full_name(), "a message of this API");
    let mut masked = descriptors::dynamic(current).ok_or_else(unknown)?;
    let update = descriptors::dynamic(update).ok_or_else(unknown)?;
    for path in paths {
        let names: Vec<&str> = path.split('.').collect();
        set(&mut masked, Some(&update), &names).map_err(|expected| FieldError {
            field: "update_mask".to_owned(),
            value: path.clone(),
            expected,
            said: false,
        })?;
    }
    masked.transcode_to().map_err(|error| FieldError::new("update_mask", error, "fields of the message"))
}

/// Whether a mask names a field, or what holds it: all fields where it is empty or `*`.
pub fn names(mask: Option<&prost_types::FieldMask>, field: &str) -> bool {
    let paths = mask.map(|mask| mask.paths.as_slice()).unwrap_or_default();
    let holds = |path: &String| {
        field.strip_prefix(path.as_str()).is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
    };
    paths.is_empty() || paths == ["*"] || paths.iter().any(holds)
}

/// Sets the field at `names` to what it is in `update`; says what is allowed where there is no such field.
fn set(masked: &mut DynamicMessage, update: Option<&DynamicMessage>, names: &[&str]) -> Result<(), String> {
    let descriptor = masked.descriptor();
    let Some((name, rest)) = names.split_first() else { return Ok(()) };
    let field = descriptor
        .get_field_by_name(name)
        .or_else(|| descriptor.get_field_by_json_name(name))
        .ok_or_else(|| fields(&descriptor))?;
    let given = update.filter(|update| update.has_field(&field)).map(|update| update.get_field(&field));
    if rest.is_empty() {
        match given {
            Some(given) => masked.set_field(&field, given.into_owned()),
            None => masked.clear_field(&field),
        }
        return Ok(());
    }
    if field.is_map() {
        let key = MapKey::String(rest.join("."));
        let given = given.as_deref().and_then(Value::as_map).and_then(|map| map.get(&key)).cloned();
        if let Some(map) = masked.get_field_mut(&field).as_map_mut() {
            match given {
                Some(given) => map.insert(key, given),
                None => map.remove(&key),
            };
        }
        return Ok(());
    }
    if !goes_deeper(&field) {
        return Err(format!("{name} as a whole"));
    }
    let was_set = masked.has_field(&field);
    let mut inner = masked.get_field(&field).into_owned();
    let Some(message) = inner.as_message_mut() else { return Err(format!("{name} as a whole")) };
    set(message, given.as_deref().and_then(Value::as_message), rest)?;
    // Clearing a part of what is not there does not make it.
    if was_set || given.is_some() {
        masked.set_field(&field, inner);
    }
    Ok(())
}

fn goes_deeper(field: &FieldDescriptor) -> bool {
    !field.is_list()
        && matches!(field.kind(), Kind::Message(message) if !message.full_name().starts_with("google.protobuf."))
}

fn fields(descriptor: &MessageDescriptor) -> String {
    let mut names: Vec<String> = descriptor.fields().map(|field| field.name().to_owned()).collect();
    names.sort();
    format!("fields of {}: {}", descriptor.name(), names.join(", "))
}

/// What differs: from each field's path to `{"old": …, "new": …}`, where a side that has no such field is left out. Lists
/// are compared as a whole.
pub fn difference(old: &serde_json::Value, new: &serde_json::Value) -> serde_json::Value {
    let mut found = Map::new();
    compare(Some(old), Some(new), "", &mut found);
    serde_json::Value::Object(found)
}

fn compare(
    old: Option<&serde_json::Value>,
    new: Option<&serde_json::Value>,
    path: &str,
    found: &mut Map<String, serde_json::Value>,
) {
    if old == new {
        return;
    }
    if let (Some(serde_json::Value::Object(old)), Some(serde_json::Value::Object(new))) = (old, new) {
        let added = new.keys().filter(|key| !old.contains_key(*key));
        for key in old.keys().chain(added) {
            let path = if path.is_empty() { key.clone() } else { format!("{path}.{key}") };
            compare(old.get(key), new.get(key), &path, found);
        }
        return;
    }
    let mut sides = json!({});
    for (side, value) in [("old", old), ("new", new)] {
        if let Some(value) = value {
            sides[side] = value.clone();
        }
    }
    found.insert(path.to_owned(), sides);
}
