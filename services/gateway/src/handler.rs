//! Decides the course of one request, from its head to its answer.

pub(crate) mod submit;

use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use axum::extract::State;
use bytes::{Bytes, BytesMut};
use http::request::Parts;
use http::{HeaderValue, Method, Request, Response, StatusCode, header};
use http_body::Body as _;
use http_body_util::BodyExt as _;
use prost::Message as _;
use prost_reflect::DynamicMessage;
use tokio::sync::Semaphore;
use tollgate_auth::Door;
use tollgate_metrics::{Bound, Metrics};
use tollgate_proto::FieldError;
use tollgate_proto::field::invalid_argument;
use tollgate_proto::json::dynamic_to_json;
use tollgate_service::room::Room;
use tonic::service::Routes;
use tonic::{Code, Status};

use crate::bodies::{Bodies, Caller, SMALL_BYTES};
use crate::table::{self, Found, Route, Table};
use crate::weight::Heavy;
use crate::{call, error, request, same_origin, weight};
use submit::Uploads;

/// How long a body may take to arrive.
const BODY_MAX: Duration = Duration::from_secs(30);
/// How long what is refused anyway is read.
const DISCARD_MAX: Duration = Duration::from_secs(5);
/// A body of up to this many times the largest one is read to its end before it is refused.
const DRAIN_TIMES: usize = 4;
/// How long a large body waits for room that its caller's other requests have.
const ROOM_MAX: Duration = Duration::from_secs(10);

/// What every request needs.
#[derive(Clone)]
pub(crate) struct Gateway {
    pub(crate) table: Arc<Table>,
    pub(crate) grpc: Routes,
    pub(crate) door: Door,
    pub(crate) bodies: Bodies,
    /// Whose items come.
    pub(crate) uploads: Uploads,
    /// Whose turn it is to read or write a large text.
    pub(crate) reading: Arc<Semaphore>,
    pub(crate) body_max_bytes: usize,
    pub(crate) metrics: Metrics,
}

/// Answers a request for `/v1/…`.
pub(crate) async fn answer(State(gateway): State<Gateway>, request: Request<Body>) -> Response<Body> {
    let (head, body) = request.into_parts();
    let (route, path) = match gateway.table.find(&head.method, head.uri.path()) {
        Found::Route(route, path) => (route, path),
        Found::OtherVerbs(verbs) => return wrong_verb(&head.method, verbs),
        Found::Nothing => {
            let message =
                format!("no such path: {}; /openapi.json lists those that there are", head.uri.path());
            return error::plain(StatusCode::NOT_FOUND, Code::NotFound, &message);
        }
    };
    if same_origin::is_cross_site(&head) {
        let message = "pages of other sites may not change anything here";
        return error::plain(StatusCode::FORBIDDEN, Code::PermissionDenied, message);
    }
    let access = match gateway.door.admit(route.path.as_str(), &head.headers, &head.extensions) {
        Ok(access) => access,
        Err(status) => {
            discard(&head, body, gateway.body_max_bytes).await;
            return error::refusal(&status);
        }
    };
    if route.body == table::Body::Items {
        return Box::pin(submit::answer(&gateway, route, &path, head, body, Caller::of(&access))).await;
    }
    let message = match read(&gateway, route, &path, &head, body, Caller::of(&access)).await {
        Ok(message) => message,
        Err(refusal) => return refusal,
    };
    let answer = call::unary(gateway.grpc.clone(), route, message, &head.headers, head.extensions).await;
    match answer {
        Ok(answer) => write(&gateway, route, answer).await,
        Err(status) => error::refusal(&status),
    }
}

/// The encoded message that a request means.
async fn read(
    gateway: &Gateway,
    route: &Route,
    path: &[(&str, String)],
    head: &Parts,
    body: Body,
    caller: Caller,
) -> Result<Bytes, Response<Body>> {
    let (body, room) = read_body(gateway, route, head, body, caller).await?;
    let max = if route.free { weight::FREE_MAX } else { weight::PLAIN_MAX };
    weight::check(&body, max).map_err(|heavy| match heavy {
        Heavy::Wide => {
            let message = format!("the body is too large: expected {}", heavy.expected(max));
            error::plain(StatusCode::PAYLOAD_TOO_LARGE, Code::OutOfRange, &message)
        }
        Heavy::Deep => error::refusal(&Status::from(FieldError::new("", "", heavy.expected(max)))),
    })?;
    let query = head.uri.query().unwrap_or_default().to_owned();
    let read = {
        let path: Vec<(String, String)> =
            path.iter().map(|(name, value)| ((*name).to_owned(), value.clone())).collect();
        let route = route.clone();
        move |body: &[u8]| {
            let path: Vec<(&str, String)> =
                path.iter().map(|(name, value)| (name.as_str(), value.clone())).collect();
            request::read(&route, &path, &query, body).map(|message| Bytes::from(message.encode_to_vec()))
        }
    };
    let message = if body.len() <= SMALL_BYTES {
        read(&body)
    } else {
        apart(gateway, move || {
            let message = read(&body);
            drop((body, room));
            message
        })
        .await?
    };
    message.map_err(|wrong| error::refusal(&invalid_argument(&wrong)))
}

/// The answer as JSON.
async fn write(gateway: &Gateway, route: &Route, answer: Bytes) -> Response<Body> {
    let output = route.rpc.output();
    let large = answer.len() > SMALL_BYTES;
    let write = move || {
        let message = DynamicMessage::decode(output, answer).map_err(|wrong| wrong.to_string())?;
        let json = dynamic_to_json(&message).map_err(|wrong| wrong.to_string())?;
        Ok(error::answer(StatusCode::OK, &json))
    };
    let written = if large {
        match apart(gateway, write).await {
            Ok(written) => written,
            Err(refusal) => return refusal,
        }
    } else {
        write()
    };
    written.unwrap_or_else(|wrong: String| {
        error::refusal(&Status::internal(format!("the answer has no JSON form: {wrong}")))
    })
}

/// Works on something large on a thread of its own, when it is its turn, so that everything else goes on.
async fn apart<T: Send + 'static>(
    gateway: &Gateway,
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<T, Response<Body>> {
    let stopped = || error::refusal(&Status::unavailable("this process stops"));
    let turn = gateway.reading.clone().acquire_owned().await.map_err(|_| stopped())?;
    let work = move || {
        let done = work();
        drop(turn);
        done
    };
    tokio::task::spawn_blocking(work).await.map_err(|_| stopped())
}

/// The OpenAPI document.
pub(crate) async fn document(method: Method, document: Bytes) -> Response<Body> {
    if method != Method::GET && method != Method::HEAD {
        return wrong_verb(&method, vec![Method::GET]);
    }
    let mut response = Response::new(Body::from(document));
    let json = HeaderValue::from_static("application/json");
    response.headers_mut().insert(header::CONTENT_TYPE, json);
    response
}

fn wrong_verb(given: &Method, mut allowed: Vec<Method>) -> Response<Body> {
    if allowed.contains(&Method::GET) {
        allowed.push(Method::HEAD);
    }
    let allowed = allowed.iter().map(Method::as_str).collect::<Vec<_>>().join(", ");
    let message = format!("{given} is not allowed on this path, expected {allowed}");
    let mut response = error::plain(StatusCode::METHOD_NOT_ALLOWED, Code::Unimplemented, &message);
    if let Ok(allowed) = HeaderValue::try_from(allowed) {
        response.headers_mut().insert(header::ALLOW, allowed);
    }
    response
}

/// The body, and the room that it takes.
async fn read_body(
    gateway: &Gateway,
    route: &Route,
    head: &Parts,
    body: Body,
    caller: Caller,
) -> Result<(Bytes, Option<Room>), Response<Body>> {
    if route.body == table::Body::None {
        return Ok((Bytes::new(), None));
    }
    let max = gateway.body_max_bytes;
    let too_large = || {
        let message = format!("the body is too large: at most {max} bytes are taken");
        error::plain(StatusCode::PAYLOAD_TOO_LARGE, Code::OutOfRange, &message)
    };
    let length =
        head.headers.get(header::CONTENT_LENGTH).and_then(|length| length.to_str().ok()?.parse().ok());
    let waits = head.headers.contains_key(header::EXPECT);
    if length.is_some_and(|length: usize| length > max && (waits || length > max * DRAIN_TIMES)) {
        return Err(too_large());
    }
    // Where the length is not known it may be the largest.
    let bytes = length.unwrap_or(if body.is_end_stream() { 0 } else { max }).min(max);
    let room = if bytes <= SMALL_BYTES {
        None
    } else {
        let room = tokio::time::timeout(ROOM_MAX, gateway.bodies.clone().room(caller, bytes)).await;
        let Ok(room) = room else {
            gateway.metrics.refused(Bound::Bodies);
            discard(head, body, max).await;
            let message = "too many large requests of this caller are under way; try again later";
            return Err(error::refusal(&Status::resource_exhausted(message)));
        };
        Some(room)
    };
    let Ok(read) = tokio::time::timeout(BODY_MAX, collect(body, max)).await else {
        let message = format!("the body did not arrive within {} s", BODY_MAX.as_secs());
        return Err(error::plain(StatusCode::REQUEST_TIMEOUT, Code::DeadlineExceeded, &message));
    };
    // Where the connection broke, nobody is there to read this.
    let broken = |_| {
        let message = "the body is not as its head says: broken off, or chunks that are none";
        error::plain(StatusCode::BAD_REQUEST, Code::InvalidArgument, message)
    };
    let body = read.map_err(broken)?.ok_or_else(too_large)?;
    if !body.is_empty() && !is_json(head) {
        let message = "the body must be JSON, and the header content-type say so: application/json";
        return Err(error::plain(StatusCode::UNSUPPORTED_MEDIA_TYPE, Code::InvalidArgument, message));
    }
    Ok((body, room))
}

/// Reads what is refused anyway, and keeps nothing: a client that is still writing does not read that it shall not. One that
/// asks before it writes is told without that.
async fn discard(head: &Parts, mut body: Body, max: usize) {
    if head.headers.contains_key(header::EXPECT) {
        return;
    }
    let read = async {
        let mut length = 0;
        while let Some(Ok(frame)) = body.frame().await {
            length += frame.data_ref().map_or(0, Bytes::len);
            if length > max * DRAIN_TIMES {
                return;
            }
        }
    };
    // It is told even if it goes on writing.
    let _late = tokio::time::timeout(DISCARD_MAX, read).await;
}

/// The body; none where it has more than `max` bytes. What is somewhat too large is taken off the client's hands, as by
/// [`discard`].
async fn collect(mut body: Body, max: usize) -> Result<Option<Bytes>, axum::Error> {
    let (mut taken, mut length) = (BytesMut::new(), 0);
    while let Some(frame) = body.frame().await {
        let Ok(data) = frame?.into_data() else { continue };
        length += data.len();
        if length > max * DRAIN_TIMES {
            return Ok(None);
        }
        if length > max {
            taken = BytesMut::new();
        } else {
            taken.extend_from_slice(&data);
        }
    }
    Ok((length <= max).then(|| taken.freeze()))
}

/// Whether the body is declared to be JSON in UTF-8.
fn is_json(head: &Parts) -> bool {
    let kind = head.headers.get(header::CONTENT_TYPE).and_then(|kind| kind.to_str().ok()).unwrap_or_default();
    let kind = kind.split(';').next().unwrap_or_default().trim();
    kind.eq_ignore_ascii_case("application/json")
}
