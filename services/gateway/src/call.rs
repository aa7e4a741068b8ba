//! Decides how a message reaches a gRPC service in this process: through the same door as a call from outside.
//!
//! In: a route, an encoded message or several, and the HTTP request's head. Out: the encoded answer, or the status. A service
//! whose role is not in this process answers UNIMPLEMENTED. Not here: JSON.

use bytes::{Buf as _, BufMut as _, Bytes};
use futures::Stream;
use http::{Extensions, HeaderMap};
use tonic::codec::{Codec, DecodeBuf, Decoder, EncodeBuf, Encoder};
use tonic::metadata::{Ascii, MetadataValue};
use tonic::service::Routes;
use tonic::{Code, Request, Response, Status};

use crate::table::Route;

/// The headers that become metadata. No other: some metadata speaks for the installation's own processes.
const PASSED_ON: [&str; 5] =
    ["tollgate-actor", "tollgate-reason", "authorization", "traceparent", "tracestate"];

/// Calls the route's RPC with an encoded message; the answer is encoded too. `extensions` are those of the HTTP request:
/// its connection's addresses and certificates.
pub(crate) async fn unary(
    grpc: Routes,
    route: &Route,
    message: Bytes,
    headers: &HeaderMap,
    extensions: Extensions,
) -> Result<Bytes, Status> {
    let request = with_head(message, headers, extensions)?;
    // What is in this process already is not too large for it.
    let mut client = tonic::client::Grpc::new(grpc).max_decoding_message_size(usize::MAX);
    let Ok(()) = client.ready().await;
    answered(route, client.unary(request, route.path.clone(), Encoded).await)
}

/// A part of a stream of messages.
pub(crate) enum Part {
    /// An encoded message.
    Message(Bytes),
    /// The stream breaks off here.
    Broken,
}

/// As [`unary`], with a stream of messages. Where it breaks, so does the service's: it has not come to its end then.
pub(crate) async fn stream(
    grpc: Routes,
    route: &Route,
    parts: impl Stream<Item = Part> + Send + 'static,
    headers: &HeaderMap,
    extensions: Extensions,
) -> Result<Bytes, Status> {
    let request = with_head(parts, headers, extensions)?;
    let mut client = tonic::client::Grpc::new(grpc).max_decoding_message_size(usize::MAX);
    let Ok(()) = client.ready().await;
    answered(route, client.client_streaming(request, route.path.clone(), Parts).await)
}

/// A request with what of the HTTP request's head is passed on.
fn with_head<T>(message: T, headers: &HeaderMap, extensions: Extensions) -> Result<Request<T>, Status> {
    let mut request = Request::new(message);
    for name in PASSED_ON {
        // All of them: the door refuses two keys.
        for value in headers.get_all(name) {
            let value = MetadataValue::<Ascii>::try_from(value.as_bytes())
                .map_err(|_| Status::invalid_argument(format!("the header {name} is not plain text")))?;
            request.metadata_mut().append(name, value);
        }
    }
    *request.extensions_mut() = extensions;
    Ok(request)
}

fn answered(route: &Route, answer: Result<Response<Bytes>, Status>) -> Result<Bytes, Status> {
    match answer {
        Ok(answer) => Ok(answer.into_inner()),
        Err(status) if status.code() == Code::Unimplemented && status.message().is_empty() => {
            let service = route.rpc.parent_service();
            Err(Status::unimplemented(format!("{} is not served by this process", service.name())))
        }
        Err(status) => Err(status),
    }
}

/// Messages as they are on the wire.
struct Encoded;

impl Codec for Encoded {
    type Encode = Bytes;
    type Decode = Bytes;
    type Encoder = Self;
    type Decoder = Self;

    fn encoder(&mut self) -> Self {
        Self
    }

    fn decoder(&mut self) -> Self {
        Self
    }
}

impl Encoder for Encoded {
    type Item = Bytes;
    type Error = Status;

    fn encode(&mut self, message: Bytes, buffer: &mut EncodeBuf<'_>) -> Result<(), Status> {
        buffer.put(message);
        Ok(())
    }
}

impl Decoder for Encoded {
    type Item = Bytes;
    type Error = Status;

    fn decode(&mut self, buffer: &mut DecodeBuf<'_>) -> Result<Option<Bytes>, Status> {
        Ok(Some(buffer.copy_to_bytes(buffer.remaining())))
    }
}

/// Parts of a stream as they are on the wire; one that breaks off has no end there.
struct Parts;

impl Codec for Parts {
    type Encode = Part;
    type Decode = Bytes;
    type Encoder = Self;
    type Decoder = Encoded;

    fn encoder(&mut self) -> Self {
        Self
    }

    fn decoder(&mut self) -> Encoded {
        Encoded
    }
}

impl Encoder for Parts {
    type Item = Part;
    type Error = Status;

    fn encode(&mut self, part: Part, buffer: &mut EncodeBuf<'_>) -> Result<(), Status> {
        match part {
            Part::Message(message) => {
                buffer.put(message);
                Ok(())
            }
            Part::Broken => Err(Status::aborted("the stream broke off")),
        }
    }
}
