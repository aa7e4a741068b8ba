//! Decides how answers and refusals look to HTTP clients: JSON, refusals as `google.rpc.Status` with its details decoded.
//!
//! Invariant: the body is always JSON.

use axum::body::Body;
use http::{HeaderValue, Response, StatusCode, header};
use prost_reflect::{DynamicMessage, MessageDescriptor};
use serde_json::{Value, json};
use tollgate_proto::json::dynamic_to_json;
use tonic::{Code, Status};

/// An answer with a JSON body.
pub(crate) fn answer(http: StatusCode, body: &Value) -> Response<Body> {
    let mut response = Response::new(Body::from(body.to_string()));
    *response.status_mut() = http;
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    headers.insert(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    response
}

/// A refusal that HTTP has a status of its own for.
pub(crate) fn plain(http: StatusCode, code: Code, message: &str) -> Response<Body> {
    answer(http, &json!({"code": i32::from(code), "message": message, "details": []}))
}

/// A refusal by gRPC.
pub(crate) fn refusal(status: &Status) -> Response<Body> {
    let details = details(status.details()).unwrap_or_default();
    let body = json!({"code": i32::from(status.code()), "message": status.message(), "details": details});
    let mut response = answer(http_status(status.code()), &body);
    if let Some(wait) =
        status.metadata().get("retry-after").and_then(|wait| wait.to_str().ok()?.parse::<u64>().ok())
    {
        response.headers_mut().insert(header::RETRY_AFTER, wait.into());
    }
    if status.code() == Code::Unauthenticated {
        response.headers_mut().insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
    }
    response
}

/// The details of an encoded `google.rpc.Status`, each by its own type; what has an unknown type is left out.
fn details(encoded: &[u8]) -> Option<Vec<Value>> {
    let pool = tollgate_proto::descriptor_pool();
    let status: MessageDescriptor = pool.get_message_by_name("google.rpc.Status")?;
    let status = DynamicMessage::decode(status, encoded).ok()?;
    let details = status.get_field_by_name("details")?;
    let details = details.as_list()?.iter().filter_map(|any| dynamic_to_json(any.as_message()?).ok());
    Some(details.collect())
}

/// The canonical HTTP status of a gRPC code, as google/rpc/code.proto says.
fn http_status(code: Code) -> StatusCode {
    match code {
        Code::Ok => StatusCode::OK,
        Code::Cancelled => StatusCode::from_u16(499).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR),
        Code::InvalidArgument | Code::FailedPrecondition | Code::OutOfRange => StatusCode::BAD_REQUEST,
        Code::Unauthenticated => StatusCode::UNAUTHORIZED,
        Code::PermissionDenied => StatusCode::FORBIDDEN,
        Code::NotFound => StatusCode::NOT_FOUND,
        Code::Aborted | Code::AlreadyExists => StatusCode::CONFLICT,
        Code::ResourceExhausted => StatusCode::TOO_MANY_REQUESTS,
        Code::Unimplemented => StatusCode::NOT_IMPLEMENTED,
        Code::Unavailable => StatusCode::SERVICE_UNAVAILABLE,
        Code::DeadlineExceeded => StatusCode::GATEWAY_TIMEOUT,
        Code::Unknown | Code::Internal | Code::DataLoss => StatusCode::INTERNAL_SERVER_ERROR,
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]
    use super::*;
    use tollgate_proto::FieldError;

    #[tokio::test]
    async fn a_refusal_names_its_fields() {
        let status = Status::from(FieldError::new("schedule.events", 0, "1 to 10,000,000"));
        let response = refusal(&status);
        assert_eq!(response.status(), StatusCode::BAD_REQUEST);
        let body = axum::body::to_bytes(response.into_body(), 10_000).await.unwrap();
        let body: Value = serde_json::from_slice(&body).unwrap();
        assert_eq!(body["code"], 3);
        assert_eq!(body["details"][0]["@type"], "type.googleapis.com/google.rpc.BadRequest");
        let violation = &body["details"][0]["fieldViolations"][0];
        assert_eq!(violation["field"], "schedule.events");
        assert!(violation["description"].as_str().unwrap().contains("1 to 10,000,000"));
    }

    #[test]
    fn details_that_are_none_do_no_harm() {
        let broken = Status::with_details(Code::NotFound, "x", bytes::Bytes::from_static(b"\xff\xff"));
        assert_eq!(refusal(&broken).status(), StatusCode::NOT_FOUND);
    }
}
