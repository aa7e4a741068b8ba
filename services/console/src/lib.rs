//! The web console: server-rendered pages that read and act through the same API as any client.
//!
//! In: HTTP requests of browsers, and a channel to the API. Out: pages, a stream of events for the page that shows what
//! happens now, and calls in the name of whoever sits before the browser.
//! Invariants: nothing is fetched from elsewhere, and no script stands in a page; a request that changes something
//! comes from a page of this console; no list is read in full, and what has been cut is said.
//! Not here: the store, which the console does not know.

mod api;
mod assets;
mod audit;
mod bucket;
mod calendar;
mod cron;
mod edit;
mod event;
mod go;
mod guard;
mod heat;
mod history;
mod live;
mod login;
mod now;
mod past;
mod picture;
mod policies;
mod policy;
mod problem;
mod run;
mod runs;
mod schedule;
mod schedules;
mod sentence;
mod shell;
mod show;
mod visit;
mod waiting;
mod zone;

use std::sync::Arc;

use axum::Router;
use axum::extract::DefaultBodyLimit;
use axum::routing::{get, post};
use tokio_util::sync::CancellationToken;
use tollgate_clock::Clock;
use tollgate_metrics::Metrics;
use tonic::transport::Channel;

pub use login::{Admit, Login, Visitor};

/// The largest form that is taken, in bytes: a schedule with the largest payload, encoded, fits.
const FORM_MAX_BYTES: usize = 1024 * 1024;

/// How a console is set up.
#[derive(Clone, Debug)]
pub struct Options {
    /// What the pages call now.
    pub clock: Clock,
    /// Ends the streams of open pages, which would otherwise keep the server from stopping.
    pub stop: CancellationToken,
    /// Whether the port speaks TLS: browsers are told to stay with it.
    pub secure: bool,
    /// Where refusals are counted.
    pub metrics: Metrics,
    /// How visitors log in; none where they need not.
    pub login: Option<Login>,
}

/// What all pages share.
#[derive(Clone)]
pub(crate) struct Console {
    pub(crate) channel: Channel,
    pub(crate) clock: Clock,
    pub(crate) stop: CancellationToken,
    pub(crate) metrics: Metrics,
    pub(crate) feeds: Arc<live::Feeds>,
    pub(crate) calendars: Arc<calendar::Calendars>,
    pub(crate) histories: Arc<history::Histories>,
    pub(crate) login: Option<Login>,
}

/// The console's routes: `/`, and everything below `/n/` and `/console/`. What they show comes over `channel`. Inside a
/// runtime it begins to watch the buckets, until `options.stop`.
pub fn router(channel: Channel, options: Options) -> Router {
    let Options { clock, stop, secure, metrics, login } = options;
    let console = Console {
        channel,
        clock,
        stop,
        metrics,
        feeds: Arc::default(),
        calendars: Arc::default(),
        histories: Arc::default(),
        login,
    };
    if let Ok(runtime) = tokio::runtime::Handle::try_current() {
        runtime.spawn(history::sample(console.clone()));
    }
    Router::new()
        .route("/", get(now::page))
        .route("/n/{ns}", get(now::page).post(now::act))
        .route("/n/{ns}/live", get(live::stream))
        .route("/n/{ns}/go", get(go::find))
        .route("/n/{ns}/you", get(go::you).post(go::name))
        .route("/n/{ns}/policies", get(policies::page))
        .route("/n/{ns}/policies/{id}", get(policy::page).post(policy::act))
        .route("/n/{ns}/schedules", get(schedules::page))
        .route("/n/{ns}/schedules/{id}", get(schedule::page).post(schedule::act))
        .route("/n/{ns}/schedules/{id}/edit", get(edit::page).post(edit::act))
        .route("/n/{ns}/runs", get(runs::page))
        .route("/n/{ns}/runs/{id}", get(run::page).post(run::act))
        .route("/n/{ns}/events/{id}", get(event::page).post(event::act))
        .route("/n/{ns}/calendar", get(calendar::page))
        .route("/n/{ns}/audit", get(audit::page))
        .route("/console/{file}", get(assets::file))
        .route("/console/login", get(login::page).post(login::enter))
        .route("/console/logout", post(login::leave))
        .with_state(console.clone())
        .layer(axum::middleware::from_fn_with_state(console, login::guard))
        .layer(DefaultBodyLimit::max(FORM_MAX_BYTES))
        .layer(axum::middleware::from_fn_with_state(guard::Secure(secure), guard::guard))
}
