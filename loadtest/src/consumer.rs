//! The sink and the yardstick as processes.

use std::io::{BufRead as _, BufReader, Read as _};
use std::process::{Command, Stdio};

use anyhow::{Context, bail, ensure};
use bytes::Bytes;
use http_body_util::{BodyExt as _, Full};
use hyper::Request;
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use tollgate_harness::kernel;
use tollgate_harness::process::Process;

use crate::scenario::Yardstick;
use crate::sink::Ready;
use crate::sink::lane::{Lane, Protocol};
use crate::sink::record::{self, Record};
use crate::yardstick::Said;

/// A running sink; killed when dropped.
pub(crate) struct Sink {
    process: Process,
    ready: Ready,
    client: Client<HttpConnector, Full<Bytes>>,
}

impl Sink {
    /// Starts it, with these lanes; tokens are released to the server.
    ///
    /// # Errors
    /// A sink that does not come up.
    pub(crate) fn start(lanes: &[Lane], server: &str) -> anyhow::Result<Self> {
        let lanes = serde_json::to_string(lanes)?;
        let mut command = Command::new(std::env::current_exe()?);
        command.args(["sink", "--lanes", &lanes, "--server", server]).stdout(Stdio::piped());
        let mut process = Process::start(&mut command)?;
        let out = process.output()?;
        let mut line = String::new();
        BufReader::new(out).read_line(&mut line)?;
        let ready = serde_json::from_str(&line).context("the sink did not start")?;
        Ok(Self { process, ready, client: Client::builder(TokioExecutor::new()).build_http() })
    }

    /// The port of a lane.
    pub(crate) fn port(&self, lane: usize) -> anyhow::Result<u16> {
        self.ready.lanes.get(lane).copied().with_context(|| format!("the sink has no lane {lane}"))
    }

    pub(crate) fn cpu_s(&self) -> f64 {
        kernel::cpu_s(self.process.pid())
    }

    async fn call(&self, method: &str, path: &str) -> anyhow::Result<Bytes> {
        let uri = format!("http://127.0.0.1:{}{path}", self.ready.control);
        let request = Request::builder().method(method).uri(uri).body(Full::default())?;
        let (head, body) = self.client.request(request).await?.into_parts();
        let body = body.collect().await?.to_bytes();
        ensure!(head.status.is_success(), "the sink says: {}", String::from_utf8_lossy(&body));
        Ok(body)
    }

    /// Deliveries to a lane, and how many of them are done.
    pub(crate) async fn count(&self, lane: usize) -> anyhow::Result<(u64, u64)> {
        Ok(serde_json::from_slice(&self.call("GET", &format!("/count/{lane}")).await?)?)
    }

    pub(crate) async fn reset(&self) -> anyhow::Result<()> {
        self.call("POST", "/reset").await.map(|_| ())
    }

    /// Ends the stream of releases: how many releases were taken, and how many were not.
    pub(crate) async fn finish(&self) -> anyhow::Result<(u64, u64)> {
        Ok(serde_json::from_slice(&self.call("POST", "/finish").await?)?)
    }

    /// All deliveries since the last reset.
    pub(crate) async fn records(&self) -> anyhow::Result<Vec<Record>> {
        Ok(record::read(&self.call("GET", "/dump").await?))
    }
}

/// Runs the yardstick against a port to its end.
///
/// # Errors
/// Requests that failed.
pub(crate) async fn run_yardstick(yardstick: &Yardstick, port: u16) -> anyhow::Result<Said> {
    let Yardstick { events, in_flight, per_second, protocol, .. } = *yardstick;
    let mut command = Command::new(std::env::current_exe()?);
    command.arg("yardstick").args(["--target", &format!("http://127.0.0.1:{port}/0")]);
    command.args(["--events", &events.to_string(), "--in-flight", &in_flight.to_string()]);
    if let Some(per_second) = per_second {
        command.args(["--per-second", &per_second.to_string()]);
    }
    if protocol == Protocol::Sqs {
        command.arg("--sqs");
    }
    let mut process = Process::start(command.stdout(Stdio::piped()))?;
    let mut out = process.output()?;
    let text = tokio::task::spawn_blocking(move || {
        let mut text = String::new();
        out.read_to_string(&mut text).map(|_| text)
    });
    let said: Said = serde_json::from_str(&text.await??).context("the yardstick broke off")?;
    if said.failed > 0 {
        bail!("the yardstick: {} requests failed", said.failed);
    }
    Ok(said)
}
