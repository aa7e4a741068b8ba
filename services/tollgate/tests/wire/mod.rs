//! A service that answers calls with messages made by the test, and remembers what it was asked.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};

use http_body_util::{BodyExt, Full};
use prost::Message;
use prost::bytes::{BufMut, Bytes, BytesMut};
use tokio_stream::wrappers::TcpListenerStream;
use tonic::Status;
use tonic::body::Body;
use tonic::codegen::{BoxFuture, Service};
use tonic::server::NamedService;

/// One call: the method's name, who called and why, and the messages.
#[derive(Clone, Debug)]
pub(crate) struct Call {
    pub(crate) method: String,
    pub(crate) actor: String,
    pub(crate) reason: String,
    pub(crate) messages: Vec<Bytes>,
}

type Answers = dyn Fn(&Call) -> Result<Vec<u8>, Status> + Send + Sync;

/// The service, and where it listens.
#[derive(Clone)]
pub(crate) struct Stub {
    pub(crate) address: SocketAddr,
    pub(crate) calls: Arc<Mutex<Vec<Call>>>,
}

impl Stub {
    /// Serves on a free port until the runtime ends.
    pub(crate) async fn start(
        answers: impl Fn(&Call) -> Result<Vec<u8>, Status> + Send + Sync + 'static,
    ) -> Self {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let calls = Arc::new(Mutex::new(Vec::new()));
        let wire = Wire { answers: Arc::new(answers), calls: Arc::clone(&calls) };
        let server = tonic::transport::Server::builder()
            .add_service(Named::<true>(wire.clone()))
            .add_service(Named::<false>(wire))
            .serve_with_incoming(TcpListenerStream::new(listener));
        tokio::spawn(server);
        Self { address, calls }
    }

    /// What it was asked so far.
    pub(crate) fn calls(&self) -> Vec<Call> {
        self.calls.lock().unwrap().clone()
    }
}

#[derive(Clone)]
struct Wire {
    answers: Arc<Answers>,
    calls: Arc<Mutex<Vec<Call>>>,
}

/// The Schedule Master, or the Event Handler.
#[derive(Clone)]
struct Named<const MASTER: bool>(Wire);

impl<const MASTER: bool> NamedService for Named<MASTER> {
    const NAME: &'static str =
        if MASTER { "tollgate.v1.ScheduleMasterService" } else { "tollgate.v1.EventHandlerService" };
}

impl<const MASTER: bool> Service<http::Request<Body>> for Named<MASTER> {
    type Response = http::Response<Body>;
    type Error = Infallible;
    type Future = BoxFuture<Self::Response, Infallible>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: http::Request<Body>) -> Self::Future {
        let Wire { answers, calls } = self.0.clone();
        Box::pin(async move {
            let method = request.uri().path().rsplit('/').next().unwrap_or_default().to_owned();
            let headers = request.headers().clone();
            let header = |name: &str| {
                let value = headers.get(name).and_then(|value| value.to_str().ok());
                value.unwrap_or_default().to_owned()
            };
            let (actor, reason) = (header("tollgate-actor"), header("tollgate-reason"));
            let body = request.into_body().collect().await.unwrap().to_bytes();
            let call = Call { method, actor, reason, messages: messages(body) };
            calls.lock().unwrap().push(call.clone());
            Ok(match answers(&call) {
                Ok(message) => response(&message),
                Err(status) => status.into_http(),
            })
        })
    }
}

/// Each is one byte, four bytes of length, and the message.
fn messages(mut body: Bytes) -> Vec<Bytes> {
    let mut messages = Vec::new();
    while body.len() >= 5 {
        let length = u32::from_be_bytes([body[1], body[2], body[3], body[4]]) as usize;
        messages.push(body.slice(5..5 + length));
        body = body.slice(5 + length..);
    }
    messages
}

fn response(message: &[u8]) -> http::Response<Body> {
    let mut frame = BytesMut::new();
    frame.put_u8(0);
    frame.put_u32(u32::try_from(message.len()).unwrap());
    frame.put_slice(message);
    let trailers = http::HeaderMap::from_iter([(
        http::HeaderName::from_static("grpc-status"),
        http::HeaderValue::from_static("0"),
    )]);
    let body = Full::new(frame.freeze()).with_trailers(async { Some(Ok(trailers)) });
    http::Response::builder().header("content-type", "application/grpc").body(Body::new(body)).unwrap()
}

/// A message as an answer.
pub(crate) fn answer(message: &impl Message) -> Result<Vec<u8>, Status> {
    Ok(message.encode_to_vec())
}
