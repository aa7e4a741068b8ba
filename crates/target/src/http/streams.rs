//! Connections that carry many requests at once (HTTP/2).
//!
//! In: a stream that has just been opened to a server that speaks HTTP/2, then requests. Out: answers, and what is known of a
//! request that has none. Invariants: a request is written at most once; no more are under way than the server allows, so that
//! none waits inside for its turn, after its leave was looked at; a request counts as not begun only where the server says so: it
//! refused the request's stream, or has said that it goes away, and that it looks at no stream so late (RFC 9113, 6.8 and
//! 8.7). All else is unclear. A connection that takes no bytes is given up with the first request that is given up on it, so
//! that none of them leaves later; one that has been silent since such a request began takes no further ones.
//!
//! What falls due together is written together: requests are handed to the connection, whose own task writes all that is
//! there at once, and reads as many answers. Not here: which connection a request gets (`connections`).

use std::fmt;
use std::io;
use std::pin::{Pin, pin};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use ::http::{Request, Version};
use bytes::Bytes;
use h2::client::{Connection, SendRequest};
use h2::{Reason, RecvStream};
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::sync::Notify;
use tokio::time::Instant;
use tollgate_clock::instant_now;

use super::answer::HttpAnswer;
use super::connector::{BoxError, Stream};

/// Requests that are under way on one connection at most, whatever more the server allows: each has a task that writes and reads.
const UNDER_WAY_MAX: usize = 256;
/// Bytes of an answer's head that are taken.
const HEAD_MAX: u32 = 64 << 10;

/// A connection that many requests use.
pub(super) struct Shared {
    sender: SendRequest<Bytes>,
    state: Arc<State>,
}

/// What its task and its requests know of it.
struct State {
    opened: Instant,
    /// Requests under way.
    used: AtomicUsize,
    /// How many the server allows.
    allowed: AtomicUsize,
    /// It takes no further requests.
    is_over: AtomicBool,
    /// It has bytes that the other side does not take.
    is_blocked: AtomicBool,
    /// How often all that was to leave has left.
    flushes: AtomicU64,
    /// When it has last read something, and when its last request ended: in microseconds after `opened`.
    read_us: AtomicU64,
    used_us: AtomicU64,
    /// Why it has ended.
    why: Mutex<Option<String>>,
    /// The server has said how many it allows, or it has ended.
    settled: Notify,
    /// It is to end at once.
    abandoned: Notify,
}

/// A request's part of a connection, from before it is written until its answer is there. Where it is dropped before that, its
/// stream is reset.
pub(super) struct Part {
    sender: SendRequest<Bytes>,
    state: Arc<State>,
    began_us: u64,
    /// How often, by then, all that was to leave had left.
    began_flushes: u64,
    /// Its request may have been written, and what became of it is not known.
    is_open: bool,
}

/// Why a request has no complete answer.
#[derive(Debug)]
pub(super) enum NoAnswer {
    /// The server says that it has not looked at it, because it is about to close the connection; or that has ended before.
    GoesAway(h2::Error),
    /// The server says that it has not looked at it.
    Refused(h2::Error),
    /// The server may have it.
    Unclear(h2::Error),
    /// After the head of the answer: its status, and what happened then.
    Cut(u16, h2::Error),
}

impl Shared {
    /// Begins to speak HTTP/2, and waits until the server has said how many requests it takes at once.
    pub(super) async fn begin(stream: Stream) -> Result<Self, BoxError> {
        let state = Arc::new(State::new());
        let io = Watched { stream: TokioIo::new(stream), state: Arc::clone(&state) };
        let (sender, connection) = h2::client::Builder::new()
            .enable_push(false)
            .initial_max_send_streams(0)
            .max_header_list_size(HEAD_MAX)
            .handshake(io)
            .await?;
        let settled = state.settled.notified();
        tokio::spawn(drive(connection, Arc::clone(&state)));
        settled.await;
        if state.allowed.load(Ordering::Acquire) == 0 || state.is_over.load(Ordering::Acquire) {
            let why = state.why().unwrap_or_else(|| "it allows no requests".to_owned());
            return Err(format!("the target does not speak HTTP/2 here: {why}").into());
        }
        Ok(Self { sender, state })
    }

    /// Whether it can take further requests, now or later.
    pub(super) fn is_open(&self) -> bool {
        !self.state.is_over.load(Ordering::Acquire)
    }

    /// Whether nobody has used it for so long.
    pub(super) fn is_idle_for(&self, long: Duration) -> bool {
        let since_us = self.state.used_us.load(Ordering::Acquire);
        self.state.used.load(Ordering::Acquire) == 0
            && self.state.now_us().saturating_sub(since_us) >= micros(long)
    }

    /// A part of it, where it has one left.
    pub(super) fn part(&self) -> Option<Part> {
        let state = &self.state;
        let room = state.allowed.load(Ordering::Acquire).min(UNDER_WAY_MAX);
        let take = |used: usize| (used < room).then_some(used + 1);
        if !self.is_open() || state.used.fetch_update(Ordering::AcqRel, Ordering::Acquire, take).is_err() {
            return None;
        }
        Some(Part {
            sender: self.sender.clone(),
            state: Arc::clone(state),
            began_us: 0,
            began_flushes: 0,
            is_open: false,
        })
    }
}

impl fmt::Debug for Shared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Shared")
            .field("used", &self.state.used)
            .field("allowed", &self.state.allowed)
            .finish()
    }
}

impl Part {
    /// Writes a request and reads its answer, at most `max_bytes` of the body.
    pub(super) async fn exchange(
        mut self,
        mut request: Request<Bytes>,
        max_bytes: usize,
    ) -> Result<HttpAnswer, NoAnswer> {
        *request.version_mut() = Version::HTTP_2;
        (self.began_us, self.is_open) = (self.state.now_us(), true);
        let (head, body) = request.into_parts();
        let (answer, mut writing) = self
            .sender
            .send_request(Request::from_parts(head, ()), body.is_empty())
            .map_err(|error| self.not_begun(error))?;
        if !body.is_empty() {
            writing.send_data(body, true).map_err(|e| self.judged(e))?;
        }
        self.began_flushes = self.state.flushes.load(Ordering::Acquire);
        let (head, mut body) = answer.await.map_err(|e| self.judged(e))?.into_parts();
        let mut answer = HttpAnswer { status: head.status, headers: head.headers, body: Vec::new() };
        let status = answer.status.as_u16();
        read(&mut body, &mut answer.body, max_bytes).await.map_err(|error| NoAnswer::Cut(status, error))?;
        self.is_open = false;
        Ok(answer)
    }

    /// It got no stream: nothing of it was written, and the connection takes no other.
    fn not_begun(&mut self, error: h2::Error) -> NoAnswer {
        self.is_open = false;
        self.state.is_over.store(true, Ordering::Release);
        NoAnswer::GoesAway(error)
    }

    /// What an error before the head of the answer says.
    fn judged(&mut self, error: h2::Error) -> NoAnswer {
        // An end that was told, and no silence.
        self.is_open = !error.is_remote();
        // Only streams that the server will not look at end with its own GOAWAY.
        if error.is_remote() && error.is_go_away() {
            self.state.is_over.store(true, Ordering::Release);
            return NoAnswer::GoesAway(error);
        }
        if error.is_remote() && error.is_reset() && error.reason() == Some(Reason::REFUSED_STREAM) {
            return NoAnswer::Refused(error);
        }
        NoAnswer::Unclear(error)
    }
}

/// Reads the body of an answer, as far as it is kept; the rest is not waited for.
async fn read(body: &mut RecvStream, kept: &mut Vec<u8>, max_bytes: usize) -> Result<(), h2::Error> {
    while let Some(data) = body.data().await {
        let data = match data {
            Ok(data) => data,
            // The answer is complete; of the request's body the server wants no more.
            Err(error) if error.reason() == Some(Reason::NO_ERROR) => return Ok(()),
            Err(error) => return Err(error),
        };
        let room = max_bytes.saturating_sub(kept.len());
        kept.extend_from_slice(&data[..data.len().min(room)]);
        if data.len() > room {
            return Ok(());
        }
        body.flow_control().release_capacity(data.len())?;
    }
    Ok(())
}

impl Drop for Part {
    fn drop(&mut self) {
        let state = &self.state;
        if self.is_open {
            // The first that ends after a request was handed over may have begun before.
            let has_left = state.flushes.load(Ordering::Acquire) >= self.began_flushes + 2;
            if state.is_blocked.load(Ordering::Acquire) && !has_left {
                // What is in its buffers must not leave later.
                state.is_over.store(true, Ordering::Release);
                state.abandoned.notify_one();
            } else if state.read_us.load(Ordering::Acquire) < self.began_us {
                // Whoever comes next had better look for another connection.
                state.is_over.store(true, Ordering::Release);
            }
        }
        state.used_us.store(state.now_us(), Ordering::Release);
        state.used.fetch_sub(1, Ordering::AcqRel);
    }
}

impl State {
    fn new() -> Self {
        Self {
            opened: instant_now(),
            used: AtomicUsize::new(0),
            allowed: AtomicUsize::new(0),
            is_over: AtomicBool::new(false),
            is_blocked: AtomicBool::new(false),
            flushes: AtomicU64::new(0),
            read_us: AtomicU64::new(0),
            used_us: AtomicU64::new(0),
            why: Mutex::new(None),
            settled: Notify::new(),
            abandoned: Notify::new(),
        }
    }

    fn now_us(&self) -> u64 {
        micros(self.opened.elapsed())
    }

    fn why(&self) -> Option<String> {
        self.why.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

fn micros(span: Duration) -> u64 {
    u64::try_from(span.as_micros()).unwrap_or(u64::MAX)
}

/// Writes and reads until the connection ends, or is abandoned.
async fn drive(mut connection: Connection<Watched, Bytes>, state: Arc<State>) {
    let mut abandoned = pin!(state.abandoned.notified());
    let mut has_waited = false;
    let ended = std::future::poll_fn(|cx| {
        // Others that are ready put their requests in first, and go along.
        has_waited = !has_waited;
        if has_waited {
            cx.waker().wake_by_ref();
            return Poll::Pending;
        }
        if abandoned.as_mut().poll(cx).is_ready() {
            return Poll::Ready(Some("it took no bytes".to_owned()));
        }
        let polled = Pin::new(&mut connection).poll(cx);
        let allowed = connection.max_concurrent_send_streams();
        if state.allowed.swap(allowed, Ordering::AcqRel) == 0 && allowed > 0 {
            state.settled.notify_one();
        }
        polled.map(|ended| ended.err().map(|error| error.to_string()))
    });
    let why = ended.await;
    *state.why.lock().unwrap_or_else(PoisonError::into_inner) = why;
    state.is_over.store(true, Ordering::Release);
    state.settled.notify_one();
}

/// The bytes of a connection: when some last came, and whether some do not leave.
struct Watched {
    stream: TokioIo<Stream>,
    state: Arc<State>,
}

impl Watched {
    /// What became of bytes that were to leave.
    fn left<T>(&self, polled: Poll<T>) -> Poll<T> {
        self.state.is_blocked.store(polled.is_pending(), Ordering::Release);
        polled
    }
}

impl AsyncRead for Watched {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        ready!(Pin::new(&mut this.stream).poll_read(cx, buf))?;
        this.state.read_us.store(this.state.now_us(), Ordering::Release);
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Watched {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        let polled = Pin::new(&mut this.stream).poll_write(cx, bytes);
        this.left(polled)
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        parts: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        let polled = Pin::new(&mut this.stream).poll_write_vectored(cx, parts);
        this.left(polled)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        let polled = Pin::new(&mut this.stream).poll_flush(cx);
        if polled.is_ready() {
            this.state.flushes.fetch_add(1, Ordering::AcqRel);
        }
        this.left(polled)
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().stream).poll_shutdown(cx)
    }
}
