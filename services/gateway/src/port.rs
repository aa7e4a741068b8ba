//! Decides who answers a request on the port: gRPC, gRPC-Web, or the routers of plain HTTP, by its content type.
//!
//! Invariants: a gRPC request passes nothing here but the comparison of that one header and of the host; of every request the
//! host is looked at first.

use std::convert::Infallible;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use axum::Router;
use http::{HeaderMap, Request, Response, StatusCode, Uri, header};
use tonic::body::Body;
use tonic::service::Routes;
use tonic::{Code, Status};
use tonic_web::GrpcWebLayer;
use tower_service::Service;

use crate::error;
use crate::hosts::{Hosts, Refusal};

type Web = tonic_web::GrpcWebService<Routes>;
type Boxed = Pin<Box<dyn Future<Output = Result<Response<Body>, Infallible>> + Send>>;

/// All that the port answers; a tower service for tonic's server, cheap to clone.
#[derive(Clone)]
pub struct Port {
    grpc: Routes,
    web: Web,
    http: Router,
    hosts: Hosts,
}

impl Port {
    /// gRPC and gRPC-Web by `grpc`, everything else by `http`; what that does not know is 404, even if it has a fallback. All
    /// of it under `hosts` only.
    pub fn new(grpc: Routes, http: Router, hosts: Hosts) -> Self {
        let grpc = grpc.prepare();
        let web = tower_layer(&grpc);
        // `with_state` is what makes a router ready to be cloned for each request.
        Self { grpc, web, http: http.fallback(no_such_path).with_state(()), hosts }
    }
}

fn tower_layer(grpc: &Routes) -> Web {
    use tower_layer::Layer as _;
    GrpcWebLayer::new().layer(grpc.clone())
}

async fn no_such_path(uri: Uri) -> Response<axum::body::Body> {
    let message = format!("no such path: {}; /openapi.json lists those that there are", uri.path());
    error::plain(StatusCode::NOT_FOUND, Code::NotFound, &message)
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Protocol {
    Grpc,
    GrpcWeb,
    Http,
}

fn protocol(headers: &HeaderMap) -> Protocol {
    let kind = headers.get(header::CONTENT_TYPE).map(http::HeaderValue::as_bytes).unwrap_or_default();
    match kind.strip_prefix(b"application/grpc") {
        Some(rest) if rest.starts_with(b"-web") => Protocol::GrpcWeb,
        Some([] | [b'+' | b';', ..]) => Protocol::Grpc,
        _ => Protocol::Http,
    }
}

impl Service<Request<Body>> for Port {
    type Response = Response<Body>;
    type Error = Infallible;
    type Future = AnswerFuture;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        // The others are always ready.
        Service::<Request<Body>>::poll_ready(&mut self.grpc, context)
    }

    fn call(&mut self, request: Request<Body>) -> AnswerFuture {
        let (head, body) = request.into_parts();
        let protocol = protocol(&head.headers);
        if let Some(refusal) = self.hosts.refuse(&head) {
            let refused = refused(protocol, refusal);
            return AnswerFuture(Under::Boxed(Box::pin(std::future::ready(Ok(refused)))));
        }
        let request = Request::from_parts(head, body);
        match protocol {
            Protocol::Grpc => AnswerFuture(Under::Grpc(self.grpc.call(request))),
            Protocol::GrpcWeb => AnswerFuture(Under::Boxed(Box::pin(self.web.call(request)))),
            Protocol::Http => {
                let answer = self.http.call(request.map(axum::body::Body::new));
                AnswerFuture(Under::Boxed(Box::pin(async move { Ok(answer.await?.map(Body::new)) })))
            }
        }
    }
}

/// A refusal in the caller's protocol; all of them have the HTTP status.
fn refused(protocol: Protocol, Refusal { http, code, text }: Refusal) -> Response<Body> {
    if protocol == Protocol::Http {
        return error::plain(http, code, &text).map(Body::new);
    }
    let mut response = Status::new(code, text).into_http();
    *response.status_mut() = http;
    response
}

/// The answer of a [`Port`], to come.
pub struct AnswerFuture(Under);

#[expect(clippy::large_enum_variant, reason = "gRPC is the usual case, and needs no box")]
enum Under {
    Grpc(<Routes as Service<Request<Body>>>::Future),
    Boxed(Boxed),
}

impl Future for AnswerFuture {
    type Output = Result<Response<Body>, Infallible>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let answered = match &mut self.0 {
            Under::Grpc(future) => ready!(Pin::new(future).poll(context)),
            Under::Boxed(future) => ready!(future.as_mut().poll(context)),
        };
        Poll::Ready(answered)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_content_type_decides() {
        for (kind, expected) in [
            ("application/grpc", Protocol::Grpc),
            ("application/grpc+proto", Protocol::Grpc),
            ("application/grpc;charset=x", Protocol::Grpc),
            ("application/grpc-web", Protocol::GrpcWeb),
            ("application/grpc-web-text+proto", Protocol::GrpcWeb),
            ("application/grpcx", Protocol::Http),
            ("application/json", Protocol::Http),
        ] {
            let headers =
                HeaderMap::from_iter([(header::CONTENT_TYPE, http::HeaderValue::from_static(kind))]);
            assert_eq!(protocol(&headers), expected, "{kind}");
        }
        assert_eq!(protocol(&HeaderMap::new()), Protocol::Http);
    }
}
