//! The pages: `/metrics`, `/livez`, `/readyz`.
//!
//! Invariants: `/livez` asks nobody; the others answer within seconds, even if a role or the store does not.

use std::sync::Arc;

use axum::Router;
use axum::extract::State;
use axum::http::header::{ACCEPT, CACHE_CONTROL, CONTENT_TYPE};
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse as _, Response};
use axum::routing::get;
use futures::future::BoxFuture;
use serde_json::{Map, Value, json};
use tollgate_clock::Clock;

use crate::Metrics;
use crate::exposition::{self, Scrape};
use crate::process::Process;
use crate::readiness::{Check, failing};
use crate::sample::{EmitterSample, HandlerSample};

const CLASSIC: &str = "text/plain; version=0.0.4; charset=utf-8";
const OPENMETRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// Asks the handler of this process; it must answer within seconds.
type AskHandler = Arc<dyn Fn() -> BoxFuture<'static, HandlerSample> + Send + Sync>;
/// Asks the emitter of this process.
type AskEmitter = Arc<dyn Fn() -> EmitterSample + Send + Sync>;

/// Where the pages get what they say.
#[derive(Clone)]
pub struct Sources {
    metrics: Metrics,
    clock: Clock,
    version: String,
    handler: Option<AskHandler>,
    emitter: Option<AskEmitter>,
    checks: Vec<Check>,
}

impl Sources {
    /// The instruments alone; nothing needs to hold for the process to be ready.
    pub fn new(metrics: Metrics, clock: Clock, version: &str) -> Self {
        Self { metrics, clock, version: version.to_owned(), handler: None, emitter: None, checks: Vec::new() }
    }

    /// With a handler, which must answer within seconds.
    pub fn handler<F>(&mut self, ask: impl Fn() -> F + Send + Sync + 'static)
    where
        F: Future<Output = HandlerSample> + Send + 'static,
    {
        self.handler = Some(Arc::new(move || Box::pin(ask())));
    }

    /// With an emitter.
    pub fn emitter(&mut self, ask: impl Fn() -> EmitterSample + Send + Sync + 'static) {
        self.emitter = Some(Arc::new(ask));
    }

    /// What must hold for the process to be ready.
    pub fn must(&mut self, check: Check) {
        self.checks.push(check);
    }

    async fn scrape(&self) -> Scrape {
        let handler = async {
            match &self.handler {
                Some(ask) => Some(ask().await),
                None => None,
            }
        };
        let (mut handler, failing) = tokio::join!(handler, failing(&self.checks));
        let policies_left_out = handler.as_mut().map_or(0, HandlerSample::bound);
        let targets_left_out = handler.as_mut().map_or(0, HandlerSample::bound_targets);
        Scrape {
            metrics: self.metrics.clone(),
            version: self.version.clone(),
            now_us: self.clock.wall_us(),
            ready: failing.is_empty(),
            handler,
            policies_left_out,
            targets_left_out,
            emitter: self.emitter.as_ref().map(|ask| ask()),
            process: Process::read(),
        }
    }
}

/// The pages, for the port on which everything else is served.
pub fn router(sources: Sources) -> Router {
    Router::new()
        .route("/metrics", get(metrics))
        .route("/livez", get(live))
        .route("/readyz", get(ready))
        .with_state(Arc::new(sources))
}

async fn metrics(State(sources): State<Arc<Sources>>, headers: HeaderMap) -> Response {
    let wanted = headers.get(ACCEPT).and_then(|accept| accept.to_str().ok()).unwrap_or_default();
    match exposition::openmetrics(sources.scrape().await) {
        Ok(text) if wanted.contains("application/openmetrics-text") => {
            page(StatusCode::OK, OPENMETRICS, text)
        }
        Ok(text) => page(StatusCode::OK, CLASSIC, exposition::classic(&text)),
        Err(error) => page(StatusCode::INTERNAL_SERVER_ERROR, "text/plain", error.to_string()),
    }
}

async fn live() -> Response {
    page(StatusCode::OK, "text/plain; charset=utf-8", "ok\n".to_owned())
}

async fn ready(State(sources): State<Arc<Sources>>) -> Response {
    let failing = failing(&sources.checks).await;
    let status = if failing.is_empty() { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
    let not_ready: Map<String, Value> =
        failing.into_iter().map(|(name, reason)| (name.to_owned(), Value::String(reason))).collect();
    let body = json!({ "ready": not_ready.is_empty(), "notReady": not_ready });
    page(status, "application/json", format!("{body}\n"))
}

fn page(status: StatusCode, kind: &'static str, body: String) -> Response {
    (status, [(CONTENT_TYPE, kind), (CACHE_CONTROL, "no-store")], body).into_response()
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]
    use std::sync::atomic::{AtomicBool, Ordering};

    use axum::body::Body;
    use axum::http::Request;
    use http_body_util::BodyExt as _;
    use tower::ServiceExt as _;

    use super::*;
    use crate::check;

    async fn ask(router: &Router, path: &str, accept: &str) -> (u16, String, String) {
        let request = Request::get(path).header(ACCEPT, accept).body(Body::empty()).unwrap();
        let answer = router.clone().oneshot(request).await.unwrap();
        let kind = answer.headers()[CONTENT_TYPE].to_str().unwrap().to_owned();
        let status = answer.status().as_u16();
        let body = answer.into_body().collect().await.unwrap().to_bytes();
        (status, kind, String::from_utf8(body.to_vec()).unwrap())
    }

    #[tokio::test]
    async fn readiness_says_what_is_missing_and_liveness_asks_nobody() {
        static HOLDS: AtomicBool = AtomicBool::new(false);
        let mut sources = Sources::new(Metrics::default(), Clock::manual(0), "1");
        sources.must(check("store", || async {
            if HOLDS.load(Ordering::SeqCst) { Ok(()) } else { Err("gone".to_owned()) }
        }));
        let router = router(sources);
        let (status, kind, body) = ask(&router, "/readyz", "*/*").await;
        assert_eq!((status, kind.as_str()), (503, "application/json"));
        let body: Value = serde_json::from_str(&body).unwrap();
        assert_eq!(body, json!({ "ready": false, "notReady": { "store": "gone" } }));
        assert_eq!(ask(&router, "/livez", "*/*").await.0, 200);
        assert!(ask(&router, "/metrics", "*/*").await.2.contains("\ntollgate_ready 0.0\n"));
        HOLDS.store(true, Ordering::SeqCst);
        let (status, _, body) = ask(&router, "/readyz", "*/*").await;
        assert_eq!((status, body.as_str()), (200, "{\"notReady\":{},\"ready\":true}\n"));
    }

    #[tokio::test]
    async fn the_form_is_the_one_that_was_asked_for() {
        let router = router(Sources::new(Metrics::default(), Clock::manual(0), "1"));
        let (_, kind, body) = ask(&router, "/metrics", "text/plain").await;
        assert!(kind == CLASSIC && !body.contains("# EOF"));
        let wanted = "application/openmetrics-text;version=1.0.0;q=0.5,text/plain;q=0.1";
        let (_, kind, body) = ask(&router, "/metrics", wanted).await;
        assert!(kind == OPENMETRICS && body.ends_with("# EOF\n"));
    }
}
