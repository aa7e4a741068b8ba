//! Several events in a request: a consumer that refuses some of them alone, and releases the others together.

use std::collections::{BTreeMap, BTreeSet};
use std::convert::Infallible;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use http_body_util::{BodyExt as _, Full};
use hyper::body::{Bytes, Incoming};
use hyper::{Request, Response};
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::sync::mpsc;
use tollgate_harness::resources::{ms, once, policy, soon};
use tollgate_harness::{Database, Kind, Service, http};
use tollgate_proto::v1::target::Target as TargetKind;
use tollgate_proto::v1::{
    BatchReleaseTokensRequest, HttpBatch, HttpTarget, ReleaseStatus, ReleaseTokenRequest, RetryPolicy,
    RunState, Schedule, Target,
};

const EVENTS: u32 = 300;
const AT_ONCE: usize = 40;
const TOGETHER: usize = 16;

/// What came: the indexes of each request, and at which attempts each event did; and what is worked on.
#[derive(Default)]
pub(crate) struct Notes {
    requests: Vec<Vec<u64>>,
    pub(crate) attempts: BTreeMap<u64, Vec<u64>>,
    working: BTreeSet<String>,
    most: usize,
}

/// Every seventh event is refused at its first attempt.
fn is_refused(event: &Value) -> bool {
    event["attempt"] == 1 && event["index"].as_u64().unwrap().is_multiple_of(7)
}

impl Notes {
    /// Takes a request in. The releases of what was taken, and the answer.
    fn take(&mut self, events: &[Value]) -> (Vec<ReleaseTokenRequest>, Value) {
        let (mut releases, mut named) = (Vec::new(), Vec::new());
        for event in events {
            let (id, index) = (event["id"].as_str().unwrap().to_owned(), event["index"].as_u64().unwrap());
            let attempt = event["attempt"].as_u64().unwrap();
            self.attempts.entry(index).or_default().push(attempt);
            if is_refused(event) {
                named.push(json!({"id": id, "status": "REFUSED", "message": "not yet", "retryAfterMs": 200}));
                continue;
            }
            self.working.insert(id.clone());
            let attempt = Some(u32::try_from(attempt).unwrap());
            releases.push(ReleaseTokenRequest { name: id, attempt, ..ReleaseTokenRequest::default() });
        }
        self.requests.push(events.iter().map(|event| event["index"].as_u64().unwrap()).collect());
        self.most = self.most.max(self.working.len());
        (releases, json!({"events": named}))
    }
}

/// A consumer; what it takes comes back to be released.
pub(crate) async fn consumer(
    notes: Arc<Mutex<Notes>>,
) -> (String, mpsc::UnboundedReceiver<Vec<ReleaseTokenRequest>>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/", listener.local_addr().unwrap());
    let (done, releases) = mpsc::unbounded_channel();
    let take = move |request: Request<Incoming>| {
        let (notes, done) = (notes.clone(), done.clone());
        async move {
            let kind = request.headers()["content-type"].to_str().unwrap().to_owned();
            assert!(kind.starts_with("application/cloudevents-batch+json"), "{kind}");
            let body = request.into_body().collect().await.unwrap().to_bytes();
            let events: Vec<Value> = serde_json::from_slice(&body).unwrap();
            let (taken, answer) = notes.lock().unwrap().take(&events);
            done.send(taken).unwrap();
            Ok::<_, Infallible>(Response::new(Full::new(Bytes::from(answer.to_string()))))
        }
    };
    tokio::spawn(http::accept(listener, move |stream| http::serve(stream, take.clone())));
    (url, releases)
}

async fn each_event_of_a_batch_has_its_own_end(kind: Kind) {
    let notes = Arc::new(Mutex::new(Notes::default()));
    let (url, mut releases) = consumer(notes.clone()).await;
    let database = Database::new(kind).await;
    let service = Service::start(&database).await;
    service.create_policy("few", policy(AT_ONCE as u32)).await.unwrap();
    let batch = HttpBatch { max_events: TOGETHER as i32, max_wait: Some(ms(20)), ..HttpBatch::default() };
    let http = HttpTarget { url, batch: Some(batch), ..HttpTarget::default() };
    let target = Target { target: Some(TargetKind::Http(http)), ..Target::default() };
    let retry = RetryPolicy { min_backoff: Some(ms(50)), ..RetryPolicy::default() };
    let schedule = Schedule { retry: Some(retry), ..once(soon(500), EVENTS, "few", target) };
    service.create_schedule("together", schedule).await.unwrap();

    let (handler, working) = (service.handler(), notes.clone());
    let releaser = tokio::spawn(async move {
        while let Some(taken) = releases.recv().await {
            tokio::time::sleep(Duration::from_millis(5)).await;
            // It ends before it is said.
            for release in &taken {
                working.lock().unwrap().working.remove(&release.name);
            }
            if taken.is_empty() {
                continue;
            }
            let request = BatchReleaseTokensRequest { releases: taken };
            let answer = handler.clone().batch_release_tokens(request).await.unwrap().into_inner();
            let released = |status| status == ReleaseStatus::Released;
            assert!(answer.responses.iter().all(|response| released(response.status())), "{answer:?}");
        }
    });
    let run = service.finished("together", 60).await;
    assert_eq!(run.state(), RunState::Finished, "{run:?}");
    assert_eq!(run.counts.unwrap().succeeded, EVENTS, "{run:?}");
    releaser.abort();
    let notes = notes.lock().unwrap();
    assert!(notes.most <= AT_ONCE, "{} at once", notes.most);
    assert!(notes.requests.iter().all(|indexes| indexes.len() <= TOGETHER), "{:?}", notes.requests);
    // Releases come back a few at a time, and what they let go goes at once.
    assert!(notes.requests.len() < EVENTS as usize * 3 / 4, "{} requests", notes.requests.len());
    assert!(notes.requests.iter().any(|indexes| indexes.len() == TOGETHER), "{:?}", notes.requests);
    // Those that were refused alone came again, and no other.
    for (index, attempts) in &notes.attempts {
        let wanted: &[u64] = if index.is_multiple_of(7) { &[1, 2] } else { &[1] };
        assert_eq!(attempts, wanted, "{index}");
    }
    assert_eq!(notes.attempts.len(), EVENTS as usize);
}

on_both_stores! { each_event_of_a_batch_has_its_own_end }
