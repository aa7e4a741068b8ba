//! Who may call what: keys, scopes, namespaces, events' tokens, TLS, limits; each attack from outside, on real processes.

mod bodies;
mod front;
mod keys;
mod limits;
mod moved;
mod names;
mod pages;
mod start;
mod tls;
mod tokens;

use std::process::Command;

use serde_json::Value;
use tollgate_harness::{Cli, Database, Serve, Service, binary};
use tonic::metadata::{Ascii, MetadataValue};
use tonic::service::Interceptor;
use tonic::service::interceptor::InterceptedService;
use tonic::transport::Channel;
use tonic::{Request, Status};

use tollgate_proto::v1::event_handler_service_client::EventHandlerServiceClient;
use tollgate_proto::v1::schedule_master_service_client::ScheduleMasterServiceClient;

/// Shows a credential with each call, and a name that the caller has made up.
#[derive(Clone)]
pub(crate) struct Bearer(Option<MetadataValue<Ascii>>);

impl Interceptor for Bearer {
    fn call(&mut self, mut request: Request<()>) -> Result<Request<()>, Status> {
        if let Some(bearer) = &self.0 {
            request.metadata_mut().insert("authorization", bearer.clone());
        }
        request.metadata_mut().insert("tollgate-actor", MetadataValue::from_static("root"));
        Ok(request)
    }
}

pub(crate) type Wire = InterceptedService<Channel, Bearer>;

pub(crate) fn wire(channel: Channel, header: Option<&str>) -> Wire {
    InterceptedService::new(channel, Bearer(header.map(|header| header.parse().unwrap())))
}

/// The Schedule Master, with a key or without.
pub(crate) fn master(service: &Service, key: Option<&str>) -> ScheduleMasterServiceClient<Wire> {
    let header = key.map(|key| format!("Bearer {key}"));
    ScheduleMasterServiceClient::new(wire(service.channel(), header.as_deref()))
}

/// The Event Handler, with a key or without.
pub(crate) fn handler(service: &Service, key: Option<&str>) -> EventHandlerServiceClient<Wire> {
    let header = key.map(|key| format!("Bearer {key}"));
    EventHandlerServiceClient::new(wire(service.channel(), header.as_deref()))
}

/// Runs `tollgate key` on a store.
pub(crate) fn key_command(database: &Database, arguments: &[&str]) -> tollgate_harness::Answer {
    let store = database.url();
    Cli::new("").run(&[&["key"], arguments, &["--store", &store]].concat())
}

/// Makes a key for a namespace, or for all.
pub(crate) fn key(database: &Database, name: &str, scopes: &str, namespace: Option<&str>) -> String {
    let place = namespace.map_or(vec!["--all-namespaces"], |namespace| vec!["--namespace", namespace]);
    let made = key_command(database, &[&["create", name, "--scopes", scopes], &place[..]].concat());
    assert_eq!(made.code, 0, "{made:?}");
    assert!(!made.err.contains("tgk_"), "the key stands where logs are: {made:?}");
    made.out.trim().to_owned()
}

/// The part of a key that is no secret.
pub(crate) fn id(key: &str) -> &str {
    key.split('_').nth(1).unwrap()
}

/// The HTTP status and the body of a request that curl sends.
fn curl(arguments: &[&str]) -> (u16, String) {
    let output = Command::new("curl")
        .args(["-s", "-w", "\n%{http_code}", "--max-time", "20"])
        .args(arguments)
        .output()
        .unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    let (body, status) = text.rsplit_once('\n').unwrap();
    (status.parse().unwrap(), body.to_owned())
}

/// A REST call with a key or without; the body of a PATCH changes something, that of a POST is empty.
pub(crate) fn rest(url: &str, verb: &str, path: &str, key: Option<&str>) -> (u16, Value) {
    let url = format!("{url}{path}");
    let header = key.map(|key| format!("authorization: Bearer {key}"));
    let mut arguments = vec!["-X", verb, &url, "-H", "tollgate-actor: root"];
    if let Some(header) = &header {
        arguments.extend(["-H", header]);
    }
    if verb != "GET" && verb != "DELETE" {
        let body = if verb == "PATCH" { "{\"labels\": {\"a\": \"b\"}}" } else { "{}" };
        arguments.extend(["-H", "content-type: application/json", "-d", body]);
    }
    let (status, body) = curl(&arguments);
    (status, serde_json::from_str(&body).unwrap_or(Value::String(body)))
}

/// As [`rest`], with a body.
pub(crate) fn rest_with(url: &str, verb: &str, path: &str, key: &str, body: &Value) -> (u16, Value) {
    let (url, body) = (format!("{url}{path}"), body.to_string());
    let key = format!("authorization: Bearer {key}");
    let json = "content-type: application/json";
    let (status, body) = curl(&["-X", verb, &url, "-H", &key, "-H", json, "-d", &body]);
    (status, serde_json::from_str(&body).unwrap_or(Value::String(body)))
}

/// A process with exactly these flags, at this address.
async fn serve(database: &Database, listen: &str, flags: &[&str]) -> Service {
    let serve = Serve::new(Command::new(binary()), &database.url(), listen);
    Service::launch(serve.flags(["--lease-ttl", "4s"]).flags(flags)).await.unwrap()
}
