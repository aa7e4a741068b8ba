//! Decides which JSON Schema a message, an enum or a field has, by the proto3 JSON mapping.

use std::collections::{BTreeMap, BTreeSet};

use prost_reflect::{EnumDescriptor, FieldDescriptor, Kind, MessageDescriptor};
use serde_json::{Map, Value, json};

use super::bounds;
use super::comments::Comments;

/// The schemas of messages and enums that something refers to.
pub(super) struct Schemas<'a> {
    comments: &'a Comments,
    done: BTreeMap<String, Value>,
    begun: BTreeSet<String>,
}

impl<'a> Schemas<'a> {
    pub(super) fn new(comments: &'a Comments) -> Self {
        Self { comments, done: BTreeMap::new(), begun: BTreeSet::new() }
    }

    /// All of them, by name.
    pub(super) fn finish(self) -> Map<String, Value> {
        self.done.into_iter().collect()
    }

    /// A reference to a message's schema, which is made if it is not there; the schema itself of a well-known type.
    pub(super) fn reference(&mut self, message: &MessageDescriptor) -> Value {
        if let Some(known) = well_known(message.full_name()) {
            return known;
        }
        let name = message.name().to_owned();
        if self.begun.insert(name.clone()) {
            let fields: Vec<FieldDescriptor> = message.fields().collect();
            let schema = self.object(message, &fields, &[]);
            self.done.insert(name.clone(), schema);
        }
        json!({"$ref": format!("#/components/schemas/{name}")})
    }

    /// An object with these fields of the message.
    pub(super) fn object(
        &mut self,
        message: &MessageDescriptor,
        fields: &[FieldDescriptor],
        required: &[String],
    ) -> Value {
        let mut properties = Map::new();
        for field in fields {
            let is_required = required.iter().any(|name| name == field.json_name());
            properties.insert(field.json_name().to_owned(), self.described(field, is_required));
        }
        let description = self.comments.of(&message.parent_file(), message.path());
        let mut schema = json!({
            "type": "object",
            "description": description,
            "properties": properties,
            "additionalProperties": false,
        });
        if !required.is_empty() {
            schema["required"] = json!(required);
        }
        schema
    }

    fn described(&mut self, field: &FieldDescriptor, is_required: bool) -> Value {
        let comment = self.comments.of_field(field);
        let mut schema = self.plain(field);
        // Null stands for nothing, as the mapping says; where something must be given, it may not.
        if !is_required && !comment.starts_with("Output only.") {
            schema = nullable(schema);
        }
        if comment.starts_with("Output only.") {
            schema["readOnly"] = json!(true);
        }
        schema["description"] = json!(comment);
        schema
    }

    /// A field's schema without its comment.
    pub(super) fn plain(&mut self, field: &FieldDescriptor) -> Value {
        if field.is_map() {
            let Kind::Message(entry) = field.kind() else { return json!({"type": "object"}) };
            let value = self.kind(&entry.map_entry_value_field().kind());
            return bounded(json!({"type": "object", "additionalProperties": value}), field);
        }
        let one = self.kind(&field.kind());
        let schema = if field.is_list() { json!({"type": "array", "items": one}) } else { one };
        bounded(schema, field)
    }

    fn kind(&mut self, kind: &Kind) -> Value {
        match kind {
            Kind::Message(message) => self.reference(message),
            Kind::Enum(values) => self.enumeration(values),
            Kind::String => json!({"type": "string"}),
            Kind::Bytes => json!({"type": "string", "format": "byte"}),
            Kind::Bool => json!({"type": "boolean"}),
            Kind::Double | Kind::Float => json!({"type": "number"}),
            Kind::Int32 | Kind::Sint32 | Kind::Sfixed32 => {
                json!({"type": "integer", "format": "int32", "minimum": i32::MIN, "maximum": i32::MAX})
            }
            Kind::Uint32 | Kind::Fixed32 => json!({"type": "integer", "minimum": 0, "maximum": u32::MAX}),
            Kind::Int64 | Kind::Sint64 | Kind::Sfixed64 => {
                json!({"type": "string", "format": "int64", "pattern": "^-?[0-9]{1,19}$"})
            }
            Kind::Uint64 | Kind::Fixed64 => {
                json!({"type": "string", "format": "uint64", "pattern": "^[0-9]{1,20}$"})
            }
        }
    }

    fn enumeration(&mut self, values: &EnumDescriptor) -> Value {
        let name = values.name().to_owned();
        if self.begun.insert(name.clone()) {
            let file = values.parent_file();
            let mut description = self.comments.of(&file, values.path());
            for value in values.values() {
                let comment = self.comments.of(&file, value.path());
                description.push_str(&format!("\n- `{}`: {comment}", value.name()));
            }
            let names: Vec<String> = values.values().map(|value| value.name().to_owned()).collect();
            let schema = json!({"type": "string", "enum": names, "description": description});
            self.done.insert(name.clone(), schema);
        }
        json!({"$ref": format!("#/components/schemas/{name}")})
    }
}

/// A schema with what its field may hold.
fn bounded(mut schema: Value, field: &FieldDescriptor) -> Value {
    if let (Some(Value::Object(bounds)), Value::Object(members)) = (bounds::of(field), &mut schema) {
        members.extend(bounds);
    }
    schema
}

/// A schema, or null.
fn nullable(mut schema: Value) -> Value {
    match schema.get("type").cloned() {
        Some(Value::Array(mut kinds)) => {
            kinds.push("null".into());
            schema["type"] = kinds.into();
            schema
        }
        Some(kind) => {
            schema["type"] = json!([kind, "null"]);
            schema
        }
        // Anything, null among it.
        None if schema.get("$ref").is_none() => schema,
        None => json!({"anyOf": [schema, {"type": "null"}]}),
    }
}

/// The types whose JSON is not an object of their fields.
fn well_known(name: &str) -> Option<Value> {
    Some(match name {
        "google.protobuf.Timestamp" => json!({"type": "string", "format": "date-time"}),
        "google.protobuf.Duration" => {
            json!({"type": "string", "pattern": "^-?[0-9]{1,12}(\\.[0-9]{1,9})?s$"})
        }
        "google.protobuf.FieldMask" => json!({"type": "string"}),
        "google.protobuf.Value" => json!({}),
        "google.protobuf.Struct" => json!({"type": "object"}),
        "google.protobuf.Empty" => json!({"type": "object", "additionalProperties": false}),
        "google.protobuf.Any" => {
            json!({"type": "object", "properties": {"@type": {"type": "string"}}, "required": ["@type"]})
        }
        _ => return None,
    })
}
