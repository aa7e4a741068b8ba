//! JSON over HTTP on the port of gRPC: a consumer with nothing but curl, every path, refusals, gRPC-Web, OpenAPI.

use std::path::{Path, PathBuf};
use std::process::Command;

use base64::Engine as _;
use http_body_util::{BodyExt, Full};
use hyper::body::Bytes;
use hyper::{HeaderMap, Request, StatusCode};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use prost::Message as _;
use serde_json::{Value, json};
use tollgate_harness::resources::{PARENT, http, once, policy, soon};
use tollgate_harness::{Arrival, Conduct, Consumer, Database, Kind, Releases, SECRET, Service, wait_for};
use tollgate_proto::v1::{GetPolicyRequest, Policy};

/// An answer over HTTP.
#[derive(Debug)]
struct Answer {
    status: StatusCode,
    headers: HeaderMap,
    body: Bytes,
}

impl Answer {
    fn json(&self) -> Value {
        assert_eq!(self.headers["content-type"], "application/json", "{self:?}");
        serde_json::from_slice(&self.body).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }

    /// The body of a success.
    fn ok(&self) -> Value {
        assert_eq!(self.status, StatusCode::OK, "{self:?}");
        self.json()
    }

    /// Asserts a refusal with this HTTP status and gRPC code; returns its body.
    fn refused(&self, status: u16, code: i32) -> Value {
        let body = self.json();
        assert_eq!((self.status.as_u16(), &body["code"]), (status, &json!(code)), "{body}");
        assert!(body["message"].as_str().is_some_and(|message| !message.is_empty()), "{body}");
        assert!(body["details"].is_array(), "{body}");
        body
    }
}

/// HTTP/1.1 to a service.
struct Rest {
    url: String,
    client: Client<HttpConnector, Full<Bytes>>,
}

impl Rest {
    fn new(service: &Service) -> Self {
        Self { url: service.url().to_owned(), client: Client::builder(TokioExecutor::new()).build_http() }
    }

    async fn raw(&self, verb: &str, path: &str, headers: &[(&str, &str)], body: impl Into<Bytes>) -> Answer {
        let mut request = Request::builder().method(verb).uri(format!("{}{path}", self.url));
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let answer = self.client.request(request.body(Full::new(body.into())).unwrap()).await.unwrap();
        let (head, body) = answer.into_parts();
        let body = body.collect().await.unwrap().to_bytes();
        Answer { status: head.status, headers: head.headers, body }
    }

    async fn get(&self, path: &str) -> Answer {
        self.raw("GET", path, &[], "").await
    }

    async fn json(&self, verb: &str, path: &str, body: Value) -> Answer {
        let headers = [("content-type", "application/json"), ("tollgate-actor", "rest")];
        self.raw(verb, path, &headers, body.to_string()).await
    }
}

struct World {
    _database: Database,
    service: Service,
    rest: Rest,
}

async fn world() -> World {
    let database = Database::new(Kind::Sqlite).await;
    let service = Service::start(&database).await;
    let rest = Rest::new(&service);
    World { _database: database, service, rest }
}

/// A consumer that takes events and keeps their tokens.
async fn keeper(service: &Service) -> Consumer {
    Consumer::start(service.link(), Releases::Unary, |_| Conduct::keep()).await
}

async fn first_arrival(consumer: &Consumer) -> Arrival {
    wait_for("an event", 20, async || consumer.notes.arrivals().into_iter().next()).await
}

fn curl(arguments: &[&str]) -> Value {
    let output = Command::new("curl").args(["-sS", "--fail-with-body"]).args(arguments).output().unwrap();
    let (out, err) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{arguments:?}: {out} {err}");
    serde_json::from_str(&out).unwrap_or_else(|error| panic!("{arguments:?}: {error}: {out}"))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_consumer_with_nothing_but_curl_releases() {
    let World { _database, service, .. } = world().await;
    let consumer = keeper(&service).await;
    let at = |path: &str| format!("{}/v1/{path}", service.url());
    let say = ["-H", "content-type: application/json", "-H", "tollgate-actor: ann", "-d"];
    let post =
        |url: String, body: Value| curl(&[&say[..], &[body.to_string().as_str(), url.as_str()]].concat());
    let policy = post(at("namespaces/default/policies?policyId=p"), json!({"maxInFlight": 1}));
    assert_eq!(
        (&policy["name"], &policy["maxInFlight"]),
        (&json!("namespaces/default/policies/p"), &json!(1))
    );
    let target = json!({"http": {"url": consumer.url(), "secret": SECRET}});
    let busy = || curl(&[&at("handlerStatus?busyOnly=true")])["policies"].as_array().map_or(0, Vec::len);
    assert_eq!(busy(), 0);
    let schedule =
        json!({"triggers": [{"cron": "0 0 1 1 *"}], "policy": "p", "target": target, "payload": {"a": 1}});
    let schedule = post(at("namespaces/default/schedules?scheduleId=s"), schedule);
    assert_eq!(schedule["target"]["http"]["hasSecret"], true, "{schedule}");
    assert_eq!(schedule["etag"], "1", "{schedule}");
    let run = post(at("namespaces/default/schedules/s:trigger"), json!({"events": 2}));
    assert_eq!((&run["events"], &run["kind"]), (&json!(2), &json!("RUN_KIND_MANUAL")), "{run}");
    let event = first_arrival(&consumer).await;
    assert_eq!(event.data, json!({"a": 1}));
    let status = curl(&[&at("handlerStatus")]);
    assert_eq!(status["heldCount"], "1", "a 64-bit number is a text: {status}");
    assert_eq!(busy(), 1);
    // Without a body, without a header: the id is all that is needed.
    let release = at(&format!("events/{}:release", event.event_id));
    assert_eq!(curl(&["-X", "POST", &release])["status"], "RELEASE_STATUS_RELEASED");
    assert_eq!(curl(&["-X", "POST", &release])["status"], "RELEASE_STATUS_ALREADY_RELEASED");
    wait_for("the second event", 20, async || (consumer.notes.arrivals_count() == 2).then_some(())).await;
    let second =
        consumer.notes.arrivals().into_iter().find(|other| other.event_id != event.event_id).unwrap();
    let failed = json!({"outcome": "FAILED", "message": "no", "attempt": 1});
    let full = at(&format!("{PARENT}/events/{}:release", second.event_id));
    assert_eq!(post(full, failed)["status"], "RELEASE_STATUS_RELEASED");
    let run = at(run["name"].as_str().unwrap());
    let ended = wait_for("the end of the run", 10, async || {
        let run = curl(&[&run]);
        (run["state"] == "RUN_STATE_FINISHED_WITH_FAILURES").then_some(run)
    })
    .await;
    assert_eq!(
        (&ended["counts"]["succeeded"], &ended["counts"]["failed"]),
        (&json!(1), &json!(1)),
        "{ended}"
    );
    let audit = curl(&[&at("namespaces/default/auditEntries?pageSize=1")]);
    assert_eq!(audit["auditEntries"][0]["actor"], "ann", "{audit}");
    assert_ne!(audit["nextPageToken"], "");
    service.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_update_changes_what_it_names() {
    let World { _database, service, rest } = world().await;
    let schedules = "/v1/namespaces/default/schedules";
    let path = format!("{schedules}/s");
    let made = json!({
        "name": "s",
        "triggers": [{"cron": "@daily"}],
        "target": {"http": {"url": "http://127.0.0.1:9/a", "secret": SECRET}},
        "labels": {"team": "x", "tier": "1"},
        "description": "old",
    });
    rest.json("POST", schedules, made.clone()).await.ok();
    rest.json("POST", schedules, made).await.refused(409, 6);
    let patch = async |query: &str, body: Value| rest.json("PATCH", &format!("{path}{query}"), body).await;
    // What the body names, as deep as it names it.
    let changed = patch(
        "",
        json!({"events": 7, "labels": {"tier": null}, "target": {"http": {"url": "http://127.0.0.1:9/b"}}}),
    );
    let changed = changed.await.ok();
    assert_eq!((&changed["events"], &changed["description"]), (&json!(7), &json!("old")));
    assert_eq!(changed["labels"], json!({"team": "x"}));
    assert_eq!(changed["target"]["http"]["url"], "http://127.0.0.1:9/b");
    assert_eq!(changed["target"]["http"]["hasSecret"], true, "what is not named stays");
    // What the mask names, and nothing else of the body.
    let body = json!({"events": 9, "description": "new"});
    let changed = patch("?updateMask=description", body.clone()).await.ok();
    assert_eq!((&changed["events"], &changed["description"]), (&json!(7), &json!("new")));
    patch("?updateMask=colour", body.clone()).await.refused(400, 3);
    patch("", json!({})).await.refused(400, 3);
    // Everything: triggers and target are missing.
    patch("?updateMask=*", body).await.refused(400, 3);
    // What was read can be written back, and says the same.
    let read = rest.get(&path).await.ok();
    let written = patch("", read.clone()).await.ok();
    for field in ["events", "triggers", "target", "labels", "description", "uid", "createTime"] {
        assert_eq!(read[field], written[field], "{field}");
    }
    // It has another etag since, or it has not where nothing changed; a stale one is refused in any case.
    patch("", json!({"etag": "1", "events": 1})).await.refused(409, 10);
    let tried = rest.json("PATCH", &format!("{path}?validateOnly=true"), json!({"events": 70})).await.ok();
    assert_eq!((&tried["events"], &rest.get(&path).await.ok()["events"]), (&json!(70), &json!(7)));
    rest.raw("DELETE", &format!("{path}?etag=1"), &[], "").await.refused(409, 10);
    assert_eq!(rest.raw("DELETE", &path, &[], "").await.ok(), json!({}));
    rest.get(&path).await.refused(404, 5);
    service.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn refusals_are_statuses_with_their_details() {
    let World { _database, service, rest } = world().await;
    let schedules = "/v1/namespaces/default/schedules";
    let wrong =
        json!({"triggers": [{"cron": "61 * * * *"}], "events": 0, "target": {"http": {"url": "ftp://x"}}});
    let body = rest.json("POST", &format!("{schedules}?scheduleId=s"), wrong).await.refused(400, 3);
    let detail = &body["details"][0];
    assert_eq!(detail["@type"], "type.googleapis.com/google.rpc.BadRequest");
    let fields: Vec<&str> = detail["fieldViolations"]
        .as_array()
        .unwrap()
        .iter()
        .filter_map(|one| one["field"].as_str())
        .collect();
    assert!(fields.contains(&"schedule.events"), "{body}");
    assert!(fields.len() >= 3, "{body}");
    let typo = rest.json("POST", schedules, json!({"tirggers": []})).await.refused(400, 3);
    assert_eq!(typo["details"][0]["fieldViolations"][0]["field"], "schedule.tirggers", "{typo}");

    for path in ["/v1", "/v1/nothing", "/v2/x", "/v1/namespaces/default/schedules/s:dance", "/v1/%ff"] {
        rest.get(path).await.refused(404, 5);
    }
    rest.get(&format!("{schedules}/absent")).await.refused(404, 5);
    for (verb, path, allow) in [
        ("PUT", schedules.to_owned(), "POST, GET, HEAD"),
        ("GET", "/v1/events/x:release".to_owned(), "POST"),
        ("POST", "/openapi.json".to_owned(), "GET, HEAD"),
        ("TRACE", format!("{schedules}/s"), "GET, PATCH, DELETE, HEAD"),
    ] {
        let answer = rest.raw(verb, &path, &[], "").await;
        answer.refused(405, 12);
        assert_eq!(answer.headers["allow"], allow, "{verb} {path}");
    }
    let json = [("content-type", "application/json")];
    for (body, status) in [("{", 400), ("[]", 400), ("\u{1}", 400), ("{}x", 400)] {
        rest.raw("POST", schedules, &json, body).await.refused(status, 3);
    }
    rest.raw("POST", schedules, &json, Bytes::from_static(b"{\"name\": \"\xff\"}")).await.refused(400, 3);
    rest.raw("POST", schedules, &json, "[".repeat(100_000)).await.refused(400, 3);
    rest.raw("POST", schedules, &[], "{}").await.refused(415, 3);
    rest.raw("POST", schedules, &[("content-type", "text/plain")], "{}").await.refused(415, 3);
    let large = format!("{{\"description\": \"{}\"}}", "x".repeat(5 << 20));
    rest.raw("POST", schedules, &json, large).await.refused(413, 11);
    let many = format!("{{\"payload\": [{}1]}}", "1,".repeat(400_000));
    rest.raw("POST", schedules, &json, many).await.refused(413, 11);
    rest.get(&format!("{schedules}?pageSize=many")).await.refused(400, 3);
    rest.get(&format!("{schedules}?colour=red")).await.refused(400, 3);

    // A page of another site may not use the user's browser to change anything.
    let pause = "/v1/dispatch:pause";
    rest.raw("POST", pause, &[("origin", "http://a.example")], "").await.refused(403, 7);
    rest.raw("POST", pause, &[("sec-fetch-site", "cross-site")], "").await.refused(403, 7);
    assert_eq!(
        rest.raw("POST", pause, &[("origin", service.url())], "").await.ok()["pause"]["actor"],
        "anonymous"
    );
    rest.raw("POST", "/v1/dispatch:resume", &[], "").await.ok();
    service.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_role_elsewhere_is_unimplemented_here() {
    let database = Database::new(Kind::Sqlite).await;
    let service = Service::join(&database, &["--roles", "master"]).await;
    let rest = Rest::new(&service);
    rest.get("/v1/namespaces/default/schedules").await.ok();
    let body = rest.get("/v1/handlerStatus").await.refused(501, 12);
    assert!(body["message"].as_str().unwrap().contains("EventHandlerService"), "{body}");
    service.stop().await;
}

/// Each operation of the document, with resources that are there. Those that delete come last.
async fn operations(rest: &Rest, event: &Arrival) -> Vec<(String, String)> {
    let document = rest.get("/openapi.json").await.ok();
    assert_eq!(document["openapi"], "3.1.0");
    let run = event.run.rsplit('/').next().unwrap();
    let mut operations = Vec::new();
    for (path, verbs) in document["paths"].as_object().unwrap() {
        let path = path
            .replace("{namespace}", "default")
            .replace("{schedule}", "s")
            .replace("{policy}", "p")
            .replace("{alert}", "a")
            .replace("{calendar}", "c")
            .replace("{run}", run)
            .replace("{submission}", "r")
            .replace("{queue}", "q")
            .replace("{event}", &event.event_id);
        assert!(!path.contains('{'), "{path}");
        operations.extend(verbs.as_object().unwrap().keys().map(|verb| (verb.to_uppercase(), path.clone())));
    }
    // A schedule goes before the policy that it uses.
    operations.sort_by_key(|(verb, path)| (verb == "DELETE", verb == "DELETE" && path.contains("policies")));
    operations
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_documented_operation_reaches_its_method() {
    let World { _database, service, rest } = world().await;
    let consumer = keeper(&service).await;
    service.create_policy("p", policy(5)).await.unwrap();
    service.create_schedule("s", once(soon(500), 1, "p", http(&consumer))).await.unwrap();
    let alert = json!({"name": "a", "troubles": {}, "target": {"slack": {"url": consumer.url()}}});
    rest.json("POST", "/v1/namespaces/default/alerts", alert).await.ok();
    rest.json("POST", "/v1/namespaces/default/calendars", json!({"name": "c"})).await.ok();
    let event = first_arrival(&consumer).await;
    rest.json("POST", "/v1/namespaces/default/schedules/s:submit?requestId=r", json!([1])).await.ok();
    let operations = operations(&rest, &event).await;
    assert!(operations.len() >= 38, "{operations:?}");
    let ago = |days: i64| {
        let moment = chrono::Utc::now() - chrono::TimeDelta::days(days);
        moment.to_rfc3339_opts(chrono::SecondsFormat::Secs, true)
    };
    for (verb, path) in operations {
        let body = match path.rsplit('/').next().unwrap() {
            "s" | "p" | "a" | "c" if verb == "PATCH" => json!({"description": "x"}),
            "events:batchRelease" => json!({"releases": [{"name": event.event_id}]}),
            "schedules:preview" => json!({"schedule": {"triggers": [{"cron": "@daily"}]}}),
            "s:submit" => json!([1]),
            "q:acquire" => json!({"wait": "0s"}),
            "schedules:pause" | "schedules:resume" | "schedules:delete" | "schedules:trigger" => {
                json!({"filter": "name=none*"})
            }
            "s:backfill" => json!({"startTime": ago(2), "endTime": ago(1)}),
            "schedules" => {
                json!({"name": "t", "triggers": [{"cron": "@daily"}], "target": {"http": {"url": "http://127.0.0.1:9/"}}})
            }
            "policies" => json!({"name": "q", "maxInFlight": 1}),
            "calendars" => json!({"name": "d", "dates": ["2030-12-25"]}),
            "alerts" => {
                json!({"name": "b", "troubles": {}, "target": {"slack": {"url": "http://127.0.0.1:9/"}}})
            }
            _ => json!({}),
        };
        let answer = match verb.as_str() {
            "GET" | "DELETE" => rest.raw(&verb, &path, &[], "").await,
            _ => rest.json(&verb, &path, body).await,
        };
        let json = answer.json();
        // The event ends early on, and cannot be extended then; nothing else has a reason to be refused.
        let ended = path.ends_with(":extend") && [400, 404, 409].contains(&answer.status.as_u16());
        assert!(answer.status == StatusCode::OK || ended, "{verb} {path}: {} {json}", answer.status);
    }
    service.stop().await;
}

/// A message as gRPC frames it.
fn framed(message: &impl prost::Message) -> Vec<u8> {
    let bytes = message.encode_to_vec();
    let mut frame = vec![0];
    frame.extend(u32::try_from(bytes.len()).unwrap().to_be_bytes());
    frame.extend(bytes);
    frame
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn grpc_web_works_over_http1() {
    let World { _database, service, rest } = world().await;
    service.create_policy("p", policy(5)).await.unwrap();
    let path = "/tollgate.v1.ScheduleMasterService/GetPolicy";
    let request = framed(&GetPolicyRequest { name: format!("{PARENT}/policies/p") });
    let text = base64::engine::general_purpose::STANDARD;
    for (kind, body) in [
        ("application/grpc-web+proto", request.clone()),
        ("application/grpc-web-text+proto", text.encode(&request).into_bytes()),
    ] {
        let headers = [("content-type", kind), ("accept", kind), ("x-grpc-web", "1")];
        let answer = rest.raw("POST", path, &headers, body).await;
        assert_eq!(answer.status, StatusCode::OK, "{answer:?}");
        let body = match kind.contains("text") {
            // Frames are encoded one by one, each with its own padding.
            true => answer.body.chunks(4).flat_map(|four| text.decode(four).unwrap()).collect(),
            false => answer.body.to_vec(),
        };
        let length = u32::from_be_bytes(body[1..5].try_into().unwrap()) as usize;
        let found = Policy::decode(&body[5..5 + length]).unwrap();
        assert_eq!((body[0], found.max_in_flight), (0, Some(5)), "{kind}");
        let trailers = &body[5 + length..];
        assert_eq!(trailers[0], 0x80, "{kind}");
        assert!(String::from_utf8_lossy(&trailers[5..]).contains("grpc-status:0"), "{kind}");
    }
    service.stop().await;
}

/// Schemathesis, beside the Python that `tests/run` prepares.
fn schemathesis() -> PathBuf {
    let python = std::env::var_os("TOLLGATE_TEST_PYTHON").expect(
        "TOLLGATE_TEST_PYTHON is not set. Run the tests with ./tests/run, which installs schemathesis",
    );
    Path::new(&python).with_file_name("schemathesis")
}

/// Settings of Schemathesis. What the document allows is taken; a few operations may also say 400: what they take depends on
/// the state of things, on two fields together, or on texts with a grammar of their own (cron, URLs, filters, page tokens).
/// A batch answers for each release on its own: a wrong one among them is INVALID in a 200.
const SETTINGS: &str = "[[operations]]\n\
    include-operation-id-regex = \"^(List|Create|Update|Preview|Forecast|Backfill|Trigger|Submit|GetSubmission|Retry|CloseFailures|(Pause|Resume|Delete)(Schedule|Policy|Calendar|Alert)|ReleaseToken|ExtendToken)\"\n\
    checks.positive_data_acceptance.expected-statuses = [\"2xx\", 400, 401, 403, 404, 409, 501]\n\
    [[operations]]\ninclude-operation-id = \"BatchReleaseTokens\"\n\
    checks.negative_data_rejection.expected-statuses = [200, 400, 405, 413, 415]\n";

/// Tries the document at `url` with some requests for each operation, in a folder with Schemathesis's settings: what it
/// forbids is refused, what it allows is not, and nothing is a fault of the server.
fn try_document(url: &str, folder: &Path, arguments: &[&str]) {
    let checks = "not_a_server_error,status_code_conformance,content_type_conformance,\
                  response_headers_conformance,response_schema_conformance,unsupported_method,\
                  positive_data_acceptance,negative_data_rejection";
    let output = Command::new(schemathesis())
        .current_dir(folder)
        .args(["run", &format!("{url}/openapi.json"), "--checks", checks])
        .args(["--phases", "coverage,fuzzing", "--max-examples", "4", "--seed", "7"])
        .args(["--generation-database", "none", "--request-timeout", "60", "--no-color"])
        // It waits for as long as it is told.
        .args(["--exclude-operation-id", "AcquireEvents"])
        .args(arguments)
        .output()
        .unwrap();
    let (out, err) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{out}\n{err}");
}

/// Requests made up from the document, right and wrong ones: nothing breaks, and every answer is as documented.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn answers_are_as_the_document_says() {
    let World { _database, service, rest } = world().await;
    let consumer = keeper(&service).await;
    service.create_policy("p", policy(5)).await.unwrap();
    service.create_schedule("s", once(soon(500), 3, "p", http(&consumer))).await.unwrap();
    let event = first_arrival(&consumer).await;
    // With names of what is there, so that answers have something in them; then with any names.
    let known = tempfile::tempdir().unwrap();
    let run = event.run.rsplit('/').next().unwrap();
    let settings = format!(
        "{SETTINGS}\n[parameters]\n\"path.namespace\" = \"default\"\n\"path.schedule\" = \"s\"\n\"path.policy\" = \"p\"\n\
         \"path.run\" = \"{run}\"\n\"path.event\" = \"{}\"\n",
        event.event_id
    );
    std::fs::write(known.path().join("schemathesis.toml"), settings).unwrap();
    try_document(service.url(), known.path(), &["--exclude-method", "DELETE"]);
    let any = tempfile::tempdir().unwrap();
    std::fs::write(any.path().join("schemathesis.toml"), SETTINGS).unwrap();
    try_document(service.url(), any.path(), &[]);
    // The service has taken no harm.
    let schedules = rest.get("/v1/namespaces/default/schedules").await.ok();
    assert!(schedules["schedules"].as_array().is_some_and(|schedules| !schedules.is_empty()), "{schedules}");
    service.stop().await;
}
