//! Decides what the process shows of itself: where the numbers come from, what must hold for it to be ready, and where
//! its traces go.

use std::net::SocketAddr;
use std::sync::Arc;

use tokio_util::sync::CancellationToken;
use tollgate_clock::Clock;
use tollgate_event_emitter::Emitter;
use tollgate_event_handler::EventHandler;
use tollgate_metrics::trace::{TraceOptions, Traces};
use tollgate_metrics::{Metrics, Sources, check};
use tollgate_store::Store;

use crate::config::ServeConfig;

/// What every process shows. It is ready while the store answers, and until it is told to stop.
pub(super) fn sources(
    metrics: &Metrics,
    clock: &Clock,
    store: Arc<dyn Store>,
    stop: CancellationToken,
) -> Sources {
    let mut sources = Sources::new(metrics.clone(), clock.clone(), env!("CARGO_PKG_VERSION"));
    sources.must(check("store", move || {
        let store = store.clone();
        async move { store.ping().await.map_err(|_| "the database does not answer; the log says more".to_owned()) }
    }));
    sources.must(super::time::ready(clock));
    sources.must(check("process", move || {
        let stopping = stop.is_cancelled();
        async move { if stopping { Err("it is being stopped".to_owned()) } else { Ok(()) } }
    }));
    sources
}

/// Traces, where a collector is named that speaks what is spoken here.
///
/// # Errors
/// An endpoint that is no URL.
pub(super) fn traces(config: &ServeConfig, address: SocketAddr) -> anyhow::Result<Traces> {
    let Some(endpoint) = config.otlp_endpoint.clone() else { return Ok(Traces::default()) };
    for variable in ["OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "OTEL_EXPORTER_OTLP_PROTOCOL"] {
        let protocol = std::env::var(variable).unwrap_or_default();
        if !["", "grpc"].contains(&protocol.as_str()) {
            tracing::warn!(
                "{variable}={protocol}: traces are exported by grpc only, so to {endpoint} none are"
            );
            return Ok(Traces::default());
        }
    }
    let ratio = f64::from(config.trace_ppm) / 1e6;
    let instance = config.advertise.clone().unwrap_or_else(|| format!("http://{address}"));
    tracing::info!("traces go to {endpoint}, {ratio} of all events");
    Ok(Traces::start(&TraceOptions { endpoint, ratio, version: env!("CARGO_PKG_VERSION"), instance })?)
}

/// A handler shows its shards, and is ready once others can see that it is there.
pub(super) fn handler(sources: &mut Sources, metrics: &Metrics, handler: &EventHandler) {
    let (handler, metrics) = (handler.clone(), metrics.clone());
    sources.handler(move || {
        let handler = handler.clone();
        async move { handler.sample().await }
    });
    sources.must(check("handler", move || {
        let joined = metrics.heartbeats() > 0;
        async move { if joined { Ok(()) } else { Err("it has written no heartbeat yet".to_owned()) } }
    }));
}

/// An emitter shows how far it is, and is ready once it knows.
pub(super) fn emitter(sources: &mut Sources, emitter: &Emitter) {
    let stats = emitter.stats();
    let looked = stats.clone();
    sources.emitter(move || stats.sample());
    sources.must(check("emitter", move || {
        let looked = looked.emitted_until_us().is_some();
        async move { if looked { Ok(()) } else { Err("it has not looked at the windows yet".to_owned()) } }
    }));
}
