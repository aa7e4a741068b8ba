//! Connections to HTTP targets: which one a request gets, and the exchange on it.
//!
//! In: a request, and the place it goes to. Out: the answer, and whether the request may have been written. Invariants: one
//! request at a time on a connection; a request is written at most once; one is kept only if its last answer was read to the
//! end.
//!
//! A connection has no task of its own: the delivery that uses it drives it, so that an answer wakes one task and not two. While it
//! is idle nobody does; that its other side has closed it is found when it is used next, before anything is written.

use std::collections::HashMap;
use std::future::poll_fn;
use std::pin::{Pin, pin};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use ::http::{Request, Response};
use bytes::Bytes;
use http_body_util::Full;
use hyper::body::{Body as _, Incoming};
use hyper::client::conn::{TrySendError, http1};
use tower_service::Service as _;

use super::answer::Answer;
use super::connector::{BoxError, Connector, Stream};
use super::places::Place;

/// How long an unused connection is kept. Common servers close theirs after five seconds or more, and a request that
/// meets a connection as it closes ends as unclear.
const IDLE_MAX: Duration = Duration::from_secs(4);

/// What is sent.
type Body = Full<Bytes>;

/// Why there is no complete answer.
pub(super) enum Failure {
    /// There is no connection, or it took nothing.
    Unsent(BoxError),
    /// After the request was written, perhaps in part, and before the head of the answer was there.
    NoAnswer(hyper::Error),
    /// After the head: the answer's status, and what happened to its body.
    NoBody(u16, String),
}

/// The connections of all targets.
pub(super) struct Connections {
    connector: Connector,
    idle: Arc<Mutex<Idle>>,
    /// How many are kept for each origin.
    idle_max: usize,
}

/// Connections that nobody uses.
#[derive(Default)]
struct Idle {
    /// By origin, those that were used last at the end.
    kept: HashMap<String, Vec<(Box<Connection>, Instant)>>,
    /// Somebody comes to close those that have been idle for too long.
    is_swept: bool,
}

/// One connection.
struct Connection {
    sender: http1::SendRequest<Body>,
    driver: http1::Connection<Stream, Body>,
    /// The driver has ended.
    is_over: bool,
}

impl Connections {
    pub(super) fn new(connector: Connector, idle_max: usize) -> Self {
        Self { connector, idle: Arc::default(), idle_max }
    }

    /// Sends a request and reads its answer, of whose body at most so many bytes. `written` tells whether the request may have
    /// been written, also when this is dropped before its end.
    pub(super) async fn exchange(
        &self,
        place: &Place,
        mut request: Request<Body>,
        body_max_bytes: usize,
        written: &mut bool,
    ) -> Result<Answer, Failure> {
        loop {
            let (mut connection, is_fresh) = match self.take(&place.origin) {
                Some(connection) => (connection, false),
                // Boxed: it is far larger than the rest, and rare.
                None => (Box::pin(self.connect(place)).await?, true),
            };
            *written = true;
            let response = match connection.send(request).await {
                Ok(response) => response,
                Err(mut failed) => {
                    let Some(unsent) = failed.take_message() else {
                        return Err(Failure::NoAnswer(failed.into_error()));
                    };
                    *written = false;
                    if is_fresh {
                        return Err(Failure::Unsent(failed.into_error().into()));
                    }
                    // It had been closed while it was idle.
                    request = unsent;
                    continue;
                }
            };
            let (head, mut body) = response.into_parts();
            let mut answer = Answer { status: head.status, headers: head.headers, body: Vec::new() };
            if connection.read(&mut body, &mut answer, body_max_bytes).await? {
                drop(body);
                self.keep(&place.origin, connection);
            }
            return Ok(answer);
        }
    }

    async fn connect(&self, place: &Place) -> Result<Box<Connection>, Failure> {
        let mut connector = self.connector.clone();
        poll_fn(|cx| connector.poll_ready(cx)).await.map_err(Failure::Unsent)?;
        let stream = connector.call(place.url.clone()).await.map_err(Failure::Unsent)?;
        let (sender, driver) =
            http1::handshake(stream).await.map_err(|error| Failure::Unsent(error.into()))?;
        Ok(Box::new(Connection { sender, driver, is_over: false }))
    }

    fn idle(&self) -> MutexGuard<'_, Idle> {
        lock(&self.idle)
    }

    /// The one that was used last.
    fn take(&self, origin: &str) -> Option<Box<Connection>> {
        let mut idle = self.idle();
        let (connection, since) = idle.kept.get_mut(origin)?.pop()?;
        // The others have been idle for longer yet; whoever sweeps closes them.
        (since.elapsed() < IDLE_MAX).then_some(connection)
    }

    /// Keeps a connection, if it can take another request.
    fn keep(&self, origin: &str, mut connection: Box<Connection>) {
        if !connection.rests() {
            return;
        }
        let mut idle = self.idle();
        match idle.kept.get_mut(origin) {
            Some(kept) if kept.len() >= self.idle_max => return,
            Some(kept) => kept.push((connection, Instant::now())),
            None => {
                idle.kept.insert(origin.to_owned(), vec![(connection, Instant::now())]);
            }
        }
        if !std::mem::replace(&mut idle.is_swept, true) {
            tokio::spawn(sweep(Arc::downgrade(&self.idle)));
        }
    }
}

impl Connection {
    /// Writes a request and waits for the head of the answer.
    async fn send(
        &mut self,
        request: Request<Body>,
    ) -> Result<Response<Incoming>, TrySendError<Request<Body>>> {
        let Self { sender, driver, is_over } = self;
        let mut answer = pin!(sender.try_send_request(request));
        poll_fn(|cx| {
            drive(driver, is_over, cx);
            answer.as_mut().poll(cx)
        })
        .await
    }

    /// Reads the body of an answer. Whether it was read to its end: so much of it may be left that it is not worth it.
    async fn read(
        &mut self,
        body: &mut Incoming,
        answer: &mut Answer,
        max_bytes: usize,
    ) -> Result<bool, Failure> {
        while !body.is_end_stream() {
            let frame = poll_fn(|cx| {
                if let Poll::Ready(frame) = Pin::new(&mut *body).poll_frame(cx) {
                    return Poll::Ready(Ok(frame));
                }
                drive(&mut self.driver, &mut self.is_over, cx);
                match Pin::new(&mut *body).poll_frame(cx) {
                    Poll::Ready(frame) => Poll::Ready(Ok(frame)),
                    Poll::Pending if self.is_over => Poll::Ready(Err("the connection ended".to_owned())),
                    Poll::Pending => Poll::Pending,
                }
            });
            let broken = |why: String| Failure::NoBody(answer.status.as_u16(), why);
            let Some(frame) = frame.await.map_err(broken)? else { break };
            let data = frame.map_err(|error| broken(crate::chain(&error)))?.into_data().unwrap_or_default();
            let room = max_bytes.saturating_sub(answer.body.len());
            answer.body.extend_from_slice(&data[..data.len().min(room)]);
            if data.len() > room {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Nobody waits for this connection any more. Whether it can take another request.
    fn rests(&mut self) -> bool {
        // So that it holds on to no task, and has taken notice of the answer's end.
        drive(&mut self.driver, &mut self.is_over, &mut Context::from_waker(Waker::noop()));
        !self.is_over && self.sender.is_ready()
    }
}

/// Lets a connection write and read. What ends it is told to who waits for its answer.
fn drive(driver: &mut http1::Connection<Stream, Body>, is_over: &mut bool, cx: &mut Context<'_>) {
    if !*is_over {
        *is_over = Pin::new(driver).poll(cx).is_ready();
    }
}

/// Each change of the map is one call, so a panic elsewhere leaves nothing half done.
fn lock(idle: &Mutex<Idle>) -> MutexGuard<'_, Idle> {
    idle.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Closes what has been idle for too long, until nothing is idle.
async fn sweep(idle: Weak<Mutex<Idle>>) {
    loop {
        tokio::time::sleep(IDLE_MAX / 2).await;
        let Some(idle) = idle.upgrade() else { return };
        let mut closed = Vec::new();
        let mut idle = lock(&idle);
        for kept in idle.kept.values_mut() {
            let old = kept.partition_point(|(_, since)| since.elapsed() >= IDLE_MAX);
            closed.extend(kept.drain(..old));
        }
        idle.kept.retain(|_, kept| !kept.is_empty());
        idle.is_swept = !idle.kept.is_empty();
        let is_last = !idle.is_swept;
        drop(idle);
        drop(closed);
        if is_last {
            return;
        }
    }
}
