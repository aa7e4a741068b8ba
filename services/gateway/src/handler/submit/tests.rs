//! Bodies of items against a service that writes down what it gets.

use std::convert::Infallible;
use std::io::Write as _;
use std::pin::Pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use axum::Router;
use axum::routing::any;
use flate2::Compression;
use flate2::write::GzEncoder;
use http::{Method, Request};
use serde_json::json;
use tokio::sync::Semaphore;
use tollgate_auth::{Door, Mode};
use tollgate_metrics::Metrics;
use tonic::Streaming;
use tonic::server::ClientStreamingService;
use tonic::service::Routes;

use super::*;
use crate::bodies::Bodies;
use crate::table::{Found, Table};

/// What a service has seen of one stream.
#[derive(Clone, Debug, Default, PartialEq)]
struct Seen {
    header: Option<v1::SubmissionHeader>,
    items: Vec<(String, String, u32)>,
    messages: usize,
    /// Whether it came to its end; none while it goes on.
    ended: Option<bool>,
}

/// A service that takes streams.
#[derive(Clone, Default)]
struct Fake {
    seen: Arc<Mutex<Vec<Seen>>>,
    /// What it answers instead of reading.
    refusal: Option<Status>,
    /// Whether it takes the header and nothing more.
    is_deaf: bool,
}

impl Fake {
    fn seen(&self) -> Vec<Seen> {
        self.seen.lock().unwrap().clone()
    }

    fn change(&self, at: usize, change: impl FnOnce(&mut Seen)) {
        change(&mut self.seen.lock().unwrap()[at]);
    }

    async fn take(self, mut stream: Streaming<v1::SubmitItemsRequest>) -> Result<v1::Submission, Status> {
        if let Some(refusal) = self.refusal {
            // It knows whom it refuses by the header.
            return stream.message().await.and(Err(refusal));
        }
        let at = {
            let mut seen = self.seen.lock().unwrap();
            seen.push(Seen::default());
            seen.len() - 1
        };
        loop {
            let message = stream.message().await;
            let Ok(Some(message)) = message else {
                self.change(at, |seen| seen.ended = Some(message.is_ok()));
                return message
                    .map(|_| v1::Submission { name: "made".to_owned(), ..v1::Submission::default() });
            };
            self.change(at, |seen| match message.part.unwrap() {
                MessagePart::Header(header) => seen.header = Some(header),
                MessagePart::Items(items) => {
                    seen.messages += 1;
                    seen.items.extend(items.items.into_iter().map(|item| (item.data, item.key, item.units)));
                }
            });
            if self.is_deaf {
                std::future::pending::<()>().await;
            }
        }
    }

    fn gateway(&self) -> Gateway {
        let fake = self.clone();
        let serve = move |request: Request<Body>| {
            let fake = fake.clone();
            async move {
                let codec = tollgate_proto::codec::Codec::<v1::Submission, v1::SubmitItemsRequest>::default();
                tonic::server::Grpc::new(codec).client_streaming(fake, request).await.map(Body::new)
            }
        };
        let router = Router::new().route("/tollgate.v1.ScheduleMasterService/SubmitItems", any(serve));
        Gateway {
            table: Arc::new(Table::new(tollgate_proto::descriptor_pool()).unwrap()),
            grpc: Routes::from(router).prepare(),
            door: Door::new(Mode::Open, Duration::from_secs(30)),
            bodies: Bodies::new(4 << 20),
            uploads: Uploads {
                turn_max: Duration::from_millis(500),
                silence_max: SILENCE,
                ..Uploads::default()
            },
            reading: Arc::new(Semaphore::new(1)),
            body_max_bytes: 4 << 20,
            metrics: Metrics::default(),
        }
    }
}

impl ClientStreamingService<v1::SubmitItemsRequest> for Fake {
    type Response = v1::Submission;
    type Future = Pin<Box<dyn Future<Output = Result<tonic::Response<v1::Submission>, Status>> + Send>>;

    fn call(&mut self, request: tonic::Request<Streaming<v1::SubmitItemsRequest>>) -> Self::Future {
        let fake = self.clone();
        Box::pin(async move { fake.take(request.into_inner()).await.map(tonic::Response::new) })
    }
}

const SILENCE: Duration = Duration::from_millis(1_500);
const PATH: &str = "/v1/namespaces/a/schedules/s:submit";

/// Sends a body; gives the HTTP status and the answer.
async fn post(
    gateway: &Gateway,
    query: &str,
    headers: &[(&str, &str)],
    body: Body,
    caller: &str,
) -> (u16, Value) {
    let mut request = Request::builder().method(Method::POST).uri(format!("{PATH}{query}"));
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    let (head, body) = request.body(body).unwrap().into_parts();
    let table = gateway.table.clone();
    let Found::Route(route, path) = table.find(&Method::POST, PATH) else { panic!("no route") };
    let answer = answer(gateway, route, &path, head, body, Caller::Namespace(caller.to_owned())).await;
    let status = answer.status().as_u16();
    let body = answer.into_body().collect().await.unwrap().to_bytes();
    (status, serde_json::from_slice(&body).unwrap())
}

const NDJSON: (&str, &str) = ("content-type", "application/x-ndjson");

fn lines(count: usize) -> String {
    (0..count).map(|n| format!("{{\"n\":{n}}}\n")).collect()
}

/// A body that comes piece by piece, and the bytes of it that have been taken.
fn pieces(
    pieces: impl Iterator<Item = Result<Bytes, std::io::Error>> + Send + 'static,
) -> (Body, Arc<AtomicUsize>) {
    let taken = Arc::new(AtomicUsize::new(0));
    let count = taken.clone();
    let pieces = futures::stream::iter(pieces.inspect(move |piece| {
        count.fetch_add(piece.as_ref().map_or(0, Bytes::len), Ordering::Relaxed);
    }));
    (Body::from_stream(pieces), taken)
}

/// A body that says something, and then nothing more.
fn silent(text: &'static str) -> Body {
    let first = futures::stream::iter([Ok::<_, Infallible>(Bytes::from_static(text.as_bytes()))]);
    Body::from_stream(first.chain(futures::stream::pending()))
}

#[tokio::test]
async fn each_format_becomes_a_header_and_items() {
    let fake = Fake::default();
    let gateway = fake.gateway();
    let mut packer = GzEncoder::new(Vec::new(), Compression::default());
    packer.write_all(b"t,n\nx,1\n").unwrap();
    let packed = packer.finish().unwrap();
    let query = "?requestId=r1&launch_time=2026-03-01T00:00:00Z&priority=3&payload=%7B%22a%22:1%7D&keyField=t&unitsField=n&resumeFrom=4";
    for (kind, body) in [
        ("application/x-ndjson", b"{\"t\":\"x\",\"n\":\"1\"}\n".to_vec()),
        ("application/jsonl; charset=utf-8", b"{\"t\":\"x\",\"n\":\"1\"}".to_vec()),
        ("Application/JSON", b"[{\"t\":\"x\",\"n\":\"1\"}]".to_vec()),
        ("text/csv", b"t,n\nx,1\n".to_vec()),
        ("text/csv", packed),
    ] {
        let encoding = if body.starts_with(&[0x1f]) { "gzip" } else { "identity" };
        let headers = [("content-type", kind), ("content-encoding", encoding)];
        let (status, answer) = post(&gateway, query, &headers, Body::from(body), "a").await;
        assert_eq!((status, &answer["name"]), (200, &json!("made")), "{kind}: {answer}");
        let seen = fake.seen().pop().unwrap();
        let header = seen.header.unwrap();
        assert_eq!((header.name.as_str(), header.request_id.as_str()), ("namespaces/a/schedules/s", "r1"));
        assert_eq!((header.priority, header.resume_from), (Some(3), 4));
        assert_eq!(header.launch_time.unwrap().seconds, 1_772_323_200);
        assert!(header.payload.is_some());
        assert_eq!(seen.items, [("{\"t\":\"x\",\"n\":\"1\"}".to_owned(), "x".to_owned(), 1)], "{kind}");
        assert_eq!(seen.ended, Some(true));
    }
    let body = Body::from("{\"data\": 1.50, \"key\": \"k\", \"units\": 12}");
    assert_eq!(post(&gateway, "?wrapped=true", &[NDJSON], body, "a").await.0, 200);
    assert_eq!(fake.seen().pop().unwrap().items, [("1.50".to_owned(), "k".to_owned(), 12)]);
}

#[tokio::test]
async fn what_is_not_allowed_is_named_before_anything_is_sent() {
    let fake = Fake::default();
    let gateway = fake.gateway();
    let kind = |kind| [("content-type", kind)];
    for (query, headers, status, part) in [
        ("", &[][..], 415, "content-type"),
        ("", &kind("application/x-www-form-urlencoded")[..], 415, "application/x-ndjson"),
        ("", &[NDJSON, ("content-encoding", "br")][..], 415, "content-encoding"),
        (
            "",
            &[NDJSON, ("content-encoding", "gzip"), ("content-encoding", "gzip")][..],
            415,
            "content-encoding",
        ),
        (
            "?colour=red",
            &[NDJSON],
            400,
            "colour: no such query parameter, expected hold, keyField, key_field, launchTime",
        ),
        ("?name=x", &[NDJSON][..], 400, "name: no such query parameter"),
        ("?priority=many", &[NDJSON][..], 400, "priority: "),
        ("?launchTime=now", &[NDJSON][..], 400, "launch_time: "),
        ("?payload={", &[NDJSON][..], 400, "payload: "),
        ("?keyField=a&key_field=b", &[NDJSON][..], 400, "key_field: expected one"),
        ("?unitsField=a&units_field=b", &[NDJSON][..], 400, "units_field: expected one"),
        ("?wrapped=true&unitsField=n", &[NDJSON][..], 400, "units_field: not beside wrapped"),
        ("?wrapped=1", &[NDJSON][..], 400, "wrapped: \"1\" is not allowed, expected true or false"),
        ("?wrapped=true", &kind("text/csv")[..], 400, "wrapped: not with CSV"),
    ] {
        let (answered, answer) = post(&gateway, query, headers, Body::from(lines(1)), "a").await;
        assert_eq!(answered, status, "{query} {answer}");
        assert!(answer["message"].as_str().unwrap().contains(part), "{query} {answer}");
    }
    assert_eq!(fake.seen(), []);
}

#[tokio::test]
async fn what_is_no_number_of_tokens_is_told_with_its_line() {
    let fake = Fake::default();
    let body = Body::from("{\"n\":1}\n{\"n\":0}\n");
    let (status, answer) = post(&fake.gateway(), "?units_field=n", &[NDJSON], body, "a").await;
    let said = "line 2: n: 0 is not allowed, expected a whole number from 1 to 1000";
    assert_eq!((status, answer["message"].as_str()), (400, Some(said)), "{answer}");
    assert_ne!(fake.seen()[0].ended, Some(true));
}

/// The one end that a stream has is that of a body which is whole.
#[tokio::test]
async fn a_body_that_breaks_off_or_is_refused_is_no_end_of_the_stream() {
    let fake = Fake::default();
    let gateway = fake.gateway();
    let many = lines(20_000);
    let (whole, cut) = (Bytes::from(many.clone()), Bytes::from(many.clone()).slice(..many.len() / 2));
    let broken = || Err(std::io::ErrorKind::ConnectionReset.into());
    let (body, _) = pieces([Ok(cut), broken()].into_iter());
    let (status, answer) = post(&gateway, "", &[NDJSON], body, "a").await;
    assert_eq!((status, answer["message"].as_str().unwrap().contains("broken off")), (400, true), "{answer}");
    let body = Body::from([&whole[..], b"{\"n\": \n"].concat());
    let (status, answer) = post(&gateway, "", &[NDJSON], body, "a").await;
    assert_eq!(status, 400, "{answer}");
    let violation = &answer["details"][0]["fieldViolations"][0];
    let expected =
        json!({"field": "line 20001", "description": "not JSON: EOF while parsing a value at column 5"});
    assert_eq!(
        (&violation["field"], &violation["description"]),
        (&expected["field"], &expected["description"]),
        "{answer}"
    );
    let packed = {
        let mut packer = GzEncoder::new(Vec::new(), Compression::default());
        packer.write_all(&whole).unwrap();
        packer.finish().unwrap()
    };
    let body = Body::from(packed[..packed.len() - 3].to_vec());
    let (status, answer) = post(&gateway, "", &[NDJSON, ("content-encoding", "gzip")], body, "a").await;
    assert_eq!((status, answer["message"].as_str().unwrap().contains("cut off")), (400, true), "{answer}");
    let seen = fake.seen();
    assert_eq!(seen.len(), 3);
    for seen in seen {
        assert!(seen.ended == Some(false) && seen.messages > 1, "{:?} after {}", seen.ended, seen.messages);
    }
}

#[tokio::test]
async fn a_refusal_does_not_wait_for_the_end_of_the_body() {
    let fake = Fake { refusal: Some(Status::not_found("no such schedule")), ..Fake::default() };
    let line = Bytes::from("{\"n\": 1}\n".repeat(1_000));
    let (body, taken) = pieces(std::iter::repeat_with(move || Ok(line.clone())));
    let (status, answer) = post(&fake.gateway(), "", &[NDJSON], body, "a").await;
    assert_eq!((status, &answer["message"]), (404, &json!("no such schedule")));
    assert!(taken.load(Ordering::Relaxed) < 20 << 20, "what is refused is read on for a while only");
    // Who names nothing is told that, whatever the body is.
    for _ in 0..20 {
        let (status, answer) = post(&fake.gateway(), "", &[NDJSON], Body::from("{"), "a").await;
        assert_eq!((status, &answer["message"]), (404, &json!("no such schedule")));
    }
}

#[tokio::test]
async fn a_body_is_read_no_faster_than_its_items_are_taken() {
    let fake = Fake { is_deaf: true, ..Fake::default() };
    let gateway = fake.gateway();
    let line = Bytes::from("{\"n\": 1}\n".repeat(7_000));
    let (body, taken) = pieces(std::iter::repeat_with(move || Ok(line.clone())));
    let posted = post(&gateway, "", &[NDJSON], body, "a");
    assert!(tokio::time::timeout(Duration::from_secs(1), posted).await.is_err());
    let taken = taken.load(Ordering::Relaxed);
    assert!(taken < 2 << 20, "{taken} bytes of an endless body are in memory");
}

#[tokio::test]
async fn a_body_that_says_nothing_is_given_up() {
    let fake = Fake::default();
    let (status, answer) = post(&fake.gateway(), "", &[NDJSON], silent("{\"n\": 1}\n"), "a").await;
    assert_eq!((status, &answer["code"]), (408, &json!(4)), "{answer}");
    assert_eq!(fake.seen()[0].ended, Some(false));
}

#[tokio::test]
async fn one_caller_leaves_turns_to_the_others() {
    let fake = Fake::default();
    let gateway = fake.gateway();
    let mut slow = Vec::new();
    for caller in ["a", "a", "a", "a", "b"] {
        let gateway = gateway.clone();
        slow.push(tokio::spawn(async move { post(&gateway, "", &[NDJSON], silent("1\n"), caller).await }));
    }
    while fake.seen().len() < 5 {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    let begun = tollgate_clock::instant_now();
    let one_more = async {
        let answer = post(&gateway, "", &[NDJSON], Body::from("1\n"), "a").await;
        (answer, begun.elapsed())
    };
    let neighbour = async {
        let answer = post(&gateway, "", &[NDJSON], Body::from("1\n"), "b").await;
        (answer, begun.elapsed())
    };
    let (((status, answer), refused), (neighbour, took)) = tokio::join!(one_more, neighbour);
    // It has not waited for a turn.
    assert_eq!((neighbour.0, took < refused), (200, true), "{neighbour:?} after {took:?}, not {refused:?}");
    assert_eq!((status, &answer["code"]), (429, &json!(8)), "{answer}");
    // All have their turn again once the silent ones have been given up.
    for slow in slow {
        assert_eq!(slow.await.unwrap().0, 408);
    }
    assert_eq!(post(&gateway, "", &[NDJSON], Body::from("1\n"), "a").await.0, 200);
}
