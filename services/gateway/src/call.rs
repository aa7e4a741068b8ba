//! Decides how a message reaches a gRPC service in this process: through the same door as a call from outside.
//!
//! In: a route, a message and the HTTP request's head. Out: the answer's message, or the status. A service whose role is not
//! in this process answers UNIMPLEMENTED. Not here: JSON.

use http::{Extensions, HeaderMap};
use prost::Message as _;
use prost_reflect::{DynamicMessage, MessageDescriptor};
use tonic::codec::{Codec, DecodeBuf, Decoder, EncodeBuf, Encoder};
use tonic::metadata::{Ascii, MetadataValue};
use tonic::service::Routes;
use tonic::{Code, Request, Status};

use crate::table::Route;

/// The headers that become metadata. No other: some metadata speaks for the installation's own processes.
const PASSED_ON: [&str; 4] = ["tollgate-actor", "authorization", "traceparent", "tracestate"];

/// Calls the route's RPC. `extensions` are those of the HTTP request: its connection's addresses and certificates.
pub(crate) async fn unary(
    grpc: Routes,
    route: &Route,
    message: DynamicMessage,
    headers: &HeaderMap,
    extensions: Extensions,
) -> Result<DynamicMessage, Status> {
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
    // What is in this process already is not too large for it.
    let mut client = tonic::client::Grpc::new(grpc).max_decoding_message_size(usize::MAX);
    let Ok(()) = client.ready().await;
    let codec = Dynamic(route.rpc.output());
    match client.unary(request, route.path.clone(), codec).await {
        Ok(answer) => Ok(answer.into_inner()),
        Err(status) if status.code() == Code::Unimplemented && status.message().is_empty() => {
            let service = route.rpc.parent_service();
            Err(Status::unimplemented(format!("{} is not served by this process", service.name())))
        }
        Err(status) => Err(status),
    }
}

/// Messages by their description; holds the answer's.
struct Dynamic(MessageDescriptor);

impl Codec for Dynamic {
    type Encode = DynamicMessage;
    type Decode = DynamicMessage;
    type Encoder = Encode;
    type Decoder = Decode;

    fn encoder(&mut self) -> Encode {
        Encode
    }

    fn decoder(&mut self) -> Decode {
        Decode(self.0.clone())
    }
}

struct Encode;

impl Encoder for Encode {
    type Item = DynamicMessage;
    type Error = Status;

    fn encode(&mut self, message: DynamicMessage, buffer: &mut EncodeBuf<'_>) -> Result<(), Status> {
        message.encode(buffer).map_err(|error| Status::internal(error.to_string()))
    }
}

struct Decode(MessageDescriptor);

impl Decoder for Decode {
    type Item = DynamicMessage;
    type Error = Status;

    fn decode(&mut self, buffer: &mut DecodeBuf<'_>) -> Result<Option<DynamicMessage>, Status> {
        let message = DynamicMessage::decode(self.0.clone(), buffer);
        message.map(Some).map_err(|error| Status::internal(error.to_string()))
    }
}
