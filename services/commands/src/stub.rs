//! A service for tests that only says a code, or nothing at all.

use std::convert::Infallible;
use std::net::SocketAddr;

use http::{Request, Response};
use http_body_util::{BodyExt as _, Empty};
use hyper::body::{Bytes, Incoming};
use hyper::server::conn::http2;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::net::TcpListener;
use tonic::Code;

/// Serves what says, by the path and the bytes of a call, with which code it ends; none where it never does.
pub(crate) async fn serve(says: fn(&str, &[u8]) -> Option<Code>) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap_or_else(|error| panic!("{error}"));
    let address = listener.local_addr().unwrap_or_else(|error| panic!("{error}"));
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let answer = service_fn(move |request: Request<Incoming>| async move {
                let path = request.uri().path().to_owned();
                let body =
                    request.into_body().collect().await.map(|body| body.to_bytes()).unwrap_or_default();
                let Some(code) = says(&path, &body) else { return std::future::pending().await };
                let mut response = Response::new(Empty::<Bytes>::new());
                let headers = response.headers_mut();
                headers.insert("content-type", http::HeaderValue::from_static("application/grpc"));
                headers.insert("grpc-status", http::HeaderValue::from(i32::from(code)));
                Ok::<_, Infallible>(response)
            });
            let server = http2::Builder::new(TokioExecutor::new());
            tokio::spawn(server.serve_connection(TokioIo::new(stream), answer));
        }
    });
    address
}
