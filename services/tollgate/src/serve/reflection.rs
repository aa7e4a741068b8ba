//! Decides how many streams of reflection there are, and for how long: it answers who shows nothing, with some 40 KiB of
//! memory for each answer that waits to be read.
//!
//! In: a call of reflection, and the address that it comes from. Out: the same call with an end. Invariants: one address leaves
//! streams to the others; after [`LIFE`] nothing of a stream is kept, whether its other end reads or not. Not here: what
//! reflection says.

use std::convert::Infallible;
use std::net::IpAddr;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use http::{HeaderMap, Request, Response};
use hyper::body::{Body as HttpBody, Bytes, Frame, SizeHint};
use tokio::sync::oneshot;
use tollgate_auth::ConnectionInfo;
use tollgate_metrics::{Bound, Metrics};
use tollgate_service::room::Rooms;
use tonic::Status;
use tonic::body::Body;
use tonic::server::NamedService;
use tower_service::Service;

/// Streams at once: in all, and of one address.
const STREAMS_MAX: (usize, usize) = (64, 8);
/// How long one waits for its turn.
const PATIENCE: Duration = Duration::from_secs(5);
/// How long a stream goes on; clients begin another one when they need it.
const LIFE: Duration = Duration::from_secs(30);

/// The streams of all versions of reflection. Clones share them.
#[derive(Clone)]
pub(super) struct Streams {
    rooms: Rooms<Option<IpAddr>>,
    patience: Duration,
    life: Duration,
    metrics: Metrics,
}

impl Streams {
    pub(super) fn new(metrics: Metrics) -> Self {
        let rooms = Rooms::new(STREAMS_MAX.0, STREAMS_MAX.1);
        Self { rooms, patience: PATIENCE, life: LIFE, metrics }
    }

    /// A service of reflection whose streams are bounded.
    pub(super) fn bound<S>(&self, inner: S) -> Bounded<S> {
        Bounded { inner, streams: self.clone() }
    }
}

/// A service whose streams are bounded.
#[derive(Clone)]
pub(super) struct Bounded<S> {
    inner: S,
    streams: Streams,
}

impl<S: NamedService> NamedService for Bounded<S> {
    const NAME: &'static str = S::NAME;
}

impl<S> Service<Request<Body>> for Bounded<S>
where
    S: Service<Request<Body>, Response = Response<Body>, Error = Infallible> + Clone + Send + 'static,
    S::Future: Send,
{
    type Response = Response<Body>;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Response<Body>, Infallible>> + Send>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        self.inner.poll_ready(context)
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let (streams, fresh) = (self.streams.clone(), self.inner.clone());
        // The one that has been asked whether it is ready.
        let mut inner = std::mem::replace(&mut self.inner, fresh);
        Box::pin(async move {
            let address = ConnectionInfo::address_of(request.extensions());
            let Ok(room) = tokio::time::timeout(streams.patience, streams.rooms.take(address, 1)).await
            else {
                streams.metrics.refused(Bound::Reflection);
                let text = "too many streams of reflection are open; close some, or try again later";
                return Ok(Status::resource_exhausted(text).into_http());
            };
            let (done, ended) = oneshot::channel::<Infallible>();
            let (asked, answered) = (Lent::default(), Lent::default());
            let ends = [asked.clone(), answered.clone()];
            tokio::spawn(async move {
                // Whichever comes first. A body that nobody reads is asked for nothing, and cannot end by itself.
                let _over = tokio::time::timeout(streams.life, ended).await;
                ends.iter().for_each(Lent::end);
                drop(room);
            });
            let response = inner.call(request.map(|body| asked.lend(body, None))).await?;
            Ok(response.map(|body| answered.lend(body, Some(done))))
        })
    }
}

/// A body that may be taken back; clones are the same one.
#[derive(Clone, Default)]
struct Lent(Arc<Mutex<State>>);

#[derive(Default)]
struct State {
    body: Option<Body>,
    /// It has been taken back before its end.
    is_over: bool,
    reader: Option<Waker>,
}

impl Lent {
    fn lend(self, body: Body, done: Option<oneshot::Sender<Infallible>>) -> Body {
        {
            let mut state = self.lock();
            state.body = Some(body).filter(|_| !state.is_over);
        }
        Body::new(Reader { lent: self, is_answer: done.is_some(), _done: done })
    }

    fn end(&self) {
        let (body, reader) = {
            let mut state = self.lock();
            state.is_over = true;
            (state.body.take(), state.reader.take())
        };
        drop(body);
        if let Some(reader) = reader {
            reader.wake();
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // A body that has panicked is not asked again by its reader.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The reader of a body that may be taken back.
struct Reader {
    lent: Lent,
    /// An answer that is taken back ends with a status.
    is_answer: bool,
    /// Dropped with the answer.
    _done: Option<oneshot::Sender<Infallible>>,
}

impl HttpBody for Reader {
    type Data = Bytes;
    type Error = Status;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
        let this = &mut *self;
        let mut state = this.lent.lock();
        if let Some(body) = &mut state.body {
            let polled = Pin::new(body).poll_frame(context);
            match polled {
                Poll::Pending => state.reader = Some(context.waker().clone()),
                Poll::Ready(None) => state.body = None,
                Poll::Ready(Some(_)) => {}
            }
            return polled;
        }
        let ends_early = std::mem::take(&mut this.is_answer) && state.is_over;
        Poll::Ready(ends_early.then(|| Ok(Frame::trailers(late()))))
    }

    fn is_end_stream(&self) -> bool {
        let state = self.lent.lock();
        state.body.as_ref().is_some_and(HttpBody::is_end_stream)
    }

    fn size_hint(&self) -> SizeHint {
        self.lent.lock().body.as_ref().map(HttpBody::size_hint).unwrap_or_default()
    }
}

/// How an answer ends that has been taken back.
fn late() -> HeaderMap {
    let text = format!("streams of reflection end after {} s; begin another one", LIFE.as_secs());
    let mut trailers = HeaderMap::new();
    // Plain text fits into a header.
    let _written = Status::deadline_exceeded(text).add_header(&mut trailers);
    trailers
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]
    use http_body_util::BodyExt as _;
    use tonic::Code;

    use super::*;

    /// Answers with something that never ends; counts what there is of it.
    #[derive(Clone, Default)]
    struct Endless(Arc<()>);

    impl Service<Request<Body>> for Endless {
        type Response = Response<Body>;
        type Error = Infallible;
        type Future = std::future::Ready<Result<Response<Body>, Infallible>>;

        fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
            Poll::Ready(Ok(()))
        }

        fn call(&mut self, mut request: Request<Body>) -> Self::Future {
            let (asked, answered) = (self.0.clone(), self.0.clone());
            tokio::spawn(async move {
                let _end = request.body_mut().frame().await;
                drop(asked);
            });
            let endless = futures::stream::pending::<Result<Bytes, Infallible>>();
            let body = axum::body::Body::from_stream(futures::StreamExt::map(endless, move |item| {
                let _kept = &answered;
                item
            }));
            std::future::ready(Ok(Response::new(Body::new(body))))
        }
    }

    fn request() -> Request<Body> {
        let endless = futures::stream::pending::<Result<Bytes, Infallible>>();
        Request::new(Body::new(axum::body::Body::from_stream(endless)))
    }

    fn bounded(endless: &Endless, life: Duration) -> Bounded<Endless> {
        let streams = Streams::new(Metrics::default());
        Streams { patience: Duration::from_millis(50), life, ..streams }.bound(endless.clone())
    }

    async fn gone(endless: &Endless) {
        let gone = async {
            // The one that is looked at and the service's own.
            while Arc::strong_count(&endless.0) > 2 {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        };
        tokio::time::timeout(Duration::from_secs(20), gone).await.unwrap();
    }

    #[tokio::test]
    async fn no_address_has_more_than_its_part() {
        let endless = Endless::default();
        let mut service = bounded(&endless, LIFE);
        let mut answers = Vec::new();
        for _ in 0..STREAMS_MAX.1 {
            answers.push(service.call(request()).await.unwrap());
        }
        let refused = service.call(request()).await.unwrap();
        let status = Status::from_header_map(refused.headers()).unwrap();
        assert_eq!(status.code(), Code::ResourceExhausted);
        answers.pop();
        let again = service.call(request()).await.unwrap();
        assert!(Status::from_header_map(again.headers()).is_none(), "there is room again");
    }

    #[tokio::test]
    async fn what_nobody_reads_is_dropped() {
        let endless = Endless::default();
        let mut service = bounded(&endless, Duration::from_millis(100));
        let answer = service.call(request()).await.unwrap();
        assert_eq!(Arc::strong_count(&endless.0), 4, "the request and the answer are held");
        // Nobody asks the answer for anything.
        gone(&endless).await;
        let end = answer.into_body().collect().await.unwrap();
        let status = Status::from_header_map(end.trailers().unwrap()).unwrap();
        assert_eq!(status.code(), Code::DeadlineExceeded);
    }

    #[tokio::test]
    async fn one_that_is_read_ends_as_well_and_one_that_is_dropped_at_once() {
        let endless = Endless::default();
        let mut service = bounded(&endless, Duration::from_millis(100));
        let answer = service.call(request()).await.unwrap();
        assert!(answer.into_body().collect().await.unwrap().trailers().is_some());
        gone(&endless).await;
        drop(service);
        let mut service = bounded(&endless, Duration::from_secs(3_600));
        drop(service.call(request()).await.unwrap());
        gone(&endless).await;
    }
}
