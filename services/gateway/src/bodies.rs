//! Decides how many bytes of requests are in this process at once: in all, and of one caller.
//!
//! In: the caller, as the door has found it out, and how large a message says it is. Out: room for it, as soon as there is
//! some. Invariants: nothing large is read before there is room for all of it; one caller leaves room for the others;
//! callers that show nothing share the room of one; a body that breaks off has no end. Not here: the largest single
//! message (the server, the gateway), and what it may hold (`tollgate_proto::codec`, [`crate::weight`]).

use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, ready};

use axum::body::Body;
use bytes::Bytes;
use http::{Request, Response};
use http_body::{Body as HttpBody, Frame, SizeHint};
use tollgate_auth::{Access, is_stream};
use tollgate_service::room::{Room, Rooms};
use tonic::Status;
use tower_layer::Layer;
use tower_service::Service;

/// Messages up to here need no room: they are bounded by connections and calls.
pub(crate) const SMALL_BYTES: usize = 16 * 1024;
/// Room of one caller, in largest messages.
const EACH_TIMES: usize = 2;
/// Room in all, in largest messages.
const ALL_TIMES: usize = 16;
/// The unit of room.
const UNIT_BYTES: usize = 1024;
/// Before each message of gRPC: a flag and its length.
const HEAD_BYTES: usize = 5;

/// With whom a caller shares its room.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Caller {
    /// Everybody, where nobody is asked.
    Anybody,
    /// Those who have shown nothing.
    Nobody,
    /// All keys of a namespace.
    Namespace(String),
    /// One who reaches all namespaces.
    Everywhere(String),
}

impl Caller {
    pub(crate) fn of(access: &Access) -> Self {
        match access {
            Access::Open => Self::Anybody,
            Access::Nobody => Self::Nobody,
            Access::Holder(principal) => match &principal.namespace {
                Some(namespace) => Self::Namespace(namespace.clone()),
                None => Self::Everywhere(principal.credential.clone()),
            },
        }
    }
}

/// The room for requests; a tower layer around the gRPC services, cheap to clone.
#[derive(Clone, Debug)]
pub struct Bodies(Rooms<Caller>);

impl Bodies {
    /// Room for two of the largest messages of one caller, and for sixteen of all.
    pub fn new(message_max_bytes: usize) -> Self {
        let units = units(message_max_bytes);
        Self(Rooms::new(units.saturating_mul(ALL_TIMES), units.saturating_mul(EACH_TIMES)))
    }

    /// Waits for room for `bytes` bytes. What is larger than all room of one caller takes all of it.
    pub(crate) async fn room(self, caller: Caller, bytes: usize) -> Room {
        self.0.take(caller, units(bytes)).await
    }
}

fn units(bytes: usize) -> usize {
    bytes.div_ceil(UNIT_BYTES).max(1)
}

impl<S> Layer<S> for Bodies {
    type Service = Roomy<S>;

    fn layer(&self, inner: S) -> Roomy<S> {
        Roomy { inner, bodies: self.clone() }
    }
}

/// A gRPC service whose requests wait for room. Stands inside the door.
#[derive(Clone)]
pub struct Roomy<S> {
    inner: S,
    bodies: Bodies,
}

impl<S, R> Service<Request<Body>> for Roomy<S>
where
    S: Service<Request<Body>, Response = Response<R>>,
    S::Future: Send + 'static,
{
    type Response = Response<R>;
    type Error = S::Error;
    type Future = Pin<Box<dyn Future<Output = Result<Response<R>, S::Error>> + Send>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(context)
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let caller = Caller::of(&Access::of(request.extensions()));
        let stream = is_stream(request.uri().path());
        let held = Held::default();
        let (bodies, room) = (self.bodies.clone(), held.clone());
        let request = request.map(|body| Body::new(Metered::new(body, bodies, caller, stream, room)));
        let answer = self.inner.call(request);
        // A call that has one message keeps its room until it is answered.
        Box::pin(async move {
            let answer = answer.await;
            held.set(None);
            answer
        })
    }
}

/// The room of the message that is being read or worked on.
#[derive(Clone, Default)]
struct Held(Arc<Mutex<Option<Room>>>);

impl Held {
    fn set(&self, room: Option<Room>) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = room;
    }
}

/// Room, once there is some.
type RoomFuture = Pin<Box<dyn Future<Output = Room> + Send>>;

/// A body of gRPC messages, each of which is let through when there is room for it.
struct Metered {
    body: Body,
    bodies: Bodies,
    caller: Caller,
    /// Whether there may be more messages than one.
    stream: bool,
    held: Held,
    /// What has been read of a message's head, and how much of the message is missing.
    head: Vec<u8>,
    missing: usize,
    /// What has been read and waits for room, from this byte on.
    data: Bytes,
    at: usize,
    waiting: Option<RoomFuture>,
}

impl Metered {
    fn new(body: Body, bodies: Bodies, caller: Caller, stream: bool, held: Held) -> Self {
        let (head, missing) = (Vec::with_capacity(HEAD_BYTES), 0);
        Self { body, bodies, caller, stream, held, head, missing, data: Bytes::new(), at: 0, waiting: None }
    }

    /// Follows the messages in what has been read, up to the head of one that needs room.
    fn follow(&mut self) -> Option<usize> {
        while self.at < self.data.len() {
            let rest = self.data.len() - self.at;
            if self.missing > 0 {
                let passed = rest.min(self.missing);
                (self.missing, self.at) = (self.missing - passed, self.at + passed);
                continue;
            }
            let taken = rest.min(HEAD_BYTES - self.head.len());
            self.head.extend_from_slice(&self.data[self.at..self.at + taken]);
            self.at += taken;
            if let [_, one, two, three, four] = *self.head {
                self.head.clear();
                self.missing = u32::from_be_bytes([one, two, three, four]) as usize;
                if self.missing > SMALL_BYTES {
                    return Some(self.missing);
                }
            }
        }
        None
    }
}

/// What reads a body as messages takes CANCELLED for its end. A caller that goes in the midst of a stream has not come to it.
fn broken(error: axum::Error) -> axum::Error {
    axum::Error::new(Status::aborted(format!("the request broke off: {error}")))
}

impl HttpBody for Metered {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        let this = &mut *self;
        if this.data.is_empty() {
            if this.stream && this.missing == 0 && this.head.is_empty() {
                // A reader that asks for more has taken what there was.
                this.held.set(None);
            }
            let Some(frame) = ready!(Pin::new(&mut this.body).poll_frame(context)) else {
                return Poll::Ready(None);
            };
            match frame.map_err(broken)?.into_data() {
                Ok(data) => (this.data, this.at) = (data, 0),
                Err(other) => return Poll::Ready(Some(Ok(other))),
            }
        }
        loop {
            if let Some(waiting) = &mut this.waiting {
                let room = ready!(waiting.as_mut().poll(context));
                this.waiting = None;
                this.held.set(Some(room));
            }
            let Some(bytes) = this.follow() else {
                return Poll::Ready(Some(Ok(Frame::data(std::mem::take(&mut this.data)))));
            };
            // The room of the message before, which stands in what has been read, is given back first: nobody waits
            // for room and has some.
            this.held.set(None);
            this.waiting = Some(Box::pin(this.bodies.clone().room(this.caller.clone(), bytes)));
        }
    }

    fn is_end_stream(&self) -> bool {
        self.data.is_empty() && self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]
    use std::time::Duration;

    use http_body_util::BodyExt as _;

    use super::*;

    fn team(name: &str) -> Caller {
        Caller::Namespace(name.to_owned())
    }

    async fn soon<T>(future: impl Future<Output = T>) -> Option<T> {
        tokio::time::timeout(Duration::from_millis(50), future).await.ok()
    }

    fn message(bytes: usize) -> Vec<u8> {
        let mut message = vec![0];
        message.extend_from_slice(&u32::try_from(bytes).unwrap().to_be_bytes());
        message.resize(HEAD_BYTES + bytes, 7);
        message
    }

    fn metered(bodies: &Bodies, parts: Vec<Vec<u8>>, stream: bool) -> (Metered, Held) {
        let parts = parts.into_iter().map(|part| Ok::<_, std::convert::Infallible>(Bytes::from(part)));
        let body = Body::from_stream(tokio_stream::iter(parts.collect::<Vec<_>>()));
        let held = Held::default();
        (Metered::new(body, bodies.clone(), team("a"), stream, held.clone()), held)
    }

    #[tokio::test]
    async fn one_caller_leaves_room_for_the_others() {
        let bodies = Bodies::new(64 * 1024);
        let room = |caller, bytes| soon(bodies.clone().room(caller, bytes));
        let first = room(team("a"), 100 * 1024).await.unwrap();
        assert!(room(team("a"), 64 * 1024).await.is_none(), "its room is taken");
        assert!(room(team("b"), 64 * 1024).await.is_some());
        assert!(room(Caller::Nobody, 64 * 1024).await.is_some());
        drop(first);
        assert!(room(team("a"), 64 * 1024).await.is_some());
        assert!(room(team("a"), usize::MAX / 2).await.is_some(), "what is too large takes all there is");
        let many: Vec<_> = (0..8).map(|n| team(&n.to_string())).collect();
        let mut taken = Vec::new();
        for caller in many {
            taken.push(room(caller, 128 * 1024).await.unwrap());
        }
        assert!(room(team("z"), 64 * 1024).await.is_none(), "all room is taken");
        taken.pop();
        assert!(room(team("z"), 64 * 1024).await.is_some());
    }

    #[tokio::test]
    async fn a_large_message_waits_for_room_and_small_ones_do_not() {
        let bodies = Bodies::new(64 * 1024);
        let all = bodies.clone().room(team("a"), usize::MAX / 2).await;
        let small = [message(10), message(SMALL_BYTES)].concat();
        let (body, _held) = metered(&bodies, vec![small.clone()], true);
        assert_eq!(soon(body.collect()).await.unwrap().unwrap().to_bytes(), small);
        // The head in two parts, behind a small message.
        let text = [message(10), message(40_000)].concat();
        let parts = vec![text[..17].to_vec(), text[17..].to_vec()];
        let (mut body, held) = metered(&bodies, parts, true);
        assert_eq!(body.frame().await.unwrap().unwrap().into_data().unwrap().len(), 17);
        assert!(soon(body.frame()).await.is_none());
        drop(all);
        assert_eq!(body.frame().await.unwrap().unwrap().into_data().unwrap().len(), text.len() - 17);
        assert!(held.0.lock().unwrap().is_some());
        assert!(body.frame().await.is_none());
        assert!(held.0.lock().unwrap().is_none(), "a reader that asks for more is done with it");
    }

    #[tokio::test]
    async fn a_stream_that_its_caller_gives_up_has_no_end() {
        use tonic::codec::{Codec as _, Streaming};

        let part = tollgate_proto::v1::SubmitItemsRequest::default();
        for given_up in [Status::cancelled("gone"), Status::unknown("reset")] {
            let parts = tokio_stream::iter([Ok(Bytes::from(message(0))), Err(given_up)]);
            let body = Body::from_stream(parts);
            let body = Metered::new(body, Bodies::new(64 * 1024), team("a"), true, Held::default());
            let mut codec = tollgate_proto::codec::Codec::<
                tollgate_proto::v1::Submission,
                tollgate_proto::v1::SubmitItemsRequest,
            >::default();
            let mut stream = Streaming::new_request(codec.decoder(), body, None, None);
            assert_eq!(stream.message().await.unwrap(), Some(part.clone()));
            assert_eq!(stream.message().await.unwrap_err().code(), tonic::Code::Aborted);
        }
    }

    #[tokio::test]
    async fn a_call_keeps_its_room_until_it_is_answered() {
        let bodies = Bodies::new(64 * 1024);
        let (mut body, held) = metered(&bodies, vec![message(60_000)], false);
        assert!(body.frame().await.is_some() && body.frame().await.is_none());
        drop(body);
        assert!(held.0.lock().unwrap().is_some());
        assert!(soon(bodies.clone().room(team("a"), 100_000)).await.is_none());
        held.set(None);
        assert!(soon(bodies.clone().room(team("a"), 100_000)).await.is_some());
    }

    #[tokio::test]
    async fn large_messages_in_one_piece_do_not_wait_for_each_other() {
        let bodies = Bodies::new(64 * 1024);
        let text = [message(60_000), message(60_000), message(60_000)].concat();
        let (body, _held) = metered(&bodies, vec![text.clone()], true);
        assert_eq!(soon(body.collect()).await.unwrap().unwrap().to_bytes(), text);
    }
}
