//! Decides how the routes are described: an OpenAPI 3.1 document, made of the descriptors and of their comments.
//!
//! In: the descriptors, the table. Out: the document. Invariant: a path, a parameter or a field is in it exactly if
//! the gateway serves it; every status that may be answered is in it. Not here: the grammars of texts; the comments say those.

mod bounds;
mod comments;
mod schema;

use http::Method;
use prost_reflect::{DescriptorPool, FieldDescriptor, MessageDescriptor};
use serde_json::{Map, Value, json};

use crate::table::{Body, Route, Table};
use comments::Comments;
use schema::Schemas;

const DESCRIPTION: &str = "Tollgate fires events on schedules, as many at once as policies allow. \
     Field names may be given in lowerCamelCase or as in the .proto files; 64-bit numbers are texts. \
     PATCH changes the fields that `updateMask` names, or those that the body names; `updateMask=*` replaces all. \
     Refusals are `google.rpc.Status` with the gRPC code.";

/// What ids look like, by the collection that they are in.
const ID: &str = "^[a-z0-9]([a-z0-9._-]{0,61}[a-z0-9])?$";
const EVENT_ID: &str = "^[A-Za-z0-9_-]{1,80}$";
const REQUEST_ID: &str = "^[A-Za-z0-9._:-]{1,128}$";
const RUN_ID: &str = "^([0-9a-f]{2}|[1-3][0-9a-f]{2})-[0-9a-f]{32}$";

/// The document.
pub(crate) fn document(pool: &DescriptorPool, table: &Table) -> Value {
    let comments = Comments::new(pool);
    let mut schemas = Schemas::new(&comments);
    let mut paths = Map::new();
    let mut tags = Vec::new();
    for route in table.routes() {
        let (path, _) = route.template.open_api();
        let operation = operation(route, &comments, &mut schemas);
        let item = paths.entry(path).or_insert_with(|| json!({}));
        item[route.verb.as_str().to_ascii_lowercase()] = operation;
        let service = route.rpc.parent_service();
        let tag = json!({"name": service.name(), "description": comments.of(&service.parent_file(), service.path())});
        if !tags.contains(&tag) {
            tags.push(tag);
        }
    }
    if let Some(status) = pool.get_message_by_name("google.rpc.Status") {
        schemas.reference(&status);
    }
    json!({
        "openapi": "3.1.0",
        "info": {"title": "Tollgate", "version": env!("CARGO_PKG_VERSION"), "description": DESCRIPTION},
        "servers": [{"url": "/"}],
        "security": [{}, {"bearer": []}],
        "tags": tags,
        "paths": paths,
        "components": {
            "schemas": schemas.finish(),
            "securitySchemes": {"bearer": {"type": "http", "scheme": "bearer"}},
        },
    })
}

fn operation(route: &Route, comments: &Comments, schemas: &mut Schemas<'_>) -> Value {
    let rpc = &route.rpc;
    let description = comments.of(&rpc.parent_service().parent_file(), rpc.path());
    let summary = description.split_once(['.', '\n']).map_or(&*description, |(first, _)| first);
    let id = match route.binding {
        0 => rpc.name().to_owned(),
        binding => format!("{}{}", rpc.name(), binding + 1),
    };
    let mut operation = json!({
        "operationId": id,
        "tags": [rpc.parent_service().name()],
        "summary": summary,
        "description": description,
        "parameters": parameters(route, comments, schemas),
        "responses": responses(route, schemas.reference(&rpc.output())),
    });
    if let Some((schema, required)) = body(route, comments, schemas) {
        operation["requestBody"] =
            json!({"required": required, "content": {"application/json": {"schema": schema}}});
    }
    if route.body == Body::Items {
        operation["requestBody"] = items();
    }
    operation
}

/// Statuses of any operation but 200, and what they mean here.
const REFUSALS: [(u16, &str); 13] = [
    (400, "Something of the request is not allowed, or not now."),
    (401, "No key, or one that is not good."),
    (403, "The key does not reach that."),
    (404, "There is no such thing."),
    (409, "It exists already, or somebody else has changed it meanwhile."),
    (421, "This name is none of the server's."),
    (429, "A quota or a bound of this caller is reached."),
    (499, "The caller has gone."),
    (500, "A fault of the server."),
    (501, "This process does not serve it: it has other roles."),
    (503, "The server or its database cannot do it now; try again."),
    (504, "It took too long; try again."),
    (405, "The path has other verbs."),
];
/// Statuses of operations that read a body.
const BODY_REFUSALS: [(u16, &str); 3] = [
    (408, "The body did not arrive in time."),
    (413, "The body is too large, or has too many values."),
    (415, "The body is not declared to be of a kind that is taken, such as JSON."),
];

fn responses(route: &Route, answer: Value) -> Value {
    let refused = |description: &str| content(description, json!({"$ref": "#/components/schemas/Status"}));
    let body = if route.body == Body::None { &[][..] } else { &BODY_REFUSALS };
    let mut responses = Map::from_iter([("200".to_owned(), content("The answer.", answer))]);
    let refusals = REFUSALS.iter().chain(body);
    responses.extend(refusals.map(|(status, meaning)| (status.to_string(), refused(meaning))));
    Value::Object(responses)
}

fn content(description: &str, schema: Value) -> Value {
    json!({"description": description, "content": {"application/json": {"schema": schema}}})
}

fn parameters(route: &Route, comments: &Comments, schemas: &mut Schemas<'_>) -> Vec<Value> {
    let (_, in_path) = route.template.open_api();
    let mut parameters = Vec::new();
    for (name, collection) in in_path {
        let (pattern, description) = match collection.as_str() {
            "events" => (EVENT_ID, "The event's id as the consumer got it."),
            "runs" => (RUN_ID, "The last part of the run's name."),
            "submissions" => (REQUEST_ID, "The submission's request id."),
            _ => (ID, "The last part of the name."),
        };
        let schema = json!({"type": "string", "pattern": pattern});
        parameters.push(
            json!({"name": name, "in": "path", "required": true, "description": description, "schema": schema}),
        );
    }
    for field in &route.query {
        parameters.push(json!({
            "name": field.json_name(),
            "in": "query",
            "description": comments.of_field(field),
            "schema": schemas.plain(field),
        }));
    }
    if route.body == Body::Items {
        parameters.extend(about_items());
    }
    if route.verb != Method::GET {
        for (name, description) in [
            ("tollgate-actor", "Who calls, for the audit log."),
            ("tollgate-reason", "Why, for the audit log; percent-encoded UTF-8."),
        ] {
            let schema = json!({"type": "string"});
            parameters
                .push(json!({"name": name, "in": "header", "description": description, "schema": schema}));
        }
    }
    parameters
}

/// What is said of a body of items beside it.
fn about_items() -> [Value; 4] {
    let key_field = "The member of each item, or the column, whose text or number is the event's key. Each item must have it then.";
    let units_field = "The member of each item, or the column, that says how many tokens the event takes: a whole number from 1 to \
                       1,000. Where an item lacks it, or a field is empty, it is as the schedule says.";
    let wrapped = "Whether each item is an object of `data`, of `key` and `units` where it has them, and of nothing else. Otherwise \
                   an item is data as a whole. Not with CSV, nor beside `keyField` or `unitsField`.";
    let parameter = |name: &str, place: &str, description: &str, schema: Value| json!({"name": name, "in": place, "description": description, "schema": schema});
    [
        parameter("keyField", "query", key_field, json!({"type": "string", "minLength": 1})),
        parameter("unitsField", "query", units_field, json!({"type": "string", "minLength": 1})),
        parameter("wrapped", "query", wrapped, json!({"type": "boolean"})),
        parameter(
            "content-encoding",
            "header",
            "`gzip` where the body is packed so.",
            json!({"type": "string", "enum": ["identity", "gzip"]}),
        ),
    ]
}

/// A body of items, in any of their formats.
fn items() -> Value {
    let text = |description: &str| json!({"schema": {"type": "string", "description": description}});
    json!({"required": true, "content": {
        "application/x-ndjson": text("An item a line: any JSON. Empty lines count for nothing."),
        "application/json": {"schema": {"type": "array", "items": {}, "minItems": 1, "maxItems": 10_000_000}},
        "text/csv": text("A header row, and then an item a row: an object of the header's names and the row's texts."),
    }})
}

/// The body's schema, and whether there must be one.
fn body(route: &Route, comments: &Comments, schemas: &mut Schemas<'_>) -> Option<(Value, bool)> {
    match &route.body {
        Body::None | Body::Items => None,
        Body::All => {
            let bound: Vec<&str> = route.template.fields().collect();
            let input = route.rpc.input();
            let fields: Vec<FieldDescriptor> =
                input.fields().filter(|field| !bound.contains(&field.name())).collect();
            let required = required(fields.iter(), comments);
            let schema = schemas.object(&input, &fields, &required);
            Some((schema, !required.is_empty()))
        }
        Body::Field(field) => {
            let prost_reflect::Kind::Message(message) = field.kind() else { return None };
            let schema = schemas.reference(&message);
            if route.verb == Method::PATCH {
                return Some((schema, true));
            }
            let required = required_of(&message, comments);
            Some((json!({"allOf": [schema, {"required": required}]}), true))
        }
    }
}

fn required_of(message: &MessageDescriptor, comments: &Comments) -> Vec<String> {
    let fields: Vec<FieldDescriptor> = message.fields().collect();
    required(fields.iter(), comments)
}

/// Those whose comment says so. A choice of several has its comment on the choice, and is not in the list.
fn required<'a>(fields: impl Iterator<Item = &'a FieldDescriptor>, comments: &Comments) -> Vec<String> {
    fields
        .filter(|field| comments.of_field(field).starts_with("Required."))
        .map(|field| field.json_name().to_owned())
        .collect()
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]
    use super::*;

    fn made() -> Value {
        let pool = tollgate_proto::descriptor_pool();
        document(pool, &Table::new(pool).unwrap())
    }

    #[test]
    fn every_reference_leads_somewhere() {
        fn check(value: &Value, schemas: &Map<String, Value>) {
            match value {
                Value::Object(members) => {
                    if let Some(Value::String(reference)) = members.get("$ref") {
                        let name = reference.strip_prefix("#/components/schemas/").unwrap();
                        assert!(schemas.contains_key(name), "{reference}");
                    }
                    members.values().for_each(|member| check(member, schemas));
                }
                Value::Array(items) => items.iter().for_each(|item| check(item, schemas)),
                _ => {}
            }
        }
        let made = made();
        check(&made, made["components"]["schemas"].as_object().unwrap());
    }

    #[test]
    fn it_says_what_the_protos_say() {
        let made = made();
        let create = &made["paths"]["/v1/namespaces/{namespace}/schedules"]["post"];
        assert_eq!(create["operationId"], "CreateSchedule");
        assert_eq!(create["description"], "Makes a schedule.");
        let body = &create["requestBody"]["content"]["application/json"]["schema"];
        assert_eq!(body["allOf"][1]["required"], json!(["target"]));
        let names: Vec<&str> =
            create["parameters"].as_array().unwrap().iter().filter_map(|one| one["name"].as_str()).collect();
        assert_eq!(names, ["namespace", "scheduleId", "validateOnly", "tollgate-actor", "tollgate-reason"]);
        let schedule = &made["components"]["schemas"]["Schedule"]["properties"];
        assert_eq!(
            schedule["timeZone"]["description"],
            "Optional. IANA name such as `Europe/Berlin`; `UTC` by default."
        );
        assert_eq!(schedule["uid"]["readOnly"], true);
        assert_eq!(schedule["createTime"]["format"], "date-time");
        assert_eq!(schedule["events"]["type"], json!(["integer", "null"]));
        assert_eq!(
            (&schedule["events"]["minimum"], &schedule["events"]["maximum"]),
            (&json!(1), &json!(10_000_000))
        );
        let item = &made["components"]["schemas"]["ScheduleItem"]["properties"];
        for (units, fewest) in [(&schedule["units"], 1), (&item["units"], 0)] {
            assert_eq!((&units["minimum"], &units["maximum"]), (&json!(fewest), &json!(1_000)));
        }
        let batch = &made["paths"]["/v1/events:batchRelease"]["post"]["requestBody"];
        let releases = &batch["content"]["application/json"]["schema"]["properties"]["releases"];
        assert_eq!((&releases["type"], &releases["maxItems"]), (&json!("array"), &json!(1000)), "not null");
        let list = &made["paths"]["/v1/namespaces/{namespace}/runs"]["get"]["parameters"];
        assert_eq!(list[1]["name"], "pageSize");
        assert_eq!(list[1]["schema"]["minimum"], 0);
        let statuses = |operation: &Value, status: &str| operation["responses"][status].is_object();
        assert!(["400", "401", "404", "413", "429", "503"].iter().all(|status| statuses(create, status)));
        assert!(!statuses(&made["paths"]["/v1/namespaces/{namespace}/runs"]["get"], "413"), "it has no body");
        let submit = &made["paths"]["/v1/namespaces/{namespace}/schedules/{schedule}:submit"]["post"];
        let kinds: Vec<&String> = submit["requestBody"]["content"].as_object().unwrap().keys().collect();
        assert_eq!(kinds, ["application/json", "application/x-ndjson", "text/csv"]);
        let names = submit["parameters"].as_array().unwrap().iter().filter_map(|one| one["name"].as_str());
        assert!(
            ["requestId", "keyField", "unitsField", "wrapped"]
                .iter()
                .all(|name| names.clone().any(|one| one == *name))
        );
        let release = &made["paths"]["/v1/events/{event}:release"]["post"]["requestBody"];
        assert_eq!(release["required"], false);
    }

    #[test]
    fn every_schema_and_operation_is_described() {
        let made = made();
        for (name, schema) in made["components"]["schemas"].as_object().unwrap() {
            assert!(!schema["description"].as_str().unwrap_or_default().is_empty(), "{name}");
        }
        for (path, item) in made["paths"].as_object().unwrap() {
            for operation in item.as_object().unwrap().values() {
                assert!(!operation["summary"].as_str().unwrap().is_empty(), "{path}");
            }
        }
    }
}
