//! A consumer in Rust: takes events over HTTP, works on each once, and gives tokens back by a gRPC stream.
//!
//!     LISTEN=127.0.0.1:8080 TOLLGATE=http://127.0.0.1:7411 WEBHOOK_SECRET=whsec_… cargo run --example consumer
//!
//! SIGTERM: takes nothing new, ends the work under way, gives its tokens back.
#![expect(clippy::print_stdout, reason = "it shows what it does")]

use std::collections::HashMap;
use std::error::Error;
use std::pin::pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use hmac::{Hmac, Mac};
use http_body_util::{BodyExt, Empty};
use hyper::body::{Bytes, Incoming};
use hyper::service::service_fn;
use hyper::{HeaderMap, Request, Response};
use hyper_util::rt::TokioIo;
use serde_json::Value;
use sha2::Sha256;
use tokio::net::TcpListener;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::{mpsc, watch};
use tollgate_proto::v1::event_handler_service_client::EventHandlerServiceClient;
use tollgate_proto::v1::{ReleaseOutcome, ReleaseTokenRequest, ReleaseTokensRequest};
use tonic::transport::{Channel, Endpoint};

type Tollgate = EventHandlerServiceClient<Channel>;

/// An older request may be somebody else's copy.
const AGE_MAX_S: u64 = 300;
/// The most events that are remembered. A real consumer keeps their ids beside what its work makes.
const KNOWN_MAX: usize = 10_000;

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let setting = |name: &str, default: &str| std::env::var(name).unwrap_or_else(|_| default.to_owned());
    let tollgate = Endpoint::from_shared(setting("TOLLGATE", "http://127.0.0.1:7411"))?.connect_lazy();
    let secret = STANDARD.decode(std::env::var("WEBHOOK_SECRET")?.trim_start_matches("whsec_"))?;
    let listener = TcpListener::bind(setting("LISTEN", "127.0.0.1:8080")).await?;
    println!("listening on http://{}", listener.local_addr()?);

    let (finished, releases) = mpsc::channel(1_000);
    let releaser = tokio::spawn(release(Tollgate::new(tollgate), releases));
    let desk = Arc::new(Desk { secret, known: Mutex::default() });
    let (mut terminate, mut interrupt) = (signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?);
    let (stop, stopped) = watch::channel(());
    loop {
        let stream = tokio::select! {
            accepted = listener.accept() => accepted?.0,
            _ = terminate.recv() => break,
            _ = interrupt.recv() => break,
        };
        let (desk, finished, mut stopped) = (desk.clone(), finished.clone(), stopped.clone());
        tokio::spawn(async move {
            let service = service_fn(|request| desk.clone().take(request, finished.clone()));
            let http = hyper::server::conn::http1::Builder::new();
            let mut connection = pin!(http.serve_connection(TokioIo::new(stream), service));
            tokio::select! {
                ended = connection.as_mut() => return ended,
                _ = stopped.changed() => connection.as_mut().graceful_shutdown(),
            }
            connection.await
        });
    }
    // Nothing new comes in, and the releaser ends when the last worker has dropped its sender.
    drop((listener, stop, finished));
    releaser.await?;
    println!("stopped");
    Ok(())
}

struct Desk {
    secret: Vec<u8>,
    known: Mutex<HashMap<String, Known>>,
}

/// What is known of an event: the latest attempt that came, and whether its work is done.
struct Known {
    attempt: u32,
    done: bool,
}

impl Desk {
    /// Accepted is not done: the token stays taken until it is released.
    async fn take(
        self: Arc<Self>,
        request: Request<Incoming>,
        finished: mpsc::Sender<ReleaseTokenRequest>,
    ) -> Result<Response<Empty<Bytes>>, hyper::Error> {
        let (head, body) = request.into_parts();
        let body = body.collect().await?.to_bytes();
        let mut answer = Response::new(Empty::new());
        *answer.status_mut() = if !self.is_signed(&head.headers, &body) {
            hyper::StatusCode::UNAUTHORIZED
        } else if let Ok(event) = serde_json::from_slice(&body) {
            // A task of its own: it goes on when the connection ends.
            tokio::spawn(self.handle(event, finished));
            hyper::StatusCode::ACCEPTED
        } else {
            hyper::StatusCode::BAD_REQUEST
        };
        Ok(answer)
    }

    /// As the Standard Webhooks specification says.
    fn is_signed(&self, headers: &HeaderMap, body: &[u8]) -> bool {
        let header = |name: &str| headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default();
        let now_s = SystemTime::UNIX_EPOCH.elapsed().unwrap_or_default().as_secs();
        let sent_s: u64 = header("webhook-timestamp").parse().unwrap_or_default();
        let Ok(mut mac) = Hmac::<Sha256>::new_from_slice(&self.secret) else { return false };
        mac.update(format!("{}.{}.", header("webhook-id"), header("webhook-timestamp")).as_bytes());
        mac.update(body);
        let matches = |signature: &str| {
            let given = signature.strip_prefix("v1,").and_then(|text| STANDARD.decode(text).ok());
            given.is_some_and(|given| mac.clone().verify_slice(&given).is_ok())
        };
        now_s.abs_diff(sent_s) <= AGE_MAX_S && header("webhook-signature").split(' ').any(matches)
    }

    async fn handle(self: Arc<Self>, event: Value, finished: mpsc::Sender<ReleaseTokenRequest>) {
        let Some(id) = event["id"].as_str() else { return };
        let attempt = event["attempt"].as_u64().and_then(|attempt| u32::try_from(attempt).ok()).unwrap_or(1);
        let mut outcome = ReleaseOutcome::Succeeded;
        match self.is_done(id, attempt) {
            None if work(&event).await => self.done(id),
            None => {
                // Its next attempt is worked on.
                self.known().remove(id);
                outcome = ReleaseOutcome::Retry;
            }
            // It came again, as an earlier release was not heard.
            Some(true) => {}
            Some(false) => return,
        }
        let attempt = self.known().get(id).map_or(attempt, |known| known.attempt);
        let release = ReleaseTokenRequest {
            name: id.to_owned(),
            attempt: Some(attempt),
            outcome: outcome.into(),
            ..ReleaseTokenRequest::default()
        };
        // Its receiver ends after all senders.
        let _sent = finished.send(release).await;
    }

    /// Whether an event's work is done; none if it has just begun.
    fn is_done(&self, id: &str, attempt: u32) -> Option<bool> {
        let mut all = self.known();
        if let Some(known) = all.get_mut(id) {
            // It is released under the attempt that Tollgate waits for.
            known.attempt = known.attempt.max(attempt);
            return Some(known.done);
        }
        if all.len() >= KNOWN_MAX {
            all.retain(|_, known| !known.done);
        }
        all.insert(id.to_owned(), Known { attempt, done: false });
        None
    }

    fn done(&self, id: &str) {
        if let Some(known) = self.known().get_mut(id) {
            known.done = true;
        }
    }

    fn known(&self) -> std::sync::MutexGuard<'_, HashMap<String, Known>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Gives tokens back, those together that have become free meanwhile, until nobody works any more.
async fn release(mut tollgate: Tollgate, mut finished: mpsc::Receiver<ReleaseTokenRequest>) {
    let mut releases = Vec::new();
    while finished.recv_many(&mut releases, 1_000).await > 0 {
        let message = ReleaseTokensRequest { releases: std::mem::take(&mut releases) };
        // A release is idempotent, so it may be repeated until it is answered.
        loop {
            match tollgate.release_tokens(tokio_stream::once(message.clone())).await {
                Ok(answer) => {
                    for problem in answer.into_inner().problems {
                        println!("{}: {:?}: {}", problem.name, problem.status(), problem.message);
                    }
                    break;
                }
                Err(status) => println!("not released yet: {}", status.message()),
            }
            tokio::time::sleep(Duration::from_secs(1)).await;
        }
    }
}

/// What this consumer is for.
async fn work(event: &Value) -> bool {
    let id = event["id"].as_str().unwrap_or_default();
    println!("begin {id} (attempt {})", event["attempt"]);
    tokio::time::sleep(Duration::from_millis(event["data"]["workMs"].as_u64().unwrap_or(100))).await;
    println!("done {id}");
    true
}
