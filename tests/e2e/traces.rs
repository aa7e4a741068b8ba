//! Traces: a real collector gets the spans, and the consumer is told of the same trace.

use std::collections::{BTreeMap, BTreeSet};
use std::convert::Infallible;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use http_body_util::{BodyExt as _, Empty};
use hyper::body::{Bytes, Incoming};
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::TokioIo;
use opentelemetry_proto::tonic::collector::trace::v1::trace_service_server::{
    TraceService, TraceServiceServer,
};
use opentelemetry_proto::tonic::collector::trace::v1::{
    ExportTraceServiceRequest, ExportTraceServiceResponse,
};
use opentelemetry_proto::tonic::common::v1::KeyValue;
use opentelemetry_proto::tonic::common::v1::any_value::Value as Any;
use opentelemetry_proto::tonic::trace::v1::Span;
use serde_json::Value;
use tokio::net::TcpListener;
use tokio::task::JoinHandle;
use tokio_stream::wrappers::TcpListenerStream;
use tollgate_harness::resources::{ms, once, policy, soon, sqs};
use tollgate_harness::{Database, Emulator, Kind, Service, free_port, wait_for};
use tollgate_proto::v1::target::Target as TargetKind;
use tollgate_proto::v1::{HttpTarget, ReleaseTokenRequest, RetryPolicy, Schedule, Target};

use crate::metrics::page;

/// A collector; it ends when dropped.
struct Collector {
    desk: Desk,
    url: String,
    task: JoinHandle<()>,
}

/// Spans, and the services that they are of.
#[derive(Clone, Default)]
struct Desk(Arc<Mutex<Vec<Span>>>, Arc<Mutex<BTreeSet<String>>>);

#[tonic::async_trait]
impl TraceService for Desk {
    async fn export(
        &self,
        request: tonic::Request<ExportTraceServiceRequest>,
    ) -> Result<tonic::Response<ExportTraceServiceResponse>, tonic::Status> {
        for resource in request.into_inner().resource_spans {
            let attributes = resource.resource.unwrap().attributes;
            self.1.lock().unwrap().insert(text(&attributes, "service.name"));
            self.0.lock().unwrap().extend(resource.scope_spans.into_iter().flat_map(|scope| scope.spans));
        }
        Ok(tonic::Response::new(ExportTraceServiceResponse::default()))
    }
}

impl Collector {
    async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let desk = Desk::default();
        let server = tonic::transport::Server::builder().add_service(TraceServiceServer::new(desk.clone()));
        let task = tokio::spawn(async move {
            server.serve_with_incoming(TcpListenerStream::new(listener)).await.unwrap();
        });
        Self { desk, url, task }
    }

    fn spans(&self) -> Vec<Span> {
        self.desk.0.lock().unwrap().clone()
    }

    /// The spans of a trace, by name; several of one name in the order of their times.
    fn of_trace(&self, trace_id: &str) -> BTreeMap<String, Vec<Span>> {
        let mut found: BTreeMap<String, Vec<Span>> = BTreeMap::new();
        for span in self.spans().into_iter().filter(|span| hex(&span.trace_id) == trace_id) {
            found.entry(span.name.clone()).or_default().push(span);
        }
        found.values_mut().for_each(|spans| spans.sort_by_key(|span| span.start_time_unix_nano));
        found
    }
}

impl Drop for Collector {
    fn drop(&mut self) {
        self.task.abort();
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn text(attributes: &[KeyValue], key: &str) -> String {
    let found = attributes.iter().find(|attribute| attribute.key == key);
    match found.and_then(|attribute| attribute.value.clone()?.value) {
        Some(Any::StringValue(text)) => text,
        Some(Any::IntValue(number)) => number.to_string(),
        other => panic!("{key} is {other:?} in {attributes:?}"),
    }
}

/// One delivery as it came: the header, and the event.
#[derive(Clone, Debug)]
struct Came {
    traceparent: Option<String>,
    event: Value,
}

impl Came {
    /// Trace and span.
    fn ids(&self) -> (String, String) {
        let parts: Vec<&str> = self.traceparent.as_deref().unwrap().split('-').collect();
        assert_eq!(parts[0], "00");
        (parts[1].to_owned(), parts[2].to_owned())
    }

    fn is(&self, index: u64, attempt: u64) -> bool {
        self.event["index"] == index && self.event["attempt"] == attempt
    }

    /// Refused: the first attempt of every event with an odd index.
    fn is_refused(&self) -> bool {
        self.event["attempt"] == 1 && self.event["index"].as_u64().unwrap() % 2 == 1
    }
}

async fn consumer() -> (String, Arc<Mutex<Vec<Came>>>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/", listener.local_addr().unwrap());
    let came: Arc<Mutex<Vec<Came>>> = Arc::default();
    let notes = came.clone();
    let take = move |request: Request<Incoming>| {
        let notes = notes.clone();
        async move {
            let header = request.headers().get("traceparent").map(|value| value.to_str().unwrap().to_owned());
            let body = request.into_body().collect().await.unwrap().to_bytes();
            let came = Came { traceparent: header, event: serde_json::from_slice(&body).unwrap() };
            let status = if came.is_refused() { 500 } else { 202 };
            notes.lock().unwrap().push(came);
            Ok::<_, Infallible>(Response::builder().status(status).body(Empty::<Bytes>::new()).unwrap())
        }
    };
    tokio::spawn(async move {
        loop {
            let (stream, _) = listener.accept().await.unwrap();
            let http = hyper::server::conn::http1::Builder::new();
            tokio::spawn(http.serve_connection(TokioIo::new(stream), service_fn(take.clone())));
        }
    });
    (url, came)
}

fn schedule(url: &str, events: u32) -> Schedule {
    let http = TargetKind::Http(HttpTarget { url: url.to_owned(), ..HttpTarget::default() });
    let retry = RetryPolicy { min_backoff: Some(ms(100)), ..RetryPolicy::default() };
    let target = Target { target: Some(http), ..Target::default() };
    Schedule { retry: Some(retry), ..once(soon(500), events, "gentle", target) }
}

/// Releases what came, as a consumer does that has a span of its own.
async fn release(service: &Service, came: &Came, span_id: &str) {
    let release = ReleaseTokenRequest {
        name: came.event["id"].as_str().unwrap().to_owned(),
        attempt: came.event["attempt"].as_u64().map(|attempt| attempt as u32),
        ..ReleaseTokenRequest::default()
    };
    let mut request = tonic::Request::new(release);
    let parent = format!("00-{}-{span_id}-01", came.ids().0);
    request.metadata_mut().insert("traceparent", parent.parse().unwrap());
    service.handler().release_token(request).await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_event_is_one_trace_from_emission_to_release() {
    let (collector, database) = (Collector::start().await, Database::new(Kind::Sqlite).await);
    let (url, came) = consumer().await;
    let service = Service::start_with(&database, &["--otlp-endpoint", &collector.url]).await;
    service.create_policy("gentle", policy(1)).await.unwrap();
    service.create_schedule("traced", schedule(&url, 2)).await.unwrap();
    // In turn, as there is one token; the second one at its second attempt.
    for (index, attempt, span_id) in [(0, 1, "00000000000000a0"), (1, 2, "00000000000000a1")] {
        let taken = wait_for("a delivery that is taken", 20, async || {
            came.lock().unwrap().iter().find(|came| came.is(index, attempt)).cloned()
        })
        .await;
        release(&service, &taken, span_id).await;
    }
    let run = service.finished("traced", 20).await;
    // What has not been exported yet is exported as it stops.
    service.stop().await;

    let came = came.lock().unwrap().clone();
    assert_eq!(came.len(), 3, "{came:?}");
    let traces: BTreeSet<String> = came.iter().map(|came| came.ids().0).collect();
    assert_eq!(traces.len(), 2, "two events, two traces, whatever the attempt: {came:?}");
    for delivery in &came {
        assert_eq!(delivery.event["traceparent"].as_str(), delivery.traceparent.as_deref());
        assert!(delivery.traceparent.as_deref().unwrap().ends_with("-01"), "{delivery:?}");
    }
    let emitted: Vec<Span> = collector.spans().into_iter().filter(|span| span.name == "emit").collect();
    assert_eq!(emitted.len(), 1, "{emitted:?}");
    assert_eq!(text(&emitted[0].attributes, "tollgate.run"), run.name.rsplit('/').next().unwrap());
    for (index, attempts, span_id) in [(0, "1", "00000000000000a0"), (1, "2", "00000000000000a1")] {
        let of_event: Vec<&Came> = came.iter().filter(|came| came.event["index"] == index).collect();
        let spans = collector.of_trace(&of_event[0].ids().0);
        check_trace(&spans, &of_event, &emitted[0]);
        assert_eq!(text(&spans["event"][0].attributes, "tollgate.attempt"), attempts);
        assert_eq!(hex(&spans["release"][0].parent_span_id), span_id, "the consumer's own span");
    }
    assert_eq!(*collector.desk.1.lock().unwrap(), BTreeSet::from(["tollgate".to_owned()]));
}

/// All steps of one event, in their places.
fn check_trace(spans: &BTreeMap<String, Vec<Span>>, came: &[&Came], emitted: &Span) {
    let counts: Vec<(&str, usize)> = spans.iter().map(|(name, spans)| (name.as_str(), spans.len())).collect();
    let attempts = came.len();
    assert_eq!(
        counts,
        [("acquire", attempts), ("event", 1), ("fire", attempts), ("release", 1), ("wait", 1)]
    );
    let root = &spans["event"][0];
    assert!(root.parent_span_id.is_empty(), "{root:?}");
    assert_eq!(root.links.len(), 1);
    assert_eq!((&root.links[0].trace_id, &root.links[0].span_id), (&emitted.trace_id, &emitted.span_id));
    assert_eq!(text(&root.attributes, "tollgate.outcome"), "succeeded");
    for span in ["wait", "acquire", "fire"].iter().flat_map(|name| &spans[*name]) {
        assert_eq!(span.parent_span_id, root.span_id, "{span:?}");
        assert!(span.start_time_unix_nano <= span.end_time_unix_nano, "{span:?}");
        assert!(root.start_time_unix_nano <= span.start_time_unix_nano, "{span:?}");
    }
    // What the consumer was told is the span of that very delivery.
    for (span, came) in spans["fire"].iter().zip(came) {
        assert_eq!(hex(&span.span_id), came.ids().1);
        assert_eq!(text(&span.attributes, "tollgate.event"), came.event["id"].as_str().unwrap());
        let is_error = span.status.as_ref().is_some_and(|status| status.code == 2);
        assert_eq!(is_error, came.is_refused(), "{span:?}");
    }
    let (wait, acquire, fire) = (&spans["wait"][0], &spans["acquire"][0], &spans["fire"][0]);
    assert_eq!(wait.end_time_unix_nano, acquire.start_time_unix_nano);
    assert!(acquire.end_time_unix_nano <= fire.start_time_unix_nano, "sent before it was durable");
    // Its start, not its end: the consumer here releases while its answer is still under way.
    assert!(fire.start_time_unix_nano <= root.end_time_unix_nano);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_not_sampled_is_said_and_not_exported() {
    let (collector, database) = (Collector::start().await, Database::new(Kind::Sqlite).await);
    let (url, came) = consumer().await;
    let none = ["--otlp-endpoint", collector.url.as_str(), "--trace-ratio", "0"];
    for (flags, is_told, id) in [(none.as_slice(), true, "unsampled"), (&[], false, "off")] {
        came.lock().unwrap().clear();
        let service = Service::start_with(&database, flags).await;
        service.create_policy(id, policy(1)).await.unwrap();
        let schedule = Schedule { policy: id.to_owned(), ..schedule(&url, 1) };
        service.create_schedule(id, schedule).await.unwrap();
        let delivery = wait_for("a delivery", 20, async || came.lock().unwrap().first().cloned()).await;
        assert_eq!(delivery.traceparent.is_some(), is_told, "{delivery:?}");
        assert!(delivery.traceparent.as_ref().is_none_or(|given| given.ends_with("-00")), "{delivery:?}");
        assert_eq!(delivery.event["traceparent"].as_str(), delivery.traceparent.as_deref());
        let name = delivery.event["id"].as_str().unwrap().to_owned();
        let release = ReleaseTokenRequest { name, ..ReleaseTokenRequest::default() };
        service.handler().release_token(release).await.unwrap();
        service.finished(id, 20).await;
        service.stop().await;
    }
    let names: BTreeSet<String> = collector.spans().into_iter().map(|span| span.name).collect();
    assert!(names.is_subset(&BTreeSet::from(["emit".to_owned()])), "{names:?}");
}

/// What `/metrics` says of spans.
async fn spans(service: &Service, outcome: &str) -> f64 {
    let metrics = page(service, "/metrics", "text/plain").await.body;
    let series = format!("tollgate_trace_spans_total{{outcome=\"{outcome}\"}} ");
    metrics.lines().find_map(|line| line.strip_prefix(&series)).unwrap().parse().unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_collector_that_is_away_holds_nothing_up() {
    let database = Database::new(Kind::Sqlite).await;
    let (url, came) = consumer().await;
    let nowhere = format!("http://127.0.0.1:{}", free_port().unwrap());
    let service = Service::start_with(&database, &["--otlp-endpoint", &nowhere]).await;
    service.create_policy("gentle", policy(5)).await.unwrap();
    service.create_schedule("traced", schedule(&url, 5)).await.unwrap();
    wait_for("all events", 20, async || {
        (came.lock().unwrap().iter().filter(|came| !came.is_refused()).count() == 5).then_some(())
    })
    .await;
    wait_for("spans that are given up", 60, async || (spans(&service, "dropped").await > 0.0).then_some(()))
        .await;
    assert!(spans(&service, "exported").await < 0.5);
    tokio::time::sleep(Duration::from_millis(500)).await;
    let log = service.log();
    assert_eq!(
        log.matches("the collector does not take spans").count(),
        1,
        "one line for one failure: {log}"
    );
    service.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_message_carries_it_as_an_attribute() {
    let (collector, database) = (Collector::start().await, Database::new(Kind::Sqlite).await);
    let emulator = Emulator::start().await;
    let service = Service::start_with(&database, &["--otlp-endpoint", &collector.url]).await;
    let queue_url = emulator.queue("traced").await;
    service.create_policy("gentle", policy(1)).await.unwrap();
    let schedule = once(soon(500), 1, "gentle", sqs(&queue_url, &emulator.endpoint));
    service.create_schedule("traced", schedule).await.unwrap();
    let client = emulator.client();
    let message = wait_for("a message", 20, async || {
        let received = client.receive_message().queue_url(&queue_url).message_attribute_names("All");
        received.wait_time_seconds(1).send().await.unwrap().messages.unwrap_or_default().pop()
    })
    .await;
    let event: Value = serde_json::from_str(message.body().unwrap()).unwrap();
    let given = message.message_attributes().unwrap()["traceparent"].string_value().unwrap();
    assert_eq!(event["traceparent"], given);
    service.stop().await;
    let trace_id = given.split('-').nth(1).unwrap();
    assert_eq!(collector.of_trace(trace_id)["fire"].len(), 1);
}
