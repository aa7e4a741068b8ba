//! A port of its own for what can be seen: `/metrics`, `/livez` and `/readyz`.
//!
//! Invariants: nobody holds it for more than a few seconds, and no more than [`CONNECTIONS_MAX`] at once.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use http::{Method, Request, Response, StatusCode, header};
use http_body_util::Full;
use hyper::body::{Bytes, Incoming};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::net::TcpListener;
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;
use tollgate_clock::Clock;

use crate::counts::{Counts, text};

const CONNECTIONS_MAX: usize = 32;
/// How long a connection may take to ask, and may be there.
const ASK_MAX: Duration = Duration::from_secs(5);
const STAY_MAX: Duration = Duration::from_secs(60);

/// Serves the pages until it is told to stop.
pub(crate) async fn serve(
    listener: TcpListener,
    queues: Arc<[Arc<Counts>]>,
    clock: Clock,
    stop: CancellationToken,
) {
    let places = Arc::new(Semaphore::new(CONNECTIONS_MAX));
    loop {
        let accepted = tokio::select! {
            () = stop.cancelled() => return,
            accepted = listener.accept() => accepted,
        };
        let Ok((stream, _)) = accepted else {
            tokio::time::sleep(Duration::from_millis(100)).await;
            continue;
        };
        // One too many is closed: who scrapes comes again.
        let Ok(place) = places.clone().try_acquire_owned() else { continue };
        let (queues, clock, stop) = (queues.clone(), clock.clone(), stop.clone());
        tokio::spawn(async move {
            let service = service_fn(move |request: Request<Incoming>| {
                let page = page(request.method(), request.uri().path(), &queues, &clock, stop.is_cancelled());
                async move { Ok::<_, Infallible>(page) }
            });
            let mut server = http1::Builder::new();
            server.timer(TokioTimer::new()).header_read_timeout(ASK_MAX);
            let _ended =
                tokio::time::timeout(STAY_MAX, server.serve_connection(TokioIo::new(stream), service)).await;
            drop(place);
        });
    }
}

fn page(
    method: &Method,
    path: &str,
    queues: &[Arc<Counts>],
    clock: &Clock,
    stopping: bool,
) -> Response<Full<Bytes>> {
    const TEXT: &str = "text/plain; version=0.0.4; charset=utf-8";
    let (status, body) = match (method, path) {
        (&Method::GET, "/metrics") => (StatusCode::OK, text(queues, clock)),
        (&Method::GET, "/livez") => (StatusCode::OK, "ok\n".to_owned()),
        (&Method::GET, "/readyz") if stopping => {
            (StatusCode::SERVICE_UNAVAILABLE, "it is being stopped\n".to_owned())
        }
        (&Method::GET, "/readyz") => (StatusCode::OK, "ok\n".to_owned()),
        (&Method::GET, _) => (StatusCode::NOT_FOUND, "there are /metrics, /livez and /readyz\n".to_owned()),
        _ => (StatusCode::METHOD_NOT_ALLOWED, "expected GET\n".to_owned()),
    };
    let mut response = Response::new(Full::from(body));
    *response.status_mut() = status;
    response.headers_mut().insert(header::CONTENT_TYPE, http::HeaderValue::from_static(TEXT));
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_page_has_its_status() {
        let status = |method: Method, path: &str, stopping| {
            page(&method, path, &[], &Clock::manual(0), stopping).status().as_u16()
        };
        assert_eq!(status(Method::GET, "/metrics", true), 200);
        assert_eq!(status(Method::GET, "/livez", true), 200);
        assert_eq!(status(Method::GET, "/readyz", false), 200);
        assert_eq!(status(Method::GET, "/readyz", true), 503);
        assert_eq!(status(Method::GET, "/", false), 404);
        assert_eq!(status(Method::POST, "/metrics", false), 405);
    }
}
