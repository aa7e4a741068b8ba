//! Decides the course of one request, from its head to its answer.

use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use axum::extract::State;
use bytes::{Bytes, BytesMut};
use http::request::Parts;
use http::{HeaderValue, Method, Request, Response, StatusCode, header};
use http_body_util::BodyExt as _;
use tollgate_proto::json::dynamic_to_json;
use tonic::service::Routes;
use tonic::{Code, Status};

use crate::table::{self, Found, Route, Table};
use crate::{call, error, request, same_origin};

/// How long a body may take to arrive.
const BODY_MAX: Duration = Duration::from_secs(30);
/// So many times the largest body is read to its end before it is refused.
const DRAIN_TIMES: usize = 4;
/// How many commas a body may have. A message takes hundreds of bytes of memory for a number that takes two of JSON;
/// the largest payload that is allowed has fewer.
const COMMAS_MAX: usize = 300_000;

/// What every request needs.
#[derive(Clone)]
pub(crate) struct Gateway {
    pub(crate) table: Arc<Table>,
    pub(crate) grpc: Routes,
    pub(crate) body_max_bytes: usize,
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
    let body = match read_body(&gateway, route, &head, body).await {
        Ok(body) => body,
        Err(refusal) => return refusal,
    };
    let query = head.uri.query().unwrap_or_default();
    let message = match request::read(route, &path, query, &body) {
        Ok(message) => message,
        Err(wrong) => return error::refusal(&Status::from(wrong)),
    };
    drop(body);
    let answer = call::unary(gateway.grpc.clone(), route, message, &head.headers, head.extensions).await;
    match answer.map(|message| dynamic_to_json(&message)) {
        Ok(Ok(json)) => error::answer(StatusCode::OK, &json),
        Ok(Err(wrong)) => error::refusal(&Status::internal(format!("the answer has no JSON form: {wrong}"))),
        Err(status) => error::refusal(&status),
    }
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

async fn read_body(
    gateway: &Gateway,
    route: &Route,
    head: &Parts,
    body: Body,
) -> Result<Bytes, Response<Body>> {
    if route.body == table::Body::None {
        return Ok(Bytes::new());
    }
    let max = gateway.body_max_bytes;
    let too_large = || {
        let message = format!("the body is too large: at most {max} bytes and {COMMAS_MAX} values are taken");
        error::plain(StatusCode::PAYLOAD_TOO_LARGE, Code::OutOfRange, &message)
    };
    let length =
        head.headers.get(header::CONTENT_LENGTH).and_then(|length| length.to_str().ok()?.parse().ok());
    let waits = head.headers.contains_key(header::EXPECT);
    if length.is_some_and(|length: usize| length > max && (waits || length > max * DRAIN_TIMES)) {
        return Err(too_large());
    }
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
    if body.iter().filter(|byte| **byte == b',').count() > COMMAS_MAX {
        return Err(too_large());
    }
    Ok(body)
}

/// The body; none where it has more than `max` bytes. A client that is still writing does not read that it shall not, so
/// what is somewhat too large is taken off its hands, and forgotten.
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
