//! Decides what the process shows of itself: where the numbers come from, and what must hold for it to be ready.

use std::sync::Arc;

use tokio_util::sync::CancellationToken;
use tollgate_clock::Clock;
use tollgate_event_emitter::Emitter;
use tollgate_event_handler::EventHandler;
use tollgate_metrics::{Metrics, Sources, check};
use tollgate_store::Store;

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
    sources.must(check("process", move || {
        let stopping = stop.is_cancelled();
        async move { if stopping { Err("it is being stopped".to_owned()) } else { Ok(()) } }
    }));
    sources
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
