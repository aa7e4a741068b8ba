//! The head of a request: under which name the port is asked for, and what may stand there only once; broken bodies.

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tollgate_harness::{Database, Kind, Service, wait_for};
use tollgate_proto::v1::GetHandlerStatusRequest;
use tollgate_proto::v1::event_handler_service_client::EventHandlerServiceClient;
use tonic::Code;
use tonic::transport::Endpoint;

use super::{curl, key, serve, wire};

const PATHS: [&str; 8] = [
    "/",
    "/n/default",
    "/metrics",
    "/readyz",
    "/livez",
    "/openapi.json",
    "/v1/handlerStatus",
    "/v1/namespaces/default/policies",
];

fn get(url: &str, path: &str, host: &str) -> u16 {
    curl(&["-H", &format!("host: {host}"), &format!("{url}{path}")]).0
}

/// What a page can send that its own site's name leads to 127.0.0.1 by now.
fn rebound(url: &str, path: &str, kind: &str) -> u16 {
    let arguments = [
        "--http1.1",
        "-X",
        "POST",
        "-H",
        "host: evil.example:7411",
        "-H",
        "origin: http://evil.example:7411",
        "-H",
        "sec-fetch-site: same-origin",
        "-H",
        &format!("content-type: {kind}"),
        "-d",
        "{}",
        &format!("{url}{path}"),
    ];
    curl(&arguments).0
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_page_that_has_its_name_lead_here_gets_nothing() {
    let database = Database::new(Kind::Sqlite).await;
    let service = Service::start_with(&database, &["--advertise", "http://node-1.example:7411"]).await;
    let url = service.url();
    for path in PATHS {
        for foreign in
            ["evil.example", "evil.example:7411", "127.0.0.1.evil.example", "localhost.evil.example"]
        {
            assert_eq!(get(url, path, foreign), 421, "{path} {foreign}");
        }
        for own in ["localhost:1", "LOCALHOST", "a.localhost", "127.0.0.1", "[::1]:7411", "node-1.example"] {
            assert_ne!(get(url, path, own), 421, "{path} {own}");
        }
    }
    let rpc = "/tollgate.v1.EventHandlerService/PauseDispatch";
    for (path, kind) in [
        ("/v1/dispatch:pause", "application/json"),
        (rpc, "application/grpc"),
        (rpc, "application/grpc+proto"),
        (rpc, "application/grpc-web+proto"),
        (rpc, "application/grpc-web-text"),
        ("/n/default", "application/x-www-form-urlencoded"),
    ] {
        assert_eq!(rebound(url, path, kind), 421, "{path} {kind}");
    }
    let channel = |origin: &str| {
        let endpoint = Endpoint::from_shared(url.to_owned()).unwrap();
        endpoint.origin(origin.parse().unwrap()).connect_lazy()
    };
    let ask = async |origin: &str| {
        let mut handler = EventHandlerServiceClient::new(channel(origin));
        handler.get_handler_status(GetHandlerStatusRequest::default()).await
    };
    let refused = ask("http://evil.example").await.unwrap_err();
    assert_eq!(refused.code(), Code::PermissionDenied);
    assert!(
        refused.message().contains("evil.example") && refused.message().contains("advertise"),
        "{refused}"
    );
    let status = ask("http://localhost:7411").await.unwrap().into_inner();
    assert!(!format!("{status:?}").contains("evil"), "nothing was paused: {status:?}");
    // A program that names no host is no browser.
    let (status, _) = raw(url, "GET /livez HTTP/1.0\r\n\r\n").await;
    assert_eq!(status, 200);
    service.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn clients_with_keys_come_by_any_name() {
    let database = Database::new(Kind::Sqlite).await;
    let reader = key(&database, "viewer", "read", None);
    let service = Service::join(&database, &["--auth", "keys"]).await;
    let bearer = format!("authorization: Bearer {reader}");
    for path in PATHS {
        let url = format!("{}{path}", service.url());
        let (status, _) = curl(&["-H", "host: tollgate.example", "-H", &bearer, &url]);
        let is_page = ["/", "/n/default"].contains(&path);
        assert_eq!(status == 421, is_page, "{path}: {status}");
    }
    let endpoint = Endpoint::from_shared(service.url().to_owned()).unwrap();
    let channel = endpoint.origin("http://tollgate.example".parse().unwrap()).connect_lazy();
    let mut handler = EventHandlerServiceClient::new(wire(channel, Some(&format!("Bearer {reader}"))));
    handler.get_handler_status(GetHandlerStatusRequest::default()).await.unwrap();
    service.stop().await;
    // A port that others reach has whatever name they know.
    let far = serve(&database, "0.0.0.0:0", &[]).await;
    let url = far.url().replace("0.0.0.0", "127.0.0.1");
    assert_eq!(get(&url, "/v1/handlerStatus", "tollgate.example"), 401);
    assert_eq!(get(&url, "/livez", "tollgate.example"), 200);
}

/// Sends bytes, and reads the status and the body of what comes.
async fn raw(url: &str, text: &str) -> (u16, String) {
    let address = url.trim_start_matches("http://").to_owned();
    let mut stream = TcpStream::connect(&address).await.unwrap();
    stream.write_all(text.as_bytes()).await.unwrap();
    let mut answer = Vec::new();
    let mut part = [0; 4096];
    wait_for("an answer", 10, async || {
        let read = stream.read(&mut part).await.unwrap_or(0);
        answer.extend_from_slice(&part[..read]);
        let text = String::from_utf8_lossy(&answer);
        (read == 0 || text.contains("\r\n\r\n")).then_some(())
    })
    .await;
    let text = String::from_utf8_lossy(&answer).into_owned();
    let status = text.split(' ').nth(1).and_then(|status| status.parse().ok());
    (status.unwrap_or_else(|| panic!("{text:?}")), text)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_may_stand_once_is_refused_twice() {
    let database = Database::new(Kind::Sqlite).await;
    let (one, two) = (key(&database, "one", "admin", None), key(&database, "two", "read", Some("default")));
    let service = Service::join(&database, &["--auth", "keys"]).await;
    let status = |path: &str, keys: &[&str]| {
        let headers: Vec<String> = keys.iter().map(|key| format!("authorization: Bearer {key}")).collect();
        let url = format!("{}{path}", service.url());
        let mut arguments = vec![url.as_str()];
        arguments.extend(headers.iter().flat_map(|header| ["-H", header]));
        curl(&arguments).0
    };
    wait_for("the keys", 10, async || (status("/v1/handlerStatus", &[&one]) == 200).then_some(())).await;
    for path in ["/v1/handlerStatus", "/v1/namespaces/default/policies", "/metrics"] {
        for keys in [[&one, &two], [&two, &one], [&one, &one]] {
            assert_eq!(status(path, &keys.map(String::as_str)), 401, "{path}");
        }
    }
    let post = format!("POST /v1/events/x:release HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer {one}\r\n");
    let (code, text) =
        raw(service.url(), &format!("{post}Authorization: Bearer {two}\r\nContent-Length: 0\r\n\r\n")).await;
    assert_eq!(code, 401, "{text}");
    service.stop().await;
    // Also where no name is asked for.
    let far = serve(&database, "0.0.0.0:0", &["--auth", "insecure"]).await;
    let url = far.url().replace("0.0.0.0", "127.0.0.1");
    for second in ["localhost", "evil.example"] {
        let (code, text) =
            raw(&url, &format!("GET /livez HTTP/1.1\r\nHost: localhost\r\nHost: {second}\r\n\r\n")).await;
        assert_eq!(code, 400, "{text}");
    }
}

async fn broken_requests_are_the_caller_s_fault(kind: Kind) {
    let database = Database::new(kind).await;
    let service = Service::start(&database).await;
    let head = "POST /v1/namespaces/default/policies?policyId=p HTTP/1.1\r\nHost: localhost\r\n\
                Content-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n";
    for chunk in ["zz\r\n", "2\r\n{}xx\r\n", "-1\r\n"] {
        let (code, text) = raw(service.url(), &format!("{head}{chunk}")).await;
        assert_eq!(code, 400, "{chunk:?}: {text}");
    }
    // What no database can hold is not looked for. The second page's position is a text as well.
    let page = "eyJwb3NpdGlvbiI6Ilx1MDAwMCIsImNoZWNrIjoieCJ9";
    for query in [
        "filter=label.k%3D%00".to_owned(),
        "filter=label.%00%3Dk".to_owned(),
        "filter=name%3D%22a%00%22".to_owned(),
        format!("pageToken={page}"),
    ] {
        for list in ["schedules", "policies"] {
            let url = format!("{}/v1/namespaces/default/{list}?{query}", service.url());
            let (code, body) = curl(&[&url]);
            assert_eq!(code, 400, "{list} {query}: {body}");
            assert!(body.contains("filter") || body.contains("page_token"), "{body}");
        }
    }
    service.stop().await;
}

/// A change cannot be noted in the log: try again later, which is no failure of the server's.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_log_that_somebody_holds_is_waited_for_or_said() {
    use sqlx::Connection as _;
    let database = Database::new(Kind::Postgres).await;
    let service = Service::start(&database).await;
    let post = |path: String, body: &str| {
        let url = format!("{}/v1/namespaces/default/{path}", service.url());
        let body = body.to_owned();
        let call = move || curl(&["-H", "content-type: application/json", "-d", &body, &url]);
        tokio::task::spawn_blocking(call)
    };
    let made = post("policies?policyId=p".to_owned(), "{\"maxInFlight\": 1}").await.unwrap();
    assert_eq!(made.0, 200, "{}", made.1);
    let mut holder = sqlx::PgConnection::connect(&database.url()).await.unwrap();
    sqlx::raw_sql("BEGIN; LOCK TABLE audit_log IN ACCESS EXCLUSIVE MODE").execute(&mut holder).await.unwrap();
    let calls: Vec<_> = (0..12)
        .map(|number| {
            let action = if number % 2 == 0 { "pause" } else { "resume" };
            post(format!("policies/p:{action}"), "{}")
        })
        .collect();
    let mut statuses = Vec::new();
    for call in calls {
        statuses.push(call.await.unwrap());
    }
    sqlx::raw_sql("ROLLBACK").execute(&mut holder).await.unwrap();
    let said = statuses.iter().filter(|(status, _)| *status == 503).count();
    assert!(said > 0, "{statuses:?}");
    assert!(statuses.iter().all(|(status, _)| *status != 500), "{statuses:?}");
    service.stop().await;
}

on_both_stores!(broken_requests_are_the_caller_s_fault);
