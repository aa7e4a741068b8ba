//! A port that takes HTTP, for whoever keeps its own books of what comes.

use std::error::Error;

use hyper::body::{Body, Incoming};
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::net::{TcpListener, TcpStream};

/// Takes connections for ever, and meets each in a task of its own.
pub async fn accept<F>(listener: TcpListener, meet: impl Fn(TcpStream) -> F)
where
    F: Future<Output = ()> + Send + 'static,
{
    loop {
        // A connection that ended before it was taken is nobody's.
        let Ok((stream, _)) = listener.accept().await else { continue };
        // Without it small answers are slower, and nothing else happens.
        let _slower = stream.set_nodelay(true);
        tokio::spawn(meet(stream));
    }
}

/// Answers the requests of a connection, until it ends. An error of `take` closes it.
pub async fn serve<B, E, F>(stream: TcpStream, take: impl Fn(Request<Incoming>) -> F)
where
    B: Body + 'static,
    B::Error: Into<Box<dyn Error + Send + Sync>>,
    E: Into<Box<dyn Error + Send + Sync>>,
    F: Future<Output = Result<Response<B>, E>>,
{
    let connection = hyper::server::conn::http1::Builder::new();
    // One that breaks is the sender's business: it sends again.
    let _closed = connection.serve_connection(TokioIo::new(stream), service_fn(take)).await;
}

/// As [`serve`], by HTTP/2: many requests at once, in tasks of their own.
pub async fn serve_http2<B, E, F>(stream: TcpStream, take: impl Fn(Request<Incoming>) -> F)
where
    B: Body + Send + 'static,
    B::Data: Send,
    B::Error: Into<Box<dyn Error + Send + Sync>>,
    E: Into<Box<dyn Error + Send + Sync>>,
    F: Future<Output = Result<Response<B>, E>> + Send + 'static,
{
    let mut connection = hyper::server::conn::http2::Builder::new(TokioExecutor::new());
    connection.max_concurrent_streams(250);
    let _closed = connection.serve_connection(TokioIo::new(stream), service_fn(take)).await;
}
