//! Answers, good and bad.

use http_body_util::combinators::BoxBody;
use http_body_util::{BodyExt as _, Full, StreamBody};
use hyper::body::{Bytes, Frame};
use hyper::{Response, StatusCode};

use super::Conduct;

/// Why a connection is closed in the middle.
pub(super) type Broken = Box<dyn std::error::Error + Send + Sync>;
/// A body of any kind.
pub(super) type Body = BoxBody<Bytes, Broken>;

/// Parts of a huge answer, a megabyte each.
const HUGE_PARTS: usize = 24;

/// The answer to a delivery that is met so.
///
/// # Errors
/// Where there is none.
pub(super) async fn of(conduct: Conduct) -> Result<Response<Body>, Broken> {
    let (status, body) = match conduct {
        Conduct::Prompt | Conduct::Slow | Conduct::Late | Conduct::Die => (202, text("")),
        Conduct::Huge => (200, huge()),
        Conduct::HugeRefusal => (500, huge()),
        Conduct::Refuse(status) => (status, text("not now")),
        Conduct::Redirect => (307, text("")),
        Conduct::Garbage => (200, half()),
        Conduct::Hang | Conduct::Keep => std::future::pending().await,
        Conduct::Reset => return Err("reset".into()),
    };
    let mut answer = Response::new(body);
    *answer.status_mut() = StatusCode::from_u16(status)?;
    if conduct == Conduct::Redirect {
        answer.headers_mut().insert("location", "http://127.0.0.1:1/elsewhere".parse()?);
    }
    Ok(answer)
}

/// 202.
pub(super) fn accepted() -> Response<Body> {
    let mut answer = Response::new(text(""));
    *answer.status_mut() = StatusCode::ACCEPTED;
    answer
}

/// 400: the sender made a mistake.
pub(super) fn bad_request() -> Response<Body> {
    let mut answer = Response::new(text(""));
    *answer.status_mut() = StatusCode::BAD_REQUEST;
    answer
}

/// A JSON text with this status.
pub(super) fn json(status: StatusCode, body: Bytes) -> Response<Body> {
    let mut answer = Response::new(whole(body));
    *answer.status_mut() = status;
    answer
        .headers_mut()
        .insert("content-type", hyper::header::HeaderValue::from_static("application/x-amz-json-1.0"));
    answer
}

fn text(text: &'static str) -> Body {
    whole(Bytes::from_static(text.as_bytes()))
}

fn whole(body: Bytes) -> Body {
    Full::new(body).map_err(|never| match never {}).boxed()
}

fn huge() -> Body {
    let part = Bytes::from_static(&[b'x'; 1 << 20]);
    let parts = (0..HUGE_PARTS).map(move |_| Ok::<_, Broken>(Frame::data(part.clone())));
    StreamBody::new(tokio_stream::iter(parts)).boxed()
}

fn half() -> Body {
    let parts = [Ok(Frame::data(Bytes::from_static(b"{\"half\": "))), Err(Broken::from("half"))];
    StreamBody::new(tokio_stream::iter(parts)).boxed()
}
