//! Decides what becomes of an HTTP request that is not gRPC: which RPC it means, and how its answer looks as JSON.
//!
//! In: the protos' descriptors with their `google.api.http` annotations, and the gRPC services of this process. Out: a
//! router to be merged with others, [`Port`], which tells gRPC, gRPC-Web and the rest apart, and [`Bodies`], the room that
//! requests have. The flow of a request: [`table`] finds the route, the door says who calls, [`bodies`] makes room,
//! [`weight`] looks at the text, [`request`] makes the message of path, query and body, [`call`] carries it to the gRPC
//! service in this process, [`error`] shapes refusals. A body of items goes its own way, piece by piece: [`handler::submit`].
//!
//! Invariants: nothing here knows a method by name, but [`handler::submit`] its messages; what gRPC refuses is refused here
//! with the same code, message and details; nothing of a body is kept before it is known who calls. Not here: other
//! streams, which have no annotation; what values are allowed, and which names a caller reaches (the services, by the
//! headers that are passed on).

mod bodies;
mod call;
mod error;
mod handler;
mod hosts;
mod mask;
mod openapi;
mod port;
mod request;
mod same_origin;
mod strict;
mod table;
mod template;
mod weight;

use std::sync::Arc;

use axum::Router;
use axum::routing::any;
use bytes::Bytes;
use tokio::sync::Semaphore;
use tollgate_auth::Door;
use tollgate_metrics::Metrics;
use tonic::service::Routes;

pub use bodies::{Bodies, Roomy};
pub use hosts::Hosts;
pub use port::{AnswerFuture, Port};
pub use same_origin::is_cross_site;

use handler::Gateway;

/// The most large texts that are read or written at once: each takes a core, and a hundred times its length.
const LARGE_AT_ONCE: usize = 1;

/// JSON over HTTP for the services behind `grpc`, with `/openapi.json`, as a router to be merged with others. Bodies may
/// have at most `body_max_bytes`. `door` is the one that stands around `grpc` too: here it is asked before a body is read.
///
/// # Errors
/// Annotations in the protos that cannot be served.
pub fn rest(
    grpc: Routes,
    door: Door,
    bodies: Bodies,
    body_max_bytes: usize,
    metrics: Metrics,
) -> Result<Router, GatewayError> {
    let pool = tollgate_proto::descriptor_pool();
    let table = table::Table::new(pool)?;
    let document = Bytes::from(openapi::document(pool, &table).to_string());
    let (table, grpc, reading) = (Arc::new(table), grpc.prepare(), Arc::new(Semaphore::new(LARGE_AT_ONCE)));
    let uploads = handler::submit::Uploads::default();
    let gateway = Gateway { table, grpc, door, bodies, uploads, reading, body_max_bytes, metrics };
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
