//! Decides how a body of items becomes a stream of messages: piece by piece, however long it is.
//!
//! In: path, query and headers, which make the stream's header and say how items are written; the body. Out: the service's
//! answer, or what is wrong with the body, and on which line. Invariants: no more of the body is in memory than a few
//! batches; a body is read no faster than its items are taken; a body that breaks off, says nothing for too long or is refused
//! is no end of the stream, so that nothing of it falls due. Not here: what items look like (`tollgate_items`), and what
//! the service makes of them.

use std::time::Duration;

use axum::body::Body;
use bytes::Bytes;
use futures::StreamExt as _;
use http::request::Parts;
use http::{HeaderMap, HeaderValue, Response, StatusCode, header};
use http_body_util::BodyExt as _;
use prost::Message as _;
use prost_reflect::Kind;
use serde_json::{Map, Value};
use tokio::sync::mpsc;
use tollgate_items::{Batch, Format, Item, ItemsError, Next, Options, Packing, Reader};
use tollgate_metrics::Bound;
use tollgate_proto::field::invalid_argument;
use tollgate_proto::json::dynamic_from_json;
use tollgate_proto::v1::submit_items_request::Part as MessagePart;
use tollgate_proto::{FieldError, v1};
use tollgate_service::room::Rooms;
use tonic::{Code, Status};

use super::{Gateway, discard, write};
use crate::bodies::Caller;
use crate::call::{self, Part};
use crate::table::Route;
use crate::{error, request};

/// Bodies of items that come at once, in all.
const ALL_AT_ONCE: usize = 16;
/// And of one caller.
const EACH_AT_ONCE: usize = 4;
/// How long a body waits for its turn.
const TURN_MAX: Duration = Duration::from_secs(10);
/// How long it may say nothing.
const SILENCE_MAX: Duration = Duration::from_secs(30);
/// Batches that have been read and not taken.
const AHEAD: usize = 2;
/// How long the service is listened to after a stream has broken.
const END_MAX: Duration = Duration::from_secs(1);

/// Query parameters that are about the body alone.
const KEY_FIELD: [&str; 2] = ["keyField", "key_field"];
const UNITS_FIELD: [&str; 2] = ["unitsField", "units_field"];
const WRAPPED: &str = "wrapped";

/// What bodies of items share, and how long each is waited for.
#[derive(Clone)]
pub(crate) struct Uploads {
    turns: Rooms<Caller>,
    /// How long one waits for its turn.
    turn_max: Duration,
    /// How long one may say nothing.
    silence_max: Duration,
}

impl Default for Uploads {
    fn default() -> Self {
        let turns = Rooms::new(ALL_AT_ONCE, EACH_AT_ONCE);
        Self { turns, turn_max: TURN_MAX, silence_max: SILENCE_MAX }
    }
}

/// Answers a request with a body of items.
pub(crate) async fn answer(
    gateway: &Gateway,
    route: &Route,
    path: &[(&str, String)],
    head: Parts,
    mut body: Body,
    caller: Caller,
) -> Response<Body> {
    let begun = begin(route, path, &head);
    let (first, reader) = match begun {
        Ok(begun) => begun,
        Err(refusal) => return refuse(gateway, &head, body, *refusal).await,
    };
    let Uploads { turns, turn_max, silence_max } = &gateway.uploads;
    let Ok(_turn) = tokio::time::timeout(*turn_max, turns.take(caller, 1)).await else {
        gateway.metrics.refused(Bound::Submissions);
        let message = "too many bodies of items of this caller, or of all, come at once; try again later";
        return refuse(gateway, &head, body, error::refusal(&Status::resource_exhausted(message))).await;
    };
    let (sender, parts) = mpsc::channel(AHEAD);
    let parts = until_the_end(first, parts);
    let call = call::stream(gateway.grpc.clone(), route, parts, &head.headers, head.extensions.clone());
    let mut call = std::pin::pin!(call);
    let pumped = tokio::select! {
        answer = &mut call => Pumped::Answered(answer),
        pumped = pump(reader, &mut body, *silence_max, sender) => pumped,
    };
    let answer = match pumped {
        Pumped::Answered(answer) => answer,
        Pumped::Whole => call.await,
        Pumped::Refused(refusal) => {
            // The service sees that the stream has broken. Who may not do this, or names nothing, is told that first.
            let refusal = match tokio::time::timeout(END_MAX, call).await {
                Ok(Err(status)) if is_about_the_name(&status) => error::refusal(&status),
                _ => refusal,
            };
            return refuse(gateway, &head, body, refusal).await;
        }
    };
    match answer {
        Ok(answer) => write(gateway, route, answer).await,
        Err(status) => refuse(gateway, &head, body, error::refusal(&status)).await,
    }
}

fn is_about_the_name(status: &Status) -> bool {
    matches!(status.code(), Code::PermissionDenied | Code::Unauthenticated | Code::NotFound)
}

/// A refusal, after what is still being sent has been taken off the client's hands.
async fn refuse(gateway: &Gateway, head: &Parts, body: Body, refusal: Response<Body>) -> Response<Body> {
    discard(head, body, gateway.body_max_bytes).await;
    refusal
}

/// The first message, and what reads the body.
fn begin(
    route: &Route,
    path: &[(&str, String)],
    head: &Parts,
) -> Result<(v1::SubmitItemsRequest, Reader), Box<Response<Body>>> {
    let wrong = |errors: &[FieldError]| Box::new(error::refusal(&invalid_argument(errors)));
    let query = head.uri.query().unwrap_or_default();
    let options = options(query, &head.headers)?;
    let header = header(route, path, query).map_err(|errors| wrong(&errors))?;
    let reader = Reader::new(options).map_err(|error| wrong(&[of_items(&error)]))?;
    Ok((v1::SubmitItemsRequest { part: Some(MessagePart::Header(header)) }, reader))
}

/// The stream's header, of path and query.
fn header(
    route: &Route,
    path: &[(&str, String)],
    query: &str,
) -> Result<v1::SubmissionHeader, Vec<FieldError>> {
    let mut fields = Map::new();
    for (name, value) in path {
        let name = name.rsplit('.').next().unwrap_or(name);
        fields.insert(name.to_owned(), Value::from(value.as_str()));
    }
    let others = [KEY_FIELD[0], KEY_FIELD[1], UNITS_FIELD[0], UNITS_FIELD[1], WRAPPED];
    request::add_query(&route.query, &others, query, &mut fields).map_err(|error| vec![error])?;
    let missing = || vec![FieldError::new("header", "", "a message")];
    let kind = route.rpc.input().get_field_by_name("header").map(|field| field.kind());
    let Some(Kind::Message(kind)) = kind else { return Err(missing()) };
    let header = dynamic_from_json(kind, Value::Object(fields))
        .map_err(|errors| errors.into_iter().map(FieldError::from).collect::<Vec<_>>())?;
    v1::SubmissionHeader::decode(header.encode_to_vec().as_slice()).map_err(|_| missing())
}

/// How the items are written: by the headers and the query.
fn options(query: &str, headers: &HeaderMap) -> Result<Options, Box<Response<Body>>> {
    let wrong = |error: FieldError| Box::new(error::refusal(&error.into()));
    let mut options = Options::new(format(headers)?);
    options.packing = packing(headers)?;
    for (key, value) in form_urlencoded::parse(query.as_bytes()) {
        let (field, name) = if KEY_FIELD.contains(&&*key) {
            ("key_field", &mut options.key_field)
        } else if UNITS_FIELD.contains(&&*key) {
            ("units_field", &mut options.units_field)
        } else if key == WRAPPED {
            options.wrapped = match &*value {
                "true" => true,
                "false" => false,
                other => return Err(wrong(FieldError::new(WRAPPED, other, "true or false"))),
            };
            continue;
        } else {
            continue;
        };
        if name.replace(value.into_owned()).is_some() {
            return Err(wrong(FieldError::new(field, "", "one query parameter of this name")));
        }
    }
    Ok(options)
}

fn unsupported(message: &str) -> Box<Response<Body>> {
    Box::new(error::plain(StatusCode::UNSUPPORTED_MEDIA_TYPE, Code::InvalidArgument, message))
}

fn format(headers: &HeaderMap) -> Result<Format, Box<Response<Body>>> {
    let kind = headers.get(header::CONTENT_TYPE).map(HeaderValue::as_bytes).unwrap_or_default();
    let kind = kind.split(|byte| *byte == b';').next().unwrap_or_default().trim_ascii();
    match kind.to_ascii_lowercase().as_slice() {
        b"application/x-ndjson"
        | b"application/ndjson"
        | b"application/jsonl"
        | b"application/x-jsonlines" => Ok(Format::Ndjson),
        b"application/json" => Ok(Format::Json),
        b"text/csv" => Ok(Format::Csv),
        _ => Err(unsupported(
            "the header content-type must say how items are written: application/x-ndjson, application/json (an array) or text/csv",
        )),
    }
}

fn packing(headers: &HeaderMap) -> Result<Packing, Box<Response<Body>>> {
    let mut given =
        headers.get_all(header::CONTENT_ENCODING).iter().map(|value| value.as_bytes().trim_ascii());
    match (given.next(), given.next()) {
        (None, _) => Ok(Packing::Plain),
        (Some(one), None) if one.eq_ignore_ascii_case(b"identity") => Ok(Packing::Plain),
        (Some(one), None) if one.eq_ignore_ascii_case(b"gzip") => Ok(Packing::Gzip),
        _ => Err(unsupported("the header content-encoding may say gzip, and nothing else")),
    }
}

/// What is wrong with items, as a field of the request.
fn of_items(error: &ItemsError) -> FieldError {
    let field = [error.place.as_str(), error.field.as_str()].into_iter().filter(|part| !part.is_empty());
    FieldError::said(field.collect::<Vec<_>>().join(": "), error.said.as_str())
}

/// What has become of a body.
enum Pumped {
    /// The service has answered before its end.
    Answered(Result<Bytes, Status>),
    /// It has been read to its end.
    Whole,
    /// It is refused, or has broken off.
    Refused(Response<Body>),
}

/// A message, or that it was the last one.
enum Sent {
    Message(v1::SubmitItemsRequest),
    End,
}

/// The first message and those that come: broken where nobody says that it is the end.
fn until_the_end(
    first: v1::SubmitItemsRequest,
    parts: mpsc::Receiver<Sent>,
) -> impl futures::Stream<Item = Part> + Send + 'static {
    let encoded = |message: &v1::SubmitItemsRequest| Part::Message(Bytes::from(message.encode_to_vec()));
    let first = encoded(&first);
    let rest = futures::stream::unfold(Some(parts), move |parts| async move {
        let mut parts = parts?;
        match parts.recv().await {
            Some(Sent::Message(message)) => Some((encoded(&message), Some(parts))),
            Some(Sent::End) => None,
            None => {
                // What comes before it is sent first: the service is to know what has broken.
                tokio::task::yield_now().await;
                Some((Part::Broken, None))
            }
        }
    });
    futures::stream::iter([first]).chain(rest)
}

/// Reads a body to its end, and sends its items on.
async fn pump(
    mut reader: Reader,
    body: &mut Body,
    silence_max: Duration,
    sender: mpsc::Sender<Sent>,
) -> Pumped {
    let mut batch = Batch::default();
    loop {
        let full = match reader.advance() {
            Ok(Next::Item(item)) => batch.add(item),
            Ok(Next::Busy) => {
                tokio::task::yield_now().await;
                None
            }
            Ok(Next::Hungry) => {
                if let Err(refusal) = feed(&mut reader, body, silence_max).await {
                    return Pumped::Refused(refusal);
                }
                None
            }
            Ok(Next::End) => {
                if let Some(items) = batch.rest() {
                    send(&sender, Sent::Message(message(items))).await;
                }
                send(&sender, Sent::End).await;
                return Pumped::Whole;
            }
            Err(error) => return Pumped::Refused(error::refusal(&of_items(&error).into())),
        };
        if let Some(items) = full {
            send(&sender, Sent::Message(message(items))).await;
        }
    }
}

/// Sends on what has been read, when it is taken. Where nobody takes it any more, the service has answered or is about to.
async fn send(sender: &mpsc::Sender<Sent>, sent: Sent) {
    if sender.send(sent).await.is_err() {
        std::future::pending::<()>().await;
    }
}

/// The next piece of the body, as soon as it comes.
async fn feed(reader: &mut Reader, body: &mut Body, silence_max: Duration) -> Result<(), Response<Body>> {
    let Ok(frame) = tokio::time::timeout(silence_max, body.frame()).await else {
        let message = format!("nothing of the body has come for {} s", silence_max.as_secs());
        return Err(error::plain(StatusCode::REQUEST_TIMEOUT, Code::DeadlineExceeded, &message));
    };
    match frame {
        None => reader.end(),
        Some(Ok(frame)) => {
            if let Ok(data) = frame.into_data() {
                reader.feed(data);
            }
        }
        // Where the connection broke, nobody is there to read this.
        Some(Err(_)) => {
            let message = "the body is not as its head says: broken off, or chunks that are none";
            return Err(error::plain(StatusCode::BAD_REQUEST, Code::InvalidArgument, message));
        }
    }
    Ok(())
}

fn message(items: Vec<Item>) -> v1::SubmitItemsRequest {
    let items = items.into_iter().map(|Item { data, key, units }| v1::Item { data, key, units }).collect();
    v1::SubmitItemsRequest { part: Some(MessagePart::Items(v1::Items { items })) }
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "tests")]
mod tests;
