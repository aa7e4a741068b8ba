//! Takes spans to the collector in batches, and says once when it goes away, and once when it is back.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use opentelemetry_otlp::SpanExporter;
use opentelemetry_sdk::trace::{SpanData, SpanExporter as _};
use tokio::sync::{mpsc, oneshot};

use crate::Tally;

/// Spans of one call, at most.
const BATCH_MAX: usize = 512;
/// How long a span waits for others to be exported with it.
const LINGER: Duration = Duration::from_millis(200);

/// Exports until `close`, and then what is left.
pub(crate) async fn run(
    exporter: SpanExporter,
    mut waiting: mpsc::Receiver<SpanData>,
    mut close: oneshot::Receiver<()>,
    tally: Arc<Tally>,
) {
    let mut lost = false;
    loop {
        let mut batch = Vec::new();
        let mut closing = waiting.is_closed();
        if closing {
            waiting.recv_many(&mut batch, BATCH_MAX).await;
        } else {
            tokio::select! {
                _ = &mut close => closing = true,
                received = waiting.recv_many(&mut batch, BATCH_MAX) => closing = received == 0,
            }
            if !closing && batch.len() < BATCH_MAX {
                // The close does not wait for further spans.
                closing = tokio::time::timeout(LINGER, &mut close).await.is_ok();
                while batch.len() < BATCH_MAX
                    && let Ok(span) = waiting.try_recv()
                {
                    batch.push(span);
                }
            }
            if closing {
                waiting.close();
            }
        }
        if batch.is_empty() {
            if closing && waiting.is_empty() {
                return;
            }
            continue;
        }
        let spans = batch.len() as u64;
        match exporter.export(batch).await {
            Ok(()) => {
                tally.exported.fetch_add(spans, Ordering::Relaxed);
                if std::mem::take(&mut lost) {
                    tracing::info!("the collector takes spans again");
                }
            }
            Err(error) => {
                tally.dropped.fetch_add(spans, Ordering::Relaxed);
                if !std::mem::replace(&mut lost, true) {
                    tracing::warn!(%error, "the collector does not take spans; they are dropped until it does");
                }
            }
        }
    }
}
