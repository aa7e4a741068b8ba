//! A worker by each of the ways: events are pulled from a queue, come by HTTP, or lie in a queue of SQS.
//!
//!     QUEUE=resize TOLLGATE=http://127.0.0.1:7411 cargo run -p tollgate-worker --example resize
//!     LISTEN=127.0.0.1:8080 WEBHOOK_SECRET=whsec_… cargo run -p tollgate-worker --example resize
//!     QUEUE_URL=https://sqs.… cargo run -p tollgate-worker --features sqs --example resize
#![expect(clippy::print_stdout, reason = "it shows what it does")]

use std::error::Error;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use serde::Deserialize;
use tollgate_worker::{Context, Event, Failure, Http, Pull, Source, Worker};

/// What the schedules carry.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Picture {
    work_ms: u64,
    /// The first event with this index stumbles, once.
    stumble: Option<u32>,
}

static STUMBLED: AtomicBool = AtomicBool::new(false);

/// The work.
async fn resize(event: Event, context: Context) -> Result<(), Failure> {
    let picture: Picture = event.decode().map_err(|error| Failure::failed(format!("data: {error}")))?;
    println!("begin {} (attempt {})", event.id, event.attempt);
    tokio::select! {
        () = tokio::time::sleep(Duration::from_millis(picture.work_ms)) => {}
        () = context.cancelled() => return Err(Failure::retry("the token is lost")),
    }
    if picture.stumble == Some(event.index) && !STUMBLED.swap(true, Ordering::Relaxed) {
        println!("stumbled {}", event.id);
        return Err(Failure::retry("the disk is full"));
    }
    println!("done {}", event.id);
    Ok(())
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    tracing_subscriber::fmt().with_writer(std::io::stderr).init();
    let concurrency = setting("CONCURRENCY", "4").parse()?;
    Worker::new(source().await?, resize).concurrency(concurrency).run().await?;
    println!("stopped");
    Ok(())
}

fn setting(name: &str, otherwise: &str) -> String {
    std::env::var(name).unwrap_or_else(|_| otherwise.to_owned())
}

async fn source() -> Result<Source, Box<dyn Error>> {
    if let Ok(queue) = std::env::var("QUEUE") {
        println!("pulling from {queue}");
        return Ok(Pull::new(queue).into());
    }
    #[cfg(feature = "sqs")]
    if let Ok(queue_url) = std::env::var("QUEUE_URL") {
        println!("pulling from {queue_url}");
        return Ok(sqs(queue_url).await);
    }
    let secret = std::env::var("WEBHOOK_SECRET").unwrap_or_default();
    let http = Http::bind(&setting("LISTEN", "127.0.0.1:8080"), [secret.as_str()]).await?;
    println!("listening on http://{}", http.local_addr()?);
    Ok(http.into())
}

/// The queue, with credentials as all programs of AWS find them.
#[cfg(feature = "sqs")]
async fn sqs(queue_url: String) -> Source {
    use aws_smithy_http_client::tls::{Provider, rustls_provider::CryptoMode};

    let http = aws_smithy_http_client::Builder::new().tls_provider(Provider::Rustls(CryptoMode::Ring));
    let loader = aws_config::defaults(aws_config::BehaviorVersion::latest()).http_client(http.build_https());
    let config = Box::pin(loader.load()).await;
    tollgate_worker::Sqs::new(aws_sdk_sqs::Client::new(&config), queue_url).into()
}
