//! As much of Tollgate as a worker sees: events to hand out, and what it was told.

use std::collections::HashMap;
use std::convert::Infallible;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use http_body_util::{BodyExt as _, Full};
use hyper::body::{Bytes, Incoming};
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::TokioIo;
use serde_json::{Value, json};
use tokio::net::TcpListener;

type Refuse = Box<dyn FnMut(&str) -> Option<(u16, Value)> + Send>;

#[derive(Default)]
pub(crate) struct Books {
    pub(crate) events: Vec<Value>,
    pub(crate) asks: Vec<Value>,
    pub(crate) releases: HashMap<String, Vec<Value>>,
    pub(crate) beats: HashMap<String, usize>,
    pub(crate) keys: Vec<String>,
    /// Says what a call is refused with; none where it goes on.
    pub(crate) refuse: Option<Refuse>,
}

#[derive(Clone)]
pub(crate) struct Fake {
    pub(crate) url: String,
    books: Arc<Mutex<Books>>,
}

impl Fake {
    pub(crate) async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let books = Arc::new(Mutex::new(Books::default()));
        let of_all = books.clone();
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let books = of_all.clone();
                tokio::spawn(async move {
                    let service = service_fn(|request| answer(books.clone(), request));
                    // A worker that has gone.
                    let _ended = hyper::server::conn::http1::Builder::new()
                        .serve_connection(TokioIo::new(stream), service)
                        .await;
                });
            }
        });
        Self { url, books }
    }

    pub(crate) fn books(&self) -> MutexGuard<'_, Books> {
        self.books.lock().unwrap()
    }

    pub(crate) fn put(&self, id: &str, attempt: u32, ttl: Option<&str>) {
        let event = json!({"id": id, "attempt": attempt, "index": 7, "count": 9, "data": {"n": 1}});
        let mut given = json!({"name": id, "attempt": attempt, "event": event.to_string()});
        if let Some(ttl) = ttl {
            given["tokenTtl"] = ttl.into();
        }
        self.books().events.push(given);
    }

    pub(crate) fn refuse(&self, refuse: impl FnMut(&str) -> Option<(u16, Value)> + Send + 'static) {
        self.books().refuse = Some(Box::new(refuse));
    }

    /// Puts an event whose token has gone, with a heartbeat due after 20 ms if it had one.
    pub(crate) fn put_on_response(&self, id: &str, index: Value) {
        let event = json!({"id": id, "release": "on_response", "index": index});
        let given = json!({"name": id, "attempt": 1, "tokenTtl": "0.060s", "event": event.to_string()});
        self.books().events.push(given);
    }

    /// Refuses all calls but polls, as of events that hold no token, and counts them.
    pub(crate) fn hold_nothing(&self) -> Arc<AtomicUsize> {
        let calls = Arc::new(AtomicUsize::new(0));
        let counted = calls.clone();
        self.refuse(move |path| {
            let is_poll = path.ends_with(":acquire");
            counted.fetch_add(usize::from(!is_poll), SeqCst);
            (!is_poll).then(|| (400, json!({"code": 9, "message": "the event holds no token"})))
        });
        calls
    }

    pub(crate) fn released(&self, id: &str) -> Vec<Value> {
        self.books().releases.get(id).cloned().unwrap_or_default()
    }
}

async fn answer(
    books: Arc<Mutex<Books>>,
    request: Request<Incoming>,
) -> Result<Response<Full<Bytes>>, Infallible> {
    let (head, body) = request.into_parts();
    let body: Value = serde_json::from_slice(&body.collect().await.unwrap().to_bytes()).unwrap();
    let path = head.uri.path().to_owned();
    let refused = {
        let mut books = books.lock().unwrap();
        let key = head.headers.get("authorization").map(|key| key.to_str().unwrap().to_owned());
        books.keys.extend(key);
        books.refuse.as_mut().and_then(|refuse| refuse(&path))
    };
    let (status, said) = match refused {
        Some(refused) => refused,
        None => (200, told(&books, &path, body).await),
    };
    let mut answer = Response::new(Full::from(said.to_string()));
    *answer.status_mut() = status.try_into().unwrap();
    Ok(answer)
}

async fn told(books: &Mutex<Books>, path: &str, body: Value) -> Value {
    let (name, call) = path.rsplit_once('/').unwrap().1.split_once(':').unwrap();
    match call {
        "acquire" => {
            let max = usize::try_from(body["maxEvents"].as_u64().unwrap()).unwrap();
            books.lock().unwrap().asks.push(body);
            let end = Instant::now() + Duration::from_secs(1);
            while Instant::now() < end {
                {
                    let mut books = books.lock().unwrap();
                    if !books.events.is_empty() {
                        let count = max.min(books.events.len());
                        return json!({"events": books.events.drain(..count).collect::<Vec<_>>()});
                    }
                }
                tokio::time::sleep(Duration::from_millis(2)).await;
            }
            json!({})
        }
        "release" => {
            books.lock().unwrap().releases.entry(name.to_owned()).or_default().push(body);
            json!({"status": "RELEASED"})
        }
        "extend" => {
            *books.lock().unwrap().beats.entry(name.to_owned()).or_default() += 1;
            json!({"remaining": "0.300s"})
        }
        other => panic!("{other}"),
    }
}

/// Waits until something has come about.
pub(crate) async fn until(what: &str, mut is: impl FnMut() -> bool) {
    let end = Instant::now() + Duration::from_secs(60);
    while !is() {
        assert!(Instant::now() < end, "{what} did not come about");
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
}
