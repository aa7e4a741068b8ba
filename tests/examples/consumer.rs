//! A consumer: takes events over HTTP, works on each, and gives its token back.
//!
//! `cargo run --example consumer -- 127.0.0.1:8080 http://127.0.0.1:7411`
#![expect(clippy::print_stdout, reason = "it shows what it does")]

use std::error::Error;
use std::time::Duration;

use http_body_util::{BodyExt, Empty};
use hyper::body::{Bytes, Incoming};
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::TokioIo;
use serde_json::Value;
use tokio::net::TcpListener;
use tollgate_proto::v1::event_handler_service_client::EventHandlerServiceClient;
use tollgate_proto::v1::{ReleaseOutcome, ReleaseTokenRequest};
use tonic::transport::{Channel, Endpoint};

type Tollgate = EventHandlerServiceClient<Channel>;

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let listen = arguments.next().unwrap_or_else(|| "127.0.0.1:8080".to_owned());
    let server = arguments.next().unwrap_or_else(|| "http://127.0.0.1:7411".to_owned());
    let tollgate = Tollgate::new(Endpoint::from_shared(server)?.connect_lazy());
    let listener = TcpListener::bind(listen).await?;
    println!("listening on http://{}", listener.local_addr()?);
    loop {
        let (stream, _) = listener.accept().await?;
        let tollgate = tollgate.clone();
        tokio::spawn(async move {
            let service = service_fn(|request| take(request, tollgate.clone()));
            hyper::server::conn::http1::Builder::new().serve_connection(TokioIo::new(stream), service).await
        });
    }
}

/// Accepted is not done: the token stays taken until the work ends.
async fn take(
    request: Request<Incoming>,
    tollgate: Tollgate,
) -> Result<Response<Empty<Bytes>>, Box<dyn Error + Send + Sync>> {
    let event: Value = serde_json::from_slice(&request.into_body().collect().await?.to_bytes())?;
    tokio::spawn(handle(event, tollgate));
    Ok(Response::builder().status(202).body(Empty::new())?)
}

async fn handle(event: Value, mut tollgate: Tollgate) {
    let outcome = if work(&event).await { ReleaseOutcome::Succeeded } else { ReleaseOutcome::Retry };
    let release = ReleaseTokenRequest {
        name: event["id"].as_str().unwrap_or_default().to_owned(),
        attempt: event["attempt"].as_u64().and_then(|attempt| u32::try_from(attempt).ok()),
        outcome: outcome.into(),
        ..ReleaseTokenRequest::default()
    };
    // A release is idempotent, so it may be repeated until it is answered.
    while tollgate
        .release_token(release.clone())
        .await
        .is_err_and(|status| status.code() == tonic::Code::Unavailable)
    {
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
}

/// What this consumer is for.
async fn work(event: &Value) -> bool {
    tokio::time::sleep(Duration::from_millis(20)).await;
    println!("done {} (attempt {}): {}", event["id"], event["attempt"], event["data"]);
    true
}
