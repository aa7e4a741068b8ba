//! `tollgate ping`: whether a process is there and ready. Needs no key, so that a supervisor that restarts it needs none.

use std::future::poll_fn;

use anyhow::ensure;
use clap::Args;
use http::Request;
use http_body_util::BodyExt as _;
use tonic::Status;
use tonic::body::Body;
use tower_service::Service as _;

use super::Session;
use super::unreached::Unreachable;

/// Arguments of `ping`.
#[derive(Args, Clone, Copy, Debug)]
pub(crate) struct PingArgs {}

/// Asks `/readyz`.
///
/// # Errors
/// What is not ready, or that nothing answers.
pub(crate) async fn run(session: Session, _: PingArgs) -> anyhow::Result<()> {
    let mut channel = session.channel.clone();
    let gone = |error: tonic::transport::Error| Unreachable::new(&session.server, &error);
    poll_fn(|context| channel.poll_ready(context)).await.map_err(gone)?;
    let answer = channel.call(Request::get("/readyz").body(Body::empty())?).await.map_err(gone)?;
    let status = answer.status();
    let broken = |status: Status| session.failure("read the answer", status);
    let text = answer.into_body().collect().await.map_err(broken)?.to_bytes();
    ensure!(status.is_success(), "not ready: {}", String::from_utf8_lossy(&text).trim());
    session.printer.line("ready")
}
