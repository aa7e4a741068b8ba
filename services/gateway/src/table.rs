//! Decides which RPC a verb and a path mean: by the annotations of the protos.
//!
//! In: the descriptors. Out: a table of routes. Invariants: only unary methods have routes, and the one that takes
//! a stream of items; every field that an annotation
//! names exists. Not here: the bodies and queries of requests.

use std::collections::BTreeSet;

use http::Method;
use http::uri::PathAndQuery;
use prost_reflect::{
    Cardinality, DescriptorPool, DynamicMessage, FieldDescriptor, Kind, MessageDescriptor, MethodDescriptor,
    Value,
};

use crate::GatewayError;
use crate::template::{Path, Template};

const ANNOTATION: &str = "google.api.http";
/// The field of a stream that is its body, and the one that begins it.
const ITEMS: &str = "items";
const HEADER: &str = "header";

/// All routes.
#[derive(Clone, Debug)]
pub(crate) struct Table {
    routes: Vec<Route>,
}

/// One way to an RPC.
#[derive(Clone, Debug)]
pub(crate) struct Route {
    pub(crate) verb: Method,
    pub(crate) template: Template,
    pub(crate) rpc: MethodDescriptor,
    /// Where gRPC has it: `/tollgate.v1.EventHandlerService/GetRun`.
    pub(crate) path: PathAndQuery,
    pub(crate) body: Body,
    /// Whether the body may hold free JSON.
    pub(crate) free: bool,
    /// The fields that may be in the query.
    pub(crate) query: Vec<FieldDescriptor>,
    /// 0 for an annotation's own rule, from 1 on for its additional ones.
    pub(crate) binding: usize,
}

/// What a request's body is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Body {
    /// Not read.
    None,
    /// Every field that the path does not give.
    All,
    /// This field.
    Field(FieldDescriptor),
    /// A stream of items, behind a header that path and query make.
    Items,
}

/// What the table says about a request.
pub(crate) enum Found<'a> {
    /// This route, with the fields that the path gives.
    Route(&'a Route, Vec<(&'a str, String)>),
    /// The path has other verbs.
    OtherVerbs(Vec<Method>),
    /// Nothing.
    Nothing,
}

impl Table {
    pub(crate) fn new(pool: &DescriptorPool) -> Result<Self, GatewayError> {
        let mut routes = Vec::new();
        for rpc in pool.services().flat_map(|service| service.methods().collect::<Vec<_>>()) {
            let wrong = |problem: String| GatewayError { method: rpc.full_name().to_owned(), problem };
            routes.extend(of_method(pool, &rpc).map_err(wrong)?);
        }
        Ok(Self { routes })
    }

    pub(crate) fn routes(&self) -> &[Route] {
        &self.routes
    }

    /// HEAD is GET whose answer loses its body on the way out.
    pub(crate) fn find(&self, verb: &Method, path: &str) -> Found<'_> {
        let path = Path::new(path);
        let verb = if verb == Method::HEAD { &Method::GET } else { verb };
        let mut others = Vec::new();
        for route in &self.routes {
            if let Some(values) = route.template.matches(&path) {
                if route.verb == verb {
                    return Found::Route(route, values);
                }
                others.push(route.verb.clone());
            }
        }
        if others.is_empty() { Found::Nothing } else { Found::OtherVerbs(others) }
    }
}

fn of_method(pool: &DescriptorPool, rpc: &MethodDescriptor) -> Result<Vec<Route>, String> {
    let Some(annotation) = pool.get_extension_by_name(ANNOTATION) else { return Ok(Vec::new()) };
    let options = rpc.options();
    if !options.has_extension(&annotation) {
        return Ok(Vec::new());
    }
    if rpc.is_server_streaming() {
        return Err("streams of answers are not served".to_owned());
    }
    let value = options.get_extension(&annotation);
    let rule = value.as_message().ok_or("the annotation is no message")?;
    let additional = rule.get_field_by_name("additional_bindings");
    let additional = additional.as_deref().and_then(Value::as_list).unwrap_or_default();
    let rules = std::iter::once(rule).chain(additional.iter().filter_map(Value::as_message));
    rules.enumerate().map(|(binding, rule)| of_rule(rpc, rule, binding)).collect()
}

fn of_rule(rpc: &MethodDescriptor, rule: &DynamicMessage, binding: usize) -> Result<Route, String> {
    let text = |field: &str| {
        let value = rule.get_field_by_name(field);
        value.as_deref().and_then(Value::as_str).unwrap_or_default().to_owned()
    };
    if !text("response_body").is_empty() {
        return Err("response_body is not served".to_owned());
    }
    let verbs = [Method::GET, Method::POST, Method::PATCH, Method::DELETE, Method::PUT];
    let pattern = |verb: &Method| text(&verb.as_str().to_ascii_lowercase());
    let verb = verbs.into_iter().find(|verb| !pattern(verb).is_empty()).ok_or("no verb")?;
    let template = Template::parse(&pattern(&verb))?;
    let input = rpc.input();
    for path in template.fields() {
        let (first, rest) = path.split_once('.').map_or((path, None), |(first, rest)| (first, Some(rest)));
        let field = input.get_field_by_name(first).ok_or_else(|| format!("{first} is no field"))?;
        if let (Some(rest), Kind::Message(inner)) = (rest, field.kind()) {
            inner.get_field_by_name(rest).ok_or_else(|| format!("{path} is no field"))?;
        }
    }
    let body = match text("body").as_str() {
        ITEMS if rpc.is_client_streaming() => Body::Items,
        _ if rpc.is_client_streaming() => return Err("of streams only one of items is served".to_owned()),
        "" => Body::None,
        "*" => Body::All,
        name => Body::Field(input.get_field_by_name(name).ok_or_else(|| format!("{name} is no field"))?),
    };
    let bound: Vec<&str> = template.fields().collect();
    let query = match body {
        Body::All => Vec::new(),
        Body::Items => of_header(&input)?,
        _ => input.fields().filter(|field| in_query(field, &bound)).collect(),
    };
    let path = format!("/{}/{}", rpc.parent_service().full_name(), rpc.name());
    let path = PathAndQuery::try_from(path).map_err(|error| error.to_string())?;
    let free = has_free(&input, &mut BTreeSet::new());
    Ok(Route { verb, template, rpc: rpc.clone(), path, body, free, query, binding })
}

/// The fields of a stream's header that may be in the query: all but the name, which is in the path.
fn of_header(input: &MessageDescriptor) -> Result<Vec<FieldDescriptor>, String> {
    let header = input.get_field_by_name(HEADER).ok_or_else(|| format!("{HEADER} is no field"))?;
    let Kind::Message(header) = header.kind() else { return Err(format!("{HEADER} is no message")) };
    Ok(header.fields().filter(|field| field.name() != "name").collect())
}

/// Whether a message has a field of free JSON, at any depth.
fn has_free(message: &MessageDescriptor, seen: &mut BTreeSet<String>) -> bool {
    const FREE: [&str; 3] = ["google.protobuf.Value", "google.protobuf.Struct", "google.protobuf.ListValue"];
    FREE.contains(&message.full_name())
        || (seen.insert(message.full_name().to_owned())
            && message.fields().any(|field| match field.kind() {
                Kind::Message(inner) => has_free(&inner, seen),
                _ => false,
            }))
}

/// Whether a field may be in the query: what one text can give, or several, and what excludes nothing of the path.
fn in_query(field: &FieldDescriptor, bound: &[&str]) -> bool {
    let simple = match field.kind() {
        Kind::Message(message) => {
            const TEXTS: [&str; 3] =
                ["google.protobuf.Timestamp", "google.protobuf.Duration", "google.protobuf.FieldMask"];
            TEXTS.contains(&message.full_name()) && field.cardinality() != Cardinality::Repeated
        }
        Kind::Bytes => false,
        _ => true,
    };
    let excluded =
        field.containing_oneof().is_some_and(|of| of.fields().any(|other| bound.contains(&other.name())));
    simple && !excluded && !bound.contains(&field.name())
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]
    use super::*;

    fn table() -> Table {
        Table::new(tollgate_proto::descriptor_pool()).unwrap()
    }

    #[test]
    fn every_unary_method_for_users_and_a_stream_of_items_have_routes() {
        let table = table();
        for service in tollgate_proto::descriptor_pool().services() {
            for rpc in service.methods() {
                let stream = rpc.is_client_streaming() || rpc.is_server_streaming();
                let internal = service.name() == "HandlerPeerService";
                let served = table.routes().iter().any(|route| route.rpc == rpc);
                let items = rpc.name() == "SubmitItems";
                assert_eq!(served, (!stream || items) && !internal, "{}", rpc.full_name());
            }
        }
    }

    #[test]
    fn only_what_may_hold_free_json_may_be_heavy() {
        let table = table();
        let free: BTreeSet<_> = table
            .routes()
            .iter()
            .filter(|route| route.free)
            .map(|route| route.rpc.name().to_owned())
            .collect();
        // A payload, and the result of an event.
        for heavy in ["CreateSchedule", "UpdateSchedule", "ReleaseToken", "BatchReleaseTokens"] {
            assert!(free.contains(heavy), "{heavy}");
        }
        for plain in ["AcquireEvents", "ExtendToken", "CreatePolicy", "RetryDeadEvents"] {
            assert!(!free.contains(plain), "{plain}");
        }
    }

    #[test]
    fn no_two_routes_are_the_same() {
        let table = table();
        for (at, one) in table.routes().iter().enumerate() {
            for two in &table.routes()[at + 1..] {
                let same = one.verb == two.verb && one.template.open_api().0 == two.template.open_api().0;
                assert!(!same, "{} and {}", one.rpc.full_name(), two.rpc.full_name());
            }
        }
    }

    #[test]
    fn verb_and_path_decide() {
        let table = table();
        let rpc = |verb: Method, path: &str| match table.find(&verb, path) {
            Found::Route(route, _) => Ok(route.rpc.name().to_owned()),
            Found::OtherVerbs(verbs) => Err(Some(verbs)),
            Found::Nothing => Err(None),
        };
        let name = "/v1/namespaces/a/schedules/b";
        assert_eq!(rpc(Method::GET, name).unwrap(), "GetSchedule");
        assert_eq!(rpc(Method::HEAD, name).unwrap(), "GetSchedule");
        assert_eq!(rpc(Method::PATCH, name).unwrap(), "UpdateSchedule");
        assert_eq!(rpc(Method::POST, "/v1/namespaces/a/schedules/b:pause").unwrap(), "PauseSchedule");
        assert_eq!(rpc(Method::POST, "/v1/events/x:release").unwrap(), "ReleaseToken");
        assert_eq!(rpc(Method::POST, "/v1/events:batchRelease").unwrap(), "BatchReleaseTokens");
        assert_eq!(rpc(Method::GET, "/v1/events/x:release"), Err(Some(vec![Method::POST])));
        assert_eq!(rpc(Method::GET, "/v1/namespaces/a/schedules/b:dance"), Err(None));
        assert_eq!(rpc(Method::GET, "/v1/x"), Err(None));
        let Err(Some(mut verbs)) = rpc(Method::PUT, name) else { panic!("PUT is served") };
        verbs.sort_by_key(ToString::to_string);
        assert_eq!(verbs, [Method::DELETE, Method::GET, Method::PATCH]);
    }

    #[test]
    fn the_query_has_what_neither_path_nor_body_give() {
        let table = table();
        let query = |rpc: &str| {
            let route = table.routes().iter().find(|route| route.rpc.name() == rpc).unwrap();
            route.query.iter().map(|field| field.name().to_owned()).collect::<Vec<_>>()
        };
        assert_eq!(query("ListSchedules"), ["page_size", "page_token", "filter"]);
        assert_eq!(query("CreateSchedule"), ["schedule_id", "validate_only"]);
        assert_eq!(query("UpdateSchedule"), ["update_mask", "validate_only"]);
        assert_eq!(query("PreviewSchedule"), ["from_time", "count"]);
        assert!(query("PauseSchedule").is_empty());
        assert_eq!(
            query("SubmitItems"),
            ["request_id", "launch_time", "priority", "payload", "resume_from", "hold"]
        );
    }
}
