//! Traces of events: spans from emission to release, exported by OTLP over gRPC.
//!
//! Each event is one trace, whose ids follow from its run and index, so that every process that works on it, at
//! every attempt, names the same trace without having been told. The run's emission is a trace of its own,
//! to which the event's links: a run of ten million events is emitted as one row.
//!
//! | span | from, to | written by |
//! | --- | --- | --- |
//! | `emit` | a run is handed to its queue shard | the process that hands it over |
//! | `event` (root) | the run's launch time, the event's end | the owner, once the end is durable |
//! | `wait` | the event's launch time, the begin of the commit that takes its token | the owner |
//! | `acquire` | that commit | the owner |
//! | `fire` | the delivery, until its answer | the owner; its id is the `traceparent` that the consumer gets |
//! | `release` | a release, until its answer | the process that took the call |
//!
//! Invariants: while it is off, an event costs a look at an option; spans never hold up the work: a full queue drops them,
//! and says how many. Not here: logs, metrics, propagation over the wire (the targets, the handler's service).

mod export;
mod id;
mod span;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use opentelemetry::KeyValue;
use opentelemetry_otlp::{ExporterBuildError, SpanExporter, WithExportConfig as _, WithTonicConfig as _};
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::trace::{SpanData, SpanExporter as _};
use tokio::sync::{mpsc, oneshot};
use tollgate_core::model::{Run, RunId};
use tonic::transport::ClientTlsConfig;

pub use id::{EventTrace, NotATraceparent, Traceparent};
pub use span::{Ended, Fired, Released};

/// Spans that wait to be exported, at most.
const QUEUE_MAX: usize = 16_384;
/// How long the last spans may take to be exported when the process stops.
const CLOSE_MAX: Duration = Duration::from_secs(3);

/// How traces are exported.
#[derive(Clone, Debug, PartialEq)]
pub struct TraceOptions {
    /// Where a collector takes OTLP over gRPC, such as `http://127.0.0.1:4317`.
    pub endpoint: String,
    /// The part of the events that is traced, 0 to 1. All processes of an installation should agree in it.
    pub ratio: f64,
    /// The service's version, for the collector.
    pub version: &'static str,
    /// What tells this process from others, such as the address that it listens on.
    pub instance: String,
}

/// Why traces cannot be exported.
#[derive(Debug, thiserror::Error)]
#[error("otlp_endpoint: {0}")]
pub struct TraceError(#[from] ExporterBuildError);

/// What became of the spans of this process.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SpanCounts {
    /// Taken by the collector.
    pub exported: u64,
    /// Given up: the queue was full, or the collector did not take them.
    pub dropped: u64,
}

/// Traces of this process: off by default. Cheap to clone; all clones are one.
#[derive(Clone, Debug, Default)]
pub struct Traces(Option<Arc<Tracer>>);

#[derive(Debug)]
struct Tracer {
    spans: mpsc::Sender<SpanData>,
    /// An event is traced if the last 64 bits of its trace's id are below this; all are where there is none.
    below: Option<u64>,
    tally: Arc<Tally>,
    /// Asks the exporter to end, and how it says that it has.
    close: std::sync::Mutex<Option<(oneshot::Sender<()>, tokio::task::JoinHandle<()>)>>,
}

#[derive(Debug, Default)]
struct Tally {
    exported: AtomicU64,
    dropped: AtomicU64,
}

impl Traces {
    /// Exports from now on, in a task of the current tokio runtime. Headers, certificates and time-outs are those of the
    /// standard variables (`OTEL_EXPORTER_OTLP_HEADERS`, …), as are the resource's attributes. A collector that is not
    /// there is no error: spans are dropped until it is.
    ///
    /// # Errors
    /// An endpoint that is no URL.
    pub fn start(options: &TraceOptions) -> Result<Self, TraceError> {
        let builder = SpanExporter::builder().with_tonic().with_endpoint(&options.endpoint);
        let mut exporter = if options.endpoint.starts_with("https:") {
            builder.with_tls_config(ClientTlsConfig::new().with_enabled_roots()).build()?
        } else {
            builder.build()?
        };
        exporter.set_resource(&resource(options));
        let (spans, waiting) = mpsc::channel(QUEUE_MAX);
        let (close, closed) = oneshot::channel();
        let tally = Arc::new(Tally::default());
        let task = tokio::spawn(export::run(exporter, waiting, closed, tally.clone()));
        let close = std::sync::Mutex::new(Some((close, task)));
        Ok(Self(Some(Arc::new(Tracer { spans, below: below(options.ratio), tally, close }))))
    }

    /// Whether anything is traced at all.
    pub fn is_on(&self) -> bool {
        self.0.is_some()
    }

    /// The trace of an event; none while traces are off. An event that is not sampled has one, too, so that consumers
    /// are told not to trace it.
    pub fn event(&self, run: RunId, index: u32) -> Option<EventTrace> {
        let tracer = self.0.as_deref()?;
        Some(EventTrace::of(run, index, tracer.below))
    }

    /// As [`Traces::event`], by the run as resource names have it: `<shard>-<run>`.
    pub fn event_of(&self, run: &str, index: u32) -> Option<EventTrace> {
        let tracer = self.0.as_deref()?;
        let (_, id) = run.split_once('-')?;
        Some(EventTrace::of(RunId(uuid::Uuid::try_parse(id).ok()?), index, tracer.below))
    }

    /// Runs have been handed to their queue shards, from `began_us` to `ended_us` (wall clock).
    pub fn emitted(&self, runs: &[Run], began_us: i64, ended_us: i64) {
        if let Some(tracer) = self.0.as_deref() {
            runs.iter().for_each(|run| tracer.put(span::emit(run, began_us, ended_us)));
        }
    }

    /// A delivery has been answered.
    pub fn fired(&self, trace: &EventTrace, fired: &Fired<'_>) {
        if let (Some(tracer), true) = (self.0.as_deref(), trace.is_sampled()) {
            span::fire(trace, fired).into_iter().flatten().for_each(|span| tracer.put(span));
        }
    }

    /// A release has been answered.
    pub fn released(&self, trace: &EventTrace, released: &Released) {
        if let (Some(tracer), true) = (self.0.as_deref(), trace.is_sampled()) {
            tracer.put(span::release(trace, released));
        }
    }

    /// An event has ended.
    pub fn ended(&self, ended: &Ended) {
        if let Some(tracer) = self.0.as_deref() {
            tracer.put(span::event(ended));
        }
    }

    /// What became of the spans so far.
    pub fn counts(&self) -> SpanCounts {
        let Some(tracer) = self.0.as_deref() else { return SpanCounts::default() };
        let read = |count: &AtomicU64| count.load(Ordering::Relaxed);
        SpanCounts { exported: read(&tracer.tally.exported), dropped: read(&tracer.tally.dropped) }
    }

    /// Exports what waits, for seconds at most; nothing is taken from now on.
    pub async fn close(&self) {
        let Some(tracer) = self.0.as_deref() else { return };
        let held = tracer.close.lock().unwrap_or_else(std::sync::PoisonError::into_inner).take();
        let Some((close, task)) = held else { return };
        // It is no matter whether it has ended by itself.
        let _ended = close.send(());
        if tokio::time::timeout(CLOSE_MAX, task).await.is_err() {
            tracing::warn!("the last spans were not exported");
        }
    }
}

impl Tracer {
    fn put(&self, span: SpanData) {
        if self.spans.try_send(span).is_err() {
            self.tally.dropped.fetch_add(1, Ordering::Relaxed);
        }
    }
}

fn below(ratio: f64) -> Option<u64> {
    // What is not a number traces nothing.
    (ratio < 1.0 || ratio.is_nan()).then_some((ratio.max(0.0) * 2_f64.powi(64)) as u64)
}

/// The variables win, as everywhere with OpenTelemetry.
fn resource(options: &TraceOptions) -> Resource {
    let own = [
        KeyValue::new("service.version", options.version),
        KeyValue::new("service.instance.id", options.instance.clone()),
    ];
    let given = |name: &str| std::env::var(name).unwrap_or_default();
    let named =
        !given("OTEL_SERVICE_NAME").is_empty() || given("OTEL_RESOURCE_ATTRIBUTES").contains("service.name=");
    let builder = Resource::builder().with_attributes(own);
    if named { builder.build() } else { builder.with_service_name("tollgate").build() }
}
