//! The source that is a queue of SQS: a stop comes upon a poll.

use std::convert::Infallible;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use aws_sdk_sqs::config::{BehaviorVersion, Credentials, Region};
use aws_sdk_sqs::{Client, Config};
use aws_smithy_http_client::Builder;
use aws_smithy_http_client::tls::{Provider, rustls_provider::CryptoMode};
use http_body_util::{BodyExt as _, Full};
use hyper::body::{Bytes, Incoming};
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::TokioIo;
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::sync::Semaphore;
use tollgate_worker::{Event, Failure, Sqs, Worker};

use crate::Running;
use crate::fake::{Fake, until};

/// A queue that hands out one message, and is asked by one poll more, which it answers when it is told to.
struct Queue {
    url: String,
    polls: AtomicUsize,
    late: Semaphore,
    deleted: AtomicUsize,
    shown: Mutex<Vec<String>>,
}

impl Queue {
    async fn start() -> Arc<Self> {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let (polls, deleted) = (AtomicUsize::new(0), AtomicUsize::new(0));
        let queue = Arc::new(Self { url, polls, late: Semaphore::new(0), deleted, shown: Mutex::default() });
        let of_all = queue.clone();
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let queue = of_all.clone();
                tokio::spawn(async move {
                    let service = service_fn(|request| answer(queue.clone(), request));
                    // A worker that has gone.
                    let _ended = hyper::server::conn::http1::Builder::new()
                        .serve_connection(TokioIo::new(stream), service)
                        .await;
                });
            }
        });
        queue
    }

    fn source(&self) -> Sqs {
        let http = Builder::new().tls_provider(Provider::Rustls(CryptoMode::Ring)).build_https();
        let config = Config::builder()
            .behavior_version(BehaviorVersion::latest())
            .region(Region::new("eu-central-1"))
            .credentials_provider(Credentials::new("testing", "testing", None, None, "tests"))
            .endpoint_url(&self.url)
            .http_client(http)
            .build();
        Sqs::new(Client::from_conf(config), "queue")
    }

    async fn told(&self, call: &str, body: &Value) -> (u16, Value) {
        let receipt = body["ReceiptHandle"].as_str().unwrap_or_default();
        match call {
            "AmazonSQS.ReceiveMessage" if self.polls.fetch_add(1, SeqCst) == 0 => {
                (200, json!({"Messages": [message("before")]}))
            }
            "AmazonSQS.ReceiveMessage" => {
                self.late.acquire().await.unwrap().forget();
                (200, json!({"Messages": [message("gone"), message("late-1"), message("late-2")]}))
            }
            "AmazonSQS.DeleteMessage" => {
                self.deleted.fetch_add(1, SeqCst);
                (200, json!({}))
            }
            "AmazonSQS.ChangeMessageVisibility" if receipt == "gone" => {
                let code = "com.amazonaws.sqs#ReceiptHandleIsInvalid";
                (400, json!({"__type": code, "message": "no such message"}))
            }
            "AmazonSQS.ChangeMessageVisibility" if body["VisibilityTimeout"] == 0 => {
                self.shown.lock().unwrap().push(receipt.to_owned());
                (200, json!({}))
            }
            _ => (200, json!({})),
        }
    }
}

fn message(name: &str) -> Value {
    json!({"MessageId": name, "ReceiptHandle": name, "Body": json!({"id": name}).to_string()})
}

async fn answer(queue: Arc<Queue>, request: Request<Incoming>) -> Result<Response<Full<Bytes>>, Infallible> {
    let (head, body) = request.into_parts();
    let body: Value = serde_json::from_slice(&body.collect().await.unwrap().to_bytes()).unwrap();
    let call = head.headers.get("x-amz-target").unwrap().to_str().unwrap();
    let (status, said) = queue.told(call, &body).await;
    let mut answer = Response::new(Full::from(said.to_string()));
    *answer.status_mut() = status.try_into().unwrap();
    Ok(answer)
}

#[tokio::test]
async fn what_a_poll_brings_after_a_stop_is_shown_again() {
    let (fake, queue) = (Fake::start().await, Queue::start().await);
    let (works, lets) = (Arc::new(AtomicUsize::new(0)), Arc::new(Semaphore::new(0)));
    let (counted, let_go) = (works.clone(), lets.clone());
    let worker = Worker::new(queue.source(), move |_event: Event, _context| {
        let (works, lets) = (counted.clone(), let_go.clone());
        async move {
            works.fetch_add(1, SeqCst);
            lets.acquire().await.unwrap().forget();
            Ok::<(), Failure>(())
        }
    });
    let running = Running::start(worker.server(&fake.url).concurrency(3));
    until("a poll", || queue.polls.load(SeqCst) == 2).await;
    running.stop.stop();
    // Releases do not wait for the poll.
    lets.add_permits(1);
    until("the release of what was begun", || queue.deleted.load(SeqCst) == 1).await;
    queue.late.add_permits(1);
    running.end().await.unwrap();
    assert_eq!((works.load(SeqCst), fake.released("before").len()), (1, 1));
    assert_eq!(*queue.shown.lock().unwrap(), ["late-1", "late-2"]);
}

#[tokio::test]
async fn a_stop_waits_for_a_poll_no_longer_than_for_the_work() {
    let (fake, queue) = (Fake::start().await, Queue::start().await);
    let worker = Worker::new(queue.source(), async |_event: Event, _context| Ok::<(), Failure>(()));
    let running = Running::start(worker.server(&fake.url).drain_timeout(Duration::from_millis(200)));
    until("a poll", || queue.polls.load(SeqCst) == 2).await;
    let stopped = Instant::now();
    running.stop().await.unwrap();
    let took = stopped.elapsed();
    assert!(took > Duration::from_millis(150) && took < Duration::from_secs(5), "{took:?}");
}
