//! Decides what becomes of an HTTP request that is not gRPC: which RPC it means, and how its answer looks as JSON.
//!
//! In: the protos' descriptors with their `google.api.http` annotations, and the gRPC services of this process. Out: a
//! router to be merged with others, and [`Port`], which tells gRPC, gRPC-Web and the rest apart. The flow of a request:
//! [`table`] finds the route, [`request`] makes the message of path, query and body, [`call`] carries it to the gRPC
//! service in this process, [`error`] shapes refusals.
//!
//! Invariants: nothing here knows a method by name; what gRPC refuses is refused here with the same code, message and
//! details. Not here: streams, which have no annotation; what values are allowed (the services); who may call (the
//! services, by the headers that are passed on).

mod call;
mod error;
mod handler;
mod hosts;
mod mask;
mod openapi;
mod port;
mod request;
mod same_origin;
mod table;
mod template;

use std::sync::Arc;

use axum::Router;
use axum::routing::any;
use bytes::Bytes;
use tonic::service::Routes;

pub use hosts::Hosts;
pub use port::{Answer, Port};
pub use same_origin::is_cross_site;

use handler::Gateway;

/// JSON over HTTP for the services behind `grpc`, with `/openapi.json`, as a router to be merged with others. Bodies may
/// have at most `body_max_bytes`.
///
/// # Errors
/// Annotations in the protos that cannot be served.
pub fn rest(grpc: Routes, body_max_bytes: usize) -> Result<Router, GatewayError> {
    let pool = tollgate_proto::descriptor_pool();
    let table = table::Table::new(pool)?;
    let document = Bytes::from(openapi::document(pool, &table).to_string());
    let gateway = Gateway { table: Arc::new(table), grpc: grpc.prepare(), body_max_bytes };
    Ok(Router::new()
        .route("/openapi.json", any(move |method| handler::document(method, document.clone())))
        .route("/v1/{*rest}", any(handler::answer))
        .with_state(gateway))
}

/// Why the annotations cannot be served.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{method}: {problem}")]
pub struct GatewayError {
    /// The RPC, as in `tollgate.v1.EventHandlerService.GetRun`.
    pub method: String,
    /// What is wrong with its annotation.
    pub problem: String,
}
