//! Takes events from requests that Tollgate sends: checks their signatures, answers at once, refuses what there is no room for.
//!
//! An event whose answer gives its token back (`release: on_response`) is worked on before the answer. Requests may have several.

use std::convert::Infallible;
use std::io;
use std::net::SocketAddr;
use std::pin::pin;
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use futures::future::join_all;
use http_body_util::{BodyExt as _, Full, Limited};
use hyper::body::{Bytes, Incoming};
use hyper::header::{CONTENT_TYPE, RETRY_AFTER};
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use serde_json::json;
use serde_json::value::RawValue;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tokio_util::task::task_tracker::TaskTrackerToken;

use crate::engine::{Delivery, Engine, Place};
use crate::event::Event;
use crate::outcome::Status;
use crate::signature::Secrets;

/// The longest body that is read, and for how long.
const BODY_MAX: usize = 16 << 20;
const BODY_TIME: Duration = Duration::from_secs(30);
/// What a request that is refused for want of room is told to wait.
const WAIT_S: u64 = 1;
/// How long answers may take to be read when the worker ends.
const LAST_ANSWERS: Duration = Duration::from_secs(5);

type Answer = Response<Full<Bytes>>;

/// A server for the requests of Tollgate.
pub struct Http {
    listener: TcpListener,
    secrets: Secrets,
}

impl std::fmt::Debug for Http {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Http").field("listener", &self.listener).finish_non_exhaustive()
    }
}

impl Http {
    /// Listens at an address such as `0.0.0.0:8080`. Requests are to be signed in one of the secrets: the schedule's
    /// `target.http.secret`, and while it is being changed, the one before.
    ///
    /// # Errors
    /// A secret that cannot be read; an address that cannot be had.
    pub async fn bind<'a>(address: &str, secrets: impl IntoIterator<Item = &'a str>) -> io::Result<Self> {
        let secrets =
            Secrets::read(secrets).map_err(|error| io::Error::new(io::ErrorKind::InvalidInput, error))?;
        Ok(Self { listener: TcpListener::bind(address).await?, secrets })
    }

    /// Where it listens.
    ///
    /// # Errors
    /// What the kernel says.
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        self.listener.local_addr()
    }

    /// Takes events until nothing more is taken. What it returns goes on answering, so that nobody waits for one who does not.
    pub(crate) fn start(self, engine: &Arc<Engine>) -> Serving {
        let desk = Arc::new(Desk { secrets: self.secrets, engine: engine.clone(), door: RwLock::default() });
        let serving =
            Serving { desk: desk.clone(), ends: CancellationToken::new(), connections: TaskTracker::new() };
        let (listener, ends, connections) =
            (self.listener, serving.ends.clone(), serving.connections.clone());
        serving.connections.spawn(async move {
            loop {
                let accepted = tokio::select! {
                    accepted = listener.accept() => accepted,
                    () = ends.cancelled() => return,
                };
                let Ok((stream, _)) = accepted else {
                    // Too many files are open: those who left close theirs.
                    tokio::time::sleep(Duration::from_millis(50)).await;
                    continue;
                };
                let (desk, ends) = (desk.clone(), ends.clone());
                connections.spawn(async move {
                    let mut http = hyper::server::conn::http1::Builder::new();
                    http.timer(TokioTimer::new()).header_read_timeout(BODY_TIME);
                    let service = service_fn(|request| desk.answer(request));
                    let mut connection = pin!(http.serve_connection(TokioIo::new(stream), service));
                    // An error of a connection is the other side's.
                    tokio::select! {
                        ended = connection.as_mut() => return drop(ended),
                        () = ends.cancelled() => connection.as_mut().graceful_shutdown(),
                    }
                    let _ended = connection.await;
                });
            }
        });
        serving
    }
}

/// A server that answers.
pub(crate) struct Serving {
    desk: Arc<Desk>,
    ends: CancellationToken,
    connections: TaskTracker,
}

impl Serving {
    /// Waits until nothing more is taken, and who is at the door has come in.
    pub(crate) async fn run(&self) {
        self.desk.engine.taking.cancelled().await;
        drop(self.desk.door.write().unwrap_or_else(PoisonError::into_inner));
    }

    /// Ends with the last answer.
    pub(crate) async fn close(self) {
        self.ends.cancel();
        self.connections.close();
        // Those who have not read their answers by then do without.
        let _late = tokio::time::timeout(LAST_ANSWERS, self.connections.wait()).await;
    }
}

struct Desk {
    secrets: Secrets,
    engine: Arc<Engine>,
    /// Held while an event is let in, so that none comes after the last.
    door: RwLock<()>,
}

/// The answer for one event.
struct Said {
    status: StatusCode,
    message: String,
}

fn said(status: StatusCode, message: impl Into<String>) -> Said {
    Said { status, message: message.into() }
}

impl From<Said> for Answer {
    fn from(said: Said) -> Self {
        let mut answer = Response::new(Full::from(said.message));
        *answer.status_mut() = said.status;
        if said.status == StatusCode::SERVICE_UNAVAILABLE {
            answer.headers_mut().insert(RETRY_AFTER, WAIT_S.into());
        }
        answer
    }
}

impl Desk {
    async fn answer(&self, request: Request<Incoming>) -> Result<Answer, Infallible> {
        let (head, body) = request.into_parts();
        if head.method != Method::POST {
            return Ok(said(StatusCode::METHOD_NOT_ALLOWED, "POST is expected").into());
        }
        let body = tokio::time::timeout(BODY_TIME, Limited::new(body, BODY_MAX).collect()).await;
        let Ok(Ok(body)) = body else {
            return Ok(said(StatusCode::PAYLOAD_TOO_LARGE, "the body cannot be read").into());
        };
        let body = body.to_bytes();
        if !self.secrets.signed(&head.headers, &body) {
            return Ok(said(StatusCode::UNAUTHORIZED, "not signed in a secret of this worker").into());
        }
        if body.trim_ascii_start().starts_with(b"[") {
            return Ok(self
                .many(&body)
                .await
                .unwrap_or_else(|why| said(StatusCode::BAD_REQUEST, why).into()));
        }
        let answer = match Event::parse(&body) {
            Ok(event) => self.one(event).await,
            Err(why) => said(StatusCode::BAD_REQUEST, why),
        };
        Ok(answer.into())
    }

    /// Takes an event if there is room, and works on it before the answer where the answer gives the token back.
    async fn one(&self, event: Event) -> Said {
        let (place, _under) = match self.let_in() {
            Ok(let_in) => let_in,
            Err(why) => return said(StatusCode::SERVICE_UNAVAILABLE, why),
        };
        if !event.is_on_response() {
            self.engine.take(Delivery { event, ttl: None, held: None }, place);
            return said(StatusCode::ACCEPTED, "");
        }
        // A task of its own: it goes on when the connection ends.
        let engine = self.engine.clone();
        let work = tokio::spawn(async move { engine.take_now(event, place).await });
        match work.await {
            Ok(Some(release)) if release.outcome == Status::Succeeded => said(StatusCode::OK, ""),
            Ok(Some(release)) => said(StatusCode::INTERNAL_SERVER_ERROR, release.message),
            Ok(None) => said(StatusCode::CONFLICT, "the event is being worked on"),
            Err(error) => said(StatusCode::INTERNAL_SERVER_ERROR, error.to_string()),
        }
    }

    /// A place, and the word that the worker is to wait for its event; or why not.
    fn let_in(&self) -> Result<(Place, TaskTrackerToken), &'static str> {
        let _door = self.door.read().unwrap_or_else(PoisonError::into_inner);
        if self.engine.taking.is_cancelled() {
            return Err("the worker stops");
        }
        let place = self.engine.place_now().ok_or("the worker has no room")?;
        Ok((place, self.engine.tasks.token()))
    }

    /// Answers several events: those for which there is no room are refused by name.
    async fn many(&self, body: &[u8]) -> Result<Answer, String> {
        let documents: Vec<&RawValue> =
            serde_json::from_slice(body).map_err(|error| format!("event: it cannot be read: {error}"))?;
        let events: Result<Vec<Event>, String> =
            documents.iter().map(|document| Event::parse(document.get().as_bytes())).collect();
        let answers = events?.into_iter().map(async |event| (event.id.clone(), self.one(event).await));
        let refused = join_all(answers).await.into_iter().filter(|(_, said)| !said.status.is_success());
        let refused = refused.map(|(id, said)| {
            let mut refused = json!({"id": id, "status": "REFUSED", "message": said.message});
            if said.status == StatusCode::SERVICE_UNAVAILABLE {
                refused["retryAfterMs"] = (WAIT_S * 1_000).into();
            }
            refused
        });
        let body = json!({"events": refused.collect::<Vec<_>>()}).to_string();
        let mut answer = Response::new(Full::from(body));
        *answer.status_mut() = StatusCode::ACCEPTED;
        answer
            .headers_mut()
            .insert(CONTENT_TYPE, hyper::header::HeaderValue::from_static("application/json"));
        Ok(answer)
    }
}
